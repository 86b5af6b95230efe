"""Dead letters of tubes across restarts and leaders, without a server (SPEC T48)."""

from __future__ import annotations

import pytest
from lives_world import LivesWorld, add, begin, fail, letters, take, why
from tube_world import TubeWorld, files_of, loaded

from tuque.core.dispatch.timers import next_timer_ms
from tuque.core.life.dead_letters import (
    Letters,
    letter_of,
    purge,
    replay,
)
from tuque.core.life.outcomes import is_settled, on_done, watch
from tuque.core.life.runs import on_fail
from tuque.core.life.shown import result_fields
from tuque.core.model.errors import NO_RUN_YET, STALE_RUN
from tuque.core.model.task import BURIED, READY, Task, carried_by
from tuque.core.node.node import Node
from tuque.core.queues.ends import life_of
from tuque.core.queues.procedures import check
from tuque.core.work.rules import BACK, DIED
from tuque.tubes.entries.keys import is_sound, with_work, work_in
from tuque.tubes.entries.work import unpack_work
from tuque.tubes.policies.next_task import Tasks
from tuque.tubes.tasks import operations

FATE = ("failed", "done")


def again_ready(n: Node, id: bytes) -> bool:
    """DEAD REPLAY of one."""
    letter = letter_of(n, id)
    assert letter is not None
    return replay(n, letter, b"")


def state(n: Node, id: bytes) -> bytes:
    fields, _ = result_fields(n, id)
    assert fields is not None
    word = fields["state"]
    assert isinstance(word, bytes)
    return word


def dead_home() -> tuple[TubeWorld, bytes]:
    """A node with one dead task."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    id = add(home.n, attempts=1, unique=b"u", ttl_s=100)
    assert take(home.n) == [id]
    assert fail(home.n, id, begin(home.n, id)) == DIED
    home.settle()
    return home, id


# ---- restarts


def facts(n: Node) -> list[tuple[object, ...]]:
    """All tasks, and the table of dead letters."""
    rows: list[tuple[object, ...]] = []
    for id, job in sorted(n.jobs.items()):
        assert isinstance(job, Task)
        life = life_of(n, id)
        died = None if life is None else (life.failed, life.replays, life.dead_cause, life.dead_ms)
        rows.append((id, job.status, job.body, job.ttl_ms, work_in(job), died))
    rows.append(tuple((one.job.id, one.life.serial) for one in Letters(b"t", b"").after(n, 0, 100)))
    return rows


def test_a_journal_cut_at_every_byte() -> None:
    """T48.8 in one change, and so once, it is BURIED in its tube, under its id, with cause,
    reason, attempts, and the first and last failure.
    """
    home, first = dead_home()
    name = home.disk().segment()
    begins = home.files.size(name)
    states = [(begins, facts(home.n))]
    second = add(home.n, attempts=2)
    home.settle()
    for step in ("take", "fail", "take", "fail", "replay", "purge"):
        if step == "take":
            assert take(home.n) == [second]
            begin(home.n, second)
        elif step == "fail":
            life = life_of(home.n, second)
            assert life is not None
            fail(home.n, second, life.run)
        elif step == "replay":
            assert again_ready(home.n, first)
        else:
            letter = letter_of(home.n, second)
            assert letter is not None and purge(home.n, letter)
        home.settle()
        states.append((home.files.size(name), facts(home.n)))
    assert len({end for end, _ in states}) == 7
    files = files_of(home.files)
    for size in range(begins, len(files[name]) + 1):
        n = loaded(home, files, name, size)
        dead = letters(n)
        found = facts(n)[-1]
        assert found in [rows[-1] for _, rows in states]
        assert all(n.jobs[id].body == b"body" for id in dead)
        if size == len(files[name]):
            assert facts(n) == states[-1][1]


def test_letters_keep_their_order_and_cursors() -> None:
    """T48.15 The cursor of LIST stays good at a new leader."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    ids = [add(home.n, attempts=1) for _ in range(5)]
    died = [ids[i] for i in (3, 0, 4, 2, 1)]
    for id in died:
        operations.bury(home.n, home.t, home.t.by_name[b"t"], task_of(home.n, id).number)
        home.settle()
    assert letters(home.n) == died
    cursor = Letters(b"t", b"").after(home.n, 0, 2)[1].life.serial
    home.restart()
    assert letters(home.n) == died
    assert [one.job.id for one in Letters(b"t", b"").after(home.n, cursor, 9)] == died[2:]
    check(home.n)


def task_of(n: Node, id: bytes) -> Task:
    task = n.jobs[id]
    assert isinstance(task, Task)
    return task


