"""Every sentence that a test of SPEC or of tubes quotes is in the spec, word for word."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import spec_check  # noqa: E402  tools/ is put on the path above

FOLDERS = ("spec", "tubes", "worker")
NUMBER = re.compile(r"^([A-Z]\d+\.\d+):? ")


def plain(text: str) -> str:
    """Words with one space between them."""
    return " ".join(text.split())


def quotes() -> list[tuple[str, str]]:
    """Name and text of every paragraph of a test's docstring that quotes a step."""
    found = []
    paths = [path for name in FOLDERS for path in (ROOT / "tests" / name).glob("test_*.py")]
    for path in sorted(paths):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.get_docstring(node) or ""
                for part in text.split("\n\n"):
                    if NUMBER.match(part):
                        found.append((f"{path.name}::{node.name}", plain(part)))
    return found


def steps_of_spec() -> dict[str, str]:
    """Text of every step, with its indented lines and without the dashes of sub-items."""
    steps: dict[str, str] = {}
    number = ""
    for line in "\n".join(spec_check.books().values()).splitlines():
        step = re.match(r"^- ([A-Z]\d+\.\d+) (.+)$", line)
        if step:
            number = step[1]
            steps[number] = steps.get(number, "") + " " + plain(step[2])
        elif number and line.startswith("  "):
            steps[number] += " " + plain(line).removeprefix("- ")
        elif line:
            number = ""
    return steps


@pytest.mark.long
def test_quotes_stand_in_spec() -> None:
    steps = steps_of_spec()
    found = quotes()
    assert len(found) > 150
    wrong = []
    for name, text in found:
        number, _, sentence = text.partition(" ")
        if sentence.rstrip(".;") not in steps.get(number, ""):
            wrong.append(f"{name}: {number} {sentence}")
    assert not wrong, "\n".join(wrong)
