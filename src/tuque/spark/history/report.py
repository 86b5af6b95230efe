"""The report as one self-contained HTML page.

Tables and texts are made here; in the browser report.js draws the charts from charts.data().
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from tuque import __version__
from tuque.spark.history import charts
from tuque.spark.history.pipeline import Figures

Column = tuple[str, str, Callable[[dict[str, Any]], str]]  # heading, class of the cells, cell
QUEUE: Column = ("queue", "text", lambda r: _queue(r["queue"]))
REASON: Column = ("reason", "text reason", lambda r: escape(r["reason"] or ""))
TILES = (
    ("jobs", "jobs"),
    ("acked", "acked"),
    ("open", "open"),
    ("dead", "dead-lettered"),
    ("expired", "expired"),
    ("deleted", "deleted"),
    ("cancelled", "cancelled"),
    ("deliveries", "deliveries"),
    ("redelivered", "redelivered"),
)
BAD = ("dead", "expired")
OF_QUEUES = "jobs acked dead expired deleted cancelled open".split()
BY_EVENTS = "<small>events of each</small>"
NOTES = (
    (
        "open",
        "Jobs without an end: neither acked, dead-lettered, expired, deleted nor cancelled. They "
        "wait, are being worked on, or their end was lost with a node that was killed.",
    ),
    (
        "redelivered",
        "Deliveries of a job that were not its first, on whichever node. The tile, the bars, the "
        "causes and the column of the queues count the same ones. A job that went back into its "
        "queue and was not handed out again is not counted.",
    ),
    (
        "cause of a redelivery",
        "The last reason before it why the job went back: nack (a consumer gave it back), timeout "
        "(its retry time passed), lease (a lease ended), command (ENQUEUE).",
    ),
    ("wait", "From the moment when the job was due to its first delivery."),
    (
        "process",
        "From the last delivery to the end, of acked and dead-lettered jobs. It has the time that "
        "a job lay in a worker before the worker began with it.",
    ),
    ("50 / 95 / 99 % / most", "So many of the jobs took as long or less; most: the longest time."),
    (
        "missing",
        "Events whose numbers no segment has: dropped while the disk was too slow, or lost with a "
        "segment. What was not written when a node was killed has no number.",
    ),
    (
        "dead-lettered",
        "The job was given up: it has ended, and counts once, in the queue where it died. What "
        "is read from the queue of dead letters counts there as deliveries, not as jobs.",
    ),
    ("dead letters", "Reasons are grouped without paths, addresses, job ids and long numbers."),
)


def html_page(found: Figures) -> str:
    """The whole page."""
    start, end = _time(found.first_s), _time(found.last_s)
    body = [
        "<h1>What happened to the jobs</h1>",
        f"<p>{_plural(len(found.queues), 'queue')} on {_nodes(found)}, "
        f"{start} to {end} <span data-zone>UTC</span>. Made by Tuque {__version__}.</p>",
        verdict(found),
        choices(found),
        f'<div class="tiles">{"".join(tiles(found))}</div>',
        '<div class="grid">',
        *chart_sections(found),
        *table_sections(found),
        _section("What the words mean", notes(), wide=True),
        "</div>",
    ]
    data = charts.data(found)
    data["tiles"] = {key: tile_values(found, key) for key in ("", *data["queues"])}
    script = _part("report.js")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Tuque report, {utc(found.first_s)}</title><style>{_part('report.css')}</style>"
        "</head><body>\n"
        + "\n".join(body)
        + f'\n<script type="application/json" id="data">{_json(data)}</script>'
        + f"\n<script>{script}</script></body></html>\n"
    )


def policy(script: str) -> str:
    """[H6] What the browser may do for the page: run that script, and load nothing (H6.6)."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _part(name: str) -> str:
    return (files("tuque.spark.history") / name).read_text("utf-8")


