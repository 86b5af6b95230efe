"""A job that kills its whole worker: those beside it lose nothing, and it is not tried for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import e2e_tasks as tasks
import pytest
from worker_lab import Did, Program, StartWorker

from lab import RealServer
from tuque import Client
from until import until

INNOCENTS = 20
AT_A_TIME = {"process": "5", "thread": "20"}


@pytest.fixture(autouse=True)
def _app_talks_to_the_node(node: RealServer) -> None:
    tasks.app.use(node.url)


@contextmanager
def kept_up(
    count: int, start_worker: StartWorker, tmp_path: Path, *arguments: str
) -> Iterator[list[Program]]:
    """So many workers, each replaced when it was killed; all that were, and are, there."""
    begun: list[Program] = []
    over = threading.Event()

    def start() -> Program:
        worker = start_worker(*arguments)
        begun.append(worker)
        with (tmp_path / "roots").open("a") as roots:
            roots.write(f"{worker.process.pid}\n")
        return worker

    def watch(worker: Program) -> None:
        while not over.wait(0.05):
            if worker.process.poll() is not None:
                worker = start()

    watchers = [threading.Thread(target=watch, args=(start(),)) for _ in range(count)]
    for watcher in watchers:
        watcher.start()
    try:
        yield begun
    finally:
        over.set()
        for watcher in watchers:
            watcher.join()


@pytest.mark.slow
@pytest.mark.parametrize("in_tube", [False, True])
@pytest.mark.parametrize("pool", ["process", "thread"])
def test_those_beside_a_job_that_kills_its_worker_lose_nothing(
    pool: str,
    in_tube: bool,
    client: Client,
    start_worker: StartWorker,
    did: Did,
    tmp_path: Path,
) -> None:
    """U2.23 A job with `crashes`, and of tasks without runs one with additional deliveries, is
    a suspect: it may have ended a worker with all its processes.

    W6.7 After `crashes-max` of them a job with ATTEMPTS is dead with the cause `crashed`.
    """
    if in_tube:
        client.tube("lost").create("tasks")
    poison = tasks.kills_its_worker.enqueue()
    for number in range(INNOCENTS):
        tasks.is_innocent.enqueue(number)
    arguments = ("--pool", pool, "-c", AT_A_TIME[pool], "--prefetch", "0", "--queues", "lost")
    with kept_up(2, start_worker, tmp_path, *arguments) as begun:
        wanted = {f"end {number}" for number in range(INNOCENTS)}
        until(lambda: wanted <= set(did()), most_s=90)
        until(lambda: client.result(poison.id).state == "dead", most_s=90)
        letter = client.dead_show(poison.id)
        assert (letter.cause, letter.crashes, letter.attempts) == ("crashed", 3, 0)
        assert letter.reason == "silent for 2 s: its worker was lost 3 times (crashes-max 3)"
        letters = list(tasks.app.dead.list("lost" if in_tube else "lost.dead"))
        assert [one.id for one in letters] == [poison.id]
        assert sum(line.startswith("poison") for line in did()) == 3
        assert len(begun) >= 4
