"""The worker of a test: the real one's jobs, runs and words, one step at a time.

Decides when to take the next job and when to report to the broker. What follows from a run is
decided as in the worker itself (tuque.worker.run.job_runner). Knows nothing of the test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Final, TypeVar

from tuque.client.retry import Retry
from tuque.errors import ConnectionError
from tuque.testing.links import Desk, HereAioClient, by_hand
from tuque.testing.loop import run_coroutine
from tuque.worker.app.decisions import Outcome, beat_after_s
from tuque.worker.app.hooks import Failure, Hook, Hooks
from tuque.worker.pools.execute import Call, Job, run_call
from tuque.worker.pools.middleware import tell
from tuque.worker.pools.pools import OnEnd, Tasks
from tuque.worker.run.crash_table import CrashTable
from tuque.worker.run.fetch import Fetcher, Turns, UnavailableQueues
from tuque.worker.run.job_runner import JobRunner
from tuque.worker.run.jobs import AT_WORK, WAITING, InFlight, WorkerSettings
from tuque.worker.run.report import HookRunner, Reporter

T = TypeVar("T")

TRIES: Final = 3  # of a call whose answer is lost


class Clock:
    """The time of a test, for the pool: seconds, and a way to let them pass."""

    def __init__(self, now_s: Callable[[], float], wait: Callable[[float], None]) -> None:
        self.now_s = now_s
        self.wait = wait


class Place:
    """The pool: one job at a time, in the thread of the test.

    In a thread of its own if an event loop runs in that of the test: tasks expect none.
    """

    def __init__(self, tasks: Tasks, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self.on_ready: Callable[[], None] = lambda: None  # there are never more places

    @property
    def places(self) -> int:
        """How many jobs can run at a time."""
        return 1

    async def start(self) -> None:
        """Nothing to make ready."""

    def submit(self, call: Call, on_end: OnEnd) -> None:
        """Runs one job to its end."""
        on_end(self.run_now(call))

    async def stop(self) -> bool:
        """Nothing is left behind."""
        return True

    async def drop(self) -> None:
        """Nothing runs."""

    def run_now(self, call: Call) -> Outcome:
        """Runs one job to its end, without a loop."""
        call.control.clock = self._clock.now_s
        return without_loop(lambda: self._run(call))

    def _run(self, call: Call) -> Outcome:
        task = self._tasks[call.envelope.task]
        if not task.is_async:
            return run_call(task, call)
        return run_coroutine(task, call, self._clock.wait)


def without_loop(call: Callable[[], T]) -> T:
    """Makes the call in this thread, or in one of its own if an event loop runs in this one."""
    if not has_loop():
        return call()
    found: list[T] = []
    context = copy_context()
    thread = threading.Thread(
        target=lambda: found.append(context.run(call)), name="task", daemon=True
    )
    thread.start()
    thread.join()
    return found[0]


class HandAside(HookRunner):
    """Calls hooks at once."""

    def call(self, app: Hooks, hook: Hook[Any], job: Job, failure: Failure) -> None:
        without_loop(lambda: tell(app, hook, job, failure))


def has_loop() -> bool:
    """Whether an event loop runs in this thread."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class HandReporter(Reporter):
    """The reports of a worker without a loop."""

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        by_hand(work)

    def take_progress(self, held: InFlight, data: bytes) -> None:
        by_hand(self.send_progress(held, data))


class HandWorker(JobRunner):
    """A worker that does one step when told, on the clock of the broker."""

    reporter_of = HandReporter
    aside_of = HandAside

    def __init__(self, desk: Desk, tasks: Tasks, number: int, seed: int, clock: Clock) -> None:
        """`number` tells workers of one test apart."""
        self._number = number
        self._desk = desk
        self.tasks = tasks
        self.place = Place(tasks, clock)
        settings = WorkerSettings(queues=(), concurrency=1, prefetch=0)
        client = HereAioClient(desk, Retry(attempts=0), self._on_cancel)
        super().__init__(tasks, client, self.place, settings)
        self.client = client
        self._rng.seed(seed)
        away = UnavailableQueues(self._rng)
        self._fetcher = Fetcher(client, Turns(()), away, self._accept, self._room)
        self.current: InFlight | None = None  # the job whose task runs

    def name_of(self, box: CrashTable | None) -> str:
        return f"test/{self._number}"

    def now_s(self) -> float:
        return self._desk.broker.now_ms / 1000

    def wall_s(self) -> float:
        return self._desk.broker.now_ms / 1000

    def _on_cancel(self, job_id: str, run: str) -> None:
        self.on_over(job_id, run)  # its clock is the broker's: it knows

    def _start_waiting(self) -> None:
        """Asks for the run of the job that was fetched."""
        while (held := self._waiting.pop()) is not None:
            if held.state != WAITING:
                continue
            if held.run:
                self.run_now(held)
            else:
                self._ask_for_run(held)

    def _hold_alone(self, held: InFlight) -> None:
        """It has one job at a time: each of them runs alone."""
        self._waiting.push(held)

    def run_now(self, held: InFlight) -> None:
        """Notes which job's task is to run; `step` runs it."""
        held.state = AT_WORK
        self.current = held

    def take(self, queues: list[str]) -> str | None:
        """Takes a job and begins it; its id, None if there is none.

        Its task may not be the one to run (`current`): the job may have been refused.
        """
        before = self._taken
        self._again(lambda: self._fetcher.take(queues, 1))
        if self._taken == before:
            return None
        found = next(reversed(self._held), None)
        self.tell()
        return found

    def run_task(self) -> Outcome:
        """Runs the task of the job that began."""
        held = self.current
        assert held is not None
        assert held.call is not None
        try:
            return self.place.run_now(held.call)
        finally:
            self.current = None

    def end(self, held: InFlight, outcome: Outcome) -> None:
        """Ends the attempt, and tells the broker."""
        self._ran(held, outcome)
        self.tell()

    def tell(self) -> None:
        """Tells the broker all there is."""
        while self._reporter.pending:
            self._again(self._reporter.send)

    def beat(self) -> None:
        """Says that the running job is at work."""
        if self.current is not None:
            by_hand(self._heart.beat([self.current.job.id]))

    @property
    def beat_s(self) -> float | None:
        """How long the running job may go without `beat`, in seconds."""
        if self.current is None:
            return None
        return beat_after_s(int(self.current.job.retry_s or 0))

    def _again(self, call: Callable[[], Any]) -> None:
        """Makes a call, again if the connection was lost."""
        for left in reversed(range(TRIES)):
            try:
                by_hand(call())
                return
            except ConnectionError:
                if not left:
                    raise

    def leave(self) -> None:
        """Closes its connections."""
        by_hand(self.client.close())
