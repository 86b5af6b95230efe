"""Schedules across restarts and leaders, without a server (SPEC T45)."""

from __future__ import annotations

import random

import pytest
from tube_world import TubeWorld
from votes_lab import TIMEOUT_MS, VotesLab

from sim.engine.clock import START_MS
from tuque.core.copies.ack import on_ackjob
from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.msgs import TubeCopy
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
    Plan,
    is_plan,
    is_sound_plan,
    pack_plan,
    unpack_plan,
)
from tuque.tubes.log import send
from tuque.tubes.policy import tubes_of

SECOND = 1_000


TEN_HOURS = 36_000  # seconds


def planned(name: bytes = b"n", every_ms: int = SECOND, missed: int = ALL) -> Plan:
    plan = Plan()
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
    plan = unpack_plan(tube.tasks[number].subqueue)
    assert plan.fired == len(done) == (plan.noted_ms - START_MS) // SECOND
    assert home.n.now_ms - SECOND <= plan.noted_ms <= home.n.now_ms


# ---- leaders


class SchedulesLab(VotesLab):
    """Three nodes with a tube of type tasks, whose shells fire schedules."""

    def __init__(self) -> None:
        super().__init__(3, makes=False)
        self.live(2 * TIMEOUT_MS)
        assert all(self.in_force(i) for i in range(3))
        self.make(0, b"tasks", sync=2)
        self.live(1_000)
        self.done: dict[bytes, None] = {}

    def settle(self, i: int) -> None:
        """End of a turn: schedules fire, workers at the leader take and ack."""
        shell(self.nodes[i])
        super().settle(i)

    def leader(self) -> int:
        """The node that leads, after as long as it takes."""
        for _ in range(200):
            found = self.runs_at()
            if found:
                return found[0]
            self.live(250)
        raise AssertionError("nobody leads")

    def plan(self) -> Plan:
        tube = self.tube(self.leader())
        (number,) = tube.driver.plans.by_name.values()
        return unpack_plan(tube.tasks[number].subqueue)

    def begin_one(self, every_ms: int = SECOND) -> None:
        """A schedule of one job a second, or so."""
        n = self.nodes[self.leader()]
        n.now_ms = self.now_ms
        tube = self.tube(self.leader())
        schedules.add_schedule(n, tubes_of(n), tube, planned(every_ms=every_ms), b"body")
        self.every_ms = every_ms
        self.run()
        self.first_ms = unpack_plan(tube.tasks[0].subqueue).base_ms

    def work(self) -> None:
        """A worker takes and acks at the leader."""
        n = self.nodes[self.leader()]
        n.now_ms = self.now_ms
        work(n, self.done)

    def all_fired(self) -> None:
        """Each instant so far has made one job, and all of them were taken."""
        self.live(3_000)
        self.work()
        self.run()
        plan = self.plan()
        assert plan.noted_ms > self.now_ms - SECOND - self.every_ms
        assert len(self.done) == (plan.noted_ms - self.first_ms) // self.every_ms


@pytest.mark.parametrize("seed", range(3))
def test_each_instant_fires_once_over_many_leaders(seed: int) -> None:
    """T45.4 Each instant makes one job, also over starts and changes of the leader."""
    lab = SchedulesLab()
    lab.begin_one()
    chance = random.Random(seed)
    leaders = set()
    for _ in range(6):
        for _ in range(chance.randrange(1, 12)):
            lab.live(chance.choice((50, 250, 500)))
            if lab.runs_at():
                lab.work()
        leader = lab.leader()
        leaders.add(leader)
        lab.die(leader)
        lab.live(2 * TIMEOUT_MS)
        lab.revive(leader)
        lab.live(2_000)
    assert len(leaders) > 1
    lab.all_fired()


class LongLab(SchedulesLab):
    """A lab for hours: a heartbeat a second, and tables are checked now and then."""

    def born(self, i: int) -> Node:
        """A node whose tenth start makes other ids than its first: its seed has an end."""
        n = super().born(i)
        n.ids.seed += b" "
        return n

    def live(self, span_ms: int) -> None:
        """Let time pass with heartbeats."""
        for left_ms in range(span_ms, 0, -1_000):
            self.pass_ms(min(1_000, left_ms))
            self.beat()
        self.log.clear()
        for told in self.told:
            told.clear()
        for served in self.served:
            served.clear()

    def run_due(self) -> None:
        """Do what is due; the tables of the nodes are not checked."""
        for _ in range(1_000):
            if not self.step() and all(next_timer_ms(n) > self.now_ms for n in self.awake()):
                return
        raise AssertionError("the nodes never come to rest")

    def rewrite(self) -> None:
        """All journals begin anew: a disk of this lab costs what is in its files."""
        for journal, n in zip(self.journals, self.nodes, strict=True):
            journal.rewrite(n)

    def next_leader(self) -> None:
        """The leader dies, another one leads, and it comes back."""
        leader = self.leader()
        self.rewrite()
        self.die(leader)
        self.live(2 * TIMEOUT_MS)
        self.revive(leader)
        self.live(2_000)
        assert self.leader() != leader
        for n in self.nodes:
            check(n)


