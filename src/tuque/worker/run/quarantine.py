"""Quarantine: jobs that may end their process, or their worker, run isolated.

`Quarantine`: what ran when a process ended, and what has ended one, runs in a process of its own,
one job at a time. The worker's own process continues. `Alone`: a suspect of the loss of a whole
worker runs while this worker has nothing else. So each crash has one cause.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

import msgspec

from tuque.logtext import facts
from tuque.worker.app.decisions import Outcome, is_at_most_once
from tuque.worker.pools.child import of_job
from tuque.worker.pools.pools import OnEnd
from tuque.worker.pools.process_pool import ProcessPool
from tuque.worker.run.crash_table import NOTES_BYTES, CrashTable
from tuque.worker.run.jobs import AT_WORK, SETTLING, STARTING, WAITING, InFlight

ISOLATED_S: Final = 60.0  # for so long the jobs of a task that ended a process run apart
STUCK_S: Final = 5.0  # without a process apart, until its jobs are given back
PATIENCE_S: Final = 2.0  # that a suspect waits for the runs of others to end; doubles
PATIENCE_S_MAX: Final = 3600.0
IDLE_S: Final = 1.0  # without another job, until it is sure that there is none

log: Final = logging.getLogger("tuque.worker")

_decoder: Final = msgspec.msgpack.Decoder(dict[str, float])


# ---- Isolated runs


class Quarantine:
    """The jobs that run apart, one at a time; without a pool there are none.

    Times are monotonic arguments.
    """

    def __init__(self, pool: ProcessPool | None, box: CrashTable | None) -> None:
        """`pool` has one place, and is started when needed."""
        self._pool = pool
        self._box = box
        # of jobs by id, and of their tasks: when they may run beside others; by age
        self._until_s = _decoder.decode(box.notes) if box is not None and box.notes else {}
        self.is_used = bool(self._until_s)  # some jobs run here, or did
        self._line: deque[InFlight] = deque()
        self._suspects: list[InFlight] = []  # of the loss of a process, that have not ended
        self._running: InFlight | None = None
        self._is_started = False
        self._stuck_from_s = inf

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

    def takes(self, held: InFlight, now_s: float) -> bool:
        """Whether the job must run apart: it has ended a process, one of its task did lately, or
        a suspect of its task has not ended yet.
        """
        if self._pool is None:
            return False
        until_s = max(self._until_s.get(held.job.id, 0.0), self._until_s.get(held.task, 0.0))
        self._suspects = [one for one in self._suspects if one.state != SETTLING]
        return now_s < until_s or any(one.task == held.task for one in self._suspects)

    def line_up(self, held: InFlight, is_suspect: bool = False) -> None:
        """Adds a job."""
        held.is_isolated = self.is_used = True
        self._line.append(held)
        if is_suspect:
            self._suspects.append(held)
        if self._pool is not None and not self._is_started:
            self._is_started = True
            self._pool.start_later()

    def log_suspects(self, ended: str) -> None:
        """Logs how many jobs of the previous process are suspects; `ended`: how it did."""
        if self._suspects:
            log.warning(
                "%(jobs)d jobs ran when a process %(reason)s: they run again one at a time, "
                "apart and uncounted",
                facts("jobs_suspected", jobs=len(self._suspects), reason=ended),
            )

    def next(self, now_s: float) -> InFlight | None:
        """The job to run now, if one waits and the process is ready.

        It runs with others if it only waited for suspects of its task, which have ended well.
        """
        if self._pool is None or self._running is not None or not self._pool.is_ready:
            return None
        while self._line:
            held = self._line.popleft()
            if held.state == WAITING:
                held.is_isolated = self.takes(held, now_s)
                self._running = held if held.is_isolated else None
                return held
        return None

    def stuck(self, now_s: float) -> list[InFlight]:
        """Takes out the jobs whose process does not come, as while its lifespan fails (U3.9)."""
        if not self._line or self._pool is None or self._pool.places:
            self._stuck_from_s = now_s
        self._stuck_from_s = min(self._stuck_from_s, now_s)
        if now_s - self._stuck_from_s < STUCK_S:
            return []
        line = [one for one in self._line if one.state == WAITING]
        self._line = deque(one for one in line if is_at_most_once(one.job.id))
        return [one for one in line if not is_at_most_once(one.job.id)]

    def submit(self, held: InFlight, on_end: OnEnd) -> None:
        """Runs the job that `next` returned, isolated."""
        assert self._pool is not None
        assert held.call is not None
        self._pool.submit(held.call, partial(self._ended, on_end))

    def _ended(self, on_end: OnEnd, outcome: Outcome) -> None:
        self._running = None
        on_end(outcome)

    def forgo(self, held: InFlight) -> None:
        """The job that `next` returned does not run."""
        if self._running is held:
            self._running = None

    def blame(self, held: InFlight, now_s: float) -> None:
        """Records that this job ended its process, also for the worker's next process."""
        log.warning(
            "%(run)s ended its process: jobs of its task run apart for %(seconds)d s",
            facts("process_ended_by_job", run=held, seconds=ISOLATED_S),
        )
        self.is_used = True
        for name, until_s in ((held.job.id, inf), (held.task, now_s + ISOLATED_S)):
            self._until_s.pop(name, None)
            self._until_s[name] = until_s
        while len(notes := msgspec.msgpack.encode(self._until_s)) > NOTES_BYTES:
            del self._until_s[next(iter(self._until_s))]
        if self._box is not None:
            self._box.notes = notes

    def clear(self) -> None:
        """Drops all waiting jobs."""
        self._line.clear()
        self._suspects.clear()

    async def stop(self) -> None:
        """Ends the process and the job in it."""
        if self._pool is not None and self._is_started:
            await self._pool.stop()

    async def drop(self) -> None:
        """The worker ends: nobody takes what the job comes to."""
        if self._pool is not None:
            await self._pool.drop()


