"""How many Python calls a job costs: of the producer, of the worker. They make up most of its time,
and unlike the time they do not depend on the machine."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Final

import calls_tasks as tasks
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque.worker import App, Outgoing
from until import until

JOBS: Final = 200
TASKS: Final = 1000
ENQUEUE_CALLS: Final = 80  # a job
TASK_CALLS: Final = 140  # a job


def calls_of(function: Any) -> int:
    """The calls of Python functions while this one runs in this thread."""
    count = 0

    def on_event(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(on_event)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_an_enqueue_makes_few_calls(node: RealServer) -> None:
    app = App(node.url)

    @app.task(queue="calls", retry_s=60)
    def double(number: int) -> int:
        return 2 * number

    def enqueue() -> None:
        for number in range(JOBS):
            double.enqueue(number)

    double.enqueue(0)  # connects
    try:
        assert calls_of(enqueue) <= ENQUEUE_CALLS * JOBS
    finally:
        app.close()


def test_a_task_makes_few_calls(node: RealServer, start_worker: StartWorker, did: Did) -> None:
    """In the worker as it ships: its loop, and all of its threads."""
    tasks.app.use(node.url)
    try:
        tasks.begin.enqueue()
        tasks.work.enqueue_many(tasks.work.call(number) for number in range(TASKS))
        tasks.end.enqueue()
    finally:
        tasks.app.close()
    start_worker("-c", "8", app="calls_tasks:app", COUNTED="yes")
    until(did, "count")
    assert float(did()[0].split()[0]) <= TASK_CALLS, "\n".join(did())


def test_a_hook_and_a_tube_that_come_later_are_seen(node: RealServer) -> None:
    app = App(node.url)
    seen: list[str] = []

    @app.task(queue="calls", retry_s=60)
    def double(number: int) -> int:
        return 2 * number

    try:
        first = double.enqueue(0)

        @app.on_enqueue
        def note(out: Outgoing) -> None:
            seen.append(out.task)

        double.enqueue(1)
        assert seen == [double.name]
        app.on_enqueue.functions.clear()
        for job in app.client.getjob("calls", count=2):
            app.client.ackjob(job.id)
        app.client.tube("calls").create("tasks", alone=True)
        later = double.enqueue(2)
        assert later.id != first.id
        assert len(app.client.tube("calls").tasks_by_state("READY")) == 1
    finally:
        app.close()
