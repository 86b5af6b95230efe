"""SPEC Y3, Y6, Y7, Y10: reading a batch, what others may do, what time does."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from lease_by_hand import Lessee, word

from sim.engine.clock import START_MS
from told_events import Told
from world import World


def numbers(data: bytes, form: str) -> list[int]:
    """Little-endian numbers back to back."""
    return [value for (value,) in struct.iter_unpack(f"<{form}", data)]


@pytest.mark.parametrize(("jobs", "parts"), [(10, 3), (2, 5), (7, 1), (8, 4)])
def test_parts(world: World, jobs: int, parts: int) -> None:
    """Y3.1 The positions of a batch of n jobs are cut into p parts in their order: part x begins at
    x * n / p, rounded down.
    """
    ids = [world.add() for _ in range(jobs)]
    g = Lessee(world)
    g.next(1, jobs, PARTS=parts)
    found = [g.ids(1, part) for part in range(parts)]
    assert [id for part in found for id in part] == ids
    begins = [x * jobs // parts for x in range(parts)] + [jobs]
    assert [len(part) for part in found] == [b - a for a, b in pairwise(begins)]


def test_no_such_batch(world: World) -> None:
    """Y3.2 A batch that was released, fenced, removed or never made, or a part that it does not
    have: `-NOBATCH`.
    """
    for _ in range(3):
        world.add()
    g = Lessee(world)
    for seq in (1, 2, 3):
        g.next(seq, 1)
    g("COMMIT", 1)
    assert word(g("FETCH", 1, 0)) == "ACKED"
    assert g("FETCH", 2, 1).endswith("has the parts 0 to 0, there is no part 1")
    assert word(g("FETCH", 2, 1)) == "NOBATCH"
    assert word(g("FETCH", 4, 0)) == "NOBATCH"
    g("RELEASE")
    assert word(g("FETCH", 3, 0)) == "NOBATCH"


def test_attempts(world: World) -> None:
    """Y3.3 The reply begins with attempts and the number of positions of the part, and ends with
    the position to continue from.
    """
    for _ in range(6):
        world.add()
    g = Lessee(world)
    g.next(1, 6, PARTS=2)
    assert g("FETCH", 1, 0, "COUNT", 2)[0:2] == [1, 3]
    assert g("FETCH", 1, 0, "COUNT", 2)[3] == 2
    assert g("FETCH", 1, 0, "FROM", 2)[0] == 2
    assert g("FETCH", 1, 0, "FROM", 2)[3] == 3
    assert g("FETCH", 1, 1)[0] == 2, "the other part was read more often"
    assert g("FETCH", 1, 1, "FROM", 99)[2:] == [[], 3]


def test_rows_have_a_limit(world: World) -> None:
    """Y3.4 The reply has at most k rows (2000), and bodies of at most b bytes together (8 MiB), but
    at least one row.
    """
    for _ in range(2001):
        world.add(body="x" * 100)
    g = Lessee(world)
    g.next(1, 3000)
    assert len(g.rows(1)) == 2000
    assert len(g.rows(1, COUNT=5000)) == 2001
    assert len(g.rows(1, BYTES=1)) == 1
    assert len(g.rows(1, BYTES=300)) == 3
    assert len(g.rows(1, FROM=1999, COUNT=9)) == 2


def test_rows(world: World) -> None:
    """Y3.5 A row is id, queue, body, added (ms), expiry (ms), deliveries including this one, nacks,
    priority (R1.13). A job that left the batch, because it expired, was acked, deleted, put back or
    delivered elsewhere, gives a row of its id and a null: positions stay the same.
    """
    ids = [world.add(body=f"b{i}", TTL=5 if i == 4 else 60, DELAY=1, PRI=2) for i in range(5)]
    world.pass_ms(1100)
    world.get()
    world.run("NACK", ids[0])
    g = Lessee(world)
    g.next(1, 5, ttl=60_000)
    assert g.rows(1)[0] == [ids[0], b"q", b"b0", START_MS + 1000, START_MS + 60_000, 2, 1, 2]
    world.run("ACKJOB", ids[0])
    world.run("DELJOB", ids[1])
    g("NACK", 1, ids[2])
    world.pass_ms(5000)
    rows = g.rows(1)
    assert [row[0] for row in rows] == ids
    assert [len(row) for row in rows] == [2, 2, 2, 8, 2]
    assert all(world.job(ids[3]).body == row[2] for row in rows if len(row) > 2)


def test_columns(world: World) -> None:
    """Y3.6 With COLUMNS such jobs are skipped. The reply then has, for the rows: their number, the
    number skipped, ids (40 bytes each), names of queues, indexes into these, ends of the bodies,
    the bodies, added, expiry, deliveries, nacks, priority. Instants have 8 bytes, other numbers 4,
    little-endian, without gaps.
    """
    q = [world.add("q", "x" * i, PRI=i) for i in range(4)]
    r = [world.add("r", "y" * i, TTL=60) for i in range(3)]
    g = Lessee(world, "q", "r")
    g.next(1, 7, PARTS=1)
    world.run("ACKJOB", q[1])
    reply = g("FETCH", 1, 0, "columns")
    attempts, total, count, gone, ids, queues, index, ends, bodies = reply[:9]
    added, expiry, deliveries, nacks, priority, following = reply[9:]
    living = [q[0], r[0], r[1], q[2], r[2], q[3]]
    assert (attempts, total, count, gone, following) == (1, 7, 6, 1, 7)
    assert ids == b"".join(living)
    assert [queues[i] for i in numbers(index, "i")] == [world.job(id).queue for id in living]
    begin = 0
    for id, end in zip(living, numbers(ends, "i"), strict=True):
        assert bodies[begin:end] == world.job(id).body
        begin = end
    assert begin == len(bodies)
    assert numbers(added, "q") == [START_MS] * 6
    assert numbers(expiry, "q") == [world.job(id).expire_ms for id in living]
    assert numbers(deliveries, "i") == [1] * 6
    assert numbers(nacks, "i") == [0] * 6
    assert numbers(priority, "i") == [world.job(id).level for id in living] == [0, 5, 5, 2, 5, 3]
    first = g("FETCH", 1, 0, "COUNT", 2, "COLUMNS")
    assert (first[2], first[-1]) == (2, 2)
    rest = g("FETCH", 1, 0, "FROM", 2, "COLUMNS")
    assert first[4] + rest[4] == ids
    assert g("FETCH", 1, 0, "FROM", 7, "COLUMNS")[2:6] == [0, 0, b"", []]
    world.add("")
    other = Lessee(world, "", name="other")
    other.next(1, 1, PARTS=1)
    assert other("FETCH", 1, 0, "COLUMNS")[5:7] == [[b""], bytes(4)]


def test_reading_changes_nothing(world: World) -> None:
    """Y3.7 Reading changes nothing but attempts and the time of the lease (Y7.1)."""
    world.add()
    g = Lessee(world)
    g.next(1)
    world.node().take_recorded()
    before = g.rows(1)
    world.pass_ms(4000)
    assert g.rows(1) == before
    assert g.info()["left-ms"] == 5000
    assert world.node().take_recorded() == b""


def test_acks_of_others(world: World) -> None:
    """Y6.1 ACKJOB, FASTACK, DELJOB and DEADLETTER work as usual; the job leaves its batch."""
    ids = [world.add(body="x" * 1000) for _ in range(5)]
    g = Lessee(world)
    g.next(1)
    assert world.run("ACKJOB", ids[0]) == 1
    assert world.run("FASTACK", ids[1]) == 1
    assert world.run("DELJOB", ids[2]) == 1
    world.run("DEADLETTER", ids[3], "dead")
    assert g.ids(1) == [ids[4]]
    assert [job.body for job in world.n.leases.groups[b"g"].batches[1].jobs[:4]] == [b""] * 4
    assert g("COMMIT", 1) == 1


def test_others_leave_it_alone(world: World) -> None:
    """Y6.2 ENQUEUE, NACK and DEQUEUE skip the job and do not count it. WORKING: `-NOTDELIVERED Job
    is leased: LEASE TOUCH and LEASE FETCH extend its lease.`
    """
    id = world.add(RETRY=1)
    g = Lessee(world)
    g.next(1, ttl=60_000)
    for name in ("ENQUEUE", "NACK", "DEQUEUE"):
        assert world.run(name, id) == 0
    assert world.run("NACK", "DELAY", 1, id) == 0
    reply = world.run("WORKING", id)
    assert reply == "NOTDELIVERED Job is leased: LEASE TOUCH and LEASE FETCH extend its lease."
    world.pass_ms(30_000)
    assert world.state(id) == "active"
    assert g.ids(1) == [id]


@pytest.mark.parametrize("word", ["OPEN", "NEXT", "FETCH", "COMMIT", "TOUCH", "NACK"])
def test_every_command_keeps_the_lease(world: World, word: str) -> None:
    """Y7.1 The lease of a group ends when no OPEN, NEXT, FETCH, COMMIT, TOUCH or NACK arrived for
    its TTL, the one of the last NEXT or TOUCH.
    """
    ids = [world.add() for _ in range(4)]
    g = Lessee(world)
    g.next(1, 1)
    g.next(2, 3)
    g("COMMIT", 1)
    world.pass_ms(4900)
    if word == "OPEN":
        Lessee(world)
    elif word == "NEXT":
        g.next(2)
    elif word == "FETCH":
        g("FETCH", 2, 0)
    elif word == "COMMIT":
        g("COMMIT", 1)
    elif word == "TOUCH":
        g("TOUCH")
    else:
        g("NACK", 2, ids[0])
    world.pass_ms(4900)
    assert world.qlen() == 0
    g.info()
    world.pass_ms(200)
    assert world.qlen() == 3


@pytest.mark.parametrize("how", ["TOUCH", "NEXT"])
def test_a_shorter_ttl(world: World, how: str) -> None:
    """A lease whose TTL was made shorter ends sooner (Y7.1)."""
    world.add()
    g = Lessee(world)
    g.next(1, ttl=60_000)
    if how == "TOUCH":
        g("TOUCH", "TTL", 2000)
    else:
        assert g.next(2, ttl=2000) == 0
    world.pass_ms(1990)
    assert world.qlen() == 0
    world.pass_ms(20)
    assert world.qlen() == 1


def test_expiry(world: World) -> None:
    """Y7.2 Then its ALO jobs go back into their queues, even if the input of a queue is paused.
    They count as additional deliveries. The event `requeued` is written with the cause lease.
    """
    ids = [world.add() for _ in range(3)]
    g = Lessee(world)
    g.next(1, 2)
    g.next(2, 1)
    world.run("PAUSE", "q", "in")
    world.pass_ms(4990)
    assert world.qlen() == 0
    world.pass_ms(30)
    assert world.get(count=9) == ids
    assert world.job(ids[0]).deliveries == 1
    assert world.node().kinds(ids[0]) == ["added", "delivered", "requeued", "delivered"]
    events = world.n.events
    assert events is not None
    assert {reason for chunk in events.full for reason in Told(chunk).reason} == {b"lease"}
    assert [batch[4] for batch in g.info()["batches"]] == [1, 1]


def test_at_most_once(world: World) -> None:
    """Y7.3 An AMO job that was leased is not queued again (promise 2)."""
    id = world.add(RETRY=0)
    g = Lessee(world)
    g.next(1)
    assert g.ids(1) == [id]
    world.pass_ms(6000)
    assert world.state(id) == "active"
    assert world.run("ENQUEUE", id) == 0
    assert id in world.n.delivered_amo
    assert g.ids(1) == []
    assert g("RELEASE") == 0
    assert world.state(id) == "active"


def test_leased_jobs_are_not_evicted(world: World) -> None:
    """While it is leased an AMO job is none that may be evicted (M3.1, Y7.3)."""
    id = world.add(RETRY=0)
    g = Lessee(world)
    g.next(1)
    assert id not in world.n.delivered_amo
    assert g("COMMIT", 1) == 1
    assert world.state(id) == "gone"


def test_ids_are_kept(world: World) -> None:
    """Y7.4 The ids of an expired batch are kept for 10 more TTLs;"""
    world.add()
    g = Lessee(world)
    g.next(1)
    world.pass_ms(5010 + 49_000)
    assert len(g.info()["batches"]) == 1
    world.pass_ms(1100)
    assert g.info()["batches"] == []
    assert word(g("FETCH", 1, 0)) == "NOBATCH"
    assert word(g("COMMIT", 1)) == "NOBATCH"


def test_commit_of_an_expired_batch(world: World) -> None:
    """Y7.5 COMMIT of an expired batch acks its jobs wherever they are by then on this node, because
    they were processed.
    """
    ids = [world.add() for _ in range(3)]
    g = Lessee(world)
    g.next(1)
    g("NACK", 1, ids[2])
    world.pass_ms(6000)
    assert world.get(count=1) == [ids[0]]
    assert g("COMMIT", 1) == 2
    assert [world.state(id) for id in ids] == ["gone", "gone", "queued"]


def test_reclaim(world: World) -> None:
    """Y7.6 FETCH of an expired batch leases it again. Jobs that are queued here and that no other
    client got since are taken again, which counts as a delivery. The others have left the batch
    (Y3.5).
    """
    ids = [world.add() for _ in range(4)]
    g = Lessee(world)
    g.next(1)
    g("NACK", 1, ids[3])
    world.pass_ms(6000)
    assert world.get() == [ids[0]]
    assert world.get() == [ids[1]]
    world.run("NACK", ids[1])
    rows = g.rows(1)
    assert [row[0] for row in rows] == ids
    assert [len(row) for row in rows] == [2, 2, 8, 2]
    assert rows[2][5] == 2
    assert world.run("QLEN", "q") == 2
    world.pass_ms(4000)
    assert g.info()["left-ms"] == 1000
    assert g("COMMIT", 1) == 1
    assert world.node().kinds(ids[2]) == ["added", "delivered", "requeued", "delivered", "acked"]


def test_expired_twice(world: World) -> None:
    """A batch that was leased anew expires anew (Y7.6)."""
    id = world.add()
    g = Lessee(world)
    g.next(1)
    for deliveries in (1, 2, 3):
        world.pass_ms(5010)
        assert world.job(id).deliveries == deliveries
        assert g.ids(1) == [id]


def test_info(world: World) -> None:
    """Y10.1 `LEASE INFO group` replies with names and values: group, owner, epoch, queues,
    last-seq, acked-seq, ttl-ms, left-ms (0 when nothing is leased), batches (of each: number, jobs,
    bytes of bodies, attempts, expired 0 or 1), queued (jobs in its queues now), oldest-ms (age of
    the oldest of them), tubes (those of its queues that have become tubes, Y2.8).
    """
    for i in range(5):
        world.add(body="x" * i)
    g = Lessee(world, "q", "r")
    g.next(1, 2)
    g.next(2, 2, ttl=9000)
    g("COMMIT", 1)
    g.rows(2)
    world.pass_ms(250)
    assert g.info() == {
        "group": b"g",
        "owner": b"me",
        "epoch": g.epoch,
        "queues": [b"q", b"r"],
        "last-seq": 2,
        "acked-seq": 1,
        "ttl-ms": 9000,
        "left-ms": 8750,
        "batches": [[2, 2, 5, 1, 0]],
        "queued": 1,
        "oldest-ms": 250,
        "tubes": [],
    }
    assert world.run("LEASE", "LIST") == [b"g"]


def test_bytes_of_what_only_a_batch_knows(world: World) -> None:
    """Jobs that ended in a batch count as its bytes until it is over (Y10.2, M1.1)."""
    ids = [world.add(RETRY=i % 2) for i in range(12)]
    g = Lessee(world)
    empty = world.n.leases.bytes
    g.next(1, 6)
    g.next(2, 6)
    before = world.n.leases.bytes
    world.run("ACKJOB", *ids[:3])
    world.run("DELJOB", ids[3], ids[7])
    g("NACK", 2, ids[9])
    assert world.n.leases.bytes > before + 6 * 200
    world.n.leases.check()
    g("COMMIT", 1)
    world.n.leases.check()
    world.pass_ms(5010)
    g.rows(2)
    world.n.leases.check()
    g("COMMIT", 2)
    assert world.n.leases.bytes == empty


def test_figures(world: World) -> None:
    """Y10.2 INFO has a section Leases: groups, batches, jobs in batches under a live lease, and the
    bytes they use (part of used memory); since the start also batches made, jobs leased and batches
    expired.
    """
    for _ in range(5):
        world.add()
    used = world.n.used_bytes() - world.n.other_bytes  # but for the process and its clients
    g = Lessee(world)
    g.next(1, 2)
    world.pass_ms(5010)
    g.next(2, 2)
    fields = dict(
        line.split(":") for line in world.run("INFO", "leases").decode().splitlines() if ":" in line
    )
    size = int(fields.pop("lease_bytes"))
    assert size == world.n.used_bytes() - world.n.other_bytes - used > 1000
    assert fields == {
        "lease_groups": "1",
        "lease_batches": "2",
        "lease_jobs": "2",
        "lease_batches_made": "2",
        "lease_jobs_taken": "4",
        "lease_batches_expired": "1",
    }
