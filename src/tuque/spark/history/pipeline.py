"""From event segments to the tables `jobs` and `seconds` and the figures of the report."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tuque.spark import gold, silver
from tuque.spark.engines import Engine, read_events
from tuque.spark.errors import NoEventsError, no_directory
from tuque.spark.history import sql
from tuque.spark.history.foreign import check_segments

Step = Callable[[str], AbstractContextManager[None]]

Span = tuple[str, int, int]  # node, first and last number

SEGMENT = re.compile(r"(?:events|compact)-(.+)-(\d{20})-(\d{20})\.parquet")
NAMES = ".name-"  # files of the nodes' addresses, written by server/events/events.py
QUEUES_MAX = 12  # queues with a line of their own
BUCKETS_MAX = 240  # points on a time axis
ROWS_MAX = 20  # rows of a table of the report
WIDTHS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400]


@dataclass
class Segments:
    """The files to read: sealed segments, and copies of open ones."""

    sealed: list[str]
    hot: list[str]
    running: frozenset[str] = frozenset()  # nodes with a running writer on this machine
    names: dict[str, str] = field(default_factory=dict)  # reported host:port by node

    def size_bytes(self) -> int:
        """The bytes that Spark will read."""
        return sum(Path(name).stat().st_size for name in self.sealed + self.hot)


@dataclass
class Figures:
    """The data of the report. Rows have the columns of the queries in sql.py."""

    first_s: int
    last_s: int
    width_s: int
    total: dict[str, Any]
    queues: list[dict[str, Any]]
    rates: list[dict[str, Any]]
    changes: list[dict[str, Any]]  # in the number of open jobs
    latencies: list[dict[str, Any]]
    returns: list[dict[str, Any]]
    slowest: list[dict[str, Any]]
    dead: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    hot_segments: int
    failing: list[dict[str, Any]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)  # queues with a line of their own, by `place`
    kills: list[tuple[str, float]] = field(default_factory=list)  # node, s since 1970
    names: dict[str, str] = field(default_factory=dict)  # host:port of nodes

    def summary(self) -> dict[str, Any]:
        """The figures for programs, as in summary.json."""
        kept = ("total", "queues", "nodes", "dead", "returns", "first_s", "last_s")
        return {key: value for key, value in asdict(self).items() if key in kept}


def find_segments(events: Path, scratch: Path) -> Segments:
    """The files under that directory; hot segments are copied to `scratch`.

    Raises NoEventsError if there are none, SparkJobError for a foreign file (E4.3).
    """
    if not events.is_dir():
        raise NoEventsError(f"{events}: {no_directory(events)}")
    copies = {
        hot.name: copy for hot in sorted(events.glob(".hot-*")) if (copy := _copy(hot, scratch))
    }
    sealed = whole(sorted(events.glob("date=*/*.parquet")))
    check_segments(sealed)
    spans = [span for path in sealed if (span := span_of(path)) is not None]
    hot = [str(copy) for name, copy in copies.items() if not _is_sealed(name, spans)]
    if not sealed and not hot:
        raise NoEventsError(
            f"{events}: no event segments; does the server run with events=yes and this events-dir?"
        )
    named = events.glob(f"{NAMES}*")
    names = {path.name.removeprefix(NAMES): path.read_text("utf-8").strip() for path in named}
    return Segments([str(path) for path in sealed], hot, running_nodes(events), names)


def running_nodes(events: Path) -> frozenset[str]:
    """Nodes with a running writer process on this machine: it locks `.lock-NODE`."""
    found = []
    for path in events.glob(".lock-*"):
        with suppress(OSError), path.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(path.name.removeprefix(".lock-"))
    return frozenset(found)


def whole(paths: list[Path]) -> list[Path]:
    """The segments among the files, without those that a compact file covers."""
    spans = {path: span for path in paths if (span := span_of(path)) is not None}
    compact = [span for path, span in spans.items() if path.name.startswith("compact-")]
    return [
        path
        for path, (node, first, last) in spans.items()
        if path.name.startswith("compact-")
        or not any(lies_in((node, first, last), span) for span in compact)
    ]


def compacted(events: Path) -> list[Path]:
    """Compact files none of whose segments exist any more."""
    spans = [span for path in events.glob("date=*/events-*.parquet") if (span := span_of(path))]
    return [
        path
        for path in sorted(events.glob("date=*/compact-*.parquet"))
        if (span := span_of(path)) and not any(lies_in(small, span) for small in spans)
    ]


def lies_in(one: Span, other: Span) -> bool:
    """Whether the first range is inside the other, of the same node."""
    return one[0] == other[0] and other[1] <= one[1] and one[2] <= other[2]


def span_of(path: Path) -> Span | None:
    """Node, first and last number of a sealed segment, by its name; None: not one."""
    found = SEGMENT.fullmatch(path.name)
    return (found[1], int(found[2]), int(found[3])) if found else None


def _is_sealed(hot: str, spans: list[Span]) -> bool:
    """Whether an open segment has been sealed meanwhile."""
    node, _, first = hot.removeprefix(".hot-").rpartition("-")
    return any(n == node and a <= int(first) <= b for n, a, b in spans)


def _copy(hot: Path, scratch: Path) -> Path | None:
    """The whole batches of an open segment, as Parquet; None if there are none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    batches = []
    try:
        with pa.OSFile(str(hot), "rb") as source, pa.ipc.open_stream(source) as reader:
            while True:
                batches.append(reader.read_next_batch())
    except (StopIteration, pa.ArrowInvalid, OSError):
        pass  # its end is being written, or it has just been sealed
    if not batches:
        return None
    scratch.mkdir(parents=True, exist_ok=True)
    copy = scratch / (hot.name.lstrip(".") + ".parquet")
    pq.write_table(pa.Table.from_batches(batches), str(copy), coerce_timestamps="us")
    return copy


