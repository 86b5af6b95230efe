"""All tubes of a node, and the sessions that hold tasks (SPEC T).

The shell empties `put_done` and `told` once a turn. What may be done with them is ops.py's,
admin.py's and sessions.py's.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.task import FAR, Task
from tuque.core.msgs.bus import TubeAt, TubeMessage
from tuque.core.node.queue_policy import Policy
from tuque.core.outbox.records import Records
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.grants import Rights
from tuque.tubes.model.options import CHANGES_MAX, Change, PutDone, Putter, Told, TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.types.driver import Driver
from tuque.tubes.types.fifo import Fifo, FifoTtl, LimFifoTtl
from tuque.tubes.types.utube import UTube, UTubeTtl

SESSION_BYTES: Final = 1000
PUT_BYTES: Final = 500  # of a put that waits, beside its body
PUT_ENDS_STALE: Final = 1024  # ends of puts that are over, kept before a look for them
FOR_EVER: Final = 0
BEATS: Final = 64
SHIFT_TASKS: Final = 2_000  # tasks loaded or unloaded on leaders in one turn
BUILT_IN: Final[dict[bytes, Callable[[], Driver]]] = {
    b"fifo": Fifo,
    b"fifottl": FifoTtl,
    b"limfifottl": LimFifoTtl,
    b"utube": UTube,
    b"utubettl": UTubeTtl,
}


@final
class HomeDone:
    """The answer of a claim, or of a command that moved a home (T17.5, T20, T21)."""

    def __init__(self, client: i64, serial: i64, tube: Tube | None) -> None:
        self.client = client
        self.serial = serial
        self.tube = tube
        self.error: TubeError | None = None  # None: it is done
        self.values: list[tuple[bytes, bytes]] = []  # of T21.3


@final
class Claim:
    """Other nodes are asked: for a name, or which changes they have (T17.5, T21.1).

    Or one of them, whether it can serve a tube that is to move there (T20.1).
    """

    def __init__(self, name: bytes, number: i64, client: i64, serial: i64, waiting: i64) -> None:
        self.name = name
        self.number = number
        self.client = client
        self.serial = serial
        self.waiting = waiting  # set of slots that have not answered
        self.epoch: i64 = 0  # 0: a tube is made; else that this or the asked node is home under
        self.moving: Tube | None = None  # to the node that is asked
        self.target = b""  # that node
        self.answer: i64 = -1  # what it said; -1: nothing
        self.apart: i64 = 0  # set of slots that go by another tube of that name (T17.5)
        self.type = b""
        self.options = TubeOptions()
        self.user = b""
        self.refused: TubeError | None = None  # why not; None: nobody objects
        self.home = b""  # who says so


@final
class Dropped:
    """A tube that is gone: nodes that still have it are informed (T17.6)."""

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
        self.leaving: list[Task] = []  # it is over, and they go back, the first ones are back
        self.left: i64 = 0  # how many


class Tubes(Policy):
    """What a node knows of tubes."""

    def __init__(self, seed: bytes) -> None:
        super().__init__()
        self.seed = seed
        self.by_name: dict[bytes, Tube] = {}
        self.drivers: dict[bytes, Callable[[], Driver]] = dict(BUILT_IN)
        self.next_tube: i64 = 0
        self.token: i64 = 0  # of the latest take on this node
        self.token_reserved: i64 = 0  # the journal knows that tokens up to it may be in use
        # sessions
        self.session_serial: i64 = 0
        self.sessions: dict[int, Session] = {}  # by number
        self.by_uuid: dict[bytes, Session] = {}
        self.by_client: dict[int, Session] = {}
        self.sessions_over: list[Session] = []  # whose tasks go back
        self.session_ends: list[tuple[int, int]] = []  # heap of (instant, session number)
        self.last_client: i64 = 0  # looked up last, and its session: calls come in bursts
        self.last_session: Session | None = None
        # configuration (T10)
        self.ttr_ms: i64 = 0  # how long a session lives without connections
        self.in_replicaset = False
        self.rights = Rights()
        # what is to be checked, or sent
        self.overdue: list[Task] = []  # their instant had come when it was set
        self.put_ends: list[tuple[int, int, Putter, Tube]] = []  # heap of (instant, serial, ...)
        self.put_ends_most: i64 = PUT_ENDS_STALE  # beyond it stale ones are dropped
        self.put_serial: i64 = 0
        self.put_done: list[PutDone] = []
        self.told: list[Told] = []
        self.begin_homes()

    def begin_homes(self) -> None:
        """What it knows of other nodes (T17 to T22)."""
        self.is_read_only = False
        self.was_writable = False  # since the start
        self.port: i64 = 0  # where IPROTO clients connect here, set by the shell; 0: nowhere
        self.ports: dict[int, int] = {}  # and at other nodes, by slot
        self.read_only: i64 = 0  # set of slots that may lead no tube
        self.heard: i64 = 0  # set of slots that have sent their catalog, on this link
        self.lease_ms: i64 = FAR  # until then enough nodes believe that this one leads
        self.beats: list[int] = [0] * BEATS  # when which of the newest heartbeats was sent
        self.round: i64 = 0  # the newest of them
        self.changed: list[Tube] = []  # have changes that followers did not get
        self.copies_by_id: dict[bytes, Task] = {}
        self.dropped: dict[bytes, Dropped] = {}  # by name, oldest first
        # tubes that others of their name stand before, by maker and instant, oldest first (T17.5)
        self.aside: dict[tuple[bytes, int], TubeAt] = {}
        self.claims: dict[int, Claim] = {}  # by number
        self.claim_serial: i64 = 0
        self.forced: dict[bytes, HomeDone] = {}  # by tube: answers when the disk has the epoch
        self.stood_ms: i64 = 0  # when the node went on after it had stood still (T19.7)
        self.is_expired = False  # the lease is over, and leaders know it
        self.home_done: list[HomeDone] = []
        self.to_sync: dict[bytes, Tube] = {}  # changed by the call in progress, and wait for copies
        self.notes: list[str] = []  # lines for the log: warnings
        self.news: list[str] = []  # and what goes as it should
        self.changes_lost: i64 = 0  # of leaders that were overtaken (T21.4)
        self.homes_moved: i64 = 0  # planned switchovers from here
        self.wish: i64 = 0  # the newest that the journal was asked to grant
        self.shifting: list[Tube] = []  # their tasks are on the way (T19.6)
        self.shift_tasks: i64 = SHIFT_TASKS
        self.shift_room: i64 = SHIFT_TASKS  # what is left of that in this turn
        self.owing: list[tuple[Tube, int]] = []  # given away, and the slot does not know it yet
        self.pending: list[Tube] = []  # wait for that
        self.flags_changed = False  # of this node: others are to be informed
        self.synced_changed = False  # a follower confirmed something; the shell sets it back
        self.is_held = False  # a link has no room: the changes are sent later
        self.must_look = False  # something changed that leaders depend on
        self.look_ms: i64 = FAR  # when to look again
        self.later: list[tuple[int, TubeMessage]] = []  # heard while loading, with the sender
        self.scratch = Records()  # for what is sent to followers

    def end_put(self, tube: Tube, putter: Putter) -> None:
        """A put waits no more (T7); its body is needed no longer."""
        putter.is_over = True
        tube.waiting_puts -= 1
        self.bytes_used -= PUT_BYTES + len(putter.body)
        putter.body = b""

    def session_of_number(self, number: i64) -> Session | None:
        """The session of that number, unless it is over."""
        last = self.last_session
        if last is not None and last.number == number:
            return last
        return self.sessions.get(number)

    def tube(self, name: bytes) -> Tube | None:
        """The tube of that name."""
        return self.by_name.get(name)

    def changes(self, tube: Tube, after_seq: i64, most: i64) -> list[Change]:
        """Up to `most` notices after that number, oldest first, of the last 1000 (T12)."""
        seq = tube.change_seq - CHANGES_MAX
        if seq < after_seq + 1:
            seq = after_seq + 1
        return tube.noted(seq, most)
