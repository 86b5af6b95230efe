"""SPEC Q: retry time, ENQUEUE, NACK, DEQUEUE, WORKING, DEADLETTER."""

from __future__ import annotations

import pytest
from node_by_hand import NULL, Box, Status

from told_events import Told

UNKNOWN = "D-12345678-123456789012345678901234-05a1"


def test_delivered_at_most_once_job_is_left_alone(box: Box) -> None:
    """Q2.1 An AMO job that was delivered is not touched."""
    job_id = box.add(RETRY=0, DELAY=2)
    box.pass_ms(2_100)
    assert box.get() == [job_id]
    box.pass_ms(1_000_000)
    assert box.state(job_id) == "active"


def test_paused_in_puts_the_retry_off(box: Box) -> None:
    """Q2.2 If the input of the queue is paused: An ALO job stays active with the due time now +
    retry + J.

    Q2.2 An AMO job is queued all the same, since it would be lost otherwise.
    """
    often = box.add(RETRY=10)
    once = box.add(RETRY=0, DELAY=10)
    box.get()
    box.run("PAUSE", "q", "in")
    box.pass_ms(10_100)
    assert box.state(often) == "active"
    assert box.state(once) == "queued"
    box.run("PAUSE", "q", "none")
    box.pass_ms(9_700)
    assert box.state(often) == "active"
    box.pass_ms(300)
    assert box.state(often) == "queued"


def test_retry_time(box: Box) -> None:
    """Q2.3 Otherwise the job is enqueued (G3). The event `requeued` is written with the cause
    timeout, unless a delay ended.
    """
    job_id = box.add(RETRY=10, DELAY=1)
    box.pass_ms(1_100)
    box.get()
    box.pass_ms(10_100)
    assert box.state(job_id) == "queued"
    assert box.kinds(job_id) == ["added", "delivered", "requeued"]


def test_enqueue_command(box: Box) -> None:
    """Q5.1 Each job that is active here, and not both AMO and delivered, is enqueued (G3), even
    before its delay is over and even while the input of the queue is paused. Other jobs are
    skipped.
    """
    delayed, once = box.add(DELAY=100), box.add(DELAY=100, RETRY=0)
    taken, queued = box.add("r"), box.add("s")
    box.get("r")
    box.run("PAUSE", "q", "in")
    assert box.run("ENQUEUE", delayed, once, taken, queued, UNKNOWN) == 3
    assert {box.state(job) for job in (delayed, once, taken, queued)} == {"queued"}


def test_enqueue_counts_and_tells(box: Box) -> None:
    """Q5.2 The reply is the number of jobs enqueued. The event `requeued` is written with the
    cause command.
    """
    job_id = box.add()
    box.get()
    assert box.run("ENQUEUE", job_id, job_id) == 1
    assert box.run("ENQUEUE") == 0
    assert box.kinds(job_id) == ["added", "delivered", "requeued"]
    assert box.show(job_id)["additional-deliveries"] == 1


def test_nack(box: Box) -> None:
    """Q6.1 The same jobs as in Q5.1 are put back, except a job in its first delay: NACK does not
    shorten that. The counter that grows is always `nacks`.
    """
    taken, delayed = box.add(), box.add(DELAY=100)
    dequeued = box.add("r")
    box.get()
    box.run("DEQUEUE", dequeued)
    box.run("PAUSE", "q", "in")
    assert box.run("NACK", taken, delayed, dequeued, UNKNOWN) == 2
    assert box.state(taken) == "queued"
    assert box.state(delayed) == "active"
    assert box.show(taken)["nacks"] == 1
    assert box.show(taken)["additional-deliveries"] == 0
    assert box.show(delayed)["next-requeue-within"] == 100_000


@pytest.mark.parametrize(("delay", "ms"), [("2", 2000), ("0.25", 250), ("1.5", 1500), (".5", 500)])
def test_nack_with_delay(box: Box, delay: str, ms: int) -> None:
    """Q6.2 With DELAY the job stays active and its due time becomes now + DELAY. At that time it is
    enqueued, and no counter grows again.
    """
    job_id = box.add(RETRY=100)
    box.get()
    assert box.run("NACK", "DELAY", delay, job_id) == 1
    assert box.state(job_id) == "active"
    assert box.show(job_id)["next-requeue-within"] == ms
    box.pass_ms(ms - 20)
    assert box.state(job_id) == "active"
    box.pass_ms(40)
    shown = box.show(job_id)
    assert shown["state"] == b"queued"
    assert (shown["nacks"], shown["additional-deliveries"]) == (1, 0)


