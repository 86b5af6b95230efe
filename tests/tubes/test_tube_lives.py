"""Lives of tasks across restarts and leaders, without a server (SPEC T48)."""

from __future__ import annotations

import random

import pytest
from lives_world import LivesWorld, add, begin, fail, letters, take, why
from tube_world import TubeWorld

from sim.engine.clock import START_MS
from tuque.core.copies.add import on_addjob, refusal, settle
from tuque.core.life.cancel_update import (
    ENDED,
    FLAGGED,
    OVER,
    on_cancel,
)
from tuque.core.life.lookup import CANCEL, ask
from tuque.core.life.outcomes import on_done, watch
from tuque.core.life.runs import on_release, on_work
from tuque.core.life.shown import result_fields
from tuque.core.life.start import on_start
from tuque.core.model.errors import (
    ATWORK,
    CANCELLED_JOB,
    NO_RUN_YET,
    STALE_RUN,
)
from tuque.core.model.job import AddSpec
from tuque.core.model.work import (
    LIVE,
    Failure,
    Life,
    Terms,
    attempt_of,
    run_of,
)
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.ends import life_of
from tuque.core.queues.procedures import check
from tuque.core.records.jobs import Records
from tuque.core.records.tubes import tell_task_life
from tuque.core.work.rules import BACK, DIED
from tuque.tubes import schedules
from tuque.tubes.entries.keys import (
    JobEntry,
    Keys,
    is_sound,
    lane_name,
    opened,
    pack,
    unique_of,
    unpack,
    with_work,
    work_of,
)
from tuque.tubes.entries.schedule import ScheduleEntry
from tuque.tubes.entries.work import pack_run, pack_work, unpack_work
from tuque.tubes.log.receive import changes_in, is_of_tube
from tuque.tubes.policy import tubes_of

# ---- restarts


def state(n: Node, id: bytes) -> tuple[object, object, object]:
    """What RESULT says: the state, the attempt and the worker."""
    told = result_fields(n, id)[0]
    assert told is not None
    return told["state"], told["attempt"], told["worker"]


def test_a_run_survives_a_restart() -> None:
    """T48.2 after a restart and at a new leader START of another worker gets `-ATWORK`, of the
    same one the same run.

    T48.9 If ttr, counted from START, WORKING or PROGRESS, is over while a run lasts, it fails
    with the cause `crashed` and uses up no attempt (W6.7); at its TIMELIMIT its attempt fails with
    `timeout`.
    """
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    spec = AddSpec()
    spec.retry_s = 30
    plain = on_addjob(home.n, b"t", b"body", settle(home.n, spec)).id  # it has no terms, no keys
    id = add(home.n)
    assert take(home.n) == [plain, id]
    home.pass_ms(7_000)
    runs = {one: begin(home.n, one) for one in (plain, id)}
    home.settle()
    for _ in range(2):
        home.restart(100_000)
        for one, run in runs.items():
            assert state(home.n, one) == (b"running", 1, b"w")
            life = life_of(home.n, one)
            assert life is not None and life.since_ms == START_MS + 7_000
            assert why(on_start(home.n, one, b"another", 1)) == ATWORK
            assert begin(home.n, one) == run
    assert on_done(home.n, plain, runs[plain], None, 1)
    home.pass_ms(30_100)
    life = life_of(home.n, id)
    assert life is not None and life.last is not None
    assert (life.failed, life.crashes, life.last.cause) == (0, 1, b"crashed")
    assert life.last.worker == b"w"
    home.restart(1_000)
    life = life_of(home.n, id)
    assert life is not None and life.crashes == 1, "W6.7"
    check(home.n)


