"""All tubes of a node, and the sessions that hold tasks (SPEC T).

The shell empties `put_done` and `told` once a turn. What may be done with them is ops.py's,
admin.py's and sessions.py's.
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from tuque.core.policy import Policy
from tuque.core.task import Task
from tuque.tubes.driver import Driver
from tuque.tubes.fifo import Fifo, FifoTtl, LimFifoTtl
from tuque.tubes.options import CHANGES_MAX, Change, PutDone, Putter, Told
from tuque.tubes.rights import Rights
from tuque.tubes.tube import Tube
from tuque.tubes.utube import UTube, UTubeTtl

SESSION_BYTES: Final = 1000
PUT_BYTES: Final = 500  # of a put that waits, beside its body
PUT_ENDS_STALE: Final = 1024  # ends of puts that are over, kept before a look for them
FOR_EVER: Final = 0


@final
class Session:
    """Who holds tasks: one or several connections with one uuid (T8)."""

    def __init__(self, number: i64, uuid: bytes, user: bytes) -> None:
        self.number = number
        self.uuid = uuid
        self.user = user
        self.clients: dict[int, None] = {}
        self.until_ms: i64 = FOR_EVER  # without connections: when its tasks are released
        self.taken: dict[bytes, Task] = {}  # by job id


class Tubes(Policy):
    """What a node knows of tubes."""

    def __init__(self, seed: bytes) -> None:
        super().__init__()
        self.seed = seed
        self.by_name: dict[bytes, Tube] = {}
        self.drivers: dict[bytes, Callable[[], Driver]] = {
            b"fifo": Fifo,
            b"fifottl": FifoTtl,
            b"limfifottl": LimFifoTtl,
            b"utube": UTube,
            b"utubettl": UTubeTtl,
        }
        self.next_tube: i64 = 0
        self.token: i64 = 0  # of the latest take on this node
        # sessions
        self.session_serial: i64 = 0
        self.sessions: dict[int, Session] = {}  # by number
        self.by_uuid: dict[bytes, Session] = {}
        self.by_client: dict[int, Session] = {}
        self.session_ends: list[tuple[int, int]] = []  # heap of (instant, session number)
        # configuration (T10)
        self.ttr_ms: i64 = 0  # how long a session lives without connections
        self.in_replicaset = False
        self.rights = Rights()
        # what is to be looked at, or told
        self.overdue: list[Task] = []  # their instant had come when it was set
        self.put_ends: list[tuple[int, int, Putter, Tube]] = []  # heap of (instant, serial, ...)
        self.put_ends_most: i64 = PUT_ENDS_STALE  # beyond it stale ones are dropped
        self.put_serial: i64 = 0
        self.put_done: list[PutDone] = []
        self.told: list[Told] = []

    def end_put(self, putter: Putter) -> None:
        """A put waits no more (T7); its body is needed no longer."""
        putter.is_over = True
        self.bytes_used -= PUT_BYTES + len(putter.body)
        putter.body = b""

    def tube(self, name: bytes) -> Tube | None:
        """The tube of that name."""
        return self.by_name.get(name)

    def changes(self, tube: Tube, after_seq: i64, most: i64) -> list[Change]:
        """Up to `most` notices after that number, oldest first, of the last 1000 (T12)."""
        found: list[Change] = []
        seq = tube.change_seq - CHANGES_MAX
        if seq < after_seq + 1:
            seq = after_seq + 1
        if seq < 0:
            seq = 0
        while seq < tube.change_seq and len(found) < most:
            found.append(tube.ring[seq % CHANGES_MAX])
            seq += 1
        return found
