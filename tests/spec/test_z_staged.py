"""SPEC Z1, Z2, Z4, Z5, Z7: staged writes and keys of a node that is alone."""

from __future__ import annotations

import pytest
from lease_by_hand import Lessee, word

from tuque.core.dispatch.restore import flush_all
from tuque.core.dispatch.timers import next_timer_ms
from tuque.core.queues.procedures import check
from tuque.core.staged.stage import drop_txn
from tuque.core.tables.staged import APPS_MAX, PUBLISH_MAX
from world import World

DAY_MS = 86_400_000


def stage(world: World, body: str = "b", attempt: str = "a", *options: str | int) -> object:
    return world.run("STAGE", "t", attempt, 60_000, "q", body, *options)


def bodies(world: World, queue: str = "q") -> list[bytes]:
    reply = world.run("GETJOB", "NOHANG", "COUNT", 100_000, "FROM", queue)
    return [job[2] for job in reply] if isinstance(reply, list) else []


def test_names(world: World) -> None:
    """Z1.1 txn and attempt are any 1 to 255 bytes; a transaction cannot be named ACK. ttl-ms is
    1,000 to 604,800,000.
    """
    assert world.run("STAGE", b"\0" * 255, b"\xff" * 255, 1000, "q", "b") == 1
    assert world.run("STAGE", "t", "a", 604_800_000, "q", "b") == 1
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
        assert word(world.run("STAGE", *words, "q", "b")) == "ERR"
    check(world.n)


def test_options(world: World) -> None:
    """Z1.2 Options, their errors, R1.3, R1.4 and R1.13 are as in ADDJOB. DELAY and TTL count from
    PUBLISH on. ASYNC is not an option of STAGE: `-ERR syntax error: STAGE has no option 'ASYNC'`.

    R1.11 The range of STAGE's TTL begins with 1.
    """
    world.run("TUBE", "CREATE", "grave", "fifo")
    assert stage(world, "b", "a", "ASYNC") == "ERR syntax error: STAGE has no option 'ASYNC'"
    for options in (
        ("REPLICATE", 0),
        ("RETRY", -1),
        ("MAXLEN", 0),
        ("DELAY", 9, "TTL", 9),
        ("RETRY", 0, "REPLICATE", 2),
        ("RETRY",),
        ("DEDUPETTL", 5),
        ("PRI", 10),
        ("PRI", -1),
        ("ATTEMPTS", 0),
        ("ATTEMPTS", 3, "RETRY", 0),
        ("DEAD", "grave"),
        ("HEADERS", 1, "A", "b"),
    ):
        assert stage(world, "b", "a", *options) == world.run("ADDJOB", "q", "b", 0, *options)
    ttl = "ERR TTL must be a number of seconds from 1 to 2147483647, not '0'"  # R1.11
    assert stage(world, "b", "a", "TTL", 0) == ttl
    assert stage(world, "b", "a", "DELAY", 5, "TTL", 20, "RETRY", 7) == 1
    world.pass_ms(30_000)
    assert world.run("PUBLISH", "app", 1, "t", "a") == 1
    (job,) = world.n.jobs.values()
    assert (job.expire_ms, job.qtime_ms) == (world.n.now_ms + 20_000, world.n.now_ms + 5_000)
    assert (job.retry_s, job.delay_s) == (7, 5)
    world.pass_ms(4_999)
    assert bodies(world) == []
    world.pass_ms(50)
    assert bodies(world) == [b"b"]


WORK = ("ATTEMPTS", 1, "BACKOFF", 2, 9, 0, "DEAD", "grave", "KEEP", 60, "TIMELIMIT", 7)


