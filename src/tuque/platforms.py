"""Where Linux, macOS and Windows differ: sockets, forks, signals, files.

The client, the command line and the files of operators ask here, and nowhere else, what the system
has. It goes by names: macOS has no POLLRDHUP, Windows no `poll`, no forks, no unix sockets of
Python, few signals, and other rights of files. What only workers need is in worker/pools/systems.py
and what only nodes need in server/net/system.py.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import sys
from collections.abc import Callable
from typing import IO, Final

from tuque.errors import ConfigError

NO_UNIX: Final = "this system has no unix sockets: name a host and port, tuque://host:7711"

# ---- Whether one socket has something


INPUT: Final[int] = getattr(select, "POLLIN", 0)
HALF_CLOSED: Final[int] = getattr(select, "POLLRDHUP", 0)
ENDED: Final[int] = HALF_CLOSED | getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0)


class Watch:
    """Asks about one socket without waiting. It keeps the number of the socket, not the socket."""

    def __init__(self) -> None:
        self._fd = -1
        self._poll = select.poll() if hasattr(select, "poll") else None

    def begin(self, fd: int) -> None:
        """From now on about this one."""
        self._fd = fd
        if self._poll is not None:
            self._poll.register(fd, INPUT | HALF_CLOSED)

    def has_input(self) -> bool:
        """Whether bytes came, or the connection ended; False before `begin`."""
        if self._poll is not None:
            return bool(self._poll.poll(0))
        if self._fd < 0:
            return False
        try:
            return bool(select.select([self._fd], [], [], 0)[0])
        except (OSError, ValueError):  # it was closed here
            return True

    def has_ended(self, peek: Callable[[], bytes]) -> bool:
        """Whether the other end closed the connection. It may have sent bytes before: then where
        POLLRDHUP is missing, False until they are read. `peek`: see `peeked`.
        """
        if self._poll is None or not HALF_CLOSED:
            return self.has_input() and not peek()
        return any(event & ENDED for _, event in self._poll.poll(0))


def peeked(sock: socket.socket) -> bytes:
    """The next byte of a socket that has input, which stays; b"" if the connection has ended.

    Through a copy: the socket of a transport of asyncio has no `recv`.
    """
    try:
        with sock.dup() as copy:
            copy.setblocking(False)
            return copy.recv(1, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return b"?"
    except OSError:
        return b""


# ---- Forks


def at_forks(
    in_child: Callable[[], object],
    before: Callable[[], object] | None = None,
    in_parent: Callable[[], object] | None = None,
) -> None:
    """Has these called at each fork of this process; no effect where there are no forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before or _nothing,
            after_in_parent=in_parent or _nothing,
            after_in_child=in_child,
        )


def _nothing() -> None:
    return


# ---- Signals


def known_signals(*names: str) -> tuple[signal.Signals, ...]:
    """Those of these signals that the system has."""
    return tuple(signal.Signals[name] for name in names if name in signal.Signals.__members__)


def kill_group(pid: int) -> None:
    """Kills all processes of a group. ProcessLookupError if all have ended; Unix alone."""
    if sys.platform != "win32":
        os.killpg(pid, signal.SIGKILL)


# ---- Files


def lock(file: IO[str]) -> None:
    """Has this process alone use the file, until it is closed. Unix alone.

    BlockingIOError if another process has it.
    """
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Without waiting for a pipe or terminal that lies there, and byte for byte, also on Windows.
READ_AT_ONCE: Final[int] = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


def others_may_write(mode: int) -> bool:
    """Whether everybody on the machine may write a file with this mode.

    False on Windows: what it shows as mode says only whether a file is read-only.
    """
    return hasattr(os, "fchown") and mode & stat.S_IWOTH != 0


# ---- Unix sockets


def has_unix_sockets() -> bool:
    """Whether Python can open them here."""
    return hasattr(socket, "AF_UNIX")


def unix_socket() -> socket.socket:
    """A unix socket that is not connected. ConfigError where there are none."""
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError(NO_UNIX)
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def is_unix(sock: socket.socket) -> bool:
    """Whether it is one."""
    return hasattr(socket, "AF_UNIX") and sock.family == socket.AF_UNIX
