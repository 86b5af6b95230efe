"""`tuque tubes`: the tubes of a cluster, one per line, and their leaders.

Decides what a line shows; the figures come from the tube's leader (TUBE LIST, INFO, HOME).
"""

from __future__ import annotations

from typing import Final

import click

from tuque.console.cluster.commands import node_asked
from tuque.console.cluster.homes import (
    Nodes,
    as_fields,
    home_of,
    homes_of,
    lag_of,
    move,
    shown_failover,
    shown_home,
    take_over,
)
from tuque.console.cluster.homes import text as text_of
from tuque.console.cluster.limits import limits
from tuque.console.cluster.view import ask, known_nodes
from tuque.console.groups import group
from tuque.console.terminal import look
from tuque.console.terminal.format import json_line, printable
from tuque.console.terminal.link import Link, Reply
from tuque.lazygroup import OptionsAnywhere
from tuque.nodeoptions import NodeOptions, node_options

COLUMNS: Final = ("ready", "taken", "delayed", "buried")
WAITING: Final = ("waiting-takes", "waiting-puts")
TIMES: Final = ("ttl", "ttr")


@click.group(
    cls=OptionsAnywhere,
    invoke_without_command=True,
    context_settings={"help_option_names": ["--help"]},
)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def tubes(context: click.Context, node: NodeOptions, as_json: bool) -> None:
    """Show every tube: its type, home, tasks by state, and waiting clients.

    The home of a tube is its leader. LAG is how many changes the slowest replica lacks, with a +
    while one is incomplete. WAITING is how many takes and puts wait. Only a tube that is RUNNING
    has figures. A tube that delivers no task, since its type is missing or failed, is marked
    STOPPED, and a line below says why. Exit status 1 when the node does not answer.
    """
    if context.invoked_subcommand is not None:
        return
    with node_asked(node) as link:
        rows = rows_of(link)
    if as_json:
        click.echo(json_line(rows))
    elif rows:
        click.echo(table(rows))
    else:
        click.echo("no tubes; `tuque cli TUBE CREATE name type` makes one")


tubes.add_command(limits)
tubes.add_command(group)


@tubes.command()
@node_options
@click.option("--force", is_flag=True, help="The leader is lost: NODE takes over with its replica.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.argument("name")
@click.argument("leader", metavar="[NODE]", required=False, default="")
def home(
    node: NodeOptions,
    force: bool,
    as_json: bool,
    name: str,
    leader: str,
) -> None:
    """Show the leader of the tube NAME, or make NODE its leader.

    NODE is a node id, its first characters, or host:port. With --force NODE takes over from a
    leader that is unreachable: changes that only the old leader had are lost, and the reply shows
    what is known of them.
    """
    if force and not leader:
        raise click.UsageError("--force needs NODE: the node that takes over")
    with node_asked(node) as link:
        if force:
            told = take_over(link, name, leader)
            said = shown_failover(told, len(known_nodes(link)))
        else:
            if leader:
                move(link, name, leader)
            told = shown(link, name)
            said = f"the leader of {name} is {leader}" if leader else shown_home(told)
    click.echo(json_line(as_fields(told)) if as_json else said)


def shown(link: Link, name: str) -> dict[str, Reply]:
    """HOME of the tube, from its leader. ClickException if there is no such tube."""
    ask(link, "TUBE", "HOME", name)
    nodes = Nodes(link)
    told = home_of(nodes, name.encode("utf-8", "surrogateescape"))
    nodes.close()
    return told


def rows_of(link: Link) -> list[dict[str, object]]:
    """INFO of each tube by name, from its leader; tubes dropped meanwhile are left out."""
    listed = ask(link, "TUBE", "LIST")
    assert isinstance(listed, list)
    names = [name for name in listed if isinstance(name, bytes)]
    nodes = Nodes(link)
    homes = homes_of(nodes, names)
    commands = [[b"TUBE", b"INFO", name] for name in names]
    infos = nodes.calls_at([text_of(where.get("address", b"")) for where in homes], commands)
    unknown = [i for i, told in enumerate(infos) if not isinstance(told, list)]
    for i, told in zip(unknown, link.calls([commands[i] for i in unknown]), strict=True):
        infos[i] = told
    rows = []
    for where, told in zip(homes, infos, strict=True):
        if isinstance(told, list):
            row = fields_of(told)
            lag = "-" if row["temporary"] else lag_of(where)  # T18.1: it has no replicas
            row.update(address=text(where.get("address")), lag=lag)
            row["state"] = text(where["state"]) if where else row["state"]
            rows.append(row)
    nodes.close()
    return sorted(rows, key=lambda row: str(row["name"]))


def fields_of(flat: list[Reply]) -> dict[str, object]:
    """Names and values, texts decoded."""
    return {str(text(name)): text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def text(value: Reply) -> object:
    """Bytes as text, anything else unchanged."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def kind(row: dict[str, object]) -> str:
    """The type, and special properties of the tube."""
    marks = ["temporary"] if row["temporary"] else []
    if row["capacity"]:
        marks.append(f"capacity {row['capacity']}")
    return f"{row['type']} ({', '.join(marks)})" if marks else str(row["type"])


def seconds(value: object) -> str:
    """A time of INFO with its unit."""
    return "-" if value == "forever" else f"{value} s"


HEADS: Final = ("TUBE", "TYPE", "LEADER", "STATE", "LAG", *map(str.upper, COLUMNS), "WAITING")
LEAST: Final = ("TTR", "TTL", "WAITING", "BURIED", "DELAYED")  # left out first on narrow terminals


def table(rows: list[dict[str, object]]) -> str:
    """A heading and a line for each tube, and why tubes deliver nothing."""
    lines = []
    for row in rows:
        is_running = row["state"] == "RUNNING"
        figures = [figure(row[name]) if is_running else "-" for name in COLUMNS]
        takes, puts = (row[name] for name in WAITING)
        figures.append(f"{takes} + {puts}" if is_running and (takes or puts) else "-")
        state = f"{row['state']} STOPPED" if is_running and row.get("stopped") else row["state"]
        where = [str(row["home"])[:8], str(state), str(row["lag"])]
        times = [seconds(row[name]) for name in TIMES]
        lines.append([printable(str(row["name"])), printable(kind(row)), *where, *figures, *times])

    def color(at: int, head: str, text: str) -> str:
        return look.paint(text, color_of(rows[at])) if head == "STATE" else text

    said = [look.table([*HEADS, *map(str.upper, TIMES)], lines, 4, LEAST, color)]
    for row in rows:
        if row["state"] == "RUNNING" and row.get("stopped"):
            name, why = printable(str(row["name"])), printable(str(row["stopped"]))
            said.append(f"{name} delivers no task: {why}")
    return "\n".join(said)


def figure(value: object) -> str:
    """A number of INFO for people."""
    return look.number(value) if isinstance(value, int) else str(value)


def color_of(row: dict[str, object]) -> str:
    """Good, or bad."""
    return look.GOOD if row["state"] == "RUNNING" and not row.get("stopped") else look.BAD
