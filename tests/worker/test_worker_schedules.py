"""Schedules that an app declares (SPEC U9)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any, cast

import pytest
from worker_lab import Program

from lab import RealServer
from tuque import Client, aio
from tuque.errors import NoPerm, WrongTube
from tuque.worker import App, Backoff, Limit, Unique
from tuque.worker.app.codec import decode
from tuque.worker.main import send_plans_once
from tuque.worker.run.crash_table import CrashTable
from tuque.worker.run.registration import send_plans


def app_of(url: str, queue: str) -> App:
    app = App(url)

    @app.task(name="report", queue=queue, retry_s=7, unique=Unique("day"), headers={"zone": "eu"})
    def report(day: str) -> None: ...

    app.schedule("hourly", report.call("mon"), every_s=3_600, missed="all")
    app.schedule("daily", report.call("tue"), every_s=86_400)
    return app


def test_the_words_are_the_same_each_time() -> None:
    """U9.2 The body of the jobs is the same at each start"""
    app = app_of("tuque://127.0.0.1:1", "q")
    called: list[Any] = []
    app.on_enqueue(called.append)
    queue, name, body, asked = app.schedules["hourly"].words()
    assert (queue, name) == ("q", "hourly")
    assert app.schedules["hourly"].words()[2] == body
    envelope = decode(body)
    assert envelope.task == "report" and envelope.args == ["mon"]
    assert envelope.enqueued_at == 0.0 and envelope.headers == {"zone": "eu"}
    assert asked["unique"] == "report:mon" and asked["retry"] == 7
    assert asked["every_s"] == 3_600 and asked["missed"] == "all"
    assert called == []


def test_the_life_of_the_jobs_is_that_of_the_task(node: RealServer, client: Client) -> None:
    """U9.2 The jobs have what the task's options give: `attempts`, `backoff`, `dead`, `keep_s`,
    `time_limit_s` and `headers`. The broker counts their attempts.
    """
    app = App(node.url)

    @app.task(
        queue="lives", attempts=3, backoff=Backoff(1, 2, 0), dead="lost", time_limit_s=9,
        headers={"zone": "eu"},
    )  # fmt: skip
    def night(day: str) -> int:
        return 1

    app.schedule("n", night.call("mon"), every_s=3_600)
    client.tube("lives").create("tasks", ttr=30)
    body = app.schedules["n"].words()[2]
    assert client.schedule_add("lives", "n", body, every_s=3_600) == "added"  # an older worker
    assert app.send_schedules() == {"n": "replaced"}
    assert app.send_schedules() == {"n": "unchanged"}
    id = client.schedule_run("lives", "n")
    (job,) = client.getjob("lives", nohang=True, with_meta=True)
    assert (job.id, job.of, job.time_limit_s) == (id, 3, 9.0)
    assert job.headers == {"zone": "eu", "tuque-task": night.name, "tuque-schedule": "n"}
    (run,) = client.start(job.id)
    assert client.fail(job.id, run.run, reason="no").became == "retry"
    shown = client.execute("SCHEDULE", "SHOW", "lives", "n")
    assert b"keep-ms" in shown and b"lost" in shown
    app.close()


def test_what_cannot_be_scheduled() -> None:
    app = App("tuque://127.0.0.1:1")

    @app.task(queue="q", limit=Limit(1))
    def tick() -> None: ...

    app.schedule("a", tick.call(), cron="* * * * *", tz="UTC")
    with pytest.raises(ValueError, match="there is a schedule a already"):
        app.schedule("a", tick.call(), every_s=1)
    with pytest.raises(TypeError, match="give either cron or every_s"):
        app.schedule("b", tick.call())
    with pytest.raises(TypeError, match="tz needs cron"):
        app.schedule("c", tick.call(), every_s=1, tz="UTC")
    with pytest.raises(TypeError, match="cannot have delay_s"):
        app.schedule("d", tick.options(delay_s=3).call(), every_s=1)
    with pytest.raises(ValueError, match="schedule f: cron has five fields, or six with the"):
        app.schedule("f", tick.call(), cron="@daily")
    with pytest.raises(ValueError, match="schedule g: missed is one of skip, one, all, not 'x'"):
        app.schedule("g", tick.call(), every_s=1, missed=cast(Any, "x"))
    for every_s in (float("nan"), float("inf"), 0.5, -1, 400 * 86_400):
        with pytest.raises(ValueError, match="schedule e: every_s is from 1 to 31622400 seconds"):
            app.schedule("e", tick.call(), every_s=every_s)
    assert list(app.schedules) == ["a"]


def test_a_worker_tells_the_broker_when_it_starts(node: RealServer, client: Client) -> None:
    """U9.1 Workers of the app make the tube if there is none, with the task's `retry_s` as ttr"""
    app = app_of(node.url, "told")

    async def start() -> None:
        async with aio.Client(node.url) as own:
            await asyncio.wait_for(send_plans(app, own, random.Random(1)), 60)

    asyncio.run(start())
    assert {one.name: one.every_s for one in client.schedules("told")} == {
        "hourly": 3_600.0,
        "daily": 86_400.0,
    }
    assert client.tube("told").info().ttr == 7.0
    assert app.send_schedules() == {"hourly": "unchanged", "daily": "unchanged"}
    app.close()


