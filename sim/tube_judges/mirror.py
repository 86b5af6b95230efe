"""A tube replayed from its changes: its tasks, the next one, due times.

The leader numbers its changes in order (T12): that order is the truth. Each change is repeated
here on a plain list of tasks, with the options that clients sent, and must be legal there: its
transition, its place in the order, its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sim.tube_judges.facts import Facts, Line, Put
from sim.tube_judges.pris import on_update
from sim.tube_judges.turns import Waits
from sim.tube_judges.types import Task
from tuque.core.model.task import BURIED, DELAYED, DONE, MAX_MS, READY, TAKEN
from tuque.core.model.task import Task as RealTask

if TYPE_CHECKING:
    from tuque.tubes.model.options import Change
    from tuque.tubes.model.tube import Tube

# event -> (statuses before, statuses after); what T4 allows
ARROWS: Final[dict[bytes, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    b"put": ((0,), (READY, DELAYED)),
    b"take": ((READY,), (TAKEN,)),
    b"touch": ((TAKEN,), (TAKEN,)),
    b"release": ((TAKEN,), (READY, DELAYED)),
    b"bury": ((READY, TAKEN, DELAYED), (BURIED,)),
    b"kick": ((BURIED,), (READY,)),
    b"ttr": ((TAKEN,), (READY,)),
    b"delay": ((DELAYED,), (READY,)),
    b"ack": ((TAKEN,), (DONE,)),
    b"delete": ((READY, TAKEN, DELAYED, BURIED), (DONE,)),
    b"truncate": ((READY, TAKEN, DELAYED, BURIED), (DONE,)),
    b"ttl": ((READY, BURIED), (DONE,)),
    b"update": ((READY, TAKEN, DELAYED, BURIED), (READY, TAKEN, DELAYED, BURIED)),
}
LATE_MS: Final = 16  # T6.3
SLOW_US: Final = 60_000  # clocks count ms, with a small drift
FAR_MS: Final = 1 << 62

Find = Callable[[str, str], None]


class Take:
    """One take of a task, and the events during it."""

    def __init__(self, at: int, token: int) -> None:
        self.at = at  # index in the log
        self.token = token  # 0: unknown, it ended in the turn in which it began
        self.events: list[bytes] = []


class Seen(Task):
    """A task according to the changes. Instants are ms of the node's clock."""

    def __init__(self, number: int, at_ms: int, now_us: int) -> None:
        super().__init__(number, at_ms, status=0)
        self.put: Put | None = None
        self.takes: list[Take] = []
        self.born_us = now_us  # true time; -1: it existed before
        self.taken_us = 0
        self.span_ms = 0  # least span from its take to its return
        self.since_us = now_us  # since when it has this status
        self.is_known = True  # False: it ended in its first turn, its options were not seen


class Step:
    """One change, for disk checks."""

    __slots__ = ("at_us", "event", "number", "status")

    def __init__(self, at_us: int, event: bytes, number: int, status: int) -> None:
        self.at_us = at_us
        self.event = event
        self.number = number
        self.status = status


