"""`--reload`: a worker that starts anew whenever a Python file of its app changes.

Decides nothing about jobs: the worker stops as after a signal, and gives back what it has.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import subprocess
import sys
from typing import Any, Final

from tuque.errors import ConfigError
from tuque.logtext import facts
from tuque.worker.run.supervise import BOOT, Relay, exit_code

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
        # Python takes a kept bytecode for the source's if size and second are equal: of two changes
        # within a second it would run the first.
        self._env = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
        self._directory = directory
        self._limit_s = grace_s + LEAVE_S
        self._relay = Relay()
        self._pipe, self._held = os.pipe()  # no worker has the second one

    def run(self) -> int:
        """Runs until it is stopped, or until a worker ends well; the exit code of the last one.

        A worker that ends with an error, such as one in its app, is started again at the next
        change.
        """
        self._relay.begin()
        process = self._start()
        for changes in self._watchfiles.watch(
            self._directory,
            watch_filter=self._watchfiles.PythonFilter(),
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            code = process.poll()
            if code is not None and (code == 0 or self._relay.is_stopping):
                return exit_code(code)
            if changes and not self._relay.is_stopping:
                names = sorted({os.path.basename(path) for _, path in changes})
                log.warning(
                    "changed: %(files)s; the worker starts anew",
                    facts("code_changed", files=", ".join(names[:5])),
                )
                self._end(process)
                if not self._relay.is_stopping:
                    process = self._start()
        return exit_code(process.wait())

    def _start(self) -> subprocess.Popen[bytes]:
        parent = f"--parent={os.getpid()}:{self._pipe}"
        words = [sys.executable, "-c", BOOT, json.dumps(sys.path), *self._arguments, parent]
        return self._relay.start(words, self._env, (self._pipe,))

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
