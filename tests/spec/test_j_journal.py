"""SPEC J1-J4: files, records, frames, policies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import forked
from raw_resp import NULL, Err, encode
from sim.engine.disk import PATH
from tuque.core.records.jobs import (
    ACK,
    ADD,
    PAUSE,
    REMOVE,
)
from tuque.server.journal.committer import Committer
from tuque.store.frames import (
    HEADER_BYTES,
    MAGIC,
    JournalError,
    decode_header,
    read_manifest,
)
from world import World
from world_machines import name_of

Make = Callable[..., World]


@pytest.fixture
def world(make_world: Make) -> World:
    """One node, whose journal is synced before each reply that it binds."""
    return make_world(journal="always")


def test_files(world: World) -> None:
    """J1.1 A journal is a directory: segments, at most one complete snapshot, a lock, and a
    manifest that alone decides which files count.
    """
    world.add()
    manifest = read_manifest(world.disk().files, PATH)
    assert manifest is not None
    assert manifest.snapshot == ""
    names = set(world.disk().files.listdir(PATH))
    assert {"manifest", *manifest.segments} <= names
    world.rewrite()
    manifest = read_manifest(world.disk().files, PATH)
    assert manifest is not None
    assert manifest.snapshot.endswith(".snap")
    assert len([name for name in world.disk().files.listdir(PATH) if name.endswith(".snap")]) == 1
    world.restart(how="power")
    assert len(world.n.jobs) == 1


def test_headers(world: World) -> None:
    """J1.2 A file begins with a header: magic, format version, number, first record number, a
    random salt, node id, offset between the wall clock and the machine's steady clock.
    """
    data = world.disk().files.read(world.disk().segment(), 0, HEADER_BYTES)
    assert data.startswith(MAGIC)
    header = decode_header(data, "x")
    assert header is not None
    assert header.node_id == name_of(0)
    assert header.boot.wall_ms == world.start_ms
    assert header.boot.boot_id.startswith(world.machines[0].clock.boot_record().boot_id)
    damaged = bytearray(data)
    damaged[20] ^= 1
    assert decode_header(bytes(damaged), "x") is None


def test_lock(world: World) -> None:
    """J1.3 A second process on the same directory is refused, with the process id of the first."""
    second = Committer(world.disk().files, PATH, name_of(0), world.now_ms, threaded=False)
    with pytest.raises(JournalError, match="in use by process 1;"):
        second.lock()


def test_kinds_of_records(world: World) -> None:
    """J2.1 Records are: add (the whole job), state (state, due time, counters, flags), ack (id
    and expiry), remove (id and cause), pause (queue, bits, instant of the command); those of
    leases (Y9.1), staged writes (Z6.1), work (W13.1). Nothing else is executed on load.
    (cluster) peer (slot, node id and incarnation), holders (the set), acked (id, expiry and the
    set that must learn of it), tomb (id and expiry).
    """
    world.node().records()
    one, two = world.add(), world.add()
    world.get()
    world.run("ACKJOB", one)
    world.run("DELJOB", two)
    world.run("PAUSE", "q", "in")
    kinds = [record.kind for record in world.node().records()]
    assert kinds[:2] == [ADD, ADD]
    assert kinds[3:] == [ACK, REMOVE, PAUSE]


def test_twice_is_once(world: World) -> None:
    """J2.2 A record is absolute: it has instants, not durations. Applying it twice has the same
    effect as applying it once.
    """
    job_id = world.add(DELAY=50)
    taken = world.add("r", RETRY=30)
    world.get("r")
    n = world.n
    before = [(world.job(i).qtime_ms, world.job(i).state) for i in (job_id, taken)]
    records = n.records
    assert records is not None
    for job in n.jobs.values():
        records.add(job)
        records.state(job)
    world.settle()
    world.restart(how="stop", off_ms=10_000)
    after = [(world.job(i).qtime_ms, world.job(i).state) for i in (job_id, taken)]
    assert after == before


def test_a_frame_is_whole_or_nothing(world: World) -> None:
    """J3.1 A frame counts as a whole or not at all."""
    world.add()
    disk, path = world.disk(), world.disk().segment()
    before = disk.files.size(path)
    world.run.give(encode("ADDJOB", "q", "two", 0) + encode("ADDJOB", "q", "three", 0))
    world.kill(0)
    disk.snapshot()
    whole = disk.files.size(path)
    for size in range(before, whole + 1):
        disk.restore()
        disk.files.truncate(path, size)
        world.start(0)
        assert len(world.n.jobs) == (3 if size == whole else 1), size
        world.kill(0)


def test_off_writes_nothing(make_world: Make) -> None:
    """J4.1 `appendonly no`: nothing is written."""
    world = make_world(journal="off")
    assert world.server.committer is None
    world.add()
    world.pass_ms(2_000)
    assert not world.disk().files.names


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
        ("everysec", "kill", True),
        ("no", "kill", True),
        ("no", "stop", True),
    ],
)
def test_policies(make_world: Make, policy: str, how: str, survives: bool) -> None:
    """J4.2 `always`: the reply also waits for the sync. `everysec`: a thread syncs once a
    second. `no`: never synced.
    """
    world = make_world(journal=policy)
    job_id = world.add()
    world.restart(how=how)
    assert (world.state(job_id) == "queued") == survives
    is_held, _ = world.run.held("ADDJOB", "q", "body", 0)
    assert is_held == (policy == "always")
    world.pass_ms(1_100)
    world.restart(how="power")
    assert world.qlen() == survives + (policy != "no")


def test_first_delivery_binds_nobody(world: World) -> None:
    """J4.3 Under `always` the reply to a first delivery of an ALO job, and to WORKING after it,
    need not wait.
    """
    job_id = world.add(RETRY=10)
    world.add("r", RETRY=0)
    is_held, reply = world.run.held("GETJOB", "NOHANG", "FROM", "q")
    assert (is_held, reply[0][1]) == (False, job_id)
    assert world.run.held("WORKING", job_id) == (False, 10)
    is_held, reply = world.run.held("GETJOB", "NOHANG", "FROM", "r")
    assert is_held and reply is not NULL


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_a_delivery_that_was_answered(make_world: Make, policy: str) -> None:
    """J4.3 So a kill may undo such a delivery: the job comes again at once, not after the rest
    of its RETRY. An ADDJOB, an ack or an end that was answered stays.
    """
    world = make_world(journal=policy)
    job_id, acked = world.add(RETRY=10), world.add("r", RETRY=10)
    world.run("ACKJOB", acked)
    assert len(world.run("GETJOB", "FROM", "q")) == 1
    world.restart()
    assert (world.state(job_id), world.state(acked)) == ("active", "gone")


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
def test_a_reply_that_reveals_a_change_waits_for_its_record(
    world: World, words: list[str | bytes | int]
) -> None:
    """J4.2 `always`: the reply also waits for the sync."""
    job_id = world.add(RETRY=10)
    assert world.get() == [job_id]
    is_held, reply = world.run.held(*[job_id if word == "job" else word for word in words])
    assert not isinstance(reply, Err), reply
    assert is_held


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_custody_is_durable_before_the_reply(make_world: Make, policy: str) -> None:
    """J4.4 The reply to a delivery of an AMO job waits for the sync of its record under `always`
    and `everysec`.
    """
    world = make_world(journal=policy)
    job_id = world.add(RETRY=0)
    world.restart(how="stop")
    is_held, reply = world.run.held("GETJOB", "NOHANG", "FROM", "q")
    assert (is_held, reply[0][1]) == (True, job_id)
    world.restart(how="power")
    assert world.get() == []
