"""A web application and its jobs: the lifespan of an App, and the routes of tuque.web_jobs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from lab import RealServer
from ports import free_port
from tuque import web_jobs
from tuque.errors import Closed, Error, NoNode, NoReplica, Unavailable, Withdrawn
from tuque.testing import TestApp
from tuque.worker import App, chain, current_job

jobs = App("tuque://127.0.0.1:7711")


@jobs.task
def adds(a: int, b: int) -> int:
    current_job().progress({"steps": a})
    return a + b


@jobs.task
def doubles(value: int) -> int:
    return 2 * value


@jobs.task
def leaves_nothing() -> None: ...


def owner(request: Any, id: str) -> bool:
    return True


def web_of(app: App = jobs, allow: web_jobs.Allow = owner, **more: int) -> Starlette:
    """An application that has the routes below /jobs."""
    found = web_jobs.routes(app, allow=allow, **more)
    return Starlette(routes=[Mount("/jobs", routes=found)], lifespan=app.lifespan_web())


class Listener:
    """A browser at a stream of events, without a socket."""

    def __init__(self, web: Starlette, id: str, **headers: str) -> None:
        self.status = 0
        self.lines: list[str] = []
        self._more = asyncio.Event()
        pairs = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
        scope = {
            "type": "http", "method": "GET", "path": f"/jobs/{id}/events", "headers": pairs,
            "query_string": b"", "asgi": {"version": "3.0", "spec_version": "2.3"},
        }  # fmt: skip
        self.gone = asyncio.Event()
        self.task = asyncio.ensure_future(web(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, part: Any) -> None:
        self.status = part.get("status", self.status)
        self.lines += [line for line in part.get("body", b"").decode().split("\n") if line]
        self._more.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_so():
                self._more.clear()
                await self._more.wait()

    @property
    def seen(self) -> list[tuple[str, Any, Any]]:
        """State, progress and result of each event."""
        rows = [json.loads(line[6:]) for line in self.lines if line.startswith("data: ")]
        return [(row["state"], row["progress"], row["result"]) for row in rows]


@pytest.fixture
def browser(tuque_app: TestApp) -> Iterator[TestClient]:
    with TestClient(web_of()) as client:
        yield client


def test_a_job_is_shown(browser: TestClient, tuque_app: TestApp) -> None:
    handle = adds.enqueue(1, 2)
    wanted = {"id": handle, "state": "waiting", "progress": None, "result": None}
    first = browser.get(f"/jobs/{handle}")
    assert (first.status_code, first.json()) == (200, wanted)
    assert first.headers["cache-control"] == "no-store"
    tuque_app.run_until_idle()
    after = {"state": "done", "progress": {"steps": 1}, "result": 3}
    assert browser.get(f"/jobs/{handle}").json() == wanted | after


def test_a_chain_is_shown_by_the_id_of_its_first_step(
    browser: TestClient, tuque_app: TestApp
) -> None:
    first = chain(adds.call(1, 2), doubles, doubles).enqueue()
    tuque_app.run_one()
    assert browser.get(f"/jobs/{first}").json()["state"] == "waiting"
    tuque_app.run_until_idle()
    assert browser.get(f"/jobs/{first}").json()["result"] == 12


def test_a_job_is_cancelled(browser: TestClient, tuque_app: TestApp) -> None:
    handle = adds.enqueue(1, 2)
    reply = browser.delete(f"/jobs/{handle}")
    assert (reply.status_code, reply.json()["became"]) == (200, "ended")
    assert browser.get(f"/jobs/{handle}").json()["state"] == "cancelled"
    assert tuque_app.run_until_idle() == 0


def test_what_is_not_known_is_404(browser: TestClient, tuque_app: TestApp) -> None:
    handle = leaves_nothing.enqueue()
    tuque_app.run_until_idle()
    for id in (handle, "no-id"):
        for way in ("", "/events"):
            assert browser.get(f"/jobs/{id}{way}").status_code == 404
        assert browser.delete(f"/jobs/{id}").status_code == 404
    done = adds.enqueue(1, 2)
    tuque_app.run_until_idle()
    assert browser.delete(f"/jobs/{done}").json()["became"] == "over"


async def allows_by_coroutine(request: Any, id: str) -> bool:
    return bool(request.headers["x-user"] == "ann" and id.startswith("D-"))


def allows(request: Any, id: str) -> bool:
    return bool(request.headers["x-user"] == "ann" and id.startswith("D-"))


@pytest.mark.parametrize("allow", [allows, allows_by_coroutine])
def test_who_is_not_allowed_neither_sees_nor_cancels(
    allow: web_jobs.Allow, tuque_app: TestApp
) -> None:
    handle = adds.enqueue(1, 2)
    with TestClient(web_of(allow=allow)) as browser:
        for method, way in (("GET", ""), ("GET", "/events"), ("DELETE", "")):
            path = f"/jobs/{handle}{way}"
            assert browser.request(method, path, headers={"x-user": "bob"}).status_code == 403
        assert handle.status().state == "waiting"
        path = f"/jobs/{handle}"
        assert browser.get(path, headers={"x-user": "ann"}).status_code == 200


def test_allow_is_required() -> None:
    with pytest.raises(TypeError, match="allow"):
        web_jobs.routes(jobs)  # type: ignore[call-arg]  # the mistake
    with pytest.raises(TypeError, match="allow is a function"):
        web_jobs.routes(jobs, allow=True)  # type: ignore[arg-type]  # the mistake


def in_loop(run: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with jobs.connected():
            await run()

    asyncio.run(whole())


def test_a_stream_has_each_state_and_ends_with_the_job(tuque_app: TestApp) -> None:
    async def run() -> None:
        web, handle = web_of(), adds.enqueue(1, 2)
        ears = [Listener(web, handle) for _ in range(3)]
        for one in ears:
            await one.until(lambda one=one: len(one.seen) == 1)
        tuque_app.run_until_idle()
        for one in ears:
            await one.task
            assert one.seen == [("waiting", None, None), ("done", {"steps": 1}, 3)]
            assert one.lines[-2] == "id: over"
        again = Listener(web, handle, last_event_id="over")
        await again.task
        assert (again.status, again.lines) == (204, [])

    in_loop(run)


def test_a_job_of_which_nothing_is_kept_ends_its_stream(tuque_app: TestApp) -> None:
    async def run() -> None:
        one = Listener(web_of(), leaves_nothing.enqueue())
        await one.until(lambda: len(one.seen) == 1)
        tuque_app.run_until_idle()
        await one.task
        assert one.seen[-1] == ("gone", None, None)

    in_loop(run)


def test_a_stream_without_news_says_that_it_is_there(
    tuque_app: TestApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_jobs, "BEAT_S", 0.05)

    async def run() -> None:
        one = Listener(web_of(), adds.enqueue(1, 2))
        await one.until(lambda: one.lines.count(": still here") == 2)
        assert len(one.seen) == 1
        one.gone.set()
        await one.task

    in_loop(run)


def test_streams_have_a_limit(tuque_app: TestApp) -> None:
    async def run() -> None:
        web, handle = web_of(streams_max=2), adds.enqueue(1, 2)
        ears = [Listener(web, handle) for _ in range(2)]
        for one in ears:
            await one.until(lambda one=one: len(one.seen) == 1)
        third = Listener(web, handle)
        await third.task
        assert third.status == 503
        ears[0].gone.set()
        await ears[0].task
        other = Listener(web, handle)
        await other.until(lambda: len(other.seen) == 1)
        for one in (ears[1], other):
            one.gone.set()
            await one.task

    in_loop(run)


def test_all_streams_share_one_connection(node: RealServer) -> None:
    jobs.use(node.url)

    async def run() -> None:
        web = web_of()
        handles = adds.enqueue_many(adds.call(n, n) for n in range(50))
        before = jobs.client.execute("INFO", "clients")
        ears = [Listener(web, handle) for handle in handles]
        for one in ears:
            await one.until(lambda one=one: len(one.seen) == 1)
        assert connected(jobs.client.execute("INFO", "clients")) - connected(before) <= 2
        for one in ears:
            one.gone.set()
            await one.task

    in_loop(run)


def connected(text: Any) -> int:
    lines = text.decode().split() if isinstance(text, bytes) else text.split()
    (found,) = [line for line in lines if line.startswith("connected_clients:")]
    return int(found.partition(":")[2])


def test_a_broker_that_is_away_is_503() -> None:
    app = App(f"tuque://127.0.0.1:{free_port()}")
    path = "/jobs/D_0123abcd_0123456789abcdefghijklmn_05a1"
    with TestClient(web_of(app)) as browser:
        for method, way in (("GET", ""), ("GET", "/events"), ("DELETE", "")):
            reply = browser.request(method, path + way)
            assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (NoNode("no node could be reached"), "try again"),
        (NoReplica("too few nodes"), "try again"),
        (Withdrawn("timeout"), "what was asked for may be done"),
    ],
)
def test_an_application_has_the_same_reply_for_its_own_routes(error: Error, hint: str) -> None:
    async def add(request: Any) -> Any:
        raise error

    web = Starlette(exception_handlers={Unavailable: web_jobs.away})
    web.add_route("/add", add)
    reply = TestClient(web).get("/add")
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert reply.json()["detail"].endswith(hint)


def made_by_starlette(app: App) -> Any:
    return Starlette(lifespan=app.lifespan_web())


def made_by_fastapi(app: App) -> Any:
    reason = "fastapi is not installed: make setup-dev"
    return pytest.importorskip("fastapi", reason=reason).FastAPI(lifespan=app.lifespan_web())


def made_with_another_lifespan(app: App) -> Any:
    @asynccontextmanager
    async def life(web: object) -> Any:
        async with app.connected():
            yield

    return Starlette(lifespan=life)


def made_by_litestar(app: App) -> Any:
    reason = "litestar is not installed: make setup-dev"
    litestar = pytest.importorskip("litestar", reason=reason)
    return litestar.Litestar(lifespan=[app.lifespan_web()])


@pytest.mark.parametrize(
    "make", [made_by_starlette, made_by_fastapi, made_with_another_lifespan, made_by_litestar]
)
def test_clients_live_as_long_as_the_web_application(make: Callable[[App], Any]) -> None:
    app = App(f"tuque://127.0.0.1:{free_port()}")  # nobody is there, and nothing is asked
    web = make(app)

    async def run() -> None:
        came: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        sent: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        running: Coroutine[Any, Any, None] = web(scope, came.get, sent.put)
        task = asyncio.ensure_future(running)
        await came.put({"type": "lifespan.startup"})
        assert (await sent.get())["type"] == "lifespan.startup.complete"
        both = app.aio_client, app.client
        await came.put({"type": "lifespan.shutdown"})
        assert (await sent.get())["type"] == "lifespan.shutdown.complete"
        await task
        with pytest.raises(Closed):
            await both[0].ping()
        with pytest.raises(Closed):
            both[1].ping()

    asyncio.run(run())


def test_without_starlette_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['starlette'] = None; import tuque.web_jobs"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(
        "tuque.web_jobs needs Starlette, which FastAPI brings: pip install starlette"
    )
