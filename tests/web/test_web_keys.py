"""Keys for which jobs wait, and shares of groups, on the page of their queue (SPEC O14)."""

from __future__ import annotations

from web_console import Console, figures, until
from web_nodes import WebCluster

from tuque.client.commands.operate import KeyRow, QueueRow
from tuque.clusterview.figures import Queue, View
from tuque.clusterview.history import Points
from tuque.clusterview.queues import Behind
from tuque.web.show.verdict import Notice, of_queue
from tuque.web.show.waits import (
    groups,
    held,
    name_keys,
    pace,
)

NOW_S = 10_000.0


def test_a_pace_is_said_as_rate_says_it() -> None:
    said = {100_000: "10/s", 1_000: "1,000/s", 30_000_000: "2/m", 3_600_000_000: "1/h"}
    assert {us: pace(us) for us in said} == said
    assert pace(86_400_000_000) == "1/d" and pace(90_000_000) == "40/h"
    assert pace(7_000_000_000) == "one each 1 h 56 m"


def test_keys_with_the_longest_wait_come_first() -> None:
    """O14.26 with the places in use, how many wait and since when"""
    rows = [
        KeyRow("limit", "shop", 5, 9_990_000, 9_990_000, places=2, used=2),
        KeyRow("rate", "api", 7, 9_940_000, 9_940_000, token_us=30_000_000, burst=1,
               token_ms=10_012_000),
        KeyRow("group", "b", 3, 0, 0, weight=1, weights=4),
        KeyRow("group", "a", 3, 0, 9_998_000, weight=3, weights=4),
    ]  # fmt: skip
    api, shop = held(rows, NOW_S)
    assert (api.key, api.room, api.waiting, api.since_s) == ("api", "2/m, burst 1", 7, 60.0)
    assert api.then == "next in 12 s"
    assert (shop.key, shop.room, shop.since_s, shop.then) == ("shop", "2 of 2 at work", 10.0, "")
    a, b = groups(rows, NOW_S)
    assert (a.key, a.share, a.next_s) == ("a", 75.0, 2.0)
    assert (b.key, b.share, b.next_s) == ("b", 25.0, None), "it may not go"
    *_, rest = groups([KeyRow("group", "a", 3, 0, 9_998_000, weight=3, weights=4)], NOW_S)
    assert (rest.key, rest.share, rest.waiting) == ("", 25.0, None), "tasks without a group"
    assert len(groups([KeyRow("group", "a", 3, 0, 0, weight=3, weights=4)], NOW_S, False)) == 1


def test_a_queue_whose_jobs_wait_for_a_limit_needs_no_slots() -> None:
    """O14.27 If half of the READY tasks of a tube that is behind, or more, wait for limits or
    rates, the pages show so, with the key that most of them wait for, and that more slots do not
    help
    """
    here = QueueRow("exports", "tasks", 12, 0, 2, 0, 90_000, 1.0, 0.1, 3, "none")
    queue = Queue("exports", {"n1": here})

    def said(waiting: int) -> Notice:
        (notice,) = of_queue(View(NOW_S, [], {}, frozenset()), queue, Points(), Behind())
        rows = [
            KeyRow("limit", "shop", waiting, 9_910_000, 9_910_000, places=2, used=2),
            KeyRow("rate", "api", 1, 9_940_000, 9_940_000, token_us=1_000_000, burst=1),
        ]
        name_keys(notice, queue, rows, NOW_S)
        return notice

    assert said(5).because.startswith(
        "6 of its 12 ready jobs wait for a place of a limit or a token of a rate, most of them, 5, "
        "for the limit shop (2 of 2 at work)"
    )
    assert "more slots do not help" in said(5).do[0]
    assert "limit" not in said(4).because, "most wait for workers"


def test_the_page_of_a_queue_shows_its_keys(cluster: WebCluster, console: Console) -> None:
    """O14.26 The page of a tube of type tasks shows the limits and rates for which its READY
    tasks wait, with the places in use, how many wait and since when, and its groups with their
    shares (LIMITS, T47), the tasks without a group as one
    """
    with cluster[1].client() as client:
        client.tube("exports").create("tasks", alone=True)
        for number in range(9):
            group = f"tenant-{number % 3}"
            client.addjob("exports", "x", limit=("shop-1", 2), group=(group, 1 + number % 3))
        for _ in range(4):
            client.addjob("exports", "x", rate=("api", "1/h"), retry=600)
        assert len(client.getjob("exports", count=20, timeout_ms=5_000)) == 3
        rows = {(one.kind, one.key): one.waiting for one in client.limits("exports")}
    reader = console.client()
    waits = {name: count for name, count in rows.items() if name[0] != "group"}
    assert waits == {("limit", "shop-1"): 7, ("rate", "api"): 3}

    def is_shown() -> bool:
        found = figures(reader.get("/queue", name="exports").text)
        shown = {labels: value for (name, labels), value in found.items() if name == "key_waiting"}
        return shown == {f"{kind}={key}": count for (kind, key), count in waits.items()}

    until(is_shown, "show what LIMITS says")
    text = reader.get("/queue", name="exports").text
    assert "2 of 2 at work" in text and "1/h, burst 1" in text and "Fair share by group" in text
    shares = {
        labels: value for (name, labels), value in figures(text).items() if name == "group_ready"
    }
    assert shares == {f"group={k}": n for (kind, k), n in rows.items() if kind == "group"}
    with cluster[0].client() as client:
        client.addjob("plain", "x")
    until(lambda: "Jobs</h2>" in reader.get("/queue", name="plain").text, "be there")
    assert "Keys at their limit" not in reader.get("/queue", name="plain").text
