"""What the console says when an action comes to nothing: why, and about what."""

from __future__ import annotations

import re

import pytest
from web_console import Console, Reader, until
from web_nodes import WebCluster

from own_log import lines_of
from tuque.web import app
from tuque.web.pages import dead

ID = "D-00000000-" + "A" * 24 + "-05a1"


@pytest.fixture
def admin(console: Console, cluster: WebCluster) -> Reader:
    return console.client()


def token(reader: Reader) -> str:
    """The token of the session's forms."""
    found = re.search(r'name="csrf" value="([^"]+)"', reader.get("/").text)
    assert found is not None
    return found[1]


def test_an_action_that_is_not_there(admin: Reader, console: Console) -> None:
    for reader in (admin, console.client("reader")):
        assert reader.get("/ask/nope").status_code == 404
        assert reader.http.post("/do/nope").status_code == 404


def test_who_may_not_hears_why(admin: Reader, console: Console) -> None:
    """The log says what it was about."""
    reply = admin.http.post("/do/pause", data={"queue": "mail", "to": "in"})
    assert (reply.status_code, reply.text) == (403, "This is no form of this console.")
    latest = console.site.log.latest[0]
    assert (latest.what, latest.about, latest.came_of_it) == ("Pause", "mail", "not allowed")
    reader = console.client("reader")
    reply = reader.http.post("/do/pause", data={"csrf": token(reader), "queue": "mail"})
    assert (reply.status_code, reply.text) == (403, "This needs the role admin.")


def test_a_refused_action_is_logged_with_its_subject(admin: Reader, console: Console) -> None:
    reply = admin.http.post("/do/delete", data={"csrf": token(admin), "id": ID})
    assert reply.status_code == 409
    latest = console.site.log.latest[0]
    assert (latest.what, latest.about) == ("Delete", ID)
    many = [f"D-{number}" for number in range(9)]
    admin.http.post("/do/delete-dead", data={"csrf": token(admin), "id": many})
    latest = console.site.log.latest[0]
    assert latest.what == "Delete dead" and latest.about.endswith("D-3, D-4 and 4 more")


def test_dialogs_about_nothing_and_about_one(
    admin: Reader, cluster: WebCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "TYPED_FROM", 0)
    assert "No such dead letter is there any more." in admin.get("/ask/retry-dead").text
    with cluster[0].client() as client:
        client.addjob("once", "x", replicate=1)
        client.addjob("bad", "x", replicate=1, retry=60, attempts=1)
        (job,) = client.getjob("bad", start=True, worker="w")
        client.fail(job, job.run or "", reason="KeyError")
    until(lambda: "1 ready job never runs;" in admin.get("/ask/empty", queue="once").text, "be one")
    until(lambda: "Delete 1 job?" in admin.get("/ask/delete-dead").text, "be dead")
    reply = admin.do("delete-dead", typed="bad.ded")
    assert reply.status_code == 409 and "Changed." not in reply.text
    assert "To continue, type bad.dead exactly." in reply.text
    reply = admin.do("delete-dead", count="7", typed="bad.dead")
    assert reply.status_code == 409 and "Meanwhile it is 1 job, not 7." in reply.text


def test_an_action_without_a_number_of_jobs_is_logged_without(
    admin: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tuque.web.deeds")
    admin.http.post("/do/pause", data={"queue": "mail", "to": "in"})
    assert lines_of(caplog, "tuque.web.deeds") == ["admin: Pause mail: not allowed"]


def test_too_many_open_pages_are_told_from_none(
    admin: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert admin.get("/live?path=/nope").status_code == 404
    monkeypatch.setattr(app, "STREAMS_OF_ONE", 0)
    reply = admin.get("/live?path=/")
    assert reply.status_code == 503 and "of this session: no more" in reply.text
