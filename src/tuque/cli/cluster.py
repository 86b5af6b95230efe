"""`tuque cluster ...`: show and change a cluster from one of its nodes, or run one here.

Has `tuque node stop` as well. Decides what is asked and printed, and when a command has succeeded.
Each node is asked for its own data; clusterview/health.py gathers it. Exit status 1 if something is
wrong.
"""

from __future__ import annotations

import json
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_urlsafe
from types import FrameType
from typing import Any, Final, TypeVar

import click

from tuque import terminal
from tuque.cli.programs import (
    Programs,
    free_ports,
    join_nodes,
    node_name,
    start_nodes,
    words_of,
)
from tuque.cli.prompt.cli import target_of
from tuque.client.api import ClusterNode
from tuque.client.commands.admin import cluster_nodes
from tuque.client.transport.conn import ErrorReply
from tuque.client.transport.raw_link import Link, LinkError, Reply, Target
from tuque.clusterview.health import (
    LEAVES,
    Row,
    as_fields,
    failing,
    homeless,
    led_by_votes,
    new_leaders,
    rows_of,
    uneven,
    unwell,
    votes_of,
    voting,
)
from tuque.clusterview.view import NodesInReach, asked, own_first
from tuque.lazygroup import FiniteRange
from tuque.nodeoptions import NodeOptions, node_options
from tuque.platforms import known_signals
from tuque.smallfile import is_weak_secret

# ---- `tuque cluster dev`: a cluster on this machine, for experiments, until Ctrl-C.
#
# Decides ports, directories and what is printed. The nodes are ordinary `tuque server` processes on
# the loopback; ending the command ends them, and their data stay in the directory. A node that is
# killed does not end the others: people want to see what they do.


SIGNALS: Final = known_signals("SIGINT", "SIGTERM", "SIGHUP")
POLL_S: Final = 0.2
NO_JOURNAL: Final = "appendonly=no"  # unless --set says otherwise


class Ended(Exception):
    """The command was asked to end."""


def on_signal(number: int, frame: FrameType | None) -> None:
    """Ends the wait; ignores further signals while the nodes stop."""
    raise Ended


