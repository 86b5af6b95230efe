"""SPEC J1-J4: files, records, frames, policies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from journal_by_hand import BOOT_ID, PATH, Kept, segment
from node_by_hand import NODE_ID, START_MS, Box, Err

import forked
from tuque.core.records.jobs import (
    ACK,
    ADD,
    PAUSE,
    REMOVE,
    Records,
)
from tuque.core.records.read import Record, decode
from tuque.server.journal.committer import Committer
from tuque.store.disk import MemoryDisk
from tuque.store.frames import (
    HEADER_BYTES,
    MAGIC,
    JournalError,
    decode_header,
    read_manifest,
)


def test_files(kept: Kept) -> None:
    """J1.1 A journal is a directory: segments, at most one complete snapshot, a lock, and a
    manifest that alone says which files count.
    """
    kept.box.add()
    manifest = read_manifest(kept.disk, PATH)
    assert manifest is not None
    assert manifest.snapshot == ""
    names = set(kept.disk.listdir(PATH))
    assert {"manifest", *manifest.segments} <= names
    kept.committer.start_rewrite(kept.box.n, kept.box.n.now_ms)
    while kept.committer.is_rewriting():
        kept.turn()
    manifest = read_manifest(kept.disk, PATH)
    assert manifest is not None
    assert manifest.snapshot.endswith(".snap")
    assert len([name for name in kept.disk.listdir(PATH) if name.endswith(".snap")]) == 1
    kept.restart("power")
    assert len(kept.box.n.jobs) == 1


def test_headers(kept: Kept) -> None:
    """J1.2 Each file begins with a header: magic, format version, number, first record number, a
    random salt, the node id, and the offset between the wall clock and the machine's steady clock.
    """
    data = kept.disk.read(segment(kept), 0, HEADER_BYTES)
    assert data.startswith(MAGIC)
    header = decode_header(data, "x")
    assert header is not None
    assert header.node_id == NODE_ID
    assert header.boot.wall_ms == START_MS
    assert header.boot.boot_id == BOOT_ID
    damaged = bytearray(data)
    damaged[20] ^= 1
    assert decode_header(bytes(damaged), "x") is None


def test_lock(tmp_path: object) -> None:
    """J1.3 A second process on the same directory is refused, with the process id of the first."""
    kept = Kept()
    second = Committer(kept.disk, PATH, NODE_ID, START_MS, threaded=False)
    with pytest.raises(JournalError, match="in use by"):
        second.lock()
    kept.close()


def test_kinds_of_records(kept: Kept) -> None:
    """J2.1 Records are: add (the whole job), state (state, due time, counters, flags), ack (id and
    expiry), remove (id and cause), pause (queue, bits and the instant of the command). For the
    cluster: peer (slot, node id and incarnation), holders (the set), acked (id, expiry and the set
    that must learn of it), tomb (id and expiry). The records of leases are in Y9.1, those of staged
    writes in Z6.1, those of lives in W13.1. Nothing else is executed on load."""
    records = Records()
    kept.box.n.records = records
    session = kept.box.sessions[0]
    one = session("ADDJOB", "q", "b", 0)
    two = session("ADDJOB", "q", "b", 0)
    session("GETJOB", "FROM", "q")
    session("ACKJOB", one)
    session("DELJOB", two)
    session("PAUSE", "q", "in")
    payload = records.take()
    kinds, at, record = [], 0, Record()
    while at < len(payload):
        at = decode(payload, at, record)
        kinds.append(record.kind)
    assert kinds[:2] == [ADD, ADD]
    assert kinds[3:] == [ACK, REMOVE, PAUSE]


def test_twice_is_once(kept: Kept) -> None:
    """J2.2 A record is absolute: it has instants, not durations. Applying it twice has the same
    effect as applying it once.
    """
    job_id = kept.box.add(DELAY=50)
    taken = kept.box.add("r", RETRY=30)
    kept.box.get("r")
    n = kept.box.n
    before = [(kept.box.job(i).qtime_ms, kept.box.job(i).state) for i in (job_id, taken)]
    records = n.records
    assert records is not None
    for job in n.jobs.values():
        records.add(job)
        records.state(job)
    kept.turn()
    kept.restart(off_ms=10_000)
    after = [(kept.box.job(i).qtime_ms, kept.box.job(i).state) for i in (job_id, taken)]
    assert after == before


def test_a_frame_is_whole_or_nothing() -> None:
    """J3.1 A frame counts as a whole or not at all."""
    kept = Kept()
    kept.box.add()
    path = segment(kept)
    before = kept.disk.size(path)
    session = kept.box.sessions[0]
    session("ADDJOB", "q", "two", 0)
    session("ADDJOB", "q", "three", 0)
    kept.turn()
    whole = bytes(kept.disk.file(path).data)
    kept.close()
    for size in range(before, len(whole) + 1):
        disk = MemoryDisk()
        for name, file in kept.disk.names.items():
            data = whole[:size] if name == path else bytes(file.data)
            handle = disk.open_append(name)
            disk.write(handle, data) if data else None
            disk.fdatasync(handle)
        cut = Kept(disk=disk)
        assert len(cut.box.n.jobs) == (3 if size == len(whole) else 1), size
        cut.close()


def test_off_writes_nothing() -> None:
    """J4.1 `appendonly no`: nothing is written."""
    box = Box()
    assert box.server.committer is None
    box.add()
    box.close()


def test_on_by_default(tmp_path: Path) -> None:
    """J4.1 Without the option a node has a journal, under `everysec`."""
    words = ("server", "--port", "0", "--dir", str(tmp_path), "--print-config")
    shown = forked.run(words, b"", dict(os.environ), 60.0).stdout.decode().splitlines()
    said = {line.partition("#")[0].strip() for line in shown}
    assert {"appendonly = true", 'appendfsync = "everysec"'} <= said


@pytest.mark.parametrize(
    ("policy", "how", "survives"),
    [
        ("always", "power", True),
        ("everysec", "power", False),
        ("everysec", "crash", True),
        ("no", "crash", True),
        ("no", "stop", True),
    ],
)
def test_policies(policy: str, how: str, survives: bool) -> None:
    """J4.2 `always`: the reply also waits for the sync of its record. `everysec`: records are
    synced once a second in a thread. `no`: they are never synced.
    """
    kept = Kept(policy)
    job_id = kept.box.add()
    assert kept.committer.must_hold(kept.committer.seq) is False, "synced or not waited for"
    kept.restart(how)
    assert (kept.box.state(job_id) == "queued") == survives
    kept.close()


def test_first_delivery_binds_nobody() -> None:
    """J4.3 Under `always` the reply to a first delivery of an ALO job, and to WORKING after it,
    need not wait: if its record is lost, the job is only delivered once more.
    """
    box = Box()
    job_id = box.add(RETRY=10)
    box.add("r", RETRY=0)
    records = box.n.records
    assert records is not None
    bound = records.binding_count
    box.get("q")
    assert box.run("WORKING", job_id) == 10
    assert records.binding_count == bound
    box.get("r")
    assert records.binding_count == bound + 1
    box.close()


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_a_delivery_that_was_answered(policy: str) -> None:
    """J4.3 So under `always`, and no other policy, a kill may undo a delivery that was answered:
    the job comes again at once, not after the rest of its RETRY. An ADDJOB, an ack or an end that
    was answered stays.
    """
    kept = Kept(policy)
    job_id, acked = kept.box.add(RETRY=10), kept.box.add("r", RETRY=10)
    kept.box.run("ACKJOB", acked)
    assert len(kept.box.run("GETJOB", "FROM", "q")) == 1
    kept.restart("crash")
    assert (kept.box.state(job_id), kept.box.state(acked)) == ("active", "gone")
    kept.close()


@pytest.mark.parametrize(
    "words",
    [
        ["ADDJOB", "q", "body", 0],
        ["ACKJOB", "job"],
        ["DELJOB", "job"],
        ["NACK", "job"],
        ["PAUSE", "q", "in"],
    ],
)
def test_a_reply_that_reveals_a_change_waits_for_its_record(words: list[str | int]) -> None:
    """J4.2 `always`: the reply also waits for the sync of its record."""
    box = Box()
    job_id = box.add(RETRY=10)
    assert box.get() == [job_id]
    records = box.n.records
    assert records is not None
    bound = records.binding_count
    reply = box.run(*[job_id if word == "job" else word for word in words])
    assert not isinstance(reply, Err), reply
    assert records.binding_count > bound
    box.close()


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_custody_is_durable_before_the_reply(policy: str) -> None:
    """J4.4 The reply to a delivery of an AMO job waits for the sync of its record under `always`
    and `everysec`.
    """
    kept = Kept(policy)
    job_id = kept.box.add(RETRY=0)
    kept.restart("stop")
    assert kept.box.get() == [job_id]
    assert not kept.committer.must_hold(kept.committer.seq), "the sync is over when turn() returns"
    kept.restart("power")
    assert kept.box.get() == []
    kept.close()