def test_a_run_that_is_over_is_done_after_a_restart() -> None:
    """T48.6 So it does one that is READY, DELAYED or BURIED again, if it names the run of its last
    take: work that was done is done.
    """
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    id = add(home.n)
    assert take(home.n) == [id]
    run = begin(home.n, id)
    home.pass_ms(31_000)
    home.settle()
    home.restart(1_000)
    assert not on_done(home.n, id, run + 1, None, 1)
    assert on_done(home.n, id, run, None, 1)
    assert take(home.n) == []
    check(home.n)


def test_only_the_run_of_the_present_take_survives() -> None:
    """T48.3 A task that is TAKEN is `delivered` to RESULT until the leader knows its run."""
    home = TubeWorld(has_journal=True)
    tube = home.make("tasks")
    spec = AddSpec()
    spec.retry_s = 30
    plain = on_addjob(home.n, b"t", b"body", settle(home.n, spec)).id
    id = add(home.n)
    assert take(home.n) == [plain, id]
    for one in (plain, id):
        assert on_release(home.n, one, begin(home.n, one), 0)
    assert take(home.n) == [plain, id]
    assert {task.entry is None for task in tube.tasks.values()} == {True, False}
    home.settle()
    home.restart()
    for one in (plain, id):
        assert state(home.n, one) == (b"delivered", 0, b"")
    assert life_of(home.n, plain) is None
    assert next(iter(home.t.by_name[b"t"].tasks.values())).entry is None
    check(home.n)


def test_failures_survive_a_restart() -> None:
    """T48.2 Terms, headers, the highest failed attempt, `crashes`, deliveries that nobody began
    and the first and last failure are part of the task, in its records and its copies
    """
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    id = add(home.n)
    assert take(home.n) == [id]
    assert fail(home.n, id, begin(home.n, id)) == BACK
    home.settle()
    home.restart()
    life = life_of(home.n, id)
    assert life is not None and life.last is not None
    assert (life.failed, life.terms.attempts, life.headers) == (1, 3, b"\x01a\x01\x00b")
    assert (life.last.reason, life.last.detail) == (b"no luck", b"")
    assert take(home.n) == [id]
    run = begin(home.n, id)
    assert attempt_of(run) == 2
    home.settle()
    home.restart()
    assert on_work(home.n, id, run - 1, 1) is not None
    assert on_work(home.n, id, run, 1) is None  # T48.4
    assert fail(home.n, id, run, True) == DIED
    home.settle()
    check(home.n)
    home.restart()
    check(home.n)
    assert letters(home.n) == [id]
    letter = home.n.life.by_id[id]
    assert (letter.failed, letter.origin, letter.dead_cause) == (2, b"t", b"failed")
    assert take(home.n) == []


def test_a_run_whose_start_was_lost_and_that_is_silent() -> None:
    """T48.4 The START of a run may be lost with the last leader.

    T48.4 If none of them comes, no attempt counts.
    """
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    id = add(home.n)
    take(home.n)
    home.settle()
    run = begin(home.n, id)  # no record of it is written
    home.restart()
    assert state(home.n, id) == (b"delivered", 0, b"")
    assert take(home.n) == []
    home.pass_ms(30_020)
    assert take(home.n) == [id]
    assert why(on_work(home.n, id, run, 1)) in (NO_RUN_YET, STALE_RUN)
    assert attempt_of(begin(home.n, id)) == 1
    assert why(on_work(home.n, id, run, 1)) == STALE_RUN
    home.settle()
    home.restart()
    assert on_release(home.n, id, run, 0) is False
    check(home.n)


