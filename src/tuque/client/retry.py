"""Decides whether and when a failed call is retried, and whose failure it is; reads no clock."""

from __future__ import annotations

import math
import random
import sys
from types import FrameType
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tuque.errors import (
    Conflict,
    ConnectionError,
    Error,
    Leaving,
    Loading,
    MaxClients,
    Misconf,
    NoNode,
    NoQuorum,
    NotTaken,
    OutOfMemory,
    ReadOnly,
    Timeout,
    TubeHome,
)

if TYPE_CHECKING:
    from tuque.client.transport.conn import Conn
    from tuque.client.url import Address

E = TypeVar("E", bound=BaseException)
CO_VARARGS: Final = 4  # as in `inspect`, whose import takes a fifth of that of the client

# ---- Whose failure it is


def own(*kinds: type[E]) -> tuple[type[E], ...]:
    """[U14] For `except own(OSError):`, which leaves alone what a signal handler raises (U14.8)."""
    error = sys.exception()
    at = None if error is None else error.__traceback__
    while at is not None:
        if _is_handler(at.tb_frame):
            return ()
        at = at.tb_next
    return kinds


def _is_handler(frame: FrameType) -> bool:
    """Whether it is that of a signal handler: it has got the frame that it interrupted."""
    if frame.f_back is None:
        return False
    code, found = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    given = [found.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & CO_VARARGS:
        given += found.get(code.co_varnames[count], ())
    return any(one is frame.f_back for one in given)


# ---- Retries

# nothing was done, and time or another node will help
NOT_NOW = (Conflict, Leaving, Loading, MaxClients, TubeHome, NoQuorum, ReadOnly)
FULL = (
    OutOfMemory,
    Misconf,
)  # others may have room, or a journal that works
SHARE = 0.25  # of the time since the first failure: nobody is later than that much of an outage


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How to retry: full jitter over a span that doubles, until the call's deadline.

    `base_s` is the first span, `cap_s` the longest; `attempts` bounds the number of retries:
    0 for none, None for as many as the deadline allows. With None no span is longer than a quarter
    of the time since the first failure, or `base_s`.
    """

    base_s: float = 0.05
    cap_s: float = 1.0
    attempts: int | None = None

    def delay_s(self, attempt: int, rng: random.Random, lost_s: float = math.inf) -> float:
        """Seconds to wait before retry number `attempt`, counted from 0.

        `lost_s` is the time since the first failure.
        """
        span_s = min(self.cap_s, self.base_s * 2.0 ** min(attempt, 32))
        if self.attempts is None:
            span_s = min(span_s, max(self.base_s, lost_s * SHARE))
        return rng.uniform(0.0, span_s)


class Tries:
    """The attempts of one call: which failures are retried, and when to give up.

    The call ends at `deadline_s`. The search for a node ends after `search_s`, counted from the
    start and again from the loss of a node that had the call, even if the deadline is later; while
    none can be reached, after `down_s` if that is less.
    `pinned`: only the node that had the call may get it again. `unsure`: an error of a later one
    does not say that the call was not done. `reads`: it changes nothing, so it is never "done".
    """

    def __init__(
        self,
        retry: Retry,
        *,
        repeat: bool,
        pinned: bool = False,
        unsure: bool = False,
        reads: bool = False,
        deadline_s: float,
        search_s: float,
        down_s: float | None = None,
        now_s: float,
        rng: random.Random,
    ) -> None:
        self.deadline_s = deadline_s
        self.search_until_s = min(deadline_s, now_s + search_s)
        self._search_s = search_s
        self._down_s = down_s
        self._down_until_s = math.inf if down_s is None else now_s + down_s
        self._retry = retry
        self._repeat = repeat
        self._pinned = pinned
        self._counts_twice = pinned or unsure or not repeat
        self._reads = reads
        self._may_be_done = False  # an attempt was sent and had no reply
        self.had: Address | None = None  # the node that may have executed the call
        self._rng = rng
        self._count = 0
        self._failed_s = now_s  # when the first one failed
        self._at_once: set[str] = set()  # nodes named by refusals, asked once without a pause

    def logged_in(self, link: Conn) -> None:
        """The call has its time besides that of the log-in, if the connection is new (N6.7)."""
        self.deadline_s += link.login_s
        self.search_until_s += link.login_s
        link.login_s = 0.0

    def pause_s(
        self, error: Error, *, sent: bool, now_s: float, node: Address | None = None
    ) -> float:
        """Seconds until the next attempt; raises `error` if there must be none.

        `sent`: the node had the call when it failed.

        Some refusals say that nothing was done and that time, or another node, will help: these
        calls are always retried, at once the first time that node, or another session, is named.
        """
        if isinstance(error, TubeHome | NotTaken) and now_s < self.deadline_s:
            named = error.home if isinstance(error, TubeHome) else ""
            if named not in self._at_once:
                self._at_once.add(named)
                return 0.0
        safe = not sent or self._repeat
        if isinstance(error, ConnectionError):
            if sent:
                self._may_be_done = not self._reads
                self.had = node if self._pinned else None
            error.retryable = safe
            again = safe and not (sent and isinstance(error, Timeout))
        else:
            again = isinstance(error, NOT_NOW + FULL)
        self.mark(error)
        attempts = self._retry.attempts
        if not again or (attempts is not None and self._count >= attempts):
            raise error
        if sent:
            self.search_until_s = min(self.deadline_s, now_s + self._search_s)
            if self._down_s is not None:
                self._down_until_s = now_s + self._down_s
        if not self._count:
            self._failed_s = now_s
        delay_s = self._retry.delay_s(self._count, self._rng, now_s - self._failed_s)
        if isinstance(error, FULL):
            delay_s = 0.0  # another node is asked, and none twice
        if isinstance(error, NoNode) and now_s + delay_s >= self._down_until_s:
            error.args = (f"{error.message}; search_timeout is {self._down_s:g} s",)
            raise error
        if now_s + delay_s >= self.search_until_s:
            raise error
        self._count += 1
        return delay_s

    def follow(self) -> None:
        """The call is about a tube: whoever leads that knows the keys of its tasks."""
        self._pinned = False
        self.had = None

    def mark(self, reply: object) -> None:
        """Note in an error that the call may be done: an earlier attempt had no reply."""
        if self._may_be_done and isinstance(reply, Error):
            reply.may_be_done = True
            if self._counts_twice:
                reply.retryable = False
