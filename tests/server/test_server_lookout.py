"""C8.4: before the pump sleeps it looks awake when an answer is near."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tuque.core.model.job import Job
from tuque.core.node.node import Adding, Node
from tuque.server.bus.peers import Bus
from tuque.server.config.config import load
from tuque.server.loop.pump import (
    FEW,
    FIRST_NS,
    Patience,
    Poll,
)
from tuque.server.net.system import HAS_CORES, Poller
from tuque.server.state.server import Server, apply_settings

MOST_NS = 200_000
SECOND_NS = 1_000_000_000


@pytest.fixture
def server() -> Server:
    """One with the usual settings, which is alone."""
    made = Server(load(None, {}, {}), Node(b"c0ffee00" * 5, b"seed", 1_800_000_000_000))
    apply_settings(made)
    return made


@pytest.fixture
def poller(server: Server) -> Iterator[Poller]:
    """A real epoll."""
    made = Poller(server.system.open_epoll())
    yield made
    made.close()


@pytest.fixture
def bus(server: Server, poller: Poller) -> Iterator[Bus]:
    """The server has a bus that has no links."""
    server.bus = made = Bus(server.n, server.members, poller, [], server.system)
    yield made
    made.resolver.close()


@pytest.fixture
def lookout(server: Server, poller: Poller) -> Poll:
    """What waits for the pump."""
    return Poll(server, poller)


def let_wait(server: Server, count: int) -> None:
    """So many producers wait for copies."""
    for i in range(count):
        job = Job(b"D-%038d" % i, b"q", b"", 1, 2, 60, 0, 3)
        server.n.adding[job.id] = Adding(job, 1, i, 0)


def test_it_grows_from_25_us_and_halves_down_to_nothing() -> None:
    """How long it looks begins with 25 us and doubles when something came within
    `bus-busy-poll`; it halves when nothing did, and below 25 us it sleeps at once."""
    patience = Patience()
    grown = []
    for _ in range(5):
        patience.learn(MOST_NS, MOST_NS)
        grown.append(int(patience.ns))
    assert grown == [25_000, 50_000, 100_000, 200_000, 200_000]
    shrunk = []
    for _ in range(5):
        patience.learn(MOST_NS + 1, MOST_NS)
        shrunk.append(int(patience.ns))
    assert shrunk == [100_000, 50_000, 25_000, 0, 0]


def test_less_than_the_first_try_is_allowed() -> None:
    patience = Patience()
    patience.learn(1_000, 10_000)
    assert patience.ns == 10_000 < FIRST_NS


needs_cores = pytest.mark.skipif(not HAS_CORES, reason="one core: it never looks awake")


@needs_cores
@pytest.mark.usefixtures("bus")
def test_producers_that_wait_for_copies_of_few_jobs(server: Server, lookout: Poll) -> None:
    """While producers here wait for copies of at most four jobs."""
    assert lookout.patience() is None
    let_wait(server, FEW)
    assert lookout.patience() is lookout.for_copies
    let_wait(server, FEW + 1)
    assert lookout.patience() is None


@needs_cores
def test_a_turn_that_heard_few_messages(bus: Bus, lookout: Poll) -> None:
    """After a turn that heard at most four messages of other nodes."""
    for heard, is_near in ((1, True), (FEW, True), (FEW + 1, False), (0, False)):
        bus.heard = heard
        assert (lookout.patience() is lookout.for_more) is is_near
        assert lookout.patience() is None, "heard once, looked for once"


@pytest.mark.usefixtures("bus")
def test_it_can_be_turned_off(server: Server, lookout: Poll) -> None:
    server.busy_poll_ns = 0
    let_wait(server, 1)
    assert lookout.patience() is None


def test_a_node_without_others_sleeps_at_once(server: Server, lookout: Poll) -> None:
    let_wait(server, 1)
    assert lookout.patience() is None


@needs_cores
@pytest.mark.usefixtures("bus")
def test_what_comes_while_it_looks_is_found_awake(
    server: Server, poller: Poller, lookout: Poll
) -> None:
    """It looks awake, and lets other processes run between two looks."""
    mine, other = socket.socketpair()
    poller.add(mine.fileno())
    server.busy_poll_ns = SECOND_NS // 10  # asleep, what comes after 0.2 s would be late
    lookout.for_copies.ns = 10 * SECOND_NS
    let_wait(server, 1)
    timer = threading.Timer(0.2, other.send, (b"x",))
    timer.start()
    ready = lookout.wait(-1)
    timer.join()
    assert ready == [(mine.fileno(), 1)]
    assert lookout.for_copies.ns == SECOND_NS // 10, "it slept"
    mine.close()
    other.close()


@needs_cores
@pytest.mark.usefixtures("bus")
def test_what_does_not_come_is_slept_for(server: Server, lookout: Poll) -> None:
    server.busy_poll_ns = MOST_NS
    let_wait(server, 1)
    lookout.for_copies.ns = MOST_NS
    assert lookout.wait(50) == []
    assert lookout.for_copies.ns == MOST_NS // 2
    assert lookout.for_more.ns == 0
