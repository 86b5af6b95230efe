"""Reports to the broker which jobs begin and how runs ended, in one round trip for all there is.

Keeps each command until the broker has replied, through any outage: each may be sent twice. START
names the worker, so that a repeated one gets the same run. A result that is too big for the
broker is left out (SPEC U2.7). What a tube refuses because it has no leader, or too few nodes take
copies, is sent again later; all else continues meanwhile (U2.16).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import msgspec

from tuque import aio
from tuque.client.commands.work import Run
from tuque.errors import ConnectionError, Error, ReplyError
from tuque.logtext import facts
from tuque.worker.app.codec import lost_result
from tuque.worker.app.decisions import Done, Fail, Outcome, Release
from tuque.worker.app.encryption import RESULT, Keys, is_sealed
from tuque.worker.run.ack_sender import NOT_NOW
from tuque.worker.run.fetch import answers_of, are_about_homes, is_about_home
from tuque.worker.run.link import Link, pause
from tuque.worker.workflow.create import is_too_big

log: Final = logging.getLogger("tuque.worker")

AT_ONCE: Final = 500
GATHER_TURNS: Final = 3  # of the loop: other runs end, and what is next takes their places
AT_ONCE_BYTES: Final = 8 * 1024 * 1024  # of results and details; one may be larger
NOT_YET: Final = (ConnectionError, *NOT_NOW)
# between tries, while a tube has no leader, or too few copies; a switchover is short
FIRST_WAIT_S: Final = 0.05
MAX_WAIT_S: Final = 1.0
TELL_AFTER: Final = 5  # tries

Ended = Done | Fail | Release

IN_LOG: Final = "its text is in the log of the worker"
OWN_TEXTS: Final = ("done", "timeout", "crashed")  # not of the task


class RunReporter:
    """The words for the broker, and the loop that sends them."""

    def __init__(
        self,
        client: aio.Client,
        link: Link,
        name: str,
        on_started: Callable[[str, Run | ReplyError], None],
        on_refused: Callable[[str, ReplyError], None],
        on_told: Callable[[Ended, object], None],
        queue_of: Callable[[str], str] = lambda job_id: "",
    ) -> None:
        """`on_started` gets a job's run or why there is none, `on_told` the reply to an end.

        `on_refused` is called for each job if the broker refused START as a whole. A command is
        about jobs of one queue: tubes have different leaders.
        """
        self._client = client
        self._link = link
        self._name = name
        self._on_started = on_started
        self._on_refused = on_refused
        self._on_told = on_told
        self._queue_of = queue_of
        self._ended: deque[Ended] = deque()
        self._starts: deque[str] = deque()
        # of tubes without a leader, or that too few nodes copy
        self._untaken: list[Ended] = []
        self._untaken_starts: list[str] = []
        self._untaken_until = 0.0
        self._tries = 0
        self._work = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._never = asyncio.Event()

    def start(self, job_id: str) -> None:
        """The job shall begin."""
        self._starts.append(job_id)
        self._wake()

    def put(self, ended: Ended) -> None:
        """The run has ended, or the job did not begin."""
        self._ended.append(ended)
        self._wake()

    @property
    def pending(self) -> int:
        untaken = len(self._untaken) + len(self._untaken_starts)
        return len(self._ended) + len(self._starts) + untaken

    async def drained(self) -> None:
        """Returns when nothing is left to send."""
        await self._empty.wait()

    def _wake(self) -> None:
        self._empty.clear()
        self._work.set()

    async def loop(self) -> None:
        """Sends words as long as the worker lives."""
        while True:
            await self._work.wait()
            for _ in range(GATHER_TURNS):
                await asyncio.sleep(0)
            try:
                await self.tell()
            except Error as err:
                await pause(self._link.failed("telling of runs", err), self._never)
                continue
            if not self._ended and not self._starts:
                self._work.clear()
                await self._wait_for_tubes()
            if not self.pending:
                self._empty.set()

    async def _wait_for_tubes(self) -> None:
        """[U2] What a tube did not take is said again later; new words go first (U2.16)."""
        if self._untaken or self._untaken_starts:
            await pause(self._untaken_until - time.monotonic(), self._work)
            self._work.set()

    def _lighten(self, refused: dict[Ended, Error]) -> None:
        """[U2] The broker said that these are too big (U2.7)."""
        for i, one in enumerate(self._ended):
            if one in refused:
                self._ended[i] = _lighter(one, refused[one])

    def _next_ended(self) -> list[Ended]:
        """The ends of the next round trip: not too many, nor too many bytes."""
        if time.monotonic() >= self._untaken_until:
            self._ended.extend(self._untaken)
            self._starts.extend(self._untaken_starts)
            self._untaken.clear()
            self._untaken_starts.clear()
        ended: list[Ended] = []
        size = 0
        for one in islice(self._ended, AT_ONCE):
            size += _weight(one)
            if ended and size > AT_ONCE_BYTES:
                break
            ended.append(one)
        return ended

    async def tell(self) -> None:
        """One round trip; raises, with all kept, if the broker cannot take it now."""
        ended = self._next_ended()
        starts = list(islice(self._starts, AT_ONCE))
        pipeline = self._client.pipeline()
        said: list[list[Ended]] = []
        plain: dict[str, list[Ended]] = {}
        backs: dict[tuple[str, float | None], list[Ended]] = {}
        for one in ended:
            queue = self._queue_of(one.job_id)
            if isinstance(one, Release):
                backs.setdefault((queue, one.delay_s), []).append(one)
            elif isinstance(one, Fail) or one.result is not None:
                _queue(pipeline, one)
                said.append([one])
            else:
                plain.setdefault(queue, []).append(one)
        for some in plain.values():
            pipeline.done_many(*((one.job_id, one.run) for one in some))
            said.append(some)
        for (_, delay_s), some in backs.items():
            pipeline.release(*((one.job_id, one.run) for one in some), delay=delay_s)
            said.append(some)
        begun = self._begin(pipeline, starts)
        answers = await answers_of(pipeline, len(said) + len(begun), self._client)
        replies = zip(said, answers, strict=False)
        too_big = {one: a for (one, *_), a in replies if _weight(one) and is_too_big(a)}
        for answer in answers:
            if isinstance(answer, NOT_YET) and not self._is_of_tube(answer):
                self._lighten(too_big)
                raise answer
        untaken = self._untaken_of(said, answers)
        for _ in ended:
            one = self._ended.popleft()
            if one in too_big:
                self._ended.append(one)
        self._lighten(too_big)
        for _ in starts:
            self._starts.popleft()
        for some, answer in zip(said, answers, strict=False):
            for one in some:
                if one not in too_big and one not in untaken:
                    self._on_told(one, answer)
        for job_ids, found in zip(begun, answers[len(said) :], strict=True):
            self._take_runs(job_ids, found)
        if not self._untaken and not self._untaken_starts:
            self._tries = 0
        if not are_about_homes(answers, self._client.node):
            self._link.answered()

    def _begin(self, pipeline: Any, starts: list[str]) -> list[list[str]]:
        """Adds a START for the jobs of each queue; returns which."""
        begun: dict[str, list[str]] = {}
        for job_id in starts:
            begun.setdefault(self._queue_of(job_id), []).append(job_id)
        for job_ids in begun.values():
            pipeline.start(*job_ids, worker=self._name)
        return list(begun.values())

    def _is_of_tube(self, answer: object) -> bool:
        """Whether only one tube does not take words now."""
        return isinstance(answer, Error) and is_about_home(answer, self._client.node)

    def _untaken_of(self, said: list[list[Ended]], answers: list[Any]) -> set[Ended]:
        """[U2] What a tube did not take, kept for later (U2.16)."""
        found: set[Ended] = set()
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
                self._on_refused(job_id, found)
            return
        for job_id, run in zip(starts, found, strict=True):
            self._on_started(job_id, run)


def _queue(pipeline: Any, one: Done | Fail) -> None:
    if isinstance(one, Done):
        pipeline.done(one.job_id, one.run, result=one.result)
        return
    pipeline.fail(
        one.job_id,
        one.run,
        reason=one.reason,
        detail=one.detail or None,
        cause=None if one.cause == "failed" else one.cause,
        final=one.is_final,
    )


def _weight(one: Ended) -> int:
    """The bytes of its result or detail."""
    if isinstance(one, Done):
        return len(one.result or b"")
    return len(one.detail) if isinstance(one, Fail) else 0


def _lighter(one: Ended, err: Error) -> Ended:
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


def sealed(outcome: Outcome, job_id: str, keys: Keys | None) -> Outcome:
    """[U8] The outcome as the broker may know it: result under a key (U8.3), no texts (U8.4)."""
    if keys is None:
        return outcome
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
