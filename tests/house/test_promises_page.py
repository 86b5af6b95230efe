"""docs/worker-promises.md: each promise has a test, and that test exists and may run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "worker-promises.md"
ROW = re.compile(r"^\| (?P<promise>[^|]+) \| `(?P<path>[\w/]+\.py)::(?P<test>test_\w+)` \|$", re.M)
CASES = ["deploy", "crash", "time limit", "cancel", "is away", "slow broker", "end of a worker"]


def skipped(test: ast.FunctionDef) -> bool:
    """Whether it is skipped or expected to fail in any case."""
    return any(re.search(r"\.(skip|xfail)\b", ast.unparse(one)) for one in test.decorator_list)


def test_each_promise_has_a_test_that_exists() -> None:
    rows = [found.groups() for found in ROW.finditer(PAGE.read_text("utf-8"))]
    assert len({promise for promise, _, _ in rows}) == len(rows) > 30
    for promise, path, name in rows:
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        found = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name]
        assert found, f"{promise}: {path} has no {name}"
        assert not skipped(found[0]), f"{promise}: {name} does not run"


def test_each_row_of_a_table_is_a_promise() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    rows = [one for one in lines if one.startswith("| ") and one != "| Promise | Test |"]
    assert not [row for row in rows if not ROW.match(row)]


def test_each_case_has_promises() -> None:
    parts = PAGE.read_text("utf-8").split("\n## ")[1:]
    assert len(parts) == len(CASES)
    for case, part in zip(CASES, parts, strict=True):
        assert case in part.splitlines()[0] and len(ROW.findall(part)) > 2
