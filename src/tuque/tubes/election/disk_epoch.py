"""Disk epochs: a voter notices that its disk is older than what it has sent (SPEC T29).

A restored disk has forgotten votes, and changes that it confirmed. The disk epoch grows with what a
node has on its disk; others remember it, and send it to a node that starts.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.msgs.bus import TubePulse
from tuque.core.node.node import Node
from tuque.core.records.jobs import Records
from tuque.tubes.election.voters import lose_right
from tuque.tubes.log.send import record_leader
from tuque.tubes.log.vote_state import record_disk_epochs, record_vote
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import Voters, VoterState

NO_MARK: Final = (0, 0)
MARK_MS: Final = 1_000  # a mark is recorded at most so often, but for votes


def raise_mark(n: Node, t: Tubes, records: Records) -> None:
    """[T29] Record the next mark; pulses have it once it is on the disk (T29.1)."""
    b = t.voter_state
    b.mark_next += 1
    b.mark_ms = n.now_ms
    b.mark_binding = records.binding_count
    b.has_heard = False
    record_disk_epochs(records, b)
    records.query += 1
    b.mark_query = records.query


def disk_epochs_tick(n: Node, t: Tubes, voters: Voters) -> None:
    """[T29] Tell the mark that is on the disk; record the next one (T29.1, T29.2)."""
    b = t.voter_state
    look_at_asking(n, b, voters)  # the only voter has nobody to ask
    records = n.records
    if records is None:
        return
    if b.mark < b.mark_next and records.safe >= b.mark_query:
        b.mark = b.mark_next
    if n.now_ms < b.mark_ms + MARK_MS:
        return
    is_new = records.binding_count != b.mark_binding or records.query < b.mark_query
    if b.right == 0 or b.is_asking:
        is_new = False  # T29.3: what others have heard is compared with what was on the disk
    if is_new and (b.mark == b.mark_next or records.query < b.mark_query):
        raise_mark(n, t, records)
    elif b.has_heard:
        b.has_heard = False
        b.mark_ms = n.now_ms
        record_disk_epochs(records, b)


def hear_mark(n: Node, t: Tubes, voters: Voters, slot: i64, m: TubePulse) -> None:
    """[T29] Remember the sender's mark, and see what it knows of this node's (T29.2, T29.4)."""
    b = t.voter_state
    node_id = n.peers[slot].node_id
    known = b.marks.get(node_id, NO_MARK)
    if m.right > known[0] or (m.right == known[0] and m.mark > known[1]):
        b.marks[node_id] = (m.right, m.mark)
        b.has_heard = True
    if m.known_right == b.right and b.right > 0 and m.known_mark > b.mark_next:
        t.notes.append(
            f"the journal of this node is an old one: it has disk epoch {b.mark_next}, and node "
            f"{node_id[:8].decode()} knows disk epoch {m.known_mark}. This node has no vote until "
            "the other voters have added it again"
        )
        lose_right(n, t)
    if not b.is_asking or m.known_right > b.right:
        return  # the list that gave that right has not arrived yet
    b.told[node_id] = None
    look_at_asking(n, b, voters)


def look_at_asking(n: Node, b: VoterState, voters: Voters) -> None:
    """[T29] The node may vote again if enough others have said what they heard of it (T29.3)."""
    if not b.is_asking or not are_enough(b, voters.rights, n.node_id):
        return
    if b.asks_all and not are_enough(b, b.asked, n.node_id):
        return
    b.is_asking = False
    b.look_ms = 0


def are_enough(b: VoterState, rights: dict[bytes, int], node_id: bytes) -> bool:
    """[T29] Whether so many of these voters have said what they heard of this one (T29.3)."""
    others: i64 = 0
    for one in rights:
        if one != node_id and one in b.told:
            others += 1
    most: i64 = len(rights)
    if node_id in rights:
        most -= 1
    needed: i64 = len(rights) // 2 + 1 - (1 if node_id in rights else 0)
    if b.asks_all:
        needed = len(rights) - len(rights) // 2
    return others >= min(needed, most)


def forget_copies(n: Node, t: Tubes) -> None:
    """[T29] A repair took records out of the journal: nothing here counts as whole (T29.6)."""
    t.notes.append(
        "records are missing in the journal since its repair: this node has no vote, and gets the "
        "tasks of tubes that votes lead anew, until the other voters have added it again"
    )
    lose_right(n, t)
    for tube in t.by_name.values():
        if not tube.led_by_votes:
            continue
        tube.is_complete = False
        tube.copy_epoch = 0
        tube.whole_epoch = 0
        tube.whole_seq = 0
        if n.records is not None:
            record_leader(n.records, tube)
            record_vote(n.records, tube)
