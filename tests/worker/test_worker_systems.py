"""Workers on systems that lack what Linux has (SPEC U4.9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import e2e_tasks as tasks
import pytest
from worker_lab import HERE, SOURCE

from lab import RealServer
from until import until

WITHOUT = """
import ctypes, os, pathlib

del os.memfd_create

class Lib(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError(name)
        return super().__getattr__(name)

ctypes.CDLL = Lib
read_text = pathlib.Path.read_text

def no_proc(self, *words, **more):
    if str(self).startswith("/proc/"):
        raise FileNotFoundError(str(self))
    return read_text(self, *words, **more)

pathlib.Path.read_text = no_proc
"""


@contextmanager
def worker_without(node: RealServer, place: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker whose processes have no memfd_create, no prctl and no /proc."""
    (place / "sitecustomize.py").write_text(WITHOUT)
    path = f"{place}:{SOURCE}"
    command = [sys.executable, "-m", "tuque", "worker", "e2e_tasks:app", "--app-dir", str(HERE)]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--url", node.url, "-c", "1", *words],
            env={**os.environ, "PYTHONPATH": path, "OUT": str(place)},
            stderr=log,
            stdout=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_worker_starts_on_other_systems(pool: str, node: RealServer, tmp_path: Path) -> None:
    """U4.9 A worker needs nothing of Linux alone.

    U4.9 where it shows no memory of processes, `--max-memory` has no effect."""
    tasks.app.use(node.url)
    with worker_without(node, tmp_path, "--pool", pool, "--max-memory", "9000") as process:
        assert tasks.adds.enqueue(1, 2).result(60) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    text = (tmp_path / "log").read_text()
    assert "--max-memory 9000 has no effect" in text
    assert ("does not end a process with its parent" in text) == (pool == "thread")


def test_its_process_ends_with_its_parent(node: RealServer, tmp_path: Path) -> None:
    """U4.9 Where the system does not end a process with its parent, the worker looks each 0.5 s
    whether its parent is there
    """
    tasks.app.use(node.url)
    with worker_without(node, tmp_path) as process:
        assert tasks.adds.enqueue(1, 2).result(60) == 3
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 1
        process.kill()
        process.wait()
        until(lambda: not Path(f"/proc/{children[0]}").exists())
