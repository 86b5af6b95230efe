"""SPEC Z6: staged writes, publications and keys in the journal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lease_by_hand import Lessee, word

from tuque.core.model.job import ACTIVE, QUEUED
from tuque.core.queues.procedures import check
from tuque.core.records.jobs import (
    APP,
    KIND_NAMES,
    PUBLISHED,
    STAGED,
)
from tuque.core.records.read import BadRecord, Record, decode
from tuque.core.staged.restore import StageLog
from tuque.store.snapshot import Snapshot
from world import World

CAUSES = ["stop", "kill", "power"]


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """One node, whose journal is synced before each reply that it binds."""
    return make_world(journal="always")


def kinds_of(payload: bytes) -> list[str]:
    """Names of the records."""
    kinds, at, record = [], 0, Record()
    while at < len(payload):
        at = decode(payload, at, record)
        kinds.append(KIND_NAMES[record.kind])
    return kinds


def stage(world: World, body: str, attempt: str = "a", *options: str | int) -> object:
    return world.run("STAGE", "t", attempt, 60_000, "q", body, *options)


def bodies(world: World) -> list[bytes]:
    """Bodies in the queue, in order, without taking them."""
    q = world.n.queues.get(b"q")
    return [] if q is None else [job.body for job in q.peek(1000)]


def staged(world: World) -> dict[bytes, list[bytes]]:
    """Bodies by attempt, of transaction t."""
    attempts = world.n.staging.txns.get(b"t", {})
    return {name: [job.body for job in a.jobs] for name, a in attempts.items()}


def test_records(world: World) -> None:
    """Z6.1 Records are staged (one job of an attempt, with its position), staged-work (its id and
    the options about its work), stage-drop, published, key (id and end) and app (version and last
    use). They are absolute (J2.2) and binding (J4.2).
    """
    world.node().recorded()

    def told(*words: str | int) -> list[str]:
        records = world.n.records
        assert records is not None
        bound = records.binding_count
        is_held, _ = world.run.held(*words)
        kinds = world.node().recorded()
        assert records.binding_count - bound == len(kinds)
        assert is_held == bool(kinds)
        return kinds

    add = ("ADDJOB", "q", "4", 0, "DEDUPE", "k")
    publish = ("PUBLISH", "app", 1, "t", "a")
    assert told("STAGE", "t", "a", 60_000, "q", "1") == ["staged"]
    stage(world, "2")
    world.node().recorded()
    assert told(*publish) == ["published"]
    assert told(*publish) == []
    assert told("STAGE", "t", "a", 60_000, "q", "3") == ["staged"]
    assert told(*publish) == ["stage-drop"]
    assert sorted(told(*add)) == ["add", "key"]
    assert told(*add) == []
    world.jump_ms(7_200_000)
    world.settle()
    world.node().recorded()
    assert told("PUBLISH", "app", 1, "t") == ["app"]


@pytest.mark.long
def test_publish_is_one_record(world: World) -> None:
    """Z6.2 A PUBLISH is one record for all its jobs: a load makes them again from the staged
    ones. A truncated journal has all of it or nothing. The record of the group is in the same
    frame; on load it acks the jobs that its batches still had.
    """
    n = world.n
    taken = [world.add("in", str(i)) for i in range(3)]
    g = Lessee(world, "in")
    g.next(1)
    for i in range(5):
        stage(world, str(i), "a", "DELAY", 3 if i == 4 else 0)
    stage(world, "known", "b", "DEDUPE", "k", "RETRY", 0)
    stage(world, "known", "b", "DEDUPE", "k")
    stage(world, "other", "c")
    disk, path = world.disk(), world.disk().segment()
    before = disk.files.size(path)
    assert world.run("PUBLISH", "app", 9, "ACK", "g", g.epoch, 1, "t", "a", "b") == 6
    jobs = {job.id: job for job in n.jobs.values()}
    key_id = n.keys.find(b"qk\x01", n.now_ms).id
    world.kill(0)
    whole = disk.files.size(path)
    assert len(jobs) == 6 and whole > before + 6 * 40
    disk.snapshot()
    for size in range(before, whole + 1, 1 if whole - before < 2000 else 7):
        disk.restore()
        disk.files.truncate(path, size)
        world.start(0)
        n = world.n
        if size < whole:
            assert set(n.jobs) == set(taken)
            assert n.staging.count == 8 and b"app" not in n.staging.apps
            assert world.run("LEASE", "COMMIT", "g", g.epoch, 1) == 3
            assert world.run("PUBLISH", "app", 9, "t", "a", "b") == 6
        else:
            assert set(n.jobs) == set(jobs) and n.staging.count == 0
            for id, job in n.jobs.items():
                then = jobs[id]
                assert (job.body, job.expire_ms, job.ctime_ns, job.qtime_ms > 0) == (
                    then.body,
                    then.expire_ms,
                    then.ctime_ns,
                    job.state == ACTIVE,
                )
                assert job.state == then.state and job.retry_s == then.retry_s
            assert world.run("PUBLISH", "app", 9, "t", "a", "b") == -1
            assert n.keys.find(b"qk\x01", n.now_ms).id == key_id
            assert world.run("LEASE", "COMMIT", "g", g.epoch, 1) == 0
        check(n)
        world.kill(0)


@pytest.mark.parametrize("how", CAUSES)
def test_all_comes_back(world: World, how: str) -> None:
    """Z6.3 A load restores all of it, except what is over."""
    stage(world, "1")
    world.run("STAGE", "t", "short", 1000, "q", "b")
    stage(world, "2", "b", "RETRY", 0, "TTL", 77, "MAXLEN", 5, "DEDUPE", "m", "DEDUPETTL", 9)
    first = world.run("ADDJOB", "q", "k", 0, "DEDUPE", "k")
    world.run("ADDJOB", "q", "k", 0, "DEDUPE", "short", "DEDUPETTL", 1000)
    world.run("PUBLISH", "app", 3, "other")
    world.run("ACKJOB", first)
    world.restart(how=how, off_ms=2000)
    assert staged(world) == {b"a": [b"1"], b"b": [b"2"]}
    (s,) = world.n.staging.txns[b"t"][b"b"].jobs
    assert (s.retry_s, s.ttl_s, s.maxlen, s.key, s.key_ttl_ms, s.repl) == (0, 77, 5, b"m", 9, -1)
    assert len(world.n.keys.kept) == 1
    assert world.run("ADDJOB", "q", "k", 0, "DEDUPE", "k") == first
    assert world.run("PUBLISH", "app", 3, "u") == -1
    assert stage(world, "3") == 2
    world.pass_ms(60_000)
    assert word(world.run("PUBLISH", "app", 4, "t", "a")) == "NOSTAGE"
    check(world.n)


WORK = (
    "ATTEMPTS",
    3,
    "BACKOFF",
    2,
    9,
    0,
    "DEAD",
    "grave",
    "KEEP",
    60,
    "BODY",
    "HEADERS",
    1,
    "a",
    "b",
)  # fmt: skip


@pytest.mark.parametrize("how", CAUSES)
def test_the_work_of_staged_jobs_comes_back(world: World, how: str) -> None:
    """Z6.1 staged-work (its id and the options about its work)

    Z6.2 A PUBLISH is one record for all its jobs: a load makes them again from the staged ones.
    """
    world.node().recorded()
    stage(world, "0")
    id = stage(world, "1", "a", "WITHID", *WORK)
    headed = stage(world, "2", "a", "WITHID", "HEADERS", 1, "a", "c")
    assert world.node().recorded() == ["staged", "staged", "staged-work", "staged", "staged-work"]
    assert isinstance(id, bytes) and isinstance(headed, bytes)
    world.restart(how=how)
    committer = world.node().committer
    committer.ask_rewrite()
    world.until(lambda: not committer.is_rewriting())
    world.restart(how=how)  # from a snapshot now
    assert world.run("PUBLISH", "app", 1, "t", "a") == 3
    then = {one: (work.terms.key(), work.headers) for one, work in world.n.life.by_id.items()}
    assert then[id][0][4:] == (b"grave", 60_000, 0, False, True) and len(then) == 2
    assert world.n.jobs[headed].body == b"2"
    world.restart(how=how)
    found = {one: (work.terms.key(), work.headers) for one, work in world.n.life.by_id.items()}
    assert found == then and len(world.n.jobs) == 3
    assert world.n.life.by_id[id].ttl_ms == 86_400_000
    check(world.n)


def test_published_in_its_order(world: World) -> None:
    """Jobs come back queued, in the order of a PUBLISH, delayed ones delayed (Z6.2, J5.3)."""
    for i in range(20):
        stage(world, f"{i:02}", "ab"[i % 2])
    stage(world, "late", "a", "DELAY", 9)
    world.run("PUBLISH", "app", 1, "t", "b", "a")
    then = bodies(world)
    assert then == [b"%02d" % i for i in [*range(1, 20, 2), *range(0, 20, 2)]]
    world.restart(how="power")
    assert bodies(world) == then
    assert sorted(job.state for job in world.n.jobs.values()) == [ACTIVE] + [QUEUED] * 20
    world.pass_ms(8_950)
    assert bodies(world) == then
    world.pass_ms(100)
    assert bodies(world) == [*then, b"late"]


@pytest.mark.parametrize("steps", [0, 1, 3, 6, 9, 12])
def test_snapshot(world: World, steps: int) -> None:
    """Z6.4 A snapshot has staged jobs, versions and keys as of the start of its segment."""
    for i in range(12):
        stage(world, str(i))
        stage(world, str(i), "b")
        world.run("ADDJOB", "q", f"k{i}", 0, "DEDUPE", str(i))
    world.run("PUBLISH", "app", 1, "other")
    committer = world.node().committer
    committer.slice_jobs = 5
    committer.ask_rewrite()
    for _ in range(steps):
        world.turn()
    for words in (
        ("STAGE", "t", "a", 60_000, "q", "more"),
        ("PUBLISH", "app", 2, "t", "a"),
        ("STAGE", "t", "a", 60_000, "q", "new"),
        ("ADDJOB", "q", "late", 0, "DEDUPE", "late"),
        ("ADDJOB", "q", "again", 0, "DEDUPE", "1"),
    ):
        world.run.send_in_turn(*words)
    assert committer.is_rewriting()
    world.until(lambda: not committer.is_rewriting())
    _, published, _, key, _ = world.run.take_all()
    assert published == 13
    then = bodies(world)
    world.restart(how="power")
    assert sorted(bodies(world)) == sorted(then)
    assert staged(world) == {b"a": [b"new"]}
    assert world.run("PUBLISH", "app", 2, "t") == -1
    assert world.run("ADDJOB", "q", "late", 0, "DEDUPE", "late") == key
    assert len(world.n.keys.kept) == 13
    check(world.n)


def test_clock_jump(world: World) -> None:
    """Ends of attempts and keys move when the clock jumps (J5.8)."""
    stage(world, "1")
    first = world.run("ADDJOB", "q", "k", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    world.restart(how="stop", off_ms=1000, jump_ms=86_400_000)
    assert staged(world) == {b"a": [b"1"]}
    assert world.run("ADDJOB", "q", "k", 0, "DEDUPE", "k") == first
    world.pass_ms(58_000)
    assert staged(world) == {b"a": [b"1"]}
    world.pass_ms(1_000)
    assert staged(world) == {} and world.n.keys.kept == {}


def test_flushed(world: World) -> None:
    """What DEBUG FLUSHALL drops stays away after a restart (S7.1)."""
    stage(world, "1")
    world.run("ADDJOB", "q", "k", 0, "DEDUPE", "k")
    world.run("PUBLISH", "app", 3, "other")
    world.run("DEBUG", "FLUSHALL")
    world.restart(how="power")
    n = world.n
    assert n.staging.bytes == 0 and n.keys.kept == {} and n.staging.apps == {}


def test_told_twice(world: World) -> None:
    """Records that are applied twice change nothing (Z6.1, J2.2)."""
    world.node().take_recorded()
    for i in range(3):
        stage(world, str(i), "ab"[i % 2])
    world.run("PUBLISH", "app", 1, "t", "a", "b")
    stage(world, "3")
    world.run("ADDJOB", "q", "k", 0, "DEDUPE", "k")
    payload = world.node().take_recorded()
    log, jobs = StageLog(), []
    starts, at, r = [], 0, Record()
    while at < len(payload):
        starts.append(at)
        at = decode(payload, at, r)
    for start in starts:
        for _ in range(2):
            decode(payload, start, r)
            if STAGED <= r.kind <= APP:
                jobs += log.apply(r)
    assert [job.body for job in jobs] == [b"0", b"2", b"1"]
    assert [s.body for s in log.txns[b"t"][b"a"].jobs] == [b"3"]
    assert len(log.keys) == 1 and log.apps[b"app"].version == 1
    log.apps[b"app"].version = 5
    for start in starts:
        decode(payload, start, r)
        if r.kind == PUBLISHED:
            assert log.apply(r) == []
    assert log.apps[b"app"].version == 5 and b"t" in log.txns


def test_attempt_begun_anew(world: World) -> None:
    """An attempt that was dropped after its time begins anew, also in the journal (Z1.4)."""
    stage(world, "1")
    stage(world, "2")
    world.pass_ms(60_000)
    stage(world, "3")
    world.restart(how="power")
    assert staged(world) == {b"a": [b"3"]}


def test_snapshot_outlives_what_it_tells(world: World) -> None:
    """Jobs that are freed while a snapshot is made are told by it (Z6.4)."""
    for i in range(30):
        stage(world, str(i))
    world.n.limits.timers_per_step = 10
    snapshot = Snapshot(world.n)
    world.run("PUBLISH", "app", 1, "t", "a")
    world.pass_ms(1)
    assert world.n.staging.dropping == []
    kinds = []
    while not snapshot.is_done():
        kinds += kinds_of(snapshot.slice(world.n, 7))
    assert kinds == ["tube-cfg", "solo"] + ["staged"] * 30


@pytest.mark.parametrize("size", range(0, 400, 3))
def test_records_cut_off(world: World, size: int) -> None:
    """A record that is cut off, or says more than it holds, is refused (J5.2)."""
    world.node().take_recorded()
    stage(world, "1", "a", "DEDUPE", "k")
    world.run("PUBLISH", "app", 1, "t", "a")
    world.run("ADDJOB", "q", "k", 0, "DEDUPE", "m")
    payload = world.node().take_recorded()
    at, r = 0, Record()
    while at < len(payload):
        end = decode(payload, at, r)
        if r.kind >= STAGED and at <= size < end:
            for broken in (payload[:size], payload[:size] + b"\xff" * (end - size)):
                try:
                    assert decode(broken, at, Record()) <= len(broken)
                except BadRecord:
                    pass
        at = end