def test_a_cancel_survives_a_restart() -> None:
    """T48.10 The flag is part of the task (T48.2): a new leader knows it."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    id = add(home.n)
    assert take(home.n) == [id]
    run = begin(home.n, id)
    assert on_cancel(home.n, id, b"enough")[0] == FLAGGED
    home.settle()
    home.restart()
    assert state(home.n, id) == (b"running", 1, b"w")
    assert why(on_work(home.n, id, run, 1)) == CANCELLED_JOB
    assert on_release(home.n, id, run, 0)
    assert id not in home.n.jobs
    home.settle()
    home.restart()
    assert id not in home.n.jobs
    check(home.n)


def test_a_result_survives_a_restart() -> None:
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    id = add(home.n, keep_ms=60_000)
    take(home.n)
    run = begin(home.n, id)
    assert on_done(home.n, id, run, b"42", 1)
    home.settle()
    home.restart()
    kept = home.n.life.known(id)
    assert kept is not None and (kept.result, kept.run) == (b"42", run)
    assert id not in home.n.jobs


def test_a_body_that_was_replaced_survives_a_restart() -> None:
    """T44.7 With ON replace a task that is READY or DELAYED gets the body of the ADDJOB"""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    spec = AddSpec()
    keys = Keys()
    keys.unique = b"u"
    spec.keys, spec.replaces_same = pack(keys), True
    spec = settle(home.n, spec)
    for body in (b"one", b"another"):
        assert refusal(home.n, b"t", spec) is None
        on_addjob(home.n, b"t", body, spec)
        home.settle()
    home.restart()
    assert [job.body for job in on_getjob(home.n, 9, [b"t"], 10)] == [b"another"]
    check(home.n)


# ---- leaders


def test_a_run_goes_on_at_the_next_leader() -> None:
    """T48.2 after a restart and at a new leader START of another worker gets `-ATWORK`, of the
    same one the same run.
    """
    world = LivesWorld()
    n = world.leading()
    id = add(n)
    assert take(n) == [id]
    assert fail(n, id, begin(n, id)) == BACK
    assert take(n) == [id]
    run = begin(n, id)
    world.settle()
    world.pass_ms(500)
    world.lose_leader()
    n = world.leading()
    life = life_of(n, id)
    assert life is not None and life.failed == 1
    assert state(n, id) == (b"running", 2, b"w")
    assert why(on_start(n, id, b"another", 1)) == ATWORK
    assert begin(n, id) == run and attempt_of(run) == 2
    assert on_work(n, id, run, 1) is None
    world.settle()
    world.lose_leader()
    n = world.leading()
    assert fail(n, id, run, True) == DIED
    world.settle()
    world.pass_ms(500)
    assert len(letters(n)) == 1
    assert take(n) == []
    for one in world.cores:
        check(one)


def test_a_run_whose_start_was_lost_is_known_from_its_next_word_on() -> None:
    """T48.4 The START of a run may be lost with the last leader. The next leader accepts WORKING,
    PROGRESS, RELEASE, FAIL or DONE of that run while its take lasts, and then knows the run,
    without the name of its worker. If none of them comes, no attempt counts.
    """
    world = LivesWorld()
    n = world.leading()
    id = add(n)
    assert take(n) == [id]
    world.settle()
    world.pass_ms(500)
    run = begin(n, id)  # nobody hears of it
    world.lose_leader()
    n = world.leading()
    assert state(n, id) == (b"delivered", 0, b"")
    assert on_work(n, id, run, 1) is None
    assert state(n, id) == (b"running", 1, b"")
    assert why(on_start(n, id, b"another", 1)) == ATWORK
    world.settle()
    world.pass_ms(500)
    world.lose_leader()
    n = world.leading()
    assert state(n, id) == (b"running", 1, b"")
    assert why(on_start(n, id, b"another", 1)) == ATWORK
    for one in world.cores:
        check(one)


def test_a_cancelled_task_at_the_next_leader() -> None:
    """T48.10 The flag is part of the task (T48.2): a new leader knows it. A node without a replica
    of the task asks the leader (T17.8), and then the reply does not wait for SYNC.
    """
    world = LivesWorld()
    n = world.leading()
    flagged, waiting = add(n, keep_ms=600_000), add(n, keep_ms=600_000)
    assert take(n) == [flagged]  # both have the same LIMIT
    run = begin(n, flagged)
    world.settle()
    asker = next(one for one in world.cores if one is not n)
    for id, became in ((flagged, FLAGGED), (waiting, ENDED)):
        watch(asker, 5, [id], 0)
        asking = ask(asker, id, CANCEL, b"enough")
        world.settle()
        assert (asking.is_told, asking.became) == (True, became)
    world.pass_ms(500)
    world.lose_leader()
    n = world.leading()
    assert on_cancel(n, waiting, b"")[0] == OVER
    assert why(on_work(n, flagged, run, 1)) == CANCELLED_JOB
    assert on_release(n, flagged, run, 0)
    world.settle()
    world.pass_ms(500)
    assert take(n) == []
    for one in world.cores:
        check(one)


def plan_with_life() -> ScheduleEntry:
    """A schedule of a job each second, which has two attempts."""
    plan = ScheduleEntry()
    plan.name, plan.every_ms = b"s", 1_000
    life = Life(Terms(2, 0, 0, 0, b"lost", 60_000, 5_000), b"\x01a\x01\x00b")
    plan.keys = JobEntry(b"", life).packed(0)
    return plan


def has_life(n: Node, id: bytes) -> bool:
    life = life_of(n, id)
    assert life is not None
    assert (life.terms.attempts, life.terms.limit_ms, life.headers) == (2, 5_000, b"\x01a\x01\x00b")
    assert (life.terms.dead, life.terms.keep_ms) == (b"lost", 60_000)
    return True


def test_the_life_of_jobs_of_schedules_survives_a_restart() -> None:
    """T48.1 A schedule's jobs have those that SCHEDULE ADD gave them (T46.2)"""
    home = TubeWorld(has_journal=True)
    tube = home.make("tasks")
    schedules.add_schedule(home.n, home.t, tube, plan_with_life(), b"body")
    first = schedules.run_now(home.n, home.t, tube, b"s")
    assert first is not None and has_life(home.n, first.id)
    home.settle()
    home.restart()
    second = schedules.run_now(home.n, home.t, home.t.by_name[b"t"], b"s")
    assert second is not None
    assert has_life(home.n, first.id) and has_life(home.n, second.id)
    assert take(home.n) == [first.id, second.id]
    assert fail(home.n, first.id, begin(home.n, first.id)) == BACK
    home.settle()
    home.restart()
    life = life_of(home.n, first.id)
    assert life is not None and life.failed == 1
    check(home.n)


