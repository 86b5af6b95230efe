"""The next list of voters: one voter more or less, agreed on by a majority (SPEC T28).

A node makes numbered attempts. A voter promises to answer no older attempt, and replies which list
it has written down; the newest of these is offered on, else a list with the change. What a majority
of the voters of the list in force has written down in one attempt is the next list.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model import errors as why
from tuque.core.model.task import FAR
from tuque.core.msgs.bus import VotersNext
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    answered_ms_of,
    count_of,
    journal_fails,
    say,
    slots_of,
)
from tuque.tubes.election.lease import is_failing
from tuque.tubes.election.voters import (
    OWN,
    adopt,
    may_vouch,
    send_surely,
    unsettled,
    voters_message,
    voters_open,
)
from tuque.tubes.log.leader import had_by, others_of
from tuque.tubes.log.vote_state import record_next, seat_of, shortest_ms
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import RUNNING, Tube
from tuque.tubes.model.tubes import HomeDone, Tubes
from tuque.tubes.model.voter_state import (
    ASKED,
    IN_FORCE,
    INVITED,
    NO_DISK,
    OFFERED,
    PROMISED_NEXT,
    REFUSED,
    VOTERS_LEAST,
    WRITTEN,
    Change,
    NextList,
    Voters,
    VoterState,
    voters_in,
)

WAITS: Final = 2  # timeouts that a change may take
LAME: Final = 2  # timeouts after which a voter that may not vote is replaced


def change_voters(n: Node, t: Tubes, node: bytes, is_added: bool, client: i64, serial: i64) -> None:
    """[T28] ON CLUSTER VOTERS ADD and REMOVE; the reply comes in `t.home_done`.

    Raises TubeError.
    """
    b = t.voter_state
    voters = b.in_force()
    if voters is None:
        raise TubeError(why.NO_LIST)
    if journal_fails(n, OWN):
        raise TubeError(why.OWN_JOURNAL)
    if not may_vouch(n, t, voters):
        raise TubeError(why.NO_VOTE_HERE)
    if b.change is not None and b.change.client >= 0:
        raise TubeError(why.LIST_CHANGING)
    if is_added and node not in voters.rights:
        slot = n.slot_of.get(node)
        if slot is None or b.outside >> i64(slot) & 1 == 0:
            raise TubeError(why.CANNOT_VOTE, (node,))
        if b.no_journal >> i64(slot) & 1:
            raise TubeError(why.JOURNAL_IS_OFF, (node,))
        apart = name_apart(t, slot)
        if len(apart) > 0:
            raise TubeError(why.OTHER_TUBE_THERE, (node, apart))
    elif not is_added and node not in voters.rights:
        raise TubeError(why.IS_NO_VOTER, (node,))
    elif not is_added and len(voters.rights) == 1:
        raise TubeError(why.LAST_VOTER)
    elif not is_added and not works_without(n, t, voters, node):
        raise TubeError(why.NO_MAJORITY_LEFT, (node,))
    here = len(voting_here(n, t, voters))
    if here < voters.majority():
        raise TubeError(why.NO_MAJORITY_HERE, (here, len(voters.rights)))
    change = change_of(n, b, node, is_added)
    change.client = client
    change.serial = serial
    if b.change is not None:
        end_change(n, t, b.change, None)
    b.change = change


def name_apart(t: Tubes, slot: i64) -> bytes:
    """[T28] The name of a tube led by votes that is another tube's at that node (T28.1, T24.3)."""
    for tube in t.by_name.values():
        if tube.led_by_votes and tube.apart >> slot & 1:
            return tube.name
    return b""


def change_of(n: Node, b: VoterState, node: bytes, is_added: bool) -> Change:
    """[T28] The change that adds or removes that node; one that is added by its disk (T28.5)."""
    change = Change(node, is_added, n.now_ms + WAITS * n.limits.node_timeout_ms)
    slot = n.slot_of.get(node)
    if is_added and slot is not None:
        change.disk = b.disks.get(slot, NO_DISK)
    return change


