"""SPEC E: the event stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lease_by_hand import Lessee

from sim.engine.clock import START_MS
from told_events import Told
from tuque.core.records.events import KIND_NAMES, Events
from world import World
from world_machines import name_of


def test_one_row_an_event(world: World) -> None:
    """E1.1 With `events yes` each of added, delivered, acked, nacked, requeued, expired, dead,
    deleted and cancelled is one row: a number that grows by one per node (E2), time, node, event,
    queue, id, number of the delivery, consumer.
    """
    one = world.add(RETRY=5)
    world.pass_ms(100)
    world.get()
    world.run("NACK", one)
    world.get()
    world.pass_ms(5_100)
    world.run("ACKJOB", one)
    world.run("DEADLETTER", world.add(), "dead")
    world.run("DELJOB", world.add())
    world.run("CANCEL", world.add())
    world.add(TTL=1)
    world.pass_ms(1_100)
    kinds = [kind for kind, _ in world.node().events()]
    assert kinds[:6] == ["added", "delivered", "nacked", "delivered", "requeued", "acked"]
    assert set(kinds) == {*KIND_NAMES[:8], "cancelled"}
    events = world.n.events
    assert events is not None
    (chunk,) = map(Told, events.full)
    assert chunk.first_seq == 1
    assert events.seq == chunk.rows + 1
    assert chunk.ts_ms[:2] == [START_MS, START_MS + 100]
    assert chunk.delivery[:6] == [0, 1, 1, 2, 2, 2]
    assert chunk.consumer == [1, 1]
    assert world.n.node_id == name_of(0)


def test_why_a_job_is_queued_again(world: World) -> None:
    """Q2.3 The event `requeued` is written with the cause timeout, unless a delay ended.

    Q5.2 The event `requeued` is written with the cause command.

    Y7.2 The event `requeued` is written with the cause lease.
    """
    one = world.add(RETRY=5)
    world.get()
    world.pass_ms(5_100)
    world.get()
    world.run("ENQUEUE", one)
    g = Lessee(world)
    g.next(1, ttl=1_000)
    world.pass_ms(1_100)
    world.add(DELAY=1)
    world.pass_ms(1_100)
    assert world.node().kinds(one).count("requeued") == 3
    events = world.n.events
    assert events is not None
    told = [reason for chunk in map(Told, events.full) for reason in chunk.reason]
    assert told == [b"timeout", b"command", b"lease"]


def test_ends_tell_it_all(world: World) -> None:
    """E1.2 acked, expired, dead, deleted and cancelled also have due (added and delay), first
    and last delivery time, the counts, size and delay: no join is needed.
    """
    world.run("DELJOB", world.add())
    job_id = world.add(RETRY=1)
    world.pass_ms(10)
    world.get()
    world.pass_ms(2_000)
    world.get()
    world.run("NACK", job_id)
    world.run("ACKJOB", job_id)
    world.node().events()
    assert world.n.events is not None
    (chunk,) = map(Told, world.n.events.full)
    assert chunk.enqueued_ms == [START_MS, START_MS]
    assert (chunk.size[0], chunk.size[-1]) == (chunk.size[1], chunk.size[2])  # added, end
    assert (len(chunk.size), len(chunk.delay_ms), len(chunk.ttl_ms)) == (4, 4, 2)
    assert chunk.first_ms == [0, START_MS + 10]
    assert chunk.last_ms == [0, START_MS + 2_010]
    assert (chunk.deliveries, chunk.nacks, chunk.timeouts) == ([0, 2], [0, 1], [0, 1])


def test_the_broker_never_waits(world: World) -> None:
    """E1.3 The broker never waits for the stream. If its buffers are full, an event is dropped and
    counted; INFO shows the count.
    """
    world.n.events = Events(100, 1)
    for _ in range(500):
        world.run("ACKJOB", world.add())
    assert world.n.events.dropped > 0
    assert world.n.events.seq == 1001
    assert world.n.events.pending_rows() + world.n.events.dropped == 1000


def test_segments_are_named_when_complete(world: World, tmp_path: Path) -> None:
    """E1.4 The name of a segment that is being written begins with a dot; the segment is renamed
    when it is complete.
    """
    pytest.importorskip("pyarrow")
    from tuque.server.events.segments import HotSegment, seal

    world.add()
    world.node().events()
    assert world.n.events is not None
    hot = HotSegment(tmp_path, name_of(0).decode(), 1, START_MS // 86_400_000)
    hot.write(batch_of(world.n.events))
    names = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert names
    assert all(name.startswith(".") for name in names)
    hot.close()
    sealed = seal(hot.path, tmp_path)
    assert sealed is not None
    assert not sealed.name.startswith(".")
    assert list(tmp_path.rglob("*.parquet")) == [sealed]


def batch_of(events: Events) -> Any:
    """The first full chunk as the writer process makes rows of it."""
    from tuque.server.events.events import Frame
    from tuque.server.events.segments import to_batch

    chunk = events.full[0]
    columns = [memoryview(column) for column in chunk.columns()]
    batch, _ = to_batch([Frame(chunk.first_seq, chunk.rows, columns)], name_of(0).decode())
    return batch


def rows_of(directory: Path) -> list[tuple[int, str]]:
    """Number and event of each row in the sealed segments."""
    import pyarrow.parquet as pq

    rows = [row for path in directory.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return sorted((row["seq"], row["event"]) for row in rows)


def test_the_stream_tells_of_starts_and_stops(tmp_path: Path) -> None:
    """E2.2 Numbers continue over restarts, after the last one in a segment of this node."""
    pytest.importorskip("pyarrow")
    from tuque.server.events.events import EventLog

    for life in range(2):
        log = EventLog(tmp_path, name_of(0).decode())
        log.close(log.start(START_MS + life), START_MS + life)
    assert rows_of(tmp_path) == [(0, "started"), (1, "stopped"), (2, "started"), (3, "stopped")]


def test_a_dropped_event_leaves_a_gap(world: World) -> None:
    """E2.3 A dropped event uses its number: the reader sees the gap."""
    world.n.events = events = Events(100, 1)
    for _ in range(500):
        world.add()
    kept = events.pending_rows()
    assert 0 < kept == 500 - events.dropped
    numbers: list[int] = []
    while events.pending_rows():
        events.cut()
        chunks = events.take()
        numbers += [chunk.first_seq + i for chunk in chunks for i in range(chunk.rows)]
        events.wrote(len(chunks))
    world.add()
    events.cut()
    (after,) = events.take()
    assert [*numbers, after.first_seq] == [*range(1, kept + 1), 501]


def test_what_a_kill_left_is_sealed(world: World, tmp_path: Path) -> None:
    """E2.4 A segment that a killed node was writing is sealed at the next start, with all its whole
    batches; a torn end is left out.
    """
    pytest.importorskip("pyarrow")
    from tuque.server.events.events import EventLog
    from tuque.server.events.segments import HotSegment

    world.add()
    world.node().events()
    assert world.n.events is not None
    hot = HotSegment(tmp_path, name_of(0).decode(), 1, START_MS // 86_400_000)
    hot.write(batch_of(world.n.events))
    whole = hot.path.stat().st_size
    hot.write(batch_of(world.n.events))
    hot.close()
    with hot.path.open("r+b") as file:
        file.truncate(whole + 40)
    assert EventLog(tmp_path, name_of(0).decode()).recovered == 1
    assert rows_of(tmp_path) == [(1, "added")]
