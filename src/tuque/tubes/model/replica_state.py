"""State of a tube's replicas and of its leadership: plain data (SPEC T17 to T20)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.task import Task

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


@final
class Walk:
    """A scan that sends a follower all tasks, in the order of their numbers."""

    def __init__(self) -> None:
        self.is_fresh = True  # nothing sent yet
        self.numbers: list[int] = []
        self.pos: i64 = 0
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
