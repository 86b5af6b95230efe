"""SPEC Q11: a journal that is put back from a backup, and holders that it does not name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tuque.core.model.job import ACTIVE, HELD, QUEUED
from tuque.core.model.work import DONE, Outcome
from tuque.core.msgs.bus import Ask
from tuque.core.queues.requeue import on_dequeue
from world import World

Make = Callable[..., World]

TIMEOUT_MS = 5_000  # cluster-node-timeout
JOBS = 20
GONE = 1
OTHERS = [2, 3, 4, 5]  # who has the jobs later
RETRY_S = 30
FATES = ["forgotten", "silent", "denies", "not repaired yet"]


class Replaced:
    """Six nodes, and jobs that nodes 0 and 1 had, and two of the others have now.

    Nodes 0 and 1 were drained. `start` starts node 0 with the journal of the time when it had the
    jobs; node 1 is `forgotten`, `silent` since, or `denies` that it has the jobs. A repair, which
    introduces holders to each other, may come later. `is_taken`: a worker of node 0 had taken them.
    """

    def __init__(self, world: World, fate: str, is_taken: bool = False) -> None:
        self.fate = fate
        self.world = world
        for i in OTHERS:
            world.isolate(i)
        self.ids = [world.at(0).add(replicate=2, retry=RETRY_S) for _ in range(JOBS)]
        if is_taken:
            assert self.take(0) == JOBS
        world.disk(0).snapshot()
        world.link()
        for i in (0, GONE):
            world.leave(i)
            world.pass_ms(2_000)
        if fate == "denies":
            world.leave(GONE, False)
        else:
            world.isolate(GONE)
        if fate == "forgotten":
            for i in range(6):
                if i != GONE:
                    world.forget(i, GONE)
        world.beat()
        world.isolate(0)
        assert all(len(self.have(id)) == 2 for id in self.ids)

    def take(self, i: int) -> int:
        """A worker takes all jobs of a node's queue; the number."""
        return len(self.world.at(i).get(count=JOBS))

    def take_all(self) -> None:
        """Workers take all jobs that the other nodes have queued."""
        assert sum(self.take(i) for i in OTHERS) == JOBS

    def ack_all(self) -> None:
        """All jobs end, and the other nodes forget them."""
        for id in self.ids:
            assert self.world.at(self.have(id)[0])("ACKJOB", id) == 1
        self.world.pass_ms(5_000)
        self.world.beat()
        self.world.pass_ms(100)
        assert all(self.have(id) == [] for id in self.ids)

    def have(self, id: bytes) -> list[int]:
        """The other nodes with a copy."""
        return [i for i in self.world.copies(id) if i in OTHERS]

    def start(self) -> None:
        """Put the journal back, start node 0, and wait until it serves its jobs."""
        world = self.world
        world.restart(0, "old")
        if self.fate == "not repaired yet":
            for id in self.ids:
                world.n.jobs[id].repl = 1
        world.link(0, *([GONE, *OTHERS] if self.fate == "denies" else OTHERS))
        world.pass_ms(TIMEOUT_MS + 3_000)

    def job_state(self, id: bytes) -> int:
        """The state of a job at node 0."""
        return self.world.states(id)[0]

    def queued(self) -> list[int]:
        """In how many queues each job is."""
        return [len(queued_at(self.world, id)) for id in self.ids]


def queued_at(world: World, id: bytes) -> list[int]:
    """The nodes that have the job in their queues."""
    return [i for i, state in enumerate(world.states(id)) if state == QUEUED]


def test_a_holder_that_joins_later_is_asked(make_world: Make) -> None:
    """Q11.8 A reachable node that becomes a holder during the hold is asked too, within a
    second.
    """
    world = make_world(3, cluster_node_timeout=TIMEOUT_MS)
    id = world.at(0).add(replicate=2, retry=RETRY_S)
    (gone,) = [i for i in world.holders(id) if i != 0]
    third = 3 - gone
    world.restart(0)
    world.isolate(gone)
    world.link(0, third)
    world.pass_ms(1_000)
    assert world.job(id).marks & HELD  # the lost holder may still come
    world.forget(third, gone)
    world.forget(0, gone)
    world.settle()
    assert third in world.copies(id)  # repaired while it is held
    assert queued_at(world, id) == []
    world.pass_ms(1_100)
    assert queued_at(world, id) == [0]


@pytest.mark.parametrize("fate", FATES)
def test_jobs_that_others_have_now_are_queued_once(make_world: Make, fate: str) -> None:
    """Q11.9 If no other holder replied that it has the job, or only one that got it from here
    since the start (K5.3), all nodes are asked before the hold ends (W14.8). One that has it
    becomes a holder (K5.6).
    """
    old = Replaced(make_world(6, cluster_node_timeout=TIMEOUT_MS), fate)
    world = old.world
    old.start()
    assert old.queued() == [1] * JOBS
    for id in old.ids:
        assert set(old.have(id)) <= set(world.believed(0, id))
        assert all(0 in world.believed(i, id) for i in old.have(id))
        assert world.at(old.have(id)[0])("ACKJOB", id) == 1
    world.pass_ms(5_000)
    assert [world.copies(id) for id in old.ids] == [[]] * JOBS


@pytest.mark.parametrize("fate", FATES)
def test_jobs_that_workers_have_now_are_not_queued(make_world: Make, fate: str) -> None:
    """Q11.9 If no other holder replied that it has the job, or only one that got it from here
    since the start (K5.3), all nodes are asked before the hold ends (W14.8).
    """
    old = Replaced(make_world(6, cluster_node_timeout=TIMEOUT_MS), fate)
    old.take_all()
    old.start()
    assert old.queued() == [0] * JOBS
    old.world.pass_ms((RETRY_S - 15) * 1_000)
    assert old.queued() == [0] * JOBS


