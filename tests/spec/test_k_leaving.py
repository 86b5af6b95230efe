"""SPEC K7 with several nodes: a leaving node gives all away, and may then be thrown away."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import encode
from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.ack_gc import on_unknown_ack
from tuque.core.copies.replicate import on_reach_changed
from tuque.core.model.job import ACKED, ACTIVE, IN_TRANSIT, QUEUED
from tuque.core.msgs.bus import (
    Ask,
    Enqueue,
    Left,
    NeedJobs,
    ReplJob,
    YourJobs,
)
from tuque.core.repair.drain import drain_left, drop, on_left
from tuque.core.repair.node_loss import repair_left
from world import World
from world_lives import told

Make = Callable[..., World]


def drain(world: World, i: int, limit_ms: int = 30_000) -> int:
    """Let node i leave and wait until it is safe to stop; how long that took, ms."""
    start_ms = world.now_ms
    if not world.node(i).core.is_leaving:
        world.leave(i)
    world.settle()
    while drain_left(world.node(i).core) > 0:
        world.pass_ms(50)
        assert world.now_ms - start_ms < limit_ms, f"{drain_left(world.node(i).core)} left"
    return world.now_ms - start_ms


@pytest.mark.parametrize(("repl", "after_ms"), [(1, 0), (1, 200), (3, 0), (3, 200)])
def test_a_job_at_work_goes_on_at_another_node(make_world: Make, repl: int, after_ms: int) -> None:
    """K7.9 WORKING, PROGRESS, FAIL and UPDATEJOB of a job that a leaving node does not know:
    `-LEAVING`

    W8.2 It gets none when the job passes to another node (K7.2): there the run continues."""
    world = make_world(3, journal="off")
    job_id = world.at(0).add(retry=60, replicate=repl)
    assert world.at(0).get() == [job_id]
    wire = world.wire(0)
    wire("HELLO", 3)
    run = wire("START", job_id)[0][0]
    world.pass_ms(after_ms)
    drain(world, 0)
    assert wire.hear() == b"", "no push that the run is over"
    for words in (("WORKING", job_id, run), ("PROGRESS", job_id, run, "x"), ("FAIL", job_id, run)):
        assert str(wire(*words)).startswith("LEAVING This node leaves"), words
    assert str(wire("UPDATEJOB", job_id, "TTL", "100")).startswith("LEAVING ")
    other = min(world.copies(job_id))
    assert world.wire(other)("WORKING", job_id, run) == 60
    assert world.wire(other)("DONE", job_id, run) == 1


@pytest.mark.parametrize("repl", [1, 2, 3])
def test_nothing_is_lost_with_it(make_world: Make, repl: int) -> None:
    """K7.3 INFO shows how much is left. At 0 the node is safe to stop: its data may be deleted."""
    world = make_world(4, journal="off")
    ids = [world.at(k % 4).add(retry=60, replicate=repl) for k in range(60)]
    late = [world.at(k % 4).add(b"late", delay=50, replicate=repl) for k in range(20)]
    once = [world.at(k % 4).add(b"once", retry=0, replicate=1) for k in range(20)]
    later = [world.at(k % 4).add(b"later", retry=0, delay=50, replicate=1) for k in range(20)]
    assert drain(world, 1) < 5_000
    for id in ids + late:
        assert len(world.copies(id)) == repl and 1 not in world.copies(id)
        assert all(world.believed(i, id) == world.copies(id) for i in world.copies(id))
    for id in once + later:
        assert len(world.copies(id)) == 1
    assert sum(repair_left(n) for n in world.cores) == 0
    world.restart(1)
    world.pass_ms(100)

    def served(queue: bytes) -> list[bytes]:
        return [id for i in (0, 2, 3) for _ in range(90) for id in world.at(i).get(queue)]

    assert sorted(served(b"q")) == sorted(ids)
    assert sorted(served(b"once")) == sorted(once)
    assert served(b"late") == served(b"later") == []
    world.pass_ms(50_500)
    assert sorted(served(b"late")) == sorted(late)
    assert sorted(served(b"later")) == sorted(later)


def test_it_only_gives(make_world: Make) -> None:
    """K7.1 A leaving node takes no copies, serves GETJOB from its own jobs, and does not ask for
    jobs."""
    world = make_world(3, journal="off")
    for b in (1, 2):
        world.hold(0, b)  # nothing of it arrives yet
    id = world.at(0).add(ASYNC=True)
    leave = encode("CLUSTER", "LEAVING", "yes")
    world.at(0).put(leave + encode("GETJOB", "NOHANG", "FROM", "q"))  # in one turn
    assert world.at(0).take_all() == [b"OK", [[b"q", id, b"body"]]]
    world.release(0, 1)
    world.release(0, 2)
    world.forget_heard()
    world.at(0, 7).wait()
    new = [world.at(1).add(replicate=2) for _ in range(10)]
    assert all(world.copies(id) == [1, 2] for id in new)
    assert not [m for a, _, m in world.heard(NeedJobs) if a == 0]


def test_queued_jobs_can_be_fetched_elsewhere_at_once(make_world: Make) -> None:
    """K7.2 It gives away its jobs. A queued ALO job goes to another node to serve (F2.2)."""
    world = make_world(3, journal="off")
    ids = [world.at(0).add(retry=300, replicate=2) for _ in range(30)]
    world.forget_heard()
    drain(world, 0)
    assert [m for a, _, m in world.heard(YourJobs) if a == 0]
    assert sum(n.jobs[id].state == QUEUED for n in world.cores for id in ids if id in n.jobs) == 30


def test_only_what_was_asked_counts(make_world: Make) -> None:
    """K7.2 Its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for, or all if these are fewer, have replied that they have
    the job. A GOTJOB does not count, since RELEASE may have crossed it.
    """
    world = make_world(4, journal="off")
    id = world.at(0).add(replicate=2)
    n = world.node(0).core
    n.jobs[id].holders |= 1 << world.slot(0, 3)  # believed, and not true
    believer = next(i for i in (1, 2, 3) if id in world.node(i).core.jobs)
    world.forget_heard()
    drain(world, 0)
    assert len(world.copies(id)) == 2 and believer in world.copies(id)
    asked = {b for a, b, m in world.heard(Ask) if a == 0}
    assert believer in asked
    small = make_world(3, journal="off")
    id = small.at(0).add(replicate=3)
    drain(small, 0)
    assert small.copies(id) == [1, 2]
    assert repair_left(small.node(1).core) == 1  # until there is a third node again
    small.leave(0, False)
    small.pass_ms(1_000)
    assert small.copies(id) == [0, 1, 2]


def test_holders_by_belief_are_asked_when_one_has_left(make_world: Make) -> None:
    """K7.5 LEFT: its sender is no longer a holder of these jobs, which are repaired if copies are
    missing (K5.3).

    K5.2 Holders are also asked when one of them is forgotten (K6.2) or has left (K7.5).
    """
    world = make_world(4, journal="off")
    world.leave(0)
    id = world.at(0).add(replicate=3)
    assert world.copies(id) == [1, 2, 3]
    assert all(world.believed(i, id) == [0, 1, 2, 3] for i in (1, 2, 3))
    world.cut(0, 2)
    world.leave(0, False)
    world.node(2).core.peers[
        world.slot(2, 0)
    ].is_leaving = True  # the cut kept it from hearing that
    drain(world, 2)
    world.pass_ms(5_000)
    assert world.copies(id) == [0, 1, 3]
    assert all(world.believed(i, id) == [0, 1, 3] for i in (0, 1, 3))


def test_a_delay_goes_on_elsewhere(make_world: Make) -> None:
    """K7.2 Then a first delay that still runs continues at one of them (R8), HOLDERS with the
    nodes that have the job and LEFT go to all holders, to one without a link when it is linked
    again, and the job is unregistered with cause moved.
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(delay=30, retry=100, replicate=2)
    moved = world.node(0).core.ledger.moved
    world.forget_heard()
    drain(world, 0)
    assert world.node(0).core.ledger.moved == moved + 1
    assert sum(isinstance(m, Enqueue) for _, _, m in world.heard()) == 1
    assert {b for a, b, m in world.heard(Left) if a == 0} >= set(world.copies(id))
    world.pass_ms(29_000)
    assert world.at(1).get() + world.at(2).get() == []
    world.pass_ms(2_500)
    assert world.at(1).get() + world.at(2).get() == [id]


