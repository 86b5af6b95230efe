"""SPEC W: outcomes, CANCEL, RESULT, WAITJOB, UPDATEJOB, WITHMETA, DEAD."""

from __future__ import annotations

import pytest
from node_by_hand import NULL, Box, Err
from test_w_work import TRIES, fields, start, state

from own_log import own_lines, own_records
from tuque.core.dispatch.messages import on_link_up, on_message
from tuque.core.model.work import DONE, Outcome
from tuque.core.msgs import JobAsk, JobTold
from tuque.core.node.peers import slot_for
from tuque.core.queues.merge_work import STANDS, settle
from tuque.server.loop.housekeeping import keep_house
from tuque.server.observe.queue_walk import oldest_ms
from tuque.tubes.policy import tubes_of


def test_done(box: Box) -> None:
    """W7.1 The job ends as ACKJOB would end it, whichever run says so, `-` too; so does a task of a
    tube. The reply is how many ended at this node now
    """
    box.run("TUBE", "CREATE", "tube", "fifo")
    task = box.add("tube")
    box.get("tube")
    assert "is a tube" in box.run("CANCEL", task)
    assert box.run("DONE", task, "-") == 1 and box.state(task) == "gone"
    ids = [box.add(**TRIES) for _ in range(4)]
    box.get(count=4)
    runs = [start(box, id) for id in ids[:2]]
    box.pass_ms(10_100)  # both silent
    assert box.run("DONE", ids[0], runs[0], ids[1], runs[1], ids[2], "-", ids[2], "-") == 3
    assert [state(box, ids[3])] == ["waiting"]
    assert box.run("DONE", ids[3], "-") == 1
    assert box.kinds(ids[0])[-1] == "acked"
    assert box.run("DONE", ids[0], "-", ids[1]).startswith("ERR syntax error: DONE")
    box.run("DEBUG", "CHECK")


def test_outcomes_are_kept(box: Box) -> None:
    """W7.2 The outcome is kept for KEEP seconds: kind, run, worker, progress, result, reason.
    ACKJOB and FASTACK keep the outcome `done` without a result, DEADLETTER the outcome `dead` with
    its reason. The first outcome stands.
    """
    full, acked, fast = (box.add(KEEP=60) for _ in range(3))
    box.get(count=3)
    run = start(box, full)
    box.run("PROGRESS", full, run, "all")
    assert box.run("DONE", full, run, "RESULT", "42") == 1
    assert box.run("DONE", full, run, "RESULT", "43") == 0
    box.run("ACKJOB", acked)
    box.run("FASTACK", fast)
    for _ in range(2):
        told = fields(box.run("RESULT", full))
        assert (told["state"], told["result"], told["worker"]) == (b"done", b"42", b"w1")
        assert (told["progress"], told["attempt"]) == (b"all", 1)
    assert state(box, acked) == state(box, fast) == "done"
    assert fields(box.run("RESULT", acked))["result"] is None
    lettered = box.add("l", KEEP=60)
    box.get("l")
    box.run("DEADLETTER", lettered, "graves", "REASON", "bad")
    told = fields(box.run("RESULT", lettered))
    assert (told["state"], told["reason"]) == (b"dead", b"bad")
    box.pass_ms(61_000)
    assert str(box.run("RESULT", full)).startswith("NOJOB")
    assert box.n.life.kept_bytes == 0


def test_result_for_those_who_wait(box: Box) -> None:
    """W7.3 With KEEP 0 only those who wait at that moment get the result."""
    id = box.add()
    box.get()
    waiter = box.session()
    assert waiter("RESULT", id, "WAIT", 0) is None
    assert box.run("DONE", id, start(box, id), "RESULT", "42") == 1
    assert fields(waiter.take())["result"] == b"42"
    box.pass_ms(10)
    assert str(box.run("RESULT", id)).startswith("NOJOB")


def test_bound_of_outcomes(box: Box) -> None:
    """W7.4 Above `results-max-bytes` the oldest outcomes are dropped and counted."""
    box.run("CONFIG", "SET", "results-max-bytes", 10_000)
    ids = [box.add(KEEP=600) for _ in range(20)]
    box.get(count=20)
    for id in ids:
        box.run("DONE", id, "-", "RESULT", "x" * 1_000)
        assert box.n.life.kept_bytes <= 10_000
    left = [id for id in ids if not isinstance(box.run("RESULT", id), Err)]
    assert left == ids[-len(left) :] and 5 <= len(left) <= 9
    assert box.n.life.kept_dropped == 20 - len(left)


