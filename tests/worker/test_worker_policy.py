"""The worker's decisions: how many jobs to fetch, when to beat, what becomes of a job."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.client.commands.work import UNBEGUN
from tuque.worker.app.decisions import (
    REASON_CHARS,
    Backoff,
    Done,
    Fail,
    Limits,
    Outcome,
    OutcomeKind,
    Release,
    Report,
    beat_after_s,
    conclude,
    is_at_most_once,
    room,
    spent,
)

LIMITS = Limits(3, Backoff(first_s=1, max_s=10, jitter=0.5))
FAILED = Outcome("failed", "ValueError: no")


class TestBackoff:
    @given(st.integers(-3, 10_000), st.integers())
    def test_stays_between_the_jittered_double_and_its_cap(self, attempt: int, seed: int) -> None:
        whole = min(10.0, 1.0 * 2 ** min(max(attempt - 1, 0), 40))
        delay_s = LIMITS.backoff.delay_s(attempt, random.Random(seed))
        assert whole * 0.5 <= delay_s <= whole

    def test_doubles_without_jitter(self) -> None:
        backoff = Backoff(first_s=1, max_s=10, jitter=0)
        rng = random.Random(1)
        assert [backoff.delay_s(n, rng) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]

    @pytest.mark.parametrize("bad", [{"first_s": -1}, {"first_s": 5, "max_s": 1}, {"jitter": 2}])
    def test_refuses_values_without_sense(self, bad: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="backoff"):
            Backoff(**bad)


class TestConclude:
    def end(self, outcome: Outcome, attempt: int | None = None, id: str = "a1") -> Report:
        return conclude(id, "1.1.a", outcome, LIMITS, random.Random(1), attempt)

    def test_what_is_done_keeps_its_result(self) -> None:
        assert self.end(Outcome("done", result=b"7"), 9) == Done("a1", "1.1.a", b"7")
        done = conclude("a1", UNBEGUN, Outcome("done", result=b"7"), LIMITS, random.Random(1), 9)
        assert done == Done("a1", UNBEGUN), "a task without runs has none"

    def test_the_broker_counts_a_failure_and_says_when(self) -> None:
        assert self.end(FAILED) == Fail("a1", "1.1.a", "ValueError: no")

    def test_the_worker_counts_with_a_growing_wait(self) -> None:
        """U2.6 It says FAIL with DELAY, and with FINAL at the limit of the task"""
        first, second = self.end(FAILED, 1), self.end(FAILED, 2)
        assert isinstance(first, Fail) and isinstance(second, Fail)
        assert first.delay_s is not None and second.delay_s == first.delay_s * 2
        assert not first.is_final and not second.is_final
        assert self.end(FAILED, 3) == Fail("a1", "1.1.a", "ValueError: no", is_final=True)

    def test_buries_a_rejected_job_at_once(self) -> None:
        rejected = Fail("a1", "1.1.a", "rejected: no such order", is_final=True)
        for attempt in (None, 1):
            assert self.end(Outcome("rejected", "no such order"), attempt) == rejected

    def test_later_is_no_attempt(self) -> None:
        later = Outcome("retry", "busy", delay_s=7.5)
        for attempt in (None, 3):
            assert self.end(later, attempt) == Release("a1", "1.1.a", 7.5)

    @pytest.mark.parametrize("kind", ["failed", "retry", "cancelled", "timeout", "crashed"])
    def test_what_comes_once_ends_for_good(self, kind: OutcomeKind) -> None:
        """U2.5 A job with RETRY 0 ends with DONE or FAIL FINAL"""
        report = self.end(Outcome(kind, "busy", delay_s=1.0), 1, "a0")
        cause = kind if kind in ("timeout", "crashed") else "failed"
        told = "the only try (retry_s=0): busy"
        assert report == Fail("a0", "1.1.a", told, is_final=True, cause=cause)

    def test_a_reason_is_one_line_of_bounded_length(self) -> None:
        dead = self.end(Outcome("failed", "a\nb " * 1000), 3)
        assert isinstance(dead, Fail)
        assert len(dead.reason) == REASON_CHARS
        assert "\n" not in dead.reason

    def test_a_job_that_ended_its_workers_is_not_run_once_more(self) -> None:
        assert spent(3, LIMITS) is None
        assert spent(4, LIMITS) == "delivered 3 times without success, the limit is 3"


class TestRoom:
    @given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 100))
    def test_never_holds_more_than_asked_for_and_never_starves(
        self, concurrency: int, prefetch: int, running: int, waiting: int
    ) -> None:
        want = room(concurrency, prefetch, running, waiting)
        assert want >= 0
        assert want == 0 or running + waiting + want <= concurrency + prefetch
        if running + waiting < concurrency:
            assert want > 0

    def test_fetches_many_at_once_when_the_buffer_is_half_empty(self) -> None:
        assert room(8, 8, 8, 8) == 0
        assert room(8, 8, 8, 5) == 0
        assert room(8, 8, 8, 4) == 4
        assert room(8, 8, 0, 0) == 16

    def test_without_prefetch_a_free_place_is_one_job(self) -> None:
        assert room(2, 0, 2, 0) == 0
        assert room(2, 0, 1, 0) == 1


class TestBeat:
    @given(st.integers(1, 10**6))
    def test_comes_before_half_of_the_retry_time(self, retry_s: int) -> None:
        after_s = beat_after_s(retry_s)
        assert after_s is not None
        assert 0 < after_s <= retry_s / 2

    def test_the_first_one_suits_the_shortest_retry(self) -> None:
        first_s = beat_after_s(None)
        assert first_s is not None
        assert first_s <= 0.5

    def test_a_job_at_most_once_needs_none(self) -> None:
        assert beat_after_s(0) is None

    def test_a_job_that_comes_once_is_known_by_its_id(self) -> None:
        assert is_at_most_once("D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-05a0")
        assert is_at_most_once("D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-000e")
        assert not is_at_most_once("D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-05a1")
        assert not is_at_most_once("D-5a02d844-AOq+vjzc3Ib9fRcvbwXWVmDZ-000f")
