"""SPEC R1, R5, K4: an ADDJOB waits for nodes that are away for a short time."""

from __future__ import annotations

import pytest
from cluster_lab import Lab
from test_r_cluster import NOREPL, TIMEOUT, told

from tuque.core.copies import on_reach_changed
from tuque.core.peers import set_expected


def expect(lab: Lab, a: int, b: int, is_expected: bool = True) -> None:
    """Node b is away for a short time only, as node a sees it, or no more so."""
    set_expected(lab.nodes[a], lab.slot(a, b), is_expected)
    on_reach_changed(lab.nodes[a])
    lab.run()


@pytest.mark.parametrize("replicate", [2, 3])
def test_a_node_that_restarts_is_waited_for(replicate: int) -> None:
    """K4.4 Expected is a node of the cluster that is not suspected, not failed and not leaving: it
    is reachable, or may be so soon."""
    lab = Lab(3)
    for b in (1, 2):
        expect(lab, 0, b)
        lab.die(b)
    job, refused = lab.try_add(0, b"q", replicate=replicate, timeout_ms=10_000)
    assert job is not None, refused
    lab.pass_ms(9_000)
    assert told(lab, 0) == []
    lab.link(0, 1)
    lab.pass_ms(100)
    assert (told(lab, 0) == [job.id]) == (replicate == 2)
    lab.link(0, 2)
    lab.pass_ms(100)
    assert told(lab, 0) == [job.id]
    late, _ = lab.try_add(0, b"q", replicate=4)
    assert late is None  # there are no four nodes
    lab.die(1)
    late, _ = lab.try_add(0, b"q", replicate=3, timeout_ms=300)
    assert late is not None
    lab.pass_ms(299)
    assert told(lab, 0) == [job.id]
    lab.pass_ms(1)
    assert told(lab, 0) == [job.id, TIMEOUT]


def test_a_node_that_is_away_for_longer_is_not_waited_for() -> None:
    """R5.3 If so few nodes are expected (K4.4) that n copies cannot be reached, the producer gets
    the error of R1.5 without waiting longer."""
    lab = Lab(2)
    expect(lab, 0, 1)
    lab.die(1)
    job, refused = lab.try_add(0, b"q", replicate=2, timeout_ms=0)
    assert job is not None, refused
    lab.pass_ms(5_000)
    assert told(lab, 0) == []
    expect(lab, 0, 1, False)
    assert told(lab, 0) == [NOREPL]
    assert lab.try_add(0, b"q", replicate=2) == (None, NOREPL)


def test_with_async_the_copy_is_made_when_the_node_is_back() -> None:
    """R1.10 ASYNC sends the same and does not wait; copies for which no node is reachable are made
    when one is (K5.3)."""
    lab = Lab(2)
    expect(lab, 0, 1)
    lab.die(1)
    job, refused = lab.try_add(0, b"q", replicate=2, is_async=1)
    assert job is not None, refused
    lab.pass_ms(1_000)
    assert lab.holders_of(job.id) == [0]
    lab.link(0, 1)
    lab.pass_ms(5_000)
    assert lab.holders_of(job.id) == [0, 1]


def test_one_that_takes_no_copies_waits_too() -> None:
    """R1.5 It then needs n other nodes, otherwise n - 1."""
    lab = Lab(3)
    expect(lab, 0, 1)
    expect(lab, 0, 2)
    lab.die(1)
    lab.die(2)
    lab.leave(0)
    late, refused = lab.try_add(0, b"q", replicate=3)
    assert late is None and refused.endswith(b"I'm leaving the cluster")
    job, refused = lab.try_add(0, b"q", replicate=2, timeout_ms=10_000)
    assert job is not None, refused
    lab.pass_ms(1_000)
    lab.link(0, 1)
    lab.link(0, 2)
    lab.pass_ms(500)
    assert told(lab, 0) == [job.id]
    assert len(lab.holders_of(job.id)) == 2
