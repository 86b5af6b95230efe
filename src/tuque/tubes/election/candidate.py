"""A node becomes a candidate for a tube without a leader, and others vote (SPEC T26, T27)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.timers import NEVER_MS
from tuque.core.msgs.bus import (
    TubeVote,
    TubeVoted,
    VoteAt,
    VotedAt,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    count_of,
    rank,
    say,
    slots_of,
)
from tuque.tubes.election.disk_epoch import raise_mark
from tuque.tubes.election.lease import (
    count_echo,
    has_given_up,
    is_failing,
    promise,
    step_down,
    step_down_unlisted,
    tell_stands,
)
from tuque.tubes.election.voters import (
    OWN,
    may_vouch,
    send_surely,
    voters_open,
)
from tuque.tubes.leadership.create import can_serve
from tuque.tubes.leadership.switchover import NUMBER_GAP, TOKEN_GAP, become_home
from tuque.tubes.log.vote_state import (
    best_copy,
    record_family,
    record_vote,
    seat_of,
    shortest_ms,
    vote_of,
)
from tuque.tubes.model.errors import shown
from tuque.tubes.model.tube import Seat, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import (
    AGAIN,
    BETTER,
    GAVE_UP,
    GIVEN,
    NO_VOTER,
    OLD_EPOCH,
    OTHER_LIST,
    PROMISED,
    REASONS,
    SILENT,
    UNKNOWN,
    YES,
    Voters,
)

ASKED_TUBES: Final = 1_000  # per message
WAITS_MOST: Final = 2  # surveys in which a newer copy goes first


# ---- The voter (SPEC T26)


def on_vote(n: Node, t: Tubes, slot: i64, m: TubeVote) -> None:
    """[T26] ON RECV TUBE-VOTE: vote, or say why not (T26.1, T26.4)."""
    answers: list[VotedAt] = []
    turned: list[Tube] = []
    for at in m.tubes:
        tube = t.by_name.get(at.name)
        answer = answer_to(n, t, slot, m, at)
        if answer == YES and tube is not None and not m.is_survey:
            vote_for(n, t, slot, tube, at)
            turned.append(tube)
        answers.append(voted_at(tube, at, answer))
    if len(turned) > 0:
        tell_stands(n, t, turned)
    told = TubeVoted(m.list_number, m.origin, m.is_survey, answers)
    if len(turned) > 0:
        send_surely(n, t, slot, told)  # T26.2
    else:
        say(n, slot, told)


def voted_at(tube: Tube | None, at: VoteAt, answer: i64) -> VotedAt:
    """The answer about one tube."""
    epoch: i64 = 0
    copy_epoch: i64 = 0
    seq: i64 = 0
    if tube is not None and answer != UNKNOWN:
        epoch, _ = vote_of(tube)
        copy_epoch, seq = best_copy(tube)
    return VotedAt(
        at.name, at.maker, at.made_ns, at.epoch, int(answer), int(epoch), int(copy_epoch), int(seq)
    )


def answer_to(n: Node, t: Tubes, slot: i64, m: TubeVote, at: VoteAt) -> i64:
    """[T26] Whether this node votes for the sender (T26.1, T26.3), or why not."""
    voters = t.voter_state.in_force()
    if voters is None or not voters.is_same(m.list_number, m.origin):
        return OTHER_LIST
    node_id = n.peers[slot].node_id
    if node_id not in voters.rights or not may_vouch(n, t, voters):
        return NO_VOTER
    tube = t.by_name.get(at.name)
    if tube is None or tube.maker != at.maker or tube.made_ns != at.made_ns:
        return UNKNOWN
    if not chooses_by(voters, tube, at):
        return OTHER_LIST
    epoch, stood_with = vote_of(tube)
    if not m.is_survey:
        voted_epoch = seat_of(tube).voted_epoch
        is_again = at.epoch == voted_epoch == epoch and stood_with == node_id
        if at.epoch <= epoch and not is_again:
            return OLD_EPOCH
    copy_epoch, seq = best_copy(tube)
    if at.copy_epoch < copy_epoch or (at.copy_epoch == copy_epoch and at.seq < seq):
        return BETTER
    return YES if may_turn(n, t, tube, node_id) else PROMISED


def chooses_by(voters: Voters, tube: Tube, at: VoteAt) -> bool:
    """[T23] Whether voters of this list choose its leader, by what counts of the two (T23.7).

    One of the two may not know yet that the tube was given to this list, or under which number.
    """
    from_number: i64 = at.from_number
    if is_behind(at.moves, from_number, tube.moves, tube.from_number):
        from_number = tube.from_number
        if tube.family != voters.family:
            return False
    return from_number == 0 or from_number == voters.number


def is_behind(moves: i64, from_number: i64, other: i64, other_from: i64) -> bool:
    """[T23] Whether less is known by the first two of where a tube moved (T23.7)."""
    if moves != other:
        return moves < other
    return from_number > 0 and (other_from == 0 or from_number < other_from)


def may_turn(n: Node, t: Tubes, tube: Tube, node_id: bytes) -> bool:
    """[T25] Whether no promise keeps this node from voting for that one (T25.3-T25.5)."""
    b = t.voter_state
    _, stood_with = vote_of(tube)
    if stood_with == node_id:
        return True
    if n.now_ms < b.bound_ms:
        return False
    if stood_with == n.node_id:
        return not (tube.is_mine and tube.is_won and n.now_ms <= tube.lease_ms)
    return is_silent(n, t, tube)


def is_silent(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T27] Whether the node that this one stands with is silent, or gave up (T25.4, T27.1)."""
    if has_given_up(tube):
        return True
    _, stood_with = vote_of(tube)
    slot = n.slot_of.get(stood_with)
    if slot is None:
        return True
    return max(t.voter_state.promised.get(slot, 0), t.voter_state.bound_ms) <= n.now_ms


