"""An event loop for one coroutine task of a test, whose timers cost no time.

When nothing but a timer can go on, the clock of the test advances to it. While the task waits for
a socket or a thread, real time passes.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any, Final

from tuque.worker.app.decisions import Outcome
from tuque.worker.app.task import Task
from tuque.worker.pools.execute import Call, await_call

FOR_EVER_S: Final = 1.0  # without timer, socket and thread: who might wake the task?
OWN_FILES: Final = 1  # the pipe by which threads wake the loop
STUCK: Final = "the task waits for something that nobody in this test will do"


class QuickSelector(selectors.DefaultSelector):
    """Waits for sockets, but for timers alone only as the test's clock shows."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        super().__init__()
        self._wait = wait
        self.passed_s = 0.0
        self.in_threads = 0
        self.on_stuck: Callable[[], object] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.in_threads or len(self.get_map()) > OWN_FILES:
            began_at = time.monotonic()
            found = super().select(timeout)
            self.passed_s += time.monotonic() - began_at
            return found
        found = super().select(0 if timeout is not None else FOR_EVER_S)
        if found or timeout == 0:
            return found
        if timeout is None:
            if self.on_stuck is not None:
                self.on_stuck()
            return []
        self._wait(timeout)
        self.passed_s += timeout
        return super().select(0)


class QuickLoop(asyncio.SelectorEventLoop):
    """A loop on the clock of the test; time that the task computes does not count."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        self._quick = QuickSelector(wait)
        super().__init__(self._quick)

    def time(self) -> float:
        return self._quick.passed_s

    def run_in_executor(  # type: ignore[override]  # its variadic type has no name in 3.11
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """Counts what runs in threads: real time passes for it."""
        running = super().run_in_executor(executor, func, *args)
        self._quick.in_threads += 1
        running.add_done_callback(self._came_back)
        return running

    def _came_back(self, _: object) -> None:
        self._quick.in_threads -= 1

    async def run_task(self, task: Task[..., Any], call: Call) -> Outcome:
        """Runs the job; one that nothing can wake has failed."""
        is_stuck: list[bool] = []
        running = asyncio.current_task()
        assert running is not None

        def stuck() -> None:
            is_stuck.append(True)
            self.call_soon(running.cancel)

        self._quick.on_stuck = stuck
        try:
            return await await_call(task, call)
        except asyncio.CancelledError:
            if not is_stuck:
                raise
            running.uncancel()
            return Outcome("failed", STUCK)
        finally:
            await task.app.aclose()


def run_coroutine(task: Task[..., Any], call: Call, wait: Callable[[float], None]) -> Outcome:
    """Runs a job of a coroutine task; `wait` lets that many seconds of the test's clock pass."""
    loop = QuickLoop(wait)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(loop.run_task(task, call))
