"""SPEC Q with several nodes: who holds a job hears when it is queued, delivered or worked on."""

from __future__ import annotations

import pytest

from cluster_lab import Lab
from refusals import words_of
from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.federation import send_jobs
from tuque.core.copies.requeue_messages import rank
from tuque.core.model.job import ACTIVE, QUEUED, Job
from tuque.core.model.stats import GC_ACKED
from tuque.core.msgs import (
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


def sent(lab: Lab, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for a, b, m in lab.log if isinstance(m, kind)]


def tell(lab: Lab, a: int, b: int, message: AnyMessage) -> None:
    """Node a says something to node b."""
    assert say(lab.nodes[a], lab.slot(a, b), message)
    lab.run()


def job_at(lab: Lab, i: int, id: bytes) -> Job:
    """The record of the job at node i, its clock set."""
    lab.nodes[i].now_ms = lab.now_ms
    return lab.nodes[i].jobs[id]


def queue_silently(lab: Lab, i: int, id: bytes) -> None:
    """Node i has the job in its queue, and nobody was told."""
    on_enqueue(lab.nodes[i], id)
    for peer in lab.nodes[i].peers:
        peer.outbox = []
    lab.run()


def test_holders_are_asked_before() -> None:
    """Q1.1 If the job is active, ALO and has other holders, WILLQUEUE goes to them, once per due
    time.
    """
    lab = Lab(3)
    ids = [lab.add(0, replicate=3, retry_s=1) for _ in range(20)]
    once = lab.add(0, replicate=1, retry_s=0)
    for _ in range(21):
        lab.get(0)
    assert lab.states_of(once) == [ACTIVE, -1, -1]
    lab.log.clear()
    start_ms = lab.now_ms
    asked: dict[bytes, list[int]] = {id: [] for id in ids}
    while min(lab.nodes[0].jobs[id].state for id in ids) == ACTIVE:
        lab.pass_ms(8)
        for a, b, m in lab.log:
            if isinstance(m, WillQueue) and (a, b) == (0, 1):
                for id in m.ids:
                    assert job_at(lab, 0, id).qtime_ms - lab.now_ms <= 500
                    assert job_at(lab, 0, id).qtime_ms - lab.now_ms >= 470
                    asked[id].append(lab.now_ms)
        lab.log.clear()
        assert lab.now_ms < start_ms + 3_000
    assert all(len(times) == 1 for times in asked.values()), asked


@pytest.mark.long
def test_questions_travel_together() -> None:
    """The ids of one turn share one WILLQUEUE."""
    lab = Lab(2)
    ids = [lab.add(0, replicate=2, retry_s=1) for _ in range(500)]
    for id in ids:
        lab.nodes[1].jobs[id].qtime_ms = lab.now_ms + 60_000
        lab.nodes[0].now_ms = lab.now_ms
    while lab.get(0):
        pass
    lab.log.clear()
    lab.pass_ms(1_100)
    counts = [len(m.ids) for a, _, m in lab.log if isinstance(m, WillQueue) and a == 0]
    assert sum(counts) == 500
    assert len(counts) < 90  # one for each turn of a timer slot


def test_a_node_that_slept_asks_first() -> None:
    """Q1.2 A node that runs this timer only after the due time, because it was stopped, waits 500
    ms for the replies before it continues with Q2.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=10)
    assert lab.get(0) == [id]
    lab.pass_ms(600)
    lab.nodes[0].jobs[id].qtime_ms += 60_000  # it does not know of its own delivery any more
    lab.nodes[0].jobs[id].marks = 0
    lab.now_ms += 12_000
    lab.log.clear()
    lab.run()
    assert (1, 0) in sent(lab, WillQueue)
    assert job_at(lab, 1, id).state == ACTIVE
    lab.pass_ms(490)
    assert job_at(lab, 1, id).state == ACTIVE
    lab.pass_ms(30)
    assert job_at(lab, 1, id).state == QUEUED


@pytest.mark.parametrize(
    "message",
    [WillQueue([b""]), Queued(b"", HAS_QUEUED), Delivered(b"", 5_000), Working(b"", 5_000)],
)
def test_who_asks_for_a_done_job_is_told(message: AnyMessage) -> None:
    """Q3.1 A tombstone or acked record: the reply is SETACK with its holder set."""
    # Q4.1, Q9.1 say the same
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=10)
    unknown = lab.nodes[0].ids.make(60, 1)
    for said in (unknown, id):
        if isinstance(message, WillQueue):
            message.ids = [said]
        else:
            message.id = said
        if said == id:
            n = lab.nodes[2]
            job = n.jobs[id]
            lab.isolate(2)
            lab.heal()
            unregister(n, job, GC_ACKED)
            n.tombs.add(id, job.expire_ms, job.holders, n.round)
        lab.log.clear()
        tell(lab, 1, 2, message)
        assert ((2, 1) in sent(lab, SetAck)) == (said == id)
        assert unknown not in lab.nodes[2].jobs


@pytest.mark.parametrize("kind", ["will", "queued", "delivered", "working"])
def test_who_tells_becomes_a_holder(kind: str) -> None:
    """Q3.2 The sender becomes a holder."""
    lab = Lab(3)
    lab.isolate(2)
    id = lab.add(0, replicate=2, retry_s=10)
    lab.heal()
    bit = 1 << lab.slot(0, 2)
    assert job_at(lab, 0, id).holders & bit == 0
    message: AnyMessage = WillQueue([id])
    if kind == "queued":
        message = Queued(id, 0)
    elif kind == "delivered":
        message = Delivered(id, 100)
    elif kind == "working":
        message = Working(id, 100)
    tell(lab, 2, 0, message)
    assert job_at(lab, 0, id).holders & bit


def test_who_has_it_queued_answers_all() -> None:
    """Q3.3 Queued here: QUEUED goes to all other holders. Delivered here less than retry ago, or
    postponed by WORKING here: DELIVERED goes to the sender, with the rest of that time or of what
    WORKING set. A node replies only for its own workers, so that two nodes cannot postpone a job
    forever.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=10)
    lab.log.clear()
    tell(lab, 2, 0, WillQueue([id]))
    assert sent(lab, Queued) == [(0, 1), (0, 2)]
    assert [m.how for _, _, m in lab.log if isinstance(m, Queued)] == [HAS_QUEUED] * 2
    assert lab.get(0) == [id]
    lab.pass_ms(4_000)
    lab.log.clear()
    tell(lab, 2, 0, WillQueue([id]))
    assert [m.left_ms for _, _, m in lab.log if isinstance(m, Delivered)] == [6_000]
    assert sent(lab, Delivered) == [(0, 2)]
    lab.log.clear()
    tell(lab, 2, 1, WillQueue([id]))  # it only knows by hearsay
    assert len(lab.log) == 1
    lab.nodes[0].jobs[id].qtime_ms += 60_000
    lab.nodes[0].jobs[id].marks = 0
    lab.pass_ms(6_000)
    lab.log.clear()
    tell(lab, 2, 0, WillQueue([id]))
    assert len(lab.log) == 1


