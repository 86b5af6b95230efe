"""Tells the program that started the server how it is: systemd's notifications (SPEC O2.3, O2.4).

Knows one datagram socket, named by NOTIFY_SOCKET; without that it does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Final

TELLS_S: Final = 5.0  # at least so often
SILENT_S: Final = 15.0  # a loop that has not turned for so long is not well (O2.1)
MORE_TIME: Final = "EXTEND_TIMEOUT_USEC=60000000"  # O2.4


class Notifier:
    """A thread that says each few seconds that the loop turns, until `close`.

    `turned_s` tells how long ago the loop turned last; the thread is silent when that is too long.
    """

    def __init__(self, turned_s: Callable[[], float]) -> None:
        self.turned_s = turned_s
        self.is_starting = True
        self.is_stopping = False
        self._ended = threading.Event()
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if somebody wants to know."""
        if self._address:
            self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
            self._thread.start()

    def ready(self, status: str) -> None:
        """The server serves."""
        self.is_starting = False
        self.say("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        """The server ends: what follows may take its time without turns."""
        self.is_stopping = True
        self.say("STOPPING=1", "STATUS=stopping")

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def say(self, *lines: str) -> None:
        """Send one notification; a receiver that is gone is no failure of ours."""
        if not self._address:
            return
        name = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), name)

    def _run(self) -> None:
        every_s = min(TELLS_S, watchdog_s() / 3 or TELLS_S)
        while not self._ended.is_set():
            if self.is_stopping or self.turned_s() <= SILENT_S:
                self.say("WATCHDOG=1", *([MORE_TIME] if self.is_starting else []))
            self._ended.wait(every_s)


def watchdog_s() -> float:
    """After how long a silence the server is killed; 0: never, or another process is meant."""
    pid, span = os.environ.get("WATCHDOG_PID", ""), os.environ.get("WATCHDOG_USEC", "")
    if pid and pid != str(os.getpid()):
        return 0.0
    return int(span) / 1e6 if span.isdecimal() else 0.0
