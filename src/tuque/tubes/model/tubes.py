"""All tubes of a node, and the sessions that have tasks (SPEC T).

The shell empties `put_done` and `told` once a turn. tasks/ decides what changes.
"""

from collections.abc import Callable
from heapq import heappush
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.task import FAR, Task
from tuque.core.msgs.bus import HomeMessage, TubeAt, TubeClaim
from tuque.core.node.queue import Policy
from tuque.core.records.jobs import Records
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.grants import Rights
from tuque.tubes.model.options import CHANGES_MAX, Change, PutDone, Putter, Told, TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.voter_state import VoterState
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.types.driver import Driver
from tuque.tubes.types.utube import Fifo, FifoTtl, LimFifoTtl, UTube, UTubeTtl

SESSION_BYTES: Final = 1000
PUT_BYTES: Final = 500  # of a waiting put, without its body
PUT_ENDS_STALE: Final = 1024  # stale entries of `put_ends` that start a cleanup
FOR_EVER: Final = 0
SHIFT_TASKS: Final = 2_000  # tasks loaded or unloaded per turn, for all tubes
BUILT_IN: Final[dict[bytes, Callable[[], Driver]]] = {
    b"fifo": Fifo,
    b"fifottl": FifoTtl,
    b"limfifottl": LimFifoTtl,
    b"utube": UTube,
    b"utubettl": UTubeTtl,
    b"tasks": Tasks,
}


@final
class HomeDone:
    """The result of a claim, a switchover or a failover (T17.5, T20, T21)."""

    def __init__(self, client: i64, serial: i64, tube: Tube | None) -> None:
        self.client = client
        self.serial = serial
        self.tube = tube
        self.error: TubeError | None = None  # None: success
        self.values: list[tuple[bytes, bytes]] = []  # of T21.3
        self.until_ms: i64 = 0  # of a CREATE that waits for a majority (T27.8)
        self.if_not_exists = False  # of that CREATE


@final
class Claim:
    """A question to other nodes: is a name free, or which changes they have (T17.5, T21.1).

    Or to one of them: can it serve a tube that is to move there (T20.1).
    """

    def __init__(self, name: bytes, number: i64, client: i64, serial: i64, waiting: i64) -> None:
        self.name = name
        self.number = number
        self.client = client
        self.serial = serial
        self.waiting = waiting  # slots that have not replied
        self.epoch: i64 = 0  # 0: creation; else the epoch under which a node would lead
        self.moving: Tube | None = None  # to the asked node
        self.target = b""  # the asked node
        self.answer: i64 = -1  # its reply; -1: none
        self.apart: i64 = 0  # slots that follow another tube of that name (T17.5)
        self.type = b""
        self.options = TubeOptions()
        self.user = b""
        self.refused: TubeError | None = None  # the objection; None: none
        self.home = b""  # the leader named in it


@final
class Dropped:
    """A dropped tube, remembered so that nodes that still have it drop it (T17.6)."""

    def __init__(self, maker: bytes, made_ns: i64, epoch: i64) -> None:
        self.maker = maker
        self.made_ns = made_ns
        self.epoch = epoch


@final
class Session:
    """The holder of tasks: one or several connections with one uuid (T8)."""

    def __init__(self, number: i64, uuid: bytes, user: bytes) -> None:
        self.number = number
        self.uuid = uuid
        self.user = user
        self.clients: dict[int, None] = {}
        self.until_ms: i64 = FOR_EVER  # without connections: when its tasks are released
        self.taken: dict[bytes, Task] = {}  # by job id
        self.leaving: list[Task] = []  # of an ended session: tasks to release, in order
        self.left: i64 = 0  # how many of them are released


