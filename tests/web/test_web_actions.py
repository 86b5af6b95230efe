"""Actions of an admin: each asks, says how many jobs, does what it said, and is logged."""

from __future__ import annotations

from typing import Any

import pytest
from web_console import Console, Reader, until
from web_nodes import WebCluster

from tuque.client.commands.work import Run


@pytest.fixture
def admin(console: Console, cluster: WebCluster) -> Reader:
    return console.client()


def new_id(reply: Any) -> str:
    """The id in the address to which an action leads."""
    place = str(reply.headers["location"])
    return place.partition("id=")[2].replace("%2F", "/").replace("%2B", "+")


def test_a_job_is_moved_with_all_that_it_has(
    admin: Reader, console: Console, cluster: WebCluster
) -> None:
    """It waits in its back-off, with copies: so it does in the other queue."""
    headers = {"tuque-task": "thumb.make", "tenant": "shop-7"}
    with cluster[0].client() as client:
        id = client.addjob(
            "here", "body", retry=600, ttl=9_000, replicate=2, attempts=5, headers=headers,
            backoff=(500, 500, 0), keep=60, keep_body=True, time_limit=70, pri=1)  # fmt: skip
        client.getjob("here")
        (run,) = client.start(id, worker="w")
        assert isinstance(run, Run)
        client.fail(id, run.run, reason="OSError: no disk")
        asked = admin.get("/ask/move", id=id).text
        assert "waits for its next attempt" in asked and "gets a new id there" in asked
        reply = admin.do("move", id=id, to="there")
        assert reply.status_code == 303, reply.text
        moved = client.show(new_id(reply))
        assert moved is not None and moved.queue == "there" and moved.body == b"body"
        assert moved.repl == 2 and moved.pri == 1
        assert moved.retry_s == 600 and 8_900 < moved.ttl_s <= 9_000
        assert 400_000 < (moved.next_requeue_within_ms or 0) <= 500_000
        work = moved.work
        assert work is not None and work.headers == headers and work.attempts == 5
        assert (work.backoff, work.keep_s, work.time_limit_s) == ((500.0, 500.0, 0.0), 60.0, 70.0)
        assert work.keep_body
        old = client.result(id)
        assert old.state == "cancelled" and old.reason == f"moved to there as {moved.id}"
    action = console.site.log.latest[0]
    assert (action.what, action.jobs, action.came_of_it) == ("Move", 1, "done")
    assert id in action.about


def test_a_job_that_cannot_be_moved_stays(admin: Reader, cluster: WebCluster) -> None:
    with cluster[0].client() as client:
        id = client.addjob("stays", "x", retry=600, ttl=9_000)
        client.pause("closed", "in", "bcast")
        cluster.until(lambda: client.pause("closed") == "in", "be paused")
        reply = admin.do("move", id=id, to="closed")
        assert reply.status_code == 409 and "paused" in reply.text.lower()
        until(lambda: cluster.length("stays") == 1, "be queued again")
        assert cluster.length("closed") == 0
        job = client.getjob("stays", timeout_ms=5_000)
        assert job
        reply = admin.do("move", id=id, to="there")
        assert reply.status_code == 409 and client.show(id) is not None


def test_a_job_of_at_most_once_and_a_dead_letter_are_moved(
    admin: Reader, cluster: WebCluster
) -> None:
    with cluster[0].client() as client:
        once = client.addjob("here", "once", retry=0, replicate=1, delay=600)
        reply = admin.do("move", id=once, to="there")
        assert reply.status_code == 303, reply.text
        moved = client.show(new_id(reply))
        assert moved is not None and (moved.queue, moved.retry_s) == ("there", 0)
        assert client.show(once) is None
        letter = client.addjob("here", "x", attempts=1, replicate=1)
        (run,) = client.start(letter, worker="w")
        assert isinstance(run, Run)
        client.fail(letter, run.run, reason="no", final=True)
        assert admin.do("move", id=letter, to="elsewhere").status_code == 303
        found = client.show(letter)
        assert found is not None and found.queue == "elsewhere"


def test_ready_jobs_are_deleted_and_no_others(
    admin: Reader, console: Console, cluster: WebCluster
) -> None:
    """Ready ones of all nodes; a job at work and one that is delayed stay."""
    with cluster[0].client() as client:
        kept = [client.addjob("full", "late", delay=3_600)]
        kept.append(client.addjob("full", "at work", retry=600))
        client.getjob("full", timeout_ms=5_000)
    for node in cluster.nodes:
        with node.client() as client, client.pipeline() as pipe:
            for number in range(250):
                pipe.addjob("full", f"{number}", retry=600, replicate=1)
            pipe.execute()
    until(lambda: cluster.length("full") == 750, "be ready")
    asked = admin.get("/ask/empty", queue="full").text
    assert "Delete 750 ready jobs of full?" in asked and "cannot be undone" in asked
    assert admin.do("empty", queue="full").status_code == 303
    console.until(lambda: console.site.log.latest[0].what == "Deleting ready jobs", "be logged")
    action = console.site.log.latest[0]
    assert (action.about, action.jobs, action.came_of_it) == (
        "full", 750, "done: 750 done, 0 refused of 750",
    )  # fmt: skip
    assert cluster.length("full") == 0
    with cluster[0].client() as client:
        assert all(client.show(id) is not None for id in kept)
    assert "No job of full is ready." in admin.get("/ask/empty", queue="full").text


def test_tubes_and_dead_letters_are_not_emptied(admin: Reader, cluster: WebCluster) -> None:
    with cluster[0].client() as client:
        client.execute("TUBE", "CREATE", "parcels", "fifo", "ALONE")
        client.execute("TUBE", "PUT", "parcels", "x")
        assert "It is a tube" in admin.get("/ask/empty", queue="parcels").text
        client.addjob("buried.dead", "x")
        assert "It keeps dead letters" in admin.get("/ask/empty", queue="buried.dead").text


