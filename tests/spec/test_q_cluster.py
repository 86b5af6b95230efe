"""SPEC Q with several nodes: who holds a job hears when it is queued, delivered or worked on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_a_cluster import sent

from refusals import words_of
from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.federation import send_jobs
from tuque.core.copies.requeue_messages import rank
from tuque.core.model.job import ACTIVE, QUEUED, Job
from tuque.core.model.stats import GC_ACKED
from tuque.core.msgs.bus import (
    COUNT_DELIVERY,
    COUNT_NACK,
    HAS_QUEUED,
    AnyMessage,
    Delivered,
    Queued,
    SetAck,
    WillQueue,
    Working,
)
from tuque.core.node.peers import say
from tuque.core.queues.procedures import dequeue, unregister
from tuque.core.queues.requeue import (
    on_dequeue,
    on_enqueue,
    on_nack,
    on_working,
)
from world import World

Make = Callable[..., World]


def tell(world: World, a: int, b: int, message: AnyMessage) -> None:
    """Node a says something to node b."""
    assert say(world.node(a).core, world.slot(a, b), message)
    world.settle()


def job_at(world: World, i: int, id: bytes) -> Job:
    """The record of the job at node i."""
    return world.node(i).core.jobs[id]


def queue_silently(world: World, i: int, id: bytes) -> None:
    """Node i has the job in its queue, and nobody was told."""
    n = world.node(i).core
    on_enqueue(n, id)
    for peer in n.peers:
        peer.outbox = []
    world.settle()


def test_holders_are_asked_before(make_world: Make) -> None:
    """Q1.1 If the job is active, ALO and has other holders, WILLQUEUE goes to them, once per due
    time.
    """
    world = make_world(3, journal="off")
    ids = [world.at(0).add(replicate=3, retry=1) for _ in range(20)]
    once = world.at(0).add(replicate=1, retry=0)
    for _ in range(21):
        world.at(0).get()
    assert world.states(once) == [ACTIVE, -1, -1]
    world.forget_heard()
    start_ms = world.now_ms
    asked: dict[bytes, list[int]] = {id: [] for id in ids}
    while min(world.node(0).core.jobs[id].state for id in ids) == ACTIVE:
        world.pass_ms(8)
        for a, b, m in world.heard():
            if isinstance(m, WillQueue) and (a, b) == (0, 1):
                for id in m.ids:
                    assert job_at(world, 0, id).qtime_ms - world.now_ms <= 500
                    assert job_at(world, 0, id).qtime_ms - world.now_ms >= 470
                    asked[id].append(world.now_ms)
        world.forget_heard()
        assert world.now_ms < start_ms + 3_000
    assert all(len(times) == 1 for times in asked.values()), asked


@pytest.mark.long
def test_questions_travel_together(make_world: Make) -> None:
    """The ids of one turn share one WILLQUEUE."""
    world = make_world(2, journal="off")
    ids = [world.at(0).add(replicate=2, retry=1) for _ in range(500)]
    for id in ids:
        world.node(1).core.jobs[id].qtime_ms = world.now_ms + 60_000
    while world.at(0).get():
        pass
    world.forget_heard()
    world.pass_ms(1_100)
    counts = [len(m.ids) for a, _, m in world.heard() if isinstance(m, WillQueue) and a == 0]
    assert sum(counts) == 500
    assert len(counts) < 90  # one for each turn of a timer slot


def test_a_node_that_slept_asks_first(make_world: Make) -> None:
    """Q1.2 If the node was stopped and this timer runs after the due time, Q2 waits 500 ms for
    the replies.
    """
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=10)
    assert world.at(0).get() == [id]
    world.pass_ms(600)
    world.node(0).core.jobs[id].qtime_ms += 60_000  # it does not know of its own delivery any more
    world.node(0).core.jobs[id].marks = 0
    world.forget_heard()
    world.stall(1, 12_000)
    world.pass_ms(12_000)
    assert (1, 0) in sent(world, WillQueue)
    assert job_at(world, 1, id).state == ACTIVE
    world.pass_ms(490)
    assert job_at(world, 1, id).state == ACTIVE
    world.pass_ms(30)
    assert job_at(world, 1, id).state == QUEUED


@pytest.mark.parametrize(
    "message",
    [WillQueue([b""]), Queued(b"", HAS_QUEUED), Delivered(b"", 5_000), Working(b"", 5_000)],
)
def test_who_asks_for_a_done_job_is_told(make_world: Make, message: AnyMessage) -> None:
    """Q3.1 A tombstone or acked record: the reply is SETACK with its holder set."""
    # Q4.1, Q9.1 say the same
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=10)
    unknown = world.node(0).core.ids.make(60, 1)
    for said in (unknown, id):
        if isinstance(message, WillQueue):
            message.ids = [said]
        else:
            message.id = said
        if said == id:
            n = world.node(2).core
            job = n.jobs[id]
            world.isolate(2)
            world.link()
            unregister(n, job, GC_ACKED)
            n.tombs.add(id, job.expire_ms, job.holders, n.round)
        world.forget_heard()
        tell(world, 1, 2, message)
        assert ((2, 1) in sent(world, SetAck)) == (said == id)
        assert unknown not in world.node(2).core.jobs


@pytest.mark.parametrize("kind", ["will", "queued", "delivered", "working"])
def test_who_tells_becomes_a_holder(make_world: Make, kind: str) -> None:
    """Q3.2 The sender becomes a holder."""
    world = make_world(3, journal="off")
    world.isolate(2)
    id = world.at(0).add(replicate=2, retry=10)
    world.link()
    bit = 1 << world.slot(0, 2)
    assert job_at(world, 0, id).holders & bit == 0
    message: AnyMessage = WillQueue([id])
    if kind == "queued":
        message = Queued(id, 0)
    elif kind == "delivered":
        message = Delivered(id, 100)
    elif kind == "working":
        message = Working(id, 100)
    tell(world, 2, 0, message)
    assert job_at(world, 0, id).holders & bit


def test_who_has_it_queued_answers_all(make_world: Make) -> None:
    """Q3.3 Queued here: QUEUED goes to all other holders. Delivered here less than retry ago, or
    postponed by WORKING here: DELIVERED with the time left goes to the sender. A node replies
    only for its own workers, so that two nodes cannot postpone a job forever.
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=10)
    world.forget_heard()
    tell(world, 2, 0, WillQueue([id]))
    assert sent(world, Queued) == [(0, 1), (0, 2)]
    assert [m.how for _, _, m in world.heard(Queued)] == [HAS_QUEUED] * 2
    assert world.at(0).get() == [id]
    world.pass_ms(4_000)
    world.forget_heard()
    tell(world, 2, 0, WillQueue([id]))
    assert [m.left_ms for _, _, m in world.heard() if isinstance(m, Delivered)] == [6_000]
    assert sent(world, Delivered) == [(0, 2)]
    world.forget_heard()
    tell(world, 2, 1, WillQueue([id]))  # it only knows by hearsay
    assert len(world.heard()) == 1
    world.node(0).core.jobs[id].qtime_ms += 60_000
    world.node(0).core.jobs[id].marks = 0
    world.pass_ms(6_000)
    world.forget_heard()
    tell(world, 2, 0, WillQueue([id]))
    assert len(world.heard()) == 1