# ---- Suspects of the loss of a worker, in this one


class Alone:
    """[U2] The suspect that this worker has: nothing else begins meanwhile (U2.23).

    It has one at most, so that no other one is lost with it. Its time is followed by as long a
    time for other jobs: suspects take half of a worker at most, and none of them waits for ever.
    Times are monotonic arguments.
    """

    def __init__(self) -> None:
        self._held: InFlight | None = None
        self._since_s = 0.0  # when nothing else could begin
        self._others_until_s = 0.0
        self._idle_from_s = -inf  # since when no suspect is here: another job may come
        self._patience_s = PATIENCE_S
        self._took_s = -inf  # when the last one was taken: others may follow it
        self.other_s = -inf  # when a job came that is no suspect

    def has_one(self, now_s: float) -> bool:
        """Whether a suspect waits or runs: nothing else is fetched, nor begins."""
        if self._held is not None and self._held.state == SETTLING:
            self._end(now_s)
        return self._held is not None

    def comes_next(self, now_s: float) -> bool:
        """Whether the next job is likely to be a suspect that runs: they are fetched one by one."""
        return self._took_s > self.other_s and now_s >= self._others_until_s

    def takes(self, held: InFlight, is_idle: bool, now_s: float) -> bool:
        """Takes the suspect, if it is its turn; `is_idle`: the worker has nothing else."""
        from_s = self._others_until_s
        if is_idle:
            from_s = min(from_s, max(self._idle_from_s, self.other_s) + IDLE_S)
        if self.has_one(now_s) or now_s < from_s:
            return False
        self._held = held
        self._since_s = now_s
        self._took_s = now_s
        log.info(
            "%(run)s runs alone: a worker that had it was lost",
            facts("job_alone", run=held),
            extra=of_job(held.about),
        )
        return True

    def begin(self) -> InFlight | None:
        """The suspect, if it waits: nothing else runs any more."""
        if self._held is None or self._held.state != WAITING:
            return None
        self._patience_s = PATIENCE_S
        return self._held

    def forgo(self, now_s: float) -> InFlight | None:
        """The suspect, if it has waited too long: it goes back, and others begin (U2.24).

        The next one may wait longer. So one of them has its turn, however long the others run.
        """
        held = self._held
        if held is None or held.state in (STARTING, AT_WORK, SETTLING):
            return None
        if now_s - self._since_s < self._patience_s:
            return None
        self._patience_s = min(PATIENCE_S_MAX, 2 * self._patience_s)
        self._took_s = -inf
        self._end(now_s)
        return held

    def clear(self) -> None:
        """Drops the suspect: the worker stops."""
        self._held = None

    def _end(self, now_s: float) -> None:
        self._held = None
        self._others_until_s = now_s + (now_s - self._since_s)
        self._idle_from_s = now_s