def vote_for(n: Node, t: Tubes, slot: i64, tube: Tube, at: VoteAt) -> None:
    """[T26] Stand with the sender from now on (T26.2)."""
    seat = seat_of(tube)
    promise(n, t, slot)
    voters = t.voter_state.voters
    if voters is not None and tube.take_family(voters.family, at.moves, at.from_number):
        if n.records is not None:
            record_family(n.records, tube)
    if seat.voted_epoch == at.epoch:
        return
    if tube.is_mine and tube.is_won:
        step_down(n, t, tube)
    seat.asked_epoch = 0
    seat.surveyed_ms = 0
    seat.silent_ms = 0
    seat.voted_epoch = at.epoch
    seat.voted_node = n.peers[slot].node_id
    if n.records is not None:
        record_vote(n.records, tube)
        raise_mark(n, t, n.records)


# ---- The candidate (SPEC T27)


def look_at_stands(n: Node, t: Tubes) -> None:
    """[T27] Stand up for tubes without a leader (T27.1); end what took too long."""
    b = t.voter_state
    b.look_ms = n.now_ms + shortest_ms(n, t)
    voters = b.voters
    if n.others & ~n.forgotten == 0 and voters is not None and voters.is_only(n.node_id):
        b.look_ms = NEVER_MS  # nothing happens by itself
    step_down_unlisted(n, t)
    for voters in (b.in_force(), b.own):
        if voters is not None and may_vouch(n, t, voters):
            seek_votes(n, t, voters)


def seek_votes(n: Node, t: Tubes, voters: Voters) -> None:
    """The same for the tubes whose leader this list chooses."""
    b = t.voter_state
    surveys: list[Tube] = []
    others = voters_open(n, t, voters)
    are_here = 1 + len(others) >= voters.majority()
    may_vote = 1 + len([slot for slot in others if slot in b.vouching]) >= voters.majority()
    for tube in t.by_name.values():
        if b.list_of(tube) is not voters or tube.from_number not in (0, voters.number):
            continue  # T23.7: it comes under another list
        note_alone(n, t, tube, are_here)
        if look_at_stand(n, t, voters, tube):
            if n.now_ms < b.late_ms and not has_given_up(tube):
                later(t, b.late_ms)  # T27.2: what its leader sent may not be read yet
            elif may_vote:
                surveys.append(tube)
    for first in range(0, len(surveys), ASKED_TUBES):
        client_check(n, t, voters, surveys[first : first + ASKED_TUBES])


