"""SPEC F2.2 to F4: jobs go to another node, and exactly one of the two serves them."""

from __future__ import annotations

import pytest

from cluster_lab import Lab, external_twice
from tuque.core.copies.ack import on_deljob
from tuque.core.copies.federation import lose_transits, send_jobs
from tuque.core.dispatch.restore import restore_job
from tuque.core.model.job import ACTIVE, DELIVERED, IN_TRANSIT, QUEUED, Job
from tuque.core.model.stats import (
    ADMIN_DELETED,
    EVICTED,
    EXPIRED,
    GC_ACKED,
)
from tuque.core.msgs import (
    AnyMessage,
    GotJobs,
    Left,
    Moved,
    NeedJobs,
    SetAck,
    WillQueue,
    Working,
    YourJobs,
)
from tuque.core.node.peers import introduce, say
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.deliver import on_poll, set_pause
from tuque.core.queues.procedures import remove, unregister
from tuque.core.queues.requeue import on_enqueue
from tuque.core.records.jobs import Records


def sent(lab: Lab, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for a, b, m in lab.log if isinstance(m, kind)]


def wish(lab: Lab, a: int, b: int, count: int, queue: bytes = b"q") -> None:
    """Node a asks node b for jobs."""
    assert say(lab.nodes[a], lab.slot(a, b), NeedJobs(queue, count, True))
    lab.run()


def tell(lab: Lab, a: int, b: int, message: AnyMessage) -> None:
    """Node a says something to node b."""
    assert say(lab.nodes[a], lab.slot(a, b), message)
    lab.run()


def adds(lab: Lab, i: int, count: int, **options: int) -> list[bytes]:
    """So many jobs in q of node i."""
    return [lab.add(i, **{"replicate": 1, "retry_s": 10, **options}) for _ in range(count)]


def holders(lab: Lab, i: int, id: bytes) -> set[int]:
    """The nodes that node i believes to have a copy."""
    mask = lab.nodes[i].jobs[id].holders
    return {k for k in range(len(lab.nodes)) if mask >> lab.slot(i, k) & 1}


# ---- at least once


@pytest.mark.parametrize("has_nack", [False, True])
def test_a_job_that_is_out_is_not_queued(has_nack: bool) -> None:
    """F3.6 If a worker has the known job from this node or sent WORKING here, and the frame shows
    no further NACK, the job is not enqueued; the sender gets WORKING with the time left."""
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=10)
    assert lab.get(0) == [id]
    lab.pass_ms(1_000)
    n = lab.nodes[1]
    job = n.jobs[id]
    n.now_ms = lab.now_ms
    job.nacks += has_nack
    lab.log.clear()
    send_jobs(n, lab.slot(1, 0), b"q", [job])
    lab.run()
    assert sent(lab, YourJobs) == [(1, 0)]
    assert lab.states_of(id) == [QUEUED if has_nack else ACTIVE, ACTIVE]
    assert [m.left_ms for _, _, m in lab.log if isinstance(m, Working)] == [9_000] * (not has_nack)


@pytest.mark.parametrize(
    ("length", "count", "given"),
    [(10, 5, 5), (9, 5, 4), (3, 5, 1), (1, 1, 1), (1, 7, 1), (300, 100, 100), (0, 3, 0)],
)
def test_half_of_the_queue(length: int, count: int, given: int) -> None:
    """F2.2 The node gives count jobs, or half of the queue if that is less, at least one, oldest
    first. The sender becomes a holder of each before the frame is made, and the frame names all
    holders."""
    lab = Lab(3)
    ids = adds(lab, 1, length)
    wish(lab, 0, 1, count)
    assert [id for id in ids if id in lab.nodes[0].jobs] == ids[:given]
    for id in ids[:given]:
        assert lab.states_of(id)[:2] == [QUEUED, ACTIVE]
        assert holders(lab, 0, id) == holders(lab, 1, id) == {0, 1}


def test_a_copy_stays_and_waits() -> None:
    """F2.3 ALO jobs stay here as active with due time now + retry + J."""
    lab = Lab(2)
    (id,) = adds(lab, 1, 1)
    lab.pass_ms(7_000)
    wish(lab, 0, 1, 1)
    assert 10_000 <= lab.nodes[1].jobs[id].qtime_ms - lab.now_ms < 10_500
    lab.cut(0, 1)  # and nothing is heard of the other node any more
    lab.pass_ms(9_900)
    assert lab.states_of(id) == [QUEUED, ACTIVE]
    lab.pass_ms(700)
    assert lab.states_of(id) == [QUEUED, QUEUED]


