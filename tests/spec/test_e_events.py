"""SPEC E: the event stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_by_hand import NODE_ID, START_MS, Box

from tuque.core.events import KIND_NAMES, Events


def test_one_row_an_event(box: Box) -> None:
    """E1.1 With `events yes` each of added, delivered, acked, nacked, requeued, expired, dead,
    deleted is one row: a gap-free number per node, time, node, event, queue, id, which delivery,
    consumer.
    """
    one = box.add(RETRY=5)
    box.pass_ms(100)
    box.get()
    box.run("NACK", one)
    box.get()
    box.pass_ms(5_100)
    box.run("ACKJOB", one)
    box.run("DEADLETTER", box.add(), "dead")
    box.run("DELJOB", box.add())
    box.add(TTL=1)
    box.pass_ms(1_100)
    kinds = [kind for kind, _ in box.events()]
    assert kinds[:6] == ["added", "delivered", "nacked", "delivered", "requeued", "acked"]
    assert set(kinds) == set(KIND_NAMES[:8])
    events = box.n.events
    assert events is not None
    (chunk,) = events.full
    assert chunk.first_seq == 1
    assert events.seq == chunk.rows + 1
    assert chunk.ts_ms[:2] == [START_MS, START_MS + 100]
    assert chunk.delivery[:6] == [0, 1, 1, 2, 2, 2]
    assert chunk.consumer == [1, 1]
    assert box.n.node_id == NODE_ID


def test_ends_tell_it_all(box: Box) -> None:
    """E1.2 acked, expired and dead carry added, first and last delivery time and the counts, so
    that a reader needs no join.
    """
    job_id = box.add(RETRY=1)
    box.pass_ms(10)
    box.get()
    box.pass_ms(2_000)
    box.get()
    box.run("NACK", job_id)
    box.run("ACKJOB", job_id)
    box.events()
    assert box.n.events is not None
    (chunk,) = box.n.events.full
    assert chunk.enqueued_ms == [START_MS]
    assert chunk.first_ms == [START_MS + 10]
    assert chunk.last_ms == [START_MS + 2_010]
    assert (chunk.deliveries, chunk.nacks, chunk.timeouts) == ([2], [1], [1])


def test_the_broker_never_waits(box: Box) -> None:
    """E1.3 The broker never waits for the stream. When its buffers are full an event is dropped
    and counted; INFO shows the count.
    """
    box.n.events = Events(100, 1)
    for _ in range(500):
        box.run("ACKJOB", box.add())
    assert box.n.events.dropped > 0
    assert box.n.events.seq == 1001
    assert box.n.events.pending_rows() + box.n.events.dropped == 1000


def test_segments_are_named_when_complete(box: Box, tmp_path: Path) -> None:
    """E1.4 A segment that is being written has a name that begins with a dot; it is renamed when it
    is complete.
    """
    pytest.importorskip("pyarrow")
    from tuque.server.segments import HotSegment, seal, to_batch

    box.add()
    box.events()
    assert box.n.events is not None
    hot = HotSegment(tmp_path, NODE_ID.decode(), 1, START_MS // 86_400_000)
    hot.write(to_batch(box.n.events.full[0], NODE_ID.decode()))
    names = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert names
    assert all(name.startswith(".") for name in names)
    hot.close()
    sealed = seal(hot.path, tmp_path)
    assert sealed is not None
    assert not sealed.name.startswith(".")
    assert list(tmp_path.rglob("*.parquet")) == [sealed]
