"""SPEC W: runs, attempts, back-off, silence, dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raw_resp import NULL, Err
from tuque.core.dispatch.timers import tick
from world import World

TRIES = {"ATTEMPTS": 2, "RETRY": 10}


def fields(reply: list[Any]) -> dict[str, Any]:
    """Names and values as a dict."""
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


def start(world: World, id: bytes, worker: str = "w1") -> bytes:
    """START; returns the run."""
    (row,) = world.run("START", "WORKER", worker, id)
    assert isinstance(row, list), row
    run: bytes = row[0]
    return run


def state(world: World, id: bytes) -> str:
    """The job's state as RESULT says."""
    word: bytes = fields(world.run("RESULT", id))["state"]
    return word.decode()


def make(world: World, kind: str) -> None:
    """A plain queue q, or a tube of that name whose tasks have runs."""
    if kind == "tube":
        assert world.run("TUBE", "CREATE", "q", "tasks", "TTR", 300) == b"OK"


def test_plain_clients_leave_no_life(world: World) -> None:
    """Clients that use only GETJOB, ACKJOB and NACK see none of this chapter."""
    ids = [world.add() for _ in range(50)]
    world.get(count=50)
    world.run("NACK", *ids[:20])
    for id in ids[20:30]:
        world.run("WORKING", id)
    assert len(world.get(count=50)) == 20
    world.run("ACKJOB", *ids[:40])
    world.run("DEADLETTER", ids[40], "q.dead")
    life = world.n.life
    assert not world.n.has_lives
    assert not (life.by_id or life.kept or life.letters or life.watchers or life.updates)


def test_options_about_work(world: World) -> None:
    """W1.1 The job carries these options from its first copy on. Seconds are decimals here, rounded
    up to 1 ms.
    """
    words = ["ADDJOB", "q", "b", 0, "ATTEMPTS", 3, "BACKOFF", "0.0001", 5, 1, "TIMELIMIT", "1.5"]
    id = world.run(*words, "KEEP", 9, "DEAD", "graves")
    world.get()
    assert world.run("START", id)[0][1:] == [1, 3, 1, 300_000, 1_500]
    for bad in (["ATTEMPTS", 0], ["ATTEMPTS", 65536], ["BACKOFF", 2, 1, 0], ["BACKOFF", 1, 2, 2]):
        assert isinstance(world.run("ADDJOB", "q", "b", 0, *bad), Err), bad
    for bad in (["KEEP", -1], ["TIMELIMIT", 0], ["DEAD", ""], ["BACKOFF", 1, 2], ["KEEP", "x"]):
        assert isinstance(world.run("ADDJOB", "q", "b", 0, *bad), Err), bad
    assert world.run("QLEN", "q") == 0


def test_run_tokens_rise(world: World) -> None:
    """W1.2 A run token is ordered by STARTs, then attempt, then hash. It never comes twice for one
    job.
    """
    id = world.add(**TRIES)
    world.get()
    seen = set()
    for count in range(1, 4):
        run = start(world, id)
        assert run.startswith(b"1.%d." % count)
        seen.add(run)
        assert world.run("RELEASE", id, run) == 1
        world.get()
    assert len(seen) == 3


def test_headers(world: World) -> None:
    """W1.3 A header's name has 1 to 64 of `a-z 0-9 . _ -` and comes once; its value has at most
    1024 bytes; all pairs together have at most 4096 bytes.
    """
    pairs = ["tuque-task", "send", "tenant", ""]
    assert not isinstance(world.run("ADDJOB", "q", "b", 0, "HEADERS", 2, *pairs), Err)
    (job,) = world.run("GETJOB", "WITHMETA", "FROM", "q")
    assert fields(job[3:])["headers"] == [b"tuque-task", b"send", b"tenant", b""]
    for bad in (["A", "v"], ["", "v"], ["x" * 65, "v"], ["x", "v" * 1025]):
        assert isinstance(world.run("ADDJOB", "q", "b", 0, "HEADERS", 1, *bad), Err), bad
    assert isinstance(world.run("ADDJOB", "q", "b", 0, "HEADERS", 2, "x", "1", "x", "2"), Err)
    few = world.run("ADDJOB", "q", "b", 0, "HEADERS", 3, "x", "1")
    assert few == "ERR HEADERS: 3 pairs announced, 1 given"
    exact = [
        word
        for name, size in (("a", 1024), ("b", 1024), ("c", 1024), ("d", 1020))
        for word in (name, "v" * size)
    ]
    assert not isinstance(world.run("ADDJOB", "q", "b", 0, "HEADERS", 4, *exact), Err)
    exact[-1] += "v"
    assert isinstance(world.run("ADDJOB", "q", "b", 0, "HEADERS", 4, *exact), Err)
    much = [word for i in range(5) for word in (f"n{i}", "v" * 1000)]
    assert isinstance(world.run("ADDJOB", "q", "b", 0, "HEADERS", 5, *much), Err)


