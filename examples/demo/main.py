"""The demo step by step, and the table at its end."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from demo.books import Books, History, read_history
from demo.programs import start_worker, wait_for_worker
from demo.table import ResultStream, ResultTable
from demo.tasks import DEAD, FILES, RESULTS, RETRY_S, measure
from tuque import Client
from tuque.cli.programs import (
    Programs,
    free_ports,
    join_nodes,
    node_name,
    start_nodes,
)
from tuque.client.api import JobState
from tuque.errors import ConnectionError
from tuque.logtext import VisibleFormatter
from tuque.terminal import BAD, GOOD, paint
from tuque.worker.app.codec import decode

NOT_STANDARD: Final = {"site-packages", "dist-packages", "__pycache__"}
MISSING_FILES: Final = 3
CORRUPT_FILES: Final = {
    "unclosed.py": b"def f(:\n",
    "zeros.py": b"x = 1\n\x00\x00\n",
    "not_utf8.py": b"name = '\xff\xfe'\n",
    "no_such_coding.py": b"# -*- coding: klingon-8 -*-\n",
}
KILL_AT: Final = 0.35  # of all jobs acked
KILLS: Final = 3  # a worker, a node, and the streaming query
NODES: Final = 3
VICTIM: Final = node_name(NODES)  # the node to kill along with a worker
DEADLINE_S: Final = 300.0  # on a slow machine
SETTLE_S: Final = 20.0
FETCH: Final = 200
PLAIN_LINES: Final = 5  # progress lines where there is no terminal


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-out"),
    show_default=True,
    help="Where to put a new directory for this run.",
)
@click.option("--limit", type=click.IntRange(1), help="Take that many files, not all.")
@click.option("--report/--no-report", default=True, help="Make the Spark report at the end.")
def demo(out: Path, limit: int | None, report: bool) -> None:
    """Count what is in every Python file of the standard library, with a crash in the middle.

    Workers parse, a streaming query of Spark writes what they found to a table.
    """
    began = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    run_dir = out / datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    run_dir.mkdir(parents=True)
    log_to(run_dir / "producer.log")
    sources = standard_library(limit)
    books = Books()
    with Programs(run_dir) as programs:
        urls = start_cluster(programs, run_dir)
        url = all_of(urls)
        click.echo(f"cluster    {url}, journals and events in {run_dir}")
        with ResultStream(urls[0], run_dir) as stream, Client(url) as client:
            click.echo("spark      starting, which takes some 20 s; the workers begin meanwhile")
            measure.app.use(url)
            produce(sources, plant(run_dir / "corrupt"), books)
            start_workers(programs, url)
            work = Work(client, programs, urls, books, stream, ResultTable(run_dir))
            work.through()
            click.echo("checking   every node is asked for every job")
            stream.ask("stop", "stopped")
            unsettled = ask_for_all(url, books)
            for name in reversed(programs.names):  # the nodes last: they were first
                programs.stop(name)
            history = read_history(run_dir / "events")
            joined = spark_report(stream) if report else None
    show_table(books, history, joined, unsettled, time.monotonic() - began)
    if joined is not None:
        show_slowest(joined)
    lost, survived = books.lost(unsettled), books.survived()
    for job_id in lost[:20]:
        click.echo(f"lost       {job_id} {books.path_of[job_id]}", err=True)
    for job_id in survived:
        click.echo(f"no failure {job_id} {books.path_of[job_id]}", err=True)
    is_exact = books.repeated == 0 and (joined is None or is_whole(joined, books))
    is_ok = not lost and not survived and is_exact and work.kills == KILLS
    click.echo()
    if joined is not None:
        page = run_dir / "report" / "report.html"
        click.echo(f"report     {page.resolve().as_uri()}")
        click.echo(f"           (it has the jobs of queue {RESULTS} as well, one for each result)")
    said = verdict(books, len(lost), work.kills, is_ok=is_ok)
    click.echo(paint(said, GOOD if is_ok else BAD, bold=True))
    sys.exit(0 if is_ok else 1)


def log_to(path: Path) -> None:
    """Send the log of this program and its client to the file, control characters escaped."""
    handler = logging.FileHandler(path)
    handler.setFormatter(VisibleFormatter(logging.BASIC_FORMAT))
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def verdict(books: Books, lost: int, kills: int, *, is_ok: bool) -> str:
    """The result, on one line."""
    return (
        f"{'OK' if is_ok else 'FAILED'}: {len(books.path_of):,} jobs in, "
        f"{books.ended:,} accounted for; {lost} lost, {books.repeated} duplicated; "
        f"survived {kills} kill -9"
    )


def on_signal(number: int, frame: FrameType | None) -> None:
    """Ends the demo and everything that it started."""
    sys.exit(128 + number)


def start_cluster(programs: Programs, run_dir: Path) -> list[str]:
    """Starts the nodes and makes them meet; returns the URL of each."""
    ports = free_ports(NODES)
    urls = start_nodes(
        programs,
        ports,
        run_dir,
        "--appendfsync",
        "everysec",
        "--events",
        "yes",
        "--events-dir",
        str(run_dir.resolve() / "events"),
        "--events-roll-seconds",
        "1",
        "--default-retry-max",
        str(RETRY_S),
    )
    join_nodes(programs, ports)
    return urls


def all_of(urls: list[str]) -> str:
    """One URL that names all nodes."""
    return f"tuque://{','.join(url.removeprefix('tuque://') for url in urls)}/"


def standard_library(limit: int | None) -> list[Path]:
    """The Python files of the running standard library, with its tests if installed."""
    top = Path(os.__file__).parent
    found = [
        path
        for path in sorted(top.rglob("*.py"))
        if NOT_STANDARD.isdisjoint(path.relative_to(top).parts)
    ]
    if limit is None or limit >= len(found):
        return found
    step = len(found) / limit
    return [found[int(at * step)] for at in range(limit)]


def plant(directory: Path) -> list[Path]:
    """Files that must fail: some are not Python, some do not exist."""
    directory.mkdir()
    for name, content in CORRUPT_FILES.items():
        (directory / name).write_bytes(content)
    corrupt = [directory / name for name in CORRUPT_FILES]
    return corrupt + [directory / f"missing-{number + 1}.py" for number in range(MISSING_FILES)]


def produce(sources: list[Path], bad: list[Path], books: Books) -> None:
    """Adds one job per file and keeps the ids; the bad files are spread among the good ones."""
    step = max(1, len(sources) // (len(bad) + 1))
    mixed = list(sources)
    for number, path in enumerate(bad):
        mixed.insert((number + 1) * step + number, path)
    must_fail = {str(path) for path in bad}
    with progress("adding jobs", len(mixed)) as show:
        for source in map(str, mixed):
            books.on_added(measure.enqueue(source), source, must_fail=source in must_fail)
            show(len(books.path_of))
    measure.app.close()


def start_workers(programs: Programs, url: str) -> None:
    """Starts both workers and waits until they share the work."""
    names = ("worker-1", "worker-2")
    pids = [start_worker(programs, name, url) for name in names]
    for name in names:
        wait_for_worker(programs, name)
    click.echo(f"workers    {names[0]} (pid {pids[0]}) and {names[1]} (pid {pids[1]})")


@dataclass
class Work:
    """What is watched, and killed, while the workers parse."""

    client: Client
    programs: Programs
    urls: list[str]  # of each node
    books: Books
    stream: ResultStream
    table: ResultTable
    kills: int = 0
    is_streaming: bool = False

    def through(self) -> None:
        """Waits until all jobs are acked and all results are in the table; kills on the way."""
        total = len(self.books.path_of)
        deadline = time.monotonic() + DEADLINE_S
        open_count = total
        with progress("acked", total) as show:
            while open_count and time.monotonic() < deadline:
                open_count = self.look()
                show(total - open_count)
                if not self.kills and total - open_count >= total * KILL_AT:
                    self.kill_worker_and_node(open_count)
        if not self.is_streaming:
            click.echo("spark      not up yet: waiting for it, the results wait in their queue")
        with progress("in table", total) as show:
            while (self.books.open or self.kills < KILLS) and time.monotonic() < deadline:
                self.look()
                show(self.books.ended)
        if self.books.open:
            note = f"time is up: {self.books.open} jobs have no end after {DEADLINE_S:.0f} s"
            click.echo(note, err=True)
        if self.kills == KILLS:
            self.stream.wait_for("ready")  # the second query's

    def look(self) -> int:
        """Collects news; kills the query once it has written; returns the number of open jobs."""
        self.programs.check()
        self.stream.check()
        if not self.is_streaming and self.stream.has_said("ready"):
            self.is_streaming = True
            say(f"streaming  results into {self.table.directory}")
        self.collect()
        if self.is_streaming and self.books.results and 0 < self.kills < KILLS:
            self.kill_query()
        return self.open_jobs()

    def open_jobs(self) -> int:
        """The number of jobs not acknowledged, from a node with a copy of each."""
        states: tuple[JobState, ...] = ("wait-repl", "active", "queued")
        with Client(self.urls[0], follow=False) as node:
            return sum(1 for _ in node.jscan(queue=FILES, states=states, count=1000))

    def counts(self, open_count: int) -> str:
        """The open jobs by place, in words."""
        queued = 0
        for url in self.urls:
            with suppress(ConnectionError), Client(url, follow=False, timeout=1) as node:
                queued += node.qlen(FILES)
        queued = min(queued, open_count)
        return (
            f"{open_count:,} jobs open, {queued:,} queued and {open_count - queued:,} with workers"
        )

    def kill_worker_and_node(self, open_count: int) -> None:
        """Kills a worker and a node, and starts another worker."""
        total = len(self.books.path_of)
        say(f"before     {total - open_count:,} of {total:,} jobs acked; {self.counts(open_count)}")
        self.programs.kill("worker-1")
        say(f"kill -9    worker-1: its jobs come back {RETRY_S} s after they were delivered")
        self.programs.kill(VICTIM)
        say(f"kill -9    {VICTIM}: the other nodes have copies of its jobs")
        self.kills += 2
        pid = start_worker(self.programs, "worker-3", all_of(self.urls))
        wait_for_worker(self.programs, "worker-3")
        say(f"started    worker-3 (pid {pid}); {self.counts(self.open_jobs())}")

    def kill_query(self) -> None:
        """Kills the streaming query with its Java, and starts another one."""
        self.stream.kill()
        rows = len(self.books.results)
        say(f"kill -9    the streaming query after {rows:,} rows; the next goes on after them")
        self.stream.start()
        self.kills += 1

    def collect(self) -> None:
        """Enters new rows of the table and dead letters into the books."""
        for found in self.table.new_rows():
            self.books.on_result(found)
        jobs = self.client.getjob(DEAD, count=FETCH, timeout_ms=200)
        for job in jobs:
            self.books.on_dead_letter(decode(job.body).args[0])
        if jobs:
            self.client.ackjob(*(job.id for job in jobs))


def ask_for_all(url: str, books: Books) -> set[str]:
    """Jobs that a living node would deliver again; those being acked get some time."""
    open_ids = set(books.path_of)
    deadline = time.monotonic() + SETTLE_S
    while open_ids and time.monotonic() < deadline:
        asked, open_ids = sorted(open_ids), set()
        for host in url.removeprefix("tuque://").rstrip("/").split(","):
            with suppress(ConnectionError), Client(f"tuque://{host}", timeout=2) as client:
                pipe = client.pipeline()
                for job_id in asked:
                    pipe.show(job_id)
                found = pipe.execute()
                open_ids |= {job.id for job in found if job is not None and job.state != "acked"}
    return open_ids


def spark_report(stream: ResultStream) -> dict[str, Any]:
    """The report over the events of this run, and its figures about the table."""
    click.echo("spark      making the report of the events, which takes some 40 s")
    return stream.ask("report", "report")


def is_whole(joined: dict[str, Any], books: Books) -> bool:
    """Whether Spark finds in the table what the books have: each job once, none missing."""
    rows, jobs = joined["rows"], joined["jobs"]
    return bool(rows == jobs == len(books.results) and joined["acked_without_result"] == 0)


def say(line: str) -> None:
    """One line, also in the middle of a bar."""
    click.echo(f"\r\033[K{line}" if sys.stdout.isatty() else line)


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, a few plain lines elsewhere; call it with the progress."""
    if sys.stdout.isatty():
        with click.progressbar(length=length, label=f"{label:<10}") as bar:
            yield lambda done: bar.update(done - bar.pos)
        return
    shown = 0

    def show(done: int) -> None:
        nonlocal shown
        if done * PLAIN_LINES // length > shown:
            shown = done * PLAIN_LINES // length
            click.echo(f"{label:<10} {done} of {length}")

    yield show


