"""Charts: series, units and colours as the scripts draw them, and small lines in tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from markupsafe import Markup

Unit: TypeAlias = Literal["num", "rate", "signed", "span", "pct"]
Kind: TypeAlias = Literal["line", "area", "bar", "stack"]

POINTS_MAX: Final = 180  # more are no use at the width of a chart
MARKS_MAX: Final = 12
MARK_MAX: Final = 24  # characters beside a line
WIDTH: Final = 96
HEIGHT: Final = 20


class Line(msgspec.Struct, frozen=True):
    """One series: its name, colour s1 to s6, kind and values."""

    name: str
    colour: str
    kind: Kind
    values: list[float | None]


class Chart(msgspec.Struct, frozen=True):
    """A question, its answer in words, and the evidence."""

    question: str
    answer: str
    unit: str
    form: Unit
    at_s: list[float]
    lines: list[Line]
    log: bool = False
    limit: float | None = None
    limit_name: str = ""
    marks: list[tuple[float, str]] = []  # instants in unix s, and what happened

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw yet."""
        return len(self.at_s) < 2


def made(
    question: str,
    unit: str,
    form: Unit,
    at_s: list[float],
    lines: list[Line],
    answer: str = "",
    *,
    log: bool = False,
    limit: float | None = None,
    limit_name: str = "",
) -> Chart:
    """A chart of at most POINTS_MAX points; of those that fall together the greatest stays."""
    count = len(at_s)
    step = max(1, -(-count // POINTS_MAX))
    ends = [at_s[min(i + step, count) - 1] for i in range(0, count, step)]
    thin = [
        Line(
            line.name,
            line.colour,
            line.kind,
            [greatest(line.values[i : i + step]) for i in range(0, count, step)],
        )
        for line in lines
    ]
    return Chart(question, answer, unit, form, ends, thin, log, limit, limit_name)


def marked(charts: Iterable[Chart], marks: Iterable[tuple[float, str]]) -> list[Chart]:
    """The charts with vertical lines at those of the instants that they reach, the latest ones."""
    some = [(at_s, text[:MARK_MAX]) for at_s, text in marks][-MARKS_MAX:]
    return [
        msgspec.structs.replace(
            one, marks=[mark for mark in some if one.at_s and one.at_s[0] <= mark[0]]
        )
        for one in charts
    ]


def greatest(values: Sequence[float | None]) -> float | None:
    """The greatest of the values that are known."""
    return max((value for value in values if value is not None), default=None)


def as_json(chart: Chart) -> str:
    """What the script draws."""
    return json.dumps(
        {
            "at": [round(one, 1) for one in chart.at_s],
            "form": chart.form,
            "log": chart.log,
            "limit": chart.limit,
            "limitName": chart.limit_name,
            "marks": [[round(at_s, 1), text] for at_s, text in chart.marks],
            "lines": [
                {
                    "name": one.name,
                    "c": one.colour,
                    "kind": one.kind,
                    "v": [None if v is None else round(v, 3) for v in one.values],
                }
                for one in chart.lines
            ],
        },
        separators=(",", ":"),
    )


def spark(values: Sequence[float | None], colour: str = "s6", floor: float = 1.0) -> Markup:
    """A small line without axes; `floor` keeps noise flat. None is a gap."""
    if len(values) < 2:
        return Markup('<svg class="spark" aria-hidden="true"></svg>')
    step = max(1, len(values) // WIDTH)
    thin = [greatest(values[i : i + step]) for i in range(0, len(values), step)]
    top = max([floor, *(one for one in thin if one is not None)]) * 1.05
    runs: list[list[tuple[float, float]]] = [[]]  # between gaps
    for i, one in enumerate(thin):
        if one is None:
            runs.append([])
            continue
        x = i / max(1, len(thin) - 1) * WIDTH
        runs[-1].append((x, HEIGHT - 1 - one / top * (HEIGHT - 3)))
    paths, areas = "", ""
    for run in (run for run in runs if run):
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run)
        paths += path
        areas += f"{path}L{run[-1][0]:.1f} {HEIGHT}H{run[0][0]:.1f}z"
    return Markup(
        '<svg class="spark {}" viewBox="0 0 {w} {h}" aria-hidden="true">'
        '<path class="ar" d="{a}"/><path class="ln" d="{p}"/></svg>'
    ).format(colour, w=WIDTH, h=HEIGHT, p=paths, a=areas)
