"""SPEC A8, M3: tombstones, and what goes when memory is short."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_a_cluster import ack, say, sent, spread
from test_a_stray import stray_ack

from tuque.core.copies.ack import on_fastack
from tuque.core.copies.replicate import copy_of
from tuque.core.dispatch.restore import flush_all
from tuque.core.model.job import ACKED
from tuque.core.model.tombstones import TOMB_BYTES, Tombs
from tuque.core.msgs.bus import DelJob, SetAck, YourJobs
from tuque.core.queues.procedures import memory_level
from tuque.core.repair.drain import make_room
from world import World

Make = Callable[..., World]


def counts(world: World) -> list[int]:
    """How many tombstones each node has."""
    return [int(n.tombs.count()) for n in world.cores]


def test_they_go_when_all_have_answered(make_world: Make) -> None:
    """A8.1 The tombstone of an acked job that had other holders is kept until each has replied
    to a heartbeat that began after the collection. If one is unreachable, it is kept until the
    job's expiry, rounded up to 33 s.
    """
    # A2.2 A tombstone stays until A8 says it may go.
    world = make_world(3, journal="off")
    id = spread(world, 3)
    assert ack(world, 0, id)
    assert counts(world) == [1, 1, 1]
    world.hold(2, 0)
    world.beat()
    assert counts(world) == [1, 0, 1]  # nodes 0 and 2 have not heard of each other
    world.release(2, 0)
    world.beat()
    assert counts(world) == [0, 0, 0]
    assert all(not n.tombs.waiting for n in world.cores)


def test_an_answer_from_before_does_not_count(make_world: Make) -> None:
    """A8.1 The tombstone of an acked job that had other holders is kept until each has replied
    to a heartbeat that began after the collection.
    """
    world = make_world(2, journal="off")
    world.beat()
    id = spread(world, 2)
    n = world.node(0).core
    n.peers[world.slot(0, 1)].echoed_round = n.round
    assert ack(world, 0, id)
    world.hold(1, 0)
    world.pass_ms(10_000)
    assert n.tombs.has(id)
    world.release(1, 0)
    world.beat()
    assert not n.tombs.has(id)


def test_a_node_that_is_away_keeps_them_until_the_expiry(make_world: Make) -> None:
    """A8.1 If one is unreachable, it is kept until the job's expiry, rounded up to 33 s."""
    world = make_world(3, journal="off")
    id = spread(world, 3, ttl=100)
    world.isolate(2)
    assert on_fastack(world.node(0).core, id)
    for _ in range(3):
        world.beat()
    assert counts(world) == [1, 1, 0]
    world.pass_ms(99_000)
    assert counts(world) == [1, 1, 0]
    world.pass_ms(1_000 + 33_000)
    assert counts(world)[:2] == [0, 0]


def test_a_forgotten_node_keeps_none(make_world: Make) -> None:
    """K6.2 The node leaves the holders and confirmed sets of every job."""
    world = make_world(3, journal="off")
    ids = [spread(world, 3) for _ in range(2)]
    world.isolate(2)
    assert on_fastack(world.node(0).core, ids[0])
    assert ack(world, 0, ids[1])
    world.beat()
    assert counts(world)[:2] == [1, 1]
    for i in (0, 1):
        world.forget(i, 2)
    world.settle()
    world.pass_ms(200)
    world.beat()
    assert counts(world)[:2] == [0, 0]
    assert not world.node(0).core.jobs
    assert not world.node(1).core.jobs


@pytest.mark.parametrize("way", ["copy", "import"])
def test_nothing_comes_to_life(make_world: Make, way: str) -> None:
    """A8.2 No message, import, timer or reload creates a job from an id that has a tombstone."""
    world = make_world(3, journal="off")
    id = spread(world, 2)
    copy = copy_of(world.node(0).core, world.slot(0, 1), world.node(0).core.jobs[id], 0)
    assert ack(world, 0, id)
    world.forget_heard()
    say(world, 0, 1, copy if way == "copy" else YourJobs(b"q", [copy]))
    assert world.holders(id) == []
    assert (1, 0) in sent(world, SetAck)


def test_tombstones_count(make_world: Make) -> None:
    """A8.3 Tombstones count as memory and are evicted only as in M3."""
    world = make_world(2, journal="off")
    n = world.node(0).core
    before = n.used_bytes()
    ids = [world.at(0).add(replicate=2) for _ in range(100)]
    for id in ids:
        assert ack(world, 0, id)
    assert n.used_bytes() - before == 100 * TOMB_BYTES + n.queue_bytes
    world.beat()
    assert n.used_bytes() == before + n.queue_bytes
    assert n.tombs.ids == {}


def test_a_node_that_was_waited_for_in_vain_can_answer_later() -> None:
    """A8.3 Tombstones count as memory and are evicted only as in M3."""
    tombs = Tombs()
    tombs.bury(b"one", 10_000, 2, 3)
    assert tombs.evict(0, 10) == 1
    assert not tombs.is_heard(1, 9)
    tombs.on_echo(1, 9)
    assert tombs.waiting == {}


