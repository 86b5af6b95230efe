"""SPEC J with several nodes: holders, acks and custody come back with the journal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.machines.shell import PATH
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.dispatch.restore import after_load
from tuque.core.model.job import ACKED, ACTIVE, IN_TRANSIT, ONCE_QUEUED, QUEUED
from tuque.core.msgs.bus import (
    DelJob,
    Holders,
    Left,
    SetAck,
    YourJobs,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import renew, slot_for
from tuque.core.queues.deliver import on_getjob
from tuque.core.records.jobs import ADD, PEER, Records
from tuque.core.records.read import Record, decode
from tuque.core.repair.node_loss import on_incarnation, repair_left
from tuque.store.frames import Boot
from tuque.store.replay import Loader
from world import World
from world_machines import name_of

Make = Callable[..., World]


def restart(world: World, i: int, rewrite: bool = False) -> None:
    """Stop a node and start it on its journal, alone."""
    if rewrite:
        world.at(i)("BGREWRITEAOF")
    world.restart(i)


@pytest.mark.parametrize("rewrite", [False, True])
def test_sets_mean_the_same_nodes(make_world: Make, rewrite: bool) -> None:
    """J2.3 (cluster) Sets in records are sets of slots. Each process names a slot with its node
    id before it first uses it. The add record names the holders unless this node is the only
    one.
    """
    world = make_world(5, journal="always")
    ids = [world.at(0).add(replicate=3) for _ in range(20)]
    held = {id: world.holders(id) for id in ids}
    slots = [world.slot(0, k) for k in range(5)]
    for round in range(3):
        restart(world, 0, rewrite)
        assert all(world.believed(0, id) == held[id] for id in ids), round
        for k in ((3, 1, 4, 2), (2, 4, 3, 1), (1, 2, 3, 4))[round]:  # met in another order
            world.link(0, k)
        for id in ids:
            assert set(held[id]) <= set(world.believed(0, id)), round
            held[id] = world.believed(0, id)  # those that met without it have made more copies
        ids.append(world.at(0).add(replicate=2))
        held[ids[-1]] = world.holders(ids[-1])
    assert slots == [0, 1, 2, 3, 4]
    records = Records(world.node(0).core.node_ids, world.node(0).core.lives)
    alone, three = (world.at(0).add(replicate=count) for count in (1, 3))
    records.add(world.node(0).core.jobs[alone])
    records.add(world.node(0).core.jobs[three])
    payload, at, r, kinds = records.take(), 0, Record(), []
    while at < len(payload):
        at = decode(payload, at, r)
        kinds.append(r.kind)
    assert kinds == [ADD, PEER, PEER, ADD]


def test_a_change_of_holders_is_kept(make_world: Make) -> None:
    """J5.11 (cluster) Holders are restored."""
    world = make_world(4, journal="always")
    id = world.at(0).add(replicate=3)
    new = next(k for k in (1, 2, 3) if id not in world.node(k).core.jobs)
    n = world.node(0).core
    n.jobs[id].holders |= 1 << world.slot(0, new)
    assert n.records is not None
    n.records.holders(n.jobs[id])
    world.settle()
    restart(world, 0)
    assert world.believed(0, id) == [0, 1, 2, 3]
    world.link()
    assert len(world.believed(0, id)) == 3  # it was asked, and has none


@pytest.mark.parametrize("victim", [0, 1])
def test_lost_meanwhile(make_world: Make, victim: int) -> None:
    """J5.11 Holders are restored, and asked when there is a link (K5.2)."""
    world = make_world(2, journal="always")
    id = world.at(0).add(replicate=2)
    other = 1 - victim
    restart(world, victim)
    world.restart(other, "lost")
    world.link(0, 1)
    world.pass_ms(3_000)
    assert world.holders(id) == [0, 1]
    assert sum(repair_left(n) for n in world.cores) == 0


def test_custody_on_its_way_survives(make_world: Make) -> None:
    """J5.11 An AMO job in transit is not delivered, but offered again to the same node (F2.3)."""
    for rewrite in (False, True):
        world = make_world(3, journal="always")
        world.at(1, 7).wait()
        world.hold(0, 1)
        id = world.at(0).add(retry=0, replicate=1)
        assert world.node(0).core.jobs[id].flags & IN_TRANSIT
        restart(world, 0, rewrite)
        job = world.node(0).core.jobs[id]
        assert job.flags & IN_TRANSIT and job.state == ACTIVE
        world.at(0, 7).wait()
        world.link(0, 2)
        world.at(2, 7).wait()
        world.pass_ms(5_000)
        assert world.at(0, 7).served() == [] and world.at(2, 7).served() == []
        world.forget_heard()
        world.link(0, 1)
        assert [(a, b) for a, b, m in world.heard(YourJobs)] == [(0, 1)]
        assert world.at(1, 7).served() == [id]
        assert world.holders(id) == [1]


def test_custody_is_not_offered_to_another_life(make_world: Make) -> None:
    """F2.3 If it restarted without memory, AMO jobs in transit to it stay so until they expire.

    J5.11 An AMO job in transit is not delivered, but offered again to the same node (F2.3)."""
    for is_kept in (True, False):
        world = make_world(2, journal="always")
        world.at(1, 7).wait()
        world.hold(1, 0)  # it has it, and nobody knows
        id = world.at(0).add(retry=0, replicate=1)
        assert world.at(1, 7).served() == [id]
        restart(world, 0)
        world.restart(1, "kept" if is_kept else "lost")
        world.link(0, 1)
        world.at(1, 7).wait()
        world.pass_ms(5_000)
        assert world.at(1, 7).served() == [], "handed out once"
        assert (id in world.node(0).core.jobs) == (not is_kept)
        assert world.at(0).get() == world.at(1).get() == []


@pytest.mark.parametrize("is_same", [True, False])
def test_custody_is_not_offered_to_another_life_that_was_met_while_loading(
    make_world: Make, is_same: bool
) -> None:
    """F2.3 If it restarted without memory, AMO jobs in transit to it stay so until they expire."""
    world = make_world(2, journal="always")
    world.at(1, 7).wait()
    world.hold(1, 0)  # it has it, and nobody knows
    id = world.at(0).add(retry=0, replicate=1)
    assert world.at(1, 7).served() == [id]
    world.isolate(0)
    world.kill(0)
    if not is_same:
        world.restart(1, "lost")
    n = Node(name_of(0), b"loads", world.now_ms)
    slot = slot_for(n, name_of(1))
    n.others |= 1 << slot
    n.is_loading = True
    on_incarnation(n, slot, True, world.node(1).core.lives[0])
    loader = Loader(world.disk(0).files, PATH, Boot(world.now_ms, b"loads", 0), False)
    while not loader.step(n, 1000):
        pass
    n.is_loading = False
    after_load(n)
    assert n.jobs[id].flags & IN_TRANSIT
    assert n.custody == ({id: slot} if is_same else {})
    served = world.at(1, 7).served()
    world.start(0)
    world.link(0, 1)
    world.at(1, 7).wait()
    world.pass_ms(5_000)
    assert world.at(1, 7).served() == served, "handed out once"


def test_a_loading_node_does_not_refuse_what_it_may_have(make_world: Make) -> None:
    """F3.5 A node that loads neither refuses an AMO job nor answers GOTJOBS."""
    world = make_world(2, journal="always")
    world.at(1, 7).wait()
    world.hold(1, 0)  # node 1 has it, and node 0 does not know
    id = world.at(0).add(retry=0, replicate=1)
    world.restart(1)
    sender, loading = world.cores
    unread = loading.jobs.pop(id)
    loading.is_loading = True
    world.release(1, 0)
    world.link(0, 1)
    assert sender.jobs[id].flags & IN_TRANSIT
    assert sender.custody == {id: world.slot(0, 1)}
    assert on_getjob(sender, 7, [b"q"], 1) == []
    loading.jobs[id] = unread
    loading.is_loading = False
    after_load(loading)
    world.settle()
    assert id not in sender.jobs
    assert world.at(0).get() == world.at(1).get() == []
    assert loading.late_moves == []


def test_a_loading_node_says_of_nothing_that_it_has_left(make_world: Make) -> None:
    """F3.5 Both wait for the end of the load; what J5.11 offers again is then sent over the
    present links.
    """
    world = make_world(2, journal="always")
    world.at(1, 7).wait()
    world.hold(1, 0)
    id = world.at(0).add(retry=0, replicate=1)
    world.restart(0)  # the sender, which has it in its journal, in transit
    sender = world.node(0).core
    unread = sender.jobs.pop(id)
    custody, sender.custody = sender.custody, {}
    sender.is_loading = True
    world.release(1, 0)
    world.link(0, 1)
    assert [type(m) for a, _, m in world.heard() if a == 0 and isinstance(m, Left)] == []
    sender.jobs[id] = unread
    sender.custody = custody
    sender.is_loading = False
    after_load(sender)
    world.settle()
    assert id not in sender.jobs
    assert any(isinstance(m, YourJobs) for a, _, m in world.heard() if a == 0)
    assert world.node(1).core.custody == {}


def test_a_copy_without_custody_stays_one(make_world: Make) -> None:
    """J5.11 An AMO job in transit is not delivered, but offered again to the same node (F2.3)."""
    world = make_world(2, journal="always")
    world.node(0).core.is_leaving = True  # external: node 1 keeps it, node 0 may still give it away
    world.hold(1, 0)
    job = world.node(0).core.jobs[world.at(0, 1).begin_add(retry=0, replicate=1)]
    world.settle()
    assert world.node(1).core.jobs[job.id].flags & IN_TRANSIT
    restart(world, 1)
    assert world.node(1).core.custody == {}
    world.link(0, 1)
    assert sum(job.id in world.at(k).get() for k in (0, 1)) <= 1


@pytest.mark.parametrize("rewrite", [False, True])
def test_acks_go_on_being_collected(make_world: Make, rewrite: bool) -> None:
    """J5.12 (cluster) The collection of an acked job that other holders must learn of continues."""
    world = make_world(3, journal="always")
    id = world.at(0).add(replicate=3)
    world.cut(0, 2)
    world.cut(1, 2)
    assert on_ackjob(world.node(0).core, id)
    world.settle()
    restart(world, 0, rewrite)
    restart(world, 1, rewrite)
    assert world.states(id)[:2] == [ACKED, ACKED]
    assert world.at(0).get() == world.at(1).get() == []
    world.link()
    world.pass_ms(5_000)
    assert world.states(id) == [-1, -1, -1]
    world.pass_ms(200_000)
    assert [world.at(k).get() for k in range(3)] == [[], [], []]


def test_what_is_done_leaves_a_tombstone(make_world: Make) -> None:
    """J5.12 A job whose collection is done leaves a tombstone for them, as does an AMO job that
    another node may send again."""
    world = make_world(2, journal="always")
    id = world.at(0).add(replicate=2)
    assert on_ackjob(world.node(0).core, id)
    world.settle()
    assert world.holders(id) == []
    restart(world, 0)
    assert world.node(0).core.tombs.has(id)
    world.link(0, 1)
    world.beat()
    world.beat()
    world.pass_ms(1_000)
    assert not world.node(0).core.tombs.has(id)
    for rewrite in (False, True):
        world = make_world(2, journal="always")
        world.at(1, 7).wait()
        world.hold(1, 0)
        once = world.at(0).add(retry=0, replicate=1)
        assert on_deljob(world.node(1).core, once)
        world.settle()
        assert world.node(1).core.tombs.has(once)
        restart(world, 1, rewrite)
        assert world.node(1).core.tombs.has(once)
        world.link(0, 1)
        world.at(1, 7).wait()
        world.pass_ms(1_000)
        assert world.at(1, 7).served() == [], "handed out once"
        assert not world.node(1).core.tombs.has(once)  # the sender has let go of it


def test_slots_are_named_again_by_a_rewrite(make_world: Make) -> None:
    """J2.3 Each process names a slot with its node id before it first uses it."""
    world = make_world(3, journal="always")
    first = world.at(0).add(replicate=3)
    on_ackjob(world.node(0).core, first)
    world.pass_ms(1_000)
    assert world.node(0).core.jobs == {}
    world.at(0)("BGREWRITEAOF")  # no set in it, and the old segments are gone
    id = world.at(0).add(replicate=3)
    restart(world, 0)
    assert world.believed(0, id) == [0, 1, 2]


def test_custody_belongs_to_one_life(make_world: Make) -> None:
    """F2.3 If it restarted without memory, AMO jobs in transit to it stay so until they expire.

    J2.3 Each process names a slot with its node id before it first uses it."""
    world = make_world(2, journal="always")
    world.at(1, 7).wait()
    world.hold(0, 1)
    old = world.at(0).add(retry=0, replicate=1)
    n, slot = world.node(0).core, world.slot(0, 1)
    new = world.at(0).add(retry=0, replicate=1)
    assert n.jobs[new].holders == 1
    renew(n, slot, 9)  # the node is another one, but what that means was not written down yet
    assert on_getjob(n, 1, [b"q"], 1) == [n.jobs[new]]
    n.jobs[new].flags = IN_TRANSIT | ONCE_QUEUED
    n.jobs[new].holders |= 1 << slot
    assert n.records is not None
    n.records.state(n.jobs[new])
    n.records.holders(n.jobs[new])
    world.settle()
    restart(world, 0)
    n = world.node(0).core
    assert n.jobs[old].flags & IN_TRANSIT and n.jobs[new].flags & IN_TRANSIT
    assert n.custody == {new: world.slot(0, 1)}


def test_too_few_copies_are_noticed_after_a_restart(make_world: Make) -> None:
    """J5.11 (cluster) Holders are restored."""
    world = make_world(4, journal="always")
    world.isolate(3)
    id = world.at(0).add(replicate=3)
    world.restart(2)
    for k in (0, 1):
        world.forget(k, 2)
    world.settle()
    for k in (0, 1):
        world.restart(k)
    for a, b in ((0, 1), (0, 3), (1, 3)):
        world.link(a, b)
    world.pass_ms(10_000)
    assert world.holders(id) == [0, 1, 3] or len(world.holders(id)) == 4


def test_nothing_is_told_twice_by_a_reload(make_world: Make) -> None:
    """J2.2 Applying it twice has the same effect as applying it once."""
    world = make_world(3, journal="always")
    id, acked = world.at(0).add(replicate=3), world.at(0).add(replicate=3)
    world.isolate(2)
    on_ackjob(world.node(0).core, acked)
    n = world.node(0).core
    assert n.records is not None
    for job in list(n.jobs.values()):
        n.records.add(job)
        n.records.holders(job)
    n.records.ack_job(n.jobs[acked])
    n.jobs[acked].state = ACTIVE
    n.records.add(n.jobs[acked])  # a late copy
    n.jobs[acked].state = ACKED
    late = n.jobs[id]
    held = late.holders
    n.records.add(late)
    world.settle()
    restart(world, 0)
    assert world.believed(0, id) == [0, 1, 2] and held.bit_count() == 3
    assert world.node(0).core.jobs[acked].state == ACKED
    world.forget_heard()
    world.link()
    world.pass_ms(5_000)
    assert world.node(0).core.jobs[id].state == QUEUED
    assert acked not in world.node(0).core.jobs
    assert [m for _, _, m in world.heard() if isinstance(m, SetAck | DelJob | Holders)]
