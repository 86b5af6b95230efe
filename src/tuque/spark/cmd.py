"""`tuque spark ...`: the pipeline from the command line."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuque.spark.errors import NoEventsError, SparkJobError, SparkSetupError
from tuque.spark.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tuque.spark.pipeline import Figures

STEPS = 8
# Below this the JVM's optimizing compiler costs more than it gives: a third of the time of
# a report of 1 M events (13 MB) on two cores.
SMALL_BYTES = 64 << 20


@click.group()
def spark() -> None:
    """Look at a broker's history with Spark."""


@spark.command()
@click.option(
    "--events",
    required=True,
    type=click.Path(path_type=Path),
    help="Directory the server writes its events to (its events-dir).",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for the report and the tables; made if missing.",
)
@click.option("--memory", default="2g", show_default=True, help="Memory of Spark's JVM.")
def report(events: Path, out: Path, memory: str) -> None:
    """Make tables and an HTML report of what happened to the jobs.

    Writes under --out: report.html, summary.json, jobs/ (Parquet, one row per job) and
    seconds/ (Parquet, one row per queue and second). Older ones are replaced.
    """
    try:
        found = run(events, out, memory)
    except NoEventsError as e:
        raise click.UsageError(str(e)) from e
    except (SparkJobError, SparkSetupError) as e:
        raise click.ClickException(str(e)) from e
    except OSError as e:
        raise click.ClickException(f"{e.filename or out}: {e.strerror or e}") from e
    click.echo(summary_text(found))
    click.echo(f"report: {out / 'report.html'}")


def run(events: Path, out: Path, memory: str = "2g") -> Figures:
    """The whole job, with progress on standard error."""
    try:
        from tuque.spark import pipeline
        from tuque.spark import report as page
        from tuque.spark.session import session, told
    except ModuleNotFoundError as e:
        raise SparkSetupError(f"{e.name} is missing: pip install 'tuque[spark]'") from e
    progress = Progress(STEPS)
    with tempfile.TemporaryDirectory(prefix="tuque-report-") as scratch:
        with progress.step("finding event segments"):
            segments = pipeline.find_segments(events, Path(scratch))
        out.mkdir(parents=True, exist_ok=True)
        conf = {"spark.driver.memory": memory}
        if segments.size_bytes() < SMALL_BYTES:
            conf["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1"
        with progress.step("starting Spark"):
            spark = session("tuque report", conf=conf, log=out / "spark.log")
        try:
            progress.done_of = lambda: tasks(spark)
            with told(out / "spark.log"):
                pipeline.build(spark, segments, out, progress.step)
                found = pipeline.figures(spark, segments, progress.step)
        finally:
            progress.done_of = lambda: (0, 0)
            spark.stop()
    (out / "summary.json").write_text(json.dumps(found.summary(), indent=2) + "\n")
    (out / "report.html").write_text(page.html_page(found), encoding="utf-8")
    return found


def tasks(spark: SparkSession) -> tuple[int, int]:
    """Finished and all tasks of the stages that run now."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    infos = [info for info in stages if info is not None]
    return sum(i.numCompletedTasks for i in infos), sum(i.numTasks for i in infos)


def summary_text(found: Figures) -> str:
    """A few lines for the terminal."""
    t = found.total
    lines = [
        f"{t['jobs']} jobs in {found.last_s - found.first_s + 1} s: {t['acked']} acked, "
        f"{t['dead']} dead, {t['expired']} expired, {t['deleted']} deleted, {t['open']} open",
        f"{t['deliveries'] or 0} deliveries, {t['redelivered'] or 0} of them again",
    ]
    missing = sum(node["missing"] for node in found.nodes)
    kills = sum(node["kills"] for node in found.nodes)
    if missing or kills:
        lines.append(f"INCOMPLETE: {missing} events missing, {kills} unclean stops")
    return "\n".join(lines)
