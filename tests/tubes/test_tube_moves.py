"""Homes that move as planned, because of read-only or leaving nodes, or wait (SPEC T19, T20)."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tubes_world import TubesWorld

from refusals import refused
from tuque.core.msgs.bus import TubeYours
from tuque.core.node.node import HOME_MOVED
from tuque.core.queues.deliver import on_getjob, serve_ready
from tuque.core.repair.drain import drain_left
from tuque.server.replies.errors import iproto_words, resp_words
from tuque.tubes.leadership.switchover import begin_move
from tuque.tubes.log.leader import set_read_only, state_of_node
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.model.options import PutSpec
from tuque.tubes.model.tube import WAITING
from tuque.tubes.tasks import admin, operations, sessions
from tuque.tubes.tasks.sessions import identify


def test_a_home_that_reaches_too_few_waits() -> None:
    """T19.3 A leader without votes (T23.5) is WAITING while it reaches fewer than half of all
    nodes
    """
    world = TubesWorld(3)
    world.make(0)
    world.put(0)
    world.pass_ms(2000)
    world.isolate(0)
    world.pass_ms(4000)
    assert world.runs_at() == [0]
    world.pass_ms(2500)
    assert world.state_at(0) == "WAITING" and world.runs_at() == []
    with pytest.raises(TubeError) as e:
        world.put(0)
    assert resp_words(e.value) == b"NOQUORUM Tube 't': this node reaches 1 of 3 nodes"
    assert state_of_node(world.nodes[0].core, world.t(0)) == b"WAITING"
    world.link()
    world.pass_ms(1500)
    assert world.runs_at() == [0]
    assert world.put(0).number == 1


def test_who_waits_is_told_the_same() -> None:
    """T17.3 Clients that wait when the leadership moves get it too."""
    world = TubesWorld(2)
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
    world = TubesWorld(3)
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
    world = TubesWorld(3, cluster_node_timeout=60_000)
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
    world = TubesWorld(3, cluster_node_timeout=60_000)
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


def test_an_epoch_is_on_the_disk_first() -> None:
    """T20.3 Only when they are on disk, under `everysec` too, TUBE-YOURS is sent.

    T20.4 is RUNNING when the epoch is on disk."""
    world = TubesWorld(3, has_journal=True)
    world.make(0)
    world.put(0)
    world.settle()
    world.move(0, 1)
    world.step_until(lambda: world.tube(0).epoch == 2)
    world.stick(0, 1)
    assert world.tube(0).epoch == 2 and world.state_at(0) == "ENDING"
    assert not any(isinstance(m, TubeYours) for _, _, m in world.heard())
    records = world.nodes[0].core.records
    assert records is not None and records.wish == 1
    world.stick(1)
    world.settle()
    assert world.states_at() == ["WAITING", "STARTUP", "INIT"]
    assert world.answers(0) == []
    world.stick()
    world.settle()
    assert world.runs_at() == [1] and world.said(0) == b""


def test_yours_is_said_again() -> None:
    """T20.3 TUBE-YOURS is sent, and again when a link opens. From then on the tube is WAITING
    here, also after a restart.
    """
    world = TubesWorld(3, has_journal=True)
    world.make(0)
    world.put(0)
    world.settle()
    world.move(0, 1)
    world.step_until(lambda: world.tube(0).is_owed)
    assert world.tube(0).epoch == 2 and world.tube(1).epoch == 1
    world.hold(0, 1)
    world.settle()
    world.restart(0)  # the epoch is on its disk, and nobody heard of it
    assert world.tube(0).is_owed and not world.tube(0).is_mine
    world.pass_ms(6000)
    assert world.runs_at() == []
    world.rejoin(0)
    world.pass_ms(1000)
    assert world.runs_at() == [1]
    assert world.picture(0) == world.picture(1) == world.picture(2)
    assert not world.tube(0).is_owed


def test_a_restart_of_the_home() -> None:
    """T19.4 After a start a leader is INIT until half of the nodes, itself counted, have sent their
    catalog"""
    world = TubesWorld(3, has_journal=True)
    world.make(0)
    for _ in range(5):
        world.put(0)
    world.settle()
    picture = world.picture(0)
    world.restart(0)
    assert world.state_at(0) == "INIT" and world.picture(0) == picture
    world.pass_ms(1000)
    assert world.runs_at() == []
    world.link(0, 1)
    world.pass_ms(1000)
    assert world.runs_at() == [0]
    world.link()
    world.pass_ms(1000)
    assert world.put(0).number == 5
    world.settle()
    assert world.picture(0) == world.picture(1) == world.picture(2)


def test_read_only_moves_homes() -> None:
    """T19.5 `read-only yes` makes a node WAITING, `read-only no` STARTUP. Its tubes move (T20)"""
    world = TubesWorld(3)
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
    world = TubesWorld(2)
    world.make(0)
    world.put(0)
    world.pass_ms(1000)
    set_read_only(world.nodes[1].core, world.t(1), True)
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
    world = TubesWorld(3)
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
    world = TubesWorld(2)
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
    world = TubesWorld(2, has_journal=True)
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
    world = TubesWorld(2)
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
    world = TubesWorld(2)
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


@pytest.mark.parametrize("seed", range(12))
def test_homes_move_under_load(seed: int) -> None:
    """T20.4 Two nodes are never RUNNING for one tube.

    T20.5 Every task keeps its number, status, pri, times, token, body and job id."""
    rng = random.Random(seed)
    world = TubesWorld(3, has_journal=seed % 2 == 0, shift_tasks=rng.choice([1, 3, 2000]))
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
            if world.linked(a, b):
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


def lab_client(world: TubesWorld, i: int, owner: int) -> int:
    """The client of the session that holds a task at node i."""
    return next(iter(world.t(i).sessions[owner].clients))


def test_a_session_that_ends_while_the_tube_waits() -> None:
    """T19.2 what became due otherwise is due when it runs again."""
    world = TubesWorld(3)
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


def test_a_node_that_stood_still_does_nothing() -> None:
    """T19.3 It checks this before each command."""
    world = TubesWorld(3)
    world.make(0)
    world.put(0)
    world.pass_ms(1000)
    n = world.nodes[0].core
    n.now_ms += 5_500  # no timer ran meanwhile
    assert world.state_at(0) == "RUNNING"
    for call in (
        lambda: operations.take(n, world.t(0), world.tube(0), 1),
        lambda: operations.put(n, world.t(0), world.tube(0), b"", 0, PutSpec(), 1, 1),
        lambda: operations.peek(n, world.t(0), world.tube(0), 0),
    ):
        with refused("NOQUORUM"):
            call()
    assert on_getjob(n, 1, [b"t"], 1) == []


def test_tokens_go_on_at_once() -> None:
    """T20.5 Tokens and numbers continue above all that were given."""
    world = TubesWorld(2)
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
    world = TubesWorld(3)
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
    world = TubesWorld(2)
    tube = world.make(0)
    world.pass_ms(1000)
    assert not world.move(0, 1)
    admin.drop(world.nodes[0].core, world.t(0), tube)
    world.settle()
    assert world.said(0) == b"Tube not found"


def test_a_name_that_would_forge_the_log() -> None:
    """T20.4 Both nodes log the move

    Each logs one line, whatever the name."""
    world = TubesWorld(2)
    name = b"t\nfine \x1b[1m\xc3\xa9\xff"
    world.make(0, name=name)
    assert not world.move(0, 1, name=name)
    world.settle()
    (line,) = world.news(1)
    assert line == "tube t\\nfine \\x1b[1m\u00e9\\xff: its leader is this node now (epoch 2)"
