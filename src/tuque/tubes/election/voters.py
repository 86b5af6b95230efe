"""The lists of voters: one at each start, one that wins; tubes are settled (SPEC T23, T28)."""

from hashlib import blake2b
from typing import Final

from mypy_extensions import i64

from tuque.core.msgs.bus import AnyMessage, Belongings, VotersTold
from tuque.core.msgs.packed import DISK_BYTES, FAMILY_BYTES, ORIGIN_BYTES
from tuque.core.node.node import Node
from tuque.core.node.peers import slots_of
from tuque.tubes.log.catalog import at_of
from tuque.tubes.log.leader import had_by, knows_all
from tuque.tubes.log.send import mark_changed
from tuque.tubes.log.vote_state import (
    record_disk_epochs,
    record_no_list,
    record_solo,
    record_voters,
    seat_of,
    vote_of,
)
from tuque.tubes.model.errors import shown
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import (
    FORCE_GAP,
    IN_FORCE,
    INVITED,
    NO_DISK,
    Due,
    Voters,
    VoterState,
    voters_in,
)
from tuque.tubes.tasks.admin import is_in_use

NAMED_MAX: Final = 10  # tubes that a refusal names
FIRST_RIGHT: Final = 1
OWN: Final = 0  # the slot of this node


# ---- Tubes are settled under a list of voters before the next list is made (SPEC T28)


def settle(n: Node, t: Tubes, voters: Voters, tube: Tube) -> None:
    """[T28] The leader has a lease under this list: settle the tube if a majority has all (T28.3).

    All is what was changed before this node went by the list, or led the tube.
    """
    vote = seat_of(tube)
    if vote.settled == voters.number and vote.settled_epoch == tube.epoch:
        return
    if vote.settling != voters.number:
        vote.settling = voters.number
        vote.settling_seq = tube.seq
    count: i64 = 1 if n.node_id in voters.rights else 0
    for slot, follower in tube.followers.items():
        if follower.is_complete and follower.got >= vote.settling_seq:
            if n.peers[slot].node_id in voters.rights:
                count += 1
    if count < voters.majority():
        return
    growing = t.voter_state.growing
    if growing is not None and voters is t.voter_state.voters:
        if had_by(n, t.voter_state, tube, growing, growing.majority()) < vote.settling_seq:
            return  # T28.9
    vote.settled = voters.number
    vote.settled_epoch = tube.epoch
    vote.settled_node = n.node_id
    t.voter_state.moved.append(tube)


def is_settled(voters: Voters, tube: Tube) -> bool:
    """Whether the leader with which this node stands has said that it settled the tube."""
    seat = seat_of(tube)
    epoch, node_id = vote_of(tube)
    if seat.settled_epoch != epoch or seat.settled_node != node_id:
        return False
    return seat.settled == voters.number


def unsettled(t: Tubes, voters: Voters) -> list[bytes]:
    """[T28] The tubes that keep this node from agreeing to the next list (T28.3)."""
    return [
        tube.name
        for tube in t.by_name.values()
        if t.voter_state.list_of(tube) is voters and not is_settled(voters, tube)
    ]


def count_anew(n: Node, t: Tubes, voters: Voters, before: Voters | None) -> None:
    """[T28] What a node confirmed before it got its right counts no more: ask again (T28.5)."""
    if before is None:
        return
    for node_id, right in voters.rights.items():
        slot = n.slot_of.get(node_id)
        if slot is None or before.rights.get(node_id, 0) == right:
            continue
        for tube in t.by_name.values():
            follower = tube.followers.get(slot)
            if t.voter_state.list_of(tube) is not before:
                continue
            if tube.is_mine and follower is not None:
                follower.got = 0
                follower.is_complete = False
                follower.is_new = True
                mark_changed(t, tube)


# ---- The list of a node that starts, and lists of other nodes (SPEC T23)


def may_vouch(n: Node, t: Tubes, voters: Voters | None) -> bool:
    """[T23] Whether this node's votes and echoes count under the list (T23.4, T29.3)."""
    b = t.voter_state
    if voters is None or n.is_double:  # K1.3
        return False
    if voters is b.own:
        return True  # nobody else could have been asked (T23.7)
    return not b.is_asking and b.right > 0 and voters.rights.get(n.node_id, 0) == b.right


def nodes_open(n: Node, t: Tubes) -> list[int]:
    """The slots of the nodes that pulses and stands can go to."""
    return slots_of(t.voter_state.open & n.linked)


def set_willing(t: Tubes, yes: bool) -> None:
    """[T23] `tube-failover`: whether this node may become a voter (T23.2)."""
    if yes == t.voter_state.is_on:
        return
    t.voter_state.is_on = yes
    t.must_look = True
    t.flags_changed = True


def new_disk(n: Node) -> bytes:
    """[T28] The id of what is on the disk from now on (T28.5)."""
    text = b"%s %s %d disk" % (n.ids.seed, n.node_id, n.now_ms)
    return blake2b(text, digest_size=DISK_BYTES).digest()


