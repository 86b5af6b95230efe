"""Whether this node leads a tube now, and its lease (SPEC T17, T19).

Every call that changes a tube starts with `needs_home`. A leader holds a lease: it knows that half
of all nodes, itself included, have heard it within cluster-node-timeout (T19.3). leadership/
changes leaders, and starts and stops tubes.
"""

from mypy_extensions import i64

from tuque.core.model import errors as why
from tuque.core.model.errors import TUBES_UNHEARD, Refusal
from tuque.core.model.task import FAR
from tuque.core.node.node import Node
from tuque.core.node.peers import answered_ms_of, are_expected, count_of, slots_of
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.model.tube import (
    ENDING,
    INIT,
    RUNNING,
    STARTUP,
    STATE_NAMES,
    WAITING,
    Tube,
)
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import Voters, VoterState


def has_lease(now_ms: i64, t: Tubes, tube: Tube) -> bool:
    """[T19] Whether enough nodes confirm that this one leads: voters (T25.2), or all (T19.3)."""
    return now_ms <= tube.lease_ms and (tube.led_by_votes or now_ms <= t.lease_ms)


def needs_home(n: Node, t: Tubes, tube: Tube) -> None:
    """[T17] Raise TubeError unless the tube is RUNNING here (T17.3, T19.2)."""
    if tube.state != RUNNING or not has_lease(n.now_ms, t, tube):
        raise refusal_of(n, t, tube)


def needs_copies(n: Node, t: Tubes, tube: Tube) -> None:
    """[T18] Like `needs_home`, for a change that `sync` nodes must have (T18.5)."""
    if tube.state != RUNNING or not has_lease(n.now_ms, t, tube):
        raise refusal_of(n, t, tube)
    others = copies_needed(n, t, tube) - 1
    if others > 0:
        needs_voters(t, tube)
        if others > n.reachable_count and not are_expected(n, others):
            raise TubeError(why.NOREPL)
        t.to_sync[tube.name] = tube


def needs_voters(t: Tubes, tube: Tube) -> None:
    """[T18] Raise TubeError if SYNC asks for more nodes than vote: only these count (T18.9).

    Under a solo list all nodes have copies, and count (T18.1).
    """
    voters = t.voter_state.list_of(tube)
    if voters is not None and not voters.is_solo and tube.sync > len(voters.rights):
        raise TubeError(why.SYNC_ABOVE_VOTERS, (tube.name, int(tube.sync), len(voters.rights)))


def needs_job(n: Node, t: Tubes, id: bytes) -> None:
    """[T17] Raise TubeError if the task with that job id is a copy here (T17.3)."""
    if len(t.copies_by_id) > 0:
        task = t.copies_by_id.get(id)
        if task is not None:
            raise refusal_of(n, t, t.by_name[task.queue])


def refusal_of(n: Node, t: Tubes, tube: Tube) -> TubeError:
    """The reason why the tube is not served here."""
    if not tube.is_mine:
        if tube.home == n.node_id:
            return TubeError(why.LOST, (tube.name, tube.name))
        return HomeError(tube.name, tube.home)
    move = tube.move
    if move is not None:
        return HomeError(tube.name, move.node_id)
    if t.is_read_only:
        return TubeError(why.NODE_READ_ONLY)
    if tube.is_unsure:
        return TubeError(why.STOOD, (tube.name, n.stood_ms, tube.name, n.node_id))
    if n.now_ms > t.lease_ms and not tube.led_by_votes:
        reached, total = reach_of(n, t)
        return TubeError(why.NO_QUORUM, (tube.name, reached, total))
    is_led = tube.state == RUNNING or (tube.state == WAITING and t.voter_state.leads(tube))
    if is_led and tube.is_won and n.now_ms > tube.lease_ms:
        return TubeError(why.UNCONFIRMED, (tube.name,))  # T25.2
    return TubeError(why.NOT_YET, (tube.name, STATE_NAMES[tube.state]))


