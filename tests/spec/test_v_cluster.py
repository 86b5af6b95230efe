"""SPEC V with several nodes: other holders hear of deliveries, clients get jobs of other nodes."""

from __future__ import annotations

from collections.abc import Callable

from test_a_cluster import sent

from tuque.core.copies.ack import on_ackjob
from tuque.core.model.job import ACTIVE
from tuque.core.msgs import Delivered, NeedJobs
from world import World

Make = Callable[..., World]


def test_deliveries_are_told(make_world: Make) -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    world = make_world(3, journal="off")
    hasty = world.at(0).add(b"hasty", replicate=3, retry=5)
    world.at(0).get(b"hasty")
    assert sent(world, Delivered) == [(0, 1), (0, 2)]
    world.forget_heard()
    patient, done = (world.at(0).add(b"q", replicate=3, retry=60) for _ in range(2))
    world.at(0).get()
    world.at(0).get()
    assert sent(world, Delivered) == []
    world.pass_ms(300)
    on_ackjob(world.node(0).core, done)
    world.pass_ms(200)
    told = [m for _, _, m in world.heard(Delivered)]
    assert [m.id for m in told] == [patient, patient]
    assert all(59_000 <= m.left_ms < 60_500 for m in told)
    assert world.states(hasty) == [ACTIVE] * 3
    assert world.node(0).core.untold == {}


def test_jobs_that_are_done_at_once_cost_no_word(make_world: Make) -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    world = make_world(3, journal="off")
    for _ in range(200):
        id = world.at(0).add(replicate=3, retry=60)
        world.at(0).get()
        on_ackjob(world.node(0).core, id)
        world.pass_ms(7)
    world.pass_ms(600)
    assert len(sent(world, Delivered)) <= 4  # one may be out just when the half second is over
    assert world.node(0).core.untold == {}


def test_at_most_once_is_not_told(make_world: Make) -> None:
    """V4.6 (cluster) The other holders of an ALO job get DELIVERED (Q9): at once, or if retry is
    above 5 s within half a second, and then only if a worker still has the job.
    """
    world = make_world(2, journal="off")
    world.at(1).wait()
    world.at(0).add(replicate=1, retry=0)
    world.pass_ms(2_000)
    assert world.node(1).core.deliveries == 1
    assert sent(world, Delivered) == []


def test_who_waits_asks_the_others(make_world: Make) -> None:
    """V1.6 Otherwise the client waits once in each of the named queues, in order of arrival, and
    the queues are created. (cluster) F1 runs for each of them.
    """
    world = make_world(3, journal="off")
    world.at(2).wait(b"a", b"b")
    assert [(a, b, m.queue) for a, b, m in world.heard(NeedJobs)] == [
        (2, 0, b"a"),
        (2, 0, b"b"),
        (2, 1, b"a"),
        (2, 1, b"b"),
    ]
    world.at(0).add(b"b", replicate=1)
    assert len(world.at(2).served()) == 1
    world.at(1).add(b"a", replicate=1)
    assert len(world.at(2).served()) == 1  # it does not wait any more
