"""Nodes are asked before a tube is created or moved; jobs go to a tube's leader (SPEC T1.9, T17).

A tube is created if no other node knows the name, or is creating it. The same question goes to the
target of a switchover, and to nodes that may have later replicas (SPEC T20, T21).
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.federation import may_move, send_jobs
from tuque.core.model.errors import EXISTS
from tuque.core.msgs.bus import TubeClaim
from tuque.core.node.node import Node
from tuque.core.node.peers import say, slots_of
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.procedures import dequeue
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.model.options import TubeOptions
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Claim, HomeDone, Tubes
from tuque.tubes.tasks.admin import create_tube, may_create
from tuque.tubes.types.driver import Absent

# replies of TubeClaimed
FREE: Final = 0
KNOWN: Final = 1  # the name is taken; forced: it is another tube's
ALIVE: Final = 2  # this node leads it and has its tasks
IN_USE: Final = 3  # a plain queue of that name has jobs (T2.3)
TYPE_MISSING: Final = 4  # no switchover to this node: the type is missing (T20.1)
DRIVER_FAILED: Final = 5  # no switchover to this node: the driver failed

STEP_JOBS: Final = 100  # of one tube in one round


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
    """[T17] ON create_tube: None when other nodes are asked first (T17.5).

    The reply then comes in `t.home_done`. Raises TubeError.
    """
    if name in t.by_name:
        return create_tube(n, t, name, type, o, user)
    if askable(n) == 0:
        return made_by_vote(n, t, create_tube(n, t, name, type, o, user), o, client, serial)
    may_create(n, t, name, type, o)
    claim = ask_nodes(n, t, name, client, serial, 0)
    claim.type = type
    claim.options = o
    claim.user = user
    if claim.waiting == 0:
        del t.claims[claim.number]
        return made_by_vote(n, t, create_tube(n, t, name, type, o, user), o, client, serial)
    return None


def made_by_vote(
    n: Node, t: Tubes, tube: Tube, o: TubeOptions, client: i64, serial: i64
) -> Tube | None:
    """[T27] The tube; None if the reply waits until a majority stands with this node (T27.8)."""
    if not t.voter_state.leads(tube):
        return tube
    done = HomeDone(client, serial, tube)
    done.until_ms = n.now_ms + n.limits.node_timeout_ms
    done.if_not_exists = o.if_not_exists
    t.creating.append(done)
    return None


def askable(n: Node) -> i64:
    """The nodes to ask, leaving ones too: they may lead, or have a replica (T17.5, T21.1)."""
    return (n.reachable | n.leavers) & n.others


def ask_nodes(n: Node, t: Tubes, name: bytes, client: i64, serial: i64, epoch: i64) -> Claim:
    """Ask all reachable nodes: for the name, or about the known tube (epoch above 0)."""
    claim = new_claim(t, name, client, serial, epoch)
    tube = t.by_name.get(name) if epoch > 0 else None
    maker = b"" if tube is None else tube.maker
    made_ns: i64 = 0 if tube is None else tube.made_ns
    for slot in slots_of(askable(n)):
        if say(n, slot, TubeClaim(name, claim.number, epoch, maker, made_ns, False)):
            claim.waiting |= 1 << slot
    return claim


def yield_to(n: Node, slot: i64, claim: Claim) -> None:
    """[T17] A lower node id claims the name: this claim waits until that one has ended (T17.5).

    If that node has not replied yet it claimed first, and replies then. Else it is asked again.
    """
    bit: i64 = 1 << slot
    claim.home = n.peers[slot].node_id
    if claim.waiting & bit == 0:
        if say(n, slot, TubeClaim(claim.name, claim.number, 0, b"", 0, False)):
            claim.waiting |= bit


def ask_target(n: Node, t: Tubes, tube: Tube, slot: i64, client: i64, serial: i64) -> None:
    """[T20] Ask the target of a switchover whether it can serve the tube (T20.1)."""
    claim = new_claim(t, tube.name, client, serial, tube.epoch + 1)
    claim.moving = tube
    claim.target = n.peers[slot].node_id
    m = TubeClaim(tube.name, claim.number, claim.epoch, tube.maker, tube.made_ns, True)
    if say(n, slot, m):
        claim.waiting = 1 << slot
    else:
        t.must_look = True  # the next look closes the claim


def new_claim(t: Tubes, name: bytes, client: i64, serial: i64, epoch: i64) -> Claim:
    """A new claim, which waits for no node yet."""
    t.claim_serial += 1
    claim = Claim(name, t.claim_serial, client, serial, 0)
    claim.epoch = epoch
    t.claims[claim.number] = claim
    return claim


def can_serve(tube: Tube) -> i64:
    """[T20] The reply to a leader that asks whether this node can serve the tube (T20.1)."""
    if isinstance(tube.driver, Absent):
        return TYPE_MISSING
    return DRIVER_FAILED if len(why_stopped(tube.type, tube.driver)) > 0 else FREE


def finish_claim(n: Node, t: Tubes, claim: Claim) -> None:
    """All have replied: create the tube, or return the error (T17.5)."""
    done = HomeDone(claim.client, claim.serial, None)
    try:
        tube = t.by_name.get(claim.name)
        if tube is None and len(claim.home) > 0:
            if claim.options.if_not_exists and claim.refused is None:
                raise HomeError(claim.name, claim.home)
            raise TubeError(EXISTS, (claim.name,))
        made = create_tube(n, t, claim.name, claim.type, claim.options, claim.user)
        if tube is None:
            if made_by_vote(n, t, made, claim.options, claim.client, claim.serial) is None:
                return
        done.tube = made
    except TubeError as error:
        done.error = error.with_traceback(None)  # drop the frames: the collector is off
    t.home_done.append(done)


# ---- Plain jobs in a tube that another node leads: no client gets them here (SPEC T1.9)


def give_strays(n: Node, t: Tubes) -> None:
    """[T1] Give the plain jobs of tubes led elsewhere to their leaders (T1.9)."""
    for tube in t.by_name.values():
        if tube.plain > 0 and not tube.is_mine and tube.pause & PAUSE_IN == 0:
            give(n, tube)


def give(n: Node, tube: Tube) -> None:
    """Give some plain jobs of the tube to its leader, if that can take them."""
    slot: i64 = n.slot_of.get(tube.home, 0)
    peer = n.peers[slot]
    if slot == 0 or not peer.is_linked or peer.is_leaving or not peer.has_room:
        return
    jobs = [job for job in tube.first_plain(STEP_JOBS) if may_move(n, job)]
    for job in jobs:
        dequeue(n, job)
    if len(jobs) > 0:
        send_jobs(n, slot, tube.name, jobs)
