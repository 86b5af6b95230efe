"""SPEC V with several nodes: other holders hear of deliveries, clients get jobs of other nodes."""

from __future__ import annotations

from collections.abc import Callable

from tuque.core.copies.ack import on_ackjob
from tuque.core.model.job import ACTIVE
from tuque.core.msgs.bus import Delivered, NeedJobs
from world import World


def sent(world: World, kind: type) -> list[tuple[int, int]]:
    """From where to where messages of that kind went, in order."""
    return [(a, b) for _, a, b, m in world.lab.heard if isinstance(m, kind)]


def test_deliveries_are_told(make_world: Callable[..., World]) -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    world = make_world(3)
    hasty = world.wire().add("hasty", replicate=3, retry=5)
    world.wire().get("hasty")
    assert sent(world, Delivered) == [(0, 1), (0, 2)]
    world.lab.heard.clear()
    patient, done = (world.add(replicate=3, retry=60) for _ in range(2))
    world.get()
    world.get()
    assert sent(world, Delivered) == []
    world.pass_ms(300)
    on_ackjob(world.node(0).core, done)
    world.pass_ms(200)
    told = [m for _, _, _, m in world.lab.heard if isinstance(m, Delivered)]
    assert [m.id for m in told] == [patient, patient]
    assert all(59_000 <= m.left_ms < 60_500 for m in told)
    assert world.states(hasty) == [ACTIVE] * 3
    assert world.node(0).core.untold == {}


def test_jobs_that_are_done_at_once_cost_no_word(make_world: Callable[..., World]) -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    world = make_world(3)
    for _ in range(200):
        id = world.add(replicate=3, retry=60)
        world.get()
        on_ackjob(world.node(0).core, id)
        world.pass_ms(7)
    world.pass_ms(600)
    assert len(sent(world, Delivered)) <= 4  # one may be out just when the half second is over
    assert world.node(0).core.untold == {}


def test_a_job_that_was_given_back_for_later_is_not_told(make_world: Callable[..., World]) -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    world = make_world(3)
    nacked = world.add(replicate=3, retry=60)
    world.get()
    assert world.wire()("NACK", "DELAY", "10", nacked) == 1
    failed = world.add(replicate=3, retry=60)
    world.get()
    world.wire()("FAIL", failed, world.wire()("START", failed)[0][0], "DELAY", "10")
    world.pass_ms(600)
    assert sent(world, Delivered) == []


def test_at_most_once_is_not_told(make_world: Callable[..., World]) -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    world = make_world(2)
    world.wire(1).send("GETJOB", "FROM", "q")
    world.add(replicate=1, retry=0)
    world.pass_ms(2_000)
    assert world.node(1).core.deliveries == 1
    assert sent(world, Delivered) == []


def test_who_waits_asks_the_others(make_world: Callable[..., World]) -> None:
    """V1.6 Otherwise the client waits once in each of the named queues, in order of arrival, and
    the queues are created. (cluster) F1 runs for each of them.
    """
    world = make_world(3)
    waiting = world.wire(2)
    waiting.send("GETJOB", "FROM", "a", "b")
    assert [(a, b, m.queue) for _, a, b, m in world.lab.heard if isinstance(m, NeedJobs)] == [
        (2, 0, b"a"),
        (2, 0, b"b"),
        (2, 1, b"a"),
        (2, 1, b"b"),
    ]
    world.wire().add("b", replicate=1)
    assert len(waiting.take()) == 1
    world.wire(1).add("a", replicate=1)
    assert waiting.take() is None  # it does not wait any more
