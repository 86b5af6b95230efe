"""Recent: what was noted about ids lately, at most so many."""

from __future__ import annotations

import time

import pytest

from tuque.core.tables.repair import Recent


def id_of(i: int) -> bytes:
    """The id of job i."""
    return b"job-%d" % i


def test_the_oldest_leave() -> None:
    recent = Recent(3)
    for i in range(4):
        recent.note(id_of(i), 1 << i, 1_000 + i, i)
    assert recent.count() == 3
    assert [recent.nodes_of(id_of(i), 4) for i in range(4)] == [0, 2, 4, 8]


def test_a_later_note_keeps_an_id() -> None:
    recent = Recent(3)
    recent.note(b"a", 1, 1_000, 0)
    recent.note(b"b", 1, 1_000, 0)
    recent.note(b"a", 3, 1_000, 0)
    recent.note(b"c", 1, 1_000, 0)  # four were noted: the first of `a` leaves, its later one stays
    assert [recent.nodes_of(id, 0) for id in (b"a", b"b", b"c")] == [3, 1, 1]
    recent.note(b"d", 1, 1_000, 0)
    assert [recent.nodes_of(id, 0) for id in (b"a", b"b", b"c", b"d")] == [3, 0, 1, 1]


def test_what_is_over_counts_no_more_and_leaves() -> None:
    recent = Recent(100)
    for i in range(10):
        recent.note(id_of(i), 1, 1_000, 0)
    assert recent.nodes_of(id_of(0), 999) == 1 and recent.nodes_of(id_of(0), 1_000) == 0
    assert not recent.pop(id_of(0), 1_000) and recent.pop(id_of(1), 999)
    for i in range(10, 15):
        recent.note(id_of(i), 1, 9_000, 1_000)  # two leave each time
    assert recent.count() == 5


def test_nodes_are_taken_out() -> None:
    recent = Recent(3)
    recent.note(b"a", 7, 1_000, 0)
    recent.remove(b"a", 2)
    recent.remove(b"b", 2)
    assert recent.nodes_of(b"a", 0) == 5 and recent.count() == 1


@pytest.mark.long
def test_a_note_takes_no_longer_when_many_have_left() -> None:
    """A dict finds its oldest entry after a step for each one that was removed before it."""
    recent = Recent(100_000)

    def spent_s(start: int, count: int) -> float:
        begin = time.process_time()
        for i in range(start, start + count):
            recent.note(id_of(i), 1, 60_000, 0)
        return (time.process_time() - begin) / count

    first_s = min(spent_s(i, 1_000) for i in range(0, 20_000, 1_000))
    spent_s(20_000, 150_000)
    assert min(spent_s(i, 100) for i in range(170_000, 172_000, 100)) < 20 * first_s
