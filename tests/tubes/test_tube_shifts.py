"""Tasks take their places at a home and leave them, so many in a turn (SPEC T19.6)."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise

import pytest
from tubes_world import TIMEOUT_MS, VotesWorld, voting

from refusals import refused
from tuque.core.dispatch.restore import flush_all
from tuque.core.model.task import READY, TAKEN
from tuque.core.queues.procedures import check
from tuque.tubes.leadership.load import FREED
from tuque.tubes.log.leader import set_read_only
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.tasks import admin, sessions
from tuque.tubes.tasks.sessions import identify
from tuque.tubes.types.utube import UTube

STEP = 10
TASKS = 45


def lab_with_tasks(count: int = TASKS, type: bytes = b"fifottl") -> VotesWorld:
    """A tube with tasks at node 0; ten of them go in or out in a turn."""
    world = voting(shift_tasks=STEP)
    world.make(0, type)
    for i in range(count):
        world.put(0, b"%d" % i, utube=b"%d" % i)
    world.pass_ms(1000)
    return world


def on_the_way(world: VotesWorld, i: int, is_in: bool) -> None:
    """Turn after turn, until some tasks are in their places at node i, and others are not."""

    def is_there() -> bool:
        for n in world.cores:
            check(n)
        tube = world.tube(i)
        is_shifting = tube.shift is not None and tube.shift.is_in == is_in
        return bool(is_shifting and tube.tasks and tube.copies)

    world.step_until(is_there, 0)


def test_so_many_in_a_turn() -> None:
    """T19.6 A leader loads and unloads at most 2000 tasks per turn, across all tubes; meanwhile
    the tube is STARTUP, or ENDING or WAITING.
    """
    world = lab_with_tasks()
    picture = world.picture(0)
    world.begin_move(0, 1)
    at = [len(world.tube(i).tasks) for i in range(2)]
    assert at == [TASKS - STEP, 0]
    seen: set[tuple[str, ...]] = set()

    def runs() -> bool:
        for i in range(2):
            check(world.nodes[i].core)
            now = len(world.tube(i).tasks)
            assert abs(now - at[i]) <= STEP
            at[i] = now
        if 0 < at[1] < TASKS:
            assert world.state_at(1) == "STARTUP"
        seen.add((world.state_at(0), world.state_at(1)))
        return world.runs_at() == [1]

    world.step_until(runs, 0)
    assert ("WAITING", "STARTUP") in seen and at[1] == TASKS
    world.settle()
    assert world.picture(0) == world.picture(1) == picture
    assert world.said(0) == b""


def test_the_lanes_of_a_tube_that_moves_are_freed_in_pieces() -> None:
    """T19.6 A leader loads and unloads at most 2000 tasks per turn, across all tubes."""
    world = lab_with_tasks(200, type=b"utubettl")
    driver = world.tube(0).driver
    assert isinstance(driver, UTube)
    left = [len(driver.lanes)]

    def runs() -> bool:
        left.append(len(driver.lanes))
        return world.runs_at() == [1]

    world.begin_move(0, 1)
    world.step_until(runs, 0)
    assert left[0] == 200 and left[-1] == 0
    assert max(a - b for a, b in pairwise(left)) == FREED * STEP


def test_tubes_share_a_turn() -> None:
    """T19.6 A leader loads and unloads at most 2000 tasks per turn, across all tubes.

    A small tube does not wait for a large one."""
    world = lab_with_tasks(200)
    world.make(0, name=b"small")
    for _ in range(5):
        world.put(0, name=b"small")
    world.pass_ms(1000)
    assert not world.move(0, 1)
    assert not world.move(0, 1, b"small")
    before = 205

    def runs() -> bool:
        nonlocal before
        left = len(world.tube(0).tasks) + len(world.tube(0, b"small").tasks)
        assert left >= before - STEP
        before = left
        return world.state_at(1, b"small") == "RUNNING"

    world.step_until(runs, 0)
    assert len(world.tube(1).tasks) < 200
    world.settle()
    assert len(world.nodes[1].core.jobs) == 205


def test_nothing_is_done_to_tasks_on_their_way() -> None:
    """T19.6 A task that moves is not changed, and the move is not recorded."""
    world = lab_with_tasks()
    assert not world.move(0, 1)
    on_the_way(world, 0, is_in=False)
    with pytest.raises(HomeError):
        world.take(0)
    on_the_way(world, 1, is_in=True)
    assert world.state_at(1) == "STARTUP"
    for call in (
        lambda: world.take(1),
        lambda: world.put(1),
        lambda: admin.truncate(world.nodes[1].core, world.t(1), world.tube(1)),
        lambda: admin.drop(world.nodes[1].core, world.t(1), world.tube(1)),
    ):
        with refused("is STARTUP here: try again soon"):
            call()
    assert world.tube(1).driver.first() is not None
    world.settle()
    assert world.runs_at() == [1] and world.take(1) is not None


def test_what_is_due_meanwhile() -> None:
    """T19.2 what became due otherwise is due when it runs again."""
    world = lab_with_tasks(0)
    for i in range(TASKS):
        world.put(0, ttl_ms=3000, delay_ms=2000 if i % 2 else 0)
    world.pass_ms(500)
    assert not world.move(0, 1)
    on_the_way(world, 1, is_in=True)
    world.jump_ms(2600)  # all is due, or over
    for _ in range(2):
        world.step()
        assert world.state_at(1) == "STARTUP" and len(world.picture(1)) == TASKS
        check(world.nodes[1].core)
    world.settle()
    world.pass_ms(16)
    assert world.runs_at() == [1]
    assert [chr(task.status) for task in world.tube(1).tasks.values()] == ["r"] * (TASKS // 2)
    assert all(number % 2 for number in world.tube(1).tasks)


def shared(world: VotesWorld, count: int) -> bytes:
    """`count` tasks are held by client 1, whose session is shared; its uuid."""
    for i in range(len(world.nodes)):
        admin.cfg(world.nodes[i].core, world.t(i), 60_000, True)
    uuid = identify(world.nodes[0].core, world.t(0), 1, b"user", None)
    for _ in range(count):
        assert world.take(0) is not None
    world.pass_ms(500)
    return uuid


def test_a_session_that_ends_meanwhile() -> None:
    """T19.6 A task that moves is not changed

    Tasks of a session that ended meanwhile are released when the tube runs (T8.2)."""
    world = lab_with_tasks()
    uuid = shared(world, 30)
    assert not world.move(0, 1)
    on_the_way(world, 1, is_in=True)
    t = world.t(1)
    session = t.by_uuid[uuid]
    assert 0 < len(session.taken) < 30
    sessions.end_session(world.nodes[1].core, t, session)
    check(world.nodes[1].core)
    assert 0 < sum(task.status == TAKEN for task in world.tube(1).tasks.values()) <= STEP
    world.settle()
    assert world.runs_at() == [1]
    assert all(task.status == READY for task in world.tube(1).tasks.values())
    assert world.picture(0) == world.picture(1)


@pytest.mark.parametrize("is_in", [False, True])
@pytest.mark.parametrize("has_sessions", [False, True])
def test_a_crash_in_between(is_in: bool, has_sessions: bool) -> None:
    """T19.6 and the move is not recorded.

    T20.5 A TAKEN task stays TAKEN if its session is shared"""
    world = lab_with_tasks()
    uuid = shared(world, 5) if has_sessions else b""
    picture = world.picture(0)
    assert not world.move(0, 1)
    on_the_way(world, int(is_in), is_in=is_in)
    world.rewrite(int(is_in))
    world.restart(int(is_in))
    assert world.picture(int(is_in)) == picture
    world.rejoin(int(is_in))
    world.pass_ms(12_000)
    (home,) = world.runs_at()
    assert world.picture(0) == world.picture(1) == picture
    if has_sessions:
        n, t = world.nodes[home].core, world.t(home)
        with refused("was not taken"):
            world.ack(home, 0, client=9)
        assert identify(n, t, 8, b"user", uuid) == uuid
        assert world.ack(home, 0, client=8).number == 0


def test_a_crash_before_holders_are_settled() -> None:
    """T22.1 whether holders are not settled (T19.6)."""
    world = lab_with_tasks(1)
    world.make(1, name=b"other")
    world.put(1, name=b"other")
    uuid = shared(world, 1)  # session 1 of node 0
    mine = identify(world.nodes[1].core, world.t(1), 1, b"user", None)
    assert world.take(1, name=b"other") is not None  # session 1 of node 1
    world.pass_ms(500)
    assert not world.move(0, 1)
    world.step_until(lambda: world.state_at(1) == "STARTUP", 0)
    world.stick(1)
    assert world.state_at(1) == "STARTUP"
    world.restart(1)
    world.stick()
    set_read_only(world.node(2).core, world.t(2), True)  # it is no candidate
    world.split_off(0)
    world.link(1, 2)
    assert world.leads() == 1
    assert identify(world.nodes[1].core, world.t(1), 1, b"user", mine) == mine
    with refused("was not taken"):
        world.ack(1, 0, client=1)
    assert identify(world.nodes[1].core, world.t(1), 2, b"user", uuid) == uuid
    assert world.ack(1, 0, client=2).number == 0


def test_the_home_changes_its_mind() -> None:
    """T20.2 the tube runs again under its old epoch

    T19.6 that is completed before a load or a new replica."""
    world = lab_with_tasks()
    picture = world.picture(0)
    world.begin_move(0, 1)
    world.hold(1, 0)
    world.sever(0, 1)
    world.carry()
    on_the_way(world, 0, is_in=False)
    assert world.state_at(0) == "WAITING"
    on_the_way(world, 0, is_in=True)
    assert world.state_at(0) == "STARTUP"
    world.settle()
    assert world.runs_at() == [0] and world.tube(0).epoch == 1
    assert world.picture(0) == picture


@pytest.mark.parametrize("why", ["lease", "read-only"])
def test_a_home_that_may_not_run_meanwhile(why: str) -> None:
    """T19.6 Without the leadership the tasks are unloaded again.

    It is suspended by T19.3 and T19.5."""
    world = lab_with_tasks()
    shared(world, 20)
    assert not world.move(0, 1)
    on_the_way(world, 1, is_in=True)
    if why == "lease":
        world.split_off(1)
        world.jump_ms(6000)
    else:
        set_read_only(world.nodes[1].core, world.t(1), True)
    world.node(1).turn()
    tube = world.tube(1)
    assert tube.shift is None or not tube.shift.is_in
    for _ in range(10):
        world.carry()
        check(world.nodes[1].core)
    world.link()
    world.pass_ms(3000)
    assert len(world.runs_at()) == 1 and (why == "lease") == (world.runs_at() == [1])
    pictures = [world.picture(i) for i in range(3)]
    assert pictures[0] == pictures[1] == pictures[2]
    assert sum(state[1] == "t" for state in pictures[0].values()) == 20


@pytest.mark.parametrize("is_in", [False, True])
def test_another_leader_meanwhile(is_in: bool) -> None:
    """T21.4 and replaces what it has by a replica of the new leader's tasks.

    T19.6 Without the leadership the tasks are unloaded again; that is completed before a load
    or a new replica.
    """
    world = lab_with_tasks()
    shared(world, 20)
    old = int(is_in)
    assert not world.move(0, 1)
    on_the_way(world, old, is_in=is_in)
    if is_in:
        world.step_until(lambda: len(world.tube(1).tasks) >= 30, 0)
    world.t(old).shift_tasks = 1
    world.stand_still(old)
    world.isolate(old)
    world.pass_ms(3 * TIMEOUT_MS)
    (home,) = world.runs_at()
    assert home != old
    world.go_on(old)
    world.dial(old, home)
    tube = world.tube(old)
    world.step_until(lambda: tube.epoch == world.tube(home).epoch)
    assert not tube.is_mine
    assert tube.shift is not None and not tube.shift.is_in and len(tube.tasks) > 0
    assert not tube.is_asking and tube.copy_epoch != tube.epoch
    world.link()
    world.pass_ms(2000)
    assert world.runs_at() == [home]
    assert world.picture(0) == world.picture(1) == world.picture(2)
    assert len(world.picture(0)) == TASKS
    assert all(world.tube(i).is_complete for i in range(3) if i != home)


@pytest.mark.parametrize("is_in", [False, True])
def test_a_drop_meanwhile(is_in: bool) -> None:
    """T19.6 A drop waits for nothing."""
    world = lab_with_tasks()
    i = int(is_in)
    assert not world.move(0, 1)
    on_the_way(world, i, is_in=is_in)
    n, t, tube = world.nodes[i].core, world.t(i), world.tube(i)
    flush_all(n)
    check(n)
    assert (t.by_name, n.jobs, t.copies_by_id, t.shifting) == ({}, {}, {}, [])
    assert len(tube.tasks) == 0
    world.pass_ms(2000)
    assert world.t(2).by_name != {}  # T17.6: others keep what they have


def test_a_drop_at_the_new_home_meanwhile() -> None:
    """T17.6 they delete their replicas.

    T19.6 A drop waits for nothing."""
    world = lab_with_tasks()
    world.t(0).shift_tasks = 1
    assert not world.move(0, 1)
    world.t(1).shift_tasks = 2000
    world.step_until(lambda: world.runs_at() == [1], 0)
    assert 0 < len(world.tube(0).tasks) < TASKS
    admin.drop(world.nodes[1].core, world.t(1), world.tube(1))
    world.settle()
    for i in range(2):
        t, n = world.t(i), world.nodes[i].core
        assert (t.by_name, n.jobs, t.copies_by_id, t.shifting) == ({}, {}, {}, [])


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))]
)
def test_homes_change_all_the_time(seed: int) -> None:
    """T20.4 Two nodes are never RUNNING for one tube.

    T20.5 Every task keeps its number, status, pri, times, token, body and job id."""
    rng = random.Random(f"shifts {seed}")
    world = lab_with_tasks(30, rng.choice([b"fifottl", b"utubettl"]))
    if seed % 3:
        shared(world, 8)
    for i in range(3):
        world.t(i).shift_tasks = rng.choice([1, 4])
    for _ in range(150):
        at = world.runs_at()
        kind = rng.random()
        if at and kind < 0.3:
            with suppress(TubeError):
                world.move(at[0], rng.randrange(3))
        elif at and kind < 0.4:
            world.take(at[0], rng.randrange(3))
        elif at and kind < 0.43:
            tasks = world.tube(at[0]).tasks
            if tasks:
                with suppress(TubeError):
                    world.t(at[0]).set_pri(
                        world.nodes[at[0]].core, tasks[rng.choice(list(tasks))], rng.randrange(5)
                    )
        elif kind < 0.5:
            a, b = rng.sample(range(3), 2)
            world.cut(a, b)
        elif kind < 0.55:
            world.jump_ms(5100)
        elif kind < 0.7:
            world.link()
        elif kind < 0.73 and seed % 2 == 0:
            world.restart(rng.randrange(3))
        for _ in range(rng.randrange(12)):
            world.step()
            for n in world.cores:
                check(n)
    for i in range(3):
        world.isolate(i)
    world.link()
    world.pass_ms(25_000)
    assert len(world.runs_at()) == 1
    pictures = [world.picture(i) for i in range(3)]
    for picture in pictures:  # an instant that is told while time jumps is told as it was
        assert sorted(picture) == list(range(30))
        for number, state in picture.items():
            assert state[:7] + state[9:] == pictures[0][number][:7] + pictures[0][number][9:]