def test_what_attempts_need(world: World) -> None:
    """W1.4 ATTEMPTS with RETRY 0: `-ERR ATTEMPTS needs RETRY above 0`."""
    refused = world.run("ADDJOB", "q", "b", 0, "RETRY", 0, "ATTEMPTS", 1)
    assert refused == "ERR ATTEMPTS needs RETRY above 0"
    world.run("TUBE", "CREATE", "tube", "fifo")
    assert "dead letters go to a queue" in world.run("ADDJOB", "q", "b", 0, "DEAD", "tube")
    assert "are of queues" in world.run("ADDJOB", "tube", "b", 0, "KEEP", 1)


def test_no_expiry(world: World) -> None:
    """W1.5 With TTL 0 the job never expires: its expiry is 2^31-1 seconds ahead."""
    id = world.add(TTL=0)
    world.jump_ms(20 * 365 * 86_400_000)
    world.pass_ms(60_000)
    assert world.state(id) == "queued"


def test_short_delay(world: World) -> None:
    """W1.6 SHOW shows whole seconds, rounded up."""
    id = world.run("ADDJOB", "q", "b", 0, "DELAY", "0.25")
    assert fields(world.run("SHOW", id))["delay"] == 1
    world.pass_ms(240)
    assert world.state(id) == "active"
    world.pass_ms(30)
    assert world.state(id) == "queued"


def test_short_life(make_world: Callable[..., World]) -> None:
    """W1.6 DELAY and TTL take decimals;"""
    world = make_world(journal="always")
    ids = [world.run("ADDJOB", "q", "b", 0, "TTL", ttl) for ttl in ("1.5", "0.7", "3600")]
    assert fields(world.run("SHOW", ids[0]))["ttl"] == 2
    assert world.run("UPDATEJOB", ids[2], "TTL", "2.25") == b"OK"
    late = "DELAY is greater than TTL"
    assert late in str(world.run("ADDJOB", "q", "b", 0, "TTL", "0.5", "DELAY", "0.5"))
    world.pass_ms(600)
    assert [world.state(id) for id in ids] == ["queued"] * 3
    world.pass_ms(200)
    assert [world.state(id) for id in ids] == ["queued", "gone", "queued"]
    world.kill(0)
    world.start(0)
    world.pass_ms(100)
    assert world.state(ids[0]) == "queued"
    world.pass_ms(700)
    assert [world.state(id) for id in ids] == ["gone", "gone", "queued"]
    world.pass_ms(800)
    assert world.state(ids[2]) == "gone"


def test_start_of_what_cannot_begin(world: World) -> None:
    """W2.1 A word that is no job id: `-BADID Invalid Job ID format.`, and nothing begins.

    W2.2 Unknown: `-NOJOB`. Ended: `-ACKED` or `-CANCELLED`.

    W2.3 In its first delay or in a back-off, at any holder that has heard of it: `-NOTDELIVERED`.
    """
    waits = "NOTDELIVERED Job was not delivered yet: GETJOB delivers it after its delay"
    good, later, ended = world.add(), world.add("r", DELAY=5), world.add("s", KEEP=60)
    world.get()
    assert world.run("START", good, "nonsense") == "BADID Invalid Job ID format: 'nonsense'."
    assert state(world, good) == "delivered"
    assert str(world.run("START", later)[0]) == waits
    world.run("CANCEL", ended)
    world.run("TUBE", "CREATE", "tube", "fifo")
    task = world.add("tube")
    unknown = good[:11] + b"x" * 23 + good[34:]
    rows = [str(row).split()[0] for row in world.run("START", later, ended, unknown, task)]
    assert rows == ["NOTDELIVERED", "CANCELLED", "NOJOB", "ERR"]
    tried = world.add("r", DELAY=5, ATTEMPTS=2)
    assert str(world.run("START", tried)[0]).startswith("NOTDELIVERED")
    epoch = world.run("LEASE", "OPEN", "g", "me", "l")
    leased = world.add("l")
    assert world.run("LEASE", "NEXT", "g", epoch, 1, "COUNT", 1, "TTL", 5000) == 1
    assert str(world.run("START", leased)[0]).startswith("ATWORK")


