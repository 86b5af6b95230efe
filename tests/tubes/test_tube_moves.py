"""Homes that move as planned, because of read-only or leaving nodes, or wait (SPEC T19, T20)."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from homes_lab import HomesLab

from refusals import refused, said
from tuque.core.msgs import TubeYours
from tuque.core.node.node import HOME_MOVED
from tuque.core.queues.deliver import on_getjob
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
    """T19.3 A leader is WAITING while it reaches fewer than half of all nodes, because the others
    may have a new leader (T21)."""
    lab = HomesLab(3)
    lab.make(0)
    lab.put(0)
    lab.live(2000)
    lab.isolate(0)
    lab.live(4000)
    assert lab.runs_at() == [0]
    lab.live(2500)
    assert lab.state(0) == "WAITING" and lab.runs_at() == []
    with pytest.raises(TubeError) as e:
        lab.put(0)
    assert resp_words(e.value) == b"NOQUORUM Tube 't': this node reaches 1 of 3 nodes"
    assert state_of_node(lab.nodes[0], lab.t(0)) == b"WAITING"
    lab.heal()
    lab.live(1500)
    assert lab.runs_at() == [0]
    assert lab.put(0).number == 1


def test_who_waits_is_told_the_same() -> None:
    """T17.3 Clients that wait when the leadership moves get the same error."""
    lab = HomesLab(2)
    lab.make(0, b"limfifottl", capacity=1)
    n, t, tube = lab.nodes[0], lab.t(0), lab.tube(0)
    lab.put(0)
    spec = PutSpec()
    spec.timeout_ms = 5000
    assert operations.put(n, t, tube, b"late", 0, spec, 3, 9) is None
    assert lab.take(0) is not None
    operations.wait(n, t, tube, 4, 0)
    begin_move(n, t, tube, lab.slot(0, 1), 5, 7)
    (wake,) = lab.wakes(0)
    assert (wake.client, wake.why, wake.queue) == (4, HOME_MOVED, b"t")
    (done,) = t.put_done
    assert (done.client, done.serial, done.task, done.moved) == (3, 9, None, b"t")
    lab.run()
    assert said(lab.done(0)) == b"" and lab.runs_at() == [1]
    name = lab.nodes[1].node_id[:8].decode()
    assert t.news == [f"tube t: its leader will be {name} (epoch 2)"]  # T20.4
    assert lab.t(1).news == ["tube t: its leader is this node now (epoch 2)"]


def test_a_switchover_whose_link_breaks() -> None:
    """T20.2 or the link breaks, the tube runs again under its old epoch (through WAITING and
    STARTUP): nothing was given away."""
    lab = HomesLab(3)
    lab.make(0)
    lab.live(1000)
    lab.put(0)
    lab.begin(0, 1)
    lab.hold(1, 0)  # what the new home confirms does not arrive
    lab.run()
    assert lab.state(0) == "ENDING"
    with pytest.raises(HomeError):
        lab.put(0)
    lab.cut(0, 1)
    lab.run()
    assert lab.runs_at() == [0] and lab.tube(0).epoch == 1
    assert said(lab.done(0)) == b"the link to the new leader broke: tube 't' stays"


def test_a_switchover_that_takes_too_long() -> None:
    """T20.2 If that takes more than 10 s, plus 10 s for each million tasks"""
    lab = HomesLab(3)
    lab.make(0)
    lab.live(1000)
    lab.put(0)
    lab.begin(0, 1)
    lab.hold(1, 0)
    for _ in range(22):
        lab.live(500)
    assert lab.runs_at() == [0] and lab.tube(0).epoch == 1
    assert said(lab.done(0)).endswith(b"within 10 s: it stays")


def test_a_switchover_of_many_tasks_may_take_longer() -> None:
    """T20.2 If that takes more than 10 s, plus 10 s for each million tasks, or the link breaks, the
    tube runs again under its old epoch (through WAITING and STARTUP): nothing was given away."""
    lab = HomesLab(3)
    lab.make(0)
    lab.live(1000)
    for _ in range(5_000):
        lab.put(0)
    lab.live(100)
    lab.begin(0, 1)
    lab.hold(1, 0)
    for _ in range(20):
        lab.live(500)
    lab.live(40)
    assert lab.runs_at() == [] and lab.t(0).home_done == []
    lab.live(20)
    assert said(lab.done(0)) == b"the new leader did not get all of tube 't' within 10 s: it stays"


def test_an_epoch_is_on_the_disk_first() -> None:
    """T20.3 Only when they are on disk, under `everysec` too, TUBE-YOURS is sent.

    T20.4 is RUNNING when the epoch is on disk."""
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    lab.put(0)
    lab.run()
    lab.slow = {0, 1}
    lab.move(0, 1)
    lab.run()
    assert lab.tube(0).epoch == 2 and lab.state(0) == "ENDING"
    assert not any(isinstance(m, TubeYours) for _, _, m in lab.log)
    records = lab.nodes[0].records
    assert records is not None and records.wish == 1
    lab.slow = {1}
    lab.run()
    assert lab.states() == ["WAITING", "STARTUP", "INIT"]
    assert lab.t(0).home_done == []
    lab.slow = set()
    lab.run()
    assert lab.runs_at() == [1] and said(lab.done(0)) == b""


def test_yours_is_said_again() -> None:
    """T20.3 From then on the tube is WAITING here, also after a restart, whatever became of the
    message. It is sent again when a link opens (T17.2)."""
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    lab.put(0)
    lab.run()
    lab.move(0, 1)
    for _ in range(50):
        lab.step()
        if lab.tube(0).epoch == 2:
            break
    assert lab.tube(0).is_owed and lab.tube(1).epoch == 1
    lab.settle(0)
    lab.die(0)  # the epoch is on its disk, and nobody heard of it
    assert lab.tube(0).is_owed and not lab.tube(0).is_mine
    lab.live(6000)
    assert lab.runs_at() == []
    lab.revive(0)
    lab.live(1000)
    assert lab.runs_at() == [1]
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)
    assert not lab.tube(0).is_owed


def test_a_restart_of_the_home() -> None:
    """T19.4 After a start a leader is INIT until half of the nodes, itself counted, have sent their
    catalog"""
    lab = HomesLab(3, has_journal=True)
    lab.make(0)
    for _ in range(5):
        lab.put(0)
    lab.run()
    picture = lab.picture(0)
    lab.die(0)
    assert lab.state(0) == "INIT" and lab.picture(0) == picture
    lab.live(1000)
    assert lab.runs_at() == []
    lab.link(0, 1)
    lab.live(1000)
    assert lab.runs_at() == [0]
    lab.heal()
    lab.live(1000)
    assert lab.put(0).number == 5
    lab.run()
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)


def test_read_only_moves_homes() -> None:
    """T19.5 `read-only yes` makes a node WAITING. A tube that it leads moves to a node that may
    lead it (T20)"""
    lab = HomesLab(3)
    lab.make(0)
    lab.put(0)
    lab.live(1000)
    set_read_only(lab.nodes[2], lab.t(2), True)
    lab.run()
    set_read_only(lab.nodes[0], lab.t(0), True)
    lab.live(2000)
    assert lab.runs_at() == [1]
    with pytest.raises(TubeError) as e:
        lab.make(0, name=b"u")
    assert resp_words(e.value).startswith(b"READONLY This node is read-only")
    assert iproto_words(e.value).code == 7
    assert state_of_node(lab.nodes[0], lab.t(0)) == b"WAITING"


def test_read_only_without_another_node_waits() -> None:
    """T19.5 as soon as there is one.

    T19.5 `read-only no` makes it STARTUP, then RUNNING."""
    lab = HomesLab(2)
    lab.make(0)
    lab.put(0)
    lab.live(1000)
    set_read_only(lab.nodes[1], lab.t(1), True)
    lab.run()
    set_read_only(lab.nodes[0], lab.t(0), True)
    lab.live(1000)
    assert lab.state(0) == "WAITING"
    with pytest.raises(TubeError) as e:
        lab.put(0)
    assert resp_words(e.value).startswith(b"READONLY")
    set_read_only(lab.nodes[0], lab.t(0), False)
    lab.live(1000)
    assert lab.runs_at() == [0]


def test_a_node_that_leaves_gives_its_tubes_away() -> None:
    """T19.5 The tubes of a leaving node (K7) move likewise.

    K7.3 INFO shows how much is left."""
    lab = HomesLab(3)
    for name in (b"t", b"u", b"v"):
        lab.make(0, name=name)
        for _ in range(20):
            lab.put(0, name=name)
    lab.live(1000)
    assert drain_left(lab.nodes[0]) == 63
    lab.leave(0)
    lab.live(5000)
    assert drain_left(lab.nodes[0]) == 0
    for name in (b"t", b"u", b"v"):
        assert lab.runs_at(name) != [0]
        assert len(lab.picture(lab.runs_at(name)[0], name)) == 20


def test_sessions_go_with_their_tasks() -> None:
    """T20.5 A TAKEN task stays TAKEN if its session is shared (`in_replicaset` on both nodes): its
    client identifies itself at the new leader within `ttr`."""
    lab = HomesLab(2)
    lab.make(0)
    for i in range(2):
        admin.cfg(lab.nodes[i], lab.t(i), 6000, True)
    for _ in range(3):
        lab.put(0)
    uuid = identify(lab.nodes[0], lab.t(0), 1, b"user", None)
    task = lab.take(0)
    assert task is not None
    token = task.token
    lab.live(500)
    lab.move(0, 1)
    lab.run()
    assert lab.runs_at() == [1]
    assert identify(lab.nodes[1], lab.t(1), 8, b"user", uuid) == uuid
    moved = lab.tube(1).tasks[0]
    assert (chr(moved.status), moved.token) == ("t", token)
    assert lab.ack(1, 0, client=8).number == 0
    lab.run()
    assert lab.picture(0) == lab.picture(1)


def test_a_number_of_a_session_means_nothing_at_another_home() -> None:
    """T20.5 A TAKEN task stays TAKEN if its session is shared (`in_replicaset` on both nodes): its
    client identifies itself at the new leader within `ttr`."""
    lab = HomesLab(2, has_journal=True)
    lab.make(0)
    lab.put(0)
    admin.cfg(lab.nodes[0], lab.t(0), 60_000, True)
    assert lab.take(0, client=1) is not None  # session 1 of node 0
    lab.live(500)
    lab.move(0, 1)
    lab.live(500)
    assert lab.runs_at() == [1]
    assert lab.take(1, client=9) is not None  # session 1 of node 1, which is not shared
    lab.live(500)
    lab.move(1, 0)
    lab.live(500)
    assert lab.runs_at() == [0]
    assert chr(lab.tube(0).tasks[0].status) == "r"
    with refused("was not taken"):
        lab.ack(0, 0, client=1)


def test_others_are_released_at_the_new_home() -> None:
    """T20.5 Other TAKEN tasks are released there; those of GETJOB stay until their time."""
    lab = HomesLab(2)
    lab.make(0, b"utubettl")
    for _ in range(3):
        lab.put(0, utube=b"k")
    lab.take(0)
    lab.run()
    lab.move(0, 1)
    lab.run()
    assert [state[1] for state in lab.picture(1).values()] == ["r", "r", "r"]
    assert lab.picture(0) == lab.picture(1)
    task = lab.take(1)
    assert task is not None and task.number == 0


def test_a_temporary_tube_moves_without_tasks() -> None:
    """T20.5 The tasks of a temporary tube stay on the node where they were put (T18.1)."""
    lab = HomesLab(2)
    lab.make(0, temporary=True)
    lab.put(0)
    lab.run()
    lab.move(0, 1)
    lab.run()
    assert lab.runs_at() == [1]
    assert lab.take(1) is None
    assert lab.put(1).number >= 1
    lab.move(1, 0)
    lab.run()
    task = lab.take(0)
    assert task is not None and task.number == 0
    assert lab.take(0) is None


@pytest.mark.parametrize("seed", range(12))
def test_homes_move_under_load(seed: int) -> None:
    """T20.4 Two nodes are never RUNNING for one tube.

    T20.5 Every task keeps its number, status, pri, times, token, body and job id."""
    rng = random.Random(seed)
    lab = HomesLab(3, has_journal=seed % 2 == 0, shift_tasks=rng.choice([1, 3, 2000]))
    lab.make(rng.randrange(3), rng.choice([b"fifo", b"fifottl", b"utube", b"utubettl"]))
    lab.live(1000)
    known: dict[int, bytes] = {}
    for step in range(300):
        at = lab.runs_at()
        kind = rng.random()
        if at and kind < 0.4:
            body = b"%d" % step
            task = lab.put(at[0], body, utube=b"k%d" % rng.randrange(3))
            assert task.number not in known
            known[task.number] = body
        elif at and kind < 0.6:
            got = lab.take(at[0], rng.randrange(3))
            if got is not None:
                assert known[got.number] == got.body
                if rng.random() < 0.7:
                    lab.ack(at[0], got.number, lab_client(lab, at[0], got.owner))
                    del known[got.number]
        elif at and kind < 0.65:
            tasks = lab.tube(at[0]).tasks
            if tasks:
                with suppress(TubeError):
                    lab.t(at[0]).set_pri(
                        lab.nodes[at[0]], tasks[rng.choice(list(tasks))], rng.randrange(5)
                    )
        elif at and kind < 0.75:
            with suppress(TubeError):
                lab.move(at[0], rng.randrange(3))
        elif kind < 0.8:
            a, b = rng.sample(range(3), 2)
            if (a, b) in lab.linked:
                lab.cut(a, b)
        elif kind < 0.9:
            lab.heal()
        for _ in range(rng.randrange(4)):
            lab.step()
        if kind > 0.9:
            lab.live(rng.choice([100, 1000]))
    lab.heal()
    lab.live(25_000)
    (home,) = lab.runs_at()
    assert sorted(lab.tube(home).tasks) == sorted(known)
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)


def lab_client(lab: HomesLab, i: int, owner: int) -> int:
    """The client of the session that holds a task at node i."""
    return next(iter(lab.t(i).sessions[owner].clients))


def test_a_session_that_ends_while_the_tube_waits() -> None:
    """T19.2 what became due is due when the tube runs again."""
    lab = HomesLab(3)
    lab.make(0)
    lab.put(0)
    lab.put(0, ttl_ms=3000)
    lab.live(1000)
    assert lab.take(0, 4) is not None
    lab.isolate(0)
    lab.live(6500)
    assert lab.state(0) == "WAITING" and lab.picture(0)[0][1] == "t"
    sessions.on_client_gone(lab.nodes[0], lab.t(0), 4)
    lab.heal()
    lab.live(1500)
    assert [state[1] for state in lab.picture(0).values()] == ["r"]
    assert lab.picture(0) == lab.picture(1)


def test_a_node_that_stood_still_does_nothing() -> None:
    """T19.3 The leader checks this before each command, so that after a standstill it does not act
    on old knowledge."""
    lab = HomesLab(3)
    lab.make(0)
    lab.put(0)
    lab.live(1000)
    n = lab.nodes[0]
    n.now_ms += 5_500  # no timer ran meanwhile
    assert lab.state(0) == "RUNNING"
    for call in (
        lambda: operations.take(n, lab.t(0), lab.tube(0), 1),
        lambda: operations.put(n, lab.t(0), lab.tube(0), b"", 0, PutSpec(), 1, 1),
        lambda: operations.peek(n, lab.t(0), lab.tube(0), 0),
    ):
        with refused("NOQUORUM"):
            call()
    assert on_getjob(n, 1, [b"t"], 1) == []


def test_tokens_go_on_at_once() -> None:
    """T20.5 Tokens and numbers continue above all that were given."""
    lab = HomesLab(2)
    lab.make(0)
    lab.put(0)
    lab.run()
    lab.t(0).token = 10**16
    task = lab.take(0)
    assert task is not None
    token = task.token
    lab.ack(0, task.number)
    lab.put(0)
    lab.run()
    lab.move(0, 1)
    lab.run()
    task = lab.take(1)
    assert task is not None and task.token > token


def test_a_node_that_is_asked_and_goes() -> None:
    """T20.1 Before anything ends the node itself is asked with TUBE-CLAIM, and the error says what
    to do there."""
    lab = HomesLab(3)
    lab.make(0)
    lab.live(1000)
    assert not lab.move(0, 1)
    lab.cut(0, 1)
    lab.run()
    assert said(lab.done(0)) == b"the link to the new leader broke: tube 't' stays"
    assert lab.runs_at() == [0] and lab.t(0).claims == {}
    assert not lab.move(0, 2)
    assert not lab.move(0, 2)
    lab.run()
    second, first = lab.t(0).home_done
    assert said(first) == b"" and isinstance(second.error, HomeError)
    assert second.error.node_id == lab.nodes[2].node_id  # -TUBEHOME
    assert lab.runs_at() == [2]
    lab.t(0).home_done = []
    lab.heal()
    lab.live(1000)
    assert not lab.move(2, 1)
    lab.tube(2).state = WAITING  # as after a pause of the machine
    lab.carry()
    lab.carry()
    assert said(lab.done(2)).startswith(b"Tube 't' is WAITING here")


def test_a_tube_that_is_dropped_while_a_node_is_asked() -> None:
    """T20.1 else an error says why, and nothing happens."""
    lab = HomesLab(2)
    tube = lab.make(0)
    lab.live(1000)
    assert not lab.move(0, 1)
    admin.drop(lab.nodes[0], lab.t(0), tube)
    lab.run()
    assert said(lab.done(0)) == b"Tube not found"


def test_a_name_that_would_forge_the_log() -> None:
    """T20.4 Both nodes log the move

    Each logs one line, whatever the name."""
    lab = HomesLab(2)
    name = b"t\nfine \x1b[1m\xc3\xa9\xff"
    lab.make(0, name=name)
    assert not lab.move(0, 1, name=name)
    lab.run()
    (line,) = lab.t(1).news
    assert line == "tube t\\nfine \\x1b[1m\u00e9\\xff: its leader is this node now (epoch 2)"
