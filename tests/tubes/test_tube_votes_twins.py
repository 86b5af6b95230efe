"""A node whose id another one has: it keeps its jobs, leads nothing, does not vote (SPEC K1.3)."""

from __future__ import annotations

import pytest
from homes_lab import HomesLab
from votes_lab import TIMEOUT_MS, VotesLab

from cluster_lab import Lab
from tuque.core.copies.federation import look_again
from tuque.core.model.job import QUEUED
from tuque.core.model.task import READY
from tuque.core.queues.deliver import serve_ready
from tuque.server.commands.tube_leaders import own_state
from tuque.tubes.election.voters import may_vouch
from tuque.tubes.policy import tubes_of


def set_double(lab: Lab, i: int, is_double: bool = True) -> None:
    """What cluster/members.py does when a conflict begins or ends."""
    n = lab.nodes[i]
    n.now_ms = lab.now_ms
    n.is_double = is_double
    look_again(n)
    tubes_of(n).on_reach(n)


def test_a_leader_in_conflict_gives_its_tubes_up() -> None:
    """K1.3 A node that refuses service gives no jobs to other nodes and takes none, leads no tube,
    gives no votes and makes no promises

    K1.3 It gives up the tubes that votes made it lead
    """
    lab = VotesLab(3)
    task = lab.put(0)
    lab.live(1_000)
    set_double(lab, 0)
    lab.live(500)
    assert 0 not in lab.runs_at() and not may_vouch(lab.nodes[0], lab.t(0))
    lab.live(2 * TIMEOUT_MS - 500)
    (leader,) = lab.runs_at()
    assert leader in (1, 2)
    assert lab.tube(leader).tasks[task.number].status == READY
    lab.live(4 * TIMEOUT_MS)
    assert lab.runs_at() == [leader]


def test_a_node_in_conflict_gives_no_vote() -> None:
    """K1.3 gives no votes and makes no promises"""
    lab = VotesLab(3)
    set_double(lab, 1)
    lab.live(1_000)
    assert lab.runs_at() == [0]  # the third one promises, too
    lab.isolate(0)
    lab.live(4 * TIMEOUT_MS)
    assert lab.runs_at() == []  # one vote of three
    set_double(lab, 1, False)
    lab.live(2 * TIMEOUT_MS)
    assert len(lab.runs_at()) == 1


def test_a_voter_in_conflict_stays_in_the_list() -> None:
    """K1.3 and stays in the list of voters as one that is asking (T29.3).

    T28.7 conflict (K1.3, of the node that replies)
    """
    lab = VotesLab(4)
    set_double(lab, 3)
    assert own_state(lab.nodes[3], lab.t(3)) == "conflict"
    lab.live(8 * TIMEOUT_MS)
    for i in range(3):
        voters = lab.t(i).ballots.in_force()
        assert voters is not None and len(voters.rights) == 4
        assert lab.t(i).ballots.asking >> lab.slot(i, 3) & 1 == 1
    set_double(lab, 3, False)
    lab.live(1_000)
    assert may_vouch(lab.nodes[3], lab.t(3))


def test_a_leader_without_votes_waits() -> None:
    """K1.3 leads no tube"""
    lab = HomesLab(2)
    lab.make(0)
    lab.live(1_000)
    assert lab.runs_at() == [0]
    set_double(lab, 0)
    lab.live(2_000)
    assert lab.runs_at() == []
    set_double(lab, 0, False)
    lab.live(2_000)
    assert lab.runs_at() == [0]


@pytest.mark.parametrize("retry", [0, 60])
def test_jobs_stay_where_the_conflict_is(retry: int) -> None:
    """K1.3 A node that refuses service gives no jobs to other nodes and takes none"""
    lab = Lab(2)
    lab.add(0, retry_s=retry, replicate=1)
    lab.add(1, b"other", retry_s=retry, replicate=1)
    set_double(lab, 0)
    lab.wait(1)
    lab.run()
    assert lab.served[1] == {}
    lab.wait(0, b"other")
    lab.run()
    serve_ready(lab.nodes[0])
    assert lab.served[0] == {}
    set_double(lab, 0, False)
    lab.run()
    assert len(lab.served[1]) == 1, "what was held back is given when the conflict is over"
    assert len(lab.served[0]) == 1


@pytest.mark.parametrize("retry", [0, 60])
def test_jobs_on_their_way_go_back(retry: int) -> None:
    """K1.3 A node that refuses service gives no jobs to other nodes and takes none"""
    lab = Lab(2)
    id = lab.add(1, retry_s=retry, replicate=1)
    lab.hold(1, 0)
    lab.wait(0)
    lab.run()
    assert lab.get(1) == []  # it is on its way
    set_double(lab, 0)
    lab.release(1, 0)
    lab.run()
    assert lab.served[0] == {}
    assert lab.get(1) == [id]


def test_who_waits_gets_no_job_before_the_refusal() -> None:
    """K1.3 Both nodes refuse service, and say so, until the conflict is over."""
    lab = Lab(2)
    lab.wait(0)
    set_double(lab, 0)
    id = lab.add(0, replicate=1)
    assert lab.served[0] == {}
    assert lab.nodes[0].jobs[id].state == QUEUED
