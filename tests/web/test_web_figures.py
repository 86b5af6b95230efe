"""Every figure of a page is that of the nodes; every action does what its dialog said."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterator

import pytest
from web_console import Console, Reader, figures, until
from web_nodes import WebCluster

from tuque.client.commands.work import Run
from tuque.clusterview.history import Points
from tuque.server.state.workers import LOST_MS

WAITS = (None, "wait")


@pytest.fixture(scope="module")
def still(cluster: WebCluster) -> Iterator[WebCluster]:
    """Jobs in many states, and nothing that moves."""
    for at, node in enumerate(cluster.nodes):
        with node.client() as client:
            for number in range(5 + at):
                client.addjob("mail", f"{number}", retry=600)
            client.addjob("later", "x", delay=3600)
            client.execute("ADDJOB", "bad", "x", 0, "RETRY", 60, "ATTEMPTS", 1)
            (job,) = client.getjob("bad")
            (run,) = client.start(job, worker="w")
            assert isinstance(run, Run)
            client.fail(job, run.run, reason="KeyError: 1", detail="Traceback")
    with cluster[0].client() as client:
        client.execute("TUBE", "CREATE", "letters", "fifottl", "ALONE")
        client.execute("TUBE", "PUT", "letters", "a letter")
        client.execute("TUBE", "PUT", "letters", "another")
        client.execute("TUBE", "TAKE", "letters")
        epoch = client.lease_open("table", "spark-1", "mail")
        client.lease_next("table", epoch, 1, 3, ttl_ms=3_600_000)
        client.getjob("mail")
        yield cluster  # the session goes on, and holds its task


@pytest.fixture
def admin(console: Console, still: WebCluster) -> Reader:
    reader = console.client()
    reader.get("/ask/pause", queue="mail", to="in")
    return reader


def test_every_figure_equals_that_of_the_nodes(admin: Reader, still: WebCluster) -> None:
    def shown(path: str) -> dict[tuple[str, str], int]:
        return figures(admin.get(path).text)

    ready = still.length("mail") + 1  # and the task that waits in the tube
    dead = still.length("bad.dead")
    until(lambda: shown("/")["ready", ""] == ready, "show what is ready")
    page = shown("/queues")
    assert page["dead", ""] == dead == 3
    assert page["ready", "queue=mail"] == still.length("mail")
    assert page["queued_jobs", ""] == still.summed("jobs", "queued_jobs")
    assert page["ready", ""] + page["dead", ""] == page["queued_jobs", ""]
    page = shown("/queue?name=mail")
    assert page["ready", "queue=mail"] == still.length("mail")
    for node in still.nodes:
        with node.client() as client:
            short = client.cluster_myid()[:8]
            assert page["ready", f"queue=mail,node={short}"] == client.qlen("mail")
            here = shown("/cluster")
            for name in ("queued_jobs", "registered_jobs"):
                assert here[name, f"node={short}"] == client.info("jobs")[name]
    for name in ("cluster_tombstones", "cluster_acked_jobs", "bus_refused"):
        assert here[name, ""] == still.summed("all", name)
    page = shown("/dead")
    assert page["dead", ""] == page["qlen_dead", ""] == 3
    assert page["dead_copies", ""] == still.summed("jobs", "dead")
    page = shown("/tubes")
    assert page["tube_ready", "tube=letters"] == 1 and page["tube_taken", "tube=letters"] == 1
    assert shown("/leases")["leased", "group=table"] == still.summed("leases", "lease_jobs") == 3


def test_a_queue_shows_its_points_of_now(
    admin: Reader, console: Console, still: WebCluster
) -> None:
    """O14.13 The figures of the last minute have until when it was"""
    watch = console.site.watch
    console.until(lambda: watch.queue_points.get("mail"), "have points")
    watch._looked_back_s = math.inf  # the watch asks for none
    try:
        kept = watch.queue_points["mail"].at_s[-1]

        def shown() -> list[str]:
            text = admin.get("/queue?name=mail").text
            return re.findall(r'[0-9,]+ jobs? to <time datetime="([^"]+)"', text)

        until(lambda: len(shown()) == 2, "say until when")
        before = shown()
        until(lambda: shown() > before, "have newer ones")
        assert watch.queue_points["mail"].at_s[-1] > kept, "all pages show them"
    finally:
        watch._looked_back_s = 0.0
    until(lambda: re.search(r"jobs? to <time", admin.get("/").text), "say so on the first page")


def test_one_job_shows_where_it_is(admin: Reader, still: WebCluster) -> None:
    with still[0].client() as client:
        id = client.addjob("pictures", '{"task": "thumb"}', replicate=2, retry=600)
    page = admin.get("/job", id=id)
    assert page.status_code == 200
    assert "2 wanted, 2 there" in page.text and "waits in its queue" in page.text
    assert page.text.count(">has it<") == 2 and page.text.count(">no copy<") == 1
    assert "&#34;task&#34;: &#34;thumb&#34;" in page.text
    gone = admin.get("/job", id="D-00000000-" + "A" * 24 + "-05a1")
    assert gone.status_code == 404 and "No node knows this job" in gone.text
    assert admin.get("/job", id="no id").status_code == 404


def test_one_job_shows_its_headers_and_its_way(admin: Reader, still: WebCluster) -> None:
    """A live job: task and headers, its first wait, the attempt that failed, the one of now."""
    with still[0].client() as client:
        headers = {"tuque-task": "thumb.make", "tenant": "shop-7"}
        id = client.addjob(
            "way", "x", retry=600, attempts=3, backoff=(0, 0, 0), headers=headers, replicate=1
        )
        client.getjob("way")
        (run,) = client.start(id, worker="way-1")
        assert isinstance(run, Run)
        client.fail(id, run.run, reason="OSError: no disk")
        still.until(lambda: client.getjob("way", timeout_ms=100), "come back")
        client.start(id, worker="way-2")
    text = " ".join(re.sub("<[^>]*>", " ", admin.get("/job", id=id).text).split())
    for words in ("thumb.make", "tenant shop-7", "1 failed of 3, 2 starts"):
        assert words in text, words
    steps = [
        "Added at",
        "Waited in way",
        "Handed out",
        "Attempt 1 of 3 failed",
        "way-1 · OSError: no disk",
        "Back-off, and the wait in its queue",
        "Attempt 2 of 3 began",
        "way-2",
        "Is at work at way-2",
        "Comes back, unless",
    ]
    way = text.partition("Its life so far")[2]
    places = [way.find(step) for step in steps]
    assert -1 not in places and places == sorted(places), list(zip(steps, places, strict=True))


def test_a_job_is_added_changed_and_deleted(admin: Reader, still: WebCluster) -> None:
    words = {"queue": "by hand", "body": "one\ntwo %%41 ü", "retry": "60", "ttl": "600"}
    assert "pri must be a whole number, 0 or more" in admin.do("add", **words, pri="x").text
    assert "takes PRI 0 to 9" in admin.do("add", **words, pri="10").text
    reply = admin.do("add", **words, pri="0")
    assert reply.status_code == 303, reply.text
    id = reply.headers["location"].partition("id=")[2].replace("%2F", "/").replace("%2B", "+")
    with still[0].client() as client:
        still.until(lambda: client.show(id) is not None or still.length("by hand"), "be there")
    until(lambda: still.length("by hand") == 1, "wait")
    assert admin.do("edit", id=id, how="change this job", body="three").status_code == 303
    page = admin.get("/job", id=id).text
    assert "three" in page and "0 of 0 to 9, where 0 goes first" in page
    assert 'name="pri" value="0"' in admin.get("/ask/edit", id=id).text
    assert admin.do("delete", id=id).status_code == 303
    assert still.length("by hand") == 0
    page = admin.get("/job", id=id)
    assert page.status_code == 404 and "This job was deleted" in page.text


def test_an_action_whose_count_has_changed_asks_again(
    admin: Reader, console: Console, still: WebCluster
) -> None:
    page = admin.asked("retry-dead").text
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None and "Retry 3 jobs?" in page
    reply = admin.http.post("/do/retry-dead", data={"csrf": token[1], "count": "2"})
    assert reply.status_code == 409 and "Meanwhile it is 3 jobs, not 2." in reply.text
    assert still.length("bad.dead") == 3


def test_actions_are_logged_with_user_and_count(
    admin: Reader, console: Console, still: WebCluster
) -> None:
    assert admin.do("pause", queue="mail", to="in").status_code == 303
    assert admin.do("pause", queue="mail", to="none").status_code == 303
    latest = console.site.log.latest[0]
    assert (latest.who, latest.what, latest.about) == ("admin", "Resume", "mail")
    assert "Resume" in admin.get("/log").text
    path = console.site.log._path
    assert path is not None
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[-1]["what"] == "Resume" and lines[-1]["who"] == "admin"
    assert path.stat().st_mode & 0o077 == 0


def test_texts_of_strangers_stay_texts(admin: Reader, still: WebCluster) -> None:
    evil = "<script>alert(1)</script>\x1b[2J"
    with still[0].client() as client:
        client.addjob(evil, evil, retry=60)
    for path in ("/queues?match=script", "/queue", "/find"):
        words = {"name": evil} if path == "/queue" else {"q": evil} if path == "/find" else {}
        until(lambda: "script" in admin.get("/queues", match="script").text, "be listed")
        text = admin.get(path, **words).text if words else admin.get(path).text
        assert "<script>alert" not in text and "\x1b" not in text


def test_a_lost_worker_is_named_with_the_return_of_its_job(
    admin: Reader, still: WebCluster
) -> None:
    with still[1].client() as client:
        id = client.addjob("exports", "x", retry=300)
        client.getjob("exports")
        client.execute("WORKER", "HERE", "batch-2", "SLOTS", 4, "BUSY", 1, "QUEUES", "exports")
        client.start(id, worker="batch-2")
    page = admin.get("/workers").text
    assert "batch-2" in page and "is lost" not in page
    still.world.pass_ms(LOST_MS)
    page = admin.get("/workers").text
    assert "batch-2 is lost." in page
    assert "is waiting and comes back at <b><time" in page and id[:15] in page
    assert re.search("<b>batch-2</b> is lost|batch-2 <em>is lost", admin.get("/").text)


def test_dead_letters_are_deleted_after_their_dialog(
    admin: Reader, console: Console, still: WebCluster
) -> None:
    assert admin.do("delete-dead", queue="bad.dead").status_code == 303
    until(lambda: still.length("bad.dead") == 0, "be gone")
    console.until(lambda: console.site.log.latest[0].what == "Deleting", "be logged")
    assert console.site.log.latest[0].jobs == 3
    assert "No dead letters" in admin.get("/dead").text


def test_a_look_that_fails_is_not_the_last(
    admin: Reader, console: Console, still: WebCluster
) -> None:
    """Whatever a node says: pages go on, and say so when it is down."""
    watch = console.site.watch
    console.until(lambda: len(watch.rings.kept.get(WAITS, {})) == 3, "hear what was")
    torn = Points([1.0, 2.0], {"1": [0.0]})
    for id in watch.rings.kept[WAITS]:
        watch.rings.kept[WAITS][id] = torn

    async def watched() -> None:
        running = asyncio.create_task(watch.run())
        async with asyncio.timeout(60.0):
            while torn in watch.rings.kept[WAITS].values():  # the first look at them fails
                await asyncio.sleep(1.0)
            with still[0].client() as client:
                client.addjob("news", "x")
            while "news" not in watch.view().queues:
                await asyncio.sleep(1.0)
        assert not running.done()
        running.cancel()

    console.run(watched())
