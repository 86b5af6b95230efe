"""A real node for the console's tests, and the program in the process of the test."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from console_node import Run

from lab import RealServer
from tuque.main import main


@pytest.fixture(scope="session")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a node that all tests share: each has queues of its own."""
    with RealServer(tmp_path_factory.mktemp("node")) as node:
        yield node.port


@pytest.fixture
def tuque(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the program here: `tuque("cli", "PING", stdin=b"")`. Its output is no terminal."""

    def run(*args: str | int, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
        words = ["tuque", *map(str, args)]
        monkeypatch.setattr(sys, "argv", words)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        code: object = 0
        with CliRunner().isolation(stdin, {"HOME": str(tmp_path), **env}) as (out, errors, _):
            try:
                main()
            except SystemExit as ended:
                code = ended.code
            sys.stdout.flush()
            sys.stderr.flush()
            said = out.getvalue(), errors.getvalue()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        return subprocess.CompletedProcess(words, int(code or 0), *said)  # type: ignore[call-overload]

    return run