def test_the_detail_is_there_after_a_restart() -> None:
    """T48.2 STARTs, and the detail of the last failure, only of a dead letter."""
    home, id = dead_home()
    home.restart()
    fields, _ = result_fields(home.n, id)
    assert fields is not None
    assert (fields["state"], fields["cause"], fields["reason"]) == (b"dead", b"failed", b"no luck")
    assert (fields["detail"], fields["attempt"]) == (b"trace", 1)
    again_ready(home.n, id)
    home.settle()
    home.restart()
    life = life_of(home.n, id)
    assert life is not None and (life.replays, life.failed, life.last) == (1, 0, None)
    check(home.n)


def test_a_late_fail_of_the_life_before() -> None:
    """T48.13 as new: `failed` and `crashes` are 0"""
    home, id = dead_home()
    run = home.n.life.by_id[id].run
    assert again_ready(home.n, id)
    assert why(on_fail(home.n, id, run, -1, b"", b"", False)[2]) in (NO_RUN_YET, STALE_RUN, 36, 49)
    assert take(home.n) == [id]
    begin(home.n, id)
    assert why(on_fail(home.n, id, run, -1, b"", b"", False)[2]) == STALE_RUN
    life = life_of(home.n, id)
    assert life is not None and life.failed == 0


def test_a_dead_task_stays_for_dead_keep_days() -> None:
    """T48.15 A dead task is gone after `dead-keep-days`, whatever its ttl."""
    home, id = dead_home()
    home.n.limits.dead_keep_ms = 500_000
    home.pass_ms(101_000)
    assert letters(home.n) == [id]  # its ttl was 100 s
    again_ready(home.n, id)
    home.pass_ms(99_000)
    assert task_of(home.n, id).status == READY  # its ttl begins anew
    take(home.n)
    fail(home.n, id, begin(home.n, id), True)
    home.settle()
    home.restart()
    home.pass_ms(499_000)
    assert letters(home.n) == [id]
    home.pass_ms(2_000)
    assert letters(home.n) == [] and id not in home.n.jobs
    check(home.n)


def test_the_oldest_go_above_the_bound() -> None:
    """T48.15 Above `dead-max-bytes` the leader removes the oldest (W6.6)"""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    ids = []
    for _ in range(6):
        ids.append(add(home.n, attempts=1))
        take(home.n)
        fail(home.n, ids[-1], begin(home.n, ids[-1]))
        home.n.limits.dead_bytes = 3 * home.n.life.dead_bytes // max(1, len(letters(home.n)))
    assert letters(home.n) == ids[3:]
    assert home.n.life.dead_dropped == 3
    home.settle()
    home.restart()
    assert letters(home.n) == ids[3:]
    check(home.n)


def test_the_bound_waits_for_a_tube_that_does_not_run() -> None:
    """W6.6 Above `dead-max-bytes` of dead letters, bodies included, the oldest ones are deleted"""
    home, id = dead_home()
    second = add(home.n, attempts=1)
    take(home.n)
    home.t.lease_ms = home.n.now_ms - 1
    home.n.limits.dead_bytes = 10
    home.t.lease_ms = home.n.now_ms + 1_000
    fail(home.n, second, begin(home.n, second))
    assert letters(home.n) == [second] and id not in home.n.jobs
    home.t.lease_ms = home.n.now_ms - 1
    assert next_timer_ms(home.n) > home.n.now_ms or letters(home.n) == [second]


# ---- the bytes


def test_bytes_of_another_death_are_refused() -> None:
    home, id = dead_home()
    task = task_of(home.n, id)
    work = work_in(task)
    life = unpack_work(work)
    assert life is not None and life.is_dead and life.last is not None
    assert life.last.detail == b"trace"
    for size in range(1, len(work)):
        assert not is_sound(with_work(carried_by(task), work[:size]))
    assert is_sound(carried_by(task))


# ---- leaders


@pytest.mark.parametrize("fate", FATE)
@pytest.mark.parametrize("steps", range(6))
def test_the_leader_is_lost_as_the_task_dies(steps: int, fate: str) -> None:
    """T48.8 in one change, and so once, it is BURIED in its tube."""
    world = LivesWorld()
    n = world.leading()
    id = add(n, attempts=1, keep_ms=6_000_000)
    assert take(n) == [id]
    run = begin(n, id)
    world.settle()
    watch(n, 5, [id], 0)
    assert fail(n, id, run) == DIED
    gone = world.runs_at()[0]
    for _ in range(steps):
        world.carry()
    was_shown = is_settled(n, id)
    world.restart(gone)
    for one in world.cores:
        one.limits.crashes_max = 1
    world.pass_ms(25_000)
    n = world.leading()
    if letters(n) != [id]:
        assert not was_shown, "a death that was seen is gone"
        if fate == "done":
            assert on_done(n, id, run, None, 1)  # it goes on
        else:
            world.pass_ms(32_000)  # its ttr is over
            n = world.leading()
            assert letters(n) == [id]
    world.settle()
    world.rejoin(gone)
    world.pass_ms(3_000)
    was_dead = letters(world.leading()) == [id]
    for _ in range(2):
        n = world.leading()
        assert letters(n) == ([id] if was_dead else [])
        assert state(n, id) == (b"dead" if was_dead else b"done")
        assert take(n) == []
        assert [one.life.letter_count() for one in world.cores].count(1) == (1 if was_dead else 0)
        for one in world.cores:
            check(one)
        world.lose_leader()


