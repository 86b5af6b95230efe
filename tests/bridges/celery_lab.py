"""Celery's programs in tests: their entry points, a Redis server beside, a shop with workers.

It is also of the judges, which run in environments of their own: it needs Celery and Tuque alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tuque.cli.programs import free_port
from until import until

ROOT: Final = Path(__file__).resolve().parents[2]


def write_entries(folder: Path) -> Path:
    """A folder for PYTHONPATH, by which Celery finds what pyproject.toml says of this tree."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    place = folder / "tuque-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: tuque\nVersion: 0\n")
    lines: list[str] = []
    for group in ("kombu.serializers", "celery.result_backends"):
        rows = named["entry-points"][group].items()
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in rows)]
    (place / "entry_points.txt").write_text("\n".join(lines))
    return folder


@contextmanager
def redis_server(place: Path) -> Iterator[int]:
    """A Redis server without files; its port."""
    program = shutil.which("redis-server")
    assert program is not None, "redis-server is not installed"
    port = free_port()
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


class Celery:
    """A program of Celery, with its output in a file, and a group of processes of its own."""

    def __init__(self, log: Path, env: Mapping[str, str], *words: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", *words],
                cwd=log.parent,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """Kills it and its children, as the loss of a machine does."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, limit_s: float = 60) -> int:
        """Stops it in order; its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(limit_s)
        finally:
            self.kill()


class Shop:
    """A place for `celery_shop` with its two URLs; processes of it."""

    def __init__(self, place: Path, url: str) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.running: list[Celery] = []
        self.producer: subprocess.Popen[bytes] | None = None
        paths = [write_entries(place / "entries"), ROOT / "src", ROOT / "tests/bridges/celery_shop"]
        self.env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "SHOP_URL": url,
            "SHOP_RESULTS": url,
            "SHOP_PLACE": str(place),
        }

    def start(self, *words: str, app: str = "shop") -> Celery:
        """`celery -A shop WORDS`."""
        log = self.place / f"{words[0]}-{len(self.running)}.log"
        self.running.append(Celery(log, self.env, "-A", app, *words))
        return self.running[-1]

    def worker(self, *words: str, app: str = "shop") -> Celery:
        """A worker of all queues, that is ready."""
        name = f"w{len(self.running)}@shop"
        asked = ["-Q", "celery,ranked", "-l", "INFO", "-n", name, *words]
        started = self.start("worker", *asked, app=app)

        def is_ready() -> bool:
            assert started.process.poll() is None, started.text
            return f"{name} ready." in started.text

        until(is_ready, lambda: f"start a worker:\n{started.text}")
        return started

    def python(self, code: str, limit_s: float = 120) -> Any:
        """What `code` gives as `found`, run in a process that has imported `shop`."""
        whole = f"import json, shop\n{code}\nprint(json.dumps(found))"
        ran = subprocess.run(
            [sys.executable, "-c", whole],
            cwd=self.place,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        assert ran.returncode == 0, ran.stderr + self.texts()
        return json.loads(ran.stdout.splitlines()[-1])

    def run(self, code: str) -> None:
        """Runs `code` in a process that has imported `shop`, and does not wait for its end."""
        words = [sys.executable, "-c", f"import shop\n{code}"]
        with (self.place / "producer.log").open("wb") as log:
            self.producer = subprocess.Popen(
                words, cwd=self.place, env=self.env, stdout=log, stderr=log
            )

    def texts(self) -> str:
        """The ends of what the processes wrote."""
        logs = sorted(self.place.glob("*.log"))
        return "\n".join(f"---- {log.name}\n{log.read_text()[-3000:]}" for log in logs)

    def effects(self) -> Counter[str]:
        """How often each effect was."""
        path = self.place / "effects"
        return Counter(path.read_text().splitlines() if path.exists() else [])

    def close(self) -> None:
        """Nothing is left running."""
        for one in self.running:
            one.kill()
        if self.producer is not None:
            self.producer.kill()
            self.producer.wait()
