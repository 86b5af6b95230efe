"""SPEC R1.12: new jobs that are alike share the message with their copies."""

from __future__ import annotations

import pytest

from cluster_lab import Lab
from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.add import on_addjob, settle
from tuque.core.copies.federation import pause_queue
from tuque.core.copies.replicate import on_producer_gone, send_copies
from tuque.core.dispatch.messages import on_message
from tuque.core.model.job import ACTIVE, QUEUED, AddSpec
from tuque.core.msgs import (
    DelJob,
    GotJob,
    ReplJob,
    ReplJobs,
    SetAck,
    Slots,
)
from tuque.core.node.peers import BODY_MAX, SIZE_MAX
from tuque.core.node.queue import PAUSE_IN


def waiting(lab: Lab, slot: int) -> list[int]:
    """How many jobs each message has that waits at node 0 for a slot; a REPLJOB has 1."""
    sizes: list[int] = []
    for m in lab.nodes[0].peers[slot].outbox:
        if isinstance(m, ReplJobs):
            sizes.append(1 + len(m.others))
        elif isinstance(m, ReplJob):
            sizes.append(1)
    return sizes


def add(lab: Lab, queue: bytes = b"q", *, body: bytes = b"body", **options: int) -> bytes:
    """Add a job to node 0; nothing is sent yet."""
    options = {"replicate": 3, "retry_s": 10, **options}
    job, refused = lab.try_add(0, queue, body=body, **options)
    assert job is not None, refused
    return job.id


def test_copies_of_jobs_that_are_alike_share_a_message() -> None:
    """R1.12 The receiver treats each of them like a REPLJOB (R2)."""
    lab = Lab(3)
    alone = add(lab)
    lab.run()
    ids = [add(lab, body=b"%d" % i) for i in range(5)]
    assert waiting(lab, 1) == waiting(lab, 2) == [5]
    lab.run()
    told = [added.id for added in lab.told[0]]
    assert told == [alone, *ids]
    for i, id in enumerate(ids):
        assert lab.holders_of(id) == [0, 1, 2]
        assert lab.states_of(id) == [QUEUED, ACTIVE, ACTIVE]
        first, *copies = [n.jobs[id] for n in lab.nodes]
        for copy in copies:
            assert copy.body == first.body == b"%d" % i
            assert copy.queue == first.queue
            assert copy.ctime_ns == first.ctime_ns
            assert copy.expire_ms == first.expire_ms
            assert (copy.retry_s, copy.delay_s, copy.repl) == (first.retry_s, 0, 3)
            assert copy.qtime_ms >= lab.now_ms + first.retry_s * 1000
            assert copy.holders == 7
            assert copy.flags == lab.nodes[1].jobs[alone].flags
    assert len([m for _, _, m in lab.log if isinstance(m, GotJob)]) == 4


@pytest.mark.parametrize(
    "other",
    [{"queue": b"p"}, {"retry_s": 7}, {"ttl_s": 77}, {"retry_s": 7, "delay_s": 3}, {"is_async": 1}],
    ids=["queue", "retry", "ttl", "delay", "async"],
)
def test_what_differs_has_a_message_of_its_own(other: dict[str, object]) -> None:
    """R1.12 if they have the same queue, options and new holders."""
    lab = Lab(3)
    ids = [add(lab), add(lab), add(lab, **other), add(lab, **other), add(lab)]
    assert waiting(lab, 1) == [2, 2, 1]
    lab.run()
    for id in ids:
        assert lab.holders_of(id) == [0, 1, 2]
        at = [n.jobs[id] for n in lab.nodes]
        assert len({(job.queue, job.retry_s, job.delay_s, job.expire_ms) for job in at}) == 1


def test_each_pair_of_holders_has_its_messages() -> None:
    """With more nodes than copies a message takes the jobs of one set of holders only (R1.12)."""
    lab = Lab(5)
    ids = [add(lab) for _ in range(60)]
    chosen = {id: lab.nodes[0].jobs[id].holders for id in ids}
    assert len(set(chosen.values())) == 6
    lab.run()
    for id in ids:
        assert len(lab.holders_of(id)) == 3
        assert lab.nodes[0].jobs[id].holders == chosen[id]
        assert lab.states_of(id).count(ACTIVE) == 2


