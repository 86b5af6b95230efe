"""Compaction: merges the many small event segments of a day into a few big ones (SPEC E5).

A big file `compact-NODE-FIRST-LAST.parquet` appears by one rename; its name covers the small ones
that it replaces: readers (pipeline.whole) ignore those, so that it does not matter when they are
removed. That happens later, for readers that have listed them already, and once every stream has
read them (followers.py). After a crash at any point the next run continues. Needs pyarrow only;
knows nothing of the server.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tuque.spark.errors import IF_DAMAGED, no_directory
from tuque.spark.history.followers import Follower, followers
from tuque.spark.history.foreign import why_foreign
from tuque.spark.history.pipeline import lies_in, span_of

BATCH_ROWS: Final = 65_536  # in memory at once
GROUP_ROWS: Final = 262_144  # per row group, the unit of one task
_FULL: Final = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_TEXTS: Final = ["node", "event", "queue", "consumer", "reason"]


class CompactError(Exception):
    """Compaction failed; the text says why."""


@dataclass
class Done:
    """The result of one run."""

    days: int = 0
    merged: int = 0  # small files merged into a big one
    made: int = 0
    removed: int = 0
    waiting: dict[str, int] = field(default_factory=dict)  # stream -> merged files it has not read
    bytes_before: int = 0  # of the merged files
    bytes_after: int = 0


def compact(
    events: Path,
    before: str,
    now_s: float,
    *,
    rows: int = 5_000_000,
    grace_s: float = 3600.0,
    on_day: Callable[[str], None] = lambda _: None,
) -> Done:
    """Compact the days (UTC, "2026-01-31") before that one; files of up to `rows` events.

    Removes files merged more than `grace_s` ago and read by all streams. Raises CompactError.
    """
    if not events.is_dir():
        raise CompactError(f"{events}: {no_directory(events)}")
    done = Done()
    with _alone(events):
        readers = _readers(events)
        for folder in sorted(events.glob("date=*")):
            if folder.name < f"date={before}":
                on_day(folder.name.removeprefix("date="))
                _compact_day(folder, rows, done)
                done.days += 1
            _remove_merged(folder, now_s - grace_s, readers, done)
    return done


def _readers(events: Path) -> list[Follower]:
    """[E5.3] The registered streams; drops those whose checkpoint is gone."""
    readers = followers(events)
    for reader in readers:
        if reader.is_gone:
            reader.note.unlink(missing_ok=True)
    return [reader for reader in readers if not reader.is_gone]


@contextmanager
def _alone(events: Path) -> Iterator[None]:
    """Hold the lock that excludes other runs."""
    with (events / ".compacting").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CompactError(f"{events}: another compaction is running") from None
        yield


def _compact_day(folder: Path, rows: int, done: Done) -> None:
    for torn in folder.glob(".tmp-compact-*"):
        torn.unlink(missing_ok=True)  # of a killed run
    for run in _runs(_small_ones(folder)):
        for group in _groups(run, rows):
            if len(group) < 2:
                continue
            with suppress(FileNotFoundError):  # retention removed it first
                before = sum(path.stat().st_size for path in group)
                made = _merge(folder, group)
                done.merged += len(group)
                done.made += 1
                done.bytes_before += before
                done.bytes_after += made.stat().st_size


def _small_ones(folder: Path) -> list[Path]:
    """Segments not covered by a big file, by node and number."""
    covers = _covers(folder)
    paths = [p for p in folder.glob("events-*.parquet") if span_of(p) and not _is_in(p, covers)]
    return sorted(paths, key=lambda path: path.name)


def _runs(paths: list[Path]) -> Iterator[list[Path]]:
    """Sequences of one node's files without a gap: what is missing may still be sealed."""
    run: list[Path] = []
    for path in paths:
        span, last = span_of(path), span_of(run[-1]) if run else None
        if last and span and (span[0] != last[0] or span[1] != last[2] + 1):
            yield run
            run = []
        run.append(path)
    if run:
        yield run


def _groups(run: list[Path], rows: int) -> Iterator[list[Path]]:
    """Split the run into groups of about that many events."""
    first = span_of(run[0])
    assert first is not None

    def part(path: Path) -> int:
        span = span_of(path)
        assert span is not None
        return (span[1] - first[1]) // rows

    for _, group in groupby(run, part):
        yield list(group)


def _merge(folder: Path, group: list[Path]) -> Path:
    """Merge the group into one durable file, with its name set by one rename."""
    import pyarrow.parquet as pq

    begin, end = span_of(group[0]), span_of(group[-1])
    assert begin is not None and end is not None
    target = folder / f"compact-{begin[0]}-{begin[1]:020d}-{end[2]:020d}.parquet"
    temporary = folder / f".tmp-{target.name}"
    schema = _schema(group)
    try:
        with pq.ParquetWriter(
            str(temporary), schema, compression="zstd", use_dictionary=_TEXTS
        ) as writer:
            _copy(group, writer, schema)
        _sync(temporary)
    except OSError as e:
        if e.errno is None or e.errno not in _FULL:
            raise
        temporary.unlink(missing_ok=True)
        raise CompactError(f"{target} could not be written: {os.strerror(e.errno)}") from e
    os.rename(temporary, target)
    _sync(folder)
    return target


def _copy(group: list[Path], writer: Any, schema: object) -> None:
    """Write the rows of all files of the group."""
    import pyarrow.parquet as pq

    waiting: list[object] = []
    count = 0
    for path in group:
        with pq.ParquetFile(str(path)) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                waiting.append(batch)
                count += batch.num_rows
                if count >= GROUP_ROWS:
                    _put(writer, waiting, schema)
                    waiting, count = [], 0
    if waiting:
        _put(writer, waiting, schema)


def _schema(group: list[Path]) -> Any:
    """The segments' columns; CompactError for a damaged file, or no segment (E4.3)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first: Any = None
    for path in group:
        try:
            columns = pq.read_schema(str(path))
        except pa.ArrowInvalid as e:
            raise CompactError(f"{path}: {e} {IF_DAMAGED}") from e
        said = why_foreign(columns)
        if said:
            raise CompactError(f"{path}: {said}")
        if first is None:
            first = columns
        elif not columns.equals(first):
            raise CompactError(
                f"{path}: its columns are not those of {group[0]}, so they cannot be merged; "
                "move one of them out of the directory of the events"
            )
    return first


def _put(writer: Any, batches: list[object], schema: object) -> None:
    """Write the batches as one row group."""
    import pyarrow as pa

    writer.write_table(pa.Table.from_batches(batches, schema=schema))


def _remove_merged(folder: Path, made_before_s: float, readers: list[Follower], done: Done) -> None:
    """[E5.2] Remove small files that a big one has covered since that instant and all have read."""
    covers = {}
    for path in folder.glob("compact-*.parquet"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime <= made_before_s and (span := span_of(path)):
                covers[path] = span
    for path in folder.glob("events-*.parquet"):
        if not _is_in(path, covers):
            continue
        waiting = [str(reader) for reader in readers if path.name not in reader.has_read]
        for reader in waiting:
            done.waiting[reader] = done.waiting.get(reader, 0) + 1
        if not waiting:
            path.unlink(missing_ok=True)
            done.removed += 1


def _covers(folder: Path) -> dict[Path, tuple[str, int, int]]:
    found = folder.glob("compact-*.parquet")
    return {path: span for path in found if (span := span_of(path))}


def _is_in(path: Path, covers: dict[Path, tuple[str, int, int]]) -> bool:
    span = span_of(path)
    return span is not None and any(lies_in(span, cover) for cover in covers.values())


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
