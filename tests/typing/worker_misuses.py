"""What a type checker must refuse: the lines that end in "# E: code", and no others."""

from __future__ import annotations

from tuque.worker import (
    App,
    Backoff,
    Failure,
    Handle,
    Job,
    Outgoing,
    RetryLater,
    chain,
    current_job,
    group,
)

app = App()


@app.task
def resize(url: str, width: int) -> bytes:
    return b""


@app.task(queue="pages")
async def fetch(url: str) -> str:
    return ""


def arguments() -> None:
    resize.enqueue("u")  # E: call-arg
    resize.enqueue("u", "wide")  # E: arg-type
    resize.enqueue("u", 1, height=2)  # E: call-arg
    resize.enqueue_in("soon", "u", 1)  # E: arg-type
    resize.enqueue_in(5, "u")  # E: call-arg
    resize("u")  # E: call-arg
    resize.call("u", width="wide")  # E: arg-type
    resize.options(delay_s=1).enqueue(1, 1)  # E: arg-type
    resize.options(retries=3)  # E: call-arg
    resize.options(delay_s=1).call("u")  # E: call-arg
    fetch.enqueue(5)  # E: arg-type


def options() -> None:
    resize.options(atempts=3)  # E: call-arg
    resize.options(attempts="many")  # E: arg-type
    resize.options(codec="pickle")  # E: arg-type
    app.task(queue=5)(resize.function)  # E: call-overload
    app.task(retries=5)  # E: call-overload
    Backoff("2", 120)  # E: arg-type
    RetryLater("closed", 600)  # E: call-arg


def results() -> None:
    text: str = resize.enqueue("u", 1).result()  # E: assignment
    handle: Handle[int] = fetch.enqueue("u")  # E: assignment
    resize.enqueue("u", 1).result("10")  # E: arg-type
    resize.enqueue("u", 1).cancel(5)  # E: arg-type
    number: int = app.handle("D-x", str).result()  # E: assignment
    fetch("u").upper()  # E: attr-defined
    current_job().attempt.upper()  # E: attr-defined
    print(text, handle, number)


async def awaited() -> None:
    page: bytes = await (await fetch.enqueue_async("u"))  # E: assignment
    await resize.enqueue("u", 1).result()  # E: misc
    print(page)


def many() -> None:
    resize.enqueue_many([fetch.call("u")])  # E: list-item
    resize.enqueue_many(resize.call("u", 1))  # E: arg-type
    resize.enqueue_many(["u"])  # E: list-item


@app.task(queue="sums")
def add_up(counts: list[int]) -> int:
    return sum(counts)


@app.task
def length(text: str) -> int:
    return len(text)


def groups() -> None:
    group([length.call("a")]).then(length)  # E: arg-type
    group([fetch.call("u")]).then(add_up)  # E: arg-type
    group([length.call("a")]).then(add_up).then(fetch)  # E: arg-type
    group([length])  # E: arg-type
    text: str = group([length.call("a")]).then(add_up).enqueue().result()  # E: assignment
    print(text)


def chains() -> None:
    chain(fetch.call("u"), add_up)  # E: arg-type
    chain(fetch.call("u"), length, fetch)  # E: arg-type
    chain(fetch.call("u"), fetch, length, fetch)  # E: arg-type
    chain(fetch.call("u"), length).then(length)  # E: arg-type
    chain(fetch, length)  # E: call-overload
    chain(group([fetch.call("u")]), add_up)  # E: arg-type
    chain(group([length.call("u")]), add_up, fetch)  # E: arg-type
    chain(fetch.call("u"), group([length.call("u")]))  # E: call-overload
    chain(fetch.call("u"), group(length, add_up))  # E: arg-type
    chain(fetch.call("u"), group(length, fetch), add_up)  # E: arg-type
    chain(fetch.call("u"), group(length), fetch)  # E: arg-type
    chain(group(length), add_up)  # E: call-overload
    chain(group([length.call("u")]), group(length), add_up)  # E: arg-type
    chain(fetch.call("u")).then(group(add_up))  # E: arg-type
    group(length.call("u"), length.call("u"))  # E: call-overload
    number: str = chain(fetch.call("u"), length).enqueue().result()  # E: assignment
    print(number)


@app.on_enqueue  # E: arg-type
def out(job: Job) -> None: ...


@app.on_failure  # E: arg-type
def fails(job: Job) -> None: ...


@app.on_start  # E: arg-type
def starts(job: Job, failure: Failure) -> None: ...


@app.middleware  # E: arg-type
def around(job: Job) -> int:
    return 1


def changes(out: Outgoing) -> None:
    out.headers["n"] = 5  # E: assignment
