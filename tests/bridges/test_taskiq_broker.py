"""The broker of taskiq: messages as jobs, delays, heartbeats, results and progress as values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tuque import Client

taskiq = pytest.importorskip("taskiq", reason="taskiq is not installed: make setup-dev")


@pytest.fixture
def url(node: Any) -> Any:
    yield node.url
    with node.wire() as wire:
        assert wire("DEBUG", "FLUSHALL") == b"OK"


@asynccontextmanager
async def working(broker: Any) -> AsyncIterator[None]:
    """A worker of taskiq, while the block runs."""
    from taskiq.receiver import Receiver

    broker.is_worker_process = True
    await broker.startup()
    ended = asyncio.Event()
    running = asyncio.create_task(Receiver(broker, max_async_tasks=2).listen(ended))
    try:
        yield
    finally:
        ended.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await broker.shutdown()


def made(url: str, **options: Any) -> Any:
    from tuque.taskiq import TuqueBroker, TuqueResults

    return TuqueBroker(url, **options).with_result_backend(TuqueResults(url))


def test_a_task_runs_and_its_result_is_a_value(url: str) -> None:
    async def main() -> None:
        broker = made(url)

        @broker.task
        async def add(a: int, b: int) -> int:
            return a + b

        @broker.task
        async def fail() -> None:
            raise ValueError("no stock")

        async with working(broker):
            sent = await add.kiq(1, b=2)
            found = await sent.wait_result(timeout=20)
            assert found.return_value == 3 and not found.is_err
            failed = await (await fail.kiq()).wait_result(timeout=20)
            assert failed.is_err and "no stock" in str(failed.error)

    asyncio.run(main())
    with Client(url) as client:
        assert list(client.jscan(queue="taskiq")) == []


def test_labels_are_the_queue_and_the_delay_of_the_job(url: str) -> None:
    async def main() -> None:
        broker = made(url)

        @broker.task(queue="mail")
        async def send() -> None:
            """Does nothing."""

        await broker.startup()
        await send.kicker().with_labels(delay=60).kiq()
        await broker.shutdown()

    asyncio.run(main())
    with Client(url) as client:
        (row,) = client.qlist(names=["mail"]).rows
        assert (row.ready, row.delayed) == (0, 1)
        (id,) = client.jscan(queue="mail")
        info = client.show(id)
    assert info is not None and info.work is not None
    assert info.work.headers["tuque-task"].endswith(":send")


def test_what_was_not_acknowledged_goes_back_and_what_runs_stays(url: str) -> None:
    async def main() -> None:
        broker = made(url, retry_s=1)

        @broker.task
        async def long() -> None:
            """Does nothing."""

        await broker.startup()
        await long.kiq()
        messages = broker.listen()
        await anext(messages)
        await asyncio.sleep(2.5)  # the retry time is one second
        with Client(url) as client:
            assert client.getjob("taskiq", nohang=True) == []
        await broker.shutdown()
        with Client(url) as client:
            (job,) = client.getjob("taskiq", nohang=True)
            client.ackjob(job.id)

    asyncio.run(main())


def test_progress_is_kept_and_an_unknown_result_is_an_error(url: str) -> None:
    from taskiq.depends.progress_tracker import TaskProgress
    from taskiq.exceptions import ResultGetError

    from tuque.taskiq import TuqueResults

    async def main() -> None:
        results = TuqueResults(url)
        assert await results.get_progress("a") is None
        assert not await results.is_result_ready("a")
        with pytest.raises(ResultGetError):
            await results.get_result("a")
        await results.set_progress("a", TaskProgress(state="half", meta={"done": 5}))
        found = await results.get_progress("a")
        assert found is not None and (found.state, found.meta) == ("half", {"done": 5})
        await results.shutdown()

    asyncio.run(main())
