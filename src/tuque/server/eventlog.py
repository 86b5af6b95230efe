"""The shell of the event stream [E2]: a thread that writes the core's events to segments.

The pump calls `flush` every turn; that hands full chunks to the thread and takes back
the room of those written. The thread never makes the pump wait: when the disk is slow
or full, core/events.py drops and counts. How a segment looks is decided in segments.py.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tuque.core.events import Chunk, Events

if TYPE_CHECKING:
    from tuque.server.segments import HotSegment

HOT_S: Final = 1.0  # an event waits at most this long in memory (while the pump turns)
MERGE_ROWS: Final = 65_536  # rows converted at once when there is a backlog
# A pump that never idles would keep the interpreter from the thread: each of its system
# calls restarts the thread's wait. From this backlog on it steps aside once a turn, which
# costs the pump 0.1 us an event.
BACKLOG_CHUNKS: Final = 4
YIELD_S: Final = 0.000_005
RETRY_S: Final = 1.0  # after a failed write


class EventLogError(Exception):
    """Events cannot be written as configured; the text says what to do."""


class EventLog:
    """The event segments of one node in one directory.

    `node` names the rows and files. A segment is sealed after `roll_rows` events or
    `roll_seconds`; memory holds at most `buffer_rows` events. `keep_bytes` bounds the
    sealed segments (0: no bound), the oldest go first.
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
    ) -> None:
        self._seg = _segments()
        self.directory = Path(directory)
        self.node = re.sub(r"[^A-Za-z0-9.]", "_", node) or "_"
        self.roll_rows = roll_rows
        self.roll_seconds = roll_seconds
        self.buffer_rows = buffer_rows
        self.keep_bytes = keep_bytes
        self.error = ""  # why events are being lost; empty: they are not
        self.written = 0  # events in segments
        self.lost = 0  # events a failed write took, beside Events.dropped
        self.sealed = 0  # segments
        self.pruned = 0
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.recovered = len(self._seg.recover(self.directory))
            self._first_seq = self._seg.next_seq(self.directory, self.node)
        except OSError as e:
            raise EventLogError(f"events-dir {self.directory}: {e.strerror or e}") from e
        self._hot: HotSegment | None = None
        self._left: list[Path] = []  # closed hot segments still to be sealed
        self._roll_at = 0.0
        self._cut_at = 0.0
        self._given_back = 0  # chunks whose room the pump has again
        self._finished = 0  # chunks the thread is done with
        self._work: deque[Chunk] = deque()
        self._stop = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="tuque-events", daemon=True)

    def start(self, now_ms: int) -> Events:
        """Start the thread; the Events for `node.events`, already marked as started."""
        events = Events(self.buffer_rows, self._first_seq)
        events.started(now_ms)
        self._cut_at = monotonic() + HOT_S
        self._thread.start()
        return events

    def flush(self, events: Events) -> None:
        """Hand over what is full or older than a second. Never waits; call it every turn."""
        idle = not events.full and events.lent_chunks == 0
        if idle and monotonic() < self._cut_at:
            return
        self._take_back(events)
        if monotonic() >= self._cut_at:
            events.cut()
            self._cut_at = monotonic() + HOT_S
        chunks = events.take()
        if chunks:
            with self._wake:
                self._work.extend(chunks)
                self._wake.notify()
        if events.lent_chunks >= BACKLOG_CHUNKS:
            sleep(YIELD_S)

    def close(self, events: Events, now_ms: int, timeout_s: float = 30.0) -> None:
        """Mark the stop, write and seal everything, end the thread.

        Raises EventLogError when the events could not be written in that time.
        """
        deadline = monotonic() + timeout_s
        self._hand_over_all(events, deadline)
        events.stopped(now_ms)
        self._hand_over_all(events, deadline)
        with self._wake:
            self._stop = True
            self._wake.notify()
        self._thread.join(max(0.0, deadline - monotonic()))
        if self._thread.is_alive() or self._left or self.error:
            raise EventLogError(
                f"events-dir {self.directory}: {self.error or 'not written in time'}; "
                "what is on disk is sealed at the next start"
            )

    def info(self, events: Events) -> dict[str, int | str]:
        """Counters for INFO."""
        return {
            "events_seq": events.seq,
            "events_pending": events.pending_rows() + sum(c.rows for c in tuple(self._work)),
            "events_written": self.written,
            "events_dropped": events.dropped + self.lost,
            "events_segments_sealed": self.sealed,
            "events_segments_recovered": self.recovered,
            "events_segments_pruned": self.pruned,
            "events_error": self.error,
        }

    # the pump's side

    def _take_back(self, events: Events) -> None:
        finished = self._finished  # read once: the thread counts on
        events.wrote(finished - self._given_back)
        self._given_back = finished

    def _hand_over_all(self, events: Events, deadline: float) -> None:
        """Wait for room until the thread has every event, or the time is over."""
        while events.pending_rows() and monotonic() < deadline:
            self._take_back(events)
            events.cut()
            with self._wake:
                self._work.extend(events.take())
                self._wake.notify_all()
                if events.pending_rows():
                    self._wake.wait(0.05)

    # the thread's side

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._work and not self._stop:
                    self._wake.wait(self._pause_s())
                stop = self._stop and not self._work
            if self._work:
                count, chunk = self._next_rows()
                self._write(chunk)
                self._finished += count
            if stop or self._must_roll():
                self._roll()
            if stop:
                return

    def _next_rows(self) -> tuple[int, Chunk]:
        """The oldest chunk, together with those that follow it, and how many they are.

        Behind a busy pump this thread gets the interpreter only every few ms, so its
        speed is the rows it does each time.
        """
        chunk = self._work.popleft()
        count = 1
        while self._work and chunk.rows + self._work[0].rows <= MERGE_ROWS:
            if self._work[0].first_seq != chunk.first_seq + chunk.rows:
                break  # events between them were dropped
            chunk.extend(self._work.popleft())
            count += 1
        return count, chunk

    def _pause_s(self) -> float | None:
        """How long nothing needs to be done without new events; None: for ever."""
        if self._hot is not None:
            return max(0.0, self._roll_at - monotonic())
        return RETRY_S if self._left else None

    def _must_roll(self) -> bool:
        if self._hot is None:
            return bool(self._left)
        return self._hot.rows >= self.roll_rows or monotonic() >= self._roll_at

    def _write(self, chunk: Chunk) -> None:
        """Append the chunk to the hot segment of its day; a failure costs its events."""
        rows = 0
        try:
            for day, batch in self._seg.by_day(chunk, self._seg.to_batch(chunk, self.node)):
                if self._hot is not None and self._hot.day != day:
                    self._roll()
                if self._hot is None:
                    first_seq = chunk.first_seq + rows
                    self._hot = self._seg.HotSegment(self.directory, self.node, first_seq, day)
                    self._roll_at = monotonic() + self.roll_seconds
                self._hot.write(batch)
                rows += batch.num_rows
            self.error = ""
        except self._seg.FAILURES as e:
            self.error = str(e)
            self.lost += chunk.rows - rows
            self._retire()  # what follows a torn batch could not be read
        self.written += rows

    def _retire(self) -> None:
        """Close the hot segment and leave it for `_seal_left`."""
        hot, self._hot = self._hot, None
        if hot is None:
            return
        self._left.append(hot.path)
        try:
            hot.close()
        except self._seg.FAILURES as e:
            self.error = str(e)

    def _roll(self) -> None:
        """Seal the hot segment and any left from an earlier failure."""
        self._retire()
        left, self._left = self._left, []
        for path in left:
            try:
                self.sealed += self._seg.seal(path, self.directory) is not None
                self.error = ""
            except self._seg.FAILURES as e:
                self.error = str(e)
                self._left.append(path)
        if self.keep_bytes:
            self.pruned += self._seg.prune(self.directory, self.keep_bytes)


def _segments() -> ModuleType:
    """The module that needs pyarrow, or an error that says how to get it."""
    try:
        from tuque.server import segments
    except ModuleNotFoundError as e:
        if not (e.name or "").startswith("pyarrow"):
            raise
        raise EventLogError(
            "events=yes needs pyarrow: pip install 'tuque[spark]', or set events=no"
        ) from e
    return segments
