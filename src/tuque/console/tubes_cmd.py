"""`tuque tubes`: the tubes of one node, a line each.

Decides what a line holds; the figures are the node's own words (TUBE LIST, TUBE INFO).
"""

from __future__ import annotations

import json
from typing import Final

import click

from tuque.console.cluster_cmd import node_asked, node_options
from tuque.console.cluster_view import ask
from tuque.console.link import Link, Reply

COLUMNS: Final = ("ready", "taken", "delayed", "buried", "waiting-takes", "waiting-puts")
TIMES: Final = ("ttl", "ttr")


@click.command(context_settings={"help_option_names": ["--help"]})
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def tubes(host: str, port: int, url: str, password: str, as_json: bool) -> None:
    """Show every tube of a node: its type, tasks by state, and who waits.

    Exit status 1 when the node does not answer.
    """
    with node_asked(host, port, url, password) as link:
        rows = rows_of(link)
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
    elif rows:
        click.echo(table(rows))
    else:
        click.echo("no tubes; `tuque cli TUBE CREATE name type` makes one")


def rows_of(link: Link) -> list[dict[str, object]]:
    """INFO of each tube by name; one that is dropped meanwhile is left out."""
    names = ask(link, "TUBE", "LIST")
    assert isinstance(names, list)
    rows = []
    for name in names:
        assert isinstance(name, bytes)
        told = link.call([b"TUBE", b"INFO", name])
        if isinstance(told, list):
            rows.append(fields_of(told))
    return sorted(rows, key=lambda row: str(row["name"]))


def fields_of(flat: list[Reply]) -> dict[str, object]:
    """Names and values, texts decoded."""
    return {str(text(name)): text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def text(value: Reply) -> object:
    """Bytes as text, anything else as it is."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def kind(row: dict[str, object]) -> str:
    """The type, and what is special about the tube."""
    marks = ["temporary"] if row["temporary"] else []
    if row["capacity"]:
        marks.append(f"capacity {row['capacity']}")
    return f"{row['type']} ({', '.join(marks)})" if marks else str(row["type"])


def seconds(value: object) -> str:
    """A time of INFO with its unit."""
    return "-" if value == "forever" else f"{value} s"


def table(rows: list[dict[str, object]]) -> str:
    """A heading and a line for each tube, columns as wide as they must be."""
    lines = [["TUBE", "TYPE", *(name.upper() for name in COLUMNS), *map(str.upper, TIMES)]]
    for row in rows:
        figures = [str(row[name]) for name in COLUMNS]
        lines.append([str(row["name"]), kind(row), *figures, *(seconds(row[n]) for n in TIMES)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = []
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        padded.append("  ".join(cells).rstrip())
    return "\n".join(padded)
