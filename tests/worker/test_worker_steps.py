"""Chains step by step, in one thread: what is added twice, cancelled, killed or replayed (U11)."""

from __future__ import annotations

import asyncio
from typing import Unpack

import pytest

from tuque.client.commands.work import Result
from tuque.errors import (
    JobCancelled,
    JobFailed,
    NoJobGroup,
    NoResult,
    NoTube,
    ResultTimeout,
)
from tuque.testing import TestApp, job
from tuque.worker import (
    App,
    Backoff,
    ChainHandle,
    Failed,
    Fair,
    Limit,
    Rate,
    Task,
    TaskOptions,
    Unique,
    chain,
    group,
)
from tuque.worker.workflow.chain_steps import DEAD_STARTS, judged, later

app = App("tuque://127.0.0.1:1")
ran: list[str] = []
at_end: list[ChainHandle[str]] = []  # cancelled when the next step has been added, before DONE
answers: list[str] = []


@app.task(queue="first", attempts=1, retry_s=10)
def first(number: int) -> int:
    ran.append(f"first {number}")
    if number < 0 and ran.count(f"first {number}") == 1:
        raise ValueError("not yet")
    return number + 1


@app.task(
    queue="second",
    limit=Limit(1, "number"),
    rate=Rate("1000/s", burst=100),
    group=Fair("number"),
    retry_s=10,
    backoff=Backoff(1, 1),
)
def second(number: int) -> int:
    ran.append(f"second {number}")
    return number * 2


@app.task(queue="third")
async def third(number: int) -> str:
    ran.append(f"third {number}")
    return f"<{number}>"


@app.task(queue="last", unique=Unique("text"))
def last(text: str) -> str:
    ran.append(f"last {text}")
    return f"={text}"


@app.task(queue="sums")
def add_up(numbers: list[int]) -> int:
    ran.append(f"sum {numbers}")
    return sum(numbers)


@app.task(queue="sums", dead="sums.given.up", attempts=1)
def gives_up(numbers: list[int]) -> int:
    raise ValueError("it gives up")


@app.task(queue="sums")
def count(numbers: list[int | Failed]) -> int:
    return len([one for one in numbers if isinstance(one, Failed)])


@app.on_success
def cancels(done: object, result: object) -> None:
    while at_end:
        answers.append(at_end.pop().cancel("enough"))


@pytest.fixture(autouse=True)
def clean() -> None:
    for noted in (ran, answers, at_end):
        noted.clear()


def rest(tuque_app: TestApp, seconds: float = 0) -> None:
    """Time passes, and all that can run has run."""
    tuque_app.advance(seconds)
    tuque_app.run_until_idle()


def made() -> ChainHandle[str]:
    return chain(first.call(1), second, third).enqueue()


def test_steps_may_have_policies(tuque_app: TestApp) -> None:
    """U11.3 So of the jobs that a step adds, which runs twice, one begins, in queues and tubes"""
    handle = made()
    assert (handle.progress().step, handle.progress().of) == (1, 3)
    tuque_app.run_one()
    shown = handle.progress()
    assert (shown.step, shown.task, shown.state) == (2, second.name, "waiting")
    rest(tuque_app)
    assert handle.result(1) == "<4>" and ran == ["first 1", "second 2", "third 4"]
    assert (handle.progress().step, handle.progress().state) == (3, "done")

    async def on_a_loop() -> None:
        other = await chain(second.call(1), first).then(third).then(last).enqueue_async()
        assert (await other.progress_async()).state == "waiting"
        tuque_app.run_until_idle()
        assert await other == "=<3>"
        assert await other.result_async(1) == "=<3>"
        assert await other.cancel_async() == "over"

    asyncio.run(on_a_loop())


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("at", ["start", "end"])
def test_a_worker_is_killed_in_a_step(tuque_app: TestApp, step: int, at: str) -> None:
    """U11.3 The next one, a job with the header `tuque-after`, begins only once the step before is
    done and its outcome names this job. So of the jobs that a step adds, which runs twice, one
    begins, in queues and tubes, over failovers. A worker that has another one cancels it.
    """
    handle = chain(second.call(1), second, third).enqueue()
    for _ in range(step):
        tuque_app.run_one()
    tuque_app.kill_worker(at)
    for _ in range(8):
        rest(tuque_app, 15)
    assert handle.result(1) == "<4>"
    wanted = ["second 1", "second 2", "third 4"]
    if at == "end":
        wanted.insert(step, wanted[step])
    assert ran == wanted
    states = [one.state for one in tuque_app.jobs()]
    assert states.count("done") == 3
    assert states.count("cancelled") == int(at == "end" and step < 2)


