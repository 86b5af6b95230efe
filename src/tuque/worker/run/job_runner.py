"""The jobs of a worker: each is taken, begun, ended or given back, and reported.

Has no loop: worker.py calls it with deliveries, pools with outcomes, report.py with replies.
jobs.py and app/decisions.py decide, the pools run jobs. A job is *held* from its delivery until
the broker knows its outcome.
"""

from __future__ import annotations

import logging
import random
import time
from functools import partial
from typing import Any, Final
from zlib import crc32

from tuque import aio
from tuque.client.api import Job
from tuque.client.commands.work import Run
from tuque.errors import Error, ReplyError, Stale, TooLate
from tuque.logtext import facts
from tuque.worker.app.decisions import (
    Done,
    Fail,
    Outcome,
    Release,
    Report,
    conclude,
    is_at_most_once,
)
from tuque.worker.app.hooks import Hooks
from tuque.worker.app.task import RetryLater, Task
from tuque.worker.pools.child import of_job
from tuque.worker.pools.pools import Pool
from tuque.worker.pools.process_pool import ProcessPool
from tuque.worker.pools.processes import is_over
from tuque.worker.run.crash_table import RUNNING, SUSPECT, CrashTable
from tuque.worker.run.crash_table import WAITING as WAITS
from tuque.worker.run.heartbeat import Heartbeats
from tuque.worker.run.jobs import (
    AT_WORK,
    SETTLING,
    STARTING,
    WAITING,
    Ahead,
    Buffer,
    InFlight,
    PutOff,
    WorkerSettings,
    is_suspect,
    prepare,
)
from tuque.worker.run.link import Flag, Link
from tuque.worker.run.quarantine import Alone, Quarantine
from tuque.worker.run.registration import worker_name
from tuque.worker.run.report import HookRunner, Reporter, sealed
from tuque.worker.run.stats import GONE, JobLog

log: Final = logging.getLogger("tuque.worker")

LATER_S: Final = (0.2, 1.0)  # after which a suspect comes again (U2.23)
REFUSED_S: Final = 5.0  # until a job comes again whose START was refused


