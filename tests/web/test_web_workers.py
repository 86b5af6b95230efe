"""Workers on the pages: one killed at work, and one that went to another node (SPEC O12, O14)."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import signal
from pathlib import Path
from urllib.parse import quote

import pytest
from slow_tasks import app, export
from web_console import Console, Reader, Served, until
from web_nodes import RealNodes, WebCluster

import forked
import tuque
import until as real
from in_world import now_s
from tuque import Client
from tuque.client.commands.operate import Deploy, WorkerRun
from tuque.client.commands.work import Run
from tuque.client.url import settings
from tuque.clusterview.nodes import Nodes
from tuque.clusterview.work import (
    DEPLOYS_KEPT,
    Deploys,
    WorkerRow,
    changes,
    need,
)
from tuque.server.state.workers import LOST_MS

HERE = Path(__file__).parent
SOURCE = Path(tuque.__file__).parents[1]


@pytest.fixture
def admin(console: Console, cluster: WebCluster) -> Reader:
    return console.client()


def page(reader: Reader, path: str, **words: str) -> str:
    """The words of a page."""
    return " ".join(re.sub("<[^>]*>", " ", reader.get(path, **words).text).split())


def test_a_worker_that_is_not_heard_at_work_is_lost_within_10_s(
    admin: Reader, cluster: WebCluster
) -> None:
    """The page says so, and shows its job as waiting, with the time of its return."""
    with cluster[0].client() as client:
        id = client.addjob("exports", "x", retry=300)
        client.worker_here("shop/1", slots=1, busy=1, queues=["exports"])
        client.getjob("exports")
        client.start(id, worker="shop/1")
    assert "At work" in page(admin, "/workers") and "is lost." not in page(admin, "/workers")
    assert quote(id, safe="") in admin.get("/workers").text
    cluster.world.pass_ms(10_000)
    html = admin.get("/workers").text
    assert "is lost." in html and id[:15] in html
    found = re.search(r'is waiting and comes back at <b><time datetime="([^"]+)"', html)
    assert found is not None
    left_s = dt.datetime.fromisoformat(found[1]).timestamp() - now_s(cluster.world)
    assert 288 < left_s < 291, "it was heard of 300 s before"
    assert "comes back" in page(admin, "/job", id=id).lower(), "its page says it, too"
    assert "is lost" in page(admin, "/"), "and the first page"


@pytest.mark.slow
def test_a_worker_that_was_killed_is_lost(tmp_path: Path) -> None:
    """A real one, as the shipped console shows it."""
    with RealNodes(tmp_path, 1) as nodes, Served(nodes.url) as served:
        app.use(nodes.url)
        job = export.enqueue(600)
        admin = served.client()
        with (tmp_path / "log").open("wb") as log:
            words = ["worker", "slow_tasks:app", "--app-dir", str(HERE), "-c", "1"]
            worker = forked.start(
                [*words, "--url", nodes.url], log, tmp_path, PYTHONPATH=str(SOURCE)
            )
            try:
                link = quote(job.id, safe="")
                real.until(lambda: link in admin.get("/workers").text, "show its job")
            finally:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
        real.until(lambda: "is lost." in admin.get("/workers").text, "show it as lost")
        assert job.id[:15] in admin.get("/workers").text


def test_a_deploy_is_marked_in_the_charts(admin: Reader, cluster: WebCluster) -> None:
    """Of the queues whose workers say another version, on all nodes."""

    def marks(path: str, **words: str) -> set[str]:
        return set(re.findall('data-mark="([^"]*)"', admin.get(path, **words).text))

    with cluster[0].client() as client, cluster[1].client() as other:
        client.addjob("shop", "x")
        client.addjob("mail", "x")
        client.worker_here("s1", app="shop 41", queues=["shop", "mail"])
        cluster.until(lambda: len(history(client)) >= 2, "have points")
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
    """O12.6 A reader of several nodes merges their rows by instant: a row is a change if its APP
    differs from that of the row before it.
    """
    one, other = ("a",), ("a", "b")
    heard = [
        Deploy(1_000, "41", one),
        Deploy(2_000, "41", other),  # the first of a, of b
        Deploy(10_000, "42", one),
        Deploy(40_000, "42", other),  # b later: one deploy
        Deploy(500_000, "42", one),
        Deploy(600_000, "41", one),  # a node anew; and back
    ]
    found = changes(reversed(heard))
    assert [(mark.at_s, mark.text, mark.queues) for mark in found] == [
        (10.0, "42", {"a": 10.0, "b": 40.0}),
        (600.0, "41", {"a": 600.0}),
    ]


def test_a_way_back_is_a_change() -> None:
    """O12.6 the version before it again is a change, too."""
    told = [Deploy(1_000 * at, app, ("a",)) for at, app in enumerate(("41", "42", "41", "42"), 1)]
    assert [(mark.at_s, mark.text) for mark in changes(told)] == [
        (2.0, "42"),
        (3.0, "41"),
        (4.0, "42"),
    ]


def test_a_node_that_is_away_takes_no_deploy_with_it() -> None:
    """What was heard stays, also of a node that has begun anew."""
    deploys = Deploys()
    deploys.learn([Deploy(1_000, "41", ("a",)), Deploy(2_000, "42", ("a",))])
    deploys.learn([Deploy(2_000, "42", ("a",))])
    marks = asyncio.run(deploys.marks(Nodes(settings("tuque://127.0.0.1"))))
    assert [(mark.at_s, mark.text) for mark in marks] == [(2.0, "42")]
    deploys.learn(Deploy(at, str(at), ("b",)) for at in range(DEPLOYS_KEPT))
    assert len(deploys._received) == DEPLOYS_KEPT


def test_lost_workers_with_jobs_come_first() -> None:
    """O14.3 Lost workers that had jobs come before those that had none."""
    run = WorkerRun("D-1", "q", "t", 1, 1_000, "waiting", 5_000)

    def row(name: str, state: str, *runs: WorkerRun) -> WorkerRow:
        return WorkerRow(
            name, "h", 1, "1", "41", ["q"], 1, 0, 0, 0, 0, 0, state, "none", list(runs)
        )

    rows = [row("b", "alive", run), row("a", "alive"), row("k/1", "lost"), row("vm", "lost", run)]
    assert [one.name for one in sorted(rows, key=need)] == ["vm", "k/1", "a", "b"]


def test_all_lost_workers_are_counted(admin: Reader, cluster: WebCluster) -> None:
    """O14.3 Five of them have a banner, with how many more there are."""
    with cluster[0].client() as client:
        names = [f"k/{number}" for number in range(7)]
        id = client.addjob("held", "x", retry=300)
        client.getjob("held")
        for name in names:
            client.worker_here(name, app="shop 9", queues=["held"])
        client.start(id, worker=names[-1])
        cluster.world.pass_ms(LOST_MS)
        more = "And [23] more lost, 0 with jobs"  # one of the test before
        assert re.search(more, page(admin, "/workers"))
        html = admin.get("/workers").text
        assert html.index("k/6 is lost.") < html.index("k/0 is lost.")
        assert '<div class="only-phone q2">shop 9' in html
        for name in names:
            client.worker_bye(name)


def test_a_worker_that_went_to_another_node_is_one(admin: Reader, cluster: WebCluster) -> None:
    """O12.4 of several rows of one name the one with the least heard-ms counts, and the runs of
    all of them together.
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
            client.worker_here("mover", slots=4, busy=2, queues=["moves"], app="shop 7")
            return "lost" in {one.state for one in first.workers(match="mover")}

        cluster.until(is_one, "be lost at the first node")
        html = admin.get("/workers", match="mover").text
    assert html.count('<b class="name">mover</b>') == 1
    assert 'data-metric="worker_busy" data-labels="worker=mover" data-value="2"' in html
    assert "mover is lost" not in html and ">shop 7</td>" in html
    for node in cluster.nodes[:2]:
        with node.client() as client:
            client.worker_bye("mover")