def test_cancel(box: Box) -> None:
    """W8.1 Nobody has the job: it ends with the outcome `cancelled`. So does a leased job.

    W8.4 The reply is for each id `ended`, `flagged`, `over` (it had ended), null (unknown)
    or `-NOREACH` (W15.5).
    """
    waiting, delayed, resting = box.add(KEEP=60), box.add(DELAY=9), box.add("r", **TRIES)
    dead, out = box.add("d", ATTEMPTS=1), box.add("o")
    for queue in ("r", "d", "o"):
        box.get(queue)
    for id in (resting, dead):
        box.run("FAIL", id, start(box, id))
    assert box.run("CANCEL", waiting, delayed, resting, dead) == [b"ended"] * 4
    unknown = waiting[:11] + b"x" * 23 + waiting[34:]
    assert box.run("CANCEL", "REASON", "why", out, waiting, unknown) == [b"flagged", b"over", None]
    assert state(box, waiting) == "cancelled"
    assert box.run("GETJOB", "NOHANG", "FROM", "q", "d.dead", "r") is NULL
    epoch = box.run("LEASE", "OPEN", "g", "me", "l")
    leased = box.add("l", KEEP=60)
    assert box.run("LEASE", "NEXT", "g", epoch, 1, "COUNT", 1, "TTL", 5000) == 1
    assert box.run("CANCEL", leased) == [b"ended"]
    box.run("DEBUG", "CHECK")


def test_end_of_a_flagged_job(box: Box) -> None:
    """W8.3 A flagged job ends as cancelled at START (of another worker only if nobody is at work),
    RELEASE, NACK, FAIL, or when its RETRY is over. DONE still makes it done: the result is true.
    """
    ids = [box.add(KEEP=600, **TRIES) for _ in range(6)]
    box.get(count=6)
    begun, released, nacked, failed, silent, done = ids
    runs = {id: start(box, id) for id in (released, nacked, failed, silent, done)}
    box.run("CANCEL", "REASON", "enough", *ids)
    box.run("CANCEL", *ids)  # the first reason stays
    assert str(box.run("WORKING", begun)).startswith("CANCELLED")
    assert str(box.run("START", "WORKER", "w2", done)[0]).startswith("ATWORK")
    assert box.run("START", begun) == ["CANCELLED Job was cancelled: enough"]
    assert box.run("RELEASE", released, runs[released]) == 1
    assert box.run("NACK", nacked) == 1
    assert box.run("FAIL", failed, runs[failed]) == [b"cancelled", None]
    assert box.run("DONE", done, runs[done], "RESULT", "yes") == 1
    box.pass_ms(10_100)
    assert [state(box, id) for id in ids] == ["cancelled"] * 5 + ["done"]
    told = fields(box.run("RESULT", silent))
    assert (told["reason"], told["attempt"], told["worker"]) == (b"enough", 1, b"w1")
    box.run("DEBUG", "CHECK")


def test_result_of_each_phase(box: Box) -> None:
    """W9.1 With WAIT the reply comes when the job has ended or is dead, or at the timeout with the
    state of that moment; 0: no timeout. Unknown: `-NOJOB`.
    """
    id = box.add(DELAY=1, **TRIES)
    phases = [state(box, id)]
    box.pass_ms(1_100)
    phases.append(state(box, id))
    box.get()
    phases.append(state(box, id))
    run = start(box, id)
    waiter = box.session()
    assert waiter("RESULT", id, "WAIT", 500) is None
    box.pass_ms(600)
    assert fields(waiter.take())["state"] == b"running"
    box.run("FAIL", id, run, "DELAY", 1, "REASON", "no")
    phases.append(state(box, id))
    assert waiter("RESULT", id, "WAIT", 0) is None
    box.pass_ms(1_100)
    box.get()
    box.run("FAIL", id, start(box, id), "REASON", "never")
    told = fields(waiter.take())
    assert (told["state"], told["cause"], told["reason"]) == (b"dead", b"failed", b"never")
    assert phases == ["scheduled", "waiting", "delivered", "back-off"]


