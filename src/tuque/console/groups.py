"""`tuque tubes group`: groups of jobs, how far they are, and their cancel.

Decides what a line shows; the leader of the tube does the work.
"""

from __future__ import annotations

from typing import get_args

import click

from tuque.client.commands.groups import ChildEnd, GroupStatus, JobGroup
from tuque.completion import queue_names
from tuque.console.jobs import HELP, at, client_of, fields, told
from tuque.console.terminal.format import json_line, printable
from tuque.lazygroup import OptionsAnywhere
from tuque.nodeoptions import NodeOptions, node_options


@click.group(cls=OptionsAnywhere, context_settings=HELP)
def group() -> None:
    """Groups of jobs: a callback is added when all children have ended."""


@group.command("list", context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "--state", type=click.Choice(get_args(GroupStatus)), help="Groups of that state only."
)
@click.argument("queue", shell_complete=queue_names)
def list_groups(node: NodeOptions, as_json: bool, state: GroupStatus | None, queue: str) -> None:
    """List the groups of QUEUE that have not become their callback, one a line."""
    with client_of(node, is_here=False) as client:
        for one in client.groups(queue, state=state):
            click.echo(json_line(fields(one)) if as_json else row(one))


@group.command("show", context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--children", is_flag=True, help="The children as well, one a line.")
@click.argument("queue", shell_complete=queue_names)
@click.argument("id")
def show_group(node: NodeOptions, as_json: bool, children: bool, queue: str, id: str) -> None:
    """Show all of one group."""
    with client_of(node, is_here=False) as client:
        found = client.group_show(queue, id)
        click.echo(json_line(fields(found)) if as_json else told(found))
        if children:
            for one in client.group_results(queue, id):
                click.echo(json_line(fields(one)) if as_json else child_row(one))


@group.command("cancel", context_settings=HELP)
@node_options
@click.argument("queue", shell_complete=queue_names)
@click.argument("id")
def cancel_group(node: NodeOptions, queue: str, id: str) -> None:
    """Cancel a group: its callback does not run, open children are cancelled."""
    with client_of(node, is_here=False) as client:
        is_done = client.group_cancel(queue, id)
    click.echo("cancelled" if is_done else "it was over")


def row(one: JobGroup) -> str:
    """A group on one line."""
    ended = f"{one.done + one.failed}/{one.children} ended"
    words = [at(one.created_ms), one.id, one.state, ended, f"{one.failed} failed"]
    if one.dead:
        words.append(f"{one.dead} dead: waits for a replay")
    return printable("  ".join(words))


def child_row(one: ChildEnd) -> str:
    """A child on one line."""
    is_awaited = one.state == "open" and one.how == "dead"
    how = f"{one.how}, waits for a replay" if is_awaited else one.how
    words = [f"{one.index:>6}", one.id, how, one.reason]
    return printable("  ".join(words).rstrip())
