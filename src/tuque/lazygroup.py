"""Command groups: options work on both sides of a subcommand, which is imported when used.

Decides where options go, and the errors for a wrong name and a missing package; knows no command.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any, Final

import click

# Packages that may be missing, and their extra if the command names none.
EXTRAS: Final = {
    "prompt_toolkit": "cli",
    "pyspark": "spark",
    "pyarrow": "spark",
    "pandas": "spark-connect",
    "duckdb": "report",
    "uvloop": "worker",
    "starlette": "console",
    "uvicorn": "console",
    "jinja2": "console",
    "markupsafe": "console",
    "textual": "top",
    "rich": "top",
}
# The options that name a node (nodeoptions.py), each with a value.
NODE_WORDS: Final = ("-h", "--host", "-p", "--port", "-u", "--url", "-a", "--password", "--user")


class FiniteRange(click.FloatRange):
    """An option's number, from `least` to `most`, never nan; `over`: more than `least`."""

    def __init__(self, least: float = 0.0, most: float = 31_536_000.0, over: bool = False) -> None:
        super().__init__(least, most, min_open=over)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the number; click's own range accepts nan."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


@dataclass(frozen=True)
class Entry:
    """A subcommand: its module, the extra it needs, its line in the help."""

    module: str
    attribute: str
    extra: str  # empty: the plain package is enough
    line: str


def missing_extra(err: ModuleNotFoundError, extra: str = "") -> click.ClickException:
    """Turn a failed import into one line that names the extra to install."""
    package = (err.name or "").split(".")[0]
    if package in EXTRAS:
        return click.ClickException(
            f"this needs {package}, which is not installed; "
            f"run: pip install 'tuque[{extra or EXTRAS[package]}]'"
        )
    return click.ClickException(f"{err}: the installation is not complete; run: pip install tuque")


class OptionsAnywhere(click.Group):
    """A group whose options mean the same before and after a subcommand.

    What stands before the subcommand is given to it, before its own options, so that the last one
    counts. A subcommand that does not know an option of its group says so. A group that has
    no options of a node passes them on as well.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the options behind the subcommand's name."""
        args = self._pass_node(ctx, args)
        helps = set(self.get_help_option_names(ctx))
        for param in self.params:
            if param.name == "help":  # one of its own, which takes its names from the usual one
                helps |= set(param.opts)
        _, rest, _ = self.make_parser(ctx).parse_args(args=list(args))
        before = args[: len(args) - len(rest)]
        if rest and not helps & set(before):
            args = [rest[0], *before, *rest[1:]]
        return super().parse_args(ctx, args)

    def _pass_node(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the options of a node, if they are the subcommand's and not the group's."""
        names, size = self._named(ctx, args)
        command = self.get_command(ctx, args[size]) if names and size < len(args) else None
        if command is None:
            return args
        known = words_of(command)
        for name in names:
            if name not in known and not isinstance(command, OptionsAnywhere):
                raise click.NoSuchOption(name, ctx=ctx)
        return [args[size], *args[:size], *args[size + 1 :]]

    def _named(self, ctx: click.Context, args: list[str]) -> tuple[list[str], int]:
        """The options of a node that `args` begin with, and how many words they are."""
        others = {*self.get_help_option_names(ctx), *words_of(self)}
        names: list[str] = []
        size = 0
        while size < len(args):
            word = args[size]
            is_long = word.startswith("--")
            name, more, _ = word.partition("=") if is_long else (word[:2], word[2:], "")
            if name not in NODE_WORDS or name in others:
                break
            names.append(name)
            size += 1 if more else 2
        return names, size


def words_of(command: click.Command) -> set[str]:
    """The options of a command as they are typed."""
    return {word for param in command.params for word in param.opts}


class LazyGroup(OptionsAnywhere):
    """A group over a table of entries by name."""

    def __init__(self, *args: Any, table: dict[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        try:
            command = getattr(importlib.import_module(entry.module), entry.attribute)
        except ModuleNotFoundError as err:
            raise missing_extra(err, entry.extra) from None
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{entry.module}.{entry.attribute} is not a command")
        return command

    def _heading(self) -> str:
        """A help of one line, which stands above the subcommands; the screen has few lines."""
        lines = (self.help or "").strip().splitlines()
        return lines[0].rstrip(".") if len(lines) == 1 else ""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        heading = self._heading()
        if heading:
            formatter.write(f"Usage: {ctx.command_path} COMMAND [ARGS]...  {heading}:\n")
        else:
            super().format_usage(ctx, formatter)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self._heading():
            super().format_help_text(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from the table: `--help` imports none of them."""
        rows = [(name, entry.line) for name, entry in self.table.items()]
        heading = self._heading()
        if heading:  # stands in the line of the usage: the screen is full
            with formatter.indentation():
                formatter.write_dl(rows)
            return
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest names for a wrong one."""
        if args and args[0] not in self.table and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'. There are: {', '.join(self.table)}.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; report a package that it misses later as at its start.

        Control characters in its error are escaped.
        """
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as err:
            entry = self.table.get(ctx.invoked_subcommand or "")
            raise missing_extra(err, entry.extra if entry else "") from None
        except click.ClickException as err:  # it may quote another program
            from tuque.logtext import visible_lines

            vars(err)["message"] = visible_lines(err.message)
            raise