def test_one_worker_at_a_time(world: World) -> None:
    """W2.4 At work: the same worker gets the same run again. Any other one gets `-ATWORK Job is at
    work at worker <name> since <n> s`.

    W2.5 Otherwise a run begins: it has a new token, and it is silent RETRY from now.
    """
    id = world.add(**TRIES)
    world.get()
    run = start(world, id)
    world.pass_ms(4_000)
    assert start(world, id) == run
    assert world.run("START", "WORKER", "w2", id) == [
        "ATWORK Job is at work at worker w1 since 4 s"
    ]
    assert str(world.run("START", id)[0]).startswith("ATWORK")
    world.pass_ms(6_100)
    assert state(world, id) == "back-off"


def test_reply_of_start(world: World) -> None:
    """W2.6 The reply is an array with, for each id, `[run, attempt, of, starts, retry-ms,
    time-limit-ms]` or the error.
    """
    id = world.add(RETRY=7)
    world.get()
    (row,) = world.run("START", id)
    assert row[1:] == [1, 0, 1, 7_000, 0]


def test_only_the_run_at_work_may_speak(world: World) -> None:
    """W3.1 The run is not the one at work: `-STALE`, with the reason. A run token that cannot be
    read: `-ERR invalid run token '<word>'`, of several ids `-ERR invalid run token '<word>' of
    <id>`.

    W5.1 Errors as in W2.2 and W3.1: a late FAIL never touches a newer run.
    """
    id = world.add(**TRIES)
    world.get()
    old = start(world, id)
    world.pass_ms(10_100)  # silent
    world.pass_ms(2_000)
    world.get()
    new = start(world, id, "w2")
    assert new.startswith(b"1.2.")
    for words in (["WORKING", id, old], ["FAIL", id, old], ["PROGRESS", id, old, "x"]):
        said = world.run(*words)
        assert said == f"STALE Run {old.decode()} is over: run {new.decode()} began since"
    assert world.run("RELEASE", id, old) == 0
    assert state(world, id) == "running"
    short = ("x", "1.2", "1.2.zzzzzz", "0.1.000000", "1.1.00000`")
    for bad in (*short, "1.1.0000001", "1.99999999.000000", "-1.1.000000", "1..000000", ""):
        error = f"ERR invalid run token '{bad}'"
        assert world.run("WORKING", id, bad) == error
        assert world.run("DONE", id, new, id, bad) == f"{error} of {id.decode()}"
        assert world.run("DONE", id, bad, id, new) == f"{error} of {id.decode()}"
    assert world.run("WORKING", id, new) == 10
    assert world.run("WORKING", id) == 10


@pytest.mark.parametrize("kind", ["queue", "tube"])
def test_who_names_no_run_hears_why_not(world: World, kind: str) -> None:
    """W3.1 PROGRESS and FAIL with it get `-STALE`, or the error of W2.2."""
    if kind == "tube":
        world.run("TUBE", "CREATE", "q", "tasks")
    id = world.run("ADDJOB", "q", "b", 0, "ATTEMPTS", 3, "BACKOFF", 9, 9, 0, "KEEP", 60)
    gone = world.run("ADDJOB", "plain", "b", 0)
    assert world.run("DELJOB", gone) == 1

    def said(id: bytes) -> set[str]:
        fail, progress = world.run("FAIL", id, "-"), world.run("PROGRESS", id, "-", "x")
        return {str(fail), str(progress)}

    idle = {"STALE Nobody works on the job: START it first"}
    assert said(gone) == {"NOJOB Job not known in the context of this node."}
    assert said(id) == idle
    world.get()
    run = start(world, id)
    assert said(id) == {"STALE '-' names no run: name the run at work, the reply to START has it"}
    assert world.run("FAIL", id, run)[0] == b"retry"
    assert said(id) == idle
    rest = "NOTDELIVERED Job waits for its next attempt: it is delivered after its back-off"
    assert str(world.run("START", id)[0]) == rest
    world.pass_ms(9_100)
    world.get()
    run = start(world, id)
    assert world.run("FAIL", id, run, "FINAL")[0] == b"dead"
    (error,) = said(id)
    assert (
        error
        == f"DEAD Job is a dead letter in '{'q' if kind == 'tube' else 'q.dead'}': DEAD REPLAY it"
    )
    assert world.run("CANCEL", id) == [b"ended"]
    (error,) = said(id)
    assert error.startswith("CANCELLED")


