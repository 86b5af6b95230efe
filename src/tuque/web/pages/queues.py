"""The list of queues: which are late, failing, paused, or taken by nobody?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tuque.web.read.figures import Queue
from tuque.web.read.history import Points
from tuque.web.read.rows import ORDERS, PAGE, Row, in_order, matches, row_of
from tuque.web.show.charts import spark
from tuque.web.show.verdict import state_of
from tuque.web.site import Ask, Page, shared

KINDS: Final = {
    "all": "all",
    "behind": "behind",
    "failing": "failing",
    "nobody": "taken by nobody",
    "paused": "paused",
    "tubes": "tubes",
    "dead": "of dead letters",
}
SPARK_FLOOR_S: Final = 30.0


class Totals(msgspec.Struct, frozen=True):
    """Sums of rows."""

    ready: int
    delayed: int
    work: int
    dead: int
    oldest_s: float


def rows_of(ask: Ask, queues: Iterable[Queue]) -> list[Row]:
    """The rows of queues, with their states and their last hour."""
    watch, view = ask.site.watch, ask.view
    rows = []
    for queue in queues:
        points = watch.queue_points.get(queue.name, Points())
        row = row_of(queue, view, points)
        row.state = state_of(queue, points)
        ages = [value / 1000 for value in points.level("oldest-ms")]
        row.spark = spark(ages, "s4" if row.state.kind in ("bad", "gone") else "s6", SPARK_FLOOR_S)
        rows.append(row)
    return rows


def is_kind(row: Row, kind: str) -> bool:
    """Whether a chip shows a row."""
    if kind == "dead" or row.is_dead:
        return kind == "dead" and row.is_dead
    if kind == "tubes":
        return bool(row.type)
    words = {"behind": "Behind", "failing": "Failing", "nobody": "Nobody takes"}
    if kind == "paused":
        return row.pause != "none"
    return kind == "all" or row.state.word == words.get(kind)


def totals_of(rows: list[Row]) -> Totals:
    """The sums over all rows that are not of dead letters."""
    return Totals(
        sum(row.ready for row in rows),
        sum(row.delayed or 0 for row in rows),
        sum(row.work or 0 for row in rows),
        sum(row.dead for row in rows),
        max((row.oldest_s for row in rows), default=0.0),
    )


async def queues(ask: Ask) -> Page:
    """Which are late, failing, paused, or taken by nobody?"""
    view = ask.view
    every = rows_of(ask, view.queues.values())
    wanted, kind = ask.word("match"), ask.word("kind", "all")
    kind = kind if kind in KINDS else "all"
    sort = ask.word("sort", "oldest")
    sort = sort if sort in ORDERS else "oldest"
    is_down = ask.word("down", "no" if sort == "name" else "yes") != "no"
    found = [row for row in every if is_kind(row, kind) and matches(row, wanted)]
    start = ask.number("at", 0, 0, max(0, len(found) - 1))
    rows = in_order(found, sort, is_down)[start : start + PAGE]
    chips = [
        (name, words, sum(is_kind(row, name) for row in every)) for name, words in KINDS.items()
    ]
    return Page(
        "queues",
        {
            **shared(ask, "queues"),
            "rows": rows,
            "chips": [chip for chip in chips if chip[2] or chip[0] in ("all", kind)],
            "kind": kind,
            "wanted": wanted,
            "sort": sort,
            "down": is_down,
            "total": len(found),
            "totals": totals_of(found) if len(found) > 1 else None,
            "start": start,
            "page_size": PAGE,
            "may_choose": ask.session.may_act,
            "queued": view.sum("queued_jobs"),
            "marks": {
                "behind": "bad",
                "failing": "bad",
                "nobody": "gone",
                "paused": "pause",
            },
        },
    )
