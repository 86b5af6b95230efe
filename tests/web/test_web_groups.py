"""The pages of groups and of one group, the cancel, and the pages of their jobs (SPEC O14)."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

import pytest
from web_console import Console, Reader, console_of, figures, until
from web_nodes import WebCluster

from tuque import Client
from tuque.client.commands.work import Run
from tuque.clusterview.queues import PAGE
from tuque.web.pages.job import following, next_id
from tuque.web.show.text import tail_id

MANY = 2_300  # children: more than two commands look at


def children(client: Client, tube: str, group: str, count: int) -> list[str]:
    """Jobs that are the children of the group."""
    with client.pipeline() as pipe:
        for number in range(count):
            pipe.addjob("parts", f"{number}", replicate=1, attempts=1, keep=600, retry=600)
        ids = [str(id) for id in pipe.execute()]
    for at in range(0, count, 500):
        client.group_add(tube, group, dict(enumerate(ids[at : at + 500], at)))
    return ids


def end(client: Client, *ids: str, reason: str = "") -> None:
    """The jobs are done, or have failed for good."""
    for id, run in zip(ids, client.start(*ids, worker="w"), strict=True):
        assert isinstance(run, Run)
        if reason:
            client.fail(id, run.run, reason=reason)
        else:
            client.done(id, run.run, result="{}")


class Made:
    """The groups of these tests: in `reports` a large one and one that is called, in `bills`."""

    large: str
    called: str
    failed: str
    ids: list[str]


@pytest.fixture(scope="module")
def made(console: Console, cluster: WebCluster) -> Made:
    made = Made()
    with cluster[0].client() as client:
        client.tube("reports").create("tasks", alone=True)
        made.large = client.group_create("reports", MANY, body="{}", on_fail="continue")
        made.ids = children(client, "reports", made.large, MANY)
        end(client, *made.ids[:3])
        end(client, made.ids[MANY - 2], reason="no vat id")
        made.called = client.group_create("reports", 1, body='{"task": "sum"}')
        end(client, *children(client, "reports", made.called, 1))
        cluster.until(
            lambda: client.group_show("reports", made.called).state == "called", "be called"
        )
        cluster.until(lambda: client.group_show("reports", made.large).done == 3)
        cluster.until(
            lambda: client.group_show("reports", made.large).failed == 1, "note the failure"
        )
    with cluster[1].client() as client:
        client.tube("bills").create("tasks", alone=True)
        made.failed = client.group_create("bills", 1)
        end(client, *children(client, "bills", made.failed, 1), reason="no stamp")
        cluster.until(lambda: client.group_show("bills", made.failed).state == "failed", "fail")
    return made


@pytest.fixture
def admin(console: Console, made: Made) -> Reader:
    reader = console.client()
    shown = (made.large, made.failed)
    until(lambda: all(one in reader.get("/groups").text for one in shown), "show the groups")
    return reader


def rows(text: str) -> list[str]:
    """The keys of the rows of a page, in their order."""
    return [part.partition('"')[0] for part in text.split('<tr data-key="')[1:]]


def test_groups_are_listed_by_tube_and_state(admin: Reader, made: Made) -> None:
    """O14.28 Open ones come first, the oldest of them first. Those that are their callback are
    read on request.
    """
    text = admin.get("/groups").text
    assert rows(text) == [made.large, made.failed]
    assert figures(text)["children", f"group={made.large}"] == MANY
    assert figures(text)["open", f"group={made.large}"] == MANY - 4
    assert "3 done, " in text and "1 failed" in text and "on failure: continue" in text
    names = ("tubes_groups", "tubes_groups_made", "tubes_groups_done", "tubes_groups_failed")

    def told() -> list[int]:
        found = figures(admin.get("/groups").text)
        return [found[name, ""] for name in names]

    until(lambda: told() == [2, 3, 1, 1], "say what INFO says")
    assert rows(admin.get("/groups", queue="bills").text) == [made.failed]
    assert rows(admin.get("/groups", kind="failed").text) == [made.failed]
    assert rows(admin.get("/groups", kind="called").text) == [made.called]
    assert rows(admin.get("/groups", match="report").text) == [made.large]
    assert "No group fits" in admin.get("/groups", kind="cancelled").text


def test_a_group_has_pages_of_children(admin: Reader, made: Made) -> None:
    """O14.29 The page of a group has its callback, and below it its children, 50 a page"""
    words = {"tube": "reports", "id": made.large}
    text = admin.get("/group", **words).text
    assert rows(text) == [str(index) for index in range(PAGE)] and PAGE == 50
    for id in made.ids[:PAGE]:
        assert html.escape(f"/job?id={id.replace('/', '%2F').replace('+', '%2B')}") in text
    assert text.index("Callback</h2>") < text.index("Children</h2>") and "Not yet" in text
    assert (figures(text)["done", ""], figures(text)["failed", ""]) == (3, 1)
    assert rows(admin.get("/group", **words, at="50").text)[0] == "50"
    last = admin.get("/group", **words, at=str(MANY - 10)).text
    assert rows(last)[-1] == str(MANY - 1) and ">next<" not in last and ">before<" in last


def test_children_of_one_state_are_found(admin: Reader, made: Made) -> None:
    """O14.29 of one state if asked (T51.6): the index, how it ended, when and why"""
    words = {"tube": "reports", "id": made.large}
    failed = admin.get("/group", **words, state="failed").text
    assert rows(failed) == [str(MANY - 2)], "beyond what one command looks at"
    assert "no vat id" in failed and ">dead<" in failed and ">next<" not in failed
    assert rows(admin.get("/group", **words, state="done").text) == ["0", "1", "2"]
    still = admin.get("/group", **words, state="open").text
    assert rows(still)[:2] == ["3", "4"] and "at=53" in still


def test_a_group_that_is_called_links_its_job(admin: Reader, made: Made) -> None:
    text = admin.get("/group", tube="reports", id=made.called).text
    assert "is its callback now" in text and "It was added" in text
    assert "ask/cancel-group" not in text
    job = admin.get("/job", id=made.called).text
    assert "waits in its queue" in job and "is a group" not in job


def test_a_group_that_is_not_there(admin: Reader, made: Made) -> None:
    for words in ({"tube": "reports", "id": made.ids[0]}, {"tube": "none", "id": made.large}):
        found = admin.get("/group", **words)
        assert found.status_code == 404 and "has no such group" in found.text


def test_jobs_link_their_groups(admin: Reader, cluster: WebCluster, made: Made) -> None:
    """O14.31 The page of a job that is a group (T50.9) links the page of the group, and its only
    action is cancel; that of the record of a child links the child, and has no actions.
    """
    text = admin.get("/job", id=made.large).text
    assert f"is a group of {MANY:,} children" in text and "/group?tube=reports" in text
    assert "ask/cancel-group" in text and "ask/run?" not in text and "ask/delete?" not in text
    with cluster[0].client() as client:
        record = next(one for one in client.jscan(queue="reports", full=True) if one.child)
    text = admin.get("/job", id=record.id).text
    assert "is the record of a child" in text and tail_id(record.child)[9:] not in ("", text)
    assert "/ask/" not in text[text.index('id="head"') : text.index('id="life"')]
    for id in (made.large, record.id):
        for name in ("run", "cancel", "delete", "edit", "move"):
            assert "This is not possible now" in admin.get(f"/ask/{name}", id=id).text


def test_a_queue_counts_groups_apart(admin: Reader, made: Made) -> None:
    """O14.25 counts groups with the records of their children (T50.1) apart: they are neither among
    its delayed jobs nor in their rows
    """

    def text() -> str:
        return str(admin.get("/queue", name="reports", tab="active").text)

    until(lambda: f"parts of groups: {MANY + 2:,}" in text(), "count them")
    until(lambda: figures(text())["delayed", "queue=reports"] == 0, "leave them out")
    assert "none waits for its time" in text() and "1 open group<" in text()
    until(lambda: "the parts of 2 groups" in admin.get("/").text, "say it on the overview")


def test_a_cancel_asks_and_is_logged(
    admin: Reader, console: Console, cluster: WebCluster, made: Made
) -> None:
    """O14.30 An admin may cancel a group that is open. The dialog has how many children are
    open; the cancel is sent to the leader of the tube, and logged with the group and its tube.
    """
    with cluster[1].client() as client:
        id = client.group_create("bills", 3, body="{}")
        (one, two) = children(client, "bills", id, 2)
        end(client, one)
        cluster.until(lambda: client.group_show("bills", id).done == 1, "note the end")
        words = {"tube": "bills", "group": id}
        reader = console.client("reader")
        assert reader.get("/ask/cancel-group", **words).status_code == 403
        assert reader.http.post("/do/cancel-group", data=words).status_code == 403
        assert client.group_show("bills", id).state == "open"
        asked = admin.asked("cancel-group", **words).text
        assert "Cancel the group and 1 open child?" in asked and "does not run" in asked
        forged = admin.http.post("/do/cancel-group", data={**words, "csrf": "forged"})
        assert forged.status_code == 403 and client.group_show("bills", id).state == "open"
        assert admin.do("cancel-group", **words).status_code == 303
        assert client.group_show("bills", id).state == "cancelled"
        cluster.until(lambda: client.result(two).state == "cancelled", "cancel the child")
        again = admin.get("/ask/cancel-group", **words).text
        assert "was cancelled: there is nothing to cancel" in again
    action = console.site.log.latest[0]
    assert (action.what, action.about, action.jobs) == ("Cancel a group", f"{id} of bills", 1)
    text = admin.get("/group", tube="bills", id=id).text
    assert "It does not run" in text and "its group has ended" in text


@pytest.fixture
def lesser(cluster: WebCluster, made: Made) -> Iterator[Reader]:
    """A console whose user at the nodes has no right to `bills`."""
    for node in cluster.nodes:
        with node.client() as client:
            client.execute("ACL", "SETUSER", "looker", "on", ">secret", "+@inspect", "~reports")
    url = cluster.url.replace("tuque://", "tuque://looker:secret@")
    with console_of(cluster, url=url) as console:
        yield console.client()


def test_what_the_user_has_no_right_to_is_not_shown(lesser: Reader, made: Made) -> None:
    """O14.34 no page shows anything"""
    until(lambda: rows(lesser.get("/groups").text) == [made.large], "show its own")
    text = lesser.get("/groups").text
    assert made.failed not in text and "bills" not in text
    found = lesser.get("/group", tube="bills", id=made.failed)
    assert found.status_code == 404 and "no stamp" not in found.text
    asked = lesser.get("/ask/cancel-group", tube="bills", group=made.failed).text
    assert "No node that answers knows its tube" in asked


def test_steps_of_a_chain_are_named(admin: Reader, cluster: WebCluster) -> None:
    """O14.31 The page of a step of a chain (U11) names the steps that follow, a group by its tasks,
    and links the one before, and the next one when its id is known.
    """
    steps: Any = {"tuque-chain": json.dumps(["parse", {"g": ["count", "weigh"]}, "store"])}
    with cluster[0].client() as client:
        then = client.addjob("parts", "x", replicate=1)
        steps["tuque-after"] = then
        id = client.addjob("parts", "x", replicate=1, keep=600, attempts=1, headers=steps)
        text = admin.get("/job", id=id).text
        assert "the step before it is" in text and f">{then[:15]}" in text
        assert text.index("Then parse") < text.index("Then a group: count, weigh")
        assert text.index("Then a group: count, weigh") < text.index("Then store")
        (run,) = client.start(id, worker="w")
        assert isinstance(run, Run)
        client.done(id, run.run, result=json.dumps({"tuque-next": then}))
        text = admin.get("/job", id=id).text
        assert "It was a step of a chain" in text
        client.deljob(then)


def test_odd_chains_are_none() -> None:
    assert following({}) == following({"tuque-chain": "{"}) == following({"tuque-chain": "7"}) == []
    assert following({"tuque-chain": '["a", 1, {"g": 2}, {"g": ["b", 3]}, {}]'}) == [
        "a",
        "a group: b",
    ]
    assert next_id(b"\xc1\x81\xaatuque-next\xa2ab") == "ab"
    assert next_id(None) == next_id(b"[") == next_id(b"7") == next_id(b'{"tuque-next": 1}') == ""
    assert next_id(b'{"tuque-next": "' + b"x" * 2_000 + b'"}') == ""


def test_a_dead_child_that_is_waited_for(admin: Reader, cluster: WebCluster) -> None:
    """O14.29 and how many are dead and waited for (T50.5)."""
    with cluster[0].client() as client:
        client.tube("waits").create("tasks", alone=True)
        id = client.group_create("waits", 3, body="{}", on_fail="wait")
        ids = children(client, "waits", id, 3)
        end(client, ids[1], reason="no vat id")
        cluster.until(lambda: client.group_show("waits", id).dead == 1, "see the dead one")
    text = admin.get("/group", tube="waits", id=id).text
    assert "1 is dead: a retry is awaited" in text and "Dead, waited for 1" in text
    assert "no vat id" in text and ">dead, waits for a retry<" in text
    found = admin.get("/group", tube="waits", id=id, state="dead").text
    assert rows(found) == ["1"] and "1 of 1 dead" in found
