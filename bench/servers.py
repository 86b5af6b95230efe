"""Start the brokers that are compared, on free loopback ports, and end them by their id."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType


def free_port() -> int:
    """A TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """One running server process; use it in a `with`."""

    def __init__(self, name: str, command: list[str], port: int, scratch: Path) -> None:
        self.name = name
        self.port = port
        self.scratch = scratch
        self.log = (scratch / "log").open("wb")
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT, cwd=scratch
        )
        self.pid = self.process.pid
        self.await_port()

    def await_port(self) -> None:
        """Wait until the server accepts connections."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        text = (self.scratch / "log").read_text(errors="replace")
        raise SystemExit(f"{self.name} did not start:\n{text}")

    def rss(self) -> int:
        """Resident bytes of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """CPU seconds of the process so far."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process and forget its files."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> Broker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def tuque(*options: str) -> Broker:
    """A Tuque node as it is installed for this Python."""
    scratch = Path(tempfile.mkdtemp(prefix="bench-"))
    port = free_port()
    command = [sys.executable, "-P", "-m", "tuque", "server", "--port", str(port)]
    command += ["--dir", str(scratch), "--maxmemory", "0", *options]
    return Broker("tuque", command, port, scratch)


def redis() -> Broker | None:
    """redis-server without persistence, None where it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        return None
    scratch = Path(tempfile.mkdtemp(prefix="bench-"))
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    return Broker("redis", [*command, "--appendonly", "no"], port, scratch)


def beanstalkd() -> Broker | None:
    """beanstalkd without a log, None where it is not installed."""
    program = shutil.which("beanstalkd")
    if program is None:
        return None
    scratch = Path(tempfile.mkdtemp(prefix="bench-"))
    port = free_port()
    return Broker("beanstalkd", [program, "-l", "127.0.0.1", "-p", str(port)], port, scratch)
