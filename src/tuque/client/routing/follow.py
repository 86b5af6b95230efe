"""Decides when a consumer fetches from another node: the one that creates most of its jobs.

A job's id names the node that created it. Jobs fetched elsewhere travel over the bus first. Counts
what was fetched; it must not know connections or clocks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from tuque.client.api import Job

WINDOW_JOBS = 100  # jobs per decision
SHARE = 0.75  # of them must come from one other node
HOLD_S = 10.0  # between two moves; doubled if the next one comes soon
HOLD_MAX_S = 640.0
CALM_HOLDS = 8  # staying for so many holds resets it
LIMIT_S = 1.0  # time that asking and moving may take of a fetch

_PREFIX = slice(2, 10)  # the creator's part of a job id: the start of its node id
_ODD = frozenset("13579bdf")  # last digit of the ids of at-least-once jobs


class Follow:
    """What was fetched since the last decision, and which node to move to, if any."""

    def __init__(self, *, is_on: bool) -> None:
        self.wanted = ""  # the start of a node id
        self._is_on = is_on
        self._made: Counter[str] = Counter()
        self._count = 0
        self._next_s = -math.inf
        self._hold_s = HOLD_S

    def on_jobs(self, jobs: Iterable[Job], own: str, now_s: float) -> None:
        """Counts jobs fetched from the node whose id starts with `own`; may set `wanted`.

        A job with RETRY 0 has left its creator and cannot be acknowledged there: it counts for
        staying.
        """
        if not self._is_on:
            return
        for job in jobs:
            self._count += 1
            if job.id[-1:] in _ODD:
                self._made[job.id[_PREFIX]] += 1
        if self._count < WINDOW_JOBS:
            return
        maker, made = self._made.most_common(1)[0] if self._made else ("", 0)
        is_enough = made >= self._count * SHARE
        self._made, self._count = Counter(), 0
        if is_enough and own and maker != own and now_s >= self._next_s:
            self.wanted = maker

    def take(self, now_s: float) -> str:
        """The start of the id of the node to move to now; whatever happens, not again soon."""
        wanted, self.wanted = self.wanted, ""
        is_calm = now_s >= self._next_s + CALM_HOLDS * self._hold_s
        self._hold_s = HOLD_S if is_calm else min(2 * self._hold_s, HOLD_MAX_S)
        self._next_s = now_s + self._hold_s
        return wanted