def test_nobody_works_on_a_dead_letter(world: World) -> None:
    """Q8.5 A dead letter that nobody took stays in its queue: `-DEAD` (W2.2)."""
    id = world.add(**TRIES)
    world.get()
    world.run("FAIL", id, start(world, id), "FINAL")
    dead = "DEAD Job is a dead letter in 'q.dead': DEAD REPLAY it"
    assert world.run("WORKING", id) == world.run("WORKING", id, "-") == dead
    assert world.run("QLEN", "q.dead") == 1
    assert world.get("q.dead") == [id]
    assert world.run("WORKING", id) == 10


def test_working_has_no_last_time(world: World) -> None:
    """W3.2 The run is silent RETRY from now. WORKING never answers TOOLATE to a run within its time
    limit.

    W6.3 A job does not expire while a run lasts.
    """
    id = world.add(RETRY=2, TTL=5)
    world.get()
    run = start(world, id)
    for _ in range(12):
        world.pass_ms(1_000)
        assert world.run("WORKING", id, run) == 2
    assert world.get("q") == []
    assert world.run("DONE", id, run) == 1


def test_expiry_waits_for_the_run(world: World) -> None:
    """W6.2 A job with ATTEMPTS that expires is dead with the cause `expired`; any other expires
    as in G7.2.

    W6.3 If its time is over when the run ends without DONE, W6.2 follows.
    """
    tried, plain = world.add(TTL=3, ATTEMPTS=5), world.add(TTL=3)
    fails = world.add("f", TTL=3, ATTEMPTS=5, RETRY=1)
    world.get("f")
    run = start(world, fails)
    for _ in range(5):
        world.pass_ms(700)
        world.run("WORKING", fails, run)
    assert state(world, tried) == "dead"
    assert fields(world.run("DEAD", "SHOW", tried))["cause"] == b"expired"
    assert str(world.run("RESULT", plain)).startswith("NOJOB")
    assert world.run("FAIL", fails, run, "REASON", "late")[0] == b"dead"
    dead = fields(world.run("DEAD", "SHOW", fails))
    assert (dead["cause"], dead["reason"]) == (b"expired", b"late")


def test_expiry_without_a_dead_letter(world: World) -> None:
    """W6.2 With ONEXPIRY drop so does one of which no attempt failed: its outcome is `gone`, it
    counts as expired (G2.1), and the event `expired` is written.
    """
    drop = "TTL 5 ATTEMPTS 3 ONEXPIRY drop RETRY 2 BACKOFF 60 60 0".split()
    waits = world.add("w", "body", *drop)
    failed, given, runs = (world.add("q", "body", *drop) for _ in range(3))
    world.get(count=3)
    assert world.run("FAIL", failed, start(world, failed))[0] == b"retry"
    run = start(world, given)
    late = start(world, runs)
    before = world.n.ledger.expired
    for _ in range(6):
        world.pass_ms(1_000)
        world.run("WORKING", given, run)
        world.run("WORKING", runs, late)
    assert state(world, failed) == "dead"
    assert (state(world, given), state(world, runs)) == ("running", "running")  # W6.3
    assert world.run("RELEASE", given, run) == 1
    assert world.run("FAIL", runs, late)[0] == b"dead", "an attempt failed"
    world.pass_ms(10)
    assert world.node().kinds(waits) == ["added", "expired"]
    for id in (waits, given):
        assert str(world.run("RESULT", id)).startswith("NOJOB")
        assert world.run("WAITJOB", 1, id) == [[id, b"gone"]]
    assert world.n.ledger.expired == before + 2


