"""SPEC K7 with several nodes: a leaving node gives all away, and may then be thrown away."""

from __future__ import annotations

import pytest

from cluster_lab import Lab, believed, copies
from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.ack_gc import on_unknown_ack
from tuque.core.copies.replicate import on_reach_changed
from tuque.core.model.job import ACKED, ACTIVE, IN_TRANSIT, QUEUED
from tuque.core.msgs import (
    Ask,
    Enqueue,
    Left,
    NeedJobs,
    ReplJob,
    YourJobs,
)
from tuque.core.repair.drain import drain_left, drop, on_left
from tuque.core.repair.node_loss import repair_left


def drain(lab: Lab, i: int, limit_ms: int = 30_000) -> int:
    """Let node i leave and wait until it is safe to stop; how long that took, ms."""
    start_ms = lab.now_ms
    if not lab.nodes[i].is_leaving:
        lab.leave(i)
    lab.run()
    while drain_left(lab.nodes[i]) > 0:
        lab.pass_ms(50)
        assert lab.now_ms - start_ms < limit_ms, f"{drain_left(lab.nodes[i])} left"
    return lab.now_ms - start_ms


@pytest.mark.parametrize("repl", [1, 2, 3])
def test_nothing_is_lost_with_it(repl: int) -> None:
    """K7.3 INFO shows how much is left. At 0 the node is safe to stop: its data may be deleted."""
    lab = Lab(4)
    ids = [lab.add(k % 4, retry_s=60, replicate=repl) for k in range(60)]
    late = [lab.add(k % 4, b"late", delay_s=50, replicate=repl) for k in range(20)]
    once = [lab.add(k % 4, b"once", retry_s=0, replicate=1) for k in range(20)]
    later = [lab.add(k % 4, b"later", retry_s=0, delay_s=50, replicate=1) for k in range(20)]
    assert drain(lab, 1) < 5_000
    for id in ids + late:
        assert len(copies(lab, id)) == repl and 1 not in copies(lab, id)
        assert all(believed(lab, i, id) == copies(lab, id) for i in copies(lab, id))
    for id in once + later:
        assert len(copies(lab, id)) == 1
    assert sum(repair_left(n) for n in lab.nodes) == 0
    lab.die(1)
    lab.pass_ms(100)

    def served(queue: bytes) -> list[bytes]:
        return [id for i in (0, 2, 3) for _ in range(90) for id in lab.get(i, queue)]

    assert sorted(served(b"q")) == sorted(ids)
    assert sorted(served(b"once")) == sorted(once)
    assert served(b"late") == served(b"later") == []
    lab.pass_ms(50_500)
    assert sorted(served(b"late")) == sorted(late)
    assert sorted(served(b"later")) == sorted(later)


def test_it_only_gives() -> None:
    """K7.1 A leaving node takes no copies, serves GETJOB from its own jobs, and does not ask for
    jobs."""
    lab = Lab(3)
    for b in (1, 2):
        lab.hold(0, b)  # nothing of it arrives yet
    id = lab.add(0, is_async=1)
    lab.leave(0)
    assert lab.get(0) == [id]
    lab.release(0, 1)
    lab.release(0, 2)
    lab.log.clear()
    lab.wait(0)
    new = [lab.add(1, replicate=2) for _ in range(10)]
    assert all(copies(lab, id) == [1, 2] for id in new)
    assert not [m for a, _, m in lab.log if isinstance(m, NeedJobs) and a == 0]


def test_queued_jobs_can_be_fetched_elsewhere_at_once() -> None:
    """K7.2 It gives away its jobs. A queued ALO job goes to another node to serve (F2.2)."""
    lab = Lab(3)
    ids = [lab.add(0, retry_s=300, replicate=2) for _ in range(30)]
    lab.log.clear()
    drain(lab, 0)
    assert [m for a, _, m in lab.log if isinstance(m, YourJobs) and a == 0]
    assert sum(n.jobs[id].state == QUEUED for n in lab.nodes for id in ids if id in n.jobs) == 30


