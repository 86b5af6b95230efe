"""The app of test_worker_pools.py: tasks that end in every way there is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tuque.errors import Cancelled, NoNode
from tuque.worker import App, Job, Reject, RetryLater, Task, TimeLimit, current_job

app = App("tuque://127.0.0.1:1")
gate = threading.Event()
blocked = threading.Event()


@app.task
def fine(number: int) -> None:
    pass


@app.task
async def fine_async(number: int) -> None:
    await asyncio.sleep(0)


def away(url: str) -> Task[[], None]:
    """A task of an app whose broker was away when it was asked last."""
    other = App(url)

    @other.task(name="nothing")
    def nothing() -> None:
        pass

    with contextlib.suppress(NoNode):
        nothing.enqueue()
    return nothing


@app.task
def enqueues(url: str) -> None:
    away(url).enqueue()


@app.task
async def enqueues_async(url: str) -> None:
    await away(url).enqueue_async()


@app.task
def fails(text: str) -> None:
    raise ValueError(text)


@app.task
async def fails_async(text: str) -> None:
    raise ValueError(text)


@app.task
def later(delay_s: float) -> None:
    raise RetryLater("later", delay_s=delay_s)


@app.task
def rejects(text: str) -> None:
    raise Reject(text)


@app.task
def exits() -> None:
    sys.exit(3)


@app.task
def leaves_hard(code: int) -> None:
    os._exit(code)


class NotAsked(type):
    """A class of classes that cannot say what is one of them."""

    def __instancecheck__(cls, instance: object) -> bool:
        raise LookupError("no instance is known")


class Cause(Exception, metaclass=NotAsked):
    """An exception that cannot be told from others."""


@app.task(give_up_on=(Cause,))
def fails_unjudged(text: str) -> None:
    raise ValueError(text)


@app.task(give_up_on=(Cause,))
async def fails_unjudged_async(text: str) -> None:
    raise ValueError(text)


def by_words(error: Exception, job: Job) -> bool | float:
    """Returns what the error's text says; raises and returns other things, too."""
    answers: dict[str, Any] = {"again": True, "final": False, "in 7": 7.5, "odd": "odd"}
    return answers[str(error)]  # type: ignore[no-any-return]  # one is wrong


@app.task(retry_on=(LookupError, ValueError), give_up_on=(KeyError,), retry_if=by_words)
def sorts(kind: str, text: str) -> None:
    raise {"key": KeyError, "value": ValueError, "os": OSError}[kind](text)


@app.task(retry_on=(LookupError, ValueError), give_up_on=(KeyError,), retry_if=by_words)
async def sorts_async(kind: str, text: str) -> None:
    raise {"key": KeyError, "value": ValueError, "os": OSError}[kind](text)


@app.task(retry_on=())
def never_again() -> None:
    raise OSError("the disk is away")


@app.task
async def awaits_what_was_cancelled() -> None:
    other = asyncio.create_task(asyncio.sleep(60))
    other.cancel()
    await other


@app.task
def later_counted(delay_s: float) -> None:
    raise RetryLater("later", delay_s=delay_s, counted=True)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@app.task
def unprintable() -> None:
    raise Unprintable


class UnprintableReject(Reject):
    def __str__(self) -> str:
        raise ZeroDivisionError


@app.task
def unprintable_reject() -> None:
    raise UnprintableReject


@app.task
def odd_text(kind: str) -> None:
    text = "half a \ud83d pair"
    raise {"fails": ValueError, "rejects": Reject, "later": RetryLater}[kind](text)


@app.task
def long_text(characters: int) -> None:
    raise ValueError("x" * characters)


@app.task
def sleeps(seconds: float) -> None:
    time.sleep(seconds)


@app.task
async def sleeps_async(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.task
async def times_out() -> None:
    raise TimeoutError("mine")


@app.task
def waits_for_gate() -> None:
    assert gate.wait(30)


@app.task
async def swallows_its_cancel() -> None:
    while not gate.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)


@app.task
async def blocks_its_loop() -> None:
    blocked.set()
    assert gate.wait(30)


