"""What tests/support/forked.py starts is what `python -m tuque` would be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forked
from lab import READY, RealServer
from until import until

pytestmark = pytest.mark.skipif(not forked.CAN_FORK, reason="this system has no pidfd_open")

GONE = """
import os, sys, time
from pathlib import Path
sys.path[:0] = sys.argv[1:2]
from lab import RealServer
pid = RealServer(Path(sys.argv[2])).start().pid
print(pid, flush=True)
"""
UNREAD = """
other = Path(sys.argv[2]) / "other"
other.mkdir()
ended = RealServer(other).start()
os.kill(ended.pid, 9)
while Path(f"/proc/{ended.pid}").exists():
    time.sleep(0.01)
"""
HELD = """
if not os.fork():
    os.closerange(0, 3)
    ends = time.monotonic() + 70
    while Path(f"/proc/{pid}").exists() and time.monotonic() < ends:
        time.sleep(0.01)
    os._exit(0)
"""
APP = """
import json, logging, os, pathlib, signal, sys, threading
from tuque.worker import App

app = App()

@app.task
def nothing() -> None:
    pass

facts = {
    "leads its group": os.getpgid(0) == os.getpid(),
    "files": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1],
    "signals": {int(n): str(signal.getsignal(n) or 0)[:30] for n in signal.valid_signals()},
    "blocked": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
    "variables": {k: v for k, v in os.environ.items() if k not in ("HERE", "TESTS_EXEC")},
    "threads": threading.active_count(),
    "log": [len(logging.root.handlers), logging.root.level, logging.getLogger("tuque").level],
    "words": [word for word in sys.argv[2:] if not word.startswith("--box=")],
    "path": sys.path,
    "directory": os.getcwd(),
}
pathlib.Path(os.environ["HERE"]).write_text(json.dumps(facts))
os._exit(3)
"""


def test_words_variables_and_output(tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as out:
        program = forked.start(["server", "--dir", str(tmp_path)], out, TUQUE__PORT="seven")
    assert isinstance(program, forked.Forked)
    assert program.wait(60) == 1
    said = (tmp_path / "said").read_text()
    assert "'seven' is not allowed" in said, said


def test_directory(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with (tmp_path / "said").open("wb") as out:
        program = forked.start(["server", "--port", "0", "--dir", "here"], out, tmp_path)
    until(lambda: READY.search((tmp_path / "said").read_text()) is not None)
    program.terminate()
    assert program.wait(60) == 0
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
    place = Path(f"/proc/{program.pid}/environ")  # empty while a process begins
    variables = until(place.read_bytes, "it has no variables")
    program.kill()
    assert program.wait(60) == -signal.SIGKILL
    assert b"PYTHONHASHSEED=7" in variables.split(b"\0")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("", id="all read", marks=pytest.mark.slow),
        pytest.param(UNREAD, id="an end unread"),
        pytest.param(HELD, id="its child lives"),
    ],
)
def test_nothing_outlives_its_caller(tmp_path: Path, more: str) -> None:
    support = str(Path(forked.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", GONE + more, support, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    ends = time.monotonic() + 60
    while Path(f"/proc/{done.stdout.strip()}").exists():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_an_id_that_is_used_again(tmp_path: Path) -> None:
    """Who ended stays ended, and its signals do not go to the next one with its id."""
    with RealServer(tmp_path) as server:
        first = server.process
        server.kill()
        server.start()
        assert isinstance(first, forked.Forked)
        first.pid = server.pid  # as the system may choose
        first.terminate()
        assert first.poll() == -signal.SIGKILL
        assert server.wire()("PING") == b"PONG"


def test_the_process_that_forks_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs end with it, which the next to ask about them is told; then there is another."""
    monkeypatch.setattr(forked, "nests", {})
    server = RealServer(tmp_path).start()
    orphan = server.process
    (nest,) = forked.nests.values()
    nest.process.kill()
    nest.process.wait()
    assert orphan is not None
    with pytest.raises(AssertionError, match="the process that forks ended with -9"):
        orphan.poll()
    until(lambda: not is_alive(orphan.pid))
    assert orphan.poll() == -signal.SIGKILL
    with server.start():
        assert server.wire()("PING") == b"PONG"


def is_alive(pid: int) -> bool:
    """Whether a process runs with that id; one that nobody waits for has ended, too."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return words[0] not in "ZX"


def test_the_process_of_a_worker(tmp_path: Path) -> None:
    """It finds what it would find had its supervisor started Python."""
    (tmp_path / "tests_app.py").write_text(APP)
    words = ["worker", "tests_app:app", "--app-dir", str(tmp_path), "--url", "tuque://127.0.0.1:1"]
    found = []
    for more in ({}, {forked.EXEC: "1"}):
        here = tmp_path / f"facts{len(found)}"
        with (tmp_path / "said").open("wb") as out:
            program = forked.start([*words, "--log-level", "error"], out, HERE=str(here), **more)
        assert program.wait(60) == 3, (tmp_path / "said").read_text()
        found.append(json.loads(here.read_text()))
    assert found[0] == found[1]
    assert found[0]["leads its group"]
