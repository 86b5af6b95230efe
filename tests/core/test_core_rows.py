"""Orders of entries that may leave anywhere (SPEC L2.12), against a sorted list."""

from __future__ import annotations

import itertools
import random

import pytest

from tuque.core.model.rows import FEW, NEVER_MS, ROW, Instants, Rows

MANY = 30_000
SEARCH = 40  # looks of two searches among so many, and some


class Counted(bytes):
    """A key that counts how often two are compared."""

    looks = 0

    def __lt__(self, other: bytes) -> bool:
        Counted.looks += 1
        return super().__lt__(other)


def rows_of(order: Rows) -> None:
    """Assert that rows are in order, none of them too long, empty, or among many short ones."""
    listed = order.listed()
    assert listed == sorted(listed) and len(listed) == order.count
    assert all(0 < len(row) < 2 * ROW for row in order.rows)
    assert len(order.items) < 2 * ROW and (order.count == 0) == (len(order.items) == 0)
    pairs = itertools.pairwise(order.rows)
    assert all(len(a) + len(b) > FEW for a, b in pairs)
    assert all(one is None for one in order.items[: order.head])


@pytest.mark.parametrize("seed", range(4))
def test_an_order_is_that_of_a_sorted_list(seed: int) -> None:
    """Entries come and leave anywhere; the first, the last and all of them are as in a list."""
    dice = random.Random(seed)
    order = Instants()
    there: list[tuple[int, bytes]] = []
    for step in range(12_000):
        grows = dice.random() < (0.7 if step < 8_000 else 0.2)
        if grows or not there:
            ahead = step if dice.random() < 0.5 else dice.randrange(step + 1)
            entry = (ahead, b"%d" % step)
            there.append(entry)
            order.add(entry)
        elif dice.random() < 0.3:
            there.remove(min(there))
            order.drop_top()
        else:
            order.remove(there.pop(dice.randrange(len(there))))
        if step % 400 == 0:
            rows_of(order)
            expected = sorted(there)
            assert order.listed() == expected
            for most in (1, 5, 700):
                assert order.firsts(most) == expected[:most]
                assert order.lasts(most) == expected[::-1][:most]
            assert order.top() == (expected[0] if expected else None)
            assert order.last() == (expected[-1] if expected else None)


@pytest.mark.parametrize("how", ["first", "last", "any", "every second"])
def test_who_leaves_costs_a_search(how: str) -> None:
    """L2.12 Where jobs, tasks or keys wait in an order, one that comes or leaves, wherever it
    stands, costs two searches and a bounded number of moves: nothing is sorted anew, and nothing of
    those that left is kept.
    """
    dice = random.Random(how)
    order = Instants()
    keys = [Counted(b"%05d" % number) for number in range(MANY)]
    dice.shuffle(keys)
    for key in keys:
        Counted.looks = 0
        order.set(key, 1)
        assert Counted.looks <= SEARCH
    keys.sort(reverse=how == "last")
    if how == "any":
        dice.shuffle(keys)
    elif how == "every second":
        keys = keys[::2] + keys[1::2]
    for at, key in enumerate(keys):
        Counted.looks = 0
        order.unset(key, 1)
        assert Counted.looks <= SEARCH
        if at % 5_000 == 0:
            rows_of(order)
            assert sum(map(len, order.rows)) + len(order.items) - order.head == order.count
    assert order.count == 0 and order.top() is None


def test_instants_change() -> None:
    """A key has one instant at most; the earliest is known."""
    ends = Instants()
    assert ends.first_ms() == NEVER_MS
    ends.set(b"a", 50)
    ends.set(b"b", 40)
    assert (ends.first_ms(), ends.first_key(), ends.count) == (40, b"b", 2)
    ends.unset(b"a", 50)
    ends.set(b"a", 30)
    ends.unset(b"b", 40)
    assert ends.listed() == [(30, b"a")]


def test_what_is_not_there_cannot_leave() -> None:
    """An entry that is out of its order is a bug of the caller, and is not passed over."""
    ends = Instants()
    with pytest.raises(AssertionError):
        ends.remove((1, b"a"))
    for at_ms in range(2_000):
        ends.add((2 * at_ms, b"a"))
    for entry in ((-1, b"a"), (1, b"a"), (2_000, b"b"), (9_000, b"a")):
        with pytest.raises(AssertionError):
            ends.remove(entry)
    assert ends.count == 2_000
