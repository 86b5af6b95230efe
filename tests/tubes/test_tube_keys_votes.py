"""Keys of tasks over a new leader that votes chose, without a server (SPEC T40.2, T41.4, T42.4)."""

from __future__ import annotations

import random

import pytest
from keys_lab import SECOND_NS, keys_of
from votes_lab import TIMEOUT_MS, VotesLab

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


class TasksLab(VotesLab):
    """Three voters with a tube of type tasks."""

    def __init__(self) -> None:
        super().__init__(3, makes=False)
        self.live(2 * TIMEOUT_MS)
        assert all(self.in_force(i) for i in range(3))
        self.make(0, b"tasks", sync=2)
        self.live(1_000)

    def add(self, keys: Keys, ttr_ms: int = 0) -> None:
        """A task with these keys, at the leader."""
        spec = PutSpec()
        spec.keys = pack(keys)
        spec.ttr_ms = ttr_ms or spec.ttr_ms
        i = self.leader()
        n = self.nodes[i]
        n.now_ms = self.now_ms
        assert operations.put(n, self.t(i), self.tube(i), b"body", 0, spec, 1, 1) is not None
        self.run()

    def get_some(self, count: int = 1) -> list[bytes]:
        """So many at most, at the leader."""
        n = self.nodes[self.leader()]
        n.now_ms = self.now_ms
        ids = [job.id for job in on_getjob(n, 9, [b"t"], count)]
        self.run()
        return ids

    def leader(self) -> int:
        """The node that leads, after as long as it takes."""
        for _ in range(100):
            if found := self.runs_at():
                return found[0]
            self.live(250)
        raise AssertionError("nobody leads")

    def fail_over(self) -> None:
        """The leader dies; another one leads when it has been back for a while."""
        before = self.leader()
        self.live(250)
        self.die(before)
        self.live(2 * TIMEOUT_MS)
        assert self.leader() != before
        self.revive(before)
        self.live(1_000)

    def taken(self) -> list[Task]:
        """Tasks that are TAKEN at the leader."""
        tasks = self.tube(self.leader()).tasks.values()
        return [task for task in tasks if task.status == TAKEN]


def test_a_unique_key_is_kept_by_the_next_leader() -> None:
    """T44.6 After a start and at a new leader the tasks have the keys that they had."""
    lab = TasksLab()
    keys = Keys()
    keys.unique = b"one"
    lab.add(keys)
    (first,) = lab.tube(lab.leader()).tasks.values()
    for _ in range(3):
        lab.fail_over()
        i = lab.leader()
        holder = same_task(lab.nodes[i], lab.tube(i), pack(keys))
        assert holder is not None and holder.id == first.id
    (id,) = lab.get_some()
    assert on_ackjob(lab.nodes[lab.leader()], id)
    lab.run()
    lab.fail_over()
    i = lab.leader()
    assert same_task(lab.nodes[i], lab.tube(i), pack(keys)) is None


@pytest.mark.parametrize("seed", range(3))
def test_places_over_leaders(seed: int) -> None:
    """T41.4 After a start and at a new leader the places in use are counted from the tasks that are
    TAKEN."""
    lab, chance = TasksLab(), random.Random(seed)
    keys = keys_of(limit=b"k", places=3)
    for _ in range(30):
        lab.add(keys, ttr_ms=2_000)
    ends: set[str] = set()
    held: list[bytes] = []
    most = 0
    for step in range(1_000):
        held += lab.get_some(2)
        taken = lab.taken()
        most = max(most, len(taken))
        assert len(taken) <= 3, "T41.2"
        held = [id for id in held if id in {task.id for task in taken}]
        if held:
            ends.add(end(lab, held.pop(chance.randrange(len(held))), chance))
        lab.live(chance.choice((0, 250)))
        if step in (5, 10, 20):
            lab.fail_over()
        if not lab.tube(lab.leader()).tasks:
            break
    assert not lab.tube(lab.leader()).tasks
    assert most == 3 and ends == {"ack", "release", "fail", "silent"}
    assert lab.tube(lab.leader()).epoch == 4


def end(lab: TasksLab, id: bytes, chance: random.Random) -> str:
    """One take ends in some way; one that is silent ends by its retry time."""
    n = lab.nodes[lab.leader()]
    n.now_ms = lab.now_ms
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
    lab.run()
    return how


def test_no_failover_gives_a_second_burst() -> None:
    """T42.4 After a start and at a new leader each bucket is empty: no failover gives a second
    burst."""
    lab = TasksLab()
    burst, gap_ms = 4, 8_000
    for _ in range(24):
        lab.add(keys_of(rate=b"r", gap_ns=gap_ms * SECOND_NS // 1_000, burst=burst))
    lab.live(gap_ms * burst)
    taken_ms: list[int] = []
    for step in range(200):
        taken_ms += [lab.now_ms] * len(lab.get_some(9))
        lab.live(500)
        if step in (0, 40):
            lab.fail_over()
    assert len(taken_ms) > 10
    for i, first in enumerate(taken_ms):
        for j in range(i, len(taken_ms)):
            assert (j - i + 1 - burst) * gap_ms <= taken_ms[j] - first, "T42.1"
    assert taken_ms.count(taken_ms[0]) == burst


def test_how_long_a_tube_is_without_a_leader() -> None:
    """T27.2 Of equal nodes each waits an eighth of the timeout longer than the one before."""
    lab = TasksLab()
    for _ in range(4):
        before = lab.leader()
        lab.live(250)
        lab.die(before)
        lost_ms = lab.now_ms
        while not lab.runs_at():
            lab.live(250)
        assert lab.now_ms - lost_ms <= TIMEOUT_MS + TIMEOUT_MS // 8 + 500, "a heartbeat of the lab"
        lab.revive(before)
        lab.live(TIMEOUT_MS)
