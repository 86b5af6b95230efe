"""The worker's decisions: how many jobs to fetch, when to beat, what becomes of a job."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.worker.app.decisions import (
    DONE,
    REASON_CHARS,
    Ack,
    Backoff,
    Dead,
    Limits,
    Nack,
    Outcome,
    beat_after_s,
    is_at_most_once,
    room,
    settle,
    spent,
)

LIMITS = Limits(3, "q.dead", Backoff(first_s=1, max_s=10, jitter=0.5))
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


class TestSettle:
    def test_acks_what_is_done(self) -> None:
        assert settle("id", DONE, 9, LIMITS, random.Random(1)) == Ack("id")

    def test_nacks_a_failure_with_a_growing_wait(self) -> None:
        first = settle("id", FAILED, 1, LIMITS, random.Random(1))
        second = settle("id", FAILED, 2, LIMITS, random.Random(1))
        assert isinstance(first, Nack)
        assert isinstance(second, Nack)
        assert first.delay_s is not None
        assert second.delay_s == first.delay_s * 2

    def test_buries_at_the_delivery_limit_with_the_reason(self) -> None:
        assert settle("id", FAILED, 3, LIMITS, random.Random(1)) == Dead(
            "id", "q.dead", "attempt 3 of 3: ValueError: no"
        )

    def test_buries_a_rejected_job_at_once(self) -> None:
        dead = settle("id", Outcome("rejected", "no such order"), 1, LIMITS, random.Random(1))
        assert dead == Dead("id", "q.dead", "rejected: no such order")

    def test_waits_as_long_as_the_task_asked_for(self) -> None:
        later = Outcome("retry", "busy", delay_s=7.5)
        assert settle("id", later, 1, LIMITS, random.Random(1)) == Nack("id", 7.5)

    def test_a_reason_is_one_line_of_bounded_length(self) -> None:
        dead = settle("id", Outcome("failed", "a\nb " * 1000), 3, LIMITS, random.Random(1))
        assert isinstance(dead, Dead)
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
