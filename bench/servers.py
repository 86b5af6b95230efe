"""Starts the brokers to compare on free loopback ports, and ends them by process id."""

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

from tuque.cli import programs


def free_port() -> int:
    """A free TCP port, of those that no connection gets: a server that starts finds it free."""
    return programs.free_port()


class Broker:
    """One running server process; use it in a `with`."""

    def __init__(self, name: str, command: list[str], port: int, scratch: Path) -> None:
        self.name = name
        self.port = port
        self.scratch = scratch
        self.command = command
        self.log = (scratch / "log").open("wb")
        self.start()

    def start(self) -> None:
        """Start the process and wait until it listens."""
        self.started_s = time.monotonic()
        self.process = subprocess.Popen(
            self.command, stdout=self.log, stderr=subprocess.STDOUT, cwd=self.scratch
        )
        self.pid = self.process.pid
        self.await_port()

    def restart(self) -> None:
        """Stop the process cleanly and start it again, on the same files."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        self.start()

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
                time.sleep(0.005)
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
        """End the process and remove its files."""
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
    """A Tuque node as installed for this Python."""
    scratch = Path(tempfile.mkdtemp(prefix="bench-"))
    port = free_port()
    command = [sys.executable, "-P", "-m", "tuque", "server", "--port", str(port)]
    command += ["--dir", str(scratch), "--maxmemory", "0", "--set", "appendonly=no", *options]
    broker = Broker("tuque", command, port, scratch)
    while is_loading(port):
        time.sleep(0.005)
    return broker


def is_loading(port: int) -> bool:
    """Whether a node is still loading its journal, even an empty one."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as probe:
        probe.sendall(b"QLEN q\r\n")
        return probe.recv(100).startswith(b"-LOADING")


def waits(port: int, seconds: float, password: str = "") -> list[float]:
    """Milliseconds of PINGs on one connection, about one each millisecond; shortest first."""
    found: list[float] = []
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        if password:
            sock.sendall(b"AUTH %s\r\n" % password.encode())
            reply = sock.recv(200)
            if not reply.startswith(b"+OK"):
                raise SystemExit(f"cannot log in: {reply!r}")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.perf_counter()
            sock.sendall(b"PING\r\n")
            sock.recv(64)
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)
    return sorted(found)


def redis(*options: str) -> Broker | None:
    """redis-server without snapshots; None if not installed."""
    program = shutil.which("redis-server")
    if program is None:
        return None
    scratch = Path(tempfile.mkdtemp(prefix="bench-"))
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    return Broker("redis", [*command, "--appendonly", "no", *options], port, scratch)


def beanstalkd() -> Broker | None:
    """beanstalkd without a log; None if not installed."""
    program = shutil.which("beanstalkd")
    if program is None:
        return None
    scratch = Path(tempfile.mkdtemp(prefix="bench-"))
    port = free_port()
    return Broker("beanstalkd", [program, "-l", "127.0.0.1", "-p", str(port)], port, scratch)
