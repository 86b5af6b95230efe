"""The recipes of docs/cluster.md for a running cluster, step by step under load: nothing is lost.

Where the docs promise it, no call of a program fails either.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from certificates import Authority, needs_openssl
from lab import RealCluster, RealServer, info
from tuque import Client, Error
from tuque.errors import NotTaken
from until import until

pytestmark = [needs_openssl, pytest.mark.slow]
FLAGS = ("--appendonly", "yes", "--cluster-node-timeout", "3000", "--tls-cluster", "yes")
PAUSE_S = 0.02  # of a producer after each call: the machine is not what is tested
MORE = 15  # jobs of each kind that are added between two steps
RETRY_S = 15  # a job that died on its way to a consumer comes again


class Programs:
    """Producers and consumers of a queue, a tube of jobs and a tube of tasks, until they end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = secrets.token_hex(4)  # in each body: an earlier test may have left some
        self.failed: list[str] = []
        self.added: dict[str, set[str]] = {"q": set(), "jobs": set(), "tasks": set()}
        self.unsure: set[str] = set()  # of calls that may be done though they failed
        self.came: set[str] = set()  # to a consumer
        self.no_more = threading.Event()
        self.is_over = threading.Event()
        self.producers = [
            threading.Thread(target=self.produce, args=(kind,)) for kind in self.added
        ]
        works = (self.work, self.work, self.take)
        self.consumers = [threading.Thread(target=one) for one in works]

    def produce(self, kind: str) -> None:
        """Add one job after the other; each has a body of its own."""
        serial = 0
        with Client(self.url, timeout=30.0) as client:
            while not self.no_more.is_set():
                body, serial = f"{self.name}-{kind}-{serial}", serial + 1
                try:
                    if kind == "tasks":
                        client.tube(kind).put(body, ttr=RETRY_S)
                    else:
                        client.addjob(kind, body, retry=RETRY_S)
                except Error as error:
                    self.failed.append(f"add {body}: {error!r}")
                    if error.may_be_done:
                        self.unsure.add(body)
                else:
                    self.added[kind].add(body)
                self.no_more.wait(PAUSE_S)

    def work(self) -> None:
        """Take jobs of the queue and of the tube, and acknowledge them."""
        with Client(self.url, timeout=30.0) as client:
            while not self.is_over.is_set():
                try:
                    for job in client.getjob("q", "jobs", timeout_ms=300, count=5):
                        self.came.add(job.body.decode())
                        client.ackjob(job)
                except Error as error:
                    self.failed.append(f"work: {error!r}")

    def take(self) -> None:
        """Take tasks and acknowledge them."""
        with Client(self.url, timeout=30.0) as client:
            tube = client.tube("tasks")
            while not self.is_over.is_set():
                try:
                    task = tube.take(0.3)
                    if task is not None:
                        self.came.add(str(task.value))
                        tube.ack(task)
                except NotTaken:
                    pass  # its tube moved, which ends takes (T20.5): it comes again
                except Error as error:
                    self.failed.append(f"take: {error!r}")

    def __enter__(self) -> Programs:
        for thread in self.producers + self.consumers:
            thread.start()
        self.go_on()
        return self

    def __exit__(self, *_: object) -> None:
        self.no_more.set()
        self.is_over.set()
        for thread in self.producers + self.consumers:
            thread.join()

    def go_on(self) -> None:
        """Let each producer add some more."""
        before = {kind: len(bodies) for kind, bodies in self.added.items()}
        until(
            lambda: all(len(self.added[kind]) >= before[kind] + MORE for kind in before),
            lambda: "\n".join(self.failed[-20:]),
        )

    def end(self) -> None:
        """No more producers, and all that was added came to a consumer: none is lost."""
        self.no_more.set()
        for thread in self.producers:
            thread.join()
        added = set.union(*self.added.values())
        until(lambda: added <= self.came, lambda: f"lost {sorted(added - self.came)[:9]}")
        own = {body for body in self.came if body.startswith(self.name)}
        assert own <= added | self.unsure, "of jobs that nobody added"


class Place:
    """Three nodes that vote, with a secret and certificates, and the files that they read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.secret = secrets.token_hex(32)
        self.cluster = RealCluster(directory, 3, *FLAGS, voters=3)
        for node in self.cluster.nodes:
            self.equip(node)
        self.cluster.start()
        wire = self.cluster.wire(0)
        assert wire("TUBE", "CREATE", "jobs", "tasks") == b"OK"
        assert wire("TUBE", "CREATE", "tasks", "fifottl") == b"OK"

    def equip(self, node: RealServer) -> None:
        """Give it the secret, a certificate, and the authority."""
        files = {name: str(node.directory / f"{name}.pem") for name in ("cert", "key", "ca")}
        node.flags += ["--cluster-secret-file", str(node.directory / "secret")]
        node.flags += ["--tls-cert-file", files["cert"], "--tls-key-file", files["key"]]
        node.flags += ["--tls-cluster-ca-cert-file", files["ca"]]
        self.write_secret(node, self.secret)
        self.certify(node)
        self.trust(node, self.authority)

    def write_secret(self, node: RealServer, *lines: str) -> None:
        """The secrets, the first of which it proves itself with."""
        put(node.directory / "secret", "".join(f"{line}\n" for line in lines))

    def certify(self, node: RealServer) -> None:
        """A new certificate and key in the place of the old ones."""
        for new, name in zip(self.authority.sign("node"), ("cert", "key"), strict=True):
            put(node.directory / f"{name}.pem", new.read_text())

    def trust(self, node: RealServer, *authorities: Authority) -> None:
        """Other authorities in the place of the old ones."""
        text = "".join(one.cafile.read_text() for one in authorities)
        put(node.directory / "ca.pem", text)

    def each(self, programs: Programs, step: Callable[[RealServer], object]) -> None:
        """One step of a recipe at one node after the other, with some work between."""
        for node in self.cluster.nodes:
            step(node)
            programs.go_on()

    def tuque(self, *words: object) -> str:
        """What `tuque` prints; it must end well."""
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run `tuque` with these words."""
        line = [sys.executable, "-m", "tuque", *map(str, words)]
        return subprocess.run(line, capture_output=True, text=True, timeout=60)

    def meet(self, new: RealServer, by: RealServer | None = None) -> None:
        """Make it a member."""
        asked = by or self.cluster.nodes[0]
        where = f"127.0.0.1:{new.port}"
        self.tuque("cluster", "meet", "-p", asked.port, where, new.bus_port)

    def is_well(self, number: int = 0) -> bool:
        """Whether `tuque cluster status` says so at that node."""
        port = self.cluster.nodes[number].port
        return self.run("cluster", "status", "-p", port).returncode == 0


