"""SPEC B2.6: what each time in a message means, in every state a job can be told of in."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from test_y_cluster import lease

from cluster_lab import Lab
from tuque.core import msgs
from tuque.core.copies.ack import on_ackjob, on_deadletter, on_fastack
from tuque.core.copies.replicate import fail
from tuque.core.model.errors import NOREPL, Refusal
from tuque.core.model.job import ACKED, ACTIVE, QUEUED, WAIT_REPL, Job
from tuque.core.msgs import (
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
    "Hold.due_ms": "until the sender queues it",
    "Hold.left_ms": "to live",
    "HoldTold.since_ms": "since then a worker has it",
    "SetAck.left_ms": "remembered",
    "DelJob.left_ms": "remembered",
    "Pause.stamp_ns": "instant of the command",
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


def slowly(lab: Lab, act: Callable[[], object]) -> None:
    """Do something, and let what node 0 says of it travel for a while."""
    for n in lab.nodes:
        n.now_ms = lab.now_ms
    others = range(1, len(lab.nodes))
    for b in others:
        lab.hold(0, b)
    act()
    lab.run()
    lab.pass_ms(ON_WAY_MS)
    for b in others:
        lab.release(0, b)
    lab.run()


def copy_at(lab: Lab, id: bytes) -> Job:
    """The record of the job at a node other than 0."""
    return next(n.jobs[id] for n in lab.nodes[1:] if id in n.jobs)


def left_s(lab: Lab, job: Job) -> tuple[float, float]:
    """How far its due time may lie ahead, in s, without what the copy adds of its own."""
    least_ms = job.qtime_ms - lab.now_ms - J_MS
    return least_ms / 1000, (job.qtime_ms - lab.now_ms) / 1000


def is_due_in(lab: Lab, id: bytes, wait_s: float) -> bool:
    """Whether the copy is due so long after it came, but for J."""
    low, high = left_s(lab, copy_at(lab, id))
    return low <= wait_s <= high


def add(lab: Lab, **options: int) -> bytes:
    """ADDJOB at node 0, its copies on their way for a while; the id."""
    made: list[Job] = []

    def begin() -> None:
        job, refused = lab.try_add(0, b"q", **options)
        assert job is not None, refused
        made.append(job)

    slowly(lab, begin)
    return made[0].id


@pytest.mark.parametrize("is_async", [0, 1])
@pytest.mark.parametrize(("delay_s", "wait_s"), [(0, 10), (7, 17)])
def test_a_copy_waits_for_the_delay_and_one_retry_time(
    is_async: int, delay_s: int, wait_s: int
) -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J.

    B2.6 REPLJOB and REPLJOBS: how long the receiver waits for others to queue the job before it
    does so itself.
    """
    lab = Lab(2)
    id = add(lab, replicate=2, retry_s=10, delay_s=delay_s, is_async=is_async)
    on_way_s = ON_WAY_MS / 1000 if is_async and delay_s else 0
    assert is_due_in(lab, id, wait_s) or is_due_in(lab, id, wait_s - on_way_s)