def test_other_holders_learn_of_a_move() -> None:
    """F2.4 MOVED with the new holder goes to all other holders. They add it and postpone their due
    time to now + retry + J."""
    lab = Lab(4)
    lab.isolate(3)
    id = lab.add(0, replicate=3, retry_s=10)
    lab.heal()
    lab.pass_ms(8_000)
    lab.log.clear()
    wish(lab, 3, 0, 1)
    assert sorted(sent(lab, Moved)) == [(0, 1), (0, 2)]
    for i in range(4):
        assert holders(lab, i, id) == {0, 1, 2, 3}
    for i in range(3):
        assert 10_000 <= lab.nodes[i].jobs[id].qtime_ms - lab.now_ms < 10_500


@pytest.mark.parametrize("is_silent", [False, True])
def test_who_serves_a_job_tells_the_holders_that_its_sender_does_not_reach(is_silent: bool) -> None:
    """F3.7 If an ALO job is enqueued this way, QUEUED without a counter goes to its other holders,
    except the sender. MOVED may not reach holders without a stable link to the sender, and one of
    them may have the job queued (Q4.3) or at a worker (Q4.5)."""
    lab = Lab(3)
    ids = adds(lab, 0, 16, replicate=3)
    for a, b in ((0, 2), (2, 0)):
        (lab.hold if is_silent else lab.cut)(a, b)
    lab.pass_ms(11_000)
    assert all(lab.states_of(id) == [QUEUED, ACTIVE, QUEUED] for id in ids)
    out = lab.get(2)
    wish(lab, 1, 0, 8)
    lab.log.clear()
    given = [id for id in ids if lab.nodes[0].jobs[id].state == ACTIVE]
    assert len(given) == 8
    assert set(out) <= set(given), "the oldest of them"
    for id in given:
        states = lab.states_of(id)
        assert states[1:].count(QUEUED) == (id not in out), "two queues, or one beside a worker"


def test_moved_is_no_delivery() -> None:
    """F4.1 As Q9, but the job does not count as delivered, and the new holder is added."""
    lab = Lab(3)
    lab.isolate(2)
    id = lab.add(0, replicate=2, retry_s=10, delay_s=100)
    lab.heal()
    before = lab.nodes[1].jobs[id].qtime_ms
    mask = 1 << lab.slot(0, 2) | 1
    introduce(lab.nodes[0], lab.slot(0, 1), mask)
    tell(lab, 0, 1, Moved(id, mask, 10_000))
    assert holders(lab, 1, id) == {0, 1, 2}
    assert lab.nodes[1].jobs[id].qtime_ms == before  # a delay is not cut short
    assert lab.nodes[1].jobs[id].flags & DELIVERED == 0


def test_a_job_that_moves_takes_all_clocks_with_it() -> None:
    """F2.4 MOVED with the new holder goes to all other holders. They add it and postpone their due
    time to now + retry + J."""
    # A job goes from 1 to 0 to 4 while node 2 has a copy: 2 must hear from the one that has it
    # queued now, or two nodes hand it out with no fault at all.
    lab = Lab(5)
    for i in (0, 3, 4):
        for k in (1, 2):
            lab.cut(i, k)
    id = lab.add(1, replicate=2, retry_s=3, ttl_s=600)
    lab.heal()
    lab.pass_ms(2_400)
    wish(lab, 0, 1, 1)
    assert lab.states_of(id) == [QUEUED, ACTIVE, ACTIVE, -1, -1]
    lab.pass_ms(2_400)
    wish(lab, 4, 0, 1)
    for _ in range(100):
        lab.pass_ms(97)
        assert lab.states_of(id) == [ACTIVE, ACTIVE, ACTIVE, -1, QUEUED]
    assert lab.get(4) == [id]
    lab.pass_ms(2_900)
    assert lab.states_of(id) == [ACTIVE, ACTIVE, ACTIVE, -1, ACTIVE]


