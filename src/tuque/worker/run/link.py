"""The worker's link to its broker: the wait after a failed call, and log lines.

Every loop of the worker makes its own calls and reports their results here, so that an outage is
logged once: lost, still waiting, back after so many seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from tuque.client.retry import SHARE
from tuque.errors import (
    ConnectionError,
    Error,
    FewCopies,
    NoQuorum,
    NoReplica,
    ReadOnly,
    TubeHome,
)
from tuque.logtext import facts
from tuque.worker.app.decisions import Backoff

if TYPE_CHECKING:
    from tuque.client.aio.client import Client, Pipeline

log: Final = logging.getLogger("tuque.worker")

LAST_WORDS_S_MIN: Final = 0.5
RECONNECT: Final = Backoff(first_s=0.1, max_s=5.0, jitter=0.5)


class Link:
    """Whether the broker responds, and since when it does not."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0
        self._lost_at = 0.0
        self._retry_at = 0.0
        self.last_answer_at = time.monotonic()
        self.times_back = 0  # outages that ended
        self.on_back: list[Callable[[], None]] = []

    @property
    def is_lost(self) -> bool:
        return self._failures > 0

    def failed(self, what: str, err: Error) -> float:
        """Records a failed call; returns the seconds to wait before the next one.

        Several loops may fail in one outage: only a failure after the last wait makes the next one
        longer.
        """
        now = time.monotonic()
        if now < self._retry_at:
            return self._retry_at - now
        if not self._failures:
            self._lost_at = now
            state = "lost" if isinstance(err, ConnectionError) else "refuses"
            log.warning(
                "broker %(state)s (%(error)s): %(reason)s; trying again until it is back",
                facts("broker_unreachable", state=state, error=what, reason=err),
            )
        self._failures += 1
        wait_s = RECONNECT.delay_s(self._failures, self._rng)
        wait_s = min(wait_s, max(RECONNECT.first_s, (now - self._lost_at) * SHARE))
        self._retry_at = now + wait_s
        if self._failures > 1:
            log.info(
                "still no broker after %(seconds).1f s (%(error)s: %(reason)s), "
                "next try in %(next_s).1f s",
                facts(
                    "broker_still_unreachable",
                    seconds=now - self._lost_at,
                    error=type(err).__name__,
                    reason=err,
                    next_s=wait_s,
                ),
            )
        return wait_s

    def answered(self) -> None:
        """Records a successful call; ends an outage."""
        self.last_answer_at = time.monotonic()
        if not self._failures:
            return
        self.times_back += 1
        log.warning(
            "broker is back after %(seconds).1f s",
            facts("broker_back", seconds=self.last_answer_at - self._lost_at),
        )
        self._failures = 0
        self._retry_at = 0.0
        for tell in self.on_back:
            tell()


class Flag(asyncio.Event):
    """An event whose state is read without a call: most jobs find it set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_on = False

    def set(self) -> None:
        """Wakes those who wait."""
        self.is_on = True
        super().set()

    def clear(self) -> None:
        """From now on one waits again."""
        self.is_on = False
        super().clear()


async def pause(wait_s: float | None, until: asyncio.Event) -> None:
    """Waits that long, or until the event is set; None: for that only."""
    try:
        async with asyncio.timeout(wait_s):
            await until.wait()
    except TimeoutError:
        return


async def wait_for(tasks: set[asyncio.Future[Any]], until: float) -> None:
    """Waits for the first of the tasks, until that monotonic time at most."""
    timeout = max(0.0, until - time.monotonic())
    await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


async def unless_stopped(begin: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Runs it to its end, and raises what it raises; cancels it once the event is set."""
    begins, stops = asyncio.create_task(begin), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({begins, stops}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        begins.cancel()
        stops.cancel()
        await asyncio.gather(begins, stops, return_exceptions=True)
    if not begins.cancelled():
        begins.result()


async def ended_by(
    loops: Iterable[Coroutine[Any, Any, None]],
    deadline: float,
    aborted: asyncio.Event,
    last_s: float,
) -> bool:
    """Whether all of them end by that monotonic time, or within `last_s` once `aborted` is set.

    They have half a second at least.
    """
    ends = asyncio.gather(*loops)
    abort = asyncio.create_task(aborted.wait())
    await wait_for({ends, abort}, max(deadline, time.monotonic() + LAST_WORDS_S_MIN))
    if abort.done():
        await wait_for({ends}, time.monotonic() + last_s)
    is_ended = ends.done()
    abort.cancel()
    ends.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ends
    return is_ended


# ---- Leaders of tubes that do not answer, while the node in use does


def is_about_home(err: Error, node: str) -> bool:
    """True if other queues may work: the tube's leader refused for now, or is another node."""
    if isinstance(err, ConnectionError):
        return node != "" and err.node not in ("", node)
    if isinstance(err, NoReplica):
        return not isinstance(err, FewCopies)
    return isinstance(err, TubeHome | NoQuorum | ReadOnly)


def are_about_homes(answers: list[Any], node: str) -> bool:
    """True if no node but absent leaders of tubes had anything to say."""
    return all(isinstance(one, Error) and is_about_home(one, node) for one in answers)


async def answers_of(pipeline: Pipeline, count: int, client: Client) -> list[Any]:
    """The answers to a pipeline of `count` calls, errors among them.

    If all were for a leader that cannot be reached, each has that error. Raises what is no matter
    of a leader.
    """
    try:
        return await pipeline.execute(raise_on_error=False)
    except Error as err:
        if not is_about_home(err, client.node):
            raise
        return [err] * count
