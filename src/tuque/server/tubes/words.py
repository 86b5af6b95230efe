"""What the two halves of TUBE share: which tube is meant, whose session it is (SPEC T15)."""

from typing import Final

from tuque.server.replies.redirects import NO_SUCH
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.tubes.model.registry import Session, Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.replication.leadership import needs_home
from tuque.tubes.tasks.sessions import session_for
from tuque.wire.args import ArgError

USER: Final = b"default"  # whom all RESP clients are


def tube_named(t: Tubes, name: bytes) -> Tube:
    """The tube of that name; `-NOTUBE` when there is none (T15.5)."""
    tube = t.by_name.get(name)
    if tube is None:
        raise ArgError(NO_SUCH % name)
    return tube


def tube_here(s: Server, t: Tubes, name: bytes) -> Tube:
    """[T17] The tube of that name, which is RUNNING here (T17.3). Raises TubeError."""
    tube = tube_named(t, name)
    needs_home(s.n, t, tube)
    return tube


def client_session(s: Server, t: Tubes, c: Client) -> Session:
    """[T8] The session of the connection, made when it has none (T8.1)."""
    return session_for(s.n, t, c.number, USER)
