"""ARCHITECTURE.md is true: its picture has all imports, and the files that pages name exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from architecture import PAGE, ROOT, imported, imports, levels, roots, upward, walk_rows

WAYS = ("The way of one ADDJOB", "The way of one TUBE PUT", "The way of one Spark batch")
LINES_MAX = 200

# A path with a folder, as prose and code in prose have it. A name with a star or an angle bracket
# is a pattern.
PATH = re.compile(r"(?<![\w./*<>:$@-])((?:[a-z_][\w-]*+/)++(?:[\w-]++(?:\.\w++)*+)?+)(?![\w/*<{-])")
MADE = {"build", "dist"}  # by programs; what is in them need not exist
BASES = ("", "src", "src/tuque", "examples")


def test_the_picture_has_every_package_and_no_other() -> None:
    assert set(levels(PAGE.read_text())) == set(roots())


def test_every_import_points_down_in_the_picture() -> None:
    packages = roots()
    edges = [edge for path in packages.values() for edge in imports(path, set(packages))]
    assert ("server", "core", "src/tuque/server/app.py") in edges
    assert not upward(levels(PAGE.read_text()), edges)


PICTURE = """# A page

```
┌──────────────────┬───────────────────┐
│ spark  reports   │ server  the pump  │
│        of events │ core              │
├──────────────────┴───────────────────┤
│ logtext, errors  for all             │
└──────────────────────────────────────┘
```
"""


def test_a_picture_is_read() -> None:
    at = levels(PICTURE)
    assert list(at) == ["spark", "server", "core", "logtext", "errors"]
    assert at["spark"] == at["server"] < at["core"] < at["errors"] == at["logtext"]


@pytest.mark.parametrize(
    ("a", "b"), [("core", "server"), ("spark", "server"), ("errors", "logtext"), ("errors", "core")]
)
def test_an_import_up_or_to_the_side_is_found(a: str, b: str) -> None:
    assert upward(levels(PICTURE), [(a, b, "x.py"), ("server", "errors", "y.py")]) == [
        f"x.py: {a} imports {b}"
    ]


def test_what_type_checkers_import_does_not_count() -> None:

    text = "if TYPE_CHECKING:\n    import tuque.web\ndef f():\n    from tuque import core, wire\n"
    assert list(imported(ast.parse(text))) == ["tuque.core", "tuque.wire"]


def test_the_page_is_short_and_every_row_of_its_tables_names_files() -> None:
    text = PAGE.read_text()
    assert len(text.splitlines()) <= LINES_MAX
    for way in WAYS:
        rows = walk_rows(text, way)
        assert len(rows) > 5
        assert all(rows)
        missing = [file for row in rows for file in row if not (ROOT / "src/tuque" / file).exists()]
        assert not missing


# ---- paths in pages


def pages() -> list[Path]:
    """The pages that name files of the project."""
    folders = [*(ROOT / "decisions").glob("*.md"), *(ROOT / "docs").glob("*.md")]
    return [PAGE, ROOT / "CONTRIBUTING.md", *sorted(folders)]


def beginnings() -> set[str]:
    """The names with which a path of the project begins."""
    places = [ROOT / base for base in BASES]
    return {path.name for place in places for path in place.iterdir() if path.is_dir()} - MADE


def lost_paths(text: str) -> list[str]:
    """The paths of the project in a text that no file or folder has."""
    first = beginnings()
    found = [path.rstrip(".") for path in PATH.findall(text)]  # 3.11.2 takes the end of a sentence
    named = [path for path in found if path.split("/")[0] in first]
    return [path for path in named if not any((ROOT / base / path).exists() for base in BASES)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    assert not lost_paths(page.read_text())


def test_a_path_that_nothing_has_is_found() -> None:
    text = (
        "See `core/model/job.py`, `src/tuque/core/model/job.py`, sim/engine/ and docs/spark.md;"
        " not `core/jobs/transitions.py`, src/tuque/sim/world.py nor server/loop/keeping.py."
    )
    lost = ["core/jobs/transitions.py", "src/tuque/sim/world.py", "server/loop/keeping.py"]
    assert lost_paths(text) == lost
    assert not lost_paths("`tests/test_*.py`, `core/<name>.py`, https://example.org/core/x.py, a/b")