def build(engine: Engine, segments: Segments, out: Path, step: Step) -> None:
    """Write `jobs` and `seconds` under `out`, by date, replacing older ones.

    Leaves the views `events`, `jobs` and `seconds` in the engine.
    """
    read_events(engine, segments.sealed + segments.hot)
    with step("one row per job"):
        engine.view("ends", silver.ENDS)
        engine.keep("odd", sql.ODD)
        engine.table("jobs", sql.JOBS, out / "jobs")
    with step("redeliveries"):
        engine.keep("again", sql.AGAIN)
    with step("one row per queue and second"):
        engine.table("seconds", sql.SECONDS, out / "seconds")


def build_silver(engine: Engine, files: list[str], out: Path) -> None:
    """Write `silver` under `out`: one row per finished job (SPEC H2)."""
    read_events(engine, files)
    engine.view("ends", silver.ENDS)
    several = engine.keep("twice", silver.TWICE)
    query = silver.ONCE if several else silver.ENDS
    if _keep_whole(engine):
        engine.view("once", query)
        query = sql.SILVER
    engine.table("silver", query, out / "silver")


def _keep_whole(engine: Engine) -> bool:
    """[H1] Keep the jobs that their ends alone do not tell (H1.6); False if there is none."""
    if engine.keep("odd", sql.ODD) == 0:
        return False
    engine.keep("whole", sql.ODD_JOBS)
    return True


def build_gold(engine: Engine, files: list[str], out: Path) -> None:
    """Write `gold` under `out`: one row per queue and minute (SPEC H3)."""
    read_events(engine, files)
    engine.view("ends", silver.ENDS)
    if engine.keep("twice", silver.TWICE):
        engine.keep("extra", silver.EXTRA)
        query = gold.COUNTED_EVENTS
    else:
        query = "SELECT * FROM events"
    if _keep_whole(engine):
        engine.view("once", query)
        query = sql.COUNTED
    engine.view("counted", query)
    engine.table("gold", gold.MINUTES, out / "gold")


