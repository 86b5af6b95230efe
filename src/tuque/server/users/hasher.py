"""Slow work on passwords in one thread: a flood of log-ins never stops the loop (SPEC N4).

The loop asks, the thread works and rings, the loop takes what is done. The line is bounded.
"""

import os
import threading
from queue import SimpleQueue
from typing import Final, final

from mypy_extensions import mypyc_attr

from tuque.server.journal.bell import Bell

LINE_MAX: Final = 256  # works at once; more log-ins are refused
NICENESS: Final = 10  # the loop comes first


@mypyc_attr(allow_interpreted_subclasses=True)
class Work:
    """Something slow about passwords."""

    def __init__(self) -> None:
        self.is_done = False

    def run(self) -> None:
        """Do it; touches nothing that the loop uses before `is_done`."""


@final
class Hasher:
    """The thread; it starts with the first work."""

    def __init__(self) -> None:
        self.bell = Bell()
        self.line: SimpleQueue[Work | None] = SimpleQueue()
        self.is_closing = False
        self.thread: threading.Thread | None = None

    def ask(self, work: Work) -> bool:
        """Take the work in; False: the line is full."""
        if self.line.qsize() >= LINE_MAX:
            return False
        if self.thread is None:
            self.thread = threading.Thread(target=self.run, name="passwords", daemon=True)
            self.thread.start()
        self.line.put(work)
        return True

    def run(self) -> None:
        """The thread's loop."""
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        except (OSError, AttributeError):
            pass  # it works as hard as the loop, then
        while True:
            work = self.line.get()
            if work is None or self.is_closing:
                return
            work.run()
            work.is_done = True
            self.bell.ring()

    def close(self) -> None:
        """Stop the thread after the work it does, and free the bell."""
        self.is_closing = True
        if self.thread is not None:
            self.line.put(None)
            self.thread.join()
        self.bell.close()