def test_sweeping_is_done_in_pieces() -> None:
    """A8.1 The tombstone of an acked job that had other holders is kept until each has replied
    to a heartbeat that began after the collection.
    """
    # Sets, rounds and ends differ, and the table shrinks in bounded steps.
    tombs = Tombs()
    for i in range(1000):
        tombs.bury(b"%d" % i, 10_000 + i * 100, 2 + 4 * (i % 3), i // 100)
    assert tombs.count() == 1000
    for slot in (1, 2, 3):
        tombs.on_echo(slot, 5)
    assert tombs.count() == 1000
    tombs.tick(0, 100)
    assert tombs.count() == 900
    assert tombs.next_ms() == 0
    tombs.tick(0, 1000)
    assert tombs.count() == 500
    assert not any(tombs.has(b"%d" % i) for i in range(500))
    tombs.bury(b"999", 1 << 40, 2, 20)  # again, for longer
    for slot in (1, 2, 3):
        tombs.on_echo(slot, 15)
    tombs.tick(0, 1000)
    assert tombs.count() == 1
    assert tombs.has(b"999")
    tombs.bury(b"999", 1 << 40, 0, 21)  # nobody else had it
    assert tombs.count() == 0


def test_open_ones_end_with_deljob(make_world: Make) -> None:
    """A4.1 Unknown: a tombstone is made first, then GOTACK(unknown) is sent."""
    world = make_world(3, journal="off")
    id = spread(world, 2)
    world.node(0).core.jobs[id].holders |= 1 << world.slot(0, 2)  # a copy is on its way there
    world.hold(1, 0)
    assert ack(world, 0, id)
    assert world.node(2).core.tombs.has(id)
    for _ in range(3):
        world.beat()
    assert world.node(2).core.tombs.has(id)
    world.release(1, 0)
    assert (0, 2) in sent(world, DelJob)
    world.beat()
    assert counts(world) == [0, 0, 0]


def test_order_of_eviction(make_world: Make) -> None:
    """M3.1 (cluster) tombstones that all reachable holders know; then acked records without a
    body (A3.4), oldest first; then the oldest acked jobs: these end as with FASTACK (A7.1), and
    leave a tombstone
    """
    world = make_world(3, journal="off")
    ids = [world.at(0).add(replicate=3) for _ in range(4)]
    once = world.at(0).add(replicate=1, retry=0)
    for _ in range(4):
        world.at(0).get()
    assert world.at(0).get() == [once]
    world.isolate(2)
    n = world.node(0).core
    assert on_fastack(n, ids[0])
    world.beat()
    young = n.ids.make(60, 1)
    stray_ack(world, 0, young)
    assert ack(world, 0, ids[1])
    assert ack(world, 0, ids[2])
    n.limits.memory_bytes = 1
    order: list[list[str]] = []
    left = {"once": once, "tomb": ids[0], "stray": young, "old": ids[1], "new": ids[2]}
    for _ in range(6):
        make_room(n, 1)
        order.append([])
        for name, id in list(left.items()):
            if id not in n.jobs and not (name == "tomb" and n.tombs.has(id)):
                order[-1].append(name)
                del left[name]
    assert order == [["once"], ["tomb"], ["stray"], ["old"], ["new"], []]
    assert n.tombs.has(ids[1])
    assert n.acks_evicted == 3
    assert n.ledger.evicted == 4
    assert list(n.jobs) == [ids[3]]  # what is owed stays
    assert memory_level(n) == 3
    world.settle()
    world.beat()
    make_room(n, 10)
    assert n.tombs.count() == 0


def test_tombstones_that_are_needed_are_kept(make_world: Make) -> None:
    """M3.1 (cluster) tombstones that all reachable holders know"""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3)
    n = world.node(0).core
    assert ack(world, 0, id)
    n.limits.memory_bytes = 1
    make_room(n, 100)
    assert n.tombs.has(id)  # node 1 and 2 may still have said something


def test_flush_drops_all(make_world: Make) -> None:
    """S7.1 `DEBUG FLUSHALL` drops all jobs and queues with cause deleted."""
    world = make_world(3, journal="off")
    id = spread(world, 3)
    kept = spread(world, 3)
    world.isolate(2)
    n = world.node(0).core
    used_bytes = n.used_bytes() - n.job_bytes
    assert on_fastack(n, id)
    assert ack(world, 0, kept)
    stray_ack(world, 0, n.ids.make(60, 1))
    flush_all(n)
    world.settle()
    assert n.job_bytes == 0
    assert n.used_bytes() <= used_bytes
    assert not n.acked
    assert not n.strays
    assert n.tombs.count() == 0


