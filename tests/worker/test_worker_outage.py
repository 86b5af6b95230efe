"""How soon a worker asks again in an outage, so that a failover costs it little more (SPEC T27)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import pytest

from tuque.errors import Closed, NoQuorum
from tuque.worker.broker.away import Away
from tuque.worker.broker.link import Link, pause


def of_a_tube() -> Callable[[], float]:
    """Pauses after calls about a tube without a leader."""
    away = Away(random.Random(3))

    def next_s() -> float:
        assert away.failed("t", NoQuorum("x"), "a:1")
        assert away.has_any
        return away.wait_s(["t"])

    return next_s


def of_the_broker() -> Callable[[], float]:
    """Pauses after calls that found no node."""
    link = Link(random.Random(3))
    return lambda: link.failed("get", Closed("x"))


@pytest.mark.parametrize(("kind", "first_s"), [(of_a_tube, 0.02), (of_the_broker, 0.1)])
def test_no_pause_is_longer_than_a_quarter_of_the_outage(
    kind: Callable[[], Callable[[], float]], first_s: float
) -> None:
    async def outage() -> int:
        next_s, count, until = kind(), 0, asyncio.Event()
        began = time.monotonic()
        while time.monotonic() - began < 1.5:
            pause_s = next_s()
            assert pause_s <= max(first_s, (time.monotonic() - began) / 4)
            await pause(pause_s, until)
            count += 1
        return count

    assert asyncio.run(outage()) < 100, "no busy loop"
