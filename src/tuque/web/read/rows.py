"""Rows of the list of queues: sorted, filtered and cut. Decides the order; asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from tuque.web.read.figures import Queue
from tuque.web.read.history import Points

PAGE: Final = 50


class Row(msgspec.Struct, kw_only=True):
    """One queue; times in seconds, rates per second, None for what is not known."""

    name: str
    type: str
    is_dead: bool
    ready: int
    oldest_s: float
    delayed: int
    work: int
    came_rate: float
    done_rate: float
    wait_s: float | None
    work_s: float | None
    dead: int
    pause: str
    is_away: bool = False  # a tube whose home does not answer: its figures are not known
    state: Any = None
    spark: Any = ""


def row_of(queue: Queue, points: Points) -> Row:
    """The row of a queue."""
    return Row(
        name=queue.name,
        type=queue.type,
        is_dead=queue.is_dead,
        ready=queue.ready,
        oldest_s=queue.oldest_s,
        delayed=queue.delayed,
        work=queue.work,
        came_rate=queue.came_rate,
        done_rate=queue.done_rate,
        wait_s=points.mean_s("wait-ms", "first-delivered"),
        work_s=points.mean_s("work-ms", "worked"),
        dead=queue.ready if queue.is_dead else queue.dead,
        pause=queue.pause,
    )


ORDERS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": lambda row: row.name,
    "oldest": lambda row: 0.0 if row.is_dead else row.oldest_s,
    "ready": lambda row: row.ready,
    "delayed": lambda row: row.delayed,
    "work": lambda row: row.work,
    "in": lambda row: row.came_rate,
    "out": lambda row: row.done_rate,
    "dead": lambda row: row.dead,
}


def in_order(rows: list[Row], by: str, is_down: bool) -> list[Row]:
    """The rows sorted; equal ones by their names."""
    rows = sorted(rows, key=lambda row: row.name)
    return sorted(rows, key=ORDERS[by], reverse=is_down)


def matches(row: Row, wanted: str) -> bool:
    """Whether a row has all words of a filter: part of a name, a glob, type:, tenant:, dead:>n."""
    return all(has(row, word) for word in wanted.split())


def has(row: Row, word: str) -> bool:
    """Whether a row has one word of a filter."""
    name, colon, value = word.partition(":")
    if colon and name == "type":
        return row.type == value
    if colon and name == "tenant":
        return row.name.startswith(f"{value}/")
    if colon and name in ("dead", "ready"):
        least = value.removeprefix(">")
        number = row.dead if name == "dead" else row.ready
        return least.isdigit() and number > int(least)
    if colon and name == "state":
        return value.lower() in row.state.word.lower()
    return fnmatchcase(row.name, word) if "*" in word else word.lower() in row.name.lower()