def test_waitjob(box: Box) -> None:
    """W9.2 WAITJOB replies when all jobs, or COUNT of them, have ended or are dead: an array of
    `[id, outcome]` of these. An id that is not known counts as `gone`.

    W9.3 At the timeout the reply has what has ended by then. 0: no timeout.
    """
    ids = [box.add() for _ in range(3)]
    some, all_of, late, gone = (box.session() for _ in range(4))
    assert some("WAITJOB", 0, *ids, "COUNT", 2) is None
    assert all_of("WAITJOB", 0, *ids) is None
    assert late("WAITJOB", 1_000, *ids) is None
    box.run("ACKJOB", ids[1])
    assert some.take() is None
    box.pass_ms(1_100)
    assert late.take() == [[ids[1], b"done"]]
    box.run("CANCEL", ids[2])
    assert [row[0] for row in some.take()] == ids[1:]
    box.run("ACKJOB", ids[0])
    assert len(all_of.take()) == 3
    box.pass_ms(2_000)
    assert gone("WAITJOB", 0, ids[0]) == [[ids[0], b"gone"]]
    assert not box.n.life.watches and not box.n.life.watchers
    assert isinstance(box.run("WAITJOB", 0, ids[0], ids[1], "COUNT", 3), Err)


def test_updatejob(box: Box) -> None:
    """W10.1 Changes a job that is scheduled, waiting or in a back-off. DELAY counts from now; 0
    queues it. TTL counts from now, in whole seconds; 0: it never expires. The reply is OK.

    W10.2 Delivered or at work: `-ATWORK`. Dead: `-DEAD`. ATTEMPTS not above those that failed, or
    PRI of a job in a plain queue: an error. Errors change nothing.
    """
    id = box.add(DELAY=100, TTL=200)
    assert box.run("UPDATEJOB", id, "DELAY", 0, "BODY", "new", "TTL", 0, "ATTEMPTS", 2) == "OK"
    box.run("UPDATEJOB", id, "HEADERS", 1, "tenant", "x")
    box.pass_ms(300_000)
    (job,) = box.run("GETJOB", "WITHMETA", "FROM", "q")
    assert job[2] == b"new"
    assert (fields(job[3:])["of"], fields(job[3:])["headers"]) == (2, [b"tenant", b"x"])
    assert str(box.run("UPDATEJOB", id, "BODY", "late")).startswith("ATWORK")
    run = start(box, id)
    assert str(box.run("UPDATEJOB", id, "BODY", "late")).startswith("ATWORK")
    box.run("FAIL", id, run, "DELAY", 50)
    assert box.run("UPDATEJOB", id, "DELAY", 1) == "OK"
    few = box.run("UPDATEJOB", id, "ATTEMPTS", 1)
    assert few == "ERR ATTEMPTS must be above the 1 that failed already"
    box.pass_ms(1_100)
    assert box.get() == [id]
    box.run("FAIL", id, start(box, id))
    assert str(box.run("UPDATEJOB", id, "BODY", "late")).startswith("DEAD")
    assert fields(box.run("DEAD", "SHOW", id))["body"] == b"new"
    queued = box.add("u")
    entered = box.n.queues[b"u"].jobs_in
    assert box.run("UPDATEJOB", queued, "DELAY", 0) == "OK"
    assert (box.run("QLEN", "u"), box.n.queues[b"u"].jobs_in) == (1, entered), "it stays"
    assert box.run("UPDATEJOB", queued, "DELAY", 5) == "OK"
    assert box.run("QLEN", "u") == 0
    box.run("DEBUG", "CHECK")


@pytest.mark.parametrize(("delay", "then_s"), [(0, 0), (100, 100), ("0.5", 1)])
def test_figures_go_by_the_new_delay(box: Box, delay: int | str, then_s: int) -> None:
    """W10.4 DELAY of a job that nobody got also changes the delay that SHOW and O3.3 go by, which
    counts from the creation: it ends with the new one.
    """
    id = box.add(DELAY=3_600)
    box.pass_ms(600_000)
    assert box.run("UPDATEJOB", id, "DELAY", delay) == "OK"
    assert box.show(id)["delay"] == 600 + then_s
    box.pass_ms(then_s * 1_000 + 5_000)
    assert oldest_ms(box.n, box.n.queues[b"q"]) == 5_000
    assert box.get() == [id]
    assert box.n.book.total.wait_ms == 5_000
    box.run("FAIL", id, start(box, id), "DELAY", 50)
    assert box.run("UPDATEJOB", id, "DELAY", 70) == "OK"
    assert box.show(id)["delay"] == 600 + then_s, "it was the first one"


