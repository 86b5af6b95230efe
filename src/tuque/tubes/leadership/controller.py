"""The entry points of leadership: messages, links and time (SPEC T17 to T21).

After any change that leadership depends on, this node checks all tubes that it leads: they start,
stop, continue a switchover, or are handed over.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.errors import EXISTS
from tuque.core.model.task import FAR
from tuque.core.msgs.bus import (
    HomeMessage,
    TubeClaim,
    TubeClaimed,
    TubeCopy,
    TubeGot,
    TubesTold,
    TubeYours,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import say, slots_of
from tuque.tubes.leadership.activate import (
    is_granted,
    start,
    step_shifts,
    wait_here,
)
from tuque.tubes.leadership.catalog_in import on_told
from tuque.tubes.leadership.create import (
    ALIVE,
    FREE,
    IN_USE,
    KNOWN,
    askable,
    can_serve,
    finish_claim,
    give_strays,
    yield_to,
)
from tuque.tubes.leadership.load import turn_back
from tuque.tubes.leadership.switchover import (
    begin_move,
    cross_alone,
    crosses,
    decide_force,
    decide_move,
    give_again,
    is_bound,
    make_sure,
    may_be_home,
    may_cross,
    may_run_forced,
    on_force_answer,
    on_forced,
    on_given,
    on_yours,
    send_yours,
    step_move,
)
from tuque.tubes.log.catalog import (
    announce,
    tell_all,
    tell_nodes,
    told,
)
from tuque.tubes.log.leader import has_lease, is_alone, knows_enough, may_vote_about, renew_lease
from tuque.tubes.log.receive import drop_left, on_copy
from tuque.tubes.log.send import on_got
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import ENDING, RUNNING, STARTUP, Tube
from tuque.tubes.model.tubes import Claim, Tubes
from tuque.tubes.tasks.admin import is_in_use, is_shared
from tuque.tubes.work.transitions import reserve_tokens

AGAIN_MS: Final = 1_000  # until leaders that should be elsewhere are checked again
HELD_MS: Final = 10  # until changes are sent again to a link that had no room


# ---- Messages


def on_tube_message(n: Node, t: Tubes, slot: i64, m: HomeMessage) -> None:
    """[B3] ON RECV any message about tubes; it is deferred while the journal loads."""
    if n.is_loading:
        t.later.append((slot, m))
    elif isinstance(m, TubeCopy):
        on_copy(n, t, slot, m)
    elif isinstance(m, TubeGot):
        on_got(n, t, slot, m)
    elif isinstance(m, TubesTold):
        on_told(n, t, slot, m)
    elif isinstance(m, TubeYours):
        on_yours(n, t, slot, m)
    elif isinstance(m, TubeClaim):
        on_claim(n, t, slot, m)
    else:
        on_claimed(n, t, slot, m)


def on_claim(n: Node, t: Tubes, slot: i64, m: TubeClaim) -> None:
    """[T17] ON RECV TUBE-CLAIM: reply about the name (T17.5), or the tube here (T20.1, T21.1)."""
    tube = t.by_name.get(m.name)
    answer: i64 = FREE
    copy_epoch: i64 = 0
    seq: i64 = 0
    is_complete = False
    if tube is not None and len(m.maker) > 0 and is_other(tube, m):
        answer = KNOWN  # no replica of that tube is here (T17.5)
        aside = t.aside.get((m.maker, m.made_ns))
        if aside is not None and aside.epoch >= m.epoch:
            answer = ALIVE
    elif tube is not None:
        copy_epoch = tube.copy_epoch
        seq = tube.seq
        is_complete = tube.is_complete
        if m.is_move:
            answer = can_serve(tube)
        elif m.epoch == 0:
            answer = KNOWN
            announce(n, t, [tube], -1)
        elif tube.is_mine or tube.epoch >= m.epoch:
            answer = ALIVE
    elif m.epoch == 0:
        for claim in list(t.claims.values()):
            if claim.name == m.name and claim.epoch == 0:
                if n.node_id < n.peers[slot].node_id:
                    t.askers.append((int(slot), m))  # it is answered when this claim has ended
                    return
                yield_to(n, slot, claim)
        answer = IN_USE if is_in_use(n, m.name) else FREE
    say(n, slot, TubeClaimed(m.name, m.number, answer, copy_epoch, seq, is_complete))


def is_other(tube: Tube, m: TubeClaim) -> bool:
    """Whether the claim means another tube of that name."""
    return tube.maker != m.maker or tube.made_ns != m.made_ns


def on_claimed(n: Node, t: Tubes, slot: i64, m: TubeClaimed) -> None:
    """[T17] ON RECV TUBE-CLAIMED: decide once all have replied (T17.5, T20.1, T21.1)."""
    claim = t.claims.get(m.number)
    bit: i64 = 1 << slot
    if claim is None or claim.name != m.name or claim.waiting & bit == 0:
        return
    claim.waiting &= ~bit
    claim.answer = m.answer
    if claim.moving is not None:
        pass  # the reply itself decides
    elif claim.epoch != 0:
        on_force_answer(n, t, slot, claim, m)
    elif m.answer != FREE and not (m.answer == IN_USE and is_shared(claim.type)):
        claim.home = n.peers[slot].node_id
        if m.answer == IN_USE:
            claim.refused = TubeError(EXISTS, (claim.name,))
    elif claim.home == n.peers[slot].node_id:
        claim.home = b""  # its own claim came to nothing
    close_claims(n, t)


def close_claims(n: Node, t: Tubes) -> None:
    """Decide claims that wait for no node any more."""
    for number in list(t.claims):
        claim = t.claims[number]
        if claim.moving is not None and is_bound(n, t, claim.moving):
            later(t, t.voter_state.bound_ms)
        elif claim.waiting & askable(n) == 0:
            del t.claims[number]
            decide(n, t, claim)
    askers = t.askers
    t.askers = []
    for slot, m in askers:
        on_claim(n, t, slot, m)


def decide(n: Node, t: Tubes, claim: Claim) -> None:
    """All reachable nodes have replied."""
    moving = claim.moving
    if moving is not None:
        decide_move(n, t, claim, moving)
    elif claim.epoch == 0:
        finish_claim(n, t, claim)
    else:
        decide_force(n, t, claim)


# ---- Links, and the end of the journal's load


def homes_link_up(n: Node, t: Tubes, slot: i64) -> None:
    """[T17] A link is open: send the catalog of this node (T17.2)."""
    if not n.is_loading:
        tell_all(n, t, slot)
    t.must_look = True


def homes_link_down(n: Node, t: Tubes, slot: i64) -> None:
    """The link is gone: catalogs and claims of the node are void."""
    bit: i64 = 1 << slot
    t.heard &= ~bit
    t.read_only &= ~bit
    t.later = [entry for entry in t.later if entry[0] != slot]
    t.askers = [entry for entry in t.askers if entry[0] != slot]
    node_id = n.peers[slot].node_id
    for tube in t.by_name.values():
        follower = tube.followers.get(slot)
        if follower is not None:
            follower.is_open = False
            follower.walk = None
        if tube.home == node_id:
            tube.is_asking = False
    for claim in t.claims.values():
        claim.waiting &= ~bit
    close_claims(n, t)
    t.must_look = True


def homes_loaded(n: Node, t: Tubes) -> None:
    """[T22] The journal is loaded: messages received meanwhile are processed, others are informed
    (T22.1).
    """
    reserve_tokens(n, t)  # T5.1
    t.must_look = True
    for tube in t.by_name.values():
        tube.hears_ms = n.now_ms  # T48.9
    for slot in slots_of(n.linked & ~n.forgotten):
        tell_all(n, t, slot)
    later = t.later
    t.later = []
    for slot, m in later:
        on_tube_message(n, t, slot, m)


# ---- Timers


def homes_tick(n: Node, t: Tubes) -> None:
    """[T19] Check leadership when something that it depends on changed, or it is time."""
    if n.is_loading:
        return
    if n.round != t.round:
        give_strays(n, t)
    if n.round != t.round or t.must_look:
        renew_lease(n, t)
    if t.stood_ms > 0:
        make_sure(n, t)  # T19.7
    is_expired = n.now_ms > t.lease_ms
    if is_expired != t.is_expired:
        t.is_expired = is_expired
        t.must_look = True
    if len(t.pending) > 0:
        check_pending(n, t)
    if t.must_look or t.look_ms <= n.now_ms:
        check_leaders(n, t)
    if len(t.shifting) > 0:
        step_shifts(n, t)
    if len(t.left) > 0:
        drop_left(n, t)


def homes_next_ms(n: Node, t: Tubes) -> i64:
    """When `homes_tick` has work next."""
    if n.is_loading:
        return FAR  # `homes_loaded` checks them
    now_ms = n.now_ms
    if t.must_look or n.round != t.round or len(t.shifting) + len(t.left) > 0:
        return now_ms
    if (now_ms > t.lease_ms) != t.is_expired:
        return now_ms
    at_ms = t.look_ms
    if t.lease_ms < at_ms and not t.is_expired:
        at_ms = t.lease_ms + 1
    for tube in t.pending:
        if n.records is None or n.records.granted >= tube.wish or n.records.wish < tube.wish:
            return now_ms
    if len(t.changed) > 0:
        return min(at_ms, now_ms + HELD_MS) if t.is_held else now_ms
    return at_ms


def check_pending(n: Node, t: Tubes) -> None:
    """[T20] Switchovers that waited for the disk continue (T20.3, T20.4)."""
    pending = t.pending
    t.pending = []
    for tube in pending:
        if tube.wish == 0:
            continue  # another leader took over meanwhile
        if not is_granted(n, t, tube):
            t.pending.append(tube)
            continue
        tube.wish = 0
        t.must_look = True
        if tube.is_mine:
            on_forced(t, tube)
            if t.voter_state.leads(tube):
                announce(n, t, [tube], -1)  # T27.3
        elif tube.is_owed:
            on_given(n, t, tube)


def check_leaders(n: Node, t: Tubes) -> None:
    """Check all tubes led here, and send what is due."""
    t.must_look = False
    t.look_ms = FAR
    if not t.is_read_only:
        t.was_writable = True
    if t.flags_changed:
        t.flags_changed = False
        tell_nodes(n, told(t, False, []), -1)
    owing = t.owing
    t.owing = []
    for tube, slot in owing:
        if tube.is_owed and tube.wish == 0:
            send_yours(n, t, tube, slot)
    if len(t.claims) + len(t.askers) > 0:
        close_claims(n, t)
    for tube in list(t.by_name.values()):
        if tube.is_mine or tube.move is not None:
            look_at(n, t, tube)


def look_at(n: Node, t: Tubes, tube: Tube) -> None:
    """[T19] Check one tube that this node leads."""
    move = tube.move
    if move is not None:
        step_move(n, t, tube, move)
        if tube.move is not None:
            later(t, move.until_ms)
        return
    if tube.wish != 0:
        return
    if tube.from_number != 0:
        give_again(n, t, tube)
        return
    if cross_alone(n, t, tube):
        return
    is_free = not is_alone(n) and tube.run_ms == 0 and not tube.is_unsure
    is_going = t.is_read_only or t.is_stopping or n.is_leaving
    if is_free and (is_going or lacks_vote(n, t, tube)):
        slot: i64 = 0
        if not is_bound(n, t, tube):
            slot = next_leader_of(n, t, tube)
        if slot > 0:
            begin_move(n, t, tube, slot, -1, 0)  # T19.5
            later(t, n.now_ms)
            return
        later(t, n.now_ms + AGAIN_MS)
    may_run = not t.is_read_only and has_lease(n.now_ms, t, tube) and not tube.is_unsure
    if n.is_double:
        may_run = False  # K1.3
    by_vote = t.voter_state.leads(tube)
    if by_vote and not tube.is_won:
        may_run = False  # T27.5
    if tube.state == RUNNING or tube.state == ENDING:
        if not may_run or tube.state == ENDING:
            wait_here(n, t, tube)  # T19.3
        return
    if not may_run:
        turn_back(t, tube)
        return
    if tube.shift is not None:
        return  # T19.6: checked again when all are unloaded, runs when all are loaded
    if tube.run_ms == 0 and not by_vote and not knows_enough(n, t, tube):
        return
    if tube.run_ms != 0 and not may_run_forced(n, tube):
        assert tube.state == STARTUP, "forced, and not about to run"
        if tube.run_ms > 0:
            later(t, tube.run_ms)
        return
    start(n, t, tube)


def lacks_vote(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T28] Whether this node leads the tube without a vote: a voter is to lead it (T28.4)."""
    if may_vote_about(n, t, tube, n.node_id) and not crosses(t, tube):
        return False
    later(t, n.now_ms + AGAIN_MS)
    if crosses(t, tube) and not may_cross(n, t, tube):
        return False
    return tube.state == RUNNING and has_lease(n.now_ms, t, tube) and n.now_ms >= tube.rests_ms


