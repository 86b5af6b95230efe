"""What `tuque queues`, `tuque workers` and `tuque top` write: one text for each figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tuque import terminal
from tuque.client.commands.groups import JobGroup
from tuque.client.commands.operate import KeyRow, QueueRow, WorkerInfo, WorkerRun
from tuque.clusterview.figures import NodeRow
from tuque.terminal import printable

ID_SHOWN: Final = 16  # of a job without a task; JSON has all
BEHIND_MS: Final = 60_000  # a queue whose oldest ready job is older stands out
QUEUE_HEADS: Final = (
    "QUEUE",
    "TYPE",
    "OLDEST",
    "READY",
    "DELAYED",
    "AT WORK",
    "IN/S",
    "OUT/S",
    "DEAD",
    "WAITING",
    "PAUSE",
)
QUEUE_LEAST: Final = ("WAITING", "TYPE", "DELAYED", "OUT/S", "PAUSE")
WORKER_HEADS: Final = (
    "WORKER",
    "STATE",
    "QUEUES",
    "APP",
    "LONGEST JOB",
    "FOR",
    "BUSY",
    "SLOTS",
    "DONE",
    "FAILED",
    "HEARD",
)
WORKER_LEFT: Final = 5  # columns that are aligned so
WORKER_LEAST: Final = ("FAILED", "DONE", "QUEUES", "HEARD", "APP")
NODE_HEADS: Final = ("NODE", "STATE", "JOBS", "QUEUED", "CLIENTS", "WAITING", "SCHEDULES", "MEMORY")
NODE_LEAST: Final = ("SCHEDULES", "WAITING", "CLIENTS")
GROUP_HEADS: Final = ("GROUP", "STATE", "TUBE", "CHILDREN", "DONE", "FAILED", "OPEN", "AGE")
GROUP_LEFT: Final = 3
TUBE_SHOWN: Final = 20  # characters of a tube's name beside a group or key
GROUP_LEAST: Final = ("CHILDREN", "AGE", "DONE")
KEY_HEADS: Final = ("KEY", "KIND", "TUBE", "WAITING", "FOR", "USED", "OF")
KEY_LEFT: Final = 3
KEY_LEAST: Final = ("USED", "OF", "KIND")


def span(ms: int) -> str:
    """A time for people: two parts at most."""
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    s = ms // 1000
    for unit, size, lower, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60)):
        if s >= size:
            return f"{s // size} {unit} {s % size // part} {lower}"
    return f"{s // 60} m {s % 60} s" if s >= 60 else f"{s} s"


def size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024 or unit == "GB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def rate(value: float) -> str:
    """Jobs a second."""
    if not value:
        return "-"
    return f"{value:,.1f}" if value >= 0.05 else "<0.1"


def count(value: int) -> str:
    """A number; zeros step back."""
    return terminal.number(value) if value else "-"


def named(name: str) -> str:
    """A name for people: escaped, and not too long; JSON has all."""
    return terminal.brief(printable(name))


def queue_cells(row: QueueRow) -> list[str]:
    """A queue under its heads."""
    return [
        named(row.name),
        row.type,
        span(row.oldest_ms) if row.oldest_ms else "-",
        count(row.ready),
        count(row.delayed),
        count(row.at_work),
        rate(row.in_s),
        rate(row.out_s),
        count(row.dead),
        count(row.blocked),
        "-" if row.pause == "none" else row.pause,
    ]


def queue_color(row: QueueRow) -> str:
    """Red: behind; yellow: paused, or nobody works though jobs wait."""
    if row.type == "dead":
        return ""
    if row.pause != "none":
        return terminal.WARNING
    if row.oldest_ms > BEHIND_MS:
        return terminal.BAD
    is_left = row.ready > 0 and row.at_work == 0 and row.blocked == 0 and row.oldest_ms > 10_000
    return terminal.WARNING if is_left else ""


def longest(one: WorkerInfo) -> WorkerRun | None:
    """The run that lasts longest."""
    return max(one.runs, key=lambda run: run.for_ms, default=None)


def worker_cells(one: WorkerInfo) -> list[str]:
    """A worker under its heads."""
    run = longest(one)
    state = one.state if one.order in ("none", one.state) else f"{one.state}, told to {one.order}"
    return [
        named(one.name),
        state,
        named(",".join(one.queues)) or "-",
        named(one.app) or "-",
        named(run.task or run.id[:ID_SHOWN] + "…") if run else "-",
        span(run.for_ms) if run else "-",
        str(one.busy if one.state != "lost" else 0),
        str(one.slots),
        count(one.done),
        count(one.failed),
        span(one.heard_ms),
    ]


def worker_color(one: WorkerInfo) -> str:
    """Green: alive; yellow: it stops; red: lost."""
    if one.state == "lost":
        return terminal.BAD
    return terminal.GOOD if one.state == "alive" and one.order == "none" else terminal.WARNING


def lost_lines(one: WorkerInfo) -> list[str]:
    """The jobs of a lost worker, and when each is due again."""
    lines = []
    for run in one.runs:
        due = f"due again in {span(run.due_ms)}" if run.due_ms is not None else "not due again"
        about = f"{named(run.task) or 'a job'} of {named(run.queue)}, {run.id}"
        lines.append(
            f"  {about}: {printable(run.state)}" + ("" if run.state == "queued" else f", {due}")
        )
    return lines


def node_cells(row: NodeRow) -> list[str]:
    """A node under its heads."""
    if row.error:
        return [printable(row.address), printable(row.error), *["-"] * (len(NODE_HEADS) - 2)]
    memory = size(row.memory)
    if row.memory_max:
        memory += f" of {size(row.memory_max)}"
    return [
        printable(row.address),
        "journal-fails" if row.journal_fails else "leaving" if row.leaving else "up",
        count(row.jobs),
        count(row.queued),
        count(row.clients),
        count(row.blocked),
        count(row.schedules),
        memory,
    ]


def group_cells(one: JobGroup, now_ms: int) -> list[str]:
    """A group under its heads."""
    return [
        one.id,
        one.state,
        terminal.brief(printable(one.queue), TUBE_SHOWN),
        count(one.children),
        count(one.done),
        count(one.failed),
        count(one.children - one.done - one.failed),
        span(max(0, now_ms - one.created_ms)),
    ]


def group_color(one: JobGroup) -> str:
    """Red: it failed or was cancelled; yellow: children have failed."""
    if one.state in ("failed", "cancelled"):
        return terminal.BAD
    return terminal.WARNING if one.failed else terminal.GOOD if one.state == "done" else ""


def key_cells(tube: str, row: KeyRow, now_ms: int) -> list[str]:
    """A key that tasks wait for, under its heads."""
    is_limit = row.kind == "limit"
    return [
        named(row.key),
        row.kind,
        terminal.brief(printable(tube), TUBE_SHOWN),
        count(row.waiting),
        span(max(0, now_ms - row.since_ms)),
        count(row.used) if is_limit else "-",
        count(row.places) if is_limit else f"1 each {span(row.token_us // 1000)}",
    ]


def some(number: int, word: str) -> str:
    """`1 group`, `2 groups`."""
    return f"{terminal.number(number)} {word}{'' if number == 1 else 's'}"


def tasks_line(nodes: Iterable[NodeRow]) -> str:
    """One line: schedules, groups, keys and topics, of what there is."""
    rows = [row for row in nodes if not row.error]
    groups, schedules = sum(row.groups for row in rows), sum(row.schedules for row in rows)
    failed, late = sum(row.groups_failed for row in rows), sum(row.late for row in rows)
    waited = sum(row.keys_waited for row in rows)
    topics = max((row.topics for row in rows), default=0)
    unheard = sum(row.unheard for row in rows)
    parts = []
    if groups or failed:
        more = f" ({terminal.number(failed)} failed or cancelled so far)" if failed else ""
        parts.append(some(groups, "group") + more)
    if schedules or late:
        more = f" (missed times {some(late, 'time')})" if late else ""
        parts.append(some(schedules, "schedule") + more)
    if waited:
        wait_ms = max(row.keys_wait_ms for row in rows)
        parts.append(f"{some(waited, 'key')} waited for, up to {span(wait_ms)}")
    if topics or unheard:
        more = f" ({some(unheard, 'ADD')} to no queue)" if unheard else ""
        parts.append(some(topics, "topic") + more)
    return ", ".join(parts)


def node_color(row: NodeRow) -> str:
    """Red: it does not answer, or cannot write."""
    if row.error or row.journal_fails:
        return terminal.BAD
    return terminal.WARNING if row.leaving else terminal.GOOD


def queue_table(rows: list[QueueRow]) -> str:
    """The queues as a table."""

    def color(at: int, head: str, text: str) -> str:
        return terminal.paint(text, queue_color(rows[at])) if head in ("OLDEST", "PAUSE") else text

    return terminal.table(
        QUEUE_HEADS, [queue_cells(row) for row in rows], 2, QUEUE_LEAST, color, True
    )


def worker_table(rows: list[WorkerInfo]) -> str:
    """The workers as a table; under it the jobs of those that are lost."""

    def color(at: int, head: str, text: str) -> str:
        return terminal.paint(text, worker_color(rows[at])) if head == "STATE" else text

    cells = [worker_cells(one) for one in rows]
    table = terminal.table(WORKER_HEADS, cells, WORKER_LEFT, WORKER_LEAST, color, True)
    lines = [table]
    for one in rows:
        if one.state == "lost" and one.runs:
            lines.append(f"{named(one.name)} is lost, it had:")
            lines += lost_lines(one)
    return "\n".join(lines)


def node_table(rows: list[NodeRow]) -> str:
    """The nodes as a table."""

    def color(at: int, head: str, text: str) -> str:
        return terminal.paint(text, node_color(rows[at])) if head == "STATE" else text

    return terminal.table(NODE_HEADS, [node_cells(row) for row in rows], 2, NODE_LEAST, color)


def summary(queues: list[QueueRow], workers: Iterable[WorkerInfo], count: int = 0) -> str:
    """One line: what there is, and the worst; `count` queues are there, if not all are given."""
    live = [row for row in queues if row.type != "dead"]
    states = [one.state for one in workers]
    parts = [
        f"{terminal.number(sum(row.ready for row in live))} ready",
        f"{terminal.number(sum(row.at_work for row in live))} at work",
        f"{sum(row.in_s for row in live):,.1f}/s in",
        f"{sum(row.out_s for row in live):,.1f}/s out",
        f"{len(states) - states.count('lost')} workers",
    ]
    if "lost" in states:
        parts.append(f"{states.count('lost')} lost")
    worst = max(live, key=lambda row: row.oldest_ms, default=None)
    if worst is not None and worst.oldest_ms > BEHIND_MS:
        parts.insert(0, f"{named(worst.name)} is {span(worst.oldest_ms)} behind")
    if count > len(queues):
        parts.insert(0, f"of {terminal.number(len(queues))} of {terminal.number(count)} queues")
    return ", ".join(parts)


def as_fields(row: msgspec.Struct) -> dict[str, Any]:
    """A row for programs."""
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields


# ---- Patterns of names


def glob_of(text: str | None) -> str | None:
    """A glob as it is; any other text is a part of the name."""
    return text if text is None or any(sign in text for sign in "*?[") else f"*{text}*"
