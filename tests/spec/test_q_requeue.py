"""SPEC Q: retry time, ENQUEUE, NACK, DEQUEUE, WORKING, DEADLETTER."""

from __future__ import annotations

import pytest

from raw_resp import NULL
from told_events import Told
from world import World
from world_wires import Status

UNKNOWN = "D-12345678-123456789012345678901234-05a1"


def test_delivered_at_most_once_job_is_left_alone(world: World) -> None:
    """Q2.1 An AMO job that was delivered is not touched."""
    job_id = world.add(RETRY=0, DELAY=2)
    world.pass_ms(2_100)
    assert world.get() == [job_id]
    world.pass_ms(1_000_000)
    assert world.state(job_id) == "active"


def test_paused_in_puts_the_retry_off(world: World) -> None:
    """Q2.2 Input of the queue paused: an ALO job stays active with the due time now + retry + J.

    Q2.2 An AMO job is queued."""
    often = world.add(RETRY=10)
    once = world.add(RETRY=0, DELAY=10)
    world.get()
    world.run("PAUSE", "q", "in")
    world.pass_ms(10_100)
    assert world.state(often) == "active"
    assert world.state(once) == "queued"
    world.run("PAUSE", "q", "none")
    world.pass_ms(9_700)
    assert world.state(often) == "active"
    world.pass_ms(300)
    assert world.state(often) == "queued"


def test_retry_time(world: World) -> None:
    """Q2.3 Otherwise the job is enqueued (G3). The event `requeued` is written with the cause
    timeout, unless a delay ended.
    """
    job_id = world.add(RETRY=10, DELAY=1)
    world.pass_ms(1_100)
    world.get()
    world.pass_ms(10_100)
    assert world.state(job_id) == "queued"
    assert world.node().kinds(job_id) == ["added", "delivered", "requeued"]


def test_enqueue_command(world: World) -> None:
    """Q5.1 Each job that is active here, and not both AMO and delivered, is enqueued (G3), even
    before its delay is over and even while the input of the queue is paused. Other jobs are
    skipped.
    """
    delayed, once = world.add(DELAY=100), world.add(DELAY=100, RETRY=0)
    taken, queued = world.add("r"), world.add("s")
    world.get("r")
    world.run("PAUSE", "q", "in")
    assert world.run("ENQUEUE", delayed, once, taken, queued, UNKNOWN) == 3
    assert {world.state(job) for job in (delayed, once, taken, queued)} == {"queued"}


def test_enqueue_counts_and_tells(world: World) -> None:
    """Q5.2 The reply is the number of jobs enqueued. The event `requeued` is written with the
    cause command.
    """
    job_id = world.add()
    world.get()
    assert world.run("ENQUEUE", job_id, job_id) == 1
    assert world.run("ENQUEUE") == 0
    assert world.node().kinds(job_id) == ["added", "delivered", "requeued"]
    assert world.show(job_id)["additional-deliveries"] == 1


def test_nack(world: World) -> None:
    """Q6.1 The same jobs as in Q5.1 are put back, except a job in its first delay: NACK does not
    shorten that. The counter that grows is always `nacks`.
    """
    taken, delayed = world.add(), world.add(DELAY=100)
    dequeued = world.add("r")
    world.get()
    world.run("DEQUEUE", dequeued)
    world.run("PAUSE", "q", "in")
    assert world.run("NACK", taken, delayed, dequeued, UNKNOWN) == 2
    assert world.state(taken) == "queued"
    assert world.state(delayed) == "active"
    assert world.show(taken)["nacks"] == 1
    assert world.show(taken)["additional-deliveries"] == 0
    assert world.show(delayed)["next-requeue-within"] == 100_000


@pytest.mark.parametrize(("delay", "ms"), [("2", 2000), ("0.25", 250), ("1.5", 1500), (".5", 500)])
def test_nack_with_delay(world: World, delay: str, ms: int) -> None:
    """Q6.2 With DELAY the job stays active and its due time becomes now + DELAY. At that time it is
    enqueued, and no counter grows again.
    """
    job_id = world.add(RETRY=100)
    world.get()
    assert world.run("NACK", "DELAY", delay, job_id) == 1
    assert world.state(job_id) == "active"
    assert world.show(job_id)["next-requeue-within"] == ms
    world.pass_ms(ms - 20)
    assert world.state(job_id) == "active"
    world.pass_ms(40)
    shown = world.show(job_id)
    assert shown["state"] == b"queued"
    assert (shown["nacks"], shown["additional-deliveries"]) == (1, 0)


