"""`tuque tubes limits`: the keys for which jobs of a tube wait. Decides what a line shows."""

from __future__ import annotations

from itertools import islice

import click

from tuque.client.commands.operate import KeyRow
from tuque.completion import queue_names
from tuque.console.jobs import at, client_of, fields
from tuque.console.terminal.format import json_line, printable
from tuque.nodeoptions import NodeOptions, node_options


@click.command(context_settings={"help_option_names": ["--help"]})
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--count", type=click.IntRange(1), default=50, help="Show so many at most (50).")
@click.argument("queue", shell_complete=queue_names)
def limits(node: NodeOptions, as_json: bool, count: int, queue: str) -> None:
    """Show the keys of QUEUE for which jobs wait, and its groups.

    QUEUE is a tube of type tasks. Limits come first, then rates, each with the longest wait first.
    """
    with client_of(node, is_here=False) as client:
        rows = client.limits(queue, count=min(count + 1, 1_000))
        for row in islice(rows, count):
            click.echo(json_line(fields(row)) if as_json else key_line(row))
        if next(rows, None) is not None:
            click.echo(f"there are more than {count:,}: --count shows them", err=True)


def key_line(row: KeyRow) -> str:
    """A key on one line: what it has, who waits, and since when."""
    if row.kind == "limit":
        has = f"{row.used} of {row.places} places used"
    elif row.kind == "rate":
        has = f"{rate_words(row.token_us)}, {row.tokens} of {row.burst} tokens"
    else:
        has = f"weight {row.weight} of {row.weights}"
    words = [row.kind, row.key, has, f"{row.waiting} wait"]
    if row.since_ms:
        words.append(f"since {at(row.since_ms)}")
    return printable("  ".join(words))


def rate_words(token_us: int) -> str:
    """A rate in the unit in which it is at least 1: 10/s, 90/m, 5/h."""
    for unit, seconds in (("s", 1), ("m", 60), ("h", 3600)):
        count = seconds * 1_000_000 / token_us
        if count >= 0.999999 or unit == "h":
            break
    return f"{count:.4g}/{unit}"
