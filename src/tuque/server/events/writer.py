"""The process that turns raw event files into segments (SPEC E3, E4).

`python -m tuque.server.events.writer` is started by the server and talks with it by two
pipes: bytes on its input wake it, and each line of its output is JSON with its figures.
The end of its input means that the server stopped or was killed: it writes and seals
what there is, and ends. Everything it knows is on the disk, so it may be killed, too.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tuque.server.events import spool
from tuque.server.events.segments import (
    FAILURES,
    HotSegment,
    by_day,
    next_seq,
    prune,
    prune_days,
    recover,
    seal,
    to_batch,
)

MERGE_ROWS: Final = 16_384  # rows converted at once: more do not stay in the cache
PAUSE_S: Final = 0.25  # between two looks at busy raw files: big batches cost less per event
RETRY_S: Final = 1.0  # after a failed write
NICENESS: Final = 5


class Writer:
    """The segments of one node in one directory."""

    def __init__(self, options: argparse.Namespace, node: str) -> None:
        self.directory = Path(options.directory)
        self.options = options
        self.node = node
        self.written = 0  # events
        self.sealed = 0  # segments
        self.recovered = 0
        self.pruned = 0
        self.error = ""  # why events are not being written; empty: they are
        self.next_seq = 0  # of this node; what is below is in segments
        self._hot: HotSegment | None = None
        self._left: list[Path] = []  # closed hot segments still to be sealed
        self._roll_at = 0.0
        self._offsets: dict[Path, int] = {}

    def take_over(self) -> None:
        """[E2.4] Seal what a killed writer left and write what a killed server left."""
        self.recovered = len(recover(self.directory, self.node))
        self.next_seq = next_seq(self.directory, self.node)
        self.work()

    def work(self) -> None:
        """Write what is in the raw files; remove those that are done with."""
        for path in spool.raw_files(self.directory, self.node):
            with suppress(FileNotFoundError):
                is_closed = spool.is_closed(path)  # asked before the last look into it
                if not self._write(path):
                    return
                if is_closed:
                    path.unlink()
                    self._offsets.pop(path, None)

    def roll(self) -> None:
        """Seal the hot segment and any left from an earlier failure; remove old ones."""
        self._retire()
        left, self._left = self._left, []
        for path in left:
            try:
                self.sealed += seal(path, self.directory) is not None
                self.error = ""
            except FAILURES as e:
                self.error = str(e)
                self._left.append(path)
        if self.options.keep_bytes:
            self.pruned += prune(self.directory, self.options.keep_bytes)
        if self.options.keep_days:
            self.pruned += prune_days(self.directory, self.options.keep_days, time.time())

    def pause_s(self) -> float | None:
        """How long nothing needs to be done without a word; None: for ever."""
        if self.error or self._left:
            return RETRY_S
        if self._hot is not None:
            return max(0.0, self._roll_at - time.monotonic())
        return None

    def must_roll(self) -> bool:
        """Whether the hot segment is old or long enough."""
        if self._hot is None:
            return bool(self._left)
        return self._hot.rows >= self.options.roll_rows or time.monotonic() >= self._roll_at

    def figures(self) -> dict[str, int | str]:
        """What the server shows in INFO."""
        return {
            "written": self.written,
            "sealed": self.sealed,
            "recovered": self.recovered,
            "pruned": self.pruned,
            "error": self.error,
            "next_seq": self.next_seq,
        }

    def _write(self, path: Path) -> bool:
        """Write the file's new frames; whether all could be written."""
        merged: list[spool.Frame] = []
        rows, end = 0, self._offsets.get(path, 0)
        for offset, frame in spool.frames(path, end):
            is_next = not merged or frame.first_seq == merged[-1].first_seq + merged[-1].rows
            most = min(MERGE_ROWS, self.options.roll_rows)
            if merged and (not is_next or rows + frame.rows > most):
                if not self._append(merged):
                    return False
                self._offsets[path] = end
                merged, rows = [], 0
            merged.append(frame)
            rows += frame.rows
            end = offset
        if merged and not self._append(merged):
            return False
        self._offsets[path] = end
        return True

    def _append(self, merged: list[spool.Frame]) -> bool:
        """Append frames without a gap between them; a failure keeps them in their raw file."""
        first_seq = merged[0].first_seq
        end = merged[-1].first_seq + merged[-1].rows
        if end <= self.next_seq:
            return True  # a killed writer wrote them
        try:
            batch, ts_ms = to_batch(merged, self.node)
            for day, rows in by_day(ts_ms, batch, max(0, self.next_seq - first_seq)):
                is_other_day = self._hot is not None and self._hot.day != day
                if is_other_day or self.must_roll():
                    self.roll()
                if self._hot is None:
                    self._hot = HotSegment(self.directory, self.node, self._first(rows), day)
                    self._roll_at = time.monotonic() + self.options.roll_seconds
                self._hot.write(rows)
                self.next_seq = self._first(rows) + rows.num_rows
                self.written += rows.num_rows
            self.error = ""
        except FAILURES as e:
            self._retire()
            self.error = str(e)
            return False
        return True

    @staticmethod
    def _first(rows: object) -> int:
        return int(rows["seq"][0].as_py())  # type: ignore[index]  # a pyarrow batch

    def _retire(self) -> None:
        """Close the hot segment and leave it to be sealed."""
        hot, self._hot = self._hot, None
        if hot is None:
            return
        self._left.append(hot.path)
        try:
            hot.close()
        except FAILURES as e:
            self.error = str(e)