def test_nack_with_delay_may_be_repeated(world: World) -> None:
    """Q6.2 its due time becomes now + DELAY"""
    job_id = world.add()
    world.get()
    assert world.run("NACK", "DELAY", 50, job_id) == 1
    assert world.run("nack", "delay", 5, job_id) == 1
    assert world.show(job_id)["next-requeue-within"] == 5_000
    assert world.show(job_id)["nacks"] == 2


@pytest.mark.parametrize("delay", ["-1", "x", "", "1e3", "1.2.3", str(1 << 31), "nan"])
def test_nack_delay_errors(world: World, delay: str) -> None:
    """Q6.2 DELAY is a decimal number of seconds from 0 to 2^31-1, errors as in R1.1."""
    job_id = world.add()
    world.get()
    error = f"ERR DELAY must be a number of seconds from 0 to 2147483647, not '{delay}'"
    assert world.run("NACK", "DELAY", delay, job_id) == error
    assert world.show(job_id)["nacks"] == 0


def test_nack_delay_beyond_expiry(world: World) -> None:
    """Q6.3 A DELAY beyond the job's expiry is accepted; the job expires first."""
    job_id = world.add(TTL=10)
    world.get()
    assert world.run("NACK", "DELAY", 1000, job_id) == 1
    world.pass_ms(10_100)
    assert world.state(job_id) == "gone"
    assert world.n.ledger.expired == 1


def test_nack_counts_and_tells(world: World) -> None:
    """Q6.4 The reply is the number of jobs put back or postponed. The event `nacked` is written."""
    one, two = world.add(), world.add()
    world.get(count=2)
    assert world.run("NACK", one, one) == 1
    assert world.run("NACK", "DELAY", "0", two) == 1
    assert world.run("NACK") == 0
    assert world.state(two) == "queued"
    assert world.node().kinds(one) == ["added", "delivered", "nacked"]
    assert world.node().kinds(two) == ["added", "delivered", "nacked"]


def test_dequeue(world: World) -> None:
    """Q7.1 Each job that is queued here becomes active (G4). An ALO job gets the due time now +
    retry + J.
    """
    job_id = world.add(RETRY=10)
    world.pass_ms(60_000)
    assert world.run("DEQUEUE", job_id, UNKNOWN) == 1
    assert world.show(job_id)["next-requeue-within"] == 10_000
    world.pass_ms(10_100)
    assert world.state(job_id) == "queued"


def test_dequeued_at_most_once_job(world: World) -> None:
    """Q7.1 An AMO job that was never delivered can be queued again with ENQUEUE."""
    job_id = world.add(RETRY=0)
    world.run("DEQUEUE", job_id)
    world.pass_ms(1_000_000)
    assert world.state(job_id) == "active"
    assert world.run("ENQUEUE", job_id) == 1
    assert world.get() == [job_id]


def test_dequeue_reply(world: World) -> None:
    """Q7.2 The reply is the number of jobs dequeued."""
    one, two = world.add(), world.add()
    assert world.run("DEQUEUE", one, two, one) == 2
    assert world.run("DEQUEUE") == 0


def test_working_unknown(world: World) -> None:
    """Q8.1 Not an id: `-BADID Invalid Job ID format.` Unknown: `-NOJOB Job not known in the
    context of this node.`
    """
    assert world.run("WORKING", "x") == "BADID Invalid Job ID format."
    assert world.run("WORKING", UNKNOWN) == "NOJOB Job not known in the context of this node."


def test_working_acked(world: World) -> None:
    """Q8.2 Acked: `-ACKED Job is already acknowledged.`"""
    from tuque.core.model.job import ACKED, ACTIVE

    job_id = world.add()
    world.get()
    job = world.job(job_id)
    job.state = ACKED  # alone an acked job is gone at once; a holder in a cluster keeps it
    assert world.run("WORKING", job_id) == "ACKED Job is already acknowledged."
    job.state = ACTIVE


NOTDELIVERED = "NOTDELIVERED Job was not delivered yet, there is no processing to extend."


def test_working_undelivered(world: World) -> None:
    """Q8.3 Not delivered: `-NOTDELIVERED Job was not delivered yet, there is no processing to
    extend.` A node alone goes by its own deliveries.
    """
    delayed, queued, once = world.add(DELAY=3600, RETRY=1), world.add(), world.add(RETRY=0)
    for job_id in (delayed, queued, once):
        assert world.run("WORKING", job_id) == NOTDELIVERED
    assert world.show(delayed)["next-requeue-within"] == 3_600_000
    assert world.state(once) == "queued"


