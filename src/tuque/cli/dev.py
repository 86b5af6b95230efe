"""`tuque selftest`: whether what is installed works.

Decides what is tried and printed. The node is an ordinary `tuque server` on the loopback.
"""

from __future__ import annotations

import json
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from tuque import __version__
from tuque.cli.programs import Programs, free_ports, node_name, start_nodes
from tuque.client.sync import Client
from tuque.errors import Error

QUEUE: Final = "selftest"
BODY: Final = b"a job"
WAIT_MS: Final = 5_000
# The log says in words for programs whether the node is compiled.
TRIED: Final = ("--set", "log-format=json", "--set", "appendonly=no", "--set", "disk-reserve=0")


@click.command()
def selftest() -> None:
    """Start a node on a free port and pass a job through it.

    Tells whether the node is compiled or pure Python. Exit status 1 if anything fails.
    """
    import_module("tuque.server")  # else its absence would be in a log
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tuque-selftest-") as name:
        place = Path(name)
        with Programs(place) as programs:
            (url,) = start_nodes(programs, free_ports(1), place, *TRIED)
            try:
                pass_a_job(url)
            except Error as err:
                tail = programs.log_tail(node_name(1))
                raise click.ClickException(f"the node failed: {err}\n{tail}") from None
            mode = mode_of(programs.log(node_name(1)))
            programs.stop_all()
    took_s = time.monotonic() - began_s
    click.echo(f"tuque {__version__}, {mode}: a job was added, taken and acknowledged")
    click.echo(f"all works ({took_s:.1f} s)")


def pass_a_job(url: str) -> None:
    """Add a job, take it and acknowledge it. Error, or ClickException if another one came."""
    with Client(url, discover=False) as client:
        added = client.addjob(QUEUE, BODY, retry=60, ttl=600)
        taken = client.getjob(QUEUE, timeout_ms=WAIT_MS)
        if [(job.id, job.body) for job in taken] != [(added, BODY)]:
            raise click.ClickException(f"added {added}, and got {taken}")
        acked = client.ackjob(added)
        if acked != 1:
            raise click.ClickException(f"acknowledged {added}, and the node counts {acked} jobs")


def mode_of(log: str) -> str:
    """`compiled` or `pure`, as the node says in its log."""
    for line in log.splitlines():
        said = json.loads(line) if line.startswith("{") else {}
        if said.get("event") == "server_starts":
            return "compiled" if said["mode"] == "compiled" else "pure"
    raise click.ClickException(f"the log of the node does not say how it runs:\n{log}")
