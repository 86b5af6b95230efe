"""The demo's control of its Spark side: start, kill, ask; and the growing table.

Reads the table without Spark: its log names the valid files, which is what makes an append exactly
once.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

import click

from demo.results import LOG, TABLE
from demo.tasks import Measures
from tuque.logtext import visible_lines

TABLE_LOG: Final = "_spark_metadata"


class ResultStream:
    """The process with the streaming query; leaving the context ends it."""

    def __init__(self, url: str, run_dir: Path) -> None:
        self.url = url
        self.run_dir = run_dir
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> ResultStream:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> int:
        """Starts the query, also after a kill; returns its pid."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "demo.results", self.url, str(self.run_dir.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # with its JVM, so that one signal ends both
        )
        self._lines = queue.SimpleQueue()
        lines = self._process.stdout, self._lines
        threading.Thread(target=_pass_on, args=lines, daemon=True).start()
        return self._process.pid

    def kill(self) -> None:
        """Ends it the way a power cut would."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def check(self) -> None:
        """ClickException if it ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self._fail()

    def wait_for(self, what: str) -> dict[str, Any]:
        """Waits for its next reply, which must be that one."""
        line = self._lines.get()
        if not line:
            self._fail()
        said = json.loads(line)
        assert said["answer"] == what, said
        return dict(said)

    def has_said(self, what: str) -> bool:
        """Whether its next reply has come, which must be that one."""
        if self._lines.empty():
            return False
        self.wait_for(what)
        return True

    def ask(self, what: str, answer: str) -> dict[str, Any]:
        """Sends a command and waits until it is done."""
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(what + "\n")
            self._process.stdin.flush()
        return self.wait_for(answer)

    def _fail(self) -> None:
        log = self.run_dir / LOG
        tail = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        raise click.ClickException(visible_lines("the streaming query ended:\n" + "\n".join(tail)))


def _pass_on(lines: IO[str] | None, to: queue.SimpleQueue[str]) -> None:
    """Forwards lines until their end, then an empty one."""
    assert lines is not None
    for line in lines:
        to.put(line)
    to.put("")


class ResultTable:
    """What is new in the table since the last call."""

    def __init__(self, run_dir: Path) -> None:
        self.directory = run_dir / TABLE
        self._log = self.directory / TABLE_LOG
        self._read_logs: set[str] = set()
        self._read_files: set[str] = set()

    def new_rows(self) -> Iterator[Measures]:
        """The rows appended since; each once, according to the table's log."""
        import pyarrow.parquet as pq

        for file in self._new_files():
            for row in pq.read_table(file).to_pylist():
                yield Measures(**row)

    def _new_files(self) -> Iterator[str]:
        try:
            names = sorted(os.listdir(self._log))
        except FileNotFoundError:
            return
        for name in names:
            if name in self._read_logs or not name.removesuffix(".compact").isdigit():
                continue
            self._read_logs.add(name)
            for line in (self._log / name).read_text().splitlines()[1:]:
                path = unquote(urlsplit(json.loads(line)["path"]).path)
                if path not in self._read_files:
                    self._read_files.add(path)
                    yield path
