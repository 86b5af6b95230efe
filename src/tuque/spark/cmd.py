"""`tuque spark ...`: which module holds a sub-command; one is imported when it is used."""

from __future__ import annotations

import importlib
from typing import Final

import click

# Name, module, attribute, the line of `tuque spark --help`.
SUBCOMMANDS: Final = {
    "report": (
        "tuque.spark.report_cmd",
        "spark_report",
        "Make tables and a report of the events.",
    ),
    "silver": ("tuque.spark.hist_cmd", "silver", "A table with one row per finished job."),
    "gold": ("tuque.spark.hist_cmd", "gold", "A table with one row per queue and minute."),
    "verify": ("tuque.spark.verify_cmd", "verify", "Judge clients' logs by the broker's events."),
    "backfill": ("tuque.spark.backfill_cmd", "backfill", "Files or a table into queues."),
    "triage": ("tuque.spark.deadletters_cmd", "triage", "What is in dead-letter queues, and why."),
    "replay": ("tuque.spark.deadletters_cmd", "replay", "Dead letters back into their queues."),
    "compact": ("tuque.spark.compact_cmd", "compact", "Merge small event segments into big ones."),
    "submit": ("tuque.spark.submit", "submit", "spark-submit with Tuque's Java and settings."),
    "shell": ("tuque.spark.submit", "shell", "pyspark with Tuque's Java and settings."),
}


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports one when asked for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module, attribute, _ = SUBCOMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from the table: `--help` imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in SUBCOMMANDS.items()])


@click.group(cls=LazyGroup)
def spark() -> None:
    """The pipeline from the events of a broker to tables, and from tables to queues."""
