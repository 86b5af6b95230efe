"""A child process of the process pool: it reads calls, runs them, returns outcomes and logs.

Started by process_pool.py, which calls `main` with target, app dir and file descriptor, and sends
the URL, which may have a password, as the first call. It ends with its parent: when the socket
closes it exits, even in the middle of a job, because the broker will give that job to another
worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

import msgspec

from tuque.logtext import JsonFormatter, VisibleFormatter, facts
from tuque.worker.app.app import App, load_app
from tuque.worker.app.decisions import Outcome
from tuque.worker.app.encryption import Keys
from tuque.worker.pools.execute import Control, Job, describe, of_pipe, run_call, running_job
from tuque.worker.pools.pools import LEAVE_S, Lifespans, NotEntered
from tuque.worker.pools.processes import (
    FORKS,
    flush_output,
    guard,
    handlers,
    unblock_signals,
)

TENANT: Final = "tenant"  # a header
LOG_FORMAT: Final = "%(asctime)s %(process)d %(levelname)s %(message)s"

log: Final = logging.getLogger("tuque.worker")

HEADER: Final = struct.Struct("!I")
HALT_OPENS: Final = b"\xc1"  # which begins no msgpack
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP, signal.SIGUSR1, signal.SIGHUP)


# ---- The log as JSON: each line about a job has its facts (SPEC U4)


def of_job(job: Job) -> dict[str, Any]:
    """The job of a log line, for `extra`."""
    return {"about_job": job}


class JobsAsJson(JsonFormatter):
    """[U4] A line about a job has its facts, and so has a line that a task logs (U4.5)."""

    def more(self, record: logging.LogRecord) -> dict[str, Any]:
        """The facts of the job that the line is about, or of the one that runs here."""
        job = getattr(record, "about_job", None)
        if not isinstance(job, Job):
            job = running_job()
        if job is None:
            return {}
        found = {"job": job.id, "task": job.task, "queue": job.queue, "attempt": job.attempt}
        if TENANT in job.headers:
            found["tenant"] = job.headers[TENANT]
        return found


def formatter(kind: str) -> logging.Formatter:
    """The formatter for `--log`: text or json."""
    return JobsAsJson() if kind == "json" else VisibleFormatter(LOG_FORMAT)


def set_up_log(kind: str, level: str | int, verbose: bool = False) -> None:
    """[U4] Has all logs written to stderr, also what tasks log, unless the app does so (U4.8).

    `verbose`: all that the worker itself has to say.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(kind))
    logging.basicConfig(handlers=[handler], level=level)
    if verbose:
        logging.getLogger("tuque.worker").setLevel(logging.DEBUG)


def reopen_logs() -> None:
    """[U4] Opens anew the files to which handlers of the app write: they may be moved (U4.10)."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for one in loggers:
        for handler in one.handlers if isinstance(one, logging.Logger) else []:
            if isinstance(handler, logging.FileHandler) and handler.stream is not None:
                with handler.lock or nullcontext():
                    handler.stream.close()
                    handler.stream = handler._open()


def _on_hang_up(signum: int, stack: object) -> None:
    """In a thread: the task may be writing to the log."""
    threading.Thread(target=reopen_logs, daemon=True).start()


# ---- The process


def frame(payload: bytes) -> bytes:
    """A payload with its length in front, for both directions."""
    return HEADER.pack(len(payload)) + payload


def read_exactly(sock: socket.socket, count: int) -> bytes | None:
    """That many bytes; None when the other end is gone."""
    parts = bytearray()
    while len(parts) < count:
        try:
            part = sock.recv(count - len(parts))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


def read_frame(sock: socket.socket) -> bytes | None:
    """The payload of the next frame; None when the other end is gone."""
    header = read_exactly(sock, HEADER.size)
    return None if header is None else read_exactly(sock, HEADER.unpack(header)[0])


def halt(number: int, why: str, is_late: bool) -> bytes:
    """The payload that cancels a call; no call begins with its first byte.

    Without `why` it only warns: the soft limit of the call is over.
    """
    return HALT_OPENS + msgspec.msgpack.encode((number, why, is_late))


class Halts:
    """[U2] The call that runs here, and how it hears that it was cancelled (U2.21)."""

    def __init__(self) -> None:
        self._control: Control | None = None
        self._warn: Callable[[], None] | None = None  # of a plain function, once
        self._number = 0  # of the calls received, and of their ends
        self._lock = threading.Lock()

    def begins(self, control: Control, is_plain: bool) -> None:
        """A call begins in this thread, the main one; `is_plain`: it is of no coroutine task."""
        main = threading.get_ident()

        def interrupt() -> None:
            signal.pthread_kill(main, signal.SIGUSR2)

        control.on_cancel(interrupt)
        with self._lock:
            self._number += 1
            self._control = control
            self._warn = interrupt if is_plain else None

    def ended(self) -> None:
        """The call has ended: what cancels it comes too late."""
        with self._lock:
            self._number += 1
            self._control = None

    def on_halt(self, payload: bytes) -> None:
        """The parent cancels a call; in the thread that receives."""
        number, why, is_late = msgspec.msgpack.decode(payload)
        with self._lock:
            control = self._control if number == self._number else None
            warn = self._warn
        if control is None:
            return
        if why:
            control.cancel(why, is_late)
        elif warn is not None:
            warn()

    def on_signal(self, signum: int, stack: object) -> None:
        """Raises in the task, once at each limit; a coroutine is cancelled by its loop."""
        control = self._control
        if control is None or not control.is_in_task:
            return
        if control.is_cancelled:
            control.is_in_task = False
            raise control.halted()
        if not control.soft_why:
            raise control.warned()


HALTS: Final = Halts()


class Inbox:
    """Received calls, and whether one is running."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._calls: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.is_busy = False
        threading.Thread(target=self._receive, daemon=True).start()

    def next(self) -> bytes | None:
        """Waits for a call; None when there will be no more."""
        self.is_busy = False
        payload = self._calls.get()
        self.is_busy = True
        return payload

    def _receive(self) -> None:
        """Receives calls as long as the parent lives."""
        while (payload := read_frame(self._sock)) is not None:
            if payload[:1] == HALT_OPENS:
                HALTS.on_halt(payload[1:])
            else:
                self._calls.put(payload)
        if self.is_busy:
            os._exit(0)
        self._calls.put(None)


