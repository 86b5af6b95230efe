"""More queues than are read at each look: lists come sorted from the nodes, and sums stay exact."""

from __future__ import annotations

import pytest
from web_console import Console, Reader, figures, until

from tuque.client.commands.life import Run
from tuque.testing import TestCluster
from tuque.web.read.lists import FEW, FIRST, SHARE, Thrift, Wish

QUEUES = FEW + 300
LONG = "young-but-long"
DEEP = "old-1250"


@pytest.fixture(scope="module")
def many(cluster: TestCluster) -> TestCluster:
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
def admin(many: TestCluster, console: Console) -> Reader:
    watch = console.site.watch
    watch.hurry()
    until(lambda: watch.view().count > FEW and watch.view().dead == 1, "see the queues")
    return console.client()


def shown(reader: Reader, path: str) -> dict[tuple[str, str], int]:
    return figures(reader.get(path).text)


def test_sums_are_those_of_all_queues(admin: Reader, many: TestCluster) -> None:
    until(lambda: shown(admin, "/queues")["ready", ""] == QUEUES + 2 + 12, "sum up all")
    page = shown(admin, "/queues")
    assert page["dead", ""] == 1
    assert page["queued_jobs", ""] == page["ready", ""] + page["dead", ""]
    text = admin.get("/queues").text
    assert f'<b class="sum">{QUEUES:,}</b> all' in text  # those of the node that knows most
    assert f"of at least {QUEUES:,}" in text
    assert "filter to see others" in admin.get("/queues", at=str(FIRST - 1)).text


def test_the_nodes_sort_and_filter(admin: Reader, many: TestCluster) -> None:
    for queue, count in ((LONG, 12), (DEEP, 3)):  # of two nodes; far down at another node
        key = ("ready", f"queue={queue}")
        until(
            lambda key=key, count=count: shown(admin, "/queues?sort=ready").get(key) == count,
            f"sum up {queue}",
        )
    page = shown(admin, "/queues?match=0777")
    assert [key for key in page if key[0] == "oldest"] == [("oldest", "queue=old-0777")]
    assert ("ready", "queue=bad.dead") in shown(admin, "/queues?kind=dead")
    first = admin.get("/queues", sort="name", down="no").text
    assert "old-0000" in first and "old-0047" in first and "old-0050" not in first


def test_a_queue_beyond_the_list_has_its_page(admin: Reader, many: TestCluster) -> None:
    assert shown(admin, f"/queue?name={LONG}")["ready", f"queue={LONG}"] == 12
    assert admin.get("/find", q=LONG).headers["location"] == f"/queue?name={LONG}"
    assert "12 jobs wait" in admin.get("/ask/pause", queue=LONG, to="in").text


def test_lists_of_many_queues_are_read_rarely() -> None:
    """A list that took a second is read again when that is within the share of the time."""
    thrift = Thrift()
    assert thrift.may()
    thrift.spent(1.0)
    assert not thrift.may()
    quick = Thrift()
    quick.spent(-SHARE)  # a second ago
    assert quick.may()
    assert Wish() == Wish("oldest", True) and Wish().most == FIRST
