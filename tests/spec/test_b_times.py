"""SPEC B2.6: what each time in a message means, in every state a job can be told of in."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tuque.core.copies.ack import on_ackjob, on_deadletter, on_fastack
from tuque.core.copies.replicate import fail
from tuque.core.model.errors import NOREPL, Refusal
from tuque.core.model.job import ACKED, ACTIVE, QUEUED, WAIT_REPL, Job
from tuque.core.msgs import bus as msgs
from tuque.core.msgs.bus import (
    Delivered,
    DelJob,
    Enqueue,
    Message,
    Moved,
    ReplJob,
    SetAck,
    Working,
)
from tuque.core.queues.requeue import on_nack, on_working
from tuque.core.repair.drain import drain_left
from tuque.core.repair.node_loss import lose_copy
from world import World

Make = Callable[..., World]

J_MS = 500  # what a copy may add of its own
ON_WAY_MS = 200  # how long frames travel here

MEANINGS = {
    "ReplJob.ctime_ns": "instant of creation",
    "ReplJob.left_ms": "to live",
    "ReplJob.due_ms": "until the receiver queues it",
    "Enqueue.delay_ms": "until the receiver may hand it out",
    "Delivered.left_ms": "left alone",
    "Working.left_ms": "left alone",
    "Moved.left_ms": "left alone",
    "LifeAt.due_ms": "left alone",
    "LifeAt.left_ms": "remembered",
    "EditAt.delay_ms": "until the sender queues it",
    "UpdateAt.delay_ms": "until the receiver queues it",
    "UpdateAt.ttl_ms": "to live",
    "JobTold.since_ms": "since then a worker has it",
    "AttemptAt.began_ms": "instant on the sender's clock",
    "AttemptAt.ended_ms": "instant on the sender's clock",
    "MoreAt.added_ms": "instant of creation",
    "SetAck.left_ms": "remembered",
    "DelJob.left_ms": "remembered",
    "Pause.stamp_ns": "instant of the command",
    "QueueAt.expires_ms": "option",
    "QueueAt.ttl_ms": "option",
    "TubeAt.made_ns": "instant of creation",
    "TubeAt.ttl_ms": "option",
    "TubeAt.ttr_ms": "option",
    "TubeClaim.made_ns": "instant of creation",
    "TubeCopy.made_ns": "instant of creation",
    "TubeCopy.now_ms": "instant on the home's clock",
    "TubeGot.made_ns": "instant of creation",
    "TubeYours.made_ns": "instant of creation",
    "TubePulse.timeout_ms": "option",
    "StandAt.made_ns": "instant of creation",
    "VoteAt.made_ns": "instant of creation",
    "VotedAt.made_ns": "instant of creation",
}


def test_every_time_has_a_meaning() -> None:
    """B2.6 Each time in a message has one meaning."""
    found = {
        f"{kind.__name__}.{field.name}"
        for kind in vars(msgs).values()
        if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
        for field in msgspec.structs.fields(kind)
        if field.name.endswith(("_ms", "_ns", "_s")) and field.name not in ("retry_s", "delay_s")
    }
    assert found == set(MEANINGS)


def slowly(world: World, act: Callable[[], object]) -> None:
    """Do something, and let what node 0 says of it travel for a while."""
    others = range(1, len(world.nodes))
    for b in others:
        world.hold(0, b)
    act()
    world.settle()
    world.pass_ms(ON_WAY_MS)
    for b in others:
        world.release(0, b)


def copy_at(world: World, id: bytes) -> Job:
    """The record of the job at a node other than 0."""
    return next(n.jobs[id] for n in world.cores[1:] if id in n.jobs)


def left_s(world: World, job: Job) -> tuple[float, float]:
    """How far its due time may lie ahead, in s, without what the copy adds of its own."""
    least_ms = job.qtime_ms - world.now_ms - J_MS
    return least_ms / 1000, (job.qtime_ms - world.now_ms) / 1000


def is_due_in(world: World, id: bytes, wait_s: float) -> bool:
    """Whether the copy is due so long after it came, but for J."""
    low, high = left_s(world, copy_at(world, id))
    return low <= wait_s <= high


def add(world: World, *words: str, **options: int) -> bytes:
    """ADDJOB at node 0, its copies on their way for a while; the id."""
    producer = world.at(0, 1)
    slowly(world, lambda: producer.send_add("q", "body", *words, **options))
    id = producer.take()
    assert isinstance(id, bytes)
    return id


def lease(world: World) -> None:
    """A group at node 0 takes a batch."""
    epoch = world.at(0)("LEASE", "OPEN", "g", "me", "q")
    assert world.at(0)("LEASE", "NEXT", "g", epoch, 1, "COUNT", 100, "TTL", 60_000)


@pytest.mark.parametrize("is_async", [0, 1])
@pytest.mark.parametrize(("delay_s", "wait_s"), [(0, 10), (7, 17)])
def test_a_copy_waits_for_the_delay_and_one_retry_time(
    make_world: Make, is_async: int, delay_s: int, wait_s: int
) -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J.

    B2.6 REPLJOB and REPLJOBS: how long the receiver waits for others to queue the job before it
    does so itself.
    """
    world = make_world(2, journal="off")
    words = ("ASYNC",) if is_async else ()
    id = add(world, *words, replicate=2, retry=10, delay=delay_s)
    on_way_s = ON_WAY_MS / 1000 if is_async and delay_s else 0
    assert is_due_in(world, id, wait_s) or is_due_in(world, id, wait_s - on_way_s)


