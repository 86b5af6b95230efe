"""The event stream in the server: a thread writes raw files, a process makes segments (SPEC E).

The pump calls `flush` with full chunks; the thread appends them to raw files and supervises the
process (writer.py) that turns these into segments. The pump never waits: when the disk is slow or
full, core/records/events.py drops events and counts them. The server itself needs no pyarrow.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import re
import select
import struct
import subprocess
import sys
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import tuque
from tuque.core.records.events import ALL, COLUMN_NAMES, Chunk, Events

MAGIC: Final = b"TQE1"
HEAD: Final = struct.Struct(f"<4sIqI{len(COLUMN_NAMES)}I")  # magic, CRC, first seq, rows, lengths
CHECKED_FROM: Final = 8  # the CRC covers all that follows it
NAME: Final = re.compile(r"\.(?:raw|hot|lock)-(.+)-(\d+)|\.lock-(.+)")

EVENT_BYTES: Final = 1024  # of raw files per buffered event, as the writer may lag
RETRY_S: Final = 1.0  # after a failed write, and between two starts of the writer process
READY_S: Final = 120.0  # for the writer process to start, including recovery after a kill


# ---- Raw event files: what the server hands over to the writer process (SPEC E3)
#
# A file `.raw-NODE-FIRST` is a sequence of frames: one chunk of core/records/events.py each, with
# its length and CRC. The server only appends; the kernel keeps written data when the server is
# killed. A file stays locked while the server may append to it. The writer process
# (server/events/writer.py) reads and removes the files. Knows nothing of pyarrow.


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
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
        fd = os.open(unnamed, flags, 0o644)
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


# ---- The thread, and the writer process (SPEC E)


class EventLogError(Exception):
    """Events cannot be written as configured; the text says what to do."""


class EventLog:
    """The event segments of one node in one directory.

    `node` names the rows and files. A segment is sealed after `roll_rows` events or
    `roll_seconds`; memory holds at most `buffer_rows` events. `keep_bytes` bounds the size
    of the sealed segments (0: no bound), `keep_days` their age; the oldest go first.
    `address` is the node's name in reports.
    """

    def __init__(
        self,
        directory: str | Path,
        node: str,
        *,
        roll_rows: int = 100_000,
        roll_seconds: float = 60.0,
        buffer_rows: int = 262_144,
        keep_bytes: int = 0,
        keep_days: int = 0,
        address: str = "",
    ) -> None:
        _ask_for_pyarrow()
        self.directory = Path(directory)
        self.node = re.sub(r"[^A-Za-z0-9.]", "_", node) or "_"
        self.roll_rows = roll_rows
        self.roll_seconds = roll_seconds
        self.buffer_rows = buffer_rows
        self.keep_bytes = keep_bytes
        self.keep_days = keep_days
        self.address = address
        self.error = ""  # why events wait or are lost; empty: neither
        self.restarts = 0  # starts of the writer process after the first
        self._figures: dict[str, int | str] = {}  # reported by the running writer
        self._before = {"written": 0, "sealed": 0, "pruned": 0}  # by earlier writers
        self._said = b""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if address:
                (self.directory / f".name-{self.node}").write_text(f"{address}\n", "utf-8")
            self._writer = self._start_writer()
        except OSError as e:
            raise EventLogError(f"events-dir {self.directory}: {e.strerror or e}") from e
        self._await_ready()
        self.recovered = self._figure("recovered")
        self._first_seq = self._figure("next_seq")
        self._spool = Spool(self.directory, self.node, max(1 << 20, buffer_rows * EVENT_BYTES))
        self._given_back = 0  # chunks whose room is free again
        self._finished = 0  # chunks the thread is done with
        self._work: deque[Chunk] = deque()
        self._stop = False
        self._start_at = 0.0  # when the next writer process may start
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        self._thread = threading.Thread(target=self._run, name="tuque-events", daemon=True)

    def start(self, now_ms: int) -> Events:
        """Start the thread; returns the Events for `node.events`, with the start event added."""
        events = Events(self.buffer_rows, self._first_seq)
        events.started(now_ms)
        self._thread.start()
        return events

    def flush(self, events: Events, durable_seq: int = ALL) -> None:
        """Hand over the full chunks that need no later journal record. Never waits."""
        finished = self._finished  # read once: the thread keeps counting
        events.wrote(finished - self._given_back)
        self._given_back = finished
        chunks = events.take(durable_seq)
        if chunks:
            self._work.extend(chunks)
            self._nudge()

    def close(self, events: Events, now_ms: int, timeout_s: float = 30.0) -> None:
        """Add the stop event, write and seal everything, end the thread.

        Raises EventLogError when the events could not be written in time.
        """
        deadline = monotonic() + timeout_s
        self._hand_over_all(events, deadline)
        events.stopped(now_ms)
        self._hand_over_all(events, deadline)
        self._stop = True
        self._nudge()
        self._thread.join(max(0.0, deadline - monotonic()))
        is_over = not self._thread.is_alive() and self._end_writer(deadline)
        if not is_over or self.error or self._work:
            raise EventLogError(
                f"events-dir {self.directory}: {self.error or 'not written in time'}; "
                "what is on disk is sealed at the next start"
            )

    @property
    def written(self) -> int:
        """Events in segments since the start."""
        return self._before["written"] + self._figure("written")

    @property
    def sealed(self) -> int:
        """Segments sealed since the start."""
        return self._before["sealed"] + self._figure("sealed")

    @property
    def pruned(self) -> int:
        """Segments removed since the start."""
        return self._before["pruned"] + self._figure("pruned")

    @property
    def writer_pid(self) -> int:
        """The process that writes the segments."""
        return self._writer.pid

    def info(self, events: Events) -> dict[str, int | str]:
        """Counters for INFO."""
        return {
            "events_seq": events.seq,
            "events_pending": events.pending_rows() + sum(c.rows for c in tuple(self._work)),
            "events_written": self.written,
            "events_dropped": events.dropped,
            "events_segments_sealed": self.sealed,
            "events_segments_recovered": self.recovered,
            "events_segments_pruned": self.pruned,
            "events_writer_pid": self._writer.pid,
            "events_writer_restarts": self.restarts,
            "events_error": self.error or str(self._figures.get("error", "")),
        }

    # the pump's side

    def _nudge(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake_w, b".")

    def _hand_over_all(self, events: Events, deadline: float) -> None:
        """Wait until the thread has taken every event, or time is up."""
        while True:
            events.cut()
            self.flush(events)
            if not events.pending_rows() or monotonic() >= deadline:
                return
            self._thread.join(0.005)

    # the thread's side

    def _run(self) -> None:
        while not self._stop or self._work:
            stream = self._writer.stdout
            sources = [self._wake_r]
            if stream is not None and not stream.closed:
                sources.append(stream.fileno())
            waits = bool(self._work) or len(sources) == 1
            select.select(sources, [], [], RETRY_S if waits else None)
            with suppress(BlockingIOError):
                os.read(self._wake_r, 65_536)
            self._hear()
            if self._has_ended() and not self._stop:
                self._restart()
            self._write_out()
            if self._stop and self.error:
                break  # events that the disk refused are lost, and counted
        self._spool.close()

    def _write_out(self) -> None:
        """Append pending chunks to the raw files; `error` says why the disk refused."""
        count = 0
        try:
            while self._work and self._spool.has_room():
                self._spool.append(self._work[0])
                self._work.popleft()
                self._finished += 1
                count += 1
                self.error = ""
        except OSError as e:
            self.error = e.strerror or str(e)
        if self._work and not self._spool.has_room():
            self.error = "the segments are not written as fast as events come"
        if count and self._writer.stdin is not None:
            with suppress(OSError, ValueError):  # full: it is awake; closed: it will be restarted
                os.write(self._writer.stdin.fileno(), b".")

    def _start_writer(self) -> subprocess.Popen[bytes]:
        """Start the process; it finds its work on disk."""
        root = str(Path(tuque.__file__).parents[1])
        path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
        writer = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "tuque.server.events",
                str(self.directory),
                self.node,
                f"--roll-rows={self.roll_rows}",
                f"--roll-seconds={self.roll_seconds}",
                f"--keep-bytes={self.keep_bytes}",
                f"--keep-days={self.keep_days}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,
        )
        assert writer.stdin is not None and writer.stdout is not None
        os.set_blocking(writer.stdin.fileno(), False)
        os.set_blocking(writer.stdout.fileno(), False)
        return writer

    def _await_ready(self) -> None:
        """Wait until the process has sealed what a kill left, and knows the next number."""
        deadline = monotonic() + READY_S
        while "next_seq" not in self._figures and monotonic() < deadline:
            assert self._writer.stdout is not None
            select.select([self._writer.stdout], [], [], 1.0)
            self._hear()
            if self._writer.poll() is not None and "next_seq" not in self._figures:
                reason = self._figures.get("fatal", f"ended with {self._writer.returncode}")
                raise EventLogError(f"events-dir {self.directory}: the event writer: {reason}")
        if "next_seq" not in self._figures:
            self._writer.kill()
            raise EventLogError(f"events-dir {self.directory}: the event writer does not answer")

    def _hear(self) -> None:
        """Process the writer's reports."""
        stream = self._writer.stdout
        if stream is None or stream.closed:
            return
        with suppress(BlockingIOError):
            data = os.read(stream.fileno(), 65_536)
            if not data:
                stream.close()
            *lines, self._said = (self._said + data).split(b"\n")
            if lines:
                self._figures = json.loads(lines[-1])

    def _has_ended(self) -> bool:
        """Whether the process has ended."""
        stream = self._writer.stdout
        return stream is None or stream.closed

    def _restart(self) -> None:
        """Restart the process, once a second at most."""
        if monotonic() < self._start_at:
            return
        self._start_at = monotonic() + RETRY_S
        self._replace()

    def _replace(self) -> None:
        self._writer.kill()
        self._writer.wait()
        if self._writer.stdin is not None:
            self._writer.stdin.close()
        for name in self._before:
            self._before[name] += self._figure(name)
        self._figures, self._said = {}, b""
        try:
            self._writer = self._start_writer()
            self.restarts += 1
        except OSError as e:
            self.error = f"the event writer does not start: {e.strerror or e}"

    def _end_writer(self, deadline: float) -> bool:
        """Have everything sealed; whether that finished in time."""
        while monotonic() < deadline:
            assert self._writer.stdin is not None
            self._writer.stdin.close()
            while monotonic() < deadline and not self._has_ended():
                assert self._writer.stdout is not None
                select.select([self._writer.stdout], [], [], 0.1)
                self._hear()
            if self._writer.wait() == 0:
                return True
            if self._figures.get("error"):
                self.error = str(self._figures["error"])
                return False
            self._replace()  # a writer was killed
        return False

    def _figure(self, name: str) -> int:
        return int(self._figures.get(name, 0))


def _ask_for_pyarrow() -> None:
    """Raise an error with the install command if pyarrow is missing."""
    try:
        is_there = importlib.util.find_spec("pyarrow") is not None
    except ValueError:
        is_there = False
    if not is_there:
        raise EventLogError(
            "events=yes needs pyarrow: pip install 'tuque[report]', or set events=no"
        )
