"""Runs mypy over code that uses client and worker rightly and wrongly, as a user's check would."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def mypy(name: str) -> list[str]:
    """The errors mypy finds in a file of this directory, as "line: [code]"."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    command += ["--show-error-codes", "--no-pretty", str(HERE / name)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found = re.findall(rf"{name}:(\d+): error: .*\[([a-z-]+)\]$", ran.stdout, re.MULTILINE)
    others = [line for line in ran.stdout.splitlines() if ": error:" in line and name not in line]
    assert others == []
    return [f"{line}: {code}" for line, code in found]


@pytest.mark.parametrize("what", ["client", "worker"])
def test_right_use_is_clean(what: str) -> None:
    assert mypy(f"{what}_uses.py") == []


@pytest.mark.parametrize("what", ["client", "worker"])
def test_wrong_use_is_found(what: str) -> None:
    lines = (HERE / f"{what}_misuses.py").read_text().splitlines()
    expected = [
        f"{at}: {mark[1]}"
        for at, line in enumerate(lines, 1)
        if (mark := re.search(r"# E: (\S+)$", line))
    ]
    assert len(expected) > 10
    assert mypy(f"{what}_misuses.py") == expected


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "src" / "tuque" / "py.typed").exists()
