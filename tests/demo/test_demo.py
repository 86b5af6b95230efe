"""The main job, small: real files, a real crash, and books that would show a loss."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import tuque
from demo.books import Books
from demo.main import CORRUPT_FILES, MISSING_FILES, standard_library
from demo.results import TABLE
from demo.table import TABLE_LOG, ResultTable
from demo.tasks import Measures

SOURCE = Path(tuque.__file__).parents[1]  # the programs run what the tests run


@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    for package in ("pyspark", "pyarrow"):
        pytest.importorskip(package)
    made = subprocess.run(
        [sys.executable, "-m", "demo", "--limit", "120", "--out", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path])},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    figures = {
        name: int(value.replace(",", ""))
        for name, value in re.findall(r"^([a-z -]+?) +([\d,]+)(?:  |$)", made.stdout, re.M)
    }
    bad = len(CORRUPT_FILES) + MISSING_FILES
    assert figures["jobs in"] == 120 + bad
    assert figures["ended"] == 120 + bad
    assert figures["dead-lettered"] >= bad
    assert figures["redelivered"] >= MISSING_FILES
    assert figures["results"] + figures["dead-lettered"] == figures["ended"]
    assert figures["results"] == figures["jobs in"] - figures["dead-lettered"]
    assert 0 < figures["joined"] <= figures["results"]
    assert (figures["lost"], figures["duplicates"]) == (0, 0)
    assert figures["lines"] > 0
    for killed in ("worker-1: ", "node-3: ", r"the streaming query after [\d,]+ rows"):
        assert re.search(rf"^kill -9    {killed}", made.stdout, re.M)
    jobs = 120 + bad
    verdict = f"OK: {jobs} jobs in, {jobs} accounted for; 0 lost, 0 duplicated; survived 3 kill -9"
    *_, link, _, last = made.stdout.rstrip().splitlines()
    assert last == verdict
    assert re.match(r"report     file:///.*/report/report\.html$", link)
    (run,) = (tmp_path / "out").iterdir()
    assert " I stopped\n" not in (run / "node-3.log").read_text()
    for name in ("node-1", "node-2"):
        assert " I stopped\n" in (run / f"{name}.log").read_text()
    assert (run / "report" / "report.html").exists()


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

    def test_a_second_row_counts_once_and_is_told(self, books: Books) -> None:
        books.on_result(Measures("D-1", "a.py", lines=3))
        assert books.repeated == 1
        assert books.totals()["lines"] == 3


class TestTable:
    """The log of a table says which of its files count."""

    @pytest.fixture
    def run_dir(self, tmp_path: Path) -> Path:
        pytest.importorskip("pyarrow")
        (tmp_path / TABLE / TABLE_LOG).mkdir(parents=True)
        return tmp_path

    @staticmethod
    def append(run_dir: Path, name: str, *files: str) -> None:
        """A batch in the log, as Spark writes it."""
        log = [json.dumps({"path": f"file://{run_dir / TABLE / file}"}) for file in files]
        (run_dir / TABLE / TABLE_LOG / name).write_text("\n".join(["v1", *log]))

    @staticmethod
    def write(run_dir: Path, file: str, *ids: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [msgspec.to_builtins(Measures(name, f"{name}.py")) for name in ids]
        pq.write_table(pa.Table.from_pylist(rows), run_dir / TABLE / file)

    def test_rows_come_once_and_only_those_that_count(self, run_dir: Path) -> None:
        table = ResultTable(run_dir)
        self.write(run_dir, "a.parquet", "D-1", "D-2")
        self.write(run_dir, "a failed attempt.parquet", "D-1")
        assert list(table.new_rows()) == []
        self.append(run_dir, "0", "a.parquet")
        assert [row.job_id for row in table.new_rows()] == ["D-1", "D-2"]
        self.write(run_dir, "b.parquet", "D-3")
        self.append(run_dir, "1.compact", "a.parquet", "b.parquet")
        self.append(run_dir, ".2.tmp", "a failed attempt.parquet")
        assert [row.job_id for row in table.new_rows()] == ["D-3"]
        assert list(table.new_rows()) == []

    def test_no_table_yet(self, tmp_path: Path) -> None:
        assert list(ResultTable(tmp_path).new_rows()) == []