def test_long_bodies_and_lives_travel_alone() -> None:
    """R1.12 no life (W1), and bodies of at most 4 KiB, 64 KiB together."""
    lab = Lab(3)
    add(lab, body=b"x" * BODY_MAX)
    add(lab, body=b"x" * BODY_MAX)
    add(lab, body=b"x" * (BODY_MAX + 1))
    add(lab, body=b"x" * (BODY_MAX + 1))
    assert waiting(lab, 1) == [2, 1, 1]
    lab.run()
    for _ in range(SIZE_MAX // BODY_MAX + 1):
        add(lab, body=b"x" * BODY_MAX)
    assert waiting(lab, 1) == [SIZE_MAX // BODY_MAX, 1]
    lab.run()
    n = lab.nodes[0]
    spec = AddSpec()
    spec.replicate, spec.headers = 3, b"\x80"
    for _ in range(2):
        on_addjob(n, b"q", b"body", settle(n, spec), 1, 0, 5000)
    add(lab)
    add(lab)
    assert waiting(lab, 1) == [1, 1, 2]


def test_late_copies_join_those_of_the_same_holders() -> None:
    """R1.12 if they have the same queue, options and new holders."""
    lab = Lab(5)
    n = lab.nodes[0]
    jobs = [n.jobs[add(lab)] for _ in range(5)]
    lab.run()
    for job, others in zip(jobs, ([1], [2], [4], [4], []), strict=True):
        job.holders = 1 | sum(1 << slot for slot in others)
    send_copies(n, jobs[0], [3], 0)
    send_copies(n, jobs[1], [3], 0)
    assert waiting(lab, 3) == [1, 1]
    lab.run()
    send_copies(n, jobs[4], [3, 4], 0)
    send_copies(n, jobs[2], [3], 0)
    send_copies(n, jobs[3], [3], 0)
    assert waiting(lab, 3) == [1, 2]
    assert waiting(lab, 4) == [1]


def test_what_is_said_in_between_keeps_its_place() -> None:
    """A message about a job comes after its copy, and before those of later jobs (R1.12)."""
    lab = Lab(3)
    first = add(lab)
    gone = add(lab, client=9)
    on_producer_gone(lab.nodes[0], 9)
    last = add(lab)
    kinds = [type(m) for m in lab.nodes[0].peers[1].outbox]
    assert kinds == [Slots, ReplJobs, DelJob, ReplJob]
    lab.run()
    assert lab.holders_of(first) == lab.holders_of(last) == [0, 1, 2]
    assert lab.holders_of(gone) == []


def test_each_job_of_a_message_has_its_own_reply() -> None:
    """R1.12 The receiver treats each of them like a REPLJOB (R2).

    SETACK for one that is over (R2.2), GOTJOB for one that is known (R2.3), nothing while the
    queue is paused (R2.4).
    """
    lab = Lab(3)
    ids = [add(lab) for _ in range(3)]
    n, slot = lab.nodes[0], lab.slot(0, 1)
    (message,) = [m for m in n.peers[slot].outbox if isinstance(m, ReplJobs)]
    lab.run()
    for node in lab.nodes:
        node.now_ms = lab.now_ms
    on_ackjob(n, ids[0])
    lab.run()
    there = lab.nodes[1]
    assert ids[0] not in there.jobs
    before = there.jobs[ids[1]]
    lab.log.clear()
    on_message(there, lab.slot(1, 0), message)
    lab.run()
    assert there.jobs[ids[1]] is before
    answers = [m for a, _, m in lab.log if a == 1]
    assert [m.id for m in answers if isinstance(m, SetAck)] == [ids[0]]
    assert [m.ids for m in answers if isinstance(m, GotJob)] == [ids[1:]]
    more = [add(lab) for _ in range(2)]
    (message,) = [m for m in n.peers[slot].outbox if isinstance(m, ReplJobs)]
    fresh = lab.nodes[2]
    pause_queue(fresh, b"q", PAUSE_IN, is_bcast=False)
    on_message(fresh, lab.slot(2, 0), message)
    assert not any(id in fresh.jobs for id in more)
    pause_queue(fresh, b"q", 0, is_bcast=False)
    on_message(fresh, lab.slot(2, 0), message)
    assert all(id in fresh.jobs for id in more)
