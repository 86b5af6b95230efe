"""Keys of tasks over a new leader that votes chose, without a server (SPEC T40.2, T41.4, T42.4)."""

from __future__ import annotations

import random

import pytest
from keys_lab import SECOND_NS, keys_of
from tubes_world import TIMEOUT_MS, VotesWorld

from tuque.core.copies.ack import on_ackjob
from tuque.core.life.runs import on_fail, on_release
from tuque.core.life.start import on_start
from tuque.core.model.task import TAKEN, Task
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.ends import life_of
from tuque.tubes.entries.keys import Keys, pack
from tuque.tubes.model.options import PutSpec
from tuque.tubes.tasks import operations
from tuque.tubes.tasks.operations import same_task


class TasksWorld(VotesWorld):
    """Three voters with a tube of type tasks."""

    def __init__(self) -> None:
        super().__init__(3, makes=False)
        self.pass_ms(2 * TIMEOUT_MS)
        assert all(self.in_force(i) for i in range(3))
        self.make(0, b"tasks", sync=2)
        self.pass_ms(1_000)

    def add(self, keys: Keys, ttr_ms: int = 0) -> None:
        """A task with these keys, at the leader."""
        spec = PutSpec()
        spec.keys = pack(keys)
        spec.ttr_ms = ttr_ms or spec.ttr_ms
        i = self.leads()
        n = self.nodes[i].core
        assert operations.put(n, self.t(i), self.tube(i), b"body", 0, spec, 1, 1) is not None
        self.settle()

    def get_some(self, count: int = 1) -> list[bytes]:
        """So many at most, at the leader."""
        n = self.nodes[self.leads()].core
        ids = [job.id for job in on_getjob(n, 9, [b"t"], count)]
        self.settle()
        return ids

    def fail_over(self) -> None:
        """The leader dies; another one leads when it has been back for a while."""
        before = self.leads()
        self.pass_ms(250)
        self.restart(before)
        self.pass_ms(2 * TIMEOUT_MS)
        assert self.leads() != before
        self.rejoin(before)
        self.pass_ms(1_000)

    def taken(self) -> list[Task]:
        """Tasks that are TAKEN at the leader."""
        tasks = self.tube(self.leads()).tasks.values()
        return [task for task in tasks if task.status == TAKEN]


def test_a_unique_key_is_kept_by_the_next_leader() -> None:
    """T44.6 After a start and at a new leader the tasks have the keys that they had."""
    world = TasksWorld()
    keys = Keys()
    keys.unique = b"one"
    world.add(keys)
    (first,) = world.tube(world.leads()).tasks.values()
    for _ in range(3):
        world.fail_over()
        i = world.leads()
        holder = same_task(world.nodes[i].core, world.tube(i), pack(keys))
        assert holder is not None and holder.id == first.id
    (id,) = world.get_some()
    assert on_ackjob(world.nodes[world.leads()].core, id)
    world.settle()
    world.fail_over()
    i = world.leads()
    assert same_task(world.nodes[i].core, world.tube(i), pack(keys)) is None


@pytest.mark.parametrize("seed", range(3))
def test_places_over_leaders(seed: int) -> None:
    """T41.4 After a start and at a new leader the places in use are counted from the tasks that are
    TAKEN."""
    world, chance = TasksWorld(), random.Random(seed)
    keys = keys_of(limit=b"k", places=3)
    for _ in range(30):
        world.add(keys, ttr_ms=2_000)
    ends: set[str] = set()
    held: list[bytes] = []
    most = 0
    for step in range(1_000):
        held += world.get_some(2)
        taken = world.taken()
        most = max(most, len(taken))
        assert len(taken) <= 3, "T41.2"
        held = [id for id in held if id in {task.id for task in taken}]
        if held:
            ends.add(end(world, held.pop(chance.randrange(len(held))), chance))
        world.pass_ms(chance.choice((0, 250)))
        if step in (5, 10, 20):
            world.fail_over()
        if not world.tube(world.leads()).tasks:
            break
    assert not world.tube(world.leads()).tasks
    assert most == 3 and ends == {"ack", "release", "fail", "silent"}
    assert world.tube(world.leads()).epoch == 4


def end(world: TasksWorld, id: bytes, chance: random.Random) -> str:
    """One take ends in some way; one that is silent ends by its retry time."""
    n = world.nodes[world.leads()].core
    how = chance.choice(("ack", "ack", "release", "fail", "silent"))
    if how == "ack":
        assert on_ackjob(n, id)
    elif how != "silent":
        assert on_start(n, id, b"w", 9) is None
        life = life_of(n, id)
        assert life is not None
        if how == "release":
            assert on_release(n, id, life.run, 0)
        else:
            assert on_fail(n, id, life.run, 500, b"no", b"", False)[2] is None
    world.settle()
    return how


def test_no_failover_gives_a_second_burst() -> None:
    """T42.4 After a start and at a new leader each bucket is empty: no failover gives a second
    burst."""
    world = TasksWorld()
    burst, gap_ms = 4, 8_000
    for _ in range(24):
        world.add(keys_of(rate=b"r", gap_ns=gap_ms * SECOND_NS // 1_000, burst=burst))
    world.pass_ms(gap_ms * burst)
    taken_ms: list[int] = []
    for step in range(200):
        taken_ms += [world.now_ms] * len(world.get_some(9))
        world.pass_ms(500)
        if step in (0, 40):
            world.fail_over()
    assert len(taken_ms) > 10
    for i, first in enumerate(taken_ms):
        for j in range(i, len(taken_ms)):
            assert (j - i + 1 - burst) * gap_ms <= taken_ms[j] - first, "T42.1"
    assert taken_ms.count(taken_ms[0]) == burst


def test_how_long_a_tube_is_without_a_leader() -> None:
    """T27.2 Of equal nodes the first waits T/32, each T/8 longer than the one before."""
    world = TasksWorld()
    for _ in range(4):
        before = world.leads()
        world.pass_ms(250)
        world.restart(before)
        lost_ms = world.now_ms
        while not world.runs_at():
            world.pass_ms(250)
        assert world.now_ms - lost_ms <= TIMEOUT_MS + TIMEOUT_MS // 8 + 500, (
            "a heartbeat of the world"
        )
        world.rejoin(before)
        world.pass_ms(TIMEOUT_MS)
