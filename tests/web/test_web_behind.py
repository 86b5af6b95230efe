"""Since when a queue is behind, and because of what, as the console says it (SPEC O14)."""

from __future__ import annotations

import pytest

from tuque.client.commands.dead import DeadLetter
from tuque.client.commands.operate import QueueRow
from tuque.clusterview.dead_letters import Letter, Reading
from tuque.clusterview.figures import NodeFacts, Queue, View, merged
from tuque.clusterview.history import Points
from tuque.clusterview.queues import BEHIND_S, Behind, Since
from tuque.clusterview.work import Mark
from tuque.web.pages.overview import name_deploy
from tuque.web.show.verdict import FEW, cause, of_queue, silent

NOW_S = 10_000.0
NODES = ("n1", "n2")


def here(oldest_s: float, came: float = 0.3, done: float = 0.2, work: int = 1) -> QueueRow:
    return QueueRow("long", "queue", 33, 0, work, 0, int(1000 * oldest_s), came, done, 0, "none")


def seen(at_s: float, oldest_s: float, old: str = "", up_s: int = 5_000) -> View:
    """What two nodes say; the first one has the queue `long`."""
    facts = []
    for id in NODES:
        queues = {"long": here(oldest_s)} if id == "n1" and oldest_s else {}
        facts.append(
            NodeFacts(id, id, at_s, at_s, {"uptime_in_seconds": up_s}, [], queues, len(queues))
        )
    return merged(at_s, facts, frozenset({old} - {""}))


def since(behind: Behind, view: View, points: Points | None = None) -> Since:
    return behind.of(view.queues["long"], points or Points(), view)


def ages(first_s: float, *values: float) -> Points:
    at_s = [first_s + 5 * i for i in range(len(values))]
    return Points(at_s, {"oldest-ms": [1000 * one for one in values]})


@pytest.fixture
def behind() -> Behind:
    """A console that saw the queue fall behind at NOW_S."""
    one = Behind()
    one.look(seen(NOW_S - 2, 59), {})
    one.look(seen(NOW_S, BEHIND_S + 0.5), {})
    return one


def test_a_queue_is_behind_since_the_console_saw_it(behind: Behind) -> None:
    """O14.6 It is so since the earliest known moment"""
    assert since(behind, seen(NOW_S, 60.5)) == Since(NOW_S - 0.5, True)
    behind.look(seen(NOW_S + 300, 90), {})
    lost = ages(NOW_S + 45, 0, 75, 80)  # another node's: it has no points from before
    assert since(behind, seen(NOW_S + 300, 90), lost) == Since(NOW_S - 0.5, True)


def test_nodes_that_restart_move_no_moment(behind: Behind) -> None:
    """O14.6 also one whose jobs were away in between."""
    behind.look(seen(NOW_S + 400, 0, old="n1"), {})
    behind.look(seen(NOW_S + 420, 0), {})  # it is back, and still loads its jobs
    behind.look(seen(NOW_S + 425, 480), {})
    assert since(behind, seen(NOW_S + 425, 480)) == Since(NOW_S - 0.5, True)
    behind.look(seen(NOW_S + 500, 0, old="n1"), {})
    behind.look(seen(NOW_S + 600, 100), {})  # nobody saw it well
    assert since(behind, seen(NOW_S + 600, 100)) == Since(NOW_S - 0.5, True)


def test_a_queue_that_caught_up_begins_anew(behind: Behind) -> None:
    behind.look(seen(NOW_S + 100, 3), {})
    behind.look(seen(NOW_S + 200, 61), {})
    assert since(behind, seen(NOW_S + 200, 61)) == Since(NOW_S + 199, False), "nobody looked"
    behind.look(seen(NOW_S + 300, 3), {})
    behind.look(seen(NOW_S + 360, 3), {})
    behind.look(seen(NOW_S + 370, 61), {})
    assert since(behind, seen(NOW_S + 370, 61)) == Since(NOW_S + 369, True)


def test_an_old_job_that_comes_back_moves_no_moment(behind: Behind) -> None:
    """O14.6 But not since before a moment at which it was seen to be well."""
    old = seen(NOW_S + 20, 700)
    assert since(behind, old) == Since(NOW_S - 0.5, True), "as the queue page asks"
    behind.look(old, {})
    assert since(behind, old) == Since(NOW_S - 0.5, True)
    points = ages(NOW_S - 10, 40, 55, 61, 700)
    assert since(Behind(), seen(NOW_S + 5, 700), points) == Since(NOW_S, True)


def test_a_queue_that_is_well_for_a_moment_goes_on_to_be_behind(behind: Behind) -> None:
    """O14.6 A queue that was well for less than 60 s continues to be behind."""
    behind.look(seen(NOW_S + 300, 59), {})
    behind.look(seen(NOW_S + 350, 61), {})
    assert since(behind, seen(NOW_S + 350, 61)) == Since(NOW_S - 0.5, True)


def test_the_age_of_the_oldest_job_is_a_bound() -> None:
    """O14.6 or the moment at which that job was 60 s late"""
    new = Behind()
    for _ in range(2):  # at first nobody has looked
        assert since(new, seen(NOW_S, 480)) == Since(NOW_S - 420, False)
        new.look(seen(NOW_S, 480), {})
    late = ages(NOW_S - 14, 480, 480)
    assert since(new, seen(NOW_S, 480), late) == Since(NOW_S - 420, False)


