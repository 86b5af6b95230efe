"""`--reload`: a worker that starts anew whenever a Python file of its app changes.

Decides nothing about jobs: the worker stops as after a signal, and gives back what it has.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
from types import FrameType
from typing import Any, Final

from tuque.errors import ConfigError
from tuque.logtext import facts
from tuque.worker.pools.processes import signals_blocked
from tuque.worker.run.supervise import BOOT, PASSED_ON, exit_code

log: Final = logging.getLogger("tuque.worker")

LOOK_MS: Final = 500  # how often it looks whether the worker has ended
LEAVE_S: Final = 10.0  # beyond the grace
MISSING: Final = "--reload needs the package watchfiles; run: pip install 'tuque[reload]'"


class Reloader:
    """[U4] One worker after the other; a change ends one and starts the next (U4.3)."""

    def __init__(
        self, arguments: list[str], env: dict[str, str], directory: str, grace_s: float
    ) -> None:
        """ConfigError without the package watchfiles."""
        try:
            self._watchfiles: Any = importlib.import_module("watchfiles")
        except ModuleNotFoundError:
            raise ConfigError(MISSING) from None
        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it logs each change, too
        self._arguments = arguments
        self._env = env
        self._directory = directory
        self._limit_s = grace_s + LEAVE_S
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def run(self) -> int:
        """Runs until it is stopped, or until a worker ends well; the exit code of the last one.

        A worker that ends with an error, such as one in its app, is started again at the next
        change.
        """
        for number in PASSED_ON:
            signal.signal(number, self._pass_on)
        process = self._start()
        for changes in self._watchfiles.watch(
            self._directory,
            watch_filter=self._watchfiles.PythonFilter(),
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            code = process.poll()
            if code is not None and (code == 0 or self._is_stopping):
                return exit_code(code)
            if changes and not self._is_stopping:
                names = sorted({os.path.basename(path) for _, path in changes})
                log.warning(
                    "changed: %(files)s; the worker starts anew",
                    facts("code_changed", files=", ".join(names[:5])),
                )
                self._end(process)
                process = self._start()
        return exit_code(process.wait())

    def _start(self) -> subprocess.Popen[bytes]:
        with signals_blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, json.dumps(sys.path), *self._arguments],
                env=self._env,
                process_group=0,  # a terminal's signals reach it through this process, once
            )
        return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._is_stopping = True
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self._process.pid, number)
