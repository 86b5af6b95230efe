"""SPEC K5.6, R6.2, K7.2, V4.3: nodes that have a copy know of each other, and act in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_a_stray import stray_ack
from test_k_repair import settle

from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.holders import note_gone, send_holders
from tuque.core.copies.rereplicate import examine, live_holders, send_repairs
from tuque.core.model.job import ACKED, ACTIVE, QUEUED
from tuque.core.msgs.bus import (
    Ask,
    GotJob,
    Holders,
    Lack,
    Left,
    SetAck,
    WillQueue,
)
from tuque.core.node.peers import say
from tuque.core.node.queue import PAUSE_IN
from tuque.core.queues.deliver import set_pause
from tuque.core.repair.drain import drain_left
from tuque.core.repair.node_loss import repair_left
from world import World

Make = Callable[..., World]


@pytest.mark.parametrize("word", ["ask", "willqueue"])
def test_holders_that_have_one_node_in_common_are_told(make_world: Make, word: str) -> None:
    """K5.6 When a holder learns of a job from a node that it did not know as a holder, it sends
    HOLDERS to that node and to the other holders.

    K5.6 One that learns of new holders, also of such that it presumed (K5.1), and knows of others
    that were not named, sends HOLDERS to these.
    """
    world = make_world(4, journal="off")
    id = world.at(0).add(replicate=4, retry=100)
    for i, known in ((0, (0, 1)), (1, (0, 1)), (2, (2, 3)), (3, (2, 3))):
        world.node(i).core.jobs[id].holders = sum(1 << world.slot(i, k) for k in known)
    message = Ask(1, [id], False, b"") if word == "ask" else WillQueue([id])
    say(world.node(2).core, world.slot(2, 0), message)
    world.settle()
    assert world.believed(0, id) == [0, 1, 2, 3], "2 knew of 3, and answered with that"
    assert [world.believed(i, id) for i in (1, 2, 3)] == [[0, 1, 2, 3]] * 3
    told = sum(isinstance(m, Holders) for _, _, m in world.heard())
    assert told <= 8
    world.restart(0)
    assert on_ackjob(world.node(1).core, id)
    world.settle()
    assert world.states(id)[1:] == [-1 if world.states(id)[3] == -1 else ACKED] * 3


@pytest.mark.parametrize("word", ["holders", "gotjob"])
def test_two_copies_that_were_made_at_the_same_time(make_world: Make, word: str) -> None:
    """K5.6 One that learns of new holders, also of such that it presumed (K5.1), and knows of
    others that were not named, sends HOLDERS to these.

    R3.1 If it was none, another node gave it the copy: K5.6."""
    world = make_world(4, journal="off")
    id = world.at(0).add(replicate=4, retry=5)
    for i, known in ((0, (0, 1, 3)), (1, (0, 1, 3)), (2, (2, 3)), (3, (2, 3))):
        world.node(i).core.jobs[id].holders = sum(1 << world.slot(i, k) for k in known)
    if word == "gotjob":
        say(world.node(1).core, world.slot(1, 3), GotJob([id]))
    else:
        send_holders(world.node(0).core, world.node(0).core.jobs[id], 1 << world.slot(0, 3))
    world.settle()
    assert world.believed(1, id) == [0, 1, 2, 3] and 1 in world.believed(2, id)
    world.restart(0)
    world.restart(3)
    world.pass_ms(12_000)
    assert sorted(world.states(id)[1:3]) == [ACTIVE, QUEUED]
    assert on_ackjob(world.node(2).core, id)
    world.settle()
    assert world.states(id)[1] in (ACKED, -1)


def test_a_holder_that_was_presumed_is_introduced(make_world: Make) -> None:
    """K5.6 One that learns of new holders, also of such that it presumed (K5.1), and knows of
    others that were not named, sends HOLDERS to these.
    """
    world = make_world(4, journal="off")
    id = world.at(0).add(replicate=4, retry=100)
    for i, known in ((0, (0, 1, 2, 3)), (1, (0, 1, 2)), (2, (1, 2)), (3, (0, 3))):
        world.node(i).core.jobs[id].holders = sum(1 << world.slot(i, k) for k in known)
    n = world.node(0).core
    note_gone(n, world.slot(0, 2), n.jobs[id])  # as of a node without a link
    send_holders(world.node(1).core, world.node(1).core.jobs[id], 1 << world.slot(1, 0))
    world.settle()
    assert [world.believed(i, id) for i in range(4)] == [[0, 1, 2, 3]] * 4


def test_a_copy_of_an_acked_job_is_collected_at_once(make_world: Make) -> None:
    """R3.1 If it was none, another node gave it the copy: K5.6. If the job is acked here, A2
    follows.
    """
    world = make_world(3, journal="off")
    world.isolate(2)
    id = world.at(0).add(replicate=2)
    world.isolate(1)
    assert on_ackjob(world.node(0).core, id)
    world.link(1, 2)
    world.node(1).core.jobs[id].repl = 3
    examine(world.node(1).core, world.node(1).core.jobs[id])
    world.pass_ms(5_000)
    assert id in world.node(2).core.jobs, "1 gave it a copy"
    world.link(0, 2)
    world.forget_heard()
    world.node(0).core.jobs[id].holders &= ~(1 << world.slot(0, 2))
    say(world.node(2).core, world.slot(2, 0), GotJob([id]))
    world.settle()
    assert [(a, b) for a, b, m in world.heard(SetAck)][:1] == [(0, 2)]
    assert world.states(id)[2] in (ACKED, -1)


@pytest.mark.parametrize("word", ["lack", "left", "later"])
def test_old_news_do_not_bring_a_lost_copy_back(make_world: Make, word: str) -> None:
    """K5.7 A node that another one still names as a holder of an ALO job, though it denied a
    copy within the last 60 s (LACK, LEFT), becomes one and is asked as in K5.2.
    """
    world = make_world(4, journal="off", seed=2)  # not the node 0 repairs the job (K5.3)
    world.isolate(3)
    id = world.at(0).add(replicate=3, retry=100)
    world.hold(1, 0)
    send_holders(world.node(1).core, world.node(1).core.jobs[id], 1 << world.slot(1, 0))
    world.settle()
    on_deljob(world.node(2).core, id)
    if word == "lack":
        say(world.node(0).core, world.slot(0, 2), Ask(1, [id], False, b""))
        say(world.node(2).core, world.slot(2, 0), Lack(0, [id]))
    else:
        say(world.node(2).core, world.slot(2, 0), Left([id]))
    world.settle()
    assert world.believed(0, id) == [0, 1]
    if word == "later":
        world.pass_ms(60_000)
    world.release(1, 0)
    if word == "later":
        assert world.believed(0, id) == [0, 1, 2], "nobody speaks of what was so long ago"
        return
    assert repair_left(world.node(0).core) == 1, "two copies of three"
    world.link()
    world.pass_ms(15_000)
    assert world.holders(id) == [0, 1, 3]
    assert world.believed(0, id) == [0, 1, 3]
    assert repair_left(world.node(0).core) == 0


def test_a_copy_that_came_again_is_believed(make_world: Make) -> None:
    """K5.7 becomes one and is asked as in K5.2"""
    world = make_world(3, journal="off", seed=2)  # not the node 0 repairs the job (K5.3)
    id = world.at(0).add(replicate=3, retry=100)
    say(world.node(2).core, world.slot(2, 0), Left([id]))  # and yet it has one
    world.hold(0, 2)
    world.settle()
    assert world.believed(0, id) == [0, 1]
    assert repair_left(world.node(0).core) == 1
    send_holders(world.node(1).core, world.node(1).core.jobs[id], 1 << world.slot(1, 0))
    world.settle()
    assert world.believed(0, id) == [0, 1, 2]
    assert repair_left(world.node(0).core) > 0, "it was asked"
    world.release(0, 2)
    world.pass_ms(5_000)
    assert repair_left(world.node(0).core) == 0
    assert [n.losses.repaired for n in world.cores] == [0, 0, 0]


@pytest.mark.parametrize("has_it", [True, False])
@pytest.mark.parametrize("word", ["repljob", "holders"])
def test_who_is_named_in_a_life_that_is_over_is_asked(
    make_world: Make, word: str, *, has_it: bool
) -> None:
    """K5.7 So does a node named in an older incarnation than the one known here that restarted
    with a journal.
    """
    world = make_world(3, journal="always")
    world.cut(0, 1)
    id = world.at(0).add(replicate=2, retry=100)
    assert world.holders(id) == [0, 2]
    if not has_it:
        on_deljob(world.node(2).core, id)
        world.settle()
    world.restart(2)
    set_pause(world.node(1).core, b"q", PAUSE_IN)
    world.link(1, 2)
    world.node(2).core.reachable = 0  # it makes no copies itself
    set_pause(world.node(1).core, b"q", 0)
    world.link(0, 1)  # node 0 has not met the new life of node 2
    n = world.node(0).core
    job, slot = n.jobs[id], world.slot(0, 1)
    if word == "holders":
        job.holders = 1
        send_repairs(n, job, [slot])
        world.settle()
        assert world.believed(1, id) == [0, 1]
        job.holders |= 1 << world.slot(0, 2)
        send_holders(n, job, 1 << slot)
    else:
        send_repairs(n, job, [slot])
    world.hold(1, 2)
    world.settle()
    other = world.node(1).core
    assert world.believed(1, id) == [0, 1, 2]
    assert not live_holders(other, other.jobs[id]) >> world.slot(1, 2) & 1, "nobody knows yet"
    world.release(1, 2)
    if not has_it:
        assert world.believed(1, id) == [0, 1]
        return
    assert live_holders(other, other.jobs[id]) >> world.slot(1, 2) & 1
    assert world.believed(2, id) == [0, 1, 2]
    world.isolate(0)
    assert on_ackjob(other, id)
    world.settle()
    assert world.states(id)[2] in (ACKED, -1), "it heard of the ack"


def test_two_that_know_the_same_say_nothing(make_world: Make) -> None:
    """K5.6 A node that gets HOLDERS for an open ALO job and knows of more holders answers with
    HOLDERS.
    """
    world = make_world(3, journal="off")
    id = world.at(0).add(replicate=3, retry=100)
    world.forget_heard()
    job = world.node(0).core.jobs[id]
    say(world.node(0).core, world.slot(0, 1), Holders(id, job.holders))
    world.settle()
    assert [m for _, _, m in world.heard(Holders)] == [Holders(id, job.holders)]


def test_who_leaves_names_the_copies_that_were_made_for_it(make_world: Make) -> None:
    """K7.2 Then a first delay that still runs continues at one of them (R8), HOLDERS with the
    nodes that have the job and LEFT go to all holders, to one without a link when it is linked
    again, and the job is unregistered with cause moved.
    """
    world = make_world(3, journal="off")
    world.cut(1, 2)
    id = world.at(2).add(replicate=2, retry=100)
    assert world.holders(id) == [0, 2]
    world.leave(0)
    world.pass_ms(5_000)
    assert world.holders(id) == [1, 2]
    assert [m for a, _, m in world.heard() if a == 0 and isinstance(m, Left)]
    assert world.believed(2, id) == [1, 2], "they cannot tell each other"


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_holder_that_was_away_hears_who_has_the_job_now(
    make_world: Make, *, is_linked: bool, is_stopped: bool
) -> None:
    """K7.2 Then a first delay that still runs continues at one of them (R8), HOLDERS with the
    nodes that have the job and LEFT go to all holders, to one without a link when it is linked
    again, and the job is unregistered with cause moved.

    K7.5 For an open ALO job the receiver sends HOLDERS to the other holders when their links
    come up again.
    """
    world = make_world(3, journal="off")
    world.at(2, 7).wait()
    id = world.at(0).add(retry=10, replicate=1)
    world.pass_ms(1_000)
    assert world.believed(0, id) == [0, 2]
    if is_linked:
        for other in (0, 1):
            world.hold(other, 2)
            world.hold(2, other)
            members = world.node(other).server.members
            two = members.by_id[world.machines[2].node_id]
            two.is_suspected = True
            members.reach(two)
    else:
        world.isolate(2)
    world.pass_ms(12_000)  # it is queued at 0, too
    world.leave(0)
    world.pass_ms(5_000)
    world.isolate(2)
    assert world.holders(id) == [1, 2] and drain_left(world.node(0).core) == 0
    on_ackjob(world.node(2).core, id)
    world.settle()
    if is_stopped:
        world.isolate(0)
        world.link(1, 2)
        world.forget(2, 0)  # as it hears from 1
    else:
        world.link(0, 2)
        world.beat()
        assert world.believed(2, id) == [0, 1, 2]
        assert world.holders(id) == [1, 2], "it waits for 1"
        world.link(1, 2)
    assert world.states(id) == [-1, -1, -1]


@pytest.mark.parametrize("how", ["reformatted", "forgotten"])
def test_who_may_have_the_job_of_a_node_that_is_gone_hears_of_the_ack(
    make_world: Make, how: str
) -> None:
    """K5.1 Each node without a link here may have got its open ALO jobs (K7.2): it becomes a
    holder of them and is asked as in K5.2. It does not count as a copy until it reports one.

    K6.2 The nodes that are not linked here become holders as in K5.1.
    """
    world = make_world(3, journal="always")
    world.at(2, 7).wait()
    id = world.at(0).add(replicate=1, retry=100)
    world.isolate(0)
    world.leave(2)
    world.pass_ms(5_000)
    assert world.copies(id) == [0, 1] and not world.node(2).core.jobs
    assert world.believed(0, id) == [0, 2]
    world.restart(2, "lost")  # safe to stop: its data is thrown away
    if how == "forgotten":
        world.forget(0, 2)
    else:
        world.link(0, 2)
    assert 1 in world.believed(0, id)
    assert on_ackjob(world.node(0).core, id)
    world.settle()
    for _ in range(3):
        world.beat()
    assert world.states(id)[0] == ACKED, "it waits for 1"
    world.link(0, 1)
    assert world.states(id) == [-1, -1, -1]


def test_who_may_have_the_job_of_a_node_that_is_gone_and_has_it_not(make_world: Make) -> None:
    """K5.2 LACK replies with the ids that are unknown there; its sender leaves the holders of these
    jobs."""
    world = make_world(4, journal="always")
    ids = [world.at(0).add(replicate=2, retry=100) for _ in range(9)]
    other = world.holders(ids[0])[1]
    away = 1 + other % 3
    third = 6 - other - away
    world.isolate(away)
    world.restart(other, "lost")
    world.link(0, other)
    world.link(other, third)
    assert settle(world) < 5_000
    assert len(world.copies(ids[0])) == 2, "the copy is made again, though one node is away"
    assert away in world.believed(0, ids[0])
    world.link()
    assert settle(world) < 5_000
    for id in ids:
        assert world.believed(0, id) == world.copies(id)


def test_a_holder_that_was_away_hears_who_left(make_world: Make) -> None:
    """K7.2 Then a first delay that still runs continues at one of them (R8), HOLDERS with the
    nodes that have the job and LEFT go to all holders, to one without a link when it is linked
    again, and the job is unregistered with cause moved.
    """
    world = make_world(3, journal="off")
    world.at(2, 7).wait()
    id = world.at(0).add(retry=100, replicate=1)
    world.pass_ms(1_000)
    assert world.believed(2, id) == [0, 2]
    world.isolate(2)
    world.leave(0)
    world.pass_ms(5_000)
    assert world.holders(id) == [1, 2]
    world.link(0, 2)
    assert world.believed(2, id) == [1, 2], "0 counts as a copy no more"


def test_who_has_heard_it_is_not_told_again(make_world: Make) -> None:
    """K7.2 Then a first delay that still runs continues at one of them (R8), HOLDERS with the
    nodes that have the job and LEFT go to all holders, to one without a link when it is linked
    again, and the job is unregistered with cause moved.
    """
    world = make_world(4, journal="off")
    id = world.at(0).add(retry=100, replicate=4)
    world.leave(0)
    world.until(lambda: world.holders(id) == [1, 2, 3])

    def told_again() -> set[tuple[int, int]]:
        world.forget_heard()
        world.isolate(3)
        world.link()
        return {(a, b) for a, b, m in world.heard(Holders)}

    assert {(0, 3), (1, 3), (2, 3)} <= told_again(), "no heartbeat was answered yet"
    world.beat()
    world.beat()
    assert told_again() == set()


@pytest.mark.parametrize("late", [1, 2])
def test_who_was_asked_first_and_has_its_copy_late_knows_the_others(
    make_world: Make, late: int
) -> None:
    """R6.2 The other nodes asked for a copy of an ALO job get HOLDERS too."""
    world = make_world(3, journal="off")
    world.node(0).core.is_leaving = True
    other = 3 - late
    world.cut(0, other)  # it is asked second
    world.hold(0, late)
    job = world.node(0).core.jobs[world.at(0, 1).begin_add(replicate=1, retry=10)]
    world.pass_ms(60)  # it was asked twice
    world.link(0, other)
    world.pass_ms(60)  # and is not asked again meanwhile
    assert world.copies(job.id) == [other]
    world.release(0, late)
    assert world.copies(job.id) == [1, 2]
    assert other in world.believed(late, job.id)
    assert on_ackjob(world.node(late).core, job.id)
    world.settle()
    assert world.copies(job.id) == []


def test_the_node_that_handed_a_job_out_acts_first(make_world: Make) -> None:
    """V4.3 The due time of an ALO job becomes now + retry + J."""
    for seed in range(20):
        world = make_world(3, journal="off")
        world.pass_ms(seed * 109)
        ids = [world.at(0).add(replicate=3, retry=10) for _ in range(5)]
        for id in ids:
            assert world.at(0).get() == [id]
        world.pass_ms(2_000)
        for id in ids:
            first, *others = (n.jobs[id].qtime_ms for n in world.cores)
            assert min(others) - first >= 50


def test_a_leaving_node_remembers_an_ack_until_others_have_it(make_world: Make) -> None:
    """A3.4 A leaving node makes the record, and is not safe to stop before the record has ended
    (K7.3): a node that it informed may die before it has recorded the ack.
    """
    world = make_world(2, journal="off")
    id = world.at(0).add(replicate=1, retry=1)
    world.cut(0, 1)
    world.node(1).core.is_leaving = True
    stray_ack(world, 1, id)
    assert world.node(1).core.strays and drain_left(world.node(1).core) == 1
    world.link(0, 1)
    world.pass_ms(3_000)
    assert world.at(0).get() == []
    assert world.states(id) == [-1, -1]
