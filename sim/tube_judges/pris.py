"""Judges UPDATEJOB of tasks: after OK a task has the pri that it was given, and its place (T1.10).

The place is judged by the order of the takes (mirror.py), which goes by the pri seen here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.tube_judges.facts import Facts, Line
    from sim.tube_judges.judge import Tubing
    from sim.tube_judges.mirror import Mirror, Seen


class Pri:
    """One UPDATEJOB PRI of a task."""

    def __init__(self, line: Line, number: int, pri: int, asked_us: int) -> None:
        self.line = line
        self.number = number
        self.pri = pri
        self.asked_us = asked_us


def begin_pri(facts: Facts, job_id: bytes, pri: int, asked_us: int) -> Pri | None:
    """Somebody is about to give the task that is this job another pri; None: it is no task."""
    for line in facts.lines.values():
        number = line.by_job.get(job_id)
        if number is not None:
            given = Pri(line, number, pri, asked_us)
            facts.pris.append(given)
            return given
    return None


def on_update(mirror: Mirror, one: Seen) -> None:
    """The leader changed the pri of a task: to one that somebody gave it."""
    task = mirror.tube.find(one.number)
    if task is None:
        one.is_known = False  # it ended in the turn of the change
        return
    one.pri = int(task.pri)
    given = [p for p in mirror.facts.pris if p.line is mirror.line and p.number == one.number]
    if one.pri not in [p.pri for p in given]:
        text = f"{mirror.facts.name}: task {one.number} has pri {one.pri}, which nobody gave it"
        mirror.find("tube-pri", text)


def on_given(tubing: Tubing, facts: Facts, given: Pri, node: str, reply: object) -> None:
    """UPDATEJOB is answered: after OK the task has that pri, or a later one."""
    mirror = tubing.mirror_of(node, facts.key)
    if reply != b"OK" or mirror is None or mirror.line is not given.line or not mirror.is_up:
        return
    tubing.history.count("pris given")
    task = mirror.tube.find(given.number)
    is_last = not any(
        p.line is given.line and p.number == given.number and p.asked_us > given.asked_us
        for p in facts.pris
    )
    if task is not None and is_last and mirror.born_us <= given.asked_us and task.pri != given.pri:
        text = f"{facts.name}: task {given.number} has pri {task.pri} after OK to {given.pri}"
        tubing.find("tube-pri", text)
