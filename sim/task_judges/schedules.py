"""Judges of schedules: each instant makes one job, over changes of the leader (SPEC T45).

A job counts once a leader has handed it out: then enough nodes have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.task_judges.facts import TaskTube
from tuque.core.model.task import Task
from tuque.tubes.entries.schedule import (
    ALL,
    ScheduleEntry,
)
from tuque.tubes.policies.next_task import Tasks

if TYPE_CHECKING:
    from sim.task_judges.keys import Run, Tasking
    from tuque.tubes.model.tube import Tube

MARK: Final = b"["  # the bodies of jobs of schedules begin so


class Made:
    """What one schedule made."""

    def __init__(self) -> None:
        self.is_added = False  # a client knows of it
        self.instants: dict[bytes, int] = {}  # by id of the job
        self.taken: dict[int, bytes] = {}  # by instant: the job that was taken
        self.epoch = 0  # of the leader that made the last job


class Scheduling:
    """All schedules of a seed."""

    def __init__(self, tasking: Tasking) -> None:
        self.tasking = tasking
        self.history = tasking.history
        self.made: dict[tuple[bytes, bytes], Made] = {}  # tube, body

    def made_by(self, facts: TaskTube, body: bytes) -> Made:
        """What the schedule with that body made."""
        return self.made.setdefault((facts.key, body), Made())

    def on_added(self, facts: TaskTube, body: bytes, reply: object) -> None:
        """SCHEDULE ADD is answered: a schedule that was added stays (T45.2)."""
        if isinstance(reply, Exception):
            return
        made = self.made_by(facts, body)
        if made.is_added and reply == b"ADDED":
            self.tasking.find("schedule-lost", f"{body!r} was there, and is added again")
        made.is_added = True

    def on_met(self, facts: TaskTube, run: Run, task: Task) -> None:
        """A leader has a job of a schedule; a new one is of the instant that it has just noted."""
        plan = plan_of(run.tube, task.body)
        made = self.made_by(facts, task.body)
        if isinstance(task.entry, ScheduleEntry) or plan is None or task.id in made.instants:
            return
        self.history.count("jobs of schedules")
        made.instants[task.id] = int(plan.fired_ms)
        if 0 < made.epoch < run.epoch:
            self.tasking.world.sometimes("a schedule makes a job at a new leader")
        made.epoch = run.epoch

    def on_take(self, facts: TaskTube, id: bytes, body: bytes) -> None:
        """A job of a schedule is handed out."""
        made = self.made_by(facts, body)
        instant_ms = made.instants.get(id, 0)
        if not instant_ms:
            return
        first = made.taken.setdefault(instant_ms, id)
        self.history.count("instants that made a job")
        if first != id:
            text = f"instant {instant_ms} of {body!r} made {first!r} and {id!r}"
            self.tasking.find("schedule-twice", text)

    def on_drained(self, facts: TaskTube, tube: Tube) -> None:
        """All instants that are noted have made their job, but those that were missed (T45.5)."""
        there = {task.id for task in tube.tasks.values()}
        for (name, body), made in self.made.items():
            plan = plan_of(tube, body)
            if name != facts.key or not made.is_added:
                continue
            if plan is None:
                self.tasking.find("schedule-lost", f"{body!r} is gone")
                continue
            every, base, noted = int(plan.every_ms), int(plan.base_ms), int(plan.noted_ms)
            wanted = set(range(base + every, noted + 1, every))
            found = set(made.taken)
            found |= {at for id, at in made.instants.items() if id in there}
            self.history.count("instants looked for", len(wanted))
            if plan.missed == ALL or plan.late == 0:
                for at in sorted(wanted - found)[:3]:
                    self.tasking.find("schedule-missed", f"instant {at} of {body!r} made no job")
            for at in sorted(found - wanted)[:3]:
                self.tasking.find("schedule-twice", f"{at} of {body!r} is no instant of it")


def plan_of(tube: Tube, body: bytes) -> ScheduleEntry | None:
    """The schedule with that body."""
    driver = tube.driver
    name = body[len(MARK) : body.find(b"]")]
    number = driver.plans.by_name.get(name) if isinstance(driver, Tasks) else None
    task = tube.tasks.get(number) if number is not None else None
    entry = task.entry if task is not None else None
    return entry if isinstance(entry, ScheduleEntry) else None
