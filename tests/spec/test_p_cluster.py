"""SPEC P with several nodes: PAUSE ... BCAST."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_a_cluster import sent

from tuque.core.copies.federation import PAUSES_MAX, pause_queue
from tuque.core.dispatch.restore import restore_pause
from tuque.core.msgs.bus import NeedJobs, Pause
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from world import World

Make = Callable[..., World]


@pytest.fixture
def world(make_world: Make) -> World:
    """One node with a journal."""
    return make_world(journal="always")


def pause(world: World, i: int, bits: int, *, bcast: bool = True) -> None:
    """PAUSE q at node i."""
    world.pass_ms(1)
    pause_queue(world.node(i).core, b"q", bits, bcast)
    world.settle()


def pauses(world: World) -> list[int]:
    """The state of q at each node."""
    queues = [n.queues.get(b"q") for n in world.cores]
    return [0 if q is None else int(q.pause) for q in queues]


def test_broadcast_reaches_every_node(make_world: Make) -> None:
    """P1.7 (cluster) With `bcast` PAUSE goes to every linked node, even if no other word changes
    the state.
    """
    world = make_world(3, journal="off")
    pause(world, 0, PAUSE_IN, bcast=False)
    assert pauses(world) == [PAUSE_IN, 0, 0]
    pause(world, 0, PAUSE_IN)
    assert pauses(world) == [PAUSE_IN] * 3
    assert sent(world, Pause) == [(0, 1), (0, 2)]
    pause(world, 2, 0)
    assert pauses(world) == [0] * 3


def test_later_nodes_are_told(make_world: Make) -> None:
    """P1.8 (cluster) PAUSE is sent again whenever a link comes up, with the instant of the command,
    so that nodes that were away or join later get it too. The journal records that a pause was
    broadcast.
    """
    world = make_world(3, journal="off")
    world.isolate(2)
    pause(world, 0, PAUSE_OUT)
    world.restart(1)
    world.link()
    world.settle()
    assert pauses(world) == [PAUSE_OUT, PAUSE_OUT, PAUSE_OUT]
    world.isolate(1)
    pause(world, 0, 0)
    assert pauses(world) == [0, PAUSE_OUT, 0]
    world.isolate(0)
    world.link()
    world.settle()
    assert pauses(world) == [0, 0, 0]


def test_a_restart_keeps_that_it_was_for_all(world: World) -> None:
    """P1.8 The journal records that a pause was broadcast."""
    world.run("PAUSE", "q", "in", "bcast")
    world.run("PAUSE", "r", "out")
    for _ in range(2):
        world.restart(how="stop")
        assert world.run("PAUSE", "q", "state") == b"in"
        assert world.run("PAUSE", "r", "state") == b"out"
        pauses = world.n.pauses
        assert [name for name, told in pauses.items() if told.is_bcast] == [b"q"]
        world.rewrite()


@pytest.mark.parametrize("bits", [PAUSE_IN, PAUSE_OUT])
def test_who_is_paused_does_not_ask(make_world: Make, bits: int) -> None:
    """P2.3 A node does not ask for jobs of a queue whose input or output it has paused."""
    world = make_world(2, journal="off")
    pause(world, 0, bits, bcast=False)
    world.at(0).wait()
    assert sent(world, NeedJobs) == []
    world.at(1).add(replicate=1)
    world.pass_ms(60_000)
    assert world.at(0).served() == []
    assert sent(world, NeedJobs) == []
    pause(world, 0, 0, bcast=False)
    assert len(world.at(0).served()) == 1


def test_paused_out_gives_nothing(make_world: Make) -> None:
    """P2.3 With a paused output the node gives nothing for NEEDJOBS. A node does not ask for jobs
    of a queue whose input or output it has paused.
    """
    world = make_world(2, journal="off")
    id = world.at(1).add(replicate=1)
    pause(world, 1, PAUSE_OUT, bcast=False)
    world.at(0).wait()
    world.pass_ms(60_000)
    assert world.holders(id) == [1]
    pause(world, 1, 0, bcast=False)
    assert world.at(0).served() == [id]


def test_it_is_not_sent_on(make_world: Make) -> None:
    """P3.1 (cluster) On a PAUSE of another node the state is replaced as in P1. It is not
    forwarded, but sent to nodes that link later (P1.8).
    """
    world = make_world(3, journal="off")
    world.cut(0, 2)
    pause(world, 0, PAUSE_IN)
    assert pauses(world) == [PAUSE_IN, PAUSE_IN, 0]
    assert sent(world, Pause) == [(0, 1)]
    world.cut(1, 2)
    world.link(1, 2)
    world.settle()
    assert pauses(world) == [PAUSE_IN] * 3


def test_the_last_command_counts(make_world: Make) -> None:
    """P3.2 A PAUSE older than the last one of that queue here, local ones included, changes
    nothing."""
    world = make_world(3, journal="off")
    pause(world, 0, PAUSE_IN)
    pause(world, 1, 0, bcast=False)
    world.isolate(0)
    world.link()
    world.settle()
    assert pauses(world) == [PAUSE_IN, 0, PAUSE_IN]
    world.hold(0, 1)
    pause(world, 0, PAUSE_OUT)
    pause(world, 2, PAUSE_IN | PAUSE_OUT)
    world.release(0, 1)
    world.settle()
    assert pauses(world) == [PAUSE_IN | PAUSE_OUT] * 3


def test_a_pause_from_before_the_restart_is_the_oldest(make_world: Make) -> None:
    """P3.2 A PAUSE older than the last one of that queue here, local ones included, changes
    nothing."""
    world = make_world(2, journal="off")
    world.isolate(0)
    restore_pause(world.node(0).core, b"q", PAUSE_IN | 4, 0)
    pause(world, 1, PAUSE_OUT)
    world.link()
    world.settle()
    assert pauses(world) == [PAUSE_OUT, PAUSE_OUT]


def set_ahead(world: World, i: int) -> None:
    """The clock of the node is a day ahead of the others, as its next PAUSE will be."""
    world.node(i).core.last_ctime_ns = (world.now_ms + 86_400_000) * 1_000_000


def test_a_pause_is_ended_by_a_node_whose_clock_is_behind(make_world: Make) -> None:
    """P1.9 (cluster) The instant of a PAUSE comes from the clock of its node, but is always later
    than that of the last PAUSE of that queue known there. So a node whose clock is behind can end a
    pause.
    """
    world = make_world(3, journal="off")
    set_ahead(world, 0)
    pause(world, 0, PAUSE_OUT)
    pause(world, 1, 0)
    assert pauses(world) == [0, 0, 0]
    for i in range(3):
        world.isolate(i)
        world.link()
        world.settle()
        assert pauses(world) == [0, 0, 0]


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_the_instant_of_a_pause_is_in_the_journal(make_world: Make, *, is_rewritten: bool) -> None:
    """P1.9 The journal keeps the instant, also that of a command that ended a pause."""
    world = make_world(3, journal="always")
    set_ahead(world, 0)
    pause(world, 0, PAUSE_OUT)
    if is_rewritten:
        world.rewrite(1)
    world.restart(1)
    pause(world, 1, 0, bcast=False)  # before it has met the others again
    assert pauses(world) == [PAUSE_OUT, 0, PAUSE_OUT]
    for _ in range(2):
        world.link()
        assert pauses(world) == [PAUSE_OUT, 0, PAUSE_OUT]
        if is_rewritten:
            world.rewrite(1)
        world.restart(1)
    world.link()
    world.isolate(2)
    pause(world, 1, 0)
    assert pauses(world) == [0, 0, PAUSE_OUT]
    for i in (0, 1):
        world.restart(i)
        world.link()
    assert pauses(world) == [0, 0, 0], "the last one counts though all that heard it started anew"


def test_ends_of_pauses_are_dropped_above_the_limit_and_pauses_are_not(world: World) -> None:
    for i in range(PAUSES_MAX):
        pause_queue(world.n, b"paused %d" % i, PAUSE_IN, False)
    for i in range(20):
        pause_queue(world.n, b"open %d" % i, 0, False)
    assert len(world.n.pauses) <= PAUSES_MAX + 1
    assert all(world.n.pauses[b"paused %d" % i].bits == PAUSE_IN for i in range(PAUSES_MAX))
    pause_queue(world.n, b"paused 7", 0, False)
    pause_queue(world.n, b"one more", PAUSE_IN, False)
    assert b"paused 7" not in world.n.pauses


def test_the_end_of_a_pause_is_kept_where_there_was_none(world: World) -> None:
    """P1.9 The journal keeps the instant, also that of a command that ended a pause."""
    world.run("PAUSE", "q", "none", "bcast")
    before = world.n.pauses[b"q"].stamp_ns
    world.restart(how="stop")
    assert world.n.pauses[b"q"].stamp_ns == before


def test_instants_do_not_move_with_the_clock(world: World) -> None:
    """P1.9 It does not move when the clock jumps (J5.8), because it is compared with the instants
    of other nodes.
    """
    world.run("PAUSE", "q", "in", "bcast")
    before = world.n.pauses[b"q"].stamp_ns
    assert before > 0
    world.restart(how="stop", jump_ms=86_400_000)
    assert world.n.pauses[b"q"].stamp_ns == before
    assert world.run("PAUSE", "q", "state") == b"in"


def test_flushall_forgets_pauses(world: World) -> None:
    """S7.1 The pauses of these queues are forgotten here."""
    world.run("PAUSE", "q", "in", "bcast")
    world.run("PAUSE", "r", "out")
    world.rewrite()
    assert world.run("DEBUG", "FLUSHALL") == b"OK"
    for _ in range(2):
        assert world.n.pauses == {}
        assert world.run("PAUSE", "q", "state") == b"none"
        world.restart(how="stop")


def test_a_pause_that_came_while_the_journal_was_loaded_is_later(make_world: Make) -> None:
    """P3.2 A PAUSE older than the last one of that queue here, local ones included, changes
    nothing."""
    world = make_world(2, journal="off")
    pause(world, 0, PAUSE_OUT)
    restore_pause(world.node(1).core, b"q", PAUSE_IN | 4, world.now_ms)
    assert pauses(world) == [PAUSE_OUT, PAUSE_OUT]


@pytest.mark.parametrize("other", [0, PAUSE_IN])
def test_of_two_of_one_instant_one_counts_everywhere(make_world: Make, other: int) -> None:
    """P3.2 If two have the same instant, every node keeps that which pauses more."""
    world = make_world(4, journal="off")
    set_ahead(world, 0)
    pause(world, 0, PAUSE_IN)
    world.cut(0, 1)
    world.cut(0, 3)
    world.cut(2, 1)
    world.cut(2, 3)
    pause(world, 0, other)
    pause(world, 1, PAUSE_OUT)
    assert pauses(world) == [other, PAUSE_OUT, other, PAUSE_OUT]
    world.link()
    world.settle()
    assert pauses(world) == [PAUSE_OUT] * 4
