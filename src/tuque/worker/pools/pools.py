"""Where jobs run: plain functions in threads of this process, coroutines on one loop beside them.

A pool takes calls one by one and returns an `Outcome` for each; it enforces time limits. Tasks
never run on the worker's own loop, so that a blocking task delays no heartbeat. Child processes
are in process_pool.py.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from tuque.logtext import facts
from tuque.worker.app.decisions import Outcome
from tuque.worker.app.task import Task
from tuque.worker.pools.execute import (
    Call,
    await_call,
    describe,
    is_whole,
    log_end_of_loop,
    over_limit_text,
    run_call,
)
from tuque.worker.pools.processes import FORKS

log: Final = logging.getLogger("tuque.worker")

Tasks = dict[str, Task[..., Any]]

CANCEL_S: Final = 1.0  # a coroutine has this long to end after its limit (U2.10)


class Pool(Protocol):
    """The worker's view of a pool. `run` is called for at most `places` jobs at a time."""

    on_ready: Callable[[], None]  # there are more places

    @property
    def places(self) -> int:
        """How many jobs can run at a time now."""

    async def start(self) -> None:
        """Makes the pool ready, or raises."""

    async def run(self, call: Call) -> Outcome:
        """Runs one job to its end, whatever the result."""

    async def stop(self) -> bool:
        """Ends running jobs if possible; False if threads are left behind."""


class Threads:
    """Threads for plain functions. Python cannot stop one: a job over its limit is reported."""

    def __init__(self, tasks: Tasks, concurrency: int) -> None:
        self._tasks = tasks
        self._concurrency = concurrency
        self._calls: queue.SimpleQueue[tuple[Call, asyncio.Future[Outcome]] | None] = (
            queue.SimpleQueue()
        )
        self._threads: list[threading.Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._busy = 0
        self.on_ready: Callable[[], None] = lambda: None

    @property
    def places(self) -> int:
        return self._concurrency

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number in range(self._concurrency):
            # daemons: an endless one must not keep the process alive
            thread = threading.Thread(target=self._work, name=f"task-{number + 1}", daemon=True)
            thread.start()
            self._threads.append(thread)

    async def run(self, call: Call) -> Outcome:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Outcome] = loop.create_future()
        alarm: asyncio.TimerHandle | None = None
        if call.time_limit_s is not None:
            alarm = loop.call_later(call.time_limit_s, _report_long_run, call)
        self._busy += 1
        done.add_done_callback(self._on_done)
        self._calls.put((call, done))
        try:
            return await asyncio.shield(done)
        finally:
            if alarm is not None:
                alarm.cancel()

    def _on_done(self, _: asyncio.Future[Outcome]) -> None:
        self._busy -= 1

    async def stop(self) -> bool:
        for _ in self._threads:
            self._calls.put(None)
        return self._busy == 0

    def _work(self) -> None:
        """The main function of a thread; it passes outcomes to the loop that asked."""
        assert self._loop is not None
        while (item := self._calls.get()) is not None:
            call, done = item
            outcome = run_call(self._tasks[call.envelope.task], call)
            try:
                self._loop.call_soon_threadsafe(_resolve, done, outcome)
            except RuntimeError:
                return  # the loop is closed: the worker has ended without this job


class ThreadPool:
    """[U13] Coroutines on one loop in a thread of its own, plain functions in others (U13.3).

    `at_end` is awaited on that loop when the pool stops: it closes what belongs to the loop.
    """

    def __init__(
        self, tasks: Tasks, concurrency: int, at_end: Callable[[], Awaitable[None]]
    ) -> None:
        self._tasks = tasks
        self._at_end = at_end
        self._threads = Threads(tasks, concurrency)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._spin, name="task-loop", daemon=True)
        self._running: dict[concurrent.futures.Future[Outcome], Call] = {}
        self._crashed: dict[concurrent.futures.Future[Outcome], Outcome] = {}
        self._broken: list[asyncio.AbstractEventLoop] = []
        self._lock = threading.Lock()  # a call belongs to a loop before that can end
        self._over = threading.Event()
        self.on_ready: Callable[[], None] = lambda: None

    @property
    def places(self) -> int:
        return self._threads.places

    async def start(self) -> None:
        await self._threads.start()
        FORKS.leave_loop(self._loop)
        self._thread.start()

    async def run(self, call: Call) -> Outcome:
        task = self._tasks[call.envelope.task]
        if not task.is_async:
            return await self._threads.run(call)
        with self._lock:
            running = asyncio.run_coroutine_threadsafe(await_call(task, call), self._loop)
            self._running[running] = call
        alarm: asyncio.TimerHandle | None = None
        if call.time_limit_s is not None:
            late_s = call.time_limit_s + CANCEL_S
            alarm = asyncio.get_running_loop().call_later(late_s, _report_long_coroutine, call)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if running not in self._crashed:
                raise
            return self._crashed.pop(running)
        finally:
            del self._running[running]
            if alarm is not None:
                alarm.cancel()

    async def stop(self) -> bool:
        idle = await self._threads.stop()
        for running in list(self._running):
            running.cancel()
        closing = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        try:
            await asyncio.wait_for(asyncio.wrap_future(closing), timeout=1.0)
        except TimeoutError:
            return False  # a task blocks the loop, or resists cancellation
        self._over.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        return idle

    async def _end(self) -> None:
        """Cancels all other tasks of the pool's loop and waits for them."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._at_end()

    def _spin(self) -> None:
        """[U13] Runs the loop as long as the pool lives, whatever tasks do to it (U13.6)."""
        while not self._over.is_set():
            asyncio.set_event_loop(self._loop)
            ended: BaseException | None = None
            try:
                self._loop.run_forever()
            except BaseException as err:
                ended = err
            if not self._over.is_set() or ended is not None:
                self._on_loop_ended(ended)
        self._loop.close()

    def _on_loop_ended(self, err: BaseException | None) -> None:
        """The job that ended the loop has crashed; all have, if the loop cannot go on."""
        job = log_end_of_loop(err)
        with self._lock:
            if not is_whole(err):
                self._broken.append(self._loop)  # open: its descriptors may be of others by now
                self._loop = asyncio.new_event_loop()
                FORKS.leave_loop(self._loop)
            running = list(self._running.items())
        for one, call in running:
            if call.attempt is job or not is_whole(err):
                why = "it ended its event loop" if call.attempt is job else "its event loop ended"
                reason = "loop.stop()" if err is None else describe(err)
                self._crashed[one] = Outcome("crashed", f"{why}: {reason}")
                if not one.cancel():  # it had ended before
                    self._crashed.pop(one)


def _report_long_coroutine(call: Call) -> None:
    log.error(
        "job %(job)s (%(task)s) %(reason)s, and goes on after it was cancelled: its coroutine "
        "blocks the loop, or does not let CancelledError pass",
        facts(
            "coroutine_over_limit",
            job=call.attempt.job_id,
            task=call.attempt.task,
            reason=over_limit_text(call.time_limit_s),
        ),
    )


def _resolve(done: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)


def _report_long_run(call: Call) -> None:
    log.error(
        "job %(job)s (%(task)s) %(reason)s; "
        "a thread cannot be ended: use --pool process for limits that hold",
        facts(
            "thread_over_limit",
            job=call.attempt.job_id,
            task=call.attempt.task,
            reason=over_limit_text(call.time_limit_s),
        ),
    )