def test_the_importer_answers_for_the_origin() -> None:
    """Q3.3 Queued here: QUEUED goes to all other holders."""
    lab = Lab(3)
    lab.cut(0, 2)
    id = lab.add(0, replicate=2, retry_s=5)
    lab.heal()
    wish(lab, 2, 0, 1)
    lab.log.clear()
    tell(lab, 1, 2, WillQueue([id]))
    assert lab.states_of(id) == [ACTIVE, ACTIVE, QUEUED]


def test_what_is_done_is_not_imported() -> None:
    """F3.1 A tombstone or acked record: the sender gets SETACK, for an AMO job GOTJOBS; the job is
    not imported."""
    lab = Lab(2)
    (id,) = adds(lab, 1, 1)
    lab.nodes[0].tombs.add(id, lab.now_ms + 60_000, 3, 0)
    wish(lab, 0, 1, 1)
    assert (0, 1) in sent(lab, SetAck)
    assert id not in lab.nodes[0].jobs
    assert lab.nodes[0].ledger.imported == 0


@pytest.mark.parametrize("retry_s", [0, 10])
def test_an_import_is_written_down(retry_s: int) -> None:
    """F3.2 Known: the holder sets are merged. Unknown: the job is registered with cause imported,
    with this node and the sender in the holder set. It is in the journal before it is confirmed."""
    lab = Lab(2)
    records = Records(lab.nodes[0].node_ids)
    lab.nodes[0].records = records
    wish(lab, 0, 1, 1)
    lab.hold(0, 1)
    (id,) = adds(lab, 1, 1, retry_s=retry_s)
    assert holders(lab, 0, id) == {0, 1}
    assert id in records.take()  # and the answer has not arrived: frames follow the journal
    assert lab.nodes[0].ledger.imported == 1


def test_a_known_copy_takes_over() -> None:
    """F3.2 Known: the holder sets are merged."""
    lab = Lab(3)
    lab.isolate(2)
    id = lab.add(0, replicate=2, retry_s=10)
    lab.heal()
    lab.run()
    lab.nodes[0].jobs[id].holders |= 1 << lab.slot(0, 2)
    wish(lab, 1, 0, 1)
    assert holders(lab, 1, id) == {0, 1, 2}
    assert lab.states_of(id) == [ACTIVE, QUEUED, -1]
    assert lab.nodes[1].ledger.imported == 0
    assert lab.nodes[1].jobs[id].deliveries == 0


@pytest.mark.parametrize("why", ["pause", "memory", "leaving"])
@pytest.mark.parametrize("retry_s", [0, 10])
def test_what_is_refused_goes_back(why: str, retry_s: int) -> None:
    """F3.3 The job is enqueued; no counter grows. If the input of the queue is paused, memory is at
    level 2 or above, or this node leaves or loads, GOTJOBS refuses the job, and an unknown one is
    not registered;"""
    lab = Lab(2)
    other = lab.nodes[0]
    (id,) = adds(lab, 1, 1, retry_s=retry_s)
    lab.nodes[0].now_ms = lab.now_ms
    say(other, lab.slot(0, 1), NeedJobs(b"q", 5, True))
    lab.settle(0)
    if why == "pause":
        set_pause(other, b"q", PAUSE_IN)
    elif why == "memory":
        other.limits.memory_bytes = 1_000
        other.base_bytes = 1_000
    else:
        other.is_leaving = True
    lab.run()
    assert sent(lab, YourJobs) == [(1, 0)]
    assert lab.states_of(id) == [-1, QUEUED]
    assert lab.nodes[1].jobs[id].holders == 1
    assert lab.nodes[1].custody == {}
    assert all(d.wishes == {} for d in lab.nodes[1].demands.values())
    assert lab.get(1) == [id]


def test_sources() -> None:
    """F3.4 The sender is a source for 5 s; the import counters grow."""
    lab = Lab(2)
    adds(lab, 1, 9)
    wish(lab, 0, 1, 4)
    d = lab.nodes[0].demands[b"q"]
    assert list(d.sources) == [lab.slot(0, 1)]
    assert d.rate(lab.now_ms) == 80


@pytest.mark.parametrize("retry_s", [0, 10])
def test_times_do_not_grow_on_the_way(retry_s: int) -> None:
    """B2.3 Times on the bus are remaining ms."""
    lab = Lab(3)
    (id,) = adds(lab, 0, 1, retry_s=retry_s, ttl_s=100)
    ends = [lab.nodes[0].jobs[id].expire_ms]
    for k in range(12):
        wish(lab, (k + 1) % 3, k % 3, 1)
        ends.append(lab.nodes[(k + 1) % 3].jobs[id].expire_ms)
    assert len(set(ends)) == 1


