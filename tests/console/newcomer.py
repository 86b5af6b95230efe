"""A newcomer: types the commands of a page in a directory of its own, on ports that are free."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from console_node import DEADLINE_S

from tuque.cli.programs import free_port, free_ports
from until import until

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
READY = {
    "tuque dev": "ready after",
    "tuque server": "ready to accept connections",
    "celery -A shop worker": " ready.",
    "uvicorn": "Uvicorn running on",
    "tuque outbox relay": "of the outbox is relayed",
    "python manage.py tuque_relay": "of the outbox is relayed",
    "dramatiq ": "is booting up",
    "taskiq worker": "Listening started",
}


def blocks(*pages: str, part: str = "") -> list[tuple[str, str]]:
    """Language and text of each block of code of these pages, or of one part of them."""
    text = "".join((ROOT / page).read_text() for page in pages)
    if part:
        text = text.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
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


class Page:
    """A page whose blocks are typed, in their order, by a newcomer."""

    def __init__(
        self, name: str, tour: Tour, reworded: Callable[[str], str] = lambda text: text
    ) -> None:
        """`reworded`: what another version of a package has in a block."""
        self._reworded = reworded
        self.name = f"docs/{name}.md"
        self._tour = tour
        self._console, self._web = map(str, free_ports(2))
        self._script: list[str] = []  # a shell keeps what its lines have set
        self._shown = ""

    def type_all(self, part: str = "") -> None:
        for kind, shown in blocks(self.name, part=part):
            text = self._reworded(shown)
            if kind == "python":
                self._save(text)
            elif kind == "text":
                wanted = text.strip()
                until(lambda wanted=wanted: wanted in self._shown + self._tour.log.read_text())
            else:
                self._type(text.strip().splitlines())

    def _save(self, code: str) -> None:
        """The first line of a file is its name."""
        path = self._tour.place / code.partition("\n")[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)

    def _type(self, lines: list[str]) -> None:
        rest = []
        for line in lines:
            if line.startswith("python3 -m venv"):
                continue  # the tests have an environment
            if line.startswith("pip install"):
                assert set(re.findall(r"tuque\[([\w,]+)\]", line.replace(",", "],tuque["))) <= set(
                    EXTRAS
                )
            elif line.startswith("tuque dev"):
                ports = f" --port {self._tour.port} --web-port {self._console}"
                self._start(line + ports, READY["tuque dev"])
            elif line.startswith("uvicorn"):
                self._start(f"{line} --port {self._web}", READY["uvicorn"])
            elif line.startswith(tuple(READY)) and "--check" not in line:
                self._start(line, next(READY[word] for word in READY if line.startswith(word)))
            else:
                rest.append(line.replace("8000", self._web))
        self._shown = self._tour.sh("\n".join(rest)) if rest else self._shown

    def _start(self, line: str, ready: str) -> None:
        self._tour.start(line)
        self._tour.printed(ready)
