"""What the console says to do about a queue that is behind (SPEC O14.10)."""

from __future__ import annotations

import random

import msgspec
import pytest

from tuque.client.commands.operate import QueueRow
from tuque.clusterview.figures import NodeFacts, Queue, merged
from tuque.clusterview.history import Points
from tuque.clusterview.queues import Behind
from tuque.clusterview.work import WorkerRow
from tuque.web.pages.overview import name_quiet
from tuque.web.show.verdict import in_place_of, of_queue, remedies, steady

LONG = Queue("long", {"n1": QueueRow("long", "queue", 100, 0, 8, 0, 90_000, 2.0, 1.0, 0, "none")})
WORKER = WorkerRow("vm/1", "vm", 1, "1", "", ["long"], 3, 0, 9, 0, 0, 100, "quiet", "quiet", [])


def points(added: list[float], acked: float, at_work: float = 8, work_s: float = 10) -> Points:
    """Points of 5 s: jobs that came; in each as many ended, each of which took so long."""
    many = len(added)
    values = {
        "added": added,
        "acked": [acked] * many,
        "at-work": [at_work] * many,
        "oldest-ms": [0.0] * many,
    }
    values |= {"worked": [acked] * many, "work-ms": [1000 * work_s * acked] * many}
    return Points([5.0 * i for i in range(many)], values)


def test_slots_are_counted_if_jobs_come_evenly() -> None:
    """O14.10 Slots to add are named if more jobs come than end, and as many came in both halves
    of the last four minutes, within chance
    """
    assert remedies(LONG, points([6, 4] * 24, 4)) == [
        "Add about 2 slots (10 in all) to stop the growth"
    ]
    at_once = points([0] * 46 + [100, 100], 4)
    assert remedies(LONG, at_once) == [
        "Add workers; how many slots is known when jobs come evenly for some minutes"
    ]
    assert remedies(LONG, points([5] * 20, 4)) == remedies(LONG, at_once), "too short a time"
    enough = points([5] * 48, 4, at_work=30)
    assert remedies(LONG, enough) == ["Add workers, or find out why jobs take long"]


def test_slots_follow_work_that_takes_longer() -> None:
    """The work of now counts, not that of before a deploy."""
    longer = points([6, 4] * 24, 4)
    longer.values["work-ms"][:24] = [4 * 1000.0] * 24  # a second each, before the deploy
    assert remedies(LONG, longer) == ["Add about 2 slots (10 in all) to stop the growth"]


def test_slots_are_the_same_from_look_to_look() -> None:
    """O14.10 of ten minutes, if fewer than 80 jobs came"""
    chance = random.Random(7)
    added = [float(chance.random() < 0.25) for _ in range(160)]
    said = set()
    for at in range(120, 160):
        looks = points(added[:at], 0.1, at_work=1, work_s=60)
        (one,) = remedies(LONG, looks)
        said.add(one)
    assert len(said) <= 3 and all("slot" in one and "in all" in one for one in said), said
    assert steady(looks) == 120 and steady(points([10] * 160, 4)) == 48


def test_a_queue_that_catches_up_needs_no_slots() -> None:
    """O14.10 If more end than come, the advice is to wait"""
    assert remedies(LONG, points([4] * 48, 8, work_s=100)) == [
        "Wait: it is up to date in about 2 m 05 s"
    ]
    assert remedies(LONG, points([0] * 40 + [20] * 8, 30)) == ["Wait: more is finished than comes"]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_quiet_workers_are_named_first(count: int) -> None:
    """O14.10 first, to start workers in the place of those that are quiet"""
    quiet = [msgspec.structs.replace(WORKER, name=f"vm/{i}") for i in range(1, count + 1)]
    others = [
        msgspec.structs.replace(WORKER, name="busy", state="alive"),
        msgspec.structs.replace(WORKER, name="elsewhere", queues=["short"]),
    ]
    view = merged(9.0, [NodeFacts("n1", "n1", 9.0, 9.0, {}, [], LONG.here, 1)], frozenset())
    (notice,) = of_queue(view, LONG, points([5] * 48, 4), Behind())
    before = list(notice.do)
    name_quiet(notice, others)
    assert notice.do == before
    name_quiet(notice, [*others, *quiet])
    assert notice.do == [in_place_of("long", quiet), *before]
    said = {
        1: "Start a worker in the place of vm/1: it is quiet, its 3 slots take",
        2: "Start workers in the place of vm/1, vm/2: they are quiet, their 6 slots take",
        5: "Start workers in the place of vm/1, vm/2, vm/3 and 2 more: they are quiet, their 15"
        " slots take",
    }
    assert notice.do[0] == said[count] + " no more jobs"
