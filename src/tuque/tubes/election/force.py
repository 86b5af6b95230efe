"""FORCE: a list, or a leader, by the word of an operator (SPEC T21.5, T27.12, T28.8)."""

from hashlib import blake2b
from typing import Final

from mypy_extensions import i64

from tuque.core.model import errors as why
from tuque.core.msgs.bus import TubeVoted
from tuque.core.msgs.packed import FAMILY_BYTES, ORIGIN_BYTES
from tuque.core.node.node import Node
from tuque.core.node.peers import journal_fails
from tuque.tubes.election.candidate import ASKED_TUBES, is_silent, survey
from tuque.tubes.election.membership import answer, voting_here
from tuque.tubes.election.voters import OWN, adopt, may_vouch, nodes_open, solo_list
from tuque.tubes.log.send import record_leader
from tuque.tubes.log.vote_state import (
    best_copy,
    record_family,
    record_solo,
    record_vote,
    seat_of,
    vote_of,
)
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.model.errors import TubeError, shown
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import HomeDone, Tubes
from tuque.tubes.model.voter_state import FORCE_GAP, FORCED, Forcing, Voters

ALONE: Final = 4  # timeouts in which votes could have chosen a leader
SEQ_GAP: Final = 1 << 32  # no other copy has so high a number of a change


# ---- FORCE: a list by command, where the majority is dead (SPEC T28.8)
#
# Before, all nodes that are here say what they have: what one of them has is not lost.


def force_voters(n: Node, t: Tubes, nodes: list[bytes], client: i64, serial: i64) -> None:
    """[T28] ON CLUSTER VOTERS FORCE: these nodes vote from now on, others are dead (T28.8).

    The reply comes in `t.home_done`. Raises TubeError.
    """
    voters = may_force(n, t, nodes)
    forcing = Forcing(nodes, client, serial, n.now_ms + n.limits.node_timeout_ms)
    tubes = [tube for tube in t.by_name.values() if t.voter_state.list_of(tube) is voters]
    ask_all(n, t, voters, forcing, tubes)


def ask_all(n: Node, t: Tubes, voters: Voters, forcing: Forcing, tubes: list[Tube]) -> None:
    """Ask all nodes that are here what they have of these tubes. Raises TubeError."""
    b = t.voter_state
    if b.forcing is not None:
        raise TubeError(why.LIST_CHANGING)
    for tube in tubes:
        epoch, seq = best_copy(tube)
        forcing.add(tube.name, int(epoch), int(seq), n.node_id)
    for slot in nodes_open(n, t):
        if len(tubes) > 0:
            forcing.waiting[slot] = {tube.name: None for tube in tubes}
    for first in range(0, len(tubes), ASKED_TUBES):
        survey(n, voters, tubes[first : first + ASKED_TUBES], nodes_open(n, t))
    b.forcing = forcing
    decide_force(n, t)


def may_force(n: Node, t: Tubes, nodes: list[bytes]) -> Voters:
    """The list that would end, if these nodes may be the voters now. Raises TubeError."""
    b = t.voter_state
    voters = b.in_force()
    if voters is None:
        raise TubeError(why.NO_LIST)
    if journal_fails(n, OWN):
        raise TubeError(why.OWN_JOURNAL)
    if n.node_id not in nodes:
        raise TubeError(why.NAME_THIS_NODE)
    for node_id in nodes:
        slot = n.slot_of.get(node_id)
        if slot == OWN:
            continue
        if slot is None or b.able & n.reachable & n.linked & 1 << slot == 0 or slot not in b.disks:
            raise TubeError(why.CANNOT_VOTE, (node_id,))
    here = voting_here(n, t, voters)
    if len(here) >= voters.majority():
        raise TubeError(why.MAJORITY_HERE)
    for node_id in here:
        if node_id not in nodes and n.leavers >> i64(n.slot_of[node_id]) & 1 == 0:
            raise TubeError(why.NAME_ALL_HERE, (node_id,))
    return voters


def count_copies(n: Node, t: Tubes, slot: i64, m: TubeVoted) -> None:
    """[T28] A node says what it has (T28.8)."""
    forcing = t.voter_state.forcing
    if forcing is None or not m.is_survey:
        return
    waiting = forcing.waiting.get(slot)
    for at in m.tubes:
        forcing.add(at.name, at.copy_epoch, at.seq, n.peers[slot].node_id)
        if waiting is not None:
            waiting.pop(at.name, None)
    if waiting is not None and len(waiting) == 0:
        del forcing.waiting[slot]