def lose_right(n: Node, t: Tubes) -> None:
    """[T28] The copies of this node are gone: it must be added again (T28.5)."""
    b = t.voter_state
    b.disk = new_disk(n)
    b.own = None
    voters = b.voters
    if voters is None:
        return
    b.take_right(0)
    b.next = None
    b.change = None
    b.growing = None
    if n.others == 0:
        b.voters = None  # it was reset, or emptied: it begins anew, perhaps under another id
    if n.records is not None:
        if b.voters is None:
            record_no_list(n.records, b, n.node_id)
        else:
            record_voters(n.records, b, voters)


def voters_open(n: Node, t: Tubes, voters: Voters) -> list[int]:
    """The slots of the other voters that messages about votes can go to."""
    found: list[int] = []
    for slot in slots_of(t.voter_state.open & n.linked):
        if n.peers[slot].node_id in voters.rights:
            found.append(slot)
    return found


def send_surely(n: Node, t: Tubes, slot: i64, message: AnyMessage) -> None:
    """Send the message once the records so far are on the disk, under `everysec` too."""
    records = n.records
    if records is None:
        return
    records.has_custody = True
    records.wish += 1
    t.voter_state.due.append(Due(records.wish, slot, message))


def voters_message(voters: Voters, step: i64) -> VotersTold:
    """The message about the list."""
    flags = int(voters.flags())
    return VotersTold(int(voters.number), voters.origin, voters.rows(), int(step), flags)


def begin_solo(n: Node, t: Tubes) -> None:
    """[T23] A node with a journal that knows no list makes one of itself (T23.1)."""
    b = t.voter_state
    if b.voters is not None or n.records is None or not b.is_on:
        return
    if b.disk == NO_DISK:
        b.disk = new_disk(n)
    b.take_right(FIRST_RIGHT)
    b.is_asking = False
    b.unmet = 0 if knows_all(n, t) else n.others & ~n.forgotten  # T27.8: its disk may be a new one
    adopt(n, t, solo_list(n, b))


def is_free(t: Tubes, voters: Voters) -> bool:
    """[T28] Whether a solo list chooses no leader: its voter may be forgotten (T28.6)."""
    if not voters.is_solo:
        return False
    return all(t.voter_state.list_of(tube) is not voters for tube in t.by_name.values())


def leave_forgotten(n: Node, t: Tubes) -> None:
    """[T28] The voter of the solo list was forgotten: make an own one again (T28.6)."""
    b = t.voter_state
    voters = b.voters
    if voters is None or not voters.is_solo or voters.is_only(n.node_id):
        return
    slot = n.slot_of.get(min(voters.rights))
    if slot is not None and n.forgotten >> i64(slot) & 1 and is_free(t, voters):
        b.voters = None


def solo_list(n: Node, b: VoterState) -> Voters:
    """[T23] A list of this node alone (T23.1)."""
    text = b"%s %s %d solo" % (n.ids.seed, n.node_id, n.now_ms)
    origin = blake2b(text, digest_size=ORIGIN_BYTES).digest()
    voters = Voters(1, origin, {n.node_id: FIRST_RIGHT}, {n.node_id: b.disk})
    voters.is_solo = True
    return voters


def on_voters(n: Node, t: Tubes, slot: i64, m: VotersTold) -> None:
    """[T23] ON RECV VOTERS (T23.4, T28.4)."""
    if m.step == IN_FORCE:
        on_in_force(n, t, slot, m)
    elif m.step == INVITED:
        on_invited(n, t, slot, m)


def on_in_force(n: Node, t: Tubes, slot: i64, m: VotersTold) -> None:
    """A list that another node uses: use it if it wins, or is a newer one of these (T23.4)."""
    b = t.voter_state
    known = b.voters
    voters = voters_in(m.number, m.origin, m.voters, m.flags)
    if known is not None and known.family != voters.family:
        on_other_list(n, t, slot, known, voters)
        return
    if known is not None:
        b.strangers.pop(n.peers[slot].node_id, None)
        if known.origin != m.origin and not is_forced_over(known, m):
            return  # it uses the list that was before FORCE, and gets the new one
        if known.origin == m.origin and known.number >= m.number:
            return
        if known.origin != m.origin:
            b.asked = {}  # its voters are dead (T28.8)
    b.take_right(right_in(n, b, voters))
    adopt(n, t, voters)


def on_other_list(n: Node, t: Tubes, slot: i64, known: Voters, voters: Voters) -> None:
    """[T23] Of lists of two origins one wins; the solo list of this node stays as its own (T23.7).

    A solo list of this node that another one knows is of a disk that it has lost.
    """
    b = t.voter_state
    sender = n.peers[slot].node_id
    if not known.is_solo and not voters.is_solo:
        leave_to_others(n, t, slot, voters)
        return
    is_renewed = known.is_solo and voters.is_solo and voters.is_only(sender)
    is_renewed = is_renewed and known.is_only(sender)  # with its disk it lost the older one
    if voters.is_solo and voters.is_only(n.node_id):
        return
    if not is_renewed and not voters.wins(known):
        return
    if known.is_solo and known.is_only(n.node_id) and b.right > 0:
        b.own = known
    b.take_right(right_in(n, b, voters))
    b.forget_family()  # T28.5: disk epochs and rights are compared under one origin
    if b.change is not None and b.change.client < 0:
        b.change = None
    adopt(n, t, voters)
    if n.records is not None:
        if b.own is not None:
            record_solo(n.records, b, b.own, True)
        record_disk_epochs(n.records, b)


