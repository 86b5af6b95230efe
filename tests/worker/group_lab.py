"""Workers of group_tasks.py, and what their tasks did."""

from __future__ import annotations

from pathlib import Path

from worker_lab import HERE, Program


def worker(place: Path, url: str, *flags: str) -> Program:
    """Starts a worker; its tasks write into the directory."""
    words = ("worker", "group_tasks:app", "--app-dir", str(HERE), "--url", url, "-c", "2")
    log = place / f"worker-{url[-5:]}.log"
    return Program(log, *words, *flags, OUT=str(place))


def did(place: Path, word: str) -> list[str]:
    """The lines that begin with the word."""
    file = place / "did"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if line.startswith(word)]