def test_nack_at_another_holder_cuts_no_first_delay() -> None:
    """Q6.1 The same jobs as in Q5.1 are put back, except a job in its first delay: NACK does not
    shorten that.
    """
    lab = Lab(2)
    ids = [lab.add(0, replicate=2, delay_s=3) for _ in range(20)]  # J differs
    lab.pass_ms(2_999)
    for id in ids:
        assert job_at(lab, 1, id).state == ACTIVE
        assert not on_nack(lab.nodes[1], id, 0)
    lab.pass_ms(1)
    assert all(on_nack(lab.nodes[1], id, 0) for id in ids)


def test_counters_travel() -> None:
    """Q4.2 The counter named in the message grows."""
    # G3.8, G3.5
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=2)
    assert sent(lab, Queued) == []  # the first enqueue is silent
    assert lab.get(0) == [id]
    on_nack(lab.nodes[0], id, 0)
    lab.run()
    assert [m.how for _, _, m in lab.log if isinstance(m, Queued)] == [COUNT_NACK | HAS_QUEUED] * 2
    assert [n.jobs[id].nacks for n in lab.nodes] == [1, 1, 1]
    assert lab.get(0) == [id]
    lab.log.clear()
    lab.pass_ms(3_000)
    assert [n.jobs[id].deliveries for n in lab.nodes] == [1, 1, 1]
    told = [m.how for _, _, m in lab.log if isinstance(m, Queued)]
    assert told.count(COUNT_DELIVERY | HAS_QUEUED) == 2
    assert sorted(lab.states_of(id)) == [ACTIVE, ACTIVE, QUEUED]