class JobRunner:
    """The jobs that a worker holds, and what is done with each of them."""

    reporter_of: type[Reporter] = Reporter
    aside_of: type[HookRunner] = HookRunner

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
        self._aside = self.aside_of(tasks, hooks)
        self._keys = None if hooks is None else hooks.keys
        self._box = box
        self._tasks = tasks
        self._client = client
        self._pool = pool
        self._settings = settings
        self._rng = random.Random()
        self.story = JobLog()
        self._link = Link(self._rng)
        self.name = self.name_of(box)
        self._held: dict[str, InFlight] = {}
        self._waiting = Buffer(() if settings.weights else settings.queues)
        self._settling = 0  # of those held: they have ended, which the broker does not know yet
        self._runs: set[InFlight] = set()
        self._overdue: set[InFlight] = set()  # of the runs: reported, and they keep their places
        self._put_off = PutOff()
        self._starting = 0
        self._taken = 0
        self._finished = 0  # runs
        self._unbegun = 0  # of those taken, and given back: none of --max-jobs
        self._begun_at = time.monotonic()  # the last one
        self._ahead = Ahead(settings)
        self._has_room = False  # for more memory than it has
        self._room = Flag()
        self._stop = Flag()
        self._at_rest = Flag()  # nothing runs
        self._is_quiet = self._is_leaving = False
        self.is_retired = False  # it has too much memory, and another process follows
        self._alone, self._quarantine = Alone(), Quarantine(isolated_pool, box)
        self._quarantine.on_ready(self._on_place)
        pool.on_ready = self._on_place
        self._make_talkers()

    def _make_talkers(self) -> None:
        """What talks to the broker: of runs, and for jobs."""
        client, link = self._client, self._link
        self._reporter = self.reporter_of(
            client, link, self.name, self._held, self, self.story, self._aside, self._keys
        )
        self._heart = Heartbeats(
            client, link, self._on_gone, self._run_of, self.on_over, self._queue_of
        )
        if self._box is not None:
            self._heart.tells = self._box.note_beat

    def name_of(self, box: CrashTable | None) -> str:
        """The name under which runs begin."""
        return worker_name(box)

    def now_s(self) -> float:
        """The time in seconds, for differences."""
        return time.monotonic()

    def wall_s(self) -> float:
        """The time in unix seconds."""
        return time.time()

    @property
    def _there(self) -> int:
        """The number of jobs that run or wait for a place."""
        settled = self._settling - len(self._overdue)
        return len(self._held) - settled - len(self._quarantine)

    # Deliveries

    def _accept(self, jobs: list[Job]) -> bool:
        """Takes what was delivered; False if this version of the app runs none of it."""
        self._link.answered()
        for job in sorted(jobs, key=is_suspect):  # these go last (U2.23)
            held = self._held.get(job.id)
            if held is None or isinstance(held.report, Release | Fail):
                self._hold(job)
            else:
                # its retry time passed in an outage; our result counts for this delivery, too
                log.info(
                    "job %(job)s was delivered again while it is %(state)s here",
                    facts("job_doubled", job=job.id, state=held.state),
                )
                self._heart.beat_now(job.id)
                held.again = job
        self._start_waiting()
        if len(self._waiting) > self._ahead.jobs:  # from several leaders (U2.25)
            self._give_back_ahead(self._there - self._settings.concurrency - self._ahead.jobs)
        if not self._unbegun:
            return bool(jobs)
        return not all(job.id in self._put_off for job in jobs)

    def _hold(self, job: Job) -> None:
        """Takes a delivery: into the buffer, unless it cannot run."""
        held = self._received(job)
        if held.verdict is not None:
            self._settle_unrun(held, held.verdict)
        else:
            self._line_up(held)

    def _received(self, job: Job, before: str = "") -> InFlight:
        """A delivery with its call and limits, or with a verdict."""
        self._taken += 1
        if job.id in self._held:  # given back, and the reply to that is still to come
            self._settling -= 1
        held = self._held[job.id] = InFlight(job, before)
        unknown = prepare(held, self._tasks, self._keys, self._settings.time_limit_s)
        if unknown is not None:
            held.verdict = self._not_here(held, unknown.why, unknown.keep_s)
            if held.verdict.kind == "retry":
                self._put_off.warn_unknown(unknown.task)
        self._note(held, WAITS)
        self._heart.hold(job.id, job.retry_s)
        return held

    def _not_here(self, held: InFlight, why: str, keep_s: float | None) -> Outcome:
        """What becomes of a job that a worker of another version may run (U2.4, U2.19)."""
        return self._put_off.verdict(held, why, keep_s, self.wall_s(), self.now_s())

    def _line_up(self, held: InFlight) -> None:
        """Buffers a job by its priority, or adds it to those that run alone or apart."""
        if is_suspect(held.job) and not is_at_most_once(held.job.id):
            self._hold_alone(held)
            return
        now_s = self._alone.other_s = time.monotonic()
        if self._quarantine.is_used and self._quarantine.takes(held, now_s):
            self._quarantine.line_up(held)
            return
        self._waiting.push(held)

    def _hold_alone(self, held: InFlight) -> None:
        """[U2] Takes a suspect that runs alone, or leaves it to others for a moment (U2.23)."""
        now_s, is_idle = time.monotonic(), not (self._runs or self._starting or self._waiting)
        if self._alone.has_one(now_s):
            self._give_back_unbegun(held)
        elif not self._alone.takes(held, is_idle, now_s):
            self._give_back_unbegun(held, self._rng.uniform(*LATER_S))

    def _give_back_unbegun(self, held: InFlight, delay_s: float | None = None) -> None:
        """Gives back a job that did not begin; it is none of --max-jobs."""
        self._unbegun += 1
        self._report(held, Release(held.job.id, held.known_run, delay_s))

    def _note(self, held: InFlight, state: bytes) -> None:
        """Updates the table for the next process."""
        if self._box is not None and held.call is not None:
            queue = crc32(held.job.queue.encode())
            run = held.run or held.before
            self._box.put(held.job.id, held.delivery, state, run=run, queue=queue)

    def _run_of(self, job_id: str) -> str:
        held = self._held.get(job_id)
        return "" if held is None else held.run

    def _queue_of(self, job_id: str) -> str:
        """The queue that a job in hand came from."""
        held = self._held.get(job_id)
        return held.job.queue if held is not None else ""

    # Running

    def _on_place(self) -> None:
        """There is a place, or there are more."""
        if not self._room.is_on:
            self._room.set()
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Fills free places: with jobs that run apart, then from the buffer by priority."""
        places = min(self._settings.concurrency, self._pool.places)  # U2.1
        now_s = time.monotonic()
        is_alone = self._alone.has_one(now_s)
        if is_alone:
            self._give_back_ahead()  # U2.23
        while len(self._runs) + self._starting < places and not self._stop.is_on:
            held = None
            if self._quarantine.is_used and not is_alone:
                held = self._quarantine.next(now_s)
            if held is None:
                held = self._waiting.pop()
            if held is None and is_alone and not self._runs and not self._starting:
                held = self._alone.begin()
            if held is None:
                return
            if held.state != WAITING:
                continue
            if held.run:
                self.run_now(held)
            else:
                self._starting += 1
                held.has_place = True
                self._ask_for_run(held)

    def run_now(self, held: InFlight) -> None:
        """Runs the job's task."""
        call = held.call
        assert call is not None
        self._give_place(held)
        held.state = AT_WORK
        held.since = self._begun_at = time.monotonic()
        self._note(held, SUSPECT if held.is_isolated else RUNNING)
        call.control.on_overdue = partial(self._overran, held)
        self._runs.add(held)
        on_end = partial(self._run_ended, held)
        if held.is_isolated:
            self._room.set()  # its queue may be asked again
            self._quarantine.submit(held, on_end)
        else:
            self._pool.submit(call, on_end)

    def _overran(self, held: InFlight) -> None:
        """[U2] The run is over its limit, and nobody can end it: it keeps its place (U2.10)."""
        if held.state == AT_WORK and held.call is not None:
            self._overdue.add(held)
            self._ended(held, Outcome("timeout", held.call.control.why))

    def _run_ended(self, held: InFlight, outcome: Outcome) -> None:
        """The pool has run the job; it calls `_on_place` when all that ended are passed on."""
        is_overdue = held in self._overdue
        self._overdue.discard(held)
        self._runs.discard(held)
        self._ahead.ran(time.monotonic() - held.since)
        if not self._runs and not self._at_rest.is_on:
            self._at_rest.set()
        if self._has_room and is_over(self._settings.max_memory_mb):
            self._retire()
        if self._is_leaving and outcome.kind != "done":
            return  # it was interrupted, which is not the task's failure
        self._finished += 1
        if self._box is not None:
            self._box.runs = self._finished
        if is_overdue:
            held.log_overdue(outcome)
            return
        self._ran(held, outcome)
        if held.is_isolated and outcome.kind == "crashed":
            self._quarantine.blame(held, time.monotonic())

    def _ask_for_run(self, held: InFlight) -> None:
        """The broker is asked for a run; `on_started` is called when it is there."""
        held.state = STARTING
        held.asked_at = self.now_s()
        self._reporter.start(held.job.id)

    def on_started(self, job_id: str, found: Run | ReplyError) -> None:
        """The reply to START."""
        held = self._held.get(job_id)
        if held is None or held.state != STARTING:
            return
        if isinstance(found, ReplyError):
            log.info(
                "%(run)s does not begin: %(reason)s",
                facts("job_not_begun", run=held, reason=found),
                extra=of_job(held.about),
            )
            self._forget(held)
            return
        held.begins(found)
        if held.call is not None:
            held.call.control.send_progress = partial(self._reporter.take_progress, held)
        if held.verdict is not None:
            self._end_unrun(held, held.verdict)
        elif self._stop.is_on:
            self._give_back(held, "the worker stopped before it ran")
        else:
            self.run_now(held)

    def on_refused(self, job_id: str, err: ReplyError) -> None:
        """[U2] The broker takes no START now: the job is given back (U2.12)."""
        held = self._held.get(job_id)
        if held is None or held.state != STARTING:
            return
        if is_at_most_once(job_id):  # it cannot be given back
            self.on_started(job_id, err)
            return
        log.warning(
            "%(run)s does not begin and is given back: %(reason)s",
            facts("job_start_refused", run=held, reason=err),
            extra=of_job(held.about),
        )
        self._report(held, Release(job_id, held.known_run, REFUSED_S))

    def _forget(self, held: InFlight) -> None:
        """Drops a job that did not begin: the broker has it otherwise."""
        self._give_place(held)
        self._quarantine.forgo(held)
        self._heart.release(held.job.id)
        self._drop(held)
        self._start_waiting()

    def _drop(self, held: InFlight) -> None:
        self.story.counts[GONE] += 1
        held.state = SETTLING
        del self._held[held.job.id]
        if self._box is not None:
            self._box.drop(held.job.id)
        self._room.set()

    def _give_place(self, held: InFlight) -> None:
        """The job no longer waits for its run."""
        if held.has_place:
            held.has_place = False
            self._starting -= 1
            if not self._room.is_on:
                self._room.set()  # what began no longer waits: more may be fetched ahead

    # What a run has come to

    def on_over(self, job_id: str, run: str, err: Error | None = None) -> None:
        """The broker replied that a run is over, or that its job was cancelled (U2.3)."""
        held = self._held.get(job_id)
        if held is not None and held.run == run:
            held.cancel(err, self.now_s())

    def _settle_unrun(self, held: InFlight, verdict: Outcome) -> None:
        """[U2] What this version of the app cannot run goes back or is rejected (U2.4, U2.19)."""
        if verdict.kind == "retry":
            self._unbegun += 1
            self._end_unrun(held, verdict)
        else:
            self._conclude(held, verdict)

    def _conclude(self, held: InFlight, verdict: Outcome) -> None:
        """Ends a job with that verdict, in its run if it has runs."""
        held.verdict = verdict
        if held.run:
            self._end_unrun(held, verdict)
        else:
            self._ask_for_run(held)

    def _end_unrun(self, held: InFlight, verdict: Outcome) -> None:
        """Ends a job whose task does not run here."""
        held.since = time.monotonic()
        if verdict.kind == "retry" and not is_at_most_once(held.job.id):
            self._report(held, Release(held.job.id, held.known_run, verdict.delay_s))
        else:
            self._ended(held, verdict)

    def _ran(self, held: InFlight, outcome: Outcome) -> None:
        """The pool has run the job."""
        assert held.call is not None
        if outcome.kind == "unfit":
            outcome = self._not_here(held, outcome.text, held.call.envelope.unknown_keep_s)
            if outcome.kind == "retry":
                self._put_off.warn_unfit(held.task, outcome.text)
                self._settle_unrun(held, outcome)
                return
        self._ended(held, outcome)

    def _ended(self, held: InFlight, outcome: Outcome) -> None:
        """A run has ended with this outcome."""
        if held.progress is not held.sent:
            self._reporter.send_latest(held)  # progress of its last moment
        if held.call is not None and held.call.control.is_cancelled:
            outcome = held.call.control.judge(outcome)
        held.outcome = outcome
        if outcome.kind != "done":
            self._reporter.judged(held, outcome)
        shown = outcome
        if self._keys is not None and held.call is not None:
            shown = sealed(outcome, held.job.id, self._keys)
        attempt = None if held.job.of else held.about.number  # if they are counted here (U2.6)
        report = conclude(held.job.id, held.run, shown, held.limits, self._rng, attempt)
        if outcome.kind == "cancelled":
            self.story.counts[GONE] += 1
        elif isinstance(report, Done):
            self.story.done(held.about, time.monotonic() - held.since)
        elif isinstance(report, Release):
            self.story.again(held.about, outcome, report.delay_s, held.took_s)
        self._report(held, report)

    def _report(self, held: InFlight, report: Report) -> None:
        """Ends the job here, and sends that to the broker."""
        had_place = held.has_place
        if had_place:
            self._give_place(held)
        if held.is_isolated:
            self._quarantine.forgo(held)
        if self._box is not None and held.outcome is not None:
            self._box.end(held.job.id, held.outcome)  # U2.14
        elif self._box is not None:
            self._box.mark(held.job.id, WAITS)  # the next process may have to give it back
        if held.state != SETTLING:
            held.state = SETTLING
            self._settling += 1
        held.report = report
        self._heart.release(held.job.id)
        self._reporter.put(report)
        if had_place:
            self._start_waiting()

    def on_told(self, report: Report, answer: object) -> None:
        """The broker knows how the run ended, or that it had ended otherwise."""
        held = self._held.get(report.job_id)
        if held is not None and held.report is not None:
            self._settling -= 1
            del self._held[report.job_id]
            if self._box is not None:
                self._box.drop(report.job_id)
        if not self._room.is_on:
            self._room.set()
        if held is None or held.again is None or not isinstance(answer, Stale | TooLate):
            return
        if not self._stop.is_on and report.job_id not in self._held:
            self._hold(held.again)  # the delivery is of the next attempt (U2.3)
            self._start_waiting()

    def _on_gone(self, job_id: str) -> None:
        """[U2] The node in use does not know the job: it is over, or its node is away (U2.15)."""
        held = self._held.get(job_id)
        if held is None:
            return
        log.warning(
            "%(run)s is %(state)s here, and the node in use does not know it: it is over, or at an "
            "unreachable node",
            facts("job_gone", run=held, state=held.state),
            extra=of_job(held.about),
        )
        if held.state == WAITING:
            self._drop(held)

    # Giving back

    def _give_back_waiting(self) -> None:
        for place in self._waiting, self._alone, self._quarantine:
            place.clear()
        for held in [held for held in self._held.values() if held.state == WAITING]:
            self._give_back(held, "the worker stopped before it ran")

    def _give_back_batches(self) -> None:
        """[U15] Gives back the jobs of batches that wait for others (U15.4)."""
        why = RetryLater("the worker stopped before their batch was called", delay_s=0)
        for task in self._tasks.values():
            if task.batches is not None:
                task.batches.stop(why)

    def _give_back_ahead(self, most: int | None = None) -> None:
        """[U2] Gives back what was fetched ahead, but for what may not come twice (U2.20)."""
        for held in self._waiting.take(len(self._waiting) if most is None else most):
            self._give_back_unbegun(held)

    def _give_back(self, held: InFlight, why: str) -> None:
        """[U2] The job comes again; one that comes once is a dead letter (U2.5)."""
        if is_at_most_once(held.job.id):
            if held.state != AT_WORK:
                held.call = None  # no hook is told of a run
            self._conclude(held, Outcome("failed", why))
            return
        self._report(held, Release(held.job.id, held.known_run))

    def _retire(self) -> None:
        """[U4] Takes no more jobs, and ends when all that it has have ended (U4.2)."""
        log.warning(
            "the worker process has more than %(max_mb)d MB: "
            "it ends after its %(jobs)d jobs, and another starts",
            facts("worker_too_big", max_mb=self._settings.max_memory_mb, jobs=len(self._held)),
        )
        self._is_quiet = self.is_retired = True
        self._has_room = False  # once
