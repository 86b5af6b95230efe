"""State of a tube's replicas and of its leadership: plain data (SPEC T17 to T20)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.task import Task

# states of a tube at a node (T19)
INIT: Final = 0
STARTUP: Final = 1
RUNNING: Final = 2
ENDING: Final = 3
WAITING: Final = 4

STATE_NAMES: Final = [b"INIT", b"STARTUP", b"RUNNING", b"ENDING", b"WAITING"]

# Every arrow between states and what it is taken for (T19). docs show it.
ARROWS: Final = [
    (INIT, b"it is the leader, and enough nodes have sent their catalog", STARTUP),
    (INIT, b"it is the leader by YOURS or by command", STARTUP),
    (STARTUP, b"the epoch is on disk, the tasks are loaded", RUNNING),
    (STARTUP, b"another leader has a higher epoch", WAITING),
    (RUNNING, b"TUBE HOME, read-only, leaving, too few nodes, a higher epoch", ENDING),
    (ENDING, b"the leadership moved, or is suspended", WAITING),
    (WAITING, b"it is the leader (again)", STARTUP),
]


@final
class Walk:
    """A scan that sends a follower all tasks, in the order of their numbers."""

    def __init__(self) -> None:
        self.is_fresh = True  # nothing was sent
        self.numbers: list[int] = []
        self.pos: i64 = 0
        self.next_number: i64 = 0  # all below it were sent
        self.end_number: i64 = 0  # tasks from it on are newer than the walk


@final
class Follower:
    """Another node with a replica, as the leader sees it."""

    def __init__(self, slot: i64) -> None:
        self.slot = slot
        self.cursor: i64 = 0  # changes up to it were sent
        self.got: i64 = 0  # and those were confirmed
        self.is_complete = False
        self.is_open = False  # it has said on this link from which change it needs them
        self.is_new = False  # it was not yet told that its request arrived
        self.is_stopped = False  # it could deliver no task (T19.5)
        self.walk: Walk | None = None
        self.known: i64 = 0  # newest epoch that it knows of


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
        self.numbers = numbers  # of those that go, in their order
        self.is_in = is_in
        self.is_settled = False  # in: the holders are known, and replicated tasks become tasks
        self.pos: i64 = 0
        self.taken: list[Task] = []  # in: copies that are TAKEN, found so far
        self.orphans: list[Task] = []  # in: TAKEN by a session that is over


@final
class Move:
    """A planned switchover that is going on (T20)."""

    def __init__(
        self, slot: i64, node_id: bytes, client: i64, serial: i64, now_ms: i64, limit_ms: i64
    ) -> None:
        self.slot = slot
        self.node_id = node_id
        self.client = client  # < 0: no client waits for the reply
        self.serial = serial
        self.limit_ms = limit_ms  # it may take so long
        self.until_ms = now_ms + limit_ms
        self.asked_seq: i64 = -1  # the change that the new leader must have on its disk
        self.on_disk_seq: i64 = -1  # the change that it has there
        self.is_given = False  # the epoch is recorded: it cannot be taken back
