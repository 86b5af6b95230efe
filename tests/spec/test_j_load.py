"""SPEC J5-J9: load, failures, rewrite, repair, import, planned restart."""

from __future__ import annotations

from struct import pack

import pytest
from journal_by_hand import BOOT_ID, PATH, Kept, segment
from node_by_hand import NULL, START_MS, Box

from told_events import Told
from tuque.server.journal.committer import has_saved_once, save_once
from tuque.server.replies.help import load_share
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


def test_torn_tail(kept: Kept) -> None:
    """J5.1 A torn tail of the last segment is truncated and reported; with `aof-load-truncated no`
    the start fails instead. The tail begins where reading fails, and no whole frame follows it.
    """
    job_id = kept.box.add()
    file = kept.disk.file(segment(kept))
    file.data += b"\xf5TQ\xfa half a frame"
    file.durable = bytes(file.data)
    kept.disk.process_crash()
    kept.close()
    with pytest.raises(JournalError, match="aof-load-truncated"):
        kept.begin(START_MS, may_cut=False)
    kept.disk.process_crash()
    kept.begin(START_MS)
    assert kept.box.state(job_id) == "queued"
    assert any("cut" in note for note in kept.notes)


def damage(kept: Kept) -> None:
    """Flip a bit in the first frame of three."""
    for _ in range(3):
        kept.box.add()
    kept.committer.close(kept.box.n.now_ms)
    kept.disk.file(segment(kept)).data[HEADER_BYTES + 60] ^= 1
    kept.close()


def test_damage_stops_the_start(kept: Kept) -> None:
    """J5.2 Damage anywhere else stops the start with a text that names the file, the offset and the
    command that repairs it. It is never skipped silently.
    """
    damage(kept)
    with pytest.raises(JournalError, match=r"journal-.*offset \d+.*tuque journal repair"):
        kept.begin(START_MS)


@pytest.mark.parametrize("how", ["stop", "crash", "power"])
def test_jobs_come_back(kept: Kept, how: str) -> None:
    """J5.3 A job that was queued is queued again in its order. A job that was delivered or delayed
    waits for its stored due time; a past one is due at once. Counters are restored.
    """
    box = kept.box
    ids = [box.add() for _ in range(3)]
    delayed, short = box.add("d", DELAY=60), box.add("s", RETRY=5)
    taken = box.add("t", RETRY=40)
    box.get("t", "s", count=2)
    box.run("NACK", taken)
    box.get("t")
    kept.turn()
    kept.restart(how, off_ms=10_000)
    box = kept.box
    assert box.show(delayed)["next-requeue-within"] == 50_000
    assert box.show(taken)["next-requeue-within"] == 30_000
    assert (box.show(taken)["nacks"], box.job(taken).delivered_count) == (1, 2)
    assert box.state(short) == "active"
    box.pass_ms(20)
    assert box.state(short) == "queued"
    assert box.get(count=5) == ids
    assert box.n.ledger.loaded == 6


def test_an_end_after_a_restart_tells_of_the_deliveries_before_it(kept: Kept) -> None:
    """E1.2 acked, expired, dead and deleted also have due (added and delay), first and last
    delivery time, the counts, size and delay, so that a reader needs no join.

    J5.3 Counters are restored.
    """
    id = kept.box.add(RETRY=40)
    for _ in range(2):
        kept.box.pass_ms(1_000)
        assert kept.box.get() == [id]
        kept.box.run("NACK", id)
    kept.restart("crash", off_ms=5_000)
    kept.box.run("ACKJOB", id)
    events = kept.box.n.events
    assert events is not None
    events.cut()
    (told,) = map(Told, events.full)
    assert (told.first_ms, told.last_ms) == ([START_MS + 1_000], [START_MS + 2_000])
    assert (told.deliveries, told.nacks) == ([2], [2])


