"""Frames to other nodes wait for the journal exactly as replies do (SPEC C8.3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gate_box import Kept

from pump_box import START_MS
from raw_resp import Wire, encode
from tuque.core.node.peers import journal_fails
from tuque.server.start.bus import open_bus, prepare_bus
from until import until

ADD = encode("ADDJOB", "q", "b", 0, "REPLICATE", 2)
OTHER = b"beef" * 10
SECRET = "0123456789abcdef0123456789abcdef0123456789abcdef"


class Two:
    """Two pumps with journals, turned by hand in one thread, linked by the real bus."""

    def __init__(self, here: Path, policy: str, secret: str = "") -> None:
        self.here = Kept(here / "a", policy)
        self.there = Kept(here / "b", policy, node_id=OTHER)
        for kept in (self.here, self.there):
            server = kept.box.server
            server.cfg.cluster_secret = secret
            server.clock_offset_ms = START_MS - time.monotonic_ns() // 1_000_000
            prepare_bus(kept.box.pump)
            open_bus(kept.box.pump)
        bus = self.there.box.server.bus
        assert bus is not None
        self.client = self.here.box.connect()
        self.worker = self.there.box.connect()
        meet = encode("CLUSTER", "MEET", "127.0.0.1", 7711, bus.port)
        assert self.here.box.say(self.client, meet) == b"+OK\r\n"
        self.until(lambda: self.here.box.n.reachable_count == 1)
        self.until(lambda: self.there.box.n.reachable_count == 1)

    def until(self, what: Callable[[], bool]) -> None:
        """Turn both until it is so."""

        def turned() -> bool:
            self.turn()
            return what()

        until(turned)

    def turn(self) -> None:
        """One turn of each."""
        self.here.box.pump.turn(1)
        self.there.box.pump.turn(1)

    def heard(self, wire: Wire, within_s: float) -> bytes:
        """What the client hears in that time; returns at once when there is something."""
        wire.sock.setblocking(False)
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            self.turn()
            try:
                return wire.sock.recv(1 << 16)
            except BlockingIOError:
                continue
        return b""

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture
def make_two(tmp_path: Path) -> Iterator[Callable[..., Two]]:
    made: list[Two] = []

    def make(policy: str, secret: str = "") -> Two:
        made.append(Two(tmp_path, policy, secret))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_copy_is_confirmed_when_it_is_on_the_disk(make_two: Callable[[str], Two]) -> None:
    """R2.5: GOTJOB is sent when the record is as durable as the policy promises."""
    two = make_two("always")
    two.there.stall()
    two.client.raw(ADD)
    assert two.heard(two.client, 0.2) == b""
    assert len(two.there.box.n.jobs) == 1, "the copy is there, and not on the disk"
    two.there.disk.may_sync.set()
    assert two.heard(two.client, 60).startswith(b"+D-")


def test_a_copy_is_not_waited_for_where_nothing_is_promised(
    make_two: Callable[[str], Two],
) -> None:
    two = make_two("everysec")
    two.there.stall()
    two.client.raw(ADD)
    assert two.heard(two.client, 60).startswith(b"+D-")


def test_a_job_at_most_once_moves_when_that_is_on_the_disk(make_two: Callable[[str], Two]) -> None:
    """J4.4: also under everysec: the record of giving away custody is on disk before the frame."""
    two = make_two("everysec")
    once = encode("ADDJOB", "once", "b", 0, "RETRY", 0, "REPLICATE", 1)
    two.client.raw(once)
    assert two.heard(two.client, 60).startswith(b"+D-")
    two.here.stall()
    two.worker.raw(encode("GETJOB", "FROM", "once"))
    assert two.heard(two.worker, 0.3) == b""
    two.here.disk.may_sync.set()
    assert two.heard(two.worker, 60).startswith(b"*1")


@pytest.mark.parametrize("secret", [pytest.param("", marks=pytest.mark.slow), SECRET])
def test_who_cannot_write_says_so_past_what_waits(
    make_two: Callable[..., Two], secret: str
) -> None:
    """K4.5 While messages wait for that journal (J6.6), a heartbeat without a number goes past them
    in each round, and says nothing else.

    J6.6 Only the heartbeats of K4.5 go past these messages.
    """
    two = make_two("always", secret)
    n = two.here.box.n
    (member,) = two.here.box.server.members.alive()
    two.there.disk.is_full = True
    two.client.raw(ADD)
    two.until(lambda: bool(journal_fails(n, member.slot)))
    heard_ms, round = member.heard_ms, member.round
    assert member.is_reachable(), "it may work again soon"
    begun = n.round
    two.until(lambda: n.round >= begun + 2)
    assert (member.heard_ms, member.round) == (heard_ms, round)
    assert not two.heard(two.client, 0.1), "the copy is not confirmed"
    two.there.disk.is_full = False
    assert two.heard(two.client, 60).startswith(b"+D-"), "what waited comes in its order"
    two.until(lambda: not journal_fails(n, member.slot))
    assert member.heard_ms > heard_ms
    assert two.here.box.server.bus is not None
    assert two.here.box.server.bus.figures.joined == 1, "by the same link"
