"""The demo's story, step by step, and the table at its end."""

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

from tuque import Client
from tuque.console.programs import Programs, free_ports, join_nodes, node_name, start_nodes
from tuque.demo.books import Books, History, read_history
from tuque.demo.programs import start_worker, wait_for_worker
from tuque.demo.results import TABLE
from tuque.demo.table import ResultStream, ResultTable
from tuque.demo.tasks import DEAD, FILES, RETRY_S, measure
from tuque.errors import ConnectionError
from tuque.worker.codec import decode

NOT_STANDARD: Final = {"site-packages", "dist-packages", "__pycache__"}
MISSING_FILES: Final = 3
CORRUPT_FILES: Final = {
    "unclosed.py": b"def f(:\n",
    "zeros.py": b"x = 1\n\x00\x00\n",
    "not_utf8.py": b"name = '\xff\xfe'\n",
    "no_such_coding.py": b"# -*- coding: klingon-8 -*-\n",
}
KILL_AT: Final = 0.35  # of all jobs taken by workers
NODES: Final = 3
VICTIM: Final = node_name(NODES)  # the node that is killed along with a worker
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
    logging.basicConfig(filename=run_dir / "producer.log", level=logging.INFO)
    sources = standard_library(limit)
    books = Books()
    with Programs(run_dir) as programs:
        urls = start_cluster(programs, run_dir)
        url = all_of(urls)
        click.echo(f"cluster    {url}, journals and events in {run_dir}")
        with ResultStream(urls[0], run_dir) as stream, Client(url) as client:
            measure.app.use(url)
            produce(sources, plant(run_dir / "corrupt"), books)
            stream.wait_for("ready")
            click.echo(f"streaming  results into {run_dir / TABLE}")
            pids = start_workers(programs, url)
            work = Work(client, programs, urls, books, stream, ResultTable(run_dir))
            work.through(pids[0])
            stream.ask("stop", "stopped")
            unsettled = ask_for_all(url, books)
            for name in reversed(programs.names):  # the nodes, which were first, as the last
                programs.stop(name)
            history = read_history(run_dir / "events")
            joined = spark_report(stream) if report else None
    show_table(books, history, joined, unsettled, time.monotonic() - began)
    if joined is not None:
        show_slowest(joined)
        click.echo(f"\nreport     {run_dir / 'report' / 'report.html'}")
    lost, survived = books.lost(unsettled), books.survived()
    for job_id in lost[:20]:
        click.echo(f"lost       {job_id} {books.path_of[job_id]}", err=True)
    for job_id in survived:
        click.echo(f"no failure {job_id} {books.path_of[job_id]}", err=True)
    is_exact = books.repeated == 0 and (joined is None or is_whole(joined, books))
    sys.exit(1 if lost or survived or not is_exact else 0)


def on_signal(number: int, frame: FrameType | None) -> None:
    """Ends the demo, and with it all that it started."""
    sys.exit(128 + number)


def start_cluster(programs: Programs, run_dir: Path) -> list[str]:
    """Starts the nodes and lets them meet; returns the URL of each."""
    ports = free_ports(NODES)
    urls = start_nodes(
        programs,
        ports,
        run_dir,
        *("--appendonly", "yes", "--appendfsync", "everysec"),
        *("--events", "yes", "--events-dir", str(run_dir.resolve() / "events")),
        *("--events-roll-seconds", "1", "--default-retry-max", str(RETRY_S)),
    )
    join_nodes(programs, ports)
    return urls


def all_of(urls: list[str]) -> str:
    """One URL that names all nodes."""
    return f"tuque://{','.join(url.removeprefix('tuque://') for url in urls)}/"


def standard_library(limit: int | None) -> list[Path]:
    """The Python files of the standard library that runs this, tests included where installed."""
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
    """Files that must fail: some that are no Python, some that are not there."""
    directory.mkdir()
    for name, content in CORRUPT_FILES.items():
        (directory / name).write_bytes(content)
    corrupt = [directory / name for name in CORRUPT_FILES]
    return corrupt + [directory / f"missing-{number + 1}.py" for number in range(MISSING_FILES)]


def produce(sources: list[Path], bad: list[Path], books: Books) -> None:
    """Adds one job per file and keeps the ids; the bad ones are spread among the good."""
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


