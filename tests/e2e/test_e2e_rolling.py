"""Rolling restarts as documented: programs that add, take and acknowledge jobs hear no error."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import RealCluster, info
from tuque import Client, Error
from until import until

ROUNDS = 20
TRIPLE = ("--appendonly", "yes", "--cluster-node-timeout", "1500")


class Program:
    """Threads of one program, each in a call most of the time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_over = False
        self.errors: list[str] = []
        self.calls = 0
        self.threads = [threading.Thread(target=self.add, args=(i,)) for i in range(4)]
        self.threads.append(threading.Thread(target=self.add_many))
        self.threads += [threading.Thread(target=self.work) for _ in range(2)]

    def loop(self, step: Callable[[Client], object]) -> None:
        """Call until the end; every error counts."""
        with Client(self.url, timeout=30.0) as client:
            while not self.is_over:
                try:
                    step(client)
                    self.calls += 1
                except Error as error:
                    self.errors.append(f"{time.time():.3f} {step.__name__} {error!r}")
                time.sleep(0.002)

    def add(self, number: int) -> None:
        """A producer, with copies."""

        def addjob(client: Client) -> object:
            return client.addjob(f"q{number % 2}", b"body", replicate=2)

        self.loop(addjob)

    def add_many(self) -> None:
        """A producer of many jobs at once."""

        def pipeline(client: Client) -> object:
            with client.pipeline() as pipe:
                for _ in range(20):
                    pipe.addjob("q0", b"body", replicate=2)
                found = pipe.execute()
            wrong = [one for one in found if isinstance(one, Error)]
            if wrong:
                raise wrong[0]
            return found

        self.loop(pipeline)

    def work(self) -> None:
        """A consumer."""

        def getjob(client: Client) -> object:
            for job in client.getjob("q0", "q1", timeout_ms=500, count=20):
                client.ackjob(job.id)
            return None

        self.loop(getjob)

    def __enter__(self) -> Program:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        for thread in self.threads:
            thread.join()


@pytest.mark.slow
def test_nobody_hears_an_error(tmp_path: Path) -> None:
    with RealCluster(tmp_path / "nodes", 3, *TRIPLE) as cluster, Program(cluster.url) as program:
        for number in range(ROUNDS):
            node = cluster.nodes[number % 3]
            assert node.process is not None
            node.process.send_signal(signal.SIGTERM)
            until(lambda node=node: node.process.poll() is not None)
            node.start()
            cluster.wait_formed()
            until(lambda: info(cluster.nodes[0].wire(), "cluster").get("repair_left", "0") == "0")
            assert not program.errors, "\n".join(program.errors)
    assert not program.errors, "\n".join(program.errors)
