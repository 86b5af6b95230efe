"""What the server does after its process stood still: stopped, suspended, or busy for too long.

No earlier reply about tubes leaves after it: another node may lead them (SPEC T19.7).
"""

from mypy_extensions import i64

from tuque.core.node.tables import has_stood, set_time
from tuque.logtext import facts
from tuque.server.loop.outlet import Outlet
from tuque.server.sockets.connection import Connection
from tuque.server.state.client import Client
from tuque.server.state.state import Server, log
from tuque.tubes.leadership.switchover import run_any
from tuque.tubes.policy import tubes_of


def begin_turn(s: Server, outlet: Outlet) -> None:
    """[G8] Set the node's time, and detect a standstill before any read (G8.4)."""
    n = s.n
    before = n.standstills
    is_stale = set_time(n, s.clock_ms())
    if n.standstills == before:
        return
    closed = drop_unsent(s, outlet) if is_stale else 0
    if s.bus is not None:
        s.bus.hear_all()
    log.warning(
        "the process stood still for %(ms)d ms, longer than cluster-node-timeout; "
        "its tubes wait for a reply of other nodes; %(closed)d connections closed",
        facts("stood_still", ms=n.stood_ms, closed=closed),
    )


def end_replies(s: Server, outlet: Outlet) -> None:
    """[T19] Before replies are sent: drop them if the process stood still in this turn (T19.7)."""
    n = s.n
    if not has_stood(n, s.clock_ms()):
        return
    if run_any(tubes_of(n)):
        drop_unsent(s, outlet)  # the next turn does the rest


def drop_unsent(s: Server, outlet: Outlet) -> i64:
    """Close connections with replies not yet sent; how many."""
    count: i64 = 0
    for c in list(s.clients.values()):
        if is_owed(c) or has_answers(c):
            outlet.close(c)
            count += 1
    for w in list(s.wired.values()):
        if is_owed(w):
            outlet.close(w)
            count += 1
    return count


def is_owed(c: Connection) -> bool:
    """Whether output is still outside the socket."""
    return len(c.out) + len(c.gated) + len(c.wire) > 0


def has_answers(c: Client) -> bool:
    """Whether replies wait behind a pending one."""
    return any(hole is not None for hole in c.holes)
