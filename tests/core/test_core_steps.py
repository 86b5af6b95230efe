"""When producers that wait for copies are looked at next (SPEC R4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuque.core.model.timers import NEVER_MS, Steps


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60)), max_size=40))
def test_all_are_taken_in_order_and_none_early(moves: list[tuple[int, int]]) -> None:
    """Each move adds some ids at an instant 50 ms ahead; then time passes."""
    steps = Steps()
    waiting: list[tuple[int, bytes]] = []
    now_ms = 1_000
    for count, pass_ms in moves:
        for _ in range(count):
            id = b"%d" % len(waiting)
            steps.put(now_ms + 50, id)
            waiting.append((now_ms + 50, id))
        now_ms += pass_ms
        assert steps.next_ms() == (waiting[0][0] if waiting else NEVER_MS)
        taken: list[bytes] = []
        while ids := steps.take(now_ms):
            taken += ids
        assert taken == [id for at_ms, id in waiting if at_ms <= now_ms]
        waiting = [one for one in waiting if one[0] > now_ms]
    assert steps.next_ms() == (waiting[0][0] if waiting else NEVER_MS)
