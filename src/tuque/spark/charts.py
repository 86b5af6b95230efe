"""The charts of the report, made with Plotly. Knows no HTML around them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from tuque.spark.pipeline import Figures

# Okabe-Ito: tells apart for every kind of colour vision
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, GREY = "#CC79A7", "#56B4E9", "#B8A800", "#777777"
PALETTE = [BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW, GREY]
QUEUES_MAX = len(PALETTE)  # more are summed up as "other"
HEIGHT_PX = 320
PERCENTILES = [("median", GREEN), ("95 %", ORANGE), ("99 %", RED)]


def script() -> str:
    """Plotly's own JavaScript, to stand in the page once."""
    return str(get_plotlyjs())


def rates(found: Figures) -> str:
    """Jobs added, delivered and acknowledged per second."""
    figure = _figure("jobs/s" if found.width_s == 1 else f"jobs/s, mean of {_width(found)}")
    series = _filled(found)
    for name, colour in (("added", BLUE), ("delivered", ORANGE), ("acked", GREEN)):
        values = [row[name] / found.width_s for row in series]
        _line(figure, found, name, values, colour)
    return _html(figure)


def troubles(found: Figures) -> str:
    """Second and later deliveries, and jobs given up."""
    figure = _figure("per s" if found.width_s == 1 else f"per {_width(found)}")
    series = _filled(found)
    for name, colour in (("redelivered", ORANGE), ("dead", RED)):
        figure.add_bar(x=_axis(found), y=[r[name] for r in series], name=name, marker_color=colour)
    figure.update_layout(barmode="stack")
    return _html(figure)


def backlog(found: Figures) -> str:
    """Unfinished jobs, by queue."""
    figure = _figure("unfinished jobs")
    for (name, values), colour in zip(_levels(found).items(), PALETTE, strict=False):
        figure.add_scatter(
            x=_axis(found),
            y=values,
            name=name,
            mode="lines",
            line={"color": colour, "width": 1, "shape": "hv"},
            stackgroup="all",
        )
    return _html(figure)


def latencies(found: Figures, column: str) -> str:
    """Percentiles of `wait_ms` or `process_ms` over time."""
    figure = _figure("ms")
    by_bucket = {row["bucket"]: row[column] for row in found.latencies}
    for i, (name, colour) in enumerate(PERCENTILES):
        values = [
            by_bucket[b][i] if by_bucket.get(b) is not None else None
            for b in range(_buckets(found))
        ]
        _line(figure, found, name, values, colour, mode="lines+markers")
    return _html(figure)


def returns(found: Figures) -> str:
    """Why jobs went back into their queues."""
    figure = _figure("times")
    causes = sorted({row["cause"] for row in found.returns})
    queues = sorted({row["queue"] for row in found.returns}, reverse=True)
    count = {(row["queue"], row["cause"]): row["returns"] for row in found.returns}
    for i, cause in enumerate(causes):
        figure.add_bar(
            y=[_short(q) for q in queues],
            x=[count.get((q, cause), 0) for q in queues],
            name=cause,
            orientation="h",
            marker_color=PALETTE[i % len(PALETTE)],
        )
    height = max(180, min(30 * len(queues) + 110, 900))
    figure.update_layout(barmode="stack", height=height, hovermode="closest", bargap=0.35)
    figure.update_layout(
        xaxis={"title": {"text": "times"}, "rangemode": "tozero"},
        yaxis={"title": None, "type": "category", "automargin": True},
    )
    return _html(figure)


def _figure(unit: str) -> go.Figure:
    """An empty chart that fits its box, on a screen of any width."""
    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        height=HEIGHT_PX,
        autosize=True,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        hovermode="x unified",
        font={"family": "system-ui, sans-serif", "size": 12},
        showlegend=True,
        xaxis={"nticks": 5, "tickangle": 0, "ticks": "outside", "ticklen": 6, "automargin": True},
        yaxis={
            "title": {"text": unit},
            "rangemode": "tozero",
            "automargin": True,
            "exponentformat": "none",
            "separatethousands": True,
        },
    )
    return figure


def _line(
    figure: go.Figure,
    found: Figures,
    name: str,
    values: list[float | None] | list[float],
    colour: str,
    mode: str = "lines",
) -> None:
    line = {"color": colour, "width": 2}
    marker = {"size": 4}
    figure.add_scatter(x=_axis(found), y=values, name=name, mode=mode, line=line, marker=marker)


def _html(figure: go.Figure) -> str:
    """The chart as an element that needs only `script` in the same page."""
    config = {"responsive": True, "displaylogo": False, "displayModeBar": False}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config=config))


def _buckets(found: Figures) -> int:
    return (found.last_s - found.first_s) // found.width_s + 1


def _axis(found: Figures) -> list[str]:
    """The instants (UTC) at which the buckets begin."""
    starts = range(found.first_s, found.last_s + 1, found.width_s)
    return [datetime.fromtimestamp(s, UTC).strftime("%Y-%m-%d %H:%M:%S") for s in starts]


def _width(found: Figures) -> str:
    """The width of a bucket for a person: '5 s', '10 min', '6 h'."""
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if found.width_s % unit_s == 0:
            return f"{found.width_s // unit_s} {unit}"
    return f"{found.width_s} s"


def _filled(found: Figures) -> list[dict[str, Any]]:
    """One row per bucket: nothing happened in those that the query leaves out."""
    none = {"added": 0, "delivered": 0, "acked": 0, "redelivered": 0, "dead": 0}
    by_bucket = {row["bucket"]: row for row in found.rates}
    return [by_bucket.get(b, none) for b in range(_buckets(found))]


def _levels(found: Figures) -> dict[str, list[int]]:
    """The backlog of each queue in every bucket; the smallest queues as 'other'."""
    largest = [q["queue"] for q in found.queues]
    own = largest if len(largest) <= QUEUES_MAX else largest[: QUEUES_MAX - 1]
    changes = {(row["queue"], row["bucket"]): row["backlog"] for row in found.backlog}
    levels: dict[str, list[int]] = {}
    for queue in largest:
        level, series = 0, []
        for bucket in range(_buckets(found)):
            level = changes.get((queue, bucket), level)
            series.append(level)
        name = _short(queue) if queue in own else "other"
        before = levels.get(name, [0] * len(series))
        levels[name] = [a + b for a, b in zip(before, series, strict=True)]
    return levels


def _short(queue: str, length: int = 24) -> str:
    """The queue's name, fit for a legend. Plotly reads tags in it: they are defused."""
    name = queue.replace("&", "&amp;").replace("<", "&lt;").replace("$", "&#36;")
    return name if len(queue) <= length else name[: length - 1] + "…"
