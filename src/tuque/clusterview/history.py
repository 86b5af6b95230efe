"""Points of the nodes' figures over time, merged over the cluster (SPEC O3), for the charts.

A rate is what a point counted, over its step: never a sum of the console's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from tuque.aio import Client
from tuque.client.api import to_bytes, to_text
from tuque.clusterview.nodes import Node, Nodes

STEP_S: Final = 5.0
HOUR: Final = 720  # points of 5 s
MINUTE: Final = 12
BEYOND: Final = "beyond"
Past: TypeAlias = tuple[str | None, str]  # of a queue or None, and which times
WHOLE_S: Final = 60.0  # all points are asked for again
LOOKED_S: Final = 30.0  # points that nobody looks at are forgotten
GREATEST: Final = ("oldest-ms", "loop-p99-us")  # over nodes; all others are summed (O3.3)


class Points(msgspec.Struct):
    """Values of fields at instants (unix s, the ends of intervals), oldest first."""

    at_s: list[float] = []
    values: dict[str, list[float]] = {}
    step_s: float = STEP_S
    gaps: frozenset[float] = frozenset()  # instants at which what was so is not known

    def __len__(self) -> int:
        return len(self.at_s)

    def level(self, field: str) -> list[float]:
        """Values as they are."""
        return self.values.get(field, [])

    def drawn(self, values: Sequence[float | None]) -> list[float | None]:
        """[O14] Values of these instants for a chart: None where nothing is known (O14.15)."""
        pairs = zip(self.at_s, values, strict=False)
        return [None if at_s in self.gaps else value for at_s, value in pairs]

    @property
    def is_known(self) -> bool:
        """Whether the last instant is no gap."""
        return not self.at_s or self.at_s[-1] not in self.gaps

    def per_s(self, field: str) -> list[float]:
        """What was counted, per second."""
        return [value / self.step_s for value in self.level(field)]

    def counted(self, field: str, points: int = MINUTE) -> float:
        """What was counted in the last points: by default in the last full minute."""
        return sum(self.level(field)[-points:])

    def rate(self, field: str, points: int = MINUTE) -> float | None:
        """Per second over the last points; None without any."""
        found = self.level(field)[-points:]
        return sum(found) / (len(found) * self.step_s) if found else None

    def mean_s(self, total: str, count: str, points: int = MINUTE) -> float | None:
        """A mean time, from a total in ms and how many it was of; None if it was of none."""
        many = self.counted(count, points)
        return self.counted(total, points) / many / 1000 if many else None

    def means_s(self, total: str, count: str, over: int = MINUTE) -> list[float | None]:
        """The same at each point, over the points before it."""
        totals, counts = self.level(total), self.level(count)
        found: list[float | None] = []
        for i in range(len(totals)):
            many = sum(counts[max(0, i - over + 1) : i + 1])
            much = sum(totals[max(0, i - over + 1) : i + 1])
            found.append(much / many / 1000 if many else None)
        return found

    def percentiles_s(self, share: float, over: int = MINUTE) -> list[float | None]:
        """Of buckets of ms: within how many s that share of the jobs was, over the points before.

        Within a bucket they count as evenly spread; beyond the last bound as at it.
        """
        bounds = [0.0, *(float(name) / 1000 for name in self.values if name != BEYOND)]
        columns = list(self.values.values())
        found: list[float | None] = []
        for i in range(len(self.at_s)):
            first = max(0, i - over + 1)
            found.append(percentile([sum(one[first : i + 1]) for one in columns], bounds, share))
        return found

    def above_since_s(self, field: str, limit: float) -> float | None:
        """Since when a level is above a limit without a break; None if it is not now."""
        since: float | None = None
        for at_s, value in zip(reversed(self.at_s), reversed(self.level(field)), strict=True):
            if value <= limit:
                break
            since = at_s
        return since


def percentile(counts: list[float], bounds: list[float], share: float) -> float | None:
    """Below which value that share of all is; None without any. `bounds` begin with 0."""
    wanted = share * sum(counts)
    if not wanted:
        return None
    below = 0.0
    for i, count in enumerate(counts[: len(bounds) - 1]):
        if count and below + count >= wanted:
            return bounds[i] + (bounds[i + 1] - bounds[i]) * (wanted - below) / count
        below += count
    return bounds[-1]


def merged(parts: Iterable[Points]) -> Points:
    """The points of nodes as those of the cluster: sums, or the greatest, at each instant.

    The last instant is left out while a node that has the one before it has not told of it.
    """
    parts = [part for part in parts if part.at_s]
    places: dict[float, dict[str, float]] = {}
    step_s = STEP_S
    fields: list[str] = []
    for part in parts:
        step_s = part.step_s
        fields = list(part.values) if len(part.values) > len(fields) else fields
        for i, at_s in enumerate(part.at_s):
            here = places.setdefault(at_s, {})
            for field, column in part.values.items():
                if field in GREATEST:
                    here[field] = max(here.get(field, 0.0), column[i])
                else:
                    here[field] = here.get(field, 0.0) + column[i]
    at_s_all = sorted(places)
    if len(at_s_all) > 1 and any(part.at_s[-1] == at_s_all[-2] for part in parts):
        at_s_all.pop()
    values = {field: [places[at].get(field, 0.0) for at in at_s_all] for field in fields}
    return Points(at_s_all, values, step_s)


def with_gaps(parts: Mapping[str, Points], told: Mapping[str, Points], up: set[str]) -> Points:
    """[O14] The points of a queue over nodes, and where they are not known (O14.15).

    `told` are the nodes' points of themselves: one without a point of an instant stood still, or
    has forgotten it in a restart. Those in `up` answer: points that are due are not missed.
    """
    found = merged(parts.values())
    missed: set[float] = set()
    for id, own in told.items():
        has = {*own.at_s, *(parts[id].at_s if id in parts else ())}
        last_s = max(own.at_s, default=0.0) if id in up else float("inf")
        missed |= {at_s for at_s in found.at_s if at_s <= last_s and at_s not in has}
    columns = list(found.values.values())
    for i, at_s in enumerate(found.at_s):
        if at_s in missed and any(column[i] for column in columns):
            missed.remove(at_s)
    found.gaps = frozenset(missed)
    return found


def points_of(reply: Any) -> Points:
    """A node's reply to HISTORY; no points for null."""
    if reply is None:
        return Points()
    step_ms, fields, rows = reply
    names = [to_text(name) if isinstance(name, bytes) else str(name) for name in fields]
    if fields and isinstance(fields[0], int):
        names.append(BEYOND)  # of buckets, the last one has no bound
    at_s = [row[0] / 1000 for row in rows]
    columns = {name: [float(row[i]) for row in rows] for i, name in enumerate(names, 1)}
    return Points(at_s, columns, step_ms / 1000)