def _json(value: Any) -> str:
    """JSON that cannot close its element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _nodes(found: Figures) -> str:
    names = [charts.node_name(found, node["node"]) for node in found.nodes]
    told = ", ".join(names) if len(names) <= 5 else f"{names[0]} and {len(names) - 1} others"
    return f"{_plural(len(names), 'node')} ({escape(told)})"


def verdict(found: Figures) -> str:
    """The headline: whether anything is lost, and whether the history is complete."""
    t = found.total
    ended = t["jobs"] - t["open"]
    missing = sum(node["missing"] for node in found.nodes)
    lines = completeness(found)
    is_whole = not missing and not len(found.kills) and not lines
    is_bad = missing > 0
    accounted = f"{_plural(t['jobs'], 'job')}: {ended:,} ended, {t['open']:,} open"
    if is_bad:
        headline = f"Not all is known: {_plural(missing, 'event')} missing. {accounted}."
    elif t["open"]:
        headline = f"No loss is known. {accounted}."
    else:
        headline = f"Nothing was lost: all {accounted}."
    again = (
        f"{_plural(t['redelivered'], 'delivery', 'deliveries')} came again"
        if t["redelivered"]
        else "No job was delivered twice"
    )
    kills = f"; {_plural(len(found.kills), 'kill')} survived" if found.kills else ""
    events = sum(node["events"] for node in found.nodes)
    whole = f"The history is complete: {events:,} events, no number missing."
    rest = "<br>".join(lines) if not is_whole else whole
    return (
        f'<section class="verdict{" bad" if is_bad else ""}"><b>{headline}</b>'
        f"<p>{again}{kills}. {rest}</p></section>"
    )


def completeness(found: Figures) -> list[str]:
    """What is or may be missing in the history; empty if it is complete."""
    lines = []
    for node in found.nodes:
        name = f"Node {escape(charts.node_name(found, node['node']))}"
        if node["missing"]:
            lines.append(
                f"{name}: {node['missing']:,} of {node['missing'] + node['events']:,} events are "
                "missing (dropped by a full buffer, or lost with a segment). Counts are too low."
            )
        if node["kills"]:
            times = "once" if node["kills"] == 1 else f"{node['kills']} times"
            lines.append(
                f"{name} was killed {times}: "
                "its events of the last moments (20 ms) before that may be missing."
            )
        if node["first_seq"] > 0:
            lines.append(
                f"{name}: the history begins at event {node['first_seq']:,}; older ones are gone."
            )
    if found.hot_segments:
        lines.append("A segment is still being written: the newest events may be missing.")
    return lines


def choices(found: Figures) -> str:
    """Queue, time zone, light or dark."""
    queues = "".join(
        f'<option value="{key}" title="{escape(name)}">{escape(charts.short(name))}</option>'
        for key, name in charts.names(found).items()
    )
    return (
        '<div class="bar">'
        f'<label>Queue <select id="queue"><option value="">all</option>{queues}</select></label>'
        '<label>Times <select id="zone"><option value="utc">UTC</option>'
        '<option value="local">of this machine</option></select></label>'
        '<label>Look <select id="theme"><option value="">as the system</option>'
        '<option value="light">light</option><option value="dark">dark</option></select></label>'
        "</div>"
    )


def tiles(found: Figures) -> list[str]:
    """The totals."""
    values = tile_values(found, charts.ALL)
    cells = [
        _tile(key, name, values[key], " bad" if key in BAD and found.total[key] else "")
        for key, name in TILES
    ]
    for key in ("wait", "process"):
        cells.append(_tile(key, f"{key}: median / 99 %", values[key], " two"))
    return cells


def tile_values(found: Figures, key: str) -> dict[str, str]:
    """The texts of the tiles for one queue, for all others, or for all."""
    chosen = dict(enumerate(found.shown))
    if key == charts.ALL:
        rows = [found.total]
    elif key == charts.OTHERS:
        rows = [row for row in found.queues if row["queue"] not in found.shown]
    else:
        rows = [row for row in found.queues if row["queue"] == chosen[int(key)]]
    values = {name: f"{sum(row[name] or 0 for row in rows):,}" for name, _ in TILES}
    for what in ("wait", "process"):
        is_one = len(rows) == 1
        values[what] = _median_and_tail(rows[0][f"{what}_ms"]) if is_one else "see the chart"
    return values


def chart_sections(found: Figures) -> list[str]:
    """Rates, open jobs, latencies, and what went wrong."""
    each = "per s" if found.width_s == 1 else f"per s, mean of {width(found)}"
    bars = f"in {width(found)}"
    sections = [
        _chart("rates", "Rates", each, wide=True),
        _chart("open", "Open jobs", "at the end of " + ("the second" if each == "per s" else bars)),
        _chart("troubles", "Redelivered and dead", bars),
        _chart("wait", "Wait", "from due to first delivery; log scale"),
        _chart("process", "Process", "from last delivery to the end; log scale"),
    ]
    if found.returns:
        sections.append(_chart("causes", "Why jobs were redelivered", "", wide=True))
    return sections


def _chart(key: str, title: str, unit: str, *, wide: bool = False) -> str:
    return _section(f"{title} <small>{unit}</small>", f'<div data-chart="{key}"></div>', wide=wide)


def notes() -> str:
    """Explanations of the terms on the page."""
    lines = "".join(f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in NOTES)
    return f'<dl class="notes">{lines}</dl>'


def table_sections(found: Figures) -> list[str]:
    """Queues, dead letters, slowest jobs."""
    queues: list[Column] = [
        QUEUE,
        *[_count(name) for name in OF_QUEUES],
        _count("redelivered"),
        ("wait 50 / 95 / 99 % / most", "", lambda r: _all(r["wait_ms"])),
        ("process 50 / 95 / 99 % / most", "", lambda r: _all(r["process_ms"])),
    ]
    dead: list[Column] = [
        QUEUE,
        REASON,
        _count("jobs"),
        ("latest (UTC)", "text", lambda r: r["latest_at"] or ""),
        ("job", "text id", lambda r: escape(r["latest_job"] or "")),
    ]
    slowest: list[Column] = [
        ("job", "text id", lambda r: escape(r["job_id"])),
        QUEUE,
        ("outcome", "text", lambda r: r["outcome"]),
        _count("deliveries"),
        ("wait", "", lambda r: duration(r["wait_ms"])),
        ("process", "", lambda r: duration(r["process_ms"])),
        ("in all", "", lambda r: duration(r["total_ms"])),
    ]
    failing: list[Column] = [
        ("job", "text id", lambda r: escape(r["job_id"])),
        QUEUE,
        ("outcome", "text", lambda r: r["outcome"]),
        _count("redelivered"),
        _count("nacks"),
        REASON,
    ]
    nodes: list[Column] = [
        ("node", "text", lambda r: escape(charts.node_name(found, r["node"]))),
        *[_count(name) for name in ("added", "delivered", "acked", "dead")],
        _count("events"),
        _count("missing"),
        _count("kills"),
        ("id", "text id", lambda r: escape(r["node"])),
    ]
    sections = [_section("Queues", _table(queues, found.queues), wide=True)]
    sections.append(_section(f"Nodes {BY_EVENTS}", _table(nodes, found.nodes), wide=True))
    if found.dead:
        sections.append(_section("Dead letters", _table(dead, _reasons(found)), wide=True))
    if found.slowest:
        sections.append(_section("Slowest jobs", _table(slowest, found.slowest), wide=True))
    if found.failing:
        sections.append(_section("Most failing jobs", _table(failing, found.failing), wide=True))
    return sections


def _reasons(found: Figures) -> list[dict[str, Any]]:
    """The rows of dead letters; that of all other queues has their common name."""
    others = charts.names(found).get(charts.OTHERS, "")
    return [row | {"queue": others} if row["queue"] is None else row for row in found.dead]


def width(found: Figures) -> str:
    """A bucket width for people: '5 s', '10 min', '6 h'."""
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if found.width_s % unit_s == 0:
            return f"{found.width_s // unit_s} {unit}"
    return f"{found.width_s} s"


def duration(ms: float | None) -> str:
    """Milliseconds for people, three digits: '0 ms', '18.5 ms', '2.31 s', '12 min 5 s'."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms:.3g} ms"
    if ms < 60_000:
        return f"{ms / 1000:.3g} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def utc(seconds: int) -> str:
    """The instant as date and time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _time(seconds: int) -> str:
    return f'<time data-s="{seconds}">{utc(seconds)}</time>'


def _plural(count: int, noun: str, several: str = "") -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {several or noun + 's'}"


def _tile(key: str, name: str, value: str, kind: str) -> str:
    return f'<div class="tile{kind}"><b data-tile="{key}">{value}</b><span>{name}</span></div>'


def _section(title: str, content: str, *, wide: bool = False) -> str:
    return f"<section{' class=wide' if wide else ''}><h2>{title}</h2>{content}</section>"


def _table(columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> str:
    head = "".join(f'<th class="{kind}">{name}</th>' for name, kind, _ in columns)
    lines = [
        _row(row) + "".join(f'<td class="{kind}">{cell(row)}</td>' for _, kind, cell in columns)
        for row in rows
    ]
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{'</tr>'.join(lines)}</tr></tbody></table></div>"
    )


def _count(name: str) -> Column:
    return name, "", lambda row: f"{row.get(name) or 0:,}"


def _row(row: dict[str, Any]) -> str:
    """A row of a table; rows of queues can be filtered."""
    return f'<tr data-queue="{escape(row["queue"])}">' if "queue" in row else "<tr>"


def _queue(name: str) -> str:
    """The name in a cell; all of a long one is its title."""
    short = charts.short(name)
    if short == name:
        return escape(name)
    return f'<span title="{escape(name)}">{escape(short)}</span>'


def _all(values: list[float] | None) -> str:
    return " / ".join(duration(v) for v in values) if values else ""


def _median_and_tail(values: list[float] | None) -> str:
    return f"{duration(values[0])} / {duration(values[2])}" if values else "none"
