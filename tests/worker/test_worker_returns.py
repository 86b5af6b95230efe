"""What a worker gives back when it stops after its process has ended."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import e2e_tasks as tasks
import pytest
from test_worker_crashes import children_of
from worker_lab import Did, Program, StartWorker

from lab import RealServer
from tuque import Client, aio
from tuque.worker.run.crash_table import WAITING, Entry
from tuque.worker.run.supervise import jobs_of
from until import until


@pytest.fixture(autouse=True)
def _app_talks_to_the_node(node: RealServer) -> None:
    tasks.app.use(node.url)


def two_that_run(start_worker: StartWorker, did: Did, pool: str = "thread") -> Program:
    """A worker that runs two jobs, which do not end."""
    for name in "ab":
        tasks.may_run_once_more.enqueue(name, "never")
    worker = start_worker("-c", "2", "--pool", pool, "--grace", "1")
    until(lambda: len(did()) == 2)
    return worker


def has_all_back(client: Client, worker: Program) -> None:
    """Both jobs are queued at no cost, and the worker counts them."""
    worker.ends(0)
    assert "stopped: 2 given back" in worker.text
    until(lambda: client.qlen("q") == 2)  # RELEASE may still lie in the socket of the node
    jobs = client.getjob("q", count=2, withcounters=True, with_meta=True)
    assert [(job.nacks, job.attempt, job.crashes) for job in jobs] == [(0, 1, 0)] * 2


@pytest.mark.parametrize("pool", ["thread", pytest.param("async", marks=pytest.mark.slow)])
def test_suspects_go_back_if_the_worker_was_stopped_before_they_wait(
    pool: str, client: Client, start_worker: StartWorker, did: Did
) -> None:
    """U2.14 RELEASE names the run that the broker has of a job, also of one that waits to run
    apart, and from the next process.
    """
    worker = two_that_run(start_worker, did, pool)
    (child,) = children_of(worker.process.pid)
    os.kill(worker.process.pid, signal.SIGSTOP)
    os.kill(child, signal.SIGKILL)
    worker.signal(signal.SIGTERM)
    os.kill(worker.process.pid, signal.SIGCONT)
    has_all_back(client, worker)


def test_suspects_go_back_while_they_wait(
    client: Client, start_worker: StartWorker, did: Did
) -> None:
    """U2.14 RELEASE names the run that the broker has of a job, also of one that waits to run
    apart, and from the next process.
    """
    worker = two_that_run(start_worker, did)
    for _ in range(2):  # the second time the process before had not begun them itself
        said = worker.text.count("they run again one at a time")
        (child,) = children_of(worker.process.pid)
        os.kill(child, signal.SIGKILL)
        until(lambda said=said: worker.text.count("they run again one at a time") > said)
    worker.signal(signal.SIGTERM)
    has_all_back(client, worker)


def test_a_run_whose_token_did_not_arrive_is_known_to_the_next_process(
    node: RealServer, client: Client
) -> None:
    """U2.14 RELEASE names the run that the broker has of a job, also of one that waits to run
    apart, and from the next process.
    """
    tasks.until_file.enqueue("x", "never")
    (job,) = client.getjob("q")
    (run,) = client.start(job.id, worker="w")

    async def ask() -> list[Entry]:
        async with aio.Client(node.url) as other:
            return [entry for entry, _ in await jobs_of(other, [Entry(WAITING, 1, job.id)], "w")]

    (entry,) = asyncio.run(ask())
    assert not isinstance(run, Exception)
    assert entry.run == run.run
    assert client.release((job.id, entry.run)) == 1


def test_only_what_the_broker_took_back_is_given_back(
    client: Client, start_worker: StartWorker, did: Did, tmp_path: Path
) -> None:
    """U2.14 The log counts as `given back` only what the broker took back."""
    handles = [tasks.until_file.enqueue(str(at), "go") for at in range(3)]
    worker = start_worker("-c", "1", "--prefetch", "2")
    until(lambda: did() == ["begin 0"] and client.qlen("q") == 0)
    client.ackjob(handles[2].id)
    worker.signal(signal.SIGTERM)
    worker.says("stopping")
    (tmp_path / "go").touch()
    worker.ends(0)
    assert "stopped: 1 done, 1 given back, 1 gone" in worker.text


@pytest.mark.usefixtures("own_node")
def test_what_was_not_yet_given_back_is_so_by_the_next_process(
    node: RealServer, client: Client, start_worker: StartWorker, did: Did
) -> None:
    """U2.14 it reports how the runs ended, and gives back the other jobs."""
    for name in "ab":
        tasks.may_run_once_more.enqueue(name, "never")
    tasks.until_file.enqueue("c", "never")
    worker = start_worker("-c", "2", "--prefetch", "1", "--grace", "60")
    until(lambda: len(did()) == 2 and client.qlen("q") == 0)
    node.kill()
    worker.signal(signal.SIGTERM)
    worker.says("broker lost (reports of runs)")
    (child,) = children_of(worker.process.pid)
    os.kill(child, signal.SIGKILL)
    node.start()
    worker.ends(0)
    until(lambda: client.qlen("q") == 3)
    assert "it held 3 jobs" in worker.text
