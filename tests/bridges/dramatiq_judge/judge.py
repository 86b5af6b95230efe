"""Runs Dramatiq's own tests, from its released sources, with the broker of Tuque.

    python judge.py FOLDER [file ...]

FOLDER has `tests`. Those of actors, workers, callbacks, compositions and results, with our broker
in the place of its stub, and those of its Redis broker that are not about Redis.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

from tuque import Client
from tuque.cli.programs import free_port
from tuque.errors import Error

LEAST: Final = 0.8  # the tests of Redis are of much that only it has
FILES: Final = (
    "test_actors", "test_broker", "test_callbacks", "test_composition", "test_generic_actors",
    "test_messages", "test_redis", "test_results", "test_worker",
)  # fmt: skip
STUB_MESSAGE: Final = "dramatiq.brokers.stub._StubMessageProxy"
HERE: Final = Path(__file__).parent


def start_node(place: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A node, and its URL."""
    port = free_port()
    words = [sys.executable, "-m", "tuque", "server", "--port", str(port)]
    node = subprocess.Popen(words, cwd=place, stdout=subprocess.DEVNULL)
    url = f"tuque://127.0.0.1:{port}"
    for _ in range(300):
        try:
            with Client(url) as client:
                client.ping()
            return node, url
        except Error:
            time.sleep(0.1)
    raise SystemExit("the node did not start")


class Counted:
    """What became of the tests."""

    def __init__(self) -> None:
        self.passed = self.failed = 0
        self.left: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.left[report.nodeid.split("::")[-1]] = report.longrepr[2]
        elif report.failed:
            self.failed += 1
        elif report.when == "call":
            self.passed += 1


def main(folder: str, *files: str) -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        tests = place / "tests"
        tests.mkdir()
        (tests / "__init__.py").touch()
        for file in files or FILES:
            text = (Path(folder) / "tests" / f"{file}.py").read_text()
            (tests / f"{file}.py").write_text(text.replace(STUB_MESSAGE, "tests.conftest.Kept"))
        for file in ("common", "conftest"):
            (tests / f"{file}.py").write_text((HERE / f"{file}_in_place.py").read_text())
        node, url = start_node(place)
        sys.path.insert(0, name)
        os.environ["TUQUE_URL"] = url
        counted = Counted()
        try:
            pytest.main(["-q", "-p", "no:cacheprovider", "--timeout=30", name], plugins=[counted])
        finally:
            node.terminate()
            node.wait()
    ran = counted.passed + counted.failed
    print(f"Dramatiq: {ran} of {ran + len(counted.left)} tests ran, {counted.failed} failed")
    for test, why in sorted(counted.left.items()):
        print(f"  left out: {test}: {why.removeprefix('Skipped: ')}")
    return 0 if not counted.failed and ran >= LEAST * (ran + len(counted.left)) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
