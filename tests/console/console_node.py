"""Start and stop a real node for the console's tests."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import forked

from tuque.console.cluster.programs import free_port
from tuque.console.terminal.link import Link, LinkError, Target

DEADLINE_S = 30.0
Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


def start_node(directory: Path, *flags: str, port: int = 0) -> tuple[forked.Process, int]:
    """Start a node and wait until it answers."""
    port = port or free_port()
    words = ["server", "--port", str(port), "--dir", str(directory), *flags]
    with (directory / "node.log").open("wb") as log:
        process = forked.start(words, log)
    until = time.monotonic() + DEADLINE_S
    link = Link(Target(port=port))
    while True:
        try:
            link.call([b"PING"])
            link.close()
            return process, port
        except LinkError:
            told = (directory / "node.log").read_text()
            assert process.poll() is None, told
            assert time.monotonic() < until, told
            time.sleep(0.02)


def stop_node(process: forked.Process) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
