"""A wheel in an empty environment of each Python that the machine has: a node runs from it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_node_runs_from_the_pure_wheel_under_each_python(tmp_path: Path) -> None:
    """`make build` does the same with the compiled ones."""
    tool = ROOT / "tools" / "wheels.py"
    done = subprocess.run(
        [sys.executable, str(tool), "--pure", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    found = runpy.run_path(str(tool), run_name="wheels")["pythons"]()
    assert [line.split()[0] for line in done.stdout.splitlines()] == [f"3.{one}" for one in found]
