"""tools/mutants.py changes what it should, and one thing at a time."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
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
SHOP = """
def price(count: int) -> int:
    if count > 10:
        return count * 2
    return count * 3


async def note(text: list[int]) -> None:
    text.append(1)
"""
SHOP_TESTS = """
import asyncio
from tuque.shop.price import note, price

def test_price():
    assert price(20) == 40
    assert price(1) == 3
"""
BROKEN = """
def test_that_always_fails():
    assert False
"""


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


def test_functions_of_asyncio_are_changed_too(tool: ModuleType) -> None:
    finder = tool.Finder("f.py", SHOP.encode())
    finder.module(ast.parse(SHOP))
    assert {one.function for one in finder.found} == {"price", "note"}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A checkout with one module and its tests, one of which fails."""
    for name in ("src/tuque/shop", "tests/shop", "tests/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "src/tuque/__init__.py").touch()
    (tmp_path / "src/tuque/shop/__init__.py").touch()
    (tmp_path / "src/tuque/shop/price.py").write_text(SHOP)
    (tmp_path / "tests/shop/test_price.py").write_text(SHOP_TESTS)
    (tmp_path / "tests/other/test_broken.py").write_text(BROKEN)
    return tmp_path


def test_an_edit_elsewhere_moves_no_mutant(tool: ModuleType, shop: Path) -> None:
    path = shop / "src/tuque/shop/price.py"

    def drawn(seed: int) -> list[tuple[str, str]]:
        source = path.read_bytes()
        found = tool.sampled(shop, ["src/tuque/shop"], 6, seed)
        return [(one.function, one.change(source)) for one in found]

    before = drawn(7)
    assert len(before) == 6
    assert before == drawn(7) != drawn(8)
    path.write_text("# a comment more\n\n" + SHOP)
    assert drawn(7) == before


def test_its_own_tests_run_first_and_no_others_than_selected(tool: ModuleType, shop: Path) -> None:
    module, own, other = "src/tuque/shop/price.py", "tests/shop/test_price.py", "tests/other"
    assert list(tool.stages(shop, module, [])) == [[own]]
    both = list(tool.stages(shop, module, ["tests"]))
    assert both == [[own], ["tests/other/test_broken.py"]]
    assert list(tool.stages(shop, module, [other])) == [["tests/other/test_broken.py"]]


def results(shop: Path, *words: str) -> tuple[dict[tuple[str, str], str], str]:
    """What the tool writes and prints of that checkout."""
    path = shop / "result.json"
    done = subprocess.run(
        [sys.executable, str(TOOL), "--root", str(shop), "--json", str(path), *words],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(path.read_text())["mutants"]
    return {(one["function"], one["change"]): one["result"] for one in found}, done.stdout


def test_each_mutant_is_judged(shop: Path) -> None:
    words = ["--count", "99", "--tests", "tests", "--jobs", "2", "src/tuque/shop"]
    found, said = results(shop, *words)
    name = "tests/other/test_broken.py::test_that_always_fails"
    assert f"left out, fails without a mutant: {name}" in said
    assert found["price", "* -> +"] == "killed"
    assert found["price", "10 -> 11"] == "survived"
    assert found["note", "text.append(1) -> pass"] == "survived"


def test_a_mutant_has_its_time(shop: Path) -> None:
    (shop / "tests/shop/test_price.py").write_text(
        "def test_it():\n    while True:\n        pass\n"
    )
    found, _ = results(shop, "--count", "1", "--trusted", "--limit", "0.5", "src/tuque/shop")
    assert list(found.values()) == ["timed out"]
