"""SPEC Z1, Z2, Z4, Z5, Z7: staged writes and keys of a node that is alone."""

from __future__ import annotations

import pytest
from lease_by_hand import Lessee, word
from node_by_hand import Box

from tuque.core.dispatch.restore import flush_all
from tuque.core.dispatch.timers import next_timer_ms
from tuque.core.queues.procedures import check
from tuque.core.staged.stage import drop_txn
from tuque.core.tables.staged import APPS_MAX, PUBLISH_MAX

DAY_MS = 86_400_000


def stage(box: Box, body: str = "b", attempt: str = "a", *options: str | int) -> object:
    return box.run("STAGE", "t", attempt, 60_000, "q", body, *options)


def bodies(box: Box, queue: str = "q") -> list[bytes]:
    reply = box.run("GETJOB", "NOHANG", "COUNT", 100_000, "FROM", queue)
    return [job[2] for job in reply] if isinstance(reply, list) else []


def test_names(box: Box) -> None:
    """Z1.1 txn and attempt are any 1 to 255 bytes; a transaction cannot be named ACK. ttl-ms is
    1,000 to 604,800,000.
    """
    assert box.run("STAGE", b"\0" * 255, b"\xff" * 255, 1000, "q", "b") == 1
    assert box.run("STAGE", "t", "a", 604_800_000, "q", "b") == 1
    for words in (
        ("", "a", 1000),
        ("t", "", 1000),
        ("x" * 256, "a", 1000),
        ("t", "x" * 256, 1000),
        ("Ack", "a", 1000),
        ("t", "a", 999),
        ("t", "a", 604_800_001),
        ("t", "a", "x"),
    ):
        assert word(box.run("STAGE", *words, "q", "b")) == "ERR"
    check(box.n)


def test_options(box: Box) -> None:
    """Z1.2 Options, their errors, R1.3 and R1.4 are as in ADDJOB. DELAY and TTL count from PUBLISH
    on. ASYNC is not an option of STAGE: `-ERR syntax error: STAGE has no option 'ASYNC'`.

    R1.11 The range of STAGE's TTL begins with 1.
    """
    assert stage(box, "b", "a", "ASYNC") == "ERR syntax error: STAGE has no option 'ASYNC'"
    for options in (
        ("REPLICATE", 0),
        ("RETRY", -1),
        ("MAXLEN", 0),
        ("DELAY", 9, "TTL", 9),
        ("RETRY", 0, "REPLICATE", 2),
        ("RETRY",),
        ("DEDUPETTL", 5),
    ):
        assert stage(box, "b", "a", *options) == box.run("ADDJOB", "q", "b", 0, *options)
    ttl = "ERR TTL must be a number of seconds from 1 to 2147483647, not '0'"  # R1.11
    assert stage(box, "b", "a", "TTL", 0) == ttl
    assert stage(box, "b", "a", "DELAY", 5, "TTL", 20, "RETRY", 7) == 1
    box.pass_ms(30_000)
    assert box.run("PUBLISH", "app", 1, "t", "a") == 1
    (job,) = box.n.jobs.values()
    assert (job.expire_ms, job.qtime_ms) == (box.n.now_ms + 20_000, box.n.now_ms + 5_000)
    assert (job.retry_s, job.delay_s) == (7, 5)
    box.pass_ms(4_999)
    assert bodies(box) == []
    box.pass_ms(50)
    assert bodies(box) == [b"b"]


def test_nobody_sees_it(box: Box) -> None:
    """Z1.3 The job is kept in the attempt, after those that were staged there before. It is
    invisible to all other commands. The reply is the number of jobs in the attempt.
    """
    assert [stage(box), stage(box), stage(box, "b", "other"), stage(box)] == [1, 2, 1, 3]
    assert bodies(box) == [] and box.qlen() == 0 and len(box.n.jobs) == 0
    assert box.n.staging.count == 4


def test_dropped_after_its_time(box: Box) -> None:
    """Z1.4 An attempt is dropped if nothing was staged in it for the ttl-ms of its last STAGE."""
    stage(box)
    stage(box, "b", "other")
    box.pass_ms(59_999)
    stage(box)
    box.pass_ms(1)
    assert word(box.run("PUBLISH", "app", 1, "t", "other")) == "NOSTAGE"
    box.pass_ms(59_998)
    assert box.n.staging.count == 2
    box.pass_ms(1)
    assert box.n.staging.bytes == 0 and box.n.staging.txns == {}
    check(box.n)


