"""Tubes are settled under a list of voters before the next list is made (SPEC T28)."""

from mypy_extensions import i64

from tuque.core.node.node import Node
from tuque.tubes.model.ballots import Voters
from tuque.tubes.model.registry import Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.replication.send import mark_changed
from tuque.tubes.replication.stands import seat_of, stand_of


def settle(n: Node, t: Tubes, voters: Voters, tube: Tube) -> None:
    """[T28] The leader has a lease under this list: settle the tube if a majority has all (T28.3).

    All is what was changed before this node went by the list, or led the tube.
    """
    seat = seat_of(tube)
    if seat.settled == voters.number and seat.settled_epoch == tube.epoch:
        return
    if seat.settling != voters.number:
        seat.settling = voters.number
        seat.settling_seq = tube.seq
    count: i64 = 1 if n.node_id in voters.rights else 0
    for slot, follower in tube.followers.items():
        if follower.is_complete and follower.got >= seat.settling_seq:
            if n.peers[slot].node_id in voters.rights:
                count += 1
    if count < voters.majority():
        return
    seat.settled = voters.number
    seat.settled_epoch = tube.epoch
    seat.settled_node = n.node_id
    t.ballots.moved.append(tube)


def is_settled(voters: Voters, tube: Tube) -> bool:
    """Whether the leader with which this node stands has said that it settled the tube."""
    seat = seat_of(tube)
    epoch, node_id = stand_of(tube)
    if seat.settled_epoch != epoch or seat.settled_node != node_id:
        return False
    return seat.settled == voters.number


def unsettled(t: Tubes, voters: Voters) -> list[bytes]:
    """[T28] The tubes that keep this node from agreeing to the next list (T28.3)."""
    return [
        tube.name
        for tube in t.by_name.values()
        if tube.fails_over and not tube.is_others and not is_settled(voters, tube)
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
            if tube.is_mine and follower is not None:
                follower.got = 0
                follower.is_complete = False
                follower.is_new = True
                mark_changed(t, tube)