def test_a_copy_of_a_job_that_was_fetched_at_once() -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J."""
    lab = Lab(2)
    lab.wait(0, client=9)
    id = add(lab, replicate=2, retry_s=10, is_async=1)
    assert [job.id for job in lab.served[0][9]] == [id]
    lab.pass_ms(1_000)
    low, high = left_s(lab, copy_at(lab, id))
    assert low <= 9 <= high


def test_a_copy_of_a_dead_letter() -> None:
    """R2.5 The due time of an ALO job is now + the remaining delay + retry + J."""
    lab = Lab(2)
    old = lab.add(0, replicate=2, retry_s=10)
    dead: list[Job] = []
    slowly(
        lab, lambda: dead.append(on_deadletter(lab.nodes[0], lab.nodes[0].jobs[old], b"dead", b""))
    )
    assert dead[0].state == QUEUED
    assert is_due_in(lab, dead[0].id, int(dead[0].retry_s))


def test_a_copy_that_is_sent_again() -> None:
    """B2.6 REPLJOB and REPLJOBS: how long the receiver waits for others to queue the job before it
    does so itself."""
    lab = Lab(2)
    lab.hold(0, 1)
    job, _ = lab.try_add(0, b"q", replicate=2, retry_s=10, delay_s=20)
    assert job is not None
    lab.pass_ms(400)  # it was said more than once by now
    assert job.state == WAIT_REPL
    lab.release(0, 1)
    lab.run()
    assert sum(isinstance(m, ReplJob) for _, _, m in lab.log) > 1
    assert is_due_in(lab, job.id, 30) or is_due_in(lab, job.id, 29.6)


@pytest.mark.parametrize("state", ["queued", "at a worker", "delayed", "leased"])
def test_a_repaired_copy_has_the_due_time_of_its_sender(state: str) -> None:
    """R2.5 A copy made by repair (K5.3) takes the due time of the sender. During its first delay it
    takes that of the other copies.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=30, delay_s=20 if state == "delayed" else 0)
    if state == "at a worker":
        assert lab.get(0) == [id]
    elif state == "leased":
        lease(lab, 0)
    lab.pass_ms(5_000)
    lab.die(1)
    lab.link(0, 1)
    lose_copy(lab.nodes[0], lab.nodes[0].jobs[id], lab.slot(0, 1))
    lab.pass_ms(3_000)
    n = lab.nodes[0]
    own_ms = n.jobs[id].qtime_ms
    if state == "delayed":
        own_ms += 30_000
    elif state == "leased":
        own_ms = lab.now_ms + 30_000
    assert id in lab.nodes[1].jobs
    behind_ms = lab.nodes[1].jobs[id].qtime_ms - own_ms
    assert -3_000 <= behind_ms <= J_MS if state == "leased" else 0 <= behind_ms <= J_MS


@pytest.mark.parametrize(("delay_s", "state"), [(0, QUEUED), (20, ACTIVE)])
def test_a_job_that_is_given_away(delay_s: int, state: int) -> None:
    """B2.6 YOURJOBS and ENQUEUE: after how long the receiver may deliver the job, 0 at once."""
    lab = Lab(2)
    once = lab.add(0, replicate=1, retry_s=0, delay_s=delay_s)
    id = lab.add(0, replicate=1, retry_s=30, delay_s=delay_s)
    due_ms = lab.nodes[0].jobs[id].qtime_ms
    lab.leave(0)
    lab.pass_ms(3_000)
    assert drain_left(lab.nodes[0]) == 0
    for moved in (once, id):
        job = lab.nodes[1].jobs[moved]
        assert job.state == state
        if delay_s > 0:
            assert 0 <= job.qtime_ms - due_ms < 10


@pytest.mark.parametrize(("delay_s", "state"), [(0, QUEUED), (20, ACTIVE)])
@pytest.mark.parametrize("retry_s", [0, 30])
def test_a_job_that_was_added_for_others(retry_s: int, delay_s: int, state: int) -> None:
    """B2.6 YOURJOBS and ENQUEUE: after how long the receiver may deliver the job, 0 at once."""
    lab = Lab(2)
    lab.leave(0)
    start_ms = lab.now_ms
    id = lab.add(0, replicate=1, retry_s=retry_s, delay_s=delay_s)
    assert any(isinstance(m, Enqueue) for _, _, m in lab.log)
    job = lab.nodes[1].jobs[id]
    assert job.state == state
    if delay_s > 0:
        assert job.qtime_ms == start_ms + 20_000


def alone_ms(lab: Lab, kind: type[Message], id: bytes) -> int:
    """How long the last message of that kind tells the other node to leave the job alone."""
    said = [
        m.left_ms
        for a, _, m in lab.log
        if a == 0 and isinstance(m, Delivered | Working | Moved)
        if type(m) is kind and m.id == id
    ]
    return said[-1]


