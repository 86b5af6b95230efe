"""C8.4: before the pump sleeps it looks awake when an answer is near."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump_box import PumpBox
from tuque.core.model.job import Job
from tuque.core.node.node import Adding
from tuque.server.loop.pump import (
    FEW,
    FIRST_NS,
    Lookout,
    Patience,
)
from tuque.server.net.system import HAS_CORES

MOST_NS = 200_000
SECOND_NS = 1_000_000_000


@pytest.fixture
def box(tmp_path: Path) -> Iterator[PumpBox]:
    """A server with the usual settings, and a bus that has no links."""
    from tuque.server.bus.peers import Bus

    box = PumpBox(tmp_path)
    box.server.bus = Bus(box.n, box.server.members, box.pump.poller, [], box.server.system)
    yield box
    box.server.bus.resolver.close()
    box.listener.close()
    box.pump.poller.close()


def let_wait(box: PumpBox, count: int) -> None:
    """So many producers wait for copies."""
    for i in range(count):
        job = Job(b"D-%038d" % i, b"q", b"", 1, 2, 60, 0, 3)
        box.n.adding[job.id] = Adding(job, 1, i, 0)


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


@pytest.mark.skipif(not HAS_CORES, reason="one core: it never looks awake")
def test_producers_that_wait_for_copies_of_few_jobs(box: PumpBox) -> None:
    """While producers here wait for copies of at most four jobs."""
    lookout = box.pump.lookout
    assert lookout.patience() is None
    let_wait(box, FEW)
    assert lookout.patience() is lookout.for_copies
    let_wait(box, FEW + 1)
    assert lookout.patience() is None


@pytest.mark.skipif(not HAS_CORES, reason="one core: it never looks awake")
def test_a_turn_that_heard_few_messages(box: PumpBox) -> None:
    """After a turn that heard at most four messages of other nodes."""
    lookout, bus = box.pump.lookout, box.server.bus
    assert bus is not None
    for heard, is_near in ((1, True), (FEW, True), (FEW + 1, False), (0, False)):
        bus.heard = heard
        assert (lookout.patience() is lookout.for_more) is is_near
        assert lookout.patience() is None, "heard once, looked for once"


def test_it_can_be_turned_off(box: PumpBox) -> None:
    box.server.busy_poll_ns = 0
    let_wait(box, 1)
    assert box.pump.lookout.patience() is None


def test_a_node_without_others_sleeps_at_once(tmp_path: Path) -> None:
    box = PumpBox(tmp_path)
    let_wait(box, 1)
    assert box.pump.lookout.patience() is None
    box.listener.close()
    box.pump.poller.close()


@pytest.mark.skipif(not HAS_CORES, reason="one core: it never looks awake")
def test_what_comes_while_it_looks_is_found_awake(box: PumpBox) -> None:
    """It looks awake, and lets other processes run between two looks."""
    mine, other = socket.socketpair()
    box.pump.poller.add(mine.fileno())
    box.server.busy_poll_ns = SECOND_NS // 10  # asleep, what comes after 0.2 s would be late
    lookout = Lookout(box.server, box.pump.poller)
    lookout.for_copies.ns = 10 * SECOND_NS
    let_wait(box, 1)
    timer = threading.Timer(0.2, other.send, (b"x",))
    timer.start()
    ready = lookout.wait(-1)
    timer.join()
    assert ready == [(mine.fileno(), 1)]
    assert lookout.for_copies.ns == SECOND_NS // 10, "it slept"
    mine.close()
    other.close()


@pytest.mark.skipif(not HAS_CORES, reason="one core: it never looks awake")
def test_what_does_not_come_is_slept_for(box: PumpBox) -> None:
    box.server.busy_poll_ns = MOST_NS
    let_wait(box, 1)
    lookout = box.pump.lookout
    lookout.for_copies.ns = MOST_NS
    assert lookout.wait(50) == []
    assert lookout.for_copies.ns == MOST_NS // 2
    assert lookout.for_more.ns == 0
