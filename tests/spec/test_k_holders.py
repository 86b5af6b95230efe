"""SPEC K5.6, R6.2, K7.2, V4.3: nodes that have a copy know of each other, and act in turn."""

from __future__ import annotations

import pytest
from test_a_stray import stray_ack
from test_k_repair import settle

from cluster_lab import Kept, Lab, copies
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.holders import tell_holders
from tuque.core.copies.rereplicate import examine, live_holders, send_repairs
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.msgs import (
    Ask,
    GotJob,
    Holders,
    Lack,
    Left,
    SetAck,
    WillQueue,
)
from tuque.core.node.peers import say, set_reachable
from tuque.core.repair.drain import drain_left
from tuque.core.repair.node_loss import repair_left


def believed(lab: Lab, i: int, id: bytes) -> list[int]:
    """The nodes that node i believes to have a copy."""
    holders = lab.nodes[i].jobs[id].holders
    return [k for k in range(len(lab.nodes)) if holders >> lab.slot(i, k) & 1]


@pytest.mark.parametrize("word", ["ask", "willqueue"])
def test_holders_that_have_one_node_in_common_are_told(word: str) -> None:
    """K5.6 When a holder hears about a job from a node that it did not know as a holder, it sends
    HOLDERS to that node and to the other holders

    K5.6 A node that learns of new holders, and knows of others that were not named, sends
    HOLDERS to all of these.
    """
    lab = Lab(4)
    id = lab.add(0, replicate=4, retry_s=100)
    for i, known in ((0, (0, 1)), (1, (0, 1)), (2, (2, 3)), (3, (2, 3))):
        lab.nodes[i].jobs[id].holders = sum(1 << lab.slot(i, k) for k in known)
    message = Ask(1, [id], False, b"") if word == "ask" else WillQueue([id])
    say(lab.nodes[2], lab.slot(2, 0), message)
    lab.run()
    assert believed(lab, 0, id) == [0, 1, 2, 3], "2 knew of 3, and answered with that"
    assert [believed(lab, i, id) for i in (1, 2, 3)] == [[0, 1, 2, 3]] * 3
    told = sum(isinstance(m, Holders) for _, _, m in lab.log)
    assert told <= 8
    lab.die(0)
    assert on_ackjob(lab.nodes[1], id)
    lab.run()
    assert lab.states_of(id)[1:] == [-1 if lab.states_of(id)[3] == -1 else ACKED] * 3


@pytest.mark.parametrize("word", ["holders", "gotjob"])
def test_two_copies_that_were_made_at_the_same_time(word: str) -> None:
    """K5.6 A node that learns of new holders, and knows of others that were not named, sends
    HOLDERS to all of these.

    R3.1 If it was not a holder, another node gave it the copy: K5.6 applies.
    """
    lab = Lab(4)
    id = lab.add(0, replicate=4, retry_s=5)
    for i, known in ((0, (0, 1, 3)), (1, (0, 1, 3)), (2, (2, 3)), (3, (2, 3))):
        lab.nodes[i].jobs[id].holders = sum(1 << lab.slot(i, k) for k in known)
    if word == "gotjob":
        say(lab.nodes[1], lab.slot(1, 3), GotJob([id]))
    else:
        tell_holders(lab.nodes[0], lab.nodes[0].jobs[id], 1 << lab.slot(0, 3))
    lab.run()
    assert believed(lab, 1, id) == [0, 1, 2, 3] and 1 in believed(lab, 2, id)
    lab.die(0)
    lab.die(3)
    lab.pass_ms(12_000)
    assert sorted(lab.states_of(id)[1:3]) == [ACTIVE, QUEUED]
    assert on_ackjob(lab.nodes[2], id)
    lab.run()
    assert lab.states_of(id)[1] in (ACKED, -1)


def test_a_copy_of_an_acked_job_is_collected_at_once() -> None:
    """R3.1 If it was not a holder, another node gave it the copy: K5.6 applies. If the job is acked
    here, A2 follows.
    """
    lab = Lab(3)
    lab.isolate(2)
    id = lab.add(0, replicate=2)
    lab.isolate(1)
    assert on_ackjob(lab.nodes[0], id)
    lab.link(1, 2)
    lab.nodes[1].jobs[id].repl = 3
    examine(lab.nodes[1], lab.nodes[1].jobs[id])
    lab.pass_ms(5_000)
    assert id in lab.nodes[2].jobs, "1 gave it a copy"
    lab.link(0, 2)
    lab.run()
    lab.log.clear()
    lab.nodes[0].jobs[id].holders &= ~(1 << lab.slot(0, 2))
    say(lab.nodes[2], lab.slot(2, 0), GotJob([id]))
    lab.run()
    assert [(a, b) for a, b, m in lab.log if isinstance(m, SetAck)][:1] == [(0, 2)]
    assert lab.states_of(id)[2] in (ACKED, -1)


