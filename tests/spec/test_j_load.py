"""SPEC J5-J9: load, failures, rewrite, repair, import, planned restart."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from sim.engine.disk import PATH
from sim.engine.world import START_MS
from told_events import Told
from tuque.core.node.node import Node
from tuque.server.journal.committer import Committer, has_saved_once, save_once
from tuque.server.replies.errors import load_share
from tuque.store.aof import AofReader, Import, import_step
from tuque.store.disk import MemoryDisk
from tuque.store.frames import (
    FOUND,
    HEADER_BYTES,
    Boot,
    FrameScanner,
    JournalError,
    decode_header,
)
from tuque.store.repair import check_dir, repair_dir
from tuque.store.replay import READING, RESTORING, Loader
from world import World
from world_machines import name_of

Make = Callable[..., World]


@pytest.fixture
def world(make_world: Make) -> World:
    """One node that keeps events, and whose journal is synced before each reply that it binds."""
    return make_world(journal="always", events=True)


@pytest.mark.parametrize("may_cut", [True, False])
def test_torn_tail(make_world: Make, *, may_cut: bool) -> None:
    """J5.1 A torn tail of the last segment is truncated and reported; with `aof-load-truncated no`
    the start fails instead. The tail begins where reading fails, and no whole frame follows it.
    """
    world = make_world(journal="always", aof_load_truncated=may_cut)
    job_id = world.add()
    file = world.disk().files.file(world.disk().segment())
    world.cut_power(0)
    file.data += b"\xf5TQ\xfa half a frame"
    file.durable = bytes(file.data)
    if may_cut:
        world.start(0)
        assert world.state(job_id) == "queued"
        assert any("cut" in line for line in world.node().log)
    else:
        with pytest.raises(JournalError, match="aof-load-truncated"):
            world.start(0)


def damage(world: World) -> None:
    """Flip a bit in the frame of the first of three jobs; the node is down."""
    file = world.disk().files.file(world.disk().segment())
    at = len(file.data)
    for _ in range(3):
        world.add()
    world.stop(0)
    file.data[at + 60] ^= 1


def test_damage_stops_the_start(world: World) -> None:
    """J5.2 Damage anywhere else stops the start with a text that names the file, the offset and the
    command that repairs it. It is never skipped silently.
    """
    damage(world)
    with pytest.raises(JournalError, match=r"journal-.*offset \d+.*tuque journal repair"):
        world.start(0)


@pytest.mark.parametrize("how", ["stop", "kill", "power"])
def test_jobs_come_back(world: World, how: str) -> None:
    """J5.3 A queued job is queued again in its order. A delivered or delayed one waits for its
    stored due time; a past one is due at once. Counters are restored.
    """
    ids = [world.add() for _ in range(3)]
    delayed, short = world.add("d", DELAY=60), world.add("s", RETRY=5)
    taken = world.add("t", RETRY=40)
    world.get("t", "s", count=2)
    world.run("NACK", taken)
    world.get("t")
    world.settle()
    world.restart(how=how, off_ms=10_000)
    assert world.show(delayed)["next-requeue-within"] == 50_000
    assert world.show(taken)["next-requeue-within"] == 30_000
    assert (world.show(taken)["nacks"], world.job(taken).delivered_count) == (1, 2)
    assert world.state(short) == "queued"
    assert world.get(count=5) == ids
    assert world.n.ledger.loaded == 6


def test_an_end_after_a_restart_tells_of_the_deliveries_before_it(world: World) -> None:
    """E1.2 acked, expired, dead, deleted and cancelled also have due (added and delay), first
    and last delivery time, the counts, size and delay: no join is needed.

    J5.3 Counters are restored.
    """
    id = world.add(RETRY=40)
    for _ in range(2):
        world.pass_ms(1_000)
        assert world.get() == [id]
        world.run("NACK", id)
    world.restart(how="kill", off_ms=5_000)
    world.run("ACKJOB", id)
    events = world.n.events
    assert events is not None
    events.cut()
    (told,) = map(Told, events.full)
    assert (told.first_ms, told.last_ms) == ([world.start_ms + 1_000], [world.start_ms + 2_000])
    assert (told.deliveries, told.nacks) == ([2], [2])


@pytest.mark.parametrize("how", ["stop", "kill", "power"])
def test_at_most_once_comes_back(world: World, how: str) -> None:
    """J5.4 An AMO job that was never delivered is queued, or delayed as before. A delivered one
    stays active until it expires, is acked or evicted.
    """
    gone, queued = world.add(RETRY=0), world.add(RETRY=0)
    delayed = world.add("d", RETRY=0, DELAY=30, TTL=90)
    assert world.get() == [gone]
    for _ in range(3):
        world.restart(how=how, off_ms=1_000)
        assert world.state(gone) == "active"
        assert world.qlen() == 1
    assert world.get() == [queued]
    world.restart(how=how, off_ms=30_000)
    world.pass_ms(20)
    assert world.get("q", "d", count=5) == [delayed]
    assert world.run("ENQUEUE", gone, queued, delayed) == 0


def test_acked_and_expired_stay_away(world: World) -> None:
    """J5.5 A job that expired meanwhile is not restored (but see W13.5), nor is an acked id,
    whatever follows its ack.
    """
    old, acked, kept_id = world.add(TTL=5), world.add(), world.add()
    job = world.job(acked)
    world.run("ACKJOB", acked)
    records = world.n.records
    assert records is not None
    job.state = 2
    records.add(job)  # a late copy of the acked job
    world.settle()
    world.restart(how="stop", off_ms=6_000)
    assert world.state(old) == "gone"
    assert world.state(acked) == "gone"
    assert world.get(count=5) == [kept_id]


def test_what_expired_is_not_counted_as_loaded(world: World) -> None:
    """J5.5 A job that expired meanwhile is not restored (but see W13.5), nor is an acked id,
    whatever follows its ack."""
    world.add(TTL=5)
    world.add()
    world.stop(0)
    n = Node(name_of(0), b"seed", world.now_ms + 10_000)
    boot = Boot(n.now_ms, world.machines[0].clock.boot_record().boot_id, 10_000)
    loader = Loader(world.disk().files, PATH, boot, False)
    while not loader.step(n, 100):
        pass
    assert (loader.job_count, loader.expired_count, len(n.jobs)) == (1, 1, 1)


def test_pauses_come_back(world: World) -> None:
    """J5.6 Pauses are restored."""
    world.run("PAUSE", "q", "in")
    world.run("PAUSE", "r", "out")
    world.run("PAUSE", "r", "none")
    world.restart(how="stop")
    assert world.run("PAUSE", "q", "state") == b"in"
    assert world.run("PAUSE", "r", "state") == b"none"


def test_loading_is_told(world: World) -> None:
    """J5.7 During the load INFO shows the progress and C3.7 applies."""
    world.server.is_loading = True
    assert b"loading:1\r\n" in world.run("INFO", "persistence")
    assert world.run("QLEN", "q").startswith("LOADING")
    world.server.is_loading = False
    assert b"loading:0\r\n" in world.run("INFO", "persistence")


@pytest.mark.parametrize("jump_ms", [86_400_000, -86_400_000])
def test_clock_jump(world: World, jump_ms: int) -> None:
    """J5.8 If the wall clock jumped between two starts, all instants are shifted with it: a jump
    expires nothing and fires nothing early.
    """
    job_id = world.add(TTL=100, DELAY=50)
    world.restart(how="stop", off_ms=10_000, jump_ms=jump_ms)
    shown = world.show(job_id)
    assert (shown["ttl"], shown["next-requeue-within"]) == (90, 40_000)


def test_write_errors(world: World) -> None:
    """J6.1 Under `always` nothing is acknowledged that is not durable."""
    job_id, other = world.add(), world.wire()
    world.disk().full(10)
    assert other("ADDJOB", "q", "b", 0) is None
    assert world.node().committer.error
    world.pass_ms(1_500)
    assert other.answer() == b"<closed>"
    world.disk().well()
    world.pass_ms(1_500)
    assert not world.node().committer.error
    world.add()
    world.restart(how="power")
    assert len(world.n.jobs) == 3
    assert world.state(job_id) == "queued"


def test_rewrite(world: World) -> None:
    """J6.3 Changes meanwhile go to the segments after it."""
    ids = [world.add() for _ in range(30)]
    committer = world.node().committer
    committer.slice_jobs = 5
    world.begin_rewrite()
    for i in range(12):
        words = ("ACKJOB", ids[i]) if i % 2 else ("ADDJOB", "new", "body", 0)
        world.run.send_in_turn(*words)
        assert committer.is_rewriting()
    world.until(lambda: not committer.is_rewriting())
    assert len(world.run.take_all()) == 12
    expected = sorted(world.n.jobs)
    world.restart(how="power")
    assert sorted(world.n.jobs) == expected


def is_rewritten(world: World) -> bool:
    """Whether a rewrite comes to its end before the power fails."""
    committer = world.node().committer
    world.begin_rewrite()
    world.until(lambda: not (world.node().is_up and committer.is_rewriting()))
    return world.node().is_up


def test_crash_at_every_step_of_a_rewrite(make_world: Make) -> None:
    """J6.4 The new manifest takes effect only when the snapshot is complete and synced. After a
    crash at any step either the old or the new journal is complete.
    """
    for step in range(1, 60):
        world = make_world(journal="always")
        ids = sorted(world.add() for _ in range(7))
        world.disk().cut_power_at(step)
        if is_rewritten(world):
            world.disk().files.cut_at = 0
            assert step > 5
            return
        world.start(0)
        assert sorted(world.n.jobs) == ids, step
    raise AssertionError("the rewrite never came to its end")


def test_check_and_repair(world: World) -> None:
    """J7.1 `tuque journal check` reads everything and changes nothing. `tuque journal repair` moves
    what cannot be read into a separate file and leaves a record of how many records are missing.
    """
    damage(world)
    before = {name: bytes(file.data) for name, file in world.disk().files.names.items()}
    report = check_dir(world.disk().files, PATH)
    assert not report.is_ok()
    assert {name: bytes(file.data) for name, file in world.disk().files.names.items()} == before
    assert repair_dir(world.disk().files, report)
    assert check_dir(world.disk().files, PATH).is_ok()
    world.start(0)
    assert len(world.n.jobs) == 2
    assert len(world.disk().files.names) > len(before)


def loadjob(job_id: bytes, state: int, retry: int) -> bytes:
    """One LOADJOB of Disque's log."""
    head = pack("<40sBBHIQIIHH", job_id, state, 0, 1, START_MS // 1000 + 500, 7, 0, retry, 0, 0)
    rest = head + pack("<I", 1) + b"q" + pack("<I", 4) + b"body" + pack("<I", 0)
    blob = pack("<I", len(rest)) + rest
    return b"*2\r\n$7\r\nLOADJOB\r\n$%d\r\n%s\r\n" % (len(blob), blob)


def test_import() -> None:
    """J8.1 `tuque journal import` reads an append-only file of Disque 1.0: LOADJOB and DELJOB. Jobs
    stored as queued are queued, AMO jobs too.
    """
    from tuque.core.model.job import QUEUED

    ids = [b"D-12345678-12345678901234567890123%d-0009" % i for i in range(3)]
    log = loadjob(ids[0], 2, 10) + loadjob(ids[1], 2, 0) + loadjob(ids[2], 2, 10)
    log += b"*2\r\n$6\r\nDELJOB\r\n$40\r\n" + ids[2] + b"\r\n"
    disk = MemoryDisk()
    disk.write(disk.open_append("/old.aof"), log)
    found = Import()
    reader = AofReader(disk, "/old.aof")
    while not import_step(reader, found, START_MS, 100):
        pass
    assert {job_id: job.state for job_id, job in found.jobs.items()} == {
        ids[0]: QUEUED,
        ids[1]: QUEUED,
    }


def test_planned_restart_without_a_journal(make_world: Make) -> None:
    """J9.1 `SHUTDOWN REWRITE-AOF` writes the whole state, and the next start loads it, once; both
    also when the journal is off.
    """
    world = make_world(journal="off")
    often, once = world.add(), world.add(RETRY=0)
    files = world.disk().files
    assert save_once(files, PATH, world.n) == ""
    assert has_saved_once(files, PATH)
    again = make_world(start=False)
    again.machines[0].disk = files
    again.start(0)
    assert again.get(count=5) == [often, once]
    assert not has_saved_once(files, PATH)


def frame_count(files: MemoryDisk, path: str) -> int:
    """How many frames the segment has."""
    header = decode_header(files.read(path, 0, HEADER_BYTES), path)
    assert header is not None
    scanner = FrameScanner(files, path, header.salt, HEADER_BYTES)
    count = 0
    while scanner.next() == FOUND:
        count += 1
    return count


def test_every_frame_is_found_again(make_world: Make) -> None:
    """J9.2 `SHUTDOWN` writes and syncs what is pending and exits with status 0."""
    world = make_world()
    files, path = world.disk().files, world.disk().segment()
    before = frame_count(files, path)
    world.add()
    world.run.send("SHUTDOWN")
    assert not world.node().is_up
    files.power_cut()
    found = frame_count(files, path) - before
    assert found == 3, "the job, the mark of the stop, and that all is synced"


def test_how_far_a_load_is(world: World) -> None:
    """The percentage counts the bytes that were read for 70 % and the jobs that were entered for
    the rest"""
    for i in range(200):
        world.add(body=f"b{i}")
    world.stop(0)
    n = Node(name_of(0), b"seed", world.now_ms)
    committer = Committer(world.disk().files, PATH, name_of(0), n.now_ms, threaded=False)
    loader = committer.loader()
    seen = [load_share(committer)]
    stages = [int(loader.stage)]
    while not loader.step(n, 20):
        seen.append(load_share(committer))
        stages.append(int(loader.stage))
    assert seen[0] == 0 and seen == sorted(seen)
    assert load_share(None) == 0
    read = [share for share, stage in zip(seen, stages, strict=True) if stage == READING]
    entered = [share for share, stage in zip(seen, stages, strict=True) if stage == RESTORING]
    assert len(set(read)) > 1 and max(read) <= 70
    assert entered[0] == 70 and 70 < entered[-1] < 100
