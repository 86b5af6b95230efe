"""A node that hangs or is gone: pages stay quick, and count each job once (SPEC O14)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from web_console import BEAT_MS, Console, Reader, console_of, figures, until
from web_nodes import WebCluster

from tuque.client.commands.tubes import TubeInfo
from tuque.client.url import parse
from tuque.clusterview.figures import Queue
from tuque.clusterview.history import Points
from tuque.clusterview.queues import row_of
from tuque.clusterview.watch import Watch, words_of
from tuque.web.pages.queues import is_kind
from tuque.web.pages.tube_actions import silent_home
from tuque.web.show.verdict import State, in_part

JOBS = 30


@pytest.fixture(scope="module")
def held(cluster: WebCluster) -> WebCluster:
    """Jobs at the last node, with a copy at each other one."""
    with cluster[2].client() as client:
        for number in range(JOBS):
            client.addjob("mail", f"{number}", replicate=3, retry=5)
            client.execute("ADDJOB", "bad", "x", 5000, "RETRY", 60, "REPLICATE", 3, "ATTEMPTS", 1)
            (job,) = client.getjob("bad", start=True, worker="w")
            client.fail(job, job.run or "", reason="KeyError")
        client.execute("TUBE", "CREATE", "letters", "fifo", "ALONE")
        client.execute("TUBE", "PUT", "letters", "a letter")
        client.tube("reports").create("tasks", alone=True)
        client.schedule_add("reports", "daily", "{}", cron="0 9 * * *")
        client.lease_open("nightly", "spark-1", "results")
    with cluster[0].client() as client:
        client.execute("TUBE", "CREATE", "parcels", "fifo", "ALONE")
    return cluster


@pytest.fixture
def admin(held: WebCluster, console: Console) -> Reader:
    console.until(lambda: len(console.site.watch.facts) == 3, "hear all nodes")
    return console.client()


def node_short(console: Console) -> str:
    """The node that does not answer."""
    (old,) = console.site.watch.view().old
    return old[:8]


def took_s(cluster: WebCluster, reader: Reader, path: str) -> float:
    """How long somebody waits for a page."""
    begun_ms = cluster.world.now_ms
    assert reader.seen(path).status_code == 200
    return (cluster.world.now_ms - begun_ms) / 1000


@pytest.fixture
def hung(held: WebCluster, console: Console, admin: Reader) -> Iterator[None]:
    """The last node stands still, and the console has noticed."""
    with held[2].standing_still():
        console.look()
        yield
    console.until(lambda: not console.site.watch.view().old, "hear it again")


def test_a_hung_node_is_waited_for_once(
    admin: Reader, console: Console, held: WebCluster, hung: None
) -> None:
    """O14.1 A sum is over the nodes that answer. Nothing that only a silent node has is in them.

    O14.2 tubes without a leader hand out nothing
    """
    watch = console.site.watch
    assert "does not answer" in admin.get("/queues").text
    console.look_back()
    assert len(watch.points) == 3, "its past is still that of the cluster"
    for path in ("/", "/queue?name=mail", "/workers", "/dead", "/leases", "/cluster"):
        assert took_s(held, admin, path) == 0, path
    tubes, leases, dead = (admin.get(path).text for path in ("/tubes", "/leases", "/dead"))
    assert "no leader" in tubes and "hand out nothing until it is back" in tubes
    assert "hand out nothing until" not in admin.get("/tubes", match="parcels").text
    for path in ("/schedules", "/groups"):
        until(lambda path=path: "are not shown: no answer" in admin.get(path).text, "name the node")
    assert "1 of 1" not in tubes, "copies that nobody could count"
    assert "Nobody leases jobs" not in leases
    assert f"Groups of {node_short(console)} are not shown: no answer" in leases
    assert "Those of the nodes that answer, 2 of 3 nodes" in dead
    assert "All there are now" not in dead
    for path in ("/", "/queues", "/queue?name=mail", "/workers", "/tubes"):
        assert "2 of 3 nodes" in admin.get(path).text, path
    for path in ("/", "/cluster"):
        said = "2 tubes have no leader: they hand out nothing until it is back"
        text = admin.get(path).text
        assert said in text
        assert '"st warn" id="live-state">2 of 3<' in text and "verdict fine" not in text
    assert f"{node_short(console)} uses most" not in admin.get("/cluster").text
    queues = admin.get("/queues").text
    assert ">Keeps up<" not in queues and ">Idle<" not in queues
    begun_ms = held.world.now_ms
    console.look()
    assert held.world.now_ms - begun_ms == BEAT_MS, "the others are looked at without a wait"


@pytest.fixture
def alone(held: WebCluster) -> str:
    """A job that only the last node has."""
    with held[2].client() as client:
        return client.addjob("alone", "x", retry=600, replicate=1)


def test_a_job_of_a_hung_node_is_not_unknown(admin: Reader, alone: str, hung: None) -> None:
    """O14.12 If a node that does not answer may have the job, or its result, the page shows
    that, and calls it neither unknown nor over.
    """
    words = "may be at a node that did not answer: "
    page = admin.get("/job", id=alone)
    assert words in page.text
    assert page.status_code == 200 and "No node knows this job" not in page.text


def test_a_queue_does_not_just_keep_up_while_a_node_is_silent() -> None:
    """O14.11 it is `Was behind` if the queue was behind at the last look at all nodes."""
    fine, idle, bad = State("ok", "Keeps up"), State("idle", "Idle"), State("bad", "Behind")
    assert in_part(fine, False) == State("ok", "≈ Keeps up")
    assert in_part(idle, False) == State("idle", "≈ Idle")
    assert in_part(fine, True) == in_part(idle, True) == State("warn", "Was behind")
    assert in_part(bad, True) == in_part(bad, False) == bad
    row = row_of(Queue("long", {}), Points())
    row.state = in_part(fine, True)
    assert is_kind(row, "behind")


def test_a_node_that_is_back_is_silent_until_it_has_spoken(held: WebCluster) -> None:
    """O14.11 A node that comes back is silent until it has sent its figures anew."""

    async def looks() -> None:
        watch = Watch(parse(held.url))
        try:
            await watch.turn()
            await watch.turn()
            assert len(watch.facts) == 3 and not watch.view().old
            (node,) = [one for one in watch.nodes.known.values() if one.id == held[2].id]
            with held[2].standing_still():
                await watch.turn()
                assert node.is_stuck
            watch._wake.clear()
            while node.is_stuck:  # no look: another page may ask
                await watch.nodes.ask(words_of, [node], is_beat=True)
                if node.trial is not None:
                    await node.trial
            assert node in watch.nodes.up() and node.id in watch.view().old
            assert watch._wake.is_set(), "the next look is now"
            await watch.turn()
            assert not watch.view().old
        finally:
            await watch.close()

    held.run(looks())


def test_a_tube_of_a_silent_home_is_not_moved(
    admin: Reader, console: Console, held: WebCluster
) -> None:
    """O14.9 The dialog that moves a tube whose home is silent says that its tasks are not known,
    and what works: to wait, or `tuque tubes home NAME NODE --force`.
    """
    said = "does not answer: how many tasks it has is not known"
    others = [node.short for node in console.site.watch.nodes.known.values()]
    asked = admin.asked("home", tube="letters", node=others[0])
    with held[2].standing_still():
        reply = admin.yes("home", asked, tube="letters", node=others[0])
        assert reply.status_code == 409 and said in reply.text, "the console heard of it just now"
        console.look()  # it is known to hang: the dialog has no form to send
        reply = admin.do("home", tube="letters", node=others[0])
        assert reply.status_code == 403 and said in admin.get("/ask/home", tube="letters").text
        text = admin.get("/ask/home", tube="letters").text
        assert "tuque tubes home letters NODE --force" in text and "0 tasks" not in text


def test_a_tube_of_a_silent_home_says_so(admin: Reader, hung: None) -> None:
    """O14.16 A tube whose leader does not answer has the state `no leader` in the list of queues
    and on its page, dashes instead of figures.
    """
    assert "no leader" in admin.get("/queues").text
    assert "no leader" in admin.get("/queue?name=letters").text
    row = admin.get("/queues?match=letters").text.partition("<tbody>")[2]
    assert '">–</b>' in row and '">–</td>' in row and '">0</td>' not in row.partition("</tr>")[0]
    text = admin.get("/queue?name=letters").text
    assert "does not answer: how many tasks it has is not known" in text
    assert "How many of its jobs are ready is not known" in text and "No job is ready" not in text
    assert ("ready", "queue=letters") not in figures(text), "a figure that nobody knows"


def test_what_works_for_a_tube_whose_home_is_silent() -> None:
    """O14.9 if its leader fails over automatically, only to wait"""
    home = "0123456789abcdef"
    info = TubeInfo("a b", "fifo", False, None, None, 0, 0, 3, 0, 0, 0, 1, 0, 0, 1, home=home)
    assert "Wait until it is back. If it is lost for good" in silent_home(info)
    assert silent_home(info).endswith("tuque tubes home 'a b' NODE --force")
    votes = silent_home(msgspec.structs.replace(info, failover=True))
    assert "A vote gives it a new leader" in votes and "--force" not in votes


def test_jobs_of_a_dead_node_are_counted_where_they_are_now(
    admin: Reader, held: WebCluster
) -> None:
    until(
        lambda: figures(admin.get("/queues").text).get(("ready", "queue=mail")) == JOBS, "be there"
    )
    until(lambda: figures(admin.get("/queues").text)["dead", ""] == JOBS, "be dead")
    held[2].kill()
    try:
        until(lambda: "does not answer" in admin.get("/queues").text, "name it")
        held.until(lambda: here(held, "mail") >= JOBS, "take its jobs over")
        held.until(lambda: here(held, "bad.dead") >= JOBS, "take its letters over")
        for path, metric, labels, queues in (
            ("/queues", "ready", "queue=mail", ["mail"]),
            ("/queues", "ready", "", ["mail"]),
            ("/queues", "dead", "", ["bad.dead"]),
            ("/queues", "queued_jobs", "", ["mail", "bad.dead"]),
            ("/dead", "qlen_dead", "", ["bad.dead"]),
            ("/cluster", "queued_jobs", "", ["mail", "bad.dead"]),
        ):
            until(
                lambda p=path, k=(metric, labels), q=queues: (
                    figures(admin.get(p).text)[k] == sum(here(held, name) for name in q)
                ),
                f"count each job once in {metric} {labels} of {path}",
            )
        text = admin.get("/cluster").text
        assert "its last answer was at" in text and "tuque cluster forget" in text
        assert text.count("balance 0") == 2, "of those that say so now"
    finally:
        held[2].start()
        held.world.until(held.world.is_whole)


def here(cluster: WebCluster, queue: str) -> int:
    """QLEN of the nodes that are left."""
    total = 0
    for node in cluster.nodes[:2]:
        with node.client() as client:
            total += client.qlen(queue)
    return total


def test_when_nobody_answers_no_page_says_what_is_not_known(
    held: WebCluster, tmp_path: Path
) -> None:
    """Nothing is gone, empty or unknown only because nobody could be asked."""
    with console_of(held, tmp_path / "actions") as console:
        admin = console.client()
        until(lambda: figures(admin.get("/dead").text)["dead", ""] == JOBS, "read the letters")
        with held[0].client() as client:
            id = client.addjob("mail", "one more", replicate=1)
        for node in held.nodes:
            node.kill()
        try:
            for path in (
                f"/job?id={quote(id)}",
                "/queue?name=mail",
                "/dead",
                "/workers",
                "/leases",
            ):
                until(lambda path=path: admin.get(path).status_code == 503, f"blind {path}")
                text = admin.get(path).text
                assert "Nobody could be asked" in text and "No node answers." in text
            asked = admin.get("/ask/delete-dead").text
            assert "No node answers: nothing could be counted." in asked
            assert "from then" in admin.get("/").text
            for path in ("/", "/cluster"):
                text = admin.get(path).text
                assert "whether jobs run there is not known" in text
                assert "copies elsewhere" not in text, "there is no elsewhere"
                assert '"st bad" id="live-state">Cut off<' in text
        finally:
            for node in held.nodes:
                node.start()
            held.world.until(held.world.is_whole)


def fail_log_ins(cluster: WebCluster) -> None:
    """So often at each node that the next log-in waits for its turn longer than to connect."""
    wires = [cluster.world.wire(node.i) for node in cluster.nodes]
    for _ in range(8):  # the last one has waited 1.6 s, the next one waits 3.2 s
        for wire in wires:
            wire.send("AUTH", "nobody", "wrong")
        assert all(str(wire.read()).startswith("WRONGPASS") for wire in wires)
    for wire in wires:
        wire.close()


def test_a_console_that_nodes_refuse_says_why(held: WebCluster, tmp_path: Path) -> None:
    """O14.35 While no node lets the console in, the pages show the reason that the nodes give.
    The console waits 15 s for a log-in, since one waits for its turn after failed ones (N6.1)
    """
    fail_log_ins(held)
    url = held.url.replace("tuque://", "tuque://nobody:wrong@")
    with console_of(held, tmp_path / "actions", url) as console:
        admin = console.client()
        until(lambda: "The last error: WRONGPASS" in admin.get("/").text, "say it")
        text = admin.get("/").text
        assert "No node lets the console in" in text and "The nodes refuse the console" in text
        assert "Start one" not in text and '"st bad" id="live-state">Cut off<' in text


def test_the_first_page_waits_for_the_first_look(held: WebCluster) -> None:
    """A console that has just begun does not say that no node answers."""
    console = Console(held)
    with held[0].client() as client:
        client.addjob("heard-at-once", "x")

    async def first() -> str:
        page = asyncio.create_task(console.client().http.aio.get("/queues"))
        await asyncio.sleep(1.0)
        assert not page.done()
        await console.site.watch.turn()
        return (await page).text

    try:
        assert "heard-at-once" in console.run(first())
    finally:
        console.stop()
