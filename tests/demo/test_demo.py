"""The main job, small: real files, a real crash, and books that would show a loss."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tuque
from tuque.demo.books import Books
from tuque.demo.main import CORRUPT_FILES, MISSING_FILES, standard_library
from tuque.demo.tasks import Measures

SOURCE = Path(tuque.__file__).parents[1]  # the programs run what the tests run


def test_the_demo_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    made = subprocess.run(
        [sys.executable, "-m", "tuque.demo", "--limit", "40", "--no-report", "--out", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    figures = {
        name: int(value.replace(",", ""))
        for name, value in re.findall(r"^([a-z -]+?) +([\d,]+)(?:  |$)", made.stdout, re.M)
    }
    bad = len(CORRUPT_FILES) + MISSING_FILES
    assert figures["jobs in"] == 40 + bad
    assert figures["ended"] == 40 + bad
    assert figures["dead-lettered"] >= bad
    assert figures["redelivered"] >= MISSING_FILES
    assert figures["lost"] == 0
    assert figures["lines"] > 0
    assert re.search(r"^kill -9 +worker \d+ and node-3 after \d+ jobs", made.stdout, re.M)
    (run,) = (tmp_path / "out").iterdir()
    assert "bye bye" not in (run / "node-3.log").read_text()
    for name in ("node-1", "node-2"):
        assert "bye bye" in (run / f"{name}.log").read_text()
    assert made.stderr == ""


def test_the_standard_library_is_found_and_thinned_evenly() -> None:
    found = standard_library(None)
    assert len(found) > 500
    assert not [path for path in found if "site-packages" in path.parts]
    some = standard_library(10)
    assert len(set(some)) == 10
    assert set(some) <= set(found)


class TestBooks:
    """A job is only done when workers and broker agree."""

    @pytest.fixture
    def books(self) -> Books:
        books = Books()
        books.on_added("D-1", "a.py", must_fail=False)
        books.on_added("D-2", "b.py", must_fail=True)
        books.on_result(Measures("D-1", "a.py", lines=3))
        books.on_dead_letter("b.py")
        return books

    def test_nothing_is_lost_when_all_agree(self, books: Books) -> None:
        assert books.lost(set()) == []
        assert books.open == 0
        assert books.survived() == []

    def test_a_job_that_a_node_would_hand_out_again_is_a_loss(self, books: Books) -> None:
        assert books.lost({"D-1"}) == ["D-1"]

    def test_a_job_without_a_result_is_a_loss(self, books: Books) -> None:
        del books.results["D-1"]
        assert books.lost(set()) == ["D-1"]

    def test_a_dead_job_without_its_letter_is_a_loss(self, books: Books) -> None:
        books.buried.clear()
        assert books.lost(set()) == ["D-2"]

    def test_a_bad_file_that_was_parsed_is_found_out(self, books: Books) -> None:
        books.buried.clear()
        assert books.survived() == ["D-2"]

    def test_a_second_result_counts_once(self, books: Books) -> None:
        books.on_result(Measures("D-1", "a.py", lines=3))
        assert books.repeated == 1
        assert books.totals()["lines"] == 3