def needs_writable(t: Tubes) -> None:
    """[T19] Raise TubeError when the node is read-only (T19.5)."""
    if t.is_read_only:
        raise TubeError(why.NODE_READ_ONLY)


# ---- What operators see (SPEC T11, T18, T19)


def state_of_tube(tube: Tube) -> bytes:
    """[T19] The state of the tube on this node (T19.1)."""
    return STATE_NAMES[tube.state]


def state_of_node(n: Node, t: Tubes) -> bytes:
    """[T19] Whether this node may lead tubes (T19.1)."""
    if n.is_loading or (t.is_read_only and not t.was_writable):
        return STATE_NAMES[INIT]
    if t.is_read_only or n.now_ms > t.lease_ms:
        for tube in t.by_name.values():
            if tube.state == ENDING:
                return STATE_NAMES[ENDING]
        return STATE_NAMES[WAITING]
    for tube in t.by_name.values():
        if tube.is_unsure:
            return STATE_NAMES[WAITING]  # T19.7
        if tube.is_mine and tube.state != RUNNING and tube.state != ENDING:
            return STATE_NAMES[STARTUP]
    return STATE_NAMES[RUNNING]


def homeless(n: Node, t: Tubes) -> list[bytes]:
    """[T11] Tubes whose leader does not answer this node, or lost its memory (T11.5)."""
    there = n.reachable | n.leavers
    found: list[bytes] = []
    for name, tube in t.by_name.items():
        if tube.is_mine:
            if tube.is_unsure or (t.voter_state.leads(tube) and n.now_ms > tube.lease_ms):
                found.append(name)  # T19.7, T25.2
        elif tube.home == n.node_id:
            found.append(name)  # T22.2
        else:
            slot = n.slot_of.get(tube.home)
            if slot is None or there >> i64(slot) & 1 == 0:
                found.append(name)
    return found


def lag_of(n: Node, t: Tubes, tube: Tube) -> list[tuple[bytes, i64, bool]]:
    """[T18] Per follower: the changes not confirmed, and whether its replica is complete.

    On other nodes than the leader: the changes that this node lacks itself (T18.4). Numbers of
    changes tell it of a complete replica only: a start skips some (T18.7).
    """
    if tube.is_temporary:
        return []  # T15.10
    tasks: i64 = len(tube.tasks) + len(tube.copies)  # it may load or unload some now
    if not tube.is_mine:
        if not tube.is_replica:
            return []  # T18.1
        missing = tube.told_seq - tube.seq
        if not tube.is_complete or tube.copy_epoch != tube.epoch:
            missing = tasks
        return [(n.node_id, missing if missing > 0 else 0, tube.is_complete)]
    found: list[tuple[bytes, i64, bool]] = []
    for slot in slots_of(n.others & ~n.forgotten):
        follower = tube.followers.get(slot)
        is_open = follower is not None and follower.is_open
        if not is_open and not may_vote_about(n, t, tube, n.peers[slot].node_id):
            continue  # T18.1
        is_complete = follower is not None and follower.is_complete
        lag = tasks
        if follower is not None and follower.is_complete:
            lag = tube.seq - follower.got
        found.append((n.peers[slot].node_id, lag if lag > 0 else 0, is_complete))
    return found


def synced(n: Node, t: Tubes, tube: Tube) -> i64:
    """[T18] The last change that `sync` nodes have, including this one (T18.5)."""
    needed = copies_needed(n, t, tube)
    if needed <= 1:
        return tube.seq
    b = t.voter_state
    voters = b.list_of(tube)
    if voters is not None:
        needed = votes_needed(tube, voters)
    if voters is None or not voters.is_solo:
        had = had_by(n, b, tube, voters, needed)
    else:  # T18.9: all nodes have copies, and count
        had = min(had_by(n, b, tube, None, needed), had_by(n, b, tube, voters, 1))
    growing = b.growing
    if growing is not None and voters is b.voters:
        had = min(had, had_by(n, b, tube, growing, growing.majority()))  # T28.9
    return max(had, 0)


