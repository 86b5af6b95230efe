"""Tasks take their places at a home and leave them, so many in a turn (SPEC T19.6)."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from homes_lab import HomesLab

from refusals import refused, said
from tuque.core.dispatch.restore import flush_all
from tuque.core.model.task import READY, TAKEN
from tuque.core.queues.procedures import check
from tuque.tubes.leadership.switchover import take_home
from tuque.tubes.log.leader import set_read_only
from tuque.tubes.model.errors import HomeError, TubeError
from tuque.tubes.tasks import admin, sessions
from tuque.tubes.tasks.sessions import identify

STEP = 10
TASKS = 45


def lab_with_tasks(
    count: int = TASKS, has_journal: bool = False, type: bytes = b"fifottl", nodes: int = 2
) -> HomesLab:
    """A tube with tasks at node 0; ten of them go in or out in a turn."""
    lab = HomesLab(nodes, has_journal, shift_tasks=STEP)
    lab.make(0, type)
    for i in range(count):
        lab.put(0, b"%d" % i, utube=b"%d" % i)
    lab.live(1000)
    return lab


def on_the_way(lab: HomesLab, i: int, is_in: bool, most: int = 50) -> None:
    """Turn after turn, until some tasks are in their places at node i, and others are not."""
    for _ in range(most):
        lab.step()
        for n in lab.nodes:
            check(n)
        tube = lab.tube(i)
        if tube.shift is not None and tube.shift.is_in == is_in and tube.tasks and tube.copies:
            return
    raise AssertionError(f"nothing is on its way at {i}")


def test_so_many_in_a_turn() -> None:
    """T19.6 A leader loads and unloads at most 2000 tasks per turn, across all tubes. Meanwhile the
    tube is STARTUP, or ENDING or WAITING; it is RUNNING when all tasks are loaded."""
    lab = lab_with_tasks()
    picture = lab.picture(0)
    lab.begin(0, 1)
    at = [len(lab.tube(i).tasks) for i in range(2)]
    assert at == [TASKS - STEP, 0]
    seen: set[tuple[str, ...]] = set()
    while lab.runs_at() != [1]:
        lab.step()
        for i in range(2):
            check(lab.nodes[i])
            now = len(lab.tube(i).tasks)
            assert abs(now - at[i]) <= STEP
            at[i] = now
        if 0 < at[1] < TASKS:
            assert lab.state(1) == "STARTUP"
        seen.add((lab.state(0), lab.state(1)))
    assert ("WAITING", "STARTUP") in seen and at[1] == TASKS
    lab.run()
    assert lab.picture(0) == lab.picture(1) == picture
    assert said(lab.done(0)) == b""


def test_tubes_share_a_turn() -> None:
    """T19.6 A leader loads and unloads at most 2000 tasks per turn, across all tubes.

    A small tube does not wait for a large one."""
    lab = lab_with_tasks(200)
    lab.make(0, name=b"small")
    for _ in range(5):
        lab.put(0, name=b"small")
    lab.live(1000)
    assert not lab.move(0, 1)
    assert not lab.move(0, 1, b"small")
    before = 205 - STEP
    while lab.state(1, b"small") != "RUNNING":
        lab.step()
        left = len(lab.tube(0).tasks) + len(lab.tube(0, b"small").tasks)
        assert left >= before - STEP
        before = left
    assert len(lab.tube(0).tasks) > 0
    lab.run()
    assert len(lab.nodes[1].jobs) == 205


def test_nothing_is_done_to_tasks_on_their_way() -> None:
    """T19.6 A task that is being moved is not changed (T19.2), and the move is not recorded."""
    lab = lab_with_tasks()
    assert not lab.move(0, 1)
    on_the_way(lab, 0, is_in=False)
    with pytest.raises(HomeError):
        lab.take(0)
    on_the_way(lab, 1, is_in=True)
    assert lab.state(1) == "STARTUP"
    for call in (
        lambda: lab.take(1),
        lambda: lab.put(1),
        lambda: admin.truncate(lab.nodes[1], lab.t(1), lab.tube(1)),
        lambda: admin.drop(lab.nodes[1], lab.t(1), lab.tube(1)),
    ):
        with refused("is STARTUP here: try again soon"):
            call()
    assert lab.tube(1).driver.first() is not None
    lab.run()
    assert lab.runs_at() == [1] and lab.take(1) is not None


def test_what_is_due_meanwhile() -> None:
    """T19.2 what became due is due when the tube runs again."""
    lab = lab_with_tasks(0)
    for i in range(TASKS):
        lab.put(0, ttl_ms=3000, delay_ms=2000 if i % 2 else 0)
    lab.live(500)
    assert not lab.move(0, 1)
    on_the_way(lab, 1, is_in=True)
    lab.now_ms += 2600  # all is due, or over
    for _ in range(2):
        lab.step()
        assert lab.state(1) == "STARTUP" and len(lab.picture(1)) == TASKS
        check(lab.nodes[1])
    lab.run()
    lab.pass_ms(16)
    assert lab.runs_at() == [1]
    assert [chr(task.status) for task in lab.tube(1).tasks.values()] == ["r"] * (TASKS // 2)
    assert all(number % 2 for number in lab.tube(1).tasks)


def shared(lab: HomesLab, count: int) -> bytes:
    """`count` tasks are held by client 1, whose session is shared; its uuid."""
    for i in range(len(lab.nodes)):
        admin.cfg(lab.nodes[i], lab.t(i), 60_000, True)
    uuid = identify(lab.nodes[0], lab.t(0), 1, b"user", None)
    for _ in range(count):
        assert lab.take(0) is not None
    lab.live(500)
    return uuid


def test_a_session_that_ends_meanwhile() -> None:
    """T19.6 A task that is being moved is not changed (T19.2)

    Tasks of a session that ended meanwhile are released when the tube runs (T8.2)."""
    lab = lab_with_tasks()
    uuid = shared(lab, 30)
    assert not lab.move(0, 1)
    on_the_way(lab, 1, is_in=True)
    t = lab.t(1)
    session = t.by_uuid[uuid]
    assert 0 < len(session.taken) < 30
    sessions.end_session(lab.nodes[1], t, session)
    check(lab.nodes[1])
    assert 0 < sum(task.status == TAKEN for task in lab.tube(1).tasks.values()) <= STEP
    lab.run()
    assert lab.runs_at() == [1]
    assert all(task.status == READY for task in lab.tube(1).tasks.values())
    assert lab.picture(0) == lab.picture(1)


@pytest.mark.parametrize("is_in", [False, True])
@pytest.mark.parametrize("has_sessions", [False, True])
def test_a_crash_in_between(is_in: bool, has_sessions: bool) -> None:
    """T19.6 and the move is not recorded.

    T20.5 A TAKEN task stays TAKEN if its session is shared"""
    lab = lab_with_tasks(has_journal=True)
    uuid = shared(lab, 5) if has_sessions else b""
    picture = lab.picture(0)
    assert not lab.move(0, 1)
    on_the_way(lab, int(is_in), is_in=is_in)
    lab.journals[int(is_in)].rewrite(lab.nodes[int(is_in)])
    lab.die(int(is_in))
    assert lab.picture(int(is_in)) == picture
    lab.revive(int(is_in))
    lab.live(12_000)
    (home,) = lab.runs_at()
    assert lab.picture(0) == lab.picture(1) == picture
    if has_sessions:
        n, t = lab.nodes[home], lab.t(home)
        with refused("was not taken"):
            lab.ack(home, 0, client=9)
        assert identify(n, t, 8, b"user", uuid) == uuid
        assert lab.ack(home, 0, client=8).number == 0


def test_a_crash_before_holders_are_settled() -> None:
    """T22.1 Until a new leader has settled the holders (T19.6) it also says that sessions of the
    last leader hold tasks."""
    lab = lab_with_tasks(1, has_journal=True)
    lab.make(1, name=b"other")
    lab.put(1, name=b"other")
    uuid = shared(lab, 1)  # session 1 of node 0
    mine = identify(lab.nodes[1], lab.t(1), 1, b"user", None)
    assert lab.take(1, name=b"other") is not None  # session 1 of node 1
    lab.slow = {1}
    lab.live(500)
    assert not lab.move(0, 1)
    for _ in range(20):
        lab.step()
    assert lab.state(1) == "STARTUP"
    lab.die(1)
    lab.slow = set()
    lab.live(500)
    lab.revive(1)
    lab.live(3000)
    assert lab.runs_at() == [1]
    assert identify(lab.nodes[1], lab.t(1), 1, b"user", mine) == mine
    with refused("was not taken"):
        lab.ack(1, 0, client=1)
    assert identify(lab.nodes[1], lab.t(1), 2, b"user", uuid) == uuid
    assert lab.ack(1, 0, client=2).number == 0


def test_the_home_changes_its_mind() -> None:
    """T20.2 the tube runs again under its old epoch

    T19.6 If it resumes, the unload is completed first."""
    lab = lab_with_tasks(nodes=3)
    picture = lab.picture(0)
    lab.begin(0, 1)
    lab.hold(1, 0)
    lab.step()
    lab.cut(0, 1)
    on_the_way(lab, 0, is_in=False)
    assert lab.state(0) == "WAITING"
    on_the_way(lab, 0, is_in=True)
    assert lab.state(0) == "STARTUP"
    lab.run()
    assert lab.runs_at() == [0] and lab.tube(0).epoch == 1
    assert lab.picture(0) == picture


@pytest.mark.parametrize("why", ["lease", "read-only"])
def test_a_home_that_may_not_run_meanwhile(why: str) -> None:
    """T19.6 If the leadership moves away or is suspended, the loaded tasks are unloaded again.

    It is suspended by T19.3 and T19.5."""
    lab = lab_with_tasks(nodes=3)
    shared(lab, 20)
    assert not lab.move(0, 1)
    on_the_way(lab, 1, is_in=True)
    if why == "lease":
        lab.isolate(1)
        lab.now_ms += 6000
        lab.step()
    else:
        set_read_only(lab.nodes[1], lab.t(1), True)
        lab.step()
    tube = lab.tube(1)
    assert tube.shift is None or not tube.shift.is_in
    for _ in range(10):
        lab.step()
        check(lab.nodes[1])
    lab.heal()
    lab.live(3000)
    assert len(lab.runs_at()) == 1 and (why == "lease") == (lab.runs_at() == [1])
    pictures = [lab.picture(i) for i in range(3)]
    assert pictures[0] == pictures[1] == pictures[2]
    assert sum(state[1] == "t" for state in pictures[0].values()) == 20


@pytest.mark.parametrize("is_in", [False, True])
def test_another_home_by_force_meanwhile(is_in: bool) -> None:
    """T21.4 and replaces what it has by a replica of the new leader's tasks.

    T19.6 A follower asks for its replica (T18.3) when all tasks are unloaded."""
    lab = lab_with_tasks(nodes=3)
    shared(lab, 20)
    old = 1 if is_in else 0
    assert not lab.move(0, 1)
    on_the_way(lab, old, is_in=is_in)
    lab.isolate(old)
    wires = len(lab.tube(old).tasks)
    assert wires > 0
    lab.tube(2).is_complete = True
    for i in (0, 1, 2):
        lab.t(i).shift_tasks = 1  # what is on the way stays so
    lab.nodes[old].now_ms = lab.now_ms
    if not is_in:
        lab.live(9000)
    with suppress(TubeError):
        lab.force(2)
    lab.live(16_000)
    lab.heal()
    lab.live(20_000)
    assert len(lab.runs_at()) == 1
    pictures = [lab.picture(i) for i in range(3)]
    assert pictures[0] == pictures[1] == pictures[2] and len(pictures[0]) == TASKS
    assert all(lab.tube(i).is_complete for i in range(3))


@pytest.mark.parametrize("is_in", [False, True])
def test_a_higher_epoch_meanwhile(is_in: bool) -> None:
    """T19.6 If the leadership moves away or is suspended, the loaded tasks are unloaded again.

    T19.6 A follower asks for its replica (T18.3) when all tasks are unloaded."""
    lab = lab_with_tasks(nodes=3)
    shared(lab, 20)
    old = 1 if is_in else 0
    assert not lab.move(0, 1)
    on_the_way(lab, old, is_in=is_in)
    lab.t(old).shift_tasks = 1
    n = lab.nodes[2]
    lab.isolate(2)
    n.others = 0  # FORCE at a node that knows of no other one
    take_home(n, lab.t(2), lab.tube(2), 5, 7)
    lab.t(2).shift_tasks = 2000
    for _ in range(3):
        lab.step()
    assert lab.state(2) == "RUNNING"
    lab.link(0, 2)
    lab.link(1, 2)
    for _ in range(3):
        lab.step()
    tube = lab.tube(old)
    assert (tube.is_mine, tube.epoch) == (False, lab.tube(2).epoch)
    assert tube.shift is not None and not tube.shift.is_in and len(tube.tasks) > 0
    assert not tube.is_asking and tube.copy_epoch != tube.epoch
    lab.live(2000)
    assert lab.runs_at() == [2]
    assert lab.picture(0) == lab.picture(1) == lab.picture(2)
    assert all(lab.tube(i).is_complete and lab.tube(i).seq == lab.tube(2).seq for i in range(2))


@pytest.mark.parametrize("is_in", [False, True])
def test_a_drop_meanwhile(is_in: bool) -> None:
    """T19.6 A drop (T17.6) waits for nothing."""
    lab = lab_with_tasks(nodes=3)
    i = int(is_in)
    assert not lab.move(0, 1)
    on_the_way(lab, i, is_in=is_in)
    n, t, tube = lab.nodes[i], lab.t(i), lab.tube(i)
    flush_all(n)
    check(n)
    assert (t.by_name, n.jobs, t.copies_by_id, t.shifting) == ({}, {}, {}, [])
    assert len(tube.tasks) == 0
    lab.live(2000)
    assert lab.t(2).by_name != {}  # T17.6: others keep what they have


def test_a_drop_at_the_new_home_meanwhile() -> None:
    """T17.6 they delete their replicas.

    T19.6 A drop (T17.6) waits for nothing."""
    lab = lab_with_tasks()
    lab.t(0).shift_tasks = 1
    assert not lab.move(0, 1)
    lab.t(1).shift_tasks = 2000
    while lab.runs_at() != [1]:
        lab.step()
    assert 0 < len(lab.tube(0).tasks) < TASKS
    admin.drop(lab.nodes[1], lab.t(1), lab.tube(1))
    lab.run()
    for i in range(2):
        t, n = lab.t(i), lab.nodes[i]
        assert (t.by_name, n.jobs, t.copies_by_id, t.shifting) == ({}, {}, {}, [])


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))]
)
def test_homes_change_all_the_time(seed: int) -> None:
    """T20.4 Two nodes are never RUNNING for one tube.

    T20.5 Every task keeps its number, status, pri, times, token, body and job id."""
    rng = random.Random(f"shifts {seed}")
    lab = lab_with_tasks(30, seed % 2 == 0, rng.choice([b"fifottl", b"utubettl"]), 3)
    if seed % 3:
        shared(lab, 8)
    for i in range(3):
        lab.t(i).shift_tasks = rng.choice([1, 4])
    for _ in range(150):
        at = lab.runs_at()
        kind = rng.random()
        if at and kind < 0.3:
            with suppress(TubeError):
                lab.move(at[0], rng.randrange(3))
        elif at and kind < 0.4:
            lab.take(at[0], rng.randrange(3))
        elif at and kind < 0.43:
            tasks = lab.tube(at[0]).tasks
            if tasks:
                with suppress(TubeError):
                    lab.t(at[0]).set_pri(
                        lab.nodes[at[0]], tasks[rng.choice(list(tasks))], rng.randrange(5)
                    )
        elif kind < 0.5:
            a, b = rng.sample(range(3), 2)
            lab.cut(a, b)
        elif kind < 0.55:
            lab.now_ms += 5100
        elif kind < 0.7:
            lab.heal()
        elif kind < 0.73 and lab.journals:
            lab.die(rng.randrange(3))
        for _ in range(rng.randrange(12)):
            lab.step()
            for n in lab.nodes:
                check(n)
    for i in range(3):
        lab.isolate(i)
    lab.heal()
    lab.live(25_000)
    assert len(lab.runs_at()) == 1
    pictures = [lab.picture(i) for i in range(3)]
    for picture in pictures:  # an instant that is told while time jumps is told as it was
        assert sorted(picture) == list(range(30))
        for number, state in picture.items():
            assert state[:8] + state[9:] == pictures[0][number][:8] + pictures[0][number][9:]
