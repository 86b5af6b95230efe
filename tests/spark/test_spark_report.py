"""The page and the command `tuque spark report`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("plotly")

from click.testing import CliRunner

from tuque.spark import charts, report
from tuque.spark.cmd import spark as spark_group
from tuque.spark.pipeline import Figures


def figures() -> Figures:
    queue = {
        "jobs": 1234, "acked": 1200, "dead": 3, "expired": 1, "deleted": 0, "open": 30,
        "deliveries": 1300, "redelivered": 66, "redelivered_jobs": 60,
        "wait_ms": [1.5, 20.0, 61_000.0], "process_ms": [100.0, 1500.0, None],
    }  # fmt: skip
    queue["process_ms"] = [100.0, 1500.0, 2000.0]
    job = {
        "job_id": "D-slow", "queue": "<q>", "outcome": "acked", "added_at": "2026-01-01 00:00:00",
        "deliveries": 2, "wait_ms": 5.0, "process_ms": None, "total_ms": 7_260_000.0,
    }  # fmt: skip
    rate = {"added": 5, "delivered": 5, "acked": 4, "redelivered": 2, "dead": 1}
    return Figures(
        first_s=1_767_225_600,
        last_s=1_767_225_609,
        width_s=5,
        total=queue,
        queues=[{**queue, "queue": "<q>"}],
        rates=[{"bucket": 1, **rate}],
        backlog=[{"queue": "<q>", "bucket": 0, "backlog": 7}],
        latencies=[{"bucket": 0, "wait_ms": [1.0, 2.0, 3.0], "process_ms": None}],
        returns=[{"queue": "<q>", "cause": "timeout", "returns": 9}],
        slowest=[job],
        dead=[
            {"queue": "<q>", "reason": "<script>alert(1)</script>", "jobs": 3,
             "latest_at": "2026-01-01 00:00:05.400", "latest_job": "D-dead"}
        ],
        nodes=[
            {"node": "n1", "first_seq": 0, "last_seq": 99, "events": 90, "missing": 10, "kills": 0}
        ],
        hot_segments=0,
    )  # fmt: skip


def without_plotly(page: str) -> str:
    return page.replace(charts.script(), "")


def test_the_page_has_the_figures() -> None:
    page = without_plotly(report.html_page(figures()))
    for text in ("1,234", "1,200", "66", "2026-01-01 00:00:00", "1.5 ms / 20 ms / 1 min 1 s"):
        assert text in page
    assert "10 of 100 events are missing" in page
    assert "2 h 1 min" in page
    for title in ("Rates", "Backlog", "Wait", "Process", "Dead letters", "Slowest jobs"):
        assert f"<h2>{title}" in page
    assert page.count("Plotly.newPlot") == 6


def test_the_page_needs_no_network_and_fits_a_phone() -> None:
    page = without_plotly(report.html_page(figures()))
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert 'name="viewport"' in page


def test_names_and_reasons_are_only_text() -> None:
    page = without_plotly(report.html_page(figures()))
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "<q>" not in page
    assert "<td" in page and "&lt;q&gt;" in page


def test_a_whole_history_says_so() -> None:
    found = figures()
    found.nodes[0]["missing"] = 0
    assert "The history is complete: 90 events" in report.completeness(found)
    found.nodes[0]["kills"] = 2
    assert "n1 was killed 2 times" in report.completeness(found)


def test_levels_hold_until_they_change_and_small_queues_are_summed() -> None:
    found = figures()
    names = [f"q{i}" for i in range(10)]
    found.queues = [{**found.total, "queue": name} for name in names]
    found.last_s = found.first_s + 14
    found.backlog = [{"queue": n, "bucket": i % 2, "backlog": i} for i, n in enumerate(names)]
    levels = charts._levels(found)
    assert list(levels) == [*names[:7], "other"]
    assert levels["q3"] == [0, 3, 3]
    assert levels["other"] == [8, 24, 24]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, ""), (0.0, "0 ms"), (18.52, "18.5 ms"), (2310.0, "2.31 s"), (725_000.0, "12 min 5 s")],
)
def test_durations(ms: float | None, text: str) -> None:
    assert report.duration(ms) == text


@pytest.mark.parametrize("make", [False, True])
def test_no_events_is_a_clear_error(tmp_path: Path, make: bool) -> None:
    events = tmp_path / "none"
    if make:
        events.mkdir()
    result = CliRunner().invoke(
        spark_group, ["report", "--events", str(events), "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 2
    assert str(events) in result.output
    assert ("no event segments" if make else "no such directory") in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_the_command_writes_everything(history: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = "from tuque.spark.cmd import spark; spark()"
    arguments = ["report", "--events", str(history), "--out", str(out), "--memory", "1g"]
    run = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        env=dict(os.environ),
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "8 jobs in 6 s: 3 acked, 1 dead, 1 expired, 1 deleted, 2 open",
        "7 deliveries, 2 of them again",
        f"report: {out / 'report.html'}",
    ]
    assert run.stderr.count("\n") == 8, "a line for each step, and nothing of the JVM"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["total"]["acked"] == 3
    assert summary["nodes"][0]["missing"] == 0
    assert list((out / "jobs").glob("date=2026-01-01/*.parquet"))
    assert list((out / "seconds").glob("date=2026-01-01/*.parquet"))
    page = without_plotly((out / "report.html").read_text())
    assert "ValueError: &lt;b&gt;no&lt;/b&gt;" in page