class Tubes(Policy):
    """All tubes of a node."""

    def __init__(self, seed: bytes) -> None:
        super().__init__()
        self.seed = seed
        self.by_name: dict[bytes, Tube] = {}
        self.drivers: dict[bytes, Callable[[], Driver]] = dict(BUILT_IN)
        self.next_tube: i64 = 0
        self.token: i64 = 0  # the latest take's on this node
        self.token_reserved: i64 = 0  # in the journal as possibly used, up to here
        # sessions
        self.session_serial: i64 = 0
        self.sessions: dict[int, Session] = {}  # by number
        self.by_uuid: dict[bytes, Session] = {}
        self.by_client: dict[int, Session] = {}
        self.sessions_over: list[Session] = []  # ended, with tasks to release
        self.session_ends: list[tuple[int, int]] = []  # heap of (instant, session number)
        self.last_client: i64 = 0  # the last lookup, with its session: calls come in bursts
        self.last_session: Session | None = None
        # configuration (T10)
        self.ttr_ms: i64 = 0  # how long a session lives without connections
        self.in_replicaset = False
        self.rights = Rights()
        # to check, or to send
        self.overdue: list[Task] = []  # their time was over when it was set
        self.put_ends: list[tuple[int, int, Putter, Tube]] = []  # heap of (instant, serial, ...)
        self.put_ends_most: i64 = PUT_ENDS_STALE  # with more entries, stale ones are dropped
        self.put_serial: i64 = 0
        self.puts_of: dict[int, int] = {}  # bytes of waiting puts, by client (M5.1)
        self.alarms: list[tuple[int, bytes]] = []  # heap of (instant, tube): tokens come (T42.3)
        self.idle_at_ms: i64 = 0  # when to look for idle tubes (T2.9); 0: there are none
        self.due: dict[bytes, None] = {}  # schedules to look at, by job id (T45.3)
        self.schedules_fired: i64 = 0  # jobs that they made here
        self.schedules_late: i64 = 0  # how often instants had been missed (T45.5)
        self.members_due: dict[bytes, None] = {}  # groups and children to look at, by job id
        self.watchers: dict[bytes, int] = {}  # as which client this node waits, by child's record
        self.watched_tasks: dict[int, bytes] = {}  # the reverse
        self.watcher_serial: i64 = 0
        self.letters_due: list[tuple[int, int, bytes]] = []  # to load: serial, task and tube
        self.sweeping: dict[bytes, None] = {}  # tubes with parts whose set is gone (T71.6)
        self.sweep_ms: i64 = 0
        self.groups_made: i64 = 0
        self.groups_done: i64 = 0
        self.groups_failed: i64 = 0  # or cancelled
        self.duplicates: i64 = 0  # jobs not added: a task had their unique key (T44.4, T45.6)
        self.put_done: list[PutDone] = []
        self.told: list[Told] = []
        self.begin_homes()

    def begin_homes(self) -> None:
        """State about other nodes (T17 to T22)."""
        self.is_read_only = False
        self.is_stopping = False  # K9
        self.was_writable = False  # at any time since the start
        self.port: i64 = 0  # for IPROTO clients, set by the shell; 0: none
        self.ports: dict[int, int] = {}  # other nodes', by slot
        self.read_only: i64 = 0  # slots of nodes that may lead no tube
        self.heard: i64 = 0  # slots that have sent their catalog on this link
        self.has_met = False  # a node has sent its catalog since the start
        self.lease_ms: i64 = FAR  # lease on all tubes led here
        self.round: i64 = 0  # the latest heartbeats of this node that were looked at
        self.changed: list[Tube] = []  # with changes to send to followers
        self.left: list[Tube] = []  # of which this node drops its copies, some in each turn (T18.1)
        self.copies_by_id: dict[bytes, Task] = {}
        # by name, then by creator and instant; oldest first
        self.dropped: dict[bytes, dict[tuple[bytes, int], Dropped]] = {}
        self.dropped_count: i64 = 0
        # losers of name conflicts, by creator and instant, oldest first (T17.5)
        self.aside: dict[tuple[bytes, int], TubeAt] = {}
        self.claims: dict[int, Claim] = {}  # by number
        self.claim_serial: i64 = 0
        # of other nodes, for names that this node claims: slot and question (T17.5)
        self.askers: list[tuple[int, TubeClaim]] = []
        self.forced: dict[bytes, HomeDone] = {}  # by tube: results that wait for the disk
        self.stood_ms: i64 = 0  # when the node continued after a standstill (T19.7)
        self.is_expired = False  # the lease has ended, and tubes were checked since
        self.home_done: list[HomeDone] = []
        self.to_sync: dict[bytes, Tube] = {}  # changed by the present call, to wait for copies
        self.notes: list[str] = []  # log lines: warnings
        self.news: list[str] = []  # log lines: information
        self.changes_lost: i64 = 0  # on leaders that were overtaken (T21.4)
        self.homes_moved: i64 = 0  # planned switchovers from here
        self.homes_given: i64 = 0  # to this node, of tubes that are not led by votes
        self.homes_by_command: i64 = 0  # this node leads them, by command (T21)
        self.wish: i64 = 0  # the latest that the journal was asked to grant
        self.shifting: list[Tube] = []  # being loaded or unloaded (T19.6)
        self.shift_tasks: i64 = SHIFT_TASKS
        self.shift_room: i64 = SHIFT_TASKS  # left of it in this turn
        self.owing: list[tuple[Tube, int]] = []  # TUBE-YOURS is to be sent again
        self.pending: list[Tube] = []  # waiting for the journal
        self.flags_changed = False  # of this node: to be announced
        self.synced_changed = False  # a follower confirmed changes; the shell resets it
        self.is_held = False  # a link has no room: changes are sent later
        self.must_look = False  # leadership must be checked
        self.look_ms: i64 = FAR  # next check, at the latest
        self.later: list[tuple[int, HomeMessage]] = []  # received while loading, with the sender
        self.voter_state = VoterState()
        self.creating: list[HomeDone] = []  # tubes that wait for a majority (T27.8)
        self.scratch = Records()  # for messages to followers

    def end_put(self, tube: Tube, putter: Putter) -> None:
        """End a put's wait (T7), and free its body."""
        putter.is_over = True
        tube.waiting_puts -= 1
        self.count_put(putter.client, -(PUT_BYTES + len(putter.body)))
        putter.body = b""

    def count_put(self, client: i64, size: i64) -> None:
        """The client's waiting puts hold so many bytes more."""
        self.bytes_used += size
        self.put_bytes += size
        left: i64 = self.puts_of.get(client, 0) + size
        if left > 0:
            self.puts_of[client] = left
        else:
            self.puts_of.pop(client, None)

    def charge(self, tube: Tube, size: i64) -> None:
        """The tube holds so many bytes more besides its tasks: its tenant's count too (N11.9)."""
        self.bytes_used += size
        tube.tally.owner.tube_bytes += size

    def session_of_number(self, number: i64) -> Session | None:
        """The session of that number, unless it has ended."""
        last = self.last_session
        if last is not None and last.number == number:
            return last
        return self.sessions.get(number)

    def watch(self, tube: Tube) -> None:
        """Remember when the tube's driver wants to be called (T42.3)."""
        at_ms = tube.driver.alarm_ms
        if at_ms < tube.alarm_ms:
            tube.alarm_ms = at_ms
            heappush(self.alarms, (int(at_ms), tube.name))

    def tube(self, name: bytes) -> Tube | None:
        """The tube of that name."""
        return self.by_name.get(name)

    def changes(self, tube: Tube, after_seq: i64, most: i64) -> list[Change]:
        """Up to `most` notices after that number, oldest first, of those kept (T12)."""
        seq = tube.change_seq - CHANGES_MAX
        if seq < after_seq + 1:
            seq = after_seq + 1
        return tube.noted(seq, most)