def show_table(
    books: Books,
    history: History,
    joined: dict[str, Any] | None,
    unsettled: set[str],
    took_s: float,
) -> None:
    """Prints the input, the outcome and the sums."""
    lost = len(books.lost(unsettled))
    repeats = max(0, history.results - len(books.results))
    planned = len(books.must_fail & books.buried.keys())
    own = len(books.buried) - planned
    first = len(books.path_of) - len(books.must_fail)
    rows: list[tuple[str, int | str, str]] = [
        (
            "jobs in",
            len(books.path_of),
            f"{first:,} files, and {len(books.must_fail)} made to fail",
        ),
        ("results", len(books.results), f"rows of the table; {repeats} repeats were left out"),
        (
            "dead-lettered",
            len(books.buried),
            f"{planned} made to fail, {own} files of the library that are no Python on purpose",
        ),
        ("ended", books.ended, "with a result or a dead letter"),
        (
            "redelivered",
            history.redelivered,
            f"deliveries after a job's first: {history.came_back} after a kill, "
            f"{history.nacked} as another try",
        ),
        ("lost", lost, "jobs without an end"),
        ("duplicates", books.repeated, "rows beyond one a job"),
    ]
    if joined is not None:
        text = f"acked jobs with a row, {joined['acked_without_result']} without"
        rows.append(("joined", joined["acked_with_result"], text))
    totals = books.totals()
    rows += [(name, totals[name], "") for name in totals]
    rows.append(("seconds", f"{took_s:.1f}", ""))
    click.echo()
    for name, value, remark in rows:
        text = f"{value:,}" if isinstance(value, int) else value
        color = (BAD if value else GOOD) if name in ("lost", "duplicates") else ""
        click.echo(paint(f"{name:<14}{text:>12}", color) + f"  {remark}".rstrip())


def show_slowest(joined: dict[str, Any]) -> None:
    """Prints the files that took longest, as measured by the workers."""
    click.echo()
    for row in joined["slowest"]:
        name = "/".join(Path(row["path"]).parts[-2:])
        click.echo(f"slowest    {name}: {row['lines']:,} lines parsed in {row['parse_ms']:,.0f} ms")
