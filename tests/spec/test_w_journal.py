"""SPEC W13: lives and outcomes in the journal."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from journal_by_hand import PATH, Kept, kept, segment
from node_by_hand import NULL, Box, Err

from tuque.core.model.work import (
    NO_TERMS,
    TERMS_BYTES,
    Life,
    Outcome,
)
from tuque.core.queues.procedures import check
from tuque.core.records.jobs import KIND_NAMES, Records
from tuque.core.records.read import Record, decode
from tuque.store.frames import (
    FOUND,
    HEADER_BYTES,
    FrameScanner,
    decode_header,
)
from tuque.store.snapshot import Snapshot

__all__ = ["kept"]

CAUSES = ["stop", "process", "power", "rewrite"]
TERMS = ("ATTEMPTS", 2, "BACKOFF", 5, 5, 0, "KEEP", 60, "RETRY", 10)


def again(kept: Kept, how: str, **moves: int) -> None:
    """A restart; a rewrite before it leaves only the snapshot."""
    if how == "rewrite":
        assert kept.committer.start_rewrite(kept.box.n, kept.box.n.now_ms)
        while kept.committer.is_rewriting():
            kept.turn()
    kept.restart("stop" if how == "rewrite" else how, **moves)
    check(kept.box.n)


def fields(reply: list[Any]) -> dict[str, Any]:
    """Names and values as a dict."""
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


def result(box: Box, id: bytes) -> dict[str, Any]:
    """RESULT as a dict."""
    reply = box.run("RESULT", id)
    assert isinstance(reply, list), reply
    return fields(reply)


def state(box: Box, id: bytes) -> object:
    return result(box, id)["state"]


def add(box: Box, *options: str | int, queue: str = "q") -> bytes:
    reply = box.run("ADDJOB", queue, "body", 0, *TERMS, *options)
    return str(reply).encode()


def start(box: Box, id: bytes, worker: str = "w1") -> bytes:
    """GETJOB and START; returns the run."""
    box.run("GETJOB", "NOHANG", "FROM", "q")
    (row,) = box.run("START", "WORKER", worker, id)
    assert isinstance(row, list), row
    run: bytes = row[0]
    return run


def kinds_of(payload: bytes) -> list[str]:
    """Names of the records."""
    kinds, at, record = [], 0, Record()
    while at < len(payload):
        at = decode(payload, at, record)
        kinds.append(KIND_NAMES[record.kind])
    return kinds


def test_records(kept: Kept) -> None:
    """W13.1 The records are life (options, headers, runs, failures and flags of one job) and
    outcome (how a job ended, while KEEP lasts). They are absolute (J2.2) and binding (J4.2).
    WORKING and PROGRESS write no life: progress since the last one is lost.
    """
    box = kept.box
    records = box.n.records = Records()
    box.run = box.sessions[0]

    def told() -> list[str]:
        return kinds_of(records.take())

    id = add(box)
    assert told() == ["add", "life"]
    box.run("GETJOB", "FROM", "q")
    assert told() == ["first"]
    bound = records.binding_count
    run = start(box, id)
    assert told() == ["life"]
    assert records.binding_count == bound + 1
    box.run("WORKING", id, run)
    box.run("PROGRESS", id, run, "half")
    assert "life" not in told()
    box.run("FAIL", id, run, "REASON", "why")
    assert told()[-1] == "life"
    box.run("CANCEL", id)
    assert told() == ["outcome", "ack"]
    plain = box.add(RETRY=10)
    box.get()
    box.run("ACKJOB", plain)
    assert told() == ["add", "first", "ack"]


@pytest.mark.parametrize("how", CAUSES)
def test_a_restart_in_each_phase(kept: Kept, how: str) -> None:
    """What a life has is there again, in every phase of its job (W13.1)."""
    box = kept.box
    waiting = add(box, "HEADERS", 1, "tuque-task", "send", queue="other")
    running, resting, dead, done, cancelled = (add(box) for _ in range(5))
    plain = box.add("plain")
    run = start(box, running)
    box.run("PROGRESS", running, run, "half")
    box.run("FAIL", resting, start(box, resting), "REASON", "why", "DETAIL", "trace")
    box.run("FAIL", dead, start(box, dead), "REASON", "last", "FINAL")
    box.run("DONE", done, start(box, done), "RESULT", "42")
    box.run("CANCEL", "REASON", "user", cancelled)
    before = {id: result(box, id) for id in (resting, dead, done, cancelled)}
    shown = box.run("DEAD", "SHOW", dead)
    again(kept, how)
    box = kept.box
    assert {id: result(box, id) for id in before} == before
    assert (before[done]["result"], before[cancelled]["state"]) == (b"42", b"cancelled")
    assert (before[resting]["detail"], before[dead]["state"]) == (b"trace", b"dead")
    assert box.run("DEAD", "SHOW", dead) == shown
    assert state(box, running) == b"running" and result(box, running)["worker"] == b"w1"
    assert box.run("WORKING", running, run) == 10
    box.pass_ms(5_100)
    assert state(box, resting) == b"waiting"
    (job,) = box.run("GETJOB", "NOHANG", "WITHMETA", "FROM", "q")
    meta = fields(job[3:])
    assert (job[1], meta["attempt"], meta["of"]) == (resting, 2, 2)
    assert box.run("DONE", running, run) == 1
    (job,) = box.run("GETJOB", "NOHANG", "WITHMETA", "FROM", "other")
    assert (job[1], fields(job[3:])["headers"]) == (waiting, [b"tuque-task", b"send"])
    assert box.n.life.by_id.get(plain) is None


@pytest.mark.parametrize("was_out", [False, True])
@pytest.mark.parametrize("how", CAUSES)
def test_a_back_off_that_is_over_does_not_come_back(kept: Kept, how: str, was_out: bool) -> None:
    """W2.3 In its first delay or in a back-off, at any holder that has heard of it:
    `-NOTDELIVERED`.

    After a restart that is over, too: the job was queued, or even delivered since.
    """
    box = kept.box
    id = add(box)
    box.run("FAIL", id, start(box, id))
    (refused,) = box.run("START", id)
    assert str(refused).startswith("NOTDELIVERED")
    box.pass_ms(5_100)
    if was_out:
        assert box.get() == [id]
    kept.turn()
    again(kept, how)
    box = kept.box
    assert state(box, id) == (b"delivered" if was_out else b"waiting")
    if not was_out:
        assert box.get() == [id]
    assert start(box, id).startswith(b"2.2.")


@pytest.mark.parametrize("how", CAUSES)
def test_a_flagged_run_stays_flagged(kept: Kept, how: str) -> None:
    """Also after a restart WORKING says so (W8.2)."""
    id = add(kept.box)
    run = start(kept.box, id)
    assert kept.box.run("CANCEL", "REASON", "user", id) == [b"flagged"]
    again(kept, how)
    assert kept.box.run("WORKING", id, run) == "CANCELLED Job was cancelled: user"
    assert kept.box.run("RELEASE", id, run) == 1
    assert state(kept.box, id) == b"cancelled"


@pytest.mark.parametrize("how", CAUSES)
def test_a_job_that_changed_is_loaded_as_it_is(kept: Kept, how: str) -> None:
    """W13.2 An add record of a known job replaces its queue, body, delay and expiry. The record
    that ends a job ends its life; its outcome stays.
    """
    box = kept.box
    changed, dead, replayed, ended = (add(box) for _ in range(4))
    box.run("UPDATEJOB", changed, "BODY", "new", "TTL", 500, "DELAY", 30, "ATTEMPTS", 7)
    for id in (dead, replayed):
        box.run("FAIL", id, start(box, id), "FINAL")
    box.run("DEAD", "REPLAY", "q.dead", "QUEUE", "else", "IDS", replayed)
    box.run("ACKJOB", ended)
    again(kept, how)
    n = kept.box.n
    job = n.jobs[changed]
    assert (job.body, job.delay_s, job.expire_ms - n.now_ms) == (b"new", 30, 500_000)
    assert job.qtime_ms == n.now_ms + 30_000
    assert n.life.by_id[changed].terms.attempts == 7
    assert (n.jobs[dead].queue, n.jobs[replayed].queue) == (b"q.dead", b"else")
    assert n.jobs[replayed].expire_ms == n.now_ms + 86_400_000
    assert n.life.by_id[replayed].replays == 1 and not n.life.by_id[replayed].is_dead
    assert set(n.life.by_id) == {changed, dead, replayed}
    assert state(kept.box, ended) == b"done"


@pytest.mark.parametrize("how", CAUSES)
def test_silence_while_the_node_could_not_hear(kept: Kept, how: str) -> None:
    """W13.3 After a load each live run is silent RETRY from then; its TIMELIMIT goes on. No
    connection is known of it: W8.2 pushes nothing until it speaks again.
    """
    ids = [add(kept.box), add(kept.box, "TIMELIMIT", 25), add(kept.box, "TTL", 15)]
    runs = {id: start(kept.box, id) for id in ids}
    again(kept, how, off_ms=20_000)
    box = kept.box
    assert {box.n.life.by_id[id].client for id in ids} == {-1}
    box.pass_ms(4_900)
    assert {state(box, id) for id in ids} == {b"running"}
    box.pass_ms(200)
    plain, limited, short = ids
    assert [state(box, id) for id in ids] == [b"running", b"back-off", b"running"]
    assert result(box, limited)["cause"] == b"timeout"
    assert box.run("WORKING", plain, runs[plain]) == 10
    assert box.run("DONE", short, runs[short]) == 1
    box.pass_ms(10_100)
    assert (state(box, plain), result(box, plain)["cause"]) == (b"back-off", b"crashed")
    assert (box.n.life.failures, box.n.life.by_id[plain].failed) == (2, 1)


def test_a_run_past_its_ttl_keeps_its_own_expiry(kept: Kept) -> None:
    """Also if a snapshot has the expiry that the run put off (W6.3)."""
    id = add(kept.box, "TTL", 15)
    own_ms = kept.box.job(id).expire_ms
    run = start(kept.box, id)
    kept.box.pass_ms(8_000)
    kept.box.run("WORKING", id, run)
    assert kept.box.job(id).expire_ms > own_ms
    again(kept, "rewrite")
    kept.box.run("RELEASE", id, run)
    again(kept, "process")
    assert kept.box.job(id).expire_ms == own_ms


def test_a_start_that_was_lost_is_not_counted(kept: Kept) -> None:
    """W13.4 A START whose record was lost is not counted. Its token does not come again: the hash
    takes in bytes that are random at each start of the node.
    """
    kept.policy = "everysec"
    again(kept, "stop")
    id = add(kept.box)
    kept.committer.journal.sync()
    lost = start(kept.box, id)
    kept.restart("power")
    life = kept.box.n.life.by_id.get(id)
    if life is not None and life.run != 0:
        pytest.fail("the START is on the disk")
    kept.box.n.ids.seed = b"another start"
    run = start(kept.box, id)
    assert (run[:4], run != lost) == (lost[:4], True)
    assert isinstance(kept.box.run("FAIL", id, lost), Err)
    assert kept.box.n.life.by_id[id].failed == 0
    assert kept.box.run("FAIL", id, run)[0] == b"retry"


@pytest.mark.parametrize("how", CAUSES)
def test_what_is_over_meanwhile(kept: Kept, how: str) -> None:
    """W13.5 A job with ATTEMPTS that expired meanwhile is restored, and is then dead (W6.2). Dead
    letters keep their order and their cursors. An outcome whose time is over is not restored.
    """
    box = kept.box
    late, resting = add(box, "TTL", 15, queue="other"), add(box, "TTL", 15)
    last = add(box, "ATTEMPTS", 1, "TTL", 15, queue="one")
    plain = box.add("plain", TTL=15)
    box.run("FAIL", resting, start(box, resting), "DELAY", 14)
    letters = [add(box) for _ in range(4)]
    for id in reversed(letters):
        box.run("FAIL", id, start(box, id), "FINAL")
    brief, long = add(box, "KEEP", 5), add(box)
    box.run("DONE", brief, "-", long, "-")
    cursor, rows = box.run("DEAD", "LIST", "q.dead", 0, "COUNT", 2)
    assert [row[0] for row in rows] == [letters[3], letters[2]]
    again(kept, how, off_ms=20_000)
    box = kept.box
    assert set(box.n.life.kept) == {long}
    assert box.run("GETJOB", "NOHANG", "FROM", "other") is NULL, "its time was over"
    box.pass_ms(100)
    assert (state(box, late), result(box, late)["cause"]) == (b"dead", b"expired")
    assert state(box, resting) == state(box, last) == b"dead"
    assert box.state(plain) == "gone"
    assert state(box, long) == b"done"
    assert isinstance(box.run("RESULT", brief), Err)
    _, rows = box.run("DEAD", "LIST", "q.dead", cursor)
    assert [row[0] for row in rows] == [letters[1], letters[0], resting]
    again(kept, how)
    _, rows = kept.box.run("DEAD", "LIST", "q.dead", cursor)
    assert [row[0] for row in rows] == [letters[1], letters[0], resting]
    assert kept.box.n.life.letter_count() == 7


@pytest.mark.parametrize("how", CAUSES)
def test_a_later_letter_stands_behind_each_cursor(kept: Kept, how: str) -> None:
    """Also if the letter at the cursor was replayed meanwhile (W13.5)."""
    id = add(kept.box)
    kept.box.run("FAIL", id, start(kept.box, id), "FINAL")
    was = kept.box.n.life.by_id[id].serial
    kept.box.run("DEAD", "REPLAY", "q.dead", "ALL")
    again(kept, how)
    kept.box.run("FAIL", id, start(kept.box, id), "FINAL")
    assert kept.box.n.life.by_id[id].serial > was


def test_a_cancel_that_no_other_node_must_hear_of(box: Box) -> None:
    """W13.8 With KEEP 0 the outcome of a cancelled job that has other holders, or of one that
    DEADLETTER ended, is recorded as well.
    """
    ids = [box.add(), box.add()]
    waiter = box.session()
    assert waiter("WAITJOB", 0, *ids, "COUNT", 1) is None
    assert box.n.records is not None
    box.n.records.take()
    assert box.run("CANCEL", ids[0]) == [b"ended"]
    assert waiter.take() == [[ids[0], b"cancelled"]]
    assert kinds_of(box.n.records.take()) == ["ack"]


def test_snapshot(kept: Kept) -> None:
    """W13.6 A snapshot has each life after its job, and the outcomes of its start that are still
    kept.
    """
    box = kept.box
    first, second, third = (add(box) for _ in range(3))
    box.add("plain")
    ended = [add(box) for _ in range(3)]
    box.run("CANCEL", *ended)
    snapshot = Snapshot(box.n)
    box.n.life.forget(ended[1])
    box.run("CANCEL", third)
    slices = []
    while not snapshot.is_done():
        slices.append(kinds_of(snapshot.slice(box.n, 1)))
    assert slices[:2] == [["add", "life"]] * 2
    assert [kind for part in slices for kind in part if kind not in ("add", "life")] == [
        "outcome",
        "outcome",
    ]
    assert all(part.count("outcome") <= 1 for part in slices), "in slices"
    assert {first, second} == set(box.n.life.by_id)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_jumps(kept: Kept, jump_ms: int) -> None:
    """Lives move along: nothing expires early, a failure keeps its age (J5.8)."""
    box = kept.box
    running, dead, done = (add(box, "TIMELIMIT", 30) for _ in range(3))
    start(box, running)
    box.run("FAIL", dead, start(box, dead), "FINAL")
    box.run("DONE", done, "-")
    was_ms = box.n.now_ms
    again(kept, "process", jump_ms=jump_ms)
    box = kept.box
    by_ms = box.n.now_ms - was_ms
    assert by_ms == jump_ms
    lives = box.n.life
    assert lives.by_id[running].since_ms == was_ms + by_ms
    letter = lives.by_id[dead]
    assert letter.first is not None and letter.last is not None
    assert {letter.dead_ms, letter.first.at_ms, letter.last.at_ms} == {was_ms + by_ms}
    assert lives.by_id[running].dead_ms == lives.by_id[running].expire_ms == 0
    assert (lives.kept[done].ended_ms, lives.kept[done].until_ms) == (
        was_ms + by_ms,
        was_ms + by_ms + 60_000,
    )


def test_the_better_of_two_outcomes_follows(kept: Kept) -> None:
    """The one recorded last was the better one (W14.4)."""
    id = add(kept.box)
    kept.box.run("CANCEL", id)
    records = kept.box.n.records
    assert records is not None
    done = Outcome(id, 1, kept.box.n.now_ms + 60_000, kept.box.n.now_ms)
    done.result = b"late"
    records.outcome(done)
    kept.turn()
    again(kept, "process")
    assert result(kept.box, id)["result"] == b"late"


@pytest.mark.parametrize("how", CAUSES)
@pytest.mark.parametrize("is_rewritten", [False, True])
def test_flushed_outcomes_stay_away(kept: Kept, how: str, is_rewritten: bool) -> None:
    """W13.7 An outcome record whose time is 0 drops the outcome (S7.1).

    S7.1 `DEBUG FLUSHALL` drops all jobs and queues with cause deleted, and all kept outcomes.
    """
    box = kept.box
    ids = [add(box) for _ in range(3)]
    box.run("DONE", ids[0], start(box, ids[0]), "RESULT", b"large" * 100)
    box.run("CANCEL", ids[1])
    if is_rewritten:  # a snapshot that began before it does not bring them back
        assert kept.committer.start_rewrite(box.n, box.n.now_ms)
    assert box.run("DEBUG", "FLUSHALL") == "OK"
    check(box.n)
    assert box.n.life.bytes_used() - len(box.n.life.terms) * TERMS_BYTES == 0
    after = add(box)
    box.run("CANCEL", after)
    while kept.committer.is_rewriting():
        kept.turn()
    again(kept, how)
    for id in ids:
        assert kept.box.run("RESULT", id).startswith("NOJOB")
    assert state(kept.box, after) == b"cancelled"


def test_a_life_without_its_job_is_left_out(kept: Kept) -> None:
    """A snapshot has no job that ended before its slice, but the segment tells of it."""
    id = kept.box.add()
    kept.box.run("ACKJOB", id)
    records = kept.box.n.records
    assert records is not None
    records.life(id, Life(NO_TERMS, b""))
    records.life(b"D" * 40, Life(NO_TERMS, b""))
    kept.turn()
    again(kept, "process")
    assert len(kept.box.n.life.by_id) == 0 and not kept.box.n.has_lives


def test_a_version_without_lives_loads(kept: Kept) -> None:
    """J1.4 A program writes one format version, 2, and reads 1 and 2; 1 has no lives (W13.1)."""
    id = kept.box.add()
    path = segment(kept)
    assert kept.committer.close(kept.box.n.now_ms) == ""
    as_version(kept, path, 1)
    kept.close()
    kept.begin(kept.box.n.now_ms)
    assert id in kept.box.n.jobs
    assert start(kept.box, id)[:4] == b"1.1."
    header = kept.disk.read(segment(kept), 0, HEADER_BYTES)
    assert header[8:12] == b"\x02\0\0\0", "lives never go into a file of the old version"
    assert kept.disk.read(f"{PATH}/manifest", 0, 15) == b"tuque-journal 2"
    again(kept, "process")
    assert state(kept.box, id) == b"running"


def as_version(kept: Kept, path: str, version: int) -> None:
    """Give a file and the manifest another version, with right checksums."""
    data = kept.disk.file(path).data
    data[8:12] = version.to_bytes(4, "little")
    data[124:HEADER_BYTES] = zlib.crc32(bytes(data[:124])).to_bytes(4, "little")
    manifest = kept.disk.file(f"{PATH}/manifest").data
    head = bytes(manifest).rpartition(b"crc ")[0].replace(b"journal 2", b"journal %d" % version)
    manifest[:] = head + b"crc %08x\n" % zlib.crc32(head)
    header = decode_header(bytes(data[:HEADER_BYTES]), path)
    assert header is not None
    assert FrameScanner(kept.disk, path, header.salt, HEADER_BYTES).next() == FOUND
