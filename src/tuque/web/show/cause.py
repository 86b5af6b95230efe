"""Why a queue is behind: a rule over its figures, and what is not known while a node is silent.

Decides over which time rates are taken: a minute, or ten where few jobs come and go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuque.clusterview.history import MINUTE, Points
from tuque.clusterview.nodes import Queue
from tuque.web.show.text import num, plural, rate, span

BEFORE: Final = 10 * MINUTE  # points with which the last minute is compared
FEW: Final = 20  # jobs in a minute; of fewer a rate is that of ten minutes
MORE: Final = 1.05  # times as much is more


def cause(queue: Queue, points: Points, silent: Sequence[str] = ()) -> str:
    """[O14] Why a queue is behind, on all pages (O14.7). `silent` are the ids of silent nodes."""
    said = change(points) or balance(queue, points)
    if not silent:
        return said
    names = ", ".join(id[:8] for id in silent)
    verb = "does" if len(silent) == 1 else "do"
    if queue.work or queue.came_rate or queue.done_rate:
        return f"{said}; {names} {verb} not answer, so what comes and ends there is not known"
    return f"{names} {verb} not answer, so it is not known who works on its jobs"


def change(points: Points) -> str:
    """What is twice what it was in the ten minutes before; empty if nothing is, or that is new."""
    if len(points) <= 2 * MINUTE:
        return ""
    before = Points(points.at_s, {k: v[:-MINUTE] for k, v in points.values.items()}, points.step_s)
    now_s, then_s = points.mean_s("work-ms", "worked"), before.mean_s("work-ms", "worked", BEFORE)
    if now_s and then_s and now_s >= 2 * then_s:
        return f"its jobs take {span(now_s)}, up from {span(then_s)}"
    came, came_before = points.rate("added"), before.rate("added", BEFORE)
    if points.counted("added") >= FEW and came and came_before and came >= 2 * came_before:
        return f"{rate(came)} jobs come each second, up from {rate(came_before)}"
    return ""


def balance(queue: Queue, points: Points) -> str:
    """What comes, and what is finished of it."""
    came, done = pace(queue, points)
    if not done and not came:
        if queue.work:
            are = plural(queue.work, "job is", "jobs are")
            return f"{are} at work and none has ended lately; no other one is taken"
        return "no job was finished lately, and none is at work"
    factor, unit = (1, "second") if max(came, done) >= 1 else (60, "minute")
    comes, ends = rate(came * factor), rate(done * factor)
    if came > done * MORE:
        return f"workers finish {ends} of the {comes} jobs that come each {unit}"
    if done > came * MORE:
        return (
            f"more came earlier than were finished; now it catches up: {comes} jobs come each "
            f"{unit}, {ends} are finished"
        )
    return f"as many jobs are finished as come, {ends} each {unit}, so {num(queue.ready)} stay late"


def pace(queue: Queue, points: Points) -> tuple[float, float]:
    """Jobs that come and that are finished, per second: of points, or of the row while few are."""
    if len(points) < MINUTE:
        return queue.came_rate, queue.done_rate
    is_few = max(points.counted("added"), points.counted("acked")) < FEW
    over = BEFORE if is_few else MINUTE
    return points.rate("added", over) or 0.0, points.rate("acked", over) or 0.0
