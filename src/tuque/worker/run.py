"""The worker: fetches jobs, has a pool run them, and leaves nothing half done when it stops.

One event loop and four kinds of loops on it: fetching (fetch.py), heartbeats (beat.py), settling
(settle.py) and one short task for each job that runs. What to decide is in policy.py, how jobs run
in the pools. A job is *held* from its delivery until the broker knows what became of it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import heapq
import logging
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from tuque import aio
from tuque.client.api import Job
from tuque.errors import Error
from tuque.worker.away import Away
from tuque.worker.beat import Heart
from tuque.worker.codec import BadBody, decode
from tuque.worker.execute import Attempt, Call, describe
from tuque.worker.fetch import Fetcher
from tuque.worker.link import Link, pause
from tuque.worker.policy import (
    Ack,
    Backoff,
    Dead,
    Limits,
    Nack,
    Outcome,
    Settlement,
    room,
    settle,
    spent,
)
from tuque.worker.pools import Pool
from tuque.worker.settle import Settler
from tuque.worker.task import DEAD_SUFFIX, Task

log: Final = logging.getLogger("tuque.worker")

WAITING: Final = "waiting"  # fetched, not begun
RUNNING: Final = "running"
SETTLING: Final = "settling"  # ended, the broker does not know yet

LAST_WORDS_S: Final = 2.0  # kept of the grace for telling the broker what became of the jobs
LAST_WORDS_S_MIN: Final = 0.5
UNSETTLED_MAX: Final = 1000


@dataclass(frozen=True)
class WorkerSettings:
    """How a worker works. The queues are in the order of their priority, highest first."""

    queues: tuple[str, ...]
    concurrency: int = 8
    prefetch: int = 8
    grace_s: float = 25.0
    max_jobs: int | None = None
    time_limit_s: float | None = None


class Held:
    """One job from its delivery to its settlement."""

    __slots__ = ("call", "job", "limits", "settlement", "since", "state")

    def __init__(self, job: Job, call: Call | None, limits: Limits) -> None:
        self.job = job
        self.call = call
        self.limits = limits
        self.state = WAITING
        self.since = time.monotonic()
        self.settlement: Settlement | None = None


class Worker:
    """A worker of one process; `run` returns when it was told to stop and has done so."""

    def __init__(
        self,
        tasks: dict[str, Task[..., Any]],
        client: aio.Client,
        pool: Pool,
        settings: WorkerSettings,
    ) -> None:
        self._tasks = tasks
        self._client = client
        self._pool = pool
        self._settings = settings
        self._priority = {queue: at for at, queue in enumerate(settings.queues)}
        self._rng = random.Random()
        self._link = Link(self._rng)
        self._away = Away(self._rng)
        self._settler = Settler(
            client, self._link, self._away, self._on_settled, self._rng, self._queue_of
        )
        self._heart = Heart(client, self._link, self._on_gone)
        self._held: dict[str, Held] = {}
        self._waiting: list[tuple[int, int, Held]] = []
        self._runs: dict[asyncio.Task[None], Held] = {}
        self._taken = 0
        self._room = asyncio.Event()
        self._stop = asyncio.Event()
        self._fetcher = Fetcher(client, settings.queues, self._away, self._accept, self._stop)
        self._abort = asyncio.Event()
        self._is_quiet = False
        self._is_leaving = False
        self.counts: Counter[str] = Counter()

    # What the outside may ask for

    def stop(self) -> None:
        """Stops fetching and ends within the grace; the second time, leaves with what runs."""
        if self._stop.is_set():
            self._abort.set()
        self._stop.set()
        self._room.set()

    def quiet(self) -> None:
        """Stops fetching but stays, until it is told to stop."""
        log.info("quiet: no more jobs are fetched")
        self._is_quiet = True

    def dump(self) -> None:
        """Writes to the log what runs and for how long, and the stacks of all threads to stderr."""
        now = time.monotonic()
        for held in self._runs.values():
            log.info("runs for %.1f s: %s", now - held.since, _name(held))
        log.info("%d run, %d wait, %s", len(self._runs), len(self._waiting), dict(self.counts))
        faulthandler.dump_traceback(all_threads=True)

    async def run(self) -> bool:
        """Works until stopped. False when threads with unfinished jobs are left behind."""
        await self._pool.start()
        log.info(
            "worker ready: queues %s, %d at a time, %d more fetched ahead, tasks: %d",
            ", ".join(self._settings.queues),
            self._settings.concurrency,
            self._settings.prefetch,
            len(self._tasks),
        )
        fetching = asyncio.create_task(self._fetch_loop())
        loops = {
            asyncio.create_task(self._settler.loop()),
            asyncio.create_task(self._heart.loop()),
        }
        stopped = asyncio.create_task(self._stop.wait())
        try:
            ended, _ = await asyncio.wait(
                {fetching, stopped, *loops}, return_when=asyncio.FIRST_COMPLETED
            )
            for loop in ended - {stopped}:
                loop.result()  # an error in a loop of ours ends the worker, loudly
            return await self._wind_down(fetching)
        finally:
            for task in {fetching, stopped, *loops, *self._runs}:
                task.cancel()
            await asyncio.gather(fetching, stopped, *loops, *self._runs, return_exceptions=True)

    # Fetching

    def _want(self) -> int:
        """How many jobs to ask for now."""
        unsettled = sum(1 for held in self._held.values() if held.state == SETTLING)
        if self._is_quiet or unsettled >= UNSETTLED_MAX:
            return 0
        waiting = len(self._held) - unsettled - len(self._runs)
        want = room(self._settings.concurrency, self._settings.prefetch, len(self._runs), waiting)
        if self._settings.max_jobs is not None:
            want = min(want, self._settings.max_jobs - self._taken)
        return want

    async def _fetch_loop(self) -> None:
        while not self._stop.is_set():
            self._room.clear()
            want = self._want()
            if want <= 0:
                if self._taken == self._settings.max_jobs and not self._held:
                    log.info("%d jobs taken, as --max-jobs says", self._taken)
                    self.stop()
                    return
                await self._room.wait()
                continue
            try:
                await self._fetcher.fetch(want)
            except Error as err:
                await pause(self._link.failed("GETJOB", err), self._stop)

    def _queue_of(self, job_id: str) -> str:
        """The queue that a job in hand came from."""
        held = self._held.get(job_id)
        return held.job.queue if held is not None else ""

    def _accept(self, jobs: list[Job]) -> None:
        self._link.answered()
        for job in jobs:
            held = self._held.get(job.id)
            if held is None or isinstance(held.settlement, Nack):
                self._hold(job)
            else:
                # its retry time passed in an outage; what we do with it holds for this delivery too
                log.info("job %s was delivered again while it is %s here", job.id, held.state)
                self._heart.beat_now(job.id)
        self._start_waiting()

    def _hold(self, job: Job) -> None:
        """Takes a delivery over: into the buffer, or to the dead letters if it cannot be run."""
        self._taken += 1
        attempt = (job.nacks or 0) + (job.additional_deliveries or 0) + 1
        limits = Limits(attempt, job.queue + DEAD_SUFFIX, Backoff())
        try:
            envelope = decode(job.body)
            task = self._tasks.get(envelope.task)
            if task is None:
                raise BadBody(f"unknown task '{envelope.task}'")
            limits = task.limits(envelope, job.queue)
            reason = spent(attempt, limits)
        except BadBody as err:
            reason = str(err)
        held = self._held[job.id] = Held(job, None, limits)
        if reason is not None:
            self._settle(held, Dead(job.id, limits.dead_letter, reason))
            return
        held.call = Call(
            envelope,
            Attempt(
                job_id=job.id,
                queue=job.queue,
                task=envelope.task,
                number=attempt,
                max_deliveries=limits.max_deliveries,
                nacks=job.nacks or 0,
                additional_deliveries=job.additional_deliveries or 0,
                enqueued_at=envelope.enqueued_at,
            ),
            limits.time_limit_s or self._settings.time_limit_s,
        )
        heapq.heappush(
            self._waiting, (self._priority.get(job.queue, len(self._priority)), self._taken, held)
        )
        self._heart.hold(job.id)

    # Running

    def _start_waiting(self) -> None:
        """Fills the free places from the buffer, highest priority first."""
        while (
            self._waiting
            and len(self._runs) < self._settings.concurrency
            and not self._stop.is_set()
        ):
            held = heapq.heappop(self._waiting)[2]
            if held.state != WAITING:
                continue
            held.state = RUNNING
            held.since = time.monotonic()
            run = asyncio.create_task(self._run(held))
            self._runs[run] = held
            run.add_done_callback(self._on_run_ended)

    def _on_run_ended(self, run: asyncio.Task[None]) -> None:
        del self._runs[run]
        self._start_waiting()
        self._room.set()

    async def _run(self, held: Held) -> None:
        assert held.call is not None
        try:
            outcome = await self._pool.run(held.call)
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if self._is_leaving or (this is not None and this.cancelling()):
                raise
            outcome = Outcome("failed", "the task was cancelled")
        except Exception as err:
            log.exception("the pool failed with %s", _name(held))
            outcome = Outcome("crashed", describe(err))
        if self._is_leaving and outcome.kind != "done":
            return  # it was interrupted: that is not the task's failure
        settlement = settle(held.job.id, outcome, held.call.attempt.number, held.limits, self._rng)
        self.counts[outcome.kind] += 1
        _log_outcome(held, outcome, settlement)
        self._settle(held, settlement)

    # Settling

    def _settle(self, held: Held, settlement: Settlement) -> None:
        held.state = SETTLING
        held.settlement = settlement
        self._heart.release(held.job.id)
        self._settler.put(settlement)

    def _on_settled(self, settlement: Settlement) -> None:
        held = self._held.get(settlement.job_id)
        if held is not None and held.settlement is not None:
            del self._held[settlement.job_id]
        self._room.set()

    def _on_gone(self, job_id: str) -> None:
        """The broker does not know a job any more: somebody acked or deleted it, or it expired."""
        held = self._held.get(job_id)
        if held is None:
            return
        log.warning("%s is gone from the broker while it is %s here", _name(held), held.state)
        if held.state == WAITING:
            held.state = SETTLING
            del self._held[job_id]
            self.counts["gone"] += 1
            self._room.set()

    # Stopping

    def _give_back_waiting(self) -> None:
        self._waiting.clear()
        for held in [held for held in self._held.values() if held.state == WAITING]:
            self._settle(held, Nack(held.job.id))
            self.counts["given back"] += 1

    async def _wind_down(self, fetching: asyncio.Task[None]) -> bool:
        """Gives back what has not begun, waits for what runs, gives back the rest."""
        deadline = time.monotonic() + self._settings.grace_s
        aborted = asyncio.create_task(self._abort.wait())
        log.info(
            "stopping: %d jobs run and have %.0f s, %d go back to their queues",
            len(self._runs),
            self._settings.grace_s,
            sum(1 for held in self._held.values() if held.state == WAITING),
        )
        self._give_back_waiting()
        # the last GETJOB may still bring jobs: cutting it off would leave them without an owner
        await _wait_for({fetching, aborted}, deadline)
        fetching.cancel()
        self._give_back_waiting()
        until = deadline - min(LAST_WORDS_S, self._settings.grace_s * 0.2)
        while self._runs and not self._abort.is_set() and time.monotonic() < until:
            await _wait_for({aborted, *self._runs}, until)
        aborted.cancel()
        return await self._leave(deadline)

    async def _leave(self, deadline: float) -> bool:
        """Ends the pool, gives back what was cut off, and has the broker told by the deadline."""
        self._is_leaving = True
        is_clean = await self._pool.stop()
        await asyncio.sleep(0)  # lets runs that just ended say so
        for held in [held for held in self._held.values() if held.state == RUNNING]:
            log.warning("%s is cut off and goes back to its queue", _name(held))
            self._settle(held, Nack(held.job.id))
            self.counts["given back"] += 1
        left_s = LAST_WORDS_S if self._abort.is_set() else deadline - time.monotonic()
        try:
            async with asyncio.timeout(max(LAST_WORDS_S_MIN, left_s)):
                await self._settler.drained()
        except TimeoutError:
            log.warning(
                "the broker was not told about %d jobs; their retry time brings them back",
                self._settler.pending,
            )
        log.info("stopped: %s", _summary(self.counts))
        return is_clean


async def _wait_for(tasks: set[asyncio.Task[Any]], until: float) -> None:
    """Waits for the first of the tasks, not longer than until that monotonic time."""
    timeout = max(0.0, until - time.monotonic())
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _name(held: Held) -> str:
    task = held.call.envelope.task if held.call is not None else "?"
    return f"job {held.job.id} ({task})"


def _summary(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "no jobs"


def _log_outcome(held: Held, outcome: Outcome, settlement: Settlement) -> None:
    took_s = time.monotonic() - held.since
    if isinstance(settlement, Ack):
        log.debug("%s done in %.3f s", _name(held), took_s)
        return
    number = held.call.attempt.number if held.call is not None else 0
    if isinstance(settlement, Nack):
        after = f"next try in {settlement.delay_s or 0:.1f} s"
    else:
        after = f"no more tries, it goes to {settlement.queue}"
    trace = f"\n{outcome.trace.rstrip()}" if outcome.trace else ""
    log.warning("%s failed (attempt %d): %s; %s%s", _name(held), number, outcome.text, after, trace)
