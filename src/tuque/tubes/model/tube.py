"""One tube: tasks, counters, options, notices, replicas, and this node's vote (SPEC T).

A Queue in the table of queues; its driver orders its READY tasks. Plain jobs that arrive here (they
were on their way when the tube was created) queue behind them as in a plain queue.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.job import Job
from tuque.core.model.job_id import tube_mark
from tuque.core.model.task import FAR, MAX_MS, Task
from tuque.core.msgs.packed import FAMILY_BYTES
from tuque.core.node.queue import Policy, Queue
from tuque.tubes.model.options import CHANGES_MAX, SHEET_CHANGES, Change, Putter, Sheet
from tuque.tubes.types.driver import Driver, Order, first_of

# states of a tube on a node (T19)
INIT: Final = 0
STARTUP: Final = 1
RUNNING: Final = 2
ENDING: Final = 3
WAITING: Final = 4

STATE_NAMES: Final = [b"INIT", b"STARTUP", b"RUNNING", b"ENDING", b"WAITING"]

# Every transition, with its cause (T19). docs show it.
ARROWS: Final = [
    (INIT, b"it is the leader, and enough nodes have sent their catalog", STARTUP),
    (INIT, b"it is the leader by YOURS or by command", STARTUP),
    (STARTUP, b"the epoch is on disk, the tasks are loaded", RUNNING),
    (STARTUP, b"another leader has a higher epoch", WAITING),
    (RUNNING, b"TUBE HOME, read-only, leaving, too few nodes, a higher epoch", ENDING),
    (ENDING, b"the leadership moved, or is suspended", WAITING),
    (WAITING, b"it is the leader (again)", STARTUP),
]

NO_FAMILY: Final = bytes(FAMILY_BYTES)
ALL_LOOKS: Final = (1 << 62) - 1
ORDERS_MAX: Final = 100  # of a tube, in which its first tasks are found without a walk over all
TUBE_BYTES: Final = 4000
CHANGE_BYTES: Final = 18
TRAIL_BYTES: Final = 40  # per change that followers may still need


# ---- Replicas and leadership of a tube: plain data (SPEC T17 to T20)


@final
class Walk:
    """A scan that sends a follower all tasks, in the order of their numbers."""

    def __init__(self) -> None:
        self.is_fresh = True  # nothing sent yet
        self.numbers: list[int] = []
        self.pos: i64 = 0
        self.keys: list[tuple[bytes, bytes, int]] = []  # of DEDUPE, after the tasks (T18.8)
        self.key_pos: i64 = 0
        self.next_number: i64 = 0  # lower ones were sent
        self.end_number: i64 = 0  # higher ones are newer than the scan


@final
class Follower:
    """Another node with a replica, as the leader sees it."""

    def __init__(self, slot: i64) -> None:
        self.slot = slot
        self.cursor: i64 = 0  # changes sent up to here
        self.got: i64 = 0  # changes confirmed up to here
        self.is_complete = False
        self.is_open = False  # it asked for changes on this link
        self.is_new = False  # its request is not yet confirmed
        self.is_stopped = False  # it cannot deliver tasks (T19.5)
        self.walk: Walk | None = None
        self.known: i64 = 0  # its newest known epoch


@final
class Held:
    """A session that holds tasks on the leader, as the replicas know it (T20.5)."""

    def __init__(self, uuid: bytes, user: bytes) -> None:
        self.uuid = uuid
        self.user = user


@final
class Shift:
    """The tasks of a tube are being loaded into the tables of its leader, or unloaded (T19.6)."""

    def __init__(self, numbers: list[int], is_in: bool) -> None:
        self.numbers = numbers  # of the tasks to move, in order
        self.is_in = is_in
        self.is_settled = False  # load: holders are settled, tasks enter the tables
        self.pos: i64 = 0
        self.taken: list[Task] = []  # load: TAKEN copies found so far
        self.orphans: list[Task] = []  # load: TAKEN by a session that has ended
        self.dead: list[tuple[int, int]] = []  # load: serial and number of dead letters found
        self.dead_at: i64 = 0  # where these follow the others
        self.old: Driver | None = None  # unload: the driver of before, whose tables are freed


@final
class Overtaken:
    """What a former leader had when it heard of the next one, until that one tells more (T21.4)."""

    def __init__(self, seq: i64, answered_seq: i64, loaded_seq: i64) -> None:
        self.seq = seq
        self.answered_seq = answered_seq  # changes up to here were answered (T18.5)
        self.loaded_seq = loaded_seq


@final
class Move:
    """A running switchover (T20)."""

    def __init__(
        self, slot: i64, node_id: bytes, client: i64, serial: i64, now_ms: i64, limit_ms: i64
    ) -> None:
        self.slot = slot
        self.node_id = node_id
        self.client = client  # < 0: no client waits for the reply
        self.serial = serial
        self.limit_ms = limit_ms  # time limit
        self.until_ms = now_ms + limit_ms
        self.asked_seq: i64 = -1  # the change that the new leader must have on disk
        self.on_disk_seq: i64 = -1  # the change that it has there
        self.is_given = False  # the epoch is recorded: no way back


# ---- The vote of this node about one tube: plain data (SPEC T24)


@final
class Seat:
    """Where this node stands about one tube, and who stands with it (T24)."""

    def __init__(self) -> None:
        self.voted_epoch: i64 = 0  # of the last vote of this node; on its disk
        self.voted_node = b""
        self.resigned_epoch: i64 = 0  # the last one under which a node gave up, and which (T25.4)
        self.resigned_node = b""
        self.standing: i64 = 0  # slots of voters that stand with this node under its epoch
        self.floor: i64 = 0  # the highest epoch that anybody stands at
        self.asked_epoch: i64 = 0  # this node asks for votes under it; 0: it does not
        self.asked_ms: i64 = 0  # since when
        self.reason: i64 = 0  # why there is no leader, of model/voter_state.py; 0: not asked yet
        self.surveyed_ms: i64 = 0  # since when this node asks who would vote; 0: it does not
        self.answered: i64 = 0  # slots that would vote
        self.has_better = False  # one of them has a newer copy
        self.waits: i64 = 0  # surveys that ended so
        self.silent_ms: i64 = 0  # since when no node leads it, as far as known; 0: one does
        self.alone_ms: i64 = 0  # since when votes choose no leader, with a majority here; 0: no
        self.given_epoch: i64 = 0  # a leader that gave up gave it the tube, all of it (T27.6)
        self.given_seq: i64 = -1
        self.wait_ms: i64 = 0  # the next survey is not before
        self.settled: i64 = 0  # the list under which the leader has settled the tube (T28.3)
        self.settled_epoch: i64 = 0  # which leader that was
        self.settled_node = b""
        self.settling: i64 = 0  # the leader: under which list it settles the tube now
        self.settling_seq: i64 = 0  # the change that a majority must have for that
        self.covering_seq: i64 = 0  # the same for the list to which one voter grows (T28.9)


# ---- The tube itself


@final
class Calls:
    """Counters of one tube's tasks since the process started (T11)."""

    def __init__(self) -> None:
        self.ack: i64 = 0
        self.bury: i64 = 0
        self.delete: i64 = 0
        self.kick: i64 = 0
        self.put: i64 = 0
        self.release: i64 = 0
        self.take: i64 = 0
        self.touch: i64 = 0
        self.ttl: i64 = 0
        self.ttr: i64 = 0
        self.delay: i64 = 0
        self.done: i64 = 0  # ended: acked, deleted, expired
        self.truncated: i64 = 0
        self.moved: i64 = 0  # deleted otherwise: eviction, dead letters
        self.loaded: i64 = 0  # from the journal