def test_an_end_that_was_missed_is_told_before_it_is_forgotten(make_world: Make) -> None:
    """A6.2 On a new link its node at once gets SETACK of acked jobs that it has not confirmed,
    and DELJOB of tombstones that wait for it.
    """
    # Answers to heartbeats that were sent before DELJOB could leave mean nothing.
    world = make_world(2, journal="off", bus_buffer_limit="1mb")
    id, other = (world.at(0).add(replicate=2) for _ in range(2))
    world.isolate(1)
    n = world.node(0).core
    assert on_fastack(n, id)
    world.pass_ms(3_000)
    world.join(0, 1)
    world.hold(0, 1)
    for _ in range(3):
        world.beat()
    world.pass_ms(500)
    assert world.on_way(0, 1)
    assert n.tombs.has(id)
    world.release(0, 1)
    world.beat()
    assert world.holders(id) == []
    assert counts(world) == [0, 0]

    world.fill(0, 1)
    assert on_fastack(n, other)
    for _ in range(3):
        world.beat()
    world.pass_ms(200)
    assert n.tombs.has(other)
    world.release(0, 1)
    world.beat()
    assert world.holders(other) == []
    assert counts(world) == [0, 0]


def test_custody_outlives_an_end() -> None:
    """A8.2 No message, import, timer or reload creates a job from an id that has a tombstone."""
    # An at-most-once job that was here: who sent it may send it again until it says LEFT.
    tombs = Tombs()
    tombs.keep_custody(b"once", 60_000)
    tombs.bury(b"once", 60_000, 2, 5)
    tombs.keep(b"once", 60_000)
    tombs.on_echo(1, 100)
    tombs.tick(0, 100)
    assert tombs.has(b"once")
    tombs.let_go(b"once")
    assert not tombs.has(b"once")
    tombs.keep(b"often", 60_000)
    tombs.let_go(b"often")
    assert tombs.has(b"often")
    tombs.tick(60_000 + 33_000, 100)
    assert tombs.count() == 0


def test_who_asks_late_leaves_nothing_open(make_world: Make) -> None:
    """A5.1 a sender that does not know a job that has ended here gets DELJOB."""
    for beats in (0, 1):
        world = make_world(4, journal="off")
        id = spread(world, 3)
        world.node(2).core.jobs[id].holders |= 1 << world.slot(2, 3)  # a copy that never arrived
        world.node(1).core.jobs[id].holders |= 1 << world.slot(1, 3)
        world.node(0).core.jobs[id].holders |= 1 << world.slot(0, 3)
        world.hold(2, 3)
        assert ack(world, 2, id)  # its SETACK to node 3 is slow
        ack(world, 0, id)
        world.pass_ms(2_000)
        world.hold(2, 3)
        assert world.holders(id) == []
        assert world.on_way(2, 3)
        for _ in range(beats):
            world.node(3).core.tombs.on_echo(world.slot(3, 2), 1 << 60)
            world.beat()
        assert world.node(3).core.tombs.has(id) == (beats == 0)
        world.release(2, 3)
        world.beat()
        world.beat()
        assert counts(world) == [0, 0, 0, 0]


def test_ends_that_are_told_again_go_out(make_world: Make) -> None:
    """A8.1 If one is unreachable, it is kept until the job's expiry, rounded up to 33 s."""
    # Links come and go, and each node tells the others what they may have missed: nothing
    # grows by that, neither their number nor their time.
    world = make_world(4, journal="off")
    id = spread(world, 4, ttl=20)
    world.isolate(3)
    assert on_fastack(world.node(0).core, id)
    for _ in range(10):
        for a, b in ((0, 1), (1, 2), (0, 2)):
            world.cut(a, b)
            world.settle()
            world.link(a, b)
            world.pass_ms(100)
    assert len(sent(world, DelJob)) < 80
    world.pass_ms(20_000 + 33_000)
    assert counts(world)[:3] == [0, 0, 0]


def test_who_answered_a_second_collector_hears_the_end(make_world: Make) -> None:
    """A10.1 DELJOB also goes to holders that the sender did not name, and to nodes that have
    confirmed the ack to this one.
    """
    world = make_world(4, journal="off")
    id = spread(world, 4)
    world.hold(3, 0)
    assert ack(world, 0, id)
    world.hold(0, 1)  # the end that 0 says is slow to reach 1
    world.release(3, 0)
    assert world.states(id) == [-1, ACKED, -1, -1]
    for _ in range(2):
        for a, b in ((2, 0), (2, 3), (3, 0)):
            world.node(a).core.tombs.on_echo(world.slot(a, b), 1 << 60)
            world.node(b).core.tombs.on_echo(world.slot(b, a), 1 << 60)
    world.node(2).core.tombs.on_echo(world.slot(2, 1), 1 << 60)
    world.pass_ms(10)
    assert not world.node(2).core.tombs.has(id)
    world.hold(3, 1)
    world.pass_ms(2_000)  # node 1 tries by itself, and does not hear of node 3
    assert world.node(2).core.tombs.has(id)
    assert world.states(id) == [-1, ACKED, -1, -1]
    world.release(0, 1)
    world.release(3, 1)
    world.beat()
    assert counts(world) == [0, 0, 0, 0]
