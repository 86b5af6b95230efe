"""SPEC U4: options of the program: burst, memory, reload, health, and the log as JSON."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import e2e_tasks as tasks
import pytest
from click.testing import CliRunner
from noting import Noting
from test_worker_crashes import children_of, is_alive
from worker_lab import Did, Program, StartWorker

from lab import RealServer
from own_log import own_lines
from tuque import Client
from tuque.worker import Backoff
from tuque.worker.main import worker
from tuque.worker.pools.systems import has_room
from until import until
from world import World


@pytest.fixture(autouse=True)
def _app(node: RealServer) -> None:
    tasks.app.use(node.url)


def test_a_burst_ends_with_the_queues(world: World) -> None:
    """U4.1 `--burst`: the worker ends when each node of its queues had no job in one wait, no
    queue is unreachable, and it holds no job. The exit code is 3 if a job failed and was not
    done since, else 0.

    U2.4 `unknown_keep_s` after the job was added it is FAIL FINAL."""
    noting, client = Noting(), world.client()

    def burst(concurrency: int = 1) -> bool:
        """Whether a job failed and was not done since."""
        shift = world.at_work(noting.app, concurrency=concurrency, is_burst=True)
        assert shift.ends()
        return bool(shift.worker.story.unwell)

    world.worker(noting.app)
    handles = noting.adds.enqueue_many(noting.adds.call(at, 1) for at in range(50))
    at_once = noting.third_time_lucky.options(backoff=Backoff(0, 0))
    at_once.enqueue("x")
    later = noting.adds.options(delay_s=3600).enqueue(1, 2)
    assert not burst(4)
    assert [handle.status().state for handle in handles] == ["done"] * 50
    assert noting.did == ["x 1", "x 2", "x 3"]
    assert later.status().state == "scheduled"
    noting.gives_up.enqueue("x")
    assert burst()
    assert not burst()
    for body in ("no call, and without ATTEMPTS", '{"task":"no.such","unknown_keep_s":0}'):
        id = client.addjob("q", body)
        assert burst()
        assert client.result(id).state == "dead"


@pytest.mark.slow  # its short sibling is the next one
@pytest.mark.parametrize("pool", ["thread", "process", "async"])
def test_the_exit_code_of_a_burst(pool: str, start_worker: StartWorker) -> None:
    """U4.1 The exit code is 3 if a job failed and was not done since, else 0."""
    handles = tasks.adds.enqueue_many(tasks.adds.call(at, 1) for at in range(50))
    start_worker("--burst", "--pool", pool, "-c", "4").ends(0)
    assert [handle.status().state for handle in handles] == ["done"] * 50
    tasks.gives_up.enqueue("x")
    start_worker("--burst", "--pool", pool, "-c", "1").ends(3)


def test_a_burst_goes_on_while_jobs_of_a_queue_run_apart(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    """U4.1 `--burst`: the worker ends when each node of its queues had no job in one wait, no
    queue is unreachable, and it holds no job. The exit code is 3 if a job failed and was not
    done since, else 0.
    """
    tasks.ends_its_process_or_lasts.enqueue(0)
    calls = [tasks.ends_its_process_or_lasts.call(0.03) for _ in range(15)]
    tasks.ends_its_process_or_lasts.enqueue_many(calls)
    start_worker("--burst", "-c", "2").ends(3)
    assert did() == ["lasted"] * 15
    assert client.qlen("q") == 0
    start_worker("--burst", "-c", "2").ends(0)


@pytest.mark.parametrize(
    "pool", ["thread", *(pytest.param(one, marks=pytest.mark.slow) for one in ("process", "async"))]
)
def test_a_process_with_much_memory_is_replaced_and_no_job_lost(
    pool: str, start_worker: StartWorker, did: Did
) -> None:
    """U4.2 `--max-memory`: a child process with more is replaced after its job. A worker
    process with more takes no further jobs, ends those that it has, and another one starts.
    Nothing is given back or counted.
    """
    for number in range(5):
        tasks.grows.enqueue(number, 150)
    once = [tasks.only_once_result.enqueue(at) for at in range(20)]
    worker = start_worker("--max-memory", "180", "--pool", pool, "-c", "2", "--prefetch", "1")
    assert [handle.result(60) for handle in once] == list(range(20))
    until(lambda: len([line for line in did() if line.startswith("grown")]) == 5)
    pids = {line.split()[2] for line in did() if line.startswith("grown")}
    assert len(pids) > 1
    worker.says("has more than 180 MB")
    worker.signal(signal.SIGTERM)
    worker.ends(0)
    for word in ("failed", "crashed", "given back,"):
        assert word not in worker.text


def test_a_taken_port_of_metrics_is_the_only_fault(start_worker: StartWorker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        worker = start_worker("--metrics-port", str(taken.getsockname()[1]))
        worker.ends(1)
    assert "choose another --metrics-port" in worker.text
    assert "worker ready" not in worker.text and "broker lost" not in worker.text


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_limit_below_the_idle_size_is_refused_at_the_start(
    pool: str, start_worker: StartWorker
) -> None:
    """U4.6 If the first process has more than `--max-memory` before its first job, the start
    fails.
    """
    worker = start_worker("--max-memory", "5", "--pool", pool, "-c", "1")
    worker.ends(1)
    assert "--max-memory 5: the process has" in worker.text
    assert "set more" in worker.text


def test_a_later_process_over_the_limit_is_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """U4.6 If a later one does, that is logged and it is not replaced."""
    assert has_room(None, False) and has_room(1 << 20, False) and not own_lines(caplog)
    assert not has_room(1, False)
    assert "before its first job, --max-memory is 1: it is not replaced" in caplog.text


@pytest.mark.skipif(
    importlib.util.find_spec("watchfiles") is None,
    reason="watchfiles is not installed: make setup-dev",
)
def test_a_changed_file_starts_the_worker_anew(
    tmp_path: Path, node: RealServer, client: Client
) -> None:
    """
    U4.3 `--reload`: a change of a Python file in the app's directory stops the worker as TERM
    does, and starts it anew.
    """
    source = tmp_path / "changing.py"
    code = (
        "import short_waits\nfrom tuque.worker import App\napp = App()\n"
        "@app.task\ndef tells() -> str:\n    return %r\n"
    )
    source.write_text(code % "old")
    program = Program(
        tmp_path / "worker.log",
        "worker",
        "changing:app",
        "--app-dir",
        str(tmp_path),
        "--url",
        node.url,
        "--reload",
        PYTHONPATH=os.pathsep.join(filter(None, sys.path)),  # as the tests have it
    )
    try:
        assert answer(client) == "old"
        source.write_text("syntax error")
        program.says("changed: changing.py")
        program.says("SyntaxError")
        source.write_text(code % "newer")  # another size: within a second Python goes by that
        until(lambda: answer(client) == "newer")
        program.signal(signal.SIGTERM)
        program.ends(0)
    finally:
        program.kill()


@pytest.mark.skipif(
    importlib.util.find_spec("watchfiles") is None,
    reason="watchfiles is not installed: make setup-dev",
)
def test_a_worker_ends_with_what_starts_it_anew(start_worker: StartWorker) -> None:
    """It would run old code beside the next one."""
    program = start_worker("--reload")
    program.says("worker ready")
    (child,) = children_of(program.process.pid)
    (process,) = children_of(child)
    program.kill()
    until(lambda: not is_alive(child) and not is_alive(process), most_s=10)


def answer(client: Client) -> Any:
    id = client.addjob("default", b'{"task":"changing.tells"}', attempts=9, keep=60, retry=30)
    found = client.result(id, wait_ms=30_000).result
    return None if found is None else json.loads(found)


def test_reload_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    ran = CliRunner().invoke(worker, ["e2e_tasks:app", "--reload"])
    assert ran.exit_code == 1
    assert "--reload needs the package watchfiles; run: pip install 'tuque[reload]'" in ran.output


def test_the_health_of_a_worker_is_seen(
    tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """
    U4.4 `--check` of it is 0 if it is no older than 30 s, else 1; an outage of the broker is shown
    and is no failure.

    U2.14 A process that got the signal and cannot reach the broker within its grace time is the
    last one: it logs how many jobs the retry time brings back. A second signal shortens this to
    2 s.
    """
    path, noting = tmp_path / "health", Noting()
    caplog.set_level(logging.INFO, "tuque.worker")

    def checked() -> tuple[int, str]:
        with world.loop.clocks():
            ran = CliRunner().invoke(worker, ["--check", str(path)])
        return ran.exit_code, ran.output

    assert checked() == (1, f"{path} is not there: no worker runs with --health-file {path}\n")
    shift = world.at_work(noting.app, health_file=str(path))
    noting.until_go.enqueue("x")
    world.until(lambda: "1 jobs run" in checked()[1])
    assert checked()[0] == 0
    world.kill(0)
    world.until(lambda: "without its broker for" in checked()[1])
    assert checked()[0] == 0
    noting.go.set()
    world.until(lambda: "end x" in noting.did)
    shift.stop()
    world.until(lambda: "stopping: " in caplog.text)
    began_ms = world.now_ms
    shift.stop()
    assert shift.ends()
    assert world.now_ms - began_ms <= 2_500, "it waited for its grace time of 25 s"
    assert "the broker has no report of 1 jobs; their retry time brings them back" in caplog.text
    world.pass_ms(31_000)
    assert checked()[0] == 1
    assert re.fullmatch(rf"worker {os.getpid()} has said nothing for \d+ s\n", checked()[1])
    path.write_text("nonsense")
    assert checked()[0] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("own_node")
def test_a_worker_without_its_broker_ends_after_two_signals(
    tmp_path: Path, node: RealServer, start_worker: StartWorker, did: Did
) -> None:
    """U2.14 A process that got the signal and cannot reach the broker within its grace time is
    the last one
    """
    path = tmp_path / "health"
    program = start_worker("--health-file", str(path))
    tasks.until_file.enqueue("x", "go")
    until(lambda: "1 jobs run" in checked(path)[1])
    node.end()
    until(lambda: "without its broker for" in checked(path)[1])
    (tmp_path / "go").touch()
    until(lambda: "end x" in did())
    program.signal(signal.SIGTERM)
    program.says("stopping: ")
    program.signal(signal.SIGTERM)
    began_s = time.monotonic()
    program.ends(0)
    assert time.monotonic() - began_s < 15, "it waited for its grace time of 25 s"
    assert program.text.count("worker ready") == 1
    assert "the broker has no report of 1 jobs; their retry time brings them back" in program.text
    assert checked(path)[0] == 1


def checked(path: Path) -> tuple[int, str]:
    ran = CliRunner().invoke(worker, ["--check", str(path)])
    return ran.exit_code, ran.output


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_the_log_is_one_object_a_line(pool: str, start_worker: StartWorker) -> None:
    """
    U4.5 `--log json`: each line is one object with time, level, process, logger and message; of a
    job also job, task, queue, attempt, the header `tenant` and what happened; a traceback is in it.
    """
    acme = {"tenant": "acme"}
    failed = tasks.bad_address.options(attempts=1, headers=acme).enqueue("x\n\x1b")
    done = tasks.adds.options(headers=acme).enqueue(1, 2)
    program = start_worker("--log", "json", "-v", "--max-jobs", "2", "-c", "1", "--pool", pool)
    program.ends(0)
    lines = [json.loads(line) for line in program.text.splitlines()]
    assert all({"time", "level", "process", "logger", "message"} <= set(line) for line in lines)
    assert {"worker_ready", "worker_stopped"} <= {line.get("event") for line in lines}
    of_job = {line["event"]: line for line in lines if "event" in line}
    assert of_job["job_done"]["job"] == done
    assert of_job["job_dead"]["job"] == failed
    dies = of_job["job_failed"]
    assert {k: dies[k] for k in ("level", "task", "queue", "attempt", "tenant")} == {
        "level": "warning",
        "task": "e2e_tasks.bad_address",
        "queue": "q",
        "attempt": 1,
        "tenant": "acme",
    }
    assert "Traceback" in dies["trace"]
    (own,) = [line for line in lines if line["message"].startswith("to x")]
    assert (own["job"], own["logger"], own["tenant"]) == (failed, "tests", "acme")
