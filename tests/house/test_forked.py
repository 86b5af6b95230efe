"""What tests/support/forked.py starts is what `python -m tuque` would be."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
from lab import READY, RealServer
from raw_resp import wait_for

pytestmark = pytest.mark.skipif(not forked.CAN_FORK, reason="this system has no pidfd_open")

GONE = """
import sys, time
from pathlib import Path
sys.path[:0] = sys.argv[1:2]
from lab import RealServer
print(RealServer(Path(sys.argv[2])).start().pid, flush=True)
"""


def test_words_variables_and_output(tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as out:
        program = forked.start(["server", "--dir", str(tmp_path)], out, TUQUE__PORT="seven")
    assert isinstance(program, forked.Forked)
    assert program.wait(20) == 1
    said = (tmp_path / "said").read_text()
    assert "'seven' is not allowed" in said, said


def test_directory(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with (tmp_path / "said").open("wb") as out:
        program = forked.start(["server", "--port", "0", "--dir", "here"], out, tmp_path)
    wait_for(lambda: READY.search((tmp_path / "said").read_text()) is not None)
    program.terminate()
    assert program.wait(20) == 0
    assert list((tmp_path / "here").iterdir())


def test_how_it_ended(tmp_path: Path) -> None:
    server = RealServer(tmp_path).start()
    assert isinstance(server.process, forked.Forked)
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.1)
    server.kill()
    assert server.process.returncode == -signal.SIGKILL
    server.start()
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


def test_what_the_interpreter_reads_at_its_start(tmp_path: Path) -> None:
    """Each set of these variables has a process of its own to fork from."""
    with (tmp_path / "said").open("wb") as out:
        words = ["server", "--port", "0", "--dir", str(tmp_path)]
        program = forked.start(words, out, PYTHONHASHSEED="7")
    variables = Path(f"/proc/{program.pid}/environ").read_bytes()
    program.kill()
    assert program.wait(20) == -signal.SIGKILL
    assert b"PYTHONHASHSEED=7" in variables.split(b"\0")


def test_nothing_outlives_its_caller(tmp_path: Path) -> None:
    support = str(Path(forked.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", GONE, support, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    ends = time.monotonic() + 20
    while Path(f"/proc/{done.stdout.strip()}").exists():
        assert time.monotonic() < ends
        time.sleep(0.01)