def test_options_about_its_work(world: World) -> None:
    """Z1.2 Options, their errors, R1.3, R1.4 and R1.13 are as in ADDJOB.

    Z2.1 All jobs of the named attempts are added as by ADDJOB
    """
    words = (*WORK, "ONEXPIRY", "drop", "HEADERS", 1, "tenant", "a")
    added = world.run("ADDJOB", "other", "b", 0, *words)
    stage(world, "b", "a", *words)
    stage(world, "plain")
    assert world.run("PUBLISH", "app", 1, "t", "a") == 2
    id, plain = list(world.n.jobs)[1:]
    assert plain not in world.n.life.by_id
    life, theirs = world.n.life.by_id[id], world.n.life.by_id[added]
    assert life.terms is theirs.terms and life.terms.keep_ms == 60_000
    assert (life.headers, life.ttl_ms) == (theirs.headers, theirs.ttl_ms)
    world.run("GETJOB", "FROM", "q")
    ((run, *_),) = world.run("START", "WORKER", "w", id)
    assert world.run("FAIL", id, run) == [b"dead", b"grave"]
    assert list(world.n.life.letters) == [b"grave"]
    check(world.n)


def test_its_id_is_known_before(world: World) -> None:
    """Z1.6 With WITHID the reply is the id that the job will have, unless its key is known then
    (Z2.6).
    """
    first, second = stage(world, "1", "a", "WITHID"), stage(world, "2", "a", "WITHID", "TTL", 60)
    assert stage(world, "3") == 3
    assert world.run("PUBLISH", "app", 1, "t", "a") == 3
    bodies_of = {id: job.body for id, job in world.n.jobs.items()}
    assert bodies_of[first] == b"1" and bodies_of[second] == b"2" and len(bodies_of) == 3
    assert "has no option 'WITHID'" in str(world.run("ADDJOB", "q", "b", 0, "WITHID"))


def test_nobody_sees_it(world: World) -> None:
    """Z1.3 The job is kept in the attempt, after those that were staged there before. It is
    invisible to all other commands. The reply is the number of jobs in the attempt.
    """
    assert [stage(world), stage(world), stage(world, "b", "other"), stage(world)] == [1, 2, 1, 3]
    assert bodies(world) == [] and world.qlen() == 0 and len(world.n.jobs) == 0
    assert world.n.staging.count == 4


def test_dropped_after_its_time(world: World) -> None:
    """Z1.4 An attempt is dropped if nothing was staged in it for the ttl-ms of its last STAGE."""
    stage(world)
    stage(world, "b", "other")
    world.pass_ms(59_999)
    stage(world)
    world.pass_ms(1)
    assert word(world.run("PUBLISH", "app", 1, "t", "other")) == "NOSTAGE"
    world.pass_ms(59_998)
    assert world.n.staging.count == 2
    world.pass_ms(1)
    assert world.n.staging.bytes == 0 and world.n.staging.txns == {}
    check(world.n)


def test_leaving(world: World) -> None:
    """Z1.5 A leaving node stages nothing (`-LEAVING`).

    Z2.10 PUBLISH is accepted at every memory level, and the node takes its own copy of each job:
    staged jobs already count as used memory.
    """
    stage(world)
    world.n.is_leaving = True
    assert word(stage(world)) == "LEAVING"
    world.n.is_leaving = False
    world.n.limits.memory_bytes = 1
    assert word(stage(world)) == "OOM"
    assert world.run("PUBLISH", "app", 1, "t", "a") == 1


def test_published_at_once(world: World) -> None:
    """Z2.1 All jobs of the named attempts are added as by ADDJOB, in the order of the named
    attempts and then of their STAGE. version becomes the last one of app. With ACK the batches are
    committed as by LEASE COMMIT. All of this happens, or nothing. The other attempts of txn are
    dropped. The reply is the number of jobs added.
    """
    for body, attempt in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "c")):
        stage(world, body, attempt)
    ids = [world.add("in") for _ in range(3)]
    g = Lessee(world, "in")
    g.next(1, 2)
    assert world.run("PUBLISH", "app", 7, "ACK", "g", g.epoch, 1, "t", "b", "a") == 3
    assert bodies(world) == [b"2", b"1", b"3"]
    assert [world.state(id) for id in ids] == ["gone", "gone", "queued"]
    assert world.n.staging.txns == {} and world.n.staging.count == 0
    assert world.n.staging.apps[b"app"].version == 7
    assert g("COMMIT", 1) == 0
    assert [world.node().kinds(id) for id in ids] == [["added", "delivered", "acked"]] * 2 + [
        ["added"]
    ]
    check(world.n)


