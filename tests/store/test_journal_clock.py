"""Due times are absolute; a clock that jumps expires nothing and fires nothing early."""

from __future__ import annotations

from journal_lab import BOOT_ID, START_MS, Lab

from tuque.core.model.job import ACTIVE, DELIVERED, QUEUED
from tuque.store.frames import Boot
from tuque.store.replay import clock_jump_ms

HOUR_MS = 3_600_000


def stopped() -> tuple[Lab, bytes, bytes]:
    lab = Lab()
    lab.start()
    lab.pass_ms(5_000)
    delayed = lab.add(b"q", b"later", delay=100)
    queued = lab.add(b"q", b"now")
    lab.pass_ms(10_000)
    lab.committer.close(lab.n.now_ms)
    return lab, delayed, queued


def started(lab: Lab, now_ms: int, boot_id: bytes, boottime_ms: int) -> Lab:
    again = Lab(lab.disk, now_ms=now_ms, seed=now_ms)
    again.committer.boot = Boot(now_ms, boot_id, boottime_ms)
    again.committer.journal.boot = again.committer.boot
    again.start()
    return again


def test_time_that_passed_counts() -> None:
    lab, delayed, queued = stopped()
    again = started(lab, START_MS + 60_000, BOOT_ID, 60_000)
    assert again.n.jobs[delayed].qtime_ms == START_MS + 105_000
    assert again.n.jobs[queued].expire_ms == START_MS + 5_000 + 86_400_000
    again.pass_ms(44_000)
    assert again.n.jobs[delayed].state == ACTIVE
    again.pass_ms(1_100)
    assert again.n.jobs[delayed].state == QUEUED


def test_a_clock_set_forward_expires_nothing() -> None:
    """The machine's own clock says that a minute went by, the wall clock says two days."""
    lab, delayed, queued = stopped()
    jump_ms = 48 * HOUR_MS
    again = started(lab, START_MS + 60_000 + jump_ms, BOOT_ID, 60_000)
    assert again.n.jobs[delayed].qtime_ms - again.n.now_ms == 45_000
    assert again.n.jobs[queued].expire_ms - again.n.now_ms == 5_000 + 86_400_000 - 60_000
    again.add()
    assert again.get() == queued  # still the oldest


def test_a_clock_set_back_freezes_nothing() -> None:
    lab, delayed, _ = stopped()
    again = started(lab, START_MS - 48 * HOUR_MS, BOOT_ID, 60_000)
    assert again.n.jobs[delayed].qtime_ms - again.n.now_ms == 45_000


def test_after_a_reboot_a_clock_set_back_counts_as_no_time() -> None:
    lab, delayed, _ = stopped()
    again = started(lab, START_MS - HOUR_MS, b"another boot", 1)
    assert again.n.jobs[delayed].qtime_ms - again.n.now_ms == 90_000
    later = started_again(again)
    assert later.n.jobs[delayed].qtime_ms - later.n.now_ms == 80_000


def started_again(lab: Lab) -> Lab:
    """Ten seconds later, on the same machine: the first segment moves with the second."""
    lab.committer.close(lab.n.now_ms)
    now_ms = START_MS - HOUR_MS + 10_000
    return started(lab, now_ms, b"another boot", 10_001)


def test_after_a_reboot_the_wall_clock_is_believed() -> None:
    lab, delayed, _ = stopped()
    again = started(lab, START_MS + 3 * 86_400_000, b"another boot", 1)
    assert again.n.jobs == {} and delayed


def test_jumps() -> None:
    known = Boot(1_000_000, b"a", 500)
    assert clock_jump_ms(known, 1_000_000, Boot(1_001_500, b"a", 1_000)) == 0  # within drift
    assert clock_jump_ms(known, 1_000_000, Boot(1_060_000, b"a", 500)) == 60_000
    assert clock_jump_ms(known, 1_000_000, Boot(1_060_000, b"b", 500)) == 0
    assert clock_jump_ms(known, 1_070_000, Boot(1_060_000, b"b", 500)) == -10_000
    unknown = Boot(1_000_000, b"", 0)
    assert clock_jump_ms(unknown, 1_000_000, Boot(1_060_000, b"", 0)) == 0


def test_what_comes_back_in_which_state() -> None:
    lab = Lab()
    lab.start()
    handed_out = lab.add(b"q", b"1", retry=30)
    assert lab.get() == handed_out
    amo_out = lab.add(b"q", b"2", retry=0)
    assert lab.get() == amo_out
    amo_queued = lab.add(b"q", b"3", retry=0)
    amo_delayed = lab.add(b"q", b"4", retry=0, delay=20)
    acked = lab.add(b"q", b"5")
    lab.ack(acked)
    lab.disk.power_cut()
    again = started(lab, START_MS + 10_000, BOOT_ID, 10_000)
    jobs = again.n.jobs
    assert acked not in jobs
    assert jobs[handed_out].state == ACTIVE and jobs[handed_out].qtime_ms == START_MS + 30_000
    assert jobs[amo_out].state == ACTIVE and jobs[amo_out].flags & DELIVERED
    assert jobs[amo_queued].state == QUEUED
    assert again.get() == amo_queued
    again.pass_ms(10_100)
    assert again.get() == amo_delayed
    again.pass_ms(10_000)
    assert again.get() == handed_out
    again.pass_ms(10_000_000)
    assert jobs[amo_out].state == ACTIVE  # never again


def test_an_acked_job_stays_acked_whatever_follows() -> None:
    lab = Lab()
    lab.start()
    job_id = lab.add()
    job = lab.n.jobs[job_id]
    lab.ack(job_id)
    assert lab.n.records is not None
    lab.n.records.add(job)  # as a late copy would
    job.state = ACTIVE
    lab.n.records.add(job)
    lab.turn()
    lab.disk.power_cut()
    again = Lab(lab.disk)
    loader = again.start()
    assert again.n.jobs == {} and loader.refused_count == 1
