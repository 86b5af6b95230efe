"""SPEC A: ACKJOB, FASTACK, DELJOB on a node that is alone."""

from __future__ import annotations

from tuque.core.records.jobs import ACK
from tuque.core.records.read import Record, decode
from world import World

UNKNOWN = "D-12345678-123456789012345678901234-05a1"


def records_of(world: World) -> list[Record]:
    """The records since the last look."""
    payload = world.node().take_recorded()
    at, found = 0, []
    while at < len(payload):
        record = Record()
        at = decode(payload, at, record)
        found.append(record)
    return found


def test_ack_twice(world: World) -> None:
    """A1.1 Nothing happens if it is already acked."""
    job_id = world.add()
    assert world.run("ACKJOB", job_id, job_id) == 1
    assert world.n.ledger.gc_acked == 1
    assert world.node().kinds(job_id) == ["added", "acked"]


def test_ack_dequeues(world: World) -> None:
    """A1.2 If the job is queued, it is dequeued. The state becomes acked."""
    job_id = world.add()
    job = world.job(job_id)
    world.run("ACKJOB", job_id)
    assert world.qlen() == 0
    assert job.state == 3
    assert world.get() == []


def test_ack_record(world: World) -> None:
    """A1.3 An ack record, id and expiry, goes into the journal. On reload it becomes a
    tombstone.
    """
    job_id = world.add(TTL=50)
    job = world.job(job_id)
    records_of(world)
    world.run("ACKJOB", job_id)
    (record,) = records_of(world)
    assert (record.kind, record.id, record.expire_ms) == (ACK, job_id, job.expire_ms)


def test_ack_frees(world: World) -> None:
    """A1.4 The body is freed at once."""
    world.run("ACKJOB", world.add())  # the queue stays
    before = world.n.used_bytes()
    job_id = world.add(body="x" * 100_000)
    assert world.n.used_bytes() > before + 100_000
    world.run("ACKJOB", job_id)
    assert world.n.used_bytes() == before


def test_ack_event(world: World) -> None:
    """A1.5 The event `acked` is written, unless DEADLETTER caused the ack."""
    acked, dead = world.add(), world.add()
    world.run("ACKJOB", acked)
    world.run("DEADLETTER", dead, "d")
    assert world.node().kinds(acked)[-1] == "acked"
    assert "acked" not in world.node().kinds(dead)


def test_alone_collection_is_complete(world: World) -> None:
    """A2.1 Without other holders that is at once."""
    job_id = world.add()
    world.get()
    world.run("ACKJOB", job_id)
    assert world.state(job_id) == "gone"
    assert world.n.ledger.gc_acked == 1
    assert not world.n.jobs


def test_ackjob(world: World) -> None:
    """A3.1 For each known job that is not acked: A1, then A2. It counts in the reply."""
    queued, delayed, once = world.add(), world.add(DELAY=9), world.add(RETRY=0)
    taken = world.add("r")
    world.get("r")
    assert world.run("ACKJOB", queued, delayed, once, taken, UNKNOWN) == 4
    assert not world.n.jobs


def test_acked_is_final(world: World) -> None:
    """A3.2 For an acked one: A2. It does not count."""
    job_id = world.add(RETRY=1)
    world.get()
    assert world.run("ACKJOB", job_id) == 1
    assert world.run("ACKJOB", job_id) == 0
    for command in ("NACK", "ENQUEUE", "DEQUEUE", "FASTACK", "DELJOB"):
        assert world.run(command, job_id) == 0
    world.pass_ms(10_000)
    assert world.get() == []


def test_unknown_id(world: World) -> None:
    """A3.3 An unknown id does not count. On a node that is alone nothing else happens."""
    before = world.n.used_bytes()
    assert world.run("ACKJOB", *[UNKNOWN[:-6] + f"{i:01x}-05a1" for i in range(16)]) == 0
    assert world.run("ACKJOB") == 0
    assert not world.n.jobs
    assert world.n.used_bytes() == before


def test_fastack(world: World) -> None:
    """A7.1 Known: the job is acked (A1) and at once unregistered here with cause gc-acked."""
    job_id = world.add()
    assert world.run("FASTACK", job_id) == 1
    assert world.n.ledger.gc_acked == 1
    assert world.node().kinds(job_id)[-1] == "acked"


def test_fastack_unknown(world: World) -> None:
    """A7.2 Unknown: does not count."""
    assert world.run("FASTACK", UNKNOWN) == 0


def test_fastack_reply(world: World) -> None:
    """A7.3 The reply is the number of jobs known here."""
    assert world.run("FASTACK", world.add(), UNKNOWN, world.add()) == 2
    assert world.run("FASTACK") == 0


def test_deljob(world: World) -> None:
    """A9.1 Each known job is unregistered here with cause deleted, whatever its state. The reply
    is their number.
    """
    queued, delayed = world.add(), world.add(DELAY=9)
    taken = world.add("r")
    world.get("r")
    assert world.run("DELJOB", queued, delayed, taken, UNKNOWN) == 3
    assert world.n.ledger.admin_deleted == 3
    assert not world.n.jobs
    assert world.run("DELJOB") == 0