@pytest.mark.parametrize("how", ["stop", "crash", "power"])
def test_at_most_once_comes_back(kept: Kept, how: str) -> None:
    """J5.4 An AMO job that was never delivered is queued, or delayed as before. A delivered one
    stays active until it expires, is acked or evicted.
    """
    gone, queued = kept.box.add(RETRY=0), kept.box.add(RETRY=0)
    delayed = kept.box.add("d", RETRY=0, DELAY=30, TTL=90)
    assert kept.box.get() == [gone]
    for _ in range(3):
        kept.restart(how, off_ms=1_000)
        assert kept.box.state(gone) == "active"
        assert kept.box.qlen() == 1
    assert kept.box.get() == [queued]
    kept.restart(how, off_ms=30_000)
    kept.box.pass_ms(20)
    assert kept.box.get("q", "d", count=5) == [delayed]
    assert kept.box.run("ENQUEUE", gone, queued, delayed) == 0


def test_acked_and_expired_stay_away(kept: Kept) -> None:
    """J5.5 A job that expired meanwhile is not restored (but see W13.5), nor is an acked id,
    whatever follows its ack.
    """
    old, acked, kept_id = kept.box.add(TTL=5), kept.box.add(), kept.box.add()
    job = kept.box.job(acked)
    kept.box.run("ACKJOB", acked)
    records = kept.box.n.records
    assert records is not None
    job.state = 2
    records.add(job)  # a late copy of the acked job
    kept.turn()
    kept.restart(off_ms=6_000)
    assert kept.box.state(old) == "gone"
    assert kept.box.state(acked) == "gone"
    assert kept.box.get(count=5) == [kept_id]


def test_what_expired_is_not_counted_as_loaded(kept: Kept) -> None:
    """J5.5 A job that expired meanwhile is not restored (but see W13.5), nor is an acked id,
    whatever follows its ack."""
    kept.box.add(TTL=5)
    kept.box.add()
    kept.committer.close(kept.box.n.now_ms)
    box = Box()
    box.n.now_ms = START_MS + 10_000
    loader = Loader(kept.disk, PATH, Boot(box.n.now_ms, BOOT_ID, 10_000), False)
    while not loader.step(box.n, 100):
        pass
    assert (loader.job_count, loader.expired_count, len(box.n.jobs)) == (1, 1, 1)
    box.close()


def test_pauses_come_back(kept: Kept) -> None:
    """J5.6 Pauses are restored."""
    kept.box.run("PAUSE", "q", "in")
    kept.box.run("PAUSE", "r", "out")
    kept.box.run("PAUSE", "r", "none")
    kept.restart()
    assert kept.box.run("PAUSE", "q", "state") == "in"
    assert kept.box.run("PAUSE", "r", "state") == "none"


def test_loading_is_told(box: Box) -> None:
    """J5.7 During the load INFO shows the progress and C3.7 applies."""
    box.server.is_loading = True
    assert b"loading:1\r\n" in box.run("INFO", "persistence")
    assert box.run("QLEN", "q").startswith("LOADING")
    box.server.is_loading = False
    assert b"loading:0\r\n" in box.run("INFO", "persistence")


@pytest.mark.parametrize("jump_ms", [86_400_000, -86_400_000])
def test_clock_jump(kept: Kept, jump_ms: int) -> None:
    """J5.8 If the wall clock jumped between two starts, all instants are shifted with it: a jump
    expires nothing and fires nothing early.
    """
    job_id = kept.box.add(TTL=100, DELAY=50)
    kept.restart(off_ms=10_000, jump_ms=jump_ms)
    shown = kept.box.show(job_id)
    assert (shown["ttl"], shown["next-requeue-within"]) == (90, 40_000)


def test_write_errors(kept: Kept) -> None:
    """J6.1 Under `always` nothing is acknowledged that is not durable."""
    job_id = kept.box.add()
    kept.disk.capacity = kept.disk.used() + 10
    kept.box.sessions[0]("ADDJOB", "q", "b", 0)
    seq = kept.turn()
    assert kept.committer.error != ""
    assert kept.committer.must_hold(seq)
    kept.disk.capacity = 1 << 60
    kept.committer.thread.put  # noqa: B018  the queue is tried again with the next frame
    kept.box.add()
    assert kept.committer.error == ""
    kept.restart("power")
    assert len(kept.box.n.jobs) == 3
    assert kept.box.state(job_id) == "queued"


