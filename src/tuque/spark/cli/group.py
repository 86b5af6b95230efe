"""`tuque spark ...`: which module holds a sub-command; one is imported when it is used."""

from __future__ import annotations

from typing import Final

import click

from tuque.lazygroup import Entry, LazyGroup

SUBCOMMANDS: Final = {
    "report": Entry(
        "tuque.spark.cli.report",
        "spark_report",
        "spark",
        "Make tables and a report of the events.",
    ),
    "silver": Entry(
        "tuque.spark.cli.history", "silver", "spark", "A table with one row per finished job."
    ),
    "gold": Entry(
        "tuque.spark.cli.history", "gold", "spark", "A table with one row per queue and minute."
    ),
    "backfill": Entry(
        "tuque.spark.cli.backfill", "backfill", "spark", "Files or a table into queues."
    ),
    "submit": Entry(
        "tuque.spark.cli.submit", "submit", "spark", "spark-submit with Tuque's Java and settings."
    ),
    "shell": Entry(
        "tuque.spark.cli.submit", "shell", "spark", "pyspark with Tuque's Java and settings."
    ),
}


@click.group(cls=LazyGroup, table=SUBCOMMANDS)
def spark() -> None:
    """The pipeline from the events of a broker to tables, and from tables to queues."""