def test_one_of_two_keeps_it() -> None:
    """Q4.3 Queued here too: if the message says that the sender has the job queued now, the node
    with the lower rank for this job dequeues it (G4). The other node replies with QUEUED without a
    counter. Rank is a hash over job id and node id.
    """
    lab = Lab(2)
    winners = []
    for _ in range(40):
        id = lab.add(0, replicate=2, retry_s=100)
        queue_silently(lab, 1, id)
        assert lab.states_of(id) == [QUEUED, QUEUED]
        tell(lab, 0, 1, Queued(id, 0))
        assert lab.states_of(id) == [QUEUED, QUEUED]
        tell(lab, 0, 1, Queued(id, HAS_QUEUED))
        states = lab.states_of(id)
        assert sorted(states) == [ACTIVE, QUEUED]
        ranks = [rank(id, n.node_id) for n in lab.nodes]
        assert states.index(QUEUED) == ranks.index(max(ranks))
        winners.append(states.index(QUEUED))
        assert [n.jobs[id].deliveries for n in lab.nodes] == [0, 1]
    assert 8 < sum(winners) < 32


def test_rank_is_even() -> None:
    """No node wins ties more often than another: each of two wins half of the jobs."""
    lab = Lab(4)
    ids = [lab.nodes[0].ids.make(60, 1) for _ in range(2_000)]
    for a in range(4):
        for b in range(a):
            one, other = lab.nodes[a].node_id, lab.nodes[b].node_id
            won = sum(rank(id, one) > rank(id, other) for id in ids)
            assert 900 < won < 1_100


@pytest.mark.parametrize("kind", ["queued", "put off", "delivered", "working"])
def test_no_message_cuts_a_delay_short(kind: str) -> None:
    """Q4.4 The due time of an active ALO job becomes the later of its old value and now + retry +
    J. A delay is never shortened.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=1, delay_s=3_600)
    before = [n.jobs[id].qtime_ms for n in lab.nodes]
    for message in (
        {"queued": Queued(id, HAS_QUEUED), "put off": Queued(id, 0)}.get(kind),
        Delivered(id, 1_000) if kind == "delivered" else None,
        Working(id, 1_000) if kind == "working" else None,
    ):
        if message is not None:
            tell(lab, 1, 0, message)
            tell(lab, 1, 2, message)
    assert [n.jobs[id].qtime_ms for n in lab.nodes] == before
    lab.pass_ms(3_599_000)
    assert lab.states_of(id) == [ACTIVE] * 3
    lab.pass_ms(1_100)
    assert lab.states_of(id) == [QUEUED, ACTIVE, ACTIVE]


def test_due_times_move_to_later_instants() -> None:
    """Q4.4 The due time of an active ALO job becomes the later of its old value and now + retry +
    J.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=20)
    lab.pass_ms(15_000)
    tell(lab, 0, 1, Queued(id, HAS_QUEUED))
    assert 20_000 <= job_at(lab, 1, id).qtime_ms - lab.now_ms < 20_500


