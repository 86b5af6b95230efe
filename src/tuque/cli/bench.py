"""`tuque bench`: puts load on a node and prints jobs per second and latencies.

Decides what is sent and what is counted: each connection adds, gets and acknowledges its own share,
`pipeline` commands at a time. It is a quick check; bench/ has a load generator in C for comparisons
with other brokers. Python itself takes a good part of each microsecond shown, so the node can do
more than these figures say.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import click

from tuque import terminal
from tuque.cli.prompt.cli import target_of
from tuque.client.api import Reply
from tuque.client.transport.conn import INFINITE, Lines, login, pack
from tuque.client.transport.raw_link import CONNECT_TIMEOUT_S, Target
from tuque.client.transport.streams import Link
from tuque.errors import Closed, ConnectionError, ReplyError
from tuque.nodeoptions import NodeOptions, node_options

STAGES = ("add", "get", "ack")
SHOW_S = 0.2  # between two updates of the progress


class Load:
    """The parameters of one run, and what it measured."""

    def __init__(self, jobs: int, connections: int, pipeline: int, size: int, queue: str) -> None:
        self.jobs = jobs
        self.connections = connections
        self.pipeline = pipeline
        self.body = b"x" * size
        self.queue = queue
        self.done = dict.fromkeys(STAGES, 0)
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.batch_ms: dict[str, list[float]] = {stage: [] for stage in STAGES}
        self.ids: list[list[bytes]] = [[] for _ in range(connections)]
        self.progress = Progress(jobs)


async def count(link: Link, packed: bytes, count: int) -> int:
    """Send commands whose replies have one line, as one write; an error reply ends the run."""
    lines = Lines(count)
    try:
        await link.count(packed, lines, INFINITE)
    except Closed:
        refuse(lines.errors().values())
        raise click.ClickException("the node closed the connection") from None
    refuse(lines.errors().values())
    return count


def refuse(replies: Iterable[Reply]) -> None:
    """ClickException for the first error among the replies."""
    for reply in replies:
        if isinstance(reply, ReplyError):
            raise click.ClickException(f"the node answered: {reply}")


async def add_batch(load: Load, link: Link, number: int, jobs: int) -> int:
    return await count(link, pack(("ADDJOB", load.queue, load.body, 5000)) * jobs, jobs)


async def get_batch(load: Load, link: Link, number: int, jobs: int) -> int:
    replies: list[Reply] = []
    asked = ("GETJOB", "NOHANG", "COUNT", jobs, "FROM", load.queue)
    try:
        await link.exchange([asked], replies, INFINITE)
    except Closed:
        raise click.ClickException("the node closed the connection") from None
    refuse(replies)
    taken = replies[0] or []
    load.ids[number].extend(job[1] for job in taken)
    return len(taken)


async def ack_batch(load: Load, link: Link, number: int, jobs: int) -> int:
    ids = load.ids[number][-jobs:]
    del load.ids[number][-jobs:]
    acks = [pack(("ACKJOB", one)) for one in ids]
    return await count(link, b"".join(acks), len(acks)) if acks else 0


async def run_stage(load: Load, links: list[Link], stage: str, one: Callable[..., Any]) -> None:
    """Let all connections work until the stage has done every job or nothing is left."""
    left = load.jobs

    async def work(number: int, link: Link) -> None:
        nonlocal left
        while left > 0:
            count = min(load.pipeline, left)
            left -= count
            began = time.perf_counter()
            done = await one(load, link, number, count)
            load.batch_ms[stage].append((time.perf_counter() - began) * 1000)
            load.done[stage] += done
            load.progress.show(stage, load.done[stage])
            left += count - done
            if done == 0:
                return

    began = time.perf_counter()
    await asyncio.gather(*(work(number, link) for number, link in enumerate(links)))
    load.seconds[stage] = time.perf_counter() - began


async def connected(target: Target) -> Link:
    """A connection to the node, logged in."""
    try:
        link = await Link.open(target.address, None, time.monotonic() + CONNECT_TIMEOUT_S)
    except ConnectionError as err:
        cause = err.__cause__
        why = (cause.strerror or str(cause)) if isinstance(cause, OSError) else ""
        raise click.ClickException(
            f"Could not connect to Tuque at {target}: {why or 'timed out'}. "
            "Is the node running? `tuque server` starts one."
        ) from None
    if target.has_login:
        await count(link, pack(login(target.user, target.password)), 1)
    return link


async def run_load(load: Load, target: Target) -> None:
    """Connect, run the three stages, close."""
    links = []
    try:
        for _ in range(load.connections):
            links.append(await connected(target))
        for stage, one in zip(STAGES, (add_batch, get_batch, ack_batch), strict=True):
            await run_stage(load, links, stage, one)
    finally:
        load.progress.end()
        for link in links:
            link.close()


def percentile(values: list[float], share: float) -> float:
    """Return the value below which the given share lies; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def summary(load: Load) -> dict[str, Any]:
    """Return the figures of a run as plain data."""
    stages = {}
    for stage in STAGES:
        took = load.seconds[stage] or 1e-9
        batches = load.batch_ms[stage]
        stages[stage] = {
            "jobs": load.done[stage],
            "jobs_per_s": round(load.done[stage] / took),
            **{
                f"p{share}_ms": round(percentile(batches, share / 100), 3) for share in (50, 95, 99)
            },
        }
    total_s = sum(load.seconds.values()) or 1e-9
    return {
        "jobs": load.jobs,
        "connections": load.connections,
        "pipeline": load.pipeline,
        "body_bytes": len(load.body),
        "cycle_jobs_per_s": round(load.done["ack"] / total_s),
        "stages": stages,
    }