def voting_here(n: Node, t: Tubes, voters: Voters) -> list[bytes]:
    """The voters that this node reaches, itself included, and that have their right (T28.1)."""
    b = t.voter_state
    found: list[bytes] = []
    for node_id in voters.rights:
        slot = n.slot_of.get(node_id)
        if node_id == n.node_id:
            if may_vouch(n, t, voters):
                found.append(node_id)
        elif slot is not None and (n.reachable | n.leavers) & ~(b.lame | b.asking) & 1 << slot != 0:
            found.append(node_id)
    return found


def works_without(n: Node, t: Tubes, voters: Voters, node: bytes) -> bool:
    """[T28] Whether a majority of the other voters is reached from here and can vote (T28.1)."""
    count = 0
    for node_id in voting_here(n, t, voters):
        if node_id != node:
            count += 1
    return count >= (len(voters.rights) - 1) // 2 + 1


def changes_tick(n: Node, t: Tubes, voters: Voters) -> None:
    """Continue a change, or begin one that is due by itself (T28.4)."""
    b = t.voter_state
    if b.change is None:
        b.change = due_change(n, t, voters)
    change = b.change
    if change is None:
        return
    if (
        voters.rights.get(change.node, 0) > 0
        if change.is_added
        else change.node not in voters.rights
    ):
        end_change(n, t, change, None)
    elif change.until_ms <= n.now_ms:
        late = TubeError(why.UNSETTLED, (change.tube,)) if len(change.tube) > 0 else None
        own = TubeError(why.OWN_JOURNAL) if journal_fails(n, OWN) else None
        end_change(n, t, change, own or late or TubeError(why.LIST_LATE))
    elif len(change.second) > 0 and not may_both_join(n, t, voters, change):
        end_change(n, t, change, None)
    elif change.again_ms <= n.now_ms:
        attempt(n, t, voters, change)


def changes_next_ms(t: Tubes) -> i64:
    """When `changes_tick` has work next."""
    change = t.voter_state.change
    return FAR if change is None else min(change.again_ms, change.until_ms)


def end_change(n: Node, t: Tubes, change: Change, error: TubeError | None) -> None:
    """Reply to the client that waits, if one does."""
    b = t.voter_state
    b.change = None
    if len(change.second) > 0:
        b.growing = None  # nobody has learned of that list (T28.9)
        b.grows_ms = n.now_ms + n.limits.node_timeout_ms
        t.synced_changed = True
    answer(t, change.client, change.serial, error)


def answer(t: Tubes, client: i64, serial: i64, error: TubeError | None) -> None:
    """Reply to the client, if one waits."""
    if client >= 0:
        done = HomeDone(client, serial, None)
        done.error = error
        t.home_done.append(done)


def due_change(n: Node, t: Tubes, voters: Voters) -> Change | None:
    """[T28] A node that may vote and has all joins; a voter that lost its right goes (T28.4).

    The voter with the lowest id makes such changes, of those that may vote, can write their
    journal and see each other.
    """
    b = t.voter_state
    silent = silent_voter(n, t, voters)
    is_quiet = b.outside | b.lame | n.leavers == 0 and not n.is_leaving and len(silent) == 0
    if is_quiet or not may_vouch(n, t, voters):
        return None
    if is_failing(n):
        return None
    for slot in voters_open(n, t, voters):
        if (
            n.peers[slot].node_id < n.node_id
            and (b.lame | b.no_journal) >> i64(slot) & 1 == 0
            and not journal_fails(n, slot)
        ):
            return None
    if b.lame != 0 and n.now_ms >= b.lame_ms + LAME * shortest_ms(n, t):
        for slot in slots_of(b.lame & n.linked):
            if n.peers[slot].node_id in voters.rights and len(voters.rights) > 2:
                return change_of(n, b, n.peers[slot].node_id, False)
    if gives_vote_up(n, t) and works_without(n, t, voters, n.node_id):
        return change_of(n, b, n.node_id, False)
    for slot in slots_of(n.leavers & n.linked):
        node_id = n.peers[slot].node_id
        if node_id not in voters.rights:
            continue
        if works_without(n, t, voters, node_id):
            return change_of(n, b, node_id, False)
    wanted = b.wanted
    if len(silent) > 0:
        if len(voters.rights) > wanted and works_without(n, t, voters, silent):
            return change_of(n, b, silent, False)
        wanted += 1
    return None if len(voters.rights) >= wanted else joining(n, t, voters)


