"""The total-queue check from the command line: `python tests/tools/verify_command.py --help`."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tuque.lazygroup import FiniteRange
from tuque.logtext import visible
from tuque.spark.cli.progress import Progress
from tuque.spark.cli.running import MEMORY, need_packages, on_duckdb, on_spark, told
from tuque.spark.errors import NoEventsError
from tuque.spark.history import pipeline
from verify import CHECKS, Verdict
from verify import verify as judge

LOGS = ("*.jsonl", "*.json", "*.parquet")


@click.command()
@click.option(
    "--clients",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path),
    help="Log of clients, JSON lines or Parquet, or a directory of them; may be repeated.",
)
@click.option(
    "--events",
    type=click.Path(path_type=Path),
    help="Directory the servers write their events to; without it only the logs are judged.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "duckdb"]),
    default="duckdb",
    show_default=True,
    help="duckdb: one machine, no Java.",
)
@click.option(
    "--grace",
    type=FiniteRange(),
    default=0.0,
    show_default=True,
    help="Seconds after its ack in which a job may still come (clocks that differ).",
)
@click.option("--open", "is_open", is_flag=True, help="Jobs that the broker still has are fine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@MEMORY
def verify(
    clients: tuple[Path, ...],
    events: Path | None,
    engine: str,
    grace: float,
    is_open: bool,
    as_json: bool,
    memory: str,
) -> None:
    """Judge what clients saw by what the broker says; exit status 1 when something is broken.

    The columns of a log are in tests/tools/README.md; recorder.Recorder writes one.
    """
    progress = Progress(4 if events else 3)
    with told(Path.cwd()), tempfile.TemporaryDirectory(prefix="tuque-verify-") as scratch:
        need_packages(engine)
        with progress.step("finding logs"):
            logs = find_logs(clients)
        segments = pipeline.Segments([], [])
        if events is not None:
            with progress.step("finding event segments"):
                segments = pipeline.find_segments(events, Path(scratch))
        chosen: AbstractContextManager[Any]
        if engine == "duckdb":
            chosen = on_duckdb("", progress)
        else:
            size = segments.size_bytes() + sum(Path(log).stat().st_size for log in logs)
            log = Path(scratch) / "spark.log"
            chosen = on_spark("verify", size, memory, log, progress, Path(scratch))
        with chosen as running, progress.step("judging"):
            files = segments.sealed + segments.hot
            grace_us = round(grace * 1e6)
            verdict = judge(running, logs, files, grace_us=grace_us, open_is_fine=is_open)
    click.echo(json.dumps(asdict(verdict), indent=2) if as_json else table(verdict))
    sys.exit(1 if verdict.is_broken else 0)


def find_logs(places: tuple[Path, ...]) -> list[str]:
    """The existing logs, all of one kind. Raises NoEventsError if there is none."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted(path for pattern in LOGS for path in place.rglob(pattern))
        elif place.exists():
            found.append(place)
        else:
            raise NoEventsError(f"{place}: no such file or directory")
    if not found:
        raise NoEventsError(f"{', '.join(map(str, places))}: no logs ({', '.join(LOGS)})")
    return [str(path) for path in found]


def table(verdict: Verdict) -> str:
    """The verdict for the terminal."""
    lines = [
        f"{verdict.jobs:,} jobs, {verdict.known:,} added by clients that log, "
        f"{verdict.done:,} of them done; {verdict.redelivered:,} came more than once (allowed)"
    ]
    for name, worry in verdict.worries.items():
        said = f"{name:<12}{worry.count:>10,}  {CHECKS[name]}"
        lines.append(said if not worry.count else f"{said}: {visible(', '.join(worry.examples))}")
    lines.append("BROKEN" if verdict.is_broken else "all is well")
    return "\n".join(lines)


if __name__ == "__main__":
    verify()
