"""`tuque journal check|repair|show|import`: the journal of a server that is not running.

Decides what is asked, which fields of each record are shown, and how; store/repair.py, store/aof.py
and core/records read and repair. `check` and `show` may run beside a server, `repair` and `import`
lock the directory.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any, Final

import click

from tuque import terminal
from tuque.core.model.attempts import attempts_of
from tuque.core.model.job import ACTIVE, DELIVERED, STATE_NAMES, Job
from tuque.core.model.stats import CAUSES
from tuque.core.model.task import MAX_MS, STATUS_NAMES
from tuque.core.model.work import OUTCOME_NAMES, run_text
from tuque.core.msgs.records import (
    IN_FORCE,
    KINDS,
    AppRow,
    EndRow,
    GapRow,
    GrantRow,
    LeaseDrop,
    LeaseGroup,
    PauseRow,
    PeerRow,
    Published,
    QueueSettings,
    Row,
    SessionRow,
    SoloRow,
    StageDrop,
    StagedWork,
    TopicKeys,
    TopicRow,
    TubeCfg,
    TubeDrop,
    TubeFamily,
    TubeHolder,
    TubeImplicit,
    TubeRow,
    TubeStand,
    VoteMarks,
    VotersNextRow,
    VotersRow,
)
from tuque.core.records import jobs as rec
from tuque.core.records.jobs import Records
from tuque.core.records.leases import LeaseRecord
from tuque.core.records.read import BadRecord, Record, decode, has_id
from tuque.core.records.staged import NO_ID, StageRecord
from tuque.core.records.tubes import COMPLETE, GONE, MINE, HomeRecord, TaskRecord
from tuque.core.records.work import LifeRecord
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
from tuque.store.repair import (
    DirReport,
    FileReport,
    check_dir,
    check_file,
    named_in,
    repair_dir,
)
from tuque.store.replay import found_in
from tuque.store.writer import Journal, why
from tuque.terminal import printable
from tuque.tubes.model.grants import CALL, TRUNCATE, USER

# ---- Records in `tuque journal show`: names and values, and a line to read.
#
# Decides which fields of each kind are shown; core/records/read.py decodes the records.


INDENT: Final = 8
INSTANTS_MS: Final = (
    "qtime_ms",
    "expire_ms",
    "until_ms",
    "drop_ms",
    "since_ms",
    "dead_ms",
    "ended_ms",
)
INSTANTS_NS: Final = ("ctime_ns", "instant_ns")
RUN_NAMES: Final = ("none", "live", "released", "failed")  # by state of a run
LEFT_OUT: Final = (0, "", False)  # left out as meaningless; but a task may have the number 0


def fields(r: Record) -> dict[str, Any]:
    """The fields of a record to show."""
    row: dict[str, Any] = {"record": rec.KIND_NAMES[r.kind]}
    if has_id(r.kind):
        row["id"] = r.id.decode("latin-1")
    if rec.ADD <= r.kind <= rec.FIRST:
        row["state"] = STATE_NAMES[r.state].decode()
        row["qtime_ms"] = r.qtime_ms
        row.update(nacks=r.nacks, additional_deliveries=r.deliveries, delivered=r.delivered_count)
    if r.kind == rec.ADD:
        row.update(queue=text(r.queue), body_bytes=len(r.body), retry_s=r.retry_s)
        row.update(delay_s=r.delay_s, expire_ms=r.expire_ms, ctime_ns=r.ctime_ns)
        if r.holders != 1:
            row["holders"] = slots(r.holders)
    elif r.kind == rec.HOLDERS:
        row["holders"] = slots(r.holders)
    elif r.kind == rec.ACKED_AT:
        row.update(expire_ms=r.expire_ms, holders=slots(r.holders))
    elif r.kind in (rec.ACK, rec.TOMB):
        row["expire_ms"] = r.expire_ms
    elif r.kind == rec.REMOVE:
        row["cause"] = CAUSES[r.bits] if r.bits < len(CAUSES) else str(r.bits)
    elif r.kind == rec.LEASE_BATCH:
        row.update(batch_row(r.lease))
    elif r.kind in (rec.STAGED, rec.KEY):
        row.update(staged_row(r.kind, r.stage))
    elif r.kind in (rec.TASK_ADD, rec.TASK_STATE):
        row.update(task_row(r.kind, r.task))
    elif r.kind == rec.TUBE_HOME:
        row.update(home_row(r.home))
    elif rec.LIFE <= r.kind <= rec.OUTCOME:
        row.update(life_row(r.kind, r.life))
    elif r.kind in KINDS and r.row is not None:
        row.update(rare_row(r.row))
    return row


def batch_row(r: LeaseRecord) -> dict[str, Any]:
    """A batch of a lease group."""
    row: dict[str, Any] = {"group": text(r.name), "epoch": r.epoch, "batch": r.seq}
    row.update(first=r.first, positions=len(r.ids), jobs=r.total)
    return row | {"parts": r.parts, "drop_ms": r.drop_ms}


def staged_row(kind: int, r: StageRecord) -> dict[str, Any]:
    """The fields of a staged job without its body, or of a key."""
    if kind == rec.KEY:
        return {"id": text(r.id), "key": text(r.key[:-1]), "until_ms": r.until_ms}
    row: dict[str, Any] = {"txn": text(r.txn), "attempt": text(r.attempt)}
    row.update(position=r.position, until_ms=r.until_ms, queue=text(r.queue))
    return row | {"body_bytes": len(r.body)}


def rare_row(r: Row) -> dict[str, Any]:
    """The fields of a record of core/msgs/records.py."""
    row: dict[str, Any]
    if isinstance(r, PeerRow):
        return {"slot": r.slot, "node": text(r.node_id), "incarnation": r.incarnation}
    if isinstance(r, PauseRow):
        row = {"queue": text(r.queue), "paused": ("none", "in", "out", "all")[r.bits & 3]}
        return row if r.stamp_ns == 0 else row | {"instant_ns": r.stamp_ns}
    if isinstance(r, EndRow):
        return {"jobs": r.jobs, "records": r.records}
    if isinstance(r, GapRow):
        return {"missing_records": r.records, "bytes": r.bytes}
    return lease_row(r)


def lease_row(r: Row) -> dict[str, Any]:
    """The fields of a record of leases, publications and subscriptions."""
    row: dict[str, Any]
    if isinstance(r, LeaseGroup):
        row = {"group": text(r.names[0]), "epoch": r.epoch, "batch": r.last_seq}
        return row | {"committed": r.acked_seq, "owner": text(r.names[1])}
    if isinstance(r, LeaseDrop):
        return {"group": text(r.name), "epoch": r.epoch, "batch": r.seq}
    if isinstance(r, AppRow):
        return {"app": text(r.app), "version": r.version}
    if isinstance(r, StageDrop):
        return {"txn": text(r.txn), "attempt": text(r.attempt)}
    if isinstance(r, StagedWork):
        row = {"txn": text(r.txn), "attempt": text(r.attempt), "position": r.position}
        return row | {"id": text(r.id) or None, "attempts": r.attempts, "keep_ms": r.keep_ms}
    if isinstance(r, Published):
        row = {"txn": text(r.txn), "app": text(r.app), "version": r.version}
        ids = [None if id == NO_ID else text(id) for id in r.ids]
        return row | {"attempts": list(map(text, r.attempts)), "ids": ids}
    if isinstance(r, TopicRow):
        filters = [text(word) for pair in r.filters for word in pair]
        row = {"topic": text(r.topic), "queue": text(r.queue), "filters": filters}
        return row | {"version": r.version, "node": text(r.node), "is_gone": r.is_gone == 1}
    if isinstance(r, QueueSettings):
        row = {"queue": text(r.queue), "version": r.version, "node": text(r.node)}
        row |= {"state": r.state, "expires_ms": r.expires_ms, "is_auto": r.is_auto}
        return row
    if isinstance(r, TopicKeys):
        return {"topic": text(r.topic), "queue": text(r.queue), "keys": list(map(text, r.keys))}
    return tube_row(r)


def life_row(kind: int, r: LifeRecord) -> dict[str, Any]:
    """A job's work or its outcome, without headers, details and results."""
    life, outcome = r.life, r.outcome
    row: dict[str, Any]
    if kind == rec.OUTCOME and outcome is not None:
        row = {"outcome": text(OUTCOME_NAMES[outcome.kind]), "run": text(run_text(outcome.run))}
        row.update(worker=text(outcome.worker), reason=text(outcome.reason))
        result = outcome.result
        row["result_bytes"] = None if result is None else len(result)
        row["tried"] = tried(outcome.attempts)
        if outcome.body is not None:
            row["body_bytes"] = len(outcome.body)
        return row | {"ended_ms": outcome.ended_ms, "until_ms": outcome.until_ms}
    if life is None:
        return {}
    row = {"run": text(run_text(life.run)), "run_state": RUN_NAMES[life.run_state]}
    row.update(failed=life.failed, attempts=life.terms.attempts, starts=life.starts)
    row.update(crashes=life.crashes)
    row.update(replays=life.replays, since_ms=life.since_ms, worker=text(life.worker))
    row.update(is_resting=life.is_resting, is_cancelled=life.is_cancelled)
    last = life.last
    if last is not None:
        row.update(cause=text(last.cause), reason=text(last.reason))
    if life.is_dead:
        row.update(dead=text(life.dead_cause), dead_ms=life.dead_ms, origin=text(life.origin))
    return row | {"tried": tried(life.attempts)}


