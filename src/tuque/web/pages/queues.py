"""The list of queues: which are late, failing, paused, or without consumers?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tuque.client.commands.operate import QueueOrder
from tuque.client.commands.tubes import TubeInfo
from tuque.clusterview.figures import Queue
from tuque.clusterview.history import Points
from tuque.clusterview.queues import (
    ORDERS,
    PAGE,
    Row,
    Wish,
    homes_away,
    in_order,
    matches,
    row_of,
)
from tuque.web.show.charts import spark
from tuque.web.show.verdict import HOME_AWAY, WAS_LATE, State, in_part, state_of
from tuque.web.site import Ask, Page, shared

KINDS: Final = {
    "all": "all",
    "behind": "behind",
    "failing": "failing",
    "nobody": "without consumers",
    "paused": "paused",
    "tubes": "tubes",
    "dead": "of dead letters",
}
SPARK_FLOOR_S: Final = 30.0
FIELDS: Final[Mapping[str, QueueOrder]] = {  # the orders of QLIST (SPEC O10.1)
    "name": "name",
    "oldest": "oldest",
    "ready": "ready",
    "delayed": "delayed",
    "work": "at-work",
    "in": "in",
    "out": "out",
    "dead": "dead",
}


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
    is_whole = not view.old
    rows = []
    for queue in queues:
        points = watch.queue_points.get(queue.name, Points())
        row = row_of(queue, points)
        row.dead = queue.ready if queue.is_dead else view.letters(queue)
        row.state = state_of(queue, points)
        if not is_whole:
            row.state = in_part(row.state, watch.behind.knows(queue.name))
        ages = [value / 1000 for value in points.level("oldest-ms")]
        row.spark = spark(
            points.drawn(ages), "s4" if row.state.kind in ("bad", "gone") else "s6", SPARK_FLOOR_S
        )
        rows.append(row)
    return rows


async def name_away(ask: Ask, rows: list[Row]) -> dict[str, TubeInfo]:
    """[O14] Says of tubes that their home does not answer (O14.16); what is known of these."""
    tubes = [row.name for row in rows if row.type]
    away = await homes_away(ask.site.watch.nodes, tubes, ask.view.old)
    for row in rows:
        if row.name in away:
            row.is_away, row.state = True, State("bad", HOME_AWAY)
    return away


def is_kind(row: Row, kind: str) -> bool:
    """Whether a chip shows a row."""
    if kind == "dead" or row.is_dead:
        return kind == "dead" and row.is_dead
    if kind == "tubes":
        return bool(row.type)
    words = {"failing": "Failing", "nobody": "No consumers"}
    if kind == "behind":
        return row.state.word in ("Behind", WAS_LATE)
    if kind == "paused":
        return row.pause != "none"
    return kind == "all" or row.state.word == words.get(kind)


def totals_of(rows: list[Row]) -> Totals:
    """The sums over all rows that are not of dead letters."""
    return Totals(
        sum(row.ready for row in rows),
        sum(row.delayed for row in rows),
        sum(row.work for row in rows),
        sum(row.dead for row in rows),
        max((row.oldest_s for row in rows), default=0.0),
    )


class Shown(msgspec.Struct, frozen=True):
    """The rows that fit, in order, and how many queues fit: `is_about`: at least."""

    rows: list[Row]
    total: int
    is_about: bool = False


async def queues(ask: Ask) -> Page:
    """Which are late, failing, paused, or without consumers?"""
    frame = shared(ask, "queues")
    view = frame["view"]  # of one look, though nodes are asked below
    every = rows_of(ask, view.queues.values())
    wanted, kind = ask.word("match"), ask.word("kind", "all")
    kind = kind if kind in KINDS else "all"
    sort = ask.word("sort", "oldest")
    sort = sort if sort in ORDERS else "oldest"
    is_down = ask.word("down", "no" if sort == "name" else "yes") != "no"
    if view.is_whole or kind not in ("all", "dead"):
        found = [row for row in every if is_kind(row, kind) and matches(row, wanted)]
        shown = Shown(in_order(found, sort, is_down), len(found), not view.is_whole)
    else:
        shown = await asked(ask, kind, wanted, sort, is_down)
    start = max(0, min(ask.start(PAGE), len(shown.rows) - 1))
    on_page = shown.rows[start : start + PAGE]
    await name_away(ask, on_page)
    chips = [
        (name, words, sum(is_kind(row, name) for row in every)) for name, words in KINDS.items()
    ]
    if not view.is_whole:
        chips[0] = ("all", KINDS["all"], view.count)
    return Page(
        "queues",
        {
            **frame,
            "rows": on_page,
            "chips": [chip for chip in chips if chip[2] or chip[0] in ("all", kind)],
            "kind": kind,
            "wanted": wanted,
            "sort": sort,
            "down": is_down,
            "total": shown.total,
            "is_about": shown.is_about,
            "reach": len(shown.rows),
            "totals": totals_of(shown.rows) if 1 < len(shown.rows) == shown.total else None,
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


async def asked(ask: Ask, kind: str, wanted: str, sort: str, is_down: bool) -> Shown:
    """The first of many queues in an order: as the nodes sort them, not this page."""
    wish = wish_of(kind, wanted, sort, is_down)
    listing = await ask.site.watch.lists.of(wish)
    rows = [
        row
        for row in rows_of(ask, listing.queues.values())
        if is_kind(row, kind) and matches(row, wanted)
    ]
    is_about = len(rows) < listing.total
    return Shown(in_order(rows, sort, is_down)[: wish.most], listing.total, is_about)


def wish_of(kind: str, wanted: str, sort: str, is_down: bool) -> Wish:
    """The part of a filter that QLIST takes: one glob and one type; the page applies the rest."""
    words = wanted.split()
    names = [word for word in words if ":" not in word]
    types = [word.partition(":")[2] for word in words if word.startswith("type:")]
    owners = [word.partition(":")[2] for word in words if word.startswith("tenant:")]
    if owners:
        names = [f"{owners[0]}/*"]
    glob = None if not names else names[0] if "*" in names[0] else f"*{names[0]}*"
    type = "dead" if kind == "dead" else types[0] if types else None
    return Wish(FIELDS[sort], is_down, glob, type)
