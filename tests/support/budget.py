"""How long the tests of each folder took, beside what they may take (tests/budget.toml).

A plugin of pytest: it adds up times over all processes and prints folders that are over
their budgets, with their slowest tests. With `--report FILE` it writes them there, with what
failed, and prints nothing: tools/run_tests.py adds up several runs. It fails no run.
"""

from __future__ import annotations

import json
import time
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

FILE: Final = Path(__file__).parents[1] / "budget.toml"
SLOWEST: Final = 10  # tests shown of a folder
EXEMPT: Final = frozenset(("long", "slow", "sources"))
BUSY_MAX: Final = 2.0  # times the whole may take before all folders are over
ROUNDS: Final = 40  # short: neighbours slow some of them, not all


class Budget(NamedTuple):
    """The file."""

    reference_s: float
    in_process_s: float
    in_process: frozenset[str]
    slot_s: Mapping[str, float]

    def of(self, folder: str) -> float:
        """Slot-seconds of a folder on the reference machine."""
        return self.slot_s.get(folder, self.slot_s["others"])


def read(path: Path = FILE) -> Budget:
    """The budgets of the file."""
    made = tomllib.loads(path.read_text())
    inside = made["in_process"]
    return Budget(
        made["calibration"]["reference_s"],
        inside["seconds"],
        frozenset(inside["folders"]),
        made["slot_seconds"],
    )


def loop_s() -> float:
    """How much CPU time a fixed loop takes here: the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        total = 0
        for number in range(100_000):
            total += number & 7
        best = min(best, time.process_time() - began)
    return best


def folder_of(nodeid: str) -> str:
    """tests/FOLDER/test_x.py::test_y: FOLDER."""
    parts = nodeid.partition("::")[0].split("/")
    return parts[1] if parts[0] == "tests" and len(parts) > 2 else parts[0]


def busy(times: Mapping[str, float], budget: Budget, factor: float) -> float:
    """The factor for a run of all folders: if all took longer, as beside other programs, each is
    judged by its share of the whole. A run of some folders keeps its factor.
    """
    folders = {folder_of(nodeid) for nodeid in times}
    if not folders >= set(budget.slot_s) - {"others"}:
        return factor
    whole = sum(budget.of(folder) for folder in folders)
    return max(factor, min(sum(times.values()) / whole, BUSY_MAX))


def over(
    times: Mapping[str, float], budget: Budget, factor: float, share: float = 1.0
) -> dict[str, list[str]]:
    """Folders that took more than `share` of their budget, with lines for people."""
    folders: dict[str, dict[str, float]] = defaultdict(dict)
    for nodeid, seconds in times.items():
        folders[folder_of(nodeid)][nodeid] = seconds
    found: dict[str, list[str]] = {}
    for folder, tests in sorted(folders.items()):
        taken, most = sum(tests.values()), budget.of(folder) * factor
        if taken > most * share:
            slowest = sorted(tests.items(), key=lambda one: -one[1])[:SLOWEST]
            found[folder] = [
                f"{folder}: {taken:.0f} slot-seconds of {most:.0f}",
                *(f"  {seconds:6.1f} s  {nodeid}" for nodeid, seconds in slowest),
            ]
    return found


def long_tests(
    times: Mapping[str, float], exempt: frozenset[str], budget: Budget, factor: float
) -> list[str]:
    """Lines for the in-process tests that took too long."""
    most = budget.in_process_s * factor
    found = [
        (seconds, nodeid)
        for nodeid, seconds in times.items()
        if seconds > most and folder_of(nodeid) in budget.in_process and nodeid not in exempt
    ]
    return [f"  {seconds:6.1f} s  {nodeid}" for seconds, nodeid in sorted(found, reverse=True)]


def told(
    times: Mapping[str, float], exempt: frozenset[str], budget: Budget, factor: float
) -> list[str]:
    """What is over, in lines for people."""
    lines = [f"budgets (tests/budget.toml) x {factor:.2f}, the speed of this machine:"]
    for found in over(times, budget, factor).values():
        lines += found
    late = long_tests(times, exempt, budget, factor)
    if late:
        lines.append(f"in-process tests over {budget.in_process_s * factor:.1f} s:")
        lines += late[:SLOWEST]
        if len(late) > SLOWEST:
            lines.append(f"  and {len(late) - SLOWEST} more")
    return lines if len(lines) > 1 else [lines[0] + " all kept"]


class Times:
    """What one run says of its tests; lives in the process that all reports reach."""

    def __init__(self, report: Path | None) -> None:
        self.report = report
        self.budget = read()
        self.factor = round(loop_s() / self.budget.reference_s, 3)
        self.times: dict[str, float] = defaultdict(float)
        self.exempt: set[str] = set()
        self.failed: dict[str, dict[str, str]] = {}
        self.counts: dict[str, int] = defaultdict(int)
        self.began = time.monotonic()
        self.ended_s = 0.0  # of the last test, since the start
        self.begun_s = 0.0  # of the first one

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds up a part of a test: setup, call or teardown."""
        now = time.monotonic() - self.began
        self.begun_s = self.begun_s or now - report.duration
        self.ended_s = now
        self.times[report.nodeid] += report.duration
        if EXEMPT & report.keywords.keys():
            self.exempt.add(report.nodeid)
        if report.failed:
            said = dict(report.sections)
            self.failed.setdefault(report.nodeid, {"how": report.longreprtext, **said})
        elif report.when == "call" or report.skipped:
            self.counts["skipped" if report.skipped else "passed"] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read is a failure, too."""
        if report.failed:
            self.failed.setdefault(report.nodeid, {"how": report.longreprtext})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Prints what is over, or hands all over."""
        if self.report is None:
            if self.times:
                for line in told(self.times, frozenset(self.exempt), self.budget, self.factor):
                    terminalreporter.write_line(line)
            return
        made = {
            "factor": self.factor,
            "times": self.times,
            "exempt": sorted(self.exempt),
            "failed": self.failed,
            "counts": self.counts,
            "seconds": time.monotonic() - self.began,
            "outside_s": time.monotonic() - self.began - (self.ended_s - self.begun_s),
        }
        self.report.parent.mkdir(parents=True, exist_ok=True)
        self.report.write_text(json.dumps(made, indent=1))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of tools/run_tests.py."""
    parser.addoption("--report", type=Path, help="write times and failures to this file as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Adds up where the reports of all processes arrive."""
    if not config.option.collectonly:
        config.pluginmanager.register(Times(config.option.report))
