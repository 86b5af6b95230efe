"""SPEC Q11, Q12: who serves a job after a restart, and after a link was down (Q3.3, Q4.5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_a_cluster import sent

from tuque.core.copies.holders import send_holders
from tuque.core.copies.requeue_messages import on_willqueue
from tuque.core.model.job import ACTIVE, HELD, QUEUED, STAND_QUEUED, Job
from tuque.core.msgs.bus import (
    Ask,
    Moved,
    Queued,
    WillQueue,
    Working,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import rank, set_due, set_reachable
from tuque.core.queues.procedures import REQUEUE_RETRY, requeue
from tuque.core.queues.requeue import (
    on_dequeue,
    on_enqueue,
    on_nack,
    on_working,
)
from tuque.core.repair.claims import answer_claim, on_away
from tuque.core.tables.repair import SETTLE
from world import World

Make = Callable[..., World]

TIMEOUT_MS = 5_000  # cluster-node-timeout


def nodes(make_world: Make, count: int, journal: str = "everysec") -> World:
    """A world with that timeout."""
    return make_world(count, journal=journal, cluster_node_timeout=TIMEOUT_MS)


def core(world: World, i: int) -> Node:
    """The core of node i."""
    return world.node(i).core


def is_linked(world: World, i: int, other: int) -> bool:
    """Whether node i has a link to the other one, as far as it knows."""
    return core(world, i).peers[world.slot(i, other)].is_linked


def job_at(world: World, i: int, id: bytes) -> Job:
    """The record of the job at node i."""
    return core(world, i).jobs[id]


def outage(world: World, down_ms: int) -> None:
    """All nodes are killed at once; they are back, without links."""
    for i in world.numbers():
        world.isolate(i)
    for i in world.numbers():
        world.kill(i)
    world.pass_ms(down_ms)
    for i in world.numbers():
        world.start(i)


def queued_at(world: World, id: bytes) -> list[int]:
    """The nodes that have the job in their queues."""
    return [i for i, state in enumerate(world.states(id)) if state == QUEUED]


def restart(world: World, i: int, down_ms: int = 0) -> None:
    """One node is killed, and is back without links."""
    world.isolate(i)
    world.pass_ms(down_ms)
    world.restart(i)


def test_a_killed_cluster_queues_each_job_once(make_world: Make) -> None:
    """Q11.4 When no reply is missing, a job that was queued before the restart is queued."""
    world = nodes(make_world, 3)
    ids = [world.at(0).add(replicate=3, retry=10) for _ in range(40)]
    outage(world, 13_000)
    world.settle()
    assert all(queued_at(world, id) == [] for id in ids)
    world.link()
    world.settle()
    assert all(queued_at(world, id) == [0] for id in ids)  # at once, where it was
    world.pass_ms(60_000)
    assert all(queued_at(world, id) == [0] for id in ids)


def test_a_restarted_node_asks_before_it_queues(make_world: Make) -> None:
    """Q11.1 A loaded ALO job with other holders is held if it was queued or its due time has
    passed, any other one when WILLQUEUE would be due (Q1). A held job is active, and its only
    timer is its expiry.
    """
    world = nodes(make_world, 3)
    ids = [world.at(0).add(replicate=3, retry=3) for _ in range(20)]
    restart(world, 1, 4_500)
    world.pass_ms(TIMEOUT_MS - 100)
    assert all(world.states(id)[1] == ACTIVE for id in ids)
    assert all(job_at(world, 1, id).marks & HELD for id in ids)
    world.link()
    world.pass_ms(10_000)
    assert all(queued_at(world, id) == [0] for id in ids)


def test_at_the_latest_after_a_node_timeout(make_world: Make) -> None:
    """Q11.2 For a holder without a link it waits until `cluster-node-timeout` after the load,
    unless a linked node reports that one as suspected or failed.
    """
    world = nodes(make_world, 3)
    id, other = world.at(0).add(replicate=3, retry=30), world.at(0).add(replicate=1, retry=30)
    restart(world, 0)
    assert queued_at(world, other) == [0]  # nobody else has it
    assert world.at(0).get() == [other]
    world.at(0, 7).wait()
    world.pass_ms(TIMEOUT_MS - 10)
    assert world.at(0, 7).served() == []
    world.pass_ms(20)
    assert world.at(0, 7).served() == [id]


def test_who_is_said_to_be_away_is_not_waited_for(make_world: Make) -> None:
    """Q11.2 For a holder without a link it waits until `cluster-node-timeout` after the load,
    unless a linked node reports that one as suspected or failed.
    """
    world = nodes(make_world, 3)
    id = world.at(0).add(replicate=3, retry=30)
    restart(world, 0)
    world.link(0, 1)
    world.settle()
    assert queued_at(world, id) == []
    on_away(core(world, 0), world.slot(0, 2))
    world.settle()
    assert queued_at(world, id) == [0]


def test_a_worker_elsewhere_keeps_its_job(make_world: Make) -> None:
    """Q12.2 WORKING with the time left, if a worker has the job as far as this node knows."""
    world = nodes(make_world, 3)
    id = world.at(0).add(replicate=3, retry=10)
    world.pass_ms(25_000)  # the others were told that 0 has it queued; their journals were not
    assert world.at(0).get() == [id]
    world.pass_ms(1_000)
    restart(world, 1)
    assert job_at(world, 1, id).marks & HELD
    world.forget_heard()
    world.link()
    world.settle()
    assert (0, 1) in sent(world, Working)
    assert not job_at(world, 1, id).marks & HELD
    assert 8_900 < job_at(world, 1, id).qtime_ms - world.now_ms < 10_100


def test_hearsay_of_a_worker_counts_after_a_restart(make_world: Make) -> None:
    """Q12.2 WORKING with the time left, if a worker has the job as far as this node knows."""
    world = nodes(make_world, 3)
    id = world.at(0).add(replicate=3, retry=10)
    world.pass_ms(25_000)
    assert world.at(0).get() == [id]
    world.pass_ms(1_000)
    world.isolate(0)  # who handed it out is gone
    world.restart(1)
    world.forget_heard()
    world.link(1, 2)
    world.pass_ms(TIMEOUT_MS + 2_000)
    assert (2, 1) in sent(world, Working)
    assert queued_at(world, id) == []
    world.pass_ms(4_000)
    assert len(set(queued_at(world, id)) - {0}) == 1


def test_a_due_time_of_the_journal_may_be_old(make_world: Make) -> None:
    """Q11.1 any other one when WILLQUEUE would be due (Q1)."""
    world = nodes(make_world, 3)
    id = world.at(0).add(replicate=3, retry=10)
    world.pass_ms(6_000)
    assert world.at(0).get() == [id]
    world.pass_ms(1_000)
    world.isolate(0)
    world.restart(1)
    world.link(1, 2)
    world.settle()
    assert not job_at(world, 1, id).marks & HELD  # its journal says that it is due in 3 s
    world.pass_ms(6_000)
    assert queued_at(world, id) == []
    world.pass_ms(6_000)
    assert len(set(queued_at(world, id)) - {0}) == 1


def test_a_due_time_that_is_not_over_elsewhere(make_world: Make) -> None:
    """Q12.2 MOVED with the time left, if the sender's job is only due and the due time here is not
    over."""
    world = nodes(make_world, 3)
    id = world.at(0).add(replicate=3, retry=10)
    world.pass_ms(12_000)
    restart(world, 1)
    world.isolate(0)
    world.forget_heard()
    world.link(1, 2)
    world.settle()
    assert (2, 1) in sent(world, Moved)
    left_ms = job_at(world, 2, id).qtime_ms - world.now_ms
    assert left_ms < job_at(world, 1, id).qtime_ms - world.now_ms < left_ms + 500


@pytest.mark.parametrize("by", ["ADDJOB", "NACK", "RELEASE", "FAIL", "RELEASE -"])
def test_a_delay_ends_in_time_after_a_restart(make_world: Make, by: str) -> None:
    """Q12.1 Each id has how close the sender is to delivering it: queued; held and was queued,
    or held with a delay that ends here; held and due.
    """
    world = nodes(make_world, 3)
    wire = world.at(0)
    id = wire.add(replicate=3, retry=60, delay=8 if by == "ADDJOB" else 0)
    if by != "ADDJOB":
        assert wire.get() == [id]
    if by == "NACK":
        assert wire("NACK", "DELAY", "8", id) == 1
    elif by == "RELEASE -":
        assert wire("RELEASE", "DELAY", "8", id, "-") == 1
    elif by != "ADDJOB":
        run = wire("START", id)[0][0]
        words = (by, "DELAY", "8", id, run) if by == "RELEASE" else (by, id, run, "DELAY", "8")
        wire(*words)
    world.pass_ms(5_000)
    restart(world, 0)
    world.link()
    world.pass_ms(2_900)
    assert queued_at(world, id) == []
    world.pass_ms(150)
    assert queued_at(world, id) == [0]


@pytest.mark.parametrize("command", ["enqueue", "nack", "working", "dequeue"])
def test_commands_end_a_hold(make_world: Make, command: str) -> None:
    """Q11.3 Any message or command that queues the job or sets its due time ends the hold."""
    world = nodes(make_world, 2)
    id = world.at(0).add(replicate=2, retry=30)
    assert world.at(0).get() == [id]
    on_enqueue(core(world, 0), id)
    world.settle()
    restart(world, 0)
    n = core(world, 0)
    assert job_at(world, 0, id).marks & HELD
    if command == "enqueue":
        assert on_enqueue(n, id)
    elif command == "nack":
        assert on_nack(n, id, 0)
    elif command == "working":
        assert on_working(n, id) is None
    else:
        assert not on_dequeue(n, id)  # it is not queued
        return
    assert not job_at(world, 0, id).marks & HELD
    assert queued_at(world, id) == ([] if command == "working" else [0])


@pytest.mark.long
def test_links_settle_who_serves_a_job(make_world: Make) -> None:
    """Q12.3 If none is sent, the sender serves the job: this node dequeues it, and its due time
    becomes the later of its old value and now + retry + J.
    """
    world = nodes(make_world, 3, journal="off")
    ids = [world.at(0).add(replicate=3, retry=2) for _ in range(510)]
    for i in range(3):
        world.isolate(i)
    world.pass_ms(2_600)
    assert all(queued_at(world, id) == [0, 1, 2] for id in ids)
    world.forget_heard()
    world.link()
    world.settle()
    assert all(len(queued_at(world, id)) == 1 for id in ids)
    assert {queued_at(world, id)[0] for id in ids} == {0, 1, 2}
    asked = [len(m.ids) for _, _, m in world.heard(Ask)]
    assert max(asked) <= 500
    for id in ids:
        for i in range(3):
            job = job_at(world, i, id)
            assert job.state == QUEUED or job.qtime_ms >= world.now_ms + 2_000
    world.pass_ms(3_000)
    assert all(len(queued_at(world, id)) == 1 for id in ids)


@pytest.mark.parametrize("pass_ms", [8_000, 15_000])
def test_who_gives_way_waits_a_retry_time(make_world: Make, pass_ms: int) -> None:
    """Q12.3 If none is sent, the sender serves the job: this node dequeues it, and its due time
    becomes the later of its old value and now + retry + J.
    """
    world = nodes(make_world, 2, journal="off")
    id = world.at(0).add(replicate=2, retry=10)
    world.isolate(1)
    world.pass_ms(pass_ms)
    if pass_ms < 10_000:
        here = 1  # its copy waits
        assert queued_at(world, id) == [0]
    else:
        here = min((0, 1), key=lambda i: rank(id, core(world, i).node_id))
        assert queued_at(world, id) == [0, 1]
    there = 1 - here
    answer_claim(core(world, here), world.slot(here, there), job_at(world, here, id), STAND_QUEUED)
    job = job_at(world, here, id)
    assert job.state == ACTIVE
    assert world.now_ms + 10_000 <= job.qtime_ms <= world.now_ms + 10_500


def test_what_was_known_before_is_not_asked_again(make_world: Make) -> None:
    """Q12.1 each ALO job that it may have and that was queued here after the newest heartbeat
    that it answered on the last link (K4.1).
    """
    world = nodes(make_world, 2, journal="off")
    old = world.at(0).add(replicate=2, retry=600)
    world.pass_ms(2 * TIMEOUT_MS + 1_000)
    new = world.at(0).add(replicate=2, retry=600)
    world.isolate(1)
    world.forget_heard()
    world.link()
    world.settle()
    asked = [id for a, _, m in world.heard(Ask) if a == 0 for id in m.ids]
    assert asked == [new] and old != new


def test_what_was_lost_on_a_link_that_ended_late_is_asked(make_world: Make) -> None:
    """Q12.1 each ALO job that it may have and that was queued here after the newest heartbeat
    that it answered on the last link (K4.1).
    """
    world = nodes(make_world, 2, journal="off")
    id = world.at(0).add(replicate=2, retry=1)
    world.pass_ms(400)
    world.hold(0, 1)
    world.hold(1, 0)
    world.pass_ms(2 * TIMEOUT_MS - 1_000)
    assert queued_at(world, id) == [0, 1]
    world.release(0, 1)  # node 1 hears of node 0, and keeps the link
    world.hold(0, 1)
    world.pass_ms(3_000)
    assert not is_linked(world, 0, 1) and is_linked(world, 1, 0)
    world.link()
    world.pass_ms(100)
    assert len(queued_at(world, id)) == 1


@pytest.mark.parametrize("began", [[1], [0, 1]])
def test_a_node_that_began_empty_may_have_queued_jobs_since(
    make_world: Make, began: list[int]
) -> None:
    """Q12.1 A node that this one links for the first time since its start is asked about all of
    them, also if it began without a journal. One that comes back without a journal asks itself.
    """
    world = nodes(make_world, 3, journal="off")
    world.cut(0, 1)
    for i in began:
        restart(world, i)
    world.link(0, 2)
    world.link(1, 2)
    id = world.at(2).add(replicate=3, retry=2)
    world.isolate(2)
    world.pass_ms(10_000)
    assert queued_at(world, id) == [0, 1, 2]
    world.link(0, 1)
    world.pass_ms(100)
    assert len(queued_at(world, id)) == 2


@pytest.mark.parametrize("is_full", [False, True])
def test_a_copy_that_others_reported_before_the_link_is_settled(
    make_world: Make, is_full: bool
) -> None:
    """K5.1 What others reported of it before this node met it stays as well, and the node is
    asked.
    """
    world = nodes(make_world, 3, journal="off")
    world.isolate(0)
    restart(world, 1)
    world.link(1, 2)
    add = ("ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 2, "ASYNC")
    id = world.at(2)(*(str(word) for word in add))
    world.settle()
    if is_full:
        others = (b"%d" % i for i in range(100_000))
        core(world, 0).losses.named[world.slot(0, 1)] = dict.fromkeys(others)
    world.link(0, 2)
    world.until(lambda: world.copies(id) == [0, 1, 2])
    assert world.believed(1, id) == [1, 2], "node 0 has no link to node 1"
    job_at(world, 0, id).repl = 2  # nor a reason to give it a copy
    world.isolate(2)
    world.pass_ms(10_000)
    assert queued_at(world, id) == [0, 1, 2]
    world.link(0, 1)
    world.pass_ms(100)
    assert world.believed(0, id) == ([0, 2] if is_full else [0, 1, 2])
    assert len(queued_at(world, id)) == (3 if is_full else 2)


@pytest.mark.parametrize("is_linked", [True, False])
def test_holders_that_a_third_node_names_settle_who_serves(
    make_world: Make, is_linked: bool
) -> None:
    """Q12.4 If another node names a new holder of an ALO job that is queued here, that one is asked
    too, at once or when it is linked.
    """
    world = nodes(make_world, 3, journal="off")
    id = world.at(0).add(replicate=3, retry=2)
    for i, known in ((0, (0, 2)), (1, (1, 2))):
        job_at(world, i, id).holders = sum(1 << world.slot(i, k) for k in known)
    third = core(world, 2)
    set_due(third, third.jobs[id], world.now_ms + 600_000)
    world.isolate(2)
    world.pass_ms(10_000)
    assert queued_at(world, id) == [0, 1], "they are linked, and do not know of each other"
    if not is_linked:
        world.cut(0, 1)
    world.link(0, 2)
    send_holders(third, third.jobs[id], 1 << world.slot(2, 0))
    world.settle()
    assert world.believed(0, id) == [0, 1, 2]
    if not is_linked:
        assert queued_at(world, id) == [0, 1]
        world.link(0, 1)
        world.settle()
    assert len(queued_at(world, id)) == 1


@pytest.mark.long
def test_a_link_that_ends_again_is_settled_by_the_next(make_world: Make) -> None:
    """Q12.1 ASK goes to the node for each held job that it may have, and for each ALO job that
    it may have and that was queued here after the newest heartbeat that it answered on the last
    link (K4.1).
    """
    world = nodes(make_world, 2, journal="off")
    ids = [world.at(0).add(replicate=2, retry=2) for _ in range(600)]
    world.isolate(1)
    world.pass_ms(30_000)
    assert all(queued_at(world, id) == [0, 1] for id in ids)
    world.join(0, 1)
    assert [walk.kind for walk in core(world, 0).losses.walks].count(SETTLE) == 1
    assert world.step()
    world.cut(0, 1)
    assert [walk.kind for walk in core(world, 0).losses.walks].count(SETTLE) == 0
    world.pass_ms(30_000)
    world.link()
    world.pass_ms(100)
    assert all(len(queued_at(world, id)) == 1 for id in ids)


def test_a_loading_node_is_asked_when_it_is_loaded(make_world: Make) -> None:
    """Q11.2 It waits for a reply of each other holder that is linked and not suspected, failed
    or loading.
    """
    world = nodes(make_world, 2)
    id = world.at(0).add(replicate=2, retry=30)
    restart(world, 0)
    other = core(world, 1)
    other.is_loading = True
    world.link(0, 1)
    world.settle()
    n, slot = core(world, 0), world.slot(0, 1)
    set_reachable(n, slot, False)
    world.pass_ms(500)
    assert queued_at(world, id) == []
    other.is_loading = False
    set_reachable(n, slot, True)
    world.settle()
    assert queued_at(world, id) == [0]


def test_a_question_without_stands_moves_no_job(make_world: Make) -> None:
    """K5.2 LACK replies with the ids that are unknown there; its sender leaves the holders of these
    jobs."""
    world = nodes(make_world, 2)
    id = world.at(0).add(replicate=2, retry=30)
    world.forget_heard()
    world.send(0, 1, Ask(1, [id], False, b""))
    assert sent(world, Queued) == [] and sent(world, Working) == []
    assert world.states(id) == [QUEUED, ACTIVE]


def test_a_question_moves_no_job_that_is_served_once(make_world: Make) -> None:
    """Q12.1 and for each ALO job that it may have"""
    world = nodes(make_world, 2, journal="off")
    id = world.at(0).add(replicate=1, retry=0)
    world.forget_heard()
    world.send(1, 0, Ask(1, [id], False, bytes([STAND_QUEUED])))
    assert sent(world, Queued) == [] and sent(world, Working) == []
    assert world.states(id) == [QUEUED, -1], "it goes to nobody but by custody"


def test_a_node_where_the_worker_said_working_answers(make_world: Make) -> None:
    """Q3.3 Queued here: QUEUED goes to all other holders. Delivered here less than retry ago, or
    postponed by WORKING here: DELIVERED with the time left goes to the sender.
    """
    world = nodes(make_world, 3, journal="off")
    id = world.at(0).add(replicate=3, retry=10)
    assert world.at(0).get() == [id]
    world.pass_ms(8_000)
    world.isolate(1)
    assert on_working(core(world, 1), id) is None  # nobody hears of it
    world.link()
    world.pass_ms(8_000)
    assert world.states(id) == [ACTIVE] * 3
    world.pass_ms(4_000)
    assert sorted(world.states(id)) == [ACTIVE, ACTIVE, QUEUED]


@pytest.mark.parametrize("client", ["", "NACK", "ENQUEUE"])
def test_a_worker_keeps_its_job(make_world: Make, client: str) -> None:
    """Q4.5 if the sender has the job queued, not for NACK, RELEASE or ENQUEUE, and a worker got it
    from this node or sent WORKING here
    """
    world = nodes(make_world, 2, journal="off")
    id = world.at(0).add(replicate=2, retry=10)
    assert world.at(0).get() == [id]
    world.pass_ms(1_000)
    if client == "NACK":
        assert on_nack(core(world, 1), id, 0)
    elif client == "ENQUEUE":
        assert on_enqueue(core(world, 1), id)
    else:
        requeue(core(world, 1), job_at(world, 1, id), REQUEUE_RETRY)
    world.settle()
    assert world.states(id) == [ACTIVE, QUEUED if client else ACTIVE]
    assert [n.jobs[id].deliveries for n in world.cores] == [client != "NACK"] * 2
    world.pass_ms(8_900)
    assert world.states(id) == [ACTIVE, QUEUED if client else ACTIVE]
    world.pass_ms(200)
    assert QUEUED in world.states(id)


@pytest.mark.parametrize("replicate", [2, 3])
def test_who_gave_it_is_waited_for(make_world: Make, replicate: int) -> None:
    """Q11.5 While another holder without a link is waited for, the job is held again at the due
    time that MOVED, DELIVERED or WORKING set.
    """
    # Q11.6: with two copies node 0 or 1 has it from the other one
    world = nodes(make_world, 3)
    ids = [world.at(2).add(replicate=replicate, retry=9, delay=1) for _ in range(20)]
    world.pass_ms(1_600)
    assert sorted(world.at(2).get()[0] for _ in ids) == sorted(ids)
    world.isolate(0)
    world.isolate(1)
    world.pass_ms(6_000)
    world.restart(0)
    world.restart(1)
    world.link(0, 1)
    world.pass_ms(TIMEOUT_MS - 1_000)  # all copies are due, and node 2 is not there yet
    assert all(QUEUED not in world.states(id)[:2] for id in ids)
    world.pass_ms(2_000)
    assert all(QUEUED in world.states(id) for id in ids)
    world.link()
    world.pass_ms(2_000)
    assert all(len(queued_at(world, id)) == 1 for id in ids)


@pytest.mark.parametrize("over_ms", [-1, 0, 3_000])
def test_who_asks_is_put_off_while_the_giver_is_awaited(make_world: Make, over_ms: int) -> None:
    """Q11.6 While a job that no worker got from this node waits for a holder without a link,
    WILLQUEUE gets MOVED with the time until Q11.2 ends.
    """
    world = nodes(make_world, 3)
    id = world.at(2).add(replicate=3, retry=20, delay=1)
    world.isolate(0)
    world.restart(0)
    world.link(0, 1)
    world.settle()
    world.forget_heard()
    until_ms = core(world, 0).held.until_ms
    world.jump_ms(until_ms + over_ms - world.now_ms)  # it stood still; no tick was yet
    n = core(world, 0)
    on_willqueue(n, world.slot(0, 1), WillQueue([id]))
    world.settle()
    assert [m.left_ms for _, _, m in world.heard(Moved)] == [1] * (over_ms < 0)


@pytest.mark.parametrize("delay_ms", [0, 6_000])
def test_what_a_worker_said_outlives_a_restart(make_world: Make, delay_ms: int) -> None:
    """Q11.7 A loaded job that counts as delivered and is due later is at a worker of this node
    for Q3.3, Q4.5 and Q12.2.
    """
    world = nodes(make_world, 3)
    id = world.at(0).add(replicate=3, retry=10)
    assert world.at(0).get() == [id]
    world.pass_ms(8_000)
    world.isolate(1)
    assert on_working(core(world, 1), id) is None  # nobody hears of it
    world.settle()
    world.pass_ms(delay_ms)  # after 6 s they have queued it
    world.restart(1)
    world.link()
    world.settle()
    assert queued_at(world, id) == []
    world.pass_ms(8_000 - delay_ms)
    assert queued_at(world, id) == []
    world.pass_ms(4_000 + delay_ms)
    assert len(queued_at(world, id)) == 1


def test_a_job_of_an_older_journal_is_left_to_the_worker_that_said_working(
    make_world: Make,
) -> None:
    """Q11.7 A loaded job that counts as delivered and is due later is at a worker of this node
    for Q3.3, Q4.5 and Q12.2.
    """
    world = nodes(make_world, 3)
    id = world.at(0).add(replicate=3, retry=20)
    world.isolate(0)  # its journal has the job as queued
    world.pass_ms(21_000)
    (server,) = set(queued_at(world, id)) - {0}
    other = 3 - server
    assert world.at(server).get() == [id]
    world.pass_ms(1_000)
    assert on_working(core(world, other), id) is None
    world.settle()
    world.isolate(server)
    world.restart(other)
    world.restart(0)
    world.link(0, other)
    world.pass_ms(15_000)
    assert QUEUED not in [world.states(id)[i] for i in (0, other)]
    world.pass_ms(8_000)
    assert QUEUED in [world.states(id)[i] for i in (0, other)]