def test_a_step_waits_for_the_one_before(tuque_app: TestApp) -> None:
    """U11.3 While the step before is open, or its outcome at an unreachable node, the next one
    is put off: RELEASE DELAY 0.25, 0.5, .. 60 s.
    """
    handle = chain(second.call(1), third).enqueue()
    tuque_app.kill_worker()
    rest(tuque_app)
    (added,) = tuque_app.jobs(third)
    assert ran == ["second 1"] and added.state == "back-off" and 0 < (added.due_s or 0) <= 0.25
    rest(tuque_app, 0.3)
    (added,) = tuque_app.jobs(third)
    assert 0.25 < (added.due_s or 0) <= 0.5 and added.attempt <= 1
    assert handle.progress().step == 1
    for _ in range(4):
        rest(tuque_app, 15)
    other, named = tuque_app.jobs(third)
    assert (other.state, named.state, ran.count("third 2")) == ("cancelled", "done", 1)
    assert handle.result(1) == "<2>"


def test_cancel_when_the_next_step_has_been_added(tuque_app: TestApp) -> None:
    """U11.5 No step begins after the reply: one that is done although it was flagged has the reason
    of the CANCEL in its outcome (W8.3), and then no step follows.
    """
    for begin in (first, second):
        handle = chain(begin.call(1), third).enqueue()
        at_end.append(handle)
        rest(tuque_app)
        assert answers == ["flagged"]
        assert not any(one.startswith("third") for one in ran)
        assert tuque_app.jobs(third)[-1].state == "cancelled"
        with pytest.raises(JobCancelled, match=r"in step 1, .*: enough"):
            handle.result(1)
        assert handle.cancel() == "over"
        assert handle.progress().step == 1
        answers.clear()


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_cancel_of_the_step_that_waits(tuque_app: TestApp, steps: int) -> None:
    """U11.5 `cancel` cancels the step that is waiting or at work, a group as in U10.4."""
    handle = made()
    for _ in range(steps):
        tuque_app.run_one()
    if steps == 3:
        assert handle.cancel() == "over" and handle.result(1) == "<4>"
        return
    assert handle.cancel() == "ended"
    rest(tuque_app, 60)
    assert len(ran) == steps
    with pytest.raises(JobCancelled, match="the chain was cancelled"):
        handle.result(1)


def test_cancel_while_a_dead_run_has_added_the_next(tuque_app: TestApp) -> None:
    """U11.5 No step begins after the reply"""
    handle = chain(second.call(1), third).enqueue()
    tuque_app.kill_worker()
    tuque_app.run_one()
    assert handle.cancel("enough") == "flagged"
    for _ in range(8):
        rest(tuque_app, 15)
    assert ran == ["second 1"]
    assert [one.state for one in tuque_app.jobs()] == ["cancelled", "cancelled"]
    with pytest.raises(JobCancelled, match="enough"):
        handle.result(1)


def test_a_step_that_is_dead_is_replayed(tuque_app: TestApp) -> None:
    """U11.4 A step that is dead ends the chain; once it is replayed and done, the chain
    continues.
    """
    handle = chain(first.call(-1), second, third).enqueue()
    rest(tuque_app)
    with pytest.raises(JobFailed, match="not yet"):
        handle.result(1)
    assert handle.progress().state == "dead"
    app.dead.replay("first.dead")
    rest(tuque_app)
    assert handle.result(1) == "<0>"


def test_a_step_that_is_dead_left_a_next_one(tuque_app: TestApp) -> None:
    """U11.3 So it is while the step before is dead, ten times; then it is cancelled, and a replay
    of the step before adds another one.
    """
    tuque_app.client.config_set("crashes-max", "1")
    handle = chain(first.call(1), third).enqueue()
    tuque_app.kill_worker()
    rest(tuque_app)
    rest(tuque_app, 11)  # silent: its worker was lost
    assert handle.progress().state == "dead"
    for _ in range(20):
        rest(tuque_app, 30)
    assert [one.state for one in tuque_app.jobs(third)] == ["cancelled"]
    app.dead.replay("first.dead")
    rest(tuque_app)
    assert handle.result(1) == "<2>" and ran.count("third 2") == 1


def test_a_result_that_is_not_kept(tuque_app: TestApp) -> None:
    """U11.3 If nothing is kept of the step before, the next one begins."""
    handle = chain(first.call(1), third).enqueue()
    tuque_app.run_one()
    tuque_app.advance(86_500)
    rest(tuque_app)
    assert ran == ["first 1", "third 2"]
    with pytest.raises(NoResult):
        handle.result(1)
    assert handle.progress().state == "gone" and handle.cancel() == "over"