def test_leaving(box: Box) -> None:
    """Z1.5 A leaving node stages nothing (`-LEAVING`).

    Z2.10 PUBLISH is accepted at every memory level, and the node takes its own copy of each job:
    staged jobs already count as used memory.
    """
    stage(box)
    box.n.is_leaving = True
    assert word(stage(box)) == "LEAVING"
    box.n.is_leaving = False
    box.n.limits.memory_bytes = 1
    assert word(stage(box)) == "OOM"
    assert box.run("PUBLISH", "app", 1, "t", "a") == 1


def test_published_at_once(box: Box) -> None:
    """Z2.1 All jobs of the named attempts are added as by ADDJOB, in the order of the named
    attempts and then of their STAGE. version becomes the last one of app. With ACK the batches are
    committed as by LEASE COMMIT. All of this happens, or nothing. The other attempts of txn are
    dropped. The reply is the number of jobs added.
    """
    for body, attempt in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "c")):
        stage(box, body, attempt)
    ids = [box.add("in") for _ in range(3)]
    g = Lessee(box, "in")
    g.next(1, 2)
    assert box.run("PUBLISH", "app", 7, "ACK", "g", g.epoch, 1, "t", "b", "a") == 3
    assert bodies(box) == [b"2", b"1", b"3"]
    assert [box.state(id) for id in ids] == ["gone", "gone", "queued"]
    assert box.n.staging.txns == {} and box.n.staging.count == 0
    assert box.n.staging.apps[b"app"].version == 7
    assert g("COMMIT", 1) == 0
    assert [box.kinds(id) for id in ids] == [["added", "delivered", "acked"]] * 2 + [["added"]]
    check(box.n)


def test_clients_that_wait_get_it(box: Box) -> None:
    """A consumer that waits is served by a PUBLISH as by an ADDJOB (Z2.1)."""
    other = box.session()
    assert other("GETJOB", "FROM", "q") is None
    stage(box, "hello")
    box.run("PUBLISH", "app", 1, "t", "a")
    assert other.take()[0][2] == b"hello"


def test_version_is_published_once(box: Box) -> None:
    """Z2.2 If version is not above the last one of app, it was published before: the reply is -1,
    and what is staged under txn is dropped.
    """
    stage(box)
    assert box.run("PUBLISH", "app", 5, "t", "a") == 1
    for version in (5, 4, 0):
        stage(box)
        assert box.run("PUBLISH", "app", version, "t", "a", "never") == -1
        assert box.n.staging.count == 0
    assert box.run("PUBLISH", "app", 5, "ACK", "g", 1, 1, "t") == -1
    stage(box)
    assert box.run("PUBLISH", "app", 6, "t", "a") == 1
    assert len(bodies(box)) == 2


def test_attempt_not_there(box: Box) -> None:
    """Z2.3 An attempt that does not exist: `-NOSTAGE`, and nothing is done. An attempt that is
    named twice counts once. Without attempts version becomes the last one of app, and the reply is
    0.
    """
    stage(box)
    assert word(box.run("PUBLISH", "app", 1, "t", "a", "b")) == "NOSTAGE"
    assert word(box.run("PUBLISH", "app", 1, "u", "a")) == "NOSTAGE"
    assert box.n.staging.count == 1 and box.n.staging.apps == {}
    assert box.run("PUBLISH", "app", 1, "t", "a", "a") == 1
    assert box.run("PUBLISH", "app", 2, "t") == 0
    assert box.run("PUBLISH", "app", 2, "t") == -1
    assert box.run("PUBLISH", "app", 3, "ACK", "g", 1) == (
        "ERR syntax error at 'ACK': use PUBLISH app version [ACK group epoch seq] txn [attempt ...]"
    )


