"""The screen of `tuque top`: queues, workers, nodes, groups and keys of a cluster, as they change.

Decides what a key does; the figures come from clusterview/view.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.notifications import SeverityLevel
from textual.screen import ModalScreen
from textual.widgets import Button, DataTable, Footer, Input, Static, TabbedContent, TabPane

from tuque import terminal
from tuque.cli import shown
from tuque.cli.shown import glob_of
from tuque.client.commands.groups import JobGroup
from tuque.client.commands.operate import KeyRow, QueueOrder, QueueRow, WorkerInfo
from tuque.clusterview.figures import MIXED, NodeRow
from tuque.clusterview.view import NodesInReach
from tuque.errors import Error
from tuque.nodeoptions import NodeOptions

SORTS: Final[tuple[QueueOrder, ...]] = ("oldest", "ready", "at-work", "dead", "in", "out", "name")
READ: Final = 1_000  # queues, for the sums
SHOWN: Final = 200  # of them; the filter finds the others
PADDING: Final = 2  # of a cell
DEAD: Final = ".dead"


class Picture:
    """All that is shown, read at one time."""

    def __init__(
        self,
        queues: list[QueueRow],
        count: int,
        workers: list[WorkerInfo],
        nodes: list[NodeRow],
        groups: list[JobGroup],
        keys: list[tuple[str, KeyRow]],
    ) -> None:
        self.queues = queues
        self.count = count  # of queues that are there
        self.workers = workers
        self.nodes = nodes
        self.groups = groups  # read only while their tab is shown, as keys
        self.keys = keys
        self.now_ms = int(time.time() * 1000)
        self.at = time.strftime("%H:%M:%S")


class Question(ModalScreen[bool]):
    """Asks before something is changed; Cancel has the focus."""

    CSS = """
    Question { align: center middle; }
    Question > Vertical {
        width: 64; max-width: 95%; height: auto; padding: 1 2;
        background: $surface; border: round $primary;
    }
    Question Horizontal { height: auto; margin-top: 1; align-horizontal: right; }
    Question Button { margin-left: 2; }
    """
    AUTO_FOCUS = "#cancel"  # the harmless one
    BINDINGS: ClassVar = [Binding("escape", "cancel", "Cancel")]

    def __init__(self, text: str, action: str) -> None:
        super().__init__()
        self._text = text
        self._action_text = action

    def compose(self) -> ComposeResult:
        """The text and two buttons."""
        with Vertical():
            yield Static(Text(self._text), id="question")
            with Horizontal():
                yield Button("Cancel", id="cancel")
                yield Button(self._action_text, id="action", variant="warning")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The answer."""
        self.dismiss(event.button.id == "action")

    def action_cancel(self) -> None:
        """No."""
        self.dismiss(False)


class Grid(DataTable[Any]):
    """A table that leaves out columns on a narrow screen, and keeps its row when it changes."""

    def __init__(self, heads: tuple[str, ...], least: tuple[str, ...], left: int, id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False)
        self._heads = heads
        self._least = least
        self._left = left
        self._keys: list[str] = []

    def show(self, keys: list[str], cells: list[list[str]], colors: list[dict[str, str]]) -> None:
        """The rows; `colors` by head. The cursor stays on the row of its key."""
        chosen = self.chosen
        widths = [
            max([len(head), *(len(row[i]) for row in cells)]) for i, head in enumerate(self._heads)
        ]
        at = list(range(len(self._heads)))
        room = self.app.size.width - 2  # a scroll bar
        widths[0] = terminal.name_room(widths, room)
        cells = [[terminal.brief(row[0], widths[0]), *row[1:]] for row in cells]
        for head in self._least:
            if sum(widths[i] + PADDING for i in at) <= room:
                break
            at.remove(self._heads.index(head))
        top = self.scroll_y
        self.clear(columns=True)
        for i in at:
            self.add_column(Text(self._heads[i], justify="left" if i < self._left else "right"))
        for key, row, color in zip(keys, cells, colors, strict=True):
            self.add_row(
                *[
                    Text(
                        row[i],
                        style="dim" if row[i] == "-" else color.get(self._heads[i], ""),
                        justify="left" if i < self._left else "right",
                    )
                    for i in at
                ],
                key=key,
            )
        self._keys = keys
        if chosen in keys:
            self.move_cursor(row=keys.index(chosen), scroll=False)
        self.scroll_to(y=top, animate=False)

    @property
    def chosen(self) -> str:
        """The key of the row under the cursor; empty if there is none."""
        return self._keys[self.cursor_row] if 0 <= self.cursor_row < len(self._keys) else ""


