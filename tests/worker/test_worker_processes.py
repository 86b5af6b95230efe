"""Processes of tasks: a worker and the programs that its tasks start leave each other alone."""

from __future__ import annotations

from signal import SIGTERM

import process_tasks as tasks
import pytest
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque import Client

POOLS = ("thread", "async", "process")


@pytest.fixture(autouse=True)
def _app(node: RealServer) -> None:
    tasks.app.use(node.url)


def run_some(start_worker: StartWorker, pool: str, method: str, times: int) -> None:
    """Tasks that end their own processes, and a worker that gets its own signals only."""
    worker = start_worker("-c", "2", "--pool", pool, app="process_tasks:app")
    runs = [tasks.has_processes.enqueue(method) for _ in range(times)]
    runs += [tasks.has_processes_async.enqueue(method) for _ in range(times)]
    for run in runs:
        assert run.result(120) == [-SIGTERM, -SIGTERM]
    assert "stopping" not in worker.text
    worker.signal(SIGTERM)
    worker.ends(0)


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_ends_its_own_processes(start_worker: StartWorker, pool: str) -> None:
    """U13.1 A process that a task forks has the handlers of signals that the app has, not those of
    the worker, and no socket of the pool: a signal to it is none to the worker.
    """
    run_some(start_worker, pool, "fork", 2)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("pool", POOLS)
def test_a_task_ends_processes_of_other_kinds(
    start_worker: StartWorker, pool: str, method: str
) -> None:
    """U13.1 A process that a task forks has the handlers of signals that the app has, not those of
    the worker, and no socket of the pool: a signal to it is none to the worker.
    """
    run_some(start_worker, pool, method, 1)


def test_no_task_keeps_heartbeats_from_being_sent(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    """U13.2 No task keeps WORKING from being sent, also one that holds the interpreter of its
    process.
    """
    task = tasks.holds_the_interpreter
    runs = [task.options(queue=f"held-{pool}").enqueue(6.0) for pool in POOLS]
    for pool in POOLS:
        for _ in range(2):  # the second would run what comes back
            start_worker("--pool", pool, "-c", "1", "-Q", f"held-{pool}", app="process_tasks:app")
    assert [run.result(120) for run in runs] == [1, 1, 1]
    assert sorted(did()) == sorted(run.id for run in runs)
    assert [client.result(run).attempt for run in runs] == [1, 1, 1]
