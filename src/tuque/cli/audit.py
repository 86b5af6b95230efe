"""`tuque audit`: what administrators did, of the files that nodes keep (SPEC N9.6).

Decides which lines are shown, and in which order; the files are JSON, one object a line.
"""

from __future__ import annotations

import datetime as dt
import heapq
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import click

from tuque.lazygroup import LocalTime
from tuque.terminal import echo_each, json_line, printable

NAME: Final = re.compile(r"audit-([0-9A-Za-z.]+)-(\d{20})\.jsonl")
FIELDS: Final = ("seq", "ts_ms", "node", "user", "from", "act", "outcome", "words")
HELP: Final = {"help_option_names": ["--help"]}

Row = dict[str, Any]


def rows_of_node(files: list[Path]) -> Iterator[Row]:
    """The node's lines in their order; before one whose number is too high, a row `missing`."""
    seq = -1
    for path in files:
        with path.open("rb") as file:
            for line in file:
                row = row_of(line)
                if row is None:
                    continue
                if 0 <= seq < row["seq"] - 1:
                    gap = row["seq"] - 1 - seq
                    yield {"ts_ms": row["ts_ms"], "node": row["node"], "missing": gap}
                seq = row["seq"]
                yield row


def row_of(line: bytes) -> Row | None:
    """The object of a line; None if the line is cut."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not all(name in row for name in FIELDS):
        return None
    return row if isinstance(row["seq"], int) and isinstance(row["ts_ms"], int) else None


def rows_of(directory: Path) -> Iterator[Row]:
    """The lines of all nodes by time. Raises OSError."""
    nodes: dict[str, list[Path]] = {}
    for path in sorted(directory.iterdir()):
        match = NAME.fullmatch(path.name)
        if match is not None:
            nodes.setdefault(match[1], []).append(path)
    each = [rows_of_node(files) for files in nodes.values()]
    yield from heapq.merge(*each, key=lambda row: int(row["ts_ms"]))


def shown(row: Row) -> str:
    """The row as a line for people."""
    at = dt.datetime.fromtimestamp(row["ts_ms"] / 1000).astimezone()
    stamp = f"{at:%Y-%m-%d %H:%M:%S}.{row['ts_ms'] % 1000:03d}  {row['node'][:8]}"
    if "missing" in row:
        return f"{stamp}  {row['missing']} lines are missing here"
    words = " ".join(map(str, row["words"]))
    line = f"{row['user']}  {row['from']}  {row['act']}  {row['outcome']}  {words}"
    return f"{stamp}  {printable(line)}"


def fits(row: Row, user: str | None, act: str | None, since_ms: int) -> bool:
    """Whether the row is wanted; a gap always is."""
    if row["ts_ms"] < since_ms:
        return False
    if "missing" in row:
        return True
    return (user is None or fnmatchcase(row["user"], user)) and (
        act is None or fnmatchcase(row["act"], act)
    )


@click.command(context_settings=HELP)
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--user", help="Only of users that match the glob.")
@click.option("--act", help="Acts that match the glob: 'acl|*', 'config|set', 'tube|drop'.")
@click.option("--since", "since_ms", type=LocalTime(), default=None, help="Since this local time.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each act.")
def audit(
    directory: Path, user: str | None, act: str | None, since_ms: int | None, as_json: bool
) -> None:
    """Print what administrators did: when, node, user, from where, act, outcome, words.

    DIRECTORY is that of `audit-dir`, or one with the files of several nodes.
    """
    try:
        rows = (row for row in rows_of(directory) if fits(row, user, act, since_ms or 0))
        echo_each(rows, json_line if as_json else shown, "no such lines")
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