def test_clients_that_wait_get_it(world: World) -> None:
    """A consumer that waits is served by a PUBLISH as by an ADDJOB (Z2.1)."""
    other = world.wire()
    assert other("GETJOB", "FROM", "q") is None
    stage(world, "hello")
    world.run("PUBLISH", "app", 1, "t", "a")
    assert other.take()[0][2] == b"hello"


def test_version_is_published_once(world: World) -> None:
    """Z2.2 If version is not above the last one of app, it was published before: the reply is -1,
    and what is staged under txn is dropped.
    """
    stage(world)
    assert world.run("PUBLISH", "app", 5, "t", "a") == 1
    for version in (5, 4, 0):
        stage(world)
        assert world.run("PUBLISH", "app", version, "t", "a", "never") == -1
        assert world.n.staging.count == 0
    assert world.run("PUBLISH", "app", 5, "ACK", "g", 1, 1, "t") == -1
    stage(world)
    assert world.run("PUBLISH", "app", 6, "t", "a") == 1
    assert len(bodies(world)) == 2


def test_attempt_not_there(world: World) -> None:
    """Z2.3 An attempt that does not exist: `-NOSTAGE`, and nothing is done. An attempt that is
    named twice counts once. Without attempts version becomes the last one of app, and the reply is
    0.
    """
    stage(world)
    assert word(world.run("PUBLISH", "app", 1, "t", "a", "b")) == "NOSTAGE"
    assert word(world.run("PUBLISH", "app", 1, "u", "a")) == "NOSTAGE"
    assert world.n.staging.count == 1 and world.n.staging.apps == {}
    assert world.run("PUBLISH", "app", 1, "t", "a", "a") == 1
    assert world.run("PUBLISH", "app", 2, "t") == 0
    assert world.run("PUBLISH", "app", 2, "t") == -1
    assert world.run("PUBLISH", "app", 3, "ACK", "g", 1) == (
        "ERR syntax error at 'ACK': use PUBLISH app version [ACK group epoch seq] txn [attempt ...]"
    )


def test_batch_refused(world: World) -> None:
    """Z2.4 If LEASE COMMIT of that batch would be refused (Y1.6, Y1.7, Y4.2), the reply is its
    error, and nothing is done. A batch that was committed before does not count as refused.
    """
    stage(world)
    world.add("in")
    assert word(world.run("PUBLISH", "app", 1, "ACK", "g", 9, 1, "t", "a")) == "NOGROUP"
    g = Lessee(world, "in")
    g.next(1)
    assert word(world.run("PUBLISH", "app", 1, "ACK", "g", g.epoch, 2, "t", "a")) == "NOBATCH"
    h = Lessee(world, "in", owner="you")
    assert word(world.run("PUBLISH", "app", 1, "ACK", "g", g.epoch, 1, "t", "a")) == "FENCED"
    assert bodies(world) == [] and world.n.staging.count == 1 and world.n.staging.apps == {}
    h.next(1)
    assert h("COMMIT", 1) == 1
    assert world.run("PUBLISH", "app", 1, "ACK", "g", h.epoch, 1, "t", "a") == 1


def test_job_refused(world: World) -> None:
    """Z2.5 If one of the jobs would be refused under R1.6 or R1.7, or because too few nodes are
    expected (K4.4) for its copies, the reply is that error and nothing is done. What is staged
    stays. MAXLEN also counts the preceding jobs of the same PUBLISH.
    """
    world.run("STAGE", "t", "a", 60_000, "r", "b")
    stage(world, "1", "a", "MAXLEN", 2)
    stage(world, "2", "a", "MAXLEN", 2)
    world.run("PAUSE", "q", "in")
    assert word(world.run("PUBLISH", "app", 1, "t", "a")) == "PAUSED"
    world.run("PAUSE", "q", "none")
    stage(world, "3", "a", "MAXLEN", 2)
    assert word(world.run("PUBLISH", "app", 1, "t", "a")) == "MAXLEN"
    stage(world, "b", "two", "REPLICATE", 2)
    assert word(world.run("PUBLISH", "app", 1, "t", "two")) == "NOREPL"
    assert len(world.n.jobs) == 0 and world.n.staging.count == 5 and world.n.staging.apps == {}
    check(world.n)