def test_a_letter_in_another_queue() -> None:
    """T48.12 If ADDJOB named a queue with DEAD, the dead letter of a task is a new job with its
    own id there
    """
    world = LivesWorld()
    n = world.leading()
    id = add(n, attempts=1, dead=b"grave")
    assert take(n) == [id]
    assert fail(n, id, begin(n, id)) == DIED
    world.settle()
    (letter,) = letters(n, b"grave")
    assert letter != id and id not in n.jobs and letters(n) == []
    life = n.life.by_id[letter]
    assert (life.origin, life.dead_cause) == (b"t", b"failed")
    check(n)


def test_letters_at_the_next_leader_are_replayed() -> None:
    """T48.13 It asks for its UNIQUE key again"""
    world = LivesWorld()
    n = world.leading()
    ids = []
    for i in range(4):
        ids.append(add(n, attempts=1, unique=b"u%d" % (i % 3)))
        assert take(n) == [ids[-1]]
        assert fail(n, ids[-1], begin(n, ids[-1])) == DIED
    world.settle()
    world.pass_ms(500)
    world.lose_leader()
    n = world.leading()
    assert letters(n) == ids
    driver = world.tube(world.runs_at()[0]).driver
    assert isinstance(driver, Tasks) and len(driver.uniques.claims) == 0
    assert again_ready(n, ids[3])  # has u0 now
    assert not again_ready(n, ids[0])
    assert again_ready(n, ids[1])
    world.settle()
    world.pass_ms(500)
    world.lose_leader()
    n = world.leading()
    assert letters(n) == [ids[0], ids[2]]
    driver = world.tube(world.runs_at()[0]).driver
    assert isinstance(driver, Tasks) and sorted(driver.uniques.claims) == [b"u0", b"u1"]
    assert not again_ready(n, ids[0])
    for id in (ids[1], ids[3]):
        assert take(n) == [id]
        assert on_done(n, id, begin(n, id), None, 1)
    assert again_ready(n, ids[0])
    for one in world.cores:
        check(one)


def test_an_expired_task_that_leaves_no_letter() -> None:
    """T48.14 Without ATTEMPTS, or with ONEXPIRY drop if no attempt failed (W6.2), it is gone
    (T6.1).
    """
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    failed, taken = (add(home.n, ttl_s=100, drops=True, backoff_ms=0) for _ in range(2))
    assert take(home.n) == [failed]
    assert fail(home.n, failed, begin(home.n, failed)) == BACK
    home.pass_ms(20)
    home.restart()
    waits = add(home.n, ttl_s=100, drops=True)
    home.pass_ms(101_000)
    assert letters(home.n) == [failed]
    assert taken not in home.n.jobs and waits not in home.n.jobs
    check(home.n)


def test_an_expired_task_at_a_leader() -> None:
    """T48.14 A task with ATTEMPTS whose ttl is over when it is READY or its attempt fails becomes
    dead with the cause `expired`; the reason is that of its last failure."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    ids = [add(home.n, ttl_s=100), add(home.n, ttl_s=100), add(home.n, ttl_s=100)]
    plain = add(home.n, attempts=0, ttl_s=100)
    assert take(home.n) == [ids[0]]
    run = begin(home.n, ids[0])
    home.pass_ms(29_000)
    assert fail(home.n, ids[0], run) == BACK
    assert take(home.n) == [ids[0]]
    run = begin(home.n, ids[0])
    home.n.now_ms += 71_000
    assert fail(home.n, ids[0], run) == DIED
    home.pass_ms(71_020)
    assert sorted(letters(home.n)) == sorted(ids)
    lives = [home.n.life.by_id[id] for id in ids]
    assert [life.dead_cause for life in lives] == [b"expired"] * 3
    assert [life.failed for life in lives] == [2, 0, 0]
    assert plain not in home.n.jobs
    assert all(task_of(home.n, id).status == BURIED for id in ids)
    home.restart()
    assert sorted(letters(home.n)) == sorted(ids)
    check(home.n)
