"""Raw event files: the server's hand-over to the writer process (SPEC E3).

A file `.raw-NODE-FIRST` is a sequence of frames: one chunk of core/records/events.py each, with its
length and CRC. The server only appends; the kernel keeps written data when the server is killed.
A file stays locked while the server may append to it. The writer process
(server/events/writer.py) reads and removes the files. Knows nothing of pyarrow.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tuque.core.records.events import COLUMN_NAMES, Chunk

MAGIC: Final = b"TQE1"
HEAD: Final = struct.Struct(f"<4sIqI{len(COLUMN_NAMES)}I")  # magic, CRC, first seq, rows, lengths
CHECKED_FROM: Final = 8  # the CRC covers all that follows it
NAME: Final = re.compile(r"\.(?:raw|hot|lock)-(.+)-(\d+)|\.lock-(.+)")


@dataclass(frozen=True)
class Frame:
    """One chunk as written."""

    first_seq: int
    rows: int
    columns: list[memoryview]


def encode(chunk: Chunk) -> list[bytes]:
    """The chunk as one frame, in pieces."""
    columns = chunk.columns()
    head = HEAD.pack(MAGIC, 0, chunk.first_seq, chunk.rows, *map(len, columns))[CHECKED_FROM:]
    crc = zlib.crc32(head)
    for column in columns:
        crc = zlib.crc32(column, crc)
    return [MAGIC, crc.to_bytes(4, "little"), head, *columns]


class Spool:
    """The raw files of one node, on the server's side; at most `limit` bytes."""

    def __init__(self, directory: Path, node: str, limit: int) -> None:
        self.directory = directory
        self.node = node
        self.limit = limit
        self.roll_bytes = max(1 << 16, min(16 << 20, limit // 4))
        self._files: list[tuple[Path, int]] = []  # closed ones that the writer may still need
        self._fd = -1
        self._path = directory
        self._size = 0

    def has_room(self) -> bool:
        """Whether the writer keeps up: the files not yet removed are within the limit."""
        self._files = [(path, size) for path, size in self._files if path.exists()]
        return self._size + sum(size for _, size in self._files) < self.limit

    def append(self, chunk: Chunk) -> None:
        """Append the chunk; raises OSError and keeps nothing of it."""
        frame = encode(chunk)
        if self._fd < 0:
            self._open(chunk.first_seq)
        try:
            size = sum(map(len, frame))
            written = os.writev(self._fd, frame)
            if written < size:  # the disk is nearly full: the next call fails
                rest = memoryview(b"".join(frame))[written:]
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, self._size)
            self.close()  # another file may find room
            raise
        self._size += size
        if self._size >= self.roll_bytes:
            self.close()

    def close(self) -> None:
        """Close the open file to further appends."""
        if self._fd < 0:
            return
        if self._size:
            self._files.append((self._path, self._size))
        os.close(self._fd)
        self._fd = -1
        self._size = 0

    def _open(self, first_seq: int) -> None:
        """Open a new file, named only once it is locked: the writer removes unlocked ones."""
        name = f"raw-{self.node}-{first_seq:020d}"
        self._path = self.directory / f".{name}"
        unnamed = self.directory / f".new-{name}"
        fd = os.open(unnamed, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(unnamed, self._path)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd


def raw_files(directory: Path, node: str) -> list[Path]:
    """The raw files of a node, oldest first."""
    found = [path for path in directory.glob(".raw-*") if node_of(path) == node]
    return sorted(found, key=lambda path: path.name)


def node_of(path: Path) -> str:
    """The node that a file of the top directory belongs to; empty: none."""
    match = NAME.fullmatch(path.name)
    return (match[1] or match[3]) if match else ""


def is_closed(path: Path) -> bool:
    """Whether no process can append to the file any more."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def frames(path: Path, offset: int) -> Iterator[tuple[int, Frame]]:
    """The whole frames from `offset` on, each with the offset of the next; stops at a torn one."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        while True:
            head = os.pread(file.fileno(), HEAD.size, offset)
            if len(head) < HEAD.size:
                return
            magic, crc, first_seq, rows, *lengths = HEAD.unpack(head)
            if magic != MAGIC:
                return
            size = sum(lengths)
            body = os.pread(file.fileno(), size, offset + HEAD.size)
            if len(body) < size or zlib.crc32(body, zlib.crc32(head[CHECKED_FROM:])) != crc:
                return
            offset += HEAD.size + size
            columns, at = [], 0
            view = memoryview(body)
            for length in lengths:
                columns.append(view[at : at + length])
                at += length
            yield offset, Frame(first_seq, rows, columns)
