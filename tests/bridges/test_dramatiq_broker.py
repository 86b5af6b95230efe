"""The broker of Dramatiq: delays, dead letters, heartbeats, and results as values."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from until import until

dramatiq = pytest.importorskip("dramatiq", reason="dramatiq is not installed: make setup-dev")


@pytest.fixture
def broker(node: Any) -> Iterator[Any]:
    from tuque.dramatiq import TuqueBroker

    made = TuqueBroker(node.url, prefix="x.", retry_s=1)
    dramatiq.set_broker(made)
    yield made
    made.close()
    with node.wire() as wire:
        assert wire("DEBUG", "FLUSHALL") == b"OK"


@pytest.fixture
def worker(broker: Any) -> Iterator[Any]:
    made = dramatiq.Worker(broker, worker_timeout=50, worker_threads=2)
    made.start()
    yield made
    made.stop()


def test_a_message_is_a_job_of_its_queue_with_the_name_of_its_actor(broker: Any) -> None:
    @dramatiq.actor(queue_name="mail")
    def send(to: str) -> None:
        """Does nothing."""

    send.send_with_options(args=("ann",), delay=60_000)
    (row,) = broker.client.qlist(names=["x.mail"]).rows
    assert (row.ready, row.delayed) == (0, 1)
    (id,) = broker.client.jscan(queue="x.mail")
    info = broker.client.show(id)
    assert info.work.headers == {"tuque-task": "send"} and info.ttl_s > 10**9
    broker.flush("mail")
    assert list(broker.client.jscan(queue="x.mail")) == []


def test_what_is_rejected_is_a_dead_letter_with_its_exception(broker: Any, worker: Any) -> None:
    @dramatiq.actor(max_retries=0)
    def fail() -> None:
        raise ValueError("no stock")

    fail.send()
    broker.join("default", timeout=20_000)
    (letter,) = broker.client.dead_letters("x.default.dead")
    assert (letter.task, letter.reason) == ("fail", "ValueError: no stock")


def test_a_long_actor_keeps_its_message(broker: Any, worker: Any) -> None:
    runs: list[int] = []
    ended = threading.Event()

    @dramatiq.actor(max_retries=0)
    def long() -> None:
        runs.append(1)
        ended.wait(20)

    long.send()
    until(lambda: bool(runs))
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 2.5)  # its retry time is one second
    ended.set()
    broker.join("default", timeout=20_000)
    assert runs == [1]


def test_what_was_fetched_and_not_run_goes_back(broker: Any) -> None:
    broker.declare_queue("default")
    consumer = broker.consume("default", prefetch=2, timeout=5_000)
    for number in range(3):
        broker.enqueue(dramatiq.Message("default", "some", (number,), {}, {}))
    first = next(consumer)
    assert first is not None and first.args == (0,)
    assert broker.client.qlist(names=["x.default"]).rows[0].ready == 1
    consumer.close()
    assert broker.client.qlist(names=["x.default"]).rows[0].ready == 2
    consumer.ack(first)
    assert len(list(broker.client.jscan(queue="x.default"))) == 2


def test_results_are_values_that_are_waited_for(broker: Any, worker: Any) -> None:
    from dramatiq.results import ResultMissing, Results, ResultTimeout

    from tuque.dramatiq import TuqueResults

    broker.add_middleware(Results(backend=TuqueResults(broker.client)))

    @dramatiq.actor(store_results=True)
    def add(a: int, b: int) -> int:
        return a + b

    @dramatiq.actor(queue_name="later")
    def never() -> None:
        """Is not sent to a worker."""

    assert add.send(1, 2).get_result(block=True, timeout=20_000) == 3
    unsent = never.message()
    with pytest.raises(ResultMissing):
        unsent.get_result()
    with pytest.raises(ResultTimeout):
        unsent.get_result(block=True, timeout=100)
