"""The worker program as its node lists it: its runs, its loss, and its orders (SPEC U6)."""

from __future__ import annotations

import os
import re
import signal

import e2e_tasks as tasks
import pytest
from noting import Noting
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque import Client
from tuque.client.commands.operate import WorkerInfo
from tuque.worker import App
from tuque.worker.run.registration import fitting
from until import until
from world import World


@pytest.fixture(autouse=True)
def _app_talks_to_the_node(node: RealServer) -> None:
    tasks.app.use(node.url)


def only(client: Client) -> WorkerInfo:
    """The only worker."""
    (found,) = client.workers()
    return found


def fetches(client: Client) -> bool:
    """Whether somebody waits in GETJOB."""
    return any(one["cmd"] == "getjob" and "b" in one["flags"] for one in client.client_list())


def test_a_worker_is_listed_with_what_it_runs(world: World) -> None:
    """U6.1 The worker sends WORKER HERE when it is ready and then every 3 s"""
    noting, client = Noting(), world.client()
    shift = world.at_work(noting.app, concurrency=3, grace_s=0.5, queues=("q", "other"))
    handle = noting.until_go.enqueue("x")
    world.until(lambda: list(client.workers()) and only(client).runs)
    found = only(client)
    assert (found.state, found.slots, found.queues) == ("alive", 3, ("q", "other"))
    # U6.4 The name of a worker is host/pid-mark: the pid of its first process, and 8 random hex
    # digits.
    assert re.fullmatch(rf"{re.escape(found.host)}/{os.getpid()}-[0-9a-f]{{8}}", found.name)
    assert found.pid == os.getpid()
    (run,) = found.runs
    assert (run.id, run.queue, run.state, run.attempt) == (handle.id, "q", "running", 1)
    assert run.task == "until_go"
    shift.worker.quiet()  # told with its next word
    world.until(lambda: (only(client).state, only(client).busy) == ("quiet", 1), 3_500)
    shift.stop()
    assert shift.ends()
    world.until(lambda: list(client.workers()) == [])


def test_a_worker_says_the_version_of_its_app(client: Client, start_worker: StartWorker) -> None:
    """U6.3 APP is the version of the App (`App(version=...)`), or `--app-version`"""
    start_worker("-c", "1", "--app-version", "shop 42")
    until(lambda: list(client.workers()))
    assert only(client).app == "shop 42"
    (deploy,) = client.worker_deploys()
    assert (deploy.app, deploy.queues) == ("shop 42", only(client).queues)
    assert App(version="41").version == "41"
    assert 0 < only(client).since_ms - deploy.at_ms < 60_000, "since its process began"


def test_a_worker_whose_clock_is_wrong_says_how_long_it_runs(
    client: Client, start_worker: StartWorker
) -> None:
    """U6.3 AGE is for how long the process of the worker runs, by a clock that nobody sets."""
    start_worker("-c", "1", "--app-version", "shop 42", app="clock_tasks:app")
    until(lambda: list(client.workers()))
    (deploy,) = client.worker_deploys()
    assert 0 < only(client).since_ms - deploy.at_ms < 60_000


def test_a_worker_that_falls_silent_is_lost_within_10_s(world: World) -> None:
    """O11.2 a killed one shows as lost within 10 s."""
    noting, client = Noting(), world.client()
    shift = world.at_work(noting.app)
    handle = noting.until_go.enqueue("x")
    world.until(lambda: list(client.workers()) and only(client).runs)
    world.pass_ms(60_000)
    assert (only(client).state, only(client).busy) == ("alive", 1)
    shift.kill()
    began_ms = world.now_ms
    world.until(lambda: only(client).state == "lost", 10_000)
    assert world.now_ms - began_ms > 5_000, "two of its words may be late"
    (run,) = only(client).runs
    assert (run.id, run.state) == (handle.id, "waiting")
    assert run.due_ms is not None
    assert 30_000 < run.due_ms < 60_000


@pytest.mark.slow
def test_a_killed_worker_is_lost_within_10_s(client: Client, start_worker: StartWorker) -> None:
    """O11.2 a killed one shows as lost within 10 s."""
    handle = tasks.until_file.enqueue("x", "never")
    worker = start_worker("--pool", "process", "-c", "1")
    until(lambda: list(client.workers()) and only(client).runs)
    pid = only(client).pid
    os.kill(pid, signal.SIGKILL)

    def is_lost() -> bool:
        found = only(client)
        assert found.state == "lost" or found.heard_ms < 10_000
        return found.state == "lost"

    until(is_lost)
    (run,) = only(client).runs
    assert (run.id, run.state) == (handle.id, "waiting")
    assert run.due_ms is not None
    assert 30_000 < run.due_ms < 60_000
    worker.ends(-signal.SIGKILL)


@pytest.mark.parametrize("pool", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_a_worker_obeys_orders(
    pool: str, client: Client, start_worker: StartWorker, did: Did
) -> None:
    """U6.2 The order `quiet` works as the signal TSTP, `stop` as TERM; each once."""
    worker = start_worker("--pool", pool, "-c", "1")
    until(lambda: list(client.workers()))
    until(lambda: fetches(client))
    name = only(client).name
    client.worker_quiet(name)
    worker.says("an operator asks this worker: quiet")
    until(lambda: only(client).state == "quiet")
    until(lambda: not fetches(client))
    tasks.record.enqueue("x")
    assert (did(), client.qlen("q")) == ([], 1)
    client.worker_stop(name)
    worker.ends(0)
    assert worker.text.count("an operator asks this worker: quiet") == 1
    until(lambda: list(client.workers()) == [])


def test_a_worker_of_many_long_queues_names_those_that_fit(client: Client) -> None:
    """O11.6 names of over 8192 bytes together"""
    assert fitting(("a", "b")) == ("a", "b") and len(fitting(("q",) * 101)) == 100
    long = ("ü" * 2_000, "b" * 4_192, "c")
    assert fitting(long) == long[:2]
    assert client.worker_here("w", queues=fitting(long)) == "none"
    (found,) = client.workers()
    assert list(found.queues) == list(long[:2])
