"""Each test file runs in one process: tests/support/shares.py, as xdist calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import shares

HOOK = """
from shares import Shares

def pytest_xdist_make_scheduler(config, log):
    return Shares(config, log)
"""
ALONE = {"PYTEST_ADDOPTS": "-p no:cacheprovider", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
TESTS = """
import os
import pathlib
import pytest

@pytest.mark.parametrize("number", range(6))
def test_one(number):
    with pathlib.Path(__file__).with_suffix(".ran").open("a") as ran:
        print(os.environ["PYTEST_XDIST_WORKER"], file=ran)
"""


def test_one_process_runs_a_file(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HOOK)
    names = ("a", "b", "c")
    for name in names:
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    support = str(Path(shares.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", "2", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": support, **ALONE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [(tmp_path / f"test_{name}.ran").read_text().split() for name in names]
    assert [len(workers) for workers in ran] == [6, 6, 6]
    assert [len(set(workers)) for workers in ran] == [1, 1, 1]
    assert len({worker for workers in ran for worker in workers}) == 2


def test_one_process_has_the_spark_session() -> None:
    spark = Path(__file__).parents[1] / "spark"
    for name in ("test_hist_streams.py", "test_sink_append.py"):
        assert shares.share_of(spark / name) == "spark"
    alone = spark / "test_sink_rows.py"
    assert shares.share_of(alone) == str(alone)