def on_invited(n: Node, t: Tubes, slot: i64, m: VotersTold) -> None:
    """[T28] A voter wants this node to get copies: it is added when it has all (T28.4)."""
    b = t.voter_state
    voters = b.in_force()
    if voters is None or not voters.is_same(m.number, m.origin):
        return
    if n.peers[slot].node_id in voters.rights and n.node_id not in voters.rights:
        if b.keeps_until_ms <= n.now_ms:
            b.must_sort = True
        b.keeps_until_ms = n.now_ms + n.limits.node_timeout_ms


def right_in(n: Node, b: VoterState, voters: Voters) -> i64:
    """[T28] The right of this disk under the list; 0: none (T28.5)."""
    right: i64 = voters.rights.get(n.node_id, 0)
    if right > 0 and voters.disks.get(n.node_id) == b.disk:
        return right
    is_next = b.voters is not None and b.voters.origin == voters.origin
    return b.right if is_next and (right == 0 or right == b.right) else 0


def leave_to_others(n: Node, t: Tubes, slot: i64, voters: Voters) -> None:
    """[T23] The sender uses a list of another origin: its tubes are not voted about here."""
    b = t.voter_state
    sender = n.peers[slot].node_id
    if voters.origin not in b.strangers.values():
        t.notes.append(
            f"node {sender[:8].decode()} goes by another list of voters (origin "
            f"{voters.origin.hex()}): "
            "two clusters have met, and neither votes about the tubes of the other; CLUSTER VOTERS "
            "names the nodes; to part them, cut the network between them, then CLUSTER FORGET them"
        )
    b.strangers[sender] = voters.origin
    for node_id in voters.rights:
        b.strangers[node_id] = voters.origin


def is_forced_over(known: Voters, m: VotersTold) -> bool:
    """[T28] Whether that list was made by force, and later than the known one (T28.8)."""
    if known.origin[:FAMILY_BYTES] != m.origin[:FAMILY_BYTES]:
        return False  # it is another cluster's
    if m.number // FORCE_GAP != known.number // FORCE_GAP:
        return m.number > known.number
    return m.number >= FORCE_GAP and m.origin > known.origin


def adopt(n: Node, t: Tubes, voters: Voters) -> None:
    """[T23] This node uses the list from now on.

    Others learn of it once it is on the disk, under `everysec` too (T28.2): else the only voter of
    the list before could lead by that one after a power failure.
    """
    b = t.voter_state
    before = b.voters
    count_anew(n, t, voters, before)
    if before is not None and n.node_id in before.rights:
        b.keeps_until_ms = n.now_ms + n.limits.node_timeout_ms  # T18.1
    b.must_sort = True
    b.voters = voters
    b.growing = None
    b.outside = 0
    b.whole = 0
    b.lame = 0
    b.lame_ms = 0
    b.asking = 0
    b.open = 0  # all are sent the list once more
    b.is_renewed = True
    b.hurry()
    if n.records is not None:
        record_voters(n.records, b, voters)
        n.records.has_custody = n.records.has_custody or n.others != 0
    if not voters.is_solo:
        t.news.append(f"{len(voters.rights)} nodes vote about the leaders of tubes from now on")
    elif not voters.is_only(n.node_id):
        maker = min(voters.rights)[:8].decode()
        t.news.append(f"node {maker} alone votes about the leaders of tubes from now on")


# ---- Clusters that meet: their tubes and voters must not clash (SPEC K3)


def belongings(n: Node, t: Tubes) -> Belongings:
    """[K3] What this node says to one that it meets (K3.4)."""
    voters = t.voter_state.voters
    is_bound = voters is not None and not voters.is_solo  # T23.4: a solo list yields
    tubes = [at_of(n, tube) for tube in t.by_name.values()]
    return Belongings(voters.origin if voters is not None and is_bound else b"", tubes)


def clash(n: Node, t: Tubes, m: Belongings) -> str:
    """[K3] Why the other node may not join; empty: it may (K3.4)."""
    names: list[str] = []
    for at in m.tubes:
        tube = t.by_name.get(at.name)
        if tube is not None:
            is_other = tube.maker != at.maker or tube.made_ns != at.made_ns
        else:
            is_other = is_in_use(n, at.name)
        if is_other:
            names.append(shown(at.name))
    if len(names) > 0:
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        return (
            f"each of the two clusters has a tube or queue of its own named "
            f"{', '.join(names[:NAMED_MAX])}{more}: drop those of one side, or CLUSTER RESET "
            "its nodes"
        )
    origin = belongings(n, t).origin
    if len(origin) == 0 or len(m.origin) == 0 or origin[:FAMILY_BYTES] == m.origin[:FAMILY_BYTES]:
        return ""
    return (
        f"each of the two clusters has voters of its own (origins {origin.hex()} "
        f"and {m.origin.hex()}): CLUSTER RESET the nodes of one side"
    )
