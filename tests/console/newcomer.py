"""A newcomer: types the commands of a page in a directory of its own, on ports that are free."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from console_node import DEADLINE_S

from tuque.cli.programs import free_port
from until import until

ROOT = Path(__file__).resolve().parents[2]


def blocks(*pages: str) -> list[tuple[str, str]]:
    """Language and text of each block of code of these pages."""
    text = "".join((ROOT / page).read_text() for page in pages)
    return re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)


class Tour:
    """A newcomer in the directory `tour`, on a port that is free."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = str(free_port())
        self.log = place / "node.log"
        bin_dir = place / "bin"
        bin_dir.mkdir()
        shim = bin_dir / "tuque"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tuque "$@"\n')
        shim.chmod(0o755)
        self.env = {
            **os.environ,
            "HOME": str(place),
            "PATH": f"{bin_dir}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TUQUE__PORT": self.port,
            "TUQUE_URL": f"tuque://127.0.0.1:{self.port}",
        }
        self.running: list[subprocess.Popen[bytes]] = []

    def sh(self, line: str, *, timeout_s: float = DEADLINE_S) -> str:
        """Type a line; it must succeed."""
        done = subprocess.run(
            ["bash", "-euc", line],
            cwd=self.place,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}\n{self.log.read_text()}"
        return done.stdout

    def python(self, code: str) -> str:
        (self.place / "snippet.py").write_text(code.replace("7711", self.port))
        return self.sh("python snippet.py")

    def start(self, line: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=self.place, env=self.env, stdout=log, stderr=log
            )
        self.running.append(process)
        return process

    def printed(self, wanted: str, times: int = 1) -> None:
        """Wait until what was started has printed that so often."""
        until(lambda: self.log.read_text().count(wanted) >= times, self.log.read_text)

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        process.send_signal(signal.SIGINT)
        return process.wait(DEADLINE_S)