@app.task
def sees_its_job(out: str) -> None:
    job = current_job()
    Path(out).write_text(
        f"{job.job_id} {job.queue} {job.number} of {job.max_deliveries}, {job.nacks} nacks"
    )


@app.task
def hears_of_a_cancel() -> None:
    raise Cancelled("CANCELLED Job was cancelled")


@app.task
async def hears_of_a_cancel_async() -> None:
    raise Cancelled("CANCELLED Job was cancelled")


@app.task
def where() -> None:
    raise Reject(app.url or "")


@app.task
def cleans_up(out: str) -> None:
    path = Path(out)
    try:
        path.write_text("begun")
        time.sleep(60)
    finally:
        path.write_text(f"cleaned up: {type(sys.exception()).__name__}")


@app.task
async def cleans_up_async(out: str) -> None:
    path = Path(out)
    try:
        path.write_text("begun")
        await asyncio.sleep(60)
    finally:
        path.write_text("cleaned up")


@app.task
def resists(out: str) -> None:
    while True:
        try:
            Path(out).write_text("begun")
            time.sleep(60)
        except Cancelled:
            continue


@app.task
def is_warned(heeds: bool) -> str:
    try:
        time.sleep(60)
    except TimeLimit as err:
        if not heeds:
            raise
        return str(err)
    return "not warned"


@app.task
def asks(heeds: bool) -> str:
    try:
        while True:
            time.sleep(0.01)
            current_job().check()
    except TimeLimit as err:
        if not heeds:
            raise
        current_job().check()  # once
        return str(err)


@app.task
async def is_warned_async(heeds: bool) -> str:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        if not heeds:
            raise
    await asyncio.sleep(0)
    return "ran longer than its soft limit of 0.1 s"


@app.task
def tells_its_process(out: str) -> None:
    Path(out).write_text(str(os.getpid()))


loops: list[asyncio.AbstractEventLoop] = []
mark: ContextVar[str] = ContextVar("mark", default="fresh")


@app.task
async def on_its_loop() -> None:
    loop, was = asyncio.get_running_loop(), mark.get()
    mark.set("used")
    if loop not in loops:
        loops.append(loop)
    raise Reject(f"loop {len(loops)}, {was}")


background: set[asyncio.Task[None]] = set()


async def _leaves(how: type[BaseException]) -> None:
    raise how(2)


def _in_background(how: type[BaseException]) -> None:
    made = asyncio.create_task(_leaves(how))
    background.add(made)


@app.task
async def ends_its_loop(how: str) -> None:
    loop = asyncio.get_running_loop()
    if how == "exit of a task":
        _in_background(SystemExit)
    elif how == "interrupt of a task":
        _in_background(KeyboardInterrupt)
    elif how == "exit of a callback":
        loop.call_soon(sys.exit, 2)
    elif how == "exit of a later callback":
        loop.call_later(0.01, sys.exit, 2)
    elif how == "gather":
        await asyncio.gather(_leaves(SystemExit))
    elif how == "handler":
        loop.set_exception_handler(lambda *_: sys.exit(2))
        loop.call_soon(lambda: 1 / 0)
    else:
        assert how == "broken"
        loop._scheduled.append(None)  # type: ignore[attr-defined]  # no turn of it comes to an end
    await asyncio.sleep(60)


@app.task
async def stops_its_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


@app.task
async def exits_after_its_end() -> None:
    asyncio.get_running_loop().call_later(0.05, sys.exit, 2)


@app.task
async def waits_async() -> None:
    while not gate.is_set():
        await asyncio.sleep(0.01)


@app.task(batch=10, batch_wait_s=5)
def doubles(rows: list[int]) -> list[list[int]]:
    return [[row, len(rows)] for row in rows]


@app.task(batch=10, batch_wait_s=5)
def counts_wrong(rows: list[int]) -> list[int]:
    return [0] * 5


@app.task(batch=10, batch_wait_s=5)
async def breaks(rows: list[int]) -> list[int]:
    raise KeyError("no table")
