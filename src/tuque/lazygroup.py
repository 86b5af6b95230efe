"""Groups whose subcommands are imported when used, so that the program starts fast.

Decides the errors for a wrong name, a missing package and a node of another version; knows no
command.
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
    "watchfiles": "reload",
    "sentry_sdk": "sentry",
    "cronsim": "server",
    "librt": "server",
    "mypy_extensions": "server",
}
NODE: Final = frozenset("cluster core server store tubes wire".split())  # packages of tuque-node


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


class LocalTime(click.DateTime):
    """An option's local time, as ms since 1970; what is before that is 0."""

    def convert(  # type: ignore[override]  # ms, not a datetime
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Parse the time; the first and last year have hours that no zone can name."""
        found = super().convert(value, param, ctx)
        try:
            return max(0, int(found.timestamp() * 1000))
        except (ValueError, OverflowError, OSError):
            self.fail(f"{value!r} is out of range: give a year from 2 to 9998", param, ctx)


@dataclass(frozen=True)
class Entry:
    """A subcommand: its module, the extra it needs, its line in the help.

    Without a line it shares that of the subcommand before it.
    """

    module: str
    attribute: str
    extra: str  # empty: the plain package is enough
    line: str


def missing_extra(err: ImportError, extra: str = "") -> click.ClickException:
    """Turn a failed import into one line that names the extra to install.

    A node of another version fails with an ImportError of its own; any other one is raised again.
    """
    package, *rooms = (err.name or "").split(".")
    if not isinstance(err, ModuleNotFoundError):
        if err.name != "tuque.server":
            raise err
        return click.ClickException(str(err))
    if package == "tuque" and NODE & set(rooms[:1]):
        return click.ClickException(
            "this needs the node, which is not installed; run: pip install 'tuque[server]'"
        )
    if package in EXTRAS:
        return click.ClickException(
            f"this needs {package}, which is not installed; "
            f"run: pip install 'tuque[{extra or EXTRAS[package]}]'"
        )
    return click.ClickException(f"{err}: the installation is not complete; run: pip install tuque")


class LazyGroup(click.Group):
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
        except ImportError as err:
            raise missing_extra(err, entry.extra) from None
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{entry.module}.{entry.attribute} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from the table: `--help` imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl(self.lines())

    def lines(self) -> list[tuple[str, str]]:
        """The names of each line of the help, and the line."""
        rows: list[tuple[str, str]] = []
        for name, entry in self.table.items():
            if entry.line:
                rows.append((name, entry.line))
            else:
                names, line = rows.pop()
                rows.append((f"{names}, {name}", line))
        return rows

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
        except ImportError as err:
            entry = self.table.get(ctx.invoked_subcommand or "")
            raise missing_extra(err, entry.extra if entry else "") from None
        except click.ClickException as err:  # it may quote another program
            from tuque.logtext import visible_lines

            vars(err)["message"] = visible_lines(err.message)
            raise
