"""Unique keys that are taken for a time, across restarts and leaders (SPEC T44)."""

from __future__ import annotations

import random

import pytest
from tube_world import TubeWorld
from tubes_world import TIMEOUT_MS, VotesWorld

from sim.engine.clock import START_MS
from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.add import on_addjob, refusal, settle
from tuque.core.dispatch.timers import next_timer_ms
from tuque.core.life.outcomes import on_done
from tuque.core.model.job import AddSpec
from tuque.core.msgs.packed import UNTIL_MAX_MS
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.procedures import check
from tuque.tubes.entries.keys import (
    Keys,
    is_job,
    is_sound,
    pack,
)
from tuque.tubes.entries.schedule import (
    HoldEntry,
    is_apart,
    is_kept,
    kept_in,
)
from tuque.tubes.model.tube import Tube
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks import admin

MINUTE_MS = 60_000


def add(n: Node, key: bytes, until_ms: int = MINUTE_MS) -> tuple[bytes, bool]:
    """ADDJOB with a key for a time: the id of the reply, and whether a task was added."""
    spec = AddSpec()
    keys = Keys()
    keys.unique, keys.until_ms = key, until_ms
    spec.keys = pack(keys)
    spec = settle(n, spec)
    assert refusal(n, b"t", spec) is None
    return on_addjob(n, b"t", b"body", spec).id, not spec.has_met


def take(n: Node, most: int = 10) -> list[bytes]:
    return [job.id for job in on_getjob(n, 9, [b"t"], most)]


def tube_of(n: Node) -> Tube:
    return tubes_of(n).by_name[b"t"]


def new_home() -> TubeWorld:
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    return home


# ---- one node


def test_a_key_for_a_time_survives_restarts() -> None:
    """T44.6 After a start and at a new leader the tasks have the keys that they had. A key that is
    taken for a time is taken for what is left of it."""
    home = new_home()
    first, _ = add(home.n, b"ended")
    waiting, _ = add(home.n, b"waiting")
    assert take(home.n, 1) == [first]
    home.pass_ms(10_000)
    assert on_ackjob(home.n, first)
    home.settle()
    for _ in range(2):
        home.restart()
        assert add(home.n, b"ended") == (first, False)
        assert add(home.n, b"waiting") == (waiting, False)
        check(home.n)
    home.pass_ms(START_MS + MINUTE_MS - 1 - home.n.now_ms)
    assert add(home.n, b"ended") == (first, False)
    home.pass_ms(1)
    second, is_new = add(home.n, b"ended")
    assert is_new and second != first
    assert add(home.n, b"waiting")[1]  # though the first one waits still
    check(home.n)


def test_a_key_whose_time_ends_while_the_node_is_down_is_free() -> None:
    home = new_home()
    first, _ = add(home.n, b"k")
    assert on_deljob(home.n, first)
    home.settle()
    home.restart(MINUTE_MS)
    assert add(home.n, b"k")[1]
    home.pass_ms(100)
    assert [is_job(task) for task in tube_of(home.n).tasks.values()] == [True]
    assert tube_of(home.n).driver.plans.held == {}
    check(home.n)


def test_a_snapshot_has_the_keys_that_are_taken_for_a_time() -> None:
    home = new_home()
    first, _ = add(home.n, b"k")
    assert on_deljob(home.n, first)
    home.settle()
    home.rewrite()
    home.restart()
    assert add(home.n, b"k") == (first, False)


def test_all_is_free_and_no_memory_is_used_after_the_time() -> None:
    home = new_home()
    empty = home.n.used_bytes()
    for number in range(200):
        add(home.n, b"k%d" % number, 1_000 + 10 * number)
    for id in take(home.n, 100):
        assert on_ackjob(home.n, id)
    driver = tube_of(home.n).driver
    assert driver.keys() >= 200
    assert home.n.used_bytes() > empty
    for _ in range(40):
        home.pass_ms(100)
        check(home.n)
    assert driver.uniques.claims == {}
    assert tube_of(home.n).delayed == 0
    for id in take(home.n, 100):
        assert on_ackjob(home.n, id)  # their keys were free before
    check(home.n)
    assert tube_of(home.n).tasks == {}
    assert driver.bytes_used == driver.uniques.bytes_used == 0


def test_nothing_is_due_before_the_time_is_over() -> None:
    """T44.3 If the task ends before, a task of its own keeps the key: it stays DELAYED until the
    time is over, is in the journal and its copies, and counts as delayed."""
    home = new_home()
    first, _ = add(home.n, b"k")
    assert on_deljob(home.n, first)
    home.pass_ms(1_000)
    assert tube_of(home.n).delayed == 1
    assert next_timer_ms(home.n) - home.n.now_ms > MINUTE_MS - 1_100