def test_the_life_of_jobs_of_schedules_at_the_next_leader() -> None:
    """T48.1 A schedule's jobs have those that SCHEDULE ADD gave them (T46.2)"""
    world = LivesWorld()
    n = world.leading()
    plan = plan_with_life()
    schedules.add_schedule(n, tubes_of(n), tubes_of(n).by_name[b"t"], plan, b"body")
    first = schedules.run_now(n, tubes_of(n), tubes_of(n).by_name[b"t"], b"s")
    world.settle()
    world.pass_ms(500)
    world.lose_leader()
    n = world.leading()
    second = schedules.run_now(n, tubes_of(n), tubes_of(n).by_name[b"t"], b"s")
    assert first is not None and second is not None
    assert has_life(n, first.id) and has_life(n, second.id)
    world.settle()
    for one in world.cores:
        check(one)


@pytest.mark.parametrize("seed", range(3))
def test_random_runs_over_many_leaders(seed: int) -> None:
    """Nothing is lost, no attempt is above ATTEMPTS, and what was answered as done is done."""
    world = LivesWorld()
    chance = random.Random(seed)
    ids: list[bytes] = []
    done: set[bytes] = set()
    for _ in range(6):
        for _ in range(15):
            n = world.leading()
            if chance.random() < 0.3:
                ids.append(add(n))
            for id in take(n):
                assert id not in done
                if chance.random() < 0.2:
                    continue  # the worker dies before it begins
                run = begin(n, id)
                assert attempt_of(run) <= 3
                what = chance.randrange(5)
                if what == 0:
                    fail(n, id, run)
                elif what == 1:
                    on_release(n, id, run, chance.choice((0, 500)))
                elif what == 3 and chance.random() < 0.3:
                    assert on_cancel(n, id, b"")[0] == FLAGGED
                    done.add(id)  # it is not taken again
                elif what == 2:
                    assert on_done(n, id, run, None, 1)
                    done.add(id)
            world.settle()
            world.pass_ms(chance.choice((50, 500, 12_000)))
        world.lose_leader()
    for _ in range(40):
        n = world.leading()
        for id in take(n):
            assert on_done(n, id, begin(n, id), None, 1)
        world.settle()
        world.pass_ms(8_000)
    tube = world.tube(world.runs_at()[0])
    assert len(tube.tasks) == tube.buried
    assert not done & set(letters(world.leading()))
    assert set(letters(world.leading())) == {task.id for task in tube.tasks.values()}
    for one in world.cores:
        check(one)