def note_alone(n: Node, t: Tubes, tube: Tube, are_here: bool) -> None:
    """[T27] Note since when no vote makes a leader, though a majority is here (T27.12)."""
    seat = seat_of(tube)
    _, stood_with = vote_of(tube)
    is_led = tube.is_mine and tube.is_won
    if stood_with != n.node_id:
        is_led = not is_silent(n, t, tube)
    if is_led or not are_here:
        seat.alone_ms = 0
    elif seat.alone_ms == 0:
        seat.alone_ms = n.now_ms


def look_at_stand(n: Node, t: Tubes, voters: Voters, tube: Tube) -> bool:
    """Check one tube; True: ask now who would vote (T27.2)."""
    seat = seat_of(tube)
    timeout_ms: i64 = shortest_ms(n, t)
    _, stood_with = vote_of(tube)
    if stood_with == n.node_id:
        if tube.is_mine and tube.is_won:
            look_at_lease(n, t, voters, tube, seat)
            return False
        if seat.asked_epoch > 0:
            if n.now_ms >= seat.asked_ms + timeout_ms // 4:
                lose(n, t, tube, seat)  # T27.4
            else:
                later(t, seat.asked_ms + timeout_ms // 4)
            return False
    elif not is_silent(n, t, tube):
        seat.silent_ms = 0
        seat.reason = 0
        seat.surveyed_ms = 0
        later(t, promised_until(n, t, stood_with))
        return False
    is_going = t.is_read_only or t.is_stopping
    if not tube.is_complete or is_going or tube.shift is not None:
        return False
    if is_failing(n) and voters.majority() > 1:
        return False  # T27.11
    if voters.majority() == 1:
        return True  # T27.10
    if seat.silent_ms == 0:
        seat.silent_ms = n.now_ms
        wait_ms = timeout_ms // 32  # the promises of others end about now
        if has_given_up(tube):
            wait_ms = timeout_ms // 4  # T27.6: it may have named another node
        wait_ms += place_of(n, voters, tube, stood_with) * (timeout_ms // 8)
        seat.wait_ms = n.now_ms + wait_ms
        seat.waits = 0
    if seat.surveyed_ms > 0 and n.now_ms >= seat.surveyed_ms + timeout_ms // 8:
        seat.surveyed_ms = 0
        seat.waits += 1
        seat.wait_ms = n.now_ms + timeout_ms // 16
    if seat.surveyed_ms > 0:
        later(t, seat.surveyed_ms + timeout_ms // 8)
        return False
    if seat.wait_ms > n.now_ms:
        later(t, seat.wait_ms)
        return False
    return True


def promised_until(n: Node, t: Tubes, node_id: bytes) -> i64:
    """Until when this node votes for nobody else than that one."""
    b = t.voter_state
    until: i64 = b.bound_ms
    slot = n.slot_of.get(node_id)
    if slot is not None:
        until = max(until, b.promised.get(slot, 0))
    return until


def later(t: Tubes, at_ms: i64) -> None:
    """Look again by then."""
    b = t.voter_state
    if at_ms < b.look_ms:
        b.look_ms = at_ms


def place_of(n: Node, voters: Voters, tube: Tube, lost: bytes) -> i64:
    """[T27] The place of this node among the candidates, from 0 (T27.2).

    A node that leaves, or could deliver no task, comes after all others (T27.1).
    """
    topic = n.topics.first_topic(tube.name)
    name = topic if len(topic) > 0 else tube.maker + tube.name  # T27.13
    mine = rank(name, n.node_id)
    place: i64 = 0
    for node_id in voters.rights:
        if node_id not in (n.node_id, lost) and rank(name, node_id) > mine:
            place += 1
    if n.is_leaving or can_serve(tube) != 0:
        place += len(voters.rights)
    return place


def look_at_lease(n: Node, t: Tubes, voters: Voters, tube: Tube, seat: Seat) -> None:
    """[T25] A leader with which too few stand for long gives up (T25.6)."""
    if 0 < tube.lease_ms < n.now_ms - shortest_ms(n, t):
        standing = 1 if may_vouch(n, t, voters) else 0
        for slot in slots_of(seat.standing):
            if n.peers[slot].node_id in voters.rights and not t.voter_state.lame & (1 << slot):
                standing += 1
        if standing < voters.majority():
            step_down(n, t, tube)


def client_check(n: Node, t: Tubes, voters: Voters, tubes: list[Tube]) -> None:
    """[T27] Ask who would vote for this node (T27.2); the only voter asks nobody (T27.10)."""
    if voters.majority() == 1:
        ask_votes(n, t, voters, tubes)
        return
    for tube in tubes:
        seat = seat_of(tube)
        seat.surveyed_ms = n.now_ms
        seat.answered = 0
        seat.has_better = False
    later(t, n.now_ms + shortest_ms(n, t) // 8)
    survey(n, voters, tubes, voters_open(n, t, voters))


def survey(n: Node, voters: Voters, tubes: list[Tube], slots: list[int]) -> None:
    """[T26] Ask these nodes who would vote, and what they have; it changes nothing (T26.4)."""
    asked: list[VoteAt] = []
    for tube in tubes:
        epoch, _ = vote_of(tube)
        asked.append(vote_at(tube, epoch + 1))
    m = TubeVote(int(voters.number), voters.origin, True, asked)
    for slot in slots:
        say(n, slot, m)


def vote_at(tube: Tube, epoch: i64) -> VoteAt:
    """What this node says of the tube when it asks for votes."""
    copy_epoch, seq = best_copy(tube)
    return VoteAt(
        tube.name,
        tube.maker,
        tube.made_ns,
        int(epoch),
        int(copy_epoch),
        int(seq),
        int(tube.moves),
        int(tube.from_number),
    )


def on_voted(n: Node, t: Tubes, slot: i64, m: TubeVoted) -> None:
    """[T27] ON RECV TUBE-VOTED: count who votes, or would (T27.2, T27.3)."""
    voters = t.voter_state.in_force()
    if voters is None or not voters.is_same(m.list_number, m.origin):
        return
    if n.peers[slot].node_id not in voters.rights:
        return
    ready: list[Tube] = []
    for at in m.tubes:
        tube = t.by_name.get(at.name)
        if tube is None or tube.maker != at.maker or tube.made_ns != at.made_ns:
            continue
        if t.voter_state.list_of(tube) is not voters:
            continue
        seat = seat_of(tube)
        if seat.floor < at.stand_epoch:
            seat.floor = at.stand_epoch
        if not m.is_survey:
            count_vote(n, t, slot, voters, tube, at)
        elif seat.surveyed_ms > 0 and count_answer(voters, seat, slot, at):
            ready.append(tube)
    if len(ready) > 0:
        ask_votes(n, t, voters, ready)


def count_answer(voters: Voters, seat: Seat, slot: i64, at: VotedAt) -> bool:
    """Count an answer to a survey; True: a majority would vote."""
    if at.answer == BETTER:
        seat.has_better = True
    elif at.answer == YES:
        seat.answered |= 1 << slot
    if seat.has_better and seat.waits < WAITS_MOST:
        return False
    return count_of(seat.answered) + 1 >= voters.majority()


def ask_votes(n: Node, t: Tubes, voters: Voters, tubes: list[Tube]) -> None:
    """[T27] Vote for this node, and ask the others once that is on disk (T27.3)."""
    asked: list[VoteAt] = []
    for tube in tubes:
        seat = seat_of(tube)
        epoch, _ = vote_of(tube)
        epoch = max(epoch, seat.floor, voters.epochs_before()) + 1
        if seat.reason == 0:
            seat.reason = reason_of(n, tube, seat)
        seat.surveyed_ms = 0
        seat.voted_epoch = epoch
        seat.voted_node = n.node_id
        seat.asked_epoch = epoch
        seat.asked_ms = n.now_ms
        seat.standing = 0
        later(t, n.now_ms + shortest_ms(n, t) // 4)
        if n.records is not None:
            record_vote(n.records, tube)
        asked.append(vote_at(tube, epoch))
    if n.records is not None:
        raise_mark(n, t, n.records)
    tell_stands(n, t, tubes)
    m = TubeVote(int(voters.number), voters.origin, False, asked)
    if voters.majority() == 1:
        send_surely(n, t, OWN, m)  # T27.10
        return
    for slot in voters_open(n, t, voters):
        send_surely(n, t, slot, m)


def on_own_vote(n: Node, t: Tubes, m: TubeVote) -> None:
    """[T27] The vote of the only voter for itself is on its disk: it leads (T27.10)."""
    for at in m.tubes:
        tube = t.by_name.get(at.name)
        if tube is None or tube.maker != at.maker or tube.made_ns != at.made_ns:
            continue
        voters = t.voter_state.list_of(tube)
        if voters is None or not voters.is_same(m.list_number, m.origin):
            continue
        if voters.majority() > 1 or not may_vouch(n, t, voters):
            continue
        seat = seat_of(tube)
        if seat.asked_epoch == at.epoch:
            win(n, t, tube, seat)


def reason_of(n: Node, tube: Tube, seat: Seat) -> i64:
    """Why this node stands up (T27.1)."""
    epoch, stood_with = vote_of(tube)
    if seat.given_seq == tube.seq and seat.given_epoch == epoch:
        return GIVEN
    if stood_with == n.node_id:
        return AGAIN
    if has_given_up(tube):
        return GAVE_UP
    return SILENT


def count_vote(n: Node, t: Tubes, slot: i64, voters: Voters, tube: Tube, at: VotedAt) -> None:
    """[T27] A vote, or a refusal; a majority makes this node the leader (T27.3)."""
    seat = seat_of(tube)
    if seat.asked_epoch == 0 or seat.asked_epoch != at.epoch:
        return
    if at.answer == YES:
        seat.standing |= 1 << slot
        count_echo(t, slot, seat.asked_ms)
        if count_of(seat.standing) + 1 >= voters.majority():
            win(n, t, tube, seat)
    elif at.answer == OLD_EPOCH and at.stand_epoch >= seat.asked_epoch:
        lose(n, t, tube, seat)


def lose(n: Node, t: Tubes, tube: Tube, seat: Seat) -> None:
    """[T27] Give up, and say so; survey again soon (T27.4)."""
    seat.asked_epoch = 0
    seat.standing = 0
    seat.silent_ms = 0
    t.voter_state.elections_lost += 1
    t.voter_state.moved.append(tube)
    later(t, n.now_ms)


def win(n: Node, t: Tubes, tube: Tube, seat: Seat) -> None:
    """[T27] Lead the tube under the new epoch (T27.3)."""
    epoch = seat.asked_epoch
    seat.asked_epoch = 0
    seat.settling = 0
    seat.covering_seq = tube.seq
    seat.silent_ms = 0
    if seat.given_seq != tube.seq or seat.given_epoch != epoch - 1:
        tube.next_number += NUMBER_GAP
        token = t.token + TOKEN_GAP
        t.token = token if token > n.now_ms * 1000 else n.now_ms * 1000
    t.voter_state.elections_won += 1
    t.voter_state.is_renewed = True
    tube.run_ms = 0
    tube.lease_ms = 0
    tube.from_number = 0  # T23.7: it is led under this list
    if n.records is not None:
        record_family(n.records, tube)
    reason = REASONS[seat.reason]
    t.voter_state.won_by[seat.reason] += 1
    seat.reason = 0
    name = shown(tube.name)
    t.notes.append(f"tube {name}: a majority voted for this node (epoch {epoch}): {reason}")
    become_home(n, t, tube, epoch, reason.encode())
