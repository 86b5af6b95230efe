"""The jobs that a worker holds, from their delivery until the broker knows their outcomes.

Decides what is done with a delivered job, with the end of its run and with what the broker answers;
app/decisions.py has the rules. Has no loops: those are in worker.py.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import random
import socket
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Final
from zlib import crc32

from tuque import aio
from tuque.client.api import Job
from tuque.client.commands.work import UNBEGUN
from tuque.logtext import facts
from tuque.worker.app.codec import BadBody, Envelope, decode, opened
from tuque.worker.app.decisions import (
    Backoff,
    Dead,
    Done,
    Fail,
    Limits,
    Nack,
    Outcome,
    Release,
    Settlement,
    given_back,
    is_at_most_once,
    settle,
    spent,
)
from tuque.worker.app.enqueue import CHAIN_HEADER, TASK_HEADER
from tuque.worker.app.hooks import Hooks
from tuque.worker.app.options import DEAD_SUFFIX
from tuque.worker.app.task import Task
from tuque.worker.pools.child import of_job
from tuque.worker.pools.execute import Call, HookRunner
from tuque.worker.pools.pools import Pool
from tuque.worker.pools.process_pool import ProcessPool
from tuque.worker.run.ack_sender import Settler, obituary
from tuque.worker.run.crash_table import WAITING as WAITS
from tuque.worker.run.crash_table import (
    CrashTable,
    new_mark,
)
from tuque.worker.run.fetch import Fetcher, UnavailableQueues
from tuque.worker.run.heartbeat import Heartbeats
from tuque.worker.run.in_flight import (
    SETTLING,
    WAITING,
    Held,
    about,
    is_suspect,
)
from tuque.worker.run.link import Link
from tuque.worker.run.quarantine import Alone, Quarantine
from tuque.worker.run.report import sealed
from tuque.worker.run.runs import Runs
from tuque.worker.run.stats import GIVEN_BACK, GONE, JobLog
from tuque.worker.workflow.create import check_chain, check_queues, unknown_after

log: Final = logging.getLogger("tuque.worker")

LATER_S: Final = (0.2, 1.0)  # after which a suspect comes again (U2.23)
NOT_RUN: Final = "the step was not run: after it comes the unknown task"  # U11.2


@dataclass(frozen=True)
class WorkerSettings:
    """The settings of a worker. Queues are in order of priority, highest first."""

    queues: tuple[str, ...]
    concurrency: int = 8
    prefetch: int = 8
    grace_s: float = 25.0
    max_jobs: int | None = None
    time_limit_s: float | None = None
    is_burst: bool = False
    max_memory_mb: int | None = None
    health_file: str | None = None
    metrics_port: int | None = None
    app_version: str = ""


def made_at(envelope: Envelope, job: Job) -> float:
    """When the job was enqueued, in unix seconds; a schedule does not say (U9.2)."""
    if envelope.enqueued_at or job.added_at is None:
        return envelope.enqueued_at or time.time()
    return job.added_at.timestamp()


class Holder(ABC):
    """The part of a worker that has the jobs; `worker.py` fetches them and has them run."""

    runs_of: type[Runs] = Runs
    aside_of: type[HookRunner] = HookRunner

    def __init__(
        self,
        tasks: dict[str, Task[..., Any]],
        client: aio.Client,
        pool: Pool,
        settings: WorkerSettings,
        box: CrashTable | None = None,
        pool_apart: ProcessPool | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """`box` has the previous process's jobs; `pool_apart` runs jobs that may end theirs."""
        self._aside = self.aside_of(tasks, hooks)
        self._keys = None if hooks is None else hooks.keys
        self._box = box
        self._tasks = tasks
        self._client = client
        self._pool = pool
        self._settings = settings
        self._priority = {queue: at for at, queue in enumerate(settings.queues)}
        self._rng = random.Random()
        self.story = JobLog()
        self._link = link = Link(self._rng)
        self._away = UnavailableQueues(self._rng)
        self.name = name = self.name_of(box)
        ends = (self._on_settled, self._rng, self._queue_of)
        self._settler = Settler(client, link, self._away, name, *ends)
        self._runs_told = self.runs_of(
            client, link, name, self, self.story, self._rng, self._on_settled, self._aside
        )
        self._heart = Heartbeats(
            client, link, self._on_gone, self._run_of, self._runs_told.over, self._queue_of
        )
        self._heart.tells = self._note_beat
        self._runs_told.ask, self._runs_told.keys = self._heart.ask, self._keys
        self._starting = 0
        self._held: dict[str, Held] = {}
        self._waiting: list[tuple[int, int, Held]] = []
        self._runs: dict[asyncio.Task[None], Held] = {}
        self._taken = self._lined_up = 0
        self._unbegun = 0  # of those taken, and given back: none of --max-jobs
        self._room = asyncio.Event()
        self._stop = asyncio.Event()
        self._fetcher = Fetcher(client, settings.queues, self._away, self._accept, self._room)
        self._abort = asyncio.Event()
        self._is_quiet = False
        self._is_leaving = False
        self.is_retired = False  # it has too much memory, and another process follows
        self._alone, self._apart = Alone(), Quarantine(pool_apart, box)
        self._apart.on_ready(self._start_waiting)
        pool.on_ready = self._start_waiting

    def name_of(self, box: CrashTable | None) -> str:
        """The name under which runs begin."""
        return worker_name(box)

    def _conclude(self, held: Held) -> None:
        """Ends a job with its verdict: by a run, if the broker counts them."""
        assert held.verdict is not None
        if held.has_runs:
            self._runs_told.start(held)
        else:
            self._ran(held, held.verdict)

    def _received(self, job: Job) -> Held:
        """A delivery with its call and limits; settled at once if it cannot run."""
        self._taken += 1
        held = self._held[job.id] = Held(job, None, Limits(1, job.queue + DEAD_SUFFIX, Backoff()))
        reason: str | None = None
        try:
            body = opened(job.body, self._keys)
            envelope = decode(body)
            held.about = about(job, envelope.task, made_at(envelope, job), body)
            reason = self._hindrance(held, envelope)
        except BadBody as err:
            reason = str(err)
            if held.has_runs:
                held.verdict = Outcome("rejected", reason)
        if reason is not None and held.verdict is None and not held.has_runs:
            self._settle(held, Dead(job.id, held.limits.dead_letter, reason))
            return held
        self._note(held, WAITS)
        self._heart.hold(job.id, job.retry_s)
        return held

    def _hindrance(self, held: Held, envelope: Envelope) -> str | None:
        """[U2] Why the job cannot run here; None: it has its call and limits (U2.4).

        What the worker does with such a job is its verdict, or it is a dead letter.
        """
        task = self._tasks.get(envelope.task)
        what, unknown = f"unknown task '{envelope.task}'", envelope.task
        if task is not None:
            held.limits = task.limits(envelope, held.job.queue)
            headers = held.job.headers or envelope.headers or {}
            if self._keys is not None:
                check_chain(headers, envelope)
            steps, checked = headers.get(CHAIN_HEADER), held.job.headers or {}
            try:
                following = unknown_after(self._tasks, steps)
                if following is None:
                    check_queues(self._tasks, held.job.queue, checked, steps)
            except ValueError as err:
                raise BadBody(str(err)) from None
            if following is None:
                held.call = self._call_of(held, envelope, task)
                return spent(held.delivery, held.limits)
            what, unknown = f"{NOT_RUN} '{following}'", following
        keep_s = envelope.unknown_keep_s
        verdict = self._runs_told.unknown(held, what, unknown, keep_s)
        if held.has_runs or verdict.kind == "retry":
            held.verdict = verdict
        return what

    def _call_of(self, held: Held, envelope: Envelope, task: Task[..., Any]) -> Call:
        """What a pool needs to run the job."""
        job = held.job
        held.about.max_deliveries = job.of or held.limits.max_deliveries
        held.about.headers = job.headers or envelope.headers or {}
        limit_s = held.limits.time_limit_s or self._settings.time_limit_s
        return Call(envelope, held.about, limit_s)

    def _line_up(self, held: Held) -> None:
        """Buffers a job by its priority, or adds it to those that run alone or apart."""
        if is_suspect(held.job) and not is_at_most_once(held.job.id):
            self._hold_alone(held)
            return
        self._alone.saw_other(time.monotonic())
        if self._apart.takes(held.task):
            self._apart.line_up(held)
            return
        place = self._priority.get(held.job.queue, len(self._priority))
        self._lined_up += 1
        heapq.heappush(self._waiting, (place, self._lined_up, held))

    def _hold_alone(self, held: Held) -> None:
        """[U2] Takes a suspect that runs alone, or leaves it to others for a moment (U2.23)."""
        now_s = time.monotonic()
        if self._alone.has_one(now_s):
            self._give_back_unbegun(held)
        elif not self._alone.takes(held, self._is_idle(), now_s):
            self._give_back_unbegun(held, self._rng.uniform(*LATER_S))
        else:
            log.info(
                "%(run)s runs alone: a worker that had it was lost",
                facts("job_alone", run=held),
                extra=of_job(held.about),
            )

    def _is_idle(self) -> bool:
        """Whether no job runs, nor waits for its run."""
        return not (self._runs or self._starting or self._waiting)

    def _give_back_unbegun(self, held: Held, delay_s: float | None = None) -> None:
        """Gives back a job that did not begin; it is none of --max-jobs."""
        self._unbegun += 1
        self.story.counts[GIVEN_BACK] += 1
        self._settle(held, Release(held.job.id, UNBEGUN, delay_s))

    def _note(self, held: Held, state: bytes) -> None:
        """Updates the table for the next process."""
        if self._box is not None and held.call is not None:
            queue = crc32(held.job.queue.encode())
            self._box.put(held.job.id, held.delivery, state, run=held.run, queue=queue)

    def _note_beat(self, at_s: float) -> None:
        """Notes for the parent when heartbeats go on."""
        if self._box is not None:
            self._box.beats_at = at_s

    def held_of(self, job_id: str) -> Held | None:
        """The job, if it is held."""
        return self._held.get(job_id)

    def is_stopping(self) -> bool:
        """Whether no job begins any more."""
        return self._stop.is_set()

    def settle(self, held: Held, settlement: Settlement) -> None:
        """Ends the job here, and sends that to the broker."""
        had_place = held.has_place
        self._give_place(held)
        if held.is_apart:
            self._apart.forgo(held)
        self._settle(held, settlement)
        if had_place:
            self._start_waiting()

    def forget(self, held: Held) -> None:
        """Drops a job that did not begin."""
        self._give_place(held)
        self._apart.forgo(held)
        self._heart.release(held.job.id)
        held.state = SETTLING
        del self._held[held.job.id]
        if self._box is not None:
            self._box.drop(held.job.id)
        self._start_waiting()
        self._room.set()

    def _give_place(self, held: Held) -> None:
        """The job no longer waits for its run."""
        if held.has_place:
            held.has_place = False
            self._starting -= 1
            self._room.set()  # what began no longer waits: more may be fetched ahead

    def _run_of(self, job_id: str) -> str:
        held = self._held.get(job_id)
        return "" if held is None else held.run

    def _ran(self, held: Held, outcome: Outcome) -> None:
        """Decides what follows an attempt."""
        assert held.call is not None
        if outcome.kind == "unfit":
            outcome = self._runs_told.unfit(held, outcome.text)
            if outcome.kind == "retry":
                self._put_off(held, outcome)
                return
        if held.has_runs:
            self._runs_told.ended(held, outcome)
            return
        number = held.call.attempt.number
        held.outcome = outcome
        self._aside.ended(held.about, held.call, outcome)
        if not held.job.headers:  # of a tube, or of another client: nothing is kept
            outcome.result = None
        shown = sealed(outcome, held.job.id, self._keys)
        settlement = settle(held.job.id, shown, number, held.limits, self._rng)
        took_s = time.monotonic() - held.since
        self.story.ended(held.about, number, outcome, settlement, took_s)
        self._settle(held, settlement)

    def _settle(self, held: Held, settlement: Settlement) -> None:
        if isinstance(settlement, Dead):
            self.story.died(held.job.id)
            body = obituary(held.job, settlement.reason)
            is_failed = is_letter_here(held.job, settlement.queue)
            settlement = replace(settlement, body=body, is_failed=is_failed)
        if self._box is not None and held.outcome is not None:
            self._box.end(held.job.id, held.outcome)  # U2.14
        elif self._box is not None:
            self._box.drop(held.job.id)
        held.state = SETTLING
        held.settlement = settlement
        self._heart.release(held.job.id)
        if isinstance(settlement, Done | Fail | Release):
            self._runs_told.teller.put(settlement)
        else:
            self._settler.put(settlement)

    def _on_settled(self, settlement: Settlement) -> None:
        held = self._held.get(settlement.job_id)
        if held is not None and held.settlement is not None:
            if not held.has_runs:
                self._tell_aside(held, settlement)
            del self._held[settlement.job_id]
            if self._box is not None:
                self._box.drop(settlement.job_id)
        self._room.set()

    def _tell_aside(self, held: Held, settlement: Settlement) -> None:
        """Calls the hooks with what follows, for a job whose attempts the worker counts (U3.3)."""
        if isinstance(settlement, Nack) and held.outcome is not None:
            self._aside.put_off(held.about, held.outcome, settlement.delay_s or 0.0)
        elif isinstance(settlement, Dead):
            outcome = held.outcome or Outcome("rejected", settlement.reason)
            self._aside.buried(held.about, outcome, settlement.queue)

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
            held.state = SETTLING
            del self._held[job_id]
            if self._box is not None:
                self._box.drop(job_id)
            self.story.counts[GONE] += 1
            self._room.set()

    def _give_back_waiting(self) -> None:
        self._waiting.clear()
        self._alone.clear()
        self._apart.clear()
        for held in [held for held in self._held.values() if held.state == WAITING]:
            self._give_back(held, "the worker stopped before it ran")

    def _give_back_ahead(self) -> None:
        """[U2] Gives back what was fetched ahead, but for what may not come twice (U2.20)."""
        ahead = sorted(self._waiting)
        self._waiting = [one for one in ahead if is_at_most_once(one[2].job.id)]
        for _, _, held in ahead:
            if held.state == WAITING and not is_at_most_once(held.job.id):
                self._give_back_unbegun(held)

    def _give_back(self, held: Held, why: str) -> None:
        if held.has_runs or (held.state == WAITING and not is_at_most_once(held.job.id)):
            self.story.counts[GIVEN_BACK] += 1
            self._settle(held, Release(held.job.id, held.run or UNBEGUN))
            return
        settlement = given_back(held.job.id, held.limits.dead_letter, why)
        if isinstance(settlement, Nack):
            self.story.counts[GIVEN_BACK] += 1
        self._settle(held, settlement)
        if self._box is not None and isinstance(settlement, Dead):
            self._box.end(held.job.id, Outcome("failed", why))  # U2.14

    def _queue_of(self, job_id: str) -> str:
        """The queue that a job in hand came from."""
        held = self._held.get(job_id)
        return held.job.queue if held is not None else ""

    def _accept(self, jobs: list[Job]) -> bool:
        """Takes what was delivered; False if this version of the app runs none of it."""
        self._link.answered()
        for job in sorted(jobs, key=is_suspect):  # these go last (U2.23)
            held = self._held.get(job.id)
            if held is None or isinstance(held.settlement, Nack | Release | Fail):
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
        if not self._unbegun:
            return bool(jobs)
        return not all(self._runs_told.is_put_off(job.id) for job in jobs)

    def take_again(self, job: Job) -> None:
        """Takes a delivery that came while the job was held, whose run has ended otherwise."""
        if not self.is_stopping() and job.id not in self._held:
            self._hold(job)
            self._start_waiting()

    def _hold(self, job: Job) -> None:
        """Takes a delivery: into the buffer, or to the dead letters if it cannot run."""
        held = self._received(job)
        if held.verdict is not None and held.verdict.kind == "retry":
            self._put_off(held, held.verdict)
        elif held.verdict is not None:
            self._runs_told.start(held)
        elif held.settlement is None:
            self._line_up(held)

    def _put_off(self, held: Held, verdict: Outcome) -> None:
        """[U2] Gives back a job that this version of the app cannot run (U2.4, U2.19)."""
        self._unbegun += 1
        self._runs_told.end_unrun(held, verdict)

    @abstractmethod
    def run_now(self, held: Held) -> None:
        """Runs the job's task."""

    @abstractmethod
    def _start_waiting(self) -> None:
        """Fills free places."""


def is_letter_here(job: Job, queue: str) -> bool:
    """[U2] Whether FAIL puts the dead letter into that queue (U2.5, U2.6)."""
    knows = is_at_most_once(job.id) and TASK_HEADER in (job.headers or {})
    return knows or queue == job.queue + DEAD_SUFFIX


def worker_name(box: CrashTable | None) -> str:
    """[U6] The name under which runs begin: all processes of one parent have the same (U6.4)."""
    pid, mark = (os.getpid(), new_mark()) if box is None else (os.getppid(), box.name_mark)
    return f"{socket.gethostname()}/{pid}-{mark}"
