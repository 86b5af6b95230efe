"""Timers: never early, at most 16 ms late, cancelled without a trace (SPEC G)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tuque.core.model.job import Job
from tuque.core.model.timers import (
    FINE_MS,
    KEY_MASK,
    NEVER_MS,
    Alarms,
    Wheel,
)

START = 1_800_000_000_000
LATE_MS = 16


def job_due(number: int, at_ms: int) -> Job:
    """A job whose only timer is its end."""
    return Job(b"%040d" % number, b"q", b"", number, at_ms, 1, 0, 1)


WAITS = st.one_of(
    st.integers(0, 300),
    st.integers(0, 200_000),
    st.integers(0, 20_000_000),
    st.integers(0, 2**31 * 1000),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(WAITS, st.booleans()), min_size=1, max_size=40))
def test_every_timer_fires_once_in_time(waits: list[tuple[int, bool]]) -> None:
    """Each armed job fires within 16 ms after its instant; a cancelled one never."""
    wheel = Wheel()
    now = START
    expected = {}
    for number, (wait_ms, cancelled) in enumerate(waits):
        job = job_due(number, now + wait_ms)
        wheel.arm(job, now)
        if cancelled:
            wheel.cancel(job)
        else:
            expected[job.id] = job.expire_ms
    assert wheel.count == len(expected)
    for _ in range(10_000):
        at = wheel.next_ms()
        if at == NEVER_MS:
            break
        now = max(now, at)
        for job in wheel.due(now, 7):
            due = expected.pop(job.id)
            assert due <= now <= due + LATE_MS
    assert not expected
    assert wheel.count == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), WAITS), min_size=1, max_size=80))
def test_moving_timers_leaves_no_entry_behind(moves: list[tuple[int, int]]) -> None:
    """Re-arming moves the one entry of a job; entries and `count` agree."""
    wheel = Wheel()
    jobs = [job_due(number, START + 10**12) for number in range(10)]
    armed = set()
    for which, wait_ms in moves:
        jobs[which].expire_ms = START + wait_ms
        wheel.arm(jobs[which], START)
        armed.add(which)
    held = [job for slot in wheel.slots.values() for job in slot]
    assert len(held) == len(armed) == wheel.count
    assert {id(job) for job in held} == {id(jobs[which]) for which in armed}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), WAITS), min_size=1, max_size=60))
def test_the_next_instant_is_right_after_each_change(
    changes: list[tuple[int, bool, int]],
) -> None:
    """It is asked for more often than it changes, so the wheel keeps it."""
    wheel = Wheel()
    jobs = [job_due(number, START) for number in range(10)]
    for which, cancelled, wait_ms in changes:
        if cancelled:
            wheel.cancel(jobs[which])
        else:
            jobs[which].expire_ms = START + wait_ms
            wheel.arm(jobs[which], START)
        fresh = [
            start if key & 3 else start + FINE_MS
            for start, key in wheel.starts
            if wheel.slots[key & KEY_MASK]
        ]
        assert wheel.next_ms() == min(fresh, default=NEVER_MS)


def test_a_burst_is_dealt_out_in_bounded_steps() -> None:
    """Ten thousand timers of one far slot never make one call longer than asked."""
    wheel = Wheel()
    for number in range(10_000):
        wheel.arm(job_due(number, START + 50_000 + number % 300), START)
    now, fired = START, 0
    while wheel.next_ms() != NEVER_MS:
        now = max(now, wheel.next_ms())
        some = wheel.due(now, 100)
        assert len(some) <= 100
        fired += len(some)
    assert fired == 10_000


def test_slots_that_start_together_share_a_step() -> None:
    """All that one step moves to finer slots is bounded, however many slots have started."""
    wheel = Wheel()
    for number in range(400):
        wheel.arm(job_due(number, START + 3_000 + number * 1_000), START)
    now, moved = START + 500_000, []
    while wheel.count > 0:
        coarse = sum(len(jobs) for key, jobs in wheel.slots.items() if key & 3)
        fired = wheel.due(now, 50)
        moved.append(coarse - sum(len(jobs) for key, jobs in wheel.slots.items() if key & 3))
        assert len(fired) <= 50
    assert sum(moved) == 400 and max(moved) == 50


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.just(NEVER_MS), st.integers(1, 6)))))
def test_the_least_alarm_is_known_after_any_change(changes: list[tuple[int, int]]) -> None:
    """Whether it is asked for after each change, or only at the end."""
    asked, late = Alarms(4), Alarms(4)
    plain = [NEVER_MS] * 4
    assert asked.next_ms() == NEVER_MS
    for slot, at_ms in changes:
        for alarms in (asked, late):
            alarms.set(slot, at_ms)
        plain[slot] = at_ms
        assert asked.at(slot) == at_ms
        assert asked.next_ms() == min(plain)
    assert late.next_ms() == min(plain)
    for slot in range(4):
        late.unset(slot)
    assert late.next_ms() == NEVER_MS
