"""`tuque spark silver` and `tuque spark gold`: the tables of histories, at once or as streams."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from tuque.lazygroup import FiniteRange
from tuque.spark.cli.progress import Progress
from tuque.spark.cli.report import EVENTS, OUT
from tuque.spark.cli.running import MEMORY, need_packages, on_duckdb, on_spark, told
from tuque.spark.errors import StreamError
from tuque.spark.history import pipeline
from tuque.spark.history.streams import WATERMARK, Figures, Options, is_streamed, run_stream

Build = Callable[[Any, list[str], Path], None]
Command = Callable[..., None]


def _options(command: Command) -> Command:
    """The options of both commands."""
    for option in reversed(
        [
            EVENTS,
            OUT,
            click.option(
                "--engine",
                type=click.Choice(["spark", "duckdb"]),
                default="spark",
                show_default=True,
                help="What computes the table at once.",
            ),
            click.option("--stream", is_flag=True, help="Follow the events and append (Spark)."),
            click.option("--once", is_flag=True, help="With --stream: end when all is read."),
            click.option(
                "--every",
                type=FiniteRange(over=True),
                default=10.0,
                show_default=True,
                help="Seconds from batch to batch.",
            ),
            click.option(
                "--files",
                type=click.IntRange(1),
                default=64,
                show_default=True,
                help="Segments in a batch, at most.",
            ),
            MEMORY,
        ]
    ):
        command = option(command)
    return command


@click.command()
@_options
def silver(**asked: Any) -> None:
    """Write the table silver/: one row per finished job.

    Under --out, Parquet, a directory per date of the end. At once, older rows are replaced;
    with --stream rows are appended, also over restarts, each event once. A stream keeps every
    end of a job that several nodes ended; docs/histories.md has the query that picks one.
    """
    _make("silver", pipeline.build_silver, **asked)


@click.command()
@_options
@click.option(
    "--watermark",
    default=WATERMARK,
    show_default=True,
    help="With --stream: how long a minute waits for late events.",
)
def gold(**asked: Any) -> None:
    """Write the table gold/: one row per queue and minute.

    Under --out, Parquet, a directory per date. At once, older rows are replaced; with --stream
    a minute is appended when its watermark has passed, and later events of it are counted out.
    """
    _make("gold", pipeline.build_gold, **asked)


def _make(
    table: str,
    build: Build,
    events: Path,
    out: Path,
    engine: str,
    stream: bool,
    once: bool,
    every: float,
    files: int,
    memory: str,
    watermark: str = WATERMARK,
) -> None:
    """Make one table, at once or as a stream."""
    if stream and engine != "spark":
        raise click.UsageError("--stream needs --engine spark")
    if once and not stream:
        raise click.UsageError("--once goes with --stream")
    with told(out), tempfile.TemporaryDirectory(prefix="tuque-tables-") as scratch:
        if stream:
            options = Options(table, events, out, watermark, every, files, once)
            click.echo(_told_of(_stream(options, memory, Path(scratch))))
        else:
            _at_once(table, build, events, out, engine, memory, Path(scratch))
            click.echo(f"{table}: {out / table}")


def _at_once(
    table: str, build: Build, events: Path, out: Path, engine: str, memory: str, scratch: Path
) -> None:
    if is_streamed(out / table):
        raise StreamError(
            f"{out / table} is written by a stream; take another --out, or remove the table "
            f"and {out / 'checkpoints' / table}"
        )
    need_packages(engine)
    progress = Progress(3)
    with progress.step("finding event segments"):
        found = pipeline.find_segments(events, scratch)
    out.mkdir(parents=True, exist_ok=True)
    chosen: AbstractContextManager[Any]
    if engine == "duckdb":
        chosen = on_duckdb(memory, progress)
    else:
        size = found.size_bytes()
        log = out / "spark.log"
        chosen = on_spark(f"tuque {table}", size, memory, log, progress, scratch)
    with chosen as running, progress.step(f"writing {table}"):
        build(running, found.sealed + found.hot, out)


def _stream(options: Options, memory: str, scratch: Path) -> Figures:
    options.check()
    options.out.mkdir(parents=True, exist_ok=True)
    progress = Progress(1)
    log = options.out / "spark.log"
    with on_spark(f"tuque {options.table}", 1 << 40, memory, log, progress, scratch) as engine:
        return run_stream(engine.spark, options, lambda line: click.echo(line, err=True))


def _told_of(figures: Figures) -> str:
    """The result of a stream, for the terminal."""
    late = f", {figures.late} events came too late" if figures.late else ""
    return f"{figures.batches} batches, {figures.events} events{late}"