def later(t: Tubes, at_ms: i64) -> None:
    """Check again by then."""
    if at_ms < t.look_ms:
        t.look_ms = at_ms


def has_heir(n: Node, t: Tubes, tube: Tube) -> bool:
    """Whether another node is to lead the tube, even if its replica is incomplete yet (K9.2)."""
    able = n.reachable & n.others & ~(t.read_only | tube.apart)
    if tube.is_temporary:
        return able != 0
    for slot in tube.followers:
        if able >> slot & 1 and may_vote_about(n, t, tube, n.peers[slot].node_id):
            return True
    return False


def next_leader_of(n: Node, t: Tubes, tube: Tube) -> i64:
    """The complete node with the least lag that may lead it; 0: none (T19.5)."""
    able: i64 = 0  # slots that may lead it
    serving: i64 = 0  # of these, slots whose driver works
    for slot in slots_of(n.reachable & n.others):
        if may_be_home(n, t, tube, slot):
            able |= 1 << slot
            follower = tube.followers.get(slot)
            if follower is None or not follower.is_stopped:
                serving |= 1 << slot
    best: list[int] = []
    least: i64 = FAR
    for slot in slots_of(serving if serving != 0 else able):
        if tube.is_temporary:
            return slot
        follower = tube.followers.get(slot)
        if follower is not None and follower.is_complete and follower.is_open:
            lag = tube.seq - follower.got
            if lag < least:
                least = lag
                best = []
            if lag == least:
                best.append(slot)
    return best[tube.number % len(best)] if len(best) > 0 else 0  # one does not get all tubes
