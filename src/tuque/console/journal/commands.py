"""`tuque journal check|repair|show|import`: the journal of a server that is not running.

Decides what is asked and how it is printed; store/repair.py and store/aof.py read and repair.
`check` and `show` may run beside a server, `repair` and `import` lock the directory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import click

from tuque import terminal
from tuque.console.journal.rows import fields, line_of
from tuque.core.model.job import ACTIVE, DELIVERED, Job
from tuque.core.records.jobs import Records
from tuque.core.records.read import BadRecord, Record, decode
from tuque.lazygroup import OptionsAnywhere
from tuque.store.aof import AofReader, Import, import_step
from tuque.store.disk import Disk, LockedError, machine_boot_id
from tuque.store.frames import (
    FOUND,
    HEADER_BYTES,
    LOCK,
    MANIFEST,
    Boot,
    FrameScanner,
    JournalError,
    Manifest,
    decode_header,
    number_of,
    read_manifest,
)
from tuque.store.repair import DirReport, FileReport, check_dir, check_file, repair_dir
from tuque.store.writer import Journal, why

DEFAULT_NAME: Final = "journal"  # appenddirname
STEP: Final = 2_000
SLICE_BYTES: Final = 1 << 20
NOTES_SHOWN: Final = 20


@click.group(cls=OptionsAnywhere)
def journal() -> None:
    """Check, repair, show or import a journal."""


def now_ms() -> int:
    """Wall time."""
    return time.time_ns() // 1_000_000


def is_journal_dir(disk: Disk, path: str) -> bool:
    """Whether the directory itself holds a journal."""
    if not disk.is_dir(path):
        return False
    return disk.exists(f"{path}/{MANIFEST}") or any(number_of(n) >= 0 for n in disk.listdir(path))


def find_dir(disk: Disk, path: str) -> str:
    """The journal directory for PATH: itself, or `journal` in a server's dir."""
    path = path.rstrip("/") or "/"
    if not is_journal_dir(disk, path) and is_journal_dir(disk, f"{path}/{DEFAULT_NAME}"):
        return f"{path}/{DEFAULT_NAME}"
    return path


def print_file(file: FileReport) -> None:
    """One line for the file, one for each problem."""
    state = file.state()
    click.echo(
        f"{file.name}  {file.records:,} records  {file.frames:,} frames  {file.bytes:,} bytes  "
        + (state if state == "ok" else terminal.paint(state, terminal.BAD, bold=True))
    )
    for problem in file.problems:
        missing = f", {problem.missing:,} records missing" if problem.missing else ""
        size = f"{problem.size:,} bytes" if problem.size else "nothing"
        click.echo(f"  {problem.state} at offset {problem.offset}: {problem.reason}")
        click.echo(f"    {size} to take out{missing}")


def print_dir(report: DirReport) -> None:
    """Print the result of `check`."""
    for file in report.files:
        print_file(file)
    if report.manifest_problem:
        click.echo(f"{MANIFEST}  {report.manifest_problem}")
    for name in report.absent:
        click.echo(f"{name}  named by the manifest, but not there")
    for name in report.unnamed:
        click.echo(f"{name}  left over, does not count; the next start removes it")
    records = sum(file.records for file in report.files)
    size = sum(file.bytes for file in report.files)
    click.echo(f"{len(report.files)} files, {records:,} records, {size:,} bytes: ", nl=False)
    click.echo("ok" if report.is_ok() else "needs repair")


@journal.command()
@click.argument("path", type=click.Path(exists=True))
def check(path: str) -> None:
    """Read every record of the journal in PATH (a directory or one file).

    Changes nothing. Exits with 1 when something is torn or damaged.
    """
    disk = Disk()
    try:
        if disk.is_dir(path):
            report = check_dir(disk, find_dir(disk, path), machine_boot_id())
            print_dir(report)
            is_ok = report.is_ok()
        else:
            name = path.rpartition("/")[2]
            file = check_file(disk, path, name, b"", True, 0, machine_boot_id())
            print_file(file)
            is_ok = not file.problems
    except (JournalError, OSError) as e:
        raise click.ClickException(str(e)) from e
    sys.exit(0 if is_ok else 1)


