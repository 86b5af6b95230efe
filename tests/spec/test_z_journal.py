"""SPEC Z6: staged writes, publications and keys in the journal."""

from __future__ import annotations

from copy import deepcopy

import pytest
from journal_by_hand import Kept, kept, segment
from lease_by_hand import Lessee, word
from node_by_hand import Box

from tuque.core.model.job import ACTIVE, QUEUED
from tuque.core.queues.procedures import check
from tuque.core.records.jobs import (
    APP,
    KIND_NAMES,
    PUBLISHED,
    STAGED,
    Records,
)
from tuque.core.records.read import BadRecord, Record, decode
from tuque.core.staged.restore import StageLog
from tuque.store.snapshot import Snapshot

__all__ = ["kept"]

CAUSES = ["stop", "process", "power"]


def kinds_of(payload: bytes) -> list[str]:
    """Names of the records."""
    kinds, at, record = [], 0, Record()
    while at < len(payload):
        at = decode(payload, at, record)
        kinds.append(KIND_NAMES[record.kind])
    return kinds


def stage(box: Box, body: str, attempt: str = "a", *options: str | int) -> object:
    return box.run("STAGE", "t", attempt, 60_000, "q", body, *options)


def bodies(box: Box) -> list[bytes]:
    """Bodies in the queue, in order, without taking them."""
    q = box.n.queues.get(b"q")
    return [] if q is None else [job.body for job in q.peek(1000)]


def staged(box: Box) -> dict[bytes, list[bytes]]:
    """Bodies by attempt, of transaction t."""
    attempts = box.n.staging.txns.get(b"t", {})
    return {name: [job.body for job in a.jobs] for name, a in attempts.items()}


def test_records(kept: Kept) -> None:
    """Z6.1 Records are staged (one job of an attempt, with its position), stage-drop, published,
    key (id and end) and app (version and last use). They are absolute (J2.2) and binding (J4.2).
    """
    records = kept.box.n.records = Records()
    kept.box.run = kept.box.sessions[0]

    def told() -> list[str]:
        kinds = kinds_of(records.take())
        assert records.binding_count == len(kinds)
        records.binding_count = 0
        return kinds

    stage(kept.box, "1")
    stage(kept.box, "2")
    assert told() == ["staged"] * 2
    kept.box.run("PUBLISH", "app", 1, "t", "a")
    assert told() == ["published"]
    kept.box.run("PUBLISH", "app", 1, "t", "a")
    assert told() == []
    stage(kept.box, "3")
    told()
    kept.box.run("PUBLISH", "app", 1, "t", "a")
    assert told() == ["stage-drop"]
    kept.box.run("ADDJOB", "q", "4", 0, "DEDUPE", "k")
    assert sorted(told()) == ["add", "key"]
    kept.box.run("ADDJOB", "q", "4", 0, "DEDUPE", "k")
    assert told() == []
    kept.box.n.now_ms += 7_200_000
    kept.box.run("PUBLISH", "app", 1, "t")
    assert told() == ["app"]


@pytest.mark.long
def test_publish_is_one_record(kept: Kept) -> None:
    """Z6.2 A PUBLISH is one record, which stands for all its jobs: a load makes them again from the
    staged ones. A truncated journal has all of it or nothing. The record of the group is in the
    same frame; on load it acks the jobs that its batches still had.
    """
    box = kept.box
    taken = [box.run("ADDJOB", "in", str(i), 0).encode() for i in range(3)]
    g = Lessee(box, "in")
    g.next(1)
    for i in range(5):
        stage(box, str(i), "a", "DELAY", 3 if i == 4 else 0)
    stage(box, "known", "b", "DEDUPE", "k", "RETRY", 0)
    stage(box, "known", "b", "DEDUPE", "k")
    stage(box, "other", "c")
    path = segment(kept)
    before = kept.disk.size(path)
    assert box.run("PUBLISH", "app", 9, "ACK", "g", g.epoch, 1, "t", "a", "b") == 6
    jobs = {job.id: job for job in box.n.jobs.values()}
    whole = kept.disk.size(path)
    assert len(jobs) == 6 and whole > before + 6 * 40
    key_id = box.n.keys.find(b"qk\x01", box.n.now_ms)
    assert key_id is not None
    for size in range(before, whole + 1, 1 if whole - before < 2000 else 7):
        disk = deepcopy(kept.disk)
        disk.process_crash()
        disk.truncate(path, size)
        again = Kept(disk=disk)
        n = again.box.n
        if size < whole:
            assert set(n.jobs) == set(taken)
            assert n.staging.count == 8 and b"app" not in n.staging.apps
            assert again.box.run("LEASE", "COMMIT", "g", g.epoch, 1) == 3
            assert again.box.run("PUBLISH", "app", 9, "t", "a", "b") == 6
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
            assert again.box.run("PUBLISH", "app", 9, "t", "a", "b") == -1
            found = n.keys.find(b"qk\x01", n.now_ms)
            assert found is not None and found.id == key_id.id
            assert again.box.run("LEASE", "COMMIT", "g", g.epoch, 1) == 0
        check(n)
        again.close()


