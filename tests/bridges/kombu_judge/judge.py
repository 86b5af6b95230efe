"""Runs kombu's own tests of transports, from its released sources, with the transport of Tuque.

    python judge.py FOLDER

FOLDER has `t/integration/common.py` of kombu. Fails if a test fails, or if fewer than 46 passed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

LEAST: Final = 46
HERE: Final = Path(__file__).resolve().parent


class Counted:
    """A plug-in of pytest that counts what passed."""

    def __init__(self) -> None:
        self.passed = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed += report.when == "call" and report.outcome == "passed"


def main(folder: str) -> int:
    """The exit code."""
    from tuque.testing.nodes import TestNode

    os.environ["TUQUE_KOMBU_COMMON"] = str(Path(folder) / "t" / "integration")
    counted = Counted()
    with tempfile.TemporaryDirectory() as place, TestNode(Path(place)) as node:
        os.environ["TUQUE_JUDGE_PORT"] = str(node.port)
        words = [
            "-q",
            "-p",
            "no:cacheprovider",
            "--noconftest",
            "--rootdir",
            str(HERE),
            "-c",
            os.devnull,
        ]
        code = pytest.main([*words, str(HERE / "judged.py"), *sys.argv[2:]], plugins=[counted])
    print(f"kombu: {counted.passed} of {LEAST} tests passed")
    return 0 if code == 0 and counted.passed >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