def lock(directory: Path, node: str, *, wait: bool) -> int | None:
    """The right to write the node's segments, held while the descriptor is open."""
    fd = os.open(directory / f".lock-{node}", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def take_over_others(options: argparse.Namespace) -> int:
    """Seal what dead nodes left in the same directory; how many segments."""
    directory = Path(options.directory)
    nodes = {spool.node_of(path) for path in directory.glob(".[hr][oa][tw]-*")}
    count = 0
    for node in sorted(nodes - {"", options.node}):
        held = lock(directory, node, wait=False)
        if held is None:
            continue  # it lives
        writer = Writer(options, node)
        writer.take_over()
        writer.roll()
        count += writer.recovered
        os.close(held)
    return count


def say(figures: dict[str, int | str]) -> None:
    """Report to the server; a line that finds no room is dropped, another follows."""
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(1, json.dumps(figures).encode() + b"\n")


def run(options: argparse.Namespace) -> int:
    """Write until the input ends; then what is left, at most three more times."""
    held = lock(Path(options.directory), options.node, wait=True)
    writer = Writer(options, options.node)
    writer.take_over()
    writer.recovered += take_over_others(options)
    os.set_blocking(1, False)
    say(writer.figures())
    while True:
        ready, _, _ = select.select([0], [], [], writer.pause_s())
        if ready and not os.read(0, 65_536):
            break
        if ready:
            time.sleep(PAUSE_S)
        writer.work()
        if writer.must_roll():
            writer.roll()
        say(writer.figures())
    for _ in range(3):
        writer.work()
        writer.roll()
        if not writer.error:
            break
        time.sleep(RETRY_S)
    os.set_blocking(1, True)
    say(writer.figures())
    assert held is not None
    os.close(held)
    return 1 if writer.error else 0


def main() -> int:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(description="Writes event segments for a Tuque server.")
    parser.add_argument("directory")
    parser.add_argument("node")
    parser.add_argument("--roll-rows", type=int, default=100_000)
    parser.add_argument("--roll-seconds", type=float, default=60.0)
    parser.add_argument("--keep-bytes", type=int, default=0)
    parser.add_argument("--keep-days", type=int, default=0)
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the server's end ends it, in order
    os.nice(NICENESS)
    try:
        return run(options)
    except FAILURES as e:
        say({"fatal": str(e)})
        return 1


if __name__ == "__main__":
    sys.exit(main())