class Mirror:
    """One tube during one leadership."""

    def __init__(
        self, facts: Facts, line: Line, tube: Tube, now_us: int, find: Find, is_fresh: bool
    ) -> None:
        self.facts = facts
        self.line = line
        self.tube = tube
        self.find = find
        self.epoch = int(tube.epoch)
        self.born_us = now_us
        self.is_up = True  # RUNNING when last seen
        self.earlier: Mirror | None = None  # it ran in this process and epoch before
        self.seq = 0 if is_fresh else int(tube.change_seq)
        self.tasks: dict[int, Seen] = {}
        self.gone: dict[int, Seen] = {}
        self.base: dict[int, int] = {}  # statuses at the start
        self.vague: set[int] = set()  # changed in the first turn, before the first check
        self.log: list[Step] = []
        self.marks: list[tuple[int, int]] = []  # the tube's number, and the steps up to it
        self.told: list[tuple[int, int]] = []  # known to clients: (true time, index in the log)
        self.next_number = 0 if is_fresh else int(tube.next_number)
        self.counts: dict[bytes, int] = {}
        self.now_ms = 0  # of the node, at the end of its last turn
        self.begin_ms = 0  # of the node, when first seen running
        self.due_ms = FAR_MS  # when the next task returns by itself
        self.has_first = True  # a task can be taken now, or nobody has checked
        self.waits = Waits()
        self.vain_ms = 0  # since when a client waits although there is a task
        self.freed_us: dict[bytes, int] = {}  # when a sub-queue was last busy
        self.calls_before = {} if is_fresh else calls_of(tube)
        if is_fresh:
            return
        for number, task in tube.tasks.items():
            self.adopt(int(number), task, now_us)
        self.look_ahead()

    def adopt(self, number: int, task: RealTask, now_us: int) -> None:
        """Add a task that existed at the start, as the node has it."""
        one = Seen(number, int(task.created_ms), now_us)
        self.note_body(one, task)
        one.status = int(task.status)
        one.pri, one.subqueue = int(task.pri), task.subqueue
        one.ttl_ms, one.ttr_ms = int(task.ttl_ms), int(task.ttr_ms)
        one.until_ms, one.token = int(task.qtime_ms), int(task.token)
        one.owner, one.born_us = int(task.owner), -1
        if one.status == TAKEN:
            one.takes.append(Take(-1, one.token))
        self.tasks[number] = one
        self.base[number] = one.status

    def note_body(self, one: Seen, task: RealTask) -> None:
        """Find the put of the task; each put has one task, each task one put."""
        self.line.by_job[task.id] = one.number
        put = self.facts.put_of(task.body)
        if put is None or put.body != task.body:
            self.find("damage", f"{self.facts.name}: a body that nobody put: {task.body[:40]!r}")
            return
        if put.number >= 0 and put.number != one.number:
            self.find("tube-number", f"{put.token!r} is task {put.number} and {one.number}")
        put.number, put.line = one.number, self.line
        one.put = put

    # ---- changes

    def replay(self, change: Change, now_us: int) -> None:
        """Replay a change."""
        event, number, to = change.event, int(change.number), int(change.status)
        one = self.tasks.get(number)
        if event == b"put":
            one = self.on_put(number, int(change.at_ms), to, now_us)
        before, after = ARROWS.get(event, ((), ()))
        if event == b"ack" and self.facts.type == "tasks":
            before = (READY, TAKEN, DELAYED, BURIED)  # T48.6
        old = one.status if one is not None else 0
        is_update = event == b"update"
        if one is None or old not in before or to not in after or (is_update and old != to):
            name = self.facts.name
            self.find("tube-arrow", f"{name}: {event!r} of task {number}, {old} to {to}")
            return
        self.counts[event] = self.counts.get(event, 0) + 1
        at_ms = int(change.at_ms)
        if event == b"take":
            self.judge_take(one, at_ms)
            one.takes.append(Take(len(self.log), 0))
            one.taken_us, one.until_ms, one.token = now_us, 0, 0
            one.owner = 0  # learned after the turn
            one.span_ms = self.facts.rules.taken_ms(one, at_ms) if one.is_known else 0
        elif one.takes:
            one.takes[-1].events.append(event)
        self.judge_times(one, event, at_ms, now_us)
        if is_update:
            on_update(self, one)
        elif event == b"release":
            one.until_ms = at_ms + self.delay_of(one) if to == DELAYED else 0
        elif to != TAKEN and event != b"put":
            one.until_ms = 0
        if old == TAKEN and to != TAKEN:
            self.freed_us[one.subqueue] = now_us
        if old != to:
            one.since_us = now_us
        one.status = to
        self.log.append(Step(now_us, event, number, to))
        if to == DONE:
            self.gone[number] = self.tasks.pop(number)

    def on_put(self, number: int, at_ms: int, to: int, now_us: int) -> Seen:
        """A new task: it has the next number, and there is room."""
        facts = self.facts
        if number != self.next_number or number in self.tasks:
            self.find("tube-number", f"{facts.name}: task {number}, next was {self.next_number}")
        self.next_number = max(self.next_number, number) + 1
        one = Seen(number, at_ms, now_us)
        task = self.tube.find(number)
        if task is not None:
            self.note_body(one, task)
        self.set_options(one)
        self.tasks[number] = one
        if facts.capacity and len(self.tasks) > facts.capacity:
            self.find("tube-full", f"{facts.name} has {len(self.tasks)} of {facts.capacity} tasks")
        return one

    def set_options(self, one: Seen) -> None:
        """Set the options of its put, or the tube's defaults."""
        if one.put is None:
            one.is_known = False
            return
        facts, args = self.facts, one.put.args
        facts.rules.set_options(one, facts.defaults, args)
        if facts.rules.is_keyed:
            one.subqueue = args.get("utube", "").encode()

    def delay_of(self, one: Seen) -> int:
        """The least delay requested by a release that this may be."""
        calls = self.facts.asked(one.number, one.taken_us, "release", "NACK")
        return min((c.delay_ms for c in calls if c.delay_ms > 0), default=0)

    # ---- judging

    def is_free(self, one: Seen) -> bool:
        """Whether no task of its sub-queue is TAKEN."""
        return self.facts.rules.is_free(one, self.tasks.values())

    def first(self, at_ms: int) -> Task | None:
        """The task that goes next (T3)."""
        return self.facts.rules.first(self.tasks.values(), at_ms)

    def judge_take(self, one: Seen, at_ms: int) -> None:
        """The next task, not expired, of a free sub-queue."""
        name = self.facts.name
        if not self.is_free(one):
            self.find("tube-held", f"{name}: two tasks of sub-queue {one.subqueue!r} are TAKEN")
            return
        if not all(other.is_known for other in self.tasks.values()):
            return
        if one.dead_ms() <= at_ms:
            self.find("tube-time", f"{name}: task {one.number} was taken after its ttl")
            return
        first = self.first(at_ms)
        if first is not one:
            which = "none" if first is None else str(first.number)
            self.find("tube-order", f"{name}: task {one.number} was taken, {which} was first")

    def judge_times(self, one: Seen, event: bytes, at_ms: int, now_us: int) -> None:
        """Not too early: ttr, delay and ttl, by the node's clock and by the true one."""
        name, number = self.facts.name, one.number
        if event == b"ttr":
            if at_ms < one.until_ms:
                early_ms = one.until_ms - at_ms
                self.find("tube-time", f"{name}: task {number} came back {early_ms} ms early")
            elif one.taken_us and now_us < one.taken_us + one.span_ms * 998 - SLOW_US:
                self.find("tube-time", f"{name}: task {number} came back before its ttr")
        elif event == b"delay" and at_ms < one.until_ms:
            self.find("tube-time", f"{name}: the delay of task {number} was cut short")
        elif event == b"ttl" and one.is_known and at_ms < one.dead_ms():
            self.find("tube-time", f"{name}: task {number} died before its time")
        elif event == b"take" and one.is_known and one.born_us >= 0 and one.ttl_ms < MAX_MS:
            if now_us > one.born_us + one.ttl_ms * 1002 + SLOW_US:
                self.find("tube-time", f"{name}: task {number} was taken long after its ttl")

    # ---- after a turn

    def compare(self, find: Find) -> None:
        """The tube must match its changes; tokens, holders and times are not compared."""
        tube, name = self.tube, self.facts.name
        mine = {number: one.status for number, one in self.tasks.items()}
        real = {int(number): int(task.status) for number, task in tube.tasks.items()}
        if mine != real:
            odd = sorted(set(mine.items()) ^ set(real.items()))
            find("tube-count", f"{name}: its tasks are not what its changes tell: {odd[:4]}")
        for status, count in ((TAKEN, tube.taken), (DELAYED, tube.delayed), (BURIED, tube.buried)):
            if sum(1 for one in real.values() if one == status) != count:
                find("tube-count", f"{name}: {count} tasks are said to have status {status}")
        if self.facts.capacity and len(real) > self.facts.capacity:
            find("tube-full", f"{name} has {len(real)} of {self.facts.capacity} tasks")
        for event, count in calls_of(tube).items():
            said = count - self.calls_before.get(event, 0)
            if said != self.counts.get(event, 0):
                find("tube-count", f"{name}: {event!r} is counted {said} times")

    def steps_by(self, number: int) -> int:
        """How many changes a copy up to that number of the tube has at least."""
        return max((steps for at, steps in self.marks if at <= number), default=0)

    def learn(self, now_us: int) -> None:
        """Copy what only the node knows: tokens, holders, extended times."""
        newest = self.line.newest_token
        for number, one in self.tasks.items():
            task = self.tube.find(number)
            if task is None:
                continue
            if one.status == TAKEN and one.token == 0:
                self.on_token(one, task, newest)
            if one.status in (TAKEN, DELAYED):
                if int(task.qtime_ms) < one.until_ms:
                    name = self.facts.name
                    self.find("tube-time", f"{name}: task {number} is due before its time")
                one.until_ms = int(task.qtime_ms)
            if one.takes and one.takes[-1].events:  # after a touch, or a release with a delay
                if int(task.ttl_ms) < one.ttl_ms:
                    self.find("tube-time", f"{self.facts.name}: the ttl of {number} shrank")
                one.ttl_ms, one.ttr_ms = int(task.ttl_ms), int(task.ttr_ms)

    def on_token(self, one: Seen, task: RealTask, newest: int) -> None:
        """A new take's token is greater than all before (T5.1)."""
        one.token = int(task.token)
        one.owner = int(task.owner)
        one.takes[-1].token = one.token
        if one.token <= newest:
            name = self.facts.name
            self.find("tube-fence", f"{name}: token {one.token} was given after {newest}")
        self.line.newest_token = max(self.line.newest_token, one.token)

    def look_ahead(self) -> None:
        """After changes: when the next task is due, and whether one can be taken now."""
        due = [one.until_ms for one in self.tasks.values() if one.status in (TAKEN, DELAYED)]
        self.due_ms = min((until_ms for until_ms in due if until_ms > 0), default=FAR_MS)
        self.has_first = self.first(0) is not None

    def overdue(self, now_ms: int) -> list[Seen]:
        """Tasks that should have returned by now (T6.3, T6.4).

        What was due before the tube ran is due when it runs (T19.2).
        """
        if self.begin_ms >= now_ms - LATE_MS:
            return []
        return [
            one for one in self.tasks.values()
            if one.status in (TAKEN, DELAYED) and 0 < one.until_ms < now_ms - LATE_MS
        ]  # fmt: skip


def calls_of(tube: Tube) -> dict[bytes, int]:
    """The tube's counters that count changes (T11)."""
    c = tube.calls
    return {
        b"put": int(c.put), b"take": int(c.take), b"bury": int(c.bury), b"kick": int(c.kick),
        b"ttr": int(c.ttr), b"delay": int(c.delay), b"ttl": int(c.ttl), b"ack": int(c.ack),
        b"truncate": int(c.truncated),
    }  # fmt: skip