def silent_voter(n: Node, t: Tubes, voters: Voters) -> bytes:
    """[T28] A voter that answers no heartbeat for ten minutes (T28.4); empty: there is none."""
    b = t.voter_state
    for node_id in voters.rights:
        answered_ms = b.since_ms
        slot = n.slot_of.get(node_id)
        if slot is not None:
            answered_ms = max(answered_ms, answered_ms_of(n, slot))
        if slot != OWN and n.now_ms >= answered_ms + b.silent_ms:
            return node_id
    return b""


def joining(n: Node, t: Tubes, voters: Voters) -> Change | None:
    """[T28] Add a node that has all; if there is none, invite one to get copies (T28.4)."""
    b = t.voter_state
    if len(voters.rights) == 1 and not n.is_leaving:
        return growth(n, t, voters)
    guest: i64 = 0
    for slot in slots_of(b.outside):
        node_id = n.peers[slot].node_id
        if node_id in voters.rights or not may_join(n, t, slot):
            continue
        if b.whole >> i64(slot) & 1:
            return change_of(n, b, node_id, True)
        best = n.peers[guest].node_id
        if guest == 0 or node_id == b.guest or (best != b.guest and node_id < best):
            guest = slot
    if guest > 0:
        b.guest = n.peers[guest].node_id
        invite(n, voters, b.guest)
    return None


def may_join(n: Node, t: Tubes, slot: i64) -> bool:
    """[T28] Whether that node, which has no vote, could be a voter (T28.1, T28.4)."""
    b = t.voter_state
    able = b.outside & b.willing & n.linked & ~(n.leavers | b.no_journal)
    return (
        able >> i64(slot) & 1 == 1 and not journal_fails(n, slot) and len(name_apart(t, slot)) == 0
    )


# ---- One voter becomes three in one step (SPEC T28.9)


def are_all_here(n: Node, b: VoterState, voters: Voters) -> bool:
    """[T28] Whether a solo list may grow: all known nodes are linked and use it (T28.9).

    Of two lists that grow each on one side of a cut none would yield.
    """
    return not voters.is_solo or others_of(n) & ~b.outside == 0


def growth(n: Node, t: Tubes, voters: Voters) -> Change | None:
    """[T28] The change that adds two nodes which have all to the only voter (T28.9)."""
    b = t.voter_state
    ready: list[bytes] = []
    if n.now_ms < b.grows_ms or not are_all_here(n, b, voters):
        return None
    for slot in slots_of(b.outside & b.whole):
        if may_join(n, t, slot):
            ready.append(n.peers[slot].node_id)
    if len(ready) < VOTERS_LEAST - 1:
        return None
    ready.sort()
    change = change_of(n, b, ready[0], True)
    change.until_ms = n.now_ms + n.limits.lease_timeout_ms  # a slow one holds replies up so long
    change.second = ready[1]
    change.second_disk = b.disks.get(n.slot_of[change.second], NO_DISK)
    return change


def may_both_join(n: Node, t: Tubes, voters: Voters, change: Change) -> bool:
    """[T28] Whether both still can, with the disks that they had (T28.9)."""
    b = t.voter_state
    if not are_all_here(n, b, voters):
        return False
    for node_id, disk in ((change.node, change.disk), (change.second, change.second_disk)):
        slot = n.slot_of.get(node_id)
        if slot is None or not may_join(n, t, slot) or b.disks.get(slot, NO_DISK) != disk:
            return False
    return True