def test_nack_with_delay_is_told() -> None:
    """Q6.2 With DELAY the job stays active and its due time becomes now + DELAY. At that time it is
    enqueued, and no counter grows again. (cluster) The other holders count the NACK and do not act
    on the job for DELAY + retry + J (Q9).
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=2)
    assert lab.get(0) == [id]
    on_nack(lab.nodes[0], id, 30_000)
    lab.run()
    assert [n.jobs[id].nacks for n in lab.nodes] == [1, 1, 1]
    dues = [n.jobs[id].qtime_ms - lab.now_ms for n in lab.nodes]
    assert dues[0] == 30_000
    assert all(32_000 <= due < 32_500 for due in dues[1:])
    lab.pass_ms(29_900)
    assert lab.states_of(id) == [ACTIVE] * 3
    lab.pass_ms(200)
    assert lab.states_of(id) == [QUEUED, ACTIVE, ACTIVE]
    lab.pass_ms(60_000)
    assert lab.states_of(id) == [QUEUED, ACTIVE, ACTIVE]
    assert [n.jobs[id].nacks for n in lab.nodes] == [1, 1, 1]
    assert [n.jobs[id].deliveries for n in lab.nodes] == [0, 0, 0]


def test_dequeue_is_told() -> None:
    """Q7.1 Each job that is queued here becomes active (G4). An ALO job gets the due time now +
    retry + J. (cluster) QUEUED, with neither a counter nor the sign that the job is queued, makes
    the other holders do the same (Q4.4).
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=10)
    lab.pass_ms(9_000)
    on_dequeue(lab.nodes[0], id)
    lab.run()
    assert lab.states_of(id) == [ACTIVE] * 3
    assert all(10_000 <= n.jobs[id].qtime_ms - lab.now_ms < 10_500 for n in lab.nodes)
    assert [n.jobs[id].deliveries for n in lab.nodes] == [0, 0, 0]
    lab.pass_ms(9_900)
    assert lab.states_of(id) == [ACTIVE] * 3
    lab.pass_ms(1_200)
    assert sorted(lab.states_of(id)) == [ACTIVE, ACTIVE, QUEUED]


def test_working_is_told() -> None:
    """Q8.6 The reply is the retry time in seconds. (cluster) WORKING with the time left goes to all
    other holders.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=10, ttl_s=1_000)
    assert lab.get(0) == [id]
    for _ in range(5):
        lab.pass_ms(8_000)
        assert on_working(lab.nodes[0], id) is None
        lab.run()
        assert lab.states_of(id) == [ACTIVE] * 3
        assert all(10_000 <= n.jobs[id].qtime_ms - lab.now_ms < 11_000 for n in lab.nodes)
    assert lab.nodes[0].redeliveries == 0
    assert sent(lab, Working) == [(0, 1), (0, 2)] * 5


def test_working_takes_it_out_of_other_queues() -> None:
    """Q9.2 An ALO job counts as delivered. If it is queued here and the message is WORKING, it is
    dequeued. The due time of an active job becomes the later of its old value and now + the time
    left in the message + J.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=10)
    assert lab.get(0) == [id]
    queue_silently(lab, 1, id)
    tell(lab, 0, 1, Delivered(id, 7_000))
    assert lab.states_of(id) == [ACTIVE, QUEUED]
    tell(lab, 0, 1, Working(id, 17_000))
    assert lab.states_of(id) == [ACTIVE, ACTIVE]
    assert 17_000 <= job_at(lab, 1, id).qtime_ms - lab.now_ms < 17_500


def test_retry_runs_from_the_delivery_on_every_node() -> None:
    """V4.3 The due time of an ALO job becomes now + retry + J: the retry clock starts at the
    delivery."""
    for seed in range(12):
        lab = Lab(3)
        id = lab.add(seed % 3, replicate=3, retry_s=10)
        lab.pass_ms(8_900 + seed * 90)
        at = lab.states_of(id).index(QUEUED)
        assert lab.get(at) == [id]
        lab.pass_ms(9_900)
        assert lab.states_of(id) == [ACTIVE] * 3
        lab.pass_ms(1_500)
        assert sorted(lab.states_of(id)) == [ACTIVE, ACTIVE, QUEUED]


