"""SPEC J6.5: a journal switched on in a running node is begun in the background."""

from __future__ import annotations

import pytest
from journal_lab import START_MS, Lab, restarted
from test_journal_cuts import cut
from test_journal_trouble import other_job

from tuque.store.disk import PowerCut


def switched_on(policy: str = "always", jobs: int = 9) -> tuple[Lab, list[bytes]]:
    """A node with jobs whose journal was just switched on; nothing is told yet."""
    lab = Lab(policy=policy)
    ids = [other_job(lab) for _ in range(jobs)]
    lab.committer.lock()
    lab.committer.start_anew(lab.n)
    return lab, ids


def test_replies_wait_until_the_first_snapshot_is_complete() -> None:
    """J6.5 replies that wait for a sync (J4.2, J4.4) wait for the snapshot"""
    lab, ids = switched_on()
    states = []
    while lab.committer.is_rewriting():
        ids.append(lab.add())
        states.append(
            (lab.committer.info()["aof_state"], lab.committer.must_hold(lab.committer.seq))
        )
        assert lab.committer.must_hold(lab.committer.seq) == lab.committer.journal.is_broken
    assert len(states) > 3
    assert states[0] == ("wait-rewrite", True)
    assert lab.committer.info()["aof_state"] == "on"
    assert not lab.committer.must_hold(lab.committer.seq)
    lab.disk.power_cut()
    again = restarted(lab.disk, START_MS)
    assert again.state() == lab.state()
    assert sorted(again.n.jobs) == sorted(ids)


@pytest.mark.parametrize("keep", [0, 50])
def test_a_cut_while_it_begins_leaves_what_was_there_before(keep: int) -> None:
    """J6.5 a crash leaves what was there before"""
    at = 0
    while True:
        at += 1
        lab = Lab()
        lab.start()
        old = lab.add()
        lab.committer.close(START_MS)
        new = Lab(lab.disk, seed=5)
        ids = [other_job(new) for _ in range(6)]
        new.committer.lock()
        lab.disk.cut_at = lab.disk.ops + at
        try:
            new.committer.start_anew(new.n)
            while new.committer.is_rewriting():
                ids.append(new.add())
            break
        except PowerCut:
            again = restarted(cut(lab.disk, keep), START_MS, seed=6)
            assert list(again.n.jobs) == [old] or set(ids) <= set(again.n.jobs), at
    assert at > 10


def test_a_stop_finishes_it_first() -> None:
    """J6.5 a crash leaves what was there before, replies that wait for a sync (J4.2, J4.4) wait
    for the snapshot, and a stop first completes it.
    """
    lab, ids = switched_on("everysec")
    lab.committer.settle(lab.n)
    assert lab.committer.close(lab.n.now_ms) == ""
    lab.disk.power_cut()
    assert sorted(restarted(lab.disk, START_MS).n.jobs) == sorted(ids)


def test_it_is_switched_off_before_it_has_begun() -> None:
    lab, _ = switched_on()
    lab.add()
    assert lab.committer.close(lab.n.now_ms, retired=True) == ""
    lab.disk.power_cut()
    assert restarted(lab.disk, START_MS).state() == {}


@pytest.mark.parametrize("fails", ["segment", "snapshot", "fsync"])
def test_a_failure_is_told_and_tried_again(fails: str) -> None:
    """J6.5 If it fails, J6.1 applies and it is retried each second."""
    lab = Lab()
    ids = [other_job(lab) for _ in range(9)]
    lab.committer.lock()
    lab.committer.journal.start_anew(0)  # names an empty journal
    if fails == "fsync":
        lab.disk.fsync_errors = 1
    else:
        lab.disk.capacity = lab.disk.used() + (20 if fails == "segment" else 600)
    lab.committer.start_anew(lab.n)
    lab.turn()
    lab.turn()
    assert "journal does not begin; the server retries each second" in lab.committer.error
    job_id = lab.add()
    assert lab.committer.must_hold(lab.committer.seq), "nobody is told that it is kept"
    lab.disk.capacity = 1 << 60
    for _ in range(3):
        lab.committer._retry_at = 0
        lab.turn(1000)
    assert lab.committer.error == ""
    assert not lab.committer.must_hold(lab.committer.seq)
    lab.disk.power_cut()
    assert sorted(restarted(lab.disk, START_MS).n.jobs) == sorted([*ids, job_id])
