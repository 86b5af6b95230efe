"""SPEC Q11: a journal that is put back from a backup, and holders that it does not name."""

from __future__ import annotations

import copy

import pytest
from test_q_restart import TIMEOUT_MS, job_at, queued_at, restart

from cluster_lab import Lab, believed, copies
from tuque.core.copies.ack import on_ackjob
from tuque.core.model.job import HELD
from tuque.core.model.work import DONE, Outcome
from tuque.core.msgs import Ask
from tuque.core.queues.deliver import on_getjob
from tuque.core.queues.requeue import on_dequeue

JOBS = 20
GONE = 1
OTHERS = [2, 3, 4, 5]  # who has the jobs later
RETRY_S = 60
FATES = ["forgotten", "silent", "denies", "not repaired yet"]


class Replaced:
    """Six nodes, and jobs that nodes 0 and 1 had, and two of the others have now.

    Nodes 0 and 1 were drained. `start` starts node 0 with the journal of the time when it had the
    jobs; node 1 is `forgotten`, `silent` since, or `denies` that it has the jobs. A repair, which
    introduces holders to each other, may come later. `is_taken`: a worker of node 0 had taken them.
    """

    def __init__(self, fate: str, is_taken: bool = False) -> None:
        self.fate = fate
        self.lab = lab = Lab(6, has_journal=True)
        for i in OTHERS:
            lab.isolate(i)
        self.ids = [lab.add(0, replicate=2, retry_s=RETRY_S) for _ in range(JOBS)]
        if is_taken:
            assert self.take(0) == JOBS
        self.old = copy.deepcopy(lab.journals[0].disk)
        lab.heal()
        lab.run()
        for i in (0, GONE):
            lab.leave(i)
            lab.pass_ms(2_000)
        if fate == "denies":
            lab.leave(GONE, False)
        else:
            lab.isolate(GONE)
        if fate == "forgotten":
            for i in range(6):
                if i != GONE:
                    lab.forget(i, GONE)
        lab.beat()
        lab.isolate(0)
        assert all(len(self.have(id)) == 2 for id in self.ids)

    def take(self, i: int) -> int:
        """A worker takes all jobs of a node's queue; the number."""
        n = self.lab.nodes[i]
        n.now_ms = self.lab.now_ms
        count = len(on_getjob(n, 7, [b"q"], JOBS))
        self.lab.run()
        return count

    def take_all(self) -> None:
        """Workers take all jobs that the other nodes have queued."""
        assert sum(self.take(i) for i in OTHERS) == JOBS

    def ack_all(self) -> None:
        """All jobs end, and the other nodes forget them."""
        for id in self.ids:
            assert on_ackjob(self.lab.nodes[self.have(id)[0]], id)
        self.lab.pass_ms(5_000)
        self.lab.beat()
        self.lab.pass_ms(100)
        assert all(self.have(id) == [] for id in self.ids)

    def have(self, id: bytes) -> list[int]:
        """The other nodes with a copy."""
        return [i for i in copies(self.lab, id) if i in OTHERS]

    def start(self) -> None:
        """Put the journal back, start node 0, and wait until it serves its jobs."""
        lab = self.lab
        lab.journals[0].disk = self.old
        lab.die(0)
        if self.fate == "not repaired yet":
            for id in self.ids:
                lab.nodes[0].jobs[id].repl = 1
        for i in [GONE, *OTHERS] if self.fate == "denies" else OTHERS:
            lab.link(0, i)
        lab.run()
        if self.fate == "forgotten":
            lab.forget(0, GONE)
        lab.pass_ms(TIMEOUT_MS + 3_000)

    def queued(self) -> list[int]:
        """In how many queues each job is."""
        return [len(queued_at(self.lab, id)) for id in self.ids]


def test_a_holder_that_joins_later_is_asked() -> None:
    """Q11.8 A reachable node that becomes a holder while the job is held is asked too, within a
    second."""
    lab = Lab(3, has_journal=True)
    id = lab.add(0, replicate=2, retry_s=RETRY_S)
    (gone,) = [i for i in lab.holders_of(id) if i != 0]
    third = 3 - gone
    restart(lab, 0)
    lab.isolate(gone)
    lab.link(0, third)
    lab.pass_ms(1_000)
    assert job_at(lab, 0, id).marks & HELD  # the lost holder may still come
    lab.forget(third, gone)
    lab.forget(0, gone)
    lab.run()
    assert third in copies(lab, id)  # repaired while it is held
    assert queued_at(lab, id) == []
    lab.pass_ms(1_100)
    assert queued_at(lab, id) == [0]


@pytest.mark.parametrize("fate", FATES)
def test_jobs_that_others_have_now_are_queued_once(fate: str) -> None:
    """Q11.9 If no other holder has replied that it has the job, or only one that got it from here
    since the start (K5.3), all reachable nodes are asked before the hold ends: the journal may be
    an old one, from a backup, and other nodes may have the job now, or its outcome (W14.8). A node
    that has it becomes a holder (K5.6).
    """
    old = Replaced(fate)
    lab = old.lab
    old.start()
    assert old.queued() == [1] * JOBS
    for id in old.ids:
        assert set(old.have(id)) <= set(believed(lab, 0, id))
        assert all(0 in believed(lab, i, id) for i in old.have(id))
        assert on_ackjob(lab.nodes[old.have(id)[0]], id)
    lab.pass_ms(5_000)
    assert [copies(lab, id) for id in old.ids] == [[]] * JOBS


