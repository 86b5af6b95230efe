"""A web crawler on a tube: many workers, and never two requests to one site at once.

`python -m demo.crawler` starts a node and some web sites on this machine and crawls them.

Each page is a task in the sub-queue of its site (`utube`): while one is fetched nobody gets another
one of that site, whichever of the workers asks. That a page is found by many links is left to the
node as well: the address is the task's DEDUPE key. So workers share nothing, and may as well be
processes on several machines.
"""

from __future__ import annotations

import html
import http.client
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urldefrag, urljoin, urlsplit

import click

from demo.sites import DOMAIN, served
from tuque import Client
from tuque.cli.programs import Programs, free_ports, start_nodes
from tuque.client.commands.tubes import TubeTask
from tuque.client.tube import Tube

TUBE: Final = "crawl"
TTR_S: Final = 30  # a worker that takes longer counts as lost
TRIES: Final = 3
AGAIN_S: Final = 0.2
IDLE_S: Final = 0.1
PAGE_BYTES: Final = 10_000_000
GOOD: Final = 200
HREF: Final = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"', re.I)


def links_of(page: str, base: str) -> list[str]:
    """The targets of a page's links, without duplicates."""
    found: dict[str, None] = {}
    for target in HREF.findall(page):
        url = urldefrag(urljoin(base, html.unescape(target))).url
        if urlsplit(url).scheme == "http":
            found[url] = None
    return list(found)


class Crawl:
    """One crawl, which stays below `domain`: what its workers did.

    `address` is where all sites are, in place of a DNS.
    """

    def __init__(self, client: Client, domain: str, address: str, is_polite: bool) -> None:
        self.client = client
        self.tube: Tube = client.tube(TUBE)
        self.domain = domain
        self.address = address
        self.is_polite = is_polite
        self.pages: Counter[str] = Counter()  # pages fetched, by site
        self.lost: list[str] = []
        self.lock = threading.Lock()

    def find(self, url: str) -> None:
        """Add a page to fetch, unless it is known; the first pages of sites go before others."""
        parts = urlsplit(url)
        if not (parts.hostname or "").endswith(self.domain):
            return  # added before
        depth = parts.path.rstrip("/").count("/")
        site = parts.hostname if self.is_polite else None
        self.client.addjob(TUBE, url, dedupe=url, utube=site, pri=depth, retry=TTR_S)

    def work(self) -> None:
        """Fetch pages until none is left, and none in progress that could add others."""
        while True:
            task = self.tube.take(IDLE_S)
            if task is not None:
                self.visit(task)
                continue
            info = self.tube.info()
            if info.ready + info.taken + info.delayed == 0:
                return

    def visit(self, task: TubeTask) -> None:
        """Fetch one page and add its links; then the site is free for the next one."""
        url = task.data.decode()
        job = self.client.show(task.job_id)
        try:
            status, page = self.fetch(url)
        except (OSError, http.client.HTTPException) as err:
            if job is not None and job.nacks + 1 < TRIES:
                self.tube.release(task, delay=AGAIN_S)
            else:
                self.tube.bury(task)  # for a person to inspect, and kick
                with self.lock:
                    self.lost.append(f"{url}: {err}")
            return
        if status == GOOD:
            for found in links_of(page.decode("utf-8", "replace"), url):
                self.find(found)
        self.tube.ack(task)
        with self.lock:
            if status == GOOD:
                self.pages[urlsplit(url).hostname or ""] += 1
            else:
                self.lost.append(f"{url}: {status}")

    def fetch(self, url: str) -> tuple[int, bytes]:
        """The status and body of one page."""
        parts = urlsplit(url)
        link = http.client.HTTPConnection(self.address, parts.port or 80, timeout=TTR_S / 3)
        try:
            link.request("GET", parts.path or "/", headers={"Host": parts.netloc})
            answer = link.getresponse()
            return answer.status, answer.read(PAGE_BYTES)
        finally:
            link.close()


def crawl(client: Client, start: str, workers: int, *, is_polite: bool = True) -> Crawl:
    """Crawl from a page on; returns when everything reachable is fetched.

    Without `is_polite` there are no sub-queues: requests to a site are concurrent.
    """
    one = Crawl(client, DOMAIN, "127.0.0.1", is_polite)
    one.tube.create("utubettl" if is_polite else "fifottl", ttr=TTR_S)
    one.find(start)
    threads = [threading.Thread(target=one.work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return one


@contextmanager
def node(url: str | None) -> Iterator[str]:
    """The node in the URL, else one of our own for the block."""
    if url:
        yield url
        return
    with tempfile.TemporaryDirectory() as place, Programs(Path(place)) as programs:
        yield start_nodes(programs, free_ports(1), Path(place))[0]
        programs.stop_all()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", help="A node; without one the demo starts its own.")
@click.option("--workers", default=8, show_default=True, type=click.IntRange(1, 64))
@click.option("--sites", "hosts", default=4, show_default=True, type=click.IntRange(1, 16))
def main(url: str | None, workers: int, hosts: int) -> None:
    """Crawl web sites on this machine, one request at a time to each of them."""
    with served(hosts) as sites, node(url) as at, Client(at) as client:
        click.echo(f"{sites.count} pages on {hosts} sites, {workers} workers, from {sites.start}")
        begin = time.monotonic()
        done = crawl(client, sites.start, workers)
        spent_s = time.monotonic() - begin
        for host in sites.hosts:
            click.echo(f"  {host}: {done.pages[host]} pages, at most {sites.most[host]} at once")
        total = sum(done.pages.values())
        click.echo(
            f"{total} pages in {spent_s:.1f} s, {len(done.lost)} not found, "
            f"at most {sites.most['all']} requests at once over all sites"
        )
        was_polite = all(sites.most[host] <= 1 for host in sites.hosts)
        done.tube.drop()
    sys.exit(0 if was_polite and total == sites.count else 1)


if __name__ == "__main__":
    main(prog_name="python -m demo.crawler")
