"""The program `tuque`: the module of each subcommand.

Subcommands are imported when used: `tuque cli` never loads the server, `tuque server` never
Spark.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from typing import Final

if sys.argv[1:2] == ["worker"] and sys.platform != "win32" and hasattr(os, "fork"):
    # before the imports: they wait until it has handlers (U4.12)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGTSTP, signal.SIGUSR1))

import click

from tuque import __version__
from tuque.lazygroup import Entry, LazyGroup

FULL: Final = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}  # of standard output

SUBCOMMANDS: Final = {
    "server": Entry("tuque.server.app", "server", "server", "Run a node."),
    "dev": Entry("tuque.cli.dev", "dev", "dev", "Node, worker and console, to write a program."),
    "cli": Entry(
        "tuque.cli.prompt.cli", "cli", "cli", "Send commands to a node; without one, a prompt."
    ),
    "cluster": Entry(
        "tuque.cli.cluster", "cluster", "", "See and change a cluster; stop a node by plan."
    ),
    "node": Entry("tuque.cli.cluster", "node", "", ""),
    "tubes": Entry("tuque.cli.tubes", "tubes", "", "Show tubes, and move their leaders."),
    "worker": Entry(
        "tuque.worker.main", "worker", "worker", "Run the tasks of an app: module:app."
    ),
    "queues": Entry("tuque.cli.queues", "queues", "", "List queues and workers; have one stop."),
    "workers": Entry("tuque.cli.queues", "workers", "", ""),
    "top": Entry("tuque.cli.queues", "top", "top", "Queues, workers and nodes, live."),
    "dead": Entry("tuque.cli.jobs", "dead", "", "List, replay and purge dead letters."),
    "schedule": Entry("tuque.cli.jobs", "schedule", "", "Jobs at times of day: list, add, run."),
    "topics": Entry(
        "tuque.cli.topics", "topics", "", "Jobs for many queues: subscribe, list, add."
    ),
    "outbox": Entry("tuque.outbox.main", "outbox", "", ""),
    "cancel": Entry("tuque.cli.jobs", "cancel", "", "Cancel jobs and groups."),
    "result": Entry("tuque.cli.jobs", "result", "", "Show a job's state and result."),
    "audit": Entry("tuque.cli.audit", "audit", "", "What administrators did."),
    "console": Entry(
        "tuque.web.main", "console", "console", "Show and change a cluster in the browser."
    ),
    "journal": Entry(
        "tuque.server.journal.tool", "journal", "server", "Check, repair, show or import a journal."
    ),
    "spark": Entry(
        "tuque.spark.cli.group",
        "spark",
        "spark",
        "Make tables and a report of the events of a node.",
    ),
    "report": Entry(
        "tuque.spark.cli.report",
        "report",
        "report",
        "Make a report of the events, on this machine.",
    ),
    "triage": Entry(
        "tuque.spark.cli.deadletters", "triage", "report", "What is in dead-letter queues, and why."
    ),
    "replay": Entry(
        "tuque.spark.cli.deadletters", "replay", "report", "Dead letters back into their queues."
    ),
    "compact": Entry(
        "tuque.spark.cli.compact", "compact", "report", "Merge small event segments into big ones."
    ),
    "bench": Entry("tuque.cli.bench", "bench", "", "Jobs per second of a node; whether all works."),
    "selftest": Entry("tuque.cli.dev", "selftest", "server", ""),
}

# What Windows cannot run: nodes and workers fork, what reads events locks files.
UNIX_ONLY: Final = frozenset(
    "server worker dev selftest journal spark report triage replay compact".split()
)


class Program(LazyGroup):
    """The group of all commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; ClickException for one that does not run on this system."""
        if cmd_name in UNIX_ONLY and not hasattr(os, "fork"):
            raise click.ClickException(
                f"`tuque {cmd_name}` does not run on Windows: start it in WSL or a container; "
                "the client and the other commands work here"
            )
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A line and the table: a screen has 24 lines."""
        text = (self.help or "").rstrip(".")
        formatter.write(f"Usage: {ctx.command_path} COMMAND [ARGS]...  {text}:\n")
        with formatter.indentation():
            formatter.write_dl(self.lines())


@click.group(
    cls=Program, table=SUBCOMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.help_option("-h", "--help", hidden=True)
@click.version_option(__version__, "--version", message="tuque %(version)s", hidden=True)
def tuque() -> None:
    """`tuque COMMAND --help` explains a command."""


def main() -> None:
    """Run the program; the entry point of the package.

    NO_COLOR switches off the colours of all commands. Output to a closed standard stream is
    dropped. Exit status 1 when standard output does not take all of it.
    """
    if sys.argv[1:2] == ["worker"]:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # U4.11
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, "r" if name == "stdin" else "w"))
    buffer_output()
    try:
        try:
            tuque(prog_name="tuque", color=False if os.environ.get("NO_COLOR") else None)
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in {*FULL, errno.EPIPE} or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the rest of the buffer cannot be written
        if error.errno == errno.EPIPE:  # the reader has seen enough
            sys.exit(141)
        click.echo(f"Error: the output could not be written: {error.strerror}", err=True)
        sys.exit(1)


def buffer_output() -> None:
    """Give standard output a buffer where PYTHONUNBUFFERED left it none.

    Without one Python drops what a write did not take, as with a file at its limit of size.
    """
    raw = sys.stdout.buffer
    if isinstance(raw, io.RawIOBase):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), sys.stdout.encoding, sys.stdout.errors, line_buffering=True
        )


if __name__ == "__main__":
    main()
