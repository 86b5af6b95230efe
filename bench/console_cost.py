"""What the web console costs a node with many queues, and how long its pages take.

`python bench/console_cost.py [--queues N] [--jobs N] [--dead N] [--seconds S]` fills a node, opens
the live streams of the overview and of the list of queues, and prints the CPU that the node takes
with and without them, in percent of the time: of one core, which is what its loop has. Then it
prints how long each page takes, the slowest of some tries. The console has a process of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from servers import Broker, free_port, tuque

from tuque import Client

PASSWORD = "correct horse battery"
BATCH = 2_000
TRIES = 5
STREAMS = ("/", "/queues?sort=ready")
PAGES = (
    "/",
    "/queues",
    "/queues?sort=ready",
    "/queues?sort=in&match=999",
    "/queues?kind=dead",
    "/queue?name=queue-7",
    "/queue?name=queue-7&tab=active",
    "/dead",
    "/dead?text=ReadTimeout",
    "/cluster",
    "/workers",
    "/tubes",
)


def fill(url: str, jobs: int, queues: int) -> None:
    """Adds the jobs, spread over the queues; one in a thousand is delayed."""
    with Client(url) as client:
        for at in range(0, jobs, BATCH):
            with client.pipeline() as pipe:
                for i in range(at, min(at + BATCH, jobs)):
                    delay = 3600 if i % 1000 == 999 else None
                    pipe.addjob(f"queue-{i % queues}", "x" * 50, ttl=86_400, delay=delay)
                pipe.execute()


def give_up(url: str, letters: int) -> None:
    """Makes dead letters of three reasons, all of which have a number in them."""
    reasons = (
        "HTTPError: 503 for https://hooks.example/%d",
        "ReadTimeout: order %d",
        "KeyError: %d",
    )
    with Client(url) as client:
        for at in range(0, letters, BATCH):
            with client.pipeline() as pipe:
                for _ in range(BATCH):
                    pipe.addjob("webhooks", "x", retry=600, attempts=1, headers={"tuque-task": "t"})
                pipe.execute()
            jobs = client.getjob("webhooks", count=BATCH, start=True, worker="w")
            with client.pipeline() as pipe:
                for i, job in enumerate(jobs, at):
                    pipe.fail(job, job.run or "", reason=reasons[i % 3] % i)
                pipe.execute()


@contextmanager
def console(url: str, path: str) -> Iterator[httpx.Client]:
    """A console, and somebody who is signed in."""
    port = free_port()
    users = {**os.environ, "TUQUE_CONSOLE_ADMIN_PASSWORD": PASSWORD}
    if path:
        users["PYTHONPATH"] = path
    command = [sys.executable, "-m", "tuque", "console", "--url", url, "--web-port", str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=users, stdout=log, stderr=log)
        try:
            base = f"http://127.0.0.1:{port}"
            wait_for(base)
            with httpx.Client(base_url=base, timeout=60) as http:
                http.post("/login", data={"name": "admin", "password": PASSWORD})
                yield http
        finally:
            process.terminate()
            process.wait(20)


def wait_for(base: str) -> None:
    """Until the console serves."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            httpx.get(base + "/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit("the console does not start")


def look(http: httpx.Client, path: str, over: threading.Event) -> None:
    """Reads a live stream until it is over."""
    with http.stream("GET", "/live", params={"path": path}) as reply:
        for _ in reply.iter_lines():
            if over.is_set():
                return


def share(node: Broker, seconds: float) -> float:
    """The CPU of the node, in percent of a core."""
    before_s, begun_s = node.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return 100 * (node.cpu_s() - before_s) / (time.monotonic() - begun_s)


def slowest_ms(http: httpx.Client, path: str) -> tuple[float, float]:
    """How long a page takes at first, and the slowest time after that."""
    took = []
    for _ in range(TRIES + 1):
        begun_s = time.monotonic()
        reply = http.get(path)
        took.append(1000 * (time.monotonic() - begun_s))
        if reply.status_code != 200 or not re.search("<h1", reply.text):
            raise SystemExit(f"{path}: {reply.status_code}")
    return took[0], max(took[1:])


def main() -> None:
    """Fill a node, look at it, print."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--queues", type=int, default=100_000)
    words.add_argument("--jobs", type=int, default=1_000_000)
    words.add_argument("--dead", type=int, default=0)
    words.add_argument("--seconds", type=float, default=30)
    words.add_argument("--path", default="", help="where the console's modules are, if elsewhere")
    given = words.parse_args()
    with tuque() as node:
        url = f"tuque://127.0.0.1:{node.port}"
        fill(url, given.jobs, given.queues)
        give_up(url, given.dead)
        print(f"{given.jobs:,} jobs in {given.queues:,} queues, {node.rss() >> 20:,} MiB")
        time.sleep(6)
        print(f"{given.dead:,} dead letters")
        alone = share(node, given.seconds)
        with console(url, given.path) as http:
            over = threading.Event()
            lookers = [threading.Thread(target=look, args=(http, p, over)) for p in STREAMS]
            for one in lookers:
                one.start()
            time.sleep(10)
            both = share(node, given.seconds)
            print(f"node alone {alone:.2f} %, with {len(STREAMS)} live pages {both:.2f} %:")
            print(f"the console takes {both - alone:.2f} % of its loop")
            over.set()
            for one in lookers:
                one.join()
            for path in PAGES:
                first, worst = slowest_ms(http, path)
                print(f"{path:40} first {first:6.0f} ms, then at most {worst:6.0f} ms")


if __name__ == "__main__":
    main()
