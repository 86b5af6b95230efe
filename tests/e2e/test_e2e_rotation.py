"""Three nodes with TLS: the cluster's secret and all certificates change, and no command fails."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tuque
from certificates import Authority, needs_openssl
from lab import RealServer, free_port
from until import until

pytestmark = [needs_openssl, pytest.mark.slow]
PASSWORD = "a-long-password-of-default"
BETWEEN_S = 0.5  # commands run meanwhile
PAUSE_S = 0.02  # of a thread after each round: the machine is not what is tested


class Node:
    """A server with TLS, and the files that it reads again."""

    def __init__(self, directory: Path, authority: Authority, secret: str) -> None:
        """Without a secret the links speak TLS."""
        directory.mkdir()
        self.authority = authority
        self.secret_file, self.cafile = directory / "secret", directory / "ca.pem"
        self.write(secret)
        self.trust(authority)
        guard: tuple[object, ...] = ("--cluster-secret-file", self.secret_file)
        if not secret:
            guard = ("--tls-cluster", "yes", "--tls-cluster-ca-cert-file", self.cafile)
        self.cert, self.key = directory / "node.pem", directory / "node.key"
        self.certify("first")
        self.tls_port = free_port()
        self.server = RealServer(
            directory,
            "--tls-port",
            self.tls_port,
            "--tls-cert-file",
            self.cert,
            "--tls-key-file",
            self.key,
            *map(str, guard),
            "--requirepass",
            PASSWORD,
            "--cluster-port",
            free_port(),
            port=free_port(),
        )
        self.server.start()
        self.wire = self.server.wire()
        assert self.wire("AUTH", PASSWORD) == b"OK"

    def write(self, *lines: str) -> None:
        """The secrets, the first of which it proves itself with."""
        beside = self.secret_file.with_suffix(".new")
        beside.write_text("".join(f"{line}\n" for line in lines))
        beside.chmod(0o600)
        beside.replace(self.secret_file)

    def read_again(self, *lines: str) -> None:
        """A step of the change: new lines, and the node takes them."""
        self.write(*lines)
        path = str(self.secret_file)
        assert self.wire("CONFIG", "SET", "cluster-secret-file", path) == b"OK"

    def certify(self, name: str) -> None:
        """A new certificate and key in the place of the old ones, one after the other."""
        for new, place in zip(self.authority.sign(name), (self.cert, self.key), strict=True):
            shutil.copy(new, beside := place.with_suffix(".new"))
            os.replace(beside, place)

    def trust(self, *authorities: Authority) -> None:
        """Other authorities of nodes in the place of the old ones."""
        beside = self.cafile.with_suffix(".new")
        beside.write_text("".join(one.cafile.read_text() for one in authorities))
        beside.replace(self.cafile)

    def info(self) -> dict[str, str]:
        """INFO by name."""
        lines = self.wire("INFO").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def url(self) -> str:
        """For the client."""
        where = f"default:{PASSWORD}@127.0.0.1:{self.tls_port}"
        query = f"cafile={self.authority.cafile}&discover=no&timeout=60&connect_timeout=60"
        return f"tuques://{where}/?{query}"


class Load:
    """Threads whose clients add, take and acknowledge jobs; every failure is kept."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.done = 0
        self.is_over = threading.Event()
        self.threads: list[threading.Thread] = []

    def begin(self, work: Callable[[], int]) -> None:
        """Repeat it in a thread until the end."""

        def run() -> None:
            while not self.is_over.is_set():
                try:
                    self.done += work()
                except Exception as error:
                    self.failed.append(repr(error))
                self.is_over.wait(PAUSE_S)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def end(self) -> None:
        """Let all threads end."""
        self.is_over.set()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[Node]]:
    """Three nodes with links; with the parameter "tls" they have no secret."""
    is_tls = getattr(request, "param", "") == "tls"
    authority, secret = Authority(tmp_path), "" if is_tls else secrets.token_hex(32)
    made: list[Node] = []
    try:
        for i in range(3):
            made.append(Node(tmp_path / f"node{i}", authority, secret))
        for other in made[1:]:
            port, bus_port = other.server.port, other.server.bus_port
            assert made[0].wire("CLUSTER", "MEET", "127.0.0.1", port, bus_port) == b"OK"
        until(lambda: all(has_links(one) for one in made))
        yield made
    finally:
        for one in made:
            one.server.end()


