"""The runs of a worker: of jobs whose attempts the broker counts, in queues.

A job begins when the broker has given its run a token, and ends with that token. A run that the
broker reports as over or cancelled ends here.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from tuque import aio
from tuque.client.api import Job as Delivery
from tuque.client.commands.work import UNBEGUN, Failed, Run
from tuque.errors import Error, NoJob, ReplyError, Stale, TooLate
from tuque.logtext import facts
from tuque.worker.app.decisions import (
    PUT_OFF_MAX_S,
    Dead,
    Done,
    Fail,
    Nack,
    Outcome,
    Release,
    Settlement,
    conclude,
    instead,
    is_at_most_once,
    put_off_s,
)
from tuque.worker.app.encryption import PROGRESS, Keys
from tuque.worker.app.enqueue import UNKNOWN_KEEP_S
from tuque.worker.pools.child import of_job
from tuque.worker.pools.execute import HookRunner, over_limit_text
from tuque.worker.run.heartbeat import OVER
from tuque.worker.run.in_flight import AT_WORK, STARTING, Held
from tuque.worker.run.link import Link
from tuque.worker.run.report import Ended, RunReporter, sealed
from tuque.worker.run.stats import GIVEN_BACK, GONE, JobLog

log: Final = logging.getLogger("tuque.worker")

UNFIT_KEPT: Final = 10_000
UNFIT_S: Final = 2 * PUT_OFF_MAX_S  # after that, another worker has the job
WARNED_MAX: Final = 1_000
REFUSED_S: Final = 5.0  # until a job comes again whose START was refused
ROUNDING_S: Final = 0.005  # the broker counts in whole ms


def is_refused(answer: object) -> bool:
    """Whether the run has no outcome yet: the broker does not take such words about it."""
    if not isinstance(answer, ReplyError) or answer.retryable:
        return False
    return not isinstance(answer, (*OVER, NoJob))


class Hands(Protocol):
    """What a worker does with the jobs that it holds."""

    def held_of(self, job_id: str) -> Held | None:
        """The job, if it is held."""

    def is_stopping(self) -> bool:
        """Whether no job begins any more."""

    def run_now(self, held: Held) -> None:
        """Runs the job's task."""

    def settle(self, held: Held, settlement: Settlement) -> None:
        """Ends the job here, and sends that to the broker."""

    def forget(self, held: Held) -> None:
        """Drops a job that did not begin: the broker has it otherwise."""

    def take_again(self, job: Delivery) -> None:
        """Takes a delivery that came while the job was held."""