def test_the_log_of_a_move_names_both_homes(
    admin: Reader, console: Console, cluster: WebCluster
) -> None:
    """O14.22 The line of the log about a tube's new leader names the old leader and the new one."""
    with cluster[0].client() as client:
        client.execute("TUBE", "CREATE", "boxes", "fifo", "ALONE")
        before = client.tube("boxes").info().home[:8]
    after = next(id[:8] for id in console.site.watch.nodes.known if id[:8] != before)
    reply = admin.do("home", tube="boxes", node=after)
    assert reply.status_code == 303, reply.text
    action = console.site.log.latest[0]
    assert (action.what, action.about) == ("Move the leader", f"boxes, from {before} to {after}")


def test_edit_and_add_again_keeps_the_headers(admin: Reader, cluster: WebCluster) -> None:
    with cluster[0].client() as client:
        headers = {"tuque-task": "t", "tenant": "shop-7"}
        id = client.addjob("again", "x", retry=600, attempts=4, headers=headers)
        reply = admin.do("edit", id=id, how="add a new job", queue="again-2", body="y", ttl="600")
        assert reply.status_code == 303, reply.text
        found = client.show(new_id(reply))
        assert found is not None and found.body == b"y" and found.work is not None
        assert found.work.headers == headers and found.work.attempts == 4


def test_a_cancelled_job_is_not_unknown(admin: Reader, cluster: WebCluster) -> None:
    """O14.12 The page of a job that ended has its outcome if any node keeps it, with its attempts,
    and its body if that is kept. If none does and the job was cancelled, moved or deleted in this
    console, it has that, by whom and when.
    """
    with cluster[0].client() as client:
        alone = client.addjob("over", "x", retry=60, replicate=1)
        kept = client.addjob("over", "x", retry=60, replicate=1, keep=600)
        assert admin.do("cancel", id=alone).status_code == 303
        client.cancel(kept, reason="ordered twice")
        (done,) = client.getjob("over", timeout_ms=1) or [None]
        assert done is None
    page = admin.get("/job", id=alone)
    assert page.status_code == 200 and "No node knows this job" not in page.text
    assert "This job was cancelled" in page.text and "admin did it in this console" in page.text
    page = admin.get("/job", id=kept)
    assert page.status_code == 200 and "Was cancelled" in page.text
    assert "ordered twice" in page.text and "no body of it any more" in page.text


def test_a_job_that_is_done_has_its_attempts_and_its_body(
    admin: Reader, cluster: WebCluster
) -> None:
    """O14.12 with its attempts, and its body if that is kept."""
    with cluster[0].client() as client:
        id = client.addjob(
            "past", "to ann", retry=600, replicate=1, attempts=9, keep=600, keep_body=True,
            headers={"tuque-task": "mail.send"})  # fmt: skip
        for number in (1, 2, 3, 4):
            client.getjob("past")
            (run,) = client.start(id, worker=f"w-{number}")
            assert isinstance(run, Run)
            if number < 4:
                client.fail(id, run.run, reason=f"OSError: no {number}", delay=0)
            else:
                client.done(id, run.run, result="42")
    text = admin.get("/job", id=id).text
    for number in (1, 2, 3):
        assert f"Attempt {number} of 9 failed" in text
        assert f"w-{number} · OSError: no {number}" in text
    assert "Attempt 4 of 9 began" in text and "Is done" in text
    assert "to ann" in text and "mail.send" in text and ">past</a>" in text


def test_an_outcome_that_another_node_keeps(cluster: WebCluster, console: Console) -> None:
    """O14.12 if any node keeps it"""
    admin = console.client()
    for node in cluster.nodes:
        with node.client() as client:
            id = client.addjob("over", "x", retry=60, replicate=1, keep=600)
            client.cancel(id, reason="no need")
        until(lambda id=id: "no need" in admin.get("/job", id=id).text, "show what became of it")


def test_a_job_runs_now(admin: Reader, cluster: WebCluster) -> None:
    with cluster[0].client() as client:
        id = client.addjob("soon", "x", delay=3_600)
        assert "waits for its first time" in admin.get("/ask/run", id=id).text
        assert admin.do("run", id=id).status_code == 303
        assert client.getjob("soon", timeout_ms=5_000)


def test_a_schedule_is_no_plain_job(admin: Reader, cluster: WebCluster) -> None:
    """O14.20 The page of a job that is a schedule (T45.8) has its name, its times, and where it
    is changed (O14.24). Its only action is Delete
    """
    with cluster[0].client() as client:
        client.tube("reports").create("tasks", alone=True)
        client.schedule_add("reports", "nightly", "x", every_s=7200)
        id = client.schedule_show("reports", "nightly").id
    until(lambda: "is the schedule nightly" in admin.get("/job", id=id).text, "say so")
    text = admin.get("/job", id=id).text
    assert ": every 2 h" in text and ", 0 jobs made so far" in text and "tuque schedule" in text
    assert "Delete…" in text and "Move…" not in text and "Run now…" not in text
    for name in ("run", "cancel", "move", "edit"):
        assert "This is the schedule nightly" in admin.get(f"/ask/{name}", id=id).text
    asked = admin.asked("delete", id=id).text
    assert "Drop the schedule nightly?" in asked and "It makes no more of them" in asked
    with cluster[0].client() as client:
        assert client.schedule_show("reports", "nightly").name == "nightly", "it is still there"
    admin.do("delete", id=id)
    with cluster[0].client() as client:
        assert not list(client.schedules("reports"))
