"""SPEC A5.2, K2.3: what a node confirmed of an ack ends with the incarnation that said so."""

from __future__ import annotations

from collections.abc import Callable

from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.ack_gc import on_unknown_ack
from tuque.core.dispatch.messages import on_message
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.msgs.bus import GotAck, Holders, Slots
from tuque.core.node.peers import introduce, say
from tuque.core.repair.node_loss import on_forget, on_incarnation
from world import World
from world_machines import name_of

Make = Callable[..., World]

NEWER = 1 << 61  # an incarnation later than any that the world makes


def half_done(make_world: Make) -> tuple[World, bytes]:
    """A job with three copies that was acked at 0: 1 has confirmed it, 2 is away."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3)
    world.isolate(2)
    assert on_ackjob(world.node(0).core, id)
    world.settle()
    assert world.node(0).core.jobs[id].confirmed >> world.slot(0, 1) & 1
    return world, id


def name_newer(world: World, a: int, b: int) -> None:
    """Node 2 tells node a that it has met a later incarnation of node b."""
    on_message(world.node(a).core, world.slot(a, 2), Slots([(40, name_of(b), NEWER)]))


def test_a_holder_that_restarted_elsewhere_is_waited_for(make_world: Make) -> None:
    """A5.2 That of a node in doubt does not count (K2.3)."""
    world, id = half_done(make_world)
    world.restart(1)
    world.link(1, 2)  # 0 has not met the new life of 1, to which 2 gives a copy once more
    world.pass_ms(3_000)
    assert world.states(id)[0] == ACKED
    assert world.states(id)[1] in (ACTIVE, QUEUED)
    world.link(0, 2)
    assert world.states(id)[0] == world.states(id)[2] == ACKED
    world.link(0, 1)
    assert world.holders(id) == []


def test_a_hello_ends_all_confirmations_at_once(make_world: Make) -> None:
    """A5.2 A confirmation ends with the incarnation of its node, before any other message of the
    next one is read; SETACK is sent to it again (A6.2).
    """
    world, id = half_done(make_world)
    n = world.node(0).core
    world.restart(1)
    world.join(0, 1)
    world.hold(1, 0)
    world.join(0, 2)
    on_message(n, world.slot(0, 2), GotAck(id, True, 0))
    assert n.jobs[id].state == ACKED, "1 has not answered again"
    world.release(1, 0)
    assert world.holders(id) == []


def test_a_word_of_the_life_before_comes_late(make_world: Make) -> None:
    """K2.3 The doubt ends when the node is met in another incarnation, or has replied to a
    heartbeat begun since (K1.2).
    """
    world, id = half_done(make_world)
    n, slot = world.node(0).core, world.slot(0, 1)
    world.join(0, 2)
    name_newer(world, 0, 1)
    world.settle()
    on_message(n, slot, GotAck(id, True, 0))
    assert n.jobs[id].state == ACKED
    on_incarnation(n, slot, True, NEWER)
    assert n.jobs[id].state == ACKED
    on_message(n, slot, GotAck(id, True, 0))
    assert id not in n.jobs


def test_an_old_disk_is_the_later_life(make_world: Make) -> None:
    """K2.3 The doubt ends when the node is met in another incarnation, or has replied to a
    heartbeat begun since (K1.2).
    """
    world, id = half_done(make_world)
    world.beat()
    world.join(0, 2)
    name_newer(world, 0, 1)
    world.hold(1, 0)
    world.pass_ms(10_000)
    assert world.states(id)[0] == ACKED
    world.release(1, 0)
    world.pass_ms(10_000)
    assert world.holders(id) == []


def test_a_question_to_all_that_a_life_before_answered(make_world: Make) -> None:
    """K2.3 A node that SLOTS named in a newer incarnation than the one known here is in doubt"""
    world = make_world(3, journal="off")
    n = world.node(0).core
    id = n.ids.make(600, 1)
    world.isolate(2)
    on_unknown_ack(n, 1, id)
    world.settle()
    assert n.jobs[id].confirmed >> world.slot(0, 1) & 1
    name_newer(world, 0, 1)
    on_message(n, world.slot(0, 2), GotAck(id, False, 0))
    assert id in n.jobs
    world.beat()
    on_message(n, world.slot(0, 2), GotAck(id, False, 0))
    assert id not in n.jobs


def test_who_was_forgotten_and_joins_again_is_asked(make_world: Make) -> None:
    """K6.2 Acked jobs that this scan has not reached when the node joins again (K6.3) keep it, as
    not confirmed."""
    world, id = half_done(make_world)
    n, slot = world.node(0).core, world.slot(0, 1)
    world.restart(1)
    on_forget(n, slot)
    n.forgotten &= ~(1 << slot)  # as Members does when it is met again
    world.join(0, 1)
    world.hold(1, 0)
    world.join(0, 2)
    on_message(n, world.slot(0, 2), GotAck(id, True, 0))
    world.settle()
    assert world.states(id)[0] == ACKED
    world.release(1, 0)
    assert world.holders(id) == []


def test_what_was_said_before_a_link_means_nothing_on_it(make_world: Make) -> None:
    """K2.2 Before a message names a set, SLOTS names the node and incarnation of each number."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=2)
    holder, other = sorted((1, 2), key=lambda i: id not in world.node(i).core.jobs)
    n, slot = world.node(0).core, world.slot(0, holder)
    life = n.lives[world.slot(0, other)]
    here, there = 1 | 1 << slot, 1 << world.slot(0, other)
    on_message(n, slot, Slots([(40, name_of(other), life)]))
    world.cut(0, holder)
    world.link(0, holder)
    on_message(n, slot, Holders(id, 1 << 40))
    assert n.jobs[id].holders == here, "the number was of the link before"
    on_message(n, slot, Slots([(40, name_of(other), life)]))
    on_message(n, slot, Holders(id, 1 << 40))
    assert n.jobs[id].holders == here | there


def test_what_was_not_sent_before_a_link_broke_is_not_sent_later(make_world: Make) -> None:
    """K2.2 Before a message names a set, SLOTS names the node and incarnation of each number."""
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3)
    n, slot = world.node(0).core, world.slot(0, 1)
    world.forget_heard()
    introduce(n, slot, n.jobs[id].holders)
    assert say(n, slot, Holders(id, n.jobs[id].holders))  # and the link breaks in this turn
    world.cut(0, 1)
    world.link(0, 1)
    told = [m for a, b, m in world.heard() if (a, b) == (0, 1)]
    first = next((i for i, m in enumerate(told) if isinstance(m, Slots)), len(told))
    assert not any(isinstance(m, Holders) for m in told[:first]), "it does not know the numbers"