def test_nack_at_another_holder_cuts_no_first_delay(make_world: Make) -> None:
    """Q6.1 The same jobs as in Q5.1 are put back, except a job in its first delay: NACK does not
    shorten that.
    """
    world = make_world(2, journal="off")
    ids = [world.at(0).add(replicate=2, delay=3) for _ in range(20)]  # J differs
    world.pass_ms(2_999)
    for id in ids:
        assert job_at(world, 1, id).state == ACTIVE
        assert not on_nack(world.node(1).core, id, 0)
    world.pass_ms(1)
    assert all(on_nack(world.node(1).core, id, 0) for id in ids)


def test_counters_travel(make_world: Make) -> None:
    """Q4.2 The counter named in the message grows."""
    # G3.8, G3.5
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=2)
    assert sent(world, Queued) == []  # the first enqueue is silent
    assert world.at(0).get() == [id]
    on_nack(world.node(0).core, id, 0)
    world.settle()
    assert [m.how for _, _, m in world.heard(Queued)] == [COUNT_NACK | HAS_QUEUED] * 2
    assert [n.jobs[id].nacks for n in world.cores] == [1, 1, 1]
    assert world.at(0).get() == [id]
    world.forget_heard()
    world.pass_ms(3_000)
    assert [n.jobs[id].deliveries for n in world.cores] == [1, 1, 1]
    told = [m.how for _, _, m in world.heard(Queued)]
    assert told.count(COUNT_DELIVERY | HAS_QUEUED) == 2
    assert sorted(world.states(id)) == [ACTIVE, ACTIVE, QUEUED]


