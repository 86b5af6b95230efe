"""SPEC T41.3, T41.6: what takes cost with many keys, and what is kept for them."""

from __future__ import annotations

import random

import pytest
from keys_lab import SECOND_NS, START_MS, Lab, drain, keys_of
from tube_world import TubeWorld

from tuque.core.dispatch.timers import tick
from tuque.core.queues.procedures import check
from tuque.tubes.entries.keys import Keys, pack
from tuque.tubes.policies import next_task
from tuque.tubes.policies.partitions import SLACK
from tuque.tubes.tasks import operations

IS_COMPILED = not (next_task.__file__ or "").endswith(".py")


@pytest.mark.parametrize("seed", range(4))
def test_of_many_lanes_the_lowest_goes_next(seed: int) -> None:
    """T43.3, with tasks that come in order, before others and back; little is kept of lanes that
    are gone."""
    chance = random.Random(seed)
    lab = Lab()
    for at in range(1_500):
        what = chance.random()
        if what < 0.6:
            # most come in their order, some before others; up to two share a lane
            lab.put(keys_of(limit=b"k%d" % (at // 2), places=9), chance.choice([5, 5, 5, 5, 1, 8]))
        elif what < 0.8 and lab.ready:
            least = min(lab.ready.values(), key=lambda task: (task.pri, task.number))
            assert lab.take() is least
        elif what < 0.9 and lab.taken:
            lab.give_back(chance.choice(list(lab.taken.values())))
        elif lab.ready:
            lab.remove(chance.choice(list(lab.ready.values())))
        if at % 100 == 0:
            lab.check()
    assert len(lab.ready) > 100
    while len(lab.ready) > 10:
        lab.remove(chance.choice(list(lab.ready.values())))
    lab.put(keys_of(limit=b"last", places=1), 0)
    lab.put(keys_of(limit=b"other", places=1), 9)
    line = lab.driver.line.lines[b""]
    assert len(line.items) - line.head <= 2 * line.count + SLACK
    assert len(line.heap) <= line.count
    drain(lab)


def test_a_take_costs_the_same_with_a_hundred_thousand_keys() -> None:
    lab = Lab()
    many = 100_000 if IS_COMPILED else 10_000
    for number in range(many):
        name = b"k%d" % number
        lab.put(keys_of(b"g%d" % (number % 1_000), 1, name, 1, name, SECOND_NS))
        if number % 1_000 == 0:
            lab.put(keys_of(b"g0", 1, b"k0", 1, b"k0", SECOND_NS))
    before = lab.driver.cost()
    for _ in range(1_000):
        task = lab.take()
        assert task is not None
        lab.end(task)
    assert lab.driver.cost() - before <= 3_000  # entries pushed: none looks at all keys
    assert lab.driver.keys() == 1_000 + many - 999 + many  # limits at rest are gone


def waiting_lanes(lab: Lab, count: int, last: Keys) -> None:
    """So many lanes of one key, by their groups, and one task that sets the key anew."""
    for number in range(count):
        keys = keys_of(b"g%d" % number, limit=last.limit, places=1 if last.limit else 0)
        keys.rate, keys.gap_ns = last.rate, 60 * SECOND_NS if last.rate else 0
        lab.put(keys)
    before = lab.driver.cost()
    lab.put(last)
    assert lab.driver.cost() - before <= next_task.STEP + 3  # T41.6


@pytest.mark.parametrize("which", ["limit", "rate"])
def test_lanes_that_may_go_all_at_once_go_in_steps(which: str) -> None:
    lab = Lab()
    last = keys_of(b"last")
    if which == "limit":
        last.limit, last.places = b"a", 1_000_000
    else:
        lab.driver.begin_empty(START_MS - 9_000)
        last.rate, last.gap_ns, last.burst = b"a", 1_000, 1_000_000
    many = 3 * next_task.STEP
    waiting_lanes(lab, many, last)
    lab.driver.now_ms += 1_000
    lab.check()
    steps = 0
    while lab.driver.next_ms() <= lab.driver.now_ms:
        assert lab.driver.alarm_ms <= lab.driver.now_ms
        before = lab.driver.line.count
        lab.driver.wake(1)
        assert lab.driver.line.count - before <= next_task.STEP  # T41.6
        lab.check()
        steps += 1
        if steps == 1:
            cost = lab.driver.cost()
            last.group = b"more"
            lab.put(last)  # while others are behind
            assert lab.driver.cost() - cost <= 2
    assert steps >= 2
    assert lab.driver.line.count == many + 2
    drain(lab)


def test_lanes_that_may_go_no_longer_go_back_in_steps() -> None:
    lab = Lab()
    many = 2 * next_task.STEP + 10
    for number in range(many):
        lab.put(keys_of(b"g%d" % number, limit=b"a", places=many))
    lab.put(keys_of(b"last", limit=b"a", places=1))
    other = lab.put(keys_of(b"other"))
    for back in (1, 2):
        assert lab.take() is None  # T41.6
        assert lab.driver.line.count == many + 1 - back * next_task.STEP
        assert lab.driver.alarm_ms <= lab.driver.now_ms
        lab.driver.wake(1)
        assert lab.driver.next_ms() > lab.driver.now_ms
    task = lab.take()
    assert task is not None and task is not other
    assert lab.take() is other
    assert lab.take() is None
    lab.check()
    drain(lab)


def test_nothing_happens_while_all_wait() -> None:
    lab = Lab()
    for number in range(300):
        lab.put(keys_of(limit=b"k%d" % (number % 100), places=1))
    while lab.take() is not None:
        pass
    before = lab.driver.cost()
    for _ in range(1_000):
        assert lab.take() is None
    assert lab.driver.cost() == before
    assert lab.driver.next_ms() > START_MS + 10**12


def test_while_all_wait_the_node_waits_for_the_next_token_alone() -> None:
    """T42.3 As many partitions of a rate may go as it has tokens. While others wait, one timer
    of the rate is set, at its next token; each take sets it anew.
    """
    home = TubeWorld()
    n, t = home.n, home.t
    tube = home.make("tasks")
    for number in range(400):  # two tasks of each key
        home.put(tube, keys=pack(keys_of(limit=b"k%d" % (number % 200), places=1)))
    while home.take(tube) is not None:
        pass
    operations.wait(n, t, tube, 1, 0)
    assert tube.taken == 200 and home.woken() == []
    assert t.next_ms(n) > home.start_ms + 10**12  # places come back with tasks, at no instant
    for _ in range(20):
        home.put(tube, keys=pack(keys_of(rate=b"r", gap_ns=10 * SECOND_NS)))
    assert home.woken() == [(1, 400)]  # it waited for any; one token was there
    assert home.take(tube) is None
    wakes = 0
    while tube.taken < 220:
        wakes += 1
        n.now_ms = t.next_ms(n)
        tick(n)
        while home.take(tube) is not None:
            pass
    assert wakes == 19
    assert n.now_ms == home.start_ms + 190_000
    check(n)


def test_the_ring_that_a_rate_needs_after_a_load_is_counted() -> None:
    """T42.4 After a start and at a new leader each bucket is empty.

    The later tasks set a larger bucket. What the tokens of the first task let go waits again.
    """
    home = TubeWorld(has_journal=True)
    tube = home.make("tasks")
    for number in range(4):
        keys = keys_of(b"g%d" % number, rate=b"r", gap_ns=SECOND_NS)
        if number > 0:
            keys.gap_ns, keys.burst = 60 * SECOND_NS, 9
        home.put(tube, keys=pack(keys))
    home.settle()
    home.restart()  # it checks the bytes
    tube = home.t.by_name[b"t"]
    driver = tube.driver
    assert isinstance(driver, next_task.Tasks)
    assert driver.rates[b"r"].ring is not None
    assert home.take(tube) is None
    check(home.n)
