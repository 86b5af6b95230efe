"""A tube is made when no other node knows one of its name, or makes one (SPEC T17)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.msgs import TubeClaim
from tuque.core.node import Node
from tuque.core.peers import say, slots_of
from tuque.tubes.admin import create_tube, may_create
from tuque.tubes.book import Claim, HomeDone, Tubes
from tuque.tubes.errors import EXISTS, LUA, HomeError, TubeError
from tuque.tubes.homes import BUS_VERSION
from tuque.tubes.options import TubeOptions
from tuque.tubes.tube import Tube

# answers of TubeClaimed
FREE: Final = 0
KNOWN: Final = 1  # the name is, or a node with a lower id claims it; by force: another tube's
ALIVE: Final = 2  # this node is the home, and has the tasks
IN_USE: Final = 3  # a plain queue of that name has jobs (T2.3)


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
    """The nodes that answer: one that leaves may be the home, and has its copies (T17.5, T21.1)."""
    return (n.reachable | n.leavers) & n.others


def ask_nodes(n: Node, t: Tubes, name: bytes, client: i64, serial: i64, epoch: i64) -> Claim:
    """Ask all that can be: for the name, or of the tube that is known here (epoch above 0)."""
    tube = t.by_name.get(name) if epoch > 0 else None
    maker = b"" if tube is None else tube.maker
    made_ns: i64 = 0 if tube is None else tube.made_ns
    t.claim_serial += 1
    waiting: i64 = 0
    for slot in slots_of(askable(n)):
        if n.peers[slot].version >= BUS_VERSION:
            if say(n, slot, TubeClaim(name, t.claim_serial, epoch, maker, made_ns)):
                waiting |= 1 << slot
    claim = Claim(name, t.claim_serial, client, serial, waiting)
    claim.epoch = epoch
    t.claims[claim.number] = claim
    return claim


def finish_claim(n: Node, t: Tubes, claim: Claim) -> None:
    """All have answered: the tube is made, or why not (T17.5)."""
    done = HomeDone(claim.client, claim.serial, None)
    try:
        tube = t.by_name.get(claim.name)
        if tube is None and len(claim.home) > 0:
            if claim.options.if_not_exists and len(claim.refused) == 0:
                raise HomeError(claim.name, claim.home)
            raise TubeError(LUA, EXISTS % claim.name)
        done.tube = create_tube(n, t, claim.name, claim.type, claim.options, claim.user)
    except TubeError as error:
        done.error = error.text
        done.code = error.code
        if isinstance(error, HomeError):
            done.node_id = error.node_id
    t.home_done.append(done)
