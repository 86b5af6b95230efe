"""Reports to the broker which jobs begin and how runs ended; a sender for each leader of tubes.

A sender says all there is in one round trip, and keeps each command until the broker has replied,
through any outage: each may be sent twice. START names the worker, so that a repeated one gets the
same run. A result that is too big for the broker is left out (U2.7). What a tube refuses because
it has no leader, or too few nodes take copies, is sent again later; all else continues meanwhile
(U2.16). What the broker replies goes to the log, the counters and the hooks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from tuque import aio
from tuque.client.commands.work import Failed, Run
from tuque.client.url import Address
from tuque.errors import (
    Conflict,
    ConnectionError,
    Error,
    Leaving,
    Loading,
    Misconf,
    NoJob,
    NoQuorum,
    NotTaken,
    ReadOnly,
    ReplyError,
    TooLate,
    TubeHome,
)
from tuque.logtext import facts
from tuque.worker.app.celery_messages import FOLLOWS_HEADER
from tuque.worker.app.codec import lost_result
from tuque.worker.app.decisions import Done, Fail, Outcome, Release, Report, instead
from tuque.worker.app.encryption import PROGRESS, RESULT, Keys, is_sealed
from tuque.worker.app.hooks import Failure, Hook, Hooks
from tuque.worker.app.task import Task
from tuque.worker.pools.child import of_job
from tuque.worker.pools.execute import Call, Job, failure_of, is_failure, over_limit_text
from tuque.worker.pools.middleware import tell
from tuque.worker.run.heartbeat import OVER
from tuque.worker.run.jobs import AT_WORK, InFlight
from tuque.worker.run.link import (
    Flag,
    Link,
    answers_of,
    are_about_homes,
    is_about_home,
    pause,
)
from tuque.worker.run.stats import GIVEN_BACK, GONE, JobLog
from tuque.worker.workflow.celery_links import after_death
from tuque.worker.workflow.create import is_too_big

log: Final = logging.getLogger("tuque.worker")

AT_ONCE: Final = 500
AT_ONCE_BYTES: Final = 8 * 1024 * 1024  # of results and details; one may be larger
# the broker did nothing, and will do it later
NOT_YET: Final = (
    ConnectionError,
    Conflict,
    Leaving,
    Loading,
    Misconf,
    TubeHome,
    NoQuorum,
    ReadOnly,
)
# between tries, while a tube has no leader, or too few copies; a switchover is short
FIRST_WAIT_S: Final = 0.05
MAX_WAIT_S: Final = 1.0
TELL_AFTER: Final = 5  # tries
SENDERS_MAX: Final = 16  # that may be idle: a leader may never lead again
IN_LOG: Final = "its text is in the log of the worker"
OWN_TEXTS: Final = ("done", "timeout", "crashed")  # not of the task


def is_refused(answer: ReplyError) -> bool:
    """Whether the run has no outcome yet: the broker does not take such words about it."""
    return not answer.retryable and not isinstance(answer, (*OVER, NoJob, NotTaken))


class Replied(Protocol):
    """What follows when the broker has replied."""

    def on_started(self, job_id: str, found: Run | ReplyError) -> None:
        """The job has a run, or why it has none."""

    def on_refused(self, job_id: str, err: ReplyError) -> None:
        """The broker refused START as a whole."""


class Sender:
    """Starts and ends of runs that the broker does not know yet, and the loop that sends them."""

    def __init__(
        self,
        client: aio.Client,
        link: Link,
        name: str,
        held: Mapping[str, InFlight],
        replied: Replied,
        on_ended: Callable[[Report, object], None],
        on_idle: Callable[[], None],
    ) -> None:
        """`name` and `held` are the worker's; `on_ended` gets the reply to each report.

        `on_idle` is called when nothing is left to send. A command is about jobs of one queue:
        tubes have different leaders.
        """
        self._client = client
        self._link = link
        self._name = name
        self._held = held
        self._replied = replied
        self._on_ended = on_ended
        self._on_idle = on_idle
        self._ended: deque[Report] = deque()
        self._starts: deque[str] = deque()
        # of tubes without a leader, or that too few nodes copy
        self._untaken: list[Report] = []
        self._untaken_starts: list[str] = []
        self._untaken_until = 0.0
        self._tries = 0
        self._work = Flag()
        self._never = asyncio.Event()

    def start(self, job_id: str) -> None:
        """The job shall begin."""
        self._starts.append(job_id)
        if not self._work.is_on:
            self._work.set()

    def put(self, ended: Report) -> None:
        """The run has ended, or the job did not begin."""
        self._ended.append(ended)
        if not self._work.is_on:
            self._work.set()

    @property
    def pending(self) -> int:
        """The number of starts and ends without a reply."""
        untaken = len(self._untaken) + len(self._untaken_starts)
        return len(self._ended) + len(self._starts) + untaken

    async def loop(self) -> None:
        """Sends what there is, until it is cancelled."""
        while True:
            await self._work.wait()
            await asyncio.sleep(0)  # other runs end, and what is next takes their places
            try:
                await self.send()
            except Error as err:
                await pause(self._link.failed("reports of runs", err), self._never)
                continue
            if not self._ended and not self._starts:
                self._work.clear()
                await self._wait_for_tubes()
            if not self.pending:
                self._on_idle()

    def _queue_of(self, job_id: str) -> str:
        held = self._held.get(job_id)
        return "" if held is None else held.job.queue

    async def _wait_for_tubes(self) -> None:
        """[U2] What a tube did not take is said again later; new words go first (U2.16)."""
        if self._untaken or self._untaken_starts:
            await pause(self._untaken_until - time.monotonic(), self._work)
            self._work.set()

    def _lighten(self, refused: dict[Report, Error]) -> None:
        """[U2] The broker said that these are too big (U2.7)."""
        for i, one in enumerate(self._ended):
            if one in refused:
                self._ended[i] = _lighter(one, refused[one])

    def _next_ended(self) -> list[Report]:
        """The ends of the next round trip: not too many, nor too many bytes."""
        if time.monotonic() >= self._untaken_until:
            self._ended.extend(self._untaken)
            self._starts.extend(self._untaken_starts)
            self._untaken.clear()
            self._untaken_starts.clear()
        ended: list[Report] = []
        size = 0
        for one in islice(self._ended, AT_ONCE):
            if not isinstance(one, Done) or one.result is not None:
                size += _weight(one)
            if ended and size > AT_ONCE_BYTES:
                break
            ended.append(one)
        return ended

    async def send(self) -> None:
        """One round trip; raises, with all kept, if the broker cannot take it now."""
        ended = self._next_ended()
        starts = list(islice(self._starts, AT_ONCE))
        pipeline = self._client.pipeline()
        said = self._end(pipeline, ended)
        begun = self._begin(pipeline, starts)
        answers = await answers_of(pipeline, len(said) + len(begun), self._client)
        replies = zip(said, answers, strict=False)
        too_big = {
            one: a
            for (one, *_), a in replies
            if isinstance(a, Error) and _weight(one) and is_too_big(a)
        }
        for answer in answers:
            if isinstance(answer, NOT_YET) and not self._is_of_tube(answer):
                self._lighten(too_big)
                raise answer
        untaken = self._untaken_of(said, answers)
        for _ in ended:
            one = self._ended.popleft()
            if too_big and one in too_big:
                self._ended.append(one)
        self._lighten(too_big)
        for _ in starts:
            self._starts.popleft()
        again = {*too_big, *untaken}
        for some, answer in zip(said, answers, strict=False):
            is_count = isinstance(answer, int) and isinstance(some[0], Release)  # not whose
            for at, one in enumerate(some):
                if not again or one not in again:
                    self._on_ended(one, int(at < answer) if is_count else answer)
        for job_ids, found in zip(begun, answers[len(said) :], strict=True):
            self._take_runs(job_ids, found)
        if not self._untaken and not self._untaken_starts:
            self._tries = 0
        if not are_about_homes(answers, self._client.node):
            self._link.answered()

    def _end(self, pipeline: Any, ended: list[Report]) -> list[list[Report]]:
        """Adds what became of these runs, together where one command can say it; returns how."""
        words: list[list[Report]] = []
        plain: dict[str, list[Report]] = {}
        backs: dict[tuple[str, float | None], list[Report]] = {}
        for one in ended:
            held = self._held.get(one.job_id)
            queue = "" if held is None else held.job.queue
            if isinstance(one, Release):
                backs.setdefault((queue, one.delay_s), []).append(one)
            elif isinstance(one, Fail) or one.result is not None:
                _queue(pipeline, one)
                words.append([one])
            else:
                plain.setdefault(queue, []).append(one)
        for some in plain.values():
            pipeline.done_many(*[(one.job_id, one.run) for one in some])
            words.append(some)
        for (_, delay_s), some in backs.items():
            pipeline.release(*((one.job_id, one.run) for one in some), delay=delay_s)
            words.append(some)
        return words

    def _begin(self, pipeline: Any, starts: list[str]) -> list[list[str]]:
        """Adds a START for the jobs of each queue; returns which."""
        begun: dict[str, list[str]] = {}
        for job_id in starts:
            held = self._held.get(job_id)
            begun.setdefault("" if held is None else held.job.queue, []).append(job_id)
        for job_ids in begun.values():
            pipeline.start(*job_ids, worker=self._name)
        return list(begun.values())

    def _is_of_tube(self, answer: object) -> bool:
        """Whether only one tube does not take words now."""
        return isinstance(answer, Error) and is_about_home(answer, self._client.node)

    def _untaken_of(self, said: list[list[Report]], answers: list[Any]) -> set[Report]:
        """[U2] What a tube did not take, kept for later (U2.16)."""
        found: set[Report] = set()
        for some, answer in zip(said, answers, strict=False):
            if self._is_of_tube(answer):
                found.update(some)
                self._untaken += some
                self._say_later(some[0].job_id, answer)
        return found

    def _say_later(self, job_id: str, reason: object) -> None:
        if time.monotonic() < self._untaken_until:
            return
        self._tries += 1
        wait_s = min(FIRST_WAIT_S * 2.0 ** min(self._tries, TELL_AFTER), MAX_WAIT_S)
        self._untaken_until = time.monotonic() + wait_s
        if self._tries == TELL_AFTER:
            log.warning(
                "the broker does not accept reports of runs in queue %(queue)s now; they are "
                "repeated until it does: %(reason)s",
                facts("runs_untaken", queue=self._queue_of(job_id), reason=reason),
            )

    def _take_runs(self, starts: list[str], found: Any) -> None:
        """The reply to START: a run or a refusal for each job, or a refusal of the command."""
        if self._is_of_tube(found):
            self._untaken_starts += starts
            self._say_later(starts[0], found)
            return
        if isinstance(found, ReplyError):
            for job_id in starts:
                self._replied.on_refused(job_id, found)
            return
        for job_id, run in zip(starts, found, strict=True):
            self._replied.on_started(job_id, run)


class Hands(Replied, Protocol):
    """What a worker does when the broker has replied."""

    def on_over(self, job_id: str, run: str, err: Error) -> None:
        """The run is over (U2.3)."""

    def on_told(self, report: Report, answer: object) -> None:
        """The broker knows how the run ended, or that it had ended otherwise."""


class Reporter:
    """A sender for each leader, and what follows from the replies."""

    def __init__(
        self,
        client: aio.Client,
        link: Link,
        name: str,
        held: Mapping[str, InFlight],
        hands: Hands,
        story: JobLog,
        aside: HookRunner,
        keys: Keys | None,
    ) -> None:
        """`name` is the worker's; a later process under the same name may go on with its runs.

        `held` are the worker's jobs, by id.
        """
        self._client = client
        self._link = link
        self._name = name
        self._held = held
        self._hands = hands
        self._story = story
        self._aside = aside
        self._keys = keys
        self._home: asyncio.AbstractEventLoop | None = None
        self._is_progress_told = True
        self._telling: set[asyncio.Task[None]] = set()
        self._senders: dict[Address | None, Sender] = {}  # by leader; None: the node in use
        self._loops: dict[Sender, asyncio.Task[None]] = {}
        self._is_changed = asyncio.Event()  # there is a sender without a loop
        self._empty = Flag()
        self._empty.set()

    def start(self, job_id: str) -> None:
        """The job shall begin."""
        self._sender_of(job_id).start(job_id)

    def put(self, ended: Report) -> None:
        """The run has ended, or the job did not begin."""
        self._sender_of(ended.job_id).put(ended)

    @property
    def pending(self) -> int:
        """The number of starts and ends that the broker does not know yet."""
        return sum(one.pending for one in self._senders.values())

    async def drained(self) -> None:
        """Returns when nothing is left to send."""
        await self._empty.wait()

    def _sender_of(self, job_id: str) -> Sender:
        """[U2] The sender for the leader of its queue: none waits for another leader (U2.16)."""
        if self._empty.is_on:
            self._empty.clear()
        held = self._held.get(job_id)
        leader = None if held is None else self._client.leader_of(held.job.queue)
        found = self._senders.get(leader)
        if found is None:
            if len(self._senders) >= SENDERS_MAX:
                self._drop_idle()
            found = self._senders[leader] = Sender(
                self._client,
                self._link,
                self._name,
                self._held,
                self._hands,
                self._on_told,
                self._on_idle,
            )
            self._is_changed.set()
        return found

    def _drop_idle(self) -> None:
        """Ends the senders that have nothing to send: leaders change."""
        for leader, one in [*self._senders.items()]:
            if not one.pending:
                del self._senders[leader]
                loop = self._loops.pop(one, None)
                if loop is not None:
                    loop.cancel()

    def _on_idle(self) -> None:
        if not self.pending:
            self._empty.set()

    async def loop(self) -> None:
        """Runs the senders as long as the worker lives; raises what one of them raises."""
        self._home = asyncio.get_running_loop()
        try:
            while True:
                self._is_changed.clear()
                for one in self._senders.values():
                    if one not in self._loops:
                        self._loops[one] = asyncio.create_task(one.loop())
                changed = asyncio.create_task(self._is_changed.wait())
                tasks = {changed, *self._loops.values()}
                ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                for task in ended - {changed}:
                    if not task.cancelled():  # it was idle
                        task.result()
        finally:
            for task in self._loops.values():
                task.cancel()

    async def send(self) -> None:
        """One round trip to each leader; raises, with all kept, if one cannot take it now."""
        for one in [*self._senders.values()]:
            if one.pending:
                await one.send()
        self._on_idle()

    # What follows from the replies

    def _on_told(self, ended: Report, answer: object) -> None:
        held = self._held.get(ended.job_id)
        if held is not None and isinstance(answer, ReplyError) and is_refused(answer):
            other = instead(ended, str(answer))
            if other is not None:
                self._refused(held, ended, other, answer)
                return
        if held is None or held.outcome is None:  # it did not run here, or not to its end
            if held is not None and isinstance(ended, Release):
                self._story.counts[GIVEN_BACK if answer == 1 else GONE] += 1
        elif isinstance(ended, Fail):
            self._on_failed(held, held.outcome, ended, answer)
        elif isinstance(ended, Release) and held.outcome.kind == "retry":
            self._aside.put_off(held.about, held.outcome, ended.delay_s or 0.0)
        if isinstance(answer, ReplyError) and not isinstance(ended, Fail):
            if not isinstance(answer, NoJob):
                log.error(
                    "job %(job)s: %(reason)s",
                    facts("job_outcome_refused", job=ended.job_id, reason=answer),
                )
        self._hands.on_told(ended, answer)

    def _on_failed(self, held: InFlight, outcome: Outcome, fail: Fail, answer: object) -> None:
        """The reply to FAIL: what became of the job."""
        if isinstance(answer, Failed) and answer.became == "retry":
            self._comes_again(held, outcome, answer.wait_s)
        elif isinstance(answer, Failed) and answer.became == "dead":
            self._is_dead(held, outcome, answer.queue, fail.reason)
        elif isinstance(answer, TooLate) or (
            isinstance(answer, OVER) and outcome.kind == "timeout"
        ):
            self.in_background(self._learn(held, outcome))
        else:
            log.info(
                "%(run)s had ended otherwise: %(reason)s",
                facts("job_ended_elsewhere", run=held, reason=answer),
            )

    def _refused(self, held: InFlight, ended: Report, other: Report, answer: object) -> None:
        """[U2] The broker takes no such outcome: says so, and sends another one (U2.17)."""
        log.error(
            "%(run)s: the broker refused its outcome and gets another one: %(reason)s",
            facts("job_outcome_refused", run=held, reason=answer),
            extra=of_job(held.about),
        )
        if isinstance(other, Fail) and not isinstance(ended, Fail) and held.outcome is not None:
            self.judged(held, Outcome("failed", other.reason))
        self.put(other)

    def judged(self, held: InFlight, outcome: Outcome) -> None:
        """What the run came to, for hooks."""
        held.outcome = outcome
        self._aside.ended(held.about, held.call, outcome)

    def _comes_again(self, held: InFlight, outcome: Outcome, wait_s: float | None) -> None:
        self._story.again(held.about, outcome, wait_s, held.took_s)
        self._aside.put_off(held.about, outcome, wait_s)

    def _is_dead(self, held: InFlight, outcome: Outcome, queue: str, reason: str) -> None:
        self._story.dead(held.about, outcome, queue, held.took_s)
        log.warning(
            "%(run)s is dead, in %(letters)s: %(reason)s",
            facts("job_dead", run=held, letters=queue, reason=reason),
            extra=of_job(held.about),
        )
        self._aside.buried(held.about, outcome, queue)

    async def _learn(self, held: InFlight, outcome: Outcome) -> None:
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

    # Progress

    def take_progress(self, held: InFlight, data: bytes) -> None:
        """Takes the progress of a job, in any thread."""
        assert self._home is not None, "no job runs before the loop"
        held.progress = data
        self._home.call_soon_threadsafe(self.send_latest, held)

    def send_latest(self, held: InFlight) -> None:
        """Sends the progress of a run, if it was not sent."""
        data = held.progress
        if data is not None and data is not held.sent and held.state == AT_WORK:
            held.sent = data
            self.in_background(self.send_progress(held, data))

    async def send_progress(self, held: InFlight, data: bytes) -> None:
        """Sends the broker how far a run is."""
        if self._keys is not None:
            data = self._keys.seal(data, PROGRESS, held.job.id)  # U8.3
        try:
            await self._client.progress(held.job.id, held.run, data)
            self._is_progress_told = True
        except OVER as err:
            self._hands.on_over(held.job.id, held.run, err)
        except Error as err:
            if not self._is_progress_told:
                return  # logged already, and no progress was told since
            self._is_progress_told = False
            log.info(
                "%(run)s: its progress was not sent: %(reason)s",
                facts("progress_unsent", run=held, reason=err),
            )

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it beside all else."""
        telling = asyncio.create_task(work)
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)


