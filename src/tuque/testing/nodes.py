"""Real nodes for tests: processes on free ports of this machine, each in a directory of its own.

Knows the server as a program: its options and what it logs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Self

from tuque.client.sync import Client
from tuque.errors import Error

READY: Final = re.compile(r"ready to accept connections on port (\d+)")
BUS: Final = re.compile(r"bus listens on port (\d+)")
LIMIT_S: Final = 60.0  # of a start, a stop, a meeting
LOOK_S: Final = 0.01
LOG_LINES: Final = 20
PLAIN: Final = ("--set", "appendonly=no", "--set", "disk-reserve=0")  # unless a test says otherwise


class NodeError(Exception):
    """A node did not do what a test needs; the text has the end of its log."""


class Runs(ABC):
    """What runs within `with`."""

    __test__ = False

    @abstractmethod
    def start(self) -> Self:
        """Starts what is down, and waits until it serves. Raises NodeError."""

    @abstractmethod
    def stop(self) -> None:
        """Stops it in order."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *exc: object) -> None:
        self.stop()


class TestNode(Runs):
    """One node. `start` takes the port of the last start; what its directory holds stays."""

    def __init__(self, directory: Path, *options: str) -> None:
        """`options` are those of `tuque server`."""
        self.directory = directory
        self.port = 0
        self.bus_port = 0
        self._options = options
        self._log = directory / "node.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[Client] = []

    def __repr__(self) -> str:
        state = "runs" if self.is_running else "is down"
        return f"<tuque.testing.TestNode {self.url} {state}>"

    @property
    def url(self) -> str:
        """For clients, apps and `tuque worker --url`."""
        return f"tuque://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What it has logged since its start."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def client(self) -> Client:
        """A new client, closed with the node."""
        client = Client(self.url)
        self._clients.append(client)
        return client

    def start(self) -> Self:
        """Starts it and waits until it serves. Raises NodeError."""
        if self.is_running:
            return self
        words = ["--port", str(self.port), "--dir", str(self.directory), *PLAIN, *self._options]
        if self.bus_port:
            words += ["--cluster-port", str(self.bus_port)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tuque", "server", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.wait_for(lambda: READY.search(self.log) is not None, "serve")
        self.port = int(READY.findall(self.log)[-1])
        self.bus_port = int((BUS.findall(self.log) or ["0"])[-1])
        return self

    def stop(self) -> None:
        """Stops it in order."""
        for client in self._clients:
            client.close()
        self._clients = []
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NodeError(f"the node did not stop:\n{self._tail()}") from None

    def kill(self) -> None:
        """Ends it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        """Waits for the condition. Raises NodeError if the node ends, or it takes too long."""
        deadline = time.monotonic() + LIMIT_S
        while not is_so():
            if not self.is_running:
                raise NodeError(f"the node has ended and does not {what}:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise NodeError(f"the node did not {what} in {LIMIT_S:g} s:\n{self._tail()}")
            time.sleep(LOOK_S)

    def _tail(self) -> str:
        return "\n".join(self.log.splitlines()[-LOG_LINES:])


class TestCluster(Runs):
    """Nodes that know each other."""

    def __init__(self, directory: Path, count: int = 3, *options: str) -> None:
        """`options` are those of `tuque server`, for each node."""
        self.nodes: list[TestNode] = []
        for number in range(1, count + 1):
            place = directory / f"node{number}"
            place.mkdir(parents=True)
            self.nodes.append(TestNode(place, *options))

    def __getitem__(self, at: int) -> TestNode:
        return self.nodes[at]

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def url(self) -> str:
        """For clients, apps and `tuque worker --url`: all nodes."""
        return "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> Self:
        """Starts the nodes that are down; all nodes reach each other then. Raises NodeError."""
        for node in self.nodes:
            node.start()
        first = self.nodes[0]
        with Client(first.url, discover=False) as client:
            for node in self.nodes[1:]:
                client.execute("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
        self.wait_formed()
        return self

    def wait_formed(self) -> None:
        """Waits until the nodes that run reach each other. Raises NodeError."""
        running = [node for node in self.nodes if node.is_running]
        for node in running:
            with Client(node.url, discover=False) as client:
                reaches = partial(reaches_all, client, len(running) - 1)
                node.wait_for(reaches, "reach the others")

    def stop(self) -> None:
        """Stops all nodes."""
        for node in self.nodes:
            node.stop()


def reaches_all(client: Client, others: int) -> bool:
    """Whether a node reaches so many others."""
    try:
        info = str(client.execute("CLUSTER", "INFO"), "ascii")
    except Error:
        return False
    return f"cluster_reachable_nodes:{others}" in info.splitlines()