def test_keys_within_a_publish(world: World) -> None:
    """Z2.6 A staged job whose key is known (Z4), or is that of a preceding job, is skipped and not
    counted.
    """
    world.run("ADDJOB", "q", "first", 0, "DEDUPE", "k")
    stage(world, "1", "a", "DEDUPE", "k")
    stage(world, "2", "a", "DEDUPE", "m")
    stage(world, "3", "a", "DEDUPE", "m")
    assert world.run("PUBLISH", "app", 1, "t", "a") == 1
    assert bodies(world) == [b"first", b"2"]
    assert world.run("ADDJOB", "q", "4", 0, "DEDUPE", "m") in world.n.jobs
    assert world.qlen() == 0


def test_limits_of_publish(world: World) -> None:
    """Z2.8 One PUBLISH has at most 1,000,000 jobs. app is any 1 to 255 bytes, version 0 to 2^62."""
    assert PUBLISH_MAX == 1_000_000
    stage(world)
    a = world.n.staging.txns[b"t"][b"a"]
    a.jobs.extend(a.jobs * PUBLISH_MAX)
    assert word(world.run("PUBLISH", "app", 1, "t", "a")) == "ERR"
    del a.jobs[1:]
    for app, version in (("", 1), ("x" * 256, 1), ("app", -1), ("app", (1 << 62) + 1)):
        assert word(world.run("PUBLISH", app, version, "t", "a")) == "ERR"
    assert world.run("PUBLISH", b"\0" * 255, 0, "t", "a") == 1
    assert world.run("PUBLISH", "app", 1 << 62, "t") == 0


def test_apps_have_an_end(world: World) -> None:
    """Z2.9 The last version of an app is kept for 30 days after its last use. At most 10,000 apps
    are kept; then a new one is refused.
    """
    assert APPS_MAX == 10_000
    for i in range(APPS_MAX):
        assert world.run("PUBLISH", f"app{i}", 1, "t") == 0
    assert word(world.run("PUBLISH", "app", 1, "t")) == "ERR"
    world.jump_ms(29 * DAY_MS)
    assert world.run("PUBLISH", "app0", 1, "t") == -1
    world.jump_ms(DAY_MS)
    assert world.run("PUBLISH", "app", 1, "t") == 0
    assert list(world.n.staging.apps) == [b"app0", b"app"]
    check(world.n)


def test_dedupe_words(world: World) -> None:
    """Z4.1 key is 1 to 255 bytes, ms 1 to 31,536,000,000 (default 86,400,000).
    `-ERR DEDUPE key must be 1 to 255 bytes`,
    `-ERR DEDUPETTL must be a number of ms from 1 to 31536000000, not '<value>'`,
    `-ERR DEDUPETTL needs a DEDUPE key`.
    """
    bad_key = "ERR DEDUPE key must be 1 to 255 bytes"
    bad_ttl = "ERR DEDUPETTL must be a number of ms from 1 to 31536000000"
    assert world.run("ADDJOB", "q", "b", 0, "DEDUPE", "") == bad_key
    assert world.run("ADDJOB", "q", "b", 0, "DEDUPE", "x" * 256) == bad_key
    for ms in (0, 31_536_000_001, "x"):
        reply = world.run("ADDJOB", "q", "b", 0, "DEDUPE", "k", "DEDUPETTL", ms)
        assert reply == f"{bad_ttl}, not '{ms}'"
    reply = world.run("ADDJOB", "q", "b", 0, "DEDUPETTL", 5)
    assert reply == "ERR DEDUPETTL needs a DEDUPE key"
    assert world.n.keys.kept == {}


