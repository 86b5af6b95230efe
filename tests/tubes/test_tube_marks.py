"""Voters notice that their disk is older than what they have said (SPEC T29)."""

from __future__ import annotations

import copy

import pytest
from votes_lab import TIMEOUT_MS, VotesLab

from cluster_lab import Kept
from tuque.store.disk import MemoryDisk
from tuque.tubes.election.voters import may_vouch

MARK_MS = 1_000


def marked(lab: VotesLab, i: int) -> tuple[int, int]:
    """Right and mark of node i, as it tells them."""
    b = lab.t(i).ballots
    return int(b.right), int(b.mark)


def backup(lab: VotesLab, i: int) -> MemoryDisk:
    """A copy of the disk of node i."""
    return copy.deepcopy(lab.journals[i].disk)


def restore(lab: VotesLab, i: int, old: MemoryDisk) -> None:
    """Node i comes back with that copy of its disk."""
    lab.journals[i] = Kept(i)
    lab.journals[i].disk = copy.deepcopy(old)
    lab.die(i)


def lost_put(lab: VotesLab) -> MemoryDisk:
    """Nodes 0 and 1 have a task that node 2 has not heard of; a disk of node 1 without it."""
    lab.put(0)
    lab.live(3 * MARK_MS)
    old = backup(lab, 1)
    lab.isolate(2)
    lab.put(0, b"answered")
    lab.live(3 * MARK_MS)
    assert lab.answered(0) == lab.tube(0).seq
    return old


def test_an_old_disk_ends_the_right() -> None:
    """T29.4 A voter that hears of a higher mark under its right than it has on its disk has an old
    disk: its right ends (T28.5), and the log says so."""
    lab = VotesLab(3)
    restore(lab, 1, lost_put(lab))
    lab.heal()
    lab.live(1_000)
    assert lab.t(1).ballots.right == 0
    assert any("an old one" in note for note in lab.t(1).notes)
    lab.die(0)
    assert lab.watch(4 * TIMEOUT_MS) == [], "one vote of three is left"
    lab.revive(0)
    (home,) = lab.watch(4 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 2, "what was answered"


def test_a_voter_with_an_old_disk_is_added_again() -> None:
    """T29.4 The node gets replicas, and a new right like a node that lost its journal (T28.4)."""
    lab = VotesLab(3)
    restore(lab, 1, lost_put(lab))
    lab.heal()
    lab.live(8 * TIMEOUT_MS)
    right, mark = marked(lab, 1)
    assert right == 3
    assert may_vouch(lab.nodes[1], lab.t(1))
    lab.die(0)
    (home,) = lab.watch(4 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 2
    lab.put(home)
    lab.live(3 * MARK_MS)
    assert marked(lab, 1) > (right, mark)


def test_a_leader_with_an_old_disk_sends_no_copies() -> None:
    """T27.5 Until it is elected it sends no TUBE-COPY

    T22.5 After a start its copy counts for votes (T26.3) as that one, not as the number up to which
    it skips (T18.7)
    """
    lab = VotesLab(3)
    lab.put(0)
    lab.live(3 * MARK_MS)
    old = backup(lab, 0)
    lab.put(0, b"answered")
    lab.live(500)  # no mark of it yet: nobody notices the old disk
    assert lab.answered(0) == lab.tube(0).seq
    restore(lab, 0, old)
    lab.revive(0)
    lab.live(500)
    assert [len(lab.picture(i)) for i in (1, 2)] == [2, 2]
    (home,) = lab.watch(4 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 2


def test_whom_nobody_told_trusts_its_disk() -> None:
    """T29.5 By `trust` an old disk goes unnoticed if no node in reach has heard of the newer
    mark."""
    lab = VotesLab(3)
    old = lost_put(lab)
    lab.die(0)
    restore(lab, 1, old)
    lab.link(1, 2)
    (home,) = lab.watch(4 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 1, "the price of trust"


def test_who_asks_all_waits_for_them() -> None:
    """T29.3 With `failover-disks ask` so many others must have said it that no majority is without
    one of them"""
    lab = VotesLab(3)
    old = lost_put(lab)
    lab.die(0)
    restore(lab, 1, old)
    lab.t(1).ballots.asks_all = True
    lab.link(1, 2)
    assert lab.watch(4 * TIMEOUT_MS) == []
    assert lab.t(1).ballots.is_asking and not may_vouch(lab.nodes[1], lab.t(1))
    slot = lab.slot(2, 1)
    assert lab.t(2).ballots.asking >> slot & 1 and not lab.t(2).ballots.lame >> slot & 1
    lab.heal()
    (home,) = lab.watch(4 * TIMEOUT_MS)
    assert len(lab.picture(home)) == 2, "node 0 has told of the newer mark"
    assert lab.t(1).ballots.right == 3, "a new one"


@pytest.mark.parametrize("asks_all", [False, True])
def test_a_healthy_disk_keeps_its_right(asks_all: bool) -> None:
    """T29.3 After a start a voter neither votes nor echoes nor stands up before others have said
    which mark of it they know."""
    lab = VotesLab(3)
    lab.put(0)
    for _ in range(3):
        lab.live(2 * MARK_MS)
        for i in range(3):
            lab.die(i)
            assert lab.t(i).ballots.is_asking
            lab.t(i).ballots.asks_all = asks_all
        for i in range(3):
            lab.revive(i)
        assert not any(lab.t(i).ballots.is_asking for i in range(3))
        (home,) = lab.watch(4 * TIMEOUT_MS)
        lab.put(home)
    assert [lab.t(i).ballots.right for i in range(3)] == [1, 1, 1]
    assert len(lab.picture(home)) == 4


def test_marks_are_kept_by_those_who_start() -> None:
    """T29.2 Each node remembers the highest mark of each voter, on its disk as well."""
    lab = VotesLab(3)
    old = lost_put(lab)
    lab.journals[0].rewrite(lab.nodes[0])
    lab.die(0)
    restore(lab, 1, old)
    lab.link(0, 1)
    lab.live(1_000)
    assert lab.t(1).ballots.right == 0


def test_a_mark_is_told_when_it_is_on_the_disk() -> None:
    """T29.1 It is said once it is on the disk"""
    lab = VotesLab(3)
    lab.slow.add(1)
    before = marked(lab, 1)
    lab.put(0)
    lab.live(3 * MARK_MS)
    assert marked(lab, 1) == before
    assert lab.t(1).ballots.mark_next == before[1] + 1
    lab.slow.discard(1)
    lab.live(1_000)
    assert marked(lab, 1) == (before[0], before[1] + 1)


def test_a_quiet_node_writes_no_marks() -> None:
    """T29.1 at most once a second, and only if its journal has got something else"""
    lab = VotesLab(3)
    lab.put(0)
    lab.live(5 * MARK_MS)
    before = [kept.journal.seq for kept in lab.journals]
    lab.live(10 * MARK_MS)
    assert [kept.journal.seq for kept in lab.journals] == before


def test_the_list_waits_for_a_voter_that_asks() -> None:
    """T28.1 REMOVE is refused where the list after it would have no majority of voters that this
    node reaches and that have their right."""
    lab = VotesLab(3)
    lab.die(2)
    lab.t(2).ballots.asks_all = True
    lab.die(1)
    lab.link(0, 2)
    lab.live(2 * TIMEOUT_MS)
    assert lab.t(2).ballots.is_asking
    assert not lab.t(0).ballots.lame, "it is not removed by itself"