def test_meta(box: Box) -> None:
    """W11.1 Each job has, after its body, names and values: `attempt` (of the run that would
    begin), `of`, `retry-ms`, `time-limit-ms`, `added-ms`, with WITHCOUNTERS the counters of V1.3,
    and `headers`, an array of names and values.
    """
    id = box.add(**TRIES)
    box.get()
    box.run("FAIL", id, start(box, id), "DELAY", 0)
    plain = box.add(RETRY=3)
    rows = box.run("GETJOB", "COUNT", 2, "WITHMETA", "WITHCOUNTERS", "FROM", "q")
    told = fields(rows[0][3:])
    assert rows[0][:3] == [b"q", id, b"body"]
    assert list(told)[:5] == ["attempt", "of", "retry-ms", "time-limit-ms", "added-ms"]
    assert (told["attempt"], told["of"], told["retry-ms"], told["headers"]) == (2, 2, 10_000, [])
    assert "nacks" in told and rows[1][1] == plain
    waiter = box.session()
    assert waiter("GETJOB", "WITHMETA", "FROM", "later") is None
    box.add("later")
    assert len(waiter.take()[0]) == 15


def bury(box: Box, reason: str, **options: int) -> bytes:
    """A dead letter in `q.dead`."""
    id = box.add("q", f"body of {reason}", ATTEMPTS=1, **options)
    box.get()
    box.run("FAIL", id, start(box, id), "REASON", reason, "DETAIL", "trace")
    return id


def test_dead_list(box: Box) -> None:
    """W12.1 LIST replies the next cursor (0: the end) and rows of id, origin, task, attempts,
    cause, reason, first and last failure in ms, oldest first.

    W12.2 SHOW replies names and values of all that is known, with headers, body and detail.

    W12.3 STAT replies rows of cause, reason and count, the greatest first, at most 1000.
    """
    ids = [bury(box, f"reason {i % 3}") for i in range(10)]
    cursor, rows = box.run("DEAD", "LIST", "q.dead", 0, "COUNT", 4)
    found = [row[0] for row in rows]
    while cursor != b"0":
        cursor, rows = box.run("DEAD", "LIST", "q.dead", cursor, "COUNT", 4)
        found += [row[0] for row in rows]
    assert found == ids
    assert box.run("DEAD", "LIST", "q.dead", "REASON", "*2")[1][0][1:6] == [
        b"q",
        b"",
        1,
        b"failed",
        b"reason 2",
    ]
    assert len(box.run("DEAD", "LIST", "q.dead", "REASON", "*2", "CAUSE", "failed")[1]) == 3
    assert box.run("DEAD", "LIST", "q.dead", "CAUSE", "expired")[1] == []
    assert box.run("DEAD", "LIST", "q.dead", "SINCE", box.n.now_ms + 1)[1] == []
    told = fields(box.run("DEAD", "SHOW", ids[0]))
    assert (told["body"], told["detail"]) == (b"body of reason 0", b"trace")
    assert box.run("DEAD", "SHOW", box.add()) == "NOJOB Job is no dead letter here"
    assert box.run("DEAD", "STAT", "q.dead")[0] == [b"failed", b"reason 0", 4]
    assert box.run("DEAD", "LIST", "nothing") == [b"0", []]
    box.run("DEAD", "REPLAY", "q.dead", "IDS", *ids[-3:])
    cursor, rows = box.run("DEAD", "LIST", "q.dead", 0, "COUNT", 7)
    assert (cursor, len(rows)) == (b"0", 7), "letters that are gone are not waited for"
    for bad in (["LIST"], ["LIST", "q", "COUNT", 0], ["REPLAY", "q"], ["PURGE", "q", "COUNT", 3]):
        assert isinstance(box.run("DEAD", *bad), Err), bad


def test_the_list_ends_when_its_newest_letters_are_gone(box: Box) -> None:
    """W12.6 The cursor is 0 if no later letter is left, also when later ones have gone since."""
    ids = [bury(box, f"{i}") for i in range(5)]
    cursor, rows = box.run("DEAD", "LIST", "q.dead", 0, "COUNT", 2)
    assert (cursor, len(rows)) == (b"2", 2)
    assert box.run("CANCEL", *ids[2:]) == [b"ended"] * 3
    assert box.run("DEAD", "LIST", "q.dead", cursor) == [b"0", []]
    cursor, rows = box.run("DEAD", "LIST", "q.dead")
    assert (cursor, [row[0] for row in rows]) == (b"0", ids[:2])
    later = bury(box, "later")
    cursor, rows = box.run("DEAD", "LIST", "q.dead", 2)
    assert (cursor, [row[0] for row in rows]) == (b"0", [later])
    box.run("DEAD", "PURGE", "q.dead", "IDS", later)
    assert box.run("DEAD", "REPLAY", "q.dead", "REASON", "0") == [b"0", 1, 2]
    box.run("DEBUG", "CHECK")


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
def test_a_replay_that_means_nothing_is_refused(words: list[str], error: str, box: Box) -> None:
    """
    W12.8 An empty `to`: `-ERR QUEUE must name a queue`. Both ALL and IDS: `-ERR ALL and IDS exclude
    each other`. An option or filter that is there twice: `-ERR syntax error: <word> is there
    twice`.
    """
    bury(box, "a")
    assert box.run("DEAD", "REPLAY", "q.dead", *words) == error
    assert box.run("DEAD", "STAT", "q.dead") == [[b"failed", b"a", 1]]


