"""Tests run in processes forked from the one that collected them: tests/support/slots.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import slots
from until import until

ALONE = {"PYTEST_ADDOPTS": "-p no:cacheprovider", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
SHARED = """
import os
import pathlib
import pytest

def note(words, kind):
    with (pathlib.Path(__file__).parent / kind).open("a") as notes:
        print(words, file=notes)

note(os.getpid(), "read")

@pytest.fixture(scope="session")
def shared():
    note(os.getpid(), "begun")
    yield
    note(os.getpid(), "ended")
    assert not (pathlib.Path(__file__).parent / "bad").exists()

@pytest.fixture(scope="module")
def of_file(request):
    yield
    note(request.node.name, "files_ended")
"""
TESTS = """
import os
import pathlib
import pytest

@pytest.mark.parametrize("number", range(6))
def test_one(number, shared, of_file, tmp_path):
    print("said by", number)
    (tmp_path / "mine").touch()
    with pathlib.Path(__file__).with_suffix(".ran").open("a") as ran:
        print(os.getpid(), file=ran)
"""
DYING = """
import os
import warnings

def test_before():
    warnings.warn("mind the gap")

def test_dying():
    os._exit(7)

def test_after():
    pass

def test_failing(capsys):
    print("what it said")
    assert 1 == 2
"""


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(place, *words), env=env(), capture_output=True, text=True)


def command(place: Path, *words: str) -> list[str]:
    plugins = ["-p", "slots", f"--basetemp={place / 'base'}"]
    return [sys.executable, "-m", "pytest", "-q", *plugins, "--slots", "2", *words, str(place)]


def env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(slots.__file__).parent), **ALONE}


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def write(place: Path, *names: str, tests: str = TESTS) -> None:
    (place / "conftest.py").write_text(SHARED)
    for name in names:
        (place / f"test_{name}.py").write_text(tests)


def test_one_process_runs_a_file(tmp_path: Path) -> None:
    """And what all its tests share is made once in a process, and ends with it."""
    names = ("a", "b", "c")
    write(tmp_path, *names)
    done = run(tmp_path)
    assert done.returncode == 0 and "18 passed" in done.stdout, done.stdout + done.stderr
    ran = [lines(tmp_path / f"test_{name}.ran") for name in names]
    assert [len(processes) for processes in ran] == [6, 6, 6]
    assert [len(set(processes)) for processes in ran] == [1, 1, 1]
    used = {process for processes in ran for process in processes}
    assert len(used) == 2
    assert sorted(lines(tmp_path / "begun")) == sorted(lines(tmp_path / "ended")) == sorted(used)
    assert sorted(lines(tmp_path / "files_ended")) == [f"test_{name}.py" for name in names]
    (reader,) = lines(tmp_path / "read")
    assert reader not in used
    made = {path.resolve() for path in (tmp_path / "base").glob("slot[01]/*/mine")}
    assert len(made) == 18


def test_a_process_that_dies_fails_one_test(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", tests=DYING)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "2 failed, 8 passed, 1 warning" in done.stdout, done.stdout + done.stderr
    assert "its process ended with 7" in done.stdout
    assert "assert 1 == 2" in done.stdout and "what it said" in done.stdout
    assert "mind the gap" in done.stdout and "said by" not in done.stdout


def test_what_fails_at_the_end_of_a_process_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    (tmp_path / "bad").touch()
    done = run(tmp_path)
    assert done.returncode == 1
    assert "12 passed, 2 errors" in done.stdout, done.stdout + done.stderr


def test_the_first_failure_may_end_all(tmp_path: Path) -> None:
    write(tmp_path, "a", tests="def test_it(): assert 0\n" + DYING.replace("os._exit(7)", "1"))
    done = run(tmp_path, "-x")
    assert done.returncode == 1
    assert "1 failed" in done.stdout and "stopping after 1 failures" in done.stdout, done.stdout


def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", tests=TESTS + "    import time; time.sleep(600)\n")
    running = subprocess.Popen(
        command(tmp_path), env=env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until(lambda: len(lines(tmp_path / "test_a.ran") + lines(tmp_path / "test_b.ran")) == 2)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 2 and "KeyboardInterrupt" in said, said
    assert sorted(lines(tmp_path / "ended")) == sorted(lines(tmp_path / "begun"))
    for process in lines(tmp_path / "begun"):
        assert not Path(f"/proc/{process}").exists()


def test_processes_end_with_the_first_one(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", tests=TESTS + "    import time; time.sleep(0.05)\n")
    with subprocess.Popen(command(tmp_path), env=env(), stdout=subprocess.DEVNULL) as running:
        until(lambda: len(lines(tmp_path / "begun")) == 2)
        running.kill()
    for process in lines(tmp_path / "begun"):
        until(lambda process=process: not Path(f"/proc/{process}").exists())


def test_one_process_has_the_spark_session() -> None:
    spark = Path(__file__).parents[1] / "spark"
    for name in ("test_hist_streams.py", "test_sink_append.py"):
        assert slots.share_of(spark / name) == "spark"
    alone = spark / "test_sink_rows.py"
    assert slots.share_of(alone) == str(alone)