@pytest.mark.parametrize("fate", FATES)
def test_jobs_that_workers_have_now_are_not_queued(fate: str) -> None:
    """Q11.9 If no other holder has replied that it has the job, or only one that got it from here
    since the start (K5.3), all reachable nodes are asked before the hold ends: the journal may be
    an old one, from a backup, and other nodes may have the job now, or its outcome (W14.8).
    """
    old = Replaced(fate)
    old.take_all()
    old.start()
    assert old.queued() == [0] * JOBS
    old.lab.pass_ms((RETRY_S - 15) * 1_000)
    assert old.queued() == [0] * JOBS


@pytest.mark.parametrize("fate", FATES)
def test_jobs_that_were_at_work_in_the_backup_come_once(fate: str) -> None:
    """Q11.9 A job that is due later is asked about in the same way before it is due, even if none
    of its holders can be reached.
    """
    old = Replaced(fate, is_taken=True)
    old.start()
    seen = [0] * JOBS
    for _ in range(2 * RETRY_S):
        old.lab.pass_ms(1_000)
        seen = [max(a, b) for a, b in zip(seen, old.queued(), strict=True)]
    assert seen == [1] * JOBS


def test_the_only_node_that_has_a_job_becomes_a_holder() -> None:
    """Q11.9 A node that has it becomes a holder (K5.6)."""
    lab = Lab(3, has_journal=True)
    lab.isolate(2)
    id = lab.add(0, replicate=2, retry_s=RETRY_S)
    old = copy.deepcopy(lab.journals[0].disk)
    lab.heal()
    for i in (0, 1):
        lab.leave(i)
        lab.pass_ms(2_000)
    lab.isolate(1)
    lab.isolate(0)
    assert on_dequeue(lab.nodes[2], id)
    lab.nodes[2].jobs[id].holders = 1  # it knows no other holder, whom it would inform
    lab.journals[0].disk = old
    lab.die(0)
    lab.nodes[0].jobs[id].repl = 1  # a repair would name the node, too
    lab.link(0, 2)
    lab.pass_ms(TIMEOUT_MS + 3_000)
    assert queued_at(lab, id) == [0]
    assert 2 in believed(lab, 0, id)


def test_a_node_is_asked_once_about_a_held_job() -> None:
    """Q11.3 As soon as a holder is linked it is asked as in Q12, before any other question."""
    lab = Lab(2, has_journal=True)
    id = lab.add(0, replicate=2, retry_s=RETRY_S)
    restart(lab, 0)
    lab.link(0, 1)
    lab.hold(1, 0)
    lab.log.clear()
    lab.pass_ms(2_500)
    asked = [m for a, _, m in lab.log if a == 0 and isinstance(m, Ask) and m.stands and id in m.ids]
    assert len(asked) == 1


@pytest.mark.parametrize("fate", FATES)
def test_jobs_whose_outcome_is_kept_end(fate: str) -> None:
    """Q11.9 If no other holder has replied that it has the job, or only one that got it from here
    since the start (K5.3), all reachable nodes are asked before the hold ends: the journal may be
    an old one, from a backup, and other nodes may have the job now, or its outcome (W14.8).
    """
    old = Replaced(fate)
    old.ack_all()
    n = old.lab.nodes[OTHERS[0]]
    n.has_lives = True
    for id in old.ids:
        n.life.keep(Outcome(id, DONE, n.now_ms + 600_000, n.now_ms), 1 << 20)
    old.start()
    assert [copies(old.lab, id) for id in old.ids] == [[]] * JOBS


@pytest.mark.parametrize("fate", FATES)
def test_jobs_that_nobody_remembers_come_back(fate: str) -> None:
    """Promises 2 and 3 for the jobs of a journal that was put back from a backup: what was acked or
    delivered since may come again.
    """
    old = Replaced(fate)
    old.ack_all()
    old.start()
    assert [queued_at(old.lab, id) for id in old.ids] == [[0]] * JOBS


def test_other_nodes_are_not_asked_when_a_holder_has_the_job() -> None:
    """Q11.9 If no other holder has replied that it has the job, or only one that got it from here
    since the start (K5.3), all reachable nodes are asked before the hold ends: the journal may be
    an old one, from a backup, and other nodes may have the job now, or its outcome (W14.8).
    """
    lab = Lab(4, has_journal=True)
    id = lab.add(0, replicate=2, retry_s=RETRY_S)
    restart(lab, 0)
    lab.log.clear()
    lab.heal()
    lab.run()
    asked = {b for a, b, m in lab.log if a == 0 and isinstance(m, Ask) and id in m.ids}
    assert queued_at(lab, id) == [0]
    assert {0, *asked} == set(lab.holders_of(id))