@click.command()
@click.option("--nodes", type=click.IntRange(1, 16), default=3, show_default=True)
@click.option(
    "--port",
    type=click.IntRange(0, 55_520),
    default=0,
    help="Port of the first node; the others take the next ones. 0: any free ports.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("cluster-dev"),
    show_default=True,
    help="Where each node keeps its data and log.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Option for all nodes."
)
def dev(nodes: int, port: int, directory: Path, settings: tuple[str, ...]) -> None:
    """Start a cluster on this machine; Ctrl-C stops it.

    A node that is killed leaves the others alone; the command to start it again is shown.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ports = [port + i for i in range(nodes)] if port else free_ports(nodes)
    own = (NO_JOURNAL, f"maxmemory={max(60 // nodes, 1)}%")
    options = [word for setting in (*own, *settings) for word in ("--set", setting)]
    for number in SIGNALS:
        signal.signal(number, on_signal)
    trouble: click.ClickException | None = None
    with Programs(directory) as programs:
        try:
            urls = start_nodes(programs, ports, directory, *options)
            join_nodes(programs, ports)
            show(urls, ports[0], directory)
            while programs.names:
                for ended in programs.ended():
                    name = ended.split()[0]
                    at = ports[int(name.rpartition("-")[2]) - 1]
                    again = [*words_of(at, directory / name), *options]
                    click.echo(f"{ended}; again: tuque {shlex.join(again)}")
                time.sleep(POLL_S)
            trouble = click.ClickException("no node is left")
        except Ended:
            pass
        except click.ClickException as err:
            trouble = err
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        click.echo("stopping ...")
        try:
            programs.stop_all()
        except click.ClickException as err:
            trouble = trouble or err  # the first error is the cause
    if trouble is not None:
        raise trouble
    click.echo("stopped")


def show(urls: list[str], port: int, directory: Path) -> None:
    """Print which node runs where."""
    for number, url in enumerate(urls, 1):
        click.echo(f"{node_name(number):<8} {url}   {directory / node_name(number)}")
    hosts = ",".join(url.removeprefix("tuque://") for url in urls)
    click.echo(f"\nall      tuque://{hosts}/")
    click.echo(f"look     tuque cluster status -p {port}")
    click.echo("stop     Ctrl-C")


# ---- The nodes of a cluster as a table


HEADS: Final = {
    "name": "NODE",
    "address": "ADDRESS",
    "shown_state": "STATE",
    "reaches": "REACHES",
    "jobs": "JOBS",
    "queued": "QUEUED",
    "clients": "CLIENTS",
    "memory": "MEMORY",
    "to_repair": "TO REPAIR",
    "to_drain": "TO DRAIN",
}
LEFT: Final = 3  # columns of text
LEAST: Final = ("CLIENTS", "MEMORY", "REACHES")  # left out first on a narrow terminal


def table(rows: list[Row]) -> str:
    """The rows under their headings; unknown values as -."""
    shown = dict(HEADS)
    if all(row.to_drain is None for row in rows):
        del shown["to_drain"]
    cells = [[cell(getattr(row, name)) for name in shown] for row in rows]

    def color(at: int, head: str, text: str) -> str:
        return terminal.paint(text, color_of(rows[at])) if head == "STATE" else text

    return terminal.table(list(shown.values()), cells, LEFT, LEAST, color)


def color_of(row: Row) -> str:
    """The color of a node's state: up, changing or failed."""
    if row.shown_state in LEAVES or row.is_meeting:
        return terminal.WARNING
    return terminal.GOOD if row.shown_state == "up" else terminal.BAD


def cell(value: object) -> str:
    """A value of a row as text."""
    if value is None or value == "":
        return "-"
    return terminal.number(value) if isinstance(value, int) else str(value)


# ---- commands


ANSWER_S: Final = 5.0  # that the node asked may take
F = TypeVar("F", bound=Callable[..., Any])
SECRET_BYTES: Final = 32
CLASH: Final = "each of the two clusters has"  # a reason that no wait ends (K3.4)
NO_REASON: Final = "no answer yet. Is its bus port open, and does it have the same cluster secret?"


def limit_option(command: F) -> F:
    """The option for the time limit."""
    return click.option(
        "--timeout", type=FiniteRange(), default=0.0, help="Give up after that long; 0: never."
    )(command)


@click.group(context_settings={"help_option_names": ["--help"]})
def cluster() -> None:
    """Start, show and change a cluster."""


cluster.add_command(dev)


@contextmanager
def node_asked(node: NodeOptions) -> Iterator[Link]:
    """A connection to the node in the options."""
    link = Link(target_of(node), ANSWER_S)
    try:
        yield link
    finally:
        link.close()


def ask(link: Link, *words: str) -> Reply:
    """One command; ClickException for an error or a node that is down."""
    try:
        reply = link.call([word.encode("utf-8", "surrogateescape") for word in words])
    except LinkError as err:
        raise click.ClickException(str(err)) from None
    if isinstance(reply, ErrorReply):
        raise click.ClickException(f"{link.target}: {reply}")
    return reply


def text_of(link: Link, *words: str) -> str:
    """One command whose reply is text."""
    reply = ask(link, *words)
    if not isinstance(reply, bytes):
        raise click.ClickException(f"{link.target} does not answer {' '.join(words)} as Tuque does")
    return reply.decode()


def info_of(link: Link) -> dict[str, str]:
    """INFO of a node by name."""
    lines = text_of(link, "INFO").split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def known_nodes(link: Link) -> list[ClusterNode]:
    """The nodes known to the one asked: itself first, then by address."""
    nodes = cluster_nodes().parse(text_of(link, "CLUSTER", "NODES").encode())
    return sorted(nodes, key=own_first)


