"""How the tests of the console run it: in a thread, before real nodes; and read its pages."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from tuque.client.url import parse
from tuque.web import login
from tuque.web.actions import DeedLog
from tuque.web.app import made
from tuque.web.site import Site

DEADLINE_S = 60.0
# How long a node may take for an answer, unless a test stops one: a slow machine is no dead node.
SLOW_S = 30.0
PASSWORDS = {"admin": "correct horse", "reader": "battery staple"}


class Console:
    """A console that serves until `stop`."""

    def __init__(self, url: str, deeds: Path | None = None, call_s: float = SLOW_S) -> None:
        known = {
            "admin": login.made("admin", "admin", PASSWORDS["admin"]),
            "reader": login.made("reader", "reader", PASSWORDS["reader"]),
        }
        self.site = Site(parse(url), known, b"s" * 32, DeedLog(deeds), "test")
        self.site.watch.nodes.call_s = call_s
        config = uvicorn.Config(made(self.site), host="127.0.0.1", port=0, log_level="warning")
        self.server = uvicorn.Server(config)
        socket = config.bind_socket()
        self.base = f"http://127.0.0.1:{socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [socket]})

    def start(self) -> Console:
        self._thread.start()
        until(lambda: self.server.started, "start")
        return self

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def client(self, name: str = "admin") -> Reader:
        """A reader who is signed in."""
        return Reader(self.base, name)


class Reader:
    """Somebody who looks at pages without scripts."""

    def __init__(self, base: str, name: str) -> None:
        self.http = httpx.Client(base_url=base, timeout=DEADLINE_S)
        reply = self.http.post("/login", content=f"name={name}&password={PASSWORDS[name]}")
        assert reply.status_code == 303, reply.text

    def get(self, path: str, **words: str) -> Any:
        return self.http.get(path, params=words or None)

    def figure(self, path: str, metric: str, labels: str = "") -> int:
        """The exact value of a figure on a page."""
        return figures(self.get(path).text)[metric, labels]

    def asked(self, name: str, **words: str) -> Any:
        """The dialog of a deed, when all that it is about has been read."""
        found: list[Any] = []

        def is_read() -> bool:
            found[:] = [self.get(f"/ask/{name}", **words)]
            return "data-again" not in found[0].text

        until(is_read, f"read what {name} is about")
        return found[0]

    def do(self, name: str, **words: str) -> Any:
        """Asks, and says yes."""
        asked = self.asked(name, **words)
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


def until(is_so: Callable[[], object], what: str) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"it did not {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def console_of(url: str, deeds: Path | None = None, call_s: float = SLOW_S) -> Iterator[Console]:
    console = Console(url, deeds, call_s).start()
    try:
        yield console
    finally:
        console.stop()
