"""Takes in tubes of type `tasks` while nobody can hear their workers (SPEC T48.9)."""

from __future__ import annotations

import pytest
from lives_world import LivesWorld, add, begin, take
from tube_world import TubeWorld
from tubes_world import TIMEOUT_MS

from sim.engine.clock import START_MS
from tuque.core.copies.add import on_addjob, settle
from tuque.core.dispatch.timers import tick
from tuque.core.life.runs import on_work
from tuque.core.model.job import AddSpec
from tuque.core.model.task import READY, TAKEN
from tuque.core.model.work import Terms
from tuque.core.node.node import Node
from tuque.core.queues.ends import life_of
from tuque.core.queues.procedures import check
from tuque.tubes.policy import tubes_of

RETRY_MS = 30_000  # of `add`
AWAY_MS = 100_000


def status(n: Node, id: bytes) -> int:
    task = tubes_of(n).by_name[b"t"].tasks
    return next((int(one.status) for one in task.values() if one.id == id), 0)


@pytest.mark.parametrize("began", [True, False])
def test_a_task_has_a_whole_ttr_after_a_start(began: bool) -> None:
    """T48.9 Only silence that the leader could have received counts (W6.1)."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    id, waits = add(home.n), add(home.n)  # of one LIMIT
    assert take(home.n) == [id]
    run = begin(home.n, id) if began else 0
    home.settle()
    home.restart(AWAY_MS)
    home.pass_ms(10)
    assert take(home.n) == []
    home.pass_ms(RETRY_MS - 1_000)
    assert take(home.n) == [] and status(home.n, waits) == READY
    if began:
        assert on_work(home.n, id, run, 1) is None
        home.pass_ms(RETRY_MS - 1_000)
        assert take(home.n) == []
    home.pass_ms(1_100)
    assert take(home.n) == [id]
    check(home.n)


def test_a_time_limit_goes_on_while_a_node_is_away() -> None:
    """T48.9 its TIMELIMIT continues"""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    spec = AddSpec()
    spec.terms, spec.retry_s = Terms(3, 0, 0, 0, b"", 0, 20_000), 30
    id = on_addjob(home.n, b"t", b"body", settle(home.n, spec)).id
    assert take(home.n) == [id]
    run = begin(home.n, id)
    home.n.life.deaf_ms = START_MS + 19_000
    home.pass_ms(20_100)
    life = life_of(home.n, id)
    assert life is not None and life.last is not None
    assert (life.run, life.failed, life.last.cause) == (run, 1, b"timeout")


def test_silence_counts_only_while_the_node_hears() -> None:
    """T48.9 Only silence that the leader could have received counts (W6.1)."""
    home = TubeWorld(has_journal=True)
    home.make("tasks")
    id = add(home.n)
    assert take(home.n) == [id]
    begin(home.n, id)
    home.n.life.deaf_ms = home.n.now_ms + RETRY_MS  # as the pump says after a standstill
    home.pass_ms(RETRY_MS + 1)
    assert status(home.n, id) == TAKEN
    assert home.n.records is not None
    home.pass_ms(RETRY_MS - 100)
    home.n.records.is_failing = True
    home.n.now_ms += 200
    tick(home.n)
    assert status(home.n, id) == TAKEN
    home.n.records.is_failing = False
    home.pass_ms(RETRY_MS + 300)
    assert take(home.n) == [id]
    life = life_of(home.n, id)
    assert life is not None and life.crashes == 1
    check(home.n)


def test_a_task_has_a_whole_ttr_at_the_next_leader() -> None:
    """T48.9 Only silence that the leader could have received counts (W6.1)."""
    world = LivesWorld()
    n = world.leading()
    id, waits = add(n), add(n)
    assert take(n) == [id]
    run = begin(n, id)
    world.settle()
    world.pass_ms(500)
    for i in range(3):
        world.restart(i)
    world.pass_ms(AWAY_MS)
    for i in range(3):
        world.rejoin(i)
    n = world.leading()
    world.pass_ms(RETRY_MS - 4 * TIMEOUT_MS)
    n = world.leading()
    assert take(n) == [] and status(n, waits) == READY
    assert on_work(n, id, run, 1) is None
    world.pass_ms(RETRY_MS - 1_000)
    assert take(world.leading()) == []
    world.pass_ms(2_000)
    assert take(world.leading()) == [id]
    for one in world.cores:
        check(one)
