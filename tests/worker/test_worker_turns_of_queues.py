"""Queues with weights: each gives its share of the jobs, and none starves (SPEC U2.28)."""

from __future__ import annotations

import re

import pytest
from noting import Noting

from tuque.errors import ConfigError
from tuque.worker import App
from tuque.worker.main import _queue_names
from world import World


def first_queues(world: World, weights: tuple[int, ...], concurrency: int) -> list[str]:
    """The queues of the first 100 of 300 jobs that a worker of high and low ran."""
    noting = Noting()
    queues = ("high", "low")
    shift = world.at_work(noting.app, queues=queues, concurrency=concurrency, weights=weights)
    world.pass_ms(2_500)
    noting.app.tasks["record"].enqueue_many(  # alone, for a time
        noting.record.options(queue="high").call("alone") for _ in range(50)
    )
    world.until(lambda: len(noting.did) == 50)
    noting.did.clear()
    for queue in ("high", "low"):
        noting.record.enqueue_many(
            noting.record.options(queue=queue).call(queue) for _ in range(150)
        )
    world.until(lambda: len(noting.did) == 300)
    shift.stop()
    return noting.did[:100]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_each_queue_gives_its_share(world: World, concurrency: int) -> None:
    """U2.28 of those that have jobs each gives its share of them in the long run, by its weight,
    and a queue that was empty has nothing to catch up.
    """
    found = first_queues(world, (4, 1), concurrency)
    assert 70 <= found.count("high") <= 88
    assert found[:50].count("low") >= 5


def test_without_weights_the_order_is_strict(world: World) -> None:
    """U2.25 A worker asks its queues for jobs in their order"""
    assert first_queues(world, (), 1).count("high") >= 98, "what waits first may be of low"


def test_weights_are_given_to_all_queues_or_to_none() -> None:
    """U2.28 With weights (`-Q high=4,low=1`) queues have no order"""
    app = App()
    app.task(name="t", queue="q=5")(print)
    assert _queue_names("high=4, low=1", app) == (("high", "low"), (4, 1))
    assert _queue_names("b,a,b", app) == (("b", "a"), ())
    assert _queue_names(None, app) == (("q=5",), ())
    assert _queue_names("q=5=2", app) == (("q=5",), (2,))
    for words, reason in (
        ("high=4,low", "give each queue a weight, as high=4,low=1, or none"),
        ("high=0", "a weight is from 1 to 1000"),
        ("a=1,a=2", "a queue has one weight"),
        (",", "names no queue"),
    ):
        with pytest.raises(ConfigError, match=re.escape(reason)):
            _queue_names(words, app)