@pytest.mark.parametrize("retry_s", [1, 3, 7])
def test_nothing_is_delivered_twice_without_a_fault(retry_s: int) -> None:
    """Promise 7: two deliveries of a job are at least retry apart. Workers ack within retry: then
    each job is handed out once, whichever node it was added at, delayed or not."""
    lab = Lab(4)
    ids = [
        lab.add(i % 4, replicate=1 + i % 4, retry_s=retry_s, delay_s=i % 3, ttl_s=600)
        for i in range(120)
    ]
    given: list[bytes] = []
    out: list[tuple[int, int, bytes]] = []
    client = 100
    for step in range(600):
        for i in range(4):
            client += 1
            if step % (3 + i) == 0:
                got = lab.get(i, client=client)
                given += got
                out += [(lab.now_ms + retry_s * 900, i, id) for id in got]
        for end_ms, i, id in [one for one in out if one[0] <= lab.now_ms]:
            lab.nodes[i].now_ms = lab.now_ms
            on_ackjob(lab.nodes[i], id)
            out.remove((end_ms, i, id))
        lab.pass_ms(97)
    assert sorted(given) == sorted(ids)


@pytest.mark.parametrize("first_dies", [False, True])
def test_working_right_after_the_delivery_elsewhere(first_dies: bool) -> None:
    """Q8.3 (cluster) Another holder may have delivered the job and died before it announced that
    (V4.6). So an ALO job counts as delivered here unless it waits for its copies or is in its first
    delay.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=2, retry_s=10)
    other = next(i for i in (1, 2) if id in lab.nodes[i].jobs)
    assert lab.get(0) == [id]  # the other holder hears of it in half a second
    lab.pass_ms(100)
    if first_dies:
        lab.die(0)
    job = job_at(lab, other, id)
    assert on_working(lab.nodes[other], id) is None
    assert job.qtime_ms >= lab.now_ms + 10_000
    lab.pass_ms(9_900)
    assert lab.get(1) + lab.get(2) == []
    job_at(lab, other, id)
    assert on_working(lab.nodes[other], id) is None


def test_working_on_a_copy_that_was_queued_meanwhile() -> None:
    """Q8.5 If the job is queued again, it is dequeued (G4)."""
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=2)
    lab.hold(0, 1)
    assert lab.get(0) == [id]
    lab.die(0)
    lab.pass_ms(3_000)
    job = job_at(lab, 1, id)
    assert job.state == QUEUED
    assert on_working(lab.nodes[1], id) is None
    assert job.state == ACTIVE


def test_working_on_what_nobody_can_have() -> None:
    """Q8.3 So an ALO job counts as delivered here unless it waits for its copies or is in its first
    delay. An AMO job counts as delivered if its custody is elsewhere.
    """
    lab = Lab(3)
    late = lab.add(0, replicate=3, retry_s=10, delay_s=60)
    for i in range(3):
        due_ms = job_at(lab, i, late).qtime_ms
        assert words_of(on_working(lab.nodes[i], late)).startswith(b"NOTDELIVERED")
        assert lab.nodes[i].jobs[late].qtime_ms == due_ms
    once = lab.add(0, replicate=1, retry_s=0)
    assert words_of(on_working(lab.nodes[0], once)).startswith(b"NOTDELIVERED")
    assert lab.states_of(once) == [QUEUED, -1, -1]
    lab.hold(0, 1)
    lab.hold(0, 2)
    job, _ = lab.try_add(0, b"q", replicate=2, retry_s=10)
    assert job is not None
    assert words_of(on_working(lab.nodes[0], job.id)).startswith(b"NOTDELIVERED")
    send_jobs(lab.nodes[0], lab.slot(0, 1), b"q", taken(lab, once))
    assert on_working(lab.nodes[0], once) is None  # on its way: a worker may have it by now


def taken(lab: Lab, id: bytes) -> list[Job]:
    """The job of node 0 out of its queue."""
    job = job_at(lab, 0, id)
    dequeue(lab.nodes[0], job)
    return [job]
