"""Schedules across restarts and leaders, without a server (SPEC T45)."""

from __future__ import annotations

import random

import pytest
from tube_world import TubeWorld
from tubes_world import TIMEOUT_MS, VotesWorld

from sim.engine.clock import START_MS
from tuque.core.copies.ack import on_ackjob
from tuque.core.dispatch.timers import tick
from tuque.core.msgs.bus import TubeCopy
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.procedures import check
from tuque.core.records.tubes import tell_task
from tuque.server.commands.firing import step_of
from tuque.tubes import schedules
from tuque.tubes.entries.keys import is_sound
from tuque.tubes.entries.schedule import (
    ALL,
    ONE,
    ScheduleEntry,
    is_plan,
    plan_in,
)
from tuque.tubes.log import send
from tuque.tubes.policy import tubes_of

SECOND = 1_000


TEN_HOURS = 36_000  # seconds
LONG_TIMEOUT_MS = 20_000


def planned(name: bytes = b"n", every_ms: int = SECOND, missed: int = ALL) -> ScheduleEntry:
    plan = ScheduleEntry()
    plan.name, plan.every_ms, plan.missed = name, every_ms, missed
    return plan


def shell(n: Node) -> None:
    """What the server does with schedules at the end of a turn."""
    t = tubes_of(n)
    while (task := schedules.next_due(n, t)) is not None:
        tube = t.by_name[task.queue]
        plan = schedules.plan_of(tube, task)
        step = step_of(plan, int(n.now_ms), 0)
        if step.fires_ms == 0 or schedules.may_fire(n, t, tube, plan):
            schedules.fire(n, t, tube, task, plan, step)


def work(n: Node, done: dict[bytes, None]) -> None:
    """Take and ack all that is ready."""
    for job in on_getjob(n, 9, [b"t"], 100):
        done[job.id] = None
        assert on_ackjob(n, job.id)


# ---- restarts


