"""Jobs that a worker fetched ahead go to others while it is busy (SPEC U2.20)."""

from __future__ import annotations

import pytest
from noting import Noting

from world import World


@pytest.mark.parametrize("kind", ["queue", "tasks", "fifo"])
def test_short_jobs_do_not_wait_behind_a_long_one(world: World, kind: str) -> None:
    """U2.20 if all places have been taken for 0.5 s and no job has begun in that time, what it
    fetched and did not begin is RELEASE with `-`, within a quarter of a second, and nothing is
    counted.
    """
    noting, client = Noting(), world.client()
    if kind != "queue":
        client.tube("q").create(kind)
    world.at_work(noting.app, concurrency=1, prefetch=8)
    noting.until_go.enqueue("long")
    shorts = [noting.record.enqueue(f"short {at}") for at in range(5)]
    world.until(lambda: noting.did == ["begin long"] and world.qlen() == 0)
    world.pass_ms(400)  # they wait at the first worker
    assert world.qlen() == 0
    world.at_work(noting.app, concurrency=1, prefetch=8)
    world.pass_ms(2_500)
    assert noting.did[1:] == [f"short {at}" for at in range(5)]
    assert all(client.show(handle.id) is None for handle in shorts)


def test_a_slow_worker_fetches_none_ahead(world: World) -> None:
    """U2.20 It fetches none ahead until a run of less than 0.5 s has ended there. A job with RETRY
    0 cannot be given back.
    """
    noting, client = Noting(), world.client()
    world.at_work(noting.app, concurrency=1, prefetch=2)
    noting.until_go.enqueue("long")
    world.until(lambda: noting.did == ["begin long"])
    once = noting.record.options(retry_s=0, replicate=1)
    once.enqueue("once")
    counted = noting.record.enqueue("counted")
    uncounted = client.addjob("q", noting.record.body(noting.record.defaults, ("plain",), {}))
    world.pass_ms(5_000)
    assert world.qlen() == 2
    shown = [client.show(id) for id in (counted.id, uncounted)]
    assert [(one.nacks, one.additional_deliveries) for one in shown if one] == [(0, 0)] * 2
    noting.go.set()
    world.until(lambda: noting.did[2:] == ["once", "counted", "plain"])
    noting.go.clear()
    noting.until_go.enqueue("long again")
    noting.record.enqueue("ahead")
    world.until(lambda: world.qlen() == 0)


def test_jobs_that_begin_one_after_the_other_stay(world: World) -> None:
    """U2.20 no job has begun in that time"""
    noting, client = Noting(), world.client()
    world.at_work(noting.app, concurrency=1, prefetch=10)
    ids = [noting.lasts.enqueue(str(at), 0.4).id for at in range(6)]
    world.until(lambda: len(noting.did) > 1)
    world.pass_ms(1_500)
    assert world.qlen() == 0
    assert {info.deliveries for id in ids if (info := client.show(id))} == {1}


@pytest.mark.parametrize(("took_s", "ahead"), [(0.001, 4), (0.15, 2), (0.45, 0)])
def test_as_much_is_fetched_ahead_as_begins_soon(world: World, took_s: float, ahead: int) -> None:
    """U2.20 A worker fetches no job ahead at its start. Then it fetches what begins within 0.1 s by
    the median of its last 32 runs, as many as its places at most
    """
    noting = Noting()
    world.at_work(noting.app, concurrency=4, prefetch=None)
    world.pass_ms(100)
    for at in range(8):
        noting.lasts.enqueue(str(at), took_s)
    world.pass_ms(20)
    assert world.qlen() == (0 if took_s < 0.01 else 4)
    world.until(lambda: len(noting.did) == 16)
    for at in range(12):
        noting.until_go.enqueue(str(at))
    world.pass_ms(20)
    assert world.qlen() == 8 - ahead
    world.pass_ms(1_000)
    assert world.qlen() == 8
    noting.go.set()
    world.until(lambda: world.qlen() == 0)