def test_only_what_was_asked_counts() -> None:
    """K7.2 Then its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for have replied that they have the job, or all remaining
    nodes if these are fewer. A GOTJOB does not count as a reply, since RELEASE may have crossed it.
    """
    lab = Lab(4)
    id = lab.add(0, replicate=2)
    n = lab.nodes[0]
    n.jobs[id].holders |= 1 << lab.slot(0, 3)  # believed, and not true
    believer = next(i for i in (1, 2, 3) if id in lab.nodes[i].jobs)
    lab.log.clear()
    drain(lab, 0)
    assert len(copies(lab, id)) == 2 and believer in copies(lab, id)
    asked = {b for a, b, m in lab.log if isinstance(m, Ask) and a == 0}
    assert believer in asked
    small = Lab(3)
    id = small.add(0, replicate=3)
    drain(small, 0)
    assert copies(small, id) == [1, 2]
    assert repair_left(small.nodes[1]) == 1  # until there is a third node again
    small.leave(0, False)
    small.pass_ms(1_000)
    assert copies(small, id) == [0, 1, 2]


def test_holders_by_belief_are_asked_when_one_has_left() -> None:
    """K7.5 LEFT: its sender is no longer a holder of these jobs, which are repaired if copies are
    missing (K5.3).

    K5.2 Holders are also asked when one of them is forgotten (K6.2) or has left (K7.5): the holder
    set may name a node that took no copy (R2.4) or added the job for others (R6.1)."""
    lab = Lab(4)
    lab.leave(0)
    id = lab.add(0, replicate=3)
    assert copies(lab, id) == [1, 2, 3]
    assert all(believed(lab, i, id) == [0, 1, 2, 3] for i in (1, 2, 3))
    lab.cut(0, 2)
    lab.leave(0, False)
    lab.nodes[2].peers[lab.slot(2, 0)].is_leaving = True  # the cut kept it from hearing that
    drain(lab, 2)
    lab.pass_ms(5_000)
    assert copies(lab, id) == [0, 1, 3]
    assert all(believed(lab, i, id) == [0, 1, 3] for i in (0, 1, 3))


def test_a_delay_goes_on_elsewhere() -> None:
    """K7.2 Then a first delay that still runs continues at one of them (R8), HOLDERS with the nodes
    that have the job and LEFT go to all holders, and the job is unregistered with cause moved."""
    lab = Lab(3)
    id = lab.add(0, delay_s=30, retry_s=100, replicate=2)
    moved = lab.nodes[0].ledger.moved
    lab.log.clear()
    drain(lab, 0)
    assert lab.nodes[0].ledger.moved == moved + 1
    assert sum(isinstance(m, Enqueue) for _, _, m in lab.log) == 1
    assert {b for a, b, m in lab.log if isinstance(m, Left) and a == 0} >= set(copies(lab, id))
    lab.pass_ms(29_000)
    assert lab.get(1) + lab.get(2) == []
    lab.pass_ms(2_500)
    assert lab.get(1) + lab.get(2) == [id]


def test_a_job_at_a_worker_keeps_its_time() -> None:
    """K7.2 Then its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for have replied that they have the job, or all remaining
    nodes if these are fewer.

    R2.5 A copy made by repair (K5.3) takes the due time of the sender.
    """
    lab = Lab(2)
    id = lab.add(0, retry_s=20, replicate=1)
    assert lab.get(0) == [id]
    lab.pass_ms(5_000)
    drain(lab, 0)
    assert copies(lab, id) == [1]
    left_ms = lab.nodes[1].jobs[id].qtime_ms - lab.now_ms
    assert 13_000 < left_ms <= 16_000
    on_unknown_ack(lab.nodes[0], 1, id)  # the worker's ack comes here, and is passed on (A3.4)
    lab.pass_ms(1_000)
    assert lab.holders_of(id) == []


def test_at_most_once_jobs_pass() -> None:
    """K7.2 AMO jobs are passed on as in F2.3; a delivered one is just unregistered."""
    lab = Lab(2)
    out, there = lab.add(0, retry_s=0, replicate=1), lab.add(0, retry_s=0, replicate=1)
    assert lab.get(0) == [out]
    lab.hold(1, 0)
    lab.leave(0)
    lab.pass_ms(3_000)
    assert lab.nodes[0].jobs[there].flags & IN_TRANSIT
    assert drain_left(lab.nodes[0]) == 1  # not before the other one has confirmed
    lab.release(1, 0)
    drain(lab, 0)
    assert lab.holders_of(out) == [] and lab.holders_of(there) == [1]
    assert lab.get(1) == [there]