def test_same_key_same_job(world: World) -> None:
    """Z4.2 If a job was added with this queue and key no longer ago than the DEDUPETTL given then,
    the reply is its id, whatever became of that job, and no second job is added. R1.5 to R1.7 are
    not checked.

    Z4.3 Otherwise the job is added, and the key is kept with its id.
    """

    def add(queue: str = "q", key: bytes = b"k", **options: int) -> object:
        words = [x for pair in options.items() for x in pair]
        return world.run("ADDJOB", queue, "b", 0, *words, "DEDUPE", key)

    first = add(DEDUPETTL=5000, RETRY=1)
    assert add() == first and world.qlen() == 1
    assert add("r") != first
    assert add("qk", b"") != first and add("", b"qk") != first
    assert add(key=b"\0" * 255) != first
    assert world.run("ACKJOB", first) == 1
    world.run("PAUSE", "q", "in")
    assert add() == first
    world.run("PAUSE", "q", "none")
    world.pass_ms(4999)
    assert add() == first
    world.pass_ms(1)
    second = add()
    assert second != first and add() == second
    world.pass_ms(DAY_MS - 1)
    assert add() == second
    world.pass_ms(1)
    assert world.n.keys.kept == {} and add() != second
    assert world.n.keys.hits == 5


def test_with_new(world: World) -> None:
    """Z4.7 With WITHNEW the reply is an array of the id and 1, or 0 if it is the id of a job that
    another ADDJOB added (Z4.2, Z4.4). Without a key it is 1.
    """
    first = world.run("ADDJOB", "q", "b", 0, "DEDUPE", "k", "WITHNEW")
    assert first == [world.run("ADDJOB", "q", "b", 0, "DEDUPE", "k"), 1]
    assert world.run("ADDJOB", "q", "b", 0, "withnew", "DEDUPE", "k") == [first[0], 0]
    assert world.run("ADDJOB", "q", "b", 0, "DEDUPE", "l", "WITHNEW")[1] == 1
    assert world.run("ADDJOB", "q", "b", 0, "WITHNEW")[1] == 1
    assert world.qlen() == 3
    world.run("TUBE", "CREATE", "t", "fifo")
    assert [world.run("ADDJOB", "t", "b", 0, "DEDUPE", "k", "WITHNEW")[1] for _ in "ab"] == [1, 0]
    refused = world.run("STAGE", "t", "a", 9000, "q", "b", "WITHNEW")
    assert refused == "ERR syntax error: STAGE has no option 'WITHNEW'"


def test_keys_have_an_end(world: World) -> None:
    """Z4.6 At most `dedupe-max-keys` (1,000,000) keys are kept. Beyond that, an ADDJOB or PUBLISH
    with a new key is refused with `-OOM` and what to do.
    """
    assert world.n.limits.keys_max == 1_000_000
    world.run("CONFIG", "SET", "dedupe-max-keys", 2)
    first = world.run("ADDJOB", "q", "b", 0, "DEDUPE", "1")
    stage(world, "b", "a", "DEDUPE", "2")
    stage(world, "b", "a", "DEDUPE", "3")
    reply = world.run("PUBLISH", "app", 1, "t", "a")
    assert word(reply) == "OOM" and "dedupe-max-keys" in str(reply)
    world.run("ADDJOB", "q", "b", 0, "DEDUPE", "2", "DEDUPETTL", 1000)
    assert word(world.run("ADDJOB", "q", "b", 0, "DEDUPE", "3")) == "OOM"
    assert world.run("ADDJOB", "q", "b", 0, "DEDUPE", "1") == first
    world.pass_ms(1000)
    assert len(world.n.keys.kept) == 1
    world.run("CONFIG", "SET", "dedupe-max-keys", 3)
    assert world.run("PUBLISH", "app", 1, "t", "a") == 2


