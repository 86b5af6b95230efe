"""Heartbeats: a WORKING for each job held, often enough that none is delivered twice.

Covers running jobs and buffered ones. A delivery does not contain the retry time, so the first
WORKING comes early, and its reply sets the pace. Each queue has calls of its own: a leader that
does not answer delays no other queue.

A task can hold the interpreter in a call of C code, so that no thread of its process runs. Then the
parent of the process sends the heartbeats, from the table that both have.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import time
from collections.abc import Callable
from math import inf
from typing import Final

from tuque import aio
from tuque.client.retry import Retry
from tuque.errors import (
    Acked,
    Cancelled,
    ConnectionError,
    Dead,
    Error,
    Misconf,
    NoJob,
    ReplyError,
    Stale,
    TooLate,
)
from tuque.logtext import facts
from tuque.worker.app.decisions import BEAT_FRACTION, beat_after_s, is_at_most_once
from tuque.worker.pools.systems import is_stopped
from tuque.worker.run.crash_table import DONE, ENDED, WORKING, CrashTable, Entry
from tuque.worker.run.link import Link, answers_of, are_about_homes, is_about_home, pause

log: Final = logging.getLogger("tuque.worker")

BEATS_PER_CALL: Final = 200
REPLY_S: Final = 1.0  # while replies are awaited, the loop goes on after this time
LATE_S: Final = 0.25  # the loop has not gone on for so long: something holds it
CHECK_S: Final = 0.1
OVER: Final = (Stale, Cancelled, Acked, Dead, TooLate)  # U2.3


class Heartbeats:
    """The due times of the jobs held, and the loop that sends heartbeats."""

    def __init__(
        self,
        client: aio.Client,
        link: Link,
        on_gone: Callable[[str], None],
        run_of: Callable[[str], str] = lambda job_id: "",
        on_over: Callable[[str, str, Error], None] = lambda job_id, run, err: None,
        queue_of: Callable[[str], str] = lambda job_id: "",
    ) -> None:
        """`run_of` returns a job's run, "" for none; `on_over` is called when one is over."""
        self._run_of = run_of
        self._queue_of = queue_of
        self._waiting: dict[str, list[str]] = {}  # by queue, of those that are being asked
        self._asking: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None
        self._on_over = on_over
        self._client = client
        self._link = link
        self._on_gone = on_gone
        self._due: list[tuple[float, str]] = []
        self._due_of: dict[str, float] = {}
        self._asked: set[str] = set()
        self._wake = asyncio.Event()
        self.tells: Callable[[float], None] = lambda at_s: None  # when the loop goes on
        link.on_back.append(self.beat_all)

    def hold(self, job_id: str, retry_s: float | None = None) -> None:
        """Starts heartbeats for a delivered job, if it could be delivered again.

        `retry_s` is its retry time, if that is known.

        An at-most-once job needs none, and must not be given up because another node of the
        cluster does not know it after a move.
        """
        if is_at_most_once(job_id):
            return
        after_s = beat_after_s(None) if not retry_s else retry_s * BEAT_FRACTION
        assert after_s is not None
        self._plan(job_id, time.monotonic() + after_s)

    def beat_now(self, job_id: str) -> None:
        """Sends a heartbeat at once, unless the job's heartbeats have ended."""
        if job_id in self._due_of:
            self._plan(job_id, time.monotonic())

    def ask(self, job_id: str) -> bool:
        """Asks at once why the job's run is over, which is certain; False if it has no heartbeats.

        `on_over` is called also if the broker does not know the job any more.
        """
        if job_id not in self._due_of:
            return False
        self._asked.add(job_id)
        self.beat_now(job_id)
        return True

    def beat_all(self) -> None:
        """After an outage: all retry times are running, so send every heartbeat now."""
        for job_id in list(self._due_of):
            self.beat_now(job_id)

    def release(self, job_id: str) -> None:
        """Ends the heartbeats of a job."""
        self._due_of.pop(job_id, None)
        self._asked.discard(job_id)

    def _plan(self, job_id: str, due_at: float) -> None:
        self._due_of[job_id] = due_at
        heapq.heappush(self._due, (due_at, job_id))
        if self._due[0][0] == due_at:
            self.tells(due_at)
            self._wake.set()

    def _take_due(self, now: float) -> list[str]:
        """The jobs whose heartbeat is due; drops stale entries of the heap."""
        found: list[str] = []
        while self._due and self._due[0][0] <= now and len(found) < BEATS_PER_CALL:
            due_at, job_id = heapq.heappop(self._due)
            if self._due_of.get(job_id) == due_at:
                found.append(job_id)
        return found

    async def loop(self) -> None:
        """Sends heartbeats as long as the worker lives."""
        try:
            while self._failed is None:
                self._wake.clear()
                now = time.monotonic()
                due = self._take_due(now)
                if due:
                    self._send(due)
                    continue
                until = self._due[0][0] if self._due else inf
                if self._asking:  # a reply that cannot be read sets no time
                    until = min(until, now + REPLY_S)
                self.tells(until)
                await pause(None if until == inf else until - now, self._wake)
            raise self._failed
        finally:
            for task in self._asking:
                task.cancel()

    def _send(self, job_ids: list[str]) -> None:
        """Sends WORKING for the jobs, for each queue after its last call has ended (U2.18)."""
        for job_id in job_ids:
            queue = self._queue_of(job_id)
            waiting = self._waiting.get(queue)
            if waiting is None:
                waiting = self._waiting[queue] = []
                task = asyncio.create_task(self._ask_queue(queue, waiting))
                self._asking.add(task)
                task.add_done_callback(self._on_asked)
            waiting.append(job_id)

    async def _ask_queue(self, queue: str, waiting: list[str]) -> None:
        """Heartbeats of one queue, until none waits."""
        try:
            while waiting:
                due = waiting[:BEATS_PER_CALL]
                del waiting[:BEATS_PER_CALL]
                await self.beat([job_id for job_id in due if job_id in self._due_of])
        finally:
            del self._waiting[queue]

    def _on_asked(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()
            self._wake.set()

    async def beat(self, job_ids: list[str]) -> None:
        """One WORKING per job in one round trip; failed ones are due again after a wait."""
        if not job_ids:
            return
        try:
            pipeline = self._client.pipeline()
            for job_id in job_ids:
                pipeline.working(job_id, self._run_of(job_id) or None)
            answers = await answers_of(pipeline, len(job_ids), self._client)
            for answer in answers:
                if self._is_outage(answer):
                    assert isinstance(answer, Error)
                    raise answer
        except Error as err:
            wait_s = self._link.failed("WORKING", err)
            for job_id in job_ids:
                if job_id in self._due_of:
                    self._plan(job_id, time.monotonic() + wait_s)
            return
        if not are_about_homes(answers, self._client.node):
            self._link.answered()
        for job_id, answer in zip(job_ids, answers, strict=True):
            if job_id in self._due_of:
                self._on_answer(job_id, answer)

    def _is_outage(self, answer: object) -> bool:
        """Whether the node in use is away, or cannot write its journal (J6.1): no job's fault."""
        if isinstance(answer, Misconf):
            return answer.node in ("", self._client.node)
        return isinstance(answer, ConnectionError) and not is_about_home(answer, self._client.node)

    def _on_answer(self, job_id: str, answer: object) -> None:
        run = self._run_of(job_id)
        if isinstance(answer, int):
            self._asked.discard(job_id)
            after_s = beat_after_s(answer)
            if after_s is None:
                self.release(job_id)
            else:
                self._plan(job_id, time.monotonic() + after_s)
        elif run and isinstance(answer, ReplyError) and self._is_over(job_id, answer):
            self.release(job_id)
            self._on_over(job_id, run, answer)
        elif isinstance(answer, NoJob):
            self.release(job_id)
            self._on_gone(job_id)
        elif isinstance(answer, TooLate):
            log.warning(
                "job %(job)s: %(reason)s; it may be delivered again while it runs",
                facts("job_not_extended", job=job_id, reason=answer),
            )
            self.release(job_id)
        else:
            if not (isinstance(answer, Error) and is_about_home(answer, self._client.node)):
                log.warning(
                    "WORKING %(job)s: %(reason)s",
                    facts("working_refused", job=job_id, reason=answer),
                )
            self._plan(job_id, time.monotonic() + 1.0)

    def _is_over(self, job_id: str, answer: ReplyError) -> bool:
        """[U2] Whether the reply ends the run (U2.3)."""
        return isinstance(answer, OVER) or (isinstance(answer, NoJob) and job_id in self._asked)


# ---- The heartbeats of a process that cannot send them (SPEC U13)


class Deputy:
    """A thread of the parent that sends the heartbeats while the worker process cannot."""

    def __init__(self, box: CrashTable) -> None:
        self._box = box
        self.pid: int | None = None  # of the process, while it lives

    def run(self) -> None:
        """Checks whether the process sends its own, as long as the parent lives."""
        while True:
            time.sleep(CHECK_S)
            if self._is_needed():
                try:
                    asyncio.run(self._stand_in())
                except Exception:  # its process is the worker's parent: that goes on
                    log.exception("the parent cannot send heartbeats", extra=facts("deputy_failed"))
                    time.sleep(REPLY_S)

    def _is_needed(self) -> bool:
        """Whether the process lives and its loop is late. One that was stopped loses its jobs."""
        if self._box.phase != WORKING or time.monotonic() < self._box.beats_at + LATE_S:
            return False
        return self.pid is not None and not is_stopped(self.pid)

    async def _stand_in(self) -> None:
        """[U13] Sends heartbeats for the jobs in the table until the process does (U13.2)."""
        found = {one.job_id: one for one in self._box.entries() if needs_beats(one)}
        if not found or not self._box.url:
            await asyncio.sleep(CHECK_S)
            return
        began = time.monotonic()
        async with aio.Client(
            self._box.url, retry=Retry(attempts=0), name="worker-heartbeats"
        ) as client:
            heart = Heartbeats(
                client,
                Link(random.Random()),
                lambda job_id: None,  # the process learns of it when it goes on
                lambda job_id: found[job_id].run,
                queue_of=lambda job_id: str(found[job_id].queue),
            )
            for job_id in found:
                heart.hold(job_id)
                heart.beat_now(job_id)
            beating = asyncio.create_task(heart.loop())
            while self._is_needed() and not beating.done():
                await asyncio.sleep(CHECK_S)
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        log.warning(
            "a task held the interpreter of the worker process for %(seconds).1f s: its parent "
            "sent the heartbeats of %(jobs)d jobs",
            facts("worker_held", seconds=time.monotonic() - began, jobs=len(found)),
        )


def needs_beats(entry: Entry) -> bool:
    """Whether the job comes back after its retry time: also a run whose end was not told yet."""
    return entry.state not in (DONE, ENDED) or bool(entry.run)
