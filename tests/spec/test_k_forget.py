"""SPEC K6.2, and what leaves with a lost node beside copies: custody, adds, external jobs."""

from __future__ import annotations

import pytest
from test_k_repair import believed, copies, settle

from cluster_lab import Lab
from tuque.core.copies.ack import on_ackjob
from tuque.core.model.job import ACTIVE, IN_TRANSIT, QUEUED
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.deliver import set_pause
from tuque.core.repair.node_loss import repair_left


def test_a_forgotten_node_leaves_all_sets() -> None:
    """K6.2 The node leaves the holders and confirmed sets of every job. Collection (A2) continues
    without it, and jobs that then lack copies are repaired (K5.3)."""
    lab = Lab(4)
    acked, kept = lab.add(0, replicate=4), [lab.add(0, replicate=3) for _ in range(20)]
    lab.die(3)
    on_ackjob(lab.nodes[0], acked)
    lab.pass_ms(5_000)
    assert lab.holders_of(acked) == [0, 1, 2]
    for i in (0, 1, 2):
        lab.forget(i, 3)
    lab.run()
    assert lab.holders_of(acked) == []
    settle(lab)
    for id in kept:
        assert copies(lab, id) == [0, 1, 2]
        assert all(believed(lab, i, id) == [0, 1, 2] for i in (0, 1, 2))


@pytest.mark.parametrize("why", ["took none", "added it for others"])
def test_holders_by_belief_are_asked_when_one_is_forgotten(why: str) -> None:
    """K5.2 Holders are also asked when one of them is forgotten (K6.2) or has left (K7.5): the
    holder set may name a node that took no copy (R2.4) or added the job for others (R6.1)."""
    lab = Lab(4)
    if why == "took none":
        for i in (1, 2):
            set_pause(lab.nodes[i], b"q", PAUSE_IN)
        ids = [lab.add(0, replicate=2) for _ in range(20)]
        lab.pass_ms(5_000)
        id = next(id for id in ids if len(believed(lab, 3, id)) > 2)
        for i in (1, 2):
            set_pause(lab.nodes[i], b"q", 0)
    else:
        lab.leave(0)
        id = lab.add(0, replicate=2)
        lab.leave(0, False)
    *_, gone = had = copies(lab, id)
    assert len(had) == 2 < len(believed(lab, gone, id))
    lab.isolate(gone)
    stay = [i for i in range(4) if i != gone]
    for i in stay:
        lab.forget(i, gone)
    settle(lab)
    have = [i for i in copies(lab, id) if i != gone]
    assert len(have) == 2
    assert all(believed(lab, i, id) == have for i in have)
    assert sum(repair_left(lab.nodes[i]) for i in stay) == 0


def test_custody_given_to_a_forgotten_node_stays_there() -> None:
    """K6.2 AMO jobs in transit to it stay as they are until they expire: it may have delivered
    them.

    K5.1 AMO jobs in transit to the node stay as they are (F2.3)."""
    for is_forgotten in (True, False):
        lab = Lab(3)
        lab.wait(1)
        lab.hold(1, 0)
        id = lab.add(0, retry_s=0, replicate=1, ttl_s=600)
        assert lab.nodes[0].jobs[id].flags & IN_TRANSIT
        lab.die(1)
        if is_forgotten:
            lab.forget(0, 1)
            assert lab.nodes[0].custody == {}
        else:
            lab.revive(1)
        lab.wait(2, client=9)
        if not is_forgotten:
            lab.wait(1, client=9)
        lab.pass_ms(60_000)
        job = lab.nodes[0].jobs[id]
        assert job.flags & IN_TRANSIT and job.state == ACTIVE
        assert lab.served[2] == {} and lab.get(0) == []
        lab.pass_ms(600_000)
        assert lab.holders_of(id) == []


def test_what_came_from_a_lost_node_may_be_passed_on() -> None:
    """F2.3 If it restarted without memory, AMO jobs in transit to it stay as they are until they
    expire.

    Those that came from it are this node's alone."""
    lab = Lab(3)
    lab.wait(1, client=5)
    lab.hold(1, 0)
    id = lab.add(0, retry_s=0, replicate=1)
    other = lab.nodes[1].jobs[id]
    assert other.holders != 1
    lab.die(0)
    lab.revive(0)
    lab.run()
    assert other.holders == 1


def test_adds_go_on_without_it() -> None:
    """K6.2 The node leaves the holders and confirmed sets of every job."""
    lab = Lab(5)
    for k in (2, 3, 4):
        lab.hold(k, 0)
    job, _ = lab.try_add(0, b"q", replicate=4, timeout_ms=60_000)
    assert job is not None
    lab.pass_ms(500)
    assert job.confirmed >> lab.slot(0, 1) & 1
    lab.forget(0, 1)
    lab.cut(0, 1)
    lab.run()
    assert job.confirmed >> lab.slot(0, 1) & 1 == 0
    assert job.holders >> lab.slot(0, 1) & 1 == 0
    lab.release(2, 0)
    lab.release(3, 0)
    lab.pass_ms(200)
    assert lab.told[0] == []
    lab.release(4, 0)
    lab.pass_ms(200)
    assert [added.error for added in lab.told[0]] == [None]


def test_an_external_job_finds_another_server() -> None:
    """K5.1 If the node says that it began without a journal, and another incarnation of it was
    known, it leaves the holders of every unacked job.

    R6.2 If the chosen node is no longer linked, another one is chosen, but never for an AMO job.
    """
    lab = Lab(4)
    lab.nodes[0].is_leaving = True
    lab.hold(1, 0)
    lab.hold(2, 0)
    lab.hold(3, 0)
    job, _ = lab.try_add(0, b"q", replicate=2, retry_s=1_000)
    assert job is not None
    lab.run()
    had = [k for k in (1, 2, 3) if job.id in lab.nodes[k].jobs]
    for k in (1, 2, 3):
        lab.release(k, 0)
    for k in (1, 2, 3):
        lab.hold(0, k)  # ENQUEUE does not arrive
    lab.run()
    server = next(k for k in had if lab.slot(0, k) == lab.nodes[0].adding[job.id].server_slot)
    for k in (1, 2, 3):
        if k != server:
            lab.cut(0, k)
    lab.die(server)
    lab.link(0, server)
    lab.pass_ms(5_000)
    assert job.id not in lab.nodes[0].jobs
    assert QUEUED in lab.states_of(job.id)
