"""Loads: the job cycle over many connections, and plain adds and takes over one."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import hiredis

HERE = Path(__file__).parent


def build_jobbench(into: Path) -> Path:
    """Compile the load generator."""
    program = into / "jobbench"
    source = HERE / "jobbench.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        into.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O2", "-w", "-o", program, source], check=True)
    return program


def cycle(
    program: Path,
    proto: str,
    port: int,
    conns: int,
    depth: int,
    seconds: float,
    add_options: str = "",
) -> float:
    """Job cycles (add, get, ack) per second with 100-byte bodies."""
    command = [str(program), proto, "127.0.0.1", str(port)]
    command += [str(conns), str(depth), str(seconds), "100"]
    command += [add_options] if add_options else []
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"jobs/s=\s*(\d+)", done.stdout)
    errors = re.search(r"errors=(\d+)", done.stdout)
    assert found and errors, done.stdout
    assert errors[1] == "0", f"{proto} answered errors: {done.stderr}"
    return float(found[1])


def redis_benchmark(port: int, conns: int, pipeline: int, requests: int, *command: str) -> float:
    """Requests per second as redis-benchmark measures them."""
    program = shutil.which("redis-benchmark")
    assert program is not None
    words = [program, "-p", str(port), "-c", str(conns), "-P", str(pipeline)]
    words += ["-n", str(requests), "-q", *command]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    rates = re.findall(r"([\d.]+) requests per second", done.stdout)
    assert rates, done.stdout
    return float(rates[-1])


class Line:
    """One RESP connection for set-up and single-connection loads."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = hiredis.Reader()

    def replies(self, count: int) -> Iterator[object]:
        """The next replies."""
        while count:
            reply = self.reader.gets()
            if reply is False:
                data = self.sock.recv(1 << 20)
                if not data:
                    raise SystemExit("the server closed the connection")
                self.reader.feed(data)
                continue
            if isinstance(reply, hiredis.ReplyError):
                raise SystemExit(f"error reply: {reply}")
            count -= 1
            yield reply

    def call(self, *words: bytes | str | int) -> object:
        """One command and its reply."""
        self.sock.sendall(hiredis.pack_command(tuple(words)))
        return next(self.replies(1))

    def add(self, queue: str, count: int, body: bytes) -> None:
        """Add that many jobs."""
        self.repeat(count, "ADDJOB", queue, body, 0)

    def repeat(self, count: int, *words: bytes | str | int) -> None:
        """Send the command that many times."""
        packed = hiredis.pack_command(words)
        while count:
            batch = min(count, 1000)
            self.sock.sendall(packed * batch)
            for _ in self.replies(batch):
                pass
            count -= batch

    def drain(self, queue: str) -> int:
        """Take and acknowledge all jobs of the queue; returns how many."""
        total = 0
        while True:
            jobs = self.call("GETJOB", "NOHANG", "COUNT", 1000, "FROM", queue)
            if not jobs:
                return total
            assert isinstance(jobs, list)
            self.call("ACKJOB", *(job[1] for job in jobs))
            total += len(jobs)

    def close(self) -> None:
        """End the connection."""
        self.sock.close()


def getjob_rate(port: int, queue: str, takes: int, keep: int) -> float:
    """GETJOB COUNT 1 per second on a queue kept at `keep` jobs, pipelined by 50.

    Each job is acknowledged and replaced outside the measured time.
    """
    line = Line(port)
    body = b"x" * 100
    line.add(queue, keep - int(str(line.call("QLEN", queue))), body)
    packed = hiredis.pack_command(("GETJOB", "NOHANG", "FROM", queue)) * 50
    spent = 0.0
    for _ in range(takes // 50):
        start = time.perf_counter()
        line.sock.sendall(packed)
        jobs = [reply[0] for reply in line.replies(50) if isinstance(reply, list)]
        spent += time.perf_counter() - start
        line.call("ACKJOB", *(job[1] for job in jobs))
        line.add(queue, len(jobs), body)
    line.close()
    return takes / spent
