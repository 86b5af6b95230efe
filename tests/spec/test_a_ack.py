"""SPEC A: ACKJOB, FASTACK, DELJOB on a node that is alone."""

from __future__ import annotations

from node_by_hand import Box

from tuque.core.records.jobs import ACK
from tuque.core.records.read import Record, decode

UNKNOWN = "D-12345678-123456789012345678901234-05a1"


def records_of(box: Box) -> list[Record]:
    """The records since the last look."""
    assert box.n.records is not None
    payload = box.n.records.take()
    at, found = 0, []
    while at < len(payload):
        record = Record()
        at = decode(payload, at, record)
        found.append(record)
    return found


def test_ack_twice(box: Box) -> None:
    """A1.1 Nothing happens if it is already acked."""
    job_id = box.add()
    assert box.run("ACKJOB", job_id, job_id) == 1
    assert box.n.ledger.gc_acked == 1
    assert box.kinds(job_id) == ["added", "acked"]


def test_ack_dequeues(box: Box) -> None:
    """A1.2 If the job is queued, it is dequeued. The state becomes acked."""
    job_id = box.add()
    job = box.job(job_id)
    box.run("ACKJOB", job_id)
    assert box.qlen() == 0
    assert job.state == 3
    assert box.get() == []


def test_ack_record(box: Box) -> None:
    """A1.3 An ack record, id and expiry, goes into the journal. On reload it becomes a
    tombstone.
    """
    job_id = box.add(TTL=50)
    job = box.job(job_id)
    records_of(box)
    box.run("ACKJOB", job_id)
    (record,) = records_of(box)
    assert (record.kind, record.id, record.expire_ms) == (ACK, job_id, job.expire_ms)


def test_ack_frees(box: Box) -> None:
    """A1.4 The body is freed at once."""
    box.run("ACKJOB", box.add())  # the queue stays
    before = box.n.used_bytes()
    job_id = box.add(body="x" * 100_000)
    assert box.n.used_bytes() > before + 100_000
    box.run("ACKJOB", job_id)
    assert box.n.used_bytes() == before


def test_ack_event(box: Box) -> None:
    """A1.5 The event `acked` is written, unless DEADLETTER caused the ack."""
    acked, dead = box.add(), box.add()
    box.run("ACKJOB", acked)
    box.run("DEADLETTER", dead, "d")
    assert box.kinds(acked)[-1] == "acked"
    assert "acked" not in box.kinds(dead)


def test_alone_collection_is_complete(box: Box) -> None:
    """A2.1 For a job without other holders this ends the collection at once."""
    job_id = box.add()
    box.get()
    box.run("ACKJOB", job_id)
    assert box.state(job_id) == "gone"
    assert box.n.ledger.gc_acked == 1
    assert not box.n.jobs


def test_ackjob(box: Box) -> None:
    """A3.1 For each known job that is not acked: A1, then A2. It counts in the reply."""
    queued, delayed, once = box.add(), box.add(DELAY=9), box.add(RETRY=0)
    taken = box.add("r")
    box.get("r")
    assert box.run("ACKJOB", queued, delayed, once, taken, UNKNOWN) == 4
    assert not box.n.jobs


def test_acked_is_final(box: Box) -> None:
    """A3.2 For an acked one: A2. It does not count."""
    job_id = box.add(RETRY=1)
    box.get()
    assert box.run("ACKJOB", job_id) == 1
    assert box.run("ACKJOB", job_id) == 0
    for command in ("NACK", "ENQUEUE", "DEQUEUE", "FASTACK", "DELJOB"):
        assert box.run(command, job_id) == 0
    box.pass_ms(10_000)
    assert box.get() == []


def test_unknown_id(box: Box) -> None:
    """A3.3 An unknown id does not count. On a node that is alone nothing else happens."""
    before = box.n.used_bytes()
    assert box.run("ACKJOB", *[UNKNOWN[:-6] + f"{i:01x}-05a1" for i in range(16)]) == 0
    assert box.run("ACKJOB") == 0
    assert not box.n.jobs
    assert box.n.used_bytes() == before


def test_fastack(box: Box) -> None:
    """A7.1 Known: the job is acked (A1) and at once unregistered here with cause gc-acked."""
    job_id = box.add()
    assert box.run("FASTACK", job_id) == 1
    assert box.n.ledger.gc_acked == 1
    assert box.kinds(job_id)[-1] == "acked"


def test_fastack_unknown(box: Box) -> None:
    """A7.2 Unknown: does not count."""
    assert box.run("FASTACK", UNKNOWN) == 0


def test_fastack_reply(box: Box) -> None:
    """A7.3 The reply is the number of jobs known here."""
    assert box.run("FASTACK", box.add(), UNKNOWN, box.add()) == 2
    assert box.run("FASTACK") == 0


def test_deljob(box: Box) -> None:
    """A9.1 Each known job is unregistered here with cause deleted, whatever its state. The reply
    is their number.
    """
    queued, delayed = box.add(), box.add(DELAY=9)
    taken = box.add("r")
    box.get("r")
    assert box.run("DELJOB", queued, delayed, taken, UNKNOWN) == 3
    assert box.n.ledger.admin_deleted == 3
    assert not box.n.jobs
    assert box.run("DELJOB") == 0