@pytest.mark.parametrize("is_taken", [False, True])
def test_nodes_that_link_after_the_last_holder_are_waited_for(
    make_world: Make, is_taken: bool
) -> None:
    """Q11.9 A node without a link is waited for as in Q11.2."""
    old = Replaced(make_world(6, cluster_node_timeout=TIMEOUT_MS), "denies")
    world = old.world
    if is_taken:
        old.take_all()
    world.restart(0, "old")
    world.link(0, GONE)
    world.pass_ms(1_000)
    assert {old.job_state(id) for id in old.ids} == {ACTIVE}
    world.link(0, *OTHERS)
    world.pass_ms(1_100)
    assert old.queued() == [0 if is_taken else 1] * JOBS


def test_nodes_that_do_not_come_are_waited_for_no_longer_than_holders(make_world: Make) -> None:
    """Q11.9 A node without a link is waited for as in Q11.2."""
    old = Replaced(make_world(6, cluster_node_timeout=TIMEOUT_MS), "denies")
    world = old.world
    world.restart(0, "old")
    world.link(0, GONE)
    world.pass_ms(TIMEOUT_MS - 1_000)
    assert {old.job_state(id) for id in old.ids} == {ACTIVE}
    world.pass_ms(1_100)
    assert {old.job_state(id) for id in old.ids} == {QUEUED}


@pytest.mark.parametrize("fate", FATES)
def test_jobs_that_were_at_work_in_the_backup_come_once(make_world: Make, fate: str) -> None:
    """Q11.9 A job that is due later is asked about in this way before it is due, even if no
    holder can be reached.
    """
    old = Replaced(make_world(6, cluster_node_timeout=TIMEOUT_MS), fate, is_taken=True)
    old.start()
    seen = [0] * JOBS
    for _ in range(2 * RETRY_S):
        old.world.pass_ms(1_000)
        seen = [max(a, b) for a, b in zip(seen, old.queued(), strict=True)]
    assert seen == [1] * JOBS


def test_the_only_node_that_has_a_job_becomes_a_holder(make_world: Make) -> None:
    """Q11.9 One that has it becomes a holder (K5.6)."""
    world = make_world(3, cluster_node_timeout=TIMEOUT_MS)
    world.isolate(2)
    id = world.at(0).add(replicate=2, retry=RETRY_S)
    world.disk(0).snapshot()
    world.link()
    for i in (0, 1):
        world.leave(i)
        world.pass_ms(2_000)
    world.isolate(1)
    world.isolate(0)
    assert on_dequeue(world.node(2).core, id)
    world.node(2).core.jobs[id].holders = 1  # it knows no other holder, whom it would inform
    world.restart(0, "old")
    world.n.jobs[id].repl = 1  # a repair would name the node, too
    world.link(0, 2)
    world.pass_ms(TIMEOUT_MS + 3_000)
    assert queued_at(world, id) == [0]
    assert 2 in world.believed(0, id)


def test_a_node_is_asked_once_about_a_held_job(make_world: Make) -> None:
    """Q11.3 A holder is asked as in Q12 as soon as it is linked, before any other question."""
    world = make_world(2, cluster_node_timeout=TIMEOUT_MS)
    id = world.at(0).add(replicate=2, retry=RETRY_S)
    world.restart(0)
    world.join(0, 1)
    world.hold(1, 0)
    world.forget_heard()
    world.pass_ms(2_500)
    asked = [m for a, _, m in world.heard(Ask) if a == 0 and m.stands and id in m.ids]
    assert len(asked) == 1


@pytest.mark.parametrize("fate", FATES)
def test_jobs_whose_outcome_is_kept_end(make_world: Make, fate: str) -> None:
    """Q11.9 If no other holder replied that it has the job, or only one that got it from here
    since the start (K5.3), all nodes are asked before the hold ends (W14.8).
    """
    old = Replaced(make_world(6, cluster_node_timeout=TIMEOUT_MS), fate)
    old.ack_all()
    n = old.world.node(OTHERS[0]).core
    n.has_lives = True
    for id in old.ids:
        n.life.keep(Outcome(id, DONE, n.now_ms + 600_000, n.now_ms), 1 << 20)
    old.start()
    assert [old.world.copies(id) for id in old.ids] == [[]] * JOBS


@pytest.mark.parametrize("fate", FATES)
def test_jobs_that_nobody_remembers_come_back(make_world: Make, fate: str) -> None:
    """Promises 2 and 3 for the jobs of a journal that was put back from a backup: what was acked or
    delivered since may come again.
    """
    old = Replaced(make_world(6, cluster_node_timeout=TIMEOUT_MS), fate)
    old.ack_all()
    old.start()
    assert [queued_at(old.world, id) for id in old.ids] == [[0]] * JOBS


def test_other_nodes_are_not_asked_when_a_holder_has_the_job(make_world: Make) -> None:
    """Q11.9 If no other holder replied that it has the job, or only one that got it from here
    since the start (K5.3), all nodes are asked before the hold ends (W14.8).
    """
    world = make_world(4, cluster_node_timeout=TIMEOUT_MS)
    id = world.at(0).add(replicate=2, retry=RETRY_S)
    world.restart(0)
    world.forget_heard()
    world.link()
    world.settle()
    asked = {b for a, b, m in world.heard(Ask) if a == 0 and id in m.ids}
    assert queued_at(world, id) == [0]
    assert {0, *asked} == set(world.holders(id))
