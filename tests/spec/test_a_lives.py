"""SPEC A5.2, K2.3: what a node confirmed of an ack ends with the incarnation that said so."""

from __future__ import annotations

from cluster_lab import Lab, name_of
from tuque.core.copies.ack import on_ackjob
from tuque.core.copies.ack_gc import on_unknown_ack
from tuque.core.dispatch.messages import on_message
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.msgs import GotAck, Holders, Slots
from tuque.core.node.peers import introduce, say
from tuque.core.repair.node_loss import on_forget, on_incarnation

NEWER = 1 << 40  # an incarnation later than any that the lab makes


def half_done() -> tuple[Lab, bytes]:
    """A job with three copies that was acked at 0: 1 has confirmed it, 2 is away."""
    lab = Lab(3)
    id = lab.add(0, replicate=3)
    lab.isolate(2)
    assert on_ackjob(lab.nodes[0], id)
    lab.run()
    assert lab.nodes[0].jobs[id].confirmed >> lab.slot(0, 1) & 1
    return lab, id


def name_newer(lab: Lab, a: int, b: int) -> None:
    """Node 2 tells node a that it has met a later incarnation of node b."""
    on_message(lab.nodes[a], lab.slot(a, 2), Slots([(40, name_of(b), NEWER)]))


def test_a_holder_that_restarted_elsewhere_is_waited_for() -> None:
    """A5.2 A confirmation of a node in doubt does not count (K2.3)."""
    lab, id = half_done()
    lab.die(1)
    lab.link(1, 2)  # 0 has not met the new life of 1, to which 2 gives a copy once more
    lab.pass_ms(3_000)
    assert lab.states_of(id)[0] == ACKED
    assert lab.states_of(id)[1] in (ACTIVE, QUEUED)
    lab.link(0, 2)
    lab.run()
    assert lab.states_of(id)[0] == lab.states_of(id)[2] == ACKED
    lab.link(0, 1)
    lab.run()
    assert lab.holders_of(id) == []


def test_a_hello_ends_all_confirmations_at_once() -> None:
    """A5.2 A confirmation ends with the incarnation of its node: when the node appears in another
    incarnation, all its confirmations end before any other message of it is read, and SETACK is
    sent to it again (A6.2).
    """
    lab, id = half_done()
    n = lab.nodes[0]
    lab.die(1)
    lab.link(0, 1)
    lab.link(0, 2)
    on_message(n, lab.slot(0, 2), GotAck(id, True, 0))
    assert n.jobs[id].state == ACKED, "1 has not been asked again"
    lab.run()
    assert lab.holders_of(id) == []


def test_a_word_of_the_life_before_comes_late() -> None:
    """K2.3 The doubt ends when the node is met in another incarnation, or has replied to a
    heartbeat begun since: then the incarnation known here is the later one (K1.2)."""
    lab, id = half_done()
    n, slot = lab.nodes[0], lab.slot(0, 1)
    lab.link(0, 2)
    name_newer(lab, 0, 1)
    lab.run()
    on_message(n, slot, GotAck(id, True, 0))
    assert n.jobs[id].state == ACKED
    on_incarnation(n, slot, True, NEWER)
    assert n.jobs[id].state == ACKED
    on_message(n, slot, GotAck(id, True, 0))
    assert id not in n.jobs


def test_an_old_disk_is_the_later_life() -> None:
    """K2.3 The doubt ends when the node is met in another incarnation, or has replied to a
    heartbeat begun since: then the incarnation known here is the later one (K1.2)."""
    lab, id = half_done()
    lab.beat()
    lab.link(0, 2)
    name_newer(lab, 0, 1)
    lab.pass_ms(10_000)
    assert lab.states_of(id)[0] == ACKED
    lab.beat()
    lab.pass_ms(10_000)
    assert lab.holders_of(id) == []


def test_a_question_to_all_that_a_life_before_answered() -> None:
    """K2.3 A node that SLOTS named in a newer incarnation than the one known here is in doubt"""
    lab = Lab(3)
    n = lab.nodes[0]
    id = n.ids.make(600, 1)
    lab.isolate(2)
    on_unknown_ack(n, 1, id)
    lab.run()
    assert n.jobs[id].confirmed >> lab.slot(0, 1) & 1
    name_newer(lab, 0, 1)
    on_message(n, lab.slot(0, 2), GotAck(id, False, 0))
    assert id in n.jobs
    lab.beat()
    on_message(n, lab.slot(0, 2), GotAck(id, False, 0))
    assert id not in n.jobs


def test_who_was_forgotten_and_joins_again_is_asked() -> None:
    """K6.2 Acked jobs that this scan has not reached when the node joins again (K6.3) keep it, as
    not confirmed."""
    lab, id = half_done()
    n, slot = lab.nodes[0], lab.slot(0, 1)
    lab.die(1)
    on_forget(n, slot)
    n.forgotten &= ~(1 << slot)  # as Members does when it is met again
    lab.link(0, 1)
    lab.link(0, 2)
    on_message(n, lab.slot(0, 2), GotAck(id, True, 0))
    lab.hold(1, 0)
    lab.run()
    assert lab.states_of(id)[0] == ACKED
    lab.release(1, 0)
    lab.run()
    assert lab.holders_of(id) == []


def test_what_was_said_before_a_link_means_nothing_on_it() -> None:
    """K2.2 Before a message names a set, SLOTS says which node in which incarnation each number
    means.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=2)
    holder, other = sorted((1, 2), key=lambda i: id not in lab.nodes[i].jobs)
    n, slot = lab.nodes[0], lab.slot(0, holder)
    here, there = 1 | 1 << slot, 1 << lab.slot(0, other)
    on_message(n, slot, Slots([(40, name_of(other), 1)]))
    lab.cut(0, holder)
    lab.link(0, holder)
    on_message(n, slot, Holders(id, 1 << 40))
    assert n.jobs[id].holders == here, "the number was of the link before"
    on_message(n, slot, Slots([(40, name_of(other), 1)]))
    on_message(n, slot, Holders(id, 1 << 40))
    assert n.jobs[id].holders == here | there


def test_what_was_not_sent_before_a_link_broke_is_not_sent_later() -> None:
    """K2.2 Before a message names a set, SLOTS says which node in which incarnation each number
    means.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3)
    n, slot = lab.nodes[0], lab.slot(0, 1)
    lab.log.clear()
    introduce(n, slot, n.jobs[id].holders)
    assert say(n, slot, Holders(id, n.jobs[id].holders))  # and the link breaks in this turn
    lab.cut(0, 1)
    lab.link(0, 1)
    lab.run()
    told = [m for a, b, m in lab.log if (a, b) == (0, 1)]
    first = next((i for i, m in enumerate(told) if isinstance(m, Slots)), len(told))
    assert not any(isinstance(m, Holders) for m in told[:first]), "it does not know the numbers"