def test_replay(box: Box) -> None:
    """W12.4 REPLAY queues the selected jobs in the queue they came from, or in `to`, as new:
    `failed` is 0 and the TTL begins anew. Id, headers and the count of STARTs stay.

    W12.4 `to` must not be a tube.
    """
    box.run("TUBE", "CREATE", "tube", "fifo")
    first, second = bury(box, "a", TTL=50), bury(box, "b")
    box.pass_ms(60_000)
    assert box.run("DEAD", "REPLAY", "q.dead", "REASON", "a") == [b"0", 1, 2]
    box.pass_ms(40_000)
    assert box.get() == [first]
    assert start(box, first).startswith(b"1.2.")
    assert box.run("DEAD", "REPLAY", "q.dead", "IDS", second, "x" * 40)  # an error: no id
    assert "is a tube" in box.run("DEAD", "REPLAY", "q.dead", "QUEUE", "tube", "ALL")
    assert box.run("DEAD", "STAT", "q.dead") == [[b"failed", b"b", 1]]
    assert box.run("DEAD", "REPLAY", "q.dead", "QUEUE", "other", "ALL") == [b"0", 1, 1]
    assert box.run("DEAD", "STAT", "q.dead") == []
    assert box.get("other") == [second]
    assert box.run("QLEN", "q.dead") == 0
    assert fields(box.run("RESULT", second))["cause"] == b""
    box.run("DEBUG", "CHECK")


def test_purge(box: Box) -> None:
    """W12.5 PURGE deletes them. Both look at COUNT letters (1..1000, 1000) and reply the next
    cursor, how many were changed, and how many were seen.
    """
    ids = [bury(box, "a") for _ in range(1_008)]
    assert box.run("DEAD", "PURGE", "q.dead", "COUNT", 3, "ALL")[1:] == [3, 3]
    cursor, done, seen = box.run("DEAD", "PURGE", "q.dead", "ALL")
    assert (done, seen) == (1_000, 1_000) and cursor != b"0"
    assert box.run("DEAD", "PURGE", "q.dead", "ALL", "CURSOR", cursor) == [b"0", 5, 5]
    assert box.run("QLEN", "q.dead") == 0 and not box.n.life.letters
    assert str(box.run("RESULT", ids[0])).startswith("NOJOB")
    assert box.n.life.dead_bytes == 0 and box.n.life.bytes == 0
    box.run("DEBUG", "CHECK")


@pytest.mark.parametrize("type", ["fifottl", "limfifottl", "utubettl"])
def test_update_a_task(box: Box, type: str) -> None:
    """T1.10 UPDATEJOB PRI changes the pri of a task, whatever its status and holder. The status
    stays, and a READY task has its new place at once.
    """
    box.run("TUBE", "CREATE", "t", type, "TTR", 50)
    ids = [box.add("t", PRI=5, UTUBE=at) if "utube" in type else box.add("t", PRI=5)
           for at in range(6)]  # fmt: skip
    late = box.add("t", PRI=9, DELAY=10)
    box.run("TUBE", "BURY", "t", 5)
    taken = box.run("TUBE", "TAKE", "t")[0]
    assert box.run("UPDATEJOB", ids[3], "PRI", 1) == "OK"
    assert [box.show(ids[3])[name] for name in ("pri", "status")] == [1, b"READY"]
    for id, status in ((ids[taken], b"TAKEN"), (ids[5], b"BURIED"), (late, b"DELAYED")):
        assert box.run("UPDATEJOB", id, "PRI", 2) == "OK"
        assert [box.show(id)[name] for name in ("pri", "status")] == [2, status]
    for pri in (7, 3, 7, 3, 7, 4):  # back and forth: to a place that it had before
        assert box.run("UPDATEJOB", ids[4], "PRI", pri) == "OK"
    box.run("DEBUG", "CHECK")
    box.run("TUBE", "KICK", "t", 1)
    box.pass_ms(10_100)
    assert box.run("TUBE", "RELEASE", "t", taken)[1] == b"READY"
    assert [box.run("TUBE", "TAKE", "t")[0] for _ in range(7)] == [3, 0, 5, 6, 4, 1, 2]
    box.run("DEBUG", "CHECK")


