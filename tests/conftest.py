"""For all tests: the helpers of tests/support, how hypothesis searches, and who runs what."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from lab import RealCluster, RealServer
    from program import Program
    from world import World

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT / "support"), str(ROOT / "tools")]

pytest_plugins = ["budget", "slots", "failed"]

# A loaded machine is no fault of the code: no deadlines. The same examples in every run.
settings.register_profile(
    "tuque", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tuque")

# What a shell starts in the background ignores SIGINT, and so would the programs of the tests.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A JVM of the tests lives for seconds: what its second compiler makes faster, it never earns back,
# and to check again the thousands of classes that Spark brings takes a fifth of its start.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)

# Of the cluster that tests share: a planned change of a leader waits for part of the timeout.
SHARED = ("--appendonly", "yes", "--cluster-node-timeout", "1500")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first; what needs the sources is not run on compiled modules.

    First of all what has the Spark session: it is the longest share of one process. Last are
    folders whose tests are short, so that no process ends long after the others.
    """
    from both_ways import IS_COMPILED
    from budget import folder_of, read

    limits = read()
    names = {folder_of(item.nodeid) for item in items}
    places = {
        name: (name != "spark", name in limits.in_process, -limits.of(name), name) for name in names
    }
    items.sort(key=lambda item: places[folder_of(item.nodeid)])

    if IS_COMPILED:
        skipped = pytest.mark.skip(reason="compiled functions cannot be replaced")
        for item in items:
            if item.get_closest_marker("sources"):
                item.add_marker(skipped)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """No garbage is looked for meanwhile: all that is made is kept."""
    from warm import warm

    config = session.config
    if config.option.slots > 1 and not any(".py" in word for word in config.args):
        warm(ROOT)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the collector need not go through it again and again.

    A world is thousands of objects that end together; after each 700 a look costs a tenth more.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Makes worlds of nodes, with options; each is checked at the end."""
    from world import World

    made: list[World] = []

    def make(*args: Any, **options: Any) -> World:
        made.append(World(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
    for one in made:
        one.check()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """One node with all options at their defaults."""
    return make_world()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One real node for a whole run, with a journal: tests have queues and tubes of their own."""
    from lab import RealServer

    with RealServer(tmp_path_factory.mktemp("node"), "--appendonly", "yes") as made:
        yield made
        with made.wire() as wire:
            assert wire("DEBUG", "CHECK") == b"OK"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three real nodes that vote, for a whole run: no test stops one of them."""
    from lab import RealCluster

    with RealCluster(tmp_path_factory.mktemp("cluster"), 3, *SHARED, voters=3) as made:
        yield made
        made.check()


@pytest.fixture
def worker_process(node: RealServer, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts `tuque worker APP ...` at the node, in a process that ends with the test."""
    from program import Program

    started: list[Program] = []

    def start(app: str, *arguments: str, **env: str) -> Program:
        log = tmp_path / f"worker-{len(started) + 1}.log"
        started.append(Program(log, "worker", app, "--url", node.url, *arguments, **env))
        return started[-1]

    yield start
    for program in started:
        program.kill()