def print_summary(result: dict[str, Any]) -> None:
    """Print the figures as a table."""
    rows = [
        [
            stage,
            terminal.number(row["jobs"]),
            terminal.number(row["jobs_per_s"]),
            *(f"{row[f'p{share}_ms']:,.2f} ms" for share in (50, 95, 99)),
        ]
        for stage, row in result["stages"].items()
    ]
    rows.append(["cycle", "", terminal.number(result["cycle_jobs_per_s"]), "", "", ""])
    heads = ["STAGE", "JOBS", "JOBS/S", "BATCH p50", "p95", "p99"]
    click.echo(terminal.table(heads, rows))
    click.echo(
        "The client is one Python process and takes a good part of the time:\n"
        "the node can do more than these figures say."
    )


def describe(load: Load, target: Target) -> str:
    """What the run will measure."""
    return (
        f"{terminal.number(load.jobs)} jobs of {terminal.number(len(load.body))} bytes, "
        f"{terminal.number(load.connections)} connections, {load.pipeline} deep, to {target}:\n"
        "all are added, then all are taken, then all are acknowledged."
    )


class Progress:
    """A line on a terminal with the progress of a stage."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.is_shown = sys.stderr.isatty()
        self.at_s = 0.0
        self.width = 0

    def show(self, stage: str, done: int) -> None:
        """Update the line, at intervals."""
        now_s = time.perf_counter()
        if not self.is_shown or now_s < self.at_s:
            return
        self.at_s = now_s + SHOW_S
        text = f"{stage}  {100 * done // self.jobs:3} %  {terminal.number(done)} jobs"
        click.echo("\r" + text.ljust(self.width), nl=False, err=True)
        self.width = max(self.width, len(text))

    def end(self) -> None:
        """Remove the line."""
        if self.width:
            click.echo("\r" + " " * self.width + "\r", nl=False, err=True)


@click.command()
@node_options
@click.option("-c", "--connections", default=16, show_default=True, type=click.IntRange(1, 5000))
@click.option("-P", "--pipeline", default=16, show_default=True, type=click.IntRange(1, 1000))
@click.option("-n", "--jobs", default=50_000, show_default=True, type=click.IntRange(1))
@click.option("-d", "--size", default=100, show_default=True, help="Bytes of a body.")
@click.option("-q", "--queue", default="tuque-bench", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.help_option("--help")
def bench(
    node: NodeOptions,
    connections: int,
    pipeline: int,
    jobs: int,
    size: int,
    queue: str,
    as_json: bool,
) -> None:
    """Add, get and acknowledge jobs as fast as one Python process can.

    That process takes more time than the node, which can do more than these figures say.
    """
    target = target_of(node)
    load = Load(jobs, min(connections, jobs), pipeline, size, queue)
    if not as_json:
        click.echo(describe(load, target))
    try:
        import uvloop
    except ImportError:
        asyncio.run(run_load(load, target))
    else:
        uvloop.run(run_load(load, target))
    result = summary(load)
    if as_json:
        click.echo(json.dumps(result))
    else:
        print_summary(result)
    if load.done["ack"] != jobs:
        done = terminal.number(load.done["ack"])
        click.echo(f"only {done} of {terminal.number(jobs)} jobs went all the way", err=True)
        sys.exit(1)
