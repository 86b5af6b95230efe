"""The commands that make tables and reports, as a person types them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from both_ways import NO_BYTECODE

pytest.importorskip("duckdb")

import pyarrow.parquet as pq
from click.testing import CliRunner, Result

from lab import RealServer
from tuque.main import tuque
from tuque.spark.history import pipeline
from tuque.spark.history.duck import DuckEngine
from tuque.spark.history.streams import LOG
from until import until
from verify_command import verify


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(tuque, [str(word) for word in words])


def test_the_report_of_one_machine(history: Path, tmp_path: Path) -> None:
    """The lines, tables and page of `tuque spark report`, and neither Spark nor Java."""
    out = tmp_path / "out"
    code = (
        "import sys; from tuque.spark.cli.report import report\n"
        "try: report()\n"
        "finally: assert not any(m.split('.')[0] == 'pyspark' for m in sys.modules)\n"
    )
    where = ["--events", str(history), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", code, *where],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "8 jobs in 6 s: 3 acked, 1 dead, 1 expired, 1 deleted, 0 cancelled, 2 open",
        "7 deliveries, 2 of them again",
        f"report: {out / 'report.html'}",
    ]
    assert json.loads((out / "summary.json").read_text())["total"]["acked"] == 3
    for table in ("jobs", "seconds"):
        assert list((out / table).glob("date=2026-01-01/*.parquet"))
    page = (out / "report.html").read_text()
    for title in ("Nodes", "Most failing jobs", "Slowest jobs", "Dead letters"):
        assert f"<h2>{title}" in page


@pytest.mark.parametrize("table", ["silver", "gold"])
def test_tables_by_duckdb(history: Path, tmp_path: Path, table: str) -> None:
    """Twice gives what once gives."""
    for _ in range(2):
        result = run("spark", table, "--events", history, "--out", tmp_path, "--engine", "duckdb")
        assert result.exit_code == 0, result.output
    assert len(list((tmp_path / table).glob("date=2026-01-01/*.parquet"))) == 1


@pytest.mark.parametrize("table", ["silver", "gold"])
def test_what_is_no_choice(history: Path, tmp_path: Path, table: str) -> None:
    """H4.5, and options that contradict each other: one line, and what to do."""
    where = ["spark", table, "--events", history, "--out", tmp_path]
    for words, said in (
        (["--stream", "--engine", "duckdb"], "--stream needs --engine spark"),
        (["--once"], "--once goes with --stream"),
    ):
        result = run(*where, *words)
        assert (result.exit_code, said in result.output) == (2, True), result.output
    (tmp_path / table / LOG).mkdir(parents=True)
    result = run(*where, "--engine", "duckdb")
    assert result.exit_code == 1
    assert "is written by a stream" in result.output
    shutil.rmtree(tmp_path / table)
    (tmp_path / table / "date=2026-01-01").mkdir(parents=True)
    result = run(*where, "--stream", "--once")
    assert result.exit_code == 1
    assert "was written at once" in result.output


def test_a_damaged_segment_is_told_in_one_line(history: Path, tmp_path: Path) -> None:
    (segment,) = history.glob("date=*/*.parquet")
    (tmp_path / segment.parent.name).mkdir()
    damaged = tmp_path / segment.parent.name / segment.name
    damaged.write_bytes(segment.read_bytes()[:-100])
    result = run("report", "--events", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "duckdb failed" in result.output
    assert "copy it again, or move it out of the directory" in result.output
    assert damaged.name in result.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.select(["ts", "queue"]), "it has no column seq"),
        (lambda t: t.drop_columns(["job_id"]), "it has no column job_id"),
        (lambda t: t.set_column(0, "seq", t["event"]), "its column seq is string"),
        (lambda t: t.set_column(1, "ts", t["seq"]), "its column ts is int64"),
        (lambda t: t.set_column(2, "node", t["seq"]), "its column node is int64"),
    ],
)
def test_a_file_that_is_only_named_like_a_segment(
    history: Path, tmp_path: Path, change: Callable[[Any], Any], said: str
) -> None:
    """E4.3 A report, a table made at once, verify and compaction then end with an error that names
    the file and the column."""
    events, out = tmp_path / "events", tmp_path / "out"
    shutil.copytree(history, events)
    (segment,) = events.glob("date=*/*.parquet")
    table = pq.read_table(segment)
    assert table.schema.names[:3] == ["seq", "ts", "node"]
    foreign = segment.with_name(f"events-other-{0:020d}-{9:020d}.parquet")
    pq.write_table(change(table), foreign)
    shutil.copy(foreign, segment.with_name(f"events-other-{10:020d}-{19:020d}.parquet"))
    (tmp_path / "clients.jsonl").touch()
    for words in (
        ["report", "--events", events, "--out", out],
        ["spark", "silver", "--events", events, "--out", out, "--engine", "duckdb"],
        ["compact", "--events", events],
        [],
    ):
        judge = ["--clients", str(tmp_path), "--events", str(events)]
        result = run(*words) if words else CliRunner().invoke(verify, judge)
        assert (result.exit_code, str(foreign) in result.output) == (1, True), result.output
        assert f"it is named like an event segment and is none: {said}" in result.output


def test_no_events_is_a_clear_error(tmp_path: Path) -> None:
    result = run("report", "--events", tmp_path / "none", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "no such directory" in result.output
    (tmp_path / "file").touch()
    for command in ("compact", "report"):
        out = ("--out", tmp_path / "out") if command == "report" else ()
        result = run(command, "--events", tmp_path / "file", *out)
        assert result.exit_code != 0
        assert "a file, not the directory of the events" in result.output


@pytest.mark.parametrize("memory", ["1x", "banana", "-1", "0g", "2", "9" * 30 + "g", "1e3g"])
def test_a_size_of_memory_that_is_none(history: Path, tmp_path: Path, memory: str) -> None:
    result = run("report", "--events", history, "--out", tmp_path / "out", f"--memory={memory}")
    assert result.exit_code == 1
    told = f"Error: --memory {memory}: no size of memory. Give a number and k, m, g or t, as 512m"
    assert told in result.output
    result = run("spark", "report", "--events", history, "--out", tmp_path, f"--memory={memory}")
    assert (result.exit_code, told in result.output) == (1, True), "before Spark starts"


@pytest.mark.parametrize("memory", ["512m", "1.5G", "999999t", "2gb"])
def test_sizes_of_memory(memory: str) -> None:
    DuckEngine(memory).base.close()


@pytest.mark.parametrize("blocks, name", [(1, "jobs"), (8, "report.html")])
def test_a_report_that_cannot_be_written_is_named(
    history: Path, tmp_path: Path, blocks: int, name: str
) -> None:
    """The error names the output and the reason, and blames no segment."""
    out = tmp_path / "out"
    words = ["report", "--events", history, "--out", out]
    command = f'ulimit -f {blocks}; exec "$@" 2>&1 | cat; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", command, "", sys.executable, "-m", "tuque", *map(str, words)],
        capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"PYTHONPATH": ":".join(sys.path)} | NO_BYTECODE,
    )  # fmt: skip
    assert done.returncode == 1
    told = done.stdout.splitlines()[-1]
    assert told == f"Error: {out / name} could not be written: File too large", told


def test_what_was_compacted_counts_once(history: Path, tmp_path: Path) -> None:
    """H4.6: a day that was compacted while its segments are still there."""
    (segment,) = history.glob("date=*/*.parquet")
    folder = tmp_path / segment.parent.name
    folder.mkdir()
    names = ["events-n1-{:020d}-{:020d}.parquet".format(*span) for span in ((0, 9), (10, 24))]
    names += [f"compact-n1-{0:020d}-{24:020d}.parquet", "notes.parquet"]
    names += [f"events-n10-{0:020d}-{9:020d}.parquet"]
    for name in names:
        shutil.copy(segment, folder / name)
    found = pipeline.find_segments(tmp_path, tmp_path / "scratch")
    assert [Path(name).name[:10] for name in found.sealed] == ["compact-n1", "events-n10"]


def nodes_of(events: Path, out: Path) -> list[dict[str, Any]]:
    """What the report says of each node."""
    assert run("report", "--events", events, "--out", out).exit_code == 0
    found = json.loads((out / "summary.json").read_text())["nodes"]
    assert isinstance(found, list)
    return found


def test_a_node_that_was_killed_and_did_not_come_back(tmp_path: Path) -> None:
    """E2.1: nothing follows its last start; while it runs that is no kill."""
    events = tmp_path / "events"
    words = ("--events", "yes", "--events-dir", str(events), "--events-roll-seconds", "1")
    server = RealServer(tmp_path, *words).start()
    try:
        server.wire().add("q", "body")
        until(lambda: bool(list(events.glob("date=*/*.parquet"))), "no segment", most_s=30)
        assert [node["kills"] for node in nodes_of(events, tmp_path / "out")] == [0]
        server.kill()
        until(lambda: not pipeline.running_nodes(events), "its writer goes on", most_s=30)
        assert [node["kills"] for node in nodes_of(events, tmp_path / "out")] == [1]
        assert "was killed once:" in (tmp_path / "out" / "report.html").read_text()
        sealed = len(list(events.glob("date=*/*.parquet")))
        server.start()
        until(lambda: len(list(events.glob("date=*/*.parquet"))) > sealed, "no segment", most_s=30)
        assert [node["kills"] for node in nodes_of(events, tmp_path / "out")] == [1]
    finally:
        server.end()