def test_points_know_it_only_if_no_node_began_since() -> None:
    """O14.6 If it was not seen to be well within 15 s before, the pages have `or earlier`"""
    new, points = Behind(), ages(NOW_S - 105, 55, *[65] * 20)
    assert since(new, seen(NOW_S, 65), points) == Since(NOW_S - 100, True)
    assert since(new, seen(NOW_S, 65, old="n2"), points).is_seen, "its past is known"
    assert since(new, seen(NOW_S, 65, up_s=50), points) == Since(NOW_S - 100, False)
    assert since(new, seen(NOW_S, 65), ages(NOW_S - 100, *[65] * 20)).is_seen is False
    new.look(seen(NOW_S, 65), {"long": points})
    new.look(seen(NOW_S + 60, 125, up_s=9), {})  # a node restarts
    assert since(new, seen(NOW_S + 60, 125, up_s=9)) == Since(NOW_S - 100, True), "it was known"
    new = Behind()
    gap = Points([NOW_S - 300, NOW_S - 100], {"oldest-ms": [10_000.0, 65_000.0]})
    assert since(new, seen(NOW_S, 65), gap) == Since(NOW_S - 100, False)


def test_a_deploy_is_named_only_if_it_came_before(behind: Behind) -> None:
    """O14.6 Else they name the deploy that reached the queue last, in the ten minutes before and
    at least 45 s before that job was ready.
    """

    def named(one: Behind, at_s: float, oldest_s: float = 480) -> bool:
        view = seen(NOW_S + 425, oldest_s)
        (notice,) = of_queue(view, view.queues["long"], Points(), one)
        name_deploy(notice, [Mark(0.0, "2024-crunch", {"long": at_s, "other": 1.0})])
        return "2024-crunch was deployed" in notice.because

    behind.look(seen(NOW_S + 425, 480), {})
    assert named(behind, NOW_S - 50) and not named(behind, NOW_S + 22)
    assert not named(behind, NOW_S - 30), "the oldest job was ready before"
    assert not named(behind, NOW_S - 700)
    new = Behind()
    new.look(seen(NOW_S + 425, 480), {})
    assert not named(new, NOW_S - 50), "it may have been behind before"
    other = silent(seen(NOW_S, 60.5, old="n1"), {"n1": "a place"})
    name_deploy(other, [Mark(0.0, "2024-crunch", {"long": 1.0})])
    assert "deployed" not in other.because, "it is about no queue"


def steady(came: float, done: float, points: int = 120, **more: float) -> Points:
    """Points with so many jobs a minute."""
    values = {"added": [came / 12] * points, "acked": [done / 12] * points}
    values |= {name.replace("_", "-"): [value] * points for name, value in more.items()}
    return Points([5.0 * i for i in range(points)], values)


@pytest.mark.parametrize(
    ("came", "done", "said"),
    [
        (12.0, 6.0, "workers finish 6.0 of the 12.0 jobs that come each minute"),
        (6.0, 12.0, "now it catches up: 6.0 jobs come each minute, 12.0 are finished"),
        (6.0, 6.0, "as many jobs are finished as come, 6.0 each minute, so 33 stay late"),
        (600.0, 480.0, "workers finish 8.0 of the 10.0 jobs that come each second"),
        (0.0, 0.0, "1 job is at work and none has ended lately"),
    ],
)
def test_a_cause_is_never_unknown(came: float, done: float, said: str) -> None:
    """O14.7 from the rates of the last minute; of ten minutes, if fewer than 20 jobs came and
    fewer than 20 ended in one
    """
    queue = Queue("long", {"n1": here(480)})
    assert said in cause(queue, steady(came, done))
    assert cause(queue, Points()) == cause(queue, steady(1, 9, 3)), "of too few points: the row"


def test_few_jobs_are_counted_over_ten_minutes() -> None:
    """O14.7 of ten minutes, if fewer than 20 jobs came and fewer than 20 ended in one"""
    points = steady(12.0, 12.0)
    points.values["acked"][-12:] = [0.0] * 12  # none in the last minute
    assert "workers finish 10.8 of the 12.0" in cause(Queue("long", {"n1": here(480)}), points)
    points.values["added"] = [FEW / 12 + 0.1] * 120
    assert "workers finish 0.0 of the 21.2" in cause(Queue("long", {"n1": here(480)}), points)


def test_a_cause_says_what_a_silent_node_hides() -> None:
    """O14.7 While a node does not answer, what comes and ends there is shown as unknown."""
    some = Queue("long", {"n1": here(480)})
    said = cause(some, Points(), ["abcdef012345"])
    assert said.startswith("workers finish 12.0 of the 18.0")
    assert said.endswith("abcdef01 does not answer, so what comes and ends there is not known")
    left = Queue("long", {"n1": here(480, 0, 0, 0)})
    assert cause(left, Points(), ["a" * 40, "b" * 40]) == (
        "aaaaaaaa, bbbbbbbb do not answer, so it is not known who works on its jobs"
    )


def test_letters_of_a_silent_node_are_not_counted() -> None:
    """O14.1 Nothing that only a silent node has is in them: neither its queued jobs nor its dead
    letters.
    """

    def letter(id: str, node: str) -> Letter:
        row = DeadLetter(id, "q", "t", 1, "failed", "no", 1_000, 2_000)
        return Letter(row, "q.dead", node, "no")

    whole = Reading([letter("1", "n1"), letter("2", "n2"), letter("3", "n1")], NOW_S)
    assert whole.at(frozenset(NODES)) is whole
    part = whole.at(frozenset({"n1"}))
    assert [one.row.id for one in part.letters] == ["1", "3"] and part.at_s == NOW_S
    assert part.queues == [("q.dead", 2)] and whole.at(frozenset({"n1"})) is part
    assert whole.at(frozenset(NODES)) is whole