def test_what_onexpiry_takes(world: World) -> None:
    """R1.11 out of its range: `-ERR <option> must be <range>, not '<value>'`"""
    refused = world.run("ADDJOB", "q", "b", 0, "ONEXPIRY", "later")
    assert refused == "ERR ONEXPIRY must be dead or drop, not 'later'"
    id = world.add("q", "body", *"TTL 2 ATTEMPTS 2 ONEXPIRY DEAD".split())
    assert world.show(id)["on-expiry"] == b"dead"
    id = world.add("q", "body", *"TTL 2 ATTEMPTS 2 ONEXPIRY drop".split())
    assert world.show(id)["on-expiry"] == b"drop"
    assert world.run("UPDATEJOB", id, "ATTEMPTS", 9) == b"OK"
    assert world.show(id)["on-expiry"] == b"drop"


def test_silence_past_the_expiry(world: World) -> None:
    """W6.1 A run is silent for RETRY: it fails with the cause `crashed`, as in W5, but uses up
    no attempt (W6.7).

    W6.2 A job with ATTEMPTS that expires is dead with the cause `expired`.
    """
    id = world.add(TTL=5, RETRY=10, ATTEMPTS=5)
    world.get()
    start(world, id)
    world.jump_ms(10_040)  # a late timer
    tick(world.n)
    dead = fields(world.run("DEAD", "SHOW", id))
    assert (dead["cause"], dead["attempts"], dead["reason"]) == (b"expired", 0, b"silent for 10 s")


def test_progress(world: World) -> None:
    """W3.4 PROGRESS keeps the latest bytes, at most 4096, for RESULT. The reply is OK."""
    id = world.add(RETRY=2)
    world.get()
    run = start(world, id)
    world.pass_ms(1_500)
    assert world.run("PROGRESS", id, run, "half") == b"OK"
    world.pass_ms(1_500)
    assert state(world, id) == "running"
    assert fields(world.run("RESULT", id))["progress"] == b"half"
    assert isinstance(world.run("PROGRESS", id, run, "x" * 4097), Err)
    assert fields(world.run("RESULT", id))["progress"] == b"half"


def test_release_uses_no_attempt(world: World) -> None:
    """W4.1 The run at work ends and its attempt is not used up. `-` gives back a delivery that
    nobody began.

    W4.2 The job is queued now, or after DELAY. Neither `nacks` nor `additional-deliveries` grows.
    """
    id = world.add(**TRIES)
    for _ in range(5):
        world.get()
        assert world.run("RELEASE", id, start(world, id)) == 1
    world.get()
    assert world.run("RELEASE", id, "1.1.000000") == 0
    assert world.run("RELEASE", "DELAY", 3, id, "-") == 1
    assert world.run("RELEASE", id, "-") == 0
    assert str(world.run("START", id)[0]).startswith("NOTDELIVERED")
    world.pass_ms(3_100)
    shown = fields(world.run("SHOW", id))
    assert (shown["state"], shown["nacks"], shown["additional-deliveries"]) == (b"queued", 0, 0)
    world.get()
    assert start(world, id).startswith(b"1.6.")


def test_nack_and_enqueue_of_a_job_at_work(world: World) -> None:
    """W4.3 NACK of a job at work ends its run as RELEASE does, and `nacks` grows.

    W4.4 ENQUEUE skips a job at work.
    """
    id = world.add(**TRIES)
    world.get()
    start(world, id)
    assert world.run("ENQUEUE", id) == 0
    assert world.run("NACK", id) == 1
    assert fields(world.run("SHOW", id))["nacks"] == 1
    world.get()
    assert start(world, id).startswith(b"1.2.")


