"""SPEC F2.2 to F4: jobs go to another node, and exactly one of the two serves them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import encode
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
from tuque.core.msgs.bus import (
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
from world import World

Make = Callable[..., World]


def sent(world: World, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for a, b, m in world.heard(kind)]


def wish(world: World, a: int, b: int, count: int, queue: bytes = b"q") -> None:
    """Node a asks node b for jobs."""
    assert say(world.node(a).core, world.slot(a, b), NeedJobs(queue, count, True))
    world.settle()


def tell(world: World, a: int, b: int, message: AnyMessage) -> None:
    """Node a says something to node b."""
    assert say(world.node(a).core, world.slot(a, b), message)
    world.settle()


def adds(world: World, i: int, count: int, **options: int) -> list[bytes]:
    """So many jobs in q of node i."""
    return [world.at(i).add(**{"replicate": 1, "retry": 10, **options}) for _ in range(count)]


def holders(world: World, i: int, id: bytes) -> set[int]:
    """The nodes that node i believes to have a copy."""
    mask = world.node(i).core.jobs[id].holders
    return {k for k in world.numbers() if mask >> world.slot(i, k) & 1}


# ---- at least once


@pytest.mark.parametrize("has_nack", [False, True])
def test_a_job_that_is_out_is_not_queued(make_world: Make, has_nack: bool) -> None:
    """F3.6 If a worker has the known job from this node or sent WORKING here, and the frame shows
    no further NACK, the job is not enqueued; the sender gets WORKING with the time left."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=10)
    assert world.at(0).get() == [id]
    world.pass_ms(1_000)
    n = world.node(1).core
    job = n.jobs[id]
    n.now_ms = world.now_ms
    job.nacks += has_nack
    world.forget_heard()
    send_jobs(n, world.slot(1, 0), b"q", [job])
    world.settle()
    assert sent(world, YourJobs) == [(1, 0)]
    assert world.states(id) == [QUEUED if has_nack else ACTIVE, ACTIVE]
    assert [m.left_ms for _, _, m in world.heard(Working)] == [9_000] * (not has_nack)


@pytest.mark.parametrize(
    ("length", "count", "given"),
    [(10, 5, 5), (9, 5, 4), (3, 5, 1), (1, 1, 1), (1, 7, 1), (300, 100, 100), (0, 3, 0)],
)
def test_half_of_the_queue(make_world: Make, length: int, count: int, given: int) -> None:
    """F2.2 The node gives count jobs, or half of the queue if that is less, at least one, in its
    order. The sender becomes a holder of each before the frame is made, and the frame names all
    holders."""
    world = make_world(3, journal="off")
    ids = adds(world, 1, length)
    wish(world, 0, 1, count)
    assert [id for id in ids if id in world.node(0).core.jobs] == ids[:given]
    for id in ids[:given]:
        assert world.states(id)[:2] == [QUEUED, ACTIVE]
        assert holders(world, 0, id) == holders(world, 1, id) == {0, 1}


def test_a_copy_stays_and_waits(make_world: Make) -> None:
    """F2.3 ALO jobs stay here as active with due time now + retry + J."""
    world = make_world(2, journal="off")
    (id,) = adds(world, 1, 1)
    world.pass_ms(7_000)
    wish(world, 0, 1, 1)
    assert 10_000 <= world.node(1).core.jobs[id].qtime_ms - world.now_ms < 10_500
    world.cut(0, 1)  # and nothing is heard of the other node any more
    world.pass_ms(9_900)
    assert world.states(id) == [QUEUED, ACTIVE]
    world.pass_ms(700)
    assert world.states(id) == [QUEUED, QUEUED]


def test_other_holders_learn_of_a_move(make_world: Make) -> None:
    """F2.4 MOVED with the new holder goes to all other holders. They add it and postpone their due
    time to now + retry + J."""
    world = make_world(4, journal="off")
    world.isolate(3)
    id = world.at(0).add(replicate=3, retry=10)
    world.link()
    world.pass_ms(8_000)
    world.forget_heard()
    wish(world, 3, 0, 1)
    assert sorted(sent(world, Moved)) == [(0, 1), (0, 2)]
    for i in range(4):
        assert holders(world, i, id) == {0, 1, 2, 3}
    for i in range(3):
        assert 10_000 <= world.node(i).core.jobs[id].qtime_ms - world.now_ms < 10_500


