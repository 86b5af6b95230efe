"""`tuque cluster ...`: see and change a cluster from one of its nodes.

Decides which nodes are asked and how the answers are put into a table. Each node speaks for
itself: `status` asks all that the first one knows. Exit status 1 when something is not well.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

import click

from tuque.console.cli import target_of
from tuque.console.cluster_dev import dev
from tuque.console.link import ErrorReply, Link, LinkError, Reply, Target

F = TypeVar("F", bound=Callable[..., Any])
POLL_S: Final = 0.2


@dataclass
class Row:
    """One node as the asked one sees it, and as it speaks for itself when it answers."""

    node: str
    address: str
    state: str
    jobs: int | None = None
    queued: int | None = None
    clients: int | None = None
    memory: str = ""
    to_repair: int | None = None
    to_drain: int | None = None


def node_options(command: F) -> F:
    """The options that say which node to ask."""
    for option in (
        click.option("-a", "--password", default="", envvar="TUQUE_PASSWORD"),
        click.option("-u", "--url", default="", envvar="TUQUE_URL", help="tuque://host:port/"),
        click.option("-p", "--port", default=7711, show_default=True),
        click.option("-h", "--host", default="127.0.0.1", show_default=True),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["--help"]})
def cluster() -> None:
    """Start, see and change a cluster."""


cluster.add_command(dev)


def ask(link: Link, *words: str) -> Reply:
    """One command; ClickException for an error or a node that is not there."""
    try:
        reply = link.call([word.encode() for word in words])
    except LinkError as err:
        raise click.ClickException(str(err)) from None
    if isinstance(reply, ErrorReply):
        raise click.ClickException(f"{link.target}: {reply}")
    return reply


def info_of(link: Link) -> dict[str, str]:
    """INFO of a node by name."""
    text = ask(link, "INFO")
    assert isinstance(text, bytes)
    lines = text.decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def rows_of(link: Link, password: str) -> list[Row]:
    """The nodes of the cluster, each asked for its figures where it answers."""
    text = ask(link, "CLUSTER", "NODES")
    assert isinstance(text, bytes)
    rows = []
    for line in text.decode().splitlines():
        words = line.split(None, 6)
        node_id, address, flags = words[0], words[1], words[2].split(",")
        is_self = "myself" in flags
        state = state_of(flags, words[5] if len(words) > 5 else "", words[6:])
        host, _, port = address.rpartition(":")
        if is_self and not host:
            host, address = link.target.host, f"{link.target.host}:{port}"
        row = Row(node_id[:8] if not is_self else node_id[:8] + " *", address, state)
        if is_self or state in ("up", "leaving"):
            fill(row, link if is_self else Link(Target(host.strip("[]"), int(port), "", password)))
        rows.append(row)
    return rows


def state_of(flags: list[str], linked: str, rest: list[str]) -> str:
    """One word for the state of a node, and the reason where one is known."""
    for flag, word in (("fail", "failed"), ("fail?", "suspected"), ("handshake", "meeting")):
        if flag in flags:
            return f"{word}: {rest[0]}" if rest else word
    if "leaving" in flags:
        return "leaving"
    return "up" if linked == "connected" else "no link"


def fill(row: Row, link: Link) -> None:
    """Add what the node says of itself; a node that does not answer keeps its row."""
    try:
        info = info_of(link)
    except click.ClickException as err:
        row.state += f" ({err.message.split(':')[-1].strip()})"
        return
    row.jobs = int(info.get("registered_jobs", 0))
    row.queued = int(info.get("queued_jobs", info.get("jobs_queued", 0)))
    row.clients = int(info.get("connected_clients", 0))
    row.memory = info.get("used_memory_human", "")
    row.to_repair = int(info.get("cluster_repair_left", 0))
    if info.get("cluster_leaving", "no") == "yes":
        row.to_drain = int(info.get("cluster_drain_left", 0))


HEADS: Final = {
    "node": "NODE",
    "address": "ADDRESS",
    "state": "STATE",
    "jobs": "JOBS",
    "queued": "QUEUED",
    "clients": "CLIENTS",
    "memory": "MEMORY",
    "to_repair": "TO REPAIR",
    "to_drain": "TO DRAIN",
}


def table(rows: list[Row]) -> str:
    """The rows under their heads; numbers to the right, what is not known as -."""
    lines = [list(HEADS.values())]
    for row in rows:
        values = asdict(row)
        lines.append(["-" if values[n] in (None, "") else str(values[n]) for n in HEADS])
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
    left = ("node", "address", "state")
    out = []
    for line in lines:
        cells = [
            text.ljust(width) if name in left else text.rjust(width)
            for name, text, width in zip(HEADS, line, widths, strict=True)
        ]
        out.append("  ".join(cells).rstrip())
    return "\n".join(out)


@cluster.command()
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def status(host: str, port: int, url: str, password: str, as_json: bool) -> None:
    """Show every node: state, jobs, memory, repair. Exit status 1 unless all are up."""
    target = target_of(host, port, "", password, "", url)
    link = Link(target)
    rows = rows_of(link, target.password)
    link.close()
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows]))
    else:
        click.echo(table(rows))
    sys.exit(0 if all(row.state in ("up", "leaving") for row in rows) else 1)


@cluster.command()
@node_options
@click.option("--wait", default=10.0, show_default=True, help="Seconds to wait for the meeting.")
@click.argument("other_host")
@click.argument("other_port", type=click.IntRange(1, 65535))
def meet(
    host: str, port: int, url: str, password: str, wait: float, other_host: str, other_port: int
) -> None:
    """Let a node join the cluster of the node asked (-h, -p), and say whether it did."""
    link = Link(target_of(host, port, "", password, "", url))
    before = linked_nodes(link)
    ask(link, "CLUSTER", "MEET", other_host, str(other_port))
    deadline = time.monotonic() + wait
    meeting = ""
    while time.monotonic() < deadline:
        nodes = ask(link, "CLUSTER", "NODES")
        assert isinstance(nodes, bytes)
        met = [line for line in nodes.decode().splitlines() if f":{other_port} " in line]
        now = linked_nodes(link)
        if any(" connected" in line and "handshake" not in line for line in met) or now > before:
            click.echo(f"{other_host}:{other_port} is in the cluster")
            return
        meeting = next((line for line in met if "handshake" in line), meeting)
        time.sleep(POLL_S)
    reason = meeting.split(None, 6)[6:] if meeting else []
    raise click.ClickException(
        f"{other_host}:{other_port} did not join within {wait:g} s"
        + (f": {reason[0]}" if reason else "; is its bus port open, and has it the same secret?")
    )


def linked_nodes(link: Link) -> int:
    """How many nodes are linked to the node asked."""
    text = ask(link, "CLUSTER", "NODES")
    assert isinstance(text, bytes)
    lines = [line.split() for line in text.decode().splitlines()]
    return sum(1 for w in lines if w[5] == "connected" and "handshake" not in w[2])


@cluster.command()
@node_options
@click.argument("node_id")
def forget(host: str, port: int, url: str, password: str, node_id: str) -> None:
    """Take a node that will not come back out of the cluster (its id, or the start of it)."""
    link = Link(target_of(host, port, "", password, "", url))
    text = ask(link, "CLUSTER", "NODES")
    assert isinstance(text, bytes)
    ids = [line.split()[0] for line in text.decode().splitlines()]
    found = [known for known in ids if known.startswith(node_id)]
    if len(found) != 1:
        what = "more than one node" if found else "no node"
        raise click.ClickException(f"{what} of this cluster has an id that begins with {node_id}")
    ask(link, "CLUSTER", "FORGET", found[0])
    click.echo(f"{found[0]} is forgotten; its jobs are repaired on the others")


@cluster.command()
@node_options
@click.option("--wait/--no-wait", default=True, help="Show the progress until it is done.")
def drain(host: str, port: int, url: str, password: str, wait: bool) -> None:
    """Let a node leave: it gives all its jobs to the others, and then is safe to stop."""
    link = Link(target_of(host, port, "", password, "", url))
    ask(link, "CLUSTER", "LEAVING", "yes")
    info = info_of(link)
    total = int(info.get("cluster_drain_left", 0))
    if not wait:
        click.echo(f"leaving, {total} jobs to give away")
        return
    with click.progressbar(length=max(1, total), label="draining") as bar:
        while info.get("cluster_safe_to_stop") != "yes":
            left = int(info.get("cluster_drain_left", 0))
            bar.update(max(0, total - left - bar.pos))
            time.sleep(POLL_S)
            info = info_of(link)
        bar.update(bar.length or 1)
    click.echo(f"{link.target} has given all its jobs away: safe to stop")


@cluster.command()
@node_options
@click.option("--wait", is_flag=True, help="Return when every node says done.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def repair(host: str, port: int, url: str, password: str, wait: bool, as_json: bool) -> None:
    """Show how many jobs have fewer copies than asked for. Exit status 1 while some have."""
    target = target_of(host, port, "", password, "", url)
    link = Link(target)
    rows = rows_of(link, target.password)
    while wait and sum(row.to_repair or 0 for row in rows) > 0:
        time.sleep(POLL_S)
        rows = rows_of(link, target.password)
    left = {row.address: row.to_repair for row in rows}
    total = sum(row.to_repair or 0 for row in rows)
    if as_json:
        click.echo(json.dumps({"left": total, "nodes": left}))
    else:
        for address, count in left.items():
            click.echo(f"{address:<24} {'no answer' if count is None else count or 'done'}")
        click.echo("done" if total == 0 else f"{total} jobs wait for copies")
    sys.exit(0 if total == 0 else 1)
