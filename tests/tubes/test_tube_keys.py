"""SPEC T40 to T44: lanes, places, tokens and turns, against rules that look at every task."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from keys_lab import SECOND_NS, START_MS, Lab, drain, keys_of

from tuque.core.model.task import BURIED, DELAYED, DONE, TAKEN, Task
from tuque.tubes.entries.keys import Keys, unpack
from tuque.tubes.entries.keys import keys_of as keys_in
from tuque.tubes.policies import next_task
from tuque.tubes.policies.limits import Bucket
from world import World

IS_COMPILED = not (next_task.__file__ or "").endswith(".py")


# ---- against rules that look at every task


@dataclass
class Rules:
    """What may be taken, found by looking at every task (T41, T42)."""

    lab: Lab
    full: dict[bytes, int] = field(default_factory=dict)  # ns at which a bucket is full

    def may_go(self, tasks: Iterable[Task]) -> list[Task]:
        """Those of the tasks that could be the next."""
        taken = Counter(self.lab.keys[number].limit for number in self.lab.taken)
        found = []
        for task in tasks:
            keys = self.lab.keys[task.number]
            has_place = not keys.limit or taken[keys.limit] < keys.places
            if has_place and (not keys.rate or self.has_token(keys)):
                found.append(task)
        return found

    def has_token(self, keys: Keys) -> bool:
        missing = self.full.get(keys.rate, 0) - self.lab.driver.now_ms * 1_000_000
        return missing <= (keys.burst - 1) * keys.gap_ns

    def took(self, task: Task) -> None:
        keys = unpack(keys_in(task))
        assert self.may_go([task]), "a limit was exceeded"
        if keys.rate:
            full = max(self.full.get(keys.rate, 0), self.lab.driver.now_ms * 1_000_000)
            self.full[keys.rate] = full + keys.gap_ns


def some_keys(chance: random.Random, is_shared: bool) -> Keys:
    """Keys of which all tasks of one limit share the rate (T41.5)."""
    group = b"g%d" % chance.randrange(3)
    which = chance.randrange(4)
    tail = b"" if is_shared else group + b"%d" % which
    keys = keys_of(group, 1 + int(group[1:]) % 3)
    if which in (1, 3):
        keys.limit, keys.places = b"l%d" % which + tail, which
    if which in (2, 3):
        keys.rate, keys.gap_ns, keys.burst = b"r" + tail, SECOND_NS // 3 + 1, 2
    return keys


@pytest.mark.parametrize("seed", range(10))
def test_no_limit_is_exceeded_and_no_take_is_missed(seed: int) -> None:
    chance = random.Random(seed)
    lab = Lab()
    rules = Rules(lab)
    is_shared = seed % 2 == 0
    for step in range(1_500):
        what = chance.random()
        if what < 0.36:
            lab.put(some_keys(chance, is_shared), chance.randrange(3))
        elif what < 0.70:
            allowed = rules.may_go(lab.ready.values())
            task = lab.driver.first()
            assert (task is None) == (not allowed), "T41.5: a task could go"
            if task is not None:
                assert lab.take() is task
                lab.taken.pop(task.number)
                rules.took(task)
                lab.taken[task.number] = task
                if not is_shared:
                    group = unpack(keys_in(task)).group
                    ours = [one for one in allowed if lab.keys[one.number].group == group]
                    best = min(ours, key=lambda one: (one.pri, one.number))
                    assert best is task, "T43.3: priorities inside a group"
        elif what < 0.80 and lab.taken:
            lab.end(chance.choice(list(lab.taken.values())))
        elif what < 0.86 and lab.taken:
            lab.give_back(chance.choice(list(lab.taken.values())))
        elif what < 0.92 and lab.ready:
            lab.remove(chance.choice(list(lab.ready.values())), chance.choice([DONE, BURIED]))
        else:
            lab.advance(chance.choice([1, 50, 333, 2_000]))
        if step % 10 == 0:
            lab.check()
    drain(lab)


# ---- places


def test_a_place_comes_back_and_goes_to_who_waits() -> None:
    lab = Lab()
    four = [lab.put(keys_of(limit=b"a", places=2)) for _ in range(4)]
    other = lab.put(keys_of())
    assert [lab.take(), lab.take(), lab.take()] == [four[0], four[1], other]
    assert lab.take() is None
    lab.end(four[0])
    assert lab.take() is four[2]
    lab.give_back(four[1])
    assert lab.take() is four[1]  # its old place in the order


def test_more_tasks_than_places_after_a_load_take_none() -> None:
    lab = Lab()
    for number in range(3):
        lab.load(number, keys_of(limit=b"a", places=2), TAKEN)
    new = lab.put(keys_of(limit=b"a", places=2))
    assert lab.take() is None
    lab.end(lab.taken[0])
    assert lab.take() is None  # T41.4: two are at work still
    lab.end(lab.taken[1])
    assert lab.take() is new


def test_a_place_given_before_the_load_was_over_is_taken_back() -> None:
    lab = Lab()
    ready = lab.put(keys_of(limit=b"a", places=1))
    other = lab.load(7, keys_of(limit=b"a", places=1), TAKEN)
    assert not lab.driver.full_limits
    lab.driver.loaded()
    assert list(lab.driver.full_limits) == [b"a"], "T47.1: a task waits"
    assert lab.take() is None  # T41.4
    lab.check()
    lab.end(other)
    assert lab.take() is ready


def test_a_slower_rate_holds_back_what_might_have_gone() -> None:
    lab = Lab()
    for group in (b"a", b"b"):
        lab.put(keys_of(group, rate=b"r", gap_ns=SECOND_NS, burst=2))
    lab.put(keys_of(b"c", rate=b"r", gap_ns=SECOND_NS, burst=1))
    assert lab.take() is not None
    assert lab.take() is None  # T40.3
    lab.check()
    lab.advance(1_000)
    assert lab.take() is not None


def test_the_last_put_sets_the_places_of_its_key() -> None:
    lab = Lab()
    for _ in range(3):
        lab.put(keys_of(limit=b"a", places=1))
    first = lab.take()
    assert first is not None
    assert lab.take() is None
    lab.put(keys_of(limit=b"a", places=3))
    assert lab.take() is not None
    assert lab.take() is not None
    assert lab.take() is None
    lab.give_back(first)  # T40.3: it says one place, but is older
    assert lab.take() is first


@pytest.mark.parametrize("seed", range(4))
def test_the_highest_number_counts_in_whatever_status(seed: int) -> None:
    """T40.3 Weight, places and rate of a key are those of the task with the highest number that
    has them, whatever its state. When that task is gone, the next one counts.
    """
    chance = random.Random(seed)
    lab = Lab()
    alive: dict[int, Keys] = {}
    for _ in range(400):
        driver, number = lab.driver, lab.number
        what = chance.random()
        if what < 0.4 or not alive:
            many = chance.randrange(1, 6)
            keys = keys_of(b"g", many, b"l", many, b"r", many * SECOND_NS // 10, many)
            if what < 0.2:
                alive[number] = keys
                lab.put(keys)
            else:  # with a delay, or loaded later than others
                number = chance.choice([number, 10_000 - number])
                alive[number] = keys
                lab.number, before = 0, lab.number
                lab.load(number, keys, DELAYED)
                lab.number = before + 1
        elif what < 0.5 and lab.ready:
            lab.remove(chance.choice(list(lab.ready.values())), BURIED)
        elif what < 0.6 and lab.buried:
            lab.enter(chance.choice(list(lab.buried.values())))
        elif what < 0.7 and lab.take() is not None:
            lab.advance(10_000)
        elif lab.taken and what < 0.8:
            task = chance.choice(list(lab.taken.values()))
            lab.end(task)
            del alive[task.number]
        elif lab.buried or lab.ready:
            task = max((*lab.buried.values(), *lab.ready.values()), key=lambda one: one.number)
            lab.delete(task) if task.number in lab.buried else lab.remove(task)
            del alive[task.number]
        lab.check()
        if not alive:
            continue
        wanted = alive[max(alive)]
        if b"l" in driver.limits:
            assert driver.limits[b"l"].places == wanted.places
        if b"g" in driver.groups:
            assert driver.groups[b"g"].weight == wanted.weight
        if b"r" in driver.rates:
            assert (driver.rates[b"r"].gap_ns, driver.rates[b"r"].burst) == (
                wanted.gap_ns,
                wanted.burst,
            )
    drain(lab)


def test_a_buried_task_may_come_back() -> None:
    lab = Lab()
    task = lab.put(keys_of(limit=b"a", places=1))
    lab.remove(task, BURIED)
    assert lab.driver.keys() == 0  # T40.4
    lab.enter(task)
    assert lab.take() is task


def test_a_kept_place_may_hold_back_a_task_with_another_rate() -> None:
    lab = Lab()
    slow = lab.put(keys_of(limit=b"a", places=1, rate=b"slow", gap_ns=SECOND_NS))
    assert lab.take() is slow
    lab.put(keys_of(limit=b"a", places=1, rate=b"slow", gap_ns=SECOND_NS))
    fast = lab.put(keys_of(limit=b"a", places=1, rate=b"fast", gap_ns=1_000_000))
    lab.end(slow)
    assert lab.take() is None  # T41.5
    lab.advance(1_000)
    second = lab.take()
    assert second is not None and second is not fast
    lab.end(second)
    assert lab.take() is fast


# ---- tokens


def test_tokens_of_a_bucket() -> None:
    bucket = Bucket(SECOND_NS // 10, 3, 0)
    assert bucket.tokens(START_MS) == 3
    for _ in range(3):
        bucket.spend(START_MS)
    assert bucket.tokens(START_MS) == 0
    assert bucket.tokens(START_MS + 99) == 0
    assert bucket.tokens(START_MS + 100) == 1
    assert bucket.token_ms(1) == START_MS + 100
    assert bucket.token_ms(3) == START_MS + 300 == bucket.full_ms()
    bucket.change(SECOND_NS // 10, 1, START_MS)
    assert bucket.tokens(START_MS + 100) == 1


@pytest.mark.parametrize("seed", range(5))
def test_no_window_has_more_takes_than_burst_and_rate(seed: int) -> None:
    chance = random.Random(seed)
    per_s, burst = chance.choice([(3, 1), (7, 4), (1_000, 30), (90, 2)])
    gap_ns = -(-SECOND_NS // per_s)
    bucket = Bucket(gap_ns, burst, 0)
    at_ms = START_MS
    takes: list[int] = []
    for _ in range(1_500):
        at_ms += chance.choice([0, 0, 1, 5, 400])
        if bucket.tokens(at_ms) > 0:
            bucket.spend(at_ms)
            takes.append(at_ms)
    for first in range(0, len(takes), 7):
        for last in range(first, min(first + 60, len(takes))):
            span_ms = takes[last] - takes[first]
            assert last - first + 1 <= burst + span_ms * per_s / 1_000


def test_the_alarm_moves_with_each_take() -> None:
    lab = Lab()
    for _ in range(4):
        lab.put(keys_of(rate=b"a", gap_ns=SECOND_NS))
    assert lab.take() is not None
    assert lab.driver.next_ms() == START_MS + 1_000
    lab.driver.now_ms += 1_700  # late
    lab.driver.wake(1)
    assert lab.take() is not None
    assert lab.take() is None
    assert lab.driver.next_ms() == START_MS + 2_700  # T42.3


def test_a_new_leader_begins_with_empty_buckets() -> None:
    lab = Lab()
    lab.driver.begin_empty(START_MS)
    lab.put(keys_of(rate=b"a", gap_ns=SECOND_NS, burst=5))
    assert lab.take() is None
    lab.advance(1_000)
    assert lab.take() is not None
    lab.advance(1_500)
    lab.put(keys_of(rate=b"b", gap_ns=SECOND_NS, burst=5))  # T42.4: spent by whom?
    assert lab.take() is not None
    lab.put(keys_of(rate=b"b", gap_ns=SECOND_NS, burst=5))
    lab.put(keys_of(rate=b"b", gap_ns=SECOND_NS, burst=5))
    assert lab.take() is not None
    assert lab.take() is None


def test_an_older_task_does_not_bring_its_rate_back() -> None:
    lab = Lab()
    slow = lab.put(keys_of(rate=b"a", gap_ns=60 * SECOND_NS))
    assert lab.take() is slow
    lab.put(keys_of(rate=b"a", gap_ns=SECOND_NS))
    lab.give_back(slow)  # T40.3
    lab.advance(1_000)
    assert lab.take() is slow
    lab.advance(1_000)
    assert lab.take() is not None


def test_a_token_is_spent_though_the_task_comes_back() -> None:
    lab = Lab()
    task = lab.put(keys_of(rate=b"a", gap_ns=SECOND_NS))
    assert lab.take() is task
    lab.give_back(task)
    assert lab.take() is None
    lab.advance(1_000)
    assert lab.take() is task


# ---- turns


def groups_taken(lab: Lab, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        task = lab.take()
        assert task is not None
        found.append(unpack(keys_in(task)).group)
        lab.end(task)
    return found


def test_groups_take_turns_by_their_weights() -> None:
    lab = Lab()
    for _ in range(12):
        for name, weight in ((b"a", 1), (b"b", 3), (b"c", 2)):
            lab.put(keys_of(name, weight))
    assert groups_taken(lab, 12) == [b"a", b"b", b"b", b"b", b"c", b"c"] * 2


def test_one_task_waits_for_one_round_at_most() -> None:
    lab = Lab()
    for number in range(2_000):
        lab.put(keys_of(b"noisy" if number % 20 else b"n%d" % number))
    lab.put(keys_of(b"quiet"))
    turns = groups_taken(lab, 200)
    assert turns.index(b"quiet") <= 101  # T43.2: of so many groups each has one task before it


def test_a_group_that_was_blocked_goes_to_the_tail() -> None:
    lab = Lab()
    keys = keys_of(b"a", 5, limit=b"a", places=1)
    for _ in range(4):
        lab.put(keys)
    for _ in range(4):
        lab.put(keys_of(b"b"))
    turns: deque[bytes] = deque()
    for _ in range(8):
        task = lab.take()
        assert task is not None
        turns.append(unpack(keys_in(task)).group)
        lab.end(task)
    assert list(turns) == [b"a", b"b"] * 4  # T43.2: the rest of its turn is lost


@pytest.mark.parametrize("which", ["limit", "rate"])
def test_groups_take_turns_also_at_a_key_that_they_share(which: str) -> None:
    lab = Lab()
    for number in range(53):
        keys = keys_of(b"noisy" if number < 50 else b"quiet")
        if which == "limit":
            keys.limit, keys.places = b"api", 1
        else:
            keys.rate, keys.gap_ns = b"api", SECOND_NS
        lab.put(keys)
    turns = []
    for _ in range(6):
        turns += groups_taken(lab, 1)
        assert which == "limit" or lab.take() is None
        lab.advance(1_000)
    assert turns.count(b"quiet") == 3  # T43.2


def test_a_task_of_higher_priority_takes_over_what_its_lane_waits_with() -> None:
    lab = Lab()
    lab.put(keys_of(limit=b"a", places=1, rate=b"r", gap_ns=SECOND_NS), pri=5)
    urgent = keys_of(limit=b"a", places=1, rate=b"r", gap_ns=SECOND_NS)
    assert lab.put(urgent, pri=1) is lab.driver.first() is lab.take()
    lab.put(keys_of(rate=b"s", gap_ns=SECOND_NS), pri=5)
    more = lab.put(keys_of(limit=b"b", places=1, rate=b"s", gap_ns=SECOND_NS), pri=0)
    assert lab.driver.first() is more
    lab.check()


def test_a_lane_that_stays_in_line_stands_where_its_next_task_does() -> None:
    """T43.3, of a group whose only lane goes on with a task that goes after others."""
    lab = Lab()
    lab.put(keys_of(b"g"), 0)
    last = lab.put(keys_of(b"g"), 5)
    lab.take()
    between = lab.put(keys_of(b"g", limit=b"l", places=9), 3)
    assert lab.take() is between
    assert lab.take() is last
    drain(lab)


def test_a_limit_that_comes_back_is_a_new_one() -> None:
    """Of a key of one byte, all of which Python has as one object."""
    lab = Lab()
    for places in (1, 2):
        for _ in range(3):
            lab.put(keys_of(limit=b"l", places=places))
        lab.check()
        while len(lab.ready) > 0:
            while lab.take() is not None:
                lab.check()
            lab.end(next(iter(lab.taken.values())))
        drain(lab)


# ---- over a restart


@pytest.mark.parametrize("state", ["delayed", "back-off", "dead", "gone"])
def test_a_restart_changes_no_limit(make_world: Callable[..., World], state: str) -> None:
    """T40.3 Weight, places and rate of a key are those of the task with the highest number that
    has them, whatever its state. When that task is gone, the next one counts.
    """
    world = make_world(journal="always")
    run = world.run
    assert run("TUBE", "CREATE", "t", "tasks") == b"OK"
    for _ in range(6):
        world.add("t", "body", "LIMIT", "a", "3", PRI=1)
    options = {"delayed": {"DELAY": 600}, "dead": {"ATTEMPTS": 1}}.get(state, {})
    last = world.add("t", "body", "LIMIT", "a", "1", PRI=0, **options)
    if state != "delayed":
        assert world.get("t") == [last]
        if state == "gone":
            assert run("DONE", last, "-") == 1
        else:
            token = run("START", last)[0][0]
            assert run("FAIL", last, token, "DELAY", 600) is not None
            assert run("RESULT", last)[1] == state.encode()
    assert len(world.get("t", count=9)) == (3 if state == "gone" else 1)
    world.kill(0)
    world.start(0)
    run = world.wire()
    assert run("LIMITS", "t")[1][0][3] == b"a"
    assert world.get("t", count=9) == []


def test_a_restart_makes_no_rate_quicker(make_world: Callable[..., World]) -> None:
    """T42.4 After a start and at a new leader each bucket is empty: no failover gives a second
    burst.
    """
    world = make_world(journal="always")
    assert world.run("TUBE", "CREATE", "t", "tasks") == b"OK"
    for _ in range(6):
        world.add("t", "body", "RATE", "r", "100/s")
    world.add("t", "body", "RATE", "r", "1/h", DELAY=600)
    before = world.get("t", count=9)
    world.kill(0)
    world.start(0)
    world.pass_ms(1_000)
    assert len(before) <= 1
    assert world.get("t", count=9) == []
    world.pass_ms(3_600_000)
    assert len(world.get("t", count=9)) == 1
