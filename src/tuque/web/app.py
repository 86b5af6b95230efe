"""The web application: routes, who may see what, headers of every reply, the live stream.

Decides that no page is shown without a session, and nothing is changed without the role admin and
the token of the session's forms.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import h11
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from tuque.errors import Error
from tuque.web.actions import Action, Outcome
from tuque.web.login import COOKIE, LASTS_S, Session, checked
from tuque.web.pages import asking
from tuque.web.pages.cluster import cluster, leases, tubes
from tuque.web.pages.dead import dead
from tuque.web.pages.groups_and_topics import group, groups, topics
from tuque.web.pages.job import job
from tuque.web.pages.overview import find, overview
from tuque.web.pages.queue import queue
from tuque.web.pages.queues import queues
from tuque.web.pages.schedules import schedules
from tuque.web.pages.workers import workers
from tuque.web.show import templates
from tuque.web.show.text import link, unkey
from tuque.web.site import Ask, Page, Site

log: Final = logging.getLogger("tuque.web")

PAGES: Final[dict[str, Callable[[Ask], Awaitable[Page]]]] = {
    "/": overview,
    "/queues": queues,
    "/queue": queue,
    "/job": job,
    "/dead": dead,
    "/tubes": tubes,
    "/schedules": schedules,
    "/groups": groups,
    "/group": group,
    "/topics": topics,
    "/cluster": cluster,
    "/workers": workers,
    "/leases": leases,
    "/log": asking.log,
}
STATIC: Final = {
    "theme.js": "text/javascript",
    "morph.js": "text/javascript",
    "charts.js": "text/javascript",
    "console.js": "text/javascript",
    "tokens.css": "text/css",
    "console.css": "text/css",
    "figures.css": "text/css",
    "icon.svg": "image/svg+xml",
    "vendor/uplot.js": "text/javascript",
    "vendor/uplot.css": "text/css",
}
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
FORM_MAX: Final = 2 << 20  # bytes of a form
FIELDS_MAX: Final = 20_000
LOGIN_MAX: Final = 8_192  # bytes of the form to sign in, which anybody may send
STREAMS_MAX: Final = 200
STREAMS_OF_ONE: Final = 24  # session
CHECKS_MAX: Final = 2  # passwords that are looked at side by side: each takes 16 MB
FIRST_LOOK_S: Final = 3.0
REQUEST_S: Final = 10.0  # in which a request must have come
BEAT_S: Final = 15.0  # a stream says something at least that often
RAW: Final = ("body",)  # words of forms that are taken as they are


def made(site: Site) -> Any:
    """The application."""
    web = Web(site)
    paths = dict.fromkeys(PAGES, "GET") | {"/find": "GET", "/live": "GET"}
    routes = [
        Route(path, web.guarded(web.route_of(path)), methods=[m]) for path, m in paths.items()
    ]
    routes += [
        Route("/login", web.login, methods=["GET", "POST"]),
        Route("/logout", web.guarded(web.logout), methods=["POST"]),
        Route("/stop", web.guarded(web.stop), methods=["POST"]),
        Route("/ask/{name}", web.guarded(web.ask), methods=["GET"]),
        Route("/do/{name}", web.guarded(web.act), methods=["POST"]),
        Route("/static/{name:path}", web.static, methods=["GET"]),
        Route("/healthz", web.healthz, methods=["GET"]),
    ]
    made = Starlette(routes=routes, lifespan=web.lifespan, exception_handlers={404: web.not_found})
    made.router.redirect_slashes = False  # it would name the host, and http behind a proxy
    return made


class Punctual(H11Protocol):
    """[O14] A connection that is closed when a request does not come whole in time (O14.37)."""

    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.late = self.loop.call_later(REQUEST_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.expect()

    def expect(self) -> None:
        """Begin or end to wait for the rest of a request."""
        is_between = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if is_between or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self.in_time()
        elif self.late is None:
            self.late = self.loop.call_later(REQUEST_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self.in_time()
        super().connection_lost(exc)

    def in_time(self) -> None:
        """Nothing is awaited of the other end."""
        if self.late is not None:
            self.late.cancel()
            self.late = None


class Web:
    """The handlers of one console."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.streams: Counter[str] = Counter()  # by session
        self.checks = asyncio.Semaphore(CHECKS_MAX)
        self.is_ending = False

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """The watch runs while the application does."""
        task = asyncio.create_task(self.site.watch.run())
        try:
            yield
        finally:
            self.is_ending = True
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.site.running.close()
            await self.site.graves.close()
            await self.site.watch.close()

    # Who asks

    def guarded(
        self, handler: Callable[[Request, Session], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A handler that only those with a session reach, and only with the forms' token."""

        async def with_session(request: Request) -> Response:
            session = self.site.sessions.read(request.cookies.get(COOKIE, ""), time.time())
            if session is None:
                if request.url.path == "/live":
                    return self.safe(PlainTextResponse("signed out", 401))
                goto = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return self.safe(RedirectResponse(link("login", to=goto), 303))
            return self.safe(await handler(request, session))

        return with_session

    def safe(self, response: Response) -> Response:
        """The reply with the headers that all have."""
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    async def form(self, request: Request, most: int = FORM_MAX) -> list[tuple[str, str]]:
        """The fields of a form. HTTPException 413 if it is too long."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise HTTPException(413, f"A form has at most {most} bytes.")
        if body.count(b"&") >= FIELDS_MAX:
            raise HTTPException(413, f"A form has at most {FIELDS_MAX} fields.")
        text = body.decode("utf-8", "surrogateescape")
        return parse_qsl(text, keep_blank_values=True, errors="surrogateescape")

    def asked(
        self, request: Request, session: Session, pairs: list[tuple[str, str]] | None = None
    ) -> Ask:
        """The question of a request."""
        if pairs is None:
            pairs = words_of(request.url.query)
        return ask_of(self.site, request.url.path, session, pairs)

    # Pages

    def route_of(self, path: str) -> Callable[[Request, Session], Awaitable[Response]]:
        """The handler of a path."""
        if path == "/live":
            return self.live
        return self.find if path == "/find" else self.page

    async def page(self, request: Request, session: Session) -> Response:
        """One of the pages."""
        await self.first_look()
        ask = self.asked(request, session)
        page = await shown(PAGES[request.url.path], ask)
        if page.context["is_blind"]:
            page.status = 503
        return rendered(page)

    async def first_look(self) -> None:
        """Waits a little for the nodes' first words."""
        watch = self.site.watch
        if watch.facts or (watch.nodes.tried_s and watch.took_s):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_S), watch.turned:
                await watch.turned.wait()

    async def find(self, request: Request, session: Session) -> Response:
        """Goes to what somebody seeks."""
        return RedirectResponse(await find(self.asked(request, session)), 303)

    async def ask(self, request: Request, session: Session) -> Response:
        """The dialog before an action."""
        name = request.path_params["name"]
        if name not in asking.DEEDS:
            return PlainTextResponse("There is no such action.", 404)
        if not session.may_act:
            return PlainTextResponse("This needs the role admin.", 403)
        page = await asking.dialog(self.asked(request, session), name)
        return part_of(request, page)

    async def act(self, request: Request, session: Session) -> Response:
        """An action."""
        pairs = await self.form(request)
        ask = self.asked(request, session, pairs)
        name = request.path_params["name"]
        if name not in asking.DEEDS:
            return PlainTextResponse("There is no such action.", 404)
        is_ours = self.is_ours(request, ask)
        if not is_ours or not session.may_act:
            asking.noted(ask, None, None, "not allowed")
            why = "This needs the role admin." if is_ours else "This is no form of this console."
            return PlainTextResponse(why, 403)
        done = await asking.done(ask, name)
        if isinstance(done, Outcome):
            return RedirectResponse(done.goto, 303)
        return part_of(request, done)

    async def stop(self, request: Request, session: Session) -> Response:
        """Stops a long action."""
        ask = self.asked(request, session, await self.form(request))
        if not self.is_ours(request, ask) or not session.may_act:
            return PlainTextResponse("This needs the role admin.", 403)
        action = self.site.running.find(ask.number("action", 0))
        if action is not None:
            action.stop()
        return RedirectResponse(came_from(request), 303)

    def is_ours(self, request: Request, ask: Ask) -> bool:
        """Whether a form is of this console and this session."""
        if is_foreign(request):
            return False
        return self.site.sessions.is_token(ask.session, ask.word("csrf"))

    # The live stream

    async def live(self, request: Request, session: Session) -> Response:
        """Pieces of a page whenever they change, as server-sent events."""
        words = dict(words_of(request.url.query))
        split = urlsplit(words.get("path", "/"))
        is_full = self.streams.total() >= STREAMS_MAX
        if split.path not in PAGES:
            return PlainTextResponse("There is no such page.", 404)
        if is_full or self.streams[session.id] >= STREAMS_OF_ONE:
            why = f"{STREAMS_MAX} pages are open, or {STREAMS_OF_ONE} of this session: no more."
            return PlainTextResponse(why, 503)
        ask = ask_of(self.site, split.path, session, words_of(split.query))
        return StreamingResponse(
            self.changes(request, ask, PAGES[split.path]), media_type="text/event-stream"
        )

    async def changes(
        self, request: Request, ask: Ask, make: Callable[[Ask], Awaitable[Page]]
    ) -> AsyncIterator[str]:
        """The events of one stream; the first has all pieces."""
        watch = self.site.watch
        self.streams[ask.session.id] += 1
        watch.lookers += 1
        watch.hurry()
        last: list[str] = []
        said_s = 0.0
        try:
            while not self.is_ending and not await request.is_disconnected():
                if self.site.sessions.read(request.cookies.get(COOKIE, ""), time.time()) is None:
                    yield "event: over\ndata: {}\n\n"
                    return
                page = await shown(make, ask)
                pieces = templates.pieces(page.template, page.context)
                changed = [
                    piece for i, piece in enumerate(pieces) if i >= len(last) or piece != last[i]
                ]
                now_s = time.time()
                if changed or now_s - said_s > BEAT_S:
                    news = {
                        "pieces": changed,
                        "at": watch.view().clock_s,
                        "away": len(page.context["away"]),
                        "nodes": len(page.context["nodes"]),
                    }
                    yield f"data: {json.dumps(news)}\n\n"
                    said_s = now_s
                last = pieces
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_S), watch.turned:
                        await watch.turned.wait()
        finally:
            self.streams[ask.session.id] -= 1
            self.streams += Counter()  # without those that have none
            watch.lookers -= 1

    # Signing in

    async def login(self, request: Request) -> Response:
        """The form, or a try to sign in."""
        goto = dict(words_of(request.url.query)).get("to", "/")
        if request.method == "GET":
            return self.login_page(goto)
        if is_foreign(request):
            return self.login_page(goto, "This is no form of this console.", 403)
        words = dict(await self.form(request, LOGIN_MAX))
        address = request.client.host if request.client else ""
        now_s = time.time()
        wait_s = self.site.sessions.must_wait_s(address, now_s)
        if wait_s > 0:
            return self.login_page(goto, f"Too many tries. Wait {wait_s:.0f} s.", 429)
        name, password = words.get("name", ""), words.get("password", "")
        self.site.sessions.try_one(address, now_s)
        async with self.checks:
            user = await asyncio.to_thread(checked, self.site.users, name, password)
        if user is None:
            self.site.log.add(Action(now_s, name, "Sign in", address, None, "refused"))
            return self.login_page(goto, "Name or password is wrong.", 401)
        self.site.sessions.was_right(address, now_s)
        session, cookie = self.site.sessions.begin(user, now_s)
        self.site.log.add(Action(now_s, session.name, "Sign in", address, None, "done"))
        to = goto if goto.startswith("/") and not goto.startswith(("//", "/\\")) else "/"
        response = RedirectResponse(to, 303)
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=int(LASTS_S),
            httponly=True,
            samesite="strict",
            secure=self.site.is_secure,
        )
        return self.safe(response)

    def login_page(self, goto: str, wrong: str = "", status: int = 200) -> Response:
        """The form to sign in."""
        context = {"goto": goto, "wrong": wrong, "name": self.site.name}
        return self.safe(HTMLResponse(templates.page("login", context), status))

    async def logout(self, request: Request, session: Session) -> Response:
        """Ends the session."""
        ask = self.asked(request, session, await self.form(request))
        if not self.is_ours(request, ask):
            return PlainTextResponse("This is no form of this console.", 403)
        try:
            self.site.sessions.end(session, time.time())
        except OSError as err:
            log.warning("the end of a session is not kept over a restart: %s", err)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response

    # Files, health, what is not there

    async def static(self, request: Request) -> Response:
        """A file of ours."""
        name = request.path_params["name"]
        if name not in STATIC:
            return self.safe(PlainTextResponse("not found", 404))
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        body = (templates.STATIC / name).read_bytes()
        return self.safe(Response(body, media_type=STATIC[name], headers=headers))

    async def healthz(self, request: Request) -> Response:
        """Whether the console runs; the nodes have their own."""
        return self.safe(PlainTextResponse("ok\n"))

    async def not_found(self, request: Request, error: Exception) -> Response:
        """A page that is not there."""
        return self.safe(HTMLResponse(templates.page("lost", {"path": request.url.path}), 404))


