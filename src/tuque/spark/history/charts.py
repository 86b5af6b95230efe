"""The data of the report's charts, for the page's script (report.js).

Knows no HTML. A series has one value per bucket of time; the key `""` stands for all queues, others
for queues with a line of their own, `"-1"` for the rest together.
"""

from __future__ import annotations

from typing import Any, Final

from tuque.spark.history.pipeline import Figures

ALL: Final = ""
OTHERS: Final = "-1"
COUNTS: Final = ("added", "delivered", "acked", "redelivered", "dead")
LATENCIES: Final = ("wait", "process")
NAME_MAX: Final = 60  # characters of a queue's name on the page
NAME_END: Final = 20  # of these, those of its end


def data(found: Figures) -> dict[str, Any]:
    """All that the script needs, as JSON values."""
    named = names(found)
    series = {key: _series(found, key) for key in (ALL, *named)}
    return {
        "first": found.first_s,
        "width": found.width_s,
        "buckets": buckets(found),
        "queues": list(named),
        "names": named,
        "labels": {key: short(name) for key, name in named.items()},
        "series": series,
        "causes": [
            [_key(found, row["queue"]), row["cause"], row["returns"]] for row in found.returns
        ],
        "kills": [
            {"node": node_name(found, node), "s": round(at_s, 3)} for node, at_s in found.kills
        ],
    }


def names(found: Figures) -> dict[str, str]:
    """Keys and names of the queues to choose from, the largest first."""
    chosen = {str(place): name for place, name in enumerate(found.shown)}
    rest = len(found.queues) - len(found.shown)
    if rest > 0:
        chosen[OTHERS] = f"{rest} other queues" if rest > 1 else "1 other queue"
    return chosen


def short(name: str) -> str:
    """A queue's name as the page shows it: begin and end of a long one, `""` for the empty one."""
    if len(name) <= NAME_MAX:
        return name or '""'
    return f"{name[: NAME_MAX - NAME_END - 1]}…{name[-NAME_END:]}"


def node_name(found: Figures, node: str) -> str:
    """The node's reported host:port, else the start of its id."""
    return found.names.get(node) or (node if len(node) <= 16 else node[:8])


def buckets(found: Figures) -> int:
    """The points on the time axis."""
    return (found.last_s - found.first_s) // found.width_s + 1


def _key(found: Figures, queue: str) -> str:
    return str(found.shown.index(queue)) if queue in found.shown else OTHERS


def _series(found: Figures, key: str) -> dict[str, list[Any]]:
    """The series of one queue, of the rest, or of all."""
    count = buckets(found)
    series: dict[str, list[Any]] = {name: [0] * count for name in COUNTS}
    for row in found.rates:
        if key in (ALL, str(row["place"])):
            for name in COUNTS:
                series[name][row["bucket"]] += row[name]
    series["open"] = _levels(found, key)
    for what in LATENCIES:
        for i in range(3):
            series[f"{what}{i}"] = [None] * count
    for row in found.latencies:
        if key != (ALL if row["place"] is None else str(row["place"])):
            continue
        for what in LATENCIES:
            for i, value in enumerate(row[f"{what}_ms"] or []):
                series[f"{what}{i}"][row["bucket"]] = float(f"{value:.4g}")
    return series


def _levels(found: Figures, key: str) -> list[int]:
    """Open jobs at the end of each bucket; the last value is the number open now."""
    changes = [0] * buckets(found)
    for row in found.changes:
        if key in (ALL, str(row["place"])):
            changes[min(row["bucket"], len(changes) - 1)] += row["change"]
    level, levels = 0, []
    for change in changes:
        level += change
        levels.append(level)
    return levels