def test_rewrite(kept: Kept) -> None:
    """J6.3 Changes meanwhile go to the segments after it."""
    ids = [kept.box.add() for _ in range(30)]
    assert kept.committer.start_rewrite(kept.box.n, kept.box.n.now_ms)
    for i in range(40):
        if not kept.committer.is_rewriting():
            break
        kept.box.run("ACKJOB", ids[i]) if i % 2 else kept.box.add("new")
    assert not kept.committer.is_rewriting()
    expected = sorted(kept.box.n.jobs)
    kept.restart("power")
    assert sorted(kept.box.n.jobs) == expected


def test_crash_at_every_step_of_a_rewrite() -> None:
    """J6.4 The new manifest takes effect only when the snapshot is complete and synced. After a
    crash at any step either the old or the new journal is complete.
    """
    from tuque.store.disk import PowerCut

    for step in range(1, 60):
        kept = Kept()
        ids = sorted(kept.box.add() for _ in range(7))
        kept.disk.cut_at = kept.disk.ops + step
        try:
            kept.committer.start_rewrite(kept.box.n, kept.box.n.now_ms)
            while kept.committer.is_rewriting():
                kept.turn()
            kept.disk.cut_at = 0
            kept.close()
            assert step > 5
            return
        except PowerCut:
            kept.restart("power")
        assert sorted(kept.box.n.jobs) == ids, step
        kept.close()
    raise AssertionError("the rewrite never came to its end")


def test_check_and_repair(kept: Kept) -> None:
    """J7.1 `tuque journal check` reads everything and changes nothing. `tuque journal repair` moves
    what cannot be read into a separate file and leaves a record of how many records are missing.
    """
    damage(kept)
    before = {name: bytes(file.data) for name, file in kept.disk.names.items()}
    report = check_dir(kept.disk, PATH)
    assert not report.is_ok()
    assert {name: bytes(file.data) for name, file in kept.disk.names.items()} == before
    assert repair_dir(kept.disk, report)
    assert check_dir(kept.disk, PATH).is_ok()
    kept.begin(START_MS)
    assert len(kept.box.n.jobs) == 2
    assert len(kept.disk.names) > len(before)


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


def test_planned_restart_without_a_journal() -> None:
    """J9.1 `SHUTDOWN REWRITE-AOF` writes the whole state, and the next start loads it, once; both
    also when the journal is off.
    """
    box = Box()
    often, once = box.add(), box.add(RETRY=0)
    disk = MemoryDisk()
    assert save_once(disk, PATH, box.n) == ""
    assert has_saved_once(disk, PATH)
    box.close()
    kept = Kept(disk=disk)
    assert kept.box.get(count=5) == [often, once]
    kept.close()


def test_every_frame_is_found_again(kept: Kept) -> None:
    """J9.2 `SHUTDOWN` writes and syncs what is pending and exits with status 0."""
    kept.box.add()
    path = segment(kept)
    assert kept.committer.close(kept.box.n.now_ms) == ""
    kept.disk.power_cut()
    header = decode_header(kept.disk.read(path, 0, HEADER_BYTES), path)
    assert header is not None
    scanner = FrameScanner(kept.disk, path, header.salt, HEADER_BYTES)
    frames = 0
    while scanner.next() == FOUND:
        frames += 1
    assert frames == 3, "the job, the mark of the stop, and that all is synced"
    assert kept.box.sessions[0]("SHOW", "D-12345678-123456789012345678901234-0001") is NULL


def test_how_far_a_load_is() -> None:
    """The percentage counts the bytes that were read for 70 % and the jobs that were entered for
    the rest"""
    kept = Kept("always")
    for i in range(200):
        kept.box.run("ADDJOB", "q", f"b{i}", 0)
    assert kept.committer.close(kept.box.n.now_ms) == ""
    kept.box = Box()
    loader = kept.committer.loader()
    seen = [load_share(kept.committer)]
    stages = [int(loader.stage)]
    while not loader.step(kept.box.n, 20):
        seen.append(load_share(kept.committer))
        stages.append(int(loader.stage))
    assert seen[0] == 0 and seen == sorted(seen)
    assert load_share(None) == 0
    read = [share for share, stage in zip(seen, stages, strict=True) if stage == READING]
    entered = [share for share, stage in zip(seen, stages, strict=True) if stage == RESTORING]
    assert len(set(read)) > 1 and max(read) <= 70
    assert entered[0] == 70 and 70 < entered[-1] < 100