def test_failed_attempts(world: World) -> None:
    """W5.2 The attempt counts: `failed` becomes the run's attempt. The first and the last failure
    are kept.

    W5.3 With FINAL, with RETRY 0, or if ATTEMPTS is reached, the job is dead (W6.5).

    W5.5 The reply is `retry` and the wait in ms (0: it is queued now), `dead` and the queue,
    `cancelled` and null, or `expired` and null: the job's time was over, and it has no ATTEMPTS.
    """
    id = world.add(**TRIES)
    world.get()
    run = start(world, id)
    assert world.run("FAIL", id, run, "DELAY", 1, "REASON", "first") == [b"retry", 1000]
    world.pass_ms(1_100)
    world.get()
    run = start(world, id)
    long = "lines" + "x" * 70_000
    assert world.run("FAIL", id, run, "REASON", "second", "DETAIL", long) == [b"dead", b"q.dead"]
    dead = fields(world.run("DEAD", "SHOW", id))
    assert (dead["first-reason"], dead["reason"]) == (b"first", b"second")
    assert dead["detail"] == long[:65_536].encode()
    assert (dead["attempts"], dead["of"], dead["origin"], dead["cause"]) == (2, 2, b"q", b"failed")
    final, once = world.add("f", ATTEMPTS=9), world.add("o", RETRY=0)
    world.get("f")
    world.get("o")
    assert world.run("FAIL", final, start(world, final), "FINAL") == [b"dead", b"f.dead"]
    assert world.run("FAIL", once, start(world, once)) == [b"dead", b"o.dead"]
    assert isinstance(world.run("FAIL", id, run, "REASON", "x" * 2049), Err)
    assert str(world.run("FAIL", id, run)).startswith("DEAD")
    short = world.add("s", TTL=1, RETRY=5)
    world.get("s")
    run = start(world, short)
    world.pass_ms(1_200)
    assert world.run("FAIL", short, run) == [b"expired", None]
    quick = world.add("n", RETRY=9)
    world.get("n")
    assert world.run("FAIL", quick, start(world, quick), "DELAY", 0) == [b"retry", 0]


def test_back_off(world: World) -> None:
    """W5.4 Otherwise the job waits for DELAY, or min(max, first x 2^(failed + `crashes` - 1)) less
    a random share of up to jitter. Then it is queued; no counter of Q grows.
    """
    id = world.run("ADDJOB", "q", "b", 0, "RETRY", 60, "BACKOFF", 2, 9, 0)
    waits = []
    for _ in range(4):
        world.get()
        waits.append(world.run("FAIL", id, start(world, id))[1])
        world.pass_ms(waits[-1] + 50)
    assert waits == [2_000, 4_000, 8_000, 9_000]
    shown = fields(world.run("SHOW", id))
    assert (shown["nacks"], shown["additional-deliveries"]) == (0, 0)
    spread = set()
    for _ in range(20):
        job = world.run("ADDJOB", "j", "b", 0, "BACKOFF", 10, 10, "0.5")
        world.get("j")
        spread.add(world.run("FAIL", job, start(world, job))[1])
    assert len(spread) > 10 and min(spread) >= 5_000 and max(spread) <= 10_000


def test_silence(world: World) -> None:
    """W6.1 A run is silent for RETRY: it fails with the cause `crashed`, as in W5, but uses up
    no attempt (W6.7).
    """
    id, plain = world.add(**TRIES), world.add("p", RETRY=10)
    for crashes in range(3):
        world.pass_ms(5_000)  # its back-off
        assert (
            fields(world.run("GETJOB", "WITHMETA", "FROM", "q")[0][3:]).get("crashes", 0) == crashes
        )
        world.get("p")
        assert start(world, id).startswith(b"1.%d." % (crashes + 1))
        start(world, plain)
        world.pass_ms(10_100)
    dead = fields(world.run("DEAD", "SHOW", id))
    assert (dead["cause"], dead["attempts"], dead["crashes"]) == (b"crashed", 0, 3)
    assert dead["reason"] == b"silent for 10 s: its worker was lost 3 times (crashes-max 3)"
    assert state(world, plain) == "back-off"
    assert fields(world.run("SHOW", plain))["crashes"] == 3
    world.run("DEAD", "REPLAY", "q.dead", "ALL")
    assert fields(world.run("SHOW", id))["crashes"] == 0


def test_a_word_of_the_worker_is_no_silence(world: World) -> None:
    """W6.7 FAIL with CAUSE `crashed` comes from a worker that knows which job it was: it uses up
    an attempt (W5.2), and `crashes` stays.
    """
    world.run("CONFIG", "SET", "crashes-max", 1)
    id = world.add(**TRIES)
    world.get()
    assert world.run("FAIL", id, start(world, id), "CAUSE", "crashed")[0] == b"retry"
    shown = fields(world.run("SHOW", id))
    assert (shown["failed"], shown["crashes"]) == (1, 0)