def tried(row: bytes) -> list[str]:
    """How each attempt ended, by its run."""
    return [f"{text(run_text(one.run))} {text(one.state)}" for one in attempts_of(row)]


def tube_row(r: Row) -> dict[str, Any]:
    """The fields of a record of tubes, sessions or rights, without uuids."""
    if isinstance(r, TubeRow):
        row = {"tube": text(r.name), "type": text(r.kind), "next_number": r.next_number}
        for name, value in (("ttl_ms", r.ttl_ms), ("ttr_ms", r.ttr_ms)):
            row[name] = value if value < MAX_MS else None  # for ever
        return row | {"temporary": r.is_temporary, "pri": r.pri, "capacity": r.capacity}
    if isinstance(r, TubeDrop | TubeImplicit):
        return {"tube": text(r.name)}
    if isinstance(r, SessionRow):
        return {"session": r.number, "user": text(r.user), "is_over": r.is_over}
    if isinstance(r, GrantRow):
        row = {"tube": text(r.tube), "prefix": text(r.prefix), "call": bool(r.bits & CALL)}
        kind_of = "user" if r.holder.startswith(USER) else "role"
        return row | {kind_of: text(r.holder[1:]), "truncate": bool(r.bits & TRUNCATE)}
    if isinstance(r, TubeHolder):
        return {"tube": text(r.name), "session": r.number, "user": text(r.user)}
    if isinstance(r, TubeCfg):
        reserved = r.token_reserved
        return {"ttr_ms": r.ttr_ms, "in_replicaset": r.in_replicaset, "tokens_up_to": reserved}
    return vote_row(r)