def had_by(n: Node, b: VoterState, tube: Tube, voters: Voters | None, needed: i64) -> i64:
    """[T27] The last change that so many of the voters have; None: so many nodes (T27.7).

    -1: too few have the tube.
    """
    got: list[int] = []
    for slot, follower in tube.followers.items():
        if voters is not None and not is_counted(n, b, voters, slot):
            continue  # T27.7
        if follower.is_complete:
            got.append(follower.got)
    if voters is None or has_own(n, b, voters):
        needed -= 1
    if needed <= 0:
        return tube.seq
    if len(got) < needed:
        return -1
    got.sort(reverse=True)
    return got[needed - 1]


def has_own(n: Node, b: VoterState, voters: Voters) -> bool:
    """[T27] Whether this node votes, and has its changes in its journal (T27.7, T27.9)."""
    if voters is not b.own and (b.right == 0 or voters.rights.get(n.node_id, 0) != b.right):
        return False
    return n.records is not None and not n.records.is_failing


def voters_linked(n: Node, voters: Voters) -> i64:
    """The slots of the other voters that are linked."""
    found: i64 = 0
    for slot in slots_of(n.linked & ~n.forgotten):
        if n.peers[slot].node_id in voters.rights:
            found |= 1 << slot
    return found


def may_vote_about(n: Node, t: Tubes, tube: Tube, node_id: bytes) -> bool:
    """[T18] Whether that node is to have a copy of the tube, and may lead it (T18.1).

    What voters of a list that lost choose moves to one of the list that won (T23.7).
    """
    voters = t.voter_state.list_of(tube)
    if voters is t.voter_state.own:
        voters = t.voter_state.voters
    return voters is None or node_id in voters.rights


def nodes_with_copies(n: Node, voters: Voters | None) -> i64:
    """[T18] How many nodes SYNC may ask for: the voters, and all under a solo list (T18.9)."""
    if voters is None or voters.is_solo:
        return 1 + count_of(others_of(n))
    return len(voters.rights)