def test_a_job_at_a_worker_keeps_its_time(make_world: Make) -> None:
    """K7.2 Its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for, or all if these are fewer, have replied that they have
    the job.

    R2.5 A copy made by repair (K5.3) takes the due time of the sender.
    """
    world = make_world(2, journal="off")
    id = world.at(0).add(retry=20, replicate=1)
    assert world.at(0).get() == [id]
    world.pass_ms(5_000)
    drain(world, 0)
    assert world.copies(id) == [1]
    left_ms = world.node(1).core.jobs[id].qtime_ms - world.now_ms
    assert 13_000 < left_ms <= 16_000
    on_unknown_ack(
        world.node(0).core, 1, id
    )  # the worker's ack comes here, and is passed on (A3.4)
    world.pass_ms(1_000)
    assert world.holders(id) == []


def test_at_most_once_jobs_pass(make_world: Make) -> None:
    """K7.2 Another delivered one is just unregistered."""
    world = make_world(2, journal="off")
    out, there = world.at(0).add(retry=0, replicate=1), world.at(0).add(retry=0, replicate=1)
    assert world.at(0).get() == [out]
    world.hold(1, 0)
    world.leave(0)
    world.pass_ms(3_000)
    assert world.node(0).core.jobs[there].flags & IN_TRANSIT
    assert drain_left(world.node(0).core) == 1  # not before the other one has confirmed
    world.release(1, 0)
    drain(world, 0)
    assert world.holders(out) == [] and world.holders(there) == [1]
    assert world.at(1).get() == [there]