def task_row(kind: int, r: TaskRecord) -> dict[str, Any]:
    """The fields of a record of a task, without its body."""
    row = {"id": text(r.id), "status": STATUS_NAMES[r.status].decode(), "token": r.token}
    row.update(qtime_ms=r.qtime_ms, session=r.owner, delivered=r.delivered_count)
    if kind == rec.TASK_ADD:
        row.update(tube=text(r.queue), number=r.number, pri=r.pri, body_bytes=len(r.body))
        row["utube"] = text(r.subqueue)
    return row


def home_row(r: HomeRecord) -> dict[str, Any]:
    """The leader of a tube, and what this node has of it."""
    row = {"tube": text(r.name), "epoch": r.epoch, "home": text(r.home[:8])}
    row.update(is_here=r.flags & MINE != 0, is_complete=r.flags & COMPLETE != 0, change=r.seq)
    return row | {"sync": r.sync, "is_dropped": r.flags & GONE != 0}


def vote_row(r: Row) -> dict[str, Any]:
    """The list of voters, a step to the next one, or a vote of this node."""
    if isinstance(r, VotersRow):
        row = {"list": r.number, "origin": r.origin.hex(), "is_in_force": r.step == IN_FORCE}
        return row | {"right": r.right, "disk": r.disk.hex(), "voters": voters(r.voters)}
    if isinstance(r, VotersNextRow):
        row = {"list": r.number, "origin": r.origin.hex(), "attempt": r.attempt}
        row |= {"node": text(r.node[:8]), "written": r.written_attempt}
        return row | {"voters": voters(r.voters)}
    if isinstance(r, VoteMarks):
        others = [f"{text(node_id[:8])}:{right}:{mark}" for node_id, right, mark in r.marks]
        return {"right": r.right, "mark": r.mark, "others": others}
    if isinstance(r, SoloRow):
        row = {"list": r.number, "origin": r.origin.hex(), "is_in_force": not r.has_lost}
        row |= {"right": r.right, "disk": r.disk.hex(), "has_journal": r.has_journal}
        return row | {"voters": voters([(r.voter, r.voter_right, r.voter_disk)])}
    if isinstance(r, TubeFamily):
        row = {"tube": text(r.name), "family": r.family.hex(), "moves": r.moves}
        return row | {"from_list": r.from_number}
    assert isinstance(r, TubeStand)
    row = {"tube": text(r.name), "epoch": r.epoch, "stands_with": text(r.node[:8])}
    return row | {"whole_epoch": r.whole_epoch, "whole_change": r.whole_seq}


