"""Our programs as processes of a test, with their output in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forked
import tuque
from until import MOST_S, until

SOURCE = Path(tuque.__file__).parents[1]  # the programs run what the tests run


class Program:
    """A `tuque ...` process with its output in a file."""

    def __init__(self, log: Path, *arguments: str, **env: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = forked.start(
                arguments, output, log.parent, **{"PYTHONPATH": str(SOURCE), **env}
            )

    @property
    def text(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(errors="replace")

    def says(self, words: str) -> None:
        """Wait for these words in its output."""

        def said() -> bool:
            assert self.process.poll() is None or words in self.text, self.text
            return words in self.text

        until(said, f"say {words!r}: {self.process.args!r}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def ends(self, code: int = 0, limit_s: float = MOST_S) -> None:
        """Wait for the end of the process and check its exit code."""
        assert self.process.wait(limit_s) == code, self.text

    def kill(self) -> None:
        """Kill it, as a crash does."""
        self.process.kill()
        self.process.wait()


class ProgramOn(Program):
    """The same on a fake platform: `macos` or `windows`, see lacking.py. It is not forked."""

    def __init__(self, system: str, log: Path, *arguments: str, **env: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tuque", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env={**os.environ, "PYTHONPATH": path_of(system), **env},
            )


def path_of(system: str) -> str:
    """The PYTHONPATH of programs that run on a fake platform."""
    return os.pathsep.join((str(Path(__file__).parent / system), str(SOURCE)))


StartProgram = Callable[..., Program]
