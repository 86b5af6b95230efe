"""SPEC W13: lives and outcomes in the journal."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from test_z_journal import kinds_of

from raw_resp import NULL, Err
from sim.engine.disk import PATH
from tuque.core.model.work import (
    NO_TERMS,
    TERMS_BYTES,
    Life,
    Outcome,
)
from tuque.core.queues.procedures import check
from tuque.store.disk import MemoryDisk
from tuque.store.frames import (
    FOUND,
    HEADER_BYTES,
    FrameScanner,
    decode_header,
)
from tuque.store.snapshot import Snapshot
from world import World

CAUSES = ["stop", "kill", "power", "rewrite"]
Make = Callable[..., World]
TERMS = ("ATTEMPTS", 2, "BACKOFF", 5, 5, 0, "KEEP", 60, "RETRY", 10)


@pytest.fixture
def world(make_world: Make) -> World:
    """One node, whose journal is synced before each reply that it binds."""
    return make_world(journal="always")


def again(world: World, how: str, **moves: int) -> None:
    """A restart; a rewrite before it leaves only the snapshot."""
    if how == "rewrite":
        world.rewrite()
    world.restart(how="stop" if how == "rewrite" else how, **moves)
    check(world.n)


def fields(reply: list[Any]) -> dict[str, Any]:
    """Names and values as a dict."""
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


def result(world: World, id: bytes) -> dict[str, Any]:
    """RESULT as a dict."""
    reply = world.run("RESULT", id)
    assert isinstance(reply, list), reply
    return fields(reply)


def state(world: World, id: bytes) -> object:
    return result(world, id)["state"]


def add(world: World, *options: str | int, queue: str = "q") -> bytes:
    reply = world.run("ADDJOB", queue, "body", 0, *TERMS, *options)
    assert isinstance(reply, bytes), reply
    return bytes(reply)


def start(world: World, id: bytes, worker: str = "w1") -> bytes:
    """GETJOB and START; returns the run."""
    world.run("GETJOB", "NOHANG", "FROM", "q")
    (row,) = world.run("START", "WORKER", worker, id)
    assert isinstance(row, list), row
    run: bytes = row[0]
    return run


def test_records(world: World) -> None:
    """W13.1 The records are life (the work of one job) and outcome (while KEEP lasts). They are
    absolute (J2.2) and binding (J4.2). WORKING and PROGRESS write none: progress since the last
    one is lost.
    """
    told = world.node().recorded
    told()
    id = add(world)
    assert told() == ["add", "life"]
    world.run("GETJOB", "FROM", "q")
    assert told() == ["first"]
    run = start(world, id)
    assert told() == ["life"]
    world.run("WORKING", id, run)
    world.run("PROGRESS", id, run, "half")
    assert "life" not in told()
    world.run("FAIL", id, run, "REASON", "why")
    assert told()[-1] == "life"
    world.run("CANCEL", id)
    assert told() == ["outcome", "ack"]
    plain = world.add(RETRY=10)
    world.get()
    world.run("ACKJOB", plain)
    assert told() == ["add", "first", "ack"]


def test_replies_wait_for_the_records(world: World) -> None:
    """W13.1 They are absolute (J2.2) and binding (J4.2). WORKING and PROGRESS write none:
    progress since the last one is lost.
    """
    id = add(world)
    world.get()
    is_held, rows = world.run.held("START", "WORKER", "w1", id)
    assert is_held
    run = rows[0][0]
    assert not world.run.held("WORKING", id, run)[0]
    assert not world.run.held("PROGRESS", id, run, "half")[0]
    assert world.run.held("FAIL", id, run, "REASON", "why")[0]
    assert world.run.held("CANCEL", id) == (True, [b"ended"])


@pytest.mark.parametrize("how", CAUSES)
def test_a_restart_in_each_phase(world: World, how: str) -> None:
    """What a life has is there again, in every phase of its job (W13.1)."""
    waiting = add(world, "HEADERS", 1, "tuque-task", "send", queue="other")
    running, resting, dead, done, cancelled = (add(world) for _ in range(5))
    plain = world.add("plain")
    run = start(world, running)
    world.run("PROGRESS", running, run, "half")
    world.run("FAIL", resting, start(world, resting), "REASON", "why", "DETAIL", "trace")
    world.run("FAIL", dead, start(world, dead), "REASON", "last", "FINAL")
    world.run("DONE", done, start(world, done), "RESULT", "42")
    world.run("CANCEL", "REASON", "user", cancelled)
    before = {id: result(world, id) for id in (resting, dead, done, cancelled)}
    shown = world.run("DEAD", "SHOW", dead)
    again(world, how)
    assert {id: result(world, id) for id in before} == before
    assert (before[done]["result"], before[cancelled]["state"]) == (b"42", b"cancelled")
    assert (before[resting]["detail"], before[dead]["state"]) == (b"trace", b"dead")
    assert world.run("DEAD", "SHOW", dead) == shown
    assert state(world, running) == b"running" and result(world, running)["worker"] == b"w1"
    assert world.run("WORKING", running, run) == 10
    world.pass_ms(5_100)
    assert state(world, resting) == b"waiting"
    (job,) = world.run("GETJOB", "NOHANG", "WITHMETA", "FROM", "q")
    meta = fields(job[3:])
    assert (job[1], meta["attempt"], meta["of"]) == (resting, 2, 2)
    assert world.run("DONE", running, run) == 1
    (job,) = world.run("GETJOB", "NOHANG", "WITHMETA", "FROM", "other")
    assert (job[1], fields(job[3:])["headers"]) == (waiting, [b"tuque-task", b"send"])
    assert world.n.life.by_id.get(plain) is None


@pytest.mark.parametrize("was_out", [False, True])
@pytest.mark.parametrize("how", CAUSES)
def test_a_back_off_that_is_over_does_not_come_back(world: World, how: str, was_out: bool) -> None:
    """W2.3 In its first delay or in a back-off, at any holder that has heard of it:
    `-NOTDELIVERED`.

    After a restart that is over, too: the job was queued, or even delivered since.
    """
    id = add(world)
    world.run("FAIL", id, start(world, id))
    (refused,) = world.run("START", id)
    assert refused.startswith("NOTDELIVERED")
    world.pass_ms(5_100)
    if was_out:
        assert world.get() == [id]
    world.settle()
    again(world, how)
    assert state(world, id) == (b"delivered" if was_out else b"waiting")
    if not was_out:
        assert world.get() == [id]
    assert start(world, id).startswith(b"2.2.")


@pytest.mark.parametrize("how", CAUSES)
def test_a_flagged_run_stays_flagged(world: World, how: str) -> None:
    """Also after a restart WORKING says so (W8.2)."""
    id = add(world)
    run = start(world, id)
    assert world.run("CANCEL", "REASON", "user", id) == [b"flagged"]
    again(world, how)
    assert world.run("WORKING", id, run) == "CANCELLED Job was cancelled: user"
    assert world.run("RELEASE", id, run) == 1
    assert state(world, id) == b"cancelled"


@pytest.mark.parametrize("how", CAUSES)
def test_a_job_that_changed_is_loaded_as_it_is(world: World, how: str) -> None:
    """W13.2 An add record of a known job replaces its queue, body, delay and expiry. The record
    that ends a job ends its work; its outcome stays.
    """
    changed, dead, replayed, ended = (add(world) for _ in range(4))
    world.run("UPDATEJOB", changed, "BODY", "new", "TTL", 500, "DELAY", 30, "ATTEMPTS", 7)
    for id in (dead, replayed):
        world.run("FAIL", id, start(world, id), "FINAL")
    world.run("DEAD", "REPLAY", "q.dead", "QUEUE", "else", "IDS", replayed)
    world.run("ACKJOB", ended)
    was_ms = world.now_ms
    again(world, how)
    n = world.n
    job = n.jobs[changed]
    assert (job.body, job.delay_s, job.expire_ms - was_ms) == (b"new", 30, 500_000)
    assert job.qtime_ms == was_ms + 30_000
    assert n.life.by_id[changed].terms.attempts == 7
    assert (n.jobs[dead].queue, n.jobs[replayed].queue) == (b"q.dead", b"else")
    assert n.jobs[replayed].expire_ms == was_ms + 86_400_000
    assert n.life.by_id[replayed].replays == 1 and not n.life.by_id[replayed].is_dead
    assert set(n.life.by_id) == {changed, dead, replayed}
    assert state(world, ended) == b"done"


@pytest.mark.parametrize("how", CAUSES)
def test_silence_while_the_node_could_not_hear(world: World, how: str) -> None:
    """W13.3 After a load each live run is silent RETRY from then; its TIMELIMIT continues. W8.2
    pushes nothing until its connection reports again.
    """
    ids = [add(world), add(world, "TIMELIMIT", 25), add(world, "TTL", 15)]
    runs = {id: start(world, id) for id in ids}
    again(world, how, off_ms=20_000)
    assert {world.n.life.by_id[id].client for id in ids} == {-1}
    world.pass_ms(4_900)
    assert {state(world, id) for id in ids} == {b"running"}
    world.pass_ms(200)
    plain, limited, short = ids
    assert [state(world, id) for id in ids] == [b"running", b"back-off", b"running"]
    assert result(world, limited)["cause"] == b"timeout"
    assert world.run("WORKING", plain, runs[plain]) == 10
    assert world.run("DONE", short, runs[short]) == 1
    world.pass_ms(10_100)
    assert (state(world, plain), result(world, plain)["cause"]) == (b"back-off", b"crashed")
    work = world.n.life.by_id[plain]
    assert (world.n.life.failures, work.failed, work.crashes) == (2, 0, 1)
    again(world, how)
    assert world.n.life.by_id[plain].crashes == 1, "W6.7"


def test_a_run_past_its_ttl_keeps_its_own_expiry(world: World) -> None:
    """Also if a snapshot has the expiry that the run put off (W6.3)."""
    id = add(world, "TTL", 15)
    own_ms = world.job(id).expire_ms
    run = start(world, id)
    world.pass_ms(8_000)
    world.run("WORKING", id, run)
    assert world.job(id).expire_ms > own_ms
    again(world, "rewrite")
    world.run("RELEASE", id, run)
    again(world, "kill")
    assert world.job(id).expire_ms == own_ms


def test_a_start_that_was_lost_is_not_counted(make_world: Make) -> None:
    """W13.4 A START whose record was lost is not counted. Its token does not come again: the hash
    takes in bytes that are random at each start of the node.
    """
    world = make_world()
    id = add(world)
    world.pass_ms(2_000)  # it is synced
    lost = start(world, id)
    world.restart(how="power")
    life = world.n.life.by_id.get(id)
    assert life is None or life.run == 0, "the START is on the disk"
    run = start(world, id)
    assert (run[:4], run != lost) == (lost[:4], True)
    assert isinstance(world.run("FAIL", id, lost), Err)
    assert world.n.life.by_id[id].failed == 0
    assert world.run("FAIL", id, run)[0] == b"retry"


@pytest.mark.parametrize("how", CAUSES)
def test_what_is_over_meanwhile(world: World, how: str) -> None:
    """W13.5 A job with ATTEMPTS that expired meanwhile is restored, and W6.2 follows. Dead
    letters keep their order and their cursors. An outcome whose time is over is not restored.
    """
    late, resting = add(world, "TTL", 15, queue="other"), add(world, "TTL", 15)
    last = add(world, "ATTEMPTS", 1, "TTL", 15, queue="one")
    plain = world.add("plain", TTL=15)
    dropped = add(world, "TTL", 15, "ONEXPIRY", "drop", queue="drop")
    early = add(world, "TTL", 25, "ONEXPIRY", "drop", queue="drop")
    world.run("FAIL", resting, start(world, resting), "DELAY", 14)
    letters = [add(world) for _ in range(4)]
    for id in reversed(letters):
        world.run("FAIL", id, start(world, id), "FINAL")
    brief, long = add(world, "KEEP", 5), add(world)
    world.run("DONE", brief, "-", long, "-")
    cursor, rows = world.run("DEAD", "LIST", "q.dead", 0, "COUNT", 2)
    assert [row[0] for row in rows] == [letters[3], letters[2]]
    again(world, how, off_ms=20_000)
    assert set(world.n.life.kept) == {long}
    assert world.run("GETJOB", "NOHANG", "FROM", "other") is NULL, "its time was over"
    world.pass_ms(100)
    assert (state(world, late), result(world, late)["cause"]) == (b"dead", b"expired")
    assert state(world, resting) == state(world, last) == b"dead"
    assert world.state(plain) == world.state(dropped) == "gone"
    assert state(world, early) == b"waiting"
    world.pass_ms(6_000)
    assert world.state(early) == "gone"
    assert state(world, long) == b"done"
    assert isinstance(world.run("RESULT", brief), Err)
    _, rows = world.run("DEAD", "LIST", "q.dead", cursor)
    assert [row[0] for row in rows] == [letters[1], letters[0], resting]
    again(world, how)
    _, rows = world.run("DEAD", "LIST", "q.dead", cursor)
    assert [row[0] for row in rows] == [letters[1], letters[0], resting]
    assert world.n.life.letter_count() == 7


@pytest.mark.parametrize("how", CAUSES)
def test_a_later_letter_stands_behind_each_cursor(world: World, how: str) -> None:
    """Also if the letter at the cursor was replayed meanwhile (W13.5)."""
    id = add(world)
    world.run("FAIL", id, start(world, id), "FINAL")
    was = world.n.life.by_id[id].serial
    world.run("DEAD", "REPLAY", "q.dead", "ALL")
    again(world, how)
    world.run("FAIL", id, start(world, id), "FINAL")
    assert world.n.life.by_id[id].serial > was


def test_a_cancel_that_no_other_node_must_hear_of(world: World) -> None:
    """W13.8 With KEEP 0 the outcome of a cancelled job that has other holders, or of one that
    DEADLETTER ended, is recorded too.
    """
    ids = [world.add(), world.add()]
    waiter = world.wire()
    assert waiter("WAITJOB", 0, *ids, "COUNT", 1) is None
    world.node().recorded()
    assert world.run("CANCEL", ids[0]) == [b"ended"]
    assert waiter.take() == [[ids[0], b"cancelled"]]
    assert world.node().recorded() == ["ack"]


def test_snapshot(world: World) -> None:
    """W13.6 A snapshot has the work of each job after the job, and the outcomes of its start
    that are still kept.
    """
    first, second, third = (add(world) for _ in range(3))
    world.add("plain")
    ended = [add(world) for _ in range(3)]
    world.run("CANCEL", *ended)
    snapshot = Snapshot(world.n)
    world.n.life.forget(ended[1])
    world.run("CANCEL", third)
    slices = []
    while not snapshot.is_done():
        slices.append(kinds_of(snapshot.slice(world.n, 1)))
    assert [slices[0].pop(0) for _ in range(2)] == ["tube-cfg", "solo"]
    assert slices[:2] == [["add", "life"]] * 2
    assert [kind for part in slices for kind in part if kind not in ("add", "life")] == [
        "outcome",
        "outcome",
    ]
    assert all(part.count("outcome") <= 1 for part in slices), "in slices"
    assert {first, second} == set(world.n.life.by_id)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_jumps(world: World, jump_ms: int) -> None:
    """Lives move along: nothing expires early, a failure keeps its age (J5.8)."""
    running, dead, done = (add(world, "TIMELIMIT", 30) for _ in range(3))
    start(world, running)
    world.run("FAIL", dead, start(world, dead), "FINAL")
    world.run("DONE", done, "-")
    was_ms = world.n.now_ms
    again(world, "kill", jump_ms=jump_ms)
    by_ms = world.n.now_ms - was_ms
    assert by_ms == jump_ms
    lives = world.n.life
    assert lives.by_id[running].since_ms == was_ms + by_ms
    letter = lives.by_id[dead]
    assert letter.first is not None and letter.last is not None
    assert {letter.dead_ms, letter.first.at_ms, letter.last.at_ms} == {was_ms + by_ms}
    assert lives.by_id[running].dead_ms == lives.by_id[running].expire_ms == 0
    assert (lives.kept[done].ended_ms, lives.kept[done].until_ms) == (
        was_ms + by_ms,
        was_ms + by_ms + 60_000,
    )


def test_the_better_of_two_outcomes_follows(world: World) -> None:
    """The one recorded last was the better one (W14.4)."""
    id = add(world)
    world.run("CANCEL", id)
    records = world.n.records
    assert records is not None
    done = Outcome(id, 1, world.n.now_ms + 60_000, world.n.now_ms)
    done.result = b"late"
    records.outcome(done)
    world.settle()
    again(world, "kill")
    assert result(world, id)["result"] == b"late"


@pytest.mark.parametrize("how", CAUSES)
@pytest.mark.parametrize("is_rewritten", [False, True])
def test_flushed_outcomes_stay_away(world: World, how: str, is_rewritten: bool) -> None:
    """W13.7 An outcome record whose time is 0 drops the outcome (S7.1).

    S7.1 `DEBUG FLUSHALL` drops all jobs and queues with cause deleted, and all kept outcomes.
    """
    ids = [add(world) for _ in range(3)]
    world.run("DONE", ids[0], start(world, ids[0]), "RESULT", b"large" * 100)
    world.run("CANCEL", ids[1])
    if is_rewritten:  # a snapshot that began before it does not bring them back
        world.begin_rewrite()
    assert world.run("DEBUG", "FLUSHALL") == b"OK"
    check(world.n)
    assert world.n.life.bytes_used() - len(world.n.life.terms) * TERMS_BYTES == 0
    after = add(world)
    world.run("CANCEL", after)
    world.until(lambda: not world.node().committer.is_rewriting())
    again(world, how)
    for id in ids:
        assert world.run("RESULT", id).startswith("NOJOB")
    assert state(world, after) == b"cancelled"


def test_a_life_without_its_job_is_left_out(world: World) -> None:
    """A snapshot has no job that ended before its slice, but the segment tells of it."""
    id = world.add()
    world.run("ACKJOB", id)
    records = world.n.records
    assert records is not None
    records.life(id, Life(NO_TERMS, b""))
    records.life(b"D" * 40, Life(NO_TERMS, b""))
    world.settle()
    again(world, "kill")
    assert len(world.n.life.by_id) == 0 and not world.n.has_lives


def test_a_version_without_lives_loads(world: World) -> None:
    """J1.4 A program writes one format version, 5, and reads 1 to 5."""
    id = world.add()
    path = world.disk().segment()
    world.stop(0)
    as_version(world.disk().files, path, 1)
    world.start(0)
    assert id in world.n.jobs
    assert start(world, id)[:4] == b"1.1."
    header = world.disk().files.read(world.disk().segment(), 0, HEADER_BYTES)
    assert header[8:12] == b"\x05\0\0\0", "lives never go into a file of the old version"
    assert world.disk().files.read(f"{PATH}/manifest", 0, 15) == b"tuque-journal 5"
    again(world, "kill")
    assert state(world, id) == b"running"


def as_version(files: MemoryDisk, path: str, version: int) -> None:
    """Give a file and the manifest another version, with right checksums."""
    data = files.file(path).data
    data[8:12] = version.to_bytes(4, "little")
    data[124:HEADER_BYTES] = zlib.crc32(bytes(data[:124])).to_bytes(4, "little")
    manifest = files.file(f"{PATH}/manifest").data
    head = bytes(manifest).rpartition(b"crc ")[0].replace(b"journal 4", b"journal %d" % version)
    manifest[:] = head + b"crc %08x\n" % zlib.crc32(head)
    header = decode_header(bytes(data[:HEADER_BYTES]), path)
    assert header is not None
    assert FrameScanner(files, path, header.salt, HEADER_BYTES).next() == FOUND