@journal.command()
@click.argument("path", type=click.Path(exists=True, file_okay=False))
@click.option("--yes", is_flag=True, help="Do not ask.")
def repair(path: str, yes: bool) -> None:
    """Set damage aside so that the rest of the journal in PATH loads.

    A torn end is cut off, damaged parts are moved to files beside the journal's, and a
    record is left that says how many records are missing. Nothing is thrown away.
    """
    disk = Disk()
    path = find_dir(disk, path)
    handle = locked(disk, path)
    try:
        report = check_dir(disk, path, machine_boot_id())
        print_dir(report)
        if report.is_ok():
            return
        if not yes:
            click.confirm("Repair it?", abort=True)
        for line in repair_dir(disk, report):
            click.echo(line)
        after = check_dir(disk, path)
        if not after.is_ok():
            print_dir(after)
            raise click.ClickException("something is left that this program cannot repair")
        click.echo("repaired: the journal loads now")
    except (JournalError, OSError) as e:
        raise click.ClickException(str(e)) from e
    finally:
        disk.close(handle)


def locked(disk: Disk, path: str) -> int:
    """The directory's lock, or an error that names its holder."""
    try:
        disk.makedirs(path)
        return disk.lock(f"{path}/{LOCK}")
    except LockedError as e:
        raise click.ClickException(
            f"{path} is in use by process {e.pid or 'unknown'}; stop that server first"
        ) from e
    except OSError as e:
        raise click.ClickException(f"cannot write in {path}: {why(e)}") from e


# show


def files_of(disk: Disk, path: str) -> list[str]:
    """Paths of the files to show, in the order they are loaded."""
    if not disk.is_dir(path):
        return [path]
    path = find_dir(disk, path)
    manifest = read_manifest(disk, path)
    if manifest is None:
        raise JournalError(f"{path} holds no journal")
    names = [manifest.snapshot] if manifest.snapshot else []
    return [f"{path}/{name}" for name in [*names, *manifest.segments]]


def rows(disk: Disk, path: str) -> Iterator[dict[str, Any]]:
    """The records of one file, each with its sequence number and instant."""
    header = decode_header(disk.read(path, 0, HEADER_BYTES), path)
    if header is None:
        raise JournalError(f"{path}: not a journal file, or its header is damaged")
    scanner = FrameScanner(disk, path, header.salt, HEADER_BYTES)
    r = Record()
    while scanner.next() == FOUND:
        frame = scanner.frame
        pos, seq = 0, frame.first_seq
        while pos < len(frame.payload):
            pos = decode(frame.payload, pos, r)
            yield {"seq": seq, "at_ms": frame.now_ms, **fields(r)}
            seq += 1
    if scanner.offset < scanner.size:
        click.echo(
            f"{path}: unreadable from offset {scanner.offset} ({scanner.reason}); "
            "see `tuque journal check`",
            err=True,
        )


@journal.command()
@click.argument("path", type=click.Path(exists=True))
@click.option("--id", "job_id", metavar="ID", help="Only records of this job.")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue or tube, and its pauses.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def show(path: str, job_id: str | None, queue: str | None, as_json: bool) -> None:
    """Print the records of the journal in PATH.

    Times are local. A record is one line, or several on a terminal that is too narrow; `--json`
    has all its fields, with instants in ms and ns since 1970.
    """
    disk = Disk()
    wanted: set[str] = set()  # ids seen in the queue
    width = terminal.width()
    try:
        for file in files_of(disk, path):
            for row in rows(disk, file):
                if job_id is not None and row.get("id") != job_id:
                    continue
                if queue is not None and queue not in (row.get("queue"), row.get("tube")):
                    if row.get("id") not in wanted:
                        continue
                elif queue is not None and "id" in row:
                    wanted.add(row["id"])
                click.echo(json.dumps(row) if as_json else line_of(row, width))
    except BrokenPipeError:  # the reader has enough: `show ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (JournalError, BadRecord, OSError) as e:
        raise click.ClickException(str(e)) from e


# import


