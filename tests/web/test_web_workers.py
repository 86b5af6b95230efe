"""Workers on the pages: one that was killed at work, and one that went to another node."""

from __future__ import annotations

import datetime as dt
import re
import signal
from pathlib import Path
from urllib.parse import quote

import forked
import pytest
from slow_tasks import app, export
from web_console import Console, Reader, until

import tuque
from tuque import Client
from tuque.client.commands.life import Run
from tuque.client.commands.operate import Deploy
from tuque.testing import TestCluster
from tuque.web.read.workers import changes

HERE = Path(__file__).parent
SOURCE = Path(tuque.__file__).parents[1]
LOST_S = 10.0


@pytest.fixture
def admin(console: Console, cluster: TestCluster) -> Reader:
    until(lambda: len(console.site.watch.facts) == 3, "hear all nodes")
    return console.client()


def page(reader: Reader, path: str, **words: str) -> str:
    """The words of a page."""
    return " ".join(re.sub("<[^>]*>", " ", reader.get(path, **words).text).split())


def last_sign_s(html: str) -> float:
    """How long ago the only worker of a page was heard, as the page says."""
    found = re.search('<td class="n not-phone(?: bad-t)?">([0-9.]+) (ms|s)</td>', html)
    assert found is not None
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def test_a_worker_killed_at_work_is_lost_within_10_s(
    admin: Reader, cluster: TestCluster, tmp_path: Path
) -> None:
    """The page says so, and shows its job as waiting, with the time of its return."""
    app.use(cluster.url)
    job = export.enqueue(600)
    with (tmp_path / "log").open("wb") as log:
        arguments = ["worker", "slow_tasks:app", "--app-dir", str(HERE), "-c", "1"]
        words = [*arguments, "--url", cluster.url]
        worker = forked.start(words, log, tmp_path, PYTHONPATH=str(SOURCE))
        try:
            until(lambda: "At work" in page(admin, "/workers"), "show the worker")
            until(lambda: quote(job.id, safe="") in admin.get("/workers").text, "show its job")
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
    html = ""

    def is_lost() -> bool:
        nonlocal html
        html = admin.get("/workers").text
        is_so = "is lost." in html
        assert is_so or last_sign_s(html) < LOST_S, "it was killed after its last sign"
        return is_so

    until(is_lost, "show it as lost")
    found = re.search(r'is waiting and comes back at <b><time datetime="([^"]+)"', html)
    assert found is not None and job.id[:15] in html
    left_s = (dt.datetime.fromisoformat(found[1]) - dt.datetime.now(dt.UTC)).total_seconds()
    assert 270 < left_s < 300, "it was heard of 300 s before"
    assert "comes back" in page(admin, "/job", id=job.id).lower()
    assert "is lost" in page(admin, "/")


def test_a_deploy_is_marked_in_the_charts(admin: Reader, cluster: TestCluster) -> None:
    """Of the queues whose workers say another version, on all nodes."""

    def marks(path: str, **words: str) -> set[str]:
        return set(re.findall('data-mark="([^"]*)"', admin.get(path, **words).text))

    with cluster[0].client() as client, cluster[1].client() as other:
        client.addjob("shop", "x")
        client.addjob("mail", "x")
        client.worker_here("s1", app="shop 41", queues=["shop", "mail"])
        until(lambda: len(history(client)) >= 2, "have points")
        other.worker_here("s2", app="shop 42", queues=["shop"])
        until(lambda: "shop 42" in marks("/"), "mark the deploy")
        assert marks("/") == {"shop 42"}, "the first version of a queue is no change"
        until(lambda: marks("/queue", name="shop") == {"shop 42"}, "mark it there")
        assert marks("/queue", name="mail") == set()
        for name in ("s1", "s2"):
            for one in (client, other):
                one.worker_bye(name)


def history(client: Client) -> list[object]:
    found = client.history("5s", queue="shop")
    return [] if found is None else list(found.points)


def test_changes_of_versions_are_those_of_queues() -> None:
    """O12.6 Who asks several nodes knows a change by the one before it, of any node."""
    one, other = ("a",), ("a", "b")
    heard = [
        *(Deploy(1_000, "41", one), Deploy(2_000, "41", other)),  # the first of a, of b
        *(Deploy(10_000, "42", one), Deploy(40_000, "42", other)),  # b later: one deploy
        *(Deploy(500_000, "42", one), Deploy(600_000, "41", one)),  # a node anew; and back
    ]
    found = changes(reversed(heard))
    assert [(mark.at_s, mark.text, mark.queues) for mark in found] == [
        (10.0, "42", {"a", "b"}),
        (600.0, "41", {"a"}),
    ]


def test_a_worker_that_went_to_another_node_is_one(admin: Reader, cluster: TestCluster) -> None:
    """O12.4 of several rows of one name that with the least heard-ms stands, and the runs of all of
    them together.
    """
    ids = []
    for busy, node in enumerate(cluster.nodes[:2], 1):
        with node.client() as client:
            ids.append(client.addjob("moves", "x", retry=300, replicate=1))
            (run,) = client.start(ids[-1], worker="mover")
            assert isinstance(run, Run)
            client.worker_here("mover", slots=4, busy=busy, queues=["moves"])
    with cluster[1].client() as client, cluster[0].client() as first:

        def is_one() -> bool:
            client.worker_here("mover", slots=4, busy=2, queues=["moves"])
            return "lost" in {one.state for one in first.workers(match="mover")}

        until(is_one, "be lost at the first node")
        html = admin.get("/workers", match="mover").text
    assert html.count('<b class="name">mover</b>') == 1
    assert 'data-metric="worker_busy" data-labels="worker=mover" data-value="2"' in html
    assert "mover is lost" not in html
    for node in cluster.nodes[:2]:
        with node.client() as client:
            client.worker_bye("mover")
