"""The style that a program can see, and proof that the program sees it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import tidy  # noqa: E402  tools/ is put on the path above


def test_all_files_of_the_project_are_looked_at() -> None:
    """`make lint` runs it over them; here they would be looked at a second time."""
    files = tidy.tracked_files()
    assert Path(__file__) in files and tidy.SRC / "main.py" in files
    assert len(files) > 1000, "the list of files is too short to mean anything"
    assert not tidy.check_docs() + tidy.check_rooms()


CASES = [
    ("src/tuque/core/a.py", "import time\n", "time in deciding code"),
    ("src/tuque/core/a.py", "def f() -> None:\n    from os import path\n", "os in deciding code"),
    ("src/tuque/wire/a.py", "x = hash(b'a')\n", "hash() differs"),
    ("src/tuque/core/a.py", "for x in {1, 2}:\n    pass\n", "iteration over a set"),
    ("src/tuque/core/a.py", "a: set[int] = set()\nb = [x for x in a]\n", "iteration over a set"),
    ("src/tuque/core/jobs/a.py", "X = b'NOJOB Job not known'\n", "an error's text"),
    ("src/tuque/tubes/a.py", "X = b\"-ERR '%s' is a tube\"\n", "an error's text"),
    ("src/tuque/client/a.py", "import pickle\n", "pickle runs what it reads"),
    ("src/tuque/client/a.py", "eval('1')\n", "eval()"),
    ("src/tuque/client/a.py", "try:\n    pass\nexcept:\n    raise\n", "bare except"),
    (
        "src/tuque/client/a.py",
        "try:\n    pass\nexcept Exception:\n    pass\n",
        "swallows every error",
    ),
    ("src/tuque/client/a.py", "import os  # noqa: F401\n", "no rule or no reason"),
    ("src/tuque/client/a.py", "import os  # noqa\n\nX = os.sep\n", "no rule or no reason"),
    ("src/tuque/client/a.py", "x = 1  # type: ignore\n", "no rule or no reason"),
    ("src/tuque/client/a.py", "def handle_job() -> None: ...\n", "name it by its cause"),
    ("src/tuque/client/a.py", "class JobManager: ...\n", "name it by its cause"),
    ("src/tuque/client/a.py", "def f(): ...\n", "no return type"),
    (
        "src/tuque/server/a.py",
        "def f() -> None:\n    try:\n        g()\n    except OSError as e:\n        h(e)\n"
        "    except Exception as e:\n        h(e)\n",
        "e: caught as OSError above",
    ),
    ("src/tuque/client/a.py", "x = 1\n" * 801, "801 lines"),
    ("tests/a.py", "def f():\n" + "    x = 1\n" * 50, "51 lines"),
    ("tests/a.py", "x = '" + "y" * 100 + "'\n", "columns"),
]


@pytest.mark.parametrize(("name", "text", "fault"), CASES)
def test_a_fault_is_seen(name: str, text: str, fault: str) -> None:
    faults = tidy.PythonFile(ROOT / name, text).check()
    assert any(fault in line for line in faults), faults


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/tuque/server/a.py", "# TODO later\n"),
        ("src/tuque/server/a.py", "raise NotImplementedError\n"),
        ("README.md", "see /home/someone/tuque\n"),
        ("constraints.txt", "--index-url https://example.invalid\n"),
        ("README.md", "space at the end \n"),
    ],
)
def test_a_bad_text_is_seen(name: str, text: str) -> None:
    assert tidy.check_text(ROOT / name, text)


def test_an_excuse_with_rule_and_reason_passes() -> None:
    text = "import os  # noqa: F401  others import it from here\n"
    assert tidy.PythonFile(ROOT / "tests/a.py", text).check() == []


def test_a_package_without_words_is_seen(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "one.py").touch()
    assert tidy.check_rooms(tmp_path) == []
    (tmp_path / "__init__.py").unlink()
    assert "no __init__.py" in tidy.check_rooms(tmp_path)[0]
