"""The audit: a line of JSON for each act of an administrator, in files of their own (SPEC N9).

The loop hands lines over and a thread writes them, so that the broker never waits for the disk.
Must not know: users, commands, connections.
"""

import json
import os
import re
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Final, final

LINES_MAX: Final = 10_000  # that wait for the thread; more are dropped
ROLL_LEAST: Final = 1 << 16
ROLL_MOST: Final = 16 << 20
PARTS: Final = 8  # files that share audit-keep-bytes, at least
TAIL_BYTES: Final = 1 << 16  # read from the end of a file to find its last whole line
NAME: Final = re.compile(r"audit-([0-9A-Za-z.]+)-(\d{20})\.jsonl")
TAIL: Final = len(".jsonl")
SEQ_END: Final = 20 + TAIL
NOT_DONE: Final = "a line could not be written: "


def files_of(directory: str, node: str) -> list[Path]:
    """The node's files, oldest first. Raises OSError."""
    found = [path for path in Path(directory).iterdir() if is_of(path.name, node)]
    return sorted(found)


def is_of(name: str, node: str) -> bool:
    """Whether a file of that name is the node's."""
    match = NAME.fullmatch(name)
    return match is not None and match[1] == node


def last_seq(directory: str, node: str) -> int:
    """The number of the last line of earlier starts, also of one that was lost, if it is known; 0
    without one. Raises OSError."""
    before = 0
    for path in reversed(files_of(directory, node)):
        before = max(before, int(path.name[-SEQ_END:-TAIL]) - 1)  # its first line is that or later
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines()
        for line in reversed(lines):
            try:
                return max(before, int(json.loads(line)["seq"]))
            except (ValueError, TypeError, KeyError):
                continue  # the kill of the server cut it
    return before


@final
class Audit:
    """The files of one node in one directory, and the thread that writes them.

    All files together have at most about `keep_bytes`; the oldest go first. Raises OSError if the
    directory cannot be used.
    """

    def __init__(self, directory: str, node: str, keep_bytes: int) -> None:
        self.directory = directory
        self.node = node
        self.keep_bytes = keep_bytes
        self.roll_bytes = max(ROLL_LEAST, min(ROLL_MOST, keep_bytes // PARTS))
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self.seq = last_seq(directory, node)  # of the latest line
        self.dropped = 0  # lines that the loop dropped
        self.lost = 0  # lines that the thread could not write
        self.written = 0
        self.error = ""  # why lines are lost now
        self.line: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self.thread: threading.Thread | None = None
        self.fd = -1
        self.size = 0
        self.lost_seq = 0  # of the line that was lost last, 0: a later one is written

    def note(self, at_ms: int, told: dict[str, object]) -> None:
        """Add a line with these fields; drops it if too many wait."""
        self.seq += 1
        if self.line.qsize() >= LINES_MAX:
            self.dropped += 1
            return
        row = {"seq": self.seq, "ts_ms": at_ms, "node": self.node, **told}
        self.line.put((self.seq, json.dumps(row).encode() + b"\n"))
        if self.thread is None:
            self.thread = threading.Thread(target=self.run, name="audit", daemon=True)
            self.thread.start()

    def run(self) -> None:
        """The thread's loop."""
        while True:
            item = self.line.get()
            if item is None:
                return
            try:
                self.write(item[0], item[1])
                self.error = ""
                self.lost_seq = 0
            except OSError as error:
                self.error = NOT_DONE + (error.strerror or str(error))
                self.lost += 1
                self.lost_seq = item[0]

    def write(self, seq: int, data: bytes) -> None:
        """Append a line to the file, or to a new one. Raises OSError."""
        if self.fd < 0 or self.size + len(data) > self.roll_bytes:
            self.end_file()
            self.prune()
            self.fd = self.new_file(seq)
            self.size = 0
        sent = os.write(self.fd, data)
        if sent < len(data):  # the disk is full
            self.cut_back()
            raise OSError(0, "the disk took a part of it")
        self.size += sent
        self.written += 1

    def new_file(self, seq: int) -> int:
        """A new file whose first line is that one, or later. Raises OSError."""
        name = os.path.join(self.directory, f"audit-{self.node}-{seq:020d}.jsonl")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(name, flags, 0o600)

    def cut_back(self) -> None:
        """Remove a part of a line; else the reader leaves it out, and a new file begins."""
        try:
            os.ftruncate(self.fd, self.size)
        except OSError:
            self.end_file()

    def prune(self) -> None:
        """Remove the oldest files, so that a new one has room. Raises OSError."""
        files = files_of(self.directory, self.node)
        sizes = [path.stat().st_size for path in files]
        total = sum(sizes)
        for path, size in zip(files, sizes, strict=True):
            if total + self.roll_bytes <= self.keep_bytes:
                return
            path.unlink()
            total -= size

    def end_file(self) -> None:
        """The next line begins a new file."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        """Write what waits, and end the thread."""
        if self.thread is not None:
            self.line.put(None)
            self.thread.join()
            self.thread = None
        self.end_file()
        if self.lost_seq > 0:
            self.mark_lost()

    def mark_lost(self) -> None:
        """An empty file says how far the numbers had come: the next start shows the gap."""
        try:
            os.close(self.new_file(self.lost_seq + 1))
        except OSError:
            return  # the log has said why lines are lost
