"""core/records/events.py: what each call leaves in the columns, and what if they are full."""

from __future__ import annotations

import pytest
from events_jobs import NOW_MS, a_job

from told_events import Told
from tuque.core.model import stats
from tuque.core.records import events as ev
from tuque.core.records.events import Events


def only_chunk(events: Events) -> Told:
    events.cut()
    (chunk,) = events.take()
    return Told(chunk)


def test_added_keeps_size_and_times() -> None:
    events = Events(100, 7)
    job = a_job()
    job.delay_s = 2_200_000  # more ms than 32 bits hold
    events.added(NOW_MS, job)
    chunk = only_chunk(events)
    assert (chunk.first_seq, chunk.rows, events.seq) == (7, 1, 8)
    assert chunk.kinds == [ev.ADDED]
    assert chunk.job_ids == [job.id]
    assert chunk.queues == [b"q"]
    assert chunk.size == [100]
    assert chunk.delay_ms == [2_200_000_000]
    assert chunk.ttl_ms == [86_400_000]
    assert chunk.retry_ms == [300_000]
    assert chunk.delivery == [0]


def test_delivered_keeps_number_and_consumer() -> None:
    events = Events(100, 0)
    job = a_job()
    job.delivered_count = 3
    events.delivered(NOW_MS, job, 12)
    chunk = only_chunk(events)
    assert chunk.kinds == [ev.DELIVERED]
    assert chunk.delivery == [3]
    assert chunk.consumer == [12]


@pytest.mark.parametrize("kind", [ev.ACKED, ev.EXPIRED, ev.DEAD, ev.DELETED, ev.CANCELLED])
def test_an_end_tells_the_whole_life(kind: int) -> None:
    events = Events(100, 0)
    job = a_job()
    job.delay_s, job.nacks, job.deliveries, job.delivered_count = 5, 1, 2, 4
    job.first_ms, job.last_ms = NOW_MS + 5100, NOW_MS + 9000
    if kind == ev.ACKED:
        events.acked(NOW_MS + 9900, job)
    elif kind == ev.EXPIRED:
        events.expired(NOW_MS + 9900, job)
    elif kind == ev.DEAD:
        events.dead(NOW_MS + 9900, job, b"why")
    elif kind == ev.CANCELLED:
        events.cancelled(NOW_MS + 9900, job, b"not")
    else:
        events.deleted(NOW_MS + 9900, job, stats.EVICTED)
    chunk = only_chunk(events)
    assert chunk.kinds == [kind]
    assert chunk.enqueued_ms == [NOW_MS + 5000]
    assert chunk.first_ms == [NOW_MS + 5100]
    assert chunk.last_ms == [NOW_MS + 9000]
    assert chunk.deliveries == [4]
    assert chunk.nacks == [1]
    assert chunk.timeouts == [2]
    expected = {ev.DEAD: [b"why"], ev.DELETED: [b"evicted"], ev.CANCELLED: [b"not"]}.get(kind, [])
    assert chunk.reason == expected


def test_reasons_are_named_and_cut() -> None:
    events = Events(100, 0)
    events.nacked(NOW_MS, a_job())
    events.requeued(NOW_MS, a_job(), ev.REQUEUE_TIMEOUT)
    events.requeued(NOW_MS, a_job(), ev.REQUEUE_COMMAND)
    events.dead(NOW_MS, a_job(), b"y" * 10_000)
    assert only_chunk(events).reason == [b"", b"timeout", b"command", b"y" * ev.REASON_BYTES]


def test_causes_are_those_of_the_ledger() -> None:
    assert [cause.decode() for cause in ev.DELETE_CAUSES] == stats.CAUSES


def test_full_buffers_drop_and_count_and_leave_a_gap() -> None:
    events = Events(8, 0, chunk_rows=4)
    for i in range(20):
        events.acked(NOW_MS + i, a_job(i))
    assert (events.seq, events.dropped, events.pending_rows()) == (20, 12, 8)
    taken = events.take()
    for i in range(20, 24):
        events.acked(NOW_MS + i, a_job(i))
    assert events.dropped == 16, "a taken chunk keeps its room until it is written"
    events.wrote(len(taken))
    events.acked(NOW_MS + 24, a_job(24))
    events.cut()
    taken += events.take()
    numbers = [c.first_seq + i for c in taken for i in range(c.rows)]
    assert numbers == [0, 1, 2, 3, 4, 5, 6, 7]
    events.wrote(1)
    events.cut()
    (last,) = map(Told, events.take())
    assert (last.first_seq, last.rows, last.ts_ms) == (24, 1, [NOW_MS + 24])
    assert events.dropped == 16


def test_numbers_never_repeat_whatever_the_shell_does() -> None:
    events = Events(16, 100, chunk_rows=4)
    seen: list[int] = []
    offered = 0
    lent = 0
    for round_ in range(200):
        for _ in range(round_ % 7):
            events.requeued(NOW_MS + offered, a_job(offered), ev.REQUEUE_COMMAND)
            offered += 1
        if round_ % 3 == 0:
            events.cut()
        if round_ % 5 == 0:
            chunks = events.take()
            lent += len(chunks)
            for chunk in chunks:
                assert Told(chunk).ts_ms == [
                    NOW_MS + chunk.first_seq - 100 + i for i in range(chunk.rows)
                ], "a number belongs to its event"
                seen += range(chunk.first_seq, chunk.first_seq + chunk.rows)
        if round_ % 11 == 0:
            events.wrote(lent)
            lent = 0
        assert events.pending_rows() <= 16
    assert events.seq == 100 + offered
    assert seen == sorted(set(seen))
    assert len(seen) + events.dropped + events.pending_rows() == offered
    assert events.dropped > 0


def test_events_wait_for_their_record() -> None:
    """E3.1: a chunk is given when the last record of its turns is durable, not before."""
    events = Events(100, 0, chunk_rows=4)
    for _ in range(6):
        events.acked(NOW_MS, a_job())
    assert not events.is_ready(0) or events.full[0].wait_seq < 0
    events.hold(7)
    events.cut()
    assert not events.is_ready(6)
    assert events.take(6) == []
    events.acked(NOW_MS, a_job())
    events.hold(9)
    events.cut()
    assert [chunk.rows for chunk in events.take(8)] == [4, 2]
    assert [chunk.rows for chunk in events.take(9)] == [1]
