"""How a worker talks to its node: few round trips for many jobs."""

from __future__ import annotations

import asyncio
from typing import Any

from lab import RealServer
from tuque import aio
from tuque.client.commands.calls import Call
from tuque.worker import App
from tuque.worker.pools.pools import ThreadPool
from tuque.worker.run.jobs import WorkerSettings
from tuque.worker.run.worker import Worker

JOBS = 20


class Listening(aio.Client):
    """A client that notes the words of its pipelines."""

    said: list[list[str]]

    async def run_all(self, asked: list[Call[Any]]) -> list[Any]:
        self.said.append([call.name for call in asked])
        return await super().run_all(asked)


def test_the_end_of_a_job_and_the_begin_of_the_next_are_one_round_trip(node: RealServer) -> None:
    app = App(node.url)
    did: list[int] = []

    @app.task(queue="q")
    def note(number: int) -> None:
        did.append(number)

    async def work() -> list[list[str]]:
        async with Listening(node.url) as client:
            client.said = []
            settings = WorkerSettings(("q",), concurrency=1, prefetch=8, max_jobs=JOBS)
            await Worker(app.tasks, client, ThreadPool(app.tasks, 1, app.aclose), settings).run()
            return client.said

    for number in range(JOBS):
        note.enqueue(number)
    said = asyncio.run(work())
    app.close()
    assert did == list(range(JOBS))
    assert said == [["START"], *[["DONE", "START"]] * (JOBS - 1), ["DONE"]]
