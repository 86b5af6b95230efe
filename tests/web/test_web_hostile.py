"""The console before people who mean ill: floods, long names, words that are no text."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState
from web_console import PASSWORDS, Console, Served, console_of, known, until
from web_nodes import WebCluster

import until as real
from tuque.client.commands.work import Run
from tuque.client.url import parse
from tuque.web import app as web
from tuque.web.actions import ActionLog
from tuque.web.app import STREAMS_OF_ONE
from tuque.web.login import TRIES, Sessions, house_of
from tuque.web.site import Site

SCRIPT = "<script>alert(1)</script>'\"&</textarea>{{7*7}}"


@pytest.fixture
def fresh(cluster: WebCluster, tmp_path: Path) -> Iterator[Console]:
    """A console that nobody has tried yet."""
    with console_of(cluster, tmp_path / "actions.jsonl") as one:
        yield one


def test_tries_at_the_same_time_count_together(fresh: Console) -> None:
    """5 wrong passwords of an address in a minute, also if they come side by side."""
    stranger = fresh.stranger().aio

    async def guess() -> int:
        words = {"name": "admin", "password": "guess"}
        return (await stranger.post("/login", data=words)).status_code

    async def side_by_side() -> list[int]:
        return await asyncio.gather(*(guess() for _ in range(24)))

    assert Counter(fresh.run(side_by_side())) == {401: TRIES, 429: 24 - TRIES}


def test_the_right_password_is_no_try(fresh: Console) -> None:
    for _ in range(2 * TRIES):
        reply = fresh.stranger().post(
            "/login", data={"name": "admin", "password": PASSWORDS["admin"]}
        )
        assert reply.status_code == 303


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\nname=",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET / HT",
    ],
    ids=["nothing", "half the headers", "half a form", "half of a second one"],
)
def test_a_request_that_does_not_come_whole(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """O14.37 A request must come whole in 10 s, else the console closes the connection."""
    assert web.REQUEST_S == 10.0
    monkeypatch.setattr(web, "REQUEST_S", 0.05)
    site = Site(parse("tuque://127.0.0.1:1"), known(), b"s" * 32, ActionLog(None))
    config = uvicorn.Config(web.made(site), log_level="warning")
    config.load()

    async def heard() -> bytes:
        loop = asyncio.get_running_loop()
        state = ServerState()
        server = await loop.create_server(lambda: web.Punctual(config, state, {}), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(said)
            got = b""
            with contextlib.suppress(ConnectionResetError):
                got = await asyncio.wait_for(reader.read(), 4)  # below the 5 s of an idle one
            writer.close()
            return got

    assert asyncio.run(heard()).startswith(
        b"HTTP/1.1 200" if said.startswith(b"GET /healthz") else b""
    )


def test_addresses_of_one_house_count_together() -> None:
    """Who has one IPv6 address has 2^64 of them."""
    assert house_of("2001:db8:1:2::7") == house_of("2001:db8:1:2:ffff::1")
    assert house_of("2001:db8:1:2::7") != house_of("2001:db8:1:3::7")
    assert house_of("10.0.0.1") != house_of("10.0.0.2")
    assert house_of("::ffff:10.0.0.1") == house_of("10.0.0.1")
    assert house_of("") == "" and house_of("a.sock") == "a.sock"
    sessions = Sessions(b"k" * 32, {})
    for n in range(TRIES):
        sessions.try_one(f"2001:db8::{n}", 1.0)
    assert sessions.must_wait_s("2001:db8::ffff", 2.0) > 0


def test_a_form_of_strangers_is_short(fresh: Console) -> None:
    """Nobody who has not signed in makes the console parse a million fields."""
    reply = fresh.stranger().post("/login", content="a&" * 500_000)
    assert reply.status_code == 413
    admin = fresh.client()
    reply = admin.http.post("/do/add", content="a=1&" * 50_000)
    assert reply.status_code == 413
    assert admin.get("/queues").status_code == 200


NOBODY = "tuque://127.0.0.1:1"
QUERIES = "queue name id match page sort at task reason cause".split()
PAGES = "queues queue job dead tubes workers cluster leases log".split()


def test_words_that_are_no_text(fresh: Console) -> None:
    http = fresh.client().http
    for word in ("%ff", "%ed%a0%80", "%00", "%%ff", "%F0%9F%92%A9"):
        reply = fresh.stranger().post("/login", content=f"name={word}&password={word}")
        assert reply.status_code == 401
        assert http.post("/do/add", content=f"csrf={word}&queue=q").status_code == 403
        assert http.post("/logout", content=f"csrf={word}").status_code == 403
        for path in PAGES:
            reply = http.get(f"/{path}?" + "&".join(f"{name}={word}" for name in QUERIES))
            assert reply.status_code in (200, 404, 502), (path, word)


def test_words_that_pages_do_not_have(fresh: Console) -> None:
    """A word of an address is no argument of a function."""
    http = fresh.client().http
    for path in PAGES:
        assert http.get(f"/{path}?page=1&self=1&value=1&kind=1").status_code in (200, 404), path


def test_numbers_without_end(fresh: Console) -> None:
    http = fresh.client().http
    assert http.get("/queues", params={"page": "9" * 5_000}).status_code == 200


def test_streams_of_one_session_have_a_bound() -> None:
    """One reader does not take the live pages from the others."""
    with Served(NOBODY) as served:
        reader, admin = served.client("reader"), served.client("admin")
        held: list[httpx.Response] = []
        try:
            for _ in range(STREAMS_OF_ONE):
                held.append(
                    reader.http.send(reader.http.build_request("GET", "/live"), stream=True)
                )
            assert {reply.status_code for reply in held} == {200}
            assert reader.get("/live").status_code == 503
            with admin.http.stream("GET", "/live") as live:
                assert live.status_code == 200
                assert next(live.iter_text())
        finally:
            for reply in held:
                reply.close()
        real.until(lambda: not served.site.watch.lookers, "end the streams")


def test_hostile_names_are_only_text(cluster: WebCluster, fresh: Console) -> None:
    """Nobody runs a script by the name of a queue, and a large body is shown in part."""
    with cluster[0].client() as client:
        for name in (SCRIPT, "\x1b[31m", "../../etc", "%2e%2e"):
            client.addjob(name, SCRIPT)
        big = client.addjob("big", b"<b>" * 3_500_000)
    admin = fresh.client()
    until(lambda: "&lt;script&gt;" in admin.get("/queues").text, "the names are known")
    for path in ("/", "/queues", "/cluster", "/workers", "/dead", "/tubes"):
        text = admin.get(path).text
        assert "<script>alert" not in text and "49" not in text.partition("alert(1)")[2][:60], path
    page = admin.get("/queue", name=SCRIPT).text
    assert "<script>alert" not in page and "&lt;script&gt;" in page
    page = admin.get("/job", id=big).text
    assert len(page) < 500_000 and "<b><b>" not in page


def test_long_names_make_no_long_pages(cluster: WebCluster, fresh: Console) -> None:
    """What a page shows of a name has a bound; one of 2,000 characters still has its page."""
    long = "long" + "x" * 1_900
    with cluster[0].client() as client:
        for number in range(12):
            client.addjob(f"{number:02}" + "n" * 50_000, "x")
            id = client.addjob(f"{number:02}" + "d" * 20_000, "x", attempts=1)
            (run,) = client.start(*client.getjob(f"{number:02}" + "d" * 20_000), worker="w")
            assert isinstance(run, Run)
            client.fail(id, run.run, reason=f"KeyError: '{'e' * 1_000}'", final=True)
        client.addjob(long, "x")
        client.worker_here("many", queues=[long, "x" * 3_000])
    admin = fresh.client()
    until(lambda: "11nnn" in admin.get("/queues", match="nnn", sort="name").text, "know them")
    until(lambda: "dddd" in admin.get("/dead").text, "read the dead letters")
    for path in ("/", "/queues", "/queues?kind=dead", "/dead", "/workers", "/tubes", "/cluster"):
        assert len(admin.get(path).text) < 300_000, path
    assert admin.get("/queue", name=long).status_code == 200
    assert f'href="/queue?name={long}"' in admin.get("/queues", match="long").text
