"""How figures of nodes become figures of the cluster, and reasons become groups (SPEC O14)."""

from __future__ import annotations

import msgspec
import pytest

from tuque.client.commands.dead import DeadLetter
from tuque.client.commands.operate import QueueRow
from tuque.clusterview.dead_letters import Letter, general, grouped
from tuque.clusterview.figures import NodeFacts, Queue, View
from tuque.clusterview.figures import merged as view_of
from tuque.clusterview.history import (
    Points,
    longer,
    merged,
    points_of,
    with_gaps,
)
from tuque.clusterview.queues import Behind
from tuque.clusterview.watch import by_need
from tuque.web.show.charts import spark
from tuque.web.show.text import (
    age,
    brief,
    clip,
    ends,
    fits,
    forms,
    key,
    link,
    mark,
    num,
    over,
    rate,
    signed,
    size,
    span,
    unkey,
)
from tuque.web.show.verdict import cause, of_queue


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ReadTimeout: nothing read for 5 s", "ReadTimeout: nothing read for 12.5 s"),
        (
            "HTTPError: 503 Service Unavailable for https://hooks.example/o/8812",
            "HTTPError: 503 Service Unavailable for https://hooks.example/x?y=1",
        ),
        ("KeyError: 8812043", "KeyError: 17"),
        ("no such file 550e8400-e29b-41d4-a716-446655440000", "no such file 17"),
        ("Reject: not an address: ann7@", "Reject: not an address: bob22@"),
    ],
)
def test_reasons_that_differ_in_numbers_ids_and_paths_are_one(one: str, other: str) -> None:
    assert general(one) == general(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("HTTPError: 503 Service Unavailable", "HTTPError: 404 Not Found"),
        ("Timeout of https://a.example/x", "Timeout of https://b.example/x"),
        ("KeyError: 'vat_id'", "KeyError: 'name'"),
    ],
)
def test_reasons_that_mean_different_things_stay_apart(one: str, other: str) -> None:
    assert general(one) != general(other)


def letter(number: int, reason: str, task: str = "t") -> Letter:
    row = DeadLetter(f"id{number}", "q", task, 1, "failed", reason, 1000 * number, 2000 * number)
    return Letter(row, "q.dead", "n1", general(reason))


def test_groups_come_with_the_greatest_first() -> None:
    groups = grouped(
        [letter(n, f"ValueError: {n}") for n in (1, 2, 3)] + [letter(4, "KeyError: 'a'")]
    )
    assert [(one.reason, one.count) for one in groups] == [
        ("ValueError: …", 3),
        ("KeyError: 'a'", 1),
    ]
    assert groups[0].first_s == 2.0 and groups[0].latest_s == 6.0
    assert [one.row.id for one in groups[0].newest(2)] == ["id3", "id2"]


def test_points_of_nodes_meet_at_their_instants() -> None:
    fields = [b"added", b"ready", b"oldest-ms"]
    one = points_of([5000, fields, [[10_000, 5, 7, 100], [15_000, 10, 8, 300]]])
    other = points_of([5000, fields, [[15_000, 20, 1, 200], [20_000, 30, 0, 0]]])
    more = points_of([5000, fields, [[20_000, 0, 0, 0]]])
    both = merged([longer(one, more), other])
    assert both.at_s == [10.0, 15.0, 20.0]
    assert both.level("added") == [5, 30, 30]  # sums
    assert both.level("ready") == [7, 9, 0]
    assert both.level("oldest-ms") == [100, 300, 0]  # the greatest
    assert both.per_s("added") == [1.0, 6.0, 6.0]
    assert both.rate("added") == pytest.approx(65 / 15)
    assert merged([points_of(None)]).rate("added") is None
    assert merged([one, other]).level("added") == [5, 30]  # 20 s is not told by all
    last = points_of([5000, fields, [[25_000, 1, 1, 1]]])
    assert merged([one, longer(other, last)]).at_s[-1] == 25.0  # one of them is down


def test_what_only_a_silent_or_restarted_node_knew_is_a_gap() -> None:
    """O14.15 Charts of a queue have a gap where a node was silent, or has forgotten its points in a
    restart, and the others have nothing but 0
    """

    def points(*ready: tuple[int, int]) -> Points:
        return points_of([5000, [b"added", b"ready"], [[at_s * 1000, 0, n] for at_s, n in ready]])

    one = points((10, 0), (15, 4), (20, 0), (25, 0))
    parts = {"one": one, "other": points((20, 9), (25, 0))}
    both = with_gaps(parts, {"one": one, "other": parts["other"]}, {"one", "other"})
    assert both.drawn(both.level("ready")) == [None, 4, 9, 0]  # 15 s: one of them knew of jobs
    assert both.is_known
    hung = with_gaps({"one": one}, {"one": one, "other": points((10, 0), (15, 0))}, {"one"})
    assert hung.drawn(hung.per_s("added")) == [0, 0, None, None] and not hung.is_known
    due = with_gaps({"one": one}, {"one": one, "other": points((10, 0), (15, 0))}, {"one", "other"})
    assert not due.gaps, "its points of 20 s and 25 s are read with the next ones"
    ends = spark([1.0, None, 2.0])
    assert ends.count("M") == 4 and "0.0 " in ends and "96.0 " in ends


