"""Hooks that the worker's own process calls: what follows a run, and ends of tasks that saw none.

They run in a thread of their own, one after the other, so that they delay no heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from tuque.worker.pools.around import tell
from tuque.worker.pools.execute import Call, Job, failure_of, is_failure
from tuque.worker.tasks.hooks import Failure, Hook, Hooks
from tuque.worker.tasks.policy import Outcome
from tuque.worker.tasks.task import Task

log: Final = logging.getLogger("tuque.worker")


class Aside:
    """The hooks of an app, called beside the worker's loop."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]], app: Hooks | None) -> None:
        """`app` has the hooks for jobs of unknown tasks."""
        self._tasks = tasks
        self._app = Hooks() if app is None else app
        self._thread: ThreadPoolExecutor | None = None
        self._told: set[Future[None]] = set()

    def ended(self, job: Job, call: Call | None, outcome: Outcome) -> None:
        """[U3] A run has failed; nothing to do if its own process has called the hooks (U3.2)."""
        if not outcome.is_told and call is not None and is_failure(outcome, call):
            self._tell("on_failure", job, outcome)

    def put_off(self, job: Job, outcome: Outcome, delay_s: float | None) -> None:
        """The job runs again after that time (U3.3); None: the broker did not say when."""
        self._tell("on_retry", job, outcome, delay_s=delay_s)

    def buried(self, job: Job, outcome: Outcome, queue: str) -> None:
        """The job is a dead letter in that queue (U3.3)."""
        self._tell("on_dead", job, outcome, queue=queue)

    def _tell(self, name: str, job: Job, outcome: Outcome, **more: Any) -> None:
        task = self._tasks.get(job.task)
        app = self._app if task is None else task.app
        hook: Hook[Any] = getattr(app, name)
        if hook.functions:
            self.call(app, hook, job, failure_of(outcome, **more))

    def call(self, app: Hooks, hook: Hook[Any], job: Job, failure: Failure) -> None:
        """Calls the functions of a hook."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "hooks")
        telling = self._thread.submit(tell, app, hook, job, failure)
        self._told.add(telling)
        telling.add_done_callback(self._told.discard)

    async def drained(self) -> None:
        """Returns when all have run."""
        waiting = [asyncio.wrap_future(one) for one in list(self._told)]
        await asyncio.gather(*waiting, return_exceptions=True)

    def close(self) -> bool:
        """Ends the thread; False if a hook still runs."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
        return not self._told