@pytest.mark.parametrize("word", ["lack", "left", "later"])
def test_old_news_do_not_bring_a_lost_copy_back(word: str) -> None:
    """K5.7 If a node denied within the last 60 s that it has a copy of an ALO job (LACK, LEFT), and
    another node still names it as a holder, it becomes one and is asked as in K5.2: the other node
    may not know of the denial."""
    lab = Lab(4)
    lab.isolate(3)
    id = lab.add(0, replicate=3, retry_s=100)
    lab.hold(1, 0)
    tell_holders(lab.nodes[1], lab.nodes[1].jobs[id], 1 << lab.slot(1, 0))
    lab.run()
    on_deljob(lab.nodes[2], id)
    if word == "lack":
        say(lab.nodes[0], lab.slot(0, 2), Ask(1, [id], False, b""))
        say(lab.nodes[2], lab.slot(2, 0), Lack(0, [id]))
    else:
        say(lab.nodes[2], lab.slot(2, 0), Left([id]))
    lab.run()
    assert believed(lab, 0, id) == [0, 1]
    if word == "later":
        lab.pass_ms(60_000)
    lab.release(1, 0)
    lab.run()
    if word == "later":
        assert believed(lab, 0, id) == [0, 1, 2], "nobody speaks of what was so long ago"
        return
    assert repair_left(lab.nodes[0]) == 1, "two copies of three"
    lab.heal()
    lab.pass_ms(15_000)
    assert lab.holders_of(id) == [0, 1, 3]
    assert believed(lab, 0, id) == [0, 1, 3]
    assert repair_left(lab.nodes[0]) == 0


def test_a_copy_that_came_again_is_believed() -> None:
    """K5.7 becomes one and is asked as in K5.2"""
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=100)
    say(lab.nodes[2], lab.slot(2, 0), Left([id]))  # and yet it has one
    lab.hold(0, 2)
    lab.run()
    assert believed(lab, 0, id) == [0, 1]
    assert repair_left(lab.nodes[0]) == 1
    tell_holders(lab.nodes[1], lab.nodes[1].jobs[id], 1 << lab.slot(1, 0))
    lab.run()
    assert believed(lab, 0, id) == [0, 1, 2]
    assert repair_left(lab.nodes[0]) > 0, "it was asked"
    lab.release(0, 2)
    lab.pass_ms(5_000)
    assert repair_left(lab.nodes[0]) == 0
    assert [n.losses.repaired for n in lab.nodes] == [0, 0, 0]


@pytest.mark.parametrize("has_it", [True, False])
@pytest.mark.parametrize("word", ["repljob", "holders"])
def test_who_is_named_in_a_life_that_is_over_is_asked(word: str, *, has_it: bool) -> None:
    """K5.7 The same holds for a node that is named in an older incarnation than the one known here
    and that restarted with a journal: the naming node may have met it last before that, be the only
    one that knows both, and die."""
    lab = Lab(3, has_journal=True)
    lab.cut(0, 1)
    id = lab.add(0, replicate=2, retry_s=100)
    assert lab.holders_of(id) == [0, 2]
    if not has_it:
        on_deljob(lab.nodes[2], id)
        lab.run()
    lab.die(2)
    lab.link(1, 2)
    lab.nodes[2].reachable = 0  # it makes no copies itself
    lab.link(0, 1)  # node 0 has not met the new life of node 2
    n = lab.nodes[0]
    job, slot = n.jobs[id], lab.slot(0, 1)
    if word == "holders":
        job.holders = 1
        send_repairs(n, job, [slot])
        lab.run()
        assert believed(lab, 1, id) == [0, 1]
        job.holders |= 1 << lab.slot(0, 2)
        tell_holders(n, job, 1 << slot)
    else:
        send_repairs(n, job, [slot])
    lab.hold(1, 2)
    lab.run()
    other = lab.nodes[1]
    assert believed(lab, 1, id) == [0, 1, 2]
    assert not live_holders(other, other.jobs[id]) >> lab.slot(1, 2) & 1, "nobody knows yet"
    lab.release(1, 2)
    lab.run()
    if not has_it:
        assert believed(lab, 1, id) == [0, 1]
        return
    assert live_holders(other, other.jobs[id]) >> lab.slot(1, 2) & 1
    assert believed(lab, 2, id) == [0, 1, 2]
    lab.isolate(0)
    assert on_ackjob(other, id)
    lab.run()
    assert lab.states_of(id)[2] in (ACKED, -1), "it heard of the ack"


