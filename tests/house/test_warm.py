"""The tests are compiled once: tests/support/warm.py, as the conftest calls it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import warm


def test_many_new_files_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "FEW", 2)
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # these tests need none
    root = tmp_path / "tests"
    root.mkdir()
    for number in range(3):
        (root / f"test_w{number}.py").write_text("def test_it() -> None:\n    assert 1\n")
    assert warm.warm(root) == 3
    assert warm.cold(root) == []
    changed = root / "test_w1.py"
    later = changed.stat().st_mtime + 10
    os.utime(changed, (later, later))
    assert warm.cold(root) == [changed]
    assert warm.warm(root) == 0  # so few that it does not pay