def test_nack_with_delay_may_be_repeated(box: Box) -> None:
    """Q6.2 its due time becomes now + DELAY"""
    job_id = box.add()
    box.get()
    assert box.run("NACK", "DELAY", 50, job_id) == 1
    assert box.run("nack", "delay", 5, job_id) == 1
    assert box.show(job_id)["next-requeue-within"] == 5_000
    assert box.show(job_id)["nacks"] == 2


@pytest.mark.parametrize("delay", ["-1", "x", "", "1e3", "1.2.3", str(1 << 31), "nan"])
def test_nack_delay_errors(box: Box, delay: str) -> None:
    """Q6.2 DELAY is a decimal number of seconds from 0 to 2^31-1, errors as in R1.1."""
    job_id = box.add()
    box.get()
    error = f"ERR DELAY must be a number of seconds from 0 to 2147483647, not '{delay}'"
    assert box.run("NACK", "DELAY", delay, job_id) == error
    assert box.show(job_id)["nacks"] == 0


def test_nack_delay_beyond_expiry(box: Box) -> None:
    """Q6.3 A DELAY beyond the job's expiry is accepted; the job expires first."""
    job_id = box.add(TTL=10)
    box.get()
    assert box.run("NACK", "DELAY", 1000, job_id) == 1
    box.pass_ms(10_100)
    assert box.state(job_id) == "gone"
    assert box.n.ledger.expired == 1


def test_nack_counts_and_tells(box: Box) -> None:
    """Q6.4 The reply is the number of jobs put back or postponed. The event `nacked` is written."""
    one, two = box.add(), box.add()
    box.get(count=2)
    assert box.run("NACK", one, one) == 1
    assert box.run("NACK", "DELAY", "0", two) == 1
    assert box.run("NACK") == 0
    assert box.state(two) == "queued"
    assert box.kinds(one) == ["added", "delivered", "nacked"]
    assert box.kinds(two) == ["added", "delivered", "nacked"]


def test_dequeue(box: Box) -> None:
    """Q7.1 Each job that is queued here becomes active (G4). An ALO job gets the due time now +
    retry + J.
    """
    job_id = box.add(RETRY=10)
    box.pass_ms(60_000)
    assert box.run("DEQUEUE", job_id, UNKNOWN) == 1
    assert box.show(job_id)["next-requeue-within"] == 10_000
    box.pass_ms(10_100)
    assert box.state(job_id) == "queued"


def test_dequeued_at_most_once_job(box: Box) -> None:
    """Q7.1 An AMO job that was never delivered can be queued again with ENQUEUE."""
    job_id = box.add(RETRY=0)
    box.run("DEQUEUE", job_id)
    box.pass_ms(1_000_000)
    assert box.state(job_id) == "active"
    assert box.run("ENQUEUE", job_id) == 1
    assert box.get() == [job_id]


def test_dequeue_reply(box: Box) -> None:
    """Q7.2 The reply is the number of jobs dequeued."""
    one, two = box.add(), box.add()
    assert box.run("DEQUEUE", one, two, one) == 2
    assert box.run("DEQUEUE") == 0


def test_working_unknown(box: Box) -> None:
    """Q8.1 Not an id: `-BADID Invalid Job ID format.` Unknown: `-NOJOB Job not known in the
    context of this node.`
    """
    assert box.run("WORKING", "x") == "BADID Invalid Job ID format."
    assert box.run("WORKING", UNKNOWN) == "NOJOB Job not known in the context of this node."


def test_working_acked(box: Box) -> None:
    """Q8.2 Acked: `-ACKED Job is already acknowledged.`"""
    from tuque.core.model.job import ACKED, ACTIVE

    job_id = box.add()
    box.get()
    job = box.job(job_id)
    job.state = ACKED  # alone an acked job is gone at once; a holder in a cluster keeps it
    assert box.run("WORKING", job_id) == "ACKED Job is already acknowledged."
    job.state = ACTIVE


NOTDELIVERED = "NOTDELIVERED Job was not delivered yet, there is no processing to extend."


def test_working_undelivered(box: Box) -> None:
    """Q8.3 Not delivered: `-NOTDELIVERED Job was not delivered yet, there is no processing to
    extend.` A node alone goes by its own deliveries.
    """
    delayed, queued, once = box.add(DELAY=3600, RETRY=1), box.add(), box.add(RETRY=0)
    for job_id in (delayed, queued, once):
        assert box.run("WORKING", job_id) == NOTDELIVERED
    assert box.show(delayed)["next-requeue-within"] == 3_600_000
    assert box.state(once) == "queued"


