"""A handle of an enqueued job: its result, how far it is, and its cancel.

Knows the app as a source of clients, and the type that the task returns.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from tuque.client.api import plain_id, url_id
from tuque.client.commands.groups import JobGroup
from tuque.client.commands.work import Cancelling, Result
from tuque.client.retry import own
from tuque.errors import (
    ConnectionError,
    Error,
    JobCancelled,
    JobFailed,
    NoJob,
    NoResult,
    ReplyError,
    ResultTimeout,
)
from tuque.worker.app.arguments import (
    UNTYPED,
    BadArguments,
    converted,
    wanted_type,
)
from tuque.worker.app.codec import unpack, why_lost
from tuque.worker.app.encryption import (
    PROGRESS,
    RESULT,
    BadSeal,
    is_sealed,
)
from tuque.worker.app.options import check_number

if TYPE_CHECKING:
    from tuque.client.url import Settings
    from tuque.worker.app.app import App

R = TypeVar("R")
T = TypeVar("T")

WAIT_MS: Final = 3_600_000  # of one call, when there is no limit
AGAIN_MS: Final = 1000  # of the first one after an outage
AGAIN_S: Final = 0.1  # after a wait that an outage ended
LATE_S: Final = 2.0  # after the limit: other nodes have a second to answer
LAST_TRY_S: Final = 0.05  # in an outage, when the time is over
REASONS: Final = {
    "expired": "its TTL was over",
    "unstarted": "no worker began it",
}  # the broker has none
NEXT: Final = "tuque-next"  # in the result of a step of a chain: the job or group that follows
NOT_KEPT: Final = "returns nothing that is kept: annotate its result, or set keep_s"


class Patience:
    """[U1] How long a wait for a result lasts over an outage of the broker (U1.6)."""

    def __init__(self, settings: Settings, ends_at: float | None) -> None:
        self._settings = settings
        self._ends_at = ends_at
        self._is_lost = False
        self._asked_at = 0.0
        self._until_s = 0.0  # of an outage, without a limit

    def call_s(self) -> float | None:
        """The `timeout` of the next call, which a search for a node has, too; None: the client's.

        So the wait ends `LATE_S` after its limit at the latest, in an outage with it.
        """
        self._asked_at = time.monotonic()
        ends_at = self._until_s if self._ends_at is None else self._ends_at
        if self._is_lost:
            left_s = max(LAST_TRY_S, ends_at - self._asked_at)
        elif self._ends_at is None:
            return None
        else:
            left_s = LATE_S
        return min(self._settings.timeout_s, LATE_S, left_s)

    def wait_ms(self) -> int:
        """How long the next call waits: after an outage not for long, so that its end is known."""
        if self._ends_at is None:
            return AGAIN_MS if self._is_lost else WAIT_MS
        return min(WAIT_MS, max(1, round((self._ends_at - time.monotonic()) * 1000)))

    def answered(self) -> None:
        """The outage is over, if there was one."""
        self._is_lost = False

    def asks_again(self, err: Error) -> bool:
        """Whether to ask again after the error; without a limit only while no node answers."""
        now, was_lost = time.monotonic(), self._is_lost
        self._is_lost = isinstance(err, ConnectionError)
        if self._ends_at is not None:
            return err.retryable and now + AGAIN_S < self._ends_at
        if self._is_lost and not was_lost:
            patience_s, search_s = self._settings.timeout_s, self._settings.search_timeout_s
            searched_s = patience_s if search_s is None else min(patience_s, search_s)
            self._until_s = max(self._asked_at, now - searched_s) + patience_s
        return self._is_lost and now + AGAIN_S < self._until_s

    def ask(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, which is called again after an outage."""
        while True:
            try:
                found = ask()
            except own(Error) as err:
                if not self.asks_again(err):
                    raise
            else:
                self.answered()
                return found
            time.sleep(AGAIN_S)

    async def ask_async(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Like `ask`, for asyncio programs."""
        while True:
            try:
                found = await ask()
            except own(Error) as err:
                if not self.asks_again(err):
                    raise
            else:
                self.answered()
                return found
            await asyncio.sleep(AGAIN_S)


class Handle(str, Generic[R]):
    """The id of a job, as text, and what one may ask about it.

    A pickled one is the id: `app.handle(id, returns)` makes a handle of it again.
    """

    __slots__ = ("_app", "_is_new", "_keeps", "_may_be_group", "_returns", "_task")

    _app: App | None
    _is_new: bool | None
    _keeps: bool
    _may_be_group: bool
    _returns: Any
    _task: str

    def __new__(
        cls,
        id: str,
        app: App | None = None,
        returns: Any = UNTYPED,
        *,
        task: str = "",
        keeps: bool = True,
        is_new: bool | None = None,
        is_group: bool = False,
    ) -> Handle[R]:
        """`is_group`: it is of a callback, which is a group until all children have ended."""
        made = super().__new__(cls, plain_id(id))
        made._is_new, made._may_be_group = is_new, is_group or not task
        made._app, made._returns, made._task, made._keeps = app, returns, task, keeps
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Handle, (str(self),)

    def __str__(self) -> str:
        return str.__str__(self)

    @property
    def id(self) -> str:
        return str.__str__(self)

    @property
    def url_id(self) -> str:
        """The id in a form that needs no escapes in URLs and file names; accepted as an id."""
        return url_id(self.id)

    @property
    def is_new(self) -> bool | None:
        """Whether `enqueue` added this job: True without a key, None for `app.handle(id)`.

        False is certain: another `enqueue` with this key added the job. If a reply was lost and the
        client repeated the call, the job that it met may be its own; that is True, too.
        """
        return self._is_new

    def result(self, timeout: float | None = None) -> R:
        """What the task returned; waits for it, `timeout` seconds at most, also while the broker
        is away (U1.6).

        `timeout` 0 looks once; other nodes have a second to answer. Raises `JobFailed`,
        `JobCancelled`, `ResultTimeout`, or `NoResult` if there is none or it is lost. When the time
        is over, `NotInReach` if a node that is away may have the job or its result, and what the
        client raises if the broker is away; without a `timeout`, after that of the client.
        """
        self._check_kept()
        if not self._may_be_group:
            return self.read(self._ended(_ends_at(timeout)), timeout)
        at, ends_at = self, _ends_at(timeout)
        while True:
            found = at._looked(ends_at)
            shown = at._group(found, ends_at)
            if shown is not None:
                group = self._of().later_group(shown.queue, at.id)
                if not shown.has_callback:
                    listed: R = group.results(_left_s(ends_at))
                    return listed
                group.called(_left_s(ends_at))
            if found is None or not found.is_over:
                found = at._ended(ends_at)
            following = None if at._task else at._following(found)
            if following is None:
                return at.read(found, timeout)
            at = Handle(following, self._app, self._returns)

    def outcome(self, timeout: float | None = None) -> Result:
        """How the job ended, or where it stands when the time is over; waits as `result` does."""
        ends_at = _ends_at(timeout)
        if self._may_be_group:
            found = self._looked(ends_at)
            shown = self._group(found, ends_at)
            if shown is not None and found is not None:
                group = self._of().later_group(shown.queue, self.id)
                over = group.over(found, _left_s(ends_at))
                if over is not None:
                    return over
        return self._ended(ends_at)

    def _ended(self, ends_at: float | None) -> Result:
        """How the job ended, or where it stands then; waits for it."""
        client = self._of().client
        patience = Patience(client.settings, ends_at)
        while True:
            try:
                found = patience.ask(
                    lambda: client.result(
                        self.id, wait_ms=patience.wait_ms(), timeout=patience.call_s()
                    )
                )
            except NoJob:
                raise self._unknown() from None
            if found.is_over or (ends_at is not None and time.monotonic() >= ends_at):
                return found

    async def result_async(self, timeout: float | None = None) -> R:
        """Like `result`, for asyncio programs."""
        self._check_kept()
        if not self._may_be_group:
            return self.read(await self._ended_async(_ends_at(timeout)), timeout)
        at, ends_at = self, _ends_at(timeout)
        while True:
            found = await at._looked_async(ends_at)
            shown = await at._group_async(found, ends_at)
            if shown is not None:
                group = self._of().later_group(shown.queue, at.id)
                if not shown.has_callback:
                    listed: R = await group.results_async(_left_s(ends_at))
                    return listed
                await group.called_async(_left_s(ends_at))
            if found is None or not found.is_over:
                found = await at._ended_async(ends_at)
            following = None if at._task else at._following(found)
            if following is None:
                return at.read(found, timeout)
            at = Handle(following, self._app, self._returns)

    async def outcome_async(self, timeout: float | None = None) -> Result:
        """Like `outcome`, for asyncio programs."""
        ends_at = _ends_at(timeout)
        if self._may_be_group:
            found = await self._looked_async(ends_at)
            shown = await self._group_async(found, ends_at)
            if shown is not None and found is not None:
                group = self._of().later_group(shown.queue, self.id)
                over = await group.over_async(found, _left_s(ends_at))
                if over is not None:
                    return over
        return await self._ended_async(ends_at)

    async def _ended_async(self, ends_at: float | None) -> Result:
        """How the job ended, or where it stands then; waits for it."""
        client = self._of().aio_client
        patience = Patience(client.settings, ends_at)
        while True:
            try:
                found = await patience.ask_async(
                    lambda: client.result(
                        self.id, wait_ms=patience.wait_ms(), timeout=patience.call_s()
                    )
                )
            except NoJob:
                raise self._unknown() from None
            if found.is_over or (ends_at is not None and time.monotonic() >= ends_at):
                return found

    def __await__(self) -> Generator[Any, None, R]:
        return self.result_async().__await__()

    def status(self) -> Result:
        """Where the job stands; NoJob if it ended and nothing of it is kept.

        Of a group it is how that ended; until then it is "scheduled".
        """
        try:
            found = self._of().client.result(self.id)
        except NoJob:
            raise NoJob(self._not_known(), job_id=self.id) from None
        shown = self._group(found) if self._may_be_group else None
        if shown is None:
            return found
        return self._of().later_group(shown.queue, self.id).standing(found, shown)

    async def status_async(self) -> Result:
        """Like `status`, for asyncio programs."""
        try:
            found = await self._of().aio_client.result(self.id)
        except NoJob:
            raise NoJob(self._not_known(), job_id=self.id) from None
        shown = await self._group_async(found) if self._may_be_group else None
        if shown is None:
            return found
        return await self._of().later_group(shown.queue, self.id).standing_async(found, shown)

    @overload
    def progress(self) -> Any: ...

    @overload
    def progress(self, as_: type[T]) -> T | None: ...

    def progress(self, as_: Any = UNTYPED) -> Any:
        """The latest progress of the task, in the type `as_`; None if there is none."""
        return self.progress_in(self.status(), as_)

    @overload
    async def progress_async(self) -> Any: ...

    @overload
    async def progress_async(self, as_: type[T]) -> T | None: ...

    async def progress_async(self, as_: Any = UNTYPED) -> Any:
        """Like `progress`, for asyncio programs."""
        return self.progress_in(await self.status_async(), as_)

    def cancel(self, reason: str = "") -> Cancelling:
        """Cancels the job: it never begins, its worker is asked to stop, or it was over.

        Raises `NotInReach` if no node that answered knows it, and another one may have it. That
        one may still cancel it if the `may_be_done` of the error is True. Of a group it cancels
        all children that are open: "ended".
        """
        try:
            (became,) = self._of().client.cancel(self.id, reason=reason or None)
        except ReplyError:
            found = self._looked(0.0) if self._may_be_group else None
            shown = self._group(found)
            if shown is None:
                raise
            group = self._of().later_group(shown.queue, self.id)
            return "ended" if group.cancel() else "over"
        return _became(became)

    async def cancel_async(self, reason: str = "") -> Cancelling:
        """Like `cancel`, for asyncio programs."""
        try:
            (became,) = await self._of().aio_client.cancel(self.id, reason=reason or None)
        except ReplyError:
            found = await self._looked_async(0.0) if self._may_be_group else None
            shown = await self._group_async(found)
            if shown is None:
                raise
            group = self._of().later_group(shown.queue, self.id)
            return "ended" if await group.cancel_async() else "over"
        return _became(became)

    # ---- the id of a chain: its result is that of the last step (SPEC U11.4)

    def next_step(self, found: Result) -> Handle[R] | None:
        """The step that follows, if the job is one of a chain and has ended well."""
        following = self._following(found)
        return None if following is None else Handle(following, self._app, self._returns)

    async def is_group_async(self, found: Result) -> bool:
        """Whether the id is that of a group of which children are open, or without a callback."""
        return await self._group_async(found) is not None

    def _following(self, found: Result) -> str | None:
        """The next step, if the job is one of a chain that has ended well."""
        if found.state != "done" or found.result is None or found.reason:
            return None
        try:
            return next_of(unpack(self._opened(found.result, RESULT)))
        except (ValueError, BadSeal):
            return None  # `read` says why

    def _looked(self, ends_at: float | None) -> Result | None:
        """Where the job stands now; None if nothing of it is known."""
        client = self._of().client
        patience = Patience(client.settings, ends_at)
        try:
            return patience.ask(lambda: client.result(self.id, timeout=patience.call_s()))
        except NoJob:
            return None

    def _group(self, found: Result | None, ends_at: float | None = 0) -> JobGroup | None:
        """The group with this id, if it is one that has no callback yet."""
        if found is None or found.state != "scheduled":
            return None
        client = self._of().client
        patience = Patience(client.settings, ends_at)
        try:
            shown = patience.ask(lambda: client.show(self.id, timeout=patience.call_s()))
            tube = "" if shown is None or shown.queue is None else shown.queue
            if not tube:
                return None
            group = patience.ask(
                lambda: client.group_show(tube, self.id, timeout=patience.call_s())
            )
        except ReplyError:
            return None  # the wait for its outcome says why
        return None if group.state == "called" else group

    async def _looked_async(self, ends_at: float | None) -> Result | None:
        """Where the job stands now; None if nothing of it is known."""
        client = self._of().aio_client
        patience = Patience(client.settings, ends_at)
        try:
            return await patience.ask_async(
                lambda: client.result(self.id, timeout=patience.call_s())
            )
        except NoJob:
            return None

    async def _group_async(
        self, found: Result | None, ends_at: float | None = 0
    ) -> JobGroup | None:
        """The group with this id, if it is one that has no callback yet."""
        if found is None or found.state != "scheduled":
            return None
        client = self._of().aio_client
        patience = Patience(client.settings, ends_at)
        try:
            shown = await patience.ask_async(
                lambda: client.show(self.id, timeout=patience.call_s())
            )
            tube = "" if shown is None or shown.queue is None else shown.queue
            if not tube:
                return None
            group = await patience.ask_async(
                lambda: client.group_show(tube, self.id, timeout=patience.call_s())
            )
        except ReplyError:
            return None  # the wait for its outcome says why
        return None if group.state == "called" else group

    def _of(self) -> App:
        if self._app is None:
            raise LookupError(f"job {self.id}: app.handle(id, returns) makes a handle of an id")
        return self._app

    def _check_kept(self) -> None:
        if not self._keeps:
            raise NoResult(f"task {self._task} {NOT_KEPT}", job_id=self.id)

    def _unknown(self) -> NoResult:
        return NoResult(self._not_known(), job_id=self.id)

    def _not_known(self) -> str:
        return f"job {self.id} is not known: nothing of it is kept"

    def read(self, found: Result, timeout: float | None = None) -> R:
        """The result in such an outcome; raises why there is none, as `result` does."""
        if found.state == "cancelled":
            text = f"job {self.id} was cancelled"
            raise JobCancelled(f"{text}: {found.reason}" if found.reason else text, job_id=self.id)
        if found.state == "dead":
            error = JobFailed(_failed(self.id, found), job_id=self.id)
            error.cause, error.reason, error.attempts = found.cause, found.reason, found.attempt
            error.detail = found.detail.decode(errors="replace")
            raise error
        if found.state != "done":
            raise ResultTimeout(_late(self.id, found, timeout), job_id=self.id)
        if found.result is None:
            raise self._none(found.reason)
        try:
            data = unpack(self._opened(found.result, RESULT))
            if (why := why_lost(data)) is not None:
                raise self._none(why)
            value: R = converted("result", data, self._returns)
        except BadSeal as err:
            raise NoResult(f"the result of job {self.id} is refused: {err}") from None
        except BadArguments as err:
            raise NoResult(f"the result of job {self.id} does not fit: {err}") from None
        return value

    def _none(self, why: str) -> NoResult:
        """The error of a job that is done and has no result."""
        text = f"job {self.id} is done and has no result"
        return NoResult(f"{text}: {why}" if why else text, job_id=self.id)

    def _opened(self, data: bytes, place: str) -> bytes:
        """[U8] A result or progress as it was before it was sealed (U8.3); BadSeal."""
        keys = None if self._app is None else self._app.keys
        if keys is not None:
            return keys.open(data, place, self.id)
        if is_sealed(data):
            raise BadSeal("it is under a key, and this App has no keys")
        return data

    def progress_in(self, found: Result, as_: Any = UNTYPED) -> Any:
        """The progress in such an outcome, as `progress` returns it."""
        if not found.progress:
            return None
        try:
            data = self._opened(found.progress, PROGRESS)
        except BadSeal as err:
            raise NoResult(f"the progress of job {self.id} is refused: {err}") from None
        return converted("progress", unpack(data), wanted_type(as_))


def next_of(value: Any) -> str | None:
    """The id of the next step, if a step has returned that."""
    if isinstance(value, dict) and len(value) == 1:
        found = value.get(NEXT)
        return found if isinstance(found, str) else None
    return None


def _left_s(ends_at: float | None) -> float | None:
    """How many seconds are left until then; None: there is no limit."""
    return None if ends_at is None else max(0.0, ends_at - time.monotonic())


def _became(became: Cancelling | ReplyError | None) -> Cancelling:
    """What CANCEL says of a job; raises if that is not known now."""
    if isinstance(became, ReplyError):
        raise became
    return became or "over"


def _ends_at(timeout: float | None) -> float | None:
    """When a wait is over, by time.monotonic(); None: never. Raises TypeError, ValueError."""
    if timeout is None:
        return None
    check_number("timeout", timeout)
    if not 0 <= timeout < math.inf:
        raise ValueError(f"timeout is 0 seconds or more, or None for ever, not {timeout}")
    return time.monotonic() + timeout


def _failed(job_id: str, found: Result) -> str:
    """The text about a job that was given up."""
    attempts = "1 attempt" if found.attempt == 1 else f"{found.attempt} attempts"
    reason = found.reason or REASONS.get(found.cause, "")
    cause = f" ({found.cause})" if found.cause else ""  # of a tube: T48.8
    text = f"job {job_id} failed after {attempts}{cause}"
    return f"{text}: {reason}" if reason else text


def _late(id: str, found: Result, timeout: float | None) -> str:
    of = f" of {found.of}" if found.of else ""
    at = f" at worker {found.worker}" if found.worker else ""
    more = f" (attempt {found.attempt}{of}{at})" if found.attempt else ""
    return f"job {id} is still {found.state} after {timeout:g} s{more}"