def voters(rows: list[tuple[bytes, int, bytes]]) -> list[str]:
    """Voters with their rights, and the disks to which these were given after the first list."""
    return [
        f"{text(node_id[:8])}:{right}" + (f":{disk.hex()}" if any(disk) else "")
        for node_id, right, disk in rows
    ]


def slots(nodes: int) -> list[int]:
    """The slots of a set of nodes; earlier `peer` records name them, 0 is the own node."""
    return [slot for slot in range(nodes.bit_length()) if nodes >> slot & 1]


def text(name: bytes) -> str:
    """A queue name as text, whatever its bytes."""
    return name.decode("utf-8", "backslashreplace")


def line_of(row: dict[str, Any], width: int = 0) -> str:
    """The record as a line: sequence, instant, kind, id, then its fields.

    Text beyond `width` continues in indented lines; 0: one line.
    """
    at = instant(row["at_ms"])
    skipped = ("seq", "at_ms", "record", "id")
    told = {k: v for k, v in row.items() if k == "number" or (v is not None and v not in LEFT_OUT)}
    words = [said(k, v, at) for k, v in told.items() if k not in skipped]
    rest = " ".join([row["id"], *words] if "id" in row else words)
    line = f"{row['seq']:>7} {at} {row['record']:<11} {rest}".rstrip()
    if not width or len(line) <= width:
        return line
    return "\n".join(
        textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def said(name: str, value: object, at: str) -> str:
    """A field and its value; an instant as a time, with its day if not the record's."""
    if name in INSTANTS_MS and isinstance(value, int):
        name, value = name.removesuffix("_ms"), instant(value)
    elif name in INSTANTS_NS and isinstance(value, int):
        name, value = name.removesuffix("_ns"), instant(value // 1_000_000)
    if isinstance(value, str) and value[:11] == at[:11] and len(value) == len(at):
        value = value[11:]
    return f"{name}={printable(str(value))}"


def instant(at_ms: int) -> str:
    """A local wall clock time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


# ---- commands


DEFAULT_NAME: Final = "journal"  # appenddirname
STEP: Final = 2_000
SLICE_BYTES: Final = 1 << 20
NOTES_SHOWN: Final = 20


@click.group()
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
    for own, name in report.places.items():
        if own != name:
            click.echo(f"{name}  holds what belongs to {own}")
    for name in report.copies:
        click.echo(f"{name}  a copy of a file that is there")
    for name in report.foreign:
        click.echo(f"{name}  of another journal: its header says so")
    if report.newer:
        names = ", ".join(report.newer)
        click.echo(f"{MANIFEST}  older than the files here; the next start also loads {names}")
    for name in report.unnamed:
        then = "the next start removes it"
        if not report.is_ok() and name not in report.empty:
            then = "a repair moves it aside"
        elif name in report.left:
            then = "the next start renames it to .left"
        click.echo(f"{name}  left over, does not count; {then}")
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
            file = check_file(disk, path, name, b"", True, 0, 0, machine_boot_id())
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
        if report.is_ok() and not report.newer:
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
    except LockedError as held:
        raise click.ClickException(
            f"{path} is in use by process {held.pid or 'unknown'}; stop that server first"
        ) from held
    except OSError as e:
        raise click.ClickException(f"cannot write in {path}: {why(e)}") from e


# show


def files_of(disk: Disk, path: str) -> list[str]:
    """Paths of the files to show, in the order they are loaded."""
    if not disk.is_dir(path):
        return [path]
    path = find_dir(disk, path)
    if read_manifest(disk, path) is None:
        raise JournalError(f"{path} holds no journal")
    names, _ = named_in(found_in(disk, path).manifest)
    return [f"{path}/{name}" for name in names]


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