def test_batch_refused(box: Box) -> None:
    """Z2.4 If LEASE COMMIT of that batch would be refused (Y1.6, Y1.7, Y4.2), the reply is its
    error, and nothing is done. A batch that was committed before does not count as refused.
    """
    stage(box)
    box.add("in")
    assert word(box.run("PUBLISH", "app", 1, "ACK", "g", 9, 1, "t", "a")) == "NOGROUP"
    g = Lessee(box, "in")
    g.next(1)
    assert word(box.run("PUBLISH", "app", 1, "ACK", "g", g.epoch, 2, "t", "a")) == "NOBATCH"
    h = Lessee(box, "in", owner="you")
    assert word(box.run("PUBLISH", "app", 1, "ACK", "g", g.epoch, 1, "t", "a")) == "FENCED"
    assert bodies(box) == [] and box.n.staging.count == 1 and box.n.staging.apps == {}
    h.next(1)
    assert h("COMMIT", 1) == 1
    assert box.run("PUBLISH", "app", 1, "ACK", "g", h.epoch, 1, "t", "a") == 1


def test_job_refused(box: Box) -> None:
    """Z2.5 If one of the jobs would be refused under R1.6 or R1.7, or because too few nodes are
    reachable for its copies, the reply is that error and nothing is done. What is staged stays.
    MAXLEN also counts the preceding jobs of the same PUBLISH.
    """
    box.run("STAGE", "t", "a", 60_000, "r", "b")
    stage(box, "1", "a", "MAXLEN", 2)
    stage(box, "2", "a", "MAXLEN", 2)
    box.run("PAUSE", "q", "in")
    assert word(box.run("PUBLISH", "app", 1, "t", "a")) == "PAUSED"
    box.run("PAUSE", "q", "none")
    stage(box, "3", "a", "MAXLEN", 2)
    assert word(box.run("PUBLISH", "app", 1, "t", "a")) == "MAXLEN"
    stage(box, "b", "two", "REPLICATE", 2)
    assert word(box.run("PUBLISH", "app", 1, "t", "two")) == "NOREPL"
    assert len(box.n.jobs) == 0 and box.n.staging.count == 5 and box.n.staging.apps == {}
    check(box.n)


def test_keys_within_a_publish(box: Box) -> None:
    """Z2.6 A staged job whose key is known (Z4), or is that of a preceding job, is skipped and not
    counted.
    """
    box.run("ADDJOB", "q", "first", 0, "DEDUPE", "k")
    stage(box, "1", "a", "DEDUPE", "k")
    stage(box, "2", "a", "DEDUPE", "m")
    stage(box, "3", "a", "DEDUPE", "m")
    assert box.run("PUBLISH", "app", 1, "t", "a") == 1
    assert bodies(box) == [b"first", b"2"]
    assert box.run("ADDJOB", "q", "4", 0, "DEDUPE", "m").encode() in box.n.jobs
    assert box.qlen() == 0


def test_limits_of_publish(box: Box) -> None:
    """Z2.8 One PUBLISH has at most 1,000,000 jobs. app is any 1 to 255 bytes, version 0 to 2^62."""
    assert PUBLISH_MAX == 1_000_000
    stage(box)
    a = box.n.staging.txns[b"t"][b"a"]
    a.jobs.extend(a.jobs * PUBLISH_MAX)
    assert word(box.run("PUBLISH", "app", 1, "t", "a")) == "ERR"
    del a.jobs[1:]
    for app, version in (("", 1), ("x" * 256, 1), ("app", -1), ("app", (1 << 62) + 1)):
        assert word(box.run("PUBLISH", app, version, "t", "a")) == "ERR"
    assert box.run("PUBLISH", b"\0" * 255, 0, "t", "a") == 1
    assert box.run("PUBLISH", "app", 1 << 62, "t") == 0


def test_apps_have_an_end(box: Box) -> None:
    """Z2.9 The last version of an app is kept for 30 days after its last use. At most 10,000 apps
    are kept; then a new one is refused.
    """
    assert APPS_MAX == 10_000
    for i in range(APPS_MAX):
        assert box.run("PUBLISH", f"app{i}", 1, "t") == 0
    assert word(box.run("PUBLISH", "app", 1, "t")) == "ERR"
    box.n.now_ms += 29 * DAY_MS
    assert box.run("PUBLISH", "app0", 1, "t") == -1
    box.n.now_ms += DAY_MS
    assert box.run("PUBLISH", "app", 1, "t") == 0
    assert list(box.n.staging.apps) == [b"app0", b"app"]
    check(box.n)


