"""`tuque cluster dev`: a cluster on this machine, for experiments, until Ctrl-C.

Decides ports, directories and what is printed. The nodes are ordinary `tuque server` processes on
the loopback; ending the command ends them, and their data stay in the directory. A node that is
killed does not end the others: people want to see what they do.
"""

from __future__ import annotations

import shlex
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Final

import click

from tuque.console.cluster.programs import (
    Programs,
    free_ports,
    join_nodes,
    node_name,
    start_nodes,
    words_of,
)

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S: Final = 0.2


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
    options = [word for setting in settings for word in ("--set", setting)]
    for number in SIGNALS:
        signal.signal(number, on_signal)
    trouble: click.ClickException | None = None
    with Programs(directory) as programs:
        try:
            urls = start_nodes(programs, ports, directory, *options)
            join_nodes(programs, ports)
            show(urls, ports[0], directory)
            while programs.names:
                for said in programs.ended():
                    name = said.split()[0]
                    at = ports[int(name.rpartition("-")[2]) - 1]
                    again = [*words_of(at, directory / name), *options]
                    click.echo(f"{said}; again: tuque {shlex.join(again)}")
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
