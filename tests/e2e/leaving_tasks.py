"""The app of test_e2e_leaving: its task writes to OUT/did when it begins and when it ends."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tuque.worker import App, current_job

app = App()


def note(text: str) -> None:
    """Append one line; lines of several threads do not mix."""
    place = os.open(Path(os.environ["OUT"]) / "did", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(place, f"{text}\n".encode())
    os.close(place)


@app.task(queue="q", retry_s=120, attempts=1)
def lasts(number: int) -> None:
    """One attempt is its limit: a run that failed makes it a dead letter."""
    note(f"begin {number}")
    time.sleep(0.05)
    current_job().progress("half")
    time.sleep(0.05)
    note(f"end {number}")
