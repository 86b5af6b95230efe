"""The log of Disque 1.0, built here byte by byte from its published vectors."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.core.model.job import ACTIVE, DELIVERED, QUEUED
from tuque.store.aof import AofReader, BadJob, Import, decode_job, import_step
from tuque.store.disk import MemoryDisk

# ADDJOB qq hi 1000 REPLICATE 2 RETRY 7 TTL 600 DELAY 9, as Disque wrote it
VECTOR = bytes.fromhex(
    "a4000000"
    "442d6463 62346137 30312d41 69753876 4b4e7973 716e382f 49714c43 33394f6a 67724c2d 30303062"
    "01 00 0200 0aee006b 804c17b44ee9e918 09000000 07000000 0000 0000"
    "02000000 7171 02000000 6869 02000000"
) + (b"dcb4a701" * 5 + b"d54b50d2" * 5)
JOB_ID = b"D-dcb4a701-Aiu8vKNysqn8/IqLC39OjgrL-000b"
ETIME_S = 0x6B00EE0A
CTIME_NS = 0x18E9E94EB4174C80
NOW_MS = CTIME_NS // 1_000_000 + 1000
PATH = "/disque.aof"


def blob(
    job_id: bytes = JOB_ID,
    *,
    state: int = 2,
    flags: int = 0,
    etime_s: int = ETIME_S,
    delay_s: int = 0,
    retry_s: int = 7,
    queue: bytes = b"qq",
    body: bytes = b"hi",
) -> bytes:
    rest = struct.pack(
        "<40sBBHIQIIHH", job_id, state, flags, 2, etime_s, CTIME_NS, delay_s, retry_s, 3, 4
    )
    for part in (queue, body):
        rest += struct.pack("<I", len(part)) + part
    rest += struct.pack("<I", 1) + b"dcb4a701" * 5
    return struct.pack("<I", len(rest)) + rest


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def imported(data: bytes, now_ms: int = NOW_MS) -> Import:
    disk = MemoryDisk()
    handle = disk.open_append(PATH)
    disk.write(handle, data)
    found = Import()
    reader = AofReader(disk, PATH)
    while not import_step(reader, found, now_ms, 3):
        pass
    return found


def numbered(i: int) -> bytes:
    return b"D-dcb4a701-%024d-000b" % i


def test_the_published_vector() -> None:
    assert len(VECTOR) == 168
    found = imported(command(b"LOADJOB", VECTOR))
    job = found.jobs[JOB_ID]
    assert (job.queue, job.body, job.repl, job.retry_s, job.delay_s) == (b"qq", b"hi", 2, 7, 9)
    assert (job.ctime_ns, job.expire_ms) == (CTIME_NS, ETIME_S * 1000)
    assert job.state == ACTIVE
    assert job.qtime_ms == CTIME_NS // 1_000_000 + 9_000  # its delay, not a delay from now
    assert job.holders == 1  # this node, not those of the other cluster


def test_states_come_back() -> None:
    queued = decode_job(blob(state=2), NOW_MS)
    assert queued.state == QUEUED and (queued.nacks, queued.deliveries) == (3, 4)
    amo = decode_job(blob(state=2, retry_s=0), NOW_MS)
    assert amo.state == QUEUED and not amo.flags & DELIVERED
    active = decode_job(blob(state=1), NOW_MS)
    assert active.state == ACTIVE and active.qtime_ms == NOW_MS + 7_000
    handed_out = decode_job(blob(state=1, retry_s=0), NOW_MS)
    assert handed_out.flags & DELIVERED and handed_out.qtime_ms == 0
    delayed = decode_job(blob(state=1, retry_s=0, delay_s=30), NOW_MS)
    assert delayed.qtime_ms == NOW_MS + 29_000 and not delayed.flags & DELIVERED


def test_counts_of_a_whole_file() -> None:
    data = b"".join(
        [
            command(b"LOADJOB", blob(numbered(1))),
            command(b"LOADJOB", blob(numbered(2))),
            command(b"loadjob", blob(numbered(3))),
            command(b"DELJOB", numbered(2)),
            command(b"LOADJOB", blob(numbered(2))),  # acked before: not again
            command(b"DELJOB", numbered(9)),
            command(b"LOADJOB", blob(numbered(4), etime_s=NOW_MS // 1000 - 1)),
            command(b"LOADJOB", blob(numbered(5))[:-1]),
            command(b"SELECT", b"0"),
            command(b"LOADJOB", blob(numbered(6), body=b"\r\n*2\r\n$7\r\nLOADJOB\r\n" * 50)),
        ]
    )
    found = imported(data)
    assert sorted(found.jobs) == [numbered(1), numbered(3), numbered(6)]
    assert found.deleted_count == 2 and found.expired_count == 1
    assert found.bad_count == 2 and found.cut_bytes == 0


def test_every_cut_of_the_file_keeps_what_was_whole() -> None:
    parts = [command(b"LOADJOB", blob(numbered(i), body=b"x" * i)) for i in range(5)]
    data = b"".join(parts)
    ends = [sum(len(part) for part in parts[: i + 1]) for i in range(5)]
    for size in range(len(data)):
        found = imported(data[:size])
        whole = sum(end <= size for end in ends)
        assert len(found.jobs) == whole, size
        assert found.bad_count == 0, size
        assert found.cut_bytes == size - (ends[whole - 1] if whole else 0)


def test_damage_leaves_the_rest_readable() -> None:
    parts = [command(b"LOADJOB", blob(numbered(i))) for i in range(5)]
    parts[2] = b"#" + parts[2][1:]
    found = imported(b"".join(parts))
    assert sorted(found.jobs) == [numbered(i) for i in (0, 1, 3, 4)]
    assert found.bad_count == 1 and found.bad_bytes == len(parts[2])


@given(st.binary(max_size=300))
def test_noise_is_counted_never_an_exception(data: bytes) -> None:
    assert imported(data).jobs == {}


@given(st.integers(0, len(VECTOR) - 1), st.integers(0, 255), st.integers(0, len(VECTOR)))
def test_a_changed_job_is_read_or_refused(at: int, byte: int, size: int) -> None:
    changed = bytearray(VECTOR)
    changed[at] = byte
    for data in (bytes(changed), bytes(changed[:size])):
        try:
            job = decode_job(data, NOW_MS)
        except BadJob:
            continue
        assert len(job.queue) + len(job.body) == 4


@pytest.mark.parametrize("size", [0, 4, 71, 83, 167])
def test_a_short_job_is_refused(size: int) -> None:
    with pytest.raises(BadJob):
        decode_job(VECTOR[:size], NOW_MS)