def test_dedupe_words(box: Box) -> None:
    """Z4.1 key is 1 to 255 bytes, ms 1 to 31,536,000,000 (default 86,400,000).
    `-ERR DEDUPE key must be 1 to 255 bytes`,
    `-ERR DEDUPETTL must be a number of ms from 1 to 31536000000, not '<value>'`,
    `-ERR DEDUPETTL needs a DEDUPE key`.
    """
    bad_key = "ERR DEDUPE key must be 1 to 255 bytes"
    bad_ttl = "ERR DEDUPETTL must be a number of ms from 1 to 31536000000"
    assert box.run("ADDJOB", "q", "b", 0, "DEDUPE", "") == bad_key
    assert box.run("ADDJOB", "q", "b", 0, "DEDUPE", "x" * 256) == bad_key
    for ms in (0, 31_536_000_001, "x"):
        reply = box.run("ADDJOB", "q", "b", 0, "DEDUPE", "k", "DEDUPETTL", ms)
        assert reply == f"{bad_ttl}, not '{ms}'"
    reply = box.run("ADDJOB", "q", "b", 0, "DEDUPETTL", 5)
    assert reply == "ERR DEDUPETTL needs a DEDUPE key"
    assert box.n.keys.kept == {}


def test_same_key_same_job(box: Box) -> None:
    """Z4.2 If a job was added with this queue and key no longer ago than the DEDUPETTL given then,
    the reply is its id, whatever became of that job, and no second job is added. R1.5 to R1.7 are
    not checked.

    Z4.3 Otherwise the job is added, and the key is kept with its id.
    """

    def add(queue: str = "q", key: bytes = b"k", **options: int) -> object:
        words = [x for pair in options.items() for x in pair]
        return box.run("ADDJOB", queue, "b", 0, *words, "DEDUPE", key)

    first = add(DEDUPETTL=5000, RETRY=1)
    assert add() == first and box.qlen() == 1
    assert add("r") != first
    assert add("qk", b"") != first and add("", b"qk") != first
    assert add(key=b"\0" * 255) != first
    assert box.run("ACKJOB", str(first)) == 1
    box.run("PAUSE", "q", "in")
    assert add() == first
    box.run("PAUSE", "q", "none")
    box.pass_ms(4999)
    assert add() == first
    box.pass_ms(1)
    second = add()
    assert second != first and add() == second
    box.pass_ms(DAY_MS - 1)
    assert add() == second
    box.pass_ms(1)
    assert box.n.keys.kept == {} and add() != second
    assert box.n.keys.hits == 5


def test_with_new(box: Box) -> None:
    """Z4.7 With WITHNEW the reply is an array of the id and 1, or 0 if it is the id of a job that
    another ADDJOB added (Z4.2, Z4.4). Without a key it is 1.
    """
    first = box.run("ADDJOB", "q", "b", 0, "DEDUPE", "k", "WITHNEW")
    assert first == [box.run("ADDJOB", "q", "b", 0, "DEDUPE", "k").encode(), 1]
    assert box.run("ADDJOB", "q", "b", 0, "withnew", "DEDUPE", "k") == [first[0], 0]
    assert box.run("ADDJOB", "q", "b", 0, "DEDUPE", "l", "WITHNEW")[1] == 1
    assert box.run("ADDJOB", "q", "b", 0, "WITHNEW")[1] == 1
    assert box.qlen() == 3
    box.run("TUBE", "CREATE", "t", "fifo")
    assert [box.run("ADDJOB", "t", "b", 0, "DEDUPE", "k", "WITHNEW")[1] for _ in "ab"] == [1, 0]
    refused = box.run("STAGE", "t", "a", 9000, "q", "b", "WITHNEW")
    assert refused == "ERR syntax error: STAGE has no option 'WITHNEW'"


