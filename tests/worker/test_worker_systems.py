"""Workers on macOS, as far as a fake platform shows it (SPEC U4.9; tests/support/lacking.py)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import e2e_tasks as tasks
import process_tasks
import pytest
import test_worker_crashes as crashes
import test_worker_processes as processes
from test_worker_crashes import (
    children_of,
    is_alive,
    test_a_lone_job_that_ends_the_process_is_counted,
    test_neighbours_of_a_job_that_ends_the_process_are_not_counted,
    test_the_next_process_says_how_runs_ended,
    test_the_process_may_be_killed_from_outside,
)
from test_worker_lifespans import (
    test_a_process_has_it_from_before_its_first_job_to_its_end,
    test_no_job_comes_to_a_process_without_it,
)
from test_worker_middleware import test_each_method_is_called_in_its_turn
from test_worker_processes import test_programs_of_a_task_end_with_it
from worker_lab import HERE, Did, StartWorker

from lab import RealServer
from program import Program, ProgramOn, path_of
from tuque.worker import App
from until import until

__all__ = [  # run here once more, with workers of a fake platform
    "test_a_lone_job_that_ends_the_process_is_counted",
    "test_a_process_has_it_from_before_its_first_job_to_its_end",
    "test_each_method_is_called_in_its_turn",
    "test_neighbours_of_a_job_that_ends_the_process_are_not_counted",
    "test_no_job_comes_to_a_process_without_it",
    "test_programs_of_a_task_end_with_it",
    "test_the_next_process_says_how_runs_ended",
    "test_the_process_may_be_killed_from_outside",
]

IMPORTED = (
    "tuque.aio tuque.worker tuque.worker.main tuque.testing tuque.server.app tuque.web.main "
    "tuque.cli.dev tuque.cli.cluster tuque.cli.bench tuque.cli.prompt.cli tuque.spark.session"
)


ONCE: Final = crashes.TestOnce  # under a name that is not collected


class TestOnceThere:
    """Tasks that run at most once."""

    test_a_job_whose_process_died = ONCE.test_a_job_whose_process_died_is_a_dead_letter


@pytest.mark.slow
class TestCrashesThere:
    """The other rules of crashes, and processes that a task starts."""

    test_the_last_suspect = staticmethod(crashes.test_the_last_suspect_runs_alone_as_well)
    test_a_limit = staticmethod(crashes.test_a_job_that_ends_its_process_dies_at_its_limit)
    test_again = staticmethod(
        crashes.test_a_job_that_ends_its_process_again_and_again_holds_up_no_neighbour
    )
    test_starving = staticmethod(crashes.test_jobs_that_end_their_process_starve_no_queue)
    test_a_stop_between_two_processes = (
        ONCE.test_a_worker_told_to_stop_between_two_processes_leaves_nothing_unsaid
    )
    test_a_stop_while_the_next_one_loads = (
        ONCE.test_a_worker_told_to_stop_while_the_next_process_loads_leaves_nothing_unsaid
    )
    test_processes_of_a_task = staticmethod(processes.test_a_task_ends_its_own_processes)


@pytest.fixture(autouse=True)
def _app_talks_to_the_node(node: RealServer) -> None:
    tasks.app.use(node.url)
    process_tasks.app.use(node.url)


@pytest.fixture
def start_worker(node: RealServer, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts workers that have no more than macOS has."""
    started: list[Program] = []

    def start(*arguments: str, app: str = "e2e_tasks:app", **env: str) -> Program:
        log = tmp_path / f"worker-{len(started) + 1}.log"
        words = ("worker", app, "--url", node.url, "--app-dir", str(HERE), *arguments)
        started.append(ProgramOn("macos", log, *words, OUT=str(tmp_path), **env))
        return started[-1]

    yield start
    for program in started:
        program.kill()


def test_all_can_be_imported_there() -> None:
    """U4.9 A worker needs nothing of Linux alone."""
    code = (
        "import importlib, os, select, sys\n"
        "assert not hasattr(os, 'memfd_create') and not hasattr(select, 'epoll')\n"
        "assert not os.path.exists('/proc/self/statm')\n"
        "for name in sys.argv[1:]: importlib.import_module(name)"
    )
    env = {**os.environ, "PYTHONPATH": path_of("macos")}
    subprocess.run([sys.executable, "-c", code, *IMPORTED.split()], env=env, check=True, timeout=60)


def test_a_process_that_was_stopped_is_known_there() -> None:
    """U13.2 For a process that was stopped (SIGSTOP) nobody sends it, and its jobs come back after
    RETRY.
    """
    code = (
        "import os, signal, subprocess, sys, time\n"
        "from tuque.worker.pools.systems import is_stopped\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "assert not is_stopped(child.pid)\n"
        "child.send_signal(signal.SIGSTOP)\n"
        "ends = time.monotonic() + 30\n"
        "while not is_stopped(child.pid): assert time.monotonic() < ends\n"
        "child.kill()\n"
        "while is_stopped(child.pid): assert time.monotonic() < ends\n"
        "assert child.wait() == -9 and not is_stopped(child.pid)"
    )
    env = {**os.environ, "PYTHONPATH": path_of("macos")}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)


def adds_three(one: int, other: int, third: int) -> int:
    """The task `adds` of a newer version."""
    return one + other + third


@pytest.mark.parametrize("pool", ["thread", "process", "async"])
def test_each_pool_runs_tasks_there(pool: str, node: RealServer, start_worker: StartWorker) -> None:
    """U4.9 Where it has no `/proc`, the worker asks `ps` for the memory of a process, at most
    every 5 s"""
    newer = App(node.url)
    newer.task(queue="q", name=tasks.adds.name)(adds_three).enqueue(1, 2, 3)
    newer.close()
    worker = start_worker("--pool", pool, "-c", "1", "--max-memory", "9000")
    worker.says("adds does not take a call, which is given back")
    assert tasks.adds.enqueue(1, 2).result(60) == 3
    worker.signal(signal.SIGTERM)
    worker.ends(0)
    assert ("does not end a process with its parent" in worker.text) == (pool != "process")
    assert "no effect" not in worker.text


def test_the_memory_that_ps_shows_is_limited(start_worker: StartWorker) -> None:
    """U4.9 Where it has no `/proc`, the worker asks `ps` for the memory of a process, at most
    every 5 s"""
    worker = start_worker("--max-memory", "5")
    worker.ends(1)
    assert re.search(r"--max-memory 5: the process has [1-9]\d+ MB", worker.text)


def test_a_worker_says_that_no_memory_is_shown(start_worker: StartWorker, tmp_path: Path) -> None:
    """U4.9 Without `ps`, `--max-memory` has no effect."""
    worker = start_worker("--max-memory", "5", PATH=str(tmp_path))
    worker.says("--max-memory 5 has no effect")
    assert tasks.adds.enqueue(1, 2).result(60) == 3


def test_a_worker_ends_with_its_parent_there(start_worker: StartWorker, did: Did) -> None:
    """U4.9 Where the system does not end a process with its parent, a pipe shows the worker the
    end of its parent, and it ends with all that its tasks have started.
    """
    worker = start_worker("-c", "1", app="process_tasks:app")
    process_tasks.starts_a_program.enqueue(False)
    until(did)
    (program,), (child,) = map(int, did()), children_of(worker.process.pid)
    worker.kill()
    until(lambda: not is_alive(child) and not is_alive(program))
