"""What a server needs of the operating system: clocks, randomness, epoll, sockets, host names.

Set when the server starts. The simulator passes its own (sim/machines), so that it runs the real
pump. Files are in store/disk.py, the journal's thread in server/journal/thread.py.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol, cast, final

from mypy_extensions import i64

from tuque.server.net.resolver import Resolver

IN: Final = 1  # the same values for epoll and poll
OUT: Final = 4
MOST: Final = 1_024  # descriptors of one wait


# ---- Waiting for sockets: epoll if available, else poll. Times in ms


class Epoll(Protocol):
    """`select.epoll`, which Linux alone has; times in s."""

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """Descriptors that are ready and how."""

    def register(self, fd: int, eventmask: int = 0) -> None:
        """Watch a descriptor."""

    def modify(self, fd: int, eventmask: int) -> None:
        """Change what it is watched for."""

    def unregister(self, fd: int) -> None:
        """Stop watching it."""

    def close(self) -> None:
        """Give the descriptor back."""


class Poller:
    """The interface of both, as the pump needs it."""

    def __init__(self, epoll: Epoll | None) -> None:
        self.has_epoll = epoll is not None
        if epoll is not None:
            self.epoll = epoll
            self.poll: Callable[[float, int], list[tuple[int, int]]] = epoll.poll
        else:
            self.poller = select.poll()

    def add(self, fd: int) -> None:
        """Watch the descriptor for reading."""
        if self.has_epoll:
            self.epoll.register(fd, IN)
        else:
            self.poller.register(fd, IN)

    def watch(self, fd: int, mask: int) -> None:
        """Change what a watched descriptor is watched for."""
        if self.has_epoll:
            self.epoll.modify(fd, mask)
        else:
            self.poller.modify(fd, mask)

    def drop(self, fd: int) -> None:
        """Stop watching the descriptor."""
        if self.has_epoll:
            self.epoll.unregister(fd)
        else:
            self.poller.unregister(fd)

    def wait(self, most_ms: int) -> list[tuple[int, int]]:
        """Descriptors that are ready and how; waits up to `most_ms`, -1 for ever."""
        if self.has_epoll:
            if most_ms <= 0:
                return self.poll(most_ms, MOST)
            return self.poll(most_ms / 1000, MOST)
        return self.poller.poll(most_ms if most_ms >= 0 else None)

    def close(self) -> None:
        """Give the descriptor back."""
        if self.has_epoll:
            self.epoll.close()


# ---- The machine's steady clock; SPEC G8 says how the node uses it


BOOTTIME: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def counts_suspend() -> bool:
    """Whether the system has a clock that counts during suspend."""
    try:
        time.clock_gettime_ns(BOOTTIME)
    except OSError:
        return False
    return BOOTTIME != time.CLOCK_MONOTONIC


# Linux' CLOCK_MONOTONIC stops while a laptop sleeps: a delay of an hour would take longer.
CLOCK: Final = BOOTTIME if counts_suspend() else time.CLOCK_MONOTONIC


def steady_ms() -> i64:
    """Milliseconds since a fixed instant of this boot, on a clock that is never set (G8.1)."""
    return time.clock_gettime_ns(CLOCK) // 1_000_000


# ---- The memory that this process may use: that of the machine, or less in a cgroup (SPEC M1)


def memory_bytes(root: Path = Path("/")) -> int:
    """The smaller of the machine's memory and the limits of the cgroups, v2 and v1 (M1.6)."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for line in lines_of(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            found += limits_in(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            found += limits_in(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
    return min(found)


def limits_in(top: Path, path: str, name: str) -> list[int]:
    """The limits of a cgroup and of those above it; in a container `path` may not be there."""
    found: list[int] = []
    here = top / path.lstrip("/")
    for place in (here, *here.parents):
        for line in lines_of(place / name):
            if line.isdigit() and int(line) > 0:
                found.append(int(line))  # "max" is no limit
        if place == top:
            break
    return found


def lines_of(path: Path) -> list[str]:
    """The lines of a file of the kernel; none if it is not there."""
    try:
        return path.read_text().split("\n")
    except (OSError, ValueError):
        return []


def resident_bytes() -> int:
    """Resident memory of this process; the most that it had where there is no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


# ---- The system, of which the simulator replaces parts


def cores() -> int:
    """The number of cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


HAS_CORES: Final = cores() > 1


def open_epoll() -> Epoll | None:
    """An epoll object; None where the system has no epoll."""
    make = getattr(select, "epoll", None)
    return None if make is None else cast(Epoll, make())


def open_socket(family: int) -> socket.socket:
    """A TCP socket that is not connected. Raises OSError."""
    return socket.socket(family, socket.SOCK_STREAM)


CLOCK_OFF_MS: Final = 10_000  # a clock that is set lately has moved by less
TIMEX_BYTES: Final = 512  # more than the structure has


def is_clock_right(now_ms: int) -> bool:
    """Whether the system keeps the wall clock in step with others, and it shows that instant.

    False if that is not known.
    """
    if abs(time.time() * 1000 - now_ms) > CLOCK_OFF_MS:
        return False
    adjust = getattr(ctypes.CDLL(None), "adjtimex", None)
    return adjust is not None and adjust(ctypes.create_string_buffer(TIMEX_BYTES)) in range(5)


@final
class System:
    """The real system by default; the simulator replaces its parts."""

    def __init__(self) -> None:
        # ns since boot, on a clock that cannot be set (G8.1)
        self.boot_ns: Callable[[], int] = partial(time.clock_gettime_ns, CLOCK)
        self.work_ns: Callable[[], int] = time.monotonic_ns  # to measure work
        self.random: Callable[[int], bytes] = os.urandom  # cryptographic
        self.open_epoll: Callable[[], Epoll | None] = open_epoll
        self.open_socket: Callable[[int], socket.socket] = open_socket
        self.open_resolver: Callable[[], Resolver] = Resolver
        self.is_clock_right: Callable[[int], bool] = is_clock_right
        self.memory_bytes: Callable[[], int] = memory_bytes
        self.may_spin = HAS_CORES  # a busy poll takes no core from others