@journal.command("import")
@click.argument("aof", type=click.Path(exists=True, dir_okay=False))
@click.option("--dir", "path", required=True, type=click.Path(), help="The server's dir.")
@click.option("--appenddirname", default=DEFAULT_NAME, show_default=True, help="Journal in dir.")
@click.option("--create", is_flag=True, help="Make DIR if it is not there.")
@click.option(
    "--skip-bad", is_flag=True, help="Import the rest of a log that is damaged or cut off."
)
@click.option(
    "--hold-at-most-once",
    is_flag=True,
    help="Keep jobs with RETRY 0 as delivered: Disque did not log what it handed out.",
)
def import_(
    aof: str, path: str, appenddirname: str, create: bool, skip_bad: bool, hold_at_most_once: bool
) -> None:
    """Take the jobs of AOF, a log of Disque 1.0, into the journal of a stopped server.

    Jobs stored as queued are queued again, those with RETRY 0 too: after SHUTDOWN REWRITE-AOF
    of Disque that is exact; after a crash some of these may have been delivered before.

    When something in AOF cannot be read, it is shown, nothing is imported, and the exit status
    is 1; with --skip-bad the rest is imported.
    """
    disk = Disk()
    if not create and not disk.is_dir(path):
        raise click.ClickException(f"{path} is not there; --create makes the directory")
    path = path if is_journal_dir(disk, path) else f"{path.rstrip('/')}/{appenddirname}"
    handle = locked(disk, path)
    try:
        found = read_aof(disk, aof)
        print_import(found)
        if (found.bad_count or found.cut_bytes) and not skip_bad:
            raise click.ClickException(
                f"a part of {aof} cannot be read, nothing was imported; --skip-bad imports the rest"
            )
        jobs = list(found.jobs.values())
        if hold_at_most_once:
            for job in jobs:
                if job.retry_s == 0:
                    job.state, job.qtime_ms = ACTIVE, 0
                    job.flags |= DELIVERED
        write_jobs(disk, path, jobs, found)
    except (JournalError, OSError) as e:
        raise click.ClickException(str(e)) from e
    finally:
        disk.close(handle)
    click.echo(f"imported into {path}; start the server with appendonly yes")


def print_import(found: Import) -> None:
    """Print what the log holds, and what is unreadable."""
    for note in found.notes[:NOTES_SHOWN]:
        click.echo(note, err=True)
    if len(found.notes) > NOTES_SHOWN:
        click.echo(f"... and {len(found.notes) - NOTES_SHOWN} more", err=True)
    click.echo(
        f"read {len(found.jobs):,} jobs, acked or deleted {found.deleted_count:,}, "
        f"expired {found.expired_count:,}, bad {found.bad_count:,}"
        + (f", unfinished end of {found.cut_bytes} bytes" if found.cut_bytes else "")
    )


def read_aof(disk: Disk, aof: str) -> Import:
    """Read the whole file, with a progress bar on a terminal."""
    reader = AofReader(disk, aof)
    found = Import()
    at_ms = now_ms()
    with click.progressbar(
        length=reader.size, label="reading", file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        done = False
        while not done:
            before = reader.offset
            done = import_step(reader, found, at_ms, STEP)
            bar.update(reader.offset - before)
    return found


def write_jobs(disk: Disk, path: str, jobs: list[Job], found: Import) -> None:
    """Append the jobs to the journal in `path`, which is created if missing."""
    at_ms = now_ms()
    manifest, seq = Manifest(), 0
    node_id = b"0" * 40
    if read_manifest(disk, path) is not None:
        report = check_dir(disk, path)
        if not report.is_ok():
            raise JournalError(f"{path} needs repair first: tuque journal repair {path}")
        manifest = report.manifest
        if report.files:
            seq = max(report.files[-1].next_seq - 1, 0)
            header = report.files[-1].header
            node_id = node_id if header is None else header.node_id
    engine = Journal(disk, path, node_id, Boot(at_ms, b"", 0))
    engine.start(manifest, seq, at_ms)
    records = Records()
    for job_id, expire_ms in found.acked.items():
        if expire_ms > at_ms:
            records.ack(job_id, expire_ms)
    for job in jobs:
        records.add(job)
        if records.size() >= SLICE_BYTES:
            put(engine, records, at_ms)
    put(engine, records, at_ms)
    if not engine.sync():
        raise JournalError(engine.error)
    engine.mark()
    engine.close()


def put(engine: Journal, records: Records, at_ms: int) -> None:
    """Write the recorded changes as one frame."""
    count = records.count
    if count and not engine.append(records.take(), count, at_ms):
        raise JournalError(engine.error)