class Runs:
    """What becomes of the jobs that begin."""

    def __init__(
        self,
        client: aio.Client,
        link: Link,
        name: str,
        hands: Hands,
        story: JobLog,
        rng: random.Random,
        on_settled: Callable[[Settlement], None],
        aside: HookRunner,
    ) -> None:
        """`name` is the worker's; a later process under the same name may go on with its runs."""
        then = (self._on_started, self._on_refused, self._on_told, self._queue_of)
        self.teller = RunReporter(client, link, name, *then)
        self._client = client
        self._is_progress_told = True
        self._hands = hands
        self._story = story
        self._rng = rng
        self._on_settled = on_settled
        self._aside = aside
        self._unfit: OrderedDict[str, tuple[int, float]] = OrderedDict()  # how often, when last
        self._warned: set[tuple[str, str]] = set()
        self._told: set[asyncio.Task[None]] = set()
        self.keys: Keys | None = None  # of the app (U8)
        self.ask: Callable[[str], bool] = lambda job_id: False  # see Heartbeats.ask

    def _queue_of(self, job_id: str) -> str:
        held = self._hands.held_of(job_id)
        return "" if held is None else held.job.queue

    # Begin

    def start(self, held: Held) -> None:
        """Asks for a run; `run_now` is called when it is there."""
        held.state = STARTING
        held.asked_at = self.now_s()
        self.teller.start(held.job.id)

    def _on_started(self, job_id: str, found: Run | ReplyError) -> None:
        held = self._hands.held_of(job_id)
        if held is None or held.state != STARTING:
            return
        if isinstance(found, ReplyError):
            log.info(
                "%(run)s does not begin: %(reason)s",
                facts("job_not_begun", run=held, reason=found),
                extra=of_job(held.about),
            )
            self._story.counts[GONE] += 1
            self._hands.forget(held)
            return
        held.run = found.run
        if held.call is not None:
            job = held.call.attempt
            job.number, job.max_deliveries, job.starts = found.attempt, found.of, found.starts
            held.call.time_limit_s = found.time_limit_s or held.call.time_limit_s
            held.call.control.send_progress = self.reporter_of(held)
        if held.verdict is not None:
            self.end_unrun(held, held.verdict)
        elif self._hands.is_stopping():
            self._story.counts[GIVEN_BACK] += 1
            self._hands.settle(held, Release(job_id, held.run))
        else:
            self._hands.run_now(held)

    def _on_refused(self, job_id: str, err: ReplyError) -> None:
        """[U2] The broker takes no START now: the job is given back (U2.12)."""
        held = self._hands.held_of(job_id)
        if held is None or held.state != STARTING:
            return
        log.warning(
            "%(run)s does not begin and is given back: %(reason)s",
            facts("job_start_refused", run=held, reason=err),
            extra=of_job(held.about),
        )
        self._story.counts[GIVEN_BACK] += 1
        self._hands.settle(held, Release(job_id, UNBEGUN, REFUSED_S))

    def end_unrun(self, held: Held, verdict: Outcome) -> None:
        """Ends a job whose task does not run: the body is none, or the task does not take it."""
        held.since = time.monotonic()
        if verdict.kind == "retry":
            self._story.counts[GIVEN_BACK] += 1
            self._hands.settle(held, Release(held.job.id, held.run or UNBEGUN, verdict.delay_s))
        else:
            self.ended(held, verdict)

    def unknown(self, held: Held, what: str, task: str, keep_s: float | None) -> Outcome:
        """[U2] What becomes of a job that needs a task which this worker does not know (U2.4)."""
        return self._put_off(held, what, keep_s, ("unknown", task))

    def unfit(self, held: Held, what: str) -> Outcome:
        """[U2] What becomes of a call that this version of the task does not take (U2.19)."""
        assert held.call is not None
        return self._put_off(held, what, held.call.envelope.unknown_keep_s, (held.task, what))

    def is_put_off(self, job_id: str) -> bool:
        """Whether the job was given back lately, since this version of the app cannot run it."""
        return job_id in self._unfit

    def _put_off(
        self, held: Held, what: str, keep_s: float | None, about: tuple[str, str]
    ) -> Outcome:
        """Has a job wait for a worker of another version, or rejects it after `keep_s`."""
        keep_s = UNKNOWN_KEEP_S if keep_s is None else keep_s
        if is_at_most_once(held.job.id) or self.wall_s() - self.added_s(held) >= keep_s:
            return Outcome("rejected", what)
        now_s = self.now_s()
        times, _ = self._unfit.pop(held.job.id, (0, now_s))
        self._unfit[held.job.id] = times + 1, now_s
        oldest = next(iter(self._unfit))
        while len(self._unfit) > UNFIT_KEPT or now_s - self._unfit[oldest][1] > UNFIT_S:
            del self._unfit[oldest]
            oldest = next(iter(self._unfit))
        self._warn(*about)
        return Outcome("retry", what, delay_s=put_off_s(times, len(self._unfit)))

    def _warn(self, kind: str, what: str) -> None:
        """Logs once why jobs go to workers of another version."""
        if (kind, what) in self._warned or len(self._warned) >= WARNED_MAX:
            return
        self._warned.add((kind, what))
        if kind == "unknown":
            log.warning(
                "unknown task '%(task)s': its jobs, and steps of chains before it, are given back "
                "for workers that know it",
                facts("task_unknown", task=what),
            )
        else:
            log.warning(
                "task %(task)s does not take a call, which is given back for workers of another "
                "version: %(reason)s",
                facts("call_unfit", task=kind, reason=what),
            )

    def added_s(self, held: Held) -> float:
        """When the job was added, in unix seconds."""
        added_at = held.job.added_at or held.about.enqueued_at
        return added_at.timestamp()

    def wall_s(self) -> float:
        """The time in unix seconds."""
        return time.time()

    def now_s(self) -> float:
        """The time in seconds, for differences."""
        return time.monotonic()

    # Work

    def reporter_of(self, held: Held) -> Callable[[bytes], None]:
        """Takes the progress of a job in any thread."""
        loop = asyncio.get_running_loop()

        def tell(data: bytes) -> None:
            held.progress = data
            loop.call_soon_threadsafe(self._send_progress, held)

        return tell

    def _send_progress(self, held: Held) -> None:
        data = held.progress
        if data is not None and data is not held.sent and held.state == AT_WORK:
            held.sent = data
            self.in_background(self.send_progress(held, data))

    async def send_progress(self, held: Held, data: bytes) -> None:
        """Sends the broker how far a run is."""
        if self.keys is not None:
            data = self.keys.seal(data, PROGRESS, held.job.id)  # U8.3
        try:
            await self._client.progress(held.job.id, held.run, data)
            self._is_progress_told = True
        except OVER as err:
            self.over(held.job.id, held.run, err)
        except Error as err:
            if not self._is_progress_told:
                return  # logged already, and no progress was told since
            self._is_progress_told = False
            log.info(
                "%(run)s: its progress was not sent: %(reason)s",
                facts("progress_unsent", run=held, reason=err),
            )

    def pushed(self, job_id: str, run: str) -> None:
        """The broker says that a run is over; it does not say why."""
        held = self._hands.held_of(job_id)
        is_limit = held is not None and run == held.run and self._is_limit_over(held)
        if not is_limit or not self.ask(job_id):
            self.over(job_id, run)

    def _is_limit_over(self, held: Held) -> bool:
        """Whether the broker may have ended the run at its time limit: it knows since when."""
        limit_s = None if held.call is None else held.call.time_limit_s
        return limit_s is not None and self.now_s() - held.asked_at >= limit_s - ROUNDING_S

    def over(self, job_id: str, run: str, err: Error | None = None) -> None:
        """The broker replied that a run is over, or that its job was cancelled (U2.3)."""
        held = self._hands.held_of(job_id)
        if held is None or held.state != AT_WORK or held.call is None or run != held.run:
            return
        why = str(err) if err is not None else "CANCELLED the job was cancelled, or the run is over"
        is_late = isinstance(err, TooLate)
        if err is None or isinstance(err, Stale):  # another run may have begun since
            is_late = self._is_limit_over(held)
        if is_late:
            why = over_limit_text(held.call.time_limit_s)
        if held.call.control.cancel(why, is_late):
            log.warning(
                "%(run)s is cancelled here: %(reason)s",
                facts("job_cancelled", run=held, reason=why),
                extra=of_job(held.about),
            )

    # End

    def ended(self, held: Held, outcome: Outcome) -> None:
        """A run has ended with this outcome."""
        self._send_progress(held)  # of its last moment
        if held.call is not None:
            outcome = held.call.control.judge(outcome)
        self._judged(held, outcome)
        shown = outcome if held.call is None else sealed(outcome, held.job.id, self.keys)
        settlement: Settlement = conclude(held.job.id, held.run, shown, held.limits, self._rng)
        if isinstance(settlement, Release) and is_at_most_once(held.job.id):
            settlement = Fail(held.job.id, held.run, shown.text)
        took_s = time.monotonic() - held.since
        number = held.call.attempt.number if held.call is not None else 0
        if outcome.kind == "cancelled":
            self._story.counts[GONE] += 1
        elif isinstance(settlement, Done | Release):
            self._story.ended(held.about, number, outcome, settlement, took_s)
        self._hands.settle(held, settlement)

    def _judged(self, held: Held, outcome: Outcome) -> None:
        """What the run came to, for hooks."""
        held.outcome = outcome
        self._aside.ended(held.about, held.call, outcome)

    def _on_told(self, ended: Ended, answer: object) -> None:
        held = self._hands.held_of(ended.job_id)
        if held is not None and is_refused(answer):
            other = instead(ended, str(answer))
            if other is not None:
                self._refused(held, ended, other, answer)
                return
        if held is None or held.outcome is None:
            pass  # it did not run here
        elif isinstance(ended, Fail):
            if isinstance(answer, Failed) and answer.became == "retry":
                self._comes_again(held, held.outcome, answer.wait_s)
            elif isinstance(answer, Failed) and answer.became == "dead":
                self._is_dead(held, held.outcome, answer.queue, ended.reason)
            elif isinstance(answer, TooLate) or (
                isinstance(answer, OVER) and held.outcome.kind == "timeout"
            ):
                self.in_background(self._learn(held, held.outcome))
            else:
                log.info(
                    "%(run)s had ended otherwise: %(reason)s",
                    facts("job_ended_elsewhere", run=held, reason=answer),
                )
        elif isinstance(ended, Release) and held.outcome.kind == "retry":
            self._aside.put_off(held.about, held.outcome, ended.delay_s or 0.0)
        if isinstance(answer, ReplyError) and not isinstance(ended, Fail):
            if not isinstance(answer, NoJob):
                log.error(
                    "job %(job)s: %(reason)s",
                    facts("job_outcome_refused", job=ended.job_id, reason=answer),
                )
        self._on_settled(ended)
        if held is not None and held.again is not None and isinstance(answer, Stale | TooLate):
            self._hands.take_again(held.again)  # the delivery is of the next attempt (U2.3)

    def _refused(self, held: Held, ended: Ended, other: Ended, answer: object) -> None:
        """[U2] The broker takes no such outcome: says so, and sends another one (U2.17)."""
        log.error(
            "%(run)s: the broker refused its outcome and gets another one: %(reason)s",
            facts("job_outcome_refused", run=held, reason=answer),
            extra=of_job(held.about),
        )
        if isinstance(other, Fail) and not isinstance(ended, Fail) and held.outcome is not None:
            self._judged(held, Outcome("failed", other.reason))
        self.teller.put(other)

    def _comes_again(self, held: Held, outcome: Outcome, wait_s: float | None) -> None:
        then = Nack(held.job.id, wait_s)
        took_s = time.monotonic() - held.since
        self._story.ended(held.about, held.about.number, outcome, then, took_s)
        self._aside.put_off(held.about, outcome, wait_s)

    def _is_dead(self, held: Held, outcome: Outcome, queue: str, reason: str) -> None:
        self._story.died(held.job.id)
        took_s = time.monotonic() - held.since
        then = Dead(held.job.id, queue, reason)
        self._story.ended(held.about, held.about.number, outcome, then, took_s)
        log.warning(
            "%(run)s is dead, in %(letters)s: %(reason)s",
            facts("job_dead", run=held, letters=queue, reason=reason),
            extra=of_job(held.about),
        )
        self._aside.buried(held.about, outcome, queue)

    async def _learn(self, held: Held, outcome: Outcome) -> None:
        """The broker has ended the run at its time limit by itself: asks what follows."""
        if outcome.kind != "timeout":
            reason = over_limit_text(held.call.time_limit_s if held.call else None)
            outcome = Outcome("timeout", reason, outcome.trace)
        try:
            found = await self._client.result(held.job.id)
            if found.state == "dead":
                letter = await self._client.dead_show(held.job.id)
                self._is_dead(held, outcome, letter.queue, outcome.text)
            elif not found.is_over:
                self._comes_again(held, outcome, None)
        except Error as err:
            log.info(
                "%(run)s ran into its time limit; what follows is not known: %(reason)s",
                facts("time_limit_unknown", run=held, reason=err),
            )

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it beside all else."""
        telling = asyncio.create_task(work)
        self._told.add(telling)
        telling.add_done_callback(self._told.discard)
