"""Rules of work that need no node: core/work alone (SPEC W)."""

from __future__ import annotations

import pytest

from tuque.core.model.errors import ATWORK, CANCELLED_JOB, DEAD_LETTER, RESTING
from tuque.core.model.work import LIVE, Life, Terms, run_of
from tuque.core.work import rules

NOW_MS = 50_000


def work_of(attempts: int = 3, limit_ms: int = 0, jitter: int = 0) -> Life:
    return Life(Terms(attempts, 1_000, 30_000, jitter, b"", 0, limit_ms), b"")


def why(work: Life, place: int, worker: bytes = b"w") -> int:
    refused = rules.may_begin(work, place, b"q", worker, NOW_MS)
    return 0 if refused is None else int(refused.code)


@pytest.mark.parametrize(
    ("failed", "crashes", "wait_ms"),
    [(1, 0, 1_000), (2, 0, 2_000), (0, 1, 1_000), (2, 1, 4_000), (3, 3, 30_000), (60, 9, 30_000)],
)
def test_back_off_grows_with_failures_and_crashes(failed: int, crashes: int, wait_ms: int) -> None:
    """W5.4 Otherwise the job waits for DELAY, or min(max, first x 2^(failed + `crashes` - 1)) less
    a random share of up to jitter.
    """
    for jitter, draw, less in ((0, 1_000, 0), (500, 0, 0), (500, 1_000, wait_ms // 2)):
        work = work_of(jitter=jitter)
        work.failed, work.crashes = failed, crashes
        assert rules.back_off_ms(work, draw) == wait_ms - less


def test_a_back_off_ends_where_the_job_is_queued() -> None:
    """W2.3 In its first delay or in a back-off, at any holder that has heard of it:
    `-NOTDELIVERED`.
    """
    work = work_of()
    work.is_resting = True
    assert why(work, rules.DELIVERED) == RESTING
    assert why(work, rules.WAITING) == 0


def test_who_may_begin() -> None:
    """W2.4 At work: the same worker gets the same run again."""
    work = work_of()
    assert rules.begin(work, run_of(1, 1, 7), b"w", 4, NOW_MS)
    assert (work.run_state, work.starts, work.since_ms, work.client) == (LIVE, 1, NOW_MS, 4)
    assert (why(work, rules.DELIVERED), why(work, rules.DELIVERED, b"v")) == (0, ATWORK)
    assert rules.flag(work, b"enough") and not rules.flag(work, b"later")
    assert (why(work, rules.DELIVERED), why(work, rules.DELIVERED, b"v")) == (CANCELLED_JOB, ATWORK)
    work.is_dead = True
    assert why(work, rules.WAITING) == DEAD_LETTER


def test_a_run_is_over_at_its_time_limit() -> None:
    """W3.3 A run that lasts longer than TIMELIMIT fails with the cause `timeout`"""
    work = work_of(limit_ms=2_000)
    rules.begin(work, run_of(1, 1, 7), b"w", -1, NOW_MS)
    assert rules.due_by(work, NOW_MS + 9_000) == NOW_MS + 2_000
    assert not rules.is_over_time(work, NOW_MS + 1_999)
    assert rules.is_over_time(work, NOW_MS + 2_000), "its timer fires at that instant"
