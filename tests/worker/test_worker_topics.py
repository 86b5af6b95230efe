"""Calls of tasks that are published to a topic (SPEC U12)."""

from __future__ import annotations

import asyncio

import pytest

from lab import RealServer
from tuque import Client
from tuque.worker import App, Unique
from tuque.worker.app.enqueue import Call


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


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "utube", "utubettl", "limfifottl", "tasks"])
def test_a_call_goes_to_tubes_of_every_type(node: RealServer, client: Client, kind: str) -> None:
    """T62.4 ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT and ONEXPIRY are for these as well, and mean
    nothing to other tubes.
    """
    app = App(node.url)

    @app.task(name="order.sent", queue=f"of-{kind}", attempts=7, time_limit_s=9, on_expiry="drop")
    def sent(order: int) -> None: ...

    client.tube(f"of-{kind}").create(kind)
    for queue in (f"of-{kind}", f"beside-{kind}"):
        client.topic_subscribe(f"all-{kind}", queue)
    assert len(app.publish(f"all-{kind}", sent.call(7))) == 2
    bodies = [job.body for name in ("of", "beside") for job in client.getjob(f"{name}-{kind}")]
    assert len(bodies) == 2 and len(set(bodies)) == 1
    app.close()


def test_what_is_no_call(node: RealServer) -> None:
    """U12.1 `App.publish(topic, call)`"""
    app = App(node.url)

    @app.task(queue="three")
    def plain(order: int) -> None: ...

    with pytest.raises(TypeError, match=r"publish takes a call of a task, as task\.call\(\.\.\.\)"):
        app.publish("orders", plain)  # type: ignore[arg-type]  # that is the test
    app.close()


async def published(app: App, call: Call[None]) -> list[str]:
    try:
        return await app.publish_async("orders", call)
    finally:
        await app.aclose()
