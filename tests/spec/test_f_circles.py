"""SPEC F4: jobs that nodes pass on faster than their messages arrive."""

from __future__ import annotations

from collections.abc import Callable

from test_f_moving import adds, wish

from tuque.core.model.job import QUEUED
from world import World

Make = Callable[..., World]


def test_a_job_that_goes_round_is_queued_somewhere(make_world: Make) -> None:
    """F4.2 A node that dequeued the job for the sender (Q4.3) queues it again, and sends QUEUED."""
    world = make_world(3, journal="off")
    ids = adds(world, 0, 8, replicate=3)
    world.hold(1, 2)
    for taker, giver in ((1, 0), (0, 1), (2, 0)):
        for _ in range(8):
            wish(world, taker, giver, 8)
    assert all(world.node(2).core.jobs[id].state == QUEUED for id in ids)
    world.release(1, 2)
    for id in ids:
        assert [n.jobs[id].state for n in world.cores].count(QUEUED) == 1, "late, not for good"
