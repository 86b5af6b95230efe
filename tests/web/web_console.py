"""How the tests of the console run it, and read its pages.

`Console` is the application at the nodes of a world, on the world's clock. It does something only
while a test asks it to: before each page it looks at the nodes, a moment after its look before.
`Served` is for browsers and streams: it listens on a port, and looks as it does in production.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn
from web_nodes import WebCluster

import until as real
from in_world import WorldLoop, now_s, within
from tuque.client.url import parse
from tuque.clusterview.figures import View
from tuque.web import login
from tuque.web.actions import ActionLog
from tuque.web.app import made
from tuque.web.login import COOKIE
from tuque.web.site import Site

DEADLINE_S = 60.0
SLOW_S = 30.0  # how long real nodes may take for an answer: a slow machine is no dead node
BEAT_MS = 100
LOOKS_MAX = 600
PASSWORDS = {"admin": "correct horse", "reader": "battery staple"}
BASE = "http://console.test"

T = TypeVar("T")


@cache
def known() -> dict[str, login.User]:
    """Who may look: each has a name that is a role."""
    return {name: login.made(name, name, word) for name, word in PASSWORDS.items()}


class Console:
    """The application, between the calls of a test as if time stood still."""

    base = BASE

    def __init__(self, cluster: WebCluster, actions: Path | None = None, url: str = "") -> None:
        self.world = cluster.world
        self.loop = WorldLoop(self.world)
        self.site = Site(parse(url or cluster.url), known(), b"s" * 32, ActionLog(actions), "test")
        self.app = made(self.site)

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        """Lets the console go on until that has ended."""
        with within(self.world):
            return self.loop.run_until_complete(what)

    def look(self) -> View:
        """One look at all nodes, a moment later; the view after it."""
        watch = self.site.watch
        self.world.pass_ms(BEAT_MS)
        self.run(watch.turn())
        watch.took_s = BEAT_MS / 1000
        with within(self.world):
            return watch.view()

    def look_back(self) -> None:
        """One look at all nodes, and at the points that they keep."""
        self.site.watch._looked_back_s = 0.0
        self.look()

    def until(self, fact: Callable[[], T], what: str) -> T:
        """Looks until that is so."""

        def looked() -> T:
            self.look()
            with within(self.world):
                return fact()

        return until(looked, what)

    def stranger(self) -> Http:
        """A browser without a session."""
        return Http(self)

    def client(self, name: str = "admin") -> Reader:
        """A reader who is signed in."""
        http = self.stranger()
        _, cookie = self.site.sessions.begin(known()[name], now_s(self.world))
        http.cookies.set(COOKIE, cookie)
        return Reader(http, self)

    def stop(self) -> None:
        async def ended() -> None:
            await self.site.running.close()
            await self.site.graves.close()
            await self.site.watch.close()

        self.run(ended())
        self.loop.close()


class Http:
    """Requests to a console in this process."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.aio = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=console.app), base_url=console.base
        )

    @property
    def cookies(self) -> httpx.Cookies:
        return self.aio.cookies

    def get(self, path: str, **words: Any) -> httpx.Response:
        return self._console.run(self.aio.get(path, **words))

    def post(self, path: str, **words: Any) -> httpx.Response:
        return self._console.run(self.aio.post(path, **words))


class Served:
    """A console that serves on a port until `stop`."""

    def __init__(self, url: str, actions: Path | None = None) -> None:
        self.site = Site(parse(url), known(), b"s" * 32, ActionLog(actions), "test")
        self.site.watch.nodes.call_s = SLOW_S
        config = uvicorn.Config(made(self.site), host="127.0.0.1", port=0, log_level="warning")
        self.server = uvicorn.Server(config)
        socket = config.bind_socket()
        self.base = f"http://127.0.0.1:{socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [socket]})

    def __enter__(self) -> Served:
        self._thread.start()
        real.until(lambda: self.server.started, "start")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def client(self, name: str = "admin") -> Reader:
        """A reader who has signed in."""
        http = httpx.Client(base_url=self.base, timeout=DEADLINE_S)
        reply = http.post("/login", content=f"name={name}&password={PASSWORDS[name]}")
        assert reply.status_code == 303, reply.text
        return Reader(http)


class Reader:
    """Somebody who looks at pages without scripts; they show what the nodes say now."""

    def __init__(self, http: Any, console: Console | None = None) -> None:
        self.http = http
        self._console = console

    def get(self, path: str, **words: str) -> Any:
        if self._console is not None:
            self._console.look()
        return self.seen(path, **words)

    def seen(self, path: str, **words: str) -> Any:
        """The page as of the look before."""
        return self.http.get(path, params=words or None)

    def figure(self, path: str, metric: str, labels: str = "") -> int:
        """The exact value of a figure on a page."""
        return figures(self.get(path).text)[metric, labels]

    def asked(self, name: str, **words: str) -> Any:
        """The dialog of an action, when all that it is about has been read."""
        found: list[Any] = []

        def is_read() -> bool:
            found[:] = [self.get(f"/ask/{name}", **words)]
            return "data-again" not in found[0].text

        until(is_read, f"read what {name} is about")
        return found[0]

    def do(self, name: str, **words: str) -> Any:
        """Asks, and says yes."""
        return self.yes(name, self.asked(name, **words), **words)

    def yes(self, name: str, asked: Any, **words: str) -> Any:
        """Says yes in that dialog."""
        fields = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form_of(asked.text)))
        return self.http.post(f"/do/{name}", data={**fields, **words})


def form_of(html: str) -> str:
    """The part of a page that asks."""
    return html[html.index('id="ask-body"') :]


def figures(html: str) -> dict[tuple[str, str], int]:
    """All figures of a page: their exact values, by metric and labels."""
    found: dict[tuple[str, str], int] = {}
    for tag in re.findall(r"<[^>]*data-metric=[^>]*>", html):
        words = dict(re.findall(r'data-([a-z]+)="([^"]*)"', tag))
        if words.get("value", "").lstrip("-").isdigit():
            found[words["metric"], words.get("labels", "")] = int(words["value"])
    return found


def until(fact: Callable[[], T], what: str) -> T:
    """Asks again until that is so: each page that is asked for is one of a moment later."""
    for _ in range(LOOKS_MAX):
        if found := fact():
            return found
    raise AssertionError(f"it did not {what} in {LOOKS_MAX} looks")


@contextlib.contextmanager
def console_of(
    cluster: WebCluster, actions: Path | None = None, url: str = ""
) -> Iterator[Console]:
    """A console that has looked at the nodes once."""
    console = Console(cluster, actions, url)
    try:
        console.look()
        yield console
    finally:
        console.stop()
