"""An app with hooks and middleware; each writes a line to OUT/did: who, the task, and more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from e2e_tasks import note

from tuque.errors import Cancelled
from tuque.worker import App, Backoff, Failure, Job, Outgoing, RetryLater, current_job

app = App()
SOON = Backoff(first_s=0.05, max_s=0.1)
seen: ContextVar[str] = ContextVar("seen", default="nothing")


def short(job: Job) -> str:
    return job.task.rpartition(".")[2]


@app.on_enqueue
def out(call: Outgoing) -> None:
    if call.kwargs.get("refuse"):
        raise PermissionError(f"no {call.task.rpartition('.')[2]} today")
    call.headers["trace"] = f"t-{len(call.args)}"


@app.middleware
@contextmanager
def plain(job: Job) -> Iterator[None]:
    note(f"enter {short(job)} {job.headers['trace']}")
    try:
        yield
    except ValueError as err:
        note(f"saw {err}")
        if str(err) != "take it away":
            raise
    finally:
        note(f"leave {short(job)}")


@app.middleware
@asynccontextmanager
async def later(job: Job) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    if job.headers["trace"] == "t-3":
        raise RuntimeError("middleware says no")
    token = seen.set("middleware")
    async with asyncio.timeout(60):
        yield
    seen.reset(token)


@app.on_start
async def starts(job: Job) -> None:
    await asyncio.sleep(0)
    note(f"start {short(job)} {current_job().attempt}")


@app.on_success
def succeeds(job: Job, result: object) -> None:
    note(f"success {short(job)} {result}")
    if short(job) == "hook_blocks":
        time.sleep(3600)
    raise OSError("a hook that fails")


@app.on_failure
def fails(job: Job, failure: Failure) -> None:
    note(f"failure {short(job)} {failure.kind} {type(failure.error).__name__}")
    raise SystemExit("a hook that fails")


@app.on_retry
async def comes_again(job: Job, failure: Failure) -> None:
    assert failure.delay_s is not None
    note(f"retry {short(job)} {failure.kind} {job.attempt}")


@app.on_dead
def dies(job: Job, failure: Failure) -> None:
    note(f"dead {short(job)} {failure.kind} {failure.queue}")
    raise OSError("a hook that fails")


@app.task(queue="q")
def adds(one: int, other: int, *, refuse: bool = False) -> int:
    asyncio.run(asyncio.sleep(0))  # no loop runs here
    note(f"run adds {seen.get()}")
    return one + other


@app.task(queue="q")
async def adds_async(one: int, other: int) -> int:
    note(f"run adds_async {seen.get()}")
    return one + other


@app.task(queue="q", attempts=2, backoff=SOON, keep_s=60)
def breaks(text: str) -> None:
    raise ValueError(text)


@app.task(queue="q", attempts=1, keep_s=60)
def three(one: int, two: int, three: int) -> None:
    note("never")


@app.task(queue="q", keep_s=60)
def once_more(text: str) -> None:
    if current_job().starts == 1:
        raise RetryLater("not now", delay_s=0.05)


@app.task(queue="q", attempts=2, backoff=SOON, keep_s=60)
def ends_its_process(text: str) -> None:
    os._exit(7)


@app.task(queue="q", attempts=1, time_limit_s=0.3, keep_s=60)
def hangs(text: str) -> None:
    while True:  # what it is told to do, it does not do
        with contextlib.suppress(Cancelled):
            time.sleep(3600)


@app.task(queue="once", retry_s=0, keep_s=60)
def at_most_once(text: str) -> str:
    if text == "fail":
        raise ValueError(text)
    return f"{text} {current_job().headers['trace']}"


@app.task(queue="q", keep_s=60)
def hook_blocks(text: str) -> None:
    pass


@app.task(queue="tube")
def in_a_tube(text: str) -> None:
    note(f"run in_a_tube {current_job().headers['trace']}")
