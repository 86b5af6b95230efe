"""What to do about a queue that is behind: workers to start, slots to add, or how long to wait.

Decides when figures hold still for long enough to say how many slots. Asks nobody.
"""

from __future__ import annotations

from typing import Final

from tuque.clusterview.history import MINUTE, Points
from tuque.clusterview.nodes import Queue
from tuque.clusterview.work import WorkerRow
from tuque.web.show.cause import BEFORE, FEW, MORE, pace
from tuque.web.show.text import plural, span

STEADY: Final = 4 * MINUTE  # points over which slots are counted; BEFORE if few jobs come
NAMED: Final = 3  # quiet workers


def needed(points: Points, over: int = MINUTE) -> float | None:
    """Slots that keep up with what comes: added/s times the mean work time of the last minute.

    If few ended in it, that of all the points: work may take longer since a deploy.
    """
    came = points.rate("added", over)
    lately = MINUTE if points.counted("worked") >= FEW else over
    work_s = points.mean_s("work-ms", "worked", lately)
    return came * work_s if came is not None and work_s is not None else None


def steady(points: Points) -> int:
    """[O14] Over how many points the halves are alike, but for chance (O14.10); 0 if they are not.

    Jobs that come by chance differ by more than three times the root of their number in one of
    400 cases.
    """
    over = min(len(points), STEADY)
    if points.counted("added", over) < over / MINUTE * FEW:
        over = min(len(points), BEFORE)
    half = over // 2
    if half < MINUTE:
        return 0
    late, both = points.counted("added", half), points.counted("added", 2 * half)
    slack = max(3 * both**0.5, both / 4)
    return 2 * half if abs(both - 2 * late) <= slack else 0


def remedies(queue: Queue, points: Points) -> list[str]:
    """[O14] What to do about a queue that is behind (O14.10)."""
    came, done = pace(queue, points)
    over = steady(points)
    if done > came * MORE:
        if not over:
            return ["Wait: more is finished than comes"]
        return [f"Wait: it is up to date in about {span(queue.ready / (done - came))}"]
    if came <= done * MORE:
        return ["Add workers, or find out why jobs take long"]
    slots, busy = needed(points, over) if over else None, points.rate("at-work")
    if slots is None or busy is None:
        return ["Add workers; how many slots is known when jobs come evenly for some minutes"]
    more = round(slots - busy * points.step_s)
    if more < 1:
        return ["Add workers, or find out why jobs take long"]
    return [f"Add about {plural(more, 'slot')} ({round(slots)} in all) to stop the growth"]


def in_place_of(queue: str, workers: list[WorkerRow]) -> str:
    """[O14] What to do if workers of a queue take no more jobs (O14.10); empty if all do."""
    quiet = [one for one in workers if one.state == "quiet" and queue in one.queues]
    if not quiet:
        return ""
    names = ", ".join(one.name for one in quiet[:NAMED])
    if len(quiet) > NAMED:
        names += f" and {len(quiet) - NAMED} more"
    slots = plural(sum(one.slots for one in quiet), "slot takes", "slots take")
    if len(quiet) == 1:
        return f"Start a worker in the place of {names}: it is quiet, its {slots} no more jobs"
    return f"Start workers in the place of {names}: they are quiet, their {slots} no more jobs"
