"""Homes of tubes and copies of their tasks, over several nodes (SPEC T17, T18)."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tubes_world import VotesWorld, voting

from tuque.core.msgs.bus import TubeCopy
from tuque.core.queues.procedures import check
from tuque.server.replies.errors import text_of
from tuque.tubes.log.catalog import at_of
from tuque.tubes.log.receive import changes_in, on_copy
from tuque.tubes.log.send import BEGINS
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.model.options import PutSpec
from tuque.tubes.tasks import operations


def test_every_node_knows_of_every_tube() -> None:
    """T17.2 Every node knows the name, type, options, leader and epoch of every tube."""
    world = voting()
    world.make(0, b"fifottl", ttr_ms=1234, pri=7)
    for i in range(3):
        tube = world.tube(i)
        assert (tube.type, tube.ttr_ms, tube.pri) == (b"fifottl", 1234, 7)
        assert (tube.home, tube.epoch) == (world.id(0), 1)
    assert world.states_at() == ["RUNNING", "INIT", "INIT"]


def test_a_new_leader_knows_all_options() -> None:
    """T17.2 Every node knows the name, type, options, leader and epoch of every tube."""
    world = voting()
    world.make(0, b"limfifottl", capacity=2, ttl_ms=50_000, ttr_ms=1234, pri=7, sync=2)
    world.put(0)
    world.settle()
    first = at_of(world.nodes[0].core, world.tube(0))
    for i in (1, 2):
        at = at_of(world.nodes[i].core, world.tube(i))
        for option in ("words", "ttl_ms", "ttr_ms", "pri", "capacity", "sync", "maker", "made_ns"):
            assert getattr(at, option) == getattr(first, option), option
    world.move(0, 1)
    world.settle()
    assert world.put(1).number == 1
    n, t = world.nodes[1].core, world.t(1)
    assert operations.put(n, t, world.tube(1), b"body", 0, PutSpec(), 1, 1) is None, "it is full"


def test_a_node_that_forgot_a_tube_hears_of_it_again() -> None:
    """T17.5 CREATE then runs again as if the tube were known."""
    world = voting()
    world.make(0)
    world.put(0)
    world.settle()
    world.t(1).flush(world.nodes[1].core)  # DEBUG FLUSHALL: others keep theirs
    assert b"t" not in world.t(1).by_name
    with pytest.raises(AssertionError, match="'t' already exists"):
        world.make(1)
    assert world.tube(1).home == world.id(0)
    assert world.picture(1) == world.picture(0)


def test_elsewhere_a_command_names_the_home() -> None:
    """T17.3 On other nodes each command about the tube or a task of it"""
    world = voting()
    world.make(0)
    with pytest.raises(HomeError) as e:
        world.put(1)
    assert e.value.node_id == world.id(0)
    assert text_of(e.value) == b"Tube 't' has its leader there"


def test_every_other_node_holds_a_copy() -> None:
    """T18.1 Every other node has a replica of every tube that is not temporary, also in its
    journal: of each task number, status, body, times, token, the uuid of the session that holds
    it.
    """
    world = voting()
    world.make(0, b"utubettl")
    for i in range(30):
        world.put(0, b"body %d" % i, utube=b"k%d" % (i % 4), pri=i % 3, delay_ms=i % 5 * 100)
    world.settle()
    while (task := world.take(0)) is not None:
        if task.number % 2:
            world.ack(0, task.number)
    world.settle()
    assert world.picture(0) and world.picture(0) == world.picture(1) == world.picture(2)
    assert world.tube(1).seq == world.tube(0).seq
    walks = [m for _, _, m in world.heard() if isinstance(m, TubeCopy) and m.flags & BEGINS]
    assert all(m.to_seq == 0 for m in walks)  # only at the beginning, of nothing


def test_a_planned_switchover() -> None:
    """T20.4 The new leader is STARTUP: it records the epoch, loads the tasks, and is RUNNING
    when the epoch is on disk.

    T27.6 when the new leader has everything on disk, the leader steps down and sends
    TUBE-YOURS; the new leader is a candidate at once.
    """
    world = voting()
    world.make(0)
    for i in range(10):
        world.put(0, b"body %d" % i)
    task = world.take(0)
    assert task is not None
    assert not world.move(0, 2)
    world.settle()
    assert world.states_at() == ["WAITING", "INIT", "RUNNING"]
    assert world.said(0) == b""
    assert [world.tube(i).epoch for i in range(3)] == [2, 2, 2]
    assert world.picture(0) == world.picture(1) == world.picture(2)
    with pytest.raises(TubeError):
        world.put(0)
    assert world.put(2).number == 10
    world.settle()
    assert world.picture(0) == world.picture(1) == world.picture(2)


def test_a_name_that_another_node_uses_is_refused() -> None:
    """T17.5 A node refuses if it knows a tube of that name, or, unless the type is `tasks`, jobs
    of a plain queue.
    """
    world = voting()
    world.wire(1).add("t", replicate=1)
    with pytest.raises(AssertionError, match="'t' already exists"):
        world.make(0)
    with pytest.raises(AssertionError, match="'t' already exists"):
        world.make(0, if_not_exists=True)


@pytest.mark.parametrize("node", [0, 1])
def test_jobs_of_a_queue_do_not_hinder_a_tube_of_tasks(node: int) -> None:
    """T2.3 Jobs of a plain queue do not hinder a tube of type `tasks`, at whatever node they are:
    they stay plain jobs (T1.8), so that a task that runs already can be given a limit.
    """
    world = voting()
    ids = {world.wire(node).add("t", replicate=1) for _ in range(3)}
    world.make(0, b"tasks")
    assert world.tube(1).home == world.machines[0].node_id
    world.wire(0).add("t")
    for _ in range(2):
        world.until(lambda: world.tube(0).length == 4)
        world.settle()
        world.restart(0)
        world.rejoin(0)
    world.until(lambda: world.states_at()[0] == "RUNNING")
    got = [world.wire(0).get("t") for _ in range(4)]
    assert {one[0] for one in got[:3]} == ids
    assert got[3] and got[3][0] not in ids


@pytest.mark.parametrize("first", [0, 1])
def test_two_claims_of_a_name_with_jobs_make_one_tube(first: int) -> None:
    """T17.5 A node that claims the name itself and has the lower node id replies once its own claim
    has ended."""
    world = voting()
    for node in (0, 1):
        world.wire(node).add("t", replicate=1)
    for node in (first, 1 - first):
        world.claim(node, b"tasks")
    world.settle()
    world.pass_ms(100)
    assert sorted(bool(world.tube(node).is_mine) for node in (0, 1)) == [False, True]
    assert [world.tube(node).conflict for node in (0, 1)] == [b"", b""]


def test_numbers_go_on_after_a_move_and_a_crash() -> None:
    """T20.5 Tokens and numbers continue above all that were given."""
    world = voting()
    world.make(0)
    world.pass_ms(600)
    for _ in range(5):
        world.put(0)
        task = world.take(0)
        assert task is not None
        token = task.token
        world.ack(0, task.number)  # gone before anybody heard of it
    world.settle()
    world.move(0, 1)
    world.settle()
    assert world.runs_at() == [1] and world.put(1).number == 5
    world.settle()
    world.restart(1)
    world.rejoin(1)
    home = world.leads()
    assert world.put(home).number == 1_000_006
    task = world.take(home)
    assert task is not None and task.token > token


@cache
def of_records() -> VotesWorld:
    """A world that all examples share; each has a tube of its own there."""
    return voting()


@example(b"\x00" * 53, 0)  # the number of a task under the job id of another
@given(st.binary(max_size=400), st.integers(0, 3))
def test_records_of_others_are_read_with_care(junk: bytes, cut: int) -> None:
    """T18.2 A follower applies a whole TUBE-COPY or nothing."""
    assert changes_in(junk) is None or junk == b""
    world = of_records()
    name = b"t%d" % len(world.t(0).by_name)
    world.make(0, name=name)
    world.forget_heard()
    world.put(0, name=name)
    world.settle()
    copies = [m for _, b, m in world.heard() if b == 1 and isinstance(m, TubeCopy)]
    records = copies[-1].records
    place = len(junk) % len(records)
    bad = records[:place] + bytes([records[place] ^ 0x80]) + records[place + 1 :]
    n, tube = world.nodes[1].core, world.tube(1, name)
    before = world.picture(1, name)
    bad = bad[: len(bad) - cut]
    m = msgspec.structs.replace(copies[-1], from_seq=tube.seq, to_seq=tube.seq + 1, records=bad)
    on_copy(n, world.t(1), world.slot(1, 0), m)
    check(n)
    assert list(world.picture(1, name)) == list(before) or tube.is_complete