def test_one_of_two_keeps_it(make_world: Make) -> None:
    """Q4.3 Queued here too, and the message shows that the sender has it queued now: the node
    with the lower rank for this job, a hash over job id and node id, dequeues it (G4). The other
    one replies with QUEUED without a counter.
    """
    world = make_world(2, journal="off")
    winners = []
    for _ in range(40):
        id = world.at(0).add(replicate=2, retry=100)
        queue_silently(world, 1, id)
        assert world.states(id) == [QUEUED, QUEUED]
        tell(world, 0, 1, Queued(id, 0))
        assert world.states(id) == [QUEUED, QUEUED]
        tell(world, 0, 1, Queued(id, HAS_QUEUED))
        states = world.states(id)
        assert sorted(states) == [ACTIVE, QUEUED]
        ranks = [rank(id, n.node_id) for n in world.cores]
        assert states.index(QUEUED) == ranks.index(max(ranks))
        winners.append(states.index(QUEUED))
        assert [n.jobs[id].deliveries for n in world.cores] == [0, 1]
    assert 8 < sum(winners) < 32


def test_rank_is_even(make_world: Make) -> None:
    """No node wins ties more often than another: each of two wins half of the jobs."""
    world = make_world(4, journal="off")
    ids = [world.node(0).core.ids.make(60, 1) for _ in range(2_000)]
    for a in range(4):
        for b in range(a):
            one, other = world.node(a).core.node_id, world.node(b).core.node_id
            won = sum(rank(id, one) > rank(id, other) for id in ids)
            assert 900 < won < 1_100


@pytest.mark.parametrize("kind", ["queued", "put off", "delivered", "working"])
def test_no_message_cuts_a_delay_short(make_world: Make, kind: str) -> None:
    """Q4.4 The due time of an active ALO job becomes the later of its old value and now + retry +
    J. A delay is never shortened.
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=1, delay=360)
    before = [n.jobs[id].qtime_ms for n in world.cores]
    for message in (
        {"queued": Queued(id, HAS_QUEUED), "put off": Queued(id, 0)}.get(kind),
        Delivered(id, 1_000) if kind == "delivered" else None,
        Working(id, 1_000) if kind == "working" else None,
    ):
        if message is not None:
            tell(world, 1, 0, message)
            tell(world, 1, 2, message)
    assert [n.jobs[id].qtime_ms for n in world.cores] == before
    world.pass_ms(359_000)
    assert world.states(id) == [ACTIVE] * 3
    world.pass_ms(1_100)
    assert world.states(id) == [QUEUED, ACTIVE, ACTIVE]


def test_due_times_move_to_later_instants(make_world: Make) -> None:
    """Q4.4 The due time of an active ALO job becomes the later of its old value and now + retry +
    J.
    """
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=20)
    world.pass_ms(15_000)
    tell(world, 0, 1, Queued(id, HAS_QUEUED))
    assert 20_000 <= job_at(world, 1, id).qtime_ms - world.now_ms < 20_500


def test_nack_with_delay_is_told(make_world: Make) -> None:
    """Q6.2 With DELAY the job stays active and its due time becomes now + DELAY. At that time it is
    enqueued, and no counter grows again. Until then it is in a back-off (W2.3). (cluster) The other
    holders count the NACK and do not act on the job for DELAY + retry + J (Q9).
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=2)
    assert world.at(0).get() == [id]
    on_nack(world.node(0).core, id, 30_000)
    world.settle()
    assert [n.jobs[id].nacks for n in world.cores] == [1, 1, 1]
    dues = [n.jobs[id].qtime_ms - world.now_ms for n in world.cores]
    assert dues[0] == 30_000
    assert all(32_000 <= due < 32_500 for due in dues[1:])
    world.pass_ms(29_900)
    assert world.states(id) == [ACTIVE] * 3
    world.pass_ms(200)
    assert world.states(id) == [QUEUED, ACTIVE, ACTIVE]
    world.pass_ms(60_000)
    assert world.states(id) == [QUEUED, ACTIVE, ACTIVE]
    assert [n.jobs[id].nacks for n in world.cores] == [1, 1, 1]
    assert [n.jobs[id].deliveries for n in world.cores] == [0, 0, 0]


