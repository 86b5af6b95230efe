"""`manage.py tuque_worker`: runs the tasks of the project until a signal ends it.

With `--autoreload` there are two processes, as `runserver` has them: the outer one starts the inner
one again, which imports what a worker does, watches these files and has the worker as its child.
Django's own outer process would kill the inner one, and the worker would stay.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, SystemCheckError
from django.db import connections
from django.utils import autoreload

from tuque.django.options import ALIASES

TARGET: Final = "tuque.django.worker:app"
RELOAD: Final = "--autoreload"
NO_CHECKS: Final = "--skip-checks"
CHANGED: Final = 3  # the exit code of Django's reloader
END_S: Final = 40.0  # --grace, and what a worker needs besides
OF_DJANGO: Final = ("--settings", "--pythonpath")  # manage.py has acted on them


class Command(BaseCommand):
    """Words before the first option are names of backends, the rest is for `tuque worker`."""

    help = "Runs the tasks of backends of Tuque: tuque_worker [alias ...] [options of tuque worker]"

    def run_from_argv(self, argv: list[str]) -> None:
        """Ends the process with the exit code of the worker."""
        aliases, options = split(argv[2:])
        self.run(aliases, options)

    def handle(self, *words: str, **options: Any) -> None:
        """By `call_command`: the words are those of the command line."""
        self.run(*split(list(words)))

    def run(self, aliases: list[str], options: list[str]) -> None:
        """Runs the worker, or one after the other for `--autoreload`."""
        os.environ[ALIASES] = ",".join(aliases)
        words = [TARGET, *(word for word in options if word not in (RELOAD, NO_CHECKS))]
        check = self.check if NO_CHECKS not in options else lambda: None
        if RELOAD in options:
            sys.exit(reloading(words, check))
        try:
            check()
        except (CommandError, SystemCheckError) as err:
            self.stderr.write(str(err))
            sys.exit(1)
        connections.close_all()
        from tuque.worker.main import worker

        worker.main(args=words, prog_name="tuque_worker")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """The names of backends, and the options, without those of Django."""
    at = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    options: list[str] = []
    rest = iter(words[at:])
    for word in rest:
        if word.split("=")[0] in OF_DJANGO:
            if "=" not in word:
                next(rest, None)
            continue
        options.append(word)
    return words[:at], options


# ---- Autoreload


def reloading(words: list[str], check: Callable[[], object]) -> int:
    """Runs `tuque worker` with these words until a signal comes; the exit code."""
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) == "true":
        watch(words, check)
        return 0
    env = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    inner: subprocess.Popen[bytes] | None = None
    stopped = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopped
        stopped = True
        if inner is not None:
            inner.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while True:
        inner = subprocess.Popen(autoreload.get_child_arguments(), env=env, process_group=0)
        if stopped:
            inner.terminate()
        code = inner.wait()
        if code != CHANGED or stopped:
            return 0 if stopped else code


def watch(words: list[str], check: Callable[[], object]) -> None:
    """Runs a worker as a child until a file changes; it gives its jobs back then.

    There is none while the project cannot be imported: the files of the error are watched.
    """
    child = Child()
    reloader = autoreload.get_reloader()

    def run() -> None:
        try:
            check()
            import_module(TARGET.partition(":")[0])  # Django watches what this process has imported
        except Exception as err:
            reloader.extra_files = reloader.extra_files | files_of(err)
            raise
        connections.close_all()
        child.run([sys.executable, "-m", "tuque", "worker", *words])

    def leave(number: int, frame: Any) -> None:
        sys.exit(0)

    atexit.register(child.end)
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    autoreload.start_django(reloader, run)


class Child:
    """The process of the worker: a thread runs it, and the one that reloads ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, words: list[str]) -> None:
        """Runs it until it ends; nothing after `end`, or nobody would end it."""
        with self._lock:
            if self._is_over:
                return
            self._process = subprocess.Popen(words)
        self._process.wait()

    def end(self) -> None:
        """Has it give its jobs back and end."""
        with self._lock:
            self._is_over = True
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()


def files_of(err: BaseException | None) -> set[Path]:
    """The files through which an error came, and those of its causes."""
    found: set[Path] = set()
    while err is not None:
        found.update(Path(frame.filename) for frame in traceback.extract_tb(err.__traceback__))
        if isinstance(err, SyntaxError) and err.filename:
            found.add(Path(err.filename))
        err = err.__cause__ or err.__context__
    return {path for path in found if path.is_file()}