@pytest.mark.parametrize("how", CAUSES)
def test_all_comes_back(kept: Kept, how: str) -> None:
    """Z6.3 A load restores all of it, except what is over."""
    box = kept.box
    stage(box, "1")
    box.run("STAGE", "t", "short", 1000, "q", "b")
    stage(box, "2", "b", "RETRY", 0, "TTL", 77, "MAXLEN", 5, "DEDUPE", "m", "DEDUPETTL", 9)
    first = box.run("ADDJOB", "q", "k", 0, "DEDUPE", "k")
    box.run("ADDJOB", "q", "k", 0, "DEDUPE", "short", "DEDUPETTL", 1000)
    box.run("PUBLISH", "app", 3, "other")
    box.run("ACKJOB", str(first))
    kept.restart(how, off_ms=2000)
    box = kept.box
    assert staged(box) == {b"a": [b"1"], b"b": [b"2"]}
    (s,) = box.n.staging.txns[b"t"][b"b"].jobs
    assert (s.retry_s, s.ttl_s, s.maxlen, s.key, s.key_ttl_ms, s.repl) == (0, 77, 5, b"m", 9, -1)
    assert len(box.n.keys.kept) == 1
    assert box.run("ADDJOB", "q", "k", 0, "DEDUPE", "k") == first
    assert box.run("PUBLISH", "app", 3, "u") == -1
    assert stage(box, "3") == 2
    box.pass_ms(60_000)
    assert word(box.run("PUBLISH", "app", 4, "t", "a")) == "NOSTAGE"
    check(box.n)


def test_published_in_its_order(kept: Kept) -> None:
    """Jobs come back queued, in the order of a PUBLISH, delayed ones delayed (Z6.2, J5.3)."""
    box = kept.box
    for i in range(20):
        stage(box, f"{i:02}", "ab"[i % 2])
    stage(box, "late", "a", "DELAY", 9)
    box.run("PUBLISH", "app", 1, "t", "b", "a")
    then = bodies(box)
    assert then == [b"%02d" % i for i in [*range(1, 20, 2), *range(0, 20, 2)]]
    kept.restart("power")
    assert bodies(kept.box) == then
    assert sorted(job.state for job in kept.box.n.jobs.values()) == [ACTIVE] + [QUEUED] * 20
    kept.box.pass_ms(8_950)
    assert bodies(kept.box) == then
    kept.box.pass_ms(100)
    assert bodies(kept.box) == [*then, b"late"]


def rewrite_until_done(kept: Kept) -> None:
    """Go on with turns until the rewrite is finished."""
    for _ in range(1000):
        kept.turn()
        if not kept.committer.is_rewriting():
            return
    raise AssertionError("the rewrite does not end")


@pytest.mark.parametrize("steps", [0, 1, 3, 6, 9, 12])
def test_snapshot(kept: Kept, steps: int) -> None:
    """Z6.4 A snapshot has staged jobs, versions and keys as of the start of its segment."""
    box = kept.box
    for i in range(12):
        stage(box, str(i))
        stage(box, str(i), "b")
        box.run("ADDJOB", "q", f"k{i}", 0, "DEDUPE", str(i))
    box.run("PUBLISH", "app", 1, "other")
    kept.committer.ask_rewrite()
    for _ in range(steps):
        kept.turn()
    stage(box, "more")
    assert box.run("PUBLISH", "app", 2, "t", "a") == 13
    stage(box, "new")
    key = box.run("ADDJOB", "q", "late", 0, "DEDUPE", "late")
    box.run("ADDJOB", "q", "again", 0, "DEDUPE", "1")
    then = bodies(box)
    rewrite_until_done(kept)
    kept.restart("power")
    box = kept.box
    assert sorted(bodies(box)) == sorted(then)
    assert staged(box) == {b"a": [b"new"]}
    assert box.run("PUBLISH", "app", 2, "t") == -1
    assert box.run("ADDJOB", "q", "late", 0, "DEDUPE", "late") == key
    assert len(box.n.keys.kept) == 13
    check(box.n)