def test_keys_have_an_end(box: Box) -> None:
    """Z4.6 At most `dedupe-max-keys` (1,000,000) keys are kept. Beyond that, an ADDJOB or PUBLISH
    with a new key is refused with `-OOM` and what to do.
    """
    assert box.n.limits.keys_max == 1_000_000
    box.run("CONFIG", "SET", "dedupe-max-keys", 2)
    first = box.run("ADDJOB", "q", "b", 0, "DEDUPE", "1")
    stage(box, "b", "a", "DEDUPE", "2")
    stage(box, "b", "a", "DEDUPE", "3")
    reply = box.run("PUBLISH", "app", 1, "t", "a")
    assert word(reply) == "OOM" and "dedupe-max-keys" in str(reply)
    box.run("ADDJOB", "q", "b", 0, "DEDUPE", "2", "DEDUPETTL", 1000)
    assert word(box.run("ADDJOB", "q", "b", 0, "DEDUPE", "3")) == "OOM"
    assert box.run("ADDJOB", "q", "b", 0, "DEDUPE", "1") == first
    box.pass_ms(1000)
    assert len(box.n.keys.kept) == 1
    box.run("CONFIG", "SET", "dedupe-max-keys", 3)
    assert box.run("PUBLISH", "app", 1, "t", "a") == 2


def test_memory(box: Box) -> None:
    """Z5.1 Staged jobs, apps and keys count as used memory (M1). STAGE is refused at level 3, as
    ADDJOB is (M2.3). None of them is evicted.
    """
    n = box.n
    before = n.used_bytes()
    stage(box, "x" * 100_000)
    assert 100_000 < n.used_bytes() - before < 103_000
    box.run("ADDJOB", "q", "b", 0, "DEDUPE", "k", "TTL", 1)
    box.run("PUBLISH", "app", 1, "u")
    n.limits.memory_bytes = n.used_bytes() - 1
    box.run("ACKJOB", "x")
    assert word(stage(box)) == "OOM"
    assert n.staging.count == 1 and len(n.keys.kept) == 1 and len(n.staging.apps) == 1
    n.limits.memory_bytes = 0
    flush_all(n)
    assert n.used_bytes() <= before
    check(box.n)


def test_figures(box: Box) -> None:
    """Z7.1 INFO has a section Staging: transactions, attempts, jobs and bytes that are staged;
    apps; PUBLISHes done, repeated and waiting for copies; jobs published and dropped since the
    start; keys, their limit and bytes, and how often a key was known.
    """
    for attempt in ("a", "b", "b"):
        stage(box, "b", attempt)
    box.run("PUBLISH", "app", 1, "t", "b")
    box.run("PUBLISH", "app", 1, "t", "b")
    for _ in range(3):
        box.run("ADDJOB", "q", "b", 0, "DEDUPE", "k")
    stage(box)
    text = box.run("INFO", "staging").decode()
    found = dict(line.split(":") for line in text.split("\r\n")[1:] if line)
    assert int(found.pop("staged_bytes")) > 0 and int(found.pop("dedupe_bytes")) > 0
    assert {name: int(value) for name, value in found.items()} == {
        "staged_txns": 1,
        "staged_attempts": 1,
        "staged_jobs": 1,
        "staged_jobs_dropped": 1,
        "publish_apps": 1,
        "publish_waiting": 0,
        "publish_done": 1,
        "publish_repeated": 1,
        "publish_jobs": 2,
        "dedupe_keys": 1,
        "dedupe_max_keys": 1_000_000,
        "dedupe_hits": 2,
    }


@pytest.mark.parametrize("count", [3, 2500])
def test_freed_some_at_a_time(box: Box, count: int) -> None:
    """The memory of dropped jobs is given back in steps, and timers do not stay (Z1.4)."""
    box.n.limits.timers_per_step = 1000
    for _ in range(count):
        stage(box)
    drop_txn(box.n, b"t")
    assert len(box.n.staging.dropping) == 1
    box.pass_ms(1)
    assert box.n.staging.dropping == []
    for i in range(1500):
        box.run("STAGE", f"t{i}", "a", 60_000, "q", "b")
        box.run("PUBLISH", "app", i, f"t{i}", "a")
    assert len(box.n.staging.ends) <= 1002


def test_what_was_flushed_wakes_nobody(box: Box) -> None:
    """G7.5 The node sleeps until the earliest of all timers; it does not poll."""
    box.run("ADDJOB", "q", "body", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    box.run("DEBUG", "FLUSHALL")
    assert next_timer_ms(box.n) > box.n.now_ms + 60_000
