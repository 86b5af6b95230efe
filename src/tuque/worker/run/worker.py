"""The worker: fetches jobs, has a pool run them, and leaves nothing half done when it stops.

One event loop runs three kinds of loops: fetching (fetch.py), heartbeats (heartbeat.py) and
reports (report.py). job_runner.py has the jobs.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import time
from typing import Any, Final

from tuque import aio
from tuque.client.api import Job
from tuque.errors import Error
from tuque.logtext import facts
from tuque.worker.app.decisions import (
    MAX_FETCH,
    Outcome,
    Want,
    is_at_most_once,
    room,
)
from tuque.worker.app.hooks import Hooks
from tuque.worker.app.task import SPREAD, Task
from tuque.worker.pools.child import of_job
from tuque.worker.pools.pools import Pool
from tuque.worker.pools.process_pool import ProcessPool
from tuque.worker.pools.systems import check_memory_shown, has_room
from tuque.worker.run.crash_table import RUNNING, SUSPECT, WORKING, CrashTable, Entry
from tuque.worker.run.crash_table import WAITING as WAITS
from tuque.worker.run.fetch import POLL_MS, Fetcher, Turns, UnavailableQueues
from tuque.worker.run.health import begin_signs
from tuque.worker.run.job_runner import LATER_S, JobRunner
from tuque.worker.run.jobs import (
    AHEAD_S,
    AT_WORK,
    WAITING,
    WorkerSettings,
    log_jobs,
    log_ready,
)
from tuque.worker.run.link import ended_by, pause, unless_stopped, wait_for
from tuque.worker.run.registration import Registration
from tuque.worker.run.stats import DONE as JOBS_DONE
from tuque.worker.run.stats import FAILED
from tuque.worker.run.supervise import inherited, jobs_of

log: Final = logging.getLogger("tuque.worker")

LAST_WORDS_S: Final = 2.0  # of the grace, reserved for telling the broker about the jobs
LAST_FETCH_S: Final = POLL_MS / 1000 + 0.5  # until the broker has ended the last GETJOB
UNSETTLED_MAX: Final = 1000


class Worker(JobRunner):
    """A worker of one process; `run` returns after it was stopped and has finished."""

    def __init__(
        self,
        tasks: dict[str, Task[..., Any]],
        client: aio.Client,
        pool: Pool,
        settings: WorkerSettings,
        box: CrashTable | None = None,
        isolated_pool: ProcessPool | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """`box` has the previous process's jobs; `isolated_pool` runs jobs that may end theirs."""
        super().__init__(tasks, client, pool, settings, box, isolated_pool, hooks)
        self._abort = asyncio.Event()
        self._is_measured = False
        away = UnavailableQueues(self._rng)
        turns = Turns(settings.queues, settings.weights)
        self._fetcher = Fetcher(client, turns, away, self._accept, self._room)
        orders = {"quiet": self.quiet, "stop": self.stop}
        self._herald = Registration(
            client, self.name, settings.queues, settings.app_version, self._figures, orders
        )

    def _figures(self) -> dict[str, Any]:
        """What the worker says of itself that changes."""
        return {
            "slots": self._settings.concurrency,
            "busy": len(self._runs),
            "done": self.story.counts[JOBS_DONE],
            "failed": self.story.counts[FAILED],
            "quiet": self._is_quiet or self._stop.is_on,
        }

    # Called from outside

    def stop(self) -> None:
        """Stops fetching and ends within the grace; the second time, ends at once."""
        if self._stop.is_on:
            self._abort.set()
        self._stop.set()
        self._room.set()

    def cancel(self, job_id: str, run: str) -> None:
        """The broker says that a run is over; it does not say why."""
        held = self._held.get(job_id)
        is_limit = held is not None and run == held.run and held.is_limit_over(self.now_s())
        if not is_limit or not self._heart.ask(job_id):
            self.on_over(job_id, run)

    def ordered(self, name: str, order: str) -> None:
        """Does what an operator asks, over the broker."""
        self._herald.ordered(name, order)

    def quiet(self) -> None:
        """Stops fetching, and waits for `stop`."""
        log.info("quiet: no more jobs are fetched", extra=facts("worker_quiet"))
        self._is_quiet = True

    def dump(self) -> None:
        """Logs the running jobs and their times; writes the stacks of all threads to stderr."""
        waiting = len(self._waiting) + len(self._quarantine)
        running = sorted(self._runs, key=lambda held: held.since)
        log_jobs(running, waiting, self.story.summary())
        faulthandler.dump_traceback(all_threads=True)

    async def run(self) -> bool:
        """Works until stopped. False if threads with unfinished jobs are left behind."""
        # first: the broker hears of no worker that can't
        listener, signs = begin_signs(
            self._settings, self.story, self._link, self._runs, self._pool
        )
        await unless_stopped(self._pool.start(), self._stop)
        if self._pool.places:  # else a lifespan may take memory before the first job
            self._measure()
        if self._box is not None:
            self._box.phase = WORKING
            if self._box.is_last:  # the broker may be down
                asyncio.get_running_loop().call_later(self._settings.grace_s, self.stop)
        check_memory_shown(self._settings.max_memory_mb)
        tasks = sum(name == task.name != SPREAD for name, task in self._tasks.items())
        log_ready(self._client.settings.masked_url, self._settings, tasks)
        fetching = asyncio.create_task(self._fetch_loop())
        loops = {
            *map(asyncio.create_task, signs),
            asyncio.create_task(self._reporter.loop()),
            asyncio.create_task(self._heart.loop()),
            asyncio.create_task(self.story.loop()),
            asyncio.create_task(self._herald.loop()),
            asyncio.create_task(self._even_out()),
        }
        stopped = asyncio.create_task(self._stop.wait())
        try:
            ended, _ = await asyncio.wait(
                {fetching, stopped, *loops}, return_when=asyncio.FIRST_COMPLETED
            )
            for loop in ended - {stopped}:
                loop.result()  # an error in one of these loops ends the worker, loudly
            is_clean = await self._wind_down(fetching)
            if not self.is_retired:  # else another process goes on under this name
                await self._herald.leave()
            return is_clean
        finally:
            if listener is not None:
                listener.close()
            self._is_leaving = True
            self._stop.set()  # nothing begins any more
            for task in {fetching, stopped, *loops}:
                task.cancel()
            await asyncio.gather(fetching, stopped, *loops, return_exceptions=True)
            await self._pool.drop()
            await self._quarantine.drop()
            await self._herald.close()

    # Fetching

    @property
    def _begun(self) -> int:
        """The jobs of `--max-jobs`."""
        return self._taken - self._unbegun

    def _want(self) -> Want:
        """The number of jobs to ask for now."""
        now_s, places = time.monotonic(), min(self._settings.concurrency, self._pool.places)
        is_full = self._settling >= UNSETTLED_MAX or not places
        if self._is_quiet or is_full or self._alone.has_one(now_s):
            return Want(0, 0)
        running = len(self._runs)
        ahead = self._ahead.measure()
        count = room(places, ahead, running, self._there - running)
        most = MAX_FETCH
        if self._settings.max_jobs is not None:
            most = self._settings.max_jobs - self._begun
        count = min(count, most)
        return Want(min(count, 1) if self._alone.comes_next(now_s) else count, most)

    async def _even_out(self) -> None:
        """[U2] Leaves jobs to other workers while none begins here (U2.20)."""
        while True:
            await asyncio.sleep(AHEAD_S / 2)
            places = min(self._settings.concurrency, self._pool.places)
            suspect = self._alone.forgo(time.monotonic())
            if suspect is not None:  # U2.24
                self._give_back_unbegun(suspect, self._rng.uniform(*LATER_S))
                self._on_place()
            for held in self._quarantine.stuck(time.monotonic()):
                self._give_back_unbegun(held, self._rng.uniform(*LATER_S))
            is_full = len(self._runs) + self._starting >= places
            if is_full and time.monotonic() - self._begun_at >= AHEAD_S:
                self._ahead.stop()
                self._give_back_ahead()

    async def _meet(self) -> None:
        """Waits for the broker, and takes over the previous process's jobs."""
        entries = inherited(self._box) if self._box is not None else []
        while not self._stop.is_on:
            try:
                await self._client.ping()
                jobs = await jobs_of(self._client, entries, self.name)
            except Error as err:
                await pause(self._link.failed("PING", err), self._stop)
                continue
            self._link.answered()
            log.info(
                "connected to node %(node)s", facts("worker_connected", node=self._client.node)
            )
            self._take_over(entries, jobs)
            return

    def _take_over(self, entries: list[Entry], jobs: list[tuple[Entry, Job]]) -> None:
        """Continues the previous process's jobs in the state that their entries have."""
        if self._box is None:
            return
        for gone in {entry.job_id for entry in entries} - {job.id for _, job in jobs}:
            self._box.drop(gone)
        for entry, job in sorted(jobs, key=lambda found: found[0].state == WAITS):
            held = self._received(job, entry.run)
            if entry.outcome is not None:  # U2.14
                if entry.is_result_lost:
                    held.lose_result(entry.outcome, self._box.ended)
                self._box.end(job.id, entry.outcome)
                self._conclude(held, entry.outcome)
            elif entry.state == RUNNING or (entry.state == SUSPECT and is_at_most_once(job.id)):
                if entry.state == RUNNING:
                    self._quarantine.blame(held, time.monotonic())
                self._conclude(held, Outcome("crashed", f"its process {self._box.ended}"))
            elif self._box.is_last:
                continue  # it is requeued: a heartbeat after that would undo it
            elif held.verdict is not None:
                self._settle_unrun(held, held.verdict)
            elif entry.state == SUSPECT:
                self._quarantine.line_up(held, is_suspect=True)
                self._note(held, SUSPECT)
                self._heart.beat_now(job.id)
            else:
                self._line_up(held)
                self._heart.beat_now(job.id)
        self._quarantine.log_suspects(self._box.ended)
        if not self._box.is_last:
            self._start_waiting()

    async def _fetch_loop(self) -> None:
        """Fetches until the worker stops and each GETJOB has its reply."""
        try:
            await self._fetch_until_stopped()
            await self._fetcher.ended()
        finally:
            self._fetcher.cancel()

    def _measure(self) -> None:
        """[U4] Looks whether it is below `--max-memory` before its first job (U4.6)."""
        limit_mb, self._is_measured = self._settings.max_memory_mb, True
        if self._box is not None and limit_mb is not None:  # else children have the limit
            self._has_room = has_room(limit_mb, self._box.is_first)

    async def _fetch_until_stopped(self) -> None:
        await self._meet()  # first: what the process before had does not wait for a lifespan
        if self._box is not None and self._box.is_last:
            self.stop()
        while not self._stop.is_on:
            self._room.clear()
            skipped = self._quarantine.queues
            if self._want().jobs <= 0 or skipped.issuperset(self._settings.queues):
                if self._begun == self._settings.max_jobs and not self._held:
                    log.info(
                        "%(jobs)d jobs taken: --max-jobs is reached",
                        facts("max_jobs_taken", jobs=self._begun),
                    )
                    self.stop()
                    return
                if self.is_retired and self._settling == len(self._held):
                    self.stop()
                    return
                await self._room.wait()
                continue
            if not self._is_measured:
                self._measure()
            try:
                await self._fetcher.fetch(self._want, skipped)
            except Error as err:
                await pause(self._link.failed("GETJOB", err), self._stop)
                continue
            if self._settings.is_burst and self._fetcher.is_dry and not self._held:
                log.info(
                    "nothing is left in the queues: --burst ends", extra=facts("burst_ended")
                )  # U4.1
                self.stop()
                return

    # Stopping

    async def _wind_down(self, fetching: asyncio.Task[None]) -> bool:
        """Requeues jobs that have not started, waits for running ones, requeues the rest."""
        deadline = time.monotonic() + self._settings.grace_s
        aborted = asyncio.create_task(self._abort.wait())
        log.info(
            "stopping: %(running)d jobs run and have %(grace_s).0f s, "
            "%(given_back)d go back to their queues",
            facts(
                "worker_stopping",
                running=len(self._runs),
                grace_s=self._settings.grace_s,
                given_back=sum(1 for held in self._held.values() if held.state == WAITING),
            ),
        )
        self._give_back_waiting()
        # the last GETJOB may still return jobs: cancelling it would leave them without an owner
        await wait_for({fetching, aborted}, deadline)
        if not self._link.is_lost:  # what is given back while it waits would go to it (U2.22)
            await wait_for({fetching}, time.monotonic() + LAST_FETCH_S)
        fetching.cancel()
        self._give_back_waiting()
        self._give_back_batches()
        until = deadline - min(LAST_WORDS_S, self._settings.grace_s * 0.2)
        if self._runs:
            self._at_rest.clear()
            at_rest = asyncio.create_task(self._at_rest.wait())
            await wait_for({aborted, at_rest}, until)
            at_rest.cancel()
        aborted.cancel()
        return await self._leave(deadline)

    async def _leave(self, deadline: float) -> bool:
        """Ends the pool, requeues interrupted jobs, and settles everything by the deadline."""
        self._is_leaving = True
        await self._quarantine.stop()
        is_clean = await self._pool.stop()
        await asyncio.sleep(0)  # lets runs that just ended report
        for held in [held for held in self._held.values() if held.state == AT_WORK]:
            log.warning(
                "%(run)s is cut off", facts("job_cut_off", run=held), extra=of_job(held.about)
            )
            self._give_back(held, "the worker stopped while it ran")
        last_words = self._reporter.drained(), self._aside.drained()
        if not await ended_by(last_words, deadline, self._abort, LAST_WORDS_S):
            log.warning(
                "the broker has no report of %(jobs)d jobs; their retry time brings them back",
                facts("jobs_outcome_unreported", jobs=self._reporter.pending),
            )
        log.info("stopped: %(text)s", facts("worker_stopped", text=self.story.summary()))
        return self._aside.close() and is_clean