class Top(App[None]):
    """The screen."""

    TITLE = "tuque top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden; }
    #tabs { height: 1fr; }
    #summary { height: auto; max-height: 2; padding: 0 1; text-style: bold; }
    #tasks { height: auto; max-height: 2; padding: 0 1; }
    #status { height: 1; padding: 0 1; color: $text-muted; }
    #filter { display: none; height: 3; }
    #filter.is-open { display: block; }
    #lost { height: auto; max-height: 8; padding: 0 1; }
    Grid { height: 1fr; background: $background; }
    TabPane { padding: 0; }
    """
    BINDINGS: ClassVar = [
        Binding("q", "quit", "Quit"),
        Binding("slash", "find", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("space", "hold", "Hold"),
        Binding("p", "pause_queue", "Pause"),
        Binding("x", "retry", "Retry"),
        Binding("1", "tab('queues')", "Queues", show=False),
        Binding("2", "tab('workers')", "Workers", show=False),
        Binding("3", "tab('nodes')", "Nodes", show=False),
        Binding("4", "tab('groups')", "Groups", show=False),
        Binding("5", "tab('keys')", "Keys", show=False),
        Binding("escape", "unfind", "All", show=False),
    ]

    def __init__(self, node: NodeOptions, every_s: float = 2.0) -> None:
        super().__init__()
        self._reach = NodesInReach(node)
        self._every_s = every_s
        self._sort = 0
        self._filter = ""
        self._is_held = False
        self._tab = "queues"
        self._busy = asyncio.Lock()  # one picture, or one action, at a time
        self.picture: Picture | None = None

    def compose(self) -> ComposeResult:
        """Summary, tabs with a table each, keys."""
        yield Static("asking the nodes ...", id="summary")
        yield Static("", id="tasks")
        yield Input(placeholder="a part of a queue's name, or a glob", id="filter")
        with TabbedContent(id="tabs"):
            with TabPane("Queues", id="queues"):
                yield Grid(shown.QUEUE_HEADS, shown.QUEUE_LEAST, 2, "queue-rows")
            with TabPane("Workers", id="workers"):
                yield Grid(shown.WORKER_HEADS, shown.WORKER_LEAST, shown.WORKER_LEFT, "worker-rows")
                yield Static("", id="lost")
            with TabPane("Nodes", id="nodes"):
                yield Grid(shown.NODE_HEADS, shown.NODE_LEAST, 2, "node-rows")
            with TabPane("Groups", id="groups"):
                yield Grid(shown.GROUP_HEADS, shown.GROUP_LEAST, shown.GROUP_LEFT, "group-rows")
            with TabPane("Keys", id="keys"):
                yield Grid(shown.KEY_HEADS, shown.KEY_LEAST, shown.KEY_LEFT, "key-rows")
        yield Static("", id="status")
        yield Footer()

    def on_mount(self) -> None:
        """Read now, and at intervals."""
        self._base.query_one("#queue-rows").focus()
        self.set_interval(self._every_s, self.refresh_soon)
        self.refresh_soon()

    def on_resize(self) -> None:
        """Another width shows other columns."""
        if self.picture is not None:
            self.show(self.picture)

    # Reading

    def refresh_soon(self) -> None:
        """Read in the background, unless the screen is held."""
        if not self._is_held:
            self.run_worker(self._read(), exit_on_error=False)

    async def _read(self) -> None:
        if self._busy.locked():
            return
        async with self._busy:
            try:
                picture = await self._taken()
            except Error as err:
                self.fail(str(err))
                return
        self.show(picture)

    async def _taken(self) -> Picture:
        """What the nodes say now; raises what the first one refuses."""
        nodes = self._reach
        await nodes.look()
        sort = SORTS[self._sort]
        match = glob_of(self._filter) if self._filter else None
        queues, count = await nodes.queues(sort, sort != "name", match, None, READ)
        groups = await nodes.groups(match) if self._tab == "groups" else []
        keys = await nodes.keys(match) if self._tab == "keys" else []
        workers, rows = await nodes.workers(), await nodes.nodes()
        return Picture(queues, count, workers, rows, groups, keys)

    @property
    def _base(self) -> Any:
        """The screen below a question."""
        return self.screen_stack[0]

    def _is_gone(self) -> bool:
        """Whether the screen has been taken down."""
        return not self.screen_stack or not self._base.query("#status")

    def fail(self, text: str) -> None:
        """No node answers: old figures are not shown as if they were new."""
        if self._is_gone():
            return
        self.picture = None
        for grid in self._base.query(Grid):
            grid.show([], [], [])
        self._base.query_one("#tasks", Static).update("")
        self._base.query_one("#summary", Static).update(
            Text(f"no answer: {text}", style=terminal.BAD)
        )

    def show(self, picture: Picture) -> None:
        """Put a picture on the screen."""
        if self._is_gone():
            return
        if self._is_held and self.picture is not None and picture is not self.picture:
            return
        self.picture = picture
        queues, workers, nodes = picture.queues[:SHOWN], picture.workers, picture.nodes
        self._grid("queue-rows").show(
            [row.name for row in queues],
            [shown.queue_cells(row) for row in queues],
            [dict.fromkeys(("OLDEST", "PAUSE"), shown.queue_color(row)) for row in queues],
        )
        self._grid("worker-rows").show(
            [one.name for one in workers],
            [shown.worker_cells(one) for one in workers],
            [{"STATE": shown.worker_color(one)} for one in workers],
        )
        self._grid("node-rows").show(
            [row.address for row in nodes],
            [shown.node_cells(row) for row in nodes],
            [{"STATE": shown.node_color(row)} for row in nodes],
        )
        self._show_tasks(picture)
        lost = [one for one in workers if one.state == "lost" and one.runs]
        lines = [
            line
            for one in lost
            for line in (f"{shown.named(one.name)} is lost, it had:", *shown.lost_lines(one))
        ]
        self._base.query_one("#lost", Static).update(Text("\n".join(lines)))
        text = shown.summary(picture.queues, workers, picture.count)
        self._base.query_one("#summary", Static).update(Text(text))
        self._tell_status(picture)

    def _show_tasks(self, picture: Picture) -> None:
        """What tubes of type tasks have, and topics."""
        self._grid("group-rows").show(
            [one.id for one in picture.groups],
            [shown.group_cells(one, picture.now_ms) for one in picture.groups],
            [dict.fromkeys(("STATE", "FAILED"), shown.group_color(one)) for one in picture.groups],
        )
        self._grid("key-rows").show(
            [f"{tube} {row.kind} {row.key}" for tube, row in picture.keys],
            [shown.key_cells(tube, row, picture.now_ms) for tube, row in picture.keys],
            [{} for _ in picture.keys],
        )
        line = shown.tasks_line(picture.nodes)
        tasks = self._base.query_one("#tasks", Static)
        tasks.update(Text(line))
        tasks.display = bool(line)

    def _tell_status(self, picture: Picture) -> None:
        tabs = self._base.query_one("#tabs", TabbedContent)
        lost = sum(one.state == "lost" for one in picture.workers)
        silent = sum(bool(row.error) for row in picture.nodes)
        tabs.get_tab("queues").label = (
            f"Queues {SHOWN} of {picture.count}"
            if picture.count > SHOWN
            else f"Queues {picture.count}"
        )
        tabs.get_tab("workers").label = f"Workers {len(picture.workers)}" + (
            f", {lost} lost" if lost else ""
        )
        tabs.get_tab("nodes").label = f"Nodes {len(picture.nodes)}" + (
            f", {silent} silent" if silent else ""
        )
        rows = [row for row in picture.nodes if not row.error]
        tabs.get_tab("groups").label = f"Groups {sum(row.groups for row in rows)}"
        tabs.get_tab("keys").label = f"Keys {sum(row.keys_waited for row in rows)}"
        message = [f"{'held' if self._is_held else 'live'} {picture.at}", f"by {SORTS[self._sort]}"]
        if self._filter:
            message.append(f"only {self._filter}")
        self._base.query_one("#status", Static).update(Text("  ".join(message)))

    def _grid(self, id: str) -> Grid:
        grid: Grid = self._base.query_one(f"#{id}", Grid)
        return grid

    # Keys

    def action_tab(self, name: str) -> None:
        """Shows a tab; some are read only then."""
        self._base.query_one("#tabs", TabbedContent).active = name
        self._base.query_one(f"#{name} Grid").focus()

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """Another tab is shown, by a key or the mouse."""
        self._tab = event.pane.id or "queues"
        self.refresh_soon()

    def action_sort(self) -> None:
        """The next order."""
        self._sort = (self._sort + 1) % len(SORTS)
        self._again()

    def action_hold(self) -> None:
        """Freezes the figures and their time, or goes on."""
        self._is_held = not self._is_held
        if self.picture is not None:
            self._tell_status(self.picture)
        self.refresh_soon()

    def action_find(self) -> None:
        """Opens the filter."""
        field = self._base.query_one("#filter", Input)
        field.add_class("is-open")
        field.focus()

    def action_unfind(self) -> None:
        """Drops the filter."""
        field = self._base.query_one("#filter", Input)
        field.value = ""
        field.remove_class("is-open")
        self._filter = ""
        self._base.query_one("#queue-rows").focus()
        self._again()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Filters."""
        self._filter = event.value.strip()
        event.input.remove_class("is-open")
        self._base.query_one("#queue-rows").focus()
        self._again()

    def _again(self) -> None:
        self._is_held = False
        self.refresh_soon()

    # Actions

    def _chosen(self) -> QueueRow | None:
        if self.picture is None or self._base.query_one("#tabs", TabbedContent).active != "queues":
            return None
        name = self._grid("queue-rows").chosen
        return next((row for row in self.picture.queues if row.name == name), None)

    def action_pause_queue(self) -> None:
        """Stops deliveries of a queue on all nodes, or goes on with them."""
        row = self._chosen()
        if row is None:
            return
        is_paused = row.pause in ("out", "all", MIXED)
        if is_paused:
            text = f"Resume {row.name}: workers get its jobs again ({row.ready:,} ready)."
        else:
            text = f"Pause {row.name} on all nodes: nobody gets its jobs ({row.ready:,} ready)."
        self._ask(text, "Resume" if is_paused else "Pause", lambda: self._pause(row, is_paused))

    async def _pause(self, row: QueueRow, is_paused: bool) -> str:
        options = ("in",) if row.pause in ("in", "all") else ()
        words = (options or ("none",)) if is_paused else (*options, "out")
        await self._reach.first.client.pause(row.name, *words, "bcast")
        return f"{row.name} is {'resumed' if is_paused else 'paused'}"

    def action_retry(self) -> None:
        """Puts the dead letters of a queue back to work."""
        row = self._chosen()
        if row is None:
            return
        name = row.name + DEAD if row.type == "queue" else row.name
        count = row.ready if row.type == "dead" else row.dead
        if not count:
            self.notify(f"{row.name} has no dead letters", markup=False)
            return
        text = f"Retry the {count:,} dead letters in {name}: each starts again in its queue."
        self._ask(text, f"Retry {count:,}", lambda: self._retry(name))

    async def _retry(self, name: str) -> str:
        done = await self._reach.letters().replay(name, (), None, lambda done, seen: None)
        return f"{done:,} dead letters of {name} run again"

    def _ask(self, text: str, action: str, do: Callable[[], Awaitable[str]]) -> None:
        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.run_worker(self._do(do))

        self.push_screen(Question(text, action), answered)

    async def _do(self, do: Callable[[], Awaitable[str]]) -> None:
        severity: SeverityLevel = "information"
        async with self._busy:
            try:
                message = await do()
            except Error as err:
                message, severity = str(err), "error"
        self.notify(message, severity=severity, markup=False)
        self._again()

    async def on_unmount(self) -> None:
        """Closes the connections."""
        await self._reach.close()