def _ignore(signum: int, stack: object) -> None:
    """A signal handler that does nothing: the parent decides on signals to the whole group.

    A function, because an ignored signal would stay ignored in programs that tasks start.
    """


def entered(app: App, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> Lifespans | None:
    """[U3] Enters the lifespans of the app, if it has any; NotEntered if one fails (U3.9).

    A "progress" goes before: the app is loaded.
    """
    if not app.lifespans:
        return None
    sock.sendall(frame(msgspec.msgpack.encode(Outcome("progress"))))
    lasting = Lifespans(app, lambda: None)
    lasting.begin(loop)
    return lasting


def serve(target: str, app_dir: str, sock: socket.socket, url: str, keys: str) -> None:
    """Replies once when the app is loaded, then once per call, until the parent is gone."""
    try:
        app = load_app(target, app_dir)
        if keys:
            app.keys = Keys.read(keys)
    except BaseException as err:
        sock.sendall(frame(msgspec.msgpack.encode(Outcome("crashed", describe(err)))))
        return
    if url:
        app.use(url)
    inbox = Inbox(sock)
    lock = threading.Lock()  # a task may report its progress in any thread

    def send_progress(data: bytes) -> None:
        with lock:
            sock.sendall(frame(msgspec.msgpack.encode(Outcome("progress", result=data))))

    with asyncio.Runner() as runner:  # one loop for all coroutine tasks (U13.3)
        FORKS.leave_loop(runner.get_loop())
        try:
            lasting = entered(app, sock, runner.get_loop())
        except NotEntered as err:
            log.error("a lifespan failed", extra=facts("lifespan_failed"), exc_info=err)
            sock.sendall(frame(msgspec.msgpack.encode(Outcome("retry", str(err)))))
            return
        leaves_s = None if lasting is None else LEAVE_S + 1
        sock.sendall(frame(msgspec.msgpack.encode(Outcome("done", delay_s=leaves_s))))
        while (payload := inbox.next()) is not None:
            call = of_pipe(payload)
            call.control.send_progress = send_progress
            task = app.tasks[call.envelope.task]
            HALTS.begins(call.control, not task.is_async)
            outcome = run_call(task, call, runner)
            HALTS.ended()
            if call.control.is_cancelled and signal.getsignal(signal.SIGTERM) is _ignore:
                os.killpg(0, signal.SIGTERM)  # what the task had started (U13.4)
            flush_output()
            try:
                with lock:
                    sock.sendall(frame(msgspec.msgpack.encode(outcome)))
            except OSError:
                os._exit(0)
        if lasting is not None:
            runner.run(lasting.leave())
        runner.run(app.aclose())


def main(arguments: list[str]) -> None:
    target, app_dir, fd, pipe, log_kind, log_level, keys = arguments
    guard(int(pipe))
    set_up_log(log_kind, int(log_level))
    before = handlers((*SIGNALS, signal.SIGUSR2))
    for number in SIGNALS:
        signal.signal(number, _ignore)
    signal.signal(signal.SIGUSR2, HALTS.on_signal)
    signal.signal(signal.SIGHUP, _on_hang_up)
    FORKS.keeps(before)
    unblock_signals()
    sock = socket.socket(fileno=int(fd))
    sock.set_inheritable(False)  # a program that outlives this process must not hold it
    FORKS.close_there(sock)
    url = read_frame(sock)
    if url is not None:
        serve(target, app_dir, sock, url.decode(), keys)
