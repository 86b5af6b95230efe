"""One call of a tube procedure, as the procedure sees it: what was said, who asks, how to answer.

Each door has its own class of calls: it reads the arguments and writes the answers. What is done
with a tube is the same for both (`tasks`, `admin`, `grants`, `homes`).
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import Task
from tuque.server.sockets.connection import Connection
from tuque.server.state.chore import Chore
from tuque.server.state.state import Server
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.policy import tubes_of
from tuque.tubes.replication.leadership import needs_home
from tuque.tubes.tasks.sessions import session_for
from tuque.wire.resp import Status
from tuque.wire.tubes.arguments import TubeArgs
from tuque.wire.tubes.table import Procedure


@mypyc_attr(acyclic=True)
class TubeCall(TubeArgs):
    """A call; exactly one answer is given."""

    at: Tube  # which the call is about, unless it is about none

    def __init__(self, s: Server, p: Procedure, caller: Connection, user: bytes) -> None:
        super().__init__()
        self.s = s
        self.n = s.n
        self.t: Tubes = tubes_of(s.n)
        self.p = p
        self.caller = caller
        self.client: i64 = caller.number
        self.user = user  # whose sessions the caller may have (T8.3)

    def go_to(self, tube: Tube) -> None:
        """[T17] The tube of the call, where its procedure needs it (T17.3). Raises TubeError."""
        if self.p.is_home:
            needs_home(self.n, self.t, tube)
        self.at = tube

    def join_session(self) -> None:
        """[T8] The caller has a session from here on, if the procedure makes one (T8.1)."""
        if self.p.has_session:
            session_for(self.n, self.t, self.client, self.user)

    def serial(self) -> i64:
        """What the next answer of the connection that comes later is known by."""
        return 0

    def may_wait(self) -> None:
        """Raise the door's error when too many calls of the connection wait."""

    def may_read(self, tube: Tube) -> None:
        """Raise the door's error when the caller may not see the figures of the tube."""

    def is_unread(self) -> bool:
        """Whether nobody will see the answer (C7.3)."""
        return False

    def task(self, task: Task) -> None:
        """Answer with a task."""

    def tasks(self, found: list[Task]) -> None:
        """Answer with several."""

    def no_task(self, is_full: bool = False) -> None:
        """Answer that there is none, or that there is no room for it."""

    def value(self, value: object) -> None:
        """Answer with any value; OK: it is done."""

    def uuid(self, uuid: bytes) -> None:
        """Answer with the uuid of a session, 16 bytes."""

    def pair(self, name: bytes, value: object) -> bytes:
        """One pair of a large map."""
        return b""

    def pairs(self, count: i64, parts: list[bytes]) -> None:
        """Answer with a large map of so many pairs, in pieces."""

    def begin(self, chore: Chore) -> None:
        """[L2] The chore answers, now or in a later turn."""

    def await_task(self, until_ms: i64) -> None:
        """A take waits until then; 0: for ever."""

    def await_room(self) -> None:
        """A put waits (T7.2)."""

    def await_home(self) -> None:
        """Other nodes are asked (T17.5, T20)."""


Run = Callable[[TubeCall], None]
OK: Final = Status("OK")