def test_crashes_without_a_limit(world: World) -> None:
    """W6.7 After `crashes-max` of them a job with ATTEMPTS is dead with the cause `crashed`. 0
    switches this off.
    """
    world.run("CONFIG", "SET", "crashes-max", 0)
    id = world.add(TTL=100_000, **TRIES)
    for crashes in range(1, 8):
        world.pass_ms(400_000)  # its back-off
        world.get()
        start(world, id)
        world.pass_ms(10_100)
        assert fields(world.run("SHOW", id))["crashes"] == crashes
    assert state(world, id) == "back-off"


@pytest.mark.parametrize("how", [["NACK"], ["RELEASE", "-"], ["RELEASE", "run"]])
def test_deliveries_that_nobody_begins(world: World, how: list[str]) -> None:
    """W6.4 After `unstarted-max` deliveries in a row that ended without START, RELEASE or NACK, a
    job with ATTEMPTS is dead with the cause `unstarted`. 0 switches this off.
    """
    world.run("CONFIG", "SET", "unstarted-max", 3)
    id, plain = world.add(**TRIES), world.add("p", RETRY=10)
    for lap in range(6):
        if lap == 1:
            assert world.get() == [id]
            words = [start(world, id) if word == "run" else word for word in how[1:]]
            assert world.run(how[0], id, *words) == 1  # the count begins anew
        world.get()
        world.get("p")
        world.pass_ms(10_100)
        assert (state(world, id) == "dead") == (lap >= 3)
    assert fields(world.run("DEAD", "SHOW", id))["cause"] == b"unstarted"
    assert fields(world.run("DEAD", "SHOW", id))["attempts"] == 0
    assert world.state(plain) == "queued"


def test_dead_letter(world: World) -> None:
    """W6.5 A dead job moves to its queue of dead letters under the same id and is queued there. It
    expires after `dead-keep-days`. GETJOB and ACKJOB work on it as on any job.
    """
    world.run("CONFIG", "SET", "dead-keep-days", 1)
    first = world.run("ADDJOB", "q", "b", 0, "DEAD", "graves", "ATTEMPTS", 2)
    second = world.add(**TRIES)
    for id in (first, second):
        world.get()
        world.run("FAIL", id, start(world, id), "FINAL")
    assert world.run("QLEN", "graves") == 1
    assert str(world.run("START", first)[0]) == (
        "DEAD Job is a dead letter in 'graves': DEAD REPLAY it"
    )
    assert world.get("graves") == [first]
    assert world.run("ACKJOB", first) == 1
    assert world.node().kinds(second)[-1] == "dead"
    world.pass_ms(86_400_000 - 60_000)
    assert state(world, second) == "dead"
    world.pass_ms(120_000)
    assert str(world.run("RESULT", second)).startswith("NOJOB")
    world.run("DEBUG", "CHECK")


def test_bound_of_dead_letters(world: World) -> None:
    """W6.6 Above `dead-max-bytes` of dead letters, bodies included, the oldest ones are deleted and
    counted.
    """
    world.run("CONFIG", "SET", "dead-max-bytes", 100_000)
    ids = [world.add("q", "x" * 20_000, ATTEMPTS=1) for _ in range(10)]
    for id in ids:
        world.get()
        world.run("FAIL", id, start(world, id))
    left = [row[0] for row in world.run("DEAD", "LIST", "q.dead")[1]]
    assert left == ids[-len(left) :] and 3 <= len(left) <= 5
    assert world.n.life.dead_dropped == 10 - len(left)
    world.run("CONFIG", "SET", "dead-max-bytes", 0)
    id = world.add(ATTEMPTS=1)
    world.get()
    assert world.run("FAIL", id, start(world, id), "DETAIL", "x" * 3_000) == [b"dead", b"q.dead"]
    assert [row[0] for row in world.run("DEAD", "LIST", "q.dead")[1]] == [id]
    world.run("CONFIG", "SET", "dead-max-bytes", 100_000)
    for _ in range(3):
        more = world.add("q", "x" * 20_000, ATTEMPTS=1)
        world.get()
        world.run("FAIL", more, start(world, more))
    world.run("CONFIG", "SET", "dead-max-bytes", 30_000)
    world.pass_ms(10)
    assert [row[0] for row in world.run("DEAD", "LIST", "q.dead")[1]] == [more]
    world.run("DEBUG", "CHECK")