def _queue(pipeline: Any, one: Done | Fail) -> None:
    if isinstance(one, Done):
        pipeline.done(one.job_id, one.run, result=one.result)
        return
    pipeline.fail(
        one.job_id,
        one.run,
        delay=one.delay_s,
        reason=one.reason,
        detail=one.detail or None,
        cause=None if one.cause == "failed" else one.cause,
        final=one.is_final,
    )


def _weight(one: Report) -> int:
    """The bytes of its result or detail."""
    if isinstance(one, Done):
        return len(one.result or b"")
    return len(one.detail) if isinstance(one, Fail) else 0


def _lighter(one: Report, err: Error) -> Report:
    """[U2] The same end without what is too big for the broker (U2.7)."""
    if isinstance(one, Done) and one.result is not None:
        log.error(
            "the result of job %(job)s is lost, its %(bytes)d bytes are too many for the broker: "
            "%(reason)s",
            facts("result_too_big", job=one.job_id, bytes=len(one.result), reason=err),
        )
        why = lost_result(f"its {len(one.result)} bytes are too many for the broker")
        is_secret = is_sealed(one.result)  # who may read it takes nothing that is not sealed
        return replace(one, result=None if is_secret or len(why) >= len(one.result) else why)
    if isinstance(one, Fail) and one.detail:
        log.error(
            "the traceback of job %(job)s is too long for the broker: %(reason)s",
            facts("trace_too_big", job=one.job_id, reason=err),
        )
        return replace(one, detail="")
    return one


