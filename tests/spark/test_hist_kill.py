"""SPEC H4.1: the driver of a stream is killed, several times, and the table is whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from spark_history import START_MS, deliver, make_job

from tuque.spark.history.duck import DuckEngine
from written import Written

SEGMENTS = 14
JOBS = 200  # of a segment
KILLS = 2
DEADLINE_S = 600.0


def write_segments(directory: Path) -> None:
    """A segment every 10 s of history, with jobs that begin and end in it."""
    for number in range(SEGMENTS):
        base = number * 10_000
        log = Written(directory, "n1")
        events = log.start(START_MS + base)
        for i in range(JOBS):
            job = make_job(f"{number}-{i}", b"q", base + i)
            events.added(START_MS + base + i, job)
            deliver(events, job, base + i)
            events.acked(START_MS + base + i, job)
        log.close(events, START_MS + base + 9_000)


def stream(table: str, place: Path) -> subprocess.Popen[str]:
    """The command, one segment in a batch, in a process group of its own."""
    where = ["--events", str(place / "events"), "--out", str(place / "out")]
    how = ["--stream", "--once", "--files", "1", "--memory", "1g"]
    how += ["--watermark", "10 seconds"] if table == "gold" else []
    return subprocess.Popen(
        [sys.executable, "-m", "tuque", "spark", table, *where, *how],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def kill_after(running: subprocess.Popen[str], batches: int) -> int:
    """kill -9 of driver and JVM once that many batches are told; how many were told."""
    assert running.stderr is not None
    timer = threading.Timer(DEADLINE_S, os.killpg, (running.pid, signal.SIGKILL))
    timer.start()
    told = 0
    for line in running.stderr:
        told += line.startswith("batch ")
        if told == batches:
            os.killpg(running.pid, signal.SIGKILL)
            break
    timer.cancel()
    running.stderr.close()
    running.wait()
    return told


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("table", ["silver", "gold"])
def test_a_killed_stream_goes_on(tmp_path: Path, table: str) -> None:
    """H4.1, H4.2: kill -9 in the middle, then to the end: no row is missing, none is twice."""
    write_segments(tmp_path / "events")
    told = 0
    for kill in range(KILLS):
        count = kill_after(stream(table, tmp_path), 2)
        assert count == 2, f"kill {kill}: the stream told {count} batches"
        told += count
        assert told < SEGMENTS, "nothing is left to do after the kill"
    began = time.monotonic()
    last = stream(table, tmp_path)
    _, said = last.communicate(timeout=DEADLINE_S)
    assert last.returncode == 0, said
    rows = spark_rows(tmp_path / "out" / table)
    print(f"{KILLS} kills, {len(rows)} rows, the last run {time.monotonic() - began:.0f} s")
    if table == "silver":
        assert len(rows) == len(set(rows)) == SEGMENTS * JOBS
    else:  # three minutes, and the last is open
        assert sorted(rows) == ["00:00:00 1200", "00:01:00 1200"]


def spark_rows(table: Path) -> list[str]:
    """What the log of the table says is in it, without a session of our own."""
    files = listed(table)
    with DuckEngine() as duck:
        if table.name == "silver":
            columns = "job_id STRING"
            query = "SELECT job_id AS one FROM t"
        else:
            columns = "minute TIMESTAMP, acked BIGINT"
            query = "SELECT strftime(minute, '%H:%M:%S') || ' ' || acked AS one FROM t"
        duck.read("t", files, columns)
        return [str(row["one"]) for row in duck.rows(query)]


def listed(table: Path) -> list[str]:
    """The files that the log of a streamed table names."""
    found: set[str] = set()
    logs = [p for p in (table / "_spark_metadata").iterdir() if not p.name.startswith(".")]
    for log in logs:
        for line in log.read_text().splitlines()[1:]:
            found.add(json.loads(line)["path"].removeprefix("file://"))
    return sorted(found)