def test_means_are_of_the_jobs_of_the_last_minute() -> None:
    points = Points([5.0, 10.0], {"work-ms": [3000.0, 1000.0], "worked": [1.0, 3.0]}, 5.0)
    assert points.mean_s("work-ms", "worked") == 1.0
    assert points.means_s("work-ms", "worked") == [3.0, 1.0]
    assert Points().mean_s("work-ms", "worked") is None


def test_percentiles_come_from_the_sums_of_all_nodes() -> None:
    bounds = [1, 2, 5, 10, 20, 50]
    one = points_of([5000, bounds, [[5_000, 0, 0, 0, 0, 90, 0, 0], [10_000, 0, 0, 0, 0, 0, 0, 0]]])
    rows = [[5_000, 0, 0, 0, 0, 0, 0, 10], [10_000, 0, 0, 0, 0, 0, 0, 0]]
    other = points_of([5000, bounds, rows])
    both = merged([one, other])
    assert both.percentiles_s(0.5) == pytest.approx([0.010 + 0.010 * 50 / 90] * 2)
    assert both.percentiles_s(0.99)[0] == 0.05  # beyond the last bound
    assert one.percentiles_s(0.99, over=1) == [pytest.approx(0.0199), None]
    assert points_of(None).percentiles_s(0.5) == []


def test_points_stay_whole_when_a_node_has_nothing_new() -> None:
    def asked(rows: list[list[int]]) -> Points:
        return points_of([5000, [1, 2], rows])

    whole = longer(longer(asked([[5_000, 1, 2, 3]]), asked([])), asked([[10_000, 4, 5, 6]]))
    assert (whole.at_s, list(whole.values.values())) == ([5.0, 10.0], [[1, 4], [2, 5], [3, 6]])
    assert merged([whole, asked([[10_000, 1, 1, 1]])]).level("beyond") == [3, 7]
    newer = longer(points_of([5000, [b"added"], [[5_000, 1]]]), asked([[10_000, 4, 5, 6]]))
    assert newer.level("beyond") == [0, 6]  # of a node that is a newer version now


def test_since_when_a_level_is_above_a_limit() -> None:
    points = Points([1.0, 2.0, 3.0, 4.0], {"oldest-ms": [90.0, 10.0, 70.0, 80.0]}, 1.0)
    assert points.above_since_s("oldest-ms", 60) == 3.0
    assert points.above_since_s("oldest-ms", 100) is None


def test_numbers_as_people_read_them() -> None:
    assert [num(n) for n in (0, 1234567, 2.5, None, -3)] == ["0", "1,234,567", "2.5", "–", "−3"]
    assert [rate(0.04), rate(1234.56), rate(None)] == ["0.0", "1,234.6", "–"]
    assert [signed(n) for n in (5.66, -0.12, 0.04, None)] == ["+5.7", "−0.1", "±0", "–"]
    assert [span(n) for n in (0.0009, 0.5, 59.96, 413, 3600 * 5 + 120, 86_400 * 3)] == [
        "1 ms",
        "500 ms",
        "1 m 00 s",
        "6 m 53 s",
        "5 h 02 m",
        "3 d 0 h",
    ]
    assert [age(0), age(7), age(70)] == ["–", "7 s", "1 m 10 s"]
    assert [size(12), size(2048), size(3 << 30)] == ["12 B", "2.0 kB", "3.0 GB"]


@pytest.mark.parametrize(
    "name", ["mail", "a b/c?d", "ü€", "%%x", "nul\x00", "bad\udcff", "a\nb", "%41"]
)
def test_names_of_any_bytes_survive_addresses_and_forms(name: str) -> None:
    assert unkey(key(name)) == name
    assert key(name).encode("utf-8")
    assert link("queue", name=name).isascii()


def test_bodies_are_shown_in_the_forms_that_they_have() -> None:
    assert [one.name for one in forms(b'{"a": [1, 2]}')] == ["JSON", "Hex"]
    assert [one.name for one in forms(b"\x81\xa1a\x01")] == ["MessagePack", "Hex"]
    assert [one.name for one in forms(b"plain words")] == ["Text", "Hex"]
    assert [one.name for one in forms(b"\xff\xfe\x00")] == ["Hex"]
    (shown,) = (one.text for one in forms(b"\x81\xa1a\x01") if one.name == "Hex")
    assert shown.startswith("0000  81 a1 61 01") and shown.endswith("..a.")
    assert "more" in forms(b"\xff" * 70_000)[-1].text


