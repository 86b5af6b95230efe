"""SPEC R1.12: new jobs that are alike share the message with their copies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raw_resp import encode
from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.add import on_addjob, settle
from tuque.core.copies.federation import pause_queue
from tuque.core.copies.replicate import on_producer_gone, send_copies
from tuque.core.dispatch.messages import on_message
from tuque.core.model.job import ACTIVE, QUEUED, AddSpec
from tuque.core.msgs.bus import (
    DelJob,
    GotJob,
    ReplJob,
    ReplJobs,
    SetAck,
    Slots,
)
from tuque.core.node.peers import BODY_MAX, SIZE_MAX
from tuque.core.node.queue import PAUSE_IN
from world import World
from world_wires import Status

Make = Callable[..., World]


def waiting(world: World, slot: int) -> list[int]:
    """How many jobs each message has that waits at node 0 for a slot; a REPLJOB has 1."""
    sizes: list[int] = []
    for m in world.node(0).core.peers[slot].outbox:
        if isinstance(m, ReplJobs):
            sizes.append(1 + len(m.others))
        elif isinstance(m, ReplJob):
            sizes.append(1)
    return sizes


def add(
    world: World, queue: bytes = b"q", *, body: bytes = b"body", client: int = 1, **options: int
) -> bytes:
    """Add a job to node 0; nothing is sent yet."""
    n = world.node(0).core
    spec = AddSpec()
    for name, value in {"replicate": 3, "retry_s": 10, **options}.items():
        assert hasattr(spec, name), name
        setattr(spec, name, bool(value) if name in ("is_async", "has_pri") else value)
    return on_addjob(n, queue, body, settle(n, spec), client, 0, 5000).id


def test_copies_of_jobs_that_are_alike_share_a_message(make_world: Make) -> None:
    """R1.12 The receiver treats each of them like a REPLJOB (R2)."""
    world = make_world(3, journal="off")
    alone = add(world)
    world.settle()
    clients = [world.at(0, i) for i in range(5)]
    for i, client in enumerate(clients):
        client.put(encode("ADDJOB", "q", str(i), 5_000, "REPLICATE", 3, "RETRY", 10))
    world.settle()
    assert [(b, 1 + len(m.others)) for _, b, m in world.heard(ReplJobs)] == [(1, 5), (2, 5)]
    ids = [client.take() for client in clients]
    assert [type(id) for id in ids] == [Status] * 5
    for i, id in enumerate(ids):
        assert world.holders(id) == [0, 1, 2]
        assert world.states(id) == [QUEUED, ACTIVE, ACTIVE]
        first, *copies = [n.jobs[id] for n in world.cores]
        for copy in copies:
            assert copy.body == first.body == b"%d" % i
            assert copy.queue == first.queue
            assert copy.ctime_ns == first.ctime_ns
            assert copy.expire_ms == first.expire_ms
            assert (copy.retry_s, copy.delay_s, copy.repl) == (first.retry_s, 0, 3)
            assert copy.qtime_ms >= world.now_ms + first.retry_s * 1000
            assert copy.holders == 7
            assert copy.flags == world.node(1).core.jobs[alone].flags
    assert len([m for _, _, m in world.heard(GotJob)]) == 4


@pytest.mark.parametrize(
    "other",
    [
        {"queue": b"p"},
        {"retry_s": 7},
        {"ttl_s": 77},
        {"retry_s": 7, "delay_s": 3},
        {"is_async": 1},
        {"pri": 3, "has_pri": 1},
    ],
    ids=["queue", "retry", "ttl", "delay", "async", "pri"],
)
def test_what_differs_has_a_message_of_its_own(make_world: Make, other: dict[str, int]) -> None:
    """R1.12 if they have the same queue, options and new holders."""
    world = make_world(3, journal="off")
    ids = [add(world), add(world), add(world, **other), add(world, **other), add(world)]
    assert waiting(world, 1) == [2, 2, 1]
    world.settle()
    for id in ids:
        assert world.holders(id) == [0, 1, 2]
        at = [n.jobs[id] for n in world.cores]
        facts = {(job.queue, job.retry_s, job.delay_s, job.expire_ms, job.level) for job in at}
        assert len(facts) == 1


def test_each_pair_of_holders_has_its_messages(make_world: Make) -> None:
    """With more nodes than copies a message takes the jobs of one set of holders only (R1.12)."""
    world = make_world(5, journal="off")
    ids = [add(world) for _ in range(60)]
    chosen = {id: world.node(0).core.jobs[id].holders for id in ids}
    assert len(set(chosen.values())) == 6
    world.settle()
    for id in ids:
        assert len(world.holders(id)) == 3
        assert world.node(0).core.jobs[id].holders == chosen[id]
        assert world.states(id).count(ACTIVE) == 2


def test_long_bodies_and_lives_travel_alone(make_world: Make) -> None:
    """R1.12 (cluster) New jobs that are added one after the other in a turn share a message,
    REPLJOBS, if they have the same queue, options and new holders, no options about its work
    (W1), and bodies of at most 4 KiB, 64 KiB together.
    """
    world = make_world(3, journal="off")
    add(world, body=b"x" * BODY_MAX)
    add(world, body=b"x" * BODY_MAX)
    add(world, body=b"x" * (BODY_MAX + 1))
    add(world, body=b"x" * (BODY_MAX + 1))
    assert waiting(world, 1) == [2, 1, 1]
    world.settle()
    for _ in range(SIZE_MAX // BODY_MAX + 1):
        add(world, body=b"x" * BODY_MAX)
    assert waiting(world, 1) == [SIZE_MAX // BODY_MAX, 1]
    world.settle()
    n = world.node(0).core
    spec = AddSpec()
    spec.replicate, spec.headers = 3, b"\x80"
    for _ in range(2):
        on_addjob(n, b"q", b"body", settle(n, spec), 1, 0, 5000)
    add(world)
    add(world)
    assert waiting(world, 1) == [1, 1, 2]


def test_late_copies_join_those_of_the_same_holders(make_world: Make) -> None:
    """R1.12 if they have the same queue, options and new holders."""
    world = make_world(5, journal="off")
    n = world.node(0).core
    jobs = [n.jobs[add(world)] for _ in range(5)]
    world.settle()
    for job, others in zip(jobs, ([1], [2], [4], [4], []), strict=True):
        job.holders = 1 | sum(1 << slot for slot in others)
    send_copies(n, jobs[0], [3], 0)
    send_copies(n, jobs[1], [3], 0)
    assert waiting(world, 3) == [1, 1]
    world.settle()
    send_copies(n, jobs[4], [3, 4], 0)
    send_copies(n, jobs[2], [3], 0)
    send_copies(n, jobs[3], [3], 0)
    assert waiting(world, 3) == [1, 2]
    assert waiting(world, 4) == [1]


def test_what_is_said_in_between_keeps_its_place(make_world: Make) -> None:
    """A message about a job comes after its copy, and before those of later jobs (R1.12)."""
    world = make_world(3, journal="off")
    first = add(world)
    gone = add(world, client=9)
    on_producer_gone(world.node(0).core, 9)
    last = add(world)
    kinds = [type(m) for m in world.node(0).core.peers[1].outbox]
    assert kinds == [Slots, ReplJobs, DelJob, ReplJob]
    world.settle()
    assert world.holders(first) == world.holders(last) == [0, 1, 2]
    assert world.holders(gone) == []


def test_each_job_of_a_message_has_its_own_reply(make_world: Make) -> None:
    """R1.12 The receiver treats each of them like a REPLJOB (R2).

    SETACK for one that is over (R2.2), GOTJOB for one that is known (R2.3), nothing while the
    queue is paused (R2.4).
    """
    world = make_world(3, journal="off")
    ids = [add(world) for _ in range(3)]
    n, slot = world.node(0).core, world.slot(0, 1)
    (message,) = [m for m in n.peers[slot].outbox if isinstance(m, ReplJobs)]
    world.settle()
    on_ackjob(n, ids[0])
    world.settle()
    there = world.node(1).core
    assert ids[0] not in there.jobs
    before = there.jobs[ids[1]]
    world.forget_heard()
    on_message(there, world.slot(1, 0), message)
    world.settle()
    assert there.jobs[ids[1]] is before
    answers = [m for a, _, m in world.heard() if a == 1]
    assert [m.id for m in answers if isinstance(m, SetAck)] == [ids[0]]
    assert [m.ids for m in answers if isinstance(m, GotJob)] == [ids[1:]]
    more = [add(world) for _ in range(2)]
    (message,) = [m for m in n.peers[slot].outbox if isinstance(m, ReplJobs)]
    fresh = world.node(2).core
    pause_queue(fresh, b"q", PAUSE_IN, is_bcast=False)
    on_message(fresh, world.slot(2, 0), message)
    assert not any(id in fresh.jobs for id in more)
    pause_queue(fresh, b"q", 0, is_bcast=False)
    on_message(fresh, world.slot(2, 0), message)
    assert all(id in fresh.jobs for id in more)
