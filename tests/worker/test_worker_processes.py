"""Processes of tasks: a worker and what its tasks start leave each other alone (SPEC U13)."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM

import process_tasks as tasks
import pytest
from test_worker_crashes import is_alive
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque import Client
from until import until

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


@pytest.mark.parametrize("pool", POOLS)
def test_a_task_may_break_standard_output(start_worker: StartWorker, pool: str) -> None:
    """U13.7 If a task leaves standard output or standard error closed or broken, the worker sends
    what is written there to the null device after the run. Neither the run nor the exit code of the
    worker changes.
    """
    worker = start_worker("-c", "1", "--pool", pool, app="process_tasks:app")
    for how in ("no stream", "closed", "broken pipe"):
        assert tasks.breaks_output.enqueue(how).result(60) == how
    worker.signal(SIGTERM)
    worker.ends(0)


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


@pytest.mark.parametrize("how", ["limit", "cancel", "grace", "parent", "parent, interpreter held"])
def test_programs_of_a_task_end_with_it(start_worker: StartWorker, did: Did, how: str) -> None:
    """U13.4 Each process of `--pool process` leads a group of its own. What its tasks started ends
    with it.
    """
    worker = start_worker("-c", "1", "--pool", "process", "--grace", "1", app="process_tasks:app")
    limit_s = 1.0 if how == "limit" else None
    task = tasks.starts_a_program.options(time_limit_s=limit_s)
    run = task.enqueue("held" in how)
    until(did)
    (program,) = map(int, did())
    assert is_alive(program)
    if how == "cancel":
        run.cancel()
    elif how == "grace":
        worker.signal(SIGTERM)
    elif "parent" in how:
        worker.signal(SIGKILL)
    until(lambda: not is_alive(program))


FORKED = {"returns": 0, "raises": 1, "exits": 7}


@pytest.mark.parametrize("pool", POOLS)
def test_a_forked_child_ends_with_its_task(start_worker: StartWorker, did: Did, pool: str) -> None:
    """U13.5 A process that a task, a hook or middleware forked ends where that function ends in it:
    by return, by an exception or by `sys.exit`.

    One that was forked in a thread of the loop, by `asyncio.to_thread` or `run_in_executor(None,
    ...)`, ends where the function of that thread ends in it.
    """
    ways = tasks.forks, tasks.forks_async, tasks.forks_in_a_thread
    runs = [task.enqueue(how) for how in FORKED for task in ways]
    waits = tasks.forks_and_waits.enqueue()
    others = [str(number) for number in range(12)]
    last = [tasks.notes.enqueue(text) for text in others]
    worker = start_worker("-c", "1", "--pool", pool, app="process_tasks:app")
    assert [run.result(60) for run in runs] == [code for code in FORKED.values() for _ in ways]
    assert waits.result(60) == 1
    for run in last:
        run.result(60)
    assert sorted(did()) == sorted(others)  # no child has run one
    assert "ValueError: in the child" in worker.text
    worker.signal(SIGTERM)
    worker.ends(0)