def test_working_too_late(world: World) -> None:
    """Q8.4 More than half of the job's TTL is over: `-TOOLATE Half of job TTL already elapsed, you
    are no longer allowed to postpone the next delivery.`
    """
    job_id = world.add(TTL=100, RETRY=60)
    world.get()
    world.pass_ms(50_000)
    assert world.run("WORKING", job_id) == 60
    world.pass_ms(1)
    assert world.run("WORKING", job_id) == (
        "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the "
        "next delivery."
    )


def test_working_puts_the_retry_off(world: World) -> None:
    """Q8.5 If the job is queued again, it is dequeued (G4). The due time of an ALO job becomes the
    later of its old value and now + retry + J.
    """
    job_id = world.add(RETRY=10)
    world.get()
    world.pass_ms(8_000)
    assert world.run("WORKING", job_id) == 10
    world.pass_ms(9_900)
    assert world.state(job_id) == "active"
    world.pass_ms(200)
    assert world.state(job_id) == "queued"
    assert world.run("WORKING", job_id) == 10
    assert world.state(job_id) == "active"
    world.run("NACK", "DELAY", 500, job_id)
    world.run("WORKING", job_id)
    assert world.show(job_id)["next-requeue-within"] == 500_000


def test_working_reply(world: World) -> None:
    """Q8.6 The reply is the retry time in seconds."""
    often, once = world.add(RETRY=33), world.add(RETRY=0)
    world.get(count=2)
    assert world.run("WORKING", often) == 33
    assert world.run("WORKING", once) == 0


def test_deadletter_errors(world: World) -> None:
    """Q10.1 Errors as in Q8.1 and Q8.2. The input of the target queue is paused: `-PAUSED Queue
    paused in input, try later`. REASON over 2048 bytes: `-ERR REASON must be at most 2048 bytes`.
    """
    job_id = world.add()
    assert world.run("DEADLETTER", "x", "dead") == "BADID Invalid Job ID format."
    nojob = "NOJOB Job not known in the context of this node."
    assert world.run("DEADLETTER", UNKNOWN, "dead") == nojob
    long = "x" * 2049
    error = "ERR REASON must be at most 2048 bytes"
    assert world.run("DEADLETTER", job_id, "dead", "REASON", long) == error
    assert world.run("DEADLETTER", job_id, "dead", "WHY", "x") == (
        "ERR syntax error at 'WHY': use DEADLETTER id queue [REASON text] [BODY bytes]"
    )
    world.run("PAUSE", "dead", "in")
    paused = "PAUSED Queue paused in input, try later"
    assert world.run("DEADLETTER", job_id, "dead") == paused
    assert world.state(job_id) == "queued"


def test_deadletter(world: World) -> None:
    """Q10.2 In one step a new job with the same body and default options is added to the target
    queue (R1.8, R1.9), and the old job is acked (A1).
    """
    job_id = world.add(body="bad", RETRY=9, TTL=99)
    world.get()
    new_id = world.run("DEADLETTER", job_id, "dead", "REASON", "3 tries")
    assert world.state(job_id) == "gone"
    shown = world.show(new_id)
    assert (shown["queue"], shown["body"], shown["state"]) == (b"dead", b"bad", b"queued")
    assert (shown["retry"], shown["nacks"]) == (300, 0)
    assert world.n.ledger.gc_acked == 1


def test_deadletter_with_another_body(world: World) -> None:
    """Q10.4 With BODY the new job has these bytes as its body."""
    job_id = world.add(body="bad")
    world.get()
    assert world.run("DEADLETTER", job_id, "dead", "BODY") == (
        "ERR syntax error at 'BODY': use DEADLETTER id queue [REASON text] [BODY bytes]"
    )
    new_id = world.run("DEADLETTER", job_id, "dead", "body", "why", "REASON", "no")
    assert world.show(new_id)["body"] == b"why"
    assert world.state(job_id) == "gone"


def test_deadletter_event(world: World) -> None:
    """Q10.3 The event `dead` is written for the old job, with the reason. The reply is the new id
    as a status.
    """
    job_id = world.add()
    world.get()
    reply = world.run("DEADLETTER", job_id, "dead", "REASON", "3 tries")
    assert isinstance(reply, Status)
    assert world.node().kinds(job_id) == ["added", "delivered", "dead"]
    events = world.n.events
    assert events is not None
    assert b"3 tries" in [reason for chunk in events.full for reason in Told(chunk).reason]


def test_nothing_of_an_unknown_job(world: World) -> None:
    """Q5.1 Other jobs are skipped."""
    for command in ("ENQUEUE", "NACK", "DEQUEUE"):
        assert world.run(command, UNKNOWN) == 0
    assert world.run("SHOW", UNKNOWN) is NULL
