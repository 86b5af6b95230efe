"""Dialogs over dead letters open at once, count what was read, change exactly that (SPEC O14)."""

from __future__ import annotations

import contextlib
import math
import re
from pathlib import Path

import pytest
from web_console import Console, Reader, console_of, figures, until
from web_nodes import WebCluster

from tuque.client.url import parse
from tuque.clusterview import dead_letters
from tuque.clusterview.watch import Watch

MANY = 300
BATCH = 100
HOUR_MS = 3_600_000


def die(cluster: WebCluster, count: int) -> None:
    """Jobs become dead letters at the first node, of two reasons."""
    with cluster[0].client() as client:
        for _ in range(0, count, BATCH):
            with client.pipeline() as pipe:
                for _ in range(BATCH):
                    pipe.addjob("mail", "x", retry=600, attempts=1, replicate=1)
                pipe.execute()
            jobs = client.getjob("mail", count=BATCH, start=True, worker="w")
            with client.pipeline() as pipe:
                for number, job in enumerate(jobs):
                    pipe.fail(job, job.run or "", reason=("KeyError: 1", "OSError: 2")[number % 2])
                pipe.execute()


def left(cluster: WebCluster) -> int:
    return cluster.length("mail.dead")


def put_off(console: Console) -> None:
    """The next reading is far away."""
    console.site.graves._free_s = math.inf


def shown(reader: Reader) -> int:
    """The dead letters that their page counts."""
    return figures(reader.get("/dead").text)["dead", ""]


@pytest.fixture(scope="module")
def full(cluster: WebCluster) -> WebCluster:
    die(cluster, MANY)
    return cluster


