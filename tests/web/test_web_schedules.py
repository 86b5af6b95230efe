"""The page of schedules, its actions, and the page of their queue (SPEC O14)."""

from __future__ import annotations

import re

import pytest
from web_console import Console, Reader, figures, until
from web_nodes import WebCluster

from tuque.client.commands.schedules import Schedule
from tuque.errors import NoSchedule
from tuque.web.show.waits import (
    ahead,
    firings,
    in_words,
    state_of,
)

SPRING = {"cron": "30 2 * * *", "tz": "Europe/Berlin"}


@pytest.fixture
def admin(console: Console, cluster: WebCluster) -> Reader:
    """The first node leads a tube with a schedule, the second one another."""
    with cluster[0].client() as client:
        client.tube("reports").create("tasks", if_not_exists=True, alone=True)
        client.schedule_add("reports", "daily", "{}", cron="0 9 * * MON-FRI", tz="Europe/Berlin")
    with cluster[1].client() as client:
        client.tube("bills").create("tasks", if_not_exists=True, alone=True)
        client.schedule_add("bills", "hourly", "{}", every_s=3600, missed="all")
    reader = console.client()
    shown = (">daily<", ">hourly<", ">2 schedules<")
    until(lambda: all(one in reader.get("/schedules").text for one in shown), "show both")
    return reader


def plan(**words: object) -> Schedule:
    """A schedule that is next at 02:30 of the day before clocks are put forward."""
    known: dict[str, object] = dict.fromkeys(("cron", "tz"), "")
    known |= {"name": "s", "queue": "q", "every_s": 0.0, "missed": "one", "paused": False}
    known |= {"next_ms": 1_774_661_400_000, "last_ms": 0, "fired": 0, "late": 0, "id": "D"}
    return Schedule(**{**known, **words})  # type: ignore[arg-type]  # by name


def test_the_next_three_instants_are_those_of_the_node() -> None:
    """O14.23 its next three instants"""
    first_s = 1_774_661_400.0  # 2026-03-28 02:30 in Berlin
    assert firings(plan(every_s=90.0)) == [first_s, first_s + 90, first_s + 180]
    # the next day has no 02:30: the end of the gap is 30 minutes later
    gap_s, after_s = 1_774_746_000.0, 1_774_830_600.0
    assert firings(plan(**SPRING)) == [first_s, gap_s, after_s]
    assert firings(plan(cron="30 2 * * *", tz="Nowhere/There")) == [first_s]
    assert firings(plan(**SPRING, paused=True)) == firings(plan(**SPRING, next_ms=0)) == []


def test_times_are_said_in_words() -> None:
    """O14.23 its times in words"""
    assert in_words(plan(cron="0 9 * * MON-FRI")) == "at 09:00 on Monday through Friday"
    for every_s, words in ((5.0, "5 s"), (1.5, "1.5 s"), (60.0, "1 m"), (90.0, "1 m 30 s")):
        assert in_words(plan(every_s=every_s)) == f"every {words}"
    for every_s, words in ((7200.0, "2 h"), (5400.0, "1 h 30 m"), (86_400.0, "1 d")):
        assert in_words(plan(every_s=every_s)) == f"every {words}"
    assert (ahead(0.2), ahead(5.2), ahead(90.0)) == ("now", "in 5 s", "in 1 m 30 s")
    assert in_words(plan(cron="not one")) == ""


def test_a_schedule_has_a_state() -> None:
    """O14.23 `paused`, `held back` (its next instant is over 10 s ago), `no next time`, or `on
    time`.
    """
    next_s = 1_774_661_400.0
    assert state_of(plan(paused=True), next_s)[1] == "paused"
    assert state_of(plan(next_ms=0), next_s)[1] == "no next time"
    assert state_of(plan(), next_s + 10)[1] == "on time"
    assert state_of(plan(), next_s + 11)[1] == "held back"