def test_truncate_frees_keys_and_a_deleted_keeper_does() -> None:
    """T44.8 TRUNCATE and DROP of the tube free all its keys."""
    home = new_home()
    tube = tube_of(home.n)
    first, _ = add(home.n, b"a")
    assert on_deljob(home.n, first)
    (keeper,) = tube.tasks.values()
    assert isinstance(keeper.entry, HoldEntry)
    assert (keeper.entry.key, keeper.entry.id) == (b"a", first)
    assert on_deljob(home.n, keeper.id)
    second, is_new = add(home.n, b"a")
    assert is_new
    add(home.n, b"b")
    assert on_deljob(home.n, second)
    assert admin.truncate(home.n, home.t, tube) == 2
    assert tube.tasks == {} and tube.driver.bytes_used == 0
    assert add(home.n, b"a")[1] and add(home.n, b"b")[1]
    home.settle()
    home.restart()
    assert len(tube_of(home.n).tasks) == 2
    check(home.n)


# ---- leaders


class KeysWorld(VotesWorld):
    """Three nodes with a tube of type tasks that a majority has."""

    def __init__(self) -> None:
        super().__init__(3, makes=False)
        self.pass_ms(2 * TIMEOUT_MS)
        self.make(0, b"tasks", sync=2)
        self.pass_ms(1_000)

    def switch(self, to: int) -> None:
        """A planned change of the leader."""
        at = self.runs_at()[0]
        if at != to:
            self.move(at, to)
            self.pass_ms(4_000)
            self.leads()


def test_a_key_for_a_time_at_the_next_leader() -> None:
    """T44.6 After a start and at a new leader the tasks have the keys that they had. A key that is
    taken for a time is taken for what is left of it."""
    world = KeysWorld()
    n = world.leading()
    began_ms = world.now_ms
    first, _ = add(n, b"k", 10 * MINUTE_MS)
    assert take(n) == [first]
    assert on_done(n, first, -1, None, 1)
    world.settle()
    world.lose_leader()
    assert add(world.leading(), b"k") == (first, False)
    world.switch((world.runs_at()[0] + 1) % 3)
    assert add(world.leading(), b"k") == (first, False)
    world.pass_ms(began_ms + 10 * MINUTE_MS - world.now_ms - 2_000)
    assert add(world.leading(), b"k") == (first, False)
    world.pass_ms(4_000)
    assert add(world.leading(), b"k")[1]
    world.settle()
    for one in world.cores:
        check(one)


@pytest.mark.parametrize("seed", range(3))
def test_random_keys_over_many_leaders(seed: int) -> None:
    """T44.3 With UNTIL a number of seconds a key is taken for that time from the add, whatever
    becomes of the task. Then it is free, also while the task waits or is at work."""
    world = KeysWorld()
    chance = random.Random(seed)
    has: dict[bytes, tuple[bytes, int]] = {}
    for _ in range(5):
        for _ in range(25):
            n = world.leading()
            key = b"k%d" % chance.randrange(6)
            first, until_ms = has.get(key, (b"", 0))
            if abs(until_ms - world.now_ms) > 200:  # clocks of nodes agree to the time of a message
                span_ms = chance.choice((500, 8_000, 40_000))
                id, is_new = add(n, key, span_ms)
                assert is_new == (until_ms < world.now_ms)
                if is_new:
                    has[key] = id, world.now_ms + span_ms
                else:
                    assert id == first
            for id in take(n, 2):
                what = chance.randrange(3)
                if what == 0:
                    assert on_done(n, id, -1, None, 1)
                elif what == 1:
                    assert on_deljob(n, id)
            world.settle()
            world.pass_ms(chance.choice((50, 500, 3_000)))
            check(n)
        if chance.random() < 0.5:
            world.lose_leader()
        else:
            world.switch(chance.randrange(3))
    world.pass_ms(45_000)
    n = world.leading()
    assert tube_of(n).driver.uniques.claims == {}
    for one in world.cores:
        check(one)


# ---- the bytes


def test_a_kept_key_goes_into_bytes_and_back() -> None:
    packed = HoldEntry(b"i" * 40, b"k" * 255).packed(0)
    assert is_kept(packed) and is_apart(packed) and is_sound(packed)
    entry = kept_in(packed)
    assert entry is not None
    assert (entry.id, entry.key) == (b"i" * 40, b"k" * 255)
    for size in range(3, 44):
        assert not is_sound(packed[:size])
    assert not is_sound(packed + b"k")
    keys = Keys()
    keys.unique, keys.until_ms = b"k", UNTIL_MAX_MS + 1
    assert not is_sound(pack(keys))
