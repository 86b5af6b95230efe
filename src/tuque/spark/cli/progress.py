"""Shows the progress of a long pipeline: a live line on a terminal, else one line per step."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import click

TICK_S = 0.2
BAR = 24


class Progress:
    """Numbered steps on standard error. `done_of` gives finished and all Spark tasks."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.at = 0
        self.done_of: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.live = sys.stderr.isatty()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """One step; its time is shown when it ends."""
        self.at += 1
        start = monotonic()
        over = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(what, start, over), daemon=True)
        if self.live:
            ticker.start()
        try:
            yield
        finally:
            over.set()
            if self.live:
                ticker.join()
                click.echo("\r\033[K", nl=False, err=True)
        click.echo(f"[{self.at}/{self.steps}] {what}: {monotonic() - start:.1f} s", err=True)

    def _tick(self, what: str, start: float, over: threading.Event) -> None:
        while not over.wait(TICK_S):
            done, tasks = self.done_of()
            full = BAR * (self.at - 1) // self.steps
            part = BAR * done // (tasks * self.steps) if tasks else 0
            bar = "#" * (full + part) + "-" * (BAR - full - part)
            count = f" {done}/{tasks} tasks" if tasks else ""
            line = f"[{bar}] {self.at}/{self.steps} {what}{count} {monotonic() - start:.0f} s"
            click.echo(f"\r\033[K{line}", nl=False, err=True)
