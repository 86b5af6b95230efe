"""The votes of this node about tubes, from and into the journal (SPEC T22, T24)."""

from typing import final

from mypy_extensions import i64

from tuque.core.msgs.packed import ORIGIN_BYTES
from tuque.core.msgs.records import (
    Row,
    SoloRow,
    TubeFamily,
    TubeStand,
    VoteMarks,
    VotersNextRow,
    VotersRow,
)
from tuque.core.node.node import Node
from tuque.core.records.jobs import Records
from tuque.tubes.model.tube import Seat, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import (
    IN_FORCE,
    NO_DISK,
    NOT_IN_FORCE,
    NextList,
    Voters,
    VoterState,
    voters_in,
)


def seat_of(tube: Tube) -> Seat:
    """The seat of the tube, made when it is first needed."""
    seat = tube.seat
    if seat is None:
        seat = Seat()
        tube.seat = seat
    return seat


def vote_of(tube: Tube) -> tuple[i64, bytes]:
    """[T24] The epoch and the node that this one stands with (T24.1).

    That is its last vote, unless it knows of a leader under that epoch or a higher one.
    """
    seat = tube.seat
    if seat is not None and seat.voted_epoch > tube.epoch:
        return seat.voted_epoch, seat.voted_node
    return tube.epoch, tube.home


def best_copy(tube: Tube) -> tuple[i64, i64]:
    """[T26] The epoch and number of the newest change up to which all was here (T26.3)."""
    if tube.is_complete:
        return tube.copy_epoch, tube.seq if tube.exact_seq < 0 else tube.exact_seq
    return tube.whole_epoch, tube.whole_seq


def record_vote(records: Records, tube: Tube) -> None:
    """Record the last vote about the tube, and its newest whole copy (T22.4)."""
    seat = seat_of(tube)
    node = seat.voted_node if seat.voted_epoch > 0 else tube.home
    epoch, seq = best_copy(tube)
    records.put(TubeStand(seat.voted_epoch, epoch, seq, tube.made_ns, tube.maker, node, tube.name))


def record_voters(records: Records, b: VoterState, voters: Voters) -> None:
    """Record the list of voters, and the right of this node (T22.4)."""
    rows = voters.rows()
    if voters.is_solo:
        record_solo(records, b, voters, False)
    else:
        records.put(VotersRow(voters.number, b.right, b.disk, IN_FORCE, voters.origin, rows))


def record_no_list(records: Records, b: VoterState, node_id: bytes) -> None:
    """Record that this node knows no list any more: it was reset."""
    rows = [(node_id, 1, NO_DISK)]
    records.put(VotersRow(1, 0, b.disk, NOT_IN_FORCE, bytes(ORIGIN_BYTES), rows))


def record_solo(records: Records, b: VoterState, voters: Voters, has_lost: bool) -> None:
    """Record a solo list; `has_lost`: the one of this node, which goes by another one (T23.7).

    No reply waits for it: what depends on the list waits for a later record, or is a custody.
    """
    node_id, right, disk = voters.rows()[0]
    records.put(
        SoloRow(
            voters.number,
            b.right,
            b.disk,
            voters.has_journal,
            has_lost,
            voters.origin,
            node_id,
            right,
            disk,
        ),
        False,
    )


def record_family(records: Records, tube: Tube) -> None:
    """Record voters of which lists choose the leader of the tube (T23.7)."""
    if tube.led_by_votes:
        records.put(
            TubeFamily(
                tube.family, tube.moves, tube.from_number, tube.made_ns, tube.maker, tube.name
            )
        )


def record_next(records: Records, known: NextList) -> None:
    """Record what this node has said about the next list (T22.4)."""
    records.put(
        VotersNextRow(
            known.number,
            known.attempt,
            known.written_attempt,
            known.origin,
            known.node,
            known.written_node,
            known.voters,
        )
    )


def record_disk_epochs(records: Records, b: VoterState) -> None:
    """Record the mark of this node that comes next, and those heard of others (T29.1, T29.2).

    No reply waits for it: it is not binding.
    """
    marks = [(node_id, right, mark) for node_id, (right, mark) in b.marks.items()]
    records.put(VoteMarks(b.right, b.mark_next, marks), False)