async def shown(make: Callable[[Ask], Awaitable[Page]], ask: Ask) -> Page:
    """A page; if the nodes refuse what it needs it says so, and stays."""
    try:
        return await make(ask)
    except Error as err:
        log.warning("the page %s could not be made: %s", ask.path, err)
        return asking.page_of(ask, None, str(err), 502)


def words_of(query: str) -> list[tuple[str, str]]:
    """The words of an address."""
    return parse_qsl(query, keep_blank_values=True, errors="surrogateescape")


def ask_of(site: Site, path: str, session: Session, pairs: list[tuple[str, str]]) -> Ask:
    """A question out of its words."""
    many: dict[str, list[str]] = {}
    for name, value in pairs:
        many.setdefault(name, []).append(value if name in RAW else unkey(value))
    words = {name: values[-1] for name, values in many.items()}
    return Ask(site, path, words, session, many)


def rendered(page: Page) -> Response:
    """A whole page."""
    return HTMLResponse(templates.page(page.template, page.context), page.status)


def part_of(request: Request, page: Page) -> Response:
    """The middle of a dialog for the scripts, the whole page for browsers without them."""
    name: str = "ask_form" if request.headers.get("x-part") else page.template
    return HTMLResponse(templates.page(name, page.context), page.status)


def is_foreign(request: Request) -> bool:
    """[O14] Whether a form came from a page of another host, or of none (O14.5)."""
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host")


def came_from(request: Request) -> str:
    """The page on which a form was."""
    split = urlsplit(str(request.headers.get("referer", "/")))
    return split.path + (f"?{split.query}" if split.query else "")
