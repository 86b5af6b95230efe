"""A plug-in of pytest: what became of each test, one line of JSON each, into TUQUE_JUDGE_NOTES."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

ORDER: Final = ("passed", "skipped", "xfailed", "failed")  # the worst of a test's parts counts


class Noted:
    """Keeps the worst of the parts of a test; a test that is tried again starts anew."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._now = ("passed", "")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Setup, call and teardown; also each part of a test that has parts."""
        if report.outcome == "rerun":
            self._now = ("passed", "")
            return
        outcome, why = report.outcome, ""
        if report.skipped:
            outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            why = str(getattr(report, "wasxfail", "") or report.longrepr[2])
        elif report.failed:
            why = str(report.longrepr).strip().splitlines()[-1][:300]
        if ORDER.index(outcome) > ORDER.index(self._now[0]):
            self._now = outcome, why

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Writes the line when the test has ended, so that a run that is stopped has its lines."""
        self._now = ("passed", "")
        yield
        with open(self._path, "a") as notes:
            notes.write(json.dumps([item.nodeid, *self._now]) + "\n")


def pytest_configure(config: Any) -> None:
    config.pluginmanager.register(Noted(os.environ["TUQUE_JUDGE_NOTES"]))