@pytest.mark.parametrize("is_silent", [False, True])
def test_who_serves_a_job_tells_the_holders_that_its_sender_does_not_reach(
    make_world: Make, is_silent: bool
) -> None:
    """F3.7 If an ALO job is enqueued this way, QUEUED without a counter goes to its other
    holders, except the sender.
    """
    world = make_world(3, journal="off")
    ids = adds(world, 0, 16, replicate=3)
    for a, b in ((0, 2), (2, 0)):
        (world.hold if is_silent else world.cut)(a, b)
    world.pass_ms(11_000)
    assert all(world.states(id) == [QUEUED, ACTIVE, QUEUED] for id in ids)
    out = world.at(2).get()
    wish(world, 1, 0, 8)
    world.forget_heard()
    given = [id for id in ids if world.node(0).core.jobs[id].state == ACTIVE]
    assert len(given) == 8
    assert set(out) <= set(given), "the oldest of them"
    for id in given:
        states = world.states(id)
        assert states[1:].count(QUEUED) == (id not in out), "two queues, or one beside a worker"


def test_moved_is_no_delivery(make_world: Make) -> None:
    """F4.1 As Q9, but the job does not count as delivered, and the new holder is added."""
    world = make_world(3, journal="off")
    world.isolate(2)
    id = world.at(0).add(replicate=2, retry=10, delay=100)
    world.link()
    before = world.node(1).core.jobs[id].qtime_ms
    mask = 1 << world.slot(0, 2) | 1
    introduce(world.node(0).core, world.slot(0, 1), mask)
    tell(world, 0, 1, Moved(id, mask, 10_000))
    assert holders(world, 1, id) == {0, 1, 2}
    assert world.node(1).core.jobs[id].qtime_ms == before  # a delay is not cut short
    assert world.node(1).core.jobs[id].flags & DELIVERED == 0


def test_a_job_that_moves_takes_all_clocks_with_it(make_world: Make) -> None:
    """F2.4 MOVED with the new holder goes to all other holders. They add it and postpone their due
    time to now + retry + J."""
    # A job goes from 1 to 0 to 4 while node 2 has a copy: 2 must hear from the one that has it
    # queued now, or two nodes hand it out with no fault at all.
    world = make_world(5, journal="off")
    for i in (0, 3, 4):
        for k in (1, 2):
            world.cut(i, k)
    id = world.at(1).add(replicate=2, retry=3, ttl=600)
    world.link()
    world.pass_ms(2_400)
    wish(world, 0, 1, 1)
    assert world.states(id) == [QUEUED, ACTIVE, ACTIVE, -1, -1]
    world.pass_ms(2_400)
    wish(world, 4, 0, 1)
    for _ in range(100):
        world.pass_ms(97)
        assert world.states(id) == [ACTIVE, ACTIVE, ACTIVE, -1, QUEUED]
    assert world.at(4).get() == [id]
    world.pass_ms(2_900)
    assert world.states(id) == [ACTIVE, ACTIVE, ACTIVE, -1, ACTIVE]


def test_the_importer_answers_for_the_origin(make_world: Make) -> None:
    """Q3.3 Queued here: QUEUED goes to all other holders."""
    world = make_world(3, journal="off")
    world.cut(0, 2)
    id = world.at(0).add(replicate=2, retry=5)
    world.link()
    wish(world, 2, 0, 1)
    world.forget_heard()
    tell(world, 1, 2, WillQueue([id]))
    assert world.states(id) == [ACTIVE, ACTIVE, QUEUED]


def test_what_is_done_is_not_imported(make_world: Make) -> None:
    """F3.1 A tombstone or acked record: the sender gets SETACK, for an AMO job GOTJOBS; the job is
    not imported."""
    world = make_world(2, journal="off")
    (id,) = adds(world, 1, 1)
    world.node(0).core.tombs.add(id, world.now_ms + 60_000, 3, 0)
    wish(world, 0, 1, 1)
    assert (0, 1) in sent(world, SetAck)
    assert id not in world.node(0).core.jobs
    assert world.node(0).core.ledger.imported == 0


