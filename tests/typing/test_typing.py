"""Runs mypy over code that uses client and worker rightly and wrongly, as a user's check would."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HOW = ("uses", "misuses")


Told = dict[str, list[str]]


@pytest.fixture(scope="module")
def told() -> Told:
    """The errors that mypy finds in each file of this directory, as "line: [code]"."""
    told: Told = {f"{what}_{how}.py": [] for what in ("client", "worker") for how in HOW}
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    command += ["--show-error-codes", "--no-pretty", *(str(HERE / name) for name in told)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    for line in ran.stdout.splitlines():
        if ": error:" in line:
            found = re.search(r"(\w+\.py):(\d+): error: .*\[([a-z-]+)\]$", line)
            assert found is not None and found[1] in told, line
            told[found[1]].append(f"{found[2]}: {found[3]}")
    return told


@pytest.mark.parametrize("what", ["client", "worker"])
def test_right_use_is_clean(told: Told, what: str) -> None:
    assert told[f"{what}_uses.py"] == []


@pytest.mark.parametrize("what", ["client", "worker"])
def test_wrong_use_is_found(told: Told, what: str) -> None:
    lines = (HERE / f"{what}_misuses.py").read_text().splitlines()
    expected = [
        f"{at}: {mark[1]}"
        for at, line in enumerate(lines, 1)
        if (mark := re.search(r"# E: (\S+)$", line))
    ]
    assert len(expected) > 10
    assert told[f"{what}_misuses.py"] == expected


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "src" / "tuque" / "py.typed").exists()
