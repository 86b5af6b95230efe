"""`tuque compact`: many small event segments become few big ones."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click

from tuque.lazygroup import FiniteRange
from tuque.spark.history.compact import CompactError, Done
from tuque.spark.history.compact import compact as run

DIRECTORY: Final = click.Path(path_type=Path)


@click.command("compact")
@click.argument("directory", metavar="[EVENTS_DIR]", required=False, type=DIRECTORY)
@click.option("--events", type=DIRECTORY, help="The same, as the other commands take it.")
@click.option(
    "--today", is_flag=True, help="The segments of today, too (default: days that are over, UTC)."
)
@click.option(
    "--rows", default=5_000_000, show_default=True, type=click.IntRange(1000), help="In a file."
)
@click.option(
    "--grace",
    default=60.0,
    show_default=True,
    type=FiniteRange(),
    help="Minutes until the small files go, for readers that have them open. "
    "Streams that follow are waited for, however long that takes.",
)
def compact(
    directory: Path | None, events: Path | None, today: bool, rows: int, grace: float
) -> None:
    """Merge the small event segments of each day into big ones.

    Run it once a day. Servers may write and readers may read meanwhile; killed, it goes on
    with the next run. Needs neither Spark nor Java.
    """
    if (directory is None) == (events is None):
        raise click.UsageError("name the events' directory once: --events DIR, or DIR alone")
    now = datetime.now(UTC)
    before = (now + timedelta(days=1 if today else 0)).date().isoformat()
    try:
        done = run(
            directory or events or Path(),
            before,
            time.time(),
            rows=rows,
            grace_s=grace * 60,
            on_day=lambda day: click.echo(f"compacting {day}", err=True),
        )
    except (CompactError, OSError) as e:
        raise click.ClickException(str(e)) from e
    click.echo(told(done))
    for stream, count in sorted(done.waiting.items()):
        click.echo(
            f"{count} segments are kept until the stream of {stream} has read them; if it never "
            "will, remove that directory and its table",
            err=True,
        )


def told(done: Done) -> str:
    """The result in one line."""
    sizes = f"{done.bytes_before / 1e6:.1f} MB -> {done.bytes_after / 1e6:.1f} MB"
    return (
        f"{done.days} days: {done.merged} segments merged into {done.made} ({sizes}), "
        f"{done.removed} removed that were merged before"
    )