def test_working_too_late(box: Box) -> None:
    """Q8.4 More than half of the job's TTL is over: `-TOOLATE Half of job TTL already elapsed, you
    are no longer allowed to postpone the next delivery.`
    """
    job_id = box.add(TTL=100, RETRY=60)
    box.get()
    box.pass_ms(50_000)
    assert box.run("WORKING", job_id) == 60
    box.pass_ms(1)
    assert box.run("WORKING", job_id) == (
        "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the "
        "next delivery."
    )


def test_working_puts_the_retry_off(box: Box) -> None:
    """Q8.5 If the job is queued again, it is dequeued (G4). The due time of an ALO job becomes the
    later of its old value and now + retry + J.
    """
    job_id = box.add(RETRY=10)
    box.get()
    box.pass_ms(8_000)
    assert box.run("WORKING", job_id) == 10
    box.pass_ms(9_900)
    assert box.state(job_id) == "active"
    box.pass_ms(200)
    assert box.state(job_id) == "queued"
    assert box.run("WORKING", job_id) == 10
    assert box.state(job_id) == "active"
    box.run("NACK", "DELAY", 500, job_id)
    box.run("WORKING", job_id)
    assert box.show(job_id)["next-requeue-within"] == 500_000


def test_working_reply(box: Box) -> None:
    """Q8.6 The reply is the retry time in seconds."""
    often, once = box.add(RETRY=33), box.add(RETRY=0)
    box.get(count=2)
    assert box.run("WORKING", often) == 33
    assert box.run("WORKING", once) == 0


def test_deadletter_errors(box: Box) -> None:
    """Q10.1 Errors as in Q8.1 and Q8.2. The input of the target queue is paused: `-PAUSED Queue
    paused in input, try later`. REASON over 2048 bytes: `-ERR REASON must be at most 2048 bytes`.
    """
    job_id = box.add()
    assert box.run("DEADLETTER", "x", "dead") == "BADID Invalid Job ID format."
    nojob = "NOJOB Job not known in the context of this node."
    assert box.run("DEADLETTER", UNKNOWN, "dead") == nojob
    long = "x" * 2049
    error = "ERR REASON must be at most 2048 bytes"
    assert box.run("DEADLETTER", job_id, "dead", "REASON", long) == error
    assert box.run("DEADLETTER", job_id, "dead", "WHY", "x") == (
        "ERR syntax error at 'WHY': use DEADLETTER id queue [REASON text] [BODY bytes]"
    )
    box.run("PAUSE", "dead", "in")
    paused = "PAUSED Queue paused in input, try later"
    assert box.run("DEADLETTER", job_id, "dead") == paused
    assert box.state(job_id) == "queued"


def test_deadletter(box: Box) -> None:
    """Q10.2 In one step a new job with the same body and default options is added to the target
    queue (R1.8, R1.9), and the old job is acked (A1).
    """
    job_id = box.add(body="bad", RETRY=9, TTL=99)
    box.get()
    new_id = box.run("DEADLETTER", job_id, "dead", "REASON", "3 tries").encode()
    assert box.state(job_id) == "gone"
    shown = box.show(new_id)
    assert (shown["queue"], shown["body"], shown["state"]) == (b"dead", b"bad", b"queued")
    assert (shown["retry"], shown["nacks"]) == (300, 0)
    assert box.n.ledger.gc_acked == 1


def test_deadletter_with_another_body(box: Box) -> None:
    """Q10.4 With BODY the new job has these bytes as its body."""
    job_id = box.add(body="bad")
    box.get()
    assert box.run("DEADLETTER", job_id, "dead", "BODY") == (
        "ERR syntax error at 'BODY': use DEADLETTER id queue [REASON text] [BODY bytes]"
    )
    new_id = box.run("DEADLETTER", job_id, "dead", "body", "why", "REASON", "no").encode()
    assert box.show(new_id)["body"] == b"why"
    assert box.state(job_id) == "gone"


def test_deadletter_event(box: Box) -> None:
    """Q10.3 The event `dead` is written for the old job, with the reason. The reply is the new id
    as a status.
    """
    job_id = box.add()
    box.get()
    reply = box.run("DEADLETTER", job_id, "dead", "REASON", "3 tries")
    assert isinstance(reply, Status)
    assert box.kinds(job_id) == ["added", "delivered", "dead"]
    events = box.n.events
    assert events is not None
    assert b"3 tries" in [reason for chunk in events.full for reason in Told(chunk).reason]


def test_nothing_of_an_unknown_job(box: Box) -> None:
    """Q5.1 Other jobs are skipped."""
    for command in ("ENQUEUE", "NACK", "DEQUEUE"):
        assert box.run(command, UNKNOWN) == 0
    assert box.run("SHOW", UNKNOWN) is NULL