def test_two_that_know_the_same_say_nothing() -> None:
    """K5.6 A node that gets HOLDERS for an open ALO job and knows of more holders answers with
    HOLDERS.
    """
    lab = Lab(3)
    id = lab.add(0, replicate=3, retry_s=100)
    lab.log.clear()
    job = lab.nodes[0].jobs[id]
    say(lab.nodes[0], lab.slot(0, 1), Holders(id, job.holders))
    lab.run()
    assert [m for _, _, m in lab.log if isinstance(m, Holders)] == [Holders(id, job.holders)]


def test_who_leaves_names_the_copies_that_were_made_for_it() -> None:
    """K7.2 Then a first delay that still runs continues at one of them (R8), HOLDERS with the nodes
    that have the job and LEFT go to all holders, and the job is unregistered with cause moved."""
    lab = Lab(3)
    lab.cut(1, 2)
    id = lab.add(2, replicate=2, retry_s=100)
    assert lab.holders_of(id) == [0, 2]
    lab.leave(0)
    lab.pass_ms(5_000)
    assert lab.holders_of(id) == [1, 2]
    assert [m for a, _, m in lab.log if a == 0 and isinstance(m, Left)]
    assert believed(lab, 2, id) == [1, 2], "they cannot tell each other"


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_holder_that_was_away_hears_who_has_the_job_now(
    *, is_linked: bool, is_stopped: bool
) -> None:
    """K7.2 A holder that missed HOLDERS and LEFT, because it had no link, gets both when it is
    linked again: it may have acked the job, and must not take it as over while an unknown node has
    a copy.

    K7.5 For an open ALO job, the receiver sends HOLDERS to the other holders when their links come
    up again: the sender may be stopped by then."""
    lab = Lab(3)
    lab.wait(2)
    id = lab.add(0, retry_s=10, replicate=1)
    lab.pass_ms(1_000)
    assert believed(lab, 0, id) == [0, 2]
    if is_linked:
        for other in (0, 1):
            lab.hold(other, 2)
            lab.hold(2, other)
            set_reachable(lab.nodes[other], lab.slot(other, 2), False)
    else:
        lab.isolate(2)
    lab.pass_ms(12_000)  # it is queued at 0, too
    lab.leave(0)
    lab.pass_ms(5_000)
    lab.isolate(2)
    assert lab.holders_of(id) == [1, 2] and drain_left(lab.nodes[0]) == 0
    on_ackjob(lab.nodes[2], id)
    lab.run()
    if is_stopped:
        lab.isolate(0)
        lab.link(1, 2)
        lab.run()
        lab.forget(2, 0)  # as it hears from 1
    else:
        lab.link(0, 2)
        lab.run()
        lab.beat()
        assert believed(lab, 2, id) == [0, 1, 2]
        assert lab.holders_of(id) == [1, 2], "it waits for 1"
        lab.link(1, 2)
    lab.run()
    assert lab.states_of(id) == [-1, -1, -1]


@pytest.mark.parametrize("how", ["reformatted", "forgotten"])
def test_who_may_have_the_job_of_a_node_that_is_gone_hears_of_the_ack(how: str) -> None:
    """K5.1 Each node without a link becomes a holder of the job and is asked as in K5.2. It does
    not count as a copy until it says that it has one. Otherwise this node could end the job while
    another one still has a copy.

    K6.2 The nodes that are not linked here become holders as in K5.1.
    """
    lab = Lab(3, has_journal=True)
    lab.wait(2)
    id = lab.add(0, replicate=1, retry_s=100)
    lab.isolate(0)
    lab.leave(2)
    lab.pass_ms(5_000)
    assert copies(lab, id) == [0, 1] and drain_left(lab.nodes[2]) == 0
    assert believed(lab, 0, id) == [0, 2]
    lab.journals[2] = Kept(2)  # safe to stop: its data is thrown away
    lab.die(2)
    if how == "forgotten":
        lab.forget(0, 2)
    else:
        lab.link(0, 2)
    lab.run()
    assert 1 in believed(lab, 0, id)
    assert on_ackjob(lab.nodes[0], id)
    lab.run()
    for _ in range(3):
        lab.beat()
    assert lab.states_of(id)[0] == ACKED, "it waits for 1"
    lab.link(0, 1)
    lab.run()
    assert lab.states_of(id) == [-1, -1, -1]


