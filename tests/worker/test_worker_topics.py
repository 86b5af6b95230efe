"""Calls of tasks that are published to a topic (SPEC U12)."""

from __future__ import annotations

import asyncio

import pytest
from lab import RealServer

from tuque import Client
from tuque.worker import App, Unique
from tuque.worker.tasks.adding import Call


def test_a_call_goes_to_all_subscribed_queues(node: RealServer, client: Client) -> None:
    """U12.1 `App.publish(topic, call)` sends TOPIC ADD (T62) with the body and the options that an
    enqueue of the call to a plain queue has, and returns the ids. A task with `unique`, `limit`,
    `rate`, `group` or `utube` is refused: TypeError.
    """
    app = App(node.url)

    @app.task(name="order.paid", queue="one", attempts=7, headers={"country": "de"})
    def paid(order: int) -> None: ...

    @app.task(queue="two", unique=Unique("order"))
    def once(order: int) -> None: ...

    for queue in ("one", "two"):
        client.topic_subscribe("orders", queue, {"country": "d?"})
    assert len(app.publish("orders", paid.call(7))) == 2
    assert len(asyncio.run(published(app, paid.call(7)))) == 2
    plain = paid.enqueue(7)
    jobs = client.getjob("one", "two", count=9, with_meta=True, timeout_ms=20_000)
    assert len(jobs) == 5
    (other,) = [job for job in jobs if job.id == plain.id]
    for job in jobs:
        assert (job.of, job.headers, job.retry_s) == (other.of, other.headers, other.retry_s)
    with pytest.raises(TypeError, match="once: jobs of a topic have no unique"):
        app.publish("orders", once.call(7))
    app.close()


async def published(app: App, call: Call[None]) -> list[str]:
    try:
        return await app.publish_async("orders", call)
    finally:
        await app.aclose()
