"""What the overview shows of dead letters, and of tubes without a leader (SPEC O14)."""

from __future__ import annotations

import pytest

from tuque.clusterview.figures import NodeFacts, View, merged
from tuque.clusterview.history import Points
from tuque.web.pages.overview import keeping_up
from tuque.web.show.verdict import no_leader, without

NOW_S = 10_000.0


def minute(**counted: float) -> Points:
    """A minute in which so many jobs came, ended, and so on."""
    fields = ("added", "acked", "dead", "expired")
    values = {name: [counted.get(name, 0.0) / 12] * 12 for name in fields}
    return Points([5.0 * i for i in range(12)], values)


@pytest.mark.parametrize(
    ("counted", "answer"),
    [
        ({"added": 120, "acked": 120}, "Yes: 2.0 jobs/s come and 2.0 are done."),
        ({"added": 120, "acked": 60}, "No: 2.0 jobs/s come and 1.0 are done."),
        (
            {"added": 120, "acked": 120, "dead": 36},
            "No: 2.0 jobs/s come and 2.0 are done, 36 dead in the last minute.",
        ),
        (
            {"added": 120, "acked": 108, "expired": 12},
            "No: 2.0 jobs/s come and 1.8 are done, 12 ended by their TTL in the last minute.",
        ),
    ],
)
def test_what_is_given_up_is_not_kept_up_with(counted: dict[str, float], answer: str) -> None:
    """O14.21 Jobs that became dead letters or ended by their TTL in the last minute are not kept
    up with: the overview has their numbers with those that come and are done.
    """
    chart = keeping_up(minute(**counted))
    assert chart.answer == answer
    assert len(chart.lines) == (2 if "dead" in answer or "TTL" in answer else 1)


def seen(*homeless: int, old: str = "") -> View:
    """What nodes say of tubes without a leader; each leads 28 of its own."""
    facts = []
    for number, count in enumerate(homeless):
        id = f"n{number}"
        info: dict[str, str | int] = {"tubes_running": 28, "tubes_homeless": count}
        facts.append(NodeFacts(id, id, NOW_S, NOW_S, info, [], {}, 0))
    return merged(NOW_S, facts, frozenset({old} - {""}))


def test_tubes_without_a_leader_are_those_of_now() -> None:
    """O14.2 How many these are is the greatest `tubes_homeless` (T11.5) of the nodes that
    answer; if all answer, they are a verdict of their own.
    """
    assert "; 28 tubes have no leader: they hand out nothing until it is back" in without(
        seen(5, 28, 27, old="n0"), {"n0"}
    )
    assert "; 1 tube has no leader: it hands out nothing" in without(
        seen(0, 1, 1, old="n0"), {"n0"}
    )
    assert "no leader" not in without(seen(28, 0, 0, old="n0"), {"n0"}), "they have new ones"
    assert no_leader(seen(0, 0, 0)) == []
    (notice,) = no_leader(seen(0, 3, 2))
    assert (notice.subject, notice.says, notice.page) == ("3 tubes", "have no leader", "/tubes")
    assert (no_leader(seen(1))[0].subject, no_leader(seen(1))[0].says) == (
        "1 tube",
        "has no leader",
    )
