"""docs/security.md tells the truth: its tests exist, and are about the rules that it names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
TEST = re.compile(r"`((?:tests|fuzz|bench)/[\w/]+\.py)(?:::(\w+))?`")
RULE = re.compile(r"\b([A-Z]\d+)(?:\.(\d+))?(?:-[A-Z]\d+\.(\d+))?")


def rows() -> list[list[str]]:
    """The cells of each row of the tables with tests; `the same` stands for those above."""
    found: list[list[str]] = []
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or not (TEST.search(cells[-1]) or "the same" in cells[-1]):
            continue
        if cells[-1].startswith("the same"):
            cells[-1] += " " + found[-1][-1]
        found.append(cells)
    return found


def rules_of(cell: str) -> set[str]:
    """N6.4-N6.6 is three rules; X4 is a chapter."""
    found: set[str] = set()
    for chapter, first, last in RULE.findall(cell):
        if not first:
            found.add(chapter)
            continue
        found |= {f"{chapter}.{i}" for i in range(int(first), int(last or first) + 1)}
    return found


def test_the_tests_of_the_page_exist() -> None:
    assert len(rows()) > 30
    for cells in rows():
        for path, name in TEST.findall(cells[-1]):
            text = (ROOT / path).read_text("utf-8")
            assert not name or f"def {name}(" in text, f"{path} has no {name}"


def test_the_tests_are_about_the_rules() -> None:
    """Of each promise: one of its tests names one of its rules."""
    promises = [cells for cells in rows() if len(cells) == 3]
    assert len(promises) > 20
    for cells in promises:
        texts = [(ROOT / path).read_text("utf-8") for path, _ in TEST.findall(cells[2])]
        named = [rule for rule in rules_of(cells[1]) if any(rule in text for text in texts)]
        assert named, f"no test of it is about {cells[1]}: {cells[0]}"
