"""Each folder of tests has a budget: tests/support/budget.py, and what tells of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import budget

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
LIMITS = budget.Budget(0.1, 0.5, frozenset({"core"}), {"core": 10.0, "others": 5.0})
TIMES = {
    "tests/core/test_a.py::test_1": 8.0,
    "tests/core/test_a.py::test_2": 0.4,
    "tests/demo/test_b.py::test_1": 6.0,
}
SUITE = """
import time
from pathlib import Path
import pytest

@pytest.fixture
def node(tmp_path):
    (tmp_path / "n").mkdir()
    with (tmp_path / "n" / "server.log").open("w") as log:
        for number in range(60):
            print("line", number, file=log)

def test_good():
    pass

def test_bad(node):
    print("seed 4711")
    assert False
"""


def test_a_folder_over_its_budget_is_shown_with_its_slowest_tests() -> None:
    found = budget.over(TIMES, LIMITS, 1.0)
    assert list(found) == ["demo"]
    assert found["demo"] == [
        "demo: 6 slot-seconds of 5",
        "     6.0 s  tests/demo/test_b.py::test_1",
    ]
    assert list(budget.over(TIMES, LIMITS, 0.5)) == ["core", "demo"]
    assert budget.over(TIMES, LIMITS, 1.0, share=1.3) == {}
    many = {f"tests/demo/test_b.py::test_{number}": 1.0 for number in range(20)}
    assert len(budget.over(many, LIMITS, 1.0)["demo"]) == 1 + budget.SLOWEST


def test_a_long_in_process_test_is_shown() -> None:
    (line,) = budget.long_tests(TIMES, frozenset(), LIMITS, 1.0)
    assert line.endswith("test_a.py::test_1")
    assert budget.long_tests(TIMES, frozenset({"tests/core/test_a.py::test_1"}), LIMITS, 1.0) == []
    assert budget.told(TIMES, frozenset(), LIMITS, 20.0)[0].endswith("all kept")


def test_beside_other_programs_folders_are_judged_by_their_shares() -> None:
    limits = budget.Budget(0.1, 0.5, frozenset(), {"core": 10.0, "wire": 10.0, "others": 5.0})
    slow = {"tests/core/test_a.py::test_1": 15.0, "tests/wire/test_b.py::test_2": 17.0}
    assert budget.busy(slow, limits, 1.0) == 1.6
    assert not budget.over(slow, limits, 1.6, share=1.3)
    slow["tests/wire/test_b.py::test_2"] = 25.0
    assert list(budget.over(slow, limits, budget.busy(slow, limits, 1.0))) == ["wire"]
    assert budget.busy({"tests/core/test_a.py::test_1": 90.0}, limits, 1.0) == 1.0
    assert budget.busy(slow | {"tests/core/test_a.py::test_3": 90.0}, limits, 1.1) == 2.0


def test_every_budget_is_of_a_folder() -> None:
    limits = budget.read()
    folders = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    assert set(limits.slot_s) - {"others"} <= folders
    assert limits.in_process <= folders


def test_the_table_of_budgets_is_that_of_the_file() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("| folder of tests |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    shown: dict[str, float] = {}
    for row in rows:
        for names, seconds in zip(row[::2], row[1::2], strict=True):
            shown |= {name: float(seconds or 0) for name in re.findall(r"\w+", names)}
    assert shown == dict(budget.read().slot_s)


def test_all_processes_are_added_up_and_failures_tell_how(tmp_path: Path) -> None:
    place = tmp_path / "tests" / "core"
    place.mkdir(parents=True)
    (place / "test_it.py").write_text(SUITE)
    support = str(Path(budget.__file__).parent)
    report = tmp_path / "report.json"
    plugins = ["-p", "slots", "-p", "budget", "-p", "failed"]
    base = tmp_path / "base"
    words = ["-m", "pytest", "-q", *plugins, "--slots", "2", f"--basetemp={base}", "tests"]
    env = {
        **os.environ,
        "PYTHONPATH": support,
        "PYTHONHASHSEED": "77",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TUQUE_FAILED": str(tmp_path / "kept"),
    }
    done = subprocess.run(
        [sys.executable, *words, "--report", str(report), "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    made = json.loads(report.read_text())
    assert set(made["times"]) == {
        "tests/core/test_it.py::test_good",
        "tests/core/test_it.py::test_bad",
    }
    assert made["counts"] == {"passed": 1}
    said = made["failed"]["tests/core/test_it.py::test_bad"]
    for word in ("PYTHONHASHSEED=77", "process 0", "printed: seed 4711"):
        assert word in said["seeds"]
    (log,) = [text for kind, text in said.items() if kind.startswith("nodes' logs")]
    assert log.splitlines() == [f"line {number}" for number in range(10, 60)]
    (kept,) = (tmp_path / "kept").rglob("server.log")
    assert kept.parent.name == "n"