def test_the_first_dialog_says_how_far_its_reading_is(
    full: WebCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node stands still, and the letters are read for the first time."""
    monkeypatch.setattr(dead_letters, "FEW_WAIT_S", 0.5)
    with console_of(full, tmp_path / "actions") as console:
        admin = console.client()
        console.until(lambda: console.site.watch.view().dead == MANY, "see the letters")
        with full[2].standing_still():
            text = admin.seen("/ask/retry-dead", queue="mail").text  # which does not wait for it
        assert f"of about {MANY} dead letters are read" in text
        again = re.search(r'href="([^"]+)" data-ask data-again', text)
        assert again is not None and again[1] == "/ask/retry-dead?queue=mail"
        until(lambda: f"Retry {MANY} jobs?" in admin.get(again[1]).text, "be counted")


def test_a_dialog_over_many_takes_what_was_read(
    full: WebCluster, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads nothing anew; what has died since stays where it is."""
    monkeypatch.setattr(dead_letters, "FEW", MANY // 2)
    admin = console.client()
    console.until(lambda: console.site.watch.view().dead == MANY, "see the letters")
    until(lambda: f"Retry all {MANY}" in admin.get("/dead").text, "read the letters")
    put_off(console)
    die(full, BATCH)
    console.until(lambda: console.site.watch.view().dead == MANY + BATCH, "see the new ones")
    reading = console.site.graves.latest
    assert f"Delete {MANY} jobs?" in admin.asked("delete-dead").text
    assert f"Delete {MANY // 2} jobs?" in admin.asked("delete-dead", text="KeyError").text
    key = next(
        one.key for one in reading.meant(dead_letters.Wanted()).groups if "OSError" in one.key
    )
    assert f"Delete {MANY // 2} jobs?" in admin.asked("delete-dead", group=key).text
    id = reading.letters[0].row.id
    assert "Delete 1 job?" in admin.asked("delete-dead", id=id).text
    assert console.site.graves.latest is reading
    full.world.pass_ms(HOUR_MS)
    assert "They were counted 1 h 00 m ago." in admin.asked("delete-dead").text
    assert admin.do("delete-dead", text="KeyError").status_code == 303
    console.until(
        lambda: console.site.log.latest and console.site.log.latest[0].what == "Deleting", "end"
    )
    assert console.site.log.latest[0].jobs == MANY // 2
    assert left(full) == MANY // 2 + BATCH
    until(lambda: f"Retry all {MANY // 2 + BATCH}" in admin.get("/dead").text, "read what is left")


def test_a_dialog_over_few_counts_those_of_now(full: WebCluster, console: Console) -> None:
    admin = console.client()
    admin.get("/dead")
    before = left(full)
    die(full, BATCH)
    assert f"Retry {before + BATCH} jobs?" in admin.asked("retry-dead", queue="mail").text


def test_letters_of_a_node_that_hangs_are_not_counted(full: WebCluster, console: Console) -> None:
    """O14.1 Nothing that only a silent node has is in them: neither its queued jobs nor its dead
    letters.
    """
    admin = console.client()
    until(
        lambda: shown(admin) == left(full) > 0,
        "read them",
    )
    with full[0].standing_still():
        until(lambda: shown(admin) == 0, "leave them out")
        text = admin.get("/dead").text
        assert "No dead letter at the nodes that answer" in text
        assert "No job is dead" not in text and "count bad sum" not in text
    until(
        lambda: shown(admin) == left(full) > 0,
        "read them again",
    )


def test_letters_that_nobody_answered_for_are_not_gone(full: WebCluster, console: Console) -> None:
    """O14.8 Dead letters that no node answered for are not counted as none"""
    admin = console.client()
    until(
        lambda: shown(admin) == left(full) > 0,
        "read them",
    )
    reading = console.site.graves.latest
    with contextlib.ExitStack() as still:
        for node in full.nodes:
            still.enter_context(node.standing_still())
        console.until(lambda: not console.site.watch.nodes.up(), "hear nobody")
        admin.get("/dead")
    console.until(lambda: len(console.site.watch.nodes.up()) == 3, "hear all again")
    latest = console.site.graves.latest  # a reading that waited may have had its answers
    assert latest is reading or len(latest.letters) == len(reading.letters)
    assert shown(admin) == len(reading.letters) > 0


def test_a_page_that_knows_no_queue_yet_reads_those_of_the_nodes(full: WebCluster) -> None:
    """O14.8 Dead letters that no node answered for are not counted as none"""

    async def read() -> dead_letters.Reading | None:
        watch = Watch(parse(full.url))
        try:
            await watch.turn()
            return await dead_letters.DeadLetterCache(watch.nodes).of([], 20)
        finally:
            await watch.nodes.close()

    reading = full.run(read())
    assert reading is not None and len(reading.letters) == left(full) > 0


def test_an_old_reading_has_its_age(
    full: WebCluster, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O14.8 the page shows those read before, and how long ago if that is more than 3 s."""
    admin = console.client()
    until(lambda: "All there are now, on 3 nodes" in admin.get("/dead").text, "read them")
    put_off(console)
    full.world.pass_ms(HOUR_MS)
    assert "As they were read 1 h 00 m ago, on 3 nodes" in admin.get("/dead").text


def test_the_badge_is_of_the_reading_of_the_page(
    full: WebCluster, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O14.14 The count of dead letters on their page and in its badge are of one reading"""
    admin = console.client()

    def counted() -> tuple[int, set[str]]:
        text = admin.get("/dead").text
        return figures(text)["dead", ""], set(re.findall('count bad sum">([0-9,]+)<', text))

    until(lambda: counted()[0] == left(full) > 0, "read them")
    put_off(console)
    before = left(full)
    die(full, BATCH)
    console.until(lambda: console.site.watch.view().dead == left(full), "see the new ones")
    assert counted() == (before, {f"{before:,}"})


def test_a_queue_that_has_no_letters(full: WebCluster, console: Console) -> None:
    admin = console.client()
    console.site.graves.expire()  # the test before put the next reading off
    until(lambda: shown(admin) > 0, "read them")
    text = admin.get("/dead", queue="nope.dead").text
    assert "none of them fits" in text and "are there, none in nope.dead." in text
    assert "No dead letter fits" in text and "By task and reason" not in text
    fit = f"{full.length('mail.dead'):,} of them fit<"
    until(lambda: fit in admin.get("/dead", queue="mail").text, "say how many fit")
    assert "of them fit" not in admin.get("/dead").text


def test_a_retry_is_in_the_events_of_the_nodes(tmp_path: Path) -> None:
    """The page, INFO, the events and the log agree on who died, and who was retried."""
    cluster = WebCluster(3, events=True)
    die(cluster, BATCH)
    half = BATCH // 2
    with console_of(cluster, tmp_path / "actions") as console:
        admin = console.client()
        until(lambda: shown(admin) == BATCH, "read them")
        letters = console.site.graves.latest.letters
        meant = {one.row.id for one in letters if "KeyError" in one.row.reason}
        assert admin.do("retry-dead", text="KeyError").status_code == 303
        console.until(lambda: console.site.log.latest[0].what == "Retrying", "end")
        assert (len(meant), console.site.log.latest[0].jobs) == (half, half)
        assert shown(admin) == cluster.summed("jobs", "replayed") == left(cluster) == half
    told = [row for i in cluster.world.numbers() for row in cluster.world.node(i).events()]
    died = [id for kind, id in told if kind == "dead"]
    again = [id.decode() for kind, id in told if kind == "replayed"]
    assert len(died) == len(set(died)) == BATCH
    assert len(again) == half and set(again) == meant
