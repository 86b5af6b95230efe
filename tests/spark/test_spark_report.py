"""The page and the command `tuque spark report`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tuque.spark.cli.group import spark as spark_group
from tuque.spark.history import charts, pipeline, report
from tuque.spark.history.pipeline import Figures


def figures() -> Figures:
    queue = {
        "jobs": 1234, "acked": 1200, "dead": 3, "expired": 1, "deleted": 0, "cancelled": 0,
        "open": 30, "deliveries": 1300, "redelivered": 66,
        "wait_ms": [1.5, 20.0, 61_000.0, 62_000.0], "process_ms": None,
    }  # fmt: skip
    queue["process_ms"] = [100.0, 1500.0, 2000.0, 3000.0]
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
        rates=[{"place": 0, "bucket": 1, **rate}],
        changes=[{"place": 0, "bucket": 0, "change": 37}, {"place": 0, "bucket": 1, "change": -7}],
        latencies=[{"place": None, "bucket": 0, "wait_ms": [1.0, 2.0, 3.0], "process_ms": None}],
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
        shown=["<q>"],
        kills=[("n1", 1_767_225_603.25)],
        names={"n1": "10.0.0.1:7711"},
    )  # fmt: skip


def data_of(page: str) -> dict[str, Any]:
    """What the charts are drawn from."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found is not None
    told: dict[str, Any] = json.loads(found[1])
    return told


def words_of(page: str) -> str:
    """The page without scripts and styles."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)


def test_the_page_has_the_figures() -> None:
    page = words_of(report.html_page(figures()))
    assert "10.0.0.1:7711" in page
    for text in (
        "1,234",
        "1,200",
        "66",
        "2026-01-01 00:00:00",
        "1.5 ms / 20 ms / 1 min 1 s / 1 min 2 s",
    ):
        assert text in page
    assert "10 of 100 events are missing" in page
    assert "2 h 1 min" in page
    for title in ("Rates", "Open jobs", "Wait", "Process", "Dead letters", "Slowest jobs"):
        assert f"<h2>{title}" in page
    assert page.index("verdict") < page.index("tiles"), "the verdict comes first"
    assert page.count("data-chart=") == 6


def test_the_page_needs_no_network_and_is_small() -> None:
    page = report.html_page(figures())
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert 'name="viewport"' in page
    assert len(page) < 60_000


def test_the_page_has_a_policy() -> None:
    """H6.6 The page has a policy (CSP): the browser runs its one script, by its SHA-256, and loads
    nothing."""
    page = report.html_page(figures())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert policy is not None and page.index(policy[0]) < page.index("<style>")
    assert policy[1] == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )


def test_all_that_can_be_shown_stays_small() -> None:
    """As many queues and points in time as there can be."""
    found = figures()
    found.shown = [f"queue-{i}" for i in range(pipeline.QUEUES_MAX)]
    found.queues = [{**found.total, "queue": name} for name in [*found.shown, "more", "others"]]
    found.last_s, found.width_s = found.first_s + pipeline.BUCKETS_MAX - 1, 1
    places = [*range(-1, pipeline.QUEUES_MAX)]
    at = [(p, b) for p in places for b in range(pipeline.BUCKETS_MAX)]
    found.rates = [{"place": p, "bucket": b, **dict.fromkeys(charts.COUNTS, 123456)} for p, b in at]
    found.latencies = [
        {"place": p, "bucket": b, "wait_ms": [1.2345, 2.2, 3.3], "process_ms": [1.1, 2.2, 3.3]}
        for p, b in [*at, *((None, b) for b in range(pipeline.BUCKETS_MAX))]
    ]
    page = report.html_page(found)
    assert len(page) < 1_500_000
    assert data_of(page)["labels"]["-1"] == "2 other queues"


def test_the_charts_have_the_figures() -> None:
    told = data_of(report.html_page(figures()))
    assert (told["first"], told["width"], told["buckets"]) == (1_767_225_600, 5, 2)
    for key in ("", "0"):
        assert told["series"][key]["open"] == [37, 30], "ends at the open jobs"
        assert told["series"][key]["redelivered"] == [0, 2]
    assert told["series"][""]["wait2"] == [3.0, None]
    assert told["causes"] == [["0", "timeout", 9]]
    assert told["kills"] == [{"node": "10.0.0.1:7711", "s": 1_767_225_603.25}]
    assert told["tiles"][""]["jobs"] == "1,234"


def test_the_verdict() -> None:
    """The first thing on the page."""
    found = figures()
    assert "Not all is known: 10 events missing" in report.verdict(found)
    found.nodes[0]["missing"] = 0
    assert "No loss is known. 1,234 jobs: 1,204 ended, 30 open" in report.verdict(found)
    assert "1 kill survived" in report.verdict(found)
    found.total["open"], found.total["acked"] = 0, 1230
    found.kills = []
    assert "Nothing was lost: all 1,234 jobs: 1,234 ended, 0 open" in report.verdict(found)


def test_names_and_reasons_are_only_text() -> None:
    page = words_of(report.html_page(figures()))
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert "<q>" not in page
    assert "<td" in page and "&lt;q&gt;" in page


def test_a_whole_history_says_so() -> None:
    found = figures()
    found.nodes[0]["missing"] = 0
    found.kills = []
    assert "The history is complete: 90 events" in report.verdict(found)
    found.nodes[0]["kills"] = 2
    assert "10.0.0.1:7711 was killed 2 times" in report.completeness(found)[0]


def test_small_queues_are_one() -> None:
    found = figures()
    found.queues = [{**found.total, "queue": name} for name in ("<q>", "a", "b")]
    found.changes = [
        {"place": place, "bucket": bucket, "change": 1} for place in (0, -1) for bucket in (0, 1)
    ]
    told = charts.data(found)
    assert told["queues"] == ["0", "-1"]
    assert [told["series"][key]["open"] for key in ("", "0", "-1")] == [[2, 4], [1, 2], [1, 2]]


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
    command = "from tuque.spark.cli.group import spark; spark()"
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
        "8 jobs in 6 s: 3 acked, 1 dead, 1 expired, 1 deleted, 0 cancelled, 2 open",
        "7 deliveries, 2 of them again",
        f"report: {out / 'report.html'}",
    ]
    assert run.stderr.count("\n") == 9, "a line for each step, and nothing of the JVM"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["total"]["acked"] == 3
    assert summary["nodes"][0]["missing"] == 0
    assert list((out / "jobs").glob("date=2026-01-01/*.parquet"))
    assert list((out / "seconds").glob("date=2026-01-01/*.parquet"))
    page = words_of((out / "report.html").read_text())
    assert "ValueError: &lt;b&gt;no&lt;/b&gt;" in page