@cluster.command()
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def status(node: NodeOptions, as_json: bool) -> None:
    """Show every node with its jobs.

    Each node is asked for its own figures. Exit status 1 unless all is well.
    """

    async def seen(nodes: NodesInReach) -> tuple[list[Row], list[str]]:
        rows = await rows_of(nodes)
        return rows, homeless(rows, await led_by_votes(nodes, rows))

    rows, lost = asked(node, seen)
    voters, can_vote = votes_of(rows)
    if as_json:
        click.echo(json.dumps([as_fields(row) for row in rows], ensure_ascii=False))
    else:
        lines = [
            *failing(rows),
            *leaving(rows),
            *voting(rows),
            *new_leaders(rows),
            *lost,
        ]
        click.echo("\n".join([table(rows), *lines, *uneven(rows)]))
    is_unwell = unwell(rows) or failing(rows) or leaving(rows) or lost or uneven(rows)
    sys.exit(1 if is_unwell or can_vote != voters else 0)


@cluster.command()
def secret() -> None:
    """Print a new secret for the nodes of a cluster.

    It has 256 bits of chance. All nodes need the same one, as cluster-secret or in the first line
    of cluster-secret-file.
    """
    drawn = token_urlsafe(SECRET_BYTES)
    while is_weak_secret(drawn):  # it looks like words once in ten thousand times
        drawn = token_urlsafe(SECRET_BYTES)
    click.echo(drawn)


@cluster.command()
@node_options
@click.option(
    "--wait",
    type=FiniteRange(),
    default=10.0,
    show_default=True,
    help="Seconds to wait for the meeting.",
)
@click.argument("other", metavar="HOST:PORT")
@click.argument("ports", metavar="[BUS_PORT]", nargs=-1, type=click.IntRange(1, 65535))
def meet(
    node: NodeOptions,
    wait: float,
    other: str,
    ports: tuple[int, ...],
) -> None:
    """Make another node join the cluster of the node asked.

    It waits until they are linked, or says why they are not. Without BUS_PORT the bus of the other
    node is expected 10000 above its port. HOST PORT [BUS_PORT] is the same.
    """
    other_host, bus_ports = place_of(other, ports)
    with node_asked(node) as link:
        there = Target(other_host, bus_ports[0], "", link.target.password, link.target.user)
        there_id = id_at(there)
        if there_id and there_id == id_at(link.target):
            raise click.ClickException(f"{there} is the node asked itself; -h and -p name another")
        is_it, is_at = known_as(there, there_id), known_as(there, "")
        ask(link, "CLUSTER", "MEET", other_host, *map(str, bus_ports))
        deadline, reason = time.monotonic() + wait, ""
        while time.monotonic() < deadline:
            nodes = known_nodes(link)
            found = [node for node in nodes if is_linked(node) and is_it(node)]
            if found:
                click.echo(f"{there} is in the cluster of {link.target}")
                if "leaving" in found[0].flags:
                    raise click.ClickException(how_to_stay(str(there)))
                return
            reasons = [n.reason for n in nodes if is_meeting(n) and n.reason and is_at(n)]
            reason = reasons[-1] if reasons else reason
            if reason.startswith(CLASH):
                raise click.ClickException(f"{there} cannot join: {reason}")
            time.sleep(POLL_S)
    raise click.ClickException(f"{there} did not join within {wait:g} s: {reason or NO_REASON}")