# ---- Outcomes of an app with keys: nothing that the broker could read (SPEC U8)


def sealed(outcome: Outcome, job_id: str, keys: Keys) -> Outcome:
    """[U8] The outcome as the broker may know it: result under a key (U8.3), no texts (U8.4)."""
    if outcome.result is not None:
        return msgspec.structs.replace(outcome, result=keys.seal(outcome.result, RESULT, job_id))
    if not keys.hides:
        return outcome
    text = outcome.text if outcome.kind in OWN_TEXTS else hidden(outcome)
    return msgspec.structs.replace(outcome, text=text, trace="")


def hidden(outcome: Outcome) -> str:
    """The name of the exception, if there is one; its text may have arguments of the task."""
    name = outcome.text.partition(":")[0] if outcome.kind == "failed" else ""
    return f"{name}: {IN_LOG}" if name.isidentifier() else IN_LOG


# ---- Hooks that the worker's own process calls after a run
#
# They run in a thread of their own, one after the other, so that they delay no heartbeat.


class HookRunner:
    """The hooks of an app, called beside the worker's loop."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]], app: Hooks | None) -> None:
        """`app` has the hooks for jobs of unknown tasks."""
        self._tasks = tasks
        self._app = Hooks() if app is None else app
        self._thread: ThreadPoolExecutor | None = None
        self._told: set[Future[None]] = set()

    def ended(self, job: Job, call: Call | None, outcome: Outcome) -> None:
        """[U3] A run has ended; nothing to do if its own process has called the hooks (U3.2)."""
        if outcome.is_told or call is None:
            return
        is_cancelled = outcome.kind == "cancelled" and call.control.is_cancelled  # U3.8
        if is_cancelled or is_failure(outcome, call):
            self._run_hook("on_cancelled" if is_cancelled else "on_failure", job, outcome)

    def put_off(self, job: Job, outcome: Outcome, delay_s: float | None) -> None:
        """The job runs again after that time (U3.3); None: the broker did not say when."""
        self._run_hook("on_retry", job, outcome, delay_s=delay_s)

    def buried(self, job: Job, outcome: Outcome, queue: str) -> None:
        """The job is a dead letter in that queue (U3.3, U16.4)."""
        task = self._tasks.get(job.task)
        if task is not None and FOLLOWS_HEADER in job.headers:
            follow: Hook[Any] = Hook("what follows a task of Celery")
            follow(partial(after_death, task.app))
            self.call(task.app, follow, job, failure_of(outcome, queue=queue))
        self._run_hook("on_dead", job, outcome, queue=queue)

    def _run_hook(self, name: str, job: Job, outcome: Outcome, **more: Any) -> None:
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
