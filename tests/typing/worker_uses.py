"""What a type checker must know about tasks. Checked by mypy, never run."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, assert_type

from tuque.client.commands.groups import JobGroup
from tuque.client.commands.work import Result
from tuque.errors import EnqueueFailed
from tuque.worker import (
    App,
    AsyncTask,
    Backoff,
    Call,
    ChainProgress,
    Failed,
    Failure,
    Handle,
    Job,
    Middleware,
    Options,
    Outgoing,
    RetryLater,
    Task,
    Tasks,
    chain,
    current_job,
    group,
)

app = App()


class Image:
    pass


# 1 Retry with back-off


@app.task(queue="mail", attempts=5, backoff=Backoff(2, 120))
def send(to: str, text: str) -> None: ...


def mail() -> None:
    assert_type(send.enqueue("you@example.org", "hello"), Handle[None])
    assert_type(send.enqueue_in(60, "you@example.org", text="hello"), Handle[None])
    assert_type(send.options(delay_s=5, key="k").enqueue("a", "b"), Handle[None])
    send("you@example.org", "hello")


# 2 Result


@app.task
def resize(url: str, width: int) -> Image:
    return Image()


def results() -> None:
    task: Task[[str, int], Image] = resize
    print(task.name)
    assert_type(resize.enqueue("https://example.org", 640).result(timeout=10), Image)
    assert_type(app.handle("D-x", Image).result(), Image)
    assert_type(resize("https://example.org", 640), Image)


async def awaited_results() -> None:
    handle = await resize.enqueue_async("https://example.org", 640)
    assert_type(handle, Handle[Image])
    assert_type(await handle, Image)
    assert_type(await handle.result_async(5), Image)


@app.task
async def fetch(url: str, /, *, tries: int = 1) -> bytes:
    return b""


@app.task(queue="other")
async def parse(page: bytes) -> list[str]:
    return []


async def coroutine_tasks() -> None:
    assert_type(fetch.enqueue("u", tries=2), Handle[bytes])
    assert_type(parse.enqueue(b""), Handle[list[str]])
    assert_type(await parse.enqueue_in_async(5, b""), Handle[list[str]])
    assert_type(await (await fetch.enqueue_async("u")), bytes)
    running: Coroutine[Any, Any, bytes] = fetch("u")
    assert_type(await running, bytes)
    assert_type(await parse(b""), list[str])
    as_task: Task[[bytes], list[str]] = parse
    is_async: AsyncTask[[bytes], list[str]] = parse
    print(as_task.name, is_async.name)


# 3 Progress and cancel


@app.task
def export(rows: int) -> str:
    for n in range(rows):
        current_job().progress({"done": n, "of": rows})
        current_job().check()
    assert_type(current_job().time_left, float | None)
    assert_type(current_job().headers, dict[str, str])
    return "s3://..."


def cancels() -> None:
    job = export.enqueue(100_000)
    assert_type(job.progress(dict[str, int]), dict[str, int] | None)
    job.progress()
    assert_type(job.status(), Result)
    assert_type(job.id, str)
    print(job.is_new, job.cancel("user left"))


# 4 Not now, at no cost


@app.task
def sync(shop: str) -> None:
    raise RetryLater("shop is closed", delay_s=600)


# Many at once


def many() -> None:
    calls = [resize.call("u", 1), resize.options(queue="later").call("u", 2)]
    assert_type(calls, list[Call[Image]])
    assert_type(resize.enqueue_many(calls), list[Handle[Image]])
    assert_type(fetch.enqueue_many(fetch.call(str(n)) for n in range(3)), list[Handle[bytes]])
    try:
        parse.enqueue_many([])
    except EnqueueFailed as err:
        print(err.added, err.failed)


async def many_async() -> None:
    assert_type(await resize.enqueue_many_async([resize.call("u", 1)]), list[Handle[Image]])


# 6 Groups and chains


@app.task
def count(day: str) -> int:
    return len(day)


@app.task(queue="sums")
def add_up(counts: list[int]) -> int:
    return sum(counts)


@app.task(queue="sums")
def add_good(counts: list[int | Failed]) -> int:
    return sum(one for one in counts if not isinstance(one, Failed))


@app.task
async def store(total: int) -> str:
    return str(total)


@app.task
def length(text: str) -> int:
    return len(text)


@app.task
def name_of(total: int) -> str:
    return str(total)


@app.task
def half(total: int) -> float:
    return total / 2


@app.task
def half_of(total: int) -> int:
    return total // 2


@app.task
def mean(counts: list[int]) -> float:
    return sum(counts) / len(counts)


@app.task(queue="joined")
def join(texts: list[str]) -> str:
    return " ".join(texts)


@app.task(queue="joined")
def show(found: list[str | float]) -> int:
    return len(found)


@app.task(queue="joined")
def add_halves(halves: list[int | float]) -> float:
    return sum(halves)


async def groups() -> None:
    calls = [count.call("mon"), count.call("tue")]
    plain = group(calls).enqueue()
    assert_type(plain.results(5), list[int | Failed])
    assert_type(await plain, list[int | Failed])
    assert_type(plain.progress(), JobGroup)
    made = group(calls).then(add_up)
    assert_type(made.enqueue().result(5), int)
    assert_type(await (await made.enqueue_async()), int)
    assert_type(group(calls, on_fail="continue").then(add_good).enqueue().result(), int)


async def chains() -> None:
    calls = [count.call("mon"), count.call("tue")]
    assert_type(chain(count.call("mon")).enqueue().result(), int)
    assert_type(chain(count.call("mon"), store).enqueue().result(), str)
    assert_type(chain(count.call("mon"), store, length, store).then(length).enqueue().result(), int)
    assert_type(chain(count.call("a"), store, length, store, length).enqueue().result(), int)
    assert_type(group(calls).then(add_up).then(store).enqueue().result(5), str)
    assert_type(chain(group(calls), add_up).enqueue().result(5), int)
    assert_type(chain(group(calls), add_good, store).enqueue().result(5), str)
    assert_type(chain(group(calls), add_up, store, length).enqueue().result(5), int)
    assert_type(chain(group(calls), add_up, store, length, store).enqueue().result(5), str)
    later = group(store, name_of)
    assert_type(chain(count.call("mon"), later).enqueue().result(5), list[str])
    assert_type(chain(count.call("mon"), group(store, half), show).enqueue().result(5), int)
    assert_type(chain(count.call("mon"), later, join, length, store).enqueue().result(5), str)
    assert_type(chain(count.call("mon")).then(later).then(join).enqueue().result(5), str)
    assert_type(chain(group(calls), group(add_up, mean), add_halves).enqueue().result(5), float)
    assert_type(chain(group(calls), group(add_up, add_up)).then(add_up).enqueue().result(5), int)
    assert_type(group(calls).then(group(add_up, add_up)).then(add_up).enqueue().result(5), int)
    assert_type(group(calls).then(add_up).then(later).enqueue().result(5), list[str])
    assert_type(chain(group(calls), group(add_good), add_up, store).enqueue().result(5), str)
    goes_on = group(half_of, on_fail="continue")
    assert_type(chain(count.call("mon"), goes_on, add_good).enqueue().result(5), int)
    assert_type(await chain(count.call("mon"), goes_on).enqueue(), list[int | Failed])
    three = group(store, half, half_of)
    assert_type(chain(count.call("mon"), three).enqueue().result(5), list[str | float | int])
    handle = await chain(count.call("mon"), store).enqueue_async()
    assert_type(await handle, str)
    assert_type(await handle.result_async(5), str)
    assert_type(handle.progress(), ChainProgress)
    print(handle.cancel("user left"), await handle.cancel_async())


# 7 Tracing without touching tasks


@app.on_enqueue
def out(call: Outgoing) -> None:
    call.headers["traceparent"] = "00-1"


@app.middleware
@contextmanager
def span(job: Job) -> Iterator[None]:
    print(job.headers)
    yield


@app.middleware
@asynccontextmanager
async def pool(job: Job) -> AsyncIterator[None]:
    yield


@app.on_start
async def starts(job: Job) -> None: ...


@app.on_success
def succeeds(job: Job, result: object) -> None: ...


@app.on_failure
@app.on_retry
@app.on_dead
def fails(job: Job, failure: Failure) -> None:
    print(failure.text, failure.error)


# 8 The dead


def dead() -> None:
    for row in app.dead.list("mail.dead", cause="failed"):
        assert_type(row.attempts, int)
        assert_type(app.dead.show(row.id).body, bytes)
    assert_type(app.dead.replay("mail.dead", reason="*refused*"), int)
    assert_type(app.dead.purge("mail.dead", ids=["D-x"]), int)


def as_argument(function: Callable[[str], Handle[bytes]]) -> None: ...


as_argument(fetch.enqueue)


# Options in one place, times, lifespans and middleware in one class


shared = App(defaults=Options(keep_s=60), routes={"shop.*": "shop"})
letters = Tasks(queue="mail", attempts=9)


def patience(error: Exception, job: Job) -> bool | float:
    return 5.0 if isinstance(error, OSError) else job.attempt < 2


@letters.task(retry_on=(OSError,), retry_if=patience, aliases=("old.name",))
def letter(to: str) -> int:
    raise RetryLater(delay_s=5, counted=True)


@letters.task
async def letter_async(to: str) -> int:
    return current_job().state["db"] if current_job().state else 0


@shared.lifespan
@asynccontextmanager
async def life() -> AsyncIterator[dict[str, int]]:
    yield {"db": 5}


class Feature(Middleware):
    def enqueue(self, call: Outgoing) -> None:
        call.headers["by"] = "feature"

    @asynccontextmanager
    async def around(self, job: Job) -> AsyncIterator[None]:
        yield

    async def cancelled(self, job: Job, failure: Failure) -> None: ...


def included(at: dt.datetime) -> None:
    shared.include(letters)
    shared.use(Feature())
    _task: Task[[str], int] = letter
    _later: AsyncTask[[str], int] = letter_async
    assert_type(letter.enqueue_at(at, "you@example.org"), Handle[int])
    assert_type(letter.options(expires_s=5).enqueue_at(at, to="you"), Handle[int])
    assert_type(letter.options(expires=at).call("you"), Call[int])
