"""The files that one command runs through: as few as before, and those of ARCHITECTURE.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from architecture import PAGE, walk_rows

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import walks  # noqa: E402  tools/ is put on the path above

# a walk, and its most files
MOST = {"add": 34, "put": 42, "task": 21}
WAYS = {
    "add": "The way of one ADDJOB",
    "put": "The way of one TUBE PUT",
    "task": "The way of one task in a worker",
}


def differences(files: list[str], rows: list[list[str]]) -> list[str]:
    """How a walk differs from the rows of a table, in which files and in which order."""
    named = [file for row in rows for file in row]
    faults = [f"{file} is on the walk, and not in the table" for file in files if file not in named]
    faults += [
        f"{file} is in the table, and not on the walk" for file in named if file not in files
    ]
    faults += [f"{file} is in the table twice" for file in set(named) if named.count(file) > 1]
    if not faults:
        first = [min(files.index(file) for file in row) for row in rows]
        for i in range(1, len(rows)):
            if first[i] < first[i - 1]:
                faults.append(f"the row of {rows[i][0]} comes before that of {rows[i - 1][0]}")
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("name", MOST)
def test_a_walk_has_no_more_files_and_is_the_one_of_the_page(name: str) -> None:
    [walk] = walks.walks(walks.SRC, name)
    assert len(walk.files) <= MOST[name], walk.files
    assert not differences(walk.files, walk_rows(PAGE.read_text(), WAYS[name]))


def test_differences_are_found() -> None:
    files = ["a.py", "b.py", "c.py", "d.py"]
    assert not differences(files, [["a.py"], ["c.py", "b.py"], ["d.py"]])
    assert differences(files, [["a.py"], ["b.py", "c.py"]]) == [
        "d.py is on the walk, and not in the table"
    ]
    assert differences(files[:2], [["a.py"], ["b.py", "c.py"]]) == [
        "c.py is in the table, and not on the walk"
    ]
    assert differences(files, [["a.py"], ["b.py", "d.py"], ["c.py", "b.py"]]) == [
        "b.py is in the table twice"
    ]
    assert differences(files, [["b.py"], ["a.py"], ["c.py", "d.py"]]) == [
        "the row of a.py comes before that of b.py"
    ]


def test_figures_count_modules_lines_and_packages(tmp_path: Path) -> None:
    (tmp_path / "tuque" / "core").mkdir(parents=True)
    for name, lines in (("__init__", 1), ("core/__init__", 2), ("core/a", 3), ("core/b", 4)):
        (tmp_path / "tuque" / f"{name}.py").write_text("x = 1\n" * lines)
    assert walks.figures(tmp_path) == {"modules": 2, "lines": 10, "packages": 1}
