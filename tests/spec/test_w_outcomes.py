"""SPEC W: outcomes, CANCEL, RESULT, WAITJOB, UPDATEJOB, WITHMETA, DEAD."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_w_work import TRIES, fields, start, state

from own_log import own_lines, own_records
from raw_resp import NULL, Err
from tuque.core.model.work import DONE, Outcome
from tuque.core.msgs.bus import JobAsk, JobTold
from tuque.core.queues.work_copies import STANDS, settle
from tuque.server.commands.dispatch import execute
from tuque.server.loop.housekeeping import run_housekeeping
from tuque.server.observe.queue_walk import oldest_ms
from tuque.tubes.policy import tubes_of
from world import World

Make = Callable[..., World]


def test_done(world: World) -> None:
    """W7.1 The job ends as ACKJOB would end it, whichever run is named, `-` too; so does a task
    of a tube, where T1.4 or T48.6 lets it. The reply is how many ended at this node now
    """
    world.run("TUBE", "CREATE", "tube", "fifo")
    task = world.add("tube")
    world.get("tube")
    assert "is a tube" in world.run("CANCEL", task)
    assert world.run("DONE", task, "-") == 1 and world.state(task) == "gone"
    ids = [world.add(**TRIES) for _ in range(4)]
    world.get(count=4)
    runs = [start(world, id) for id in ids[:2]]
    world.pass_ms(10_100)  # both silent
    assert world.run("DONE", ids[0], runs[0], ids[1], runs[1], ids[2], "-", ids[2], "-") == 3
    assert [state(world, ids[3])] == ["waiting"]
    assert world.run("DONE", ids[3], "-") == 1
    assert world.node().kinds(ids[0])[-1] == "acked"
    assert world.run("DONE", ids[0], "-", ids[1]).startswith("ERR syntax error: DONE")
    world.run("DEBUG", "CHECK")


def test_outcomes_are_kept(world: World) -> None:
    """W7.2 The outcome is kept for KEEP seconds: kind, run, worker, progress, result, reason.
    ACKJOB and FASTACK keep the outcome `done` without a result, DEADLETTER the outcome `dead`
    with its reason, also of a task. The first outcome stays.
    """
    full, acked, fast = (world.add(KEEP=60) for _ in range(3))
    world.get(count=3)
    run = start(world, full)
    world.run("PROGRESS", full, run, "all")
    assert world.run("DONE", full, run, "RESULT", "42") == 1
    assert world.run("DONE", full, run, "RESULT", "43") == 0
    world.run("ACKJOB", acked)
    world.run("FASTACK", fast)
    for _ in range(2):
        told = fields(world.run("RESULT", full))
        assert (told["state"], told["result"], told["worker"]) == (b"done", b"42", b"w1")
        assert (told["progress"], told["attempt"]) == (b"all", 1)
    assert state(world, acked) == state(world, fast) == "done"
    nameless = world.add(KEEP=60)
    world.get()
    start(world, nameless)
    assert world.run("DONE", nameless, "-") == 1
    told = fields(world.run("RESULT", nameless))
    assert (told["attempt"], told["worker"]) == (1, b"w1"), "the run at work"
    assert fields(world.run("RESULT", acked))["result"] is None
    lettered = world.add("l", KEEP=60)
    world.get("l")
    world.run("DEADLETTER", lettered, "graves", "REASON", "bad")
    told = fields(world.run("RESULT", lettered))
    assert (told["state"], told["reason"]) == (b"dead", b"bad")
    world.pass_ms(61_000)
    assert str(world.run("RESULT", full)).startswith("NOJOB")
    assert world.n.life.kept_bytes == 0


def test_result_for_those_who_wait(world: World) -> None:
    """W7.3 With KEEP 0 only those who wait at that moment get the result."""
    id = world.add()
    world.get()
    waiter = world.wire()
    assert waiter("RESULT", id, "WAIT", 0) is None
    assert world.run("DONE", id, start(world, id), "RESULT", "42") == 1
    assert fields(waiter.take())["result"] == b"42"
    world.pass_ms(10)
    assert str(world.run("RESULT", id)).startswith("NOJOB")


def test_bound_of_outcomes(world: World) -> None:
    """W7.4 Above `results-max-bytes` the oldest outcomes are dropped and counted"""
    world.run("CONFIG", "SET", "results-max-bytes", 10_000)
    ids = [world.add(KEEP=600) for _ in range(20)]
    world.get(count=20)
    for id in ids:
        world.run("DONE", id, "-", "RESULT", "x" * 1_000)
        assert world.n.life.kept_bytes <= 10_000
    left = [id for id in ids if not isinstance(world.run("RESULT", id), Err)]
    assert left == ids[-len(left) :] and 5 <= len(left) <= 9
    assert world.n.life.kept_dropped == 20 - len(left)


def test_cancel(world: World) -> None:
    """W8.1 Nobody has the job: it ends with the outcome `cancelled`. So does a leased job.

    W8.4 The reply is for each id `ended`, `flagged`, `over` (it had ended), null (unknown)
    or `-NOREACH` (W15.5).
    """
    waiting, delayed, resting = world.add(KEEP=60), world.add(DELAY=9), world.add("r", **TRIES)
    dead, out = world.add("d", ATTEMPTS=1), world.add("o")
    for queue in ("r", "d", "o"):
        world.get(queue)
    for id in (resting, dead):
        world.run("FAIL", id, start(world, id))
    assert world.run("CANCEL", waiting, delayed, resting, dead) == [b"ended"] * 4
    unknown = waiting[:11] + b"x" * 23 + waiting[34:]
    assert world.run("CANCEL", "REASON", "why", out, waiting, unknown) == [
        b"flagged",
        b"over",
        None,
    ]
    assert state(world, waiting) == "cancelled"
    assert world.run("GETJOB", "NOHANG", "FROM", "q", "d.dead", "r") is NULL
    epoch = world.run("LEASE", "OPEN", "g", "me", "l")
    leased = world.add("l", KEEP=60)
    assert world.run("LEASE", "NEXT", "g", epoch, 1, "COUNT", 1, "TTL", 5000) == 1
    assert world.run("CANCEL", leased) == [b"ended"]
    world.run("DEBUG", "CHECK")


def test_end_of_a_flagged_job(world: World) -> None:
    """W8.3 A flagged job ends as cancelled at START (of another worker only if nobody is at work),
    RELEASE, NACK, ENQUEUE, FAIL, or when its RETRY is over. DONE still makes it done: the result
    is true.
    """
    ids = [world.add(KEEP=600, **TRIES) for _ in range(7)]
    world.get(count=7)
    begun, queued, released, nacked, failed, silent, done = ids
    runs = {id: start(world, id) for id in (released, nacked, failed, silent, done)}
    world.run("CANCEL", "REASON", "enough", *ids)
    world.run("CANCEL", *ids)  # the first reason stays
    assert str(world.run("WORKING", begun)).startswith("CANCELLED")
    assert str(world.run("START", "WORKER", "w2", done)[0]).startswith("ATWORK")
    assert world.run("START", begun) == ["CANCELLED Job was cancelled: enough"]
    assert world.run("ENQUEUE", silent) == 0, "W4.4"
    assert world.run("ENQUEUE", queued) == 1 and world.get() == []
    assert world.run("RELEASE", released, runs[released]) == 1
    assert world.run("NACK", nacked) == 1
    assert world.run("FAIL", failed, runs[failed]) == [b"cancelled", None]
    assert world.run("DONE", done, runs[done], "RESULT", "yes") == 1
    world.pass_ms(10_100)
    assert [state(world, id) for id in ids] == ["cancelled"] * 6 + ["done"]
    told = fields(world.run("RESULT", silent))
    assert (told["reason"], told["attempt"], told["worker"]) == (b"enough", 1, b"w1")
    world.run("DEBUG", "CHECK")


def test_result_of_each_phase(world: World) -> None:
    """W9.1 With WAIT the reply comes when the job has ended or is dead, or at the timeout with the
    state of that moment; 0: no timeout. Unknown: `-NOJOB`.
    """
    id = world.add(DELAY=1, **TRIES)
    phases = [state(world, id)]
    world.pass_ms(1_100)
    phases.append(state(world, id))
    world.get()
    phases.append(state(world, id))
    run = start(world, id)
    waiter = world.wire()
    assert waiter("RESULT", id, "WAIT", 500) is None
    world.pass_ms(600)
    assert fields(waiter.take())["state"] == b"running"
    world.run("FAIL", id, run, "DELAY", 1, "REASON", "no")
    phases.append(state(world, id))
    assert waiter("RESULT", id, "WAIT", 0) is None
    world.pass_ms(1_100)
    world.get()
    world.run("FAIL", id, start(world, id), "REASON", "never")
    told = fields(waiter.take())
    assert (told["state"], told["cause"], told["reason"]) == (b"dead", b"failed", b"never")
    assert phases == ["scheduled", "waiting", "delivered", "back-off"]


def test_waitjob(world: World) -> None:
    """W9.2 WAITJOB replies when all jobs, or COUNT of them, have ended or are dead: an array of
    `[id, outcome]` of these. An id that is not known counts as `gone`.

    W9.3 At the timeout the reply has what has ended by then. 0: no timeout.
    """
    ids = [world.add() for _ in range(3)]
    some, all_of, late, gone = (world.wire() for _ in range(4))
    assert some("WAITJOB", 0, *ids, "COUNT", 2) is None
    assert all_of("WAITJOB", 0, *ids) is None
    assert late("WAITJOB", 1_000, *ids) is None
    world.run("ACKJOB", ids[1])
    assert some.take() is None
    world.pass_ms(1_100)
    assert late.take() == [[ids[1], b"done"]]
    world.run("CANCEL", ids[2])
    assert [row[0] for row in some.take()] == ids[1:]
    world.run("ACKJOB", ids[0])
    assert len(all_of.take()) == 3
    world.pass_ms(2_000)
    assert gone("WAITJOB", 0, ids[0]) == [[ids[0], b"gone"]]
    assert not world.n.life.watches and not world.n.life.watchers
    assert isinstance(world.run("WAITJOB", 0, ids[0], ids[1], "COUNT", 3), Err)


def test_updatejob(world: World) -> None:
    """W10.1 Changes a job that is scheduled, waiting or in a back-off. DELAY counts from now; 0
    queues it. TTL counts from now, with decimals; 0: it never expires. The reply is OK.

    W10.2 Delivered or at work: `-ATWORK`. Dead: `-DEAD`. Waits for copies: `-NOTDELIVERED`.
    ATTEMPTS not above those that failed, or PRI of a job in a plain queue: an error. Errors
    change nothing.
    """
    id = world.add(DELAY=100, TTL=200)
    assert world.run("UPDATEJOB", id, "DELAY", 0, "BODY", "new", "TTL", 0, "ATTEMPTS", 2) == b"OK"
    world.run("UPDATEJOB", id, "HEADERS", 1, "tenant", "x")
    world.pass_ms(300_000)
    (job,) = world.run("GETJOB", "WITHMETA", "FROM", "q")
    assert job[2] == b"new"
    assert (fields(job[3:])["of"], fields(job[3:])["headers"]) == (2, [b"tenant", b"x"])
    assert str(world.run("UPDATEJOB", id, "BODY", "late")).startswith("ATWORK")
    run = start(world, id)
    assert str(world.run("UPDATEJOB", id, "BODY", "late")).startswith("ATWORK")
    world.run("FAIL", id, run, "DELAY", 50)
    assert world.run("UPDATEJOB", id, "DELAY", 1) == b"OK"
    few = world.run("UPDATEJOB", id, "ATTEMPTS", 1)
    assert few == "ERR ATTEMPTS must be above the 1 that failed already"
    world.pass_ms(1_100)
    assert world.get() == [id]
    world.run("FAIL", id, start(world, id))
    assert str(world.run("UPDATEJOB", id, "BODY", "late")).startswith("DEAD")
    assert fields(world.run("DEAD", "SHOW", id))["body"] == b"new"
    queued = world.add("u")
    entered = world.n.queues[b"u"].jobs_in
    assert world.run("UPDATEJOB", queued, "DELAY", 0) == b"OK"
    assert (world.run("QLEN", "u"), world.n.queues[b"u"].jobs_in) == (1, entered), "it stays"
    assert world.run("UPDATEJOB", queued, "DELAY", 5) == b"OK"
    assert world.run("QLEN", "u") == 0
    world.run("DEBUG", "CHECK")


@pytest.mark.parametrize(("delay", "then_s"), [(0, 0), (100, 100), ("0.5", 1)])
def test_figures_go_by_the_new_delay(world: World, delay: int | str, then_s: int) -> None:
    """W10.4 DELAY of a job that nobody got also changes the delay that SHOW and O3.3 go by, which
    counts from the creation: it ends with the new one.
    """
    id = world.add(DELAY=3_600)
    world.pass_ms(600_000)
    assert world.run("UPDATEJOB", id, "DELAY", delay) == b"OK"
    assert world.show(id)["delay"] == 600 + then_s
    world.pass_ms(then_s * 1_000 + 5_000)
    assert oldest_ms(world.n, world.n.queues[b"q"]) == 5_000
    assert world.get() == [id]
    assert world.n.book.total.wait_ms == 5_000
    world.run("FAIL", id, start(world, id), "DELAY", 50)
    assert world.run("UPDATEJOB", id, "DELAY", 70) == b"OK"
    assert world.show(id)["delay"] == 600 + then_s, "it was the first one"


def test_meta(world: World) -> None:
    """W11.1 Each job has, after its body, names and values: `attempt` (of the run that would
    begin), `of`, `retry-ms`, `time-limit-ms`, `added-ms`, `crashes` if there are any (W6.7), with
    WITHCOUNTERS the counters of V1.3, and `headers`, an array of names and values.
    """
    id = world.add(**TRIES)
    world.get()
    world.run("FAIL", id, start(world, id), "DELAY", 0)
    plain = world.add(RETRY=3)
    rows = world.run("GETJOB", "COUNT", 2, "WITHMETA", "WITHCOUNTERS", "FROM", "q")
    told = fields(rows[0][3:])
    assert rows[0][:3] == [b"q", id, b"body"]
    assert list(told)[:5] == ["attempt", "of", "retry-ms", "time-limit-ms", "added-ms"]
    assert (told["attempt"], told["of"], told["retry-ms"], told["headers"]) == (2, 2, 10_000, [])
    assert "nacks" in told and rows[1][1] == plain
    waiter = world.wire()
    assert waiter("GETJOB", "WITHMETA", "FROM", "later") is None
    world.add("later")
    assert len(waiter.take()[0]) == 15


def bury(world: World, reason: str, **options: int) -> bytes:
    """A dead letter in `q.dead`."""
    id = world.add("q", f"body of {reason}", ATTEMPTS=1, **options)
    world.get()
    world.run("FAIL", id, start(world, id), "REASON", reason, "DETAIL", "trace")
    return id


def test_dead_list(world: World) -> None:
    """W12.1 LIST replies the next cursor (0: the end) and rows of id, origin, task, attempts,
    cause, reason, first and last failure in ms, oldest first.

    W12.2 SHOW replies names and values of all that is known, with headers, body and detail.

    W12.3 STAT replies rows of cause, reason and count, the greatest first, at most 1000.
    """
    ids = [bury(world, f"reason {i % 3}") for i in range(10)]
    cursor, rows = world.run("DEAD", "LIST", "q.dead", 0, "COUNT", 4)
    found = [row[0] for row in rows]
    while cursor != b"0":
        cursor, rows = world.run("DEAD", "LIST", "q.dead", cursor, "COUNT", 4)
        found += [row[0] for row in rows]
    assert found == ids
    assert world.run("DEAD", "LIST", "q.dead", "REASON", "*2")[1][0][1:6] == [
        b"q",
        b"",
        1,
        b"failed",
        b"reason 2",
    ]
    assert len(world.run("DEAD", "LIST", "q.dead", "REASON", "*2", "CAUSE", "failed")[1]) == 3
    assert world.run("DEAD", "LIST", "q.dead", "CAUSE", "expired")[1] == []
    assert world.run("DEAD", "LIST", "q.dead", "SINCE", world.n.now_ms + 1)[1] == []
    told = fields(world.run("DEAD", "SHOW", ids[0]))
    assert (told["body"], told["detail"]) == (b"body of reason 0", b"trace")
    assert world.run("DEAD", "SHOW", world.add()) == "NOJOB Job is no dead letter here"
    assert world.run("DEAD", "STAT", "q.dead")[0] == [b"failed", b"reason 0", 4]
    assert world.run("DEAD", "LIST", "nothing") == [b"0", []]
    world.run("DEAD", "REPLAY", "q.dead", "IDS", *ids[-3:])
    cursor, rows = world.run("DEAD", "LIST", "q.dead", 0, "COUNT", 7)
    assert (cursor, len(rows)) == (b"0", 7), "letters that are gone are not waited for"
    for bad in (["LIST"], ["LIST", "q", "COUNT", 0], ["REPLAY", "q"], ["PURGE", "q", "COUNT", 3]):
        assert isinstance(world.run("DEAD", *bad), Err), bad


def test_the_list_ends_when_its_newest_letters_are_gone(world: World) -> None:
    """W12.6 The cursor is 0 if no later letter is left, also when later ones have gone since."""
    ids = [bury(world, f"{i}") for i in range(5)]
    cursor, rows = world.run("DEAD", "LIST", "q.dead", 0, "COUNT", 2)
    assert (cursor, len(rows)) == (b"2", 2)
    assert world.run("CANCEL", *ids[2:]) == [b"ended"] * 3
    assert world.run("DEAD", "LIST", "q.dead", cursor) == [b"0", []]
    cursor, rows = world.run("DEAD", "LIST", "q.dead")
    assert (cursor, [row[0] for row in rows]) == (b"0", ids[:2])
    later = bury(world, "later")
    cursor, rows = world.run("DEAD", "LIST", "q.dead", 2)
    assert (cursor, [row[0] for row in rows]) == (b"0", [later])
    world.run("DEAD", "PURGE", "q.dead", "IDS", later)
    assert world.run("DEAD", "REPLAY", "q.dead", "REASON", "0") == [b"0", 1, 2]
    world.run("DEBUG", "CHECK")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["CAUSE", "bad"],
            "ERR CAUSE must be failed, crashed, timeout, expired, unstarted or buried, not 'bad'",
        ),
        (["QUEUE", "", "ALL"], "ERR QUEUE must name a queue"),
        (["ALL", "IDS", "D-x"], "ERR ALL and IDS exclude each other"),
        (["CAUSE", "failed", "CAUSE", "expired"], "ERR syntax error: CAUSE is there twice"),
        (["ALL", "all"], "ERR syntax error: ALL is there twice"),
        (["ALL", "COUNT", "1", "count", "2"], "ERR syntax error: COUNT is there twice"),
    ],
)
def test_a_replay_that_means_nothing_is_refused(words: list[str], error: str, world: World) -> None:
    """
    W12.8 An empty `to`: `-ERR QUEUE must name a queue`. Both ALL and IDS: `-ERR ALL and IDS exclude
    each other`. An option or filter that is there twice: `-ERR syntax error: <word> is there
    twice`.
    """
    bury(world, "a")
    assert world.run("DEAD", "REPLAY", "q.dead", *words) == error
    assert world.run("DEAD", "STAT", "q.dead") == [[b"failed", b"a", 1]]


def test_replay(world: World) -> None:
    """W12.4 REPLAY queues the selected jobs in the queue they came from, or in `to`, as new:
    `failed` and `crashes` are 0 and the TTL begins anew. Id, headers and the count of STARTs stay.

    W12.4 `to` must not be a tube.
    """
    world.run("TUBE", "CREATE", "tube", "fifo")
    first, second = bury(world, "a", TTL=50), bury(world, "b")
    world.pass_ms(60_000)
    assert world.run("DEAD", "REPLAY", "q.dead", "REASON", "a") == [b"0", 1, 2]
    world.pass_ms(40_000)
    assert world.get() == [first]
    assert start(world, first).startswith(b"1.2.")
    assert world.run("DEAD", "REPLAY", "q.dead", "IDS", second, "x" * 40)  # an error: no id
    assert "is a tube" in world.run("DEAD", "REPLAY", "q.dead", "QUEUE", "tube", "ALL")
    assert world.run("DEAD", "STAT", "q.dead") == [[b"failed", b"b", 1]]
    assert world.run("DEAD", "REPLAY", "q.dead", "QUEUE", "other", "ALL") == [b"0", 1, 1]
    assert world.run("DEAD", "STAT", "q.dead") == []
    assert world.get("other") == [second]
    assert world.run("QLEN", "q.dead") == 0
    assert fields(world.run("RESULT", second))["cause"] == b""
    world.run("DEBUG", "CHECK")


def test_purge(world: World) -> None:
    """W12.5 PURGE deletes them. Both look at COUNT letters (1..1000, 1000) and reply the next
    cursor, how many were changed, and how many were seen.
    """
    ids = [bury(world, "a") for _ in range(1_008)]
    assert world.run("DEAD", "PURGE", "q.dead", "COUNT", 3, "ALL")[1:] == [3, 3]
    cursor, done, seen = world.run("DEAD", "PURGE", "q.dead", "ALL")
    assert (done, seen) == (1_000, 1_000) and cursor != b"0"
    assert world.run("DEAD", "PURGE", "q.dead", "ALL", "CURSOR", cursor) == [b"0", 5, 5]
    assert world.run("QLEN", "q.dead") == 0 and not world.n.life.letters
    assert str(world.run("RESULT", ids[0])).startswith("NOJOB")
    assert world.n.life.dead_bytes == 0 and world.n.life.bytes == 0
    world.run("DEBUG", "CHECK")


@pytest.mark.parametrize("type", ["fifottl", "limfifottl", "utubettl"])
def test_update_a_task(world: World, type: str) -> None:
    """T1.10 UPDATEJOB PRI changes the pri of a task, whatever its status and holder. The status
    stays, and a READY task has its new place at once.
    """
    world.run("TUBE", "CREATE", "t", type, "TTR", 50)
    ids = [world.add("t", PRI=5, UTUBE=at) if "utube" in type else world.add("t", PRI=5)
           for at in range(6)]  # fmt: skip
    late = world.add("t", PRI=9, DELAY=10)
    world.run("TUBE", "BURY", "t", 5)
    taken = world.run("TUBE", "TAKE", "t")[0]
    assert world.run("UPDATEJOB", ids[3], "PRI", 1) == b"OK"
    assert [world.show(ids[3])[name] for name in ("pri", "status")] == [1, b"READY"]
    for id, status in ((ids[taken], b"TAKEN"), (ids[5], b"BURIED"), (late, b"DELAYED")):
        assert world.run("UPDATEJOB", id, "PRI", 2) == b"OK"
        assert [world.show(id)[name] for name in ("pri", "status")] == [2, status]
    for pri in (7, 3, 7, 3, 7, 4):  # back and forth: to a place that it had before
        assert world.run("UPDATEJOB", ids[4], "PRI", pri) == b"OK"
    world.run("DEBUG", "CHECK")
    world.run("TUBE", "KICK", "t", 1)
    world.pass_ms(10_100)
    assert world.run("TUBE", "RELEASE", "t", taken)[1] == b"READY"
    assert [world.run("TUBE", "TAKE", "t")[0] for _ in range(7)] == [3, 0, 5, 6, 4, 1, 2]
    world.run("DEBUG", "CHECK")


def test_what_is_not_updated_of_a_task(world: World) -> None:
    """T1.10 A type without pri refuses it, and each type but `tasks` other options of UPDATEJOB.

    W10.2 PRI of a job in a plain queue: an error.
    """
    world.run("TUBE", "CREATE", "t", "fifottl")
    task, job = world.add("t"), world.add("q")
    for words in (("BODY", "x"), ("PRI", 1, "DELAY", 2), ("TTL", 5), ("HEADERS", 0)):
        assert "UPDATEJOB changes PRI of its tasks" in world.run("UPDATEJOB", task, *words)
    assert "PRI must be" in world.run("UPDATEJOB", task, "PRI", -1)
    assert world.show(task)["pri"] == 0
    assert "'q' is no tube" in world.run("UPDATEJOB", job, "PRI", 1)
    for type in ("fifo", "utube"):
        world.run("TUBE", "CREATE", type, type)
        assert "PRI" in world.run("UPDATEJOB", world.add(type), "PRI", 1)
    world.run("TUBE", "TAKE", "t")
    world.run("TUBE", "ACK", "t", 0)
    assert world.run("UPDATEJOB", task, "PRI", 1).startswith("NOJOB")


def test_a_put_that_waited_and_was_updated(world: World) -> None:
    """The reply of a waiting put tells of the task as it is, also if its pri changed since."""
    world.run("TUBE", "CREATE", "t", "limfifottl", "CAPACITY", 1)
    world.add("t")
    late = world.wire()
    assert late("TUBE", "PUT", "t", "late", "TIMEOUT", 9) is None
    client = world.run.c
    execute(world.server, client, [b"TUBE", b"DELETE", b"t", b"0"])  # and the turn goes on
    (done,) = tubes_of(world.n).put_done
    assert done.task is not None
    execute(world.server, client, [b"UPDATEJOB", done.task.id, b"PRI", b"3"])
    (done,) = tubes_of(world.n).put_done
    assert done.task is not None and (done.task.pri, chr(done.task.status)) == (3, "r")
    world.settle()
    assert late.take()[:2] == [1, b"READY"]
    world.run.take_all()


def test_two_ends_are_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """W14.15 A node that sees two outcomes of one job counts the job once
    (`outcomes_conflicting` of INFO), with one log line a second at most.
    """
    caplog.set_level("INFO", "tuque.server")

    def meet() -> None:
        id = world.add(KEEP=60)
        world.run("CANCEL", id)
        other = Outcome(id, DONE, world.n.now_ms + 60_000, world.n.now_ms)
        for _ in range(2):
            assert settle(world.n, world.n.life.kept[id], other) != STANDS
        run_housekeeping(world.server)

    for _ in range(3):
        meet()
    assert "outcomes_conflicting:3" in world.run("INFO", "jobs").decode()
    lines = [line for line in own_lines(caplog) if "ended in two ways" in line]
    assert len(lines) == 1 and lines[0].startswith("1 jobs ended in two ways at two nodes, last D-")
    world.pass_ms(1_100)
    meet()
    lines = [line for line in own_lines(caplog) if "ended in two ways" in line]
    assert len(lines) == 2 and lines[1].startswith("2 jobs ended in two ways")
    world.pass_ms(1_100)
    lines = [line for line in own_lines(caplog) if "ended in two ways" in line]
    assert len(lines) == 3 and lines[2].startswith("1 jobs ended in two ways")
    assert {r.levelname for r in own_records(caplog)} == {"INFO"}


def test_what_other_nodes_may_know_is_asked_before_it_is_gone(make_world: Make) -> None:
    """W15.1 The node asks all linked nodes, and its client waits. No job is `gone` (W9.2) before
    they have answered.
    """
    world = make_world(2)
    id = world.n.ids.make(60, 1)  # of this cluster, and not known here
    world.hold(1, 0)
    waiter = world.wire()
    assert world.run("RESULT", id) is None and waiter("WAITJOB", 0, id) is None
    assert [(a, b, m.id) for a, b, m in world.heard(JobAsk)] == [(0, 1, id)]
    world.pass_ms(500)
    assert world.run.take() is None and waiter.take() is None, "nobody has answered"
    world.release(1, 0)
    assert [(a, b, m.id, m.is_known) for a, b, m in world.heard(JobTold)] == [(1, 0, id, False)]
    assert str(world.run.take()).startswith("NOJOB")
    assert waiter.take() == [[id, b"gone"]]
