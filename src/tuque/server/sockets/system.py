"""What a server needs of the operating system: clocks, randomness, epoll, sockets, host names.

Set when the server starts. The simulator passes its own (sim/machines), so that it runs the real
pump. Files are in store/disk.py, the journal's thread in server/journal/thread.py.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final, final

from tuque.server.sockets.clock import CLOCK
from tuque.server.sockets.resolver import Resolver

HAS_EPOLL: Final = hasattr(select, "epoll")


def cores() -> int:
    """The number of cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


HAS_CORES: Final = cores() > 1


def open_epoll() -> select.epoll | None:
    """An epoll object; None where the system has no epoll."""
    return select.epoll() if HAS_EPOLL else None


def open_socket(family: int) -> socket.socket:
    """A TCP socket that is not connected. Raises OSError."""
    return socket.socket(family, socket.SOCK_STREAM)


@final
class System:
    """The real system by default; the simulator replaces its parts."""

    def __init__(self) -> None:
        # ns since boot, on a clock that cannot be set (G8.1)
        self.boot_ns: Callable[[], int] = partial(time.clock_gettime_ns, CLOCK)
        self.work_ns: Callable[[], int] = time.monotonic_ns  # to measure work
        self.random: Callable[[int], bytes] = os.urandom  # cryptographic
        self.open_epoll: Callable[[], select.epoll | None] = open_epoll
        self.open_socket: Callable[[int], socket.socket] = open_socket
        self.open_resolver: Callable[[], Resolver] = Resolver
        self.may_spin = HAS_CORES  # a busy poll takes no core from others
