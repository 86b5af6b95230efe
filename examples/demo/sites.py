"""Web sites on this machine for the crawler: manual pages of Python modules.

Decides which pages exist and how they link. Several names share each port, as in a hosting centre;
a site counts its concurrent requests, so that others can judge a crawler.
"""

from __future__ import annotations

import importlib
import pydoc
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

MODULES: Final = """
    abc bisect calendar contextlib copy csv dataclasses difflib enum fnmatch
    functools glob gzip hashlib heapq hmac inspect io json keyword
    locale mimetypes numbers operator os pprint queue random re shelve
    shlex statistics string tempfile textwrap tokenize types uuid weakref zipfile
""".split()
DOMAIN: Final = ".docs.test"
LINK: Final = re.compile(r'href="([^"#]+)\.html(?:#[^"]*)?"')
WORK_S: Final = 0.004  # simulated time to make a page


def manual_page(name: str) -> str:
    """The manual of a module as HTML."""
    module = importlib.import_module(name)
    html = pydoc.HTMLDoc()
    return html.page(f"module {name}", html.document(module, name))


class Sites:
    """Pages by host and path, and statistics of the servers."""

    def __init__(self, hosts: list[str], ports: dict[str, int]) -> None:
        self.hosts = hosts
        self.ports = ports
        self.pages: dict[str, dict[str, bytes]] = {host: {} for host in hosts}
        self.requests: Counter[tuple[str, str]] = Counter()  # by host and path
        self.at_once: Counter[str] = Counter()  # requests in progress, by host
        self.most: Counter[str] = Counter()  # and their maximum
        self.lock = threading.Lock()

    @property
    def start(self) -> str:
        """The first page."""
        return self.url_of(self.hosts[0], "/")

    @property
    def count(self) -> int:
        """The number of all pages."""
        return sum(map(len, self.pages.values()))

    def url_of(self, host: str, path: str) -> str:
        """The URL of a page."""
        return f"http://{host}:{self.ports[host]}{path}"

    def home_of(self, module: str) -> str:
        """The host with the manual of a module."""
        return self.hosts[MODULES.index(module) * len(self.hosts) // len(MODULES)]

    def make_pages(self) -> None:
        """A page per module, and one per host that links to its pages and its neighbour.

        Links to other modules lead to their hosts; links to unknown modules are removed.
        """
        for module in MODULES:
            text = LINK.sub(self.relink, manual_page(module))
            self.pages[self.home_of(module)][f"/{module}.html"] = text.encode()
        for number, host in enumerate(self.hosts):
            neighbour = self.hosts[(number + 1) % len(self.hosts)]
            links = [f'<a href="{path}">{path}</a>' for path in self.pages[host]]
            links.append(f'<a href="{self.url_of(neighbour, "/")}">{neighbour}</a>')
            links.append('<a href="/lost.html">a page that is not there</a>')
            self.pages[host]["/"] = "\n".join(links).encode()

    def relink(self, found: re.Match[str]) -> str:
        """A link changed for these sites."""
        module = found[1]
        if module not in MODULES:
            return ""
        return f'href="{self.url_of(self.home_of(module), f"/{module}.html")}"'

    def answer(self, host: str, path: str) -> bytes | None:
        """The page, or None. Counts concurrent requests."""
        with self.lock:
            self.requests[host, path] += 1
            self.at_once[host] += 1
            self.most[host] = max(self.most[host], self.at_once[host])
            self.at_once["all"] += 1
            self.most["all"] = max(self.most["all"], self.at_once["all"])
        time.sleep(WORK_S)
        with self.lock:
            self.at_once[host] -= 1
            self.at_once["all"] -= 1
        return self.pages.get(host, {}).get(path)


def handler_of(sites: list[Sites]) -> type[BaseHTTPRequestHandler]:
    """The handler of requests: the request names the host. `sites` has the pages."""

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").partition(":")[0]
            page = sites[0].answer(host, self.path)
            self.send_response(404 if page is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, format: str, *args: object) -> None:
            """No log: the caller counts."""

    return Handler


@contextmanager
def served(hosts: int = 4, ports: int = 2) -> Iterator[Sites]:
    """So many hosts on so many ports of the loopback, until the block ends."""
    made: list[Sites] = []
    handler = handler_of(made)
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(ports)]
    names = ["abcdefghijklmnop"[number] + DOMAIN for number in range(hosts)]
    numbers = {name: servers[at % ports].server_port for at, name in enumerate(names)}
    made.append(Sites(names, numbers))
    made[0].make_pages()
    threads = [threading.Thread(target=one.serve_forever, args=(0.05,)) for one in servers]
    for thread in threads:
        thread.start()
    try:
        yield made[0]
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
