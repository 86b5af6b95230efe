"""The pools without a broker: every way a job can end, time limits, children that die."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec
import pytest

from tuque.errors import ConfigError
from tuque.worker.app.app import App, load_app
from tuque.worker.app.codec import Envelope
from tuque.worker.app.decisions import Outcome
from tuque.worker.app.options import Options, TaskOptions
from tuque.worker.main import URL_OPTION, arguments, environment, worker
from tuque.worker.pools import process_pool
from tuque.worker.pools.execute import Attempt, Call, instant
from tuque.worker.pools.pools import Pool, ThreadPool
from tuque.worker.pools.process_pool import ProcessPool
from until import until

import pool_tasks  # isort: skip  # the app under test; children import it by this name

HERE = str(Path(__file__).parent)
TARGET = "pool_tasks:app"
MakePool = Callable[[int], Pool]

MAKERS: dict[str, MakePool] = {
    "thread": lambda c: ThreadPool(pool_tasks.app.tasks, c, pool_tasks.app.aclose),
    "process": lambda c: ProcessPool(TARGET, HERE, None, c),
}


def call(name: str, *args: object, time_limit_s: float | None = None) -> Call:
    task = f"pool_tasks.{name}"
    attempt = Attempt("D-id", "q", task, 2, 5, 1, 0, instant(0.0))
    return Call(Envelope(task=task, args=list(args)), attempt, time_limit_s)


@asynccontextmanager
async def started(make: MakePool, concurrency: int = 2) -> AsyncIterator[Pool]:
    pool = make(concurrency)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.stop()


def ended_in(pool: Pool, call: Call) -> asyncio.Future[Outcome]:
    """What a run in that pool will have come to."""
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    pool.submit(call, done.set_result)
    return done


def run_calls(make: MakePool, *calls: Call) -> list[Outcome]:
    async def main() -> list[Outcome]:
        async with started(make, min(len(calls), 2)) as pool:
            return list(await asyncio.gather(*(ended_in(pool, one) for one in calls)))

    return asyncio.run(main())


RunCalls = Callable[..., list[Outcome]]


@pytest.fixture(scope="module")
def run_in() -> Iterator[RunCalls]:
    """Runs calls in a pool of that kind; the tests that leave their children whole share these."""
    shared: list[Pool] = []

    async def main(calls: tuple[Call, ...]) -> list[Outcome]:
        if not shared:
            shared.append(MAKERS["process"](2))
            await shared[0].start()
        return list(await asyncio.gather(*(ended_in(shared[0], one) for one in calls)))

    def run(kind: str, *calls: Call) -> list[Outcome]:
        return runner.run(main(calls)) if kind == "process" else run_calls(MAKERS[kind], *calls)

    with asyncio.Runner() as runner:
        yield run
        for pool in shared:
            runner.run(pool.stop())


def test_no_command_line_has_a_password() -> None:
    """U4.7 No process that a worker starts has the URL in its command line, which other users of
    the machine can read."""
    url = "tuque://bob:hidden@127.0.0.1:1"

    async def lines() -> list[bytes]:
        async with started(lambda c: ProcessPool(TARGET, HERE, url, c), 1) as pool:
            assert isinstance(pool, ProcessPool)
            outcome = await ended_in(pool, call("where"))
            assert outcome.text == url  # the child knows it
            return [Path(f"/proc/{one.pid}/cmdline").read_bytes() for one in pool._children]

    for line in asyncio.run(lines()):
        assert b"pool_tasks" in line and b"hidden" not in line
    with click.Context(worker) as context:
        context.params = {"app": TARGET, "url": url, "pool": "thread"}
        words, env = arguments(), environment()
    assert "--pool=thread" in words and "hidden" not in str(words)
    assert env[URL_OPTION] == url and URL_OPTION not in os.environ


@pytest.mark.parametrize("kind", MAKERS)
def test_every_way_a_job_can_end(run_in: RunCalls, kind: str) -> None:
    outcomes = run_in(
        kind,
        call("fine", 1),
        call("fine_async", 1),
        call("fails", "bad luck"),
        call("fails_async", "bad luck"),
        call("later", 3.5),
        call("rejects", "never"),
        call("exits"),
        call("fine"),
        call("fine", "text"),
        call("unprintable"),
    )
    shown = [(outcome.kind, outcome.text) for outcome in outcomes]
    assert shown == [
        ("done", ""),
        ("done", ""),
        ("failed", "ValueError: bad luck"),
        ("failed", "ValueError: bad luck"),
        ("retry", "later"),
        ("rejected", "never"),
        ("failed", "SystemExit: 3"),
        ("unfit", "bad arguments: missing a required argument: 'number'"),
        ("unfit", "bad arguments: argument number: Expected `int`, got `str`"),
        ("failed", "Unprintable: <no text: ZeroDivisionError>"),
    ]
    assert outcomes[4].delay_s == 3.5
    assert "raise ValueError" in outcomes[2].trace


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", ["sorts", "sorts_async"])
def test_a_task_sorts_its_exceptions(run_in: RunCalls, kind: str, name: str) -> None:
    """U2.26 With `retry_on` any other exception of a task is FAIL FINAL, as one in `give_up_on`
    is. With `retry_on=()` each one is. `retry_if` is asked about the rest, in the process of the
    run: False is FAIL FINAL, True is FAIL, and a number is FAIL with that DELAY. If it raises, or
    returns another thing, that is logged, and the run is FAIL.
    """
    words = ("key", "again"), ("os", "again"), ("value", "again"), ("value", "final")
    odd = ("value", "in 7"), ("value", "odd"), ("value", "raises")
    outcomes = run_in(kind, *(call(name, *one) for one in (*words, *odd)))
    assert [(one.kind, one.delay_s) for one in outcomes] == [
        ("rejected", None),
        ("rejected", None),
        ("failed", None),
        ("rejected", None),
        ("failed", 7.5),
        ("failed", None),
        ("failed", None),
    ]
    assert all("raise {" in one.trace for one in outcomes)


@pytest.mark.parametrize("kind", MAKERS)
def test_nothing_runs_again_with_an_empty_list(run_in: RunCalls, kind: str) -> None:
    """U2.26 as one in `give_up_on` is. With `retry_on=()` each one is."""
    (outcome,) = run_in(kind, call("never_again"))
    assert (outcome.kind, outcome.text) == ("rejected", "OSError: the disk is away")


@pytest.mark.parametrize("kind", MAKERS)
def test_what_another_task_of_the_loop_raised_is_a_failure(run_in: RunCalls, kind: str) -> None:
    """U2.2 any other exception, the end of the process and the time limit are FAIL"""
    (outcome,) = run_in(kind, call("awaits_what_was_cancelled"))
    assert (outcome.kind, outcome.text, outcome.is_told) == ("failed", "CancelledError:", True)
    assert "await other" in outcome.trace


@pytest.mark.parametrize("kind", MAKERS)
def test_a_counted_retry_is_a_failure(run_in: RunCalls, kind: str) -> None:
    """U2.2 `RetryLater` is RELEASE; with `counted=True` it is FAIL, with its delay as DELAY."""
    (outcome,) = run_in(kind, call("later_counted", 3.5))
    assert (outcome.kind, outcome.text, outcome.delay_s) == ("failed", "RetryLater: later", 3.5)


@pytest.mark.parametrize("kind", MAKERS)
def test_another_jobs_cancel_is_a_failure_of_this_one(run_in: RunCalls, kind: str) -> None:
    """U2.2 so is `tuque.errors.Cancelled` in a run that was not cancelled."""
    outcomes = run_in(kind, call("hears_of_a_cancel"), call("hears_of_a_cancel_async"))
    for outcome in outcomes:
        assert (outcome.kind, outcome.text) == ("failed", "Cancelled: CANCELLED Job was cancelled")
        assert "raise Cancelled" in outcome.trace


@pytest.mark.parametrize("kind", MAKERS)
def test_a_run_that_cannot_be_judged_has_failed(run_in: RunCalls, kind: str) -> None:
    """U2.17 If a class of its task raises while the end of the run is judged, the run has failed
    with that exception, and the thread or process of the worker continues.
    """
    odd = [call("fails_unjudged", "a"), call("fails_unjudged_async", "b")] * 2
    outcomes = run_in(kind, *odd, call("fine", 1))
    assert [(one.kind, one.text) for one in outcomes] == [
        *[("failed", "LookupError: no instance is known")] * 4,
        ("done", ""),
    ]
    assert "raise ValueError" in outcomes[0].trace


@pytest.mark.parametrize("kind", MAKERS)
def test_an_error_whose_text_cannot_be_written_is_the_tasks_error(
    run_in: RunCalls, kind: str
) -> None:
    outcomes = run_in(
        kind,
        call("odd_text", "fails"),
        call("odd_text", "rejects"),
        call("odd_text", "later"),
        call("unprintable_reject"),
        call("long_text", 1_000_000),
    )
    shown = [(outcome.kind, outcome.text) for outcome in outcomes[:4]]
    assert shown == [
        ("failed", "ValueError: half a \\ud83d pair"),
        ("rejected", "half a \\ud83d pair"),
        ("retry", "half a \\ud83d pair"),
        ("rejected", "<no text: ZeroDivisionError>"),
    ]
    for outcome in outcomes:
        (outcome.text + outcome.trace).encode()
    assert outcomes[4].kind == "failed"
    assert "characters left out" in outcomes[4].trace
    assert "raise ValueError" in outcomes[4].trace
    assert len(outcomes[4].trace) < 25_000


@pytest.mark.parametrize("delay_s", [-1.0, float("nan"), float("inf"), "soon"])
def test_a_delay_that_is_none_is_the_tasks_error(delay_s: object) -> None:
    (outcome,) = run_calls(MAKERS["thread"], call("later", delay_s))
    assert outcome.kind in ("failed", "unfit")  # a str is no argument of the task
    assert outcome.delay_s is None


def test_a_call_that_cannot_be_sent_takes_no_child() -> None:
    bad = call("fine", 1)
    bad.attempt = msgspec.structs.replace(bad.attempt, max_deliveries=2**64)

    async def main() -> list[Outcome]:
        async with asyncio.timeout(60), started(MAKERS["process"], 1) as pool:
            return [await ended_in(pool, bad), await ended_in(pool, call("fine", 1))]

    first, second = asyncio.run(main())
    assert first.kind == "crashed" and first.text.startswith("OverflowError")
    assert second == Outcome("done")


@pytest.mark.parametrize("kind", MAKERS)
def test_a_task_sees_its_job(run_in: RunCalls, kind: str, tmp_path: Path) -> None:
    out = tmp_path / "seen"
    assert run_in(kind, call("sees_its_job", str(out)))[0].kind == "done"
    assert out.read_text() == "D-id q 2 of 5, 1 nacks"


def test_coroutine_tasks_share_a_loop(run_in: RunCalls) -> None:
    """U13.3 All coroutine tasks of a process run on one event loop, whatever the pool, each in a
    context of its own.
    """
    assert {one.text for one in run_in("thread", *[call("on_its_loop")] * 4)} == {"loop 1, fresh"}
    with_child = run_calls(lambda c: ProcessPool(TARGET, HERE, None, 1), *[call("on_its_loop")] * 3)
    assert {one.text for one in with_child} == {"loop 1, fresh"}


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_job_over_its_time_limit_is_ended(kind: str) -> None:
    began = time.monotonic()
    ended, fine = run_calls(
        MAKERS[kind], call("sleeps_async", 60, time_limit_s=0.2), call("fine", 1)
    )
    assert (ended.kind, ended.text) == ("timeout", "ran longer than its time limit of 0.2 s")
    assert fine.kind == "done"
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("value", "error"), [(float("nan"), "no nan"), ("x" * 4096, "at most 4096"), (..., "ellipsis")]
)
def test_progress_that_cannot_be_written_is_an_error(value: object, error: str) -> None:
    """U2.9"""
    with pytest.raises((ValueError, TypeError), match=error):
        call("fine").attempt.progress(value)


def test_a_timeout_of_the_task_itself_is_its_own_failure() -> None:
    (outcome,) = run_calls(MAKERS["thread"], call("times_out", time_limit_s=60))
    assert (outcome.kind, outcome.text) == ("failed", "TimeoutError: mine")


def test_a_thread_over_its_time_limit_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> Outcome:
        pool_tasks.gate.clear()
        async with started(MAKERS["thread"]) as pool:
            running = ended_in(pool, call("waits_for_gate", time_limit_s=0.05))
            async with asyncio.timeout(60):
                while "a thread cannot be ended" not in caplog.text:
                    await asyncio.sleep(0.01)
            pool_tasks.gate.set()
            return await running

    assert asyncio.run(main()).kind == "timeout"


@pytest.mark.parametrize(
    ("name", "arguments", "is_reported"),
    [
        ("sleeps_async", [60], False),
        ("blocks_its_loop", [], True),
        ("swallows_its_cancel", [], True),
    ],
)
def test_a_coroutine_in_a_thread_is_reported_only_if_it_does_not_end(
    name: str, arguments: list[object], is_reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """U2.10 if it has not ended 1 s later, that is logged."""

    async def main() -> Outcome:
        pool_tasks.gate.clear()
        async with started(MAKERS["thread"]) as pool:
            running = ended_in(pool, call(name, *arguments, time_limit_s=0.05))
            async with asyncio.timeout(60):
                while is_reported and "goes on after it was cancelled" not in caplog.text:
                    await asyncio.sleep(0.01)
            pool_tasks.gate.set()
            return await running

    asyncio.run(main())
    assert ("goes on after it was cancelled" in caplog.text) == is_reported
    assert "a thread cannot be ended" not in caplog.text


def test_a_task_that_blocks_does_not_block_the_worker() -> None:
    async def main() -> None:
        pool_tasks.gate.clear()
        async with started(MAKERS["thread"]) as pool:
            running = ended_in(pool, call("blocks_its_loop"))
            await asyncio.wait_for(asyncio.to_thread(pool_tasks.blocked.wait), 60)
            assert not running.done()  # and this loop still turns
            pool_tasks.gate.set()
            assert (await running).kind == "done"

    asyncio.run(main())


def test_stop_reports_threads_left_behind() -> None:
    async def main() -> bool:
        pool_tasks.gate.clear()
        pool = MAKERS["thread"](1)
        await pool.start()
        running = ended_in(pool, call("waits_for_gate"))
        await asyncio.sleep(0)
        is_clean = await pool.stop()
        pool_tasks.gate.set()
        await running
        return is_clean

    assert asyncio.run(main()) is False


def test_what_ends_in_one_turn_is_passed_on_together(caplog: pytest.LogCaptureFixture) -> None:
    """The worker fills free places once; an error where one end is taken holds back no other."""
    seen: list[str] = []

    def failing(outcome: Outcome) -> None:
        seen.append(outcome.kind)
        raise ValueError("the worker's own")

    async def main() -> None:
        async with started(MAKERS["thread"], 3) as pool:
            pool.on_ready = lambda: seen.append("ready")
            for on_end in (failing, lambda one: seen.append(one.kind), failing):
                pool.submit(call("fine", 1), on_end)
            until(lambda: len(pool._threads._ended) == 3)  # the loop does not turn meanwhile
            async with asyncio.timeout(60):
                while seen.count("done") < 3:
                    await asyncio.sleep(0.01)
            assert await ended_in(pool, call("fine", 1)) == Outcome("done")

    asyncio.run(main())
    assert seen == ["done", "ready", "done", "done", "ready", "ready"]
    assert caplog.text.count("ValueError: the worker's own") == 2


def test_no_end_is_missed() -> None:
    """Threads tell the loop once a turn, and none waits for the next one to end."""

    async def main() -> None:
        async with asyncio.timeout(60), started(MAKERS["thread"], 4) as pool:
            for _ in range(500):
                await asyncio.gather(*(ended_in(pool, call("fine", 1)) for _ in range(3)))

    asyncio.run(main())


def test_stop_cancels_coroutines() -> None:
    async def main() -> None:
        pool = MAKERS["thread"](1)
        await pool.start()
        running = ended_in(pool, call("sleeps_async", 60))
        await asyncio.sleep(0)
        assert await pool.stop() is True
        assert (await running).text == "the task was cancelled"

    asyncio.run(main())
    assert not [t for t in threading.enumerate() if t.name == "task-loop"]


ENDS = [
    "exit of a task", "interrupt of a task", "exit of a callback", "exit of a later callback",
    "gather", "handler",
]  # fmt: skip


@pytest.mark.parametrize("how", ENDS)
def test_a_job_that_ends_the_loop_has_crashed_alone(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """U13.6 A coroutine task whose background task or callback ends the event loop, by `sys.exit`
    or KeyboardInterrupt, has ended its process: its run is `crashed`. With `thread` and `async` the
    loop continues, and no other job loses anything.
    """

    async def main() -> list[Outcome]:
        pool_tasks.gate.clear()
        async with asyncio.timeout(60), started(MAKERS["thread"], 4) as pool:
            other = ended_in(pool, call("waits_async"))
            ended = await ended_in(pool, call("ends_its_loop", how))
            later = await ended_in(pool, call("on_its_loop"))
            pool_tasks.gate.set()
            return [ended, await other, later, await ended_in(pool, call("fine_async", 1))]

    raised = "KeyboardInterrupt" if how.startswith("interrupt") else "SystemExit"
    ended, *others = asyncio.run(main())
    assert (ended.kind, ended.text) == ("crashed", f"it ended its event loop: {raised}: 2")
    assert [one.kind for one in others] == ["done", "rejected", "done"]
    assert "was ended by job D-id (pool_tasks.ends_its_loop)" in caplog.text
    assert not [t for t in threading.enumerate() if t.name == "task-loop"]


def test_a_loop_that_is_stopped_continues(caplog: pytest.LogCaptureFixture) -> None:
    """U13.6 `loop.stop()` ends no run."""

    async def main() -> list[str]:
        async with asyncio.timeout(60), started(MAKERS["thread"]) as pool:
            calls = call("stops_its_loop"), call("fine_async", 1)
            return [(await ended_in(pool, one)).kind for one in calls]

    assert asyncio.run(main()) == ["done", "done"]
    assert "was ended by a task: loop.stop()" in caplog.text


def test_what_a_job_left_behind_ends_no_other_job(caplog: pytest.LogCaptureFixture) -> None:
    async def main(kind: str) -> list[str]:
        async with asyncio.timeout(60), started(MAKERS[kind], 1) as pool:
            calls = call("exits_after_its_end"), call("sleeps_async", 0.2), call("fine_async", 1)
            return [(await ended_in(pool, one)).kind for one in calls]

    assert asyncio.run(main("thread")) == ["done"] * 3
    assert "was ended by job D-id (pool_tasks.exits_after_its_end)" in caplog.text
    assert asyncio.run(main("process")) == ["done"] * 3


def test_a_loop_that_is_broken_is_replaced() -> None:
    """U13.6 A loop that cannot continue is replaced, and all runs on it are `crashed`."""

    async def main() -> list[Outcome]:
        pool_tasks.gate.clear()
        async with asyncio.timeout(60), started(MAKERS["thread"], 4) as pool:
            other = ended_in(pool, call("waits_async"))
            await asyncio.sleep(0)
            ended = await ended_in(pool, call("ends_its_loop", "broken"))
            return [ended, await other, await ended_in(pool, call("fine_async", 1))]

    assert [one.kind for one in asyncio.run(main())] == ["crashed", "crashed", "done"]
    gc.collect()  # ends the coroutines of the broken loop here, and not in the imports of others


def test_a_job_that_ends_the_loop_of_its_process_ends_the_process() -> None:
    async def main() -> list[str]:
        async with asyncio.timeout(60), started(MAKERS["process"], 1) as pool:
            hows = "exit of a task", "exit of a callback"
            calls = [call("ends_its_loop", how) for how in hows] + [call("stops_its_loop")]
            ended = [await ended_in(pool, one) for one in calls]
            return [f"{one.kind} {one.text}" for one in ended]

    crashed = "crashed its process left with exit code 2"
    assert asyncio.run(main()) == [crashed, crashed, "done "]


class TestChildren:
    def test_a_killed_child_costs_its_job_one_attempt_and_is_replaced(self) -> None:
        async def main() -> None:
            async with started(MAKERS["process"], 1) as pool:
                assert isinstance(pool, ProcessPool)
                (pid,) = pool.pids
                assert pool.places == 1
                again = asyncio.Event()
                pool.on_ready = again.set
                running = ended_in(pool, call("sleeps", 60))
                await asyncio.sleep(0)
                os.kill(pid, signal.SIGKILL)
                outcome = await running
                again.clear()
                assert pool.places == 0
                await asyncio.wait_for(again.wait(), 60)
                assert pool.places == 1
                assert (outcome.kind, outcome.text) == (
                    "crashed",
                    "its process was ended by SIGKILL",
                )
                assert (await asyncio.wait_for(ended_in(pool, call("fine", 1)), 60)).kind == "done"
                assert pool.pids != [pid]

        asyncio.run(main())

    def test_a_task_that_ends_its_process_is_a_crash(self) -> None:
        (outcome,) = run_calls(MAKERS["process"], call("leaves_hard", 7))
        assert (outcome.kind, outcome.text) == (
            "crashed",
            "its process left with exit code 7",
        )

    def test_signals_of_the_terminal_do_not_reach_children(self) -> None:
        async def main() -> None:
            async with started(MAKERS["process"], 1) as pool:
                assert isinstance(pool, ProcessPool)
                (pid,) = pool.pids
                os.kill(pid, signal.SIGINT)
                os.kill(pid, signal.SIGTERM)
                assert (await ended_in(pool, call("fine", 1))).kind == "done"
                assert pool.pids == [pid]

        asyncio.run(main())

    def test_children_end_with_the_pool(self) -> None:
        async def main() -> list[int]:
            async with started(MAKERS["process"]) as pool:
                assert isinstance(pool, ProcessPool)
                return pool.pids

        for pid in asyncio.run(main()):
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    def test_an_app_that_children_cannot_load_is_an_error_at_the_start(self) -> None:
        async def main() -> None:
            await ProcessPool("pool_tasks:nothing", HERE, None, 1).start()

        with pytest.raises(ConfigError, match=r"could not load the app: .*'nothing'"):
            asyncio.run(main())


def test_the_app_is_the_one_children_load() -> None:
    assert load_app(TARGET, HERE) is pool_tasks.app


async def cancelled_once_begun(
    pool: Pool, name: str, out: Path, is_late: bool, grace_s: float = 30.0
) -> Outcome:
    """What a run comes to that is cancelled, or comes to its time limit, after it has begun."""
    made = call(name, str(out), time_limit_s=1.0 if is_late else None)
    made.cancel_grace_s = grace_s
    running = ended_in(pool, made)
    while not (out.exists() and out.read_text()):
        await asyncio.sleep(0.01)
    if not is_late:
        made.control.cancel("CANCELLED user left")
    return await running


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("name", ["cleans_up", "cleans_up_async"])
def test_a_cancelled_task_cleans_up_in_a_process(tmp_path: Path, name: str, is_late: bool) -> None:
    """U2.21 In `--pool process` a run that is cancelled or over its time limit is warned first:
    a coroutine is cancelled, and in a plain function `tuque.errors.Cancelled` is raised, or its
    subclass TimeLimit, so that its `finally` runs. The process continues with other jobs.
    """
    out, pid = tmp_path / "out", tmp_path / "pid"
    error = "TimeLimit" if is_late else "Cancelled"

    async def main() -> Outcome:
        async with started(MAKERS["process"], 1) as pool:
            assert isinstance(pool, ProcessPool)
            before = pool.pids
            outcome = await cancelled_once_begun(pool, name, out, is_late)
            assert (await ended_in(pool, call("tells_its_process", str(pid)))).kind == "done"
            assert before == pool.pids == [int(pid.read_text())]
            return outcome

    outcome = asyncio.run(main())
    assert outcome.kind == ("timeout" if is_late else "cancelled")
    assert out.read_text() == ("cleaned up" if name.endswith("async") else f"cleaned up: {error}")


@pytest.mark.parametrize("is_late", [False, True])
def test_a_task_that_resists_is_killed(tmp_path: Path, is_late: bool) -> None:
    """U2.21 A process whose task has not ended `cancel_grace_s` (5) later is killed."""
    assert Call(Envelope(task="t"), call("fine").attempt).cancel_grace_s == 5

    async def main() -> Outcome:
        async with started(MAKERS["process"], 1) as pool:
            began_s = time.monotonic()
            outcome = await cancelled_once_begun(pool, "resists", tmp_path / "out", is_late, 0.3)
            assert time.monotonic() - began_s > 0.3
            assert (await ended_in(pool, call("fine", 1))).kind == "done"
            return outcome

    outcome = asyncio.run(main())
    assert outcome.kind == ("timeout" if is_late else "cancelled")


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("heeds", [True, False])
def test_a_task_is_warned_at_its_soft_limit(run_in: RunCalls, kind: str, heeds: bool) -> None:
    """U2.27 At `soft_limit_s` a task is warned once and may end well: in `--pool process` TimeLimit
    is raised in a plain function, in a thread `check()` raises it, and a coroutine is cancelled.
    If it does not catch that, the run is a `timeout`.
    """
    calls = [call(name, heeds) for name in ("asks", "is_warned_async")]
    if kind == "process":
        calls.append(call("is_warned", heeds))
    for one in calls:
        one.soft_limit_s = 0.1
    text = "ran longer than its soft limit of 0.1 s"
    for outcome in run_in(kind, *calls):
        assert outcome.kind == ("done" if heeds else "timeout")
        assert text in (str(outcome.result) if heeds else outcome.text)


def test_a_child_that_ended_idle_costs_no_run() -> None:
    async def main() -> Outcome:
        pool = MAKERS["process"](1)
        await pool.start()
        assert isinstance(pool, ProcessPool)
        (pid,) = pool.pids
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            return await ended_in(pool, call("fine", 1))
        finally:
            await pool.stop()

    assert asyncio.run(main()).kind == "done"


def test_a_run_without_a_child_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the lifespans of others fail: no run waits for a process for ever."""
    monkeypatch.setattr(process_pool, "NO_CHILD_S", 0.05)

    async def main() -> list[Outcome]:
        pool = MAKERS["process"](1)
        await pool.start()
        first = ended_in(pool, call("sleeps_async", 0.5))
        await asyncio.sleep(0)
        try:
            return [await ended_in(pool, call("fine", 1)), await first]
        finally:
            await pool.stop()

    late, first = asyncio.run(main())
    assert (late.kind, late.text) == ("retry", "no process is ready to run it")
    assert first.kind == "done"


def test_limits_that_are_none() -> None:
    """U1.14 An unknown option is a TypeError where it is written; it names those that there are."""
    for options, words in (
        (TaskOptions(soft_limit_s=60, time_limit_s=60), "soft_limit_s 60 is not less than time_li"),
        (TaskOptions(soft_limit_s=0), "soft_limit_s is more than 0 seconds, not 0"),
        (TaskOptions(cancel_grace_s=-1), "cancel_grace_s is 0 seconds or more, not -1"),
    ):
        with pytest.raises(ValueError, match=words):
            App().task(name="t", **options)(pool_tasks.fine.function)
    with pytest.raises(TypeError, match="cancel_grace_s is a number of seconds, not None"):
        Options(cancel_grace_s=None)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError, match="soft_limit_s is an option of the task"):
        pool_tasks.fine.options(soft_limit_s=3)
    with pytest.raises(TypeError, match="no task option soft_limit; there are .*soft_limit_s"):
        App().task(name="t", soft_limit=3)  # type: ignore[call-overload]  # the mistake under test
