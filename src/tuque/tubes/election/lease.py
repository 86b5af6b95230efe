"""Heartbeats between voters, the vote of each node, and leases of leaders (SPEC T24, T25)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.task import FAR
from tuque.core.model.timers import NEVER_MS
from tuque.core.msgs.bus import StandAt, TubePulse, TubeStands
from tuque.core.node.node import Node
from tuque.core.node.peers import say, slots_of
from tuque.tubes.election.disk_epoch import NO_MARK, hear_mark
from tuque.tubes.election.voters import may_vouch, nodes_open, settle
from tuque.tubes.leadership.activate import wait_here
from tuque.tubes.leadership.load import turn_back
from tuque.tubes.log.catalog import announce
from tuque.tubes.log.vote_state import record_family, seat_of, shortest_ms, vote_of
from tuque.tubes.model.errors import shown
from tuque.tubes.model.tube import ENDING, RUNNING, STARTUP, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import PULSES, Voters, VoterState

TOLD_STANDS: Final = 1_000  # per message
HEARTBEATS_A_LEASE: Final = 8  # to other voters, in `tube-lease-timeout` (T25.1)
IDLE_HEARTBEAT_MS: Final = 1_000  # between two, as long as no tube needs a lease


# ---- How long promises last (SPEC T25)


def was_bound(b: VoterState, timeout_ms: i64) -> None:
    """[T25] The node promised for so long before its start; 0: it promised nothing (T25.5)."""
    b.long_ms = timeout_ms
    b.long_until_ms = NEVER_MS  # until the journal is loaded


def bind(n: Node, b: VoterState) -> None:
    """[T25] The node has started: it may have promised before it stopped (T25.5)."""
    b.bound_ms = n.now_ms + promise_ms(n, b)
    b.long_until_ms = b.bound_ms


def promise_ms(n: Node, b: VoterState) -> i64:
    """[T25] The longest time for which this node has promised, and is bound still (T25.5)."""
    timeout_ms: i64 = n.limits.lease_timeout_ms
    return max(timeout_ms, b.long_ms) if n.now_ms < b.long_until_ms else timeout_ms


def set_timeout(n: Node, b: VoterState, timeout_ms: i64) -> None:
    """[T25] `tube-lease-timeout` is another one now (T25.7)."""
    old: i64 = n.limits.lease_timeout_ms
    if timeout_ms == old:
        return
    b.beat_ms = 0  # leaders hear of it before anything that is promised by it
    if timeout_ms < old:
        b.long_ms = promise_ms(n, b)
        b.long_until_ms = max(b.long_until_ms, n.now_ms + old)
    else:
        for slot in list(b.promised):
            b.promised[slot] += timeout_ms - old  # leaders count what they had by the new one
    n.limits.lease_timeout_ms = timeout_ms


def timeouts_of(n: Node, t: Tubes, voters: Voters) -> tuple[int, int]:
    """[T25] The shortest and the longest timeout of this node and the voters it heard (T25.1)."""
    shortest = longest = int(n.limits.lease_timeout_ms)
    for slot, timeout_ms in t.voter_state.timeouts.items():
        if n.peers[slot].node_id in voters.rights:
            shortest = min(shortest, timeout_ms)
            longest = max(longest, timeout_ms)
    return shortest, longest


def note_timeouts(n: Node, t: Tubes, voters: Voters) -> None:
    """[T25] Note the shortest timeout of the voters; tell once that theirs differ (T25.1)."""
    b = t.voter_state
    shortest, longest = timeouts_of(n, t, voters)
    b.shortest_ms = shortest
    if shortest == longest:
        b.is_uneven = False
    elif not b.is_uneven:
        b.is_uneven = True
        t.notes.append(
            f"tube-lease-timeout is {n.limits.lease_timeout_ms} ms here, {shortest} to {longest} "
            "ms at the voters: leases last as long as by the shortest; set one value on all nodes"
        )


def next_beat_ms(n: Node, t: Tubes) -> i64:
    """[T25] When the next heartbeat goes to the other voters (T25.1)."""
    voters = t.voter_state.voters
    if n.others & ~n.forgotten == 0 and voters is not None and voters.is_only(n.node_id):
        return NEVER_MS  # nobody is there to hear it
    every_ms: i64 = shortest_ms(n, t) // HEARTBEATS_A_LEASE
    if len(t.by_name) == 0:
        every_ms = max(every_ms, IDLE_HEARTBEAT_MS)
    return t.voter_state.beat_ms + every_ms


# ---- Heartbeats between voters (SPEC T25)


def pulse(n: Node, t: Tubes, voters: Voters) -> None:
    """[T25] Send a pulse to the other nodes (T25.1)."""
    b = t.voter_state
    note_timeouts(n, t, voters)
    b.beat_ms = n.now_ms
    b.round += 1
    b.said[b.round % PULSES] = n.now_ms
    vouches = may_vouch(n, t, voters)
    is_whole = vouches or has_all(t, voters)
    for slot in nodes_open(n, t):
        m = TubePulse(
            int(voters.number),
            voters.origin,
            int(b.round),
            b.heard.get(slot, 0),
            vouches,
            is_whole,
            int(n.limits.lease_timeout_ms),
            b.is_asking or n.is_double,  # K1.3: it can vote later
            b.disk,
            int(b.right),
            int(b.mark),
            0,
            0,
        )
        m.known_right, m.known_mark = b.marks.get(n.peers[slot].node_id, NO_MARK)
        say(n, slot, m)


def on_pulse(n: Node, t: Tubes, slot: i64, m: TubePulse) -> None:
    """[T25] ON RECV TUBE-PULSE: promise, and count the echo (T25.2, T25.3)."""
    b = t.voter_state
    voters = b.in_force()
    if voters is None or not voters.is_same(m.list_number, m.origin):
        return
    b.heard[slot] = m.round
    if b.timeouts.get(slot, 0) != m.timeout_ms:
        b.timeouts[slot] = m.timeout_ms
        note_timeouts(n, t, voters)
    promise(n, t, slot)
    hear_mark(n, t, voters, slot, m)
    note_right(n, t, voters, slot, m)
    echo: i64 = m.echo
    if not m.may_vouch or echo <= 0 or echo > b.round or b.round - echo >= PULSES:
        return
    count_echo(t, slot, b.said[echo % PULSES])


def has_all(t: Tubes, voters: Voters) -> bool:
    """Whether this node has all of every tube whose leader these voters choose."""
    for tube in t.by_name.values():
        if not tube.is_complete and t.voter_state.list_of(tube) is voters:
            return False
    return True


def note_right(n: Node, t: Tubes, voters: Voters, slot: i64, m: TubePulse) -> None:
    """[T28] Note nodes that could join the voters, and voters that cannot vote (T28.4)."""
    b = t.voter_state
    bit: i64 = 1 << slot
    was_outside = b.outside
    b.outside &= ~bit
    b.whole &= ~bit
    b.lame &= ~bit
    b.asking &= ~bit
    b.disks[slot] = m.disk
    if m.may_vouch:
        if slot not in b.vouching:
            b.hurry()  # T27.2: a majority may vote from now on
            t.must_look = True  # T23.7: a tube may move to it
        b.vouching[slot] = m.right
    else:
        b.vouching.pop(slot, None)
    if n.peers[slot].node_id not in voters.rights:
        if voters.is_solo and was_outside & bit == 0:
            b.beat_ms = 0  # T28.9: perhaps it grows
        b.outside |= bit
        if m.is_whole:
            b.whole |= bit
    elif m.is_asking and m.right > 0:
        b.asking |= bit
    elif not m.may_vouch:
        b.lame |= bit
    if b.lame == 0:
        b.lame_ms = 0
    elif b.lame_ms == 0:
        b.lame_ms = n.now_ms


def promise(n: Node, t: Tubes, slot: i64) -> None:
    """[T25] Vote for nobody else than that node for the timeout (T25.3)."""
    promised = t.voter_state.promised
    until: i64 = n.now_ms + n.limits.lease_timeout_ms
    if promised.get(slot, 0) < until:  # else by a longer timeout (T25.7)
        promised[slot] = until


def count_echo(t: Tubes, slot: i64, said_ms: i64) -> None:
    """[T25] The voter echoed what this node sent at `said_ms`: its promise counts from then."""
    b = t.voter_state
    if b.echoed.get(slot, 0) < said_ms:
        b.echoed[slot] = said_ms
        if b.is_short:
            b.is_renewed = True


# ---- The vote of this node, and those of others (SPEC T24)


def is_up(tube: Tube, epoch: i64) -> bool:
    """[T24] Whether this node, which votes for itself, leads or asks for votes (T24.2)."""
    if tube.seat is not None and tube.seat.asked_epoch == epoch:
        return True
    return tube.is_mine and tube.is_won and tube.epoch == epoch


def stand_at(n: Node, tube: Tube) -> StandAt:
    """The entry about the tube."""
    epoch, node_id = vote_of(tube)
    is_leader = node_id == n.node_id and is_up(tube, epoch)
    settled: i64 = 0
    seat = tube.seat
    if is_leader and seat is not None and seat.settled_epoch == epoch:
        if seat.settled_node == n.node_id:
            settled = seat.settled
    return StandAt(
        tube.name,
        tube.maker,
        tube.made_ns,
        epoch,
        node_id,
        is_leader,
        int(settled),
        tube.family,
        int(tube.moves),
        int(tube.from_number),
    )


def tell_stands(n: Node, t: Tubes, tubes: list[Tube]) -> None:
    """[T24] Send changed stands to the other nodes, before any later pulse (T24.2)."""
    stands: list[StandAt] = []
    for tube in tubes:
        if t.by_name.get(tube.name) is tube and tube.vote_wish == 0:
            stands.append(stand_at(n, tube))
    if len(stands) > 0:
        for slot in nodes_open(n, t):
            send_votes(n, slot, stands)


def send_votes(n: Node, slot: i64, votes: list[StandAt], is_all: bool = False) -> None:
    """[T24] Send these to one node (T24.2); `is_all`: it has all of this node now."""
    say(n, slot, TubeStands(is_all, votes))


def tell_all_stands(n: Node, t: Tubes, slot: i64) -> None:
    """[T24] A link is open: send all stands (T24.2)."""
    stands: list[StandAt] = []
    for tube in t.by_name.values():
        if tube.vote_wish == 0:
            stands.append(stand_at(n, tube))
        if len(stands) >= TOLD_STANDS:
            send_votes(n, slot, stands)
            stands = []
    send_votes(n, slot, stands, True)


def on_stands(n: Node, t: Tubes, slot: i64, m: TubeStands) -> None:
    """[T24] ON RECV TUBE-STANDS: who stands with whom (T24.2).

    The sender may have learned of a tube after this node stepped down. An answer names another
    node than the one that gets it, so no answer is answered.
    """
    answers: list[StandAt] = []
    for at in m.stands:
        tube = t.by_name.get(at.name)
        if tube is None or tube.maker != at.maker or tube.made_ns != at.made_ns:
            continue
        on_stand(n, t, slot, tube, at)
        if at.node == n.node_id:
            own = stand_at(n, tube)
            has_voted = tube.vote_wish == 0  # T27.8
            if has_voted and not own.is_up and own.node != n.peers[slot].node_id:
                answers.append(own)
    if len(answers) > 0:
        send_votes(n, slot, answers)


def on_stand(n: Node, t: Tubes, slot: i64, tube: Tube, at: StandAt) -> None:
    """[T24] The vote of the sender about one tube.

    It may end the promise of this node (T25.4), and the lead of this node (T25.6). Over one link a
    lower epoch comes after the vote was asked for. Of a leader that another node named it may be
    an older word, so it counts against votes of this node only.
    """
    b = t.voter_state
    vote = seat_of(tube)
    bit: i64 = 1 << slot
    if vote.floor < at.epoch:
        vote.floor = at.epoch
    sender = n.peers[slot].node_id
    if tube.take_family(at.family, at.moves, at.from_number):
        b.hurry()  # T23.7
        if n.records is not None:
            record_family(n.records, tube)
    if at.is_up and at.node == sender and at.settled > 0:
        vote.settled = at.settled
        vote.settled_epoch = at.epoch
        vote.settled_node = sender
    given_up: i64 = at.epoch if at.node == sender else at.epoch - 1
    epoch, node_id = vote_of(tube)
    is_own = vote.voted_node == node_id == sender and vote.voted_epoch == epoch
    if is_own and at.epoch < vote.voted_epoch:
        given_up = vote.voted_epoch  # T25.4: it has lost its disk since
    # The word of the node that this one votes for is not replaced by the word of another node
    # (T25.4). Else heartbeats would renew a promise that binds this node to nobody.
    is_newer = vote.resigned_epoch <= given_up and not has_given_up(tube)
    if not at.is_up and (sender == node_id or is_newer):
        vote.resigned_epoch = given_up
        vote.resigned_node = sender
        b.hurry()
    if not tube.is_mine or not tube.is_won:
        return
    b.is_renewed = True
    if at.node == n.node_id and at.epoch == tube.epoch:
        vote.standing |= bit
        return
    vote.standing &= ~bit
    if at.epoch > tube.epoch:
        step_down(n, t, tube)  # T25.6


def has_given_up(tube: Tube) -> bool:
    """[T25] Whether the node that this one votes for gave up (T25.4)."""
    epoch, stood_with = vote_of(tube)
    mine = seat_of(tube)
    return mine.resigned_node == stood_with and mine.resigned_epoch >= epoch


def step_down_unlisted(n: Node, t: Tubes) -> None:
    """[T23] This node uses another list now: what voters of another one choose it leads no more."""
    for tube in t.by_name.values():
        if tube.led_by_votes and tube.is_mine and tube.is_won:
            if t.voter_state.list_of(tube) is None:
                step_down(n, t, tube)


def step_down(n: Node, t: Tubes, tube: Tube) -> None:
    """[T25] This node leads the tube no more; who does, votes will say (T25.6)."""
    seat = seat_of(tube)
    tube.is_won = False
    tube.lease_ms = 0
    seat.standing = 0
    seat.wait_ms = n.now_ms
    turn_back(t, tube)
    if tube.state == RUNNING or tube.state == ENDING or tube.state == STARTUP:
        wait_here(n, t, tube)
    b = t.voter_state
    b.moved.append(tube)
    b.hurry()
    t.notes.append(f"tube {shown(tube.name)}: this node does not lead it any more")


def is_failing(n: Node) -> bool:
    """[T27] Whether the journal is off, or cannot be written now (T27.11)."""
    return n.records is None or n.records.is_failing


def look_at_journal(n: Node, t: Tubes, voters: Voters) -> None:
    """[T27] A leader whose journal fails for longer than the timeout gives up (T27.11)."""
    b = t.voter_state
    if (n.records is None) != (b.no_journal & 1 != 0):
        b.no_journal ^= 1
        t.flags_changed = True  # T23.3
        t.must_look = True
    if n.is_double and voters.majority() > 1:
        give_up_all(n, t)  # K1.3
    if not is_failing(n):
        b.failing_ms = 0
        return
    if b.failing_ms == 0:
        b.failing_ms = n.now_ms
    since_ms = n.now_ms - b.failing_ms
    if since_ms <= n.limits.lease_timeout_ms or voters.majority() == 1:
        return
    for tube in t.by_name.values():
        if tube.is_mine and tube.is_won and b.list_of(tube) is voters:
            t.notes.append(
                f"tube {shown(tube.name)}: the journal of this node could not be written for "
                f"{since_ms // 1000} s; votes choose another leader"
            )
            step_down(n, t, tube)


def give_up_all(n: Node, t: Tubes) -> None:
    """[K1] Another node has the id of this one: votes choose other leaders (K1.3)."""
    for tube in t.by_name.values():
        if tube.is_mine and tube.is_won and t.voter_state.leads(tube):
            step_down(n, t, tube)


# ---- Leases of the tubes that this node leads (SPEC T25)


def renew_leases(n: Node, t: Tubes) -> None:
    """[T25] Compute the leases of the tubes led here (T25.2).

    That is at each pulse. An echo has it done at once only where a lease is short, as each call
    looks at all tubes.
    """
    b = t.voter_state
    b.is_renewed = False
    b.is_short = False
    b.lease_ms = 0
    short_ms: i64 = n.now_ms + shortest_ms(n, t) // 4
    found: dict[int, int] = {}  # by who stands with this node, under the list in force
    for tube in t.by_name.values():
        if not tube.is_mine or not tube.is_won or not b.leads(tube):
            continue
        until = lease_by_votes(n, t, tube, found)
        epoch, node_id = vote_of(tube)
        if epoch != tube.epoch or node_id != n.node_id or tube.vote_wish != 0:
            until = 0
        was_only = tube.lease_ms > n.now_ms + promise_ms(n, b)  # this node, of its voters
        is_over = n.now_ms >= b.bound_ms or was_only
        if until > tube.lease_ms or (until < tube.lease_ms and is_over):
            if until < n.now_ms or tube.lease_ms < n.now_ms or tube.state != RUNNING:
                t.must_look = True
            tube.lease_ms = until
        if tube.lease_ms < short_ms:
            b.is_short = True
        has_ended = tube.lease_ms < n.now_ms
        if not has_ended and (b.lease_ms == 0 or tube.lease_ms < b.lease_ms):
            b.lease_ms = tube.lease_ms
        if not has_ended and not tube.is_confirmed:
            tube.is_confirmed = True
            announce(n, t, [tube], -1)  # T17.5
        if tube.state != RUNNING:
            continue
        if has_ended:
            t.must_look = True
            continue
        voters = b.list_of(tube)
        if voters is not None:
            settle(n, t, voters, tube)


def lease_by_votes(n: Node, t: Tubes, tube: Tube, found: dict[int, int]) -> int:
    """Until when the voters of the tube let this node lead it; 0: they do not."""
    voters = t.voter_state.list_of(tube)
    if voters is None:
        return 0
    standing = seat_of(tube).standing
    if voters is t.voter_state.own:
        return int(lease_of(n, t, voters, standing))
    until = found.get(standing)
    if until is None:
        until = int(lease_of(n, t, voters, standing))
        found[standing] = until
    return until


def lease_of(n: Node, t: Tubes, voters: Voters, standing: i64) -> i64:
    """Until when a majority promises, of those that stand with this node; 0: it does not."""
    b = t.voter_state
    times: list[int] = []
    timeout_ms: i64 = n.limits.lease_timeout_ms
    for slot in slots_of(standing):
        if n.peers[slot].node_id in voters.rights:
            times.append(b.echoed.get(slot, 0))
            timeout_ms = min(timeout_ms, b.timeouts.get(slot, timeout_ms))
    needed = voters.majority()
    if may_vouch(n, t, voters):
        needed -= 1
    if needed == 0:
        return FAR  # the only voter
    if len(times) < needed:
        return 0
    times.sort(reverse=True)
    said_ms: i64 = times[needed - 1]
    return said_ms + timeout_ms - timeout_ms // 8 if said_ms > 0 else 0
