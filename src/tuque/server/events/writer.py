"""The process that turns raw event files into segments (SPEC E3, E4).

The server starts `python -m tuque.server.events`, which runs this, and talks to it over two pipes:
bytes on its input wake it; each line of its output is JSON with its figures. End of input means
that the server stopped or was killed: the writer writes and seals the rest, and exits. All its
state is on disk, so it may be killed as well.
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

from tuque.server.events import events
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

MERGE_ROWS: Final = 16_384  # rows converted at once: more would not fit the cache
PAUSE_S: Final = 0.25  # between two polls of busy raw files: big batches cost less per event
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
        self.error = ""  # why events are not written; empty: they are
        self.next_seq = 0  # of this node; lower numbers are in segments
        self._hot: HotSegment | None = None
        self._left: list[Path] = []  # closed hot segments not sealed yet
        self._roll_at = 0.0
        self._offsets: dict[Path, int] = {}

    def take_over(self) -> None:
        """[E2.4] Seal what a killed writer left, and write what a killed server left."""
        self.recovered = len(recover(self.directory, self.node))
        self.next_seq = next_seq(self.directory, self.node)
        self.work()

    def work(self) -> None:
        """Write new frames of the raw files; remove finished files."""
        for path in events.raw_files(self.directory, self.node):
            with suppress(FileNotFoundError):
                is_closed = events.is_closed(path)  # checked before its last frames are read
                if not self._write(path):
                    return
                if is_closed:
                    path.unlink()
                    self._offsets.pop(path, None)

    def roll(self) -> None:
        """Seal the hot segment and any left by an earlier failure; remove old ones."""
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
        """Time to sleep unless woken, in s; None: for ever."""
        if self.error or self._left:
            return RETRY_S
        if self._hot is not None:
            return max(0.0, self._roll_at - time.monotonic())
        return None

    def must_roll(self) -> bool:
        """Whether the hot segment is old or long enough to seal."""
        if self._hot is None:
            return bool(self._left)
        return self._hot.rows >= self.options.roll_rows or time.monotonic() >= self._roll_at

    def figures(self) -> dict[str, int | str]:
        """Figures for INFO."""
        return {
            "written": self.written,
            "sealed": self.sealed,
            "recovered": self.recovered,
            "pruned": self.pruned,
            "error": self.error,
            "next_seq": self.next_seq,
        }

    def _write(self, path: Path) -> bool:
        """Write the file's new frames; whether all were written."""
        merged: list[events.Frame] = []
        rows, end = 0, self._offsets.get(path, 0)
        for offset, frame in events.frames(path, end):
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

    def _append(self, merged: list[events.Frame]) -> bool:
        """Append consecutive frames; on failure they stay in their raw file."""
        first_seq = merged[0].first_seq
        end = merged[-1].first_seq + merged[-1].rows
        if end <= self.next_seq:
            return True  # a killed writer has written them
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
        """Close the hot segment and queue it for sealing."""
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
    fd = os.open(directory / f".lock-{node}", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def take_over_others(options: argparse.Namespace) -> int:
    """Seal what dead nodes left in the same directory; how many segments."""
    directory = Path(options.directory)
    nodes = {events.node_of(path) for path in directory.glob(".[hr][oa][tw]-*")}
    count = 0
    for node in sorted(nodes - {"", options.node}):
        held = lock(directory, node, wait=False)
        if held is None:
            continue  # that node runs
        writer = Writer(options, node)
        writer.take_over()
        writer.roll()
        count += writer.recovered
        os.close(held)
    return count


def say(figures: dict[str, int | str]) -> None:
    """Report to the server; a line that does not fit is dropped, as another follows."""
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(1, json.dumps(figures).encode() + b"\n")


def run(options: argparse.Namespace) -> int:
    """Write until the input ends; then try the rest, three more times at most."""
    held = lock(Path(options.directory), options.node, wait=True)
    writer = Writer(options, options.node)
    writer.take_over()
    writer.recovered += take_over_others(options)
    os.set_blocking(1, False)
    say(writer.figures())
    ended = select.poll()
    ended.register(0, 0)  # reports the end of the input, and no bytes on it
    while True:
        ready, _, _ = select.select([0], [], [], writer.pause_s())
        if ready and not os.read(0, 65_536):
            break
        if ready:
            ended.poll(PAUSE_S * 1000)
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
    """Parse the command line and run the writer."""
    parser = argparse.ArgumentParser(description="Writes event segments for a Tuque server.")
    parser.add_argument("directory")
    parser.add_argument("node")
    parser.add_argument("--roll-rows", type=int, default=100_000)
    parser.add_argument("--roll-seconds", type=float, default=60.0)
    parser.add_argument("--keep-bytes", type=int, default=0)
    parser.add_argument("--keep-days", type=int, default=0)
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the server stops it, in order
    os.nice(NICENESS)
    try:
        return run(options)
    except FAILURES as e:
        say({"fatal": str(e)})
        return 1


if __name__ == "__main__":
    sys.exit(main())
