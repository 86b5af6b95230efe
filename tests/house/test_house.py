"""Layers, and pages that are made from tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import docs  # noqa: E402  tools/ is put on the path above


def test_layers_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run(
        [str(program), "--no-cache"],
        cwd=ROOT,
        env={
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT, ROOT / "examples"))),
            "PATH": "",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("page", sorted(docs.PAGES))
def test_made_pages_are_up_to_date(page: str) -> None:
    made = docs.PAGES[page]()
    assert (ROOT / page).read_text("utf-8") == made, f"{page}: run python tools/docs.py"


def test_every_decision_is_about_ten_lines() -> None:
    records = sorted((ROOT / "decisions").glob("0*.md"))
    assert len(records) >= 14
    for record in records:
        lines = record.read_text("utf-8").splitlines()
        assert lines[0].startswith("# "), record.name
        assert 6 <= len(lines) <= 60, record.name