# ---- the bytes


def test_a_run_from_another_node_is_checked() -> None:
    life = Life(Terms(3, 1, 2, 3, b"dead", 4, 5), b"")
    life.run, life.starts, life.run_state, life.worker = run_of(1, 1, 7), 1, LIVE, b"w"
    world = LivesWorld()
    n = world.leading()
    id = add(n)
    tube = tubes_of(n).by_name[b"t"]
    sound, work = Records(), pack_run(life, 0)
    tell_task_life(sound, id, work)
    data = sound.take()
    found = changes_in(data)
    assert found is not None and found.lives == [(id, work)]
    assert not is_of_tube(tubes_of(n), tube, found)  # its task is not in the message
    for end in range(1, len(data)):
        assert changes_in(data[:end]) is None
    for end in range(len(work)):
        cut = Records()
        tell_task_life(cut, id, work[:end])
        assert changes_in(cut.take()) is None
    late = Records()
    life.since_ms = 1 << 62
    tell_task_life(late, id, pack_run(life, 0))
    assert changes_in(late.take()) is None


def test_work_goes_into_bytes_and_back() -> None:
    life = Life(Terms(3, 1, 2, 3, b"dead", 4, 5, True), b"\x01a\x01\x00b")
    life.failed = 2
    life.first = Failure(1, 1, b"w", b"failed", b"why", b"detail")
    keys = Keys()
    keys.unique, keys.group, keys.weight = b"u" * 255, b"g", 7
    plain = pack(keys)
    packed = with_work(plain, pack_work(life))
    assert is_sound(plain) and is_sound(packed)
    assert lane_name(packed) == lane_name(plain)
    assert unique_of(packed) == keys.unique and unpack(packed).weight == 7
    again_ = unpack_work(work_of(packed))
    assert again_ is not None and again_.first is not None
    assert again_.terms.key() == life.terms.key() and again_.failed == 2
    assert (again_.first.reason, again_.first.detail) == (b"why", b"")
    assert with_work(packed, b"") == plain
    for end in range(1, len(packed)):
        assert not is_sound(packed[:end]) or packed[:end] == plain
    life.run, life.starts, life.run_state, life.since_ms = run_of(3, 1, 7), 1, LIVE, 1_250
    life.worker = b"w"
    running = with_work(packed, pack_run(life, 1_000))
    again_ = unpack_work(work_of(running))
    assert again_ is not None and (again_.run, again_.worker) == (life.run, b"w")
    assert (again_.since_ms, again_.run_state, again_.failed) == (250, LIVE, 2)
    for end in range(len(plain) + 1, len(running)):
        assert not is_sound(running[:end])
    entry = opened(running)
    assert entry is not None and entry.keys == plain and entry.packed(0) == running
    alone = with_work(b"", pack_work(life))
    entry = opened(alone)
    assert entry is not None and entry.keys == b"" and entry.work is not None
    assert is_sound(alone) and lane_name(alone) == lane_name(b"")
