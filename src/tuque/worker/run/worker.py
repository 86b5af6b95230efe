"""The worker: fetches jobs, has a pool run them, and leaves nothing half done when it stops.

One event loop runs four kinds of loops: fetching (fetch.py), heartbeats (heartbeat.py), reports
(report.py, ack_sender.py) and a short task for each running job. app/decisions.py decides, the
pools run jobs. A job is *held* from its delivery until the broker knows its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import heapq
import logging
import time
from typing import Any, Final

from tuque.client.api import Job
from tuque.errors import Error
from tuque.logtext import facts
from tuque.metrics.listener import Listener
from tuque.worker.app.codec import lost_result
from tuque.worker.app.decisions import (
    MAX_FETCH,
    Outcome,
    Want,
    is_at_most_once,
    one_line,
    room,
)
from tuque.worker.app.task import SPREAD
from tuque.worker.pools.child import of_job
from tuque.worker.pools.execute import describe
from tuque.worker.pools.processes import check_memory_shown, has_room, is_over
from tuque.worker.run import health
from tuque.worker.run.crash_table import (
    RUNNING,
    SUSPECT,
    WORKING,
    Entry,
)
from tuque.worker.run.crash_table import WAITING as WAITS
from tuque.worker.run.fetch import POLL_MS
from tuque.worker.run.health import Meter, open_meter
from tuque.worker.run.holder import LATER_S, Holder
from tuque.worker.run.in_flight import (
    AT_WORK,
    SETTLING,
    WAITING,
    Held,
)
from tuque.worker.run.link import pause
from tuque.worker.run.registration import Registration
from tuque.worker.run.stats import DONE as JOBS_DONE
from tuque.worker.run.stats import FAILED
from tuque.worker.run.supervise import inherited, jobs_of

log: Final = logging.getLogger("tuque.worker")


LAST_WORDS_S: Final = 2.0  # of the grace, reserved for telling the broker about the jobs
LAST_WORDS_S_MIN: Final = 0.5
LAST_FETCH_S: Final = POLL_MS / 1000 + 0.5  # until the broker has ended the last GETJOB
UNSETTLED_MAX: Final = 1000
AHEAD_S: Final = 1.0  # without a begin, until what was fetched ahead is given back


class Worker(Holder):
    """A worker of one process; `run` returns after it was stopped and has finished."""

    def __init__(self, *words: Any) -> None:
        """The arguments are those of `Holder`."""
        super().__init__(*words)
        self._begun_at = time.monotonic()  # the last one
        self._is_slow = False  # its jobs are too long to fetch others ahead
        self._herald = Registration(
            self._client,
            self.name,
            self._settings.queues,
            self._settings.app_version,
            self._figures,
            {"quiet": self.quiet, "stop": self.stop},
        )

    def _figures(self) -> dict[str, Any]:
        """What the worker says of itself that changes."""
        return {
            "slots": self._settings.concurrency,
            "busy": len(self._runs),
            "done": self.story.counts[JOBS_DONE],
            "failed": self.story.counts[FAILED],
            "quiet": self._is_quiet or self.is_stopping(),
        }

    # Called from outside

    def stop(self) -> None:
        """Stops fetching and ends within the grace; the second time, ends at once."""
        if self._stop.is_set():
            self._abort.set()
        self._stop.set()
        self._room.set()

    def cancel(self, job_id: str, run: str) -> None:
        """Cancels a run, as the broker asks."""
        self._runs_told.pushed(job_id, run)

    def ordered(self, name: str, order: str) -> None:
        """Does what an operator asks, over the broker."""
        self._herald.ordered(name, order)

    def quiet(self) -> None:
        """Stops fetching, and waits for `stop`."""
        log.info("quiet: no more jobs are fetched", extra=facts("worker_quiet"))
        self._is_quiet = True

    def dump(self) -> None:
        """Logs the running jobs and their times; writes the stacks of all threads to stderr."""
        now = time.monotonic()
        for held in self._runs.values():
            log.info(
                "runs for %(seconds).1f s: %(run)s",
                facts("job_running", seconds=now - held.since, run=held),
            )
        waiting = len(self._waiting) + len(self._apart)
        log.info(
            "%(running)d run, %(waiting)d wait, %(text)s",
            facts(
                "worker_dump", running=len(self._runs), waiting=waiting, text=self.story.summary()
            ),
        )
        faulthandler.dump_traceback(all_threads=True)

    async def run(self) -> bool:
        """Works until stopped. False if threads with unfinished jobs are left behind."""
        loops: set[asyncio.Task[None]] = set()
        listener = self._open_meter(loops)  # first: the broker hears of no worker that can't
        await self._pool.start()
        if self._box is not None:  # else children have the limit
            self._has_room = has_room(self._settings.max_memory_mb, self._box.is_first)
            self._box.phase = WORKING
            if self._box.is_last:  # the broker may be down
                asyncio.get_running_loop().call_later(self._settings.grace_s, self.stop)
        self._log_ready()
        fetching = asyncio.create_task(self._fetch_loop())
        loops |= {
            asyncio.create_task(self._settler.loop()),
            asyncio.create_task(self._runs_told.teller.loop()),
            asyncio.create_task(self._heart.loop()),
            asyncio.create_task(self.story.loop()),
            asyncio.create_task(self._herald.loop()),
            asyncio.create_task(self._even_out()),
        }
        if self._settings.health_file is not None:
            loops.add(asyncio.create_task(self._tell_health(self._settings.health_file)))
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
            for task in {fetching, stopped, *loops, *self._runs}:
                task.cancel()
            await asyncio.gather(fetching, stopped, *loops, *self._runs, return_exceptions=True)
            await self._herald.close()

    def _log_ready(self) -> None:
        check_memory_shown(self._settings.max_memory_mb)
        log.info(
            "worker ready: broker %(broker)s, queues %(queues)s, %(concurrency)d at a time, "
            "%(prefetch)d more fetched ahead, tasks: %(tasks)d",
            facts(
                "worker_ready",
                broker=self._client.settings.masked_url,
                queues=", ".join(self._settings.queues),
                concurrency=self._settings.concurrency,
                prefetch=self._settings.prefetch,
                tasks=sum(name != SPREAD for name in self._tasks),
            ),
        )

    def _open_meter(self, loops: set[asyncio.Task[None]]) -> Listener | None:
        """Serves the metrics, if a port is set; adds a loop."""
        port = self._settings.metrics_port
        if port is None:
            return None
        meter = Meter(self.story, self._link, self._settings.concurrency, lambda: len(self._runs))
        listener = open_meter(meter, port)
        loops.add(asyncio.create_task(self._beat(meter)))
        return listener

    async def _beat(self, meter: Meter) -> None:
        """[O4] Notes at intervals that this loop turns (O4.2)."""
        while True:
            meter.beat_at = time.monotonic()
            await asyncio.sleep(health.EVERY_S)

    async def _tell_health(self, path: str) -> None:
        """[U4] Writes at intervals that this loop is alive (U4.4)."""
        while True:
            lost_s = time.monotonic() - self._link.last_answer_at if self._link.is_lost else None
            try:
                health.write(path, len(self._runs), lost_s)
            except OSError as err:
                log.warning(
                    "the health file cannot be written: %(reason)s",
                    facts("health_unwritten", reason=err),
                )
            await asyncio.sleep(health.EVERY_S)

    # Fetching

    @property
    def _begun(self) -> int:
        """The jobs of `--max-jobs`."""
        return self._taken - self._unbegun

    def _want(self) -> Want:
        """The number of jobs to ask for now."""
        unsettled = sum(1 for held in self._held.values() if held.state == SETTLING)
        now_s = time.monotonic()
        is_alone = self._alone.has_one(now_s)
        if self._is_quiet or is_alone or unsettled >= UNSETTLED_MAX:
            return Want(0, 0)
        running, waiting = len(self._runs), self._waiting_count(unsettled)
        count = room(self._settings.concurrency, self._ahead, running, waiting)
        most = MAX_FETCH
        if self._settings.max_jobs is not None:
            most = self._settings.max_jobs - self._begun
        count = min(count, most)
        return Want(min(count, 1) if self._alone.comes_next(now_s) else count, most)

    @property
    def _ahead(self) -> int:
        """The number of jobs that may wait here for a place."""
        return 0 if self._is_slow else self._settings.prefetch

    def _waiting_count(self, unsettled: int) -> int:
        """The number of jobs that wait here for a place; `unsettled`: of those that have ended."""
        return len(self._held) - unsettled - len(self._runs) - len(self._apart)

    def _accept(self, jobs: list[Job]) -> bool:
        found = super()._accept(jobs)
        if len(self._waiting) > self._ahead:
            self._give_back_excess()
        return found

    def _give_back_excess(self) -> None:
        """[U2] Gives back what came from several leaders and finds no room here (U2.25)."""
        unsettled = sum(1 for held in self._held.values() if held.state == SETTLING)
        there = len(self._runs) + self._waiting_count(unsettled)
        over = there - self._settings.concurrency - self._ahead
        for place in sorted(self._waiting, reverse=True) if over > 0 else ():
            held = place[2]
            if over > 0 and held.state == WAITING and not is_at_most_once(held.job.id):
                self._waiting.remove(place)
                self._give_back_unbegun(held)
                over -= 1
        heapq.heapify(self._waiting)

    async def _even_out(self) -> None:
        """[U2] Leaves jobs to other workers while none begins here (U2.20)."""
        while True:
            await asyncio.sleep(AHEAD_S / 2)
            places = min(self._settings.concurrency, self._pool.places)
            suspect = self._alone.forgo(time.monotonic())
            if suspect is not None:  # U2.24
                self._give_back_unbegun(suspect, self._rng.uniform(*LATER_S))
                self._start_waiting()
                self._room.set()
            is_full = len(self._runs) + self._starting >= max(1, places)
            if is_full and time.monotonic() - self._begun_at >= AHEAD_S:
                self._is_slow = True
                self._give_back_ahead()

    async def _meet(self) -> None:
        """Waits for the broker, and takes over the previous process's jobs."""
        entries = inherited(self._box) if self._box is not None else []
        while not self._stop.is_set():
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
        suspects = 0
        for entry, job in sorted(jobs, key=lambda found: found[0].state == WAITS):
            held = self._received(job)
            if held.settlement is not None:
                continue
            if entry.outcome is not None:  # U2.14
                if entry.is_result_lost:
                    why = f"its process {self._box.ended} before its report"
                    entry.outcome.result = lost_result(one_line(why))
                    log.error(
                        "the result of %(run)s is lost: its process %(reason)s before its report",
                        facts("job_result_lost", run=held, reason=self._box.ended),
                        extra=of_job(held.about),
                    )
                self._box.end(job.id, entry.outcome)
                held.verdict = entry.outcome
                self._conclude(held)
            elif entry.state == RUNNING or (entry.state == SUSPECT and is_at_most_once(job.id)):
                if entry.state == RUNNING:
                    self._apart.blame(held)
                held.verdict = Outcome("crashed", f"its process {self._box.ended}")
                self._conclude(held)
            elif self._box.is_last:
                continue  # it is requeued: a heartbeat after its NACK would undo that
            elif entry.state == SUSPECT:
                suspects += 1
                self._apart.line_up(held, is_suspect=True)
                self._note(held, SUSPECT)
                self._heart.beat_now(job.id)
            else:
                self._line_up(held)
                self._heart.beat_now(job.id)
        if suspects:
            log.warning(
                "%(jobs)d jobs ran when a process %(reason)s: they run again one at a time, "
                "apart and uncounted",
                facts("jobs_suspected", jobs=suspects, reason=self._box.ended),
            )
        if not self._box.is_last:
            self._start_waiting()

    async def _fetch_loop(self) -> None:
        """Fetches until the worker stops and all that was on its way is here."""
        try:
            await self._fetch_until_stopped()
            await self._fetcher.ended()
        finally:
            self._fetcher.cancel()

    async def _fetch_until_stopped(self) -> None:
        await self._meet()
        if self._box is not None and self._box.is_last:
            self.stop()
        while not self._stop.is_set():
            self._room.clear()
            apart = self._apart.queues
            if self._want().jobs <= 0 or apart.issuperset(self._settings.queues):
                if self._begun == self._settings.max_jobs and not self._held:
                    log.info(
                        "%(jobs)d jobs taken: --max-jobs is reached",
                        facts("max_jobs_taken", jobs=self._begun),
                    )
                    self.stop()
                    return
                if self.is_retired and all(h.state == SETTLING for h in self._held.values()):
                    self.stop()
                    return
                await self._room.wait()
                continue
            try:
                await self._fetcher.fetch(self._want, apart)
            except Error as err:
                await pause(self._link.failed("GETJOB", err), self._stop)
                continue
            if self._settings.is_burst and self._fetcher.is_dry and not self._held:
                log.info(
                    "nothing is left in the queues: --burst ends", extra=facts("burst_ended")
                )  # U4.1
                self.stop()
                return

    # Running

    def _start_waiting(self) -> None:
        """Fills free places: with jobs that run apart, then from the buffer by priority."""
        places = min(self._settings.concurrency, self._pool.places)  # U2.1
        is_alone = self._alone.has_one(time.monotonic())
        if is_alone:
            self._give_back_ahead()  # U2.23
        while len(self._runs) + self._starting < places and not self._stop.is_set():
            held = None if is_alone else self._apart.next()
            if held is None and self._waiting:
                held = heapq.heappop(self._waiting)[2]
            if held is None and is_alone and not self._runs and not self._starting:
                held = self._alone.begin()
            if held is None:
                return
            if held.state != WAITING:
                continue
            if held.has_runs and not held.run:
                self._starting += 1
                held.has_place = True
                self._runs_told.start(held)
            else:
                self.run_now(held)

    def run_now(self, held: Held) -> None:
        """Runs the job's task."""
        self._give_place(held)
        held.state = AT_WORK
        held.since = self._begun_at = time.monotonic()
        self._note(held, SUSPECT if held.is_apart else RUNNING)
        if held.is_apart:
            self._room.set()  # its queue may be asked again
        run = asyncio.create_task(self._run(held))
        self._runs[run] = held
        run.add_done_callback(self._on_run_ended)

    def _on_run_ended(self, run: asyncio.Task[None]) -> None:
        held = self._runs.pop(run)
        if time.monotonic() - held.since < AHEAD_S:
            self._is_slow = False
        if self._box is not None and self._has_room and is_over(self._settings.max_memory_mb):
            self._retire()
        self._start_waiting()
        self._room.set()

    async def _run(self, held: Held) -> None:
        assert held.call is not None
        try:
            if held.is_apart:
                outcome = await self._apart.run(held)
            else:
                outcome = await self._pool.run(held.call)
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if self._is_leaving or (this is not None and this.cancelling()):
                raise
            outcome = Outcome("failed", "the task was cancelled")
        except Exception as err:
            log.exception("the pool failed with %(run)s", facts("pool_failed", run=held))
            outcome = Outcome("crashed", describe(err))
        if self._is_leaving and outcome.kind != "done":
            return  # it was interrupted, which is not the task's failure
        if self._box is not None:
            self._box.runs += 1
        self._ran(held, outcome)
        if held.is_apart:
            for freed in self._apart.ended(held, outcome):
                self._line_up(freed)

    # Stopping

    def _retire(self) -> None:
        """[U4] Takes no more jobs, and ends when all that it has have ended (U4.2)."""
        log.warning(
            "the worker process has more than %(max_mb)d MB: "
            "it ends after its %(jobs)d jobs, and another starts",
            facts("worker_too_big", max_mb=self._settings.max_memory_mb, jobs=len(self._held)),
        )
        self._is_quiet = self.is_retired = True
        self._has_room = False  # once

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
        await _wait_for({fetching, aborted}, deadline)
        if not self._link.is_lost:  # what is given back while it waits would go to it (U2.22)
            await _wait_for({fetching}, time.monotonic() + LAST_FETCH_S)
        fetching.cancel()
        self._give_back_waiting()
        until = deadline - min(LAST_WORDS_S, self._settings.grace_s * 0.2)
        while self._runs and not self._abort.is_set() and time.monotonic() < until:
            await _wait_for({aborted, *self._runs}, until)
        aborted.cancel()
        return await self._leave(deadline)

    async def _leave(self, deadline: float) -> bool:
        """Ends the pool, requeues interrupted jobs, and settles everything by the deadline."""
        self._is_leaving = True
        await self._apart.stop()
        is_clean = await self._pool.stop()
        await asyncio.sleep(0)  # lets runs that just ended report
        for held in [held for held in self._held.values() if held.state == AT_WORK]:
            log.warning(
                "%(run)s is cut off", facts("job_cut_off", run=held), extra=of_job(held.about)
            )
            self._give_back(held, "the worker stopped while it ran")
        if not await self._told_all(deadline):
            jobs = self._settler.pending + self._runs_told.teller.pending
            log.warning(
                "the broker has no report of %(jobs)d jobs; their retry time brings them back",
                facts("jobs_outcome_unreported", jobs=jobs),
            )
        log.info("stopped: %(text)s", facts("worker_stopped", text=self.story.summary()))
        return self._aside.close() and is_clean

    async def _told_all(self, deadline: float) -> bool:
        """Waits until the broker knows all, by the deadline; a second signal shortens that."""
        told = asyncio.gather(
            self._settler.drained(), self._runs_told.teller.drained(), self._aside.drained()
        )
        aborted = asyncio.create_task(self._abort.wait())
        least = time.monotonic() + LAST_WORDS_S_MIN
        await _wait_for({told, aborted}, max(least, deadline))
        if aborted.done():
            await _wait_for({told}, time.monotonic() + LAST_WORDS_S)
        is_told = told.done()
        aborted.cancel()
        told.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await told
        return is_told


async def _wait_for(tasks: set[asyncio.Future[Any]], until: float) -> None:
    """Waits for the first of the tasks, until that monotonic time at most."""
    timeout = max(0.0, until - time.monotonic())
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