def test_acked_jobs_are_collected_first() -> None:
    """K7.2 Acked jobs are collected as usual."""
    lab = Lab(3)
    id = lab.add(0, replicate=3)
    lab.isolate(2)
    assert on_ackjob(lab.nodes[0], id)
    lab.leave(0)
    lab.pass_ms(10_000)
    assert drain_left(lab.nodes[0]) == 1
    lab.heal()
    drain(lab, 0)
    assert lab.states_of(id) == [-1, -1, -1]


def test_a_stop_of_leaving() -> None:
    """K7.4 With `no` the node stops giving away jobs, and counts copies anew (K5.3)."""
    lab = Lab(3)
    lab.nodes[0].limits.repair_per_second = 50
    ids = [lab.add(0, replicate=1) for _ in range(100)]
    lab.leave(0)
    lab.pass_ms(500)
    lab.leave(0, False)
    lab.pass_ms(3_000)
    here = [id for id in ids if 0 in copies(lab, id)]
    assert all(len(copies(lab, id)) >= 1 for id in ids)
    lab.pass_ms(10_000)
    assert [id for id in ids if 0 in copies(lab, id)] == here
    assert lab.nodes[0].losses.leaves == {}
    lab = Lab(3)
    lab.add(0, replicate=3)
    for i in (0, 1):
        lab.forget(i, 2)
        lab.cut(i, 2)
    lab.run()
    assert repair_left(lab.nodes[0]) == 1
    lab.cut(0, 1)
    lab.leave(0)
    lab.leave(0, False)
    lab.run()
    assert repair_left(lab.nodes[0]) == 1


def test_nobody_to_give_to() -> None:
    """K7.2 It gives away its jobs."""
    alone = Lab(1)
    id = alone.add(0, replicate=1)
    alone.leave(0)
    alone.pass_ms(10_000)
    assert drain_left(alone.nodes[0]) == 1 and alone.get(0) == [id]
    lab = Lab(3)
    id = lab.add(0, replicate=2)
    lab.leave(1)
    lab.leave(2)
    lab.leave(0)
    lab.pass_ms(5_000)
    assert id in lab.nodes[0].jobs
    lab.leave(1, False)
    drain(lab, 0)
    assert copies(lab, id) == [1] or copies(lab, id) == [1, 2]
    drain(lab, 2)
    assert copies(lab, id) == [1]


def test_two_leave_at_once() -> None:
    """K7.2 Then its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for have replied that they have the job, or all remaining
    nodes if these are fewer."""
    lab = Lab(4)
    ids = [lab.add(k % 4, replicate=2) for k in range(40)]
    lab.leave(0)
    lab.leave(1)
    drain(lab, 0)
    drain(lab, 1)
    assert all(copies(lab, id) == [2, 3] for id in ids)


def test_left_is_heard() -> None:
    """K7.5 LEFT: its sender is no longer a holder of these jobs, which are repaired if copies are
    missing (K5.3).

    K7.6 LEFT for an acked job does not end its collection"""
    lab = Lab(4)
    id, acked = lab.add(0, replicate=3), lab.add(0, replicate=3)
    others = [i for i in copies(lab, id) if i != 0]
    gone = others[0]
    n = lab.nodes[0]
    last = next(i for i in copies(lab, acked) if i != 0)
    lab.hold(last, 0)
    on_ackjob(n, acked)
    lab.run()
    assert n.jobs[acked].state == ACKED
    on_left(n, lab.slot(0, last), Left([acked]))
    lab.pass_ms(100)
    assert n.jobs[acked].state == ACKED
    lab.release(last, 0)
    lab.run()
    assert acked not in n.jobs
    drop(lab.nodes[gone], lab.nodes[gone].jobs[id])
    for i in (0, others[1]):
        on_left(lab.nodes[i], lab.slot(i, gone), Left([id]))
    assert repair_left(n) == 1
    lab.pass_ms(3_000)
    assert len(copies(lab, id)) == 3
    assert repair_left(n) == 0


