"""Where a node stands about a tube, and the list of voters, outlive a restart (SPEC T22)."""

from __future__ import annotations

import pytest
from tubes_world import voting

from tuque.tubes.log.vote_state import (
    record_vote,
    record_voters,
    seat_of,
    vote_of,
)
from tuque.tubes.model.voter_state import Voters


@pytest.mark.parametrize("rewrites", [False, True])
def test_a_node_stands_where_it_stood(rewrites: bool) -> None:
    """T22.4 The records of T22.1 are in every snapshot. A node that starts uses that list, and
    its votes are as they were.
    """
    world = voting()
    world.make(0)
    world.put(0)
    world.settle()
    n, t, tube = world.nodes[1].core, world.t(1), world.tube(1)
    assert vote_of(tube) == (1, world.id(0))
    rights = {node.node_id: i + 1 for i, node in enumerate(world.cores)}
    t.voter_state.right = 2
    t.voter_state.voters = Voters(7, b"o" * 16, rights)
    assert n.records is not None
    record_voters(n.records, t.voter_state, t.voter_state.voters)
    seat = seat_of(tube)
    seat.voted_epoch, seat.voted_node = 4, world.id(2)
    tube.is_complete, tube.whole_epoch, tube.whole_seq = False, 1, 1
    record_vote(n.records, tube)
    world.settle()
    if rewrites:
        world.rewrite(1)
    world.restart(1)
    tube, voters = world.tube(1), world.t(1).voter_state.voters
    assert vote_of(tube) == (4, world.id(2))
    assert (tube.whole_epoch, tube.whole_seq) == (1, 1)
    assert voters is not None and voters.is_same(7, b"o" * 16) and voters.rights == rights
    assert (voters.majority(), world.t(1).voter_state.right) == (2, 2)


def test_a_vote_about_a_tube_that_is_gone() -> None:
    """A tube of that name that was made later is another one: nobody has voted about it."""
    world = voting()
    tube = world.make(0)
    seat = seat_of(tube)
    seat.voted_epoch, seat.voted_node = 4, world.id(2)
    assert world.nodes[0].core.records is not None
    record_vote(world.nodes[0].core.records, tube)
    world.settle()
    tube.made_ns += 1
    world.rewrite(0)
    tube.made_ns -= 1
    record_vote(world.nodes[0].core.records, tube)
    world.settle()
    world.restart(0)
    assert world.tube(0).seat is None