def test_a_copy_of_a_job_that_was_fetched_at_once(make_world: Make) -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J."""
    world = make_world(2, journal="off")
    world.at(0, 9).wait()
    id = add(world, "ASYNC", replicate=2, retry=10)
    assert world.at(0, 9).served() == [id]
    world.pass_ms(1_000)
    low, high = left_s(world, copy_at(world, id))
    assert low <= 9 <= high


def test_a_copy_of_a_dead_letter(make_world: Make) -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J."""
    world = make_world(2, journal="off")
    old = world.at(0).add(replicate=2, retry=10)
    dead: list[Job] = []
    slowly(
        world,
        lambda: dead.append(
            on_deadletter(world.node(0).core, world.node(0).core.jobs[old], b"dead", b"")
        ),
    )
    assert dead[0].state == QUEUED
    assert is_due_in(world, dead[0].id, int(dead[0].retry_s))


def test_a_copy_that_is_sent_again(make_world: Make) -> None:
    """B2.6 REPLJOB and REPLJOBS: how long the receiver waits for others to queue the job before it
    does so itself."""
    world = make_world(2, journal="off")
    world.hold(0, 1)
    job = world.node(0).core.jobs[world.at(0, 1).begin_add(replicate=2, retry=10, delay=20)]
    world.pass_ms(400)  # it was said more than once by now
    assert job.state == WAIT_REPL
    world.release(0, 1)
    assert sum(isinstance(m, ReplJob) for _, _, m in world.heard()) > 1
    assert is_due_in(world, job.id, 30) or is_due_in(world, job.id, 29.6)


@pytest.mark.parametrize("state", ["queued", "at a worker", "delayed", "leased"])
def test_a_repaired_copy_has_the_due_time_of_its_sender(make_world: Make, state: str) -> None:
    """R2.5 A copy made by repair (K5.3) takes the due time of the sender, in its first delay
    that of the other copies.
    """
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=30, delay=20 if state == "delayed" else 0)
    if state == "at a worker":
        assert world.at(0).get() == [id]
    elif state == "leased":
        lease(world)
    world.pass_ms(5_000)
    world.restart(1)
    world.link(0, 1)
    lose_copy(world.node(0).core, world.node(0).core.jobs[id], world.slot(0, 1))
    world.pass_ms(3_000)
    n = world.node(0).core
    own_ms = n.jobs[id].qtime_ms
    if state == "delayed":
        own_ms += 30_000
    elif state == "leased":
        own_ms = world.now_ms + 30_000
    assert id in world.node(1).core.jobs
    behind_ms = world.node(1).core.jobs[id].qtime_ms - own_ms
    assert -3_000 <= behind_ms <= J_MS if state == "leased" else 0 <= behind_ms <= J_MS


@pytest.mark.parametrize(("delay_s", "state"), [(0, QUEUED), (20, ACTIVE)])
def test_a_job_that_is_given_away(make_world: Make, delay_s: int, state: int) -> None:
    """B2.6 YOURJOBS and ENQUEUE: after how long the receiver may deliver the job, 0 at once."""
    world = make_world(2, journal="off")
    once = world.at(0).add(replicate=1, retry=0, delay=delay_s)
    id = world.at(0).add(replicate=1, retry=30, delay=delay_s)
    due_ms = world.node(0).core.jobs[id].qtime_ms
    world.leave(0)
    world.pass_ms(3_000)
    assert drain_left(world.node(0).core) == 0
    for moved in (once, id):
        job = world.node(1).core.jobs[moved]
        assert job.state == state
        if delay_s > 0:
            assert 0 <= job.qtime_ms - due_ms < 10


@pytest.mark.parametrize(("delay_s", "state"), [(0, QUEUED), (20, ACTIVE)])
@pytest.mark.parametrize("retry_s", [0, 30])
def test_a_job_that_was_added_for_others(
    make_world: Make, retry_s: int, delay_s: int, state: int
) -> None:
    """B2.6 YOURJOBS and ENQUEUE: after how long the receiver may deliver the job, 0 at once."""
    world = make_world(2, journal="off")
    world.leave(0)
    start_ms = world.now_ms
    id = world.at(0).add(replicate=1, retry=retry_s, delay=delay_s)
    assert any(isinstance(m, Enqueue) for _, _, m in world.heard())
    job = world.node(1).core.jobs[id]
    assert job.state == state
    if delay_s > 0:
        assert job.qtime_ms == start_ms + 20_000