def test_what_is_not_updated_of_a_task(box: Box) -> None:
    """T1.10 Other options of UPDATEJOB, and a type without pri, are refused.

    W10.2 PRI of a job in a plain queue: an error.
    """
    box.run("TUBE", "CREATE", "t", "fifottl")
    task, job = box.add("t"), box.add("q")
    for words in (("BODY", "x"), ("PRI", 1, "DELAY", 2), ("TTL", 5), ("HEADERS", 0)):
        assert "UPDATEJOB changes PRI of its tasks" in box.run("UPDATEJOB", task, *words)
    assert "PRI must be" in box.run("UPDATEJOB", task, "PRI", -1)
    assert box.show(task)["pri"] == 0
    assert "'q' is no tube" in box.run("UPDATEJOB", job, "PRI", 1)
    for type in ("fifo", "utube"):
        box.run("TUBE", "CREATE", type, type)
        assert "PRI" in box.run("UPDATEJOB", box.add(type), "PRI", 1)
    box.run("TUBE", "TAKE", "t")
    box.run("TUBE", "ACK", "t", 0)
    assert box.run("UPDATEJOB", task, "PRI", 1).startswith("NOJOB")


def test_a_put_that_waited_and_was_updated(box: Box) -> None:
    """The reply of a waiting put tells of the task as it is, also if its pri changed since."""
    box.run("TUBE", "CREATE", "t", "limfifottl", "CAPACITY", 1)
    box.add("t")
    late = box.session()
    assert late("TUBE", "PUT", "t", "late", "TIMEOUT", 9) is None
    box.run("TUBE", "DELETE", "t", 0)
    (done,) = tubes_of(box.n).put_done
    assert done.task is not None
    box.run("UPDATEJOB", done.task.id, "PRI", 3)
    (done,) = tubes_of(box.n).put_done
    assert done.task is not None and (done.task.pri, chr(done.task.status)) == (3, "r")


def test_two_ends_are_logged(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """W14.15 A node that sees two outcomes of one job counts the job once (`outcomes_conflicting`
    of INFO), and the log has one line a second about them at most.
    """
    caplog.set_level("INFO", "tuque.server")

    def meet() -> None:
        id = box.add(KEEP=60)
        box.run("CANCEL", id)
        other = Outcome(id, DONE, box.n.now_ms + 60_000, box.n.now_ms)
        for _ in range(2):
            assert settle(box.n, box.n.life.kept[id], other) != STANDS
        keep_house(box.server)

    for _ in range(3):
        meet()
    assert "outcomes_conflicting:3" in box.run("INFO", "jobs").decode()
    lines = [line for line in own_lines(caplog) if "ended in two ways" in line]
    assert len(lines) == 1 and lines[0].startswith("1 jobs ended in two ways at two nodes, last D-")
    box.pass_ms(1_000)
    meet()
    assert "3 jobs ended in two ways" in own_lines(caplog)[-1]
    assert {r.levelname for r in own_records(caplog)} == {"INFO"}


def test_what_other_nodes_may_know_is_asked_before_it_is_gone(box: Box) -> None:
    """W15.1 The node asks all linked nodes, and its client waits. No job is `gone` (W9.2) before
    they have answered.
    """
    n = box.n
    slot = slot_for(n, b"b" * 40)
    on_link_up(n, slot, True)
    id = n.ids.make(60, 1)  # of this cluster, and not known here
    waiter = box.session()
    assert box.run("RESULT", id) is None and waiter("WAITJOB", 0, id) is None
    assert [m.id for m in n.peers[slot].outbox if isinstance(m, JobAsk)] == [id]
    box.pass_ms(500)
    assert box.run.take() is None and waiter.take() is None, "nobody has answered"
    on_message(n, slot, JobTold(id, False, 0, False))
    box.turn()
    assert str(box.run.take()).startswith("NOJOB")
    assert waiter.take() == [[id, b"gone"]]