@pytest.mark.parametrize("retry_s", [4, 30])
def test_a_job_at_a_worker_is_left_alone(retry_s: int) -> None:
    """B2.6 DELIVERED, WORKING and MOVED: how long the receiver does not act on the job."""
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=retry_s)
    assert lab.get(0) == [id]
    lab.pass_ms(700)
    here, there = lab.nodes[0].jobs[id], lab.nodes[1].jobs[id]
    assert alone_ms(lab, Delivered, id) <= retry_s * 1000 + 100
    assert 150 <= there.qtime_ms - here.qtime_ms <= J_MS
    lab.pass_ms(retry_s * 400)
    assert on_working(lab.nodes[0], id) is None
    lab.run()
    assert retry_s * 1000 <= alone_ms(lab, Working, id) <= retry_s * 1000 + J_MS
    assert 150 <= there.qtime_ms - here.qtime_ms <= J_MS
    assert on_nack(lab.nodes[0], id, 5_000)
    lab.run()
    assert alone_ms(lab, Working, id) == 5_000 + retry_s * 1000
    assert 150 <= there.qtime_ms - here.qtime_ms - retry_s * 1000 <= J_MS


def test_a_leased_job_is_left_alone() -> None:
    """B2.6 DELIVERED, WORKING and MOVED: how long the receiver does not act on the job."""
    lab = Lab(2)
    id = lab.add(0, replicate=2, retry_s=4)
    lease(lab, 0)
    assert alone_ms(lab, Working, id) == 4_000
    assert 4_150 <= lab.nodes[1].jobs[id].qtime_ms - lab.now_ms <= 4_000 + J_MS


def test_a_job_that_moved_is_left_alone() -> None:
    """B2.6 DELIVERED, WORKING and MOVED: how long the receiver does not act on the job."""
    lab = Lab(3)
    id = lab.add(0, replicate=2, retry_s=30)
    (other,) = (i for i in (1, 2) if id in lab.nodes[i].jobs)
    lab.wait(3 - other, client=9)
    assert [job.id for job in lab.served[3 - other][9]] == [id]
    assert alone_ms(lab, Moved, id) == 30_000
    assert 30_150 <= lab.nodes[other].jobs[id].qtime_ms - lab.now_ms <= 30_000 + J_MS


def test_the_end_is_remembered_as_long_as_the_job_would_have_lived() -> None:
    """B2.6 SETACK and DELJOB: how long the receiver remembers that the job is over."""
    lab = Lab(3)
    id = lab.add(0, replicate=2, retry_s=30, ttl_s=1000)
    other = next(i for i in (1, 2) if id not in lab.nodes[i].jobs)
    n = lab.nodes[0]
    n.jobs[id].holders |= 1 << lab.slot(0, other)  # as if a copy were on its way there
    lab.pass_ms(2_000)
    assert on_ackjob(n, id)
    lab.run()
    told = [m.left_ms for _, _, m in lab.log if isinstance(m, SetAck | DelJob) and m.id == id]
    assert len(told) >= 4
    assert set(told) == {998_000}
    end_ms = lab.nodes[other].tombs.ids[id].end_ms
    assert 998_000 <= end_ms - lab.now_ms <= 998_000 + (1 << 15)


def test_no_time_is_below_zero() -> None:
    """B2.1 Counts are checked against the bytes left before anything is allocated, and every field
    against its range before a rule sees it."""
    lab = Lab(2)
    for command in (on_fastack, on_ackjob):
        id = lab.add(0, replicate=2, retry_s=30, ttl_s=60)
        lab.nodes[0].now_ms = lab.now_ms + 61_000  # a turn that began late: it has expired
        assert command(lab.nodes[0], id)
        said = [m for peer in lab.nodes[0].peers for m in peer.outbox]
        assert min(m.left_ms for m in said if isinstance(m, SetAck | DelJob)) > 0
        lab.run()
    lab.hold(0, 1)
    job, _ = lab.try_add(0, b"q", replicate=2, retry_s=30, ttl_s=60)
    assert job is not None
    lab.run()
    n = lab.nodes[0]
    n.now_ms = lab.now_ms + 61_000
    fail(n, n.adding[job.id], Refusal(NOREPL))
    said = [m for peer in n.peers for m in peer.outbox]
    assert [m.left_ms > 0 for m in said if isinstance(m, DelJob)] == [True]
    lab.release(0, 1)
    lab.run()
    assert lab.states_of(job.id)[1] in (-1, ACKED)
