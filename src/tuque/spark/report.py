"""The report as one HTML page that needs nothing beside itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from tuque.spark import charts
from tuque.spark.pipeline import Figures

STYLE = """
:root { color-scheme: light; --ink: #1c2530; --soft: #5b6673; --line: #dfe4ea; --bad: #b3261e; }
* { box-sizing: border-box; }
html { overflow-y: scroll; }  /* charts are drawn before it is needed, and as wide as without it */
body { margin: 0 auto; max-width: 1180px; padding: 16px; color: var(--ink); background: #f6f7f9;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 8px 0 0; }
h2 { font-size: 1.05rem; margin: 0 0 8px; }
p { margin: 4px 0 12px; color: var(--soft); }
.tiles { display: grid; gap: 10px; grid-template-columns: repeat(4, minmax(0, 1fr)); }
.tile, section { background: #fff; border: 1px solid var(--line); border-radius: 8px; }
.tile { padding: 10px 12px; }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .85rem; }
.tile b { white-space: nowrap; }
.tile.two { grid-column: span 2; }
.tile.bad b { color: var(--bad); }
.grid { display: grid; gap: 12px; margin-top: 12px; grid-template-columns: 1fr 1fr; }
section { padding: 12px; min-width: 0; }
.wide { grid-column: 1 / -1; }
.note { border-left: 4px solid #2e7d32; }
.note.bad { border-left-color: var(--bad); }
.note p { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; }
th, td { padding: 4px 16px 4px 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; }
th.text, td.text { text-align: left; }
td.reason { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
td.id { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .78rem; }
@media (max-width: 760px) { .grid { grid-template-columns: minmax(0, 1fr); } body { padding: 10px; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); } .tile b { font-size: 1.05rem; }
  section { padding: 10px 8px; } }
"""

Column = tuple[str, str, Callable[[dict[str, Any]], str]]  # heading, class of the cells, cell


def html_page(found: Figures) -> str:
    """The whole page."""
    start, end = utc(found.first_s), utc(found.last_s)
    body = [
        "<h1>What happened to the jobs</h1>",
        f"<p>{start} to {end} UTC, {_plural(len(found.queues), 'queue')}, "
        f"{_plural(len(found.nodes), 'node')}</p>",
        f'<div class="tiles">{"".join(tiles(found))}</div>',
        '<div class="grid">',
        completeness(found),
        *chart_sections(found),
        *table_sections(found),
        "</div>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Tuque report, {start}</title><style>{STYLE}</style>"
        f"<script>{charts.script()}</script></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def tiles(found: Figures) -> list[str]:
    """The totals."""
    t = found.total
    numbers = [
        ("jobs", t["jobs"], False),
        ("acked", t["acked"], False),
        ("open", t["open"], False),
        ("dead-lettered", t["dead"], t["dead"] > 0),
        ("expired", t["expired"], t["expired"] > 0),
        ("deleted", t["deleted"], False),
        ("deliveries", t["deliveries"] or 0, False),
        ("redelivered", t["redelivered"] or 0, False),
    ]
    cells = [_tile(name, f"{value:,}", " bad" if is_bad else "") for name, value, is_bad in numbers]
    cells.append(_tile("median / 99 % wait", _median_and_tail(t["wait_ms"]), " two"))
    cells.append(_tile("median / 99 % process", _median_and_tail(t["process_ms"]), " two"))
    return cells


def completeness(found: Figures) -> str:
    """Whether the history is whole, and what is missing if not."""
    lines = []
    for node in found.nodes:
        name = f"Node {escape(node['node'])}"
        if node["missing"]:
            lines.append(
                f"{name}: {node['missing']:,} of {node['missing'] + node['events']:,} events are "
                "missing (dropped by a full buffer, or lost with a segment). Counts are too low."
            )
        if node["kills"]:
            lines.append(
                f"{name} was killed {_plural(node['kills'], 'time')}: "
                "its events of the last moments (20 ms) before that may be missing."
            )
        if node["first_seq"] > 0:
            lines.append(
                f"{name}: the history begins at event {node['first_seq']:,}; older ones are gone."
            )
    if found.hot_segments:
        lines.append("A segment is still being written: the newest events may be missing.")
    bad = " bad" if any(n["missing"] or n["kills"] for n in found.nodes) else ""
    events = sum(node["events"] for node in found.nodes)
    text = "<br>".join(lines) or f"The history is complete: {events:,} events, no number missing."
    return f'<section class="wide note{bad}"><p>{text}</p></section>'


def chart_sections(found: Figures) -> list[str]:
    """Rates, backlog, latencies, and what went wrong."""
    sections = [
        _section("Rates", charts.rates(found), wide=True),
        _section("Backlog", charts.backlog(found)),
        _section("Redelivered and dead", charts.troubles(found)),
        _section("Wait: from due to first delivery", charts.latencies(found, "wait_ms")),
        _section("Process: from last delivery to the end", charts.latencies(found, "process_ms")),
    ]
    if found.returns:
        title = "Why jobs went back into their queue"
        sections.append(_section(title, charts.returns(found), wide=True))
    return sections


def table_sections(found: Figures) -> list[str]:
    """Queues, dead letters, slowest jobs."""
    queues: list[Column] = [
        ("queue", "text", lambda r: escape(r["queue"])),
        *[_count(name) for name in ("jobs", "acked", "dead", "expired", "deleted", "open")],
        _count("redelivered"),
        ("wait 50 / 95 / 99 %", "", lambda r: _three(r["wait_ms"])),
        ("process 50 / 95 / 99 %", "", lambda r: _three(r["process_ms"])),
    ]
    dead: list[Column] = [
        ("queue", "text", lambda r: escape(r["queue"])),
        ("reason", "text reason", lambda r: escape(r["reason"])),
        _count("jobs"),
        ("latest", "text", lambda r: r["latest_at"] or ""),
        ("job", "text id", lambda r: escape(r["latest_job"] or "")),
    ]
    slowest: list[Column] = [
        ("job", "text id", lambda r: escape(r["job_id"])),
        ("queue", "text", lambda r: escape(r["queue"])),
        ("outcome", "text", lambda r: r["outcome"]),
        _count("deliveries"),
        ("wait", "", lambda r: duration(r["wait_ms"])),
        ("process", "", lambda r: duration(r["process_ms"])),
        ("in all", "", lambda r: duration(r["total_ms"])),
    ]
    failing: list[Column] = [
        ("job", "text id", lambda r: escape(r["job_id"])),
        ("queue", "text", lambda r: escape(r["queue"])),
        ("outcome", "text", lambda r: r["outcome"]),
        _count("deliveries"),
        _count("nacks"),
        _count("timeouts"),
        ("reason", "text reason", lambda r: escape(r["reason"] or "")),
    ]
    nodes: list[Column] = [
        ("node", "text id", lambda r: escape(r["node"])),
        *[_count(name) for name in ("added", "delivered", "acked", "returned", "dead")],
        _count("events"),
        _count("missing"),
        _count("kills"),
    ]
    sections = [_section("Queues", _table(queues, found.queues), wide=True)]
    sections.append(_section("Nodes", _table(nodes, found.nodes), wide=True))
    if found.dead:
        sections.append(_section("Dead letters", _table(dead, found.dead), wide=True))
    if found.slowest:
        sections.append(_section("Slowest jobs", _table(slowest, found.slowest), wide=True))
    if found.failing:
        sections.append(_section("Most failing jobs", _table(failing, found.failing), wide=True))
    return sections


def duration(ms: float | None) -> str:
    """Milliseconds for a person, three digits: '0 ms', '18.5 ms', '2.31 s', '12 min 5 s'."""
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


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _tile(name: str, value: str, kind: str) -> str:
    return f'<div class="tile{kind}"><b>{value}</b><span>{name}</span></div>'


def _section(title: str, content: str, *, wide: bool = False) -> str:
    return f"<section{' class=wide' if wide else ''}><h2>{title}</h2>{content}</section>"


def _table(columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> str:
    head = "".join(f'<th class="{kind}">{name}</th>' for name, kind, _ in columns)
    lines = [
        "<tr>" + "".join(f'<td class="{kind}">{cell(row)}</td>' for _, kind, cell in columns)
        for row in rows
    ]
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{'</tr>'.join(lines)}</tr></tbody></table></div>"
    )


def _count(name: str) -> Column:
    return name, "", lambda row: f"{row.get(name) or 0:,}"


def _three(values: list[float] | None) -> str:
    return " / ".join(duration(v) for v in values) if values else ""


def _median_and_tail(values: list[float] | None) -> str:
    return f"{duration(values[0])} / {duration(values[2])}" if values else "none"
