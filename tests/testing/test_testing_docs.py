"""The examples in docs/testing.md run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
PROGRAM, *EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_examples(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others take longer to load
    assert PROGRAM.startswith("# shop.py")
    pytester.makepyfile(shop=PROGRAM, test_page="\n".join(EXAMPLES))
    done = pytester.runpytest_subprocess("-p", "tuque.testing.plugin", "-W", "error")
    done.assert_outcomes(passed=len(re.findall(r"(?m)^def test_", "\n".join(EXAMPLES))))


def test_the_first_is_short() -> None:
    assert len(EXAMPLES[0].splitlines()) <= 20
