"""SPEC R1, R5, K4: an ADDJOB waits for nodes that are away for a short time."""

from __future__ import annotations

import pytest
from test_r_cluster import LOST, NOREPL, TIMEOUT, told

from cluster_lab import Lab
from tuque.core.copies.replicate import on_reach_changed
from tuque.core.model.job import ACTIVE, QUEUED, WAIT_REPL
from tuque.core.node.peers import set_expected
from tuque.core.queues.requeue import on_enqueue, on_working


def expect(lab: Lab, a: int, b: int, is_expected: bool = True) -> None:
    """Node b is away for a short time only, as node a sees it, or no more so."""
    set_expected(lab.nodes[a], lab.slot(a, b), is_expected)
    on_reach_changed(lab.nodes[a])
    lab.run()


@pytest.mark.parametrize("replicate", [2, 3])
def test_a_node_that_restarts_is_waited_for(replicate: int) -> None:
    """K4.4 A node of the cluster is expected if it is not suspected, failed or leaving: it is
    reachable, or may be so soon."""
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
    late, _ = lab.try_add(0, b"q", replicate=3, timeout_ms=310)
    assert late is not None
    lab.pass_ms(309)
    assert told(lab, 0) == [job.id]
    lab.pass_ms(1)
    assert told(lab, 0) == [job.id, TIMEOUT]


def test_a_node_that_is_away_for_longer_is_not_waited_for() -> None:
    """R5.3 If so few nodes are expected (K4.4) that n copies are impossible, the producer gets
    `-NOREPL Too few nodes are left for the copies: the job is withdrawn` without further waiting.
    """
    lab = Lab(2)
    expect(lab, 0, 1)
    lab.die(1)
    job, refused = lab.try_add(0, b"q", replicate=2, timeout_ms=0)
    assert job is not None, refused
    lab.pass_ms(5_000)
    assert told(lab, 0) == []
    expect(lab, 0, 1, False)
    assert told(lab, 0) == [LOST]
    assert lab.try_add(0, b"q", replicate=2) == (None, NOREPL)


def test_with_async_the_copy_is_made_when_the_node_is_back() -> None:
    """R1.10 ASYNC sends the same messages and does not wait. Copies for which no node is reachable
    are made as soon as one is (K5.3).
    """
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


@pytest.mark.parametrize("is_leaving", [False, True])
def test_copies_wait_with_their_producer(*, is_leaving: bool) -> None:
    """Q3.1 In wait-repl: the reply is MOVED with the time that a new copy would wait (R2.5), unless
    another node serves the job.
    """
    lab = Lab(4)
    lab.nodes[0].is_leaving = is_leaving
    expect(lab, 0, 2)
    expect(lab, 0, 3)
    lab.die(2)
    lab.die(3)
    job, refused = lab.try_add(
        0, b"q", replicate=2 if is_leaving else 3, retry_s=1, delay_s=2, timeout_ms=20_000
    )
    assert job is not None, refused
    lab.pass_ms(10_000)
    assert lab.states_of(job.id)[:2] == [WAIT_REPL, ACTIVE]
    lab.link(0, 2)
    lab.link(1, 2)
    lab.pass_ms(700)  # the delay was over before: the others are asked first (Q1.2)
    assert told(lab, 0) == [job.id]
    assert lab.states_of(job.id)[:3].count(QUEUED) == 1
    server = lab.states_of(job.id).index(QUEUED)
    assert lab.get(server) == [job.id]
    lab.pass_ms(900)
    assert QUEUED not in lab.states_of(job.id)


def test_copies_do_not_wait_for_an_origin_that_is_gone() -> None:
    """Q3.1 In wait-repl: the reply is MOVED with the time that a new copy would wait (R2.5), unless
    another node serves the job.
    """
    lab = Lab(3)
    expect(lab, 0, 2)
    lab.die(2)
    job, refused = lab.try_add(0, b"q", replicate=3, retry_s=1, timeout_ms=20_000)
    assert job is not None, refused
    lab.pass_ms(5_000)
    lab.isolate(0)
    lab.pass_ms(2_000)
    assert lab.states_of(job.id)[1] == QUEUED


@pytest.mark.parametrize("delay_s", [0, 20])
@pytest.mark.parametrize("word", ["queued", "delivered", "working", "cut off"])
def test_what_a_copy_began_meanwhile_is_not_begun_again(word: str, delay_s: int) -> None:
    """R3.5 While an ALO job waits for its copies, another node may report that it has queued the
    job (also with ASK) or that a worker has it. The job is then not queued when it has its copies.
    Its due time is the reported one, or the end of its delay if that is later.
    """
    lab = Lab(3)
    expect(lab, 0, 2)
    lab.die(2)
    job, refused = lab.try_add(0, b"q", replicate=3, retry_s=10, delay_s=delay_s, timeout_ms=60_000)
    assert job is not None, refused
    lab.run()
    if word == "cut off":
        lab.cut(0, 1)
    else:
        lab.hold(0, 1)
    copy = lab.nodes[1]
    copy.now_ms = lab.now_ms
    assert on_enqueue(copy, job.id)
    lab.run()
    if word in ("delivered", "working"):
        assert lab.get(1) == [job.id]
        lab.pass_ms(600)
    if word == "working":
        lab.pass_ms(4_000)
        copy.now_ms = lab.now_ms
        assert on_working(copy, job.id) is None
        lab.run()
    began_ms = lab.now_ms
    assert job.state == WAIT_REPL
    if word == "cut off":
        lab.link(0, 1)
        lab.run()
    else:
        lab.release(0, 1)
    lab.link(0, 2)
    lab.link(1, 2)
    lab.pass_ms(100)
    assert told(lab, 0) == [job.id]
    assert lab.states_of(job.id)[0] == ACTIVE
    left_ms = job.qtime_ms - began_ms
    if delay_s:
        assert 15_000 < left_ms <= 20_000
    else:
        assert 9_000 < left_ms < 10_600
    lab.pass_ms(8_000)
    assert lab.states_of(job.id)[0] == ACTIVE
    lab.pass_ms(20_000)
    assert lab.states_of(job.id).count(QUEUED) == 1