def test_a_process_that_takes_the_place_of_another_sends_nothing(
    node: RealServer, client: Client
) -> None:
    """U9.1 a process that replaces another one (U2.14, U4.2) does not."""
    app = app_of(node.url, "told")
    table = CrashTable.made(1)

    async def start() -> None:
        async with aio.Client(node.url) as own:
            await asyncio.wait_for(send_plans_once(app, own, CrashTable(table.fd)), 60)

    asyncio.run(start())
    assert client.schedule_drop("told", "hourly") and client.schedule_drop("told", "daily")
    asyncio.run(start())
    assert list(client.schedules("told")) == []
    table = CrashTable.made(1)  # another worker
    asyncio.run(start())
    assert {one.name for one in client.schedules("told")} == {"hourly", "daily"}
    app.close()


PLANNED = """
import os

from tuque.worker import App

app = App()

@app.task(name="who", queue="plain")
def who() -> int:
    return os.getpid()

@app.task(queue="planned")
def tick() -> None: ...

app.schedule("tick", tick.call(), every_s=60_000)
"""


def test_a_worker_whose_process_is_killed_leaves_a_newer_schedule(
    node: RealServer, client: Client, tmp_path: Path
) -> None:
    """U9.1 a process that replaces another one (U2.14, U4.2) does not."""
    (tmp_path / "planned.py").write_text(PLANNED)
    words = ("worker", "planned:app", "--app-dir", str(tmp_path), "--url", node.url)
    program = Program(tmp_path / "worker.log", *words)
    app = App(node.url)

    @app.task(name="who", queue="plain")
    def who() -> int: ...

    try:
        program.says("schedule tick was added")
        shown = client.schedule_show("planned", "tick")
        assert shown.every_s == 60_000
        client.schedule_add("planned", "tick", b"newer", every_s=90_000)
        first = who.enqueue().result(60)
        os.kill(first, signal.SIGKILL)
        program.says("the worker process")
        assert who.enqueue().result(60) != first
        assert client.schedule_show("planned", "tick").every_s == 90_000
        program.signal(signal.SIGTERM)
        program.ends()
        assert client.schedule_show("planned", "tick").every_s == 90_000
    finally:
        program.kill()
        app.close()


def test_what_the_broker_refuses_is_logged(
    node: RealServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """U9.1 A schedule that it refuses is logged by name and queue; the others are added, and the
    worker works on.
    """
    client.tube("other").create("fifo")
    app = App(node.url)

    @app.task(queue="told", limit=Limit(1))
    def tick() -> None: ...

    app.schedule("first", tick.call(), every_s=60)
    app.schedule("bad", tick.options(queue="other").call(), every_s=60)
    app.schedule("odd", tick.call(), cron="61 * * * *")
    app.schedule("last", tick.call(), every_s=60)

    async def start() -> None:
        async with aio.Client(node.url) as own:
            await asyncio.wait_for(send_plans(app, own, random.Random(1)), 60)

    asyncio.run(start())
    said = "schedule {} of queue {} is not in force: "
    assert said.format("bad", "other") in caplog.text and said.format("odd", "told") in caplog.text
    assert caplog.text.count("not in force") == 2
    assert {one.name for one in client.schedules("told")} == {"first", "last"}
    with pytest.raises(WrongTube) as caught:
        app.send_schedules()
    assert str(caught.value).startswith("schedule 'bad', 'odd' not in force: WRONGTUBE ")
    assert caught.value.__notes__[0].startswith("schedule 'odd' is not in force: ERR ")
    app.close()


@pytest.mark.usefixtures("own_node")
def test_who_may_not_make_tubes_may_declare(node: RealServer, client: Client) -> None:
    """Rights (U9.1): a worker whose user may produce and consume needs somebody else to make
    the tube once; without it the error says which right is missing."""
    wire = node.wire()
    words = ("on", "nopass", "+@produce", "+@consume", "~narrow")
    assert wire("ACL", "SETUSER", "narrow", *words) == b"OK"
    app = app_of(node.url.replace("tuque://", "tuque://narrow:x@"), "narrow")
    with pytest.raises(NoPerm, match=r"tube\|create"):
        app.send_schedules()
    client.tube("narrow").create("tasks")
    assert set(app.send_schedules().values()) == {"added"}
    app.close()