def test_all_schedules_are_listed(admin: Reader, console: Console, cluster: WebCluster) -> None:
    """O14.23 The page of schedules has each with its queue"""
    text = admin.get("/schedules").text
    assert "at 09:00 on Monday through Friday" in text and "Europe/Berlin" in text
    assert "every 1 h" in text and "one for each missed time" in text
    counted = sum(one.number("tubes_schedules") for one in console.site.watch.view().facts)
    assert figures(text)["tubes_schedules", ""] == counted == 2
    with cluster[1].client() as client:
        next_ms = client.schedule_show("bills", "hourly").next_ms
        is_first = next_ms < client.schedule_show("reports", "daily").next_ms
    assert (text.index(">hourly<") < text.index(">daily<")) == is_first, "the next one first"
    instants = re.findall(r'<time datetime="([^"]+)"', text[text.index(">hourly<") :])
    assert len(instants) >= 3 and next_ms % 1000 == int(instants[0][20:23])
    assert ">hourly<" not in admin.get("/schedules", queue="reports").text
    assert ">daily<" not in admin.get("/schedules", match="bills").text
    assert "No schedule fits" in admin.get("/schedules", kind="paused").text


def test_each_action_asks_and_is_logged(
    admin: Reader, console: Console, cluster: WebCluster
) -> None:
    """O14.24 An admin may pause, resume, run or delete a schedule. Each asks, is sent to the leader
    of its tube, and is logged with the schedule and its queue.
    """
    words = {"tube": "bills", "schedule": "hourly"}
    with cluster[1].client() as client:

        def did(name: str, title: str, what: str) -> Schedule | None:
            assert title in admin.asked(name, **words).text
            reply = admin.do(name, **words)
            assert reply.status_code == 303, reply.text
            action = console.site.log.latest[0]
            assert (action.what, action.about, action.came_of_it) == (
                f"{what} a schedule",
                "hourly of bills",
                "done",
            )
            try:
                return client.schedule_show("bills", "hourly")
            except NoSchedule:
                return None

        paused = did("pause-schedule", "Pause the schedule hourly?", "Pause")
        assert paused is not None and paused.paused
        page = admin.get("/schedules", queue="bills").text
        assert '<span class="st pause">paused</span>' in page and "resume-schedule" in page
        resumed = did("resume-schedule", "Resume the schedule hourly?", "Resume")
        assert resumed is not None and not resumed.paused
        assert did("run-schedule", "Run the schedule hourly now?", "Run") is not None
        assert console.site.log.latest[0].jobs == 1 and client.qlen("bills") == 1
        assert did("drop-schedule", "Delete the schedule hourly?", "Delete") is None
        asked = admin.get("/ask/run-schedule", **words).text
        assert "no schedule" in asked and "This is not possible now" in asked
        client.getjob("bills", timeout_ms=5_000)
    reader = console.client("reader")
    assert reader.get("/ask/run-schedule", **words).status_code == 403
    assert 'disabled title="Needs the role admin"' in reader.get("/schedules").text


def test_a_queue_shows_its_schedules_apart(admin: Reader, cluster: WebCluster) -> None:
    """O14.25 The page of a queue counts and lists schedules apart"""
    with cluster[0].client() as client:
        later = client.addjob("reports", "later", delay=3_000)
        id = client.schedule_show("reports", "daily").id
    until(lambda: later in admin.get("/queue", name="reports", tab="active").text, "list the job")
    text = admin.get("/queue", name="reports", tab="active").text
    assert f'title="{id}"' not in text and "Schedules</h2>" in text and ">daily<" in text
    assert "/schedules?queue=reports" in text and "and 1 schedule" in text
    assert figures(text)["delayed", "queue=reports"] == 1
    with cluster[0].client() as client:
        client.deljob(later)


def test_the_overview_says_how_many_are_schedules(admin: Reader) -> None:
    """O14.25 the overview has how many schedules and groups these are"""
    assert re.search(r"with \d schedules?", admin.get("/").text)