def test_a_surplus_copy_that_comes_back_is_not_over() -> None:
    """K7.6 the sender may have received the job again since, and may be delivering it. It stays a
    holder until it replies to SETACK (A5.2), restarts or is forgotten (K6.2)."""
    lab = Lab(3)
    for i in (1, 2):
        lab.hold(i, 0)
    job, _ = lab.try_add(0, b"q", replicate=2)
    assert job is not None
    lab.run()
    quick = lab.holders_of(job.id)[1]
    slow = 3 - quick
    lab.hold(0, slow)
    lab.pass_ms(50)  # a third node is asked, on a slow link
    lab.wait(slow, client=9)
    lab.release(slow, 0)
    lab.run()  # it asks for jobs before it has its copy
    lab.hold(slow, 0)
    lab.release(quick, 0)
    lab.run()
    lab.release(0, slow)
    lab.run()  # the copy, RELEASE, for which it says LEFT, and YOURJOBS
    assert [had.id for had in lab.served[slow][9]] == [job.id]
    lab.hold(0, slow)
    assert on_ackjob(lab.nodes[0], job.id)
    lab.run()
    lab.release(slow, 0)
    lab.run()
    assert (slow, 0, Left([job.id])) in lab.log
    assert copies(lab, job.id) == [slow]
    assert not any(lab.nodes[i].tombs.is_over(job.id) for i in (0, quick))
    lab.release(0, slow)
    lab.run()
    assert lab.holders_of(job.id) == []


def test_a_full_node_is_passed_over() -> None:
    """K7.2 more copies are made (K5.3)"""
    lab = Lab(4)
    ids = [lab.add(0, replicate=1) for _ in range(30)]
    full = lab.nodes[3]
    full.base_bytes = 1_000
    full.limits.memory_bytes = 1_001
    drain(lab, 0, 2_500)
    assert all(copies(lab, id) in ([1], [2]) for id in ids)
    assert not [m for _, b, m in lab.log if isinstance(m, ReplJob) and b == 0]
    lab = Lab(2)
    ids = [lab.add(0, replicate=1) for _ in range(30)]
    full = lab.nodes[1]
    full.base_bytes = 1_000
    full.limits.memory_bytes = 1_001
    lab.log.clear()
    lab.leave(0)
    lab.pass_ms(10_000)
    assert drain_left(lab.nodes[0]) == 30
    assert len(lab.log) < 30 * 100, "it does not insist"
    assert lab.get(0) == ids[:1], "they are queued here as long as nobody takes them"


def test_a_node_that_goes_away_meanwhile() -> None:
    """K7.2 Then its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for have replied that they have the job, or all remaining
    nodes if these are fewer."""
    lab = Lab(4)
    ids = [lab.add(0, replicate=2) for _ in range(30)]
    lab.hold(2, 0)
    lab.leave(0)
    lab.pass_ms(300)
    lab.die(2)
    on_reach_changed(lab.nodes[0])
    lab.pass_ms(3_000)
    lab.revive(2)
    drain(lab, 0)
    lab.pass_ms(5_000)
    for id in ids:
        assert len(copies(lab, id)) >= 2, id
    states = [n.jobs[id].state for n in lab.nodes for id in ids if id in n.jobs]
    assert set(states) <= {ACTIVE, QUEUED}


def test_a_copy_that_was_released_does_not_count() -> None:
    """K7.2 Then its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for have replied that they have the job, or all remaining
    nodes if these are fewer. A GOTJOB does not count as a reply, since RELEASE may have crossed it.
    """
    lab = Lab(4)
    for b in (1, 2, 3):
        lab.hold(0, b)
    id = lab.add(0, replicate=2)
    lab.pass_ms(60)  # a second node is asked for a copy (R4.3)
    asked = [b for b in (1, 2, 3) if lab.wires[0, b]]
    assert len(asked) == 2
    lab.release(0, asked[0])
    lab.run()  # enough: the other one is told to drop its copy, behind the copy itself
    lab.leave(0)
    lab.pass_ms(50)
    for b in (1, 2, 3):
        lab.release(0, b)
    drain(lab, 0)
    assert len(copies(lab, id)) == 2


def test_a_node_that_loads_is_not_safe_to_stop() -> None:
    """K7.3 INFO shows how much is left. At 0 the node is safe to stop: its data may be deleted. The
    number is not 0 while the journal is loading."""
    lab = Lab(2)
    n = lab.nodes[0]
    n.is_loading = True  # it was killed while it gave away, and has read nothing yet
    lab.leave(0)
    assert drain_left(n) == 1
    n.is_loading = False
    assert drain_left(n) == 0
