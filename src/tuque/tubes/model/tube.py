"""One tube: its tasks, counters, options and notices of changes (SPEC T).

A Queue in the table of queues; its driver orders its READY tasks. Plain jobs that arrive here (they
were on their way when the tube was created) queue behind them as in a plain queue.
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.job import Job
from tuque.core.model.task import BURIED, FAR, MAX_MS, Task
from tuque.core.node.queue import Queue
from tuque.core.node.queue_policy import Policy
from tuque.tubes.model.changes import SHEET_CHANGES, Sheet
from tuque.tubes.model.options import CHANGES_MAX, Change, Putter
from tuque.tubes.model.replica_state import RUNNING, Follower, Held, Move, Overtaken, Shift
from tuque.tubes.model.seat import Seat
from tuque.tubes.types.driver import Driver
from tuque.tubes.types.ordering import BURIED_BIT, Order

TUBE_BYTES: Final = 4000
CHANGE_BYTES: Final = 18
TRAIL_BYTES: Final = 40  # per change that followers may still need


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
        # tasks
        self.tasks: dict[int, Task] = {}  # by number
        self.next_number: i64 = 0
        self.reserved: i64 = 0  # temporary tube: lower numbers are in the journal as used
        self.graves = Order(BURIED, BURIED_BIT)
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
        self.fails_over = False  # votes choose its leader (T23.5)
        self.is_others = False  # votes by another list than the one here (T23.4)
        self.is_confirmed = False  # its leader has had a lease by votes, as far as known (T17.5)
        self.conflict = b""  # leader of another tube of this name
        self.seq: i64 = 0  # the last change here
        # on the leader
        self.trail: list[int] = []  # last changes: task number * 4, and what of it is new
        self.trail_base: i64 = 0  # the change before the first one in it
        self.trail_end: i64 = 0  # the last change in it
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
        self.apart: i64 = 0  # slots that follow another tube of its name (T20.1, T21.2)
        self.seat: Seat | None = None  # once there was a vote (T24)
        self.lease_ms: i64 = FAR  # the leader runs until then (T25.2)
        self.is_won = True  # not after a start: then it stands up like others (T27.5)
        self.begin_copies()

    def begin_copies(self) -> None:
        """What a node has of the tube that does not lead it (T18)."""
        self.copies: dict[int, Task] = {}  # by number
        self.copy_epoch: i64 = 1  # the epoch of `seq`
        self.is_complete = True  # all tasks are here
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

    def set_policy(self, policy: Policy) -> None:
        """Let core ask the policy about this queue."""
        self.policy = policy

    def ready_count(self) -> i64:
        """READY tasks, including those of busy sub-queues."""
        return self.length - self.plain

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

    def pop(self) -> Job | None:
        """Take the first plain job; the driver has the tasks."""
        job = super().pop()
        if job is not None:
            self.plain -= 1
        return job

    def left(self) -> None:
        """Remove a queued plain job out of turn."""
        self.plain -= 1
        super().left()

    def compact(self) -> None:
        """Drop stale entries of plain jobs."""
        self.items = super().peek(self.length)
        self.head = 0
        self.back = []

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
        found: list[Job] = []
        for task in self.driver.listing():
            if len(found) == most:
                break
            found.append(task)
        if self.plain > 0 and len(found) < most:
            found.extend(super().peek(most - len(found)))
        return found

    def peek_last(self, most: i64) -> list[Job]:
        """The last `most`, last first; changes nothing."""
        return self.peek(self.length)[: -most - 1 : -1]