class Rings:
    """The last hour of nodes and queues; asks only for what is new.

    Each minute all is asked for again: what a node forgot in a restart is not shown for long.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.kept: dict[Past, dict[str, Points]] = {}  # by what was asked for; by node
        self._whole_s: dict[Past, float] = {}
        self._asked_s: dict[Past, float] = {}

    async def of(self, queue: str | None, times: str = "") -> dict[str, Points]:
        """What each node has of a queue, None: of itself; by the node's id.

        Of a node that does not answer: what it said before, which is still the past.

        `times`: instead, how long jobs took, `wait` or `work`, in buckets (SPEC O3.7).
        """
        past = (queue, times)
        now_s = self._asked_s[past] = time.monotonic()
        kept = earlier = self.kept.get(past, {})
        if now_s - self._whole_s.get(past, -WHOLE_S) >= WHOLE_S:
            kept = {}
            self._whole_s[past] = now_s
        found: dict[str, Points] = {}

        async def ask(node: Node) -> None:
            before = kept.get(node.id, Points())
            after_ms = round(before.at_s[-1] * 1000) if before.at_s else 0

            async def question(client: Client) -> Points:
                return await points_after(client, past, after_ms)

            for id, points in (await self._nodes.ask(question, [node])).items():
                found[id] = longer(before, points)

        await asyncio.gather(*map(ask, list(self._nodes.known.values())))
        silent = [id for id in earlier if id in self._nodes.known and id not in found]
        found |= {id: earlier[id] for id in silent}
        self.kept[past] = found
        return found

    async def of_queue(self, queue: str) -> Points:
        """The points of a queue in the cluster; gaps are known from the nodes' own points."""
        parts = await self.of(queue)
        kept = self.kept.get((None, ""), {})
        told = {id: kept.get(id, Points()) for id in self._nodes.known}
        up = {node.id for node in self._nodes.up()}
        return with_gaps(parts, told, up)

    def forget(self) -> None:
        """Keeps only what was asked for lately."""
        since_s = time.monotonic() - LOOKED_S
        for past in [one for one, asked_s in self._asked_s.items() if asked_s < since_s]:
            del self._asked_s[past]
            self.kept.pop(past, None)
            self._whole_s.pop(past, None)


async def points_after(client: Client, past: Past, after_ms: int) -> Points:
    """The points of a node later than that, HOUR of them at most."""
    queue, times = past
    words: list[Any] = ["HISTORY", "5s"]
    words += ["TIMES", times] if times else []
    words += ["QUEUE", to_bytes(queue)] if queue is not None else []
    return points_of(await client.execute(*words, "FROM", after_ms, "COUNT", HOUR))


def longer(before: Points, after: Points) -> Points:
    """Both, the last HOUR of them; 0 where one of them has not a field of the other."""
    if not before.at_s or not after.at_s:
        return after if after.at_s else before
    at_s = (before.at_s + after.at_s)[-HOUR:]
    none = [0.0] * len(before)
    values = {
        field: (before.values.get(field, none) + column)[-HOUR:]
        for field, column in after.values.items()
    }
    return Points(at_s, values, after.step_s)
