"""Where jobs run: plain functions in threads of this process, coroutines on one loop beside them.

A pool takes calls one by one, and tells the `Outcome` of each; it enforces time limits. Tasks
never run on the worker's own loop, so that a blocking task delays no heartbeat. Child processes
are in process_pool.py.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import queue
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Protocol

from tuque.logtext import facts
from tuque.worker.app.decisions import Backoff, Outcome
from tuque.worker.app.hooks import Hooks
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
from tuque.worker.pools.middleware import enter, is_halted
from tuque.worker.pools.processes import FORKS

log: Final = logging.getLogger("tuque.worker")

Tasks = dict[str, Task[..., Any]]
OnEnd = Callable[[Outcome], object]
ThreadRun = tuple[Call, OnEnd, asyncio.TimerHandle | None]  # the alarm: of its time limit

CANCEL_S: Final = 1.0  # a coroutine has this long to end after its limit (U2.10)
LEAVE_S: Final = 5.0  # to leave all lifespans (U3.9)
PAUSES: Final = Backoff(first_s=1.0, max_s=30.0, jitter=0.0)  # until they are entered again
SLOW_S: Final = 10.0  # until the log says that they have not begun


class Pool(Protocol):
    """The worker's view of a pool. `submit` is called for at most `places` jobs at a time."""

    on_ready: Callable[[], None]  # there are more places, or runs have ended

    @property
    def places(self) -> int:
        """How many jobs can run at a time now; none before a lifespan has begun (U3.9)."""

    async def start(self) -> None:
        """Makes the pool ready, or raises."""

    def submit(self, call: Call, on_end: OnEnd) -> None:
        """Runs one job to its end, whatever the result, which `on_end` gets on this loop."""

    async def stop(self) -> bool:
        """Ends running jobs if possible; False if threads are left behind."""

    async def drop(self) -> None:
        """The worker ends without `stop`, or after it: no end of a coroutine counts any more."""


class Running:
    """Runs that coroutines of the worker's loop wait for, one each."""

    def __init__(self, on_free: Callable[[], None]) -> None:
        """`on_free` is called after each end."""
        self._on_free = on_free
        self._calls: dict[asyncio.Task[Outcome], tuple[Call, OnEnd]] = {}
        self._is_dropped = False

    def submit(self, run: Coroutine[Any, Any, Outcome], call: Call, on_end: OnEnd) -> None:
        """Awaits the run of that call."""
        running = asyncio.create_task(run)
        self._calls[running] = call, on_end
        running.add_done_callback(self._ended)

    def _ended(self, running: asyncio.Task[Outcome]) -> None:
        call, on_end = self._calls.pop(running)
        if running.cancelled():
            outcome = Outcome("failed", "the task was cancelled")
        elif (err := running.exception()) is not None:
            log.error(
                "the pool failed with job %(job)s (%(task)s)",
                facts("pool_failed", job=call.attempt.job_id, task=call.attempt.task),
                exc_info=err,
            )
            outcome = Outcome("crashed", describe(err))
        else:
            outcome = running.result()
        if not self._is_dropped:
            on_end(outcome)
            self._on_free()

    async def drop(self) -> None:
        """Cancels all; nobody gets their outcomes."""
        self._is_dropped = True
        for running in self._calls:
            running.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)


