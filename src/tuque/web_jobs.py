"""Routes that show the users of a web application their jobs: `routes(app, allow=f)`.

Decides what a browser sees of a job, and how often the broker is asked for it. Needs Starlette,
which FastAPI brings. Must not know: tasks, and who the users are.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from tuque.client.commands.work import Result
from tuque.errors import (
    BadId,
    ConfigError,
    ConnectionError,
    Error,
    NoJob,
    NoResult,
    Unavailable,
)
from tuque.worker.app.app import App
from tuque.worker.app.handle import Handle

try:
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError:
    raise ConfigError(
        "tuque.web_jobs needs Starlette, which FastAPI brings: pip install starlette"
    ) from None

log: Final = logging.getLogger("tuque.web_jobs")

POLL_S: Final = 0.5  # between two pipelines for all streams
BEAT_S: Final = 15.0  # a stream says something at least that often
AGAIN_S: Final = 1  # in Retry-After
STREAMS: Final = 5_000  # at most, by default
OVER: Final = "over"  # the id of the last event: who connects again with it has all
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}  # nginx holds nothing

Allow: TypeAlias = Callable[[Any, Handle[Any]], bool | Awaitable[bool]]
Handler: TypeAlias = Callable[[Request, Handle[Any]], Awaitable[Response]]


class Seen(NamedTuple):
    """What a browser gets of a job: JSON with id, state, progress and result."""

    body: bytes
    is_over: bool


GONE: Final = "gone"


def routes(app: App, *, allow: Allow, streams_max: int = STREAMS) -> list[Route]:
    """`GET /{id}`, `GET /{id}/events` and `DELETE /{id}` about the jobs of an app, for a mount.

    `allow(request, id)` says whether the one who asks may see and cancel the job: an id alone is no
    right. It may be a coroutine function; a plain one runs in a thread. More than `streams_max`
    streams of events in this process get 503.
    """
    if not callable(allow):
        raise TypeError(f"allow is a function (request, id) -> bool, not {allow!r}")
    jobs = Jobs(app, allow, streams_max)
    return [
        Route("/{id}", jobs.asked(jobs.show), methods=["GET"]),
        Route("/{id}", jobs.asked(jobs.cancel), methods=["DELETE"]),
        Route("/{id}/events", jobs.asked(jobs.events), methods=["GET"]),
    ]


async def away(request: Any, error: Exception) -> Response:
    """503 with Retry-After: the handler of `tuque.errors.Unavailable` for an application."""
    is_unsure = isinstance(error, Error) and error.may_be_done
    hint = "what was asked for may be done" if is_unsure else "try again"
    detail = {"detail": f"the job broker is away: {hint}"}
    return JSONResponse(detail, 503, {**HEADERS, "retry-after": str(AGAIN_S)})


class Jobs:
    """The handlers of the routes of one app."""

    def __init__(self, app: App, allow: Allow, streams_max: int) -> None:
        self._app = app
        self._allow = allow
        self._streams_max = streams_max
        self._streams = 0
        self._poll: Poll | None = None

    def asked(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """The handler for those who may ask, with a reply for each error of the broker."""

        async def answer(request: Request) -> Response:
            handle: Handle[Any] = self._app.handle(request.path_params["id"])
            if not await self._may(request, handle):
                return JSONResponse({"detail": "this job is not yours"}, 403, HEADERS)
            try:
                return await handler(request, handle)
            except Unavailable as err:
                return await away(request, err)
            except (NoJob, BadId):
                return JSONResponse({"detail": "nothing is known of this job"}, 404, HEADERS)

        return answer

    async def _may(self, request: Request, handle: Handle[Any]) -> bool:
        if inspect.iscoroutinefunction(self._allow):
            return bool(await self._allow(request, handle))
        found = await run_in_threadpool(self._allow, request, handle)
        return bool(await found if inspect.isawaitable(found) else found)

    def poll(self) -> Poll:
        """That of the running event loop."""
        if self._poll is None or not self._poll.is_here:
            self._poll = Poll(self._app)
        return self._poll

    async def show(self, request: Request, handle: Handle[Any]) -> Response:
        """Where the job stands."""
        seen = await self.poll().once(handle)
        return Response(seen.body, 200, HEADERS, "application/json")

    async def cancel(self, request: Request, handle: Handle[Any]) -> Response:
        """Cancels the job; what became of it."""
        became = await handle.cancel_async()
        if became == OVER:
            await self.poll().once(handle)  # raises NoJob if nothing is known of it
        return JSONResponse({"id": handle.url_id, "became": became}, 200, HEADERS)

    async def events(self, request: Request, handle: Handle[Any]) -> Response:
        """A stream of events: where the job stands, at each change until it is over."""
        if request.headers.get("last-event-id") == OVER:
            return Response(None, 204, HEADERS)  # which ends the attempts of an EventSource
        if self._streams >= self._streams_max:
            return await away(request, ConnectionError(f"{self._streams} streams"))
        self._streams += 1
        try:
            first = await self.poll().once(handle)
        except BaseException:
            self._streams -= 1
            raise
        return Stream(self.poll().follow(handle, first), self._on_end)

    def _on_end(self) -> None:
        self._streams -= 1


class Stream(StreamingResponse):
    """Server-sent events: the states of one job."""

    def __init__(
        self, states: AsyncGenerator[Seen | None, None], on_end: Callable[[], None]
    ) -> None:
        super().__init__(lines(states), 200, HEADERS, "text/event-stream")
        self._states = states
        self._on_end = on_end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send them; the other end may leave at any time."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
            await self._states.aclose()


async def lines(states: AsyncIterator[Seen | None]) -> AsyncIterator[bytes]:
    """The events of these states."""
    async for seen in states:
        if seen is None:
            yield b": still here\n\n"
        else:
            id = b"id: %b\n" % OVER.encode() if seen.is_over else b""
            yield b"%bdata: %b\n\n" % (id, seen.body)


class Polled:
    """A job that requests ask about."""

    def __init__(self, handle: Handle[Any]) -> None:
        self.id = handle.url_id
        self.at = handle  # of a chain the step that it has reached
        self.is_group: bool | None = None  # None: it is not known
        self.found: Result | None = None
        self.seen: Seen | None = None
        self.count = 0  # of those who wait for it
        self.asks: list[asyncio.Future[Seen]] = []  # for the next reply
        self.changed = asyncio.Event()  # from `seen`

    def show(self, seen: Seen) -> None:
        """For all who wait."""
        if self.seen is None or seen.body != self.seen.body:
            self.seen = seen
            self.changed.set()
            self.changed = asyncio.Event()
        for ask in self.asks:
            if not ask.done():
                ask.set_result(seen)
        self.asks.clear()

    def refuse(self, error: BaseException) -> None:
        """Requests get the error; streams wait for the next reply."""
        for ask in self.asks:
            if not ask.done():
                ask.set_exception(error)
        self.asks.clear()


class Poll:
    """The jobs that requests of one event loop ask about, in one pipeline of RESULT."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[str, Polled] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_here(self) -> bool:
        """Whether it is that of the running loop."""
        return self._loop is asyncio.get_running_loop()

    async def once(self, handle: Handle[Any]) -> Seen:
        """Where a job stands now. Raises what RESULT raises."""
        with self._polled(handle) as one:
            ask: asyncio.Future[Seen] = self._loop.create_future()
            one.asks.append(ask)
            self._wake.set()
            return await ask

    async def follow(self, handle: Handle[Any], seen: Seen) -> AsyncGenerator[Seen | None, None]:
        """`seen`, then each change until it is over; None after a time without one."""
        with self._polled(handle) as one:
            one.seen = one.seen or seen
            yield seen
            while not seen.is_over:
                if one.seen == seen:
                    try:
                        await asyncio.wait_for(one.changed.wait(), BEAT_S)
                    except TimeoutError:
                        yield None
                        continue
                seen = one.seen
                yield seen

    @contextmanager
    def _polled(self, handle: Handle[Any]) -> Iterator[Polled]:
        one = self._jobs.get(handle.id)
        if one is None:
            one = self._jobs[handle.id] = Polled(handle)
        one.count += 1
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run())
        try:
            yield one
        finally:
            one.count -= 1
            if not one.count:
                del self._jobs[handle.id]

    async def _run(self) -> None:
        """Ask about all jobs each half second, and at once about those of a new request."""
        due_s = 0.0
        while self._jobs:
            self._wake.clear()
            asked = [one for one in self._jobs.values() if one.asks]
            if self._loop.time() >= due_s:
                await self._ask([*self._jobs.values()])
                due_s = self._loop.time() + POLL_S
            elif asked:
                await self._ask(asked)
            else:
                try:
                    await asyncio.wait_for(self._wake.wait(), due_s - self._loop.time())
                except TimeoutError:
                    pass

    async def _ask(self, jobs: list[Polled]) -> None:
        """One round trip, also for the next steps of chains that a job leads to."""
        try:
            while jobs:
                pipeline = self._app.aio_client.pipeline()
                for one in jobs:
                    pipeline.result(one.at)
                answers = await pipeline.execute(raise_on_error=False)
                pairs = zip(jobs, answers, strict=True)
                jobs = [one for one, answer in pairs if await self._take(one, answer)]
        except Exception as err:
            if not isinstance(err, Unavailable):
                log.exception("the states of jobs cannot be read")
            for one in jobs:
                one.refuse(err)

    async def _take(self, one: Polled, answer: Result | Exception) -> bool:
        """Take what the broker says of a job; whether to ask for the next step of its chain."""
        if isinstance(answer, NoJob) and one.seen is not None and not one.asks:
            one.show(Seen(encoded(one.id, GONE), True))
        elif isinstance(answer, Exception):
            one.refuse(answer)
        elif answer == one.found and not one.is_group and one.seen is not None:
            one.show(one.seen)
        else:
            if answer.state == "scheduled" and one.is_group is None:
                one.is_group = await one.at.is_group_async(answer)
            if answer.state == "scheduled" and one.is_group:
                answer = await one.at.status_async()
            one.found = answer
            following = one.at.next_step(answer)
            if following is not None:
                one.at, one.is_group, one.found = following, None, None
                return True
            one.show(seen_of(one.id, one.at, answer))
        return False


def seen_of(id: str, at: Handle[Any], found: Result) -> Seen:
    """What a browser gets; a result that cannot be read is none."""
    progress = or_none(lambda: at.progress_in(found))
    result = or_none(lambda: at.read(found)) if found.state == "done" else None
    return Seen(encoded(id, found.state, progress, result), found.is_over)


def or_none(read: Callable[[], Any]) -> Any:
    """What it returns; None if that is lost, or refused."""
    try:
        return read()
    except NoResult:
        return None


def encoded(id: str, state: str, progress: Any = None, result: Any = None) -> bytes:
    """The JSON about a job."""
    shown = {"id": id, "state": state, "progress": progress, "result": result}
    return msgspec.json.encode(shown)
