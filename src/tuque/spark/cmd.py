"""`tuque spark ...`: which module holds a sub-command; one is imported when it is used."""

from __future__ import annotations

from typing import Final

import click

from tuque.lazygroup import Entry, LazyGroup

SUBCOMMANDS: Final = {
    "report": Entry(
        "tuque.spark.report_cmd",
        "spark_report",
        "spark",
        "Make tables and a report of the events.",
    ),
    "silver": Entry(
        "tuque.spark.hist_cmd", "silver", "spark", "A table with one row per finished job."
    ),
    "gold": Entry(
        "tuque.spark.hist_cmd", "gold", "spark", "A table with one row per queue and minute."
    ),
    "verify": Entry(
        "tuque.spark.verify_cmd", "verify", "spark", "Judge clients' logs by the broker's events."
    ),
    "backfill": Entry(
        "tuque.spark.backfill_cmd", "backfill", "spark", "Files or a table into queues."
    ),
    "triage": Entry(
        "tuque.spark.deadletters_cmd",
        "triage",
        "report",
        "What is in dead-letter queues, and why.",
    ),
    "replay": Entry(
        "tuque.spark.deadletters_cmd",
        "replay",
        "report",
        "Dead letters back into their queues.",
    ),
    "compact": Entry(
        "tuque.spark.compact_cmd", "compact", "spark", "Merge small event segments into big ones."
    ),
    "submit": Entry(
        "tuque.spark.submit", "submit", "spark", "spark-submit with Tuque's Java and settings."
    ),
    "shell": Entry(
        "tuque.spark.submit", "shell", "spark", "pyspark with Tuque's Java and settings."
    ),
}


@click.group(cls=LazyGroup, table=SUBCOMMANDS)
def spark() -> None:
    """The pipeline from the events of a broker to tables, and from tables to queues."""