def decide_force(n: Node, t: Tubes) -> None:
    """[T28] Make the list, or say why not, once all that are here have answered (T28.8).

    Who has not answered within the timeout is not here.
    """
    forcing = t.voter_state.forcing
    if forcing is None or (len(forcing.waiting) > 0 and n.now_ms < forcing.until_ms):
        return
    t.voter_state.forcing = None
    tube = forcing.tube
    error: TubeError | None = None
    try:
        if tube is not None:
            lead_alone(n, t, tube, forcing)
            return  # the reply comes when it leads
        voters = may_force(n, t, forcing.nodes)
        may_lead_after(forcing)
        make_list(n, t, voters, forcing.nodes)
        note_empty(t, forcing)
    except TubeError as refused:
        error = refused.with_traceback(None)  # drop the frames: the collector is off
    answer(t, forcing.client, forcing.serial, error)


def may_lead_after(forcing: Forcing) -> None:
    """[T28] Raise TubeError if the named nodes could lose what one that is here has (T28.8)."""
    name, node_id = forcing.newer()
    if len(node_id) > 0:
        raise TubeError(why.NEWER_THERE, (node_id, name))
    name, node_id = forcing.older()
    if len(node_id) > 0:
        raise TubeError(why.OLDER_NAMED, (node_id, name))


def note_empty(t: Tubes, forcing: Forcing) -> None:
    """[T28] Log the tubes of which no node that is here has a copy: nobody leads them (T28.8)."""
    empty = [name for name in forcing.copies if forcing.newest(name) == (0, 0)]
    if len(empty) > 0:
        t.notes.append(
            f"of {len(empty)} tubes, {shown(empty[0])} first, no node that is here has all: "
            "nobody leads them until TUBE HOME with FORCE"
        )


def make_list(n: Node, t: Tubes, voters: Voters, nodes: list[bytes]) -> None:
    """[T28] The list of these nodes is in force (T28.8)."""
    b = t.voter_state
    disks = {n.node_id: b.disk}
    for node_id in nodes:
        slot = n.slot_of[node_id]
        if slot != OWN:
            disks[node_id] = b.disks[slot]
    number = voters.number + FORCE_GAP
    text = b"%s %d %d forced" % (n.ids.seed, n.now_ms, number)
    made = blake2b(text, digest_size=ORIGIN_BYTES - FAMILY_BYTES).digest()
    b.take_right(number)
    b.is_asking = False
    b.change = None
    rights = {node_id: int(number) for node_id in nodes}
    adopt(n, t, Voters(number, voters.family + made, rights, disks))
    t.notes.append(f"{len(nodes)} nodes vote by command: the others are lost")


# ---- TUBE HOME with FORCE for a tube led by votes: the last resort (SPEC T27.12)
#
# The copy of one node counts as whole by command. Votes then choose that node as any other one: a
# majority still decides, and promises still hold.


