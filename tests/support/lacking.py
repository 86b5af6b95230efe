"""Takes from a child interpreter what other systems lack: a fake platform for the tests.

A folder with a `sitecustomize` that calls one of these goes first into PYTHONPATH. `sys.platform`
stays, since the standard library asks it; only names go. It shows what breaks by a missing name,
not what a call does otherwise on that system.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import io
import os
import select
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

# What macOS lacks, of what Linux has. It has no /proc either.
MACOS: dict[Any, str] = {
    os: "memfd_create eventfd eventfd_read eventfd_write EFD_NONBLOCK EFD_CLOEXEC EFD_SEMAPHORE "
    "pidfd_open sched_getaffinity sched_setaffinity fdatasync posix_fadvise posix_fallocate waitid "
    "P_PIDFD WSTOPPED WNOWAIT pipe2 splice copy_file_range O_TMPFILE O_DIRECT O_NOATIME getrandom",
    select: "epoll EPOLLIN EPOLLOUT EPOLLRDHUP POLLRDHUP",
    socket: "SO_PEERCRED SO_DOMAIN SO_PROTOCOL SOCK_CLOEXEC SOCK_NONBLOCK TCP_KEEPIDLE "
    "TCP_USER_TIMEOUT MSG_CMSG_CLOEXEC MSG_NOSIGNAL",
    signal: "sigtimedwait sigwaitinfo pidfd_send_signal SIGPWR SIGSTKFLT SIGRTMIN SIGRTMAX",
    time: "CLOCK_BOOTTIME",
}
SYMBOLS = ("prctl", "malloc_trim", "adjtimex")  # of the C library

# What Windows lacks besides. It has os.waitpid and os.getppid.
WINDOWS: dict[Any, str] = {
    os: "fork forkpty register_at_fork killpg setsid getsid setpgid getpgid getpgrp getuid geteuid "
    "getgid getegid fchown sysconf uname pread pwrite preadv pwritev sched_yield getloadavg mkfifo "
    "chown fchmod openpty statvfs WNOHANG WUNTRACED P_PID O_NONBLOCK O_NOCTTY O_CLOEXEC O_NOFOLLOW "
    "O_DIRECTORY O_DSYNC",
    select: "poll POLLIN POLLOUT POLLHUP POLLERR POLLNVAL POLLPRI",
    socket: "AF_UNIX sendmsg SO_REUSEPORT",
    signal: "SIGHUP SIGTSTP SIGUSR1 SIGUSR2 SIGKILL SIGQUIT SIGCHLD SIGCONT SIGSTOP SIGPIPE "
    "SIGALRM SIGWINCH SIG_BLOCK SIG_SETMASK SIG_UNBLOCK pthread_sigmask pthread_kill sigwait "
    "sigpending setitimer getitimer alarm pause siginterrupt",
    time: "CLOCK_MONOTONIC CLOCK_REALTIME clock_gettime clock_gettime_ns",
}
MODULES = ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "uvloop")
# The standard library, which is another one on Windows: it is loaded before the names go.
LOADED = (
    "asyncio email.utils encodings.idna getpass http.client json logging logging.handlers "
    "multiprocessing.connection pathlib random shutil ssl subprocess tempfile threading "
    "urllib.request"
)


def be_macos() -> None:
    """From now on this process has no more than macOS has."""
    remove(MACOS)
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc]  # that of asyncio
    ctypes.CDLL = Lib  # type: ignore[misc]  # it is a type
    for module in (builtins, io):
        vars(module)["open"] = without_proc(module.open)  # type: ignore[attr-defined]  # of modules
    os.open = without_proc(os.open)
    os.listdir = without_proc(os.listdir)
    os.stat = without_proc(os.stat)


def be_windows() -> None:
    """From now on what is imported finds no more than Windows has."""
    for name in LOADED.split():
        importlib.import_module(name)
    be_macos()
    pair = partial(socket.socketpair, socket.AF_UNIX)
    remove(WINDOWS)
    socket.socketpair = pair  # type: ignore[assignment]  # there it is one of TCP
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc]  # as there
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # none is there
    from asyncio import SelectorEventLoop, events

    for method in ("add_signal_handler", "remove_signal_handler", "create_unix_connection"):
        setattr(SelectorEventLoop, method, getattr(events.AbstractEventLoop, method))


def remove(names: dict[Any, str]) -> None:
    """Delete these names from their modules."""
    for module, words in names.items():
        for name in words.split():
            vars(module).pop(name, None)
            members = getattr(getattr(module, "Signals", None), "_member_map_", {})
            members.pop(name, None)


class Lib(ctypes.CDLL):
    """A library without the symbols of Linux."""

    def __getattr__(self, name: str) -> Any:
        if name in SYMBOLS:
            raise AttributeError(name)
        return super().__getattr__(name)


def without_proc(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, which finds nothing in /proc."""

    def there(path: Any = ".", *words: Any, **more: Any) -> Any:
        if isinstance(path, str | os.PathLike) and str(path).startswith("/proc/"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return call(path, *words, **more)

    return there
