"""`tuque queues`, `tuque workers`, `tuque top`: the whole cluster; settings of a queue."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final, Literal, cast, get_args

import click

from tuque.cli.jobs import client_of
from tuque.cli.shown import (
    as_fields,
    glob_of,
    node_table,
    queue_table,
    summary,
    tasks_line,
    worker_table,
)
from tuque.client.commands.operate import QueueOrder, QueueRow, WorkerInfo
from tuque.clusterview.figures import NodeRow
from tuque.clusterview.view import NodesInReach, asked
from tuque.completion import queue_names
from tuque.lazygroup import FiniteRange, missing_extra
from tuque.nodeoptions import NodeOptions, node_options, refuse_before
from tuque.terminal import json_line, printable

HELP: Final = {"help_option_names": ["--help"]}
ORDERS: Final = get_args(QueueOrder)
CLEAR: Final = "\033[H\033[2J"


@click.group(invoke_without_command=True, context_settings=HELP)
@node_options
@click.option("--here", is_flag=True, help="Only the node asked.")
@click.option(
    "--sort", type=click.Choice(ORDERS), default="oldest", show_default=True, help="The order."
)
@click.option("--match", metavar="GLOB", help="Only names that match, or contain this.")
@click.option("--type", "kind", metavar="TYPE", help="queue, dead, or a type of tubes.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "--watch",
    "every_s",
    type=FiniteRange(least=0.2),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Repeat every 2 seconds, or every SECONDS.",
)
@click.pass_context
def queues(
    context: click.Context,
    node: NodeOptions,
    here: bool,
    sort: str,
    match: str | None,
    kind: str | None,
    limit: int,
    as_json: bool,
    every_s: float | None,
) -> None:
    """List the queues of the cluster, those whose oldest ready job is oldest first.

    All nodes are asked: jobs and rates are sums, OLDEST is the greatest age. IN/S and OUT/S are
    jobs added and done in a second, lately. DEAD are the jobs in QUEUE.dead, WAITING the clients
    that wait for jobs.
    """
    if context.invoked_subcommand is not None:
        refuse_before(context)
        return

    async def show(nodes: NodesInReach) -> None:
        by = cast(QueueOrder, sort)
        rows, _ = await nodes.queues(by, sort != "name", glob_of(match), kind, limit)
        if as_json:
            text = "\n".join(json_line(as_fields(row)) for row in rows)
        else:
            text = queue_table(rows) if rows else "no queues"
        is_live = every_s is not None and sys.stdout.isatty() and not as_json
        if text:
            click.echo((CLEAR if is_live else "") + text)
        nodes.warn()

    async def shown(nodes: NodesInReach) -> None:
        await show(nodes)
        while every_s is not None:
            sys.stdout.flush()
            await asyncio.sleep(every_s)
            await nodes.look()
            await show(nodes)

    try:
        asked(node, shown, here)
    except KeyboardInterrupt:
        if every_s is None:
            raise


# ---- `tuque queues set`, `show`, `purge`, `delete`: one queue (QUEUE)


@queues.command("set", context_settings=HELP)
@node_options
@click.option("--expires", type=FiniteRange(least=1.0), metavar="SECONDS", help="Goes if unused.")
@click.option("--autodelete", is_flag=True, help="Goes 5 s after its last consumer.")
@click.option(
    "--ttl", type=FiniteRange(over=True), metavar="SECONDS", help="The longest TTL of a job."
)
@click.option("--maxlen", type=click.IntRange(1), help="Jobs that may be queued at a node.")
@click.argument("queue", shell_complete=queue_names)
def set_queue(
    node: NodeOptions,
    expires: float | None,
    autodelete: bool,
    ttl: float | None,
    maxlen: int | None,
    queue: str,
) -> None:
    """Give QUEUE these settings; those that are not given are off."""
    with client_of(node, is_here=False) as client:
        is_new = client.queue_set(
            queue, expires=expires, autodelete=autodelete, ttl=ttl, maxlen=maxlen
        )
    click.echo("set" if is_new else "unchanged")


@queues.command("show", context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.argument("queue", shell_complete=queue_names)
def show_queue(node: NodeOptions, as_json: bool, queue: str) -> None:
    """Show the settings of QUEUE; status 1 if it has none."""
    with client_of(node, is_here=False) as client:
        found = client.queue_show(queue)
    if found is None:
        raise click.ClickException(f"{printable(queue)} has no settings: tuque queues set")
    for name, value in as_fields(found).items():
        if not as_json:
            click.echo(printable(f"{name}: {value}"))
    if as_json:
        click.echo(json_line(as_fields(found)))


@queues.command("purge", context_settings=HELP)
@node_options
@click.option(
    "--state",
    type=click.Choice(("waiting", "scheduled", "all")),
    default="waiting",
    show_default=True,
    help="Queued jobs, those in their first delay, or both and those in a back-off.",
)
@click.option("--here", is_flag=True, help="Only at the node asked.")
@click.argument("queue", shell_complete=queue_names)
def purge_queue(node: NodeOptions, state: str, here: bool, queue: str) -> None:
    """Remove the jobs of QUEUE that no worker has; prints how many."""
    which = cast(Literal["waiting", "scheduled", "all"], state)
    with client_of(node, is_here=here) as client:
        click.echo(client.queue_purge(queue, state=which, here=here))


@queues.command("delete", context_settings=HELP)
@node_options
@click.option("--if-unused", is_flag=True, help="Unless a client waits for it at the node asked.")
@click.option("--if-empty", is_flag=True, help="Unless a job is queued at the node asked.")
@click.argument("queue", shell_complete=queue_names)
def delete_queue(node: NodeOptions, if_unused: bool, if_empty: bool, queue: str) -> None:
    """Remove QUEUE with its settings, its subscriptions and the jobs that wait."""
    with client_of(node, is_here=False) as client:
        is_gone = client.queue_delete(queue, if_unused=if_unused, if_empty=if_empty)
    click.echo("deleted" if is_gone else "it stays")


@click.group(invoke_without_command=True, context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def workers(context: click.Context, node: NodeOptions, as_json: bool) -> None:
    """List the workers of the cluster, lost ones first, with the job that runs longest.

    Below the table stand the jobs of lost workers, and when each is due again.
    """
    if context.invoked_subcommand is not None:
        refuse_before(context)
        return

    async def seen(nodes: NodesInReach) -> list[WorkerInfo]:
        rows = await nodes.workers()
        nodes.warn()
        return rows

    rows = asked(node, seen)
    if as_json:
        for one in rows:
            click.echo(json_line(as_fields(one)))
    else:
        click.echo(worker_table(rows) if rows else "no workers; `tuque worker MODULE:APP` is one")


@workers.command(context_settings=HELP)
@node_options
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def quiet(node: NodeOptions, names: tuple[str, ...]) -> None:
    """Ask workers to take no more jobs, and to finish those that they have.

    Exit status 1 if one is not alive.
    """
    give(node, names, "quiet")


@workers.command(context_settings=HELP)
@node_options
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def stop(node: NodeOptions, names: tuple[str, ...]) -> None:
    """Ask workers to end, as SIGTERM does: what runs may finish within their --grace.

    Exit status 1 if one is not alive.
    """
    give(node, names, "stop")


def give(node: NodeOptions, names: tuple[str, ...], word: str) -> None:
    """Have each worker do it, and say so."""

    async def given(nodes: NodesInReach) -> int:
        missing = 0
        for name in names:
            if await nodes.order(name, word):
                click.echo(printable(f"{name} is asked: {word}"))
            else:
                missing += 1
                click.echo(printable(f"{name} is not alive"), err=True)
        return missing

    sys.exit(1 if asked(node, given) else 0)


@click.command(context_settings=HELP)
@node_options
@click.option("--every", "every_s", type=FiniteRange(least=0.2), default=2.0, show_default=True)
@click.option("--once", is_flag=True, help="Write it once, without a screen.")
@click.option("--json", "as_json", is_flag=True, help="With --once: one JSON object.")
def top(node: NodeOptions, every_s: float, once: bool, as_json: bool) -> None:
    """Show queues, workers and nodes of the cluster, live.

    Keys: / filters, s sorts, space holds, p pauses a queue, x retries its dead letters, 1 2 3
    change the tab, q quits. --once needs no terminal.
    """
    if as_json and not once:
        raise click.UsageError("--json goes with --once")
    if not once:
        watch(node, every_s)
        return
    queues, count, workers, nodes = asked(node, seen_once)
    if as_json:
        click.echo(as_document(queues=queues, workers=workers, nodes=nodes))
        return
    line = tasks_line(nodes)
    parts = [summary(queues, workers, count) + (f"\n{line}" if line else ""), node_table(nodes)]
    parts += [queue_table(queues)] if queues else []
    parts += [worker_table(workers)] if workers else []
    click.echo("\n\n".join(parts))


async def seen_once(
    nodes: NodesInReach,
) -> tuple[list[QueueRow], int, list[WorkerInfo], list[NodeRow]]:
    """What --once writes: queues, and how many there are; workers, nodes."""
    rows, count = await nodes.queues(limit=1000)
    return rows, count, await nodes.workers(), await nodes.nodes()


def watch(node: NodeOptions, every_s: float) -> None:
    """The screen; ClickException without textual, a terminal or a node."""
    try:
        from tuque.cli.top import Top
    except ModuleNotFoundError as err:
        raise missing_extra(err, "top") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("the screen needs a terminal; --once writes it once, without one")
    asked(node, NodesInReach.nodes)  # nobody answers: an error here, not on the screen
    Top(node, every_s).run()


def as_document(**parts: Any) -> str:
    """Parts of a picture as one line of JSON."""
    return json_line({name: [as_fields(row) for row in rows] for name, rows in parts.items()})
