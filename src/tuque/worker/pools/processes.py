"""Processes around a worker: what forks inherit, and how groups of them end.

A task may fork. Its child must not get the worker's signals, nor hold the socket on whose end
the pool waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from tuque.platforms import at_forks, known_signals
from tuque.worker.pools.systems import MB, rss_bytes

FILES_MAX: Final = 4096  # that a process has open at its start

Handler = Callable[[int, FrameType | None], object] | int | None
P = ParamSpec("P")
R = TypeVar("R")


def flush_output() -> None:
    """[U13] Flushes standard output and errors; replaces what a task left unusable (U13.7)."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        try:
            if stream is not None:
                stream.flush()
        except Exception:  # closed, a pipe without a reader, an object of the task
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w"))


# ---- Forks of tasks: multiprocessing, os.fork (SPEC U13.1)
#
# A fork has the signal handlers of its parent, and the descriptor that wakes the parent's loop: a
# signal to the child was written there, and the worker took it for its own.


class Forks:
    """What a forked child gives up before its first line of Python."""

    def __init__(self) -> None:
        self._handlers: dict[int, tuple[Handler, Handler]] = {}  # ours, and the one before
        self._sockets: list[socket.socket] = []
        self._forking = threading.local()  # of the thread that forks: its mask, its loop
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._parents: list[Any] = []
        self._is_registered = False

    def keeps(self, before: dict[int, Handler]) -> None:
        """[U13] Forked children have these handlers in the place of those that are set now."""
        self._register()
        for number, handler in before.items():
            self._handlers[number] = (signal.getsignal(number), handler)

    def close_there(self, sock: socket.socket) -> None:
        """Forked children close the socket."""
        self._register()
        self._sockets.append(sock)

    def leave_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """[U13] A child that is forked in this loop ends where it would wait there (U13.5).

        One that is forked in a thread of the loop ends where the function ends in it.
        """
        self._register()
        self._loops.add(loop)
        loop.set_default_executor(LoopThreads(thread_name_prefix="asyncio"))

    def _register(self) -> None:
        if not self._is_registered:
            self._is_registered = True
            at_forks(self._give_up, self._hold, self._release)

    def _hold(self) -> None:
        """No signal comes between the fork and the end of `_give_up`."""
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._handlers)
        try:
            self._forking.loop = asyncio.get_running_loop()
        except RuntimeError:
            self._forking.loop = None

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)
        self._forking.loop = None

    def _give_up(self) -> None:
        signal.set_wakeup_fd(-1)
        for number, (ours, before) in self._handlers.items():
            if signal.getsignal(number) is ours:
                signal.signal(number, signal.SIG_DFL if before is None else before)
        for sock in self._sockets:
            sock.close()
        loop = self._forking.loop
        if loop is not None and loop in self._loops:
            ready = getattr(loop, "_ready", None)  # asyncio's: the parent runs these
            if ready is not None:
                self._parents = list(ready)  # else coroutines would be closed here
                ready.clear()
            loop.call_soon(_end_in_loop)
        self._release()


FORKS: Final = Forks()


# ---- Signals while a process starts: only those that end it are heard at once (SPEC U4)

BLOCKED: Final = known_signals("SIGHUP", "SIGTSTP", "SIGUSR1")


@contextlib.contextmanager
def signals_blocked(numbers: Iterable[int] = BLOCKED) -> Iterator[None]:
    """[U4] Signals wait: for what is started in this block, until it calls `unblock_signals`, and
    for this thread (U4.12).
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unblock_signals() -> None:
    """[U4] This process has handlers: it hears what has waited (U4.12)."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED)


# ---- Forks that come back: os.fork, and the child returns, raises or exits (SPEC U13.5)
#
# The child is a copy of the worker with the thread of the task. It would take calls from the copy
# of a queue whose jobs the worker runs, and wait for ever for more.


class SameProcess:
    """A block that only the process leaves that entered it: a fork of it ends there."""

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        err: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if os.getpid() != self._pid:
            _end_fork(err)


def end_if_forked(pid: int, err: BaseException | None) -> None:
    """[U13] Ends this process if it is a fork of that one: a task ended in it so (U13.5)."""
    if os.getpid() != pid:
        _end_fork(err)


class LoopThreads(ThreadPoolExecutor):
    """The threads of a loop, for `asyncio.to_thread`: a fork of one would wait for more calls."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Runs the function in a thread."""

        def run() -> R:
            with SameProcess():  # U13.5
                return fn(*args, **kwargs)

        return super().submit(run)


def _end_fork(err: BaseException | None) -> NoReturn:
    """Ends this process with the exit code of a program that ended so, and nothing else."""
    code = 1
    try:
        code = 0 if err is None else code_of(err)
        if err is not None and not isinstance(err, SystemExit):
            _write_error("".join(traceback.format_exception(err)))
        elif isinstance(err, SystemExit) and not isinstance(err.code, int | None):
            _write_error(f"{err.code}\n")
    finally:
        os._exit(code)


def code_of(err: BaseException | None) -> int:
    """The exit code of a program that ends with that; 1 for None."""
    if isinstance(err, SystemExit) and isinstance(err.code, int | None):
        return (err.code or 0) & 0xFF
    return 1


def _end_in_loop() -> None:
    _write_error(f"forked process {os.getpid()} ends: it cannot wait in the loop of its parent\n")
    os._exit(1)


def _write_error(text: str) -> None:
    """To stderr itself: another thread may have held a lock of `sys.stderr` at the fork."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


def handlers(numbers: Iterable[int]) -> dict[int, Handler]:
    """The handlers of these signals now."""
    return {number: signal.getsignal(number) for number in numbers}


# ---- Groups: what a task started ends with its process (SPEC U13)


def guard(pipe: int) -> None:
    """[U13] Has the group of this process end with its parent, which has the other end (U13.4).

    A fork in the group waits for the parent's end: no task can hold it, as it could a thread. It is
    made before the app is loaded and threads run.
    """
    if os.fork():
        os.close(pipe)
        return
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)
        os.closerange(0, pipe)
        os.closerange(pipe + 1, FILES_MAX)
        os.read(pipe, 1)
    finally:
        os.killpg(0, signal.SIGKILL)


def end_group(pid: int) -> None:
    """Kills all in the group that the process leads, or led: a guard keeps its number taken."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # all have ended
        os.killpg(pid, signal.SIGKILL)


# ---- How a process ended


def ending(code: int) -> str:
    """How a process ended, as a predicate."""
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"left with exit code {code}"


# ---- How much memory a process may have


def is_over(limit_mb: int | None, pid: int | None = None) -> bool:
    """Whether a process, or this one, has more memory than that."""
    return limit_mb is not None and rss_bytes(pid) > limit_mb * MB