def test_long_names_are_shown_in_part_and_told_apart() -> None:
    one, other = "a" * 500 + "1" + "b" * 30, "a" * 500 + "2" + "b" * 30
    assert brief(one) == brief(other) == "a" * 120 + "…" + "b" * 24
    assert mark(one) != mark(other) and len(mark(one)) < 200
    assert brief("mail") == mark("mail") == "mail"
    assert fits("a" * 2_000) and not fits("a" * 2_001) and not fits("ü" * 400)


def test_both_ends_of_a_long_name_stand_in_a_column() -> None:
    """O14.4 Of a long name a column shows the beginning and the last 12 characters."""
    one, other = (
        "orders/europe-west-" + "x" * 60 + "-end1",
        "orders/europe-west-" + "x" * 60 + "-e<d2",
    )
    assert str(ends(one)).endswith('<span class="z">xxxxxxx-end1</span>')
    assert str(ends(other)).endswith('<span class="z">xxxxxxx-e&lt;d2</span>')
    assert str(ends(one)).startswith('<span class="a">orders/europe-west-xxx')
    assert (
        clip(one) == "orders/europe-west-" + "x" * 16 + "…xxxxxxx-end1" and clip("mail") == "mail"
    )
    assert ends("mail\x1b") == "mail\\x1b" and ends("a" * 32) == "a" * 32


@pytest.mark.parametrize("name", [" ", "\u00a0 ", "\t"])
def test_a_name_of_blanks_can_be_seen(name: str) -> None:
    """O14.4 A name that is all blanks is shown in quotes."""
    assert brief(name) == clip(name) == f'"{name}"'
    assert ends(name) == f"&#34;{name}&#34;"
    assert brief("") == "" and brief(" a ") == " a "


def test_over_how_many_nodes_a_sum_is() -> None:
    """O14.1 each page has over how many of how many, as `2 of 3 nodes`"""
    assert [over(1, 0), over(3, 0), over(3, 1)] == ["1 node", "3 nodes", "2 of 3 nodes"]
    assert over(3, 3) == "3 nodes, as of the last answer"


def queue_of(name: str, oldest_s: float, came: float, done: float) -> Queue:
    here = QueueRow(name, "queue", 3, 0, 0, 0, int(1000 * oldest_s), came, done, 0, "none")
    return Queue(name, {"n": here})


def test_a_cause_without_points_is_that_of_the_row() -> None:
    assert cause(queue_of("long", 700, 0.3, 0.2), Points()) == (
        "workers finish 12.0 of the 18.0 jobs that come each minute"
    )
    assert "now it catches up" in cause(queue_of("long", 700, 0.2, 0.3), Points())


def test_queues_that_live_are_charted_first() -> None:
    some = [queue_of("left", 900, 0, 0), queue_of("long", 700, 0.3, 0.2), queue_of("a", 1, 9, 9)]
    assert [one.name for one in sorted(some, key=by_need)] == ["long", "a", "left"]


def view_with_letters() -> View:
    """Two nodes with letters of `thumbs`, of which one knows `thumbs` itself."""
    work = QueueRow("thumbs", "queue", 0, 0, 0, 3, 0, 0, 0, 0, "none")
    letters = QueueRow("thumbs.dead", "dead", 3, 0, 0, 0, 600_000, 0, 0, 0, "none")
    more = msgspec.structs.replace(letters, ready=5)
    one = NodeFacts("n1", "n1", 9.0, 9.0, {}, [], {"thumbs": work, "thumbs.dead": letters}, 2)
    other = NodeFacts("n2", "n2", 9.0, 9.0, {}, [], {"thumbs.dead": more}, 1)
    return view_of(9.0, [one, other], frozenset())


def test_letters_of_a_queue_count_where_it_is_not_known() -> None:
    """O14.17 The dead letters of a queue are those of its queue of dead letters at all nodes that
    answer, also at those that do not know the queue itself.
    """
    view = view_with_letters()
    assert view.letters(view.queues["thumbs"]) == view.dead == 8
    del view.queues["thumbs.dead"]
    assert view.letters(view.queues["thumbs"]) == 3, "what the nodes say, if it is not in view"


def test_nobody_is_told_to_work_on_dead_letters() -> None:
    """O14.18 No page advises to start a worker for a queue of dead letters"""
    view = view_with_letters()
    letters = view.queues["thumbs.dead"]
    assert not of_queue(view, letters, Points(), Behind())
    (notice,) = of_queue(view, Queue("long", {"n1": left(letters)}), Points(), Behind())
    assert notice.do == ["Start a worker for long"]


def left(letters: Queue) -> QueueRow:
    """The same jobs in a queue of work."""
    return msgspec.structs.replace(letters.here["n1"], type="queue")
