"""`tuque spark backfill`: files or a table into queues, from the command line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tuque.nodeoptions import NodeOptions, node_options
from tuque.spark.backfill import FORMATS, fill, kind_of, named, read, shape
from tuque.spark.cli.progress import Progress
from tuque.spark.cli.running import MEMORY, on_spark, told
from tuque.spark.errors import SinkError
from tuque.spark.options.sink import MODES, parse
from tuque.spark.sink.columns import check_schema


def _pairs(_: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE words as a dict."""
    found = {}
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not name or not value:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        found[name.strip()] = value
    return found


@click.command()
@click.argument("place")
@node_options
@click.option("--queue", default="", help="Queue of rows that name none.")
@click.option(
    "--format",
    "kind",
    type=click.Choice([*FORMATS, "table"]),
    help="What PLACE is; by default its ending tells.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    callback=_pairs,
    metavar="NAME=SQL",
    help="A column of the jobs (body, queue, delay_ms, ttl_ms, retry_ms, dedupe_key) as SQL "
    "over the rows; the body is by default the column body, else the row as JSON.",
)
@click.option("--where", default="", help="Only rows for which this SQL is true.")
@click.option("--mode", type=click.Choice(MODES), default="append", show_default=True)
@click.option(
    "--option",
    "more",
    multiple=True,
    callback=_pairs,
    metavar="NAME=VALUE",
    help="An option of the sink, such as ttl=1h or txnAppId=load.",
)
@click.option("--dry-run", is_flag=True, help="Check and count, write nothing.")
@MEMORY
def backfill(
    place: str,
    node: NodeOptions,
    queue: str,
    kind: str | None,
    columns: dict[str, str],
    where: str,
    mode: str,
    more: dict[str, str],
    dry_run: bool,
    memory: str,
) -> None:
    """Write the rows of PLACE (files, a directory, or a table) into queues.

    With --mode append a row may come twice when a task runs again; give rows a dedupe_key and
    --mode dedupe, or --mode staged (up to a million rows), to have each once.
    """
    given = {"mode": mode, "queue": queue, **more}
    if url := node.client_url():
        given["url"] = url
    options = {name: value for name, value in given.items() if value}
    progress = Progress(2)
    with told(Path(place)), tempfile.TemporaryDirectory(prefix="tuque-backfill-") as scratch:
        log = Path(scratch) / "spark.log"
        try:
            checked = parse(options)
            with (
                on_spark("tuque backfill", 1 << 40, memory, log, progress, Path(scratch)) as engine,
                named(place),
            ):
                rows = read(engine.spark, place, kind or kind_of(place))
                frame = shape(rows, columns, where)
                check_schema(frame.schema, checked)
                with progress.step("counting rows"):
                    expected = frame.count()
                if dry_run:
                    click.echo(f"{expected:,} rows would be written: {frame.schema.simpleString()}")
                    return
                count, took_s = fill(frame, options, expected)
        except SinkError as e:
            raise click.ClickException(str(e)) from e
    click.echo(f"{count:,} rows in {took_s:.1f} s ({count / max(took_s, 0.001):,.0f}/s)")