@pytest.mark.parametrize("retry_s", [0, 10])
def test_an_import_is_written_down(make_world: Make, retry_s: int) -> None:
    """F3.2 Known: the holder sets are merged. Unknown: the job is registered with cause
    imported, with this node and the sender as holders. It is in the journal before it is
    confirmed.
    """
    world = make_world(2, journal="off")
    records = Records(world.node(0).core.node_ids)
    world.node(0).core.records = records
    wish(world, 0, 1, 1)
    world.hold(0, 1)
    (id,) = adds(world, 1, 1, retry=retry_s)
    assert holders(world, 0, id) == {0, 1}
    assert id in records.take()  # and the answer has not arrived: frames follow the journal
    assert world.node(0).core.ledger.imported == 1


def test_a_known_copy_takes_over(make_world: Make) -> None:
    """F3.2 Known: the holder sets are merged."""
    world = make_world(3, journal="off")
    world.isolate(2)
    id = world.at(0).add(replicate=2, retry=10)
    world.link()
    world.node(0).core.jobs[id].holders |= 1 << world.slot(0, 2)
    wish(world, 1, 0, 1)
    assert holders(world, 1, id) == {0, 1, 2}
    assert world.states(id) == [ACTIVE, QUEUED, -1]
    assert world.node(1).core.ledger.imported == 0
    assert world.node(1).core.jobs[id].deliveries == 0


@pytest.mark.parametrize("why", ["pause", "memory", "leaving"])
@pytest.mark.parametrize("retry_s", [0, 10])
def test_what_is_refused_goes_back(make_world: Make, why: str, retry_s: int) -> None:
    """F3.3 The job is enqueued; no counter grows. If the input of the queue is paused, memory is
    at level 2 or above, or this node leaves or loads (F3.5), GOTJOBS refuses the job, and an
    unknown one is not registered.
    """
    world = make_world(2, journal="off")
    other = world.node(0).core
    (id,) = adds(world, 1, 1, retry=retry_s)
    say(other, world.slot(0, 1), NeedJobs(b"q", 5, True))
    world.node(0).turn()
    if why == "pause":
        set_pause(other, b"q", PAUSE_IN)
    elif why == "memory":
        other.limits.memory_bytes = 1_000
        other.base_bytes = 1_000
    else:
        other.is_leaving = True
    world.settle()
    assert sent(world, YourJobs) == [(1, 0)]
    assert world.states(id) == [-1, QUEUED]
    assert world.node(1).core.jobs[id].holders == 1
    assert world.node(1).core.custody == {}
    assert all(d.wishes == {} for d in world.node(1).core.demands.values())
    assert world.at(1).get() == [id]


def test_sources(make_world: Make) -> None:
    """F3.4 The sender is a source for 5 s; the import counters grow."""
    world = make_world(2, journal="off")
    adds(world, 1, 9)
    wish(world, 0, 1, 4)
    d = world.node(0).core.demands[b"q"]
    assert list(d.sources) == [world.slot(0, 1)]
    assert d.rate(world.now_ms) == 80


@pytest.mark.parametrize("retry_s", [0, 10])
def test_times_do_not_grow_on_the_way(make_world: Make, retry_s: int) -> None:
    """B2.3 Times on the bus are remaining ms."""
    world = make_world(3, journal="off")
    (id,) = adds(world, 0, 1, retry=retry_s, ttl=100)
    ends = [world.node(0).core.jobs[id].expire_ms]
    for k in range(12):
        wish(world, (k + 1) % 3, k % 3, 1)
        ends.append(world.node((k + 1) % 3).core.jobs[id].expire_ms)
    assert len(set(ends)) == 1