def alone_ms(world: World, kind: type[Message], id: bytes) -> int:
    """How long the last message of that kind tells the other node to leave the job alone."""
    said = [
        m.left_ms
        for a, _, m in world.heard()
        if a == 0 and isinstance(m, Delivered | Working | Moved)
        if type(m) is kind and m.id == id
    ]
    return said[-1]


@pytest.mark.parametrize("retry_s", [4, 30])
def test_a_job_at_a_worker_is_left_alone(make_world: Make, retry_s: int) -> None:
    """B2.6 DELIVERED, WORKING and MOVED: how long the receiver does not act on the job."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=retry_s)
    assert world.at(0).get() == [id]
    world.pass_ms(700)
    here, there = world.node(0).core.jobs[id], world.node(1).core.jobs[id]
    assert alone_ms(world, Delivered, id) <= retry_s * 1000 + 100
    assert 150 <= there.qtime_ms - here.qtime_ms <= J_MS
    world.pass_ms(retry_s * 400)
    assert on_working(world.node(0).core, id) is None
    world.settle()
    assert retry_s * 1000 <= alone_ms(world, Working, id) <= retry_s * 1000 + J_MS
    assert 150 <= there.qtime_ms - here.qtime_ms <= J_MS
    assert on_nack(world.node(0).core, id, 5_000)
    world.settle()
    assert alone_ms(world, Working, id) == 5_000 + retry_s * 1000
    assert 150 <= there.qtime_ms - here.qtime_ms - retry_s * 1000 <= J_MS


def test_a_leased_job_is_left_alone(make_world: Make) -> None:
    """B2.6 DELIVERED, WORKING and MOVED: how long the receiver does not act on the job."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=4)
    lease(world)
    assert alone_ms(world, Working, id) == 4_000
    assert 4_150 <= world.node(1).core.jobs[id].qtime_ms - world.now_ms <= 4_000 + J_MS


def test_a_job_that_moved_is_left_alone(make_world: Make) -> None:
    """B2.6 DELIVERED, WORKING and MOVED: how long the receiver does not act on the job."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=2, retry=30)
    (other,) = (i for i in (1, 2) if id in world.node(i).core.jobs)
    world.at(3 - other, 9).wait()
    assert world.at(3 - other, 9).served() == [id]
    assert alone_ms(world, Moved, id) == 30_000
    assert 30_150 <= world.node(other).core.jobs[id].qtime_ms - world.now_ms <= 30_000 + J_MS


def test_the_end_is_remembered_as_long_as_the_job_would_have_lived(make_world: Make) -> None:
    """B2.6 SETACK and DELJOB: how long the receiver remembers that the job is over."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=2, retry=30, ttl=1000)
    other = next(i for i in (1, 2) if id not in world.node(i).core.jobs)
    n = world.node(0).core
    n.jobs[id].holders |= 1 << world.slot(0, other)  # as if a copy were on its way there
    world.pass_ms(2_000)
    assert on_ackjob(n, id)
    world.settle()
    told = [m.left_ms for _, _, m in world.heard() if isinstance(m, SetAck | DelJob) and m.id == id]
    assert len(told) >= 4
    assert set(told) == {998_000}
    end_ms = world.node(other).core.tombs.ids[id].end_ms
    assert 998_000 <= end_ms - world.now_ms <= 998_000 + (1 << 15)


def test_no_time_is_below_zero(make_world: Make) -> None:
    """B2.1 Counts are checked against the bytes left before anything is allocated, and every field
    against its range before a rule sees it."""
    world = make_world(2, journal="off")
    n = world.node(0).core
    for command in (on_fastack, on_ackjob):
        id = world.at(0).add(replicate=2, retry=30, ttl=60)
        n.now_ms = world.now_ms + 61_000  # a turn that began late: it has expired
        assert command(n, id)
        said = [m for peer in n.peers for m in peer.outbox]
        assert min(m.left_ms for m in said if isinstance(m, SetAck | DelJob)) > 0
        n.now_ms = world.now_ms
        world.settle()
    world.hold(0, 1)
    job = world.node(0).core.jobs[world.at(0, 1).begin_add(replicate=2, retry=30, ttl=60)]
    n.now_ms = world.now_ms + 61_000
    fail(n, n.adding[job.id], Refusal(NOREPL))
    said = [m for peer in n.peers for m in peer.outbox]
    assert [m.left_ms > 0 for m in said if isinstance(m, DelJob)] == [True]
    n.now_ms = world.now_ms
    world.release(0, 1)
    assert world.states(job.id)[1] in (-1, ACKED)
