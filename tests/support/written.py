"""Segments of events that a test tells: written in this process by what the server's writer runs.

tests/events has the process that writes them for a server; to start one takes longer than to write
a short history.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from tuque.core.records.events import Events
from tuque.server.events.events import Spool
from tuque.server.events.writer import Writer

ROWS_MOST = 262_144
BYTES_MOST = 1 << 30
NO_PRUNING = Namespace(roll_rows=ROWS_MOST, roll_seconds=3600.0, keep_bytes=0, keep_days=0)


class Written:
    """The segments of one run of a node: `start`, tell the events, `close`."""

    def __init__(self, directory: Path, node: str, address: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        if address:
            (directory / f".name-{node}").write_text(f"{address}\n")
        options = Namespace(**vars(NO_PRUNING), directory=str(directory), node=node)
        self.writer = Writer(options, node)
        self.writer.take_over()
        self.spool = Spool(directory, node, BYTES_MOST)

    def start(self, now_ms: int) -> Events:
        events = Events(ROWS_MOST, self.writer.next_seq)
        events.started(now_ms)
        return events

    def flush(self, events: Events) -> None:
        """Hand over what was told so far."""
        events.cut()
        for chunk in events.take():
            self.spool.append(chunk)
            events.wrote(1)

    def close(self, events: Events, now_ms: int) -> None:
        """Add the stop, and seal the segment."""
        events.stopped(now_ms)
        self.flush(events)
        self.spool.close()
        self.writer.work()
        self.writer.roll()
        assert not self.writer.error
