"""One call of a tube procedure, as the procedure sees it: arguments, caller, reply.

Each door has its own class of calls: it reads the arguments and writes the replies. What is done
with a tube is the same for both (`tasks`, `admin`, `grants`, `homes`).
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.task import Task
from tuque.server.sockets.connection import Connection
from tuque.server.state.chore import Chore
from tuque.server.state.state import Server
from tuque.tubes.log.leader import needs_home
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks.sessions import session_for
from tuque.wire.commands.tube_arguments import TubeArgs
from tuque.wire.commands.tube_table import Procedure
from tuque.wire.proto.resp import Status


@mypyc_attr(acyclic=True)
class TubeCall(TubeArgs):
    """A call; it gets exactly one reply."""

    at: Tube  # the call's tube, if it has one

    def __init__(self, s: Server, p: Procedure, caller: Connection, user: bytes) -> None:
        super().__init__()
        self.s = s
        self.n = s.n
        self.t: Tubes = tubes_of(s.n)
        self.p = p
        self.caller = caller
        self.client: i64 = caller.number
        self.user = user  # whose sessions the caller may join (T8.3)

    def go_to(self, tube: Tube) -> None:
        """[T17] Set the call's tube. Raises TubeError if it must be led here and is not (T17.3)."""
        if self.p.is_home:
            needs_home(self.n, self.t, tube)
        self.at = tube

    def join_session(self) -> None:
        """[T8] Give the caller a session, if the procedure needs one (T8.1)."""
        if self.p.has_session:
            session_for(self.n, self.t, self.client, self.user)

    def serial(self) -> i64:
        """The serial of the connection's next delayed reply."""
        return 0

    def may_wait(self) -> None:
        """Raise the door's error if too many calls of the connection wait."""

    def sees(self, tube: bytes) -> bool:
        """Whether the caller may see the tube (N2.5)."""
        return True

    def named(self, tube: bytes) -> bytes:
        """The tube's name as the caller knows it (N10.2)."""
        return tube

    def full(self, tube: bytes) -> bytes:
        """The full name of the tube that the caller calls so."""
        return tube

    def may_read(self, tube: Tube) -> None:
        """Raise the door's error if the caller may not see the figures of the tube."""

    def is_unread(self) -> bool:
        """Whether nobody will read the reply (C7.3)."""
        return False

    def task(self, task: Task) -> None:
        """Reply with a task."""

    def tasks(self, found: list[Task]) -> None:
        """Reply with several tasks."""

    def no_task(self, is_full: bool = False) -> None:
        """Reply that there is no task, or no room for it."""

    def value(self, value: object) -> None:
        """Reply with any value; OK: done."""

    def uuid(self, uuid: bytes) -> None:
        """Reply with the uuid of a session, 16 bytes."""

    def pair(self, name: bytes, value: object) -> bytes:
        """One pair of a large map, encoded."""
        return b""

    def pairs(self, count: i64, parts: list[bytes]) -> None:
        """Reply with a large map of so many pairs, given in pieces."""

    def begin(self, chore: Chore) -> None:
        """[L2] Start the chore, which replies now or in a later turn."""

    def await_task(self, until_ms: i64) -> None:
        """Let a take wait until then; 0: for ever."""

    def await_room(self) -> None:
        """Let a put wait (T7.2)."""

    def await_home(self) -> None:
        """Wait for other nodes (T17.5, T20)."""


Run = Callable[[TubeCall], None]
OK: Final = Status("OK")