class Tube(Queue):
    """A queue with a policy, a driver and numbered tasks. Times are ms."""

    def __init__(
        self, name: bytes, serial: i64, now_ms: i64, number: i64, type: bytes, driver: Driver
    ) -> None:
        super().__init__(name, serial, now_ms)
        self.number = number  # identifies the tube
        self.mark = tube_mark(name)  # in the ids of its tasks (G6.8)
        self.type = type
        self.driver = driver
        # options
        self.is_temporary = False
        self.ttl_ms: i64 = MAX_MS
        self.ttr_ms: i64 = MAX_MS
        self.pri: i64 = 0
        self.capacity: i64 = 0
        self.storage_mode = b""
        self.engine = b""
        self.on_task_change = b""
        # made by an enqueue (T2.9)
        self.is_implicit = False
        self.idle_ms: i64 = now_ms  # since when it is idle, as far as was looked
        self.idle_seq: i64 = 0  # notices until then
        # tasks
        self.tasks: dict[int, Task] = {}  # by number
        self.next_number: i64 = 0
        self.reserved: i64 = 0  # temporary tube: lower numbers are in the journal as used
        self.graves = Order()
        self.taken: i64 = 0
        self.delayed: i64 = 0
        self.buried: i64 = 0
        self.plain: i64 = 0  # queued jobs that are not tasks
        self.drops: i64 = 0  # long commands in progress: no puts and takes (T2.8)
        self.calls = Calls()
        self.putters: deque[Putter] = deque()  # waiting for room, first come first
        self.waiting_puts: i64 = 0  # of them, without finished ones
        self.alarm_ms: i64 = FAR  # the next of its alarms (T42.3)
        # notices
        self.subscribers: i64 = 0
        self.change_seq: i64 = 0
        self.sheets: list[Sheet] = []  # full ones, oldest first
        self.sheet = Sheet()
        self.begin_home()

    def begin_home(self) -> None:
        """The leader of the tube, and its replicas (T17 to T22)."""
        self.state: i64 = RUNNING
        self.is_mine = True  # this node leads, and has the tasks
        self.home = b""  # node id
        self.epoch: i64 = 1
        self.maker = b""  # creator's node id; unique together with `made_ns`
        self.made_ns: i64 = 0
        self.sync: i64 = 1  # nodes that must have a change before its reply
        self.by_majority = False  # so must a majority of the voters (T18.5)
        self.led_by_votes = False  # votes choose its leader (T23.5)
        self.family = NO_FAMILY  # voters of which lists choose its leader (T23.7)
        self.moves: i64 = 0  # how often another family has got it
        self.from_number: i64 = 0  # of that family's list, until it has been led there; 0: it has
        self.is_confirmed = False  # its leader has had a lease by votes, as far as known (T17.5)
        self.vote_wish: i64 = 0  # it is new: no vote before the journal grants this (T27.8); 0: old
        self.conflict = b""  # leader of another tube of this name
        self.seq: i64 = 0  # the last change here
        # on the leader
        self.trail: list[int] = []  # last changes: task number * 4, and what of it is new
        self.trail_base: i64 = 0  # the change before the first one in it
        self.trail_end: i64 = 0  # the last change in it
        self.key_trail: deque[tuple[int, bytes]] = deque()  # keys of DEDUPE: change and key (T18.8)
        self.loaded_seq: i64 = 0  # `seq` at startup
        self.exact_seq: i64 = -1  # of a leader that started: the last change on its disk; else -1
        self.seq_reserved: i64 = 0  # in the journal as possibly used, up to here
        self.is_changed = False  # is in the list of tubes to send
        self.ends_due: deque[tuple[int, bytes]] = deque()  # of tasks: change and id (T48.6)
        self.followers: dict[int, Follower] = {}  # by slot
        self.before_epoch: i64 = 0  # the previous leader's epoch, which ended at `begin_seq`
        self.begin_seq: i64 = 0
        self.move: Move | None = None
        self.shift: Shift | None = None  # loading or unloading
        self.is_owed = False  # handed over, not confirmed by the new leader yet
        self.wish: i64 = 0  # continues when the journal grants it; 0: none
        self.is_unsure = False  # after a standstill: another node may lead (T19.7)
        self.hears_ms: i64 = 0  # since when workers reach it here (T48.9)
        self.run_ms: i64 = 0  # earliest start (T21.2); -1: not known yet
        self.rests_ms: i64 = 0  # it does not move by itself until then (T28.4)
        self.apart: i64 = 0  # slots that follow another tube of its name (T20.1, T21.2)
        self.seat: Seat | None = None  # once there was a vote (T24)
        self.lease_ms: i64 = FAR  # the leader runs until then (T25.2)
        self.is_won = True  # not after a start: then it stands up like others (T27.5)
        self.may_send = True  # as leader, also once it gave up (T25.6); not after a start
        self.begin_copies()

    def begin_copies(self) -> None:
        """What a node has of the tube that does not lead it (T18)."""
        self.copies: dict[int, Task] = {}  # by number
        self.copy_epoch: i64 = 1  # the epoch of `seq`
        self.is_complete = True  # all tasks are here
        self.is_replica = True  # this node has a copy, or gets one (T18.1)
        self.led_epoch: i64 = 0  # in which its leader said that it runs
        self.whole_epoch: i64 = 0  # what was complete here before `is_complete` ended (T26.3)
        self.whole_seq: i64 = 0
        self.is_asking = False  # waits until the leader says where the replica ends
        self.unseen: dict[int, None] = {}  # numbers that the scan has not sent yet
        self.is_local = True  # holders of copies are sessions of this node
        self.owners: dict[int, None] = {}  # these sessions, by number
        self.held: dict[int, Held] = {}  # sessions on the leader, by its numbers
        self.told_seq: i64 = 0  # the leader's newest known change
        self.overtaken: Overtaken | None = None  # it led until another one did (T21.4)
        self.heard_ms: i64 = 0  # when the leader was last heard from

    def end_candidacy(self, epoch: i64) -> None:
        """[T24] Another node leads under that epoch: this one asks for no votes below (T24.1)."""
        vote = self.seat
        if vote is not None and vote.asked_epoch <= epoch:
            vote.asked_epoch = 0
            vote.standing = 0

    def take_family(self, family: bytes, moves: i64, from_number: i64) -> bool:
        """[T23] Take the word about its voters that counts more; False: it was known (T23.7)."""
        is_newer = moves > self.moves
        if moves == self.moves and self.from_number > 0:
            is_newer = from_number > self.from_number or from_number == 0
        if not is_newer and (self.family != NO_FAMILY or family == NO_FAMILY):
            return False
        self.family = family
        self.moves = moves
        self.from_number = from_number
        return True

    def set_policy(self, policy: Policy) -> None:
        """Let core ask the policy about this queue."""
        self.policy = policy

    def ready_count(self) -> i64:
        """READY tasks, including those of busy sub-queues."""
        return self.length - self.plain

    def delayed_count(self) -> i64:
        """DELAYED tasks that are no values (T70.1)."""
        return self.delayed - self.driver.apart

    def bytes_used(self) -> i64:
        """Memory of the tube without its tasks (M1)."""
        used = TUBE_BYTES + CHANGE_BYTES * self.notices() + TRAIL_BYTES * len(self.trail)
        return used + self.driver.bytes_used

    def find(self, number: i64) -> Task | None:
        """The task of that number, live or as a copy."""
        task = self.tasks.get(number)
        return task if task is not None else self.copies.get(number)

    def is_full(self) -> bool:
        """Whether a put must wait or is refused (T7)."""
        return self.driver.has_room_limit and self.capacity > 0 and len(self.tasks) >= self.capacity

    def note(self, event: i64, number: i64, status: i64, now_ms: i64) -> i64:
        """Keep a notice of a change (T12); returns the additional bytes."""
        self.change_seq += 1
        sheet = self.sheet
        sheet.add(event, number, status, now_ms)
        if sheet.count < SHEET_CHANGES:
            return CHANGE_BYTES
        self.sheets.append(sheet)
        self.sheet = Sheet()
        if len(self.sheets) * SHEET_CHANGES <= CHANGES_MAX:
            return CHANGE_BYTES
        del self.sheets[0]
        return CHANGE_BYTES - CHANGE_BYTES * SHEET_CHANGES

    def noted(self, first: i64, most: i64) -> list[Change]:
        """Up to `most` kept notices, from the number `first` on."""
        found: list[Change] = []
        seq = self.change_seq - self.notices()
        for sheet in [*self.sheets, self.sheet]:
            size = sheet.count
            if first < seq + size and len(found) < most:
                sheet.read(seq, first, most, found)
            seq += size
        return found

    def notices(self) -> i64:
        """The number of kept notices: the last `CHANGES_MAX`, and some more."""
        count: i64 = len(self.sheets)
        return count * SHEET_CHANGES + self.sheet.count

    # jobs that are not tasks

    def push(self, job: Job) -> None:
        """Add a plain job."""
        self.plain += 1
        super().push(job)

    def take_over(self, q: Queue) -> None:
        """Get the jobs of the queue of that name, which is to be a tube; there may be many."""
        assert self.plain == 0
        assert self.jobs.count == 0
        self.jobs = q.jobs
        self.plain = q.length
        self.length += q.length

    def pop(self) -> Job | None:
        """Take the first plain job; the driver has the tasks."""
        job = super().pop()
        if job is not None:
            self.plain -= 1
        return job

    def left(self, job: Job) -> None:
        """Remove a queued plain job out of turn."""
        self.plain -= 1
        super().left(job)

    def strays(self) -> list[Job]:
        """Remove and return all plain jobs, in order."""
        found: list[Job] = []
        job = self.pop()
        while job is not None:
            found.append(job)
            job = self.pop()
        return found

    def first_plain(self, most: i64) -> list[Job]:
        """The first `most` plain jobs, in order; changes nothing."""
        return super().peek(most) if self.plain > 0 else []

    def next_ones(self) -> list[Job]:
        """The first plain job or else the next task, and those that wait for keys (S2.4)."""
        found = super().next_ones()
        task = self.driver.peek() if len(found) == 0 else None
        if task is not None:
            found.append(task)
        found.extend(self.driver.longest_held())
        return found

    def peek(self, most: i64) -> list[Job]:
        """The first `most` tasks, then plain jobs, in order; changes nothing."""
        tasks, _ = self.first_tasks(most, ALL_LOOKS)
        return self.with_plain(self.driver.listing()[:most] if tasks is None else tasks, most)

    def first_tasks(self, most: i64, looks: i64) -> tuple[list[Task] | None, i64]:
        """The first `most` READY tasks in order, and how many entries were looked at.

        None: they are not found with so many looks.
        """
        orders = self.driver.orders(ORDERS_MAX)
        if orders is None:
            return None, 0
        found, looked = first_of(orders, most, looks)
        return (None if looked > looks else found), looked

    def with_plain(self, tasks: list[Task], most: i64) -> list[Job]:
        """The tasks, then the first plain jobs, `most` together."""
        found: list[Job] = []
        found.extend(tasks)
        if self.plain > 0 and len(found) < most:
            found.extend(super().peek(most - len(found)))
        return found

    def last_plain(self, most: i64) -> list[Job]:
        """The last `most` plain jobs, last first; changes nothing."""
        return super().peek_last(most) if self.plain > 0 else []

    def peek_last(self, most: i64) -> list[Job]:
        """The last `most`, last first; changes nothing."""
        return self.peek(self.length)[: -most - 1 : -1]
