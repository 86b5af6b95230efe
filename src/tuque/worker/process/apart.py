"""Runs jobs that may end their process in one beside the worker's: which, and in which order.

These are the suspects of a crash, and jobs of tasks that have ended a process. Each runs there
alone, so that a crash has one cause. The worker's own process goes on.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tuque.logtext import facts
from tuque.worker.pools.process_pool import ProcessPool
from tuque.worker.process.box import NOTES_BYTES, Box
from tuque.worker.process.held import SETTLING, WAITING, Held
from tuque.worker.process.trust import Trust
from tuque.worker.tasks.policy import Outcome

log: Final = logging.getLogger("tuque.worker")


class Apart:
    """The jobs that run apart, one at a time; without a pool there are none."""

    def __init__(self, pool: ProcessPool | None, box: Box | None) -> None:
        """`pool` has one place, and is started when needed."""
        self._pool = pool
        self._box = box
        self._trust = Trust(box.notes if box is not None else b"")
        self._line: deque[Held] = deque()
        self._suspects: list[Held] = []  # waiting or running
        self._running: Held | None = None
        self._is_started = False

    def __len__(self) -> int:
        """The number of waiting jobs."""
        return len(self._line)

    @property
    def queues(self) -> set[str]:
        """The queues of the waiting jobs: the worker fetches from the others only."""
        return {held.job.queue for held in self._line if held.state == WAITING}

    def on_ready(self, tell: Callable[[], None]) -> None:
        """Sets the callback for when the next job can run."""
        if self._pool is not None:
            self._pool.on_ready = tell

    def takes(self, task: str) -> bool:
        """Whether a job of the task must run apart now."""
        if self._pool is None:
            return False
        self._suspects = [held for held in self._suspects if held.state != SETTLING]
        is_suspect = any(held.task == task for held in self._suspects)
        return is_suspect or not self._trust.is_trusted(task, time.monotonic())

    def line_up(self, held: Held, is_suspect: bool = False) -> None:
        """Adds a job; other jobs of a suspect's task follow it."""
        held.is_apart = True
        if is_suspect:
            self._suspects.append(held)
        self._line.append(held)
        if self._pool is not None and not self._is_started:
            self._is_started = True
            self._pool.start_later()

    def next(self) -> Held | None:
        """The job to run now, if one waits and the process is ready."""
        if self._pool is None or self._running is not None or not self._pool.is_ready:
            return None
        while self._line:
            held = self._line.popleft()
            if held.state == WAITING:
                self._running = held
                return held
        return None

    async def run(self, held: Held) -> Outcome:
        """Runs the job that `next` returned."""
        assert self._pool is not None
        assert held.call is not None
        try:
            return await self._pool.run(held.call)
        finally:
            self._running = None

    def forgo(self, held: Held) -> None:
        """The job that `next` returned does not run."""
        if self._running is held:
            self._running = None

    def ended(self, held: Held, outcome: Outcome) -> list[Held]:
        """Records the end of a run; returns waiting jobs that may now run beside others."""
        if outcome.kind == "crashed":
            self.blame(held)
            return []
        self._trust.ran(held.task)
        if held in self._suspects:
            self._suspects.remove(held)
        if self.takes(held.task):
            return []
        freed = [other for other in self._line if other.task == held.task]
        self._line = deque(other for other in self._line if other.task != held.task)
        for other in freed:
            other.is_apart = False
        return freed

    def blame(self, held: Held) -> None:
        """Records that this job ended its process, also for the worker's next process."""
        log.warning(
            "%(run)s ended its process: jobs of its task run apart for a while",
            facts("process_ended_by_job", run=held),
        )
        self._trust.crashed(held.task, held.job.id, time.monotonic())
        if self._box is not None:
            self._box.notes = self._trust.kept(NOTES_BYTES)

    def clear(self) -> None:
        """Drops all waiting jobs."""
        self._line.clear()
        self._suspects.clear()

    async def stop(self) -> None:
        """Ends the process and the job in it."""
        if self._pool is not None and self._is_started:
            await self._pool.stop()
