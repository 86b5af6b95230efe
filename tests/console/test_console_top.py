"""The screen of `tuque top` at a real node, by its keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import RealServer
from tuque import Client
from tuque.client.commands.work import Run
from tuque.nodeoptions import NodeOptions

pytest.importorskip("textual", reason="needs the extra top: pip install 'tuque[top]'")

from textual.widgets import TabbedContent

from tuque.cli.top import (
    SHOWN,
    Grid,
    Question,
    Top,
)

WIDE = (120, 40)
NARROW = (60, 24)
NEVER_S = 1e6  # a test looks itself
LOOKS_MAX = 1_000
Play = Callable[[Top, Any], Awaitable[None]]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RealServer]:
    with RealServer(tmp_path) as node:
        yield node


@pytest.fixture
def client(node: RealServer) -> Iterator[Client]:
    with Client(node.url) as client:
        for number, name in enumerate(("mail", "images", "reports")):
            for _ in range(number + 1):
                client.addjob(name, "x", retry=60)
            began = time.monotonic()
            while time.monotonic() < began + 0.005:  # the next queue is younger
                time.sleep(0.001)
        yield client


def bury(client: Client, queue: str, count: int) -> None:
    """Dead letters of the queue."""
    for _ in range(count):
        id = client.addjob(queue, "x", attempts=1, headers={"tuque-task": "t"})
        (run,) = client.start(id, worker="w")
        assert isinstance(run, Run)
        client.fail(id, run.run, reason="no way")


def play(node: RealServer, script: Play, size: tuple[int, int] = WIDE) -> None:
    """Runs a script of keys on a screen of that size."""

    async def run() -> None:
        app = Top(NodeOptions("127.0.0.1", node.port, "", "", ""), every_s=NEVER_S)
        async with app.run_test(size=size) as pilot:
            await until(lambda: app.picture is not None, pilot)
            await script(app, pilot)

    asyncio.run(run())


async def look(pilot: Any) -> None:
    """What the timer does: figures are read, and shown unless the screen is held."""
    pilot.app.refresh_soon()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause(0)


async def until(condition: Callable[[], object], pilot: Any) -> None:
    """Looks again until the condition holds."""
    for _ in range(LOOKS_MAX):
        if condition():
            return
        await look(pilot)
    raise AssertionError(f"not in {LOOKS_MAX} looks")


def is_asked(app: Top) -> bool:
    """Whether the dialog is there, with its buttons."""
    return isinstance(app.screen, Question) and app.screen.focused is not None


def rows(app: Top, name: str = "queues") -> list[list[str]]:
    """The cells of a table."""
    grid = app.query_one(f"#{name} Grid", Grid)
    return [[str(cell) for cell in grid.get_row_at(at)] for at in range(grid.row_count)]


def heads(app: Top, name: str = "queues") -> list[str]:
    """The heads of a table."""
    return [str(one.label) for one in app.query_one(f"#{name} Grid", Grid).columns.values()]


def names(app: Top) -> list[str]:
    """The queues shown."""
    return [row[0] for row in rows(app)]


def choose(app: Top, queue: str) -> None:
    """Moves the cursor to the queue; it stays there when the order changes."""
    app.query_one("#queues Grid", Grid).move_cursor(row=names(app).index(queue))


def said(app: Top, id: str) -> str:
    """The text of a line."""
    return str(app.screen_stack[0].query_one(f"#{id}").render())


def test_queues_are_shown_sorted_and_filtered(node: RealServer, client: Client) -> None:
    async def script(app: Top, pilot: Any) -> None:
        assert names(app) == ["mail", "images", "reports"], "the oldest first"
        assert "6 ready" in said(app, "summary")
        await pilot.press("s")
        await until(lambda: names(app)[0] == "reports", pilot)
        assert "by ready" in said(app, "status")
        await pilot.press("slash", *"mag", "enter")
        await until(lambda: names(app) == ["images"], pilot)
        assert "only mag" in said(app, "status")
        await pilot.press("escape")
        await until(lambda: len(names(app)) == 3, pilot)

    play(node, script)


def test_sums_are_those_of_all_queues(node: RealServer, client: Client) -> None:
    """Also of those that have no row, whatever the order."""
    with client.pipeline() as pipe:
        for number in range(SHOWN):
            pipe.addjob(f"q{number}", "x")
        pipe.execute()

    async def script(app: Top, pilot: Any) -> None:
        for order in ("oldest", "ready", "at-work", "dead"):
            await until(lambda order=order: f"by {order}" in said(app, "status"), pilot)
            assert f"{6 + SHOWN} ready" in said(app, "summary")
            assert len(names(app)) == SHOWN
            await pilot.press("s")
        tabs = app.query_one("#tabs", TabbedContent)
        assert str(tabs.get_tab("queues").label) == f"Queues {SHOWN} of {3 + SHOWN}"

    play(node, script)


def test_a_narrow_screen_leaves_columns_out(node: RealServer, client: Client) -> None:
    async def script(app: Top, pilot: Any) -> None:
        assert heads(app)[0] == "QUEUE"
        assert {"OLDEST", "READY", "AT WORK", "DEAD"} <= set(heads(app))
        assert "WAITING" not in heads(app)
        await pilot.resize_terminal(*WIDE)
        await until(lambda: "WAITING" in heads(app), pilot)

    play(node, script, NARROW)


def test_held_figures_stand_still(node: RealServer, client: Client) -> None:
    async def script(app: Top, pilot: Any) -> None:
        await pilot.press("space")
        picture = app.picture
        assert "held" in said(app, "status")
        client.addjob("new", "x")
        await look(pilot)
        assert app.picture is picture
        await pilot.press("space")
        await until(lambda: "new" in names(app), pilot)
        assert "live" in said(app, "status")

    play(node, script)


def test_a_queue_is_paused_and_resumed(node: RealServer, client: Client) -> None:
    async def script(app: Top, pilot: Any) -> None:
        choose(app, "images")
        await pilot.press("p")
        await until(lambda: is_asked(app), pilot)
        assert "images on all nodes: nobody gets its jobs (2 ready)" in str(
            app.screen.query_one("#question").render()
        )
        await pilot.press("enter")
        await until(lambda: not isinstance(app.screen, Question), pilot)
        assert client.pause("images") == "none", "Cancel has the focus"
        await pilot.press("p")
        await until(lambda: is_asked(app), pilot)
        await pilot.click("#action")
        await until(lambda: client.pause("images") == "out", pilot)
        await until(lambda: ["images", "out"] in [[row[0], row[-1]] for row in rows(app)], pilot)
        await pilot.press("p")
        await until(lambda: is_asked(app), pilot)
        await pilot.click("#action")
        await until(lambda: client.pause("images") == "none", pilot)

    play(node, script)


def test_dead_letters_are_retried(node: RealServer, client: Client) -> None:
    bury(client, "mail", 3)

    async def script(app: Top, pilot: Any) -> None:
        await pilot.press("x")
        await until(lambda: is_asked(app), pilot)
        assert "the 3 dead letters in mail.dead" in str(app.screen.query_one("#question").render())
        await pilot.click("#action")
        await until(lambda: client.qlen("mail.dead") == 0, pilot)
        assert client.qlen("mail") == 4

    play(node, script)


def test_workers_and_nodes_have_tabs(node: RealServer, client: Client) -> None:
    client.worker_here("h/7", slots=4, queues=["mail"])

    async def script(app: Top, pilot: Any) -> None:
        await until(lambda: rows(app, "workers"), pilot)
        await pilot.press("2")
        assert rows(app, "workers")[0][:2] == ["h/7", "alive"]
        await pilot.press("3")
        assert rows(app, "nodes")[0][:2] == [f"127.0.0.1:{node.port}", "up"]

    play(node, script)


def test_groups_and_keys_have_tabs(node: RealServer, client: Client) -> None:
    """The line above the tabs has their sums; the tabs are read while they are shown."""
    client.tube("sums").create("tasks")
    open_one = client.group_create("sums", 4, body="{}")
    over = client.group_create("sums", 2)
    client.group_cancel("sums", over)
    client.schedule_add("sums", "night", "{}", every_s=3600)
    for _ in range(3):
        client.addjob("sums", "x", limit=("shop", 1))
    client.getjob("sums")
    client.topic_subscribe("orders", "mail")
    client.topic_add("nobody", "x")

    async def script(app: Top, pilot: Any) -> None:
        assert app.picture is not None
        assert app.picture.groups == [] and app.picture.keys == []
        line = said(app, "tasks")
        assert line.startswith("2 groups (1 failed or cancelled so far), 1 schedule, 1 key waited")
        assert line.endswith(" s, 1 topic (1 ADD to no queue)")
        await pilot.press("4")
        await until(lambda: rows(app, "groups"), pilot)
        assert [row[:5] for row in rows(app, "groups")] == [
            [open_one, "open", "sums", "4", "-"],
            [over, "cancelled", "sums", "2", "-"],
        ]
        await pilot.press("5")
        await until(lambda: rows(app, "keys"), pilot)
        row = rows(app, "keys")[0]
        assert (row[:4], row[5:]) == (["shop", "limit", "sums", "2"], ["1", "1"])
        await pilot.press("slash", *"mail", "enter")
        await until(lambda: not rows(app, "keys"), pilot)
        await pilot.press("4")
        await until(lambda: not rows(app, "groups"), pilot)  # the filter is for tubes, too

    play(node, script)


def test_without_tasks_there_is_no_line(node: RealServer, client: Client) -> None:
    async def script(app: Top, pilot: Any) -> None:
        assert said(app, "tasks") == "" and not app.query_one("#tasks").display

    play(node, script)


def test_no_old_figures_without_a_node(node: RealServer, client: Client) -> None:
    async def script(app: Top, pilot: Any) -> None:
        assert names(app)
        node.process.kill()
        await until(lambda: app.picture is None, pilot)
        assert names(app) == []
        assert said(app, "summary").startswith("no answer: ")

    play(node, script)
