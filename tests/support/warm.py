"""Compiles the tests on all cores, before one process collects them.

pytest keeps what it compiled beside the files, so this costs a fresh clone some seconds, and a
clone that has run its tests before nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FEW = 40  # so many files are compiled as they are collected
TAIL = f".{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"


def cold(root: Path) -> list[Path]:
    """The tests that are not compiled, or were changed since."""
    found = []
    for path in sorted(root.rglob("test_*.py")):
        kept = path.parent / "__pycache__" / (path.stem + TAIL)
        if not kept.is_file() or kept.stat().st_mtime < path.stat().st_mtime:
            found.append(path)
    return found


def warm(root: Path) -> int:
    """Compile them if they are many, on all cores; returns how many files."""
    found = cold(root)
    if len(found) <= FEW or sys.dont_write_bytecode:
        return 0
    cores = os.cpu_count() or 1
    found.sort(key=lambda path: path.stat().st_size)
    words = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    running = [
        subprocess.Popen(
            [sys.executable, *words, *map(str, found[first::cores])],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=root.parent,
        )
        for first in range(cores)
    ]
    for one in running:
        one.wait()  # what cannot be compiled is told by those who run it
    return len(found)
