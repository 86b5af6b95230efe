"""How many jobs a worker has, as it counts them while they come, end and come again."""

from __future__ import annotations

import asyncio

from tuque import aio
from tuque.client.api import Job
from tuque.worker.app.decisions import Release
from tuque.worker.pools.pools import ThreadPool
from tuque.worker.run.job_runner import JobRunner
from tuque.worker.run.jobs import WorkerSettings

OF_ANOTHER_VERSION = Job(
    "q", "D-0a1b2c3d-aaaaaaaaaaaaaaaaaaaaaaaa-05a1", b'{"task":"unknown"}', attempt=1
)


def test_a_job_that_comes_again_before_its_reply_counts_once() -> None:
    job = OF_ANOTHER_VERSION

    async def main() -> list[tuple[int, int, int]]:
        async with aio.Client() as client:
            runner = JobRunner({}, client, ThreadPool({}, 1, client.close), WorkerSettings(("q",)))
            seen: list[tuple[int, int, int]] = []

            def look() -> None:
                seen.append((len(runner._held), runner._settling, runner._there))

            runner._accept([job])  # an unknown task: it is given back
            look()
            runner._accept([job])  # before the reply to that
            look()
            runner.on_told(Release(job.id, "-"), 1)
            look()
            runner._accept([job])
            look()
            return seen

    assert asyncio.run(main()) == [(1, 1, 0), (1, 1, 0), (0, 0, 0), (1, 1, 0)]
