"""The processes of the demo: started as a user would start them, ended whatever happens."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final

import click

START_LIMIT_S: Final = 30.0
STOP_LIMIT_S: Final = 30.0
LOG_TAIL_LINES: Final = 15


class Programs:
    """Child processes by name; leaving the context ends those that still run."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Programs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        err: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    @property
    def names(self) -> list[str]:
        """The programs that were not ended yet, oldest first."""
        return list(self._running)

    def start(self, name: str, *arguments: str) -> int:
        """Starts `tuque ARGUMENTS`, its output in NAME.log; returns its pid."""
        with (self.out / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tuque", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._running[name] = process
        return process.pid

    def check(self) -> None:
        """ClickException with the end of its log for a program that ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise click.ClickException(
                    f"{name} ended with exit code {process.returncode}:\n{self.log_tail(name)}"
                )

    def kill(self, name: str) -> None:
        """Ends a program the way a power cut would."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """Asks a program to end and waits for it; ClickException unless it ends well."""
        process = self._running[name]
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise click.ClickException(f"{name} does not stop:\n{self.log_tail(name)}") from None
        del self._running[name]
        if code != 0:
            raise click.ClickException(
                f"{name} ended with exit code {code}:\n{self.log_tail(name)}"
            )

    def log_tail(self, name: str) -> str:
        """The last lines that a program wrote."""
        with contextlib.suppress(OSError):
            text = (self.out / f"{name}.log").read_text(errors="replace")
            return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])
        return ""


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on now, nor on its bus port."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port <= 55_535:
            return port


def start_node(programs: Programs, port: int, directory: Path, events: Path) -> str:
    """Starts a node with journal and events, waits until it answers; returns its URL."""
    directory.mkdir(parents=True)
    programs.start(
        "node",
        *("server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)),
        *("--appendonly", "yes", "--appendfsync", "everysec"),
        *("--events", "yes", "--events-dir", str(events)),
    )
    deadline = time.monotonic() + START_LIMIT_S
    while not is_open(port):
        programs.check()
        if time.monotonic() > deadline:
            raise click.ClickException(f"the node does not answer:\n{programs.log_tail('node')}")
        time.sleep(0.02)
    return f"tuque://127.0.0.1:{port}"


def is_open(port: int) -> bool:
    """Whether somebody listens on that port of the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_worker(programs: Programs, name: str, url: str) -> int:
    """Starts one worker process of the demo's app; returns its pid."""
    return programs.start(
        name,
        *("worker", "tuque.demo.tasks:app", "--url", url),
        *("--concurrency", "2", "--prefetch", "16"),
    )


def wait_for_worker(programs: Programs, name: str) -> None:
    """Returns when a worker fetches jobs; ClickException when it does not come to that."""
    deadline = time.monotonic() + START_LIMIT_S
    while "worker ready" not in programs.log_tail(name):
        programs.check()
        if time.monotonic() > deadline:
            raise click.ClickException(f"{name} is not ready:\n{programs.log_tail(name)}")
        time.sleep(0.02)
