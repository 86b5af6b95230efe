"""More queues than are read at each look: lists come sorted from the nodes, and sums stay exact."""

from __future__ import annotations

import asyncio
import time

import pytest
from web_console import Console, Reader, figures, known, until
from web_nodes import WebCluster

from tuque.client.commands.work import Run
from tuque.client.url import parse
from tuque.clusterview.queues import (
    FEW,
    FIRST,
    SHARE,
    RefreshBudget,
    Wish,
)
from tuque.web.actions import ActionLog
from tuque.web.pages.queues import queues
from tuque.web.site import Ask, Page, Site

QUEUES = FEW + 300
LONG = "young-but-long"
DEEP = "old-1250"


@pytest.fixture(scope="module")
def many(cluster: WebCluster) -> WebCluster:
    """Old queues at one node; at the others some of them again, and a young queue that is long."""
    with cluster[0].client() as client, client.pipeline() as pipe:
        for number in range(QUEUES):
            pipe.addjob(f"old-{number:04}", "x", replicate=1, ttl=3600)
        pipe.execute()
    with cluster[1].client() as client, client.pipeline() as pipe:
        for _ in range(7):
            pipe.addjob(LONG, "x", replicate=1, ttl=3600)
        for _ in range(2):
            pipe.addjob(DEEP, "x", replicate=1, ttl=3600)
        pipe.execute()
    with cluster[2].client() as client:
        for _ in range(5):
            client.addjob(LONG, "x", replicate=1, ttl=3600)
        id = client.addjob("bad", "x", replicate=1, attempts=1, ttl=3600)
        client.getjob("bad")
        (run,) = client.start(id, worker="w")
        assert isinstance(run, Run)
        client.fail(id, run.run, reason="no", final=True)
    return cluster


@pytest.fixture
def admin(many: WebCluster, console: Console) -> Reader:
    watch = console.site.watch
    watch.hurry()
    until(lambda: watch.view().count > FEW and watch.view().dead == 1, "see the queues")
    return console.client()


def shown(reader: Reader, path: str) -> dict[tuple[str, str], int]:
    return figures(reader.get(path).text)


def test_sums_are_those_of_all_queues(admin: Reader, many: WebCluster) -> None:
    """A page is of one look: its sums agree, also while a node does not answer for a moment."""
    ready = QUEUES + 2 + 12
    whole = {("ready", ""): ready, ("dead", ""): 1, ("queued_jobs", ""): ready + 1}
    text = [""]

    def is_whole() -> bool:
        text[0] = admin.get("/queues").text
        page = figures(text[0])
        assert page["queued_jobs", ""] == page["ready", ""] + page["dead", ""]
        return whole.items() <= page.items()

    until(is_whole, "sum up all")
    assert f'<b class="sum">{QUEUES:,}</b> all' in text[0]  # those of the node that knows most
    assert f"of at least {QUEUES:,}" in text[0]
    until(lambda: "filter to see others" in at_end(admin), "say that there are others")


def at_end(reader: Reader) -> str:
    """The last page of the list."""
    text: str = reader.get("/queues", at=str(FIRST - 1)).text
    return text


def test_a_page_is_of_one_look(many: WebCluster) -> None:
    """Its sums agree, though a node falls silent while the page asks for its list."""
    site = Site(parse(many.url), known(), b"s" * 32, ActionLog(None), "test")
    session, _ = site.sessions.begin(known()["admin"], time.time())

    async def made() -> tuple[Page, int]:
        watch = site.watch
        try:
            await watch.turn()
            while watch.view().old or not watch.view().count:
                await watch.turn()
            many.world.pass_ms(1)
            page = asyncio.create_task(queues(Ask(site, "/queues", {}, session)))
            await asyncio.sleep(0)  # it begins, and asks the nodes
            (node,) = [one for one in watch.nodes.known.values() if one.id == many[0].id]
            node.is_stuck = True
            return await page, watch.view().sum("queued_jobs")
        finally:
            await watch.close()

    page, left = many.run(made())
    view, queued = page.context["view"], page.context["queued"]
    assert queued == view.ready + view.buried > left, "those of all nodes"


def test_the_nodes_sort_and_filter(admin: Reader, many: WebCluster) -> None:
    for queue, count in ((LONG, 12), (DEEP, 3)):  # of two nodes; far down at another node
        key = ("ready", f"queue={queue}")
        until(
            lambda key=key, count=count: shown(admin, "/queues?sort=ready").get(key) == count,
            f"sum up {queue}",
        )
    until(lambda: olds(shown(admin, "/queues?match=0777")) == ["queue=old-0777"], "filter")
    until(lambda: ("ready", "queue=bad.dead") in shown(admin, "/queues?kind=dead"), "sort by kind")
    text = [""]

    def is_by_name() -> bool:
        text[0] = admin.get("/queues", sort="name", down="no").text
        return "old-0000" in text[0] and "old-0047" in text[0]

    until(is_by_name, "sort by name")
    assert "old-0050" not in text[0]


def olds(page: dict[tuple[str, str], int]) -> list[str]:
    """The queues of a page whose oldest job is known."""
    return [labels for metric, labels in page if metric == "oldest"]


def test_a_queue_beyond_the_list_has_its_page(admin: Reader, many: WebCluster) -> None:
    key = ("ready", f"queue={LONG}")
    until(lambda: shown(admin, f"/queue?name={LONG}").get(key) == 12, "sum up its jobs")
    assert admin.get("/find", q=LONG).headers["location"] == f"/queue?name={LONG}"
    assert "12 jobs wait" in admin.get("/ask/pause", queue=LONG, to="in").text


def test_lists_of_many_queues_are_read_rarely() -> None:
    """A list that took a second is read again when that is within the share of the time."""
    thrift = RefreshBudget()
    assert thrift.may()
    thrift.spent(1.0)
    assert not thrift.may()
    quick = RefreshBudget()
    quick.spent(-SHARE)  # a second ago
    assert quick.may()
    assert Wish() == Wish("oldest", True) and Wish().most == FIRST