def test_long_delays_are_long_everywhere() -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J."""
    lab = Lab(2)
    for delay_s in (4_294_967, 4_294_968, 50 * 86_400, (1 << 31) - 2):
        id = lab.add(0, replicate=2, retry_s=60, delay_s=delay_s, ttl_s=(1 << 31) - 1)
        for n in lab.nodes:
            assert n.jobs[id].qtime_ms - lab.now_ms >= delay_s * 1_000


# ---- at most once


def test_custody_goes_over_once() -> None:
    """F2.3 AMO jobs are in transit: journaled and not delivered here until GOTJOBS says that the
    sender has them. Then they are unregistered with cause moved, and LEFT is sent when that is on
    disk as J4.4 says."""
    lab = Lab(2)
    records = Records(lab.nodes[1].node_ids)
    lab.nodes[1].records = records
    wish(lab, 0, 1, 1)
    lab.hold(0, 1)
    (id,) = adds(lab, 1, 1, retry_s=0)
    job = lab.nodes[1].jobs[id]
    assert job.flags & IN_TRANSIT
    assert job.state == ACTIVE
    assert records.has_custody
    assert not on_enqueue(lab.nodes[1], id)
    assert lab.get(1) == []
    lab.release(0, 1)
    lab.run()
    assert lab.states_of(id) == [QUEUED, -1]
    assert lab.nodes[1].ledger.moved == 1
    assert sent(lab, Left) == [(1, 0)]
    assert lab.nodes[0].jobs[id].holders == 1
    assert lab.nodes[0].custody == lab.nodes[1].custody == {}
    assert lab.get(0) == [id]


def lose(lab: Lab, lost: str) -> bytes:
    """An at-most-once job goes from node 1 to node 0, and the link breaks at that word."""
    if lost == "jobs":
        lab.hold(1, 0)
    elif lost == "answer":
        lab.hold(0, 1)
    job, _ = lab.try_add(1, b"q", replicate=1, retry_s=0)
    assert job is not None
    while lost == "left" and sent(lab, GotJobs) == []:
        lab.step()
    if lost == "left":
        lab.hold(1, 0)
    lab.run()
    lab.cut(0, 1)
    return job.id


@pytest.mark.parametrize("lost", ["jobs", "answer", "left"])
@pytest.mark.parametrize("state", ["queued", "handed out", "deleted", "acked"])
def test_lost_words_are_repeated(lost: str, state: str) -> None:
    """F2.3 Unanswered YOURJOBS and GOTJOBS of AMO jobs are repeated to the same node when a link
    comes up; a node that has had the job confirms it again."""
    lab = Lab(3)
    if state == "queued":
        wish(lab, 0, 1, 1)
    else:
        lab.wait(0, client=5)
    id = lose(lab, lost)
    given = [job.id for job in lab.served[0].get(5, [])]
    n = lab.nodes[0]
    if given and state == "deleted":
        on_deljob(n, id)
    elif given and state == "acked":
        unregister(n, n.jobs[id], GC_ACKED)
        n.tombs.add(id, lab.now_ms + 60_000, 3, n.round)
    lab.pass_ms(5_000)
    assert lab.get(1) == []
    assert lab.get(2) == []
    for _ in range(3):
        lab.heal()
        lab.run()
        lab.cut(0, 1)
    lab.heal()
    lab.run()
    given = [job.id for job in lab.served[0].get(5, [])]
    for i in (0, 1, 2, 0):
        given += lab.get(i)
    assert given == [id]
    assert [other.custody for other in lab.nodes] == [{}, {}, {}]


def test_a_job_goes_on_only_after_left() -> None:
    """F2.3 An AMO job moves on to a third node only after LEFT."""
    lab = Lab(3)
    wish(lab, 0, 1, 1)
    id = lose(lab, "answer")
    lab.wait(2, client=9)
    often = lab.add(0, replicate=1, retry_s=10)
    assert [job.id for job in lab.served[2][9]] == [often]  # it passes the one that must stay
    lab.wait(2, client=10)
    lab.pass_ms(5_000)
    assert 10 not in lab.served[2]
    lab.heal()
    lab.run()
    assert [job.id for job in lab.served[2][10]] == [id]
    assert lab.holders_of(id) == [2]


@pytest.mark.parametrize("steps", range(1, 12))
def test_every_step_of_a_transfer_may_be_the_last(steps: int) -> None:
    """Promise 2: whatever message is lost, an AMO job is handed out once, and not lost."""
    lab = Lab(3)
    ids = adds(lab, 1, 6, retry_s=0)
    got: list[bytes] = []
    for turn in range(30):
        a, b = turn % 3, (turn + 1 + turn // 3 % 2) % 3
        lab.nodes[a].now_ms = lab.now_ms
        on_poll(lab.nodes[a], [b"q"])
        for _ in range(steps):
            lab.step()
        if a != b:
            lab.cut(a, b)
        lab.pass_ms(300)
        if turn % 4 == 0:
            got += lab.get(turn // 4 % 3)
        lab.heal()
    lab.pass_ms(1_000)
    for i in (0, 1, 2) * 6:
        got += lab.get(i)
    assert sorted(got) == sorted(ids)
    assert [n.custody for n in lab.nodes] == [{}, {}, {}]


def test_a_node_without_memory_is_not_trusted() -> None:
    """F2.3 If it restarted without memory, AMO jobs in transit to it stay as they are until they
    expire."""
    lab = Lab(2)
    lab.wait(0)
    id = lose(lab, "answer")
    end_ms = lab.nodes[1].jobs[id].expire_ms
    assert [job.id for job in lab.served[0][7]] == [id]
    lab.die(0)
    lose_transits(lab.nodes[1], lab.slot(1, 0))
    lab.link(0, 1)
    lab.wait(0, client=9)
    lab.pass_ms(end_ms - lab.now_ms - 100)
    assert 9 not in lab.served[0]
    assert lab.states_of(id) == [-1, ACTIVE]
    lab.pass_ms(200)
    assert lab.states_of(id) == [-1, -1]


@pytest.mark.parametrize("why", ["expired", "evicted", "deleted"])
def test_a_job_that_ended_is_not_taken_again(why: str) -> None:
    """F2.3 a node that has had the job confirms it again."""
    lab = Lab(2)
    lab.wait(0)
    id = lose(lab, "answer")
    n = lab.nodes[0]
    remove(n, n.jobs[id], {"expired": EXPIRED, "evicted": EVICTED}.get(why, ADMIN_DELETED))
    lab.heal()
    lab.wait(0, client=8)
    assert 8 not in lab.served[0]
    assert lab.states_of(id) == [-1, -1]


def test_a_restart_keeps_jobs_in_transit() -> None:
    """F2.3 AMO jobs are in transit: journaled and not delivered here until GOTJOBS says that the
    sender has them."""
    lab = Lab(2)
    n = lab.nodes[1]
    job = Job(n.ids.make(60, 0), b"q", b"", 1, lab.now_ms + 60_000, 0, 0, 1)
    job.flags = IN_TRANSIT | 8
    job.holders = 1 | 1 << lab.slot(1, 0)
    assert restore_job(n, job)
    assert job.state == ACTIVE
    assert lab.get(1) == []
    assert n.custody == {job.id: lab.slot(1, 0)}
    lab.isolate(0)
    lab.heal()
    lab.run()
    assert lab.states_of(job.id) == [QUEUED, -1]


def test_a_job_added_elsewhere_moves_on() -> None:
    """F2.3 An AMO job moves on to a third node only after LEFT."""
    lab = Lab(3)
    origin = lab.nodes[0]
    origin.is_leaving = True
    id = lab.add(0, replicate=1, retry_s=0)
    server = next(i for i in (1, 2) if lab.states_of(id)[i] == QUEUED)
    assert lab.nodes[server].jobs[id].holders == 1
    origin.is_leaving = False
    lab.wait(0)  # and it comes back to where it was added
    assert [job.id for job in lab.served[0][7]] == [id]
    assert lab.holders_of(id) == [0]
    assert [n.custody for n in lab.nodes] == [{}, {}, {}]


def test_a_copy_without_custody_may_get_it() -> None:
    """F2.3 AMO jobs are in transit: journaled and not delivered here until GOTJOBS says that the
    sender has them."""
    lab = Lab(3)
    id = external_twice(lab)
    lab.wait(2)
    assert [given.id for given in lab.served[2][7]] == [id]
    assert lab.holders_of(id) == [2]