class Threads:
    """Threads for plain functions. Python cannot stop one: a run over its limit is reported."""

    def __init__(self, tasks: Tasks, concurrency: int, on_free: Callable[[], None]) -> None:
        """`on_free` is called after all that have ended in one turn of the loop."""
        self._tasks = tasks
        self._concurrency = concurrency
        self._on_free = on_free
        self._runs: queue.SimpleQueue[ThreadRun | None] = queue.SimpleQueue()
        self._ended: deque[tuple[ThreadRun, Outcome]] = deque()
        self._is_scheduled = False  # the loop will look at what has ended
        self._threads: list[threading.Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._busy = 0

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number in range(self._concurrency):
            # daemons: an endless one must not keep the process alive
            thread = threading.Thread(target=self._work, name=f"task-{number + 1}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(self, call: Call, on_end: OnEnd) -> None:
        loop, control = self._loop, call.control
        assert loop is not None
        control.on_cancel(partial(loop.call_soon_threadsafe, _on_thread_cancelled, call))
        alarm: asyncio.TimerHandle | None = None
        if call.time_limit_s is not None:
            why = over_limit_text(call.time_limit_s)
            alarm = loop.call_later(call.time_limit_s, control.cancel, why, True)
        self._busy += 1
        self._runs.put((call, on_end, alarm))

    async def stop(self) -> bool:
        for _ in self._threads:
            self._runs.put(None)
        return self._busy == 0

    def _work(self) -> None:
        """The main function of a thread; the loop takes outcomes together, once a turn."""
        assert self._loop is not None
        while (run := self._runs.get()) is not None:
            call = run[0]
            outcome = run_call(self._tasks[call.envelope.task], call)
            self._ended.append((run, outcome))
            if self._is_scheduled:
                continue
            self._is_scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                return  # the loop is closed: the worker has ended without this job

    def _deliver(self) -> None:
        """Passes on what has ended."""
        self._is_scheduled = False  # first: what is not seen here is told again
        try:
            while self._ended:
                (call, on_end, alarm), outcome = self._ended.popleft()
                self._busy -= 1
                call.control.forget()
                if alarm is not None:
                    alarm.cancel()
                on_end(outcome)
        finally:
            if self._ended and self._loop is not None:  # one raised: the others have their turn
                self._loop.call_soon(self._deliver)
            self._on_free()


def set_places(tasks: Tasks, places: int) -> None:
    """[U15] So many runs may last at a time in this process (U15.1)."""
    for task in tasks.values():
        if task.batches is not None:
            task.batches.places = places


class ThreadPool:
    """[U13] Coroutines on one loop in a thread of its own, plain functions in others (U13.3).

    `at_end` is awaited on that loop when the pool stops: it closes what belongs to the loop. `app`
    has lifespans, which are entered there.
    """

    def __init__(
        self,
        tasks: Tasks,
        concurrency: int,
        at_end: Callable[[], Awaitable[None]],
        app: Hooks | None = None,
    ) -> None:
        self._app = Hooks() if app is None else app
        self._lifespans: Lifespans | None = None
        self._is_entered = False
        self._home: asyncio.AbstractEventLoop | None = None  # the worker's
        self._tasks = tasks
        self._concurrency = concurrency
        self._at_end = at_end
        self._threads = Threads(tasks, concurrency, self._on_free)
        self._coroutines = Running(self._on_free)
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
        return self._concurrency if self._is_entered else 0

    async def start(self) -> None:
        set_places(self._tasks, self._concurrency)
        await self._threads.start()
        FORKS.leave_loop(self._loop)
        self._thread.start()
        self._home = asyncio.get_running_loop()
        self._live()

    def _live(self) -> None:
        """[U3] Enters the lifespans on the loop of coroutine tasks (U3.9)."""
        home = self._home
        if not self._app.lifespans or home is None:
            self._on_entered()
            return
        self._is_entered = False
        begun = self._lifespans = Lifespans(
            self._app, lambda: home.call_soon_threadsafe(self._on_entered)
        )
        slow = Slow(os.getpid())
        begun.on_try = lambda: home.call_soon_threadsafe(slow.begins)
        begun.on_tried = lambda: home.call_soon_threadsafe(slow.ends)
        asyncio.run_coroutine_threadsafe(begun.last(), self._loop)

    def _on_entered(self) -> None:
        self._is_entered = True
        self.on_ready()

    def _on_free(self) -> None:
        self.on_ready()

    def submit(self, call: Call, on_end: OnEnd) -> None:
        task = self._tasks[call.envelope.task]
        if task.is_async:
            self._coroutines.submit(self._run(task, call), call, on_end)
        else:
            self._threads.submit(call, on_end)

    async def _run(self, task: Task[..., Any], call: Call) -> Outcome:
        """Runs a job of a coroutine task to its end."""
        with self._lock:
            running = asyncio.run_coroutine_threadsafe(await_call(task, call), self._loop)
            self._running[running] = call
        alarm: asyncio.TimerHandle | None = None
        if call.time_limit_s is not None:
            late_s = call.time_limit_s + CANCEL_S
            alarm = asyncio.get_running_loop().call_later(late_s, _on_coroutine_late, call)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if running not in self._crashed:
                raise
            return self._crashed.pop(running)
        finally:
            call.control.forget()
            del self._running[running]
            if alarm is not None:
                alarm.cancel()

    async def stop(self) -> bool:
        idle = await self._threads.stop()
        for running in list(self._running):
            running.cancel()
        closing = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        if not self._is_entered:
            log_unbegun(1)
        try:
            limit_s = 1.0 if self._lifespans is None or not self._is_entered else 1.0 + LEAVE_S
            await asyncio.wait_for(asyncio.wrap_future(closing), timeout=limit_s)
        except TimeoutError:  # a task or a lifespan blocks the loop, or resists cancellation
            if self._lifespans is not None and self._lifespans.is_leaving:
                log_endless(os.getpid(), LEAVE_S)
            return False
        self._over.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        return idle

    async def drop(self) -> None:
        await self._coroutines.drop()

    async def _end(self) -> None:
        """Cancels all other tasks of the pool's loop and waits for them."""
        lasting = None if self._lifespans is None else self._lifespans.task
        others = asyncio.all_tasks() - {asyncio.current_task(), lasting}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._lifespans is not None:
            await self._lifespans.leave()
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
                self._live()
            running = list(self._running.items())
        for one, call in running:
            if call.attempt is job or not is_whole(err):
                why = "it ended its event loop" if call.attempt is job else "its event loop ended"
                reason = "loop.stop()" if err is None else describe(err)
                self._crashed[one] = Outcome("crashed", f"{why}: {reason}")
                if not one.cancel():  # it had ended before
                    self._crashed.pop(one)


def _on_coroutine_late(call: Call) -> None:
    call.control.cancel(over_limit_text(call.time_limit_s), True)  # its loop may be blocked
    if not call.control.report_overdue():
        return
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


def _on_thread_cancelled(call: Call) -> None:
    if not call.control.report_overdue():
        return
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


# ---- The lifespans of an app in a process that runs its tasks (SPEC U3.9)
#
# All are entered and left by one task of the loop of coroutine tasks, so that what belongs to a
# loop or to a task works in them.


class NotEntered(Exception):
    """A lifespan raised where it begins."""


async def held(app: Hooks, on_entered: Callable[[], object], leave: asyncio.Event) -> None:
    """[U3] Enters all, and leaves them once it is to (U3.9); NotEntered if one fails before.

    What one raises at its end is logged.
    """
    is_entered = False
    try:
        async with AsyncExitStack() as stack:
            state: Any = None
            for make in app.lifespans:
                made = await enter(stack, make())
                state = made if state is None else state
            app.state, is_entered = state, True
            on_entered()
            await leave.wait()
    except BaseException as err:
        if is_halted(err):
            raise
        if not is_entered:
            raise NotEntered(describe(err)) from err
        log.exception("a lifespan did not end well", extra=facts("lifespan_end_failed"))


class Slow:
    """[U3] Warns in the log, after 10, 20, 40 .. s, that lifespans have not begun (U3.9).

    It runs on the worker's loop: they may block theirs.
    """

    def __init__(self, pid: int) -> None:
        """`pid`: the process that they belong to."""
        self._pid = pid
        self._alarm: asyncio.TimerHandle | None = None

    def begins(self) -> None:
        """They are being entered."""
        self._warn_in(SLOW_S, SLOW_S)

    def ends(self) -> None:
        """They have begun, or failed."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _warn_in(self, wait_s: float, after_s: float) -> None:
        self._alarm = asyncio.get_running_loop().call_later(wait_s, self._warn, after_s)

    def _warn(self, after_s: float) -> None:
        log.warning(
            "a lifespan of process %(child)d has not begun after %(seconds).0f s: "
            "no job comes there until it has",
            facts("lifespan_slow", child=self._pid, seconds=after_s),
        )
        self._warn_in(after_s, 2 * after_s)


def log_unbegun(processes: int) -> None:
    """Logs that the worker stops while lifespans are being entered."""
    log.warning(
        "the worker stops before a lifespan has begun in %(processes)d of its processes",
        facts("lifespan_unbegun", processes=processes),
    )


def log_endless(pid: int, wait_s: float) -> None:
    """[U3] Logs that lifespans of that process have not ended in time (U3.9)."""
    log.error(
        "a lifespan of process %(child)d did not end within %(seconds).0f s",
        facts("lifespan_endless", child=pid, seconds=wait_s),
    )


class Lifespans:
    """The lifespans of an app on a loop that runs in another thread, or now and then."""

    def __init__(self, app: Hooks, on_entered: Callable[[], object]) -> None:
        self._app = app
        self._on_entered = on_entered
        self._leave = asyncio.Event()
        self._rng = random.Random()
        self._is_entered = False
        self.on_try: Callable[[], object] = lambda: None  # to enter them, and how that ended
        self.on_tried: Callable[[], object] = lambda: None
        self.task: asyncio.Task[None] | None = None

    async def last(self) -> None:
        """Lasts until `leave`; tries again and again to enter them."""
        self.task = asyncio.current_task()
        failures = 0
        while not self._leave.is_set():
            self.on_try()
            try:
                await held(self._app, self._enter, self._leave)
            except NotEntered as err:
                self.on_tried()
                failures += 1
                wait_s = PAUSES.delay_s(failures, self._rng)
                log.error(
                    "a lifespan failed, so no job is taken: %(reason)s; next try in %(next_s).1f s",
                    facts("lifespan_failed", reason=err, next_s=wait_s),
                    exc_info=err.__cause__,
                )
                await asyncio.sleep(wait_s)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Enters them on a loop that does not run; raises NotEntered."""
        self.task = loop.create_task(held(self._app, self._enter, self._leave))
        while not self.task.done() and not self._is_entered:
            loop.run_until_complete(asyncio.sleep(0.001))
        if self.task.done():
            self.task.result()

    @property
    def is_leaving(self) -> bool:
        """Whether they were entered, and are left now."""
        is_last = self.task is None or self.task.done()
        return self._is_entered and self._leave.is_set() and not is_last

    async def leave(self) -> None:
        """[U3] Leaves them, on their loop; what lasts longer than 5 s is cancelled (U3.9)."""
        self._leave.set()
        if self.task is None:
            return
        if not self._is_entered:
            self.task.cancel()
        _, lasts = await asyncio.wait({self.task}, timeout=LEAVE_S)
        if lasts:
            self.task.cancel()
            log_endless(os.getpid(), LEAVE_S)

    def _enter(self) -> None:
        self._is_entered = True
        self.on_tried()
        self._on_entered()
