"""Our programs as processes of their own, forked from one that has imported them already.

Importing a node takes a quarter of a second of CPU, interpreted, and the tests start hundreds. A
forked program begins where `python -m tuque` calls main(): with its own arguments, variables and
output. The process in which a worker runs is forked by its supervisor in the same way. Tests of the
start itself use subprocess, and EXEC for the process of a worker.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

COMMANDS = "cli.prompt.cli cli.cluster cli.tubes cli.jobs server.journal.tool cli.bench"
PREPARED = {
    "server": "tuque.server.app",
    "worker": "tuque.worker.main",
    **dict.fromkeys(
        ("cli", "cluster", "tubes", "dead", "cancel", "result", "journal", "bench"),
        " ".join(f"tuque.{name}" for name in COMMANDS.split()),
    ),
}
TRACED = {"PYTHONFAULTHANDLER": "1"}  # SIGABRT shows where it stands
HERE = str(Path(__file__).parent)
READ_AT_START = (
    "PYTHON",
    "LD_",
    "MALLOC_",
    "LANG",
    "LC_",
)  # variables that a forked program cannot have anew
EXEC = "TESTS_EXEC"  # a variable: a worker starts its process as it ships
NESTS_MAX = 4  # environments used by a single test are not worth one
SLICE_S = 0.05  # lets other threads ask, too
FDS_MAX = 4096  # more files no program of the tests has open
CAN_FORK = hasattr(os, "pidfd_open")


class Forked:
    """A program that runs or has ended; offers what tests use of subprocess.Popen."""

    def __init__(self, nest: Nest, pid: int, args: Sequence[str]) -> None:
        self.nest = nest
        self.pid = pid
        self.args = list(args)
        self.returncode: int | None = None  # as subprocess has it: below 0 for a signal

    def poll(self) -> int | None:
        if self.returncode is None:
            self.nest.hear(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        ends = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = SLICE_S if ends is None else min(SLICE_S, ends - time.monotonic())
            if left <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.nest.hear(left)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[bytes]


class Nest:
    """The process that forks, as seen from the tests; it ends with them."""

    def __init__(self, modules: str, env: dict[str, str]) -> None:
        self.running: dict[int, Forked] = {}  # by pid; one that ended is not asked for by its pid
        self.lock = threading.RLock()
        self.buffer = b""
        self.line, its = socket.socketpair()
        code = f"import sys; sys.path.append({HERE!r}); import forked; forked.serve()"
        with its:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, modules, str(its.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env={**env, **TRACED},
            )

    def fork(
        self, words: Sequence[str], files: Sequence[IO[Any]], cwd: Path, env: dict[str, str]
    ) -> Forked:
        """Start the program with these files as its input, output and errors."""
        asked = json.dumps({"words": list(words), "env": env, "cwd": str(cwd)}).encode()
        with self.lock:
            self.line.settimeout(None)
            socket.send_fds(
                self.line, [len(asked).to_bytes(4, "big")], [file.fileno() for file in files]
            )
            self.line.sendall(asked)
            while not (forked := self.hear(None)):
                pass
        forked[0].args = list(words)
        return forked[0]

    def hear(self, timeout_s: float | None) -> list[Forked]:
        """Read the other side's messages; returns the forked programs."""
        with self.lock:
            self.line.settimeout(timeout_s)
            try:
                said = self.line.recv(4096)
            except (BlockingIOError, TimeoutError):
                return []
            except ConnectionError:
                said = b""
            if not said:
                self.end_programs()
            assert said, f"the process that forks ended with {self.process.wait()}"
            *lines, self.buffer = (self.buffer + said).split(b"\n")
            forked = []
            for line in lines:
                pid, code = json.loads(line)
                if code is None:
                    self.running[pid] = Forked(self, pid, [])
                    forked.append(self.running[pid])
                else:
                    self.running.pop(pid).returncode = code
            return forked

    def end_programs(self) -> None:
        """Kill the programs of a forking process that is gone: nobody else knows them."""
        for program in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(program.pid, signal.SIGKILL)
            program.returncode = -signal.SIGKILL
        self.running.clear()


nests: dict[tuple[str, ...], Nest] = {}


def start(words: Sequence[str], out: IO[Any], cwd: Path | None = None, **env: str) -> Process:
    """Start `tuque WORDS` there with its output, directory and these variables."""
    with open(os.devnull, "rb") as nothing:
        return start_with(words, (nothing, out, out), cwd, {**os.environ, **env})