def place_of(other: str, ports: tuple[int, ...]) -> tuple[str, list[int]]:
    """The host, and its port with that of the bus, if given.

    As HOST:PORT [BUS_PORT] or HOST PORT [BUS_PORT]; an IPv6 address with a port needs brackets.
    UsageError for anything else.
    """
    host, colon, port = other.rpartition(":")
    is_bare = ":" in host and not host.startswith("[")  # an IPv6 address without a port
    given = list(ports)
    if colon and not is_bare:
        if not port.isdecimal() or not 0 < int(port) <= 65535:
            raise click.UsageError(f"{other!r} is no HOST:PORT with a port from 1 to 65535")
        given.insert(0, int(port))
    else:
        host = other
    if not host or not 1 <= len(given) <= 2:
        raise click.UsageError(f"say HOST:PORT [BUS_PORT] of the other node, not {other!r}")
    return host.strip("[]"), given


def is_self(node: ClusterNode) -> bool:
    """Whether it is the node asked."""
    return "myself" in node.flags


def is_meeting(node: ClusterNode) -> bool:
    """Whether it is not in the cluster yet."""
    return "handshake" in node.flags


def is_linked(node: ClusterNode) -> bool:
    """Whether the node asked has a link to it, and it is in the cluster."""
    return node.connected and not is_meeting(node)


def id_at(target: Target) -> str:
    """The id of the node there; empty if it does not respond."""
    link = Link(target, ANSWER_S)
    try:
        own = ask(link, "CLUSTER", "MYID")
        return own.decode() if isinstance(own, bytes) else ""
    except click.ClickException:
        return ""
    finally:
        link.close()


def known_as(other: Target, other_id: str) -> Callable[[ClusterNode], bool]:
    """How to find a node in a list: by its id, else by its address."""
    if other_id:
        return lambda node: node.id == other_id and not is_self(node)
    hosts = {other.host}
    with suppress(OSError, UnicodeError):
        hosts |= {str(found[4][0]) for found in socket.getaddrinfo(other.host, other.port)}
    return lambda node: node.host in hosts and node.port == other.port and not is_self(node)


@cluster.command()
@node_options
@click.option("--force", is_flag=True, help="Even if it runs: it then does no work any more.")
@click.argument("node_id")
def forget(node: NodeOptions, force: bool, node_id: str) -> None:
    """Remove a node that will not come back.

    NODE_ID is its id or the start of it, as `status` shows it. Its jobs are copied again.
    """
    if not node_id:
        raise click.ClickException("NODE_ID is empty: give a node's id, or its first characters")
    with node_asked(node) as link:
        nodes = [node for node in known_nodes(link) if not is_meeting(node)]
        found = [node for node in nodes if node.id.startswith(node_id)]
        if len(found) != 1:
            what = "more than one node" if found else "no node"
            raise click.ClickException(
                f"{what} of this cluster has an id that begins with {node_id}"
            )
        ask(link, "CLUSTER", "FORGET", found[0].id, *(["FORCE"] if force else []))
    click.echo(f"{found[0].id} is forgotten; what it had is copied again where copies are missing")


@cluster.command()
@node_options
@click.option("--wait/--no-wait", default=True, help="Show the progress until it is done.")
@click.option("--cancel", is_flag=True, help="Cancel: the node stays.")
@limit_option
def drain(node: NodeOptions, wait: bool, cancel: bool, timeout: float) -> None:
    """Make a node give away all its jobs and leave.

    When the command succeeds, the node is safe to stop, and its data may be deleted. Kept results
    go to other nodes, too; if no node has room for some, the last line has their number.
    """
    with node_asked(node) as link:
        ask(link, "CLUSTER", "LEAVING", "no" if cancel else "yes")
        if cancel:
            click.echo(f"{link.target} stays")
            return
        left = int(info_of(link).get("cluster_drain_left", 0))
        if not wait:
            click.echo(f"{link.target} is leaving, {to_give(info_of(link))} to give away")
            return
        deadline = deadline_of(timeout)
        with counted_down("draining", left) as show:
            while (info := info_of(link)).get("cluster_safe_to_stop") != "yes":
                left = int(info.get("cluster_drain_left", 0))
                show(left)
                rest = f"{to_give(info)} left to give away; the node continues with it"
                check_time(deadline, rest)
                time.sleep(POLL_S)
            show(0)
        click.echo(f"{link.target} has given all its jobs away: safe to stop{only_here(info)}")