def start_workers(programs: Programs, url: str) -> list[int]:
    """Starts both workers and waits until they share the work to come; returns their pids."""
    names = ("worker-1", "worker-2")
    pids = [start_worker(programs, name, url) for name in names]
    for name in names:
        wait_for_worker(programs, name)
    click.echo(f"workers    {pids[0]} and {pids[1]}")
    return pids


@dataclass
class Work:
    """What is watched and what is killed while the workers parse."""

    client: Client
    programs: Programs
    urls: list[str]  # of each node
    books: Books
    stream: ResultStream
    table: ResultTable

    def through(self, victim: int) -> None:
        """Waits for all jobs; kills a worker, a node and the query on the way."""
        books = self.books
        kill_at = max(1, int(len(books.path_of) * KILL_AT))
        deadline = time.monotonic() + DEADLINE_S
        kill_note = ""
        with progress("parsing", len(books.path_of)) as show:
            while books.open and time.monotonic() < deadline:
                self.programs.check()
                self.stream.check()
                self.collect()
                show(books.ended)
                if not kill_note and self.begun() >= kill_at:
                    kill_note = self.kill_all(victim)
        click.echo(f"kill -9    {kill_note or 'not done, the time was up'}")
        if books.open:
            note = f"time is up: {books.open} jobs have no end after {DEADLINE_S:.0f} s"
            click.echo(note, err=True)
        if kill_note:
            self.stream.wait_for("ready")  # the second query's, long since

    def begun(self) -> int:
        """How many jobs workers have taken: those that no node has in its queue."""
        queued = 0
        for url in self.urls:
            with Client(url, follow=False) as node:
                queued += node.qlen(FILES)
        return len(self.books.path_of) - queued

    def kill_all(self, victim: int) -> str:
        """Kills a worker, a node and the query, and starts a worker and a query again."""
        begun = self.begun()
        self.programs.kill("worker-1")
        self.programs.kill(VICTIM)
        self.stream.kill()
        pid = start_worker(self.programs, "worker-3", all_of(self.urls))
        self.stream.start()
        return (
            f"worker {victim}, {VICTIM} and the streaming query after {begun} jobs; "
            f"worker {pid} and a new query go on"
        )

    def collect(self) -> None:
        """Takes new rows of the table and dead letters into the books."""
        for found in self.table.new_rows():
            self.books.on_result(found)
        jobs = self.client.getjob(DEAD, count=FETCH, timeout_ms=200)
        for job in jobs:
            self.books.on_dead_letter(decode(job.body).args[0])
        if jobs:
            self.client.ackjob(*(job.id for job in jobs))


def ask_for_all(url: str, books: Books) -> set[str]:
    """The jobs that a living node would hand out again; those being acked get some time."""
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
    """The report over the events of this run, and what it says about the table."""
    click.echo("spark      making tables and the report of the events, joined with the results")
    return stream.ask("report", "report")


def is_whole(joined: dict[str, Any], books: Books) -> bool:
    """Whether Spark finds in the table what the books have: each job once, none missing."""
    rows, jobs = joined["rows"], joined["jobs"]
    return bool(rows == jobs == len(books.results) and joined["acked_without_result"] == 0)


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, a few plain lines elsewhere; called with how much is done."""
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
    """Prints what went in, what became of it, and what was counted."""
    lost = len(books.lost(unsettled))
    repeats = max(0, history.results - len(books.results))
    rows: list[tuple[str, int | str, str]] = [
        ("jobs in", len(books.path_of), f"{len(books.must_fail)} of them made to fail"),
        ("ended", books.ended, "with a result or a dead letter"),
        ("acked", len(history.acked - history.dead), "in the event files, less what was killed"),
        (
            "redelivered",
            history.redelivered,
            f"{history.came_back} after the kill, {history.nacked} as another try",
        ),
        ("dead-lettered", len(books.buried), "no Python, or no file"),
        ("results", len(books.results), f"rows of the table; {repeats} repeats were left out"),
        ("lost", lost, "ids without an end"),
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
        color = ("red" if value else "green") if name in ("lost", "duplicates") else None
        click.echo(click.style(f"{name:<14}{text:>12}", fg=color) + f"  {remark}".rstrip())


def show_slowest(joined: dict[str, Any]) -> None:
    """Prints the files that took longest: times of the events, sizes of the results."""
    click.echo()
    for row in joined["slowest"]:
        name = "/".join(Path(row["path"]).parts[-2:])
        click.echo(f"slowest    {name}: {row['lines']:,} lines, {row['process_ms']:,.0f} ms")