def run(
    words: Sequence[str], input: bytes, env: dict[str, str], timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run `tuque WORDS` with that input and all these variables; returns what it wrote."""
    file = tempfile.TemporaryFile
    with file() as told, file() as out, file() as errors:
        told.write(input)
        told.seek(0)
        program = start_with(words, (told, out, errors), None, env)
        try:
            code = program.wait(timeout_s)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
            raise
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(program.args, code, out.read(), errors.read())


def start_with(
    words: Sequence[str], files: Sequence[IO[Any]], cwd: Path | None, env: dict[str, str]
) -> Process:
    """Fork the program, or start it where nothing is prepared for it."""
    modules = PREPARED.get(words[0], "")
    key = (modules, *(f"{name}={text}" for name, text in sorted(at_start(env).items())))
    if not modules or not CAN_FORK or (key not in nests and len(nests) == NESTS_MAX):
        stdin, stdout, stderr = files
        return subprocess.Popen(
            [sys.executable, "-m", "tuque", *words],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env={**env, **TRACED},
        )
    if key not in nests or nests[key].process.poll() is not None:
        nests[key] = Nest(modules, env)
    return nests[key].fork(words, files, cwd or Path.cwd(), env)


def at_start(env: dict[str, str]) -> dict[str, str]:
    """The variables that a program reads before its first line."""
    return {name: text for name, text in env.items() if name.startswith(READ_AT_START)}


def serve() -> None:
    """The process that forks, until its caller is gone; each child becomes a requested program."""
    for name in sys.argv[1].split():
        import_module(name)
    fork_workers()
    gc.freeze()
    program = import_module("tuque.main").main
    if fork_on_request(socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])):
        leave(program)
    os._exit(0)


def leave(program: Callable[[], object]) -> None:
    """Runs the program to its end, and does not take its modules apart, which costs more than a
    start: all that it imported would be copied.
    """
    try:
        program()
        code = 0
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        code = ended.code
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter ends
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def fork_on_request(line: socket.socket, caller: int) -> bool:
    """True in each child, False in the parent at the end.

    A process that the caller forked may hold the line open: so its end is watched for, too.
    """
    running: dict[int, int] = {}  # pidfd -> pid
    try:
        its_end = os.pidfd_open(caller)
    except ProcessLookupError:
        return False
    with selectors.DefaultSelector() as waiting:
        waiting.register(line, selectors.EVENT_READ)
        waiting.register(its_end, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd in running:
                    waiting.unregister(key.fd)
                    bury(line, running.pop(key.fd), key.fd)
                    continue
                size, fds = hear_size(line) if key.fileobj is line else (b"", [])
                if not size:
                    for pid in running.values():
                        os.kill(pid, signal.SIGKILL)
                    return False
                asked = json.loads(line.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
                pid = os.fork()
                if not pid:
                    become(asked, fds, [line.detach(), its_end, *running])
                    return True
                for fd in fds:
                    os.close(fd)
                pidfd = os.pidfd_open(pid)
                running[pidfd] = pid
                waiting.register(pidfd, selectors.EVENT_READ)
                say(line, pid, None)


def hear_size(line: socket.socket) -> tuple[bytes, list[int]]:
    """The size of a request, and the files that it brings; empty when the caller is gone."""
    try:
        return socket.recv_fds(line, 4, 3)[:2]
    except ConnectionError:  # it is gone and had not read all reports
        return b"", []


def bury(line: socket.socket, pid: int, pidfd: int) -> None:
    """Report a child's end, with its status."""
    os.close(pidfd)
    say(line, pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def say(line: socket.socket, pid: int, code: int | None) -> None:
    """Report a fork (None), or an end; to a caller that is gone, nothing."""
    with contextlib.suppress(ConnectionError):  # the line says it, too, and all programs end
        line.sendall(json.dumps([pid, code]).encode() + b"\n")


def become(asked: dict[str, Any], files: list[int], not_its: list[int]) -> None:
    """In the child: take the program's arguments, variables, files and directory."""
    for fd in not_its:
        os.close(fd)
    for fd, file in enumerate(files):
        os.dup2(file, fd)
        os.close(file)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = [sys.argv[0], *asked["words"]]


# ---- The process of a worker


class ForkedWorker(subprocess.Popen[bytes]):
    """What a supervisor starts with `python -c BOOT ...`, as a fork that goes on from there."""

    def __init__(self, words: list[str], **more: Any) -> None:
        self.fds: tuple[int, ...] = more["pass_fds"]
        self.env: dict[str, str] = more["env"]
        super().__init__(words, **more)

    def _execute_child(self, words: list[str], *_: object) -> None:
        """In the place of subprocess's own, which makes the process."""
        if EXEC in self.env:
            super()._execute_child(words, *_)  # type: ignore[misc]  # it is not public
            return
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            return
        try:
            self.become(words)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def become(self, words: list[str]) -> None:
        """What an exec and the start of Python change, and then the program."""
        os.setpgid(0, 0)
        faulthandler.disable()
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        first = 3
        for fd in sorted(self.fds):
            os.closerange(first, fd)
            first = fd + 1
        os.closerange(first, FDS_MAX)
        logging.root.handlers.clear()
        logging.root.setLevel(logging.WARNING)
        logging.getLogger("tuque.worker").setLevel(logging.NOTSET)
        os.environ.clear()
        os.environ.update(self.env)
        flag, _, path, *arguments = words[1:]
        assert flag == "-c"
        sys.path[:] = json.loads(path)
        sys.argv = [flag, path, *arguments]
        program = import_module("tuque.worker.main").worker
        leave(lambda: program(arguments, prog_name="tuque worker"))


class Forking:
    """The module subprocess as a supervisor sees it."""

    Popen = ForkedWorker


def fork_workers() -> None:
    """Has supervisors of this process, and of its forks, fork the processes of their workers."""
    supervise = sys.modules.get("tuque.worker.run.supervise")
    if supervise is not None:
        vars(supervise)["subprocess"] = Forking
