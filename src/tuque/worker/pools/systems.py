"""What Linux has, and what a worker uses in its place elsewhere (SPEC U4.9).

A file without a name, the end of a process with its parent, the memory of a process, and whether
it was stopped. tuque/platforms.py has what the client needs as well.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from tuque.errors import ConfigError
from tuque.logtext import facts

log: Final = logging.getLogger("tuque.worker")

KB: Final = 1 << 10
MB: Final = 1 << 20
PR_SET_PDEATHSIG: Final = 1
PS_LIMIT_S: Final = 2.0
SHOWN_S: Final = 5.0  # how long the memory that `ps` showed is used again
SHOWN_MOST: Final = 1_000  # processes of which that is kept


# ---- A file of two processes


def nameless_file(name: str) -> int:
    """A descriptor of a file for two processes that is gone with them; `name` is for people."""
    make = getattr(os, "memfd_create", None)
    if make is not None:
        return int(make(name))
    with tempfile.TemporaryFile(prefix=name) as file:
        return os.dup(file.fileno())


# ---- The end of a process with its parent


def end_with(parent: int, pipe: int) -> None:
    """[U4] Has this process end when its parent has ended, however that was (U4.9).

    `pipe`: its other end is the parent's alone, so that it is closed when the parent ends.
    """
    os.set_inheritable(pipe, False)
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        log.warning(
            "this system does not end a process with its parent: a thread of the worker does, "
            "and a task that holds the GIL delays that",
            extra=facts("parent_watched"),
        )
        threading.Thread(target=_watch, args=(pipe,), name="parent", daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)  # it was gone before


def _watch(pipe: int) -> None:
    """Waits for the end of the pipe, and ends this process and what its tasks have started."""
    os.read(pipe, 1)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


# ---- Whether a process was stopped


def is_stopped(pid: int) -> bool:
    """Whether a child process was stopped by a signal. Leaves its exit code to who waits for it."""
    wait = getattr(os, "waitid", None)
    if wait is None:
        return shown_by_ps("stat", pid).startswith("T")
    try:
        found = wait(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except OSError:  # it has ended
        return False
    return found is not None


# ---- How much memory a process has, as the system shows it


class Shown:
    """What `ps` shows of the memory of processes: it is a program, so it is asked seldom."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, int]] = {}

    def rss_bytes(self, pid: int) -> int:
        """As it was up to 5 s ago; 0 if the process has ended, or there is no `ps`."""
        now = time.monotonic()
        at, found = self._known.get(pid, (-SHOWN_S, 0))
        if at + SHOWN_S > now:
            return found
        if len(self._known) >= SHOWN_MOST:
            self._known.clear()
        text = shown_by_ps("rss", pid)
        found = int(text) * KB if text.isdecimal() else 0
        self._known[pid] = (now, found)
        return found


SHOWN: Final = Shown()


def shown_by_ps(what: str, pid: int) -> str:
    """A column of `ps` about a process; "" if it has ended, or there is no such program."""
    try:
        found = subprocess.run(
            ["ps", "-o", f"{what}=", "-p", str(pid)],  # noqa: S607  as the shell finds it
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PS_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.decode(errors="replace").strip()


def rss_bytes(pid: int | None = None) -> int:
    """The resident memory of a process, or this one; 0 if it has ended or no system shows it."""
    try:
        pages = Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return SHOWN.rss_bytes(os.getpid() if pid is None else pid)


def check_memory_shown(limit_mb: int | None) -> None:
    """[U4] Says that there is no limit of memory where the system shows none (U4.9)."""
    if limit_mb is not None and not rss_bytes():
        log.warning(
            "--max-memory %(max_mb)d has no effect: this system does not show how much memory a "
            "process has",
            facts("memory_unknown", max_mb=limit_mb),
        )


def has_room(limit_mb: int | None, is_first: bool, pid: int | None = None) -> bool:
    """[U4] Whether a process that has had no job is below the limit (U4.6).

    ConfigError if the first one is not; of a later one the log says that it is not replaced.
    """
    has_bytes = 0 if limit_mb is None else rss_bytes(pid)
    if limit_mb is None or has_bytes <= limit_mb * MB:
        return True
    has_mb = has_bytes // MB
    if is_first:
        raise ConfigError(
            f"--max-memory {limit_mb}: the process has {has_mb} MB before its first job, set more"
        )
    log.warning(
        "process %(child)s has %(has_mb)d MB before its first job, --max-memory is %(max_mb)d: "
        "it is not replaced",
        facts("idle_too_big", child=pid or "self", has_mb=has_mb, max_mb=limit_mb),
    )
    return False
