"""A driver of keyed tasks, and the calls that a tube makes."""

from __future__ import annotations

from tuque.core.model.task import BURIED, DONE, READY, TAKEN, Task
from tuque.tubes.entries.keys import JobEntry, Keys, pack
from tuque.tubes.policies.next_task import Tasks

START_MS = 1_700_000_000_000
SECOND_NS = 1_000_000_000


def keys_of(
    group: bytes = b"",
    weight: int = 1,
    limit: bytes = b"",
    places: int = 0,
    rate: bytes = b"",
    gap_ns: int = 0,
    burst: int = 1,
) -> Keys:
    keys = Keys()
    keys.group, keys.weight = group, weight
    keys.limit, keys.places = limit, places
    keys.rate, keys.gap_ns, keys.burst = rate, gap_ns, burst
    return keys


class Lab:
    """A driver, and the calls that a tube makes."""

    def __init__(self) -> None:
        self.driver = Tasks()
        self.driver.now_ms = START_MS
        self.number = 0
        self.ready: dict[int, Task] = {}
        self.taken: dict[int, Task] = {}
        self.buried: dict[int, Task] = {}
        self.keys: dict[int, Keys] = {}

    def put(self, keys: Keys, pri: int = 0) -> Task:
        task = Task(b"%040d" % self.number, b"q", b"", 0, self.number, pri, 0)
        if not keys.is_plain():
            task.entry = JobEntry(pack(keys), None)
        self.keys[task.number] = keys
        self.number += 1
        self.driver.named(task)
        self.enter(task)
        return task

    def load(self, number: int, keys: Keys, status: int) -> Task:
        """A task of a journal, or of a replica, in its status."""
        task = Task(b"%040d" % number, b"q", b"", 0, number, 0, 0)
        task.entry = JobEntry(pack(keys), None)
        self.keys[number] = keys
        self.number = max(self.number, number + 1)
        self.driver.named(task)
        if status == READY:
            self.enter(task)
        elif status == TAKEN:
            task.status = TAKEN
            self.taken[number] = task
            self.driver.held(task)
        else:
            task.status = status
            self.buried[number] = task
        return task

    def enter(self, task: Task) -> None:
        self.buried.pop(task.number, None)
        task.status = READY
        self.ready[task.number] = task
        self.driver.enter(task)

    def take(self) -> Task | None:
        task = self.driver.first()
        if task is not None:
            self.driver.took(task)
            task.status = TAKEN
            del self.ready[task.number]
            self.taken[task.number] = task
        return task

    def end(self, task: Task) -> None:
        task.status = DONE
        del self.taken[task.number]
        self.driver.freed(task)
        self.driver.ended(task)

    def give_back(self, task: Task) -> None:
        del self.taken[task.number]
        self.enter(task)
        self.driver.freed(task)

    def remove(self, task: Task, status: int = DONE) -> None:
        task.status = status
        del self.ready[task.number]
        self.driver.left(task)
        if status == BURIED:
            self.buried[task.number] = task
        else:
            self.driver.ended(task)

    def delete(self, task: Task) -> None:
        """A task that waits for its time, or is buried, is deleted."""
        del self.buried[task.number]
        task.status = DONE
        self.driver.ended(task)

    def advance(self, ms: int) -> None:
        self.driver.now_ms += ms
        self.driver.wake(1 << 40)

    def check(self) -> None:
        self.driver.check(list(self.taken.values()))


def drain(lab: Lab) -> None:
    """Take all; then nothing is left, not even memory."""
    for _ in range(100_000):
        task = lab.take()
        if task is not None:
            lab.end(task)
        elif lab.taken:
            lab.end(next(iter(lab.taken.values())))
        elif lab.ready:
            at_ms = lab.driver.next_ms()
            assert at_ms > lab.driver.now_ms or lab.driver.behind, "T42.3: an instant to wake at"
            lab.advance(at_ms - lab.driver.now_ms)
        else:
            break
    assert not lab.ready
    for task in list(lab.buried.values()):
        lab.delete(task)
    lab.advance(10_000)
    driver = lab.driver
    assert driver.bytes_used == 0
    assert not driver.lanes and not driver.by_packed
    assert driver.keys() == 0