def test_memory(world: World) -> None:
    """Z5.1 Staged jobs, apps and keys count as used memory (M1), staged jobs as much as what
    PUBLISH makes of them, and a queue once. STAGE is refused from level 1 on (M2.3). They are
    never evicted.
    """
    n = world.n
    before = n.used_bytes()
    stage(world, "x" * 100_000)
    assert 100_000 < n.used_bytes() - before < 103_000
    world.run("ADDJOB", "q", "b", 0, "DEDUPE", "k", "TTL", 1)
    world.run("PUBLISH", "app", 1, "u")
    n.limits.memory_bytes = n.used_bytes() - 1
    world.run("ACKJOB", "x")
    assert word(stage(world)) == "OOM"
    assert n.staging.count == 1 and len(n.keys.kept) == 1 and len(n.staging.apps) == 1
    n.limits.memory_bytes = 0
    flush_all(n)
    assert n.used_bytes() <= before
    check(world.n)


def test_publish_needs_no_more_memory(world: World) -> None:
    """Z5.1 Staged jobs, apps and keys count as used memory (M1), staged jobs as much as what
    PUBLISH makes of them, and a queue once.
    """
    n = world.n
    for i in range(300):
        words = ("KEEP", 60, "HEADERS", 1, "a", "b" * 500) if i % 2 else ()
        world.run("STAGE", "t", "a", 60_000, f"q{i % 30}", "x", "TTL", 60, *words)
    before = n.used_bytes()
    assert world.run("PUBLISH", "app", 1, "t", "a") == 300
    assert n.used_bytes() < before + 1_000
    check(n)


def test_a_queue_of_many_attempts_counts_once(world: World) -> None:
    """Z5.1 staged jobs as much as what PUBLISH makes of them, and a queue once."""
    n = world.n
    name = "q" * 1_000
    before = n.used_bytes()
    for i in range(50):
        world.run("STAGE", "t", f"a{i}", 60_000, name, "x")
    staged = n.used_bytes() - before
    assert 6_030 < staged < 50 * 2_300 + 6_030, "the queue may have its name five times"
    for i in range(50):
        world.run("STAGE", "u", f"a{i}", 60_000, name, "x")
    assert world.run("PUBLISH", "app", 1, "t", *[f"a{i}" for i in range(50)]) == 50
    check(n)
    assert 50 * 2_000 < n.staging.bytes < staged
    world.run("PUBLISH", "app", 2, "u")
    assert n.staging.queues == {} and n.staging.bytes < 1_000
    check(n)


def test_figures(world: World) -> None:
    """Z7.1 INFO has a section Staging: transactions, attempts, jobs and bytes that are staged;
    apps; PUBLISHes done, repeated and waiting for copies; jobs published and dropped since the
    start; keys, their limit and bytes, and how often a key was known.
    """
    for attempt in ("a", "b", "b"):
        stage(world, "b", attempt)
    world.run("PUBLISH", "app", 1, "t", "b")
    world.run("PUBLISH", "app", 1, "t", "b")
    for _ in range(3):
        world.run("ADDJOB", "q", "b", 0, "DEDUPE", "k")
    stage(world)
    text = world.run("INFO", "staging").decode()
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
def test_freed_some_at_a_time(world: World, count: int) -> None:
    """The memory of dropped jobs is given back in steps, and timers do not stay (Z1.4)."""
    world.n.limits.timers_per_step = 1000
    for _ in range(count):
        stage(world)
    drop_txn(world.n, b"t")
    assert len(world.n.staging.dropping) == 1
    world.pass_ms(1)
    assert world.n.staging.dropping == []
    for i in range(1500):
        world.run("STAGE", f"t{i}", "a", 60_000, "q", "b")
        world.run("PUBLISH", "app", i, f"t{i}", "a")
    assert len(world.n.staging.ends) <= 1002


def test_what_was_flushed_wakes_nobody(world: World) -> None:
    """G7.5 The node sleeps until the earliest of all timers."""
    world.run("ADDJOB", "q", "body", 0, "DEDUPE", "k", "DEDUPETTL", 60_000)
    world.run("DEBUG", "FLUSHALL")
    assert next_timer_ms(world.n) > world.n.now_ms + 60_000
