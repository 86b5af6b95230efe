"""After a standstill a leader waits for other nodes before it continues (SPEC T19.7)."""

from tuque.core.node.node import Node
from tuque.tubes.failover.activation import wait_here
from tuque.tubes.model.errors import STOOD_MEANWHILE, TubeError
from tuque.tubes.model.registry import HomeDone, Tubes
from tuque.tubes.model.replica_state import ENDING, INIT, RUNNING
from tuque.tubes.model.tube import Tube
from tuque.tubes.replication.leadership import has_heard_since


def on_standstill(n: Node, t: Tubes) -> bool:
    """[T19] The process stood still: tubes led here wait (T19.7).

    True if a tube ran here, so that unsent replies about it may now be wrong.
    """
    t.stood_ms = n.now_ms
    t.must_look = True
    did_run = False
    for tube in list(t.by_name.values()):
        if not tube.is_mine or tube.state == INIT:
            continue  # T19.4: it waits for the others anyway
        did_run = did_run or runs_here(tube)
        tube.is_unsure = True
        if tube.state == RUNNING:
            wait_here(n, t, tube)
    end_claims(t)
    return did_run


def runs_here(tube: Tube) -> bool:
    """Whether the tube ran here until now."""
    return tube.is_mine and (tube.state == RUNNING or tube.state == ENDING)


def run_any(t: Tubes) -> bool:
    """Whether any tube runs on this node."""
    return any(runs_here(tube) for tube in t.by_name.values())


def end_claims(t: Tubes) -> None:
    """Replies of other nodes are stale: clients that wait for them must ask again."""
    claims = t.claims
    t.claims = {}
    t.must_look = True  # other nodes may wait for their end (T17.5)
    for claim in claims.values():
        done = HomeDone(claim.client, claim.serial, None)
        done.error = TubeError(STOOD_MEANWHILE)
        t.home_done.append(done)


def make_sure(n: Node, t: Tubes) -> None:
    """[T19] Tubes whose leadership enough nodes have confirmed may run again (T19.7)."""
    if t.stood_ms == 0 or not has_heard_since(n, t):
        return
    t.stood_ms = 0
    for tube in t.by_name.values():
        tube.is_unsure = False
    t.must_look = True


def may_be_forced(tube: Tube) -> bool:
    """[T21] Whether this node leads it, but waits for an operator or other nodes (T21.1)."""
    return tube.is_mine and tube.wish == 0 and (tube.state == INIT or tube.is_unsure)