def put(path: Path, text: str) -> None:
    """Replace the file at once."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.chmod(0o600)
    beside.replace(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The cluster of all tests here; each leaves it well, with three nodes."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    made = Place(tmp_path_factory.mktemp("planned"))
    yield made
    made.cluster.end()


@pytest.fixture
def programs(place: Place) -> Iterator[Programs]:
    """Programs that know the three nodes."""
    until(place.is_well)
    with Programs(place.cluster.url) as made:
        yield made


def loads_of(node: RealServer) -> int:
    """How often it has read its certificates."""
    with_faults = info(node.wires[0], "all")
    assert with_faults["tls_certificate_fault"] == ""
    return int(with_faults["tls_certificate_loads"])


def test_the_secret_changes(place: Place, programs: Programs) -> None:
    """docs/cluster.md, Change the secret: no call fails and nothing is lost."""
    for _ in range(3):
        old, place.secret = place.secret, secrets.token_hex(32)
        for lines in ((old, place.secret), (place.secret, old), (place.secret,)):

            def step(node: RealServer, lines: tuple[str, ...] = lines) -> None:
                place.write_secret(node, *lines)
                path = str(node.directory / "secret")
                assert node.wires[0]("CONFIG", "SET", "cluster-secret-file", path) == b"OK"

            for node in place.cluster.nodes:
                step(node)
            programs.go_on()
    programs.end()
    assert programs.failed == []
    until(place.is_well)


def test_certificates_and_their_authority_change(place: Place, programs: Programs) -> None:
    """docs/security.md: new certificates, then a new authority; no call fails."""
    old, new = place.authority, Authority(place.directory, "new")

    def read(node: RealServer, change: Callable[[], None]) -> None:
        before = loads_of(node)
        change()
        until(lambda: loads_of(node) > before)

    place.each(programs, lambda node: read(node, lambda: place.certify(node)))
    place.each(programs, lambda node: read(node, lambda: place.trust(node, old, new)))
    place.authority = new
    place.each(programs, lambda node: read(node, lambda: place.certify(node)))
    place.each(programs, lambda node: read(node, lambda: place.trust(node, new)))
    programs.end()
    assert programs.failed == []
    until(place.is_well)


def test_the_cluster_grows_by_one_and_shrinks_by_one(place: Place, programs: Programs) -> None:
    """docs/cluster.md, Form a cluster and Take a node away: no call fails."""
    nodes, ids = place.cluster.nodes, place.cluster.ids
    directory = place.directory / "node3"
    directory.mkdir()
    new = RealServer(directory, *FLAGS)
    place.equip(new)
    nodes.append(new.start())
    ids.append(new.wire()("CLUSTER", "MYID").decode())
    place.meet(new)
    until(place.is_well, new.log)
    programs.go_on()
    away, id = nodes.pop(0), ids.pop(0)  # it leads the tubes
    assert "safe to stop" in place.tuque("cluster", "drain", "-p", away.port)
    programs.go_on()
    away.end()
    place.tuque("cluster", "forget", "-p", nodes[0].port, id)
    until(place.is_well)
    programs.end()
    assert programs.failed == []


def test_a_node_that_is_lost_is_replaced(place: Place, programs: Programs) -> None:
    """docs/cluster.md, When a node dies: it is forgotten, and an empty one is met in its place."""
    nodes, ids = place.cluster.nodes, place.cluster.ids
    lost, id = nodes[0], ids[0]
    lost.kill()
    programs.go_on()
    shutil.rmtree(lost.directory / "journal")
    (lost.directory / "nodes.conf").unlink()
    place.tuque("cli", "-p", nodes[1].port, "CLUSTER", "VOTERS", "REMOVE", id)
    place.tuque("cluster", "forget", "-p", nodes[1].port, id)
    lost.start()
    ids[0] = lost.wire()("CLUSTER", "MYID").decode()
    assert ids[0] != id
    place.meet(lost, nodes[1])
    assert "done" in place.tuque("cluster", "repair", "--wait", "-p", nodes[1].port)
    until(place.is_well)
    programs.go_on()
    programs.end()
    assert all("Closed" in one for one in programs.failed), programs.failed
