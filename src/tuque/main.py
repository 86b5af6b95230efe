"""The program `tuque`: one group whose subcommands are imported when they are used.

Decides only which module holds a subcommand and what to say when an extra is missing; so
`tuque cli` never pays for the server and `tuque server` never for Spark.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

import click

from tuque import __version__

# Name, module, attribute, the line of `tuque --help`.
SUBCOMMANDS: Final = {
    "server": ("tuque.server.main", "server", "Run a node."),
    "cli": ("tuque.console.cli", "cli", "Send commands to a node; without one, a prompt."),
    "cluster": ("tuque.console.cluster_cmd", "cluster", "Start, see and change a cluster."),
    "worker": ("tuque.worker.main", "worker", "Run the tasks of an app: module:app."),
    "journal": ("tuque.console.journal_cmd", "journal", "Check, repair, show or import a journal."),
    "spark": ("tuque.spark.cmd", "spark", "Make tables and a report of the events of a node."),
    "report": ("tuque.spark.report_cmd", "report", "Make a report of the events, on this machine."),
    "bench": ("tuque.console.bench", "bench", "Load a node and print jobs per second."),
}

# Package that may be missing, and the extra that brings it.
EXTRAS: Final = {
    "prompt_toolkit": "cli",
    "pyspark": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "plotly": "report",
    "duckdb": "report",
    "bokeh": "spark",
    "altair": "spark",
    "matplotlib": "spark",
    "uvloop": "worker",
    "structlog": "server",
    "msgpack": "worker",
}


def missing_extra(err: ModuleNotFoundError) -> click.ClickException:
    """Turn a failed import into the one line that says what to install."""
    package = (err.name or "").split(".")[0]
    if package in EXTRAS:
        extra = EXTRAS[package]
        return click.ClickException(
            f"this needs {package}, which is not installed; run: pip install 'tuque[{extra}]'"
        )
    return click.ClickException(f"{err}: the installation is not complete; run: pip install tuque")


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and imports one when asked for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module, attribute, _ = SUBCOMMANDS[cmd_name]
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as err:
            raise missing_extra(err) from None
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{module}.{attribute} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from the table: `--help` imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in SUBCOMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Let a wrong name show the right ones."""
        if args and args[0] not in SUBCOMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'. There are: {', '.join(SUBCOMMANDS)}.")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="tuque %(version)s")
def tuque() -> None:
    """A distributed job broker that speaks Disque's protocol.

    `tuque COMMAND --help` explains a command.
    """


def main() -> None:
    """Run the program; the entry point of the package."""
    try:
        tuque(prog_name="tuque")
    except ModuleNotFoundError as err:
        missing_extra(err).show()
        sys.exit(1)


if __name__ == "__main__":
    main()
