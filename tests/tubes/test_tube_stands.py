"""Where a node stands about a tube, and the list of voters, outlive a restart (SPEC T22)."""

from __future__ import annotations

import pytest
from homes_lab import HomesLab

from tuque.tubes.log.vote_state import (
    record_stand,
    record_voters,
    seat_of,
    stand_of,
)
from tuque.tubes.model.voter_state import IN_FORCE, Voters


@pytest.mark.parametrize("rewrites", [False, True])
def test_a_node_stands_where_it_stood(rewrites: bool) -> None:
    """T22.4 Both are part of every snapshot. A node that starts goes by that list, and stands where
    it stood."""
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    lab.put(0)
    lab.run()
    n, t, tube = lab.nodes[1], lab.t(1), lab.tube(1)
    assert stand_of(tube) == (1, lab.nodes[0].node_id)
    rights = {node.node_id: i + 1 for i, node in enumerate(lab.nodes)}
    t.ballots.right = 2
    t.ballots.voters = Voters(7, b"o" * 16, rights, IN_FORCE)
    assert n.records is not None
    record_voters(n.records, t.ballots, t.ballots.voters)
    seat = seat_of(tube)
    seat.voted_epoch, seat.voted_node = 4, lab.nodes[2].node_id
    tube.is_complete, tube.whole_epoch, tube.whole_seq = False, 1, 1
    record_stand(n.records, tube)
    lab.run()
    if rewrites:
        lab.journals[1].rewrite(n)
    lab.die(1)
    tube, voters = lab.tube(1), lab.t(1).ballots.voters
    assert stand_of(tube) == (4, lab.nodes[2].node_id)
    assert (tube.whole_epoch, tube.whole_seq) == (1, 1)
    assert voters is not None and voters.is_same(7, b"o" * 16) and voters.rights == rights
    assert (voters.step, voters.majority(), lab.t(1).ballots.right) == (IN_FORCE, 2, 2)


def test_a_vote_about_a_tube_that_is_gone() -> None:
    """A tube of that name that was made later is another one: nobody has voted about it."""
    lab = HomesLab(3, has_journal=True)
    tube = lab.make(0)
    seat = seat_of(tube)
    seat.voted_epoch, seat.voted_node = 4, lab.nodes[2].node_id
    assert lab.nodes[0].records is not None
    record_stand(lab.nodes[0].records, tube)
    lab.run()
    tube.made_ns += 1
    lab.journals[0].rewrite(lab.nodes[0])
    tube.made_ns -= 1
    record_stand(lab.nodes[0].records, tube)
    lab.run()
    lab.die(0)
    assert lab.tube(0).seat is None
