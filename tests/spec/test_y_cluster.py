"""SPEC Y8: leased jobs with other holders."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lease_by_hand import Lessee, word

from tuque.core.copies.requeue_messages import rank
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.msgs.bus import (
    HAS_QUEUED,
    Delivered,
    Queued,
    WillQueue,
    Working,
)
from tuque.core.tables.leases import is_leased
from world import World

Make = Callable[..., World]


def lease(world: World, count: int = 100, ttl_ms: int = 60_000) -> Lessee:
    """A group at node 0 that has taken a batch."""
    g = Lessee(world)
    assert g.next(1, count, ttl_ms, PARTS=2) > 0
    return g


@pytest.mark.parametrize(("retry_s", "first_ms"), [(4, 0), (10, 500)])
def test_other_holders_are_told(make_world: Make, retry_s: int, first_ms: int) -> None:
    """Y8.1 half a second after the lease began, or at once if retry is at most 5 s, and then every
    half of the retry time.
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=retry_s)
    start_ms = world.now_ms
    world.forget_heard()
    lease(world)
    seen = []
    while world.now_ms < start_ms + first_ms + retry_s * 2_000:
        for a, b, m in world.heard(Working):
            if (a, b) == (0, 1):
                assert m.id == id and m.left_ms == retry_s * 1000
                seen.append(world.now_ms - start_ms)
        world.forget_heard()
        world.pass_ms(100)
    assert seen == [first_ms + i * retry_s * 500 for i in range(len(seen))]
    assert len(seen) >= 4


def test_a_full_link(make_world: Make) -> None:
    """While a link takes no more (B2.4) nobody is told; afterwards all are (Y8.1)."""
    world = make_world(3, journal="off", bus_buffer_limit="1mb")
    for _ in range(5):
        world.at(0).add(replicate=3, retry=10)
    lease(world)
    world.forget_heard()
    world.fill(0, 2)
    world.pass_ms(2_000)
    assert world.heard(Working) == []
    world.release(0, 2)
    world.pass_ms(100)
    assert len(world.heard(Working)) == 10


def test_nobody_else_hands_it_out(make_world: Make) -> None:
    """No other node hands a leased job out, however long the lease lives (Y8.1)."""
    world = make_world(3, journal="off")
    ids = [world.at(0).add(replicate=3, retry=2) for _ in range(20)]
    g = lease(world)
    for _ in range(30):
        world.pass_ms(1000)
        assert g("TOUCH") == 1
        assert world.at(1).get() == [] and world.at(2).get() == [] and world.at(0).get() == []
    for id in ids:
        assert world.states(id) == [ACTIVE] * 3
    assert g("COMMIT", 1) == 20
    world.settle()
    world.pass_ms(2_000)
    assert all(world.holders(id) == [] for id in ids)


def test_after_the_lease(make_world: Make) -> None:
    """Y7.2 Then its ALO jobs go back into their queues, even if the input of a queue is paused.
    They count as additional deliveries. The event `requeued` is written with the cause lease.
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=10)
    lease(world, ttl_ms=5_000)
    world.pass_ms(4_000)
    assert world.states(id) == [ACTIVE] * 3
    world.pass_ms(1_500)
    assert world.states(id) == [QUEUED, ACTIVE, ACTIVE]
    assert [int(n.jobs[id].deliveries) for n in world.cores] == [1, 1, 1]


def test_release_with_other_holders(make_world: Make) -> None:
    """A job that is given back is queued here, and the others know (Y5.3)."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=10)
    g = lease(world)
    assert g("RELEASE") == 1
    assert world.states(id) == [QUEUED, ACTIVE]
    world.forget_heard()
    world.pass_ms(60_000)
    assert not world.heard(Working), "nobody says that it is leased"


def test_a_question_about_it(make_world: Make) -> None:
    """Y8.2 The reply to a WILLQUEUE about a leased job is DELIVERED with its whole retry time."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=10)
    lease(world)
    world.pass_ms(4_700)
    world.forget_heard()
    world.send(1, 0, WillQueue([id]))
    assert [m.left_ms for _, _, m in world.heard(Delivered)] == [10_000]


def test_another_holder_that_queued_it(make_world: Make) -> None:
    """A holder that had no link and queued the job hears of the lease when it is back (Y8.1)."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=4)
    lease(world, ttl_ms=600_000)
    world.isolate(0)
    world.pass_ms(10_000)
    assert world.states(id) == [ACTIVE, QUEUED]
    assert is_leased(world.n.jobs[id])
    world.link()
    world.pass_ms(3_000)
    assert world.states(id) == [ACTIVE, ACTIVE]
    assert is_leased(world.n.jobs[id])
    assert rank(id, world.n.node_id) != rank(id, world.node(1).core.node_id)


@pytest.mark.parametrize("message", [Queued, Working])
def test_what_others_say_of_it(make_world: Make, message: type) -> None:
    """No message gives a leased job a due time (Y2.1, Y6.2)."""
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=2, retry=4)
    lease(world, ttl_ms=600_000)
    world.send(1, 0, message(id, HAS_QUEUED))
    assert is_leased(world.n.jobs[id])
    assert world.n.jobs[id].qtime_ms == 0


def test_an_ack_elsewhere(make_world: Make) -> None:
    """An ACKJOB at another node takes the job out of its batch (Y6.1)."""
    world = make_world(2, journal="off")
    one, two = (world.at(0).add(replicate=2, retry=4) for _ in range(2))
    g = lease(world)
    assert world.at(1)("ACKJOB", one) == 1
    assert g.ids(1) == []
    assert g.ids(1, 1) == [two]
    assert g("COMMIT", 1) == 1
    world.settle()


def test_acked_in_its_batch_before_a_restart(make_world: Make) -> None:
    """A job that was acked while it was leased, and is collected still, comes back as acked."""
    world = make_world(2)
    id = world.at(0).add(replicate=2, retry=4)
    lease(world, ttl_ms=600_000)
    world.isolate(0)
    assert world.run("ACKJOB", id) == 1
    world.restart(0)
    assert world.n.jobs[id].state == ACKED
    world.link()
    world.pass_ms(5_000)
    assert id not in world.n.jobs
    world.n.leases.check()


def test_restart_with_other_holders(make_world: Make) -> None:
    """A lease lives on over a restart: the other holders hear of it again (Y9.3, Y8.1)."""
    world = make_world(2)
    id = world.at(0).add(replicate=2, retry=4)
    lease(world, ttl_ms=600_000)
    world.pass_ms(1_000)
    world.restart(0)
    world.pass_ms(1_000)
    world.link()
    world.forget_heard()
    world.pass_ms(20_000)
    assert sum(a == 0 for a, _, _ in world.heard(Working)) >= 9
    assert is_leased(world.n.jobs[id])
    assert world.states(id) == [ACTIVE, ACTIVE]


def test_a_leaving_node(make_world: Make) -> None:
    """Y8.3 A leaving node begins no batch (`-LEAVING`). Leased jobs stay with it until their lease
    ends.
    """
    world = make_world(3, journal="off")
    ids = [world.at(0).add(replicate=2, retry=10) for _ in range(5)]
    n = world.n
    g = lease(world, count=3, ttl_ms=30_000)
    world.leave(0)
    world.pass_ms(20_000)
    assert [id in n.jobs for id in ids] == [True] * 3 + [False] * 2
    assert word(g.next(2)) == "LEAVING"
    assert g("COMMIT", 1) == 3
    world.pass_ms(20_000)
    assert len(n.jobs) == 0