def test_acked_jobs_are_collected_first(make_world: Make) -> None:
    """K7.2 Acked jobs are collected as usual."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3)
    world.isolate(2)
    assert on_ackjob(world.node(0).core, id)
    world.leave(0)
    world.pass_ms(10_000)
    assert drain_left(world.node(0).core) == 1
    world.link()
    drain(world, 0)
    assert world.states(id) == [-1, -1, -1]


def test_a_stop_of_leaving(make_world: Make) -> None:
    """K7.4 With `no` the node stops giving away jobs, and counts copies anew (K5.3)."""
    world = make_world(3, journal="off")
    world.node(0).core.limits.repair_per_second = 50
    ids = [world.at(0).add(replicate=1) for _ in range(100)]
    world.leave(0)
    world.pass_ms(500)
    world.leave(0, False)
    world.pass_ms(3_000)
    here = [id for id in ids if 0 in world.copies(id)]
    assert all(len(world.copies(id)) >= 1 for id in ids)
    world.pass_ms(10_000)
    assert [id for id in ids if 0 in world.copies(id)] == here
    assert world.node(0).core.losses.leaves == {}
    world = make_world(3, journal="off")
    world.at(0).add(replicate=3)
    world.forget(0, 2)
    world.beat()
    for i in (0, 1):
        world.cut(i, 2)
    assert repair_left(world.node(0).core) == 1
    world.cut(0, 1)
    world.leave(0)
    world.leave(0, False)
    world.settle()
    assert repair_left(world.node(0).core) == 1


def test_nobody_to_give_to(make_world: Make) -> None:
    """K7.2 It gives away its jobs."""
    alone = make_world(1, journal="off")
    id = alone.at(0).add(replicate=1)
    alone.leave(0)
    alone.pass_ms(10_000)
    assert drain_left(alone.node(0).core) == 1 and alone.at(0).get() == [id]
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=2)
    world.leave(1)
    world.leave(2)
    world.leave(0)
    world.pass_ms(5_000)
    assert id in world.node(0).core.jobs
    world.leave(1, False)
    drain(world, 0)
    assert world.copies(id) == [1] or world.copies(id) == [1, 2]
    drain(world, 2)
    assert world.copies(id) == [1]


def test_two_leave_at_once(make_world: Make) -> None:
    """K7.2 Its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for, or all if these are fewer, have replied that they have
    the job.
    """
    world = make_world(4, journal="off")
    ids = [world.at(k % 4).add(replicate=2) for k in range(40)]
    world.leave(0)
    world.leave(1)
    drain(world, 0)
    drain(world, 1)
    assert all(world.copies(id) == [2, 3] for id in ids)


def test_left_is_heard(make_world: Make) -> None:
    """K7.5 LEFT: its sender is no longer a holder of these jobs, which are repaired if copies are
    missing (K5.3).

    K7.6 LEFT for an acked job does not end its collection"""
    world = make_world(4, journal="off")
    id, acked = world.at(0).add(replicate=3), world.at(0).add(replicate=3)
    others = [i for i in world.copies(id) if i != 0]
    gone = others[0]
    n = world.node(0).core
    last = next(i for i in world.copies(acked) if i != 0)
    world.hold(last, 0)
    on_ackjob(n, acked)
    world.settle()
    assert n.jobs[acked].state == ACKED
    on_left(n, world.slot(0, last), Left([acked]))
    world.pass_ms(100)
    assert n.jobs[acked].state == ACKED
    world.release(last, 0)
    assert acked not in n.jobs
    drop(world.node(gone).core, world.node(gone).core.jobs[id])
    for i in (0, others[1]):
        on_left(world.node(i).core, world.slot(i, gone), Left([id]))
    assert repair_left(n) == 1
    world.pass_ms(3_000)
    assert len(world.copies(id)) == 3
    assert repair_left(n) == 0


def test_a_surplus_copy_that_comes_back_is_not_over(make_world: Make) -> None:
    """K7.6 the sender may have the job again. It stays a holder until it replies to SETACK
    (A5.2), restarts or is forgotten (K6.2).
    """
    world = make_world(3, journal="off")
    for i in (1, 2):
        world.hold(i, 0)
    job = world.node(0).core.jobs[world.at(0, 1).begin_add(replicate=2)]
    world.settle()
    quick = world.holders(job.id)[1]
    slow = 3 - quick
    world.hold(0, slow)
    world.pass_ms(50)  # a third node is asked, on a slow link
    world.at(slow, 9).wait()
    world.release(slow, 0)
    world.settle()  # it asks for jobs before it has its copy
    world.hold(slow, 0)
    world.release(quick, 0)
    world.release(0, slow)
    world.settle()  # the copy, RELEASE, for which it says LEFT, and YOURJOBS
    assert world.at(slow, 9).served() == [job.id]
    world.hold(0, slow)
    assert on_ackjob(world.node(0).core, job.id)
    world.settle()
    world.release(slow, 0)
    assert (slow, 0, Left([job.id])) in world.heard()
    assert world.copies(job.id) == [slow]
    assert not any(world.node(i).core.tombs.is_over(job.id) for i in (0, quick))
    world.release(0, slow)
    assert world.holders(job.id) == []


def test_a_full_node_is_passed_over(make_world: Make) -> None:
    """K7.2 more copies are made (K5.3)"""
    world = make_world(4, journal="off")
    ids = [world.at(0).add(replicate=1) for _ in range(30)]
    full = world.node(3).core
    full.base_bytes = 1_000
    full.limits.memory_bytes = 1_001
    drain(world, 0, 2_500)
    assert all(world.copies(id) in ([1], [2]) for id in ids)
    assert not [m for _, b, m in world.heard(ReplJob) if b == 0]
    world = make_world(2, journal="off")
    ids = [world.at(0).add(replicate=1) for _ in range(30)]
    full = world.node(1).core
    full.base_bytes = 1_000
    full.limits.memory_bytes = 1_001
    world.forget_heard()
    world.leave(0)
    world.pass_ms(10_000)
    assert drain_left(world.node(0).core) == 30
    assert len(world.heard()) < 30 * 100, "it does not insist"
    assert world.at(0).get() == ids[:1], "they are queued here as long as nobody takes them"


def test_a_node_that_goes_away_meanwhile(make_world: Make) -> None:
    """K7.2 Its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for, or all if these are fewer, have replied that they have
    the job.
    """
    world = make_world(4, journal="off")
    ids = [world.at(0).add(replicate=2) for _ in range(30)]
    world.hold(2, 0)
    world.leave(0)
    world.pass_ms(300)
    world.restart(2)
    on_reach_changed(world.node(0).core)
    world.pass_ms(3_000)
    world.link()
    drain(world, 0)
    world.pass_ms(5_000)
    for id in ids:
        assert len(world.copies(id)) >= 2, id
    states = [n.jobs[id].state for n in world.cores for id in ids if id in n.jobs]
    assert set(states) <= {ACTIVE, QUEUED}


def test_a_copy_that_was_released_does_not_count(make_world: Make) -> None:
    """K7.2 Its other holders are asked (K5.2) and more copies are made (K5.3), until as many
    remaining nodes as REPLICATE asks for, or all if these are fewer, have replied that they have
    the job. A GOTJOB does not count, since RELEASE may have crossed it.
    """
    world = make_world(4, journal="off")
    for b in (1, 2, 3):
        world.hold(0, b)
    id = world.at(0, 1).begin_add(replicate=2)
    world.pass_ms(60)  # a second node is asked for a copy (R4.3)
    asked = [b for b in world.numbers_in(0, world.node(0).core.jobs[id].holders) if b != 0]
    assert len(asked) == 2
    world.release(0, asked[0])
    world.settle()  # enough: the other one is told to drop its copy, behind the copy itself
    world.leave(0)
    world.pass_ms(50)
    for b in (1, 2, 3):
        world.release(0, b)
    drain(world, 0)
    assert len(world.copies(id)) == 2


def test_a_node_that_loads_is_not_safe_to_stop(make_world: Make) -> None:
    """K7.3 INFO shows how much is left. At 0 the node is safe to stop: its data may be deleted.
    It is not 0 while the journal is loading
    """
    world = make_world(2, journal="off")
    n = world.node(0).core
    n.is_loading = True  # it was killed while it gave away, and has read nothing yet
    world.leave(0)
    assert drain_left(n) == 1
    n.is_loading = False
    assert drain_left(n) == 0


def ended(world: World, i: int, count: int, result: str = "r%d", keep_s: int = 999) -> list[bytes]:
    """Jobs of one copy at node i that are done there, with results."""
    ids = [world.at(i).add(retry=60, replicate=1, keep=keep_s) for _ in range(count)]
    for k, id in enumerate(ids):
        assert world.at(i)("DONE", id, "-", "RESULT", result % k if "%" in result else result) == 1
    return ids


def test_kept_results_pass_to_other_nodes(make_world: Make) -> None:
    """K7.10 Kept outcomes (W7.2) go, at the pace of copies (K5.3), as SETACK without holders to
    one of the remaining nodes. One that knows nothing of the job keeps the outcome for the rest
    of KEEP and replies GOTACK(known), as one that has it.
    """
    world = make_world(3)
    ids = ended(world, 0, 60, keep_s=100)
    world.pass_ms(20_000)
    assert drain(world, 0) < 5_000
    info = world.node(0).info("cluster")
    assert (info["cluster_drain_results"], info["cluster_results_here"]) == ("0", "0")
    world.stop(0)
    world.disk(0).lose()
    world.forget(1, 0)
    world.forget(2, 0)
    world.restart(1)
    world.restart(2)
    world.link(1, 2)
    for i in (1, 2):
        found = [told(world, i, id) for id in ids]
        assert [one["result"] for one in found] == [b"r%d" % k for k in range(60)]
    at = [len(world.node(i).core.life.kept) for i in (1, 2)]
    assert sum(at) == 60 and min(at) > 10
    world.pass_ms(100_000)
    assert not world.node(1).core.life.kept and not world.node(2).core.life.kept


@pytest.mark.parametrize("lost", ["reply", "message"])
def test_a_result_that_is_not_confirmed_is_not_given_away(make_world: Make, lost: str) -> None:
    """K7.10 What is not confirmed counts in K7.3."""
    world = make_world(2)
    ids = ended(world, 0, 3)
    world.hold(*((1, 0) if lost == "reply" else (0, 1)))
    world.leave(0)
    world.pass_ms(2_000)
    assert drain_left(world.node(0).core) == 3 + 1, "and its vote"
    assert world.node(0).info("cluster")["cluster_safe_to_stop"] == "no"
    world.sever(0, 1)
    world.link()
    drain(world, 0)
    world.stop(0)
    assert [told(world, 1, id)["state"] for id in ids] == [b"done"] * 3


def test_results_that_no_node_takes(make_world: Make) -> None:
    """K7.10 One that does not keep it, above `results-max-bytes`, at memory level 2, or as it
    leaves, replies GOTACK(unknown). Then another node gets it.

    What all linked nodes have refused three times does not: it is lost with the node, as all of it
    is if no node remains. INFO shows how many these are.
    """
    world = make_world(3)
    mine = ended(world, 1, 5)
    ids = ended(world, 0, 3) + ended(world, 0, 2, "x" * 50_000)
    world.node(1).core.limits.results_bytes = 60_000
    world.node(2).core.limits.results_bytes = 2_000
    drain(world, 0)
    info = world.node(0).info("cluster")
    assert (info["cluster_safe_to_stop"], info["cluster_results_here"]) == ("yes", "1")
    world.stop(0)
    kept = [world.node(i).core.life.kept for i in (1, 2)]
    assert all(id in kept[0] for id in mine), "nothing of its own went for it"
    assert [sum(id in one for one in kept) for id in ids[:3]] == [1, 1, 1]
    assert [sum(id in one for one in kept) for id in ids[3:]] in ([1, 0], [0, 1])


def test_results_without_another_node(make_world: Make) -> None:
    """K7.10 it is lost with the node, as all of it is if no node remains. INFO shows how many these
    are.
    """
    world = make_world(1)
    ended(world, 0, 2)
    world.leave(0)
    info = world.node(0).info("cluster")
    assert (info["cluster_safe_to_stop"], info["cluster_results_here"]) == ("yes", "2")


@pytest.mark.parametrize("how", ["", "repeated", "restart"])
def test_a_run_of_an_at_most_once_job_continues_elsewhere(make_world: Make, how: str) -> None:
    """K7.2 AMO jobs are passed on as in F2.3, also one that a worker has begun: its run continues
    there (F3.8).

    F3.8 An AMO job that a worker has begun (K7.2) is not enqueued: it counts as delivered, and
    its run continues until its worker reports or its TIMELIMIT is over.
    """
    world = make_world(3)
    ids = [world.at(0).add(retry=0, replicate=1, keep=1_000) for _ in range(2)]
    ids.append(world.at(0).add(retry=0, replicate=1, timelimit=500))
    runs = {id: run for id in world.at(0).get(count=3) for run in [world.at(0)("START", id)[0][0]]}
    assert sorted(runs) == sorted(ids)
    if how == "repeated":
        world.hold(1, 0)
        world.hold(2, 0)
        world.leave(0)
        world.pass_ms(1_500)
        assert len(world.node(0).core.jobs) == 3  # not before the others have confirmed
        world.sever(0, 1)
        world.sever(0, 2)
        world.link()
    drain(world, 0)
    world.stop(0)
    assert world.at(1).get() + world.at(2).get() == [], "nobody gets it again"
    if how == "restart":
        world.restart(1)
        world.restart(2)
        world.link(1, 2)
        assert world.at(1).get() + world.at(2).get() == []
    for i in (1, 2):
        assert [told(world, i, id)["state"] for id in ids] == [b"running"] * 3
    for id in ids[:2]:
        here = next(iter(world.copies(id)))
        assert world.at(here)("WORKING", id, runs[id]) == 0
        assert world.at(3 - here)("DONE", id, runs[id], "RESULT", "42") == 0
    world.pass_ms(1_000)
    for i in (1, 2):
        assert [told(world, i, id)["result"] for id in ids[:2]] == [b"42"] * 2
    world.pass_ms(500_000)
    assert told(world, 1, ids[2])["cause"] == b"timeout"
