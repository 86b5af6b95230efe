"""What all commands write to a terminal: tables, colours, and text that cannot control it.

Decides widths, alignment and colours for all commands. Colours are for terminals only; the
environment variable NO_COLOR switches them off there. Commands of the node and of the users' side
use it: it knows neither.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import click

GOOD: Final = "green"
WARNING: Final = "yellow"
BAD: Final = "red"
GAP: Final = "  "
NAME_MAX: Final = 60  # columns of a name in a table
NAME_LEAST: Final = 24  # on a narrow terminal
T = TypeVar("T")
Paint = Callable[[int, str, str], str]  # row, head and padded text of a cell -> the text to print


def has_color() -> bool:
    """Whether standard output is a terminal with colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.getenv("TERM") != "dumb"


def paint(text: str, color: str = "", bold: bool = False) -> str:
    """The text in a colour, if colours are on."""
    return click.style(text, fg=color or None, bold=bold or None) if has_color() else text


def width() -> int:
    """Columns of the terminal; 0 if standard output is none: lines may have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def number(value: int) -> str:
    """A number for people, with commas between thousands."""
    return f"{value:,}"


def brief(text: str, most: int = NAME_MAX) -> str:
    """A long name as its beginning and its end."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def name_room(widths: Sequence[int], most: int) -> int:
    """What is left of `most` columns for the first one, a name: not less than NAME_LEAST."""
    gaps = len(GAP) * (len(widths) - 1)
    return min(widths[0], max(NAME_LEAST, most - gaps - sum(widths[1:])))


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 1,
    least: Sequence[str] = (),
    color: Paint | None = None,
    has_names: bool = False,
) -> str:
    """A heading and a line per row; the first `left` columns are left-aligned, the others right.

    On a narrow terminal the first column is cut, if it `has_names`, and columns in `least` are
    left out, the first ones first; a last line names them.
    """
    shown = list(range(len(heads)))
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    dropped = []
    most = width()
    if has_names and most:
        widths[0] = name_room(widths, most)
        rows = [[brief(row[0], widths[0]), *row[1:]] for row in rows]
    for head in least:
        if not most or sum(widths[i] for i in shown) + len(GAP) * (len(shown) - 1) <= most:
            break
        dropped.append(head)
        shown.remove(list(heads).index(head))
    lines = [paint(line_of(heads, shown, widths, left), bold=True)]
    for at, row in enumerate(rows):
        lines.append(line_of(row, shown, widths, left, heads, color, at))
    if dropped:
        lines.append(f"(not shown, the terminal is narrow: {', '.join(dropped)})")
    return "\n".join(lines)


def line_of(
    cells: Sequence[str],
    shown: list[int],
    widths: list[int],
    left: int,
    heads: Sequence[str] = (),
    color: Paint | None = None,
    row: int = 0,
) -> str:
    """One line of a table."""
    parts = []
    for i in shown:
        text = cells[i].ljust(widths[i]) if i < left else cells[i].rjust(widths[i])
        if i == shown[-1]:
            text = text.rstrip()
        parts.append(color(row, heads[i], text) if color is not None else text)
    return GAP.join(parts).rstrip()


# ---- Names and values that cannot control the terminal


def printable(text: str) -> str:
    """Escape what is not printable, so that a name cannot control the terminal."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def json_line(value: Any) -> str:
    """The value as one line of JSON that is safe on a terminal."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join([one if one.isprintable() else json.dumps(one)[1:-1] for one in text])


def echo_each(rows: Iterable[T], line: Callable[[T], str], none: str) -> None:
    """Print each on a line; if there is none, say so on standard error."""
    count = 0
    for row in rows:
        click.echo(line(row))
        count += 1
    if count == 0:
        click.echo(printable(none), err=True)
