"""How figures of nodes become figures of the cluster, and reasons become groups."""

from __future__ import annotations

import pytest

from tuque.client.commands.dead import DeadLetter
from tuque.web.read.history import Points, longer, merged, points_of
from tuque.web.read.letters import Letter, general, grouped
from tuque.web.show.text import (
    age,
    brief,
    fits,
    forms,
    key,
    link,
    mark,
    num,
    rate,
    signed,
    size,
    span,
    unkey,
)


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
    both = merged([one, other])
    assert both.at_s == [10.0, 15.0, 20.0]
    assert both.level("added") == [5, 30, 30]  # sums
    assert both.level("ready") == [7, 9, 0]
    assert both.level("oldest-ms") == [100, 300, 0]  # the greatest
    assert both.per_s("added") == [1.0, 6.0, 6.0]
    assert both.rate("added") == pytest.approx(65 / 15)
    assert merged([points_of(None)]).rate("added") is None


def test_means_are_of_the_jobs_of_the_last_minute() -> None:
    points = Points([5.0, 10.0], {"work-ms": [3000.0, 1000.0], "worked": [1.0, 3.0]}, 5.0)
    assert points.mean_s("work-ms", "worked") == 1.0
    assert points.means_s("work-ms", "worked") == [3.0, 1.0]
    assert Points().mean_s("work-ms", "worked") is None


def test_percentiles_come_from_the_sums_of_all_nodes() -> None:
    bounds = [1, 2, 5, 10, 20, 50]
    one = points_of([5000, bounds, [[5_000, 0, 0, 0, 0, 90, 0, 0], [10_000, 0, 0, 0, 0, 0, 0, 0]]])
    other = points_of([5000, bounds, [[5_000, 0, 0, 0, 0, 0, 0, 10]]])
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
        *("1 ms", "500 ms", "1 m 00 s", "6 m 53 s", "5 h 02 m", "3 d 0 h")
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
