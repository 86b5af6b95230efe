"""All code of docs/spark.md runs, in its order, against a node."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from lab import RealServer
from tuque.spark.options import sink, source

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
DEFAULT = "tuque://127.0.0.1:7711"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RealServer]:
    """As the page starts it, on another port."""
    (line,) = [text for _, text in BLOCKS if text.startswith("tuque server")]
    flags = shlex.split(line)[2:]
    flags[flags.index("events")] = str(tmp_path / "events")
    (tmp_path / "node").mkdir()
    server = RealServer(tmp_path / "node", *flags, "--events-roll-seconds", "1")
    server.start()
    yield server
    server.end()


def script(port: int) -> str:
    """The Python of the page as one program, and its commands at their places."""
    parts = ["import subprocess, sys"]
    for kind, text in BLOCKS:
        if kind == "python":
            assert "7711" not in text.replace(DEFAULT, "")
            parts.append(text.replace(DEFAULT, f"tuque://127.0.0.1:{port}"))
            continue
        assert kind == "sh"
        for line in text.splitlines():
            program, *words = shlex.split(line)
            if program == "tuque" and words[0] != "server":
                call = f"subprocess.run([sys.executable, '-m', 'tuque', *{words!r}], check=True)"
                parts.append(call)
    return "\n".join(parts)


def test_only_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"tuque\[([\w-]+)\]", PAGE))
    assert named and named <= set(project["optional-dependencies"])


def test_every_block_says_what_it_is() -> None:
    assert len(re.findall(r"^```", PAGE, re.M)) == 2 * len(BLOCKS)


@pytest.mark.parametrize(
    ("title", "names"),
    [("The source", source.NAMES), ("The sink", sink.NAMES)],
)
def test_every_option_is_on_the_page(title: str, names: tuple[str, ...]) -> None:
    part = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = "".join(row.split("|")[1] for row in part.splitlines() if row.startswith("| `"))
    told = set(re.findall(r"`(\w+)`", rows))
    shared = {"url", "host", "port", "tls", "user", "passwordEnv", "passwordFile"}
    assert told | shared == set(names)


@pytest.mark.slow
@pytest.mark.spark
def test_the_page_runs(broker: RealServer, tmp_path: Path) -> None:
    code = tmp_path / "page.py"
    code.write_text(script(broker.port))
    done = subprocess.run(
        [sys.executable, str(code)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    for line in ("5000 jobs", "5000 rows", "50", "50 jobs"):
        assert f"\n{line}\n" in "\n" + done.stdout
    assert (tmp_path / "report" / "report.html").exists()