def test_only_the_last_step_is_unique(tuque_app: TestApp) -> None:
    """U11.1 Only the last step may be `unique`."""
    handles = [chain(third.call(1), last).enqueue() for _ in range(2)]
    rest(tuque_app)
    assert [handle.result(1) for handle in handles] == ["=<1>", "=<1>"]
    assert ran == ["third 1", "third 1", "last <1>"]
    with pytest.raises(TypeError, match="only the last step of a chain can be unique"):
        chain(last.call("1"), last)
    with pytest.raises(TypeError, match="has a utube"):
        chain(first.options(utube="u").call(1), third)


def test_a_later_step_that_no_queue_takes(tuque_app: TestApp) -> None:
    """U11.1 So is a later step for tubes, with a `pri` above 9 or a policy, that has `retry_s=0` or
    a `replicate` above 1, which no tube takes (T1.2). A later step with such a `pri` whose queue is
    no tube is NoTube at `enqueue`, unless the queue is that of a task with a policy or of a
    callback.
    """
    other = App()

    def shows(text: str) -> str:
        return text

    def task(name: str, **options: Unpack[TaskOptions]) -> Task[[str], str]:
        return other.task(name=name, **options)(shows)

    with pytest.raises(TypeError, match="once has pri=10, which is for tubes, .* takes retry_s=0"):
        chain(third.call(1), task("once", pri=10, retry_s=0))
    with pytest.raises(TypeError, match="twice has pri=10, .* no tube takes replicate=2"):
        chain(third.call(1), task("twice", pri=10, replicate=2))
    with pytest.raises(TypeError, match="few has limit, which is for tubes"):
        group(task("few", limit=Limit(1), retry_s=0))
    urgent, plain = task("urgent", queue="urgent", pri=10), task("plain", queue="plain")

    async def enqueued() -> None:
        try:
            await chain(third.call(1), plain, urgent).enqueue_async()
        finally:
            await other.aclose()
            await app.aclose()

    words = "the step urgent has pri=10, and its queue 'urgent' is no tube"
    with pytest.raises(NoTube, match=words):
        chain(third.call(1), plain, urgent).enqueue()
    with pytest.raises(NoTube, match=words):
        asyncio.run(enqueued())
    with pytest.raises(NoTube, match=words):
        chain(third.call(1), group(plain, urgent)).enqueue()
    assert tuque_app.jobs(third) == []
    tuque_app.client.tube("urgent").create("tasks")
    chain(third.call(1), plain, urgent).enqueue()
    task("slow", queue="shared", limit=Limit(1))
    chain(third.call(1), task("soon", queue="shared", pri=11)).enqueue()
    chain(third.call(1), task("first", queue="plain", pri=0)).enqueue()
    assert len(tuque_app.jobs(third)) == 3


def test_a_group_is_the_first_step(tuque_app: TestApp) -> None:
    """U11.6 The first one is a group of calls, and the next step is its callback then"""
    calls = [first.call(n) for n in range(4)]
    one = group(calls).then(add_up).then(second).then(third).enqueue()
    other = chain(group(calls), add_up, second, third).enqueue()
    shown = one.progress()
    assert (shown.step, shown.of, shown.task, shown.state) == (1, 4, "group", "open")
    assert shown.group is not None and shown.group.children == 4
    with pytest.raises(ResultTimeout):
        one.result(0)
    for _ in range(4):
        rest(tuque_app, 2)
    assert one.result(1) == other.result(1) == "<20>"
    assert ran.count("sum [1, 2, 3, 4]") == 2
    assert (one.progress().step, one.progress().state) == (4, "done")


def test_a_group_that_fails_is_a_chain_that_fails(tuque_app: TestApp) -> None:
    """U11.6 If a group fails, the chain has failed."""
    handle = chain(group([first.call(-1), first.call(1)]), add_up, second).enqueue()
    for _ in range(4):
        rest(tuque_app, 2)
    with pytest.raises(JobFailed, match="child 0 of group"):
        handle.result(1)
    assert handle.progress().state == "failed" and handle.cancel() == "over"
    assert not any(one.startswith("sum") for one in ran)
    goes_on = group([first.call(-5), first.call(1)], on_fail="continue").then(count)
    last_one = goes_on.then(second).enqueue()
    for _ in range(4):
        rest(tuque_app, 2)
    assert last_one.result(1) == 2


def test_cancel_of_a_chain_that_begins_with_a_group(tuque_app: TestApp) -> None:
    """U10.4 `cancel` cancels the children that are open, and the callback: after the reply no
    child at a reachable node begins.
    """
    handle = chain(group(first.call(n) for n in range(600)), add_up, second).enqueue()
    tuque_app.run_one()
    assert handle.cancel() == "ended"
    for _ in range(4):
        rest(tuque_app, 2)
    assert ran == ["first 0"]
    with pytest.raises(JobCancelled):
        handle.result(1)
    assert handle.cancel() == "over"