@cluster.command()
@node_options
@click.option("--wait", is_flag=True, help="Return when all nodes are there and say done.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@limit_option
def repair(node: NodeOptions, wait: bool, as_json: bool, timeout: float) -> None:
    """Show how many jobs lack copies, or wait for them.

    Exit status 1 while a copy or a node is missing.
    """
    if wait:
        wait_for_repair(node, deadline_of(timeout))
    rows = [row for row in asked(node, rows_of) if not row.is_meeting]
    total = sum(row.to_repair or 0 for row in rows)
    least = max((row.to_repair or 0 for row in rows), default=0)
    problems = unwell(rows)
    if as_json:
        left = {row.address: row.to_repair for row in rows}
        figures = {"left": total, "left_at_least": least, "nodes": left, "problems": problems}
        click.echo(json.dumps(figures))
    else:
        width = max(len(row.address) for row in rows)
        for row in rows:
            count = "no answer" if row.to_repair is None else row.to_repair or "done"
            click.echo(f"{row.address:<{width}}  {count}")
        click.echo("\n".join(problems) or ("done" if total == 0 else to_repair(least, total)))
    sys.exit(0 if total == 0 and not problems else 1)


def to_repair(least: int, most: int) -> str:
    """The number of jobs that lack copies: each node counts those that it has."""
    if least == most:
        return f"{jobs(most)} to repair"
    return f"{least:,} to {jobs(most)} to repair: a job counts at each node that has it"


def wait_for_repair(node: NodeOptions, deadline: float) -> None:
    """Return when all nodes are up and have nothing left to repair.

    A restarted node may not be missed yet, and its lost copies are unknown until its peers meet it
    again: so all nodes must see all.
    """
    with counted_down("repairing", 0) as show:
        while True:
            problems, left = ["nobody answers"], 0
            with suppress(click.ClickException):
                rows = asked(node, rows_of)
                problems, left = unwell(rows), sum(row.to_repair or 0 for row in rows)
            if not problems and left == 0:
                return
            show(left)
            check_time(deadline, "; ".join(problems) or f"{jobs(left)} left to repair")
            time.sleep(POLL_S)


@contextmanager
def counted_down(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how much is left, on a terminal; call it with that number."""
    is_shown = sys.stderr.isatty()
    width = 0

    def show(left: int) -> None:
        nonlocal total, width
        total = max(total, left)
        if is_shown:
            done = 100 * (total - left) // total if total else 0
            text = f"{label}  {done:3d} %  {jobs(left)} left"
            click.echo("\r" + text.ljust(width), nl=False, err=True)
            width = len(text)

    try:
        yield show
    finally:
        if width:
            click.echo("\r" + " " * width + "\r", nl=False, err=True)


def deadline_of(timeout_s: float) -> float:
    """The end of a wait that begins now."""
    return time.monotonic() + timeout_s if timeout_s > 0 else float("inf")


def check_time(deadline: float, what: str) -> None:
    """ClickException when time is up."""
    if time.monotonic() > deadline:
        raise click.ClickException(f"the time is up: {what}")


def jobs(count: int) -> str:
    """1 job, 2 jobs."""
    return f"{count:,} job{'' if count == 1 else 's'}"


def to_give(info: dict[str, str]) -> str:
    """What a leaving node has still to give away: jobs, and kept results (K7.10)."""
    results = int(info.get("cluster_drain_results", 0))
    count = int(info.get("cluster_drain_left", 0)) - results
    kept = f"{results:,} result{'' if results == 1 else 's'}"
    if results == 0:
        return jobs(count)
    return f"{jobs(count)} and {kept}" if count > 0 else kept


def only_here(info: dict[str, str]) -> str:
    """What is lost with the data of a node that is safe to stop (K7.10)."""
    count = int(info.get("cluster_results_here", 0))
    if count == 0:
        return ""
    if count == 1:
        return "; 1 kept result is only here: no other node takes it"
    return f"; {count:,} kept results are only here: no other node takes them"


# ---- nodes that leave, and nodes that stop by plan


STOP_S: Final = 60.0  # that a node may take to write its journal and end


def how_to_stay(address: str) -> str:
    """[K7] What to do about a node that is leaving (K7.7)."""
    host, _, port = address.rpartition(":")
    return (
        f"{address} is leaving the cluster: it takes no jobs and no votes; to keep it: "
        f"tuque cluster drain --cancel -h {host.strip('[]')} -p {port}"
    )


def leaving(rows: list[Row]) -> list[str]:
    """[K7] A line for each node that leaves, or has left and is still here (K7.7)."""
    return [
        f"{how_to_stay(row.address)}; else, once it is stopped: tuque cluster forget {row.id[:8]}"
        for row in rows
        if row.state in LEAVES
    ]


@click.group(context_settings={"help_option_names": ["--help"]})
def node() -> None:
    """Stop a node by plan."""


@node.command()
@node_options
@click.option("--prepare", is_flag=True, help="Do not end it: its supervisor does that next.")
@click.option("--cancel", is_flag=True, help="Cancel: the node goes on.")
@click.option(
    "--timeout",
    type=FiniteRange(),
    default=120.0,
    show_default=True,
    help="Seconds to wait for what must be done before; 0: no limit.",
)
def stop(node: NodeOptions, prepare: bool, cancel: bool, timeout: float) -> None:
    """Stop a node that will start again.

    It is not ready any more, sends waiting clients to other nodes, and lets others lead its tubes.
    Its jobs stay on its disk. It ends once no job lacks copies and all other nodes are there; if
    that takes too long, it goes on, and the exit status is 1. To remove a node: `tuque cluster
    drain`.
    """
    with node_asked(node) as link:
        ask(link, "CLUSTER", "STOPPING", "no" if cancel else "yes")
        if cancel:
            click.echo(f"{link.target} goes on")
            return
        try:
            wait_until_ready(link, deadline_of(timeout))
        except click.ClickException:
            ask(link, "CLUSTER", "STOPPING", "no")
            raise
        if prepare:
            click.echo(f"{link.target} may be stopped")
            return
        end(link)
    click.echo(f"{link.target} has stopped")


def wait_until_ready(link: Link, deadline: float) -> None:
    """Return when nothing is left to wait for. ClickException when time is up."""
    with counted_down("stopping", 0) as show:
        while True:
            info = info_of(link)
            left = int(info.get("cluster_stop_left", 0))
            if left == 0:
                return
            show(left)
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"the time is up, {link.target} goes on: {missing(info)}"
                )
            time.sleep(POLL_S)


def missing(info: dict[str, str]) -> str:
    """What a node that is to stop still waits for."""
    to_repair = int(info.get("cluster_repair_left", 0))
    tubes = int(info.get("cluster_stop_tubes", 0))
    absent = int(info.get("cluster_stop_absent", 0))
    parts = [f"{jobs(to_repair)} to repair"] if to_repair else []
    parts += [f"{tubes:,} tube{'' if tubes == 1 else 's'} to lead elsewhere"] if tubes else []
    parts += [f"{absent} other node{'' if absent == 1 else 's'} not there"] if absent else []
    return ", ".join(parts)


def end(link: Link) -> None:
    """SHUTDOWN; return when the node answers no more. ClickException if it does not end."""
    with suppress(LinkError):
        link.call([b"SHUTDOWN"])
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        other = Link(link.target, ANSWER_S)
        try:
            other.call([b"PING"])
        except LinkError:
            return
        finally:
            other.close()
        time.sleep(POLL_S)
    raise click.ClickException(f"{link.target} has not ended within {STOP_S:g} s: see its log")