def tell_votes(t: Tubes, records: Records) -> None:
    """[T22] Record voters and stands in a snapshot, after the leaders (T22.4)."""
    voters = t.voter_state.voters
    if voters is not None:
        record_voters(records, t.voter_state, voters)
    if t.voter_state.own is not None:
        record_solo(records, t.voter_state, t.voter_state.own, True)
    if t.voter_state.next is not None:
        record_next(records, t.voter_state.next)
    if t.voter_state.mark_next > 0 or len(t.voter_state.marks) > 0:
        record_disk_epochs(records, t.voter_state)
    for tube in t.by_name.values():
        record_family(records, tube)
        if tube.seat is not None or (voters is not None and not tube.is_complete):
            record_vote(records, tube)


@final
class VoteLog:
    """The voters and stands in the journal read so far."""

    def __init__(self) -> None:
        self.voters: Voters | None = None
        self.own: Voters | None = None
        self.right: i64 = 0
        self.disk = NO_DISK
        self.next: NextList | None = None
        self.gap_right: i64 = 0  # the right that ended with a repair; 0: none (T29.6)
        self.marked: i64 = 0  # the right of the last marks
        self.mark: i64 = 0
        self.marks: dict[bytes, tuple[int, int]] = {}
        self.stands: dict[bytes, TubeStand] = {}  # by tube
        self.families: dict[bytes, TubeFamily] = {}

    def apply(self, r: Row) -> None:
        """Apply one record."""
        if isinstance(r, VotersRow):
            is_used = r.step == IN_FORCE  # older journals have proposals of a list, too
            self.voters = voters_in(r.number, r.origin, r.voters) if is_used else None
            self.own = self.own if is_used else None
            self.right = r.right if is_used else 0
            self.disk = r.disk
        elif isinstance(r, SoloRow):
            self.apply_solo(r)
        elif isinstance(r, TubeFamily):
            self.families[r.name] = r
        elif isinstance(r, VotersNextRow):
            known = NextList(r.number, r.origin, r.node)
            known.attempt = r.attempt
            known.written_attempt = r.written_attempt
            known.written_node = r.written_node
            known.voters = r.voters
            self.next = known
        elif isinstance(r, VoteMarks):
            self.marked = r.right
            self.mark = r.mark
            self.marks = {node_id: (right, mark) for node_id, right, mark in r.marks}
        elif isinstance(r, TubeStand):
            self.stands[r.name] = r

    def apply_solo(self, r: SoloRow) -> None:
        """Apply the record of a solo list."""
        rows = [(r.voter, r.voter_right, r.voter_disk)]
        solo = voters_in(r.number, r.origin, rows)
        solo.is_solo = True
        solo.has_journal = r.has_journal
        if r.has_lost:
            self.own = solo
        else:
            self.voters = solo
        self.right = r.right
        self.disk = r.disk

    def on_gap(self) -> None:
        """A repair took records out of the journal: what this node confirmed may be among them."""
        self.gap_right = self.right

    def restore_voters(self, n: Node, t: Tubes) -> None:
        """[T22] Use the list again; the only voter asks nobody about its disk (T29.3)."""
        b = t.voter_state
        b.disk = self.disk
        if self.voters is not None:
            b.voters = self.voters
            b.own = self.own
            b.take_right(self.right)
            b.next = self.next
            b.marks = self.marks
            b.asked = dict(self.voters.rights)
            b.is_asking = not self.voters.is_only(n.node_id)
            is_alone = self.voters.is_solo and self.voters.is_only(n.node_id)
            b.has_gap = 0 < self.gap_right == self.right and not is_alone  # T29.6
            if self.marked == b.right:
                b.mark = self.mark
                b.mark_next = self.mark

    def restore_family(self, tube: Tube, is_others: bool) -> None:
        """[T23] The voters of before choose its leader; older journals had one list (T23.7)."""
        r = self.families.get(tube.name)
        if r is not None and r.maker == tube.maker and r.made_ns == tube.made_ns:
            tube.take_family(r.family, r.moves, r.from_number)
        elif self.voters is not None and tube.led_by_votes and not is_others:
            tube.take_family(self.voters.family, 0, 0)

    def restore_stand(self, tube: Tube) -> None:
        """[T22] Stand where this node stood: a vote outlives a restart (T26.2)."""
        r = self.stands.get(tube.name)
        if r is None or r.maker != tube.maker or r.made_ns != tube.made_ns:
            return
        seat = seat_of(tube)
        seat.voted_epoch = r.epoch
        seat.voted_node = r.node
        tube.whole_epoch = r.whole_epoch
        tube.whole_seq = r.whole_seq


def shortest_ms(n: Node, t: Tubes) -> i64:
    """[T25] The shortest timeout of a voter that this node knows, at first its own (T25.1)."""
    own: i64 = n.limits.lease_timeout_ms
    known: i64 = t.voter_state.shortest_ms
    return min(own, known) if known > 0 else own