def has_links(node: Node) -> bool:
    info = node.info()
    return info["bus_links"] == "2" and info["cluster_reachable_nodes"] == "2"


def start_load(load: Load, nodes: list[Node], stack: contextlib.ExitStack) -> None:
    """At each node one client that stays, and one that connects anew for each round."""
    for i, node in enumerate(nodes):
        url, queue = node.url(), f"q{i}"
        client = stack.enter_context(tuque.Client(url))

        def cycle(client: tuque.Client = client, queue: str = queue) -> int:
            id = client.addjob(queue, b"body", replicate=3, retry=300, timeout_ms=60_000)
            [job] = client.getjob(queue, timeout_ms=60_000)
            assert job.id == id
            assert client.ackjob(job) == 1
            return 1

        def connect(url: str = url) -> int:
            with tuque.Client(url) as anew:
                assert anew.ping() == "PONG"
            return 1

        load.begin(cycle)
        stack.callback(load.end)  # before its client is closed
        load.begin(connect)


def test_secret_and_certificates_change_under_load(nodes: list[Node]) -> None:
    """B1.6, X2.1: all steps of docs/cluster.md, node after node; no command of a client fails."""
    old, new = secrets_of(nodes[0]), secrets.token_hex(32)
    load = Load()
    with contextlib.ExitStack() as stack:
        start_load(load, nodes, stack)
        for lines in ((old, new), (new, old), (new,)):
            for node in nodes:
                before = load.done
                node.read_again(*lines)
                until(lambda before=before: load.done > before + 10 or bool(load.failed))
                time.sleep(BETWEEN_S)
        for node in nodes:
            loads = int(node.info()["tls_certificate_loads"])
            node.certify("second")
            until(lambda node=node, loads=loads: new_certificate(node, loads))
            time.sleep(BETWEEN_S)
        until(lambda: all(has_links(one) for one in nodes))
        before = load.done
        until(lambda: load.done > before + 20 or bool(load.failed))
    assert load.failed == []
    assert not any("wrong secret" in node.server.log() for node in nodes)
    assert all(node.info()["tls_certificate_fault"] == "" for node in nodes)
    nodes[2].read_again(old)  # what was taken away opens nothing
    until(lambda: nodes[0].info()["bus_links"] == "1")


@pytest.mark.parametrize("nodes", ["tls"], indirect=True)
def test_the_authority_of_nodes_changes_under_load(nodes: list[Node], tmp_path: Path) -> None:
    """B1.8: new certificates of a new authority, node after node; no command of a client fails."""
    old, new = nodes[0].authority, Authority(tmp_path, "new")
    load = Load()
    with contextlib.ExitStack() as stack:
        start_load(load, nodes, stack)
        old.cafile.write_text(old.cafile.read_text() + new.cafile.read_text())  # of the clients
        for step in ("both", "certificate", "new"):
            for node in nodes:
                before, loads = load.done, int(node.info()["tls_certificate_loads"])
                if step == "certificate":
                    node.authority = new
                    node.certify("second")
                else:
                    node.trust(*((old, new) if step == "both" else (new,)))
                until(lambda node=node, loads=loads: new_certificate(node, loads))
                until(lambda: all(has_links(one) for one in nodes))
                until(lambda before=before: load.done > before + 10 or bool(load.failed))
    assert load.failed == []
    # the last link may be replaced once more: two nodes dialled each other at once
    until(lambda: all(one.info()["bus_links_tls"] == "2" for one in nodes))


def secrets_of(node: Node) -> str:
    return node.secret_file.read_text().strip()


def new_certificate(node: Node, loads: int) -> bool:
    info = node.info()
    return int(info["tls_certificate_loads"]) > loads and info["tls_certificate_fault"] == ""
