"""How soon a worker asks again in an outage, so that a failover costs it little more (SPEC T27)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import pytest

from raw_resp import NULL
from tuque import aio
from tuque.errors import Closed, FewCopies, Leaving, NoQuorum, NoReplica
from tuque.worker.run.fetch import UnavailableQueues
from tuque.worker.run.heartbeat import Heartbeats
from tuque.worker.run.link import Link, is_about_home, pause
from world import World
from world_clients import url_of


def of_a_tube() -> Callable[[], float]:
    """Pauses after calls about a tube without a leader."""
    away = UnavailableQueues(random.Random(3))

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
    kind: Callable[[], Callable[[], float]], first_s: float, world: World
) -> None:
    async def outage() -> int:
        next_s, count, end = kind(), 0, asyncio.Event()
        began = time.monotonic()
        while time.monotonic() - began < 1.5:
            pause_s = next_s()
            assert pause_s <= max(first_s, (time.monotonic() - began) / 4) + 1e-9  # floats
            await pause(pause_s, end)
            count += 1
        return count

    assert world.loop.run(outage()) < 100, "no busy loop"


def test_a_tube_that_takes_nothing_keeps_no_other_queue_waiting() -> None:
    """U2.16 Other queues do not wait."""
    assert is_about_home(NoReplica("x"), "a:1") and is_about_home(NoQuorum("x"), "a:1")
    assert not is_about_home(FewCopies("x"), "a:1"), "it is done"
    assert not is_about_home(Leaving("x"), "a:1"), "of the whole node"
    assert not is_about_home(Closed("x", node="a:1"), "a:1"), "of the node in use"


def test_a_leader_that_hangs_keeps_no_working_of_another_queue(
    make_world: Callable[..., World],
) -> None:
    """U2.18 WORKING is sent for each queue separately: a leader that does not answer delays no
    WORKING of another queue.
    """
    world = make_world(2)
    queues: dict[str, str] = {}
    for i, queue in enumerate(("hung", "fine")):
        wire = world.wire(i)
        assert wire("TUBE", "CREATE", queue, "fifottl", "ALONE") == b"OK"
        id = wire.ask("ADDJOB", queue, "body", 5_000, "RETRY", 5)
        wire("GETJOB", "FROM", queue)
        queues[id.decode()] = queue
    world.until(lambda: len(world.client(1).tube_list()) == 2)

    async def beats() -> bool:
        async with aio.Client(f"{url_of(1)}/?timeout=60") as client:
            await client.ping()
            link = Link(random.Random(1))
            heart = Heartbeats(client, link, queues.pop, queue_of=queues.__getitem__)
            for id in queues:
                heart.hold(id, 0.1)
            await heart.loop()
            return True

    world.loop.shifts.append(world.loop.create_task(beats()))
    world.stall(0, 60_000)
    waiting = world.wire(1)
    waiting.send("GETJOB", "TIMEOUT", 7_000, "FROM", "fine")
    world.pass_ms(7_100)
    assert waiting.take() is NULL
