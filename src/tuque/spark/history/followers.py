"""The streams that follow a directory of events, and what they have read (SPEC E5.3).

A stream leaves a note `.stream-*.json` in the directory before it reads; compaction asks what each
has committed. Files answer both, so the stream need not run. Knows the layout of Spark's
checkpoints (offsets, commits, sources) and nothing of tables.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

NOTE: Final = ".stream-{key}.json"


@dataclass(frozen=True)
class Follower:
    """A registered stream, and the segments that it has committed, by their names."""

    note: Path
    checkpoint: str
    host: str
    is_gone: bool  # its checkpoint was removed: it cannot continue
    has_read: frozenset[str]

    def __str__(self) -> str:
        return f"{self.host}:{self.checkpoint}"


def announce(events: Path, checkpoint: Path) -> None:
    """Write the note of the stream with that checkpoint. Raises OSError."""
    said = {"host": socket.gethostname(), "checkpoint": str(checkpoint.resolve())}
    key = hashlib.sha256("\n".join(said.values()).encode()).hexdigest()[:16]
    note = events / NOTE.format(key=key)
    temporary = note.with_name(f"{note.name}.{os.getpid()}")
    temporary.write_text(json.dumps(said) + "\n")
    temporary.rename(note)


def followers(events: Path) -> list[Follower]:
    """The registered streams. One with an unreadable note counts as having read nothing."""
    found = []
    for note in sorted(events.glob(NOTE.format(key="*"))):
        try:
            said = json.loads(note.read_text())
            host, checkpoint = str(said["host"]), str(said["checkpoint"])
        except (OSError, ValueError, KeyError, TypeError):
            found.append(Follower(note, str(note), "?", False, frozenset()))
            continue
        is_here = host == socket.gethostname()
        is_gone = is_here and not Path(checkpoint).exists()
        found.append(Follower(note, checkpoint, host, is_gone, committed(Path(checkpoint))))
    return found


def committed(checkpoint: Path) -> frozenset[str]:
    """Names of the files in batches that Spark has committed."""
    done = [batch for batch, _ in _numbered(checkpoint / "commits")]
    if not done:
        return frozenset()
    ends = _ends(checkpoint / "offsets" / str(max(done)))
    names: list[set[str]] = []
    for number, end in enumerate(ends):
        log = checkpoint / "sources" / str(number)
        read = {
            str(entry["path"]).rpartition("/")[2]
            for _, path in _numbered(log)
            for entry in _lines(path)
            if int(entry["batchId"]) <= end
        }
        names.append(read)
    return frozenset(set.intersection(*names)) if names else frozenset()


def _ends(offsets: Path) -> list[int]:
    """The last log entry of each source of the query; -1: none."""
    with suppress(OSError, ValueError):
        lines = offsets.read_text().splitlines()[2:]  # after the version and the settings
        return [-1 if line == "-" else int(json.loads(line)["logOffset"]) for line in lines]
    return []


def _numbered(folder: Path) -> Iterator[tuple[int, Path]]:
    """The files of one of Spark's logs: N, or N.compact, which includes those before it."""
    with suppress(FileNotFoundError):
        for path in sorted(folder.iterdir()):
            if path.name.removesuffix(".compact").isdigit():
                yield int(path.name.removesuffix(".compact")), path


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of one file of a log; none if it has just been removed."""
    with suppress(FileNotFoundError):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            assert isinstance(entry, dict)
            yield entry
