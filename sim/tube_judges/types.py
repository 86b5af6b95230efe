"""The rules of the tube types in plain Python: which task is next, what expires, when.

Slow and obvious: no indexes, every question checks every task. The tests' model of a whole tube
(tests/tubes/models.py) and the simulator's judges use these rules (SPEC T3, T5, T6). Times are
ms.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tuque.core.model.task import MAX_MS, READY, TAKEN

GETJOB_TTR_MS: Final = 300_000  # of a task without ttr that no session holds


@dataclass(eq=False)
class Task:
    """One task."""

    number: int
    created_ms: int
    status: int = READY
    pri: int = 0
    subqueue: bytes = b""
    ttl_ms: int = MAX_MS
    ttr_ms: int = MAX_MS
    until_ms: int = 0  # TAKEN, DELAYED: when that ends by itself; 0: never, or unknown
    token: int = 0
    owner: int = 0  # number of a session; 0: none

    def dead_ms(self) -> int:
        """When it expires."""
        return self.created_ms + self.ttl_ms if self.ttl_ms < MAX_MS else 1 << 62


@dataclass(frozen=True)
class Type:
    """What distinguishes the types."""

    name: str
    is_timed: bool = False  # has pri, ttl, delay, touch
    ends_taken: bool = False  # ttl also ends a TAKEN task (T6.2)
    is_keyed: bool = False
    is_limited: bool = False

    def is_free(self, task: Task, tasks: Collection[Task]) -> bool:
        """Whether no task of its sub-queue is TAKEN."""
        if not self.is_keyed:
            return True
        return not any(one.status == TAKEN and one.subqueue == task.subqueue for one in tasks)

    def first(self, tasks: Collection[Task], now_ms: int) -> Task | None:
        """The next task: the lowest (pri, number) that can be taken."""
        busy: set[bytes] = set()
        if self.is_keyed:
            busy = {one.subqueue for one in tasks if one.status == TAKEN}
        best: Task | None = None
        for one in tasks:
            if one.status != READY or one.subqueue in busy or one.dead_ms() <= now_ms:
                continue
            if best is None or (one.pri, one.number) < (best.pri, best.number):
                best = one
        return best

    def set_options(self, task: Task, defaults: Defaults, args: dict[str, int | None]) -> None:
        """Set the options of its put, or the tube's defaults; `until_ms` ends its delay."""
        task.ttr_ms = lasting(args.get("ttr"), defaults.ttr_ms)
        if self.is_timed:
            pri, delay_ms = args.get("pri"), max(args.get("delay") or 0, 0)
            task.pri = defaults.pri if pri is None else pri
            task.ttl_ms = lasting(args.get("ttl"), defaults.ttl_ms)
            task.ttl_ms += delay_ms if task.ttl_ms < MAX_MS else 0
            task.until_ms = task.created_ms + delay_ms if delay_ms else 0

    def taken_ms(self, task: Task, now_ms: int) -> int:
        """How long a task taken now stays TAKEN, if its time counts and nobody acts."""
        ttr_ms = task.ttr_ms if task.ttr_ms < MAX_MS else GETJOB_TTR_MS
        return self.within_life(task, now_ms, ttr_ms)

    def within_life(self, task: Task, now_ms: int, span_ms: int) -> int:
        """The instant, limited by the expiry where that ends a TAKEN task."""
        return min(span_ms, task.dead_ms() - now_ms) if self.ends_taken else span_ms


@dataclass
class Defaults:
    """The tube's values for tasks whose put gives none."""

    ttl_ms: int = MAX_MS
    ttr_ms: int = MAX_MS
    pri: int = 0


def lasting(asked_ms: int | None, default_ms: int) -> int:
    """A requested time, or the default; 100 years at most."""
    return min(asked_ms if asked_ms is not None and asked_ms >= 0 else default_ms, MAX_MS)


TYPES: Final = {
    one.name: one
    for one in (
        Type("fifo"),
        Type("fifottl", is_timed=True, ends_taken=True),
        Type("limfifottl", is_timed=True, ends_taken=True, is_limited=True),
        Type("utube", is_keyed=True),
        Type("utubettl", is_timed=True, is_keyed=True),
        Type("tasks", is_timed=True),
    )
}