def test_long_delays_are_long_everywhere(make_world: Make) -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J."""
    world = make_world(2, journal="off")
    for delay_s in (4_294_967, 4_294_968, 50 * 86_400, (1 << 31) - 2):
        id = world.at(0).add(replicate=2, retry=60, delay=delay_s, ttl=(1 << 31) - 1)
        for n in world.cores:
            assert n.jobs[id].qtime_ms - world.now_ms >= delay_s * 1_000


# ---- at most once


def test_custody_goes_over_once(make_world: Make) -> None:
    """F2.3 AMO jobs are in transit: journaled and not delivered here until GOTJOBS confirms
    them. Then they are unregistered with cause moved, and LEFT is sent when that is on disk
    (J4.4).
    """
    world = make_world(2, journal="everysec")
    (often,) = adds(world, 1, 1)
    assert not is_durable(world, 1, often)
    wish(world, 0, 1, 1)
    wish(world, 0, 1, 1)
    world.hold(0, 1)
    (id,) = adds(world, 1, 1, retry=0)
    job = world.node(1).core.jobs[id]
    assert job.flags & IN_TRANSIT
    assert job.state == ACTIVE
    assert is_durable(world, 1, id), "the journal was synced for it"
    assert not on_enqueue(world.node(1).core, id)
    assert world.at(1).get() == []
    world.release(0, 1)
    assert world.states(id) == [QUEUED, -1]
    assert world.node(1).core.ledger.moved == 1
    assert sent(world, Left) == [(1, 0)]
    assert world.node(0).core.jobs[id].holders == 1
    assert world.node(0).core.custody == world.node(1).core.custody == {}
    assert world.at(0).get() == [id]


def is_durable(world: World, i: int, id: bytes) -> bool:
    """Whether a power cut leaves the job in the journal of node i."""
    return any(id in file.durable for file in world.disk(i).files.names.values())


def external_twice(world: World) -> bytes:
    """An at-most-once job that node 0 adds while leaving: 1 serves it, and 2 has a copy, too.

    Node 0 got neither reply in time, and knows nothing of the job in the end.
    """
    world.node(0).core.is_leaving = True
    world.hold(1, 0)
    world.hold(2, 0)
    id = world.at(0, 1).begin_add(replicate=1, retry=0)
    world.pass_ms(200)  # no reply comes: a second node gets a copy
    assert [world.states(id)[i] for i in (1, 2)] == [ACTIVE, ACTIVE]
    world.release(1, 0)
    assert world.states(id)[:3] == [-1, QUEUED, ACTIVE]
    return id


def lose(world: World, lost: str) -> bytes:
    """An at-most-once job goes from node 1 to node 0, and the link breaks at that word."""
    if lost == "jobs":
        world.hold(1, 0)
    elif lost == "answer":
        world.hold(0, 1)
    wire = world.at(1, 1)
    wire.put(encode("ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 0, "TTL", 600))
    while lost == "left" and sent(world, GotJobs) == []:
        assert world.step()
    if lost == "left":
        world.hold(1, 0)
    id = wire.take()
    world.cut(0, 1)
    return id


@pytest.mark.parametrize("lost", ["jobs", "answer", "left"])
@pytest.mark.parametrize("state", ["queued", "handed out", "deleted", "acked"])
def test_lost_words_are_repeated(make_world: Make, lost: str, state: str) -> None:
    """F2.3 Unanswered YOURJOBS and GOTJOBS of AMO jobs are repeated to the same node when a link
    comes up; a node that has had the job confirms it again."""
    world = make_world(3, journal="off")
    if state == "queued":
        wish(world, 0, 1, 1)
    else:
        world.at(0, 5).wait()
    id = lose(world, lost)
    given = world.at(0, 5).served()
    n = world.node(0).core
    if given and state == "deleted":
        on_deljob(n, id)
    elif given and state == "acked":
        unregister(n, n.jobs[id], GC_ACKED)
        n.tombs.add(id, world.now_ms + 60_000, 3, n.round)
    world.pass_ms(5_000)
    assert world.at(1).get() == []
    assert world.at(2).get() == []
    for _ in range(3):
        world.link()
        world.cut(0, 1)
    world.link()
    given = world.at(0, 5).served()
    for i in (0, 1, 2, 0):
        given += world.at(i).get()
    assert given == [id]
    assert [other.custody for other in world.cores] == [{}, {}, {}]


def test_a_job_goes_on_only_after_left(make_world: Make) -> None:
    """F2.3 An AMO job moves on to a third node only after LEFT."""
    world = make_world(3, journal="off")
    wish(world, 0, 1, 1)
    id = lose(world, "answer")
    world.at(2, 9).wait()
    often = world.at(0).add(replicate=1, retry=10)
    assert world.at(2, 9).served() == [often]  # it passes the one that must stay
    world.at(2, 10).wait()
    world.pass_ms(5_000)
    assert world.at(2, 10).served() == []
    world.link()
    assert world.at(2, 10).served() == [id]
    assert world.holders(id) == [2]


@pytest.mark.parametrize("steps", range(1, 12))
def test_every_step_of_a_transfer_may_be_the_last(make_world: Make, steps: int) -> None:
    """Promise 2: whatever message is lost, an AMO job is handed out once, and not lost."""
    world = make_world(3, journal="off")
    ids = adds(world, 1, 6, retry=0)
    got: list[bytes] = []
    for turn in range(30):
        a, b = turn % 3, (turn + 1 + turn // 3 % 2) % 3
        on_poll(world.node(a).core, [b"q"])
        for _ in range(steps):
            world.step()
        if a != b:
            world.cut(a, b)
        world.pass_ms(300)
        if turn % 4 == 0:
            got += world.at(turn // 4 % 3).get()
        world.link()
    world.pass_ms(1_000)
    for i in (0, 1, 2) * 6:
        got += world.at(i).get()
    assert sorted(got) == sorted(ids)
    assert [n.custody for n in world.cores] == [{}, {}, {}]


def test_a_node_without_memory_is_not_trusted(make_world: Make) -> None:
    """F2.3 If it restarted without memory, AMO jobs in transit to it stay so until they expire."""
    world = make_world(2, journal="off")
    world.at(0, 7).wait()
    id = lose(world, "answer")
    end_ms = world.node(1).core.jobs[id].expire_ms
    assert world.at(0, 7).served() == [id]
    world.restart(0)
    lose_transits(world.node(1).core, world.slot(1, 0))
    world.link(0, 1)
    world.at(0, 9).wait()
    world.pass_ms(end_ms - world.now_ms - 100)
    assert world.at(0, 9).served() == []
    assert world.states(id) == [-1, ACTIVE]
    world.pass_ms(200)
    assert world.states(id) == [-1, -1]


@pytest.mark.parametrize("why", ["expired", "evicted", "deleted"])
def test_a_job_that_ended_is_not_taken_again(make_world: Make, why: str) -> None:
    """F2.3 a node that has had the job confirms it again."""
    world = make_world(2, journal="off")
    world.at(0, 7).wait()
    id = lose(world, "answer")
    n = world.node(0).core
    remove(n, n.jobs[id], {"expired": EXPIRED, "evicted": EVICTED}.get(why, ADMIN_DELETED))
    world.link()
    world.at(0, 8).wait()
    assert world.at(0, 8).served() == []
    assert world.states(id) == [-1, -1]


def test_a_restart_keeps_jobs_in_transit(make_world: Make) -> None:
    """F2.3 AMO jobs are in transit: journaled and not delivered here until GOTJOBS confirms
    them.
    """
    world = make_world(2, journal="off")
    n = world.node(1).core
    job = Job(n.ids.make(60, 0), b"q", b"", 1, world.now_ms + 60_000, 0, 0, 1)
    job.flags = IN_TRANSIT | 8
    job.holders = 1 | 1 << world.slot(1, 0)
    assert restore_job(n, job)
    assert job.state == ACTIVE
    assert world.at(1).get() == []
    assert n.custody == {job.id: world.slot(1, 0)}
    world.isolate(0)
    world.link()
    assert world.states(job.id) == [QUEUED, -1]


def test_a_job_added_elsewhere_moves_on(make_world: Make) -> None:
    """F2.3 An AMO job moves on to a third node only after LEFT."""
    world = make_world(3, journal="off")
    origin = world.node(0).core
    origin.is_leaving = True
    id = world.at(0).add(replicate=1, retry=0)
    server = next(i for i in (1, 2) if world.states(id)[i] == QUEUED)
    assert world.node(server).core.jobs[id].holders == 1
    origin.is_leaving = False
    world.at(0, 7).wait()  # and it comes back to where it was added
    assert world.at(0, 7).served() == [id]
    assert world.holders(id) == [0]
    assert [n.custody for n in world.cores] == [{}, {}, {}]


def test_a_copy_without_custody_may_get_it(make_world: Make) -> None:
    """F2.3 AMO jobs are in transit: journaled and not delivered here until GOTJOBS confirms
    them.
    """
    world = make_world(3, journal="off")
    id = external_twice(world)
    world.at(2, 7).wait()
    assert world.at(2, 7).served() == [id]
    assert world.holders(id) == [2]