@pytest.mark.slow
@pytest.mark.timeout(3_600)  # 80 s of a processor, of which others may take a part
def test_ten_hours_with_twenty_leaders() -> None:
    """T45.4 Each instant makes one job, also over starts and changes of the leader."""
    lab = LongLab()
    lab.begin_one()
    end_ms = lab.first_ms + TEN_HOURS * SECOND
    chance = random.Random(7)
    deaths = [chance.randrange(100, TEN_HOURS - 100) * SECOND + lab.first_ms for _ in range(20)]
    for at_ms in [*sorted(deaths), 0]:
        while lab.now_ms < (at_ms or end_ms):
            lab.live(10_000)
            lab.work()
            if chance.random() < 0.1:
                lab.rewrite()
        if at_ms:
            lab.next_leader()
    assert lab.tube(lab.leader()).epoch > 20
    lab.all_fired()
    assert len(lab.done) >= TEN_HOURS


def test_a_job_is_ready_once_a_majority_has_it() -> None:
    """T45.4 Where a change must be on several nodes (T18.5) the job is READY once it is on so
    many"""
    lab = SchedulesLab()
    lab.begin_one()
    n, tube = lab.nodes[0], lab.tube(0)
    fired = lab.plan().fired
    for _ in range(25):  # nobody hears of it
        n.now_ms += 100
        tick(n)
        shell(n)
    (number,) = tube.driver.plans.by_name.values()
    assert unpack_plan(tube.tasks[number].subqueue).fired == fired + 1
    assert on_getjob(n, 9, [b"t"], 10) == []
    lab.now_ms = n.now_ms
    lab.live(500)
    assert len(on_getjob(n, 9, [b"t"], 10)) >= 1


def test_a_job_that_was_run_can_be_taken() -> None:
    """T45.7 RUN adds a job at once and notes no instant; when the reply comes, the job can be
    taken."""
    lab = SchedulesLab()
    lab.begin_one()
    n, t, tube = lab.nodes[0], lab.t(0), lab.tube(0)
    on_getjob(n, 9, [b"t"], 100)
    job = schedules.run_now(n, t, tube, b"n")
    assert job is not None
    assert tube in t.to_sync.values(), "the reply waits for the copies"
    lab.run()
    assert lab.answered(0) == tube.seq
    assert [one.id for one in on_getjob(n, 9, [b"t"], 10)] == [job.id]


def test_the_note_came_without_the_job() -> None:
    """T45.4 A new leader that has the note without the job, by the number of the change, adds
    the job."""
    lab = SchedulesLab()
    lab.begin_one(60 * SECOND)
    lab.live(59_500)
    lab.work()
    lab.run()
    before = len(lab.done)
    cut = lab.plan().fired
    n = lab.nodes[0]
    while unpack_plan(lab.tube(0).tasks[0].subqueue).fired == cut:
        n.now_ms += 20
        tick(n)
        shell(n)
    lab.now_ms = n.now_ms
    tube = lab.tube(0)
    whole = send.changes_of(n, lab.t(0), tube, tube.followers[lab.slot(0, 1)].cursor, None)
    assert isinstance(whole, TubeCopy) and whole.to_seq == tube.seq
    records = lab.t(0).scratch
    tell_task(records, tube.tasks[0])
    whole.records, whole.to_seq = records.take(), tube.seq - 1
    lab.t(0).changed = []  # the rest is never sent
    tube.is_changed = True
    for other in (1, 2):
        lab.send(0, other, whole)
    assert {lab.tube(i).seq for i in (1, 2)} == {tube.seq - 1}
    lab.die(0)
    lab.live(4 * TIMEOUT_MS)
    lab.work()
    lab.revive(0)
    assert len(lab.done) > before
    lab.all_fired()


# ---- the bytes


def test_a_plan_goes_into_bytes_and_back() -> None:
    plan = planned(b"n" * 128, 0, ONE)
    plan.cron, plan.zone, plan.pri, plan.is_paused = b"* * * * *", b"UTC", -5, True
    plan.noted_ms, plan.fired_seq, plan.fired_epoch, plan.late = 1 << 41, 7, 3, 9
    packed = pack_plan(plan)
    again_ = unpack_plan(packed)
    for name in ("name", "cron", "zone", "pri", "is_paused", "missed", "noted_ms", "fired_seq"):
        assert getattr(again_, name) == getattr(plan, name), name
    assert is_plan(packed) and is_sound(packed)
    for end in range(2, len(packed)):
        assert not is_sound_plan(packed[:end])