def take_by_vote(n: Node, t: Tubes, tube: Tube, client: i64, serial: i64) -> None:
    """[T27] ON TUBE HOME tube node FORCE, of a tube led by votes (T27.12).

    The reply comes in `t.home_done`. Raises TubeError.
    """
    voters = t.voter_state.list_of(tube)
    if t.is_read_only:
        raise TubeError(why.NODE_READ_ONLY)
    if t.voter_state.in_force() is None:
        raise TubeError(why.NO_LIST)
    if voters is None:
        take_alone(n, t, tube, client, serial)
        return
    if not may_vouch(n, t, voters):
        raise TubeError(why.NO_VOTE_HERE)
    here = len(voting_here(n, t, voters))
    if here < voters.majority():
        raise TubeError(why.NO_MAJORITY_HERE, (here, len(voters.rights)))
    seat = seat_of(tube)
    span_ms: i64 = ALONE * n.limits.node_timeout_ms
    if seat.alone_ms == 0 or n.now_ms < seat.alone_ms + span_ms:
        raise TubeError(why.BY_VOTE, (tube.name, span_ms // 1000))
    if tube.shift is not None or seat.asked_epoch > 0:
        raise TubeError(why.MOVING, (tube.name,))
    lead_by_command(n, t, tube, client, serial)


def lead_by_command(n: Node, t: Tubes, tube: Tube, client: i64, serial: i64) -> None:
    """The copy here counts as all, and this node is a candidate; the reply says what is missing."""
    done = HomeDone(client, serial, tube)
    done.until_ms = n.now_ms + 2 * n.limits.node_timeout_ms
    missing: i64 = max(0, tube.told_seq - tube.seq)
    done.values = [
        (b"home", n.node_id),
        (b"epoch", b""),  # with the reply
        (b"copy", b"complete" if tube.is_complete else b"incomplete"),
        (b"changes-missing", b"%d" % missing),
        (b"last-heard-ms", b"%d" % (n.now_ms - tube.heard_ms if tube.heard_ms > 0 else -1)),
        (b"next-id", b""),
        (b"stopped", why_stopped(tube.type, tube.driver).encode()),
    ]
    t.notes.append(
        f"tube {shown(tube.name)}: what this node has of it counts as all by command; "
        f"{missing} changes are known to be missing, and what only other nodes have is dropped"
    )
    count_as_whole(n, t, tube)
    t.creating.append(done)


def count_as_whole(n: Node, t: Tubes, tube: Tube) -> None:
    """The replica is complete by command, and newer than all others; this node stands up."""
    vote = seat_of(tube)
    epoch, _ = vote_of(tube)
    tube.copy_epoch = max(epoch, vote.floor, tube.copy_epoch, tube.whole_epoch)
    tube.seq = max(tube.seq, tube.told_seq, tube.whole_seq) + SEQ_GAP
    tube.told_seq = tube.seq
    tube.exact_seq = -1
    tube.is_complete = True
    tube.is_asking = False
    tube.unseen = {}
    vote.reason = FORCED
    vote.silent_ms = n.now_ms
    vote.wait_ms = n.now_ms
    vote.waits = 0
    t.voter_state.look_ms = 0
    if n.records is not None:
        record_leader(n.records, tube)
        record_vote(n.records, tube)


def send_forced(n: Node, tube: Tube, done: HomeDone) -> None:
    """The tube is led here now: what the reply says of that."""
    told = dict(done.values)
    told[b"epoch"] = b"%d" % tube.epoch
    told[b"next-id"] = b"%d" % tube.next_number
    done.values = list(told.items())


# ---- TUBE HOME with FORCE for a tube whose list is gone (SPEC T21.5)


def take_alone(n: Node, t: Tubes, tube: Tube, client: i64, serial: i64) -> None:
    """[T21] No list here chooses its leader: ask all nodes that are here what they have (T21.5).

    The reply comes in `t.home_done`. Raises TubeError.
    """
    voters = may_lead_alone(n, t, tube)
    forcing = Forcing([n.node_id], client, serial, n.now_ms + n.limits.node_timeout_ms)
    forcing.tube = tube
    ask_all(n, t, voters, forcing, [tube])


def may_lead_alone(n: Node, t: Tubes, tube: Tube) -> Voters:
    """The list in force here, if this node may lead the tube by its own one. Raises TubeError."""
    b = t.voter_state
    voters = b.voters
    if voters is None:
        raise TubeError(why.NO_LIST)
    if journal_fails(n, OWN) or n.records is None:
        raise TubeError(why.OWN_JOURNAL)
    is_gone = b.list_of(tube) is None and t.by_name.get(tube.name) is tube
    if not is_gone or tube.shift is not None:
        raise TubeError(why.MOVING, (tube.name,))
    if vote_of(tube)[1] != n.node_id and not is_silent(n, t, tube):
        raise TubeError(why.HOME_ALIVE, (tube.name,))
    return voters


def lead_alone(n: Node, t: Tubes, tube: Tube, forcing: Forcing) -> None:
    """[T21] This node leads the tube by a list of its own, which has lost (T21.5, T23.7).

    Its epochs are above all that the voters of the lost list may have used, as after FORCE.
    """
    b = t.voter_state
    name, other = forcing.newer()
    if len(other) > 0:
        raise TubeError(why.LATER_COPY, (other, name))
    voters = may_lead_alone(n, t, tube)
    own = b.own
    if own is None:
        own = voters
        if not voters.is_solo or not voters.is_only(n.node_id):
            own = b.own = solo_list(n, b)
            if n.records is not None:
                record_solo(n.records, b, own, True)
    vote = seat_of(tube)
    epoch, node_id = vote_of(tube)
    vote.resigned_epoch = epoch
    vote.resigned_node = node_id
    vote.floor = own.epochs_above(max(epoch, vote.floor))
    tube.take_family(own.family, tube.moves + 1, 0)
    if n.records is not None:
        record_family(n.records, tube)
    lead_by_command(n, t, tube, forcing.client, forcing.serial)