def test_dequeue_is_told(make_world: Make) -> None:
    """Q7.1 Each job that is queued here becomes active (G4). An ALO job gets the due time now +
    retry + J. (cluster) QUEUED, with neither a counter nor the sign that the job is queued, makes
    the other holders do the same (Q4.4).
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=10)
    world.pass_ms(9_000)
    on_dequeue(world.node(0).core, id)
    world.settle()
    assert world.states(id) == [ACTIVE] * 3
    assert all(10_000 <= n.jobs[id].qtime_ms - world.now_ms < 10_500 for n in world.cores)
    assert [n.jobs[id].deliveries for n in world.cores] == [0, 0, 0]
    world.pass_ms(9_900)
    assert world.states(id) == [ACTIVE] * 3
    world.pass_ms(1_200)
    assert sorted(world.states(id)) == [ACTIVE, ACTIVE, QUEUED]


def test_working_is_told(make_world: Make) -> None:
    """Q8.6 The reply is the retry time in seconds. (cluster) WORKING with the time left goes to all
    other holders.
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=10, ttl=1_000)
    assert world.at(0).get() == [id]
    for _ in range(5):
        world.pass_ms(8_000)
        assert on_working(world.node(0).core, id) is None
        world.settle()
        assert world.states(id) == [ACTIVE] * 3
        assert all(10_000 <= n.jobs[id].qtime_ms - world.now_ms < 11_000 for n in world.cores)
    assert world.node(0).core.redeliveries == 0
    assert sent(world, Working) == [(0, 1), (0, 2)] * 5


def test_working_takes_it_out_of_other_queues(make_world: Make) -> None:
    """Q9.2 An ALO job counts as delivered; WORKING also dequeues it. The due time of an active
    job becomes the later of its old value and now + the time left in the message + J.
    """
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=10)
    assert world.at(0).get() == [id]
    queue_silently(world, 1, id)
    tell(world, 0, 1, Delivered(id, 7_000))
    assert world.states(id) == [ACTIVE, QUEUED]
    tell(world, 0, 1, Working(id, 17_000))
    assert world.states(id) == [ACTIVE, ACTIVE]
    assert 17_000 <= job_at(world, 1, id).qtime_ms - world.now_ms < 17_500


def test_retry_runs_from_the_delivery_on_every_node(make_world: Make) -> None:
    """V4.3 The due time of an ALO job becomes now + retry + J."""
    for seed in range(12):
        world = make_world(3, journal="off")
        id = world.at(seed % 3).add(replicate=3, retry=10)
        world.pass_ms(8_900 + seed * 90)
        at = world.states(id).index(QUEUED)
        assert world.at(at).get() == [id]
        world.pass_ms(9_900)
        assert world.states(id) == [ACTIVE] * 3
        world.pass_ms(1_500)
        assert sorted(world.states(id)) == [ACTIVE, ACTIVE, QUEUED]


