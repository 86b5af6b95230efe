"""`tuque spark report` and `tuque report`: one report, made with Spark or with duckdb."""

from __future__ import annotations

import json
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from tuque.spark.cli.progress import Progress
from tuque.spark.cli.running import MEMORY, need_packages, on_duckdb, on_spark, told
from tuque.spark.history import pipeline
from tuque.spark.history.pipeline import Figures

STEPS = 9
EVENTS = click.option(
    "--events",
    required=True,
    type=click.Path(path_type=Path),
    help="Directory the server writes its events to (its events-dir).",
)
OUT = click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for the report and the tables; made if missing.",
)


@click.command("report")
@EVENTS
@OUT
@MEMORY
def spark_report(events: Path, out: Path, memory: str) -> None:
    """Make tables and an HTML report of what happened to the jobs.

    Writes under --out: report.html, summary.json, jobs/ (Parquet, one row per job) and
    seconds/ (Parquet, one row per queue and second). Older ones are replaced.
    """
    _report(events, out, "spark", memory)


@click.command("report")
@EVENTS
@OUT
@click.option("--memory", default="", help="What duckdb may use, as 2g; default: most of it.")
def report(events: Path, out: Path, memory: str) -> None:
    """Make tables and an HTML report of what happened to the jobs, on this machine.

    The same as `tuque spark report`, by duckdb: no Java, no start-up. Writes under --out:
    report.html, summary.json, jobs/ and seconds/ (Parquet). Older ones are replaced.
    """
    _report(events, out, "duckdb", memory)


def _report(events: Path, out: Path, engine: str, memory: str) -> None:
    with told(out):
        found = run(events, out, memory, engine)
    click.echo(summary_text(found))
    click.echo(f"report: {out / 'report.html'}")


def run(events: Path, out: Path, memory: str = "2g", engine: str = "spark") -> Figures:
    """The whole job, with progress on standard error; `engine` is spark or duckdb."""
    from tuque.spark.history import report as page

    need_packages(engine)
    progress = Progress(STEPS)
    with tempfile.TemporaryDirectory(prefix="tuque-report-") as scratch:
        with progress.step("finding event segments"):
            segments = pipeline.find_segments(events, Path(scratch))
        out.mkdir(parents=True, exist_ok=True)
        chosen: AbstractContextManager[Any]
        if engine == "duckdb":
            chosen = on_duckdb(memory, progress)
        else:
            size = segments.size_bytes()
            log = out / "spark.log"
            chosen = on_spark("tuque report", size, memory, log, progress, Path(scratch))
        with chosen as running:
            pipeline.build(running, segments, out, progress.step)
            found = pipeline.figures(running, segments, progress.step)
    write(out / "summary.json", json.dumps(found.summary(), indent=2) + "\n")
    write(out / "report.html", page.html_page(found))
    return found


def write(path: Path, text: str) -> None:
    """Make that file; ClickException with its name when it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise click.ClickException(f"{path} could not be written: {e.strerror}") from e


def summary_text(found: Figures) -> str:
    """A few lines for the terminal."""
    t = found.total
    lines = [
        f"{t['jobs']} jobs in {found.last_s - found.first_s + 1} s: {t['acked']} acked, "
        f"{t['dead']} dead, {t['expired']} expired, {t['deleted']} deleted, "
        f"{t['cancelled']} cancelled, {t['open']} open",
        f"{t['deliveries'] or 0} deliveries, {t['redelivered'] or 0} of them again",
    ]
    missing = sum(node["missing"] for node in found.nodes)
    kills = sum(node["kills"] for node in found.nodes)
    if missing or kills:
        lines.append(f"INCOMPLETE: {missing} events missing, {kills} unclean stops")
    return "\n".join(lines)