def is_covered(n: Node, t: Tubes, voters: Voters, change: Change) -> bool:
    """[T28] Whether a majority of the list that is offered has all that was answered (T28.9).

    From the first call on this node counts under both lists, so what is answered later is there.
    A list with one voter more needs no such thing: its majorities have a voter of this one.
    """
    b = t.voter_state
    if len(change.offered) - len(voters.rights) < VOTERS_LEAST - 1:
        return True
    if b.growing is None or b.growing.rows() != change.offered:
        b.growing = voters_in(change.number, voters.origin, change.offered)
        for tube in t.by_name.values():
            if b.list_of(tube) is voters:
                seat_of(tube).covering_seq = tube.seq
    for tube in t.by_name.values():
        if b.list_of(tube) is voters and not has_majority(n, b, b.growing, tube):
            change.tube = tube.name
            return False
    return True


def has_majority(n: Node, b: VoterState, growing: Voters, tube: Tube) -> bool:
    """Whether this node leads the tube, and a majority of that list has what was answered."""
    if not tube.is_mine or not tube.is_won or tube.state != RUNNING or tube.vote_wish != 0:
        return False
    return had_by(n, b, tube, growing, growing.majority()) >= seat_of(tube).covering_seq


def invite(n: Node, voters: Voters, node: bytes) -> None:
    """[T28] Let the node get copies, and keep them until it has a vote (T28.4)."""
    slot = n.slot_of.get(node)
    if slot is not None and slot != OWN and n.peers[slot].is_linked:
        say(n, slot, voters_message(voters, INVITED))


def gives_vote_up(n: Node, t: Tubes) -> bool:
    """Whether this node leaves and still votes, and the others can do without (T28.4)."""
    voters = t.voter_state.in_force()
    if voters is None or not n.is_leaving or n.node_id not in voters.rights:
        return False
    return len(voters.rights) > 1


# ---- The node that makes the change (SPEC T28.2)


def attempt(n: Node, t: Tubes, voters: Voters, change: Change) -> None:
    """[T28] Ask the voters whether this attempt may be made (T28.2)."""
    b = t.voter_state
    known = next_of(n, t, voters)
    if change.is_added:
        invite(n, voters, change.node)
    lower: i64 = 0
    for node_id in voters.rights:
        if node_id < n.node_id:
            lower += 1
    timeout_ms: i64 = shortest_ms(n, t)
    change.again_ms = n.now_ms + timeout_ms // 4 + lower * (timeout_ms // 16)
    waiting = unsettled(t, voters)
    change.tube = waiting[0] if len(waiting) > 0 else b""
    if len(waiting) > 0 or not may_vouch(n, t, voters):
        return
    change.number = known.number
    change.attempt = max(known.attempt, change.attempt) + 1
    change.step = ASKED
    change.answered = 0
    change.best_attempt = 0
    known.attempt = change.attempt
    known.node = n.node_id
    b.next = known
    tell_voters_next(n, t, voters, change, ASKED)


def tell_voters_next(n: Node, t: Tubes, voters: Voters, change: Change, step: i64) -> None:
    """Send a step to the other voters once this node's own part is on its disk."""
    known = t.voter_state.next
    if n.records is None or known is None:
        return
    record_next(n.records, known)
    m = step_of(n, known, step)
    if step == ASKED:
        m.written_attempt = 0
    for slot in voters_open(n, t, voters):
        send_surely(n, t, slot, m)
    send_surely(n, t, OWN, step_of(n, known, PROMISED_NEXT if step == ASKED else WRITTEN))


def step_of(n: Node, known: NextList, step: i64) -> VotersNext:
    """A message about the attempt that this node has heard of last."""
    return VotersNext(
        int(known.number),
        known.origin,
        int(step),
        int(known.attempt),
        known.node,
        int(known.written_attempt),
        known.written_node,
        known.voters,
        b"",
    )