@pytest.mark.parametrize("retry_s", [1, 3, 7])
def test_nothing_is_delivered_twice_without_a_fault(make_world: Make, retry_s: int) -> None:
    """Promise 7: two deliveries of a job are at least retry apart. Workers ack within retry: then
    each job is handed out once, whichever node it was added at, delayed or not."""
    world = make_world(4, journal="off")
    ids = [
        world.at(i % 4).add(replicate=1 + i % 4, retry=retry_s, delay=i % 3, ttl=600)
        for i in range(120)
    ]
    given: list[bytes] = []
    out: list[tuple[int, int, bytes]] = []
    for step in range(600):
        for i in range(4):
            if step % (3 + i) == 0:
                got = world.at(i).get()
                given += got
                out += [(world.now_ms + retry_s * 900, i, id) for id in got]
        for end_ms, i, id in [one for one in out if one[0] <= world.now_ms]:
            on_ackjob(world.node(i).core, id)
            out.remove((end_ms, i, id))
        world.pass_ms(97)
    assert sorted(given) == sorted(ids)


@pytest.mark.parametrize("first_dies", [False, True])
def test_working_right_after_the_delivery_elsewhere(make_world: Make, *, first_dies: bool) -> None:
    """Q8.3 (cluster) Another holder may have delivered the job and died before it announced that
    (V4.6). So an ALO job counts as delivered here unless it waits for its copies or is in its first
    delay.
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=2, retry=10)
    other = next(i for i in (1, 2) if id in world.node(i).core.jobs)
    assert world.at(0).get() == [id]  # the other holder hears of it in half a second
    world.pass_ms(100)
    if first_dies:
        world.restart(0)
    job = job_at(world, other, id)
    assert on_working(world.node(other).core, id) is None
    assert job.qtime_ms >= world.now_ms + 10_000
    world.pass_ms(9_900)
    assert world.at(1).get() + world.at(2).get() == []
    job_at(world, other, id)
    assert on_working(world.node(other).core, id) is None


def test_working_on_a_copy_that_was_queued_meanwhile(make_world: Make) -> None:
    """Q8.5 If the job is queued again, it is dequeued (G4)."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=2)
    world.hold(0, 1)
    assert world.at(0).get() == [id]
    world.restart(0)
    world.pass_ms(3_000)
    job = job_at(world, 1, id)
    assert job.state == QUEUED
    assert on_working(world.node(1).core, id) is None
    assert job.state == ACTIVE


def test_working_on_what_nobody_can_have(make_world: Make) -> None:
    """Q8.3 So an ALO job counts as delivered here unless it waits for its copies or is in its first
    delay. An AMO job counts as delivered if its custody is elsewhere.
    """
    world = make_world(3, journal="off")
    late = world.at(0).add(replicate=3, retry=10, delay=60)
    for i in range(3):
        due_ms = job_at(world, i, late).qtime_ms
        assert words_of(on_working(world.node(i).core, late)).startswith(b"NOTDELIVERED")
        assert world.node(i).core.jobs[late].qtime_ms == due_ms
    once = world.at(0).add(replicate=1, retry=0)
    assert words_of(on_working(world.node(0).core, once)).startswith(b"NOTDELIVERED")
    assert world.states(once) == [QUEUED, -1, -1]
    world.hold(0, 1)
    world.hold(0, 2)
    id = world.at(0).begin_add(replicate=2, retry=10, timeout_ms=5_000)
    assert words_of(on_working(world.node(0).core, id)).startswith(b"NOTDELIVERED")
    send_jobs(world.node(0).core, world.slot(0, 1), b"q", taken(world, once))
    assert on_working(world.node(0).core, once) is None  # on its way: a worker may have it by now


def taken(world: World, id: bytes) -> list[Job]:
    """The job of node 0 out of its queue."""
    job = job_at(world, 0, id)
    dequeue(world.node(0).core, job)
    return [job]