def test_push_of_a_cancelled_run(world: World) -> None:
    """W8.2 A RESP3 connection that last spoke of the run gets the push `job-cancel id run` at once,
    also when the run is over for another reason.
    """
    worker = world.wire()
    worker("HELLO", 3)
    id = world.add(**TRIES)
    world.get()
    ((run, *_),) = worker("START", id)
    assert world.run("CANCEL", id) == [b"flagged"]
    assert worker.take() == [b"job-cancel", id, run]
    assert str(worker("WORKING", id, run)).startswith("CANCELLED")
    assert world.run("DONE", id, "-") == 1
    assert worker.take() == [b"job-cancel", id, run]
    other = world.add(**TRIES)
    world.get()
    ((run, *_),) = worker("START", other)
    assert world.run("NACK", other) == 1
    assert worker.take() == [b"job-cancel", other, run]
    world.run("ACKJOB", other)
    assert worker.hear() == b"" and world.run("GETJOB", "NOHANG", "FROM", "q") is NULL
    own = world.add(**TRIES)
    world.get()
    ((run, *_),) = worker("START", own)
    assert worker("DONE", own, run) == 1
    assert world.n.life.calls == [] and worker.hear() == b"", "it said so itself"


@pytest.mark.parametrize("kind", ["queue", "tube"])
def test_push_of_a_run_that_another_connection_ends(world: World, kind: str) -> None:
    """W8.2 A RESP3 connection that last spoke of the run gets the push `job-cancel id run` at once,
    also when the run is over for another reason.
    """
    make(world, kind)
    worker = world.wire()
    worker("HELLO", 3)
    for words in (["FAIL"], ["RELEASE"], ["NACK"]):
        id = world.add(ATTEMPTS=9)
        world.get()
        ((run, *_),) = worker("START", id)
        world.run(*words, id, *([] if words == ["NACK"] else [run]))
        assert worker.take() == [b"job-cancel", id, run], words
        assert world.run("CANCEL", id) == [b"ended"]
        own = world.add(ATTEMPTS=9)
        world.get()
        ((run, *_),) = worker("START", own)
        worker(*words, own, *([] if words == ["NACK"] else [run]))
        assert worker.hear() == b"", "it said so itself"
        assert world.run("CANCEL", own) == [b"ended"]


@pytest.mark.parametrize("kind", ["queue", "tube"])
def test_the_last_run_ends_after_the_time_of_the_job(world: World, kind: str) -> None:
    """W6.3 A job does not expire while a run lasts. If its time is over when the run ends without
    DONE, W6.2 follows.

    T48.14 A task with ATTEMPTS whose ttl is over when it is READY or its attempt fails becomes dead
    with the cause `expired`; the reason is that of its last failure.
    """
    make(world, kind)
    last, final = world.add(ATTEMPTS=1, RETRY=300, TTL=100), world.add(RETRY=300, TTL=100)
    world.get(count=2)
    runs = {id: start(world, id) for id in (last, final)}
    world.pass_ms(101_000)
    assert world.run("FAIL", last, runs[last], "REASON", "no luck")[0] == b"dead"
    row = fields(world.run("RESULT", last))
    assert (row["state"], row["cause"], row["reason"]) == (b"dead", b"expired", b"no luck")
    assert world.run("FAIL", final, runs[final], "FINAL") == [b"expired", None]
    assert str(world.run("RESULT", final)).startswith("NOJOB")
    world.check()


@pytest.mark.parametrize("kind", ["queue", "tube"])
def test_a_flagged_job_ends_uncounted(world: World, kind: str) -> None:
    """W8.3 A flagged job ends as cancelled at START (of another worker only if nobody is at work),
    RELEASE, NACK, ENQUEUE, FAIL, or when its RETRY is over.
    """
    make(world, kind)
    failed, silent = world.add(ATTEMPTS=2, KEEP=900), world.add(ATTEMPTS=2, KEEP=900)
    world.get(count=2)
    runs = {id: start(world, id) for id in (failed, silent)}
    assert world.run("CANCEL", failed, silent) == [b"flagged"] * 2
    assert world.run("FAIL", failed, runs[failed]) == [b"cancelled", None]
    world.pass_ms(300_500)
    assert [state(world, id) for id in (failed, silent)] == ["cancelled"] * 2
    assert (world.n.life.failures, world.n.life.crashes) == (0, 0)
    world.check()
