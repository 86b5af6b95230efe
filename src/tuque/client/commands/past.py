"""The method table: the wire form of HISTORY, the points of a node's past (SPEC O3)."""

from __future__ import annotations

from typing import NamedTuple

from tuque.client.api import Arg, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import Call


class History(NamedTuple):
    """Points, oldest first: `fields` names their values, after the time in ms since 1970."""

    step_ms: int
    fields: tuple[str, ...]
    points: tuple[tuple[int, ...], ...]


# how values of several nodes meet at one time: these by the greatest, all others by their sum
GREATEST = frozenset({"oldest-ms", "loop-p99-us"})


def history(
    step: str = "5s",
    *fields: str,
    queue: Text | None = None,
    from_ms: int | None = None,
    count: int | None = None,
    timeout: float | None = None,
) -> Call[History | None]:
    """Points of this node's past, one each 5 s (`"5s"`) or minute (`"1m"`); fields: all.

    With `queue` those of one queue, or None if it has none; only those later than `from_ms`; the
    last `count`.
    """
    args: tuple[Arg, ...] = ("HISTORY", step)
    if queue is not None:
        args += ("QUEUE", to_bytes(queue))
    if from_ms is not None:
        args += ("FROM", from_ms)
    if count is not None:
        args += ("COUNT", count)
    return Call(args=args + fields, parse=_history, repeat=True, timeout_s=timeout)


def history_queues(*, timeout: float | None = None) -> Call[list[str]]:
    """The queues that have points on this node, in the order of their names."""
    return Call(args=("HISTORY", "QUEUES"), parse=_names, repeat=True, timeout_s=timeout)


def merged(histories: list[History]) -> History:
    """Points of several nodes as one: at each time sums, or the greatest (`GREATEST`).

    All must have the same step and fields.
    """
    first = histories[0]
    at: dict[int, list[int]] = {}
    for each in histories:
        if each[:2] != first[:2]:
            raise ValueError("histories of other steps or fields do not merge")
        for time_ms, *values in each.points:
            sums = at.setdefault(time_ms, [0] * len(values))
            for i, value in enumerate(values):
                sums[i] = max(sums[i], value) if each.fields[i] in GREATEST else sums[i] + value
    return first._replace(points=tuple((time_ms, *at[time_ms]) for time_ms in sorted(at)))


def _history(reply: Reply) -> History | None:
    if reply is None:
        return None
    step_ms, fields, points = reply
    rows = tuple(tuple(int(value) for value in point) for point in points)
    return History(int(step_ms), tuple(map(to_text, fields)), rows)


def _names(reply: Reply) -> list[str]:
    return [to_text(name) for name in reply]