def test_clock_jump(kept: Kept) -> None:
    """Ends of attempts and keys move when the clock jumps (J5.8)."""
    stage(kept.box, "1")
    first = kept.box.run("ADDJOB", "q", "k", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    kept.restart("stop", off_ms=1000, jump_ms=86_400_000)
    assert staged(kept.box) == {b"a": [b"1"]}
    assert kept.box.run("ADDJOB", "q", "k", 0, "DEDUPE", "k") == first
    kept.box.pass_ms(58_000)
    assert staged(kept.box) == {b"a": [b"1"]}
    kept.box.pass_ms(1_000)
    assert staged(kept.box) == {} and kept.box.n.keys.kept == {}


def test_flushed(kept: Kept) -> None:
    """What DEBUG FLUSHALL drops stays away after a restart (S7.1)."""
    box = kept.box
    stage(box, "1")
    box.run("ADDJOB", "q", "k", 0, "DEDUPE", "k")
    box.run("PUBLISH", "app", 3, "other")
    box.run("DEBUG", "FLUSHALL")
    kept.restart("power")
    n = kept.box.n
    assert n.staging.bytes == 0 and n.keys.kept == {} and n.staging.apps == {}


def test_told_twice(kept: Kept) -> None:
    """Records that are applied twice change nothing (Z6.1, J2.2)."""
    box = kept.box
    records = box.n.records = Records()
    box.run = box.sessions[0]
    for i in range(3):
        stage(box, str(i), "ab"[i % 2])
    box.run("PUBLISH", "app", 1, "t", "a", "b")
    stage(box, "3")
    box.run("ADDJOB", "q", "k", 0, "DEDUPE", "k")
    payload = records.take()
    log, jobs = StageLog(), []
    starts, at, r = [], 0, Record()
    while at < len(payload):
        starts.append(at)
        at = decode(payload, at, r)
    for start in starts:
        for _ in range(2):
            decode(payload, start, r)
            if STAGED <= r.kind <= APP:
                jobs += log.apply(r.kind, r.stage)
    assert [job.body for job in jobs] == [b"0", b"2", b"1"]
    assert [s.body for s in log.txns[b"t"][b"a"].jobs] == [b"3"]
    assert len(log.keys) == 1 and log.apps[b"app"].version == 1
    log.apps[b"app"].version = 5
    for start in starts:
        decode(payload, start, r)
        if r.kind == PUBLISHED:
            assert log.apply(r.kind, r.stage) == []
    assert log.apps[b"app"].version == 5 and b"t" in log.txns


def test_attempt_begun_anew(kept: Kept) -> None:
    """An attempt that was dropped after its time begins anew, also in the journal (Z1.4)."""
    stage(kept.box, "1")
    stage(kept.box, "2")
    kept.box.pass_ms(60_000)
    stage(kept.box, "3")
    kept.restart("power")
    assert staged(kept.box) == {b"a": [b"3"]}


def test_snapshot_outlives_what_it_tells(kept: Kept) -> None:
    """Jobs that are freed while a snapshot is made are told by it (Z6.4)."""
    for i in range(30):
        stage(kept.box, str(i))
    kept.box.n.limits.timers_per_step = 10
    snapshot = Snapshot(kept.box.n)
    kept.box.run("PUBLISH", "app", 1, "t", "a")
    kept.box.pass_ms(1)
    assert kept.box.n.staging.dropping == []
    kinds = []
    while not snapshot.is_done():
        kinds += kinds_of(snapshot.slice(kept.box.n, 7))
    assert kinds == ["staged"] * 30


@pytest.mark.parametrize("size", range(0, 400, 3))
def test_records_cut_off(kept: Kept, size: int) -> None:
    """A record that is cut off, or says more than it holds, is refused (J5.2)."""
    box = kept.box
    records = box.n.records = Records()
    box.run = box.sessions[0]
    stage(box, "1", "a", "DEDUPE", "k")
    box.run("PUBLISH", "app", 1, "t", "a")
    box.run("ADDJOB", "q", "k", 0, "DEDUPE", "m")
    payload = records.take()
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
