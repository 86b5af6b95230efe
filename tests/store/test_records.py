"""Records survive encoding; anything that is no record is refused, never misread."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from journal_lab import decode_all

from both_ways import thorough
from tuque.core.model.job import ACKED, LEVEL_MAX, Job
from tuque.core.msgs.records import EndRow, GapRow, PauseRow, PeerRow
from tuque.core.records import jobs as rec
from tuque.core.records import read as back

IDS = st.binary(min_size=40, max_size=40)
I32 = st.integers(0, 2**31 - 1)
I64 = st.integers(0, 2**63 - 1)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    job = Job(
        draw(IDS),
        draw(st.binary(max_size=300)),
        draw(st.binary(max_size=3000)),
        draw(I64),
        draw(I64),
        draw(I32),
        draw(I32),
        draw(I32),
    )
    job.state = draw(st.integers(0, 2))
    job.flags = draw(st.integers(0, 255))
    job.level = draw(st.integers(0, LEVEL_MAX))
    job.qtime_ms = draw(I64)
    if draw(st.booleans()):
        job.nacks = draw(I32)
        job.deliveries = draw(I32)
        job.delivered_count = draw(I32)
    if job.delivered_count:
        job.first_ms = draw(I64)
        job.last_ms = draw(st.sampled_from([job.first_ms, draw(I64)]))
    return job


CHANGING = "id state flags qtime_ms nacks deliveries delivered_count first_ms last_ms".split()
WHOLE = [*CHANGING, *"queue body repl retry_s delay_s ctime_ns expire_ms level".split()]


@given(st.lists(jobs(), min_size=1, max_size=4))
def test_add_and_state_come_back_whole(some: list[Job]) -> None:
    records = rec.Records()
    for job in some:
        records.add(job)
        records.state(job)
    assert records.count == 2 * len(some)
    found = decode_all(records.take())
    assert records.count == 0 and records.take() == b""
    for i, job in enumerate(some):
        added, state = found[2 * i], found[2 * i + 1]
        assert added.kind == rec.ADD and state.kind in (rec.STATE, rec.FIRST)
        for name in WHOLE:
            assert getattr(added, name) == getattr(job, name), name
            assert getattr(back.job_of(added), name) == getattr(job, name), name
        for name in CHANGING:
            assert getattr(state, name) == getattr(job, name), name


@given(IDS, I64, st.integers(0, 2**62 - 1), st.lists(IDS, min_size=1, max_size=62))
def test_records_of_a_cluster_come_back(
    job_id: bytes, expire_ms: int, nodes: int, node_ids: list[bytes]
) -> None:
    records = rec.Records(node_ids, {1: 7})
    nodes %= 1 << len(node_ids)
    job = Job(job_id, b"q", b"body", 1, expire_ms, 3, 4, 2)
    job.holders = nodes | 1
    records.holders(job)
    records.add(job)
    records.ack_job(job)
    records.tomb(job_id, expire_ms, 3)
    assert records.binding_count == 3, "a set of nodes binds no reply"
    others = [slot for slot in range(1, len(node_ids)) if nodes >> slot & 1]
    named = decode_all(records.take())[: len(others)]
    assert [r.row for r in named] == [
        PeerRow(slot, node_ids[slot], 7 if slot == 1 else 0) for slot in others
    ]
    records.holders(job)
    found = decode_all(records.take())
    assert [r.kind for r in found] == [rec.HOLDERS], "named once"
    records.rename(1)
    records.holders(job)
    records.add(job)
    records.ack_job(job)
    records.tomb(job_id, expire_ms, 3)
    kinds = [r for r in decode_all(records.take()) if r.kind != rec.PEER]
    held, added, acked, tomb = kinds
    assert (held.kind, held.id, held.holders) == (rec.HOLDERS, job_id, job.holders)
    assert (added.kind, back.job_of(added).holders) == (rec.ADD, job.holders)
    assert (acked.kind, acked.expire_ms, acked.holders) == (rec.ACKED_AT, expire_ms, job.holders)
    assert (tomb.kind, tomb.expire_ms, tomb.bits) == (rec.TOMB, expire_ms, 3)


@given(IDS, I64, st.integers(0, 255), st.integers(0, 2**63 - 1), st.binary(max_size=200))
def test_small_records_come_back(
    job_id: bytes, number: int, byte: int, stamp_ns: int, queue: bytes
) -> None:
    records = rec.Records()
    records.ack(job_id, number)
    records.remove(job_id, byte)
    records.pause(queue, byte % 8, 0)
    records.pause(queue, byte % 8, stamp_ns)
    records.end(number, 7)
    records.gap(7, number)
    records.close()
    ack, remove, local, pause, end, gap, close = decode_all(records.take())
    assert (ack.kind, ack.id, ack.expire_ms) == (rec.ACK, job_id, number)
    assert (remove.kind, remove.id, remove.bits) == (rec.REMOVE, job_id, byte)
    assert (local.kind, local.row) == (rec.PAUSE, PauseRow(byte % 8, 0, queue))
    assert (pause.kind, pause.row) == (rec.PAUSE, PauseRow(byte % 8, stamp_ns, queue))
    assert (end.kind, end.row) == (rec.END, EndRow(number, 7))
    assert (gap.kind, gap.row) == (rec.GAP, GapRow(7, number))
    assert close.kind == rec.CLOSE


@settings(max_examples=thorough(300))
@given(jobs(), st.data())
def test_bytes_that_are_no_record_are_refused(job: Job, data: st.DataObject) -> None:
    records = rec.Records([b"1" * 40, b"2" * 40])
    records.add(job)
    records.state(job)
    records.ack(job.id, 1)
    job.holders = 3
    records.add(job)
    records.holders(job)
    records.ack_job(job)
    records.tomb(job.id, 5, 2)
    payload = bytearray(records.take())
    what = data.draw(st.sampled_from(["cut", "change", "noise"]))
    if what == "cut":
        payload = payload[: data.draw(st.integers(0, len(payload)))]
    elif what == "change":
        for _ in range(data.draw(st.integers(1, 4))):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    else:
        payload = bytearray(data.draw(st.binary(max_size=400)))
    try:
        for r in decode_all(bytes(payload)):
            assert len(r.body) <= len(payload)
    except back.BadRecord:
        return


def test_an_acked_job_is_told_as_its_tombstone() -> None:
    job = Job(b"D" * 40, b"q", b"b", 1, 99, 3, 4, 1)
    job.state = ACKED
    records = rec.Records([b"1" * 40, b"2" * 40])
    records.add(job)
    (r,) = decode_all(records.take())
    assert (r.kind, r.id, r.expire_ms) == (rec.ACK, job.id, 99)
    job.holders = 3
    records.add(job)
    _, r = decode_all(records.take())
    assert (r.kind, r.state, r.holders) == (rec.ADD, ACKED, 3), "others are to hear of it"


def test_what_a_reply_must_wait_for() -> None:
    """A first delivery binds no reply, unless the job is delivered at most once."""
    job = Job(b"D" * 40, b"q", b"b", 1, 99, 30, 0, 1)
    job.delivered_count = 1
    records = rec.Records()
    records.state(job)
    assert records.binding_count == 0 and not records.has_custody
    job.retry_s = 0
    records.state(job)
    assert records.binding_count == 1 and records.has_custody
    records.take()
    assert not records.has_custody