def test_who_may_have_the_job_of_a_node_that_is_gone_and_has_it_not() -> None:
    """K5.2 LACK replies with the ids that are unknown there; its sender leaves the holders of these
    jobs."""
    lab = Lab(4, has_journal=True)
    ids = [lab.add(0, replicate=2, retry_s=100) for _ in range(9)]
    other = lab.holders_of(ids[0])[1]
    away = 1 + other % 3
    third = 6 - other - away
    lab.isolate(away)
    lab.journals[other] = Kept(other)
    lab.die(other)
    lab.link(0, other)
    lab.link(other, third)
    assert settle(lab) < 5_000
    assert len(copies(lab, ids[0])) == 2, "the copy is made again, though one node is away"
    assert away in believed(lab, 0, ids[0])
    lab.heal()
    lab.run()
    assert settle(lab) < 5_000
    for id in ids:
        assert believed(lab, 0, id) == copies(lab, id)


def test_a_holder_that_was_away_hears_who_left() -> None:
    """K7.2 A holder that missed HOLDERS and LEFT, because it had no link, gets both when it is
    linked again: it may have acked the job, and must not take it as over while an unknown node has
    a copy."""
    lab = Lab(3)
    lab.wait(2)
    id = lab.add(0, retry_s=100, replicate=1)
    lab.pass_ms(1_000)
    assert believed(lab, 2, id) == [0, 2]
    lab.isolate(2)
    lab.leave(0)
    lab.pass_ms(5_000)
    assert lab.holders_of(id) == [1, 2]
    lab.link(0, 2)
    lab.run()
    assert believed(lab, 2, id) == [1, 2], "0 counts as a copy no more"


def test_who_has_heard_it_is_not_told_again() -> None:
    """K7.2 A holder that missed HOLDERS and LEFT, because it had no link, gets both when it is
    linked again: it may have acked the job, and must not take it as over while an unknown node has
    a copy."""
    lab = Lab(4)
    id = lab.add(0, retry_s=100, replicate=4)
    lab.leave(0)
    lab.pass_ms(5_000)
    assert lab.holders_of(id) == [1, 2, 3]

    def told_again() -> set[tuple[int, int]]:
        lab.log.clear()
        lab.isolate(3)
        lab.heal()
        lab.run()
        return {(a, b) for a, b, m in lab.log if isinstance(m, Holders)}

    assert {(0, 3), (1, 3), (2, 3)} <= told_again(), "no heartbeat was answered yet"
    lab.beat()
    lab.beat()
    assert told_again() == set()


@pytest.mark.parametrize("late", [1, 2])
def test_who_was_asked_first_and_has_its_copy_late_knows_the_others(late: int) -> None:
    """R6.2 The other nodes that were asked for a copy of an ALO job get HOLDERS too. Otherwise a
    node whose copy arrives late would know only this node, and would end the job alone.
    """
    lab = Lab(3)
    lab.nodes[0].is_leaving = True
    other = 3 - late
    lab.cut(0, other)  # it is asked second
    lab.hold(0, late)
    job, refused = lab.try_add(0, b"q", replicate=1, retry_s=10)
    assert job is not None, refused
    lab.pass_ms(60)  # it was asked twice
    lab.link(0, other)
    lab.pass_ms(60)  # and is not asked again meanwhile
    assert copies(lab, job.id) == [other]
    lab.release(0, late)
    lab.run()
    assert copies(lab, job.id) == [1, 2]
    assert other in believed(lab, late, job.id)
    assert on_ackjob(lab.nodes[late], job.id)
    lab.run()
    assert copies(lab, job.id) == []


def test_the_node_that_handed_a_job_out_acts_first() -> None:
    """V4.3 The due time of an ALO job becomes now + retry + J: the retry clock starts at the
    delivery."""
    for seed in range(20):
        lab = Lab(3)
        lab.now_ms += seed * 1_009
        ids = [lab.add(0, replicate=3, retry_s=10) for _ in range(5)]
        for id in ids:
            assert lab.get(0) == [id]
        lab.pass_ms(2_000)
        for id in ids:
            first, *others = (n.jobs[id].qtime_ms for n in lab.nodes)
            assert min(others) - first >= 50


def test_a_leaving_node_remembers_an_ack_until_others_have_it() -> None:
    """A3.4 A leaving node makes the record, and is not safe to stop before the record has ended
    (K7.3): a node that it informed may die before it has recorded the ack.
    """
    lab = Lab(2)
    id = lab.add(0, replicate=1, retry_s=1)
    lab.cut(0, 1)
    lab.nodes[1].is_leaving = True
    stray_ack(lab, 1, id)
    assert lab.nodes[1].strays and drain_left(lab.nodes[1]) == 1
    lab.link(0, 1)
    lab.pass_ms(3_000)
    assert lab.get(0) == []
    assert lab.states_of(id) == [-1, -1]