def test_the_callback_is_the_step_that_is_cancelled(tuque_app: TestApp) -> None:
    """U11.5 `cancel` cancels the step that is waiting or at work, a group as in U10.4."""
    handle = chain(group([first.call(1)]), add_up, second).enqueue()
    tuque_app.run_one()
    tuque_app.advance(1)
    assert handle.progress().task == add_up.name
    assert handle.cancel() == "ended"
    rest(tuque_app, 2)
    assert ran == ["first 1"]
    with pytest.raises(JobCancelled):
        handle.result(1)


def test_the_result_of_a_callback(tuque_app: TestApp) -> None:
    """U10.5 `result` of a group with a callback waits for the callback, and returns what that
    returned.
    """
    handle = group([first.call(1), first.call(2)]).then(add_up).enqueue()
    for _ in range(2):
        rest(tuque_app, 2)
    assert handle.result(1) == 5
    failed = group([first.call(-1)]).then(add_up).enqueue()
    for _ in range(2):
        rest(tuque_app, 2)
    with pytest.raises(JobFailed, match="child 0"):
        failed.result(1)

    async def on_a_loop() -> None:
        made = await group([first.call(7)]).then(add_up).enqueue_async()
        plain = await group([first.call(7)]).enqueue_async()
        for _ in range(2):
            rest(tuque_app, 2)
        assert await made == await made.result_async(1) == 8
        assert await plain == [8]
        assert not await made.cancel_async()

    asyncio.run(on_a_loop())


def test_progress_when_the_callback_is_over(tuque_app: TestApp) -> None:
    """U10.4 Once the callback is over, `progress` is its outcome, while that is kept: `done`,
    `cancelled`, or `failed` of one that is dead. All children count as done then. If nothing is
    kept it raises NoJobGroup.
    """
    kept = ((add_up, 600), (gives_up, 600), (add_up, 600), (add_up, 60), (gives_up, 60))
    made = [
        group([first.call(1), first.call(2)], keep_s=keep_s).then(step).enqueue()
        for step, keep_s in kept
    ]
    while made[2].progress().state == "open":
        tuque_app.run_one()
        tuque_app.advance(2)
    assert made[2].callback.cancel() == "ended"
    for _ in range(4):
        rest(tuque_app, 2)
    ends = ("done", "failed", "cancelled", "done", "failed")
    for handle, state in zip(made, ends, strict=True):
        shown = handle.progress()
        assert (shown.id, shown.queue, shown.state) == (handle.id, handle.queue, state)
        assert (shown.children, shown.added, shown.done, shown.failed) == (2, 2, 2, 0)
        assert shown.over_ms > 0 and shown.has_callback
    rest(tuque_app, 100)

    async def on_a_loop() -> None:
        assert (await made[1].progress_async()).state == "failed"
        with pytest.raises(NoJobGroup):
            await made[4].progress_async()

    asyncio.run(on_a_loop())
    assert made[0].progress().state == "done"
    with pytest.raises(NoJobGroup):
        made[3].progress()


def test_children_may_have_policies(tuque_app: TestApp) -> None:
    """U10.1 The callback has a queue of its own: no child is a job of it, unless its task has a
    policy (U1.8).
    """
    handle = group(second.call(n) for n in range(5)).then(add_up).enqueue()
    for _ in range(2):
        rest(tuque_app, 2)
    assert handle.result(1) == 20


def test_a_step_that_may_run_once(tuque_app: TestApp) -> None:
    """U11.3 One with RETRY 0 begins at once."""

    @app.task(queue="once", retry_s=0)
    def once(number: int) -> str:
        ran.append(f"once {number}")
        return f"!{number}"

    handle = chain(first.call(1), once).enqueue()
    rest(tuque_app)
    assert handle.result(1) == "!2"
    second_one = chain(first.call(5), once).enqueue()
    tuque_app.kill_worker()
    rest(tuque_app)
    assert ran[-1] == "once 6"  # although the step before is not done
    assert second_one.progress().step == 1


def test_a_step_is_judged_by_the_one_before() -> None:
    """U11.3 While the step before is open, or its outcome at an unreachable node, the next one
    is put off
    """
    with job(headers={"tuque-after": "D-1"}) as this:
        this.starts = DEAD_STARTS
        dead = Result("dead", 1, 1, "", b"", None, "", "", b"", 1)
        ended = judged(this, dead, None)
        assert ended is not None and (ended.kind, ended.text) == (
            "cancelled",
            "the step before is dead",
        )
        assert later(this, "").delay_s == 60
        odd = Result("done", 1, 1, "", b"", b"{", "", "", b"", 1)
        refused = judged(this, odd, None)
        assert refused is not None and refused.kind == "rejected"