def on_answer(n: Node, t: Tubes, voters: Voters, slot: i64, m: VotersNext) -> None:
    """[T28] ON RECV an answer to an attempt of this node (T28.2)."""
    change = t.voter_state.change
    if change is None or change.number != m.number:
        return
    if m.step == REFUSED:
        change.attempt = max(change.attempt, m.attempt)
        if len(m.tube) > 0:
            change.tube = m.tube
        return
    if change.attempt != m.attempt or m.node != n.node_id:
        return
    if m.step == PROMISED_NEXT and change.step == ASKED:
        if m.written_attempt > 0 and is_newer(m, change):
            change.best_attempt = m.written_attempt
            change.best_node = m.written_node
            change.offered = m.voters
        change.answered |= 1 << slot
        if count_of(change.answered) >= voters.majority():
            offer(n, t, voters, change)
    elif m.step == WRITTEN and change.step == OFFERED:
        change.answered |= 1 << slot
        if count_of(change.answered) >= voters.majority() and is_covered(n, t, voters, change):
            if len(change.second) > 0 and not are_all_here(n, t.voter_state, voters):
                end_change(n, t, change, None)
                return
            change.again_ms = n.now_ms
            adopt(n, t, voters_in(change.number, voters.origin, change.offered))


def is_newer(m: VotersNext, change: Change) -> bool:
    """Whether the list written down was offered later than the newest known one."""
    if m.written_attempt != change.best_attempt:
        return m.written_attempt > change.best_attempt
    return m.written_node > change.best_node


def offer(n: Node, t: Tubes, voters: Voters, change: Change) -> None:
    """[T28] Offer the list that may have been agreed on already, else the own one (T28.2)."""
    known = t.voter_state.next
    if known is None or known.attempt != change.attempt or known.node != n.node_id:
        return  # this node has promised another one to wait
    if change.best_attempt == 0:
        change.offered = [row for row in voters.rows() if row[0] != change.node]
        if change.is_added:
            change.offered.append((change.node, int(change.number), change.disk))
        if len(change.second) > 0:
            change.offered.append((change.second, int(change.number), change.second_disk))
    if not is_covered(n, t, voters, change):
        return
    change.step = OFFERED
    change.answered = 0
    known.written_attempt = change.attempt
    known.written_node = n.node_id
    known.voters = change.offered
    tell_voters_next(n, t, voters, change, OFFERED)


# ---- The voters that it asks (SPEC T28.2)


def next_of(n: Node, t: Tubes, voters: Voters) -> NextList:
    """What this node has said about the next list."""
    known = t.voter_state.next
    if known is not None and known.number == voters.number + 1 and known.origin == voters.origin:
        return known
    return NextList(voters.number + 1, voters.origin, n.node_id)


def on_next(n: Node, t: Tubes, slot: i64, m: VotersNext) -> None:
    """[T28] ON RECV VOTERS-NEXT (T28.2)."""
    voters = t.voter_state.in_force()
    if voters is None or voters.origin != m.origin or m.number > voters.number + 1:
        return
    if m.number <= voters.number:
        say(n, slot, voters_message(voters, IN_FORCE))
        return
    if m.step != ASKED and m.step != OFFERED:
        if slot == OWN or n.peers[slot].node_id in voters.rights:
            on_answer(n, t, voters, slot, m)
        return
    node_id = n.peers[slot].node_id
    if node_id != m.node or node_id not in voters.rights or not may_vouch(n, t, voters):
        return
    known = next_of(n, t, voters)
    is_same = known.attempt == m.attempt and known.node == m.node and m.step == OFFERED
    waiting = unsettled(t, voters)
    if len(waiting) > 0 or not (is_same or known.is_before(m.attempt, m.node)):
        refusal = step_of(n, known, REFUSED)
        refusal.tube = waiting[0] if len(waiting) > 0 else b""
        say(n, slot, refusal)
        return
    known.attempt = m.attempt
    known.node = m.node
    if m.step == OFFERED:
        known.written_attempt = m.attempt
        known.written_node = m.node
        known.voters = m.voters
    t.voter_state.next = known
    if n.records is not None:
        record_next(n.records, known)
        answer = step_of(n, known, WRITTEN if m.step == OFFERED else PROMISED_NEXT)
        send_surely(n, t, slot, answer)
