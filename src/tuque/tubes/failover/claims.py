"""A tube is made when no other node knows one of its name, or makes one (SPEC T17).

So are nodes asked that a tube is to move to, or that may have more of it (SPEC T20, T21).
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.msgs.bus import TubeClaim
from tuque.core.node.node import Node
from tuque.core.node.slots import say, slots_of
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.model.errors import EXISTS, HomeError, TubeError
from tuque.tubes.model.options import TubeOptions
from tuque.tubes.model.registry import Claim, HomeDone, Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.tasks.admin import create_tube, may_create
from tuque.tubes.types.driver import Absent

# answers of TubeClaimed
FREE: Final = 0
KNOWN: Final = 1  # the name is, or a node with a lower id claims it; by force: another tube's
ALIVE: Final = 2  # this node is the leader, and has the tasks
IN_USE: Final = 3  # a plain queue of that name has jobs (T2.3)
TYPE_MISSING: Final = 4  # the tube may not move here: its type is missing (T20.1)
DRIVER_FAILED: Final = 5  # nor when its driver has failed


def claim_tube(
    n: Node,
    t: Tubes,
    name: bytes,
    type: bytes,
    o: TubeOptions,
    user: bytes,
    client: i64,
    serial: i64,
) -> Tube | None:
    """[T17] ON create_tube: None when others are asked first (T17.5).

    The answer comes in `t.home_done` then. Raises TubeError.
    """
    if askable(n) == 0 or name in t.by_name:
        return create_tube(n, t, name, type, o, user)
    may_create(n, t, name, type, o)
    claim = ask_nodes(n, t, name, client, serial, 0)
    claim.type = type
    claim.options = o
    claim.user = user
    if claim.waiting == 0:
        del t.claims[claim.number]
        return create_tube(n, t, name, type, o, user)
    return None


def askable(n: Node) -> i64:
    """The nodes that reply: a leaving one may be the leader, and has its replicas (T17.5,
    T21.1).
    """
    return (n.reachable | n.leavers) & n.others


def ask_nodes(n: Node, t: Tubes, name: bytes, client: i64, serial: i64, epoch: i64) -> Claim:
    """Ask all that can be: for the name, or of the tube that is known here (epoch above 0)."""
    claim = new_claim(t, name, client, serial, epoch)
    tube = t.by_name.get(name) if epoch > 0 else None
    maker = b"" if tube is None else tube.maker
    made_ns: i64 = 0 if tube is None else tube.made_ns
    for slot in slots_of(askable(n)):
        if say(n, slot, TubeClaim(name, claim.number, epoch, maker, made_ns, False)):
            claim.waiting |= 1 << slot
    return claim


def ask_target(n: Node, t: Tubes, tube: Tube, slot: i64, client: i64, serial: i64) -> None:
    """[T20] Ask the node that the tube shall move to whether it can serve it (T20.1)."""
    claim = new_claim(t, tube.name, client, serial, tube.epoch + 1)
    claim.moving = tube
    claim.target = n.peers[slot].node_id
    m = TubeClaim(tube.name, claim.number, claim.epoch, tube.maker, tube.made_ns, True)
    if say(n, slot, m):
        claim.waiting = 1 << slot
    else:
        t.must_look = True  # it is closed then


def new_claim(t: Tubes, name: bytes, client: i64, serial: i64, epoch: i64) -> Claim:
    """A question for which no client waits yet."""
    t.claim_serial += 1
    claim = Claim(name, t.claim_serial, client, serial, 0)
    claim.epoch = epoch
    t.claims[claim.number] = claim
    return claim


def can_serve(tube: Tube) -> i64:
    """[T20] The reply to a leader that asks whether the tube may move here (T20.1)."""
    if isinstance(tube.driver, Absent):
        return TYPE_MISSING
    return DRIVER_FAILED if len(why_stopped(tube.type, tube.driver)) > 0 else FREE


def finish_claim(n: Node, t: Tubes, claim: Claim) -> None:
    """All have answered: the tube is made, or why not (T17.5)."""
    done = HomeDone(claim.client, claim.serial, None)
    try:
        tube = t.by_name.get(claim.name)
        if tube is None and len(claim.home) > 0:
            if claim.options.if_not_exists and claim.refused is None:
                raise HomeError(claim.name, claim.home)
            raise TubeError(EXISTS, (claim.name,))
        done.tube = create_tube(n, t, claim.name, claim.type, claim.options, claim.user)
    except TubeError as error:
        done.error = error.with_traceback(None)  # no frames: the collector is off
    t.home_done.append(done)
