"""Decides which queues a worker skips for a while: tubes without a reachable leader, or copies.

A tube in switchover, or with its leader down, must not keep the worker from other queues. A
switchover is short and is not logged; a longer outage is logged once at each end.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable
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
from tuque.worker.tasks.policy import Backoff

if TYPE_CHECKING:
    from tuque.client.aio.client import Client, Pipeline

log: Final = logging.getLogger("tuque.worker")

AGAIN: Final = Backoff(first_s=0.02, max_s=2.0, jitter=0.5)
TELL_AFTER_S: Final = 2.0


class _Story:
    """A queue without a reachable leader: since when, the attempts, the next one."""

    __slots__ = ("due_at", "failures", "is_told", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.failures = 0
        self.due_at = 0.0
        self.is_told = False


class Away:
    """The skipped queues, each until its own time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._stories: dict[str, _Story] = {}

    @property
    def has_any(self) -> bool:
        """Whether a queue could not be reached when it was asked last."""
        return bool(self._stories)

    def failed(self, queue: str, err: Error, node: str) -> bool:
        """Records a failed call about a queue; False if the failure is not about its leader.

        `node` is the node in use as "host:port", "" when there is none.
        """
        if not is_about_home(err, node):
            return False
        now = time.monotonic()
        story = self._stories.setdefault(queue, _Story(now))
        if now < story.due_at:
            return True
        story.failures += 1
        wait_s = AGAIN.delay_s(story.failures, self._rng)
        story.due_at = now + min(wait_s, max(AGAIN.first_s, (now - story.since) * SHARE))
        if not story.is_told and now - story.since >= TELL_AFTER_S:
            story.is_told = True
            log.warning(
                "queue %(queue)s cannot be reached for %(seconds).1f s: %(reason)s; "
                "the others go on",
                facts("queue_away", queue=queue, seconds=now - story.since, reason=err),
            )
        return True

    def answered(self, queue: str) -> None:
        """Records a successful call about a queue."""
        story = self._stories.pop(queue, None) if self._stories else None
        if story is not None and story.is_told:
            log.warning(
                "queue %(queue)s is back after %(seconds).1f s",
                facts("queue_back", queue=queue, seconds=time.monotonic() - story.since),
            )

    def here(self, queues: Iterable[str]) -> list[str]:
        """The queues that may be asked now."""
        if not self._stories:
            return list(queues)
        now = time.monotonic()
        return [
            name
            for name in queues
            if (story := self._stories.get(name)) is None or story.due_at <= now
        ]

    def wait_s(self, queues: Iterable[str]) -> float:
        """Seconds until the first of the queues may be asked."""
        now = time.monotonic()
        dues = [story.due_at for name in queues if (story := self._stories.get(name))]
        return max(0.0, min(dues, default=now) - now)


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