def is_even(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T23] Whether a majority of the list that won may vote, and has all of the tube (T23.7)."""
    b = t.voter_state
    voters = b.voters
    if voters is None or b.is_asking or n.records is None or n.records.is_failing:
        return False
    return had_by(n, b, tube, voters, voters.majority()) >= tube.seq


def is_counted(n: Node, b: VoterState, voters: Voters, slot: i64) -> bool:
    """[T27] Whether the node there is a voter that may vote, by its last pulse (T27.7).

    One that is to be a voter counts by its disk (T28.9).
    """
    node_id = n.peers[slot].node_id
    if voters is b.growing:
        return node_id in voters.rights and b.disks.get(slot) == voters.disks.get(node_id)
    right = voters.rights.get(node_id, 0)
    return right > 0 and b.vouching.get(slot, 0) == right


def votes_needed(tube: Tube, voters: Voters) -> i64:
    """[T18] How many voters must have a change of the tube before its reply (T18.5)."""
    return max(tube.sync, voters.majority()) if tube.by_majority else tube.sync


def copies_needed(n: Node, t: Tubes, tube: Tube) -> i64:
    """[T18] How many nodes must have a change of the tube before its reply (T18.5)."""
    if not tube.by_majority:
        return tube.sync
    b = t.voter_state
    voters = b.list_of(tube)
    if voters is not None:
        is_growing = b.growing is not None and voters is b.voters  # T28.9
        if is_growing or (tube.is_mine and n.node_id not in voters.rights):
            return max(votes_needed(tube, voters), 2)  # itself, and another node
        return votes_needed(tube, voters)
    return max(tube.sync, (1 + count_of(others_of(n))) // 2 + 1)


def set_read_only(n: Node, t: Tubes, yes: bool) -> None:
    """[T19] `read-only`: leaderships move to other nodes, or wait (T19.5)."""
    if yes == t.is_read_only:
        return
    t.is_read_only = yes
    t.must_look = True
    t.flags_changed = True


# ---- The lease (SPEC T19.3)


def others_of(n: Node) -> i64:
    """The other nodes of the cluster."""
    return n.others & ~n.forgotten


def is_alone(n: Node) -> bool:
    """Whether the node is alone in its cluster."""
    return n.others & ~n.forgotten == 0


def reach_of(n: Node, t: Tubes) -> tuple[int, int]:
    """How many nodes have heard this one within cluster-node-timeout, out of how many."""
    others = others_of(n)
    reached = 1
    for slot in slots_of(others):
        if said_ms(n, t, slot) + n.limits.node_timeout_ms >= n.now_ms:
            reached += 1
    return reached, int(1 + count_of(others))


def said_ms(n: Node, t: Tubes, slot: i64) -> i64:
    """When the latest heartbeat that the node has answered was sent; 0: long ago.

    A loading node answers, too: it counts once it has sent its catalog (T17.2).
    """
    if t.heard >> slot & 1 == 0:
        return 0
    return answered_ms_of(n, slot)


def renew_lease(n: Node, t: Tubes) -> None:
    """[T19] Extend the lease when half of all nodes, this one included, have answered (T19.3)."""
    t.round = n.round
    others = others_of(n)
    needed = (count_of(others) + 2) // 2 - 1
    if needed == 0:
        t.lease_ms = FAR
        return
    timeout_ms = n.limits.node_timeout_ms
    if t.lease_ms == FAR:
        t.lease_ms = n.now_ms + timeout_ms  # the first other node: it has had no time to answer
    times: list[int] = []
    for slot in slots_of(others):
        times.append(said_ms(n, t, slot))
    times.sort(reverse=True)
    until_ms: i64 = times[needed - 1] + timeout_ms
    if until_ms > t.lease_ms:
        t.lease_ms = until_ms


def knows_enough(n: Node, t: Tubes, tube: Tube) -> bool:
    """Whether half of all nodes have sent their catalogs; of two, after a start, both (T19.4)."""
    total = 1 + count_of(others_of(n))
    known = catalogs(n, t)
    if total == 2 and tube.state == INIT:
        return known == 2
    return known * 2 >= total


def knows_all(n: Node, t: Tubes) -> bool:
    """Whether all nodes have sent their catalogs (T17.2)."""
    return catalogs(n, t) == 1 + count_of(others_of(n))


def unheard_refusal(n: Node, t: Tubes) -> Refusal | None:
    """[T15] Why this node may not say that there is no such tube (T15.5); None: it may."""
    if len(n.peers) <= 1:
        return None
    is_late = n.now_ms >= n.topics.begun_ms + n.limits.node_timeout_ms
    if is_late and (t.has_met or len(t.by_name) > 0):
        return None
    linked = n.linked & ~1
    is_informed = catalogs(n, t) > 1 and senders(t, linked) == count_of(linked)
    return None if is_informed else Refusal(TUBES_UNHEARD)


def catalogs(n: Node, t: Tubes) -> i64:
    """How many nodes have sent their catalogs, this one included."""
    return 1 + senders(t, others_of(n))


def senders(t: Tubes, slots: i64) -> i64:
    """How many of these nodes have sent their catalogs."""
    return count_of(t.heard & slots)


def has_heard_since(n: Node, t: Tubes) -> bool:
    """[T19] Whether half of all nodes have answered since this one stood still (T19.7).

    This one counts; of two nodes both must have.
    """
    others = others_of(n)
    total = 1 + count_of(others)
    answered = 1
    for slot in slots_of(others):
        if said_ms(n, t, slot) >= t.stood_ms:
            answered += 1
    return answered == total if total == 2 else answered * 2 >= total
