"""tools/mutants.py changes what it should, and one thing at a time."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "mutants.py"
SOURCE = b'''"""Text."""


def f(a: int, b: int = 1) -> bool:
    """[R1] Text."""
    x = a + 2
    a.y = x
    assert a < 3
    if a <= b and not x:
        g(a)
        return True
    return x is None
'''


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """The tool as a module."""
    spec = importlib.util.spec_from_file_location("mutants", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


def changed(tool: ModuleType) -> list[str]:
    """The source after each change."""
    finder = tool.Finder("f.py", SOURCE)
    finder.module(ast.parse(SOURCE))
    return [(SOURCE[: m.start] + m.text.encode() + SOURCE[m.end :]).decode() for m in finder.found]


def test_every_change_is_another_program(tool: ModuleType) -> None:
    found = changed(tool)
    assert len(found) == len(set(found)) > 10
    for text in found:
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(SOURCE))


@pytest.mark.parametrize(
    "line",
    [
        "    x = a - 2",
        "    x = a + 3",
        "    pass",
        "    if not (a <= b and not x):",
        "    if a < b and not x:",
        "    if True and not x:",
        "    if a <= b and bool(x):",
        "        pass",
        "        return False",
        "    return x is not None",
    ],
)
def test_what_is_changed(tool: ModuleType, line: str) -> None:
    assert any(line in text.splitlines() for text in changed(tool))


def test_what_is_left_alone(tool: ModuleType) -> None:
    assert all("    assert a < 3\n" in text and "[R1] Text." in text for text in changed(tool))
