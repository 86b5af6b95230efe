"""What a server asks of the operating system: time, chance, waiting, connections, host names.

Bound once, when the server begins. The simulator binds its own (sim/machines), so that the pump
that ships runs there too. Files are store/files/disk.py's, the journal's thread is
server/journal/thread.py's.
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
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


HAS_CORES: Final = cores() > 1


def open_epoll() -> select.epoll | None:
    """What waits for sockets; None where the system has no epoll."""
    return select.epoll() if HAS_EPOLL else None


def open_socket(family: int) -> socket.socket:
    """A TCP socket that is not connected. Raises OSError."""
    return socket.socket(family, socket.SOCK_STREAM)


@final
class System:
    """The real one, until something else is bound."""

    def __init__(self) -> None:
        # nanoseconds of this boot on a clock that nobody sets (G8.1)
        self.boot_ns: Callable[[], int] = partial(time.clock_gettime_ns, CLOCK)
        self.work_ns: Callable[[], int] = time.monotonic_ns  # for spans of work
        self.random: Callable[[int], bytes] = os.urandom  # bytes that nobody can guess
        self.open_epoll: Callable[[], select.epoll | None] = open_epoll
        self.open_socket: Callable[[int], socket.socket] = open_socket
        self.open_resolver: Callable[[], Resolver] = Resolver
        self.may_spin = HAS_CORES  # looking awake takes no core from others
