"""Workers as real processes, and how tests wait for them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import forked
import tuque

HERE = Path(__file__).parent
SOURCE = Path(tuque.__file__).parents[1]  # the programs run what the tests run
LIMIT_S = 60.0


def wait_until(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Returns when the condition holds; fails with `what` after the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.01)


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
        return self.log.read_text(errors="replace")

    def says(self, words: str) -> None:
        def said() -> bool:
            assert self.process.poll() is None or words in self.text, self.text
            return words in self.text

        wait_until(said, f"{words!r} in the log of {self.process.args!r}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, code: int = 0, limit_s: float = LIMIT_S) -> None:
        """Waits for the end of the process and checks its exit code."""
        assert self.process.wait(limit_s) == code, self.text

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


StartWorker = Callable[..., Program]
Did = Callable[[], list[str]]
