"""Homes that move as planned, because of read-only or leaving nodes, or wait (SPEC T19, T20)."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import combinations

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld, voting

from refusals import refused
from tuque.core.node.node import HOME_MOVED
from tuque.core.queues.deliver import serve_ready
from tuque.core.repair.drain import drain_left
from tuque.server.replies.errors import iproto_words, resp_words
from tuque.tubes.leadership.switchover import begin_move
from tuque.tubes.log.leader import set_read_only, state_of_node
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.model.options import PutSpec
from tuque.tubes.model.tube import WAITING
from tuque.tubes.tasks import admin, operations, sessions
from tuque.tubes.tasks.sessions import identify


def test_who_waits_is_told_the_same() -> None:
    """T17.3 Clients that wait when the leadership moves get it too."""
    world = voting()
    world.make(0, b"limfifottl", capacity=1)
    n, t, tube = world.nodes[0].core, world.t(0), world.tube(0)
    world.put(0)
    spec = PutSpec()
    spec.timeout_ms = 5000
    assert operations.put(n, t, tube, b"late", 0, spec, 3, 9) is None
    assert world.take(0) is not None
    operations.wait(n, t, tube, 4, 0)
    world.ask(0, begin_move, tube, world.slot(0, 1))
    serve_ready(n)
    (wake,) = n.wakes
    n.wakes = []
    assert (wake.client, wake.why, wake.queue) == (4, HOME_MOVED, b"t")
    (done,) = t.put_done
    assert (done.client, done.serial, done.task, done.moved) == (3, 9, None, b"t")
    world.settle()
    assert world.said(0) == b"" and world.runs_at() == [1]
    name = world.id(1)[:8].decode()
    assert world.news(0)[-1:] == [f"tube t: its leader will be {name} (epoch 2)"]  # T20.4
    assert world.news(1)[-1:] == ["tube t: its leader is this node now (epoch 2)"]


def test_a_switchover_whose_link_breaks() -> None:
    """T20.2 or the link breaks, the tube runs again under its old epoch."""
    world = voting()
    world.make(0)
    world.pass_ms(1000)
    world.put(0)
    world.begin_move(0, 1)
    world.hold(1, 0)  # what the new home confirms does not arrive
    world.settle()
    assert world.state_at(0) == "ENDING"
    with pytest.raises(HomeError):
        world.put(0)
    world.cut(0, 1)
    world.settle()
    assert world.runs_at() == [0] and world.tube(0).epoch == 1
    assert world.said(0) == b"the link to the new leader broke: tube 't' stays"


def test_a_switchover_that_takes_too_long() -> None:
    """T20.2 If that takes more than 10 s, plus 10 s for each million tasks"""
    world = voting(cluster_node_timeout=60_000)
    world.make(0)
    world.pass_ms(1000)
    world.put(0)
    world.begin_move(0, 1)
    world.hold(1, 0)
    for _ in range(22):
        world.pass_ms(500)
    assert world.runs_at() == [0] and world.tube(0).epoch == 1
    assert world.said(0).endswith(b"within 10 s: it stays")


def test_a_switchover_of_many_tasks_may_take_longer() -> None:
    """T20.2 If that takes more than 10 s, plus 10 s for each million tasks, or the link breaks,
    the tube runs again under its old epoch.
    """
    world = voting(cluster_node_timeout=60_000)
    world.make(0)
    world.pass_ms(1000)
    for _ in range(5_000):
        world.put(0)
    world.pass_ms(100)
    world.begin_move(0, 1)
    world.hold(1, 0)
    for _ in range(20):
        world.pass_ms(500)
    world.pass_ms(40)
    assert world.runs_at() == [] and world.answers(0) == []
    world.pass_ms(20)
    assert world.said(0) == b"the new leader did not get all of tube 't' within 10 s: it stays"


def test_read_only_moves_homes() -> None:
    """T19.5 `read-only yes` makes a node WAITING, `read-only no` STARTUP. Its tubes move (T20)"""
    world = voting()
    world.make(0)
    world.put(0)
    world.pass_ms(1000)
    set_read_only(world.nodes[2].core, world.t(2), True)
    world.settle()
    set_read_only(world.nodes[0].core, world.t(0), True)
    world.pass_ms(2000)
    assert world.runs_at() == [1]
    with pytest.raises(TubeError) as e:
        world.make(0, name=b"u")
    assert resp_words(e.value).startswith(b"READONLY This node is read-only")
    assert iproto_words(e.value).code == 7
    assert state_of_node(world.nodes[0].core, world.t(0)) == b"WAITING"


def test_read_only_without_another_node_waits() -> None:
    """T19.5 to the node with the least lag that may lead them.

    T19.5 `read-only yes` makes a node WAITING, `read-only no` STARTUP."""
    world = voting()
    world.make(0)
    world.put(0)
    world.pass_ms(1000)
    for i in (1, 2):
        set_read_only(world.nodes[i].core, world.t(i), True)
    world.settle()
    set_read_only(world.nodes[0].core, world.t(0), True)
    world.pass_ms(1000)
    assert world.state_at(0) == "WAITING"
    with pytest.raises(TubeError) as e:
        world.put(0)
    assert resp_words(e.value).startswith(b"READONLY")
    set_read_only(world.nodes[0].core, world.t(0), False)
    world.pass_ms(1000)
    assert world.runs_at() == [0]


def test_a_node_that_leaves_gives_its_tubes_away() -> None:
    """T19.5 Its tubes move (T20), as those of a leaving node (K7).

    K7.3 INFO shows how much is left."""
    world = voting()
    for name in (b"t", b"u", b"v"):
        world.make(0, name=name)
        for _ in range(20):
            world.put(0, name=name)
    world.pass_ms(1000)
    assert drain_left(world.nodes[0].core) == 63
    world.leave(0)
    world.pass_ms(5000)
    assert drain_left(world.nodes[0].core) == 0
    for name in (b"t", b"u", b"v"):
        assert world.runs_at(name) != [0]
        assert len(world.picture(world.runs_at(name)[0], name)) == 20


def test_sessions_go_with_their_tasks() -> None:
    """T20.5 A TAKEN task stays TAKEN if its session is shared (`in_replicaset` on both nodes): its
    client identifies itself at the new leader within `ttr`."""
    world = voting()
    world.make(0)
    for i in range(2):
        admin.cfg(world.nodes[i].core, world.t(i), 6000, True)
    for _ in range(3):
        world.put(0)
    uuid = identify(world.nodes[0].core, world.t(0), 1, b"user", None)
    task = world.take(0)
    assert task is not None
    token = task.token
    world.pass_ms(500)
    world.move(0, 1)
    world.settle()
    assert world.runs_at() == [1]
    assert identify(world.nodes[1].core, world.t(1), 8, b"user", uuid) == uuid
    moved = world.tube(1).tasks[0]
    assert (chr(moved.status), moved.token) == ("t", token)
    assert world.ack(1, 0, client=8).number == 0
    world.settle()
    assert world.picture(0) == world.picture(1)


def test_a_number_of_a_session_means_nothing_at_another_home() -> None:
    """T20.5 A TAKEN task stays TAKEN if its session is shared (`in_replicaset` on both nodes): its
    client identifies itself at the new leader within `ttr`."""
    world = voting()
    world.make(0)
    world.put(0)
    admin.cfg(world.nodes[0].core, world.t(0), 60_000, True)
    assert world.take(0, client=1) is not None  # session 1 of node 0
    world.pass_ms(500)
    world.move(0, 1)
    world.pass_ms(500)
    assert world.runs_at() == [1]
    assert world.take(1, client=9) is not None  # session 1 of node 1, which is not shared
    world.pass_ms(500)
    world.move(1, 0)
    world.pass_ms(500)
    assert world.runs_at() == [0]
    assert chr(world.tube(0).tasks[0].status) == "r"
    with refused("was not taken"):
        world.ack(0, 0, client=1)


def test_others_are_released_at_the_new_home() -> None:
    """T20.5 Others are released there; those of GETJOB stay until their time."""
    world = voting()
    world.make(0, b"utubettl")
    for _ in range(3):
        world.put(0, utube=b"k")
    world.take(0)
    world.settle()
    world.move(0, 1)
    world.settle()
    assert [state[1] for state in world.picture(1).values()] == ["r", "r", "r"]
    assert world.picture(0) == world.picture(1)
    task = world.take(1)
    assert task is not None and task.number == 0


def test_a_temporary_tube_moves_without_tasks() -> None:
    """T20.5 The tasks of a temporary tube stay on their node."""
    world = voting()
    world.make(0, temporary=True)
    world.put(0)
    world.settle()
    world.move(0, 1)
    world.settle()
    assert world.runs_at() == [1]
    assert world.take(1) is None
    assert world.put(1).number >= 1
    world.move(1, 0)
    world.settle()
    task = world.take(0)
    assert task is not None and task.number == 0
    assert world.take(0) is None


@pytest.mark.parametrize("seed", range(6))
def test_homes_move_under_load(seed: int) -> None:
    """T20.4 Two nodes are never RUNNING for one tube.

    T20.5 Every task keeps its number, status, pri, times, token, body and job id."""
    rng = random.Random(seed)
    world = voting(shift_tasks=rng.choice([1, 3, 2000]))
    world.make(rng.randrange(3), rng.choice([b"fifo", b"fifottl", b"utube", b"utubettl"]))
    world.pass_ms(1000)
    known: dict[int, bytes] = {}
    for step in range(300):
        at = world.runs_at()
        kind = rng.random()
        if at and kind < 0.4:
            body = b"%d" % step
            task = world.put(at[0], body, utube=b"k%d" % rng.randrange(3))
            assert task.number not in known
            known[task.number] = body
        elif at and kind < 0.6:
            got = world.take(at[0], rng.randrange(3))
            if got is not None:
                assert known[got.number] == got.body
                if rng.random() < 0.7:
                    world.ack(at[0], got.number, lab_client(world, at[0], got.owner))
                    del known[got.number]
        elif at and kind < 0.65:
            tasks = world.tube(at[0]).tasks
            if tasks:
                with suppress(TubeError):
                    world.t(at[0]).set_pri(
                        world.nodes[at[0]].core, tasks[rng.choice(list(tasks))], rng.randrange(5)
                    )
        elif at and kind < 0.75:
            with suppress(TubeError):
                world.move(at[0], rng.randrange(3))
        elif kind < 0.8:
            a, b = rng.sample(range(3), 2)
            if all(world.linked(c, d) for c, d in combinations(range(3), 2)):
                world.cut(a, b)
        elif kind < 0.9:
            world.link()
        for _ in range(rng.randrange(4)):
            world.carry()
        if kind > 0.9:
            world.pass_ms(rng.choice([100, 1000]))
    world.link()
    world.pass_ms(25_000)
    (home,) = world.runs_at()
    assert sorted(world.tube(home).tasks) == sorted(known)
    assert world.picture(0) == world.picture(1) == world.picture(2)


def lab_client(world: VotesWorld, i: int, owner: int) -> int:
    """The client of the session that holds a task at node i."""
    return next(iter(world.t(i).sessions[owner].clients))


def test_a_session_that_ends_while_the_tube_waits() -> None:
    """T19.2 what became due otherwise is due when it runs again."""
    world = voting()
    world.make(0)
    world.put(0)
    world.put(0, ttl_ms=3000)
    world.pass_ms(1000)
    assert world.take(0, 4) is not None
    world.isolate(0)
    world.pass_ms(6500)
    assert world.state_at(0) == "WAITING" and world.picture(0)[0][1] == "t"
    sessions.on_client_gone(world.nodes[0].core, world.t(0), 4)
    world.link()
    world.pass_ms(1500)
    assert [state[1] for state in world.picture(0).values()] == ["r"]
    assert world.picture(0) == world.picture(1)


def test_tokens_go_on_at_once() -> None:
    """T20.5 Tokens and numbers continue above all that were given."""
    world = voting()
    world.make(0)
    world.put(0)
    world.settle()
    world.t(0).token = 10**16
    task = world.take(0)
    assert task is not None
    token = task.token
    world.ack(0, task.number)
    world.put(0)
    world.settle()
    world.move(0, 1)
    world.settle()
    task = world.take(1)
    assert task is not None and task.token > token


def test_a_node_that_is_asked_and_goes() -> None:
    """T20.1 Before anything ends the node itself is asked with TUBE-CLAIM, and the error has
    what to do there.
    """
    world = voting()
    world.make(0)
    world.pass_ms(1000)
    assert not world.move(0, 1)
    world.cut(0, 1)
    world.settle()
    assert world.said(0) == b"the link to the new leader broke: tube 't' stays"
    assert world.runs_at() == [0] and world.t(0).claims == {}
    assert not world.move(0, 2)
    assert not world.move(0, 2)
    world.settle()
    assert sorted(world.answers(0)) == [b"", world.leads_elsewhere(2)]
    assert world.runs_at() == [2]
    world.link()
    world.pass_ms(1000)
    world.hold(1, 2)
    assert not world.move(2, 1)
    world.settle()
    world.tube(2).state = WAITING  # as after a pause of the machine
    world.release(1, 2)
    assert world.said(2).startswith(b"Tube 't' is WAITING here")


def test_a_tube_that_is_dropped_while_a_node_is_asked() -> None:
    """T20.1 else an error has the reason, and nothing happens."""
    world = voting()
    tube = world.make(0)
    world.pass_ms(1000)
    assert not world.move(0, 1)
    admin.drop(world.nodes[0].core, world.t(0), tube)
    world.settle()
    assert world.said(0) == b"Tube not found"


def test_a_copy_that_shows_two_of_a_sub_queue() -> None:
    """T18.2 the new state of the tasks that changed, in absolute records

    A new leader takes the later of two TAKEN tasks."""
    world = voting()
    world.make(0, b"utube")
    for _ in range(2):
        world.put(0, utube=b"k")
    world.settle()
    world.isolate(0)
    for i in (1, 2):
        for number, task in world.tube(i).copies.items():
            task.status, task.token = ord("t"), 7 + number
    home = world.leads()
    assert [state[1] for state in world.picture(home).values()] == ["r", "t"]


def test_a_leader_that_was_overtaken() -> None:
    """T21.4 A former leader that comes back finds the higher epoch, is WAITING (INIT, if it was
    restarted), and replaces what it has by a replica of the new leader's tasks.

    T21.4 The changes that the new leader lacks are logged; those answered since its last start
    count as lost, in INFO too: none, with votes and SYNC majority.
    """
    world = voting()
    world.make(0, sync=1)
    for _ in range(3):
        world.put(0)
    world.pass_ms(2000)
    for i in (1, 2):
        world.hold(0, i)
    world.put(0, b"only here")
    world.put(0, b"and this")
    world.isolate(0)
    world.pass_ms(TIMEOUT_MS)
    home = world.leads()
    assert home != 0 and world.put(home).number == 1_000_003
    world.link()
    world.pass_ms(1000)
    assert (world.state_at(0), world.state_at(home)) == ("WAITING", "RUNNING")
    assert world.t(0).changes_lost == 2
    told = "without the last 2 changes here: 2 of them were answered"
    assert any(told in line for line in world.warnings(0))
    assert world.picture(0) == world.picture(1) == world.picture(2)


def test_a_name_that_would_forge_the_log() -> None:
    """T20.4 Both nodes log the move

    Each logs one line, whatever the name."""
    world = voting()
    name = b"t\nfine \x1b[1m\xc3\xa9\xff"
    world.make(0, name=name)
    assert not world.move(0, 1, name=name)
    world.settle()
    line = world.news(1)[-1]
    assert (
        "\n" not in line
        and line == "tube t\\nfine \\x1b[1m\u00e9\\xff: its leader is this node now (epoch 2)"
    )