def figures(engine: Engine, segments: Segments, step: Step) -> Figures:
    """Query the views of `build` for the report."""

    def rows(query: str, **values: int | str) -> list[dict[str, Any]]:
        return [_plain(row) for row in engine.rows(query.format(**values))]

    with step("is the history whole?"):
        wrote = {row["node"]: row for row in rows(sql.NODES)}
        nodes = [
            _with_its_last_end(row, segments.running) | wrote[row["node"]]
            for row in rows(sql.COMPLETENESS)
        ]
    with step("queues"):
        queues = rows(sql.QUEUES)
        span = rows(sql.SPAN)[0]
    first_s, last_s = span["first_s"] or 0, span["last_s"] or 0
    width_s = bucket_s(last_s - first_s + 1)
    total = next(q for q in queues if q["queue"] is None)
    with step("rates, backlog, latencies"):
        buckets = {"first_s": first_s, "width_s": width_s}
        engine.keep("shown", sql.SHOWN.format(limit=QUEUES_MAX))
        shown = [row["queue"] for row in rows("SELECT * FROM shown ORDER BY place")]
        rates = rows(sql.RATES, **buckets)
        changes = rows(sql.CHANGES, **buckets)
        latencies = rows(sql.LATENCIES, **buckets)
    with step("returns, slowest jobs, dead letters"):
        returns = rows(sql.RETURNS)
        slowest = rows(sql.SLOWEST, limit=ROWS_MAX)
        failing = rows(sql.FAILING, limit=ROWS_MAX)
        reason = sql.plain("reason")
        dead = [_reason(row) for row in rows(sql.DEAD_REASONS, limit=ROWS_MAX, reason=reason)]
    return Figures(
        first_s=first_s,
        last_s=last_s,
        width_s=width_s,
        total={key: value for key, value in total.items() if key != "queue"},
        queues=[q for q in queues if q["queue"] is not None],
        rates=rates,
        changes=changes,
        latencies=latencies,
        returns=returns,
        slowest=slowest,
        dead=dead,
        nodes=nodes,
        hot_segments=len(segments.hot),
        failing=failing,
        shown=shown,
        kills=_kills(rows(sql.KILLS), rows(sql.LAST), nodes),
        names=segments.names,
    )


def _reason(row: dict[str, Any]) -> dict[str, Any]:
    """[H6] The row of a reason of dead letters, or of those that have no row (H6.4)."""
    count = row["reasons"]
    if row["reason"] is None:
        row["reason"] = f"{count:,} other reasons" if count > 1 else "1 other reason"
    return {key: value for key, value in row.items() if key != "line"}


def _kills(
    killed: list[dict[str, Any]], last: list[dict[str, Any]], nodes: list[dict[str, Any]]
) -> list[tuple[str, float]]:
    """Node and instant of each kill, including runs that never ended."""
    found = [(row["node"], row["killed"] / 1e6) for row in killed]
    counts = {node["node"]: node["kills"] for node in nodes}
    for row in last:
        if counts[row["node"]] > sum(node == row["node"] for node, _ in found):
            found.append((row["node"], row["last"] / 1e6))
    return sorted(found, key=lambda kill: kill[1])


def _with_its_last_end(node: dict[str, Any], running: frozenset[str]) -> dict[str, Any]:
    """The node's row; its last run counts as killed if it neither stopped nor runs."""
    ended = {key: value for key, value in node.items() if key != "is_open"}
    if node["is_open"] and node["node"] not in running:
        ended["kills"] += 1
    return ended


def bucket_s(span_s: int) -> int:
    """The bucket width (s) that keeps the time axis within BUCKETS_MAX points."""
    for width in WIDTHS_S:
        if span_s <= width * BUCKETS_MAX:
            return width
    return -(-span_s // BUCKETS_MAX)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The row as JSON values: an instant `x_us` becomes `x_at`, as text (UTC)."""
    return {
        key.removesuffix("_us") + "_at" if key.endswith("_us") else key: _instant(value)
        if key.endswith("_us")
        else value
        for key, value in row.items()
    }


def _instant(us: int | None) -> str | None:
    if us is None:
        return None
    at = datetime.fromtimestamp(us // 1000 / 1000, UTC)
    return at.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