def test_schedules_survive_a_restart() -> None:
    """T45.4 Each instant makes one job, also over starts and changes of the leader."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    add = schedules.add_schedule
    assert add(home.n, home.t, home.t.by_name[b"t"], planned(), b"body") == schedules.ADDED
    done: dict[bytes, None] = {}
    chance = random.Random(1)
    for _ in range(200):
        home.pass_ms(chance.randrange(400))
        shell(home.n)
        if chance.random() < 0.5:
            home.settle()
            work(home.n, done)
            home.settle()
            if chance.random() < 0.3:
                home.restart(chance.randrange(3_000))
        elif chance.random() < 0.3:
            home.restart()  # what this turn has done is lost
    for _ in range(60):
        home.pass_ms(100)
        shell(home.n)
    work(home.n, done)
    check(home.n)
    tube = home.t.by_name[b"t"]
    (number,) = tube.driver.plans.by_name.values()
    plan = schedules.words_of(tube.tasks[number])
    assert plan.fired == len(done) == (plan.noted_ms - START_MS) // SECOND
    assert home.n.now_ms - SECOND <= plan.noted_ms <= home.n.now_ms


# ---- leaders


class SchedulesWorld(VotesWorld):
    """Three nodes with a tube of type tasks, whose shells fire schedules."""

    def __init__(self, **options: object) -> None:
        super().__init__(3, makes=False, **options)
        self.pass_ms(2 * TIMEOUT_MS)
        assert all(self.in_force(i) for i in range(3))
        self.make(0, b"tasks", sync=2)
        self.pass_ms(1_000)
        self.done: dict[bytes, None] = {}

    def plan(self) -> ScheduleEntry:
        tube = self.tube(self.leads())
        (number,) = tube.driver.plans.by_name.values()
        return schedules.words_of(tube.tasks[number])

    def begin_one(self, every_ms: int = SECOND) -> None:
        """A schedule of one job a second, or so."""
        n = self.nodes[self.leads()].core
        tube = self.tube(self.leads())
        schedules.add_schedule(n, tubes_of(n), tube, planned(every_ms=every_ms), b"body")
        self.every_ms = every_ms
        self.settle()
        self.first_ms = schedules.words_of(tube.tasks[0]).base_ms

    def work(self) -> None:
        """A worker takes and acks at the leader."""
        n = self.nodes[self.leads()].core
        work(n, self.done)

    def all_fired(self) -> None:
        """Each instant so far has made one job, and all of them were taken."""
        self.pass_ms(3_000)
        self.work()
        self.settle()
        plan = self.plan()
        assert plan.noted_ms > self.now_ms - SECOND - self.every_ms
        assert len(self.done) == (plan.noted_ms - self.first_ms) // self.every_ms


@pytest.mark.parametrize("seed", range(3))
def test_each_instant_fires_once_over_many_leaders(seed: int) -> None:
    """T45.4 Each instant makes one job, also over starts and changes of the leader."""
    world = SchedulesWorld()
    world.begin_one()
    chance = random.Random(seed)
    leaders = set()
    for _ in range(6):
        for _ in range(chance.randrange(1, 12)):
            world.pass_ms(chance.choice((50, 250, 500)))
            if world.runs_at():
                world.work()
        leader = world.leads()
        leaders.add(leader)
        world.restart(leader)
        world.pass_ms(2 * TIMEOUT_MS)
        world.rejoin(leader)
        world.pass_ms(2_000)
    assert len(leaders) > 1
    world.all_fired()


class LongWorld(SchedulesWorld):
    """A world for hours: few heartbeats, and what it heard and recorded is not kept."""

    def __init__(self) -> None:
        super().__init__(cluster_node_timeout=LONG_TIMEOUT_MS)

    def forget(self) -> None:
        self.forget_heard()
        for node in self.nodes:
            node.take_recorded()

    def rewrite_all(self) -> None:
        """All journals begin anew."""
        for i in self.numbers():
            self.rewrite(i)

    def next_leader(self) -> None:
        """The leader dies, another one leads, and it comes back."""
        leader = self.leads()
        self.rewrite_all()
        self.restart(leader)
        self.pass_ms(2 * LONG_TIMEOUT_MS)
        self.rejoin(leader)
        self.pass_ms(2_000)
        assert self.leads() != leader
        for n in self.cores:
            check(n)


@pytest.mark.slow
@pytest.mark.timeout(3_600)  # 80 s of a processor, of which others may take a part
def test_ten_hours_with_twenty_leaders() -> None:
    """T45.4 Each instant makes one job, also over starts and changes of the leader."""
    world = LongWorld()
    world.begin_one()
    end_ms = world.first_ms + TEN_HOURS * SECOND
    chance = random.Random(7)
    deaths = [chance.randrange(100, TEN_HOURS - 100) * SECOND + world.first_ms for _ in range(20)]
    for at_ms in [*sorted(deaths), 0]:
        while world.now_ms < (at_ms or end_ms):
            world.pass_ms(10_000)
            world.work()
            world.forget()
            if chance.random() < 0.1:
                world.rewrite_all()
        if at_ms:
            world.next_leader()
    assert world.tube(world.leads()).epoch > 20
    world.all_fired()
    assert len(world.done) >= TEN_HOURS


def test_a_job_is_ready_once_a_majority_has_it() -> None:
    """T45.4 Where a change must be on several nodes (T18.5) the job is READY once it is on as
    many
    """
    world = SchedulesWorld()
    world.begin_one()
    n, tube = world.nodes[0].core, world.tube(0)
    fired = world.plan().fired
    for _ in range(25):  # nobody hears of it
        n.now_ms += 100
        tick(n)
        shell(n)
    (number,) = tube.driver.plans.by_name.values()
    assert schedules.words_of(tube.tasks[number]).fired == fired + 1
    assert on_getjob(n, 9, [b"t"], 10) == []
    world.jump_ms(int(n.now_ms) - world.now_ms)
    world.pass_ms(500)
    assert len(on_getjob(n, 9, [b"t"], 10)) >= 1


def test_a_job_that_was_run_can_be_taken() -> None:
    """T45.7 RUN adds a job at once and notes no instant; when the reply comes, the job can be
    taken."""
    world = SchedulesWorld()
    world.begin_one()
    n, t, tube = world.nodes[0].core, world.t(0), world.tube(0)
    on_getjob(n, 9, [b"t"], 100)
    job = schedules.run_now(n, t, tube, b"n")
    assert job is not None
    assert tube in t.to_sync.values(), "the reply waits for the copies"
    world.settle()
    assert world.answered(0) == tube.seq
    assert [one.id for one in on_getjob(n, 9, [b"t"], 10)] == [job.id]


def test_the_note_came_without_the_job() -> None:
    """T45.4 A new leader that has the note without the job, by the number of the change, adds
    the job."""
    world = SchedulesWorld()
    world.begin_one(60 * SECOND)
    world.pass_ms(59_500)
    world.work()
    world.settle()
    before = len(world.done)
    cut = world.plan().fired
    n = world.nodes[0].core
    while schedules.words_of(world.tube(0).tasks[0]).fired == cut:
        n.now_ms += 20
        tick(n)
        shell(n)
    world.jump_ms(int(n.now_ms) - world.now_ms)
    tube = world.tube(0)
    whole = send.changes_of(n, world.t(0), tube, tube.followers[world.slot(0, 1)].cursor, None)
    assert isinstance(whole, TubeCopy) and whole.to_seq == tube.seq
    records = world.t(0).scratch
    tell_task(records, tube.tasks[0])
    whole.records, whole.to_seq = records.take(), tube.seq - 1
    world.t(0).changed = []  # the rest is never sent
    tube.is_changed = True
    for other in (1, 2):
        world.send(0, other, whole)
    assert {world.tube(i).seq for i in (1, 2)} == {tube.seq - 1}
    world.restart(0)
    world.pass_ms(4 * TIMEOUT_MS)
    world.work()
    world.rejoin(0)
    assert len(world.done) > before
    world.all_fired()


# ---- the bytes


def test_a_plan_goes_into_bytes_and_back() -> None:
    plan = planned(b"n" * 128, 0, ONE)
    plan.cron, plan.zone, plan.pri, plan.is_paused = b"* * * * *", b"UTC", -5, True
    plan.noted_ms, plan.fired_seq, plan.fired_epoch, plan.late = 1 << 41, 7, 3, 9
    packed = plan.packed(0)
    again_ = plan_in(packed)
    for name in ("name", "cron", "zone", "pri", "is_paused", "missed", "noted_ms", "fired_seq"):
        assert getattr(again_, name) == getattr(plan, name), name
    assert is_plan(packed) and is_sound(packed)
    assert plan.copy().packed(0) == packed
    for end in range(2, len(packed)):
        assert plan_in(packed[:end]) is None
