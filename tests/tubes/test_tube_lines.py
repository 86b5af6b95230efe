"""SPEC T3.3, T3.4 with many sub-queues at once: who is first, and what is kept of those gone."""

from __future__ import annotations

import random

import pytest
from tube_world import TubeWorld

from tuque.core.model.task import READY, TAKEN, Task
from tuque.core.queues.procedures import check
from tuque.tubes.model.tube import Tube
from tuque.tubes.tasks import operations
from tuque.tubes.types.utube import UTube


@pytest.fixture
def home() -> TubeWorld:
    return TubeWorld()


def first(tube: Tube) -> int | None:
    """Who is to be taken, by a look at all tasks."""
    busy = {task.subqueue for task in tube.tasks.values() if task.status == TAKEN}
    free = [
        (task.pri, task.number)
        for task in tube.tasks.values()
        if task.status == READY and task.subqueue not in busy
    ]
    return min(free)[1] if free else None


def step(home: TubeWorld, tube: Tube, dice: random.Random) -> None:
    """One call, any."""
    n, t = home.n, home.t
    with_status: dict[int, list[Task]] = {}
    for task in tube.tasks.values():
        with_status.setdefault(task.status, []).append(task)
    word = dice.choice(
        ["put", "put", "take", "take", "ack", "release", "bury", "delete", "kick", "pri"]
    )
    if word == "put":
        home.put(tube, b"x", b"%d" % dice.randrange(60), pri=dice.randrange(4))
    elif word == "take":
        assert first(tube) == home.take(tube)
    elif word == "kick":
        operations.kick(n, t, tube, dice.randrange(3))
    elif word in ("ack", "release"):
        if TAKEN in with_status:
            number = dice.choice(with_status[TAKEN]).number
            if word == "ack":
                home.ack(tube, number)
            else:
                operations.release(n, t, tube, 1, number, 0)
    elif tube.tasks:
        number = dice.choice(list(tube.tasks))
        if word == "pri":
            t.set_pri(n, tube.tasks[number], dice.randrange(4))
        elif word == "bury":
            operations.bury(n, t, tube, number)
        else:
            operations.delete(n, t, tube, number)


@pytest.mark.parametrize("seed", range(6))
def test_the_first_of_many_sub_queues(home: TubeWorld, seed: int) -> None:
    """T3.3 as fifo and fifottl, but only among sub-queues without a TAKEN task."""
    dice = random.Random(seed)
    tube = home.make("utubettl")
    for at in range(1500):
        step(home, tube, dice)
        if at % 50 == 0:
            check(home.n)
    while tube.tasks:
        assert first(tube) == home.take(tube)
        if dice.random() < 0.6 or first(tube) is None:
            for task in list(tube.tasks.values()):
                if task.status == TAKEN:
                    home.ack(tube, task.number)
            operations.kick(home.n, home.t, tube, 1)
    check(home.n)


def test_of_sub_queues_that_are_gone_nothing_is_kept(home: TubeWorld) -> None:
    """M1: deleted in any order, tasks leave the lines that they stood in."""
    tube = home.make("utube")
    home.put(tube)
    used = home.n.used_bytes()
    numbers = [home.put(tube, b"x", b"%d" % i).number for i in range(1, 3000)]
    for number in reversed(numbers):
        operations.delete(home.n, home.t, tube, number)
    assert isinstance(tube.driver, UTube)
    assert tube.driver.heads.count == 1
    assert len(tube.driver.lanes) == 1
    assert home.n.used_bytes() - used <= 35 * 1500  # the notices
    check(home.n)
