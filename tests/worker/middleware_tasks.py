"""An app with two middlewares and decorators between them; each writes a line to OUT/did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from e2e_tasks import note

from tuque.worker import App, Backoff, Failure, Job, Middleware, Outgoing, RetryLater, current_job

app = App()
SOON = Backoff(first_s=0.05, max_s=0.1)


def short(job: Job) -> str:
    return job.task.rpartition(".")[2]


class Plain(Middleware):
    """Overrides all that there is, with plain functions."""

    def enqueue(self, call: Outgoing) -> None:
        call.headers["by"] = call.headers.get("by", "") + "plain"

    def start(self, job: Job) -> None:
        note(f"plain start {short(job)} {job.headers['by']}")

    @contextmanager
    def around(self, job: Job) -> Iterator[None]:
        note(f"plain enter {short(job)}")
        try:
            yield
        finally:
            note(f"plain leave {short(job)}")

    def success(self, job: Job, result: object) -> None:
        note(f"plain success {short(job)} {result}")

    def failure(self, job: Job, failure: Failure) -> None:
        note(f"plain failure {short(job)} {failure.kind}")

    def retry(self, job: Job, failure: Failure) -> None:
        note(f"plain retry {short(job)} {failure.kind}")

    def dead(self, job: Job, failure: Failure) -> None:
        note(f"plain dead {short(job)} {failure.queue}")

    def cancelled(self, job: Job, failure: Failure) -> None:
        note(f"plain cancelled {short(job)} {failure.kind} {failure.text}")


class Later(Middleware):
    """Overrides some, with coroutines."""

    @asynccontextmanager
    async def around(self, job: Job) -> AsyncIterator[None]:
        note(f"later enter {short(job)}")
        try:
            yield
        finally:
            note(f"later leave {short(job)}")

    async def success(self, job: Job, result: object) -> None:
        await asyncio.sleep(0)
        note(f"later success {short(job)} {result}")

    async def cancelled(self, job: Job, failure: Failure) -> None:
        await asyncio.sleep(0)
        note(f"later cancelled {short(job)}")


app.use(Plain())


@app.on_success
def between(job: Job, result: object) -> None:
    note(f"between success {short(job)} {result}")


app.use(Later())


@app.task(queue="q")
def adds(one: int, other: int) -> int:
    return one + other


@app.task(queue="q")
async def adds_async(one: int, other: int) -> int:
    await asyncio.sleep(0)
    return one + other


@app.task(queue="q", attempts=1, keep_s=60)
def breaks() -> None:
    raise ValueError("oh")


@app.task(queue="q", backoff=SOON, keep_s=60)
def once_more() -> None:
    if current_job().starts == 1:
        raise RetryLater("once more", delay_s=0.05)


@app.task(queue="q", keep_s=60)
async def waits() -> None:
    note("task waits waits")
    await asyncio.sleep(3600)


@app.task(queue="q", keep_s=60)
def waits_plain() -> None:
    note("task waits waits_plain")
    while True:
        time.sleep(0.02)
        current_job().check()
