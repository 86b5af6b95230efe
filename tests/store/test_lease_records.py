"""Records of leases survive encoding; anything that is no record is refused, never misread."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from journal_lab import decode_all

from both_ways import thorough
from tuque.core.model.job import EXPIRED_OUT, LEASED, WHY_MAX, Job
from tuque.core.msgs.records import LeaseDrop, LeaseGroup
from tuque.core.records import jobs as rec
from tuque.core.records import read as back
from tuque.core.records.leases import (
    HOW_EXPIRED,
    HOW_SOME,
    HOW_TAKEN,
    tell_batch,
    tell_drop,
    tell_gone,
    tell_group,
)
from tuque.core.tables.leases import Batch, Group, gone

IDS = st.binary(min_size=40, max_size=40)
NAMES = st.binary(min_size=1, max_size=255)
I64 = st.integers(1, 2**63 - 1)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    queues = draw(st.lists(st.binary(max_size=99), min_size=1, max_size=5))
    g = Group(draw(NAMES), draw(NAMES), queues, draw(I64))
    g.acked_seq, g.floor_seq, g.last_seq = sorted(draw(st.tuples(I64, I64, I64)))
    g.ttl_ms = draw(I64)
    g.used_ms = draw(I64)
    return g


def leased(id: bytes, count: int) -> Job:
    job = Job(id, b"q", b"body", 1, 2, 3, 4, 5)
    job.flags |= LEASED
    job.delivered_count = count
    return job


def marks_of(ids: list[bytes]) -> list[int]:
    """The first job left the batch, the others were handed out 0, 1, 2, ... times before."""
    return [-1 - WHY_MAX, *range(len(ids) - 1)]


def batch(ids: list[bytes], is_expired: bool) -> Batch:
    b = Batch(7, 3)
    b.count = len(ids)
    b.body_bytes = 99
    b.is_expired = is_expired
    if is_expired:
        b.drop_ms = 5
        b.ids = ids
        b.marks = marks_of(ids)
        b.ends = [0] * len(ids)
    else:
        b.jobs = [gone(ids[0], WHY_MAX)] + [leased(id, i) for i, id in enumerate(ids[1:])]
    return b


@given(groups(), st.lists(IDS, min_size=1, max_size=9), st.booleans(), I64)
def test_leases_come_back_whole(g: Group, ids: list[bytes], is_expired: bool, now_ms: int) -> None:
    records = rec.Records()
    tell_group(records, g)
    tell_batch(records, g, batch(ids, is_expired), now_ms, not is_expired)
    tell_drop(records, g, 7)
    assert records.count == records.binding_count == 3
    whole, some, drop = decode_all(records.take())
    r = whole.row
    assert isinstance(r, LeaseGroup)
    assert (whole.kind, some.kind, drop.kind) == (
        rec.LEASE_GROUP,
        rec.LEASE_BATCH,
        rec.LEASE_DROP,
    )
    assert r.names == [g.name, g.owner, *g.queues]
    assert (r.epoch, r.last_seq, r.acked_seq, r.floor_seq) == (
        g.epoch,
        g.last_seq,
        g.acked_seq,
        g.floor_seq,
    )
    assert (r.ttl_ms, r.used_ms) == (g.ttl_ms, g.used_ms)
    r = some.lease
    assert (r.name, r.epoch, r.seq, r.parts, r.at_ms) == (g.name, g.epoch, 7, 3, now_ms)
    assert (r.total, r.first, r.body_bytes) == (len(ids), 0, 99)
    assert r.how == (HOW_EXPIRED if is_expired else HOW_TAKEN)
    assert r.ids == ids and r.marks == marks_of(ids)
    assert drop.row == LeaseDrop(g.epoch, 7, g.name)


def test_a_job_that_left_its_batch_is_told_alone() -> None:
    ids = [b"%040d" % i for i in range(3)]
    records = rec.Records()
    g = Group(b"g", b"me", [b"q"], 1)
    b = batch(ids, False)
    b.jobs[1] = gone(ids[1], EXPIRED_OUT)
    tell_gone(records, g, b, 1, 5)
    (found,) = decode_all(records.take())
    r = found.lease
    assert (r.how, r.total, r.first, r.ids, r.marks) == (
        HOW_SOME,
        3,
        1,
        [ids[1]],
        [-1 - EXPIRED_OUT],
    )


def test_jobs_of_an_expired_batch_that_are_over_are_told_so() -> None:
    ids = [b"%040d" % i for i in range(4)]
    records = rec.Records()
    b = batch(ids, True)
    b.ends = [5, 5, 6, 0]
    tell_batch(records, Group(b"g", b"me", [b"q"], 1), b, 5, False)
    (found,) = decode_all(records.take())
    assert found.lease.marks == [-1 - WHY_MAX, -1 - EXPIRED_OUT, 1, 2]


def test_a_large_batch_is_several_records() -> None:
    ids = [b"%040d" % i for i in range(25_000)]
    records = rec.Records()
    g = Group(b"g", b"me", [b"q"], 1)
    tell_batch(records, g, batch(ids, False), 1, True)
    assert records.count == 3
    found = decode_all(records.take())
    assert [r.lease.first for r in found] == [0, 10_000, 20_000]
    assert [id for r in found for id in r.lease.ids] == ids


def test_handing_out_a_batch_waits_for_the_disk() -> None:
    records = rec.Records()
    g = Group(b"g", b"me", [b"q"], 1)
    b = batch([b"0" * 40, b"1" * 40], False)
    tell_batch(records, g, b, 1, False)
    assert not records.has_custody, "only told again"
    tell_batch(records, g, b, 1, True)
    assert records.has_custody


@settings(max_examples=thorough(300))
@given(groups(), st.lists(IDS, min_size=1, max_size=4), st.data())
def test_bytes_that_are_no_record_are_refused(
    g: Group, ids: list[bytes], data: st.DataObject
) -> None:
    records = rec.Records()
    tell_group(records, g)
    tell_batch(records, g, batch(ids, data.draw(st.booleans())), 1, False)
    tell_drop(records, g, 7)
    payload = bytearray(records.take())
    if data.draw(st.booleans()):
        payload = payload[: data.draw(st.integers(0, len(payload)))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        for r in decode_all(bytes(payload)):
            assert len(r.lease.ids) == len(r.lease.marks) <= len(payload)
            assert r.kind != rec.LEASE_BATCH or 1 <= len(r.lease.name) <= 255
    except back.BadRecord:
        return
