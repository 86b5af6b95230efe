"""Decides which node a client uses: one at a time, until it fails, leaves or has few jobs.

It stays with a node while it can, so that a client sees its own changes. State is replaced, never
changed in place, so that threads may read it without a lock.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable

from tuque.client.api import Hello, Job, NodeInfo
from tuque.client.url import Address

REST_S = 1.0  # a failed node is tried last for so long
LEAVING_REST_S = 30.0
LEAVING_PRIORITY = 100
UNKNOWN_PRIORITY = 1
GOOD_PRIORITY = 1
ID_START = 8  # characters of the node id in a job id


class Route:
    """The nodes known to a client, and the one in use, if any."""

    def __init__(
        self, seeds: tuple[Address, ...], rng: random.Random, *, discovers: bool = True
    ) -> None:
        self._discovers = discovers
        self.current: Address | None = None
        self.own = ""  # the start of the current node's id, as in job ids
        self.is_lost = False
        self._seeds = seeds
        self._rng = rng
        self._priorities: dict[Address, int] = dict.fromkeys(seeds, UNKNOWN_PRIORITY)
        self._rests_until_s: dict[Address, float] = {}

    def order(self, now_s: float) -> list[Address]:
        """All known nodes in order of preference: rested, then seeds, then by priority."""
        current = self.current
        if current is not None:
            return [current]
        rests, priorities = self._rests_until_s, self._priorities
        nodes = list(priorities)
        self._rng.shuffle(nodes)
        nodes.sort(
            key=lambda a: (rests.get(a, 0.0) > now_s, a not in self._seeds, priorities.get(a, 1))
        )
        return nodes

    def usable(self, now_s: float) -> list[Address]:
        """The node in use, then the others that do not rest or leave."""
        current = self.current
        found = [] if current is None else [current]
        rests = self._rests_until_s
        for address, priority in self._priorities.items():
            is_well = priority < LEAVING_PRIORITY and rests.get(address, 0.0) <= now_s
            if address != current and is_well:
                found.append(address)
        return found

    def on_connected(self, address: Address, hello: Hello | None) -> bool:
        """Switches to a node and learns the others from its HELLO; True after a loss."""
        if hello is not None:
            self._learn(address, hello)
        was_lost, self.is_lost = self.is_lost, False
        self.own = "" if hello is None else hello.id[:ID_START]
        self.current = address
        return was_lost

    def on_failed(self, address: Address, now_s: float, rest_s: float = REST_S) -> bool:
        """Marks a node as unusable for now; True if that is new."""
        self._rests_until_s = {**self._rests_until_s, address: now_s + rest_s}
        if self.current == address:
            self.current = None
        was_lost, self.is_lost = self.is_lost, True
        return not was_lost

    def on_stale(self) -> bool:
        """An idle connection was closed; True if no loss was known yet."""
        was_lost, self.is_lost = self.is_lost, True
        return not was_lost

    def has_better_than(self, address: Address, now_s: float) -> bool:
        """True if the node is leaving, or failed by its own account, and another one is not."""
        if self._priorities.get(address, UNKNOWN_PRIORITY) < LEAVING_PRIORITY:
            return False
        return any(
            priority < LEAVING_PRIORITY and self._rests_until_s.get(other, 0.0) <= now_s
            for other, priority in self._priorities.items()
        )

    def other(self, hello: Hello, start: str, now_s: float) -> Address | None:
        """The address of another node whose id starts so, if it is well."""
        for node in hello.nodes:
            if node.id.startswith(start) and node.id != hello.id and _is_good(node):
                address = Address(node.host, node.port)
                return None if self._rests_until_s.get(address, 0.0) > now_s else address
        return None

    def on_moved(self, address: Address, hello: Hello | None, start: str) -> bool:
        """Switches to another node, if its id starts so and it serves."""
        if hello is None or not hello.id.startswith(start):
            return False
        if any(n.id == hello.id and n.priority > GOOD_PRIORITY for n in hello.nodes):
            return False
        self.on_connected(address, hello)
        return True

    def _learn(self, address: Address, hello: Hello) -> None:
        priorities = dict.fromkeys(self._seeds, UNKNOWN_PRIORITY)
        for node in hello.nodes:
            if node.id == hello.id:
                priorities[address] = node.priority
            elif self._discovers and _has_address(node):
                priorities[Address(node.host, node.port)] = node.priority
        self._priorities = priorities


def _has_address(node: NodeInfo) -> bool:
    return bool(node.host) and 0 < node.port <= 65535


def _is_good(node: NodeInfo) -> bool:
    return _has_address(node) and node.priority <= GOOD_PRIORITY


# ---- Decides when a consumer fetches from another node: the one that creates most of its jobs.
#
# A job's id names the node that created it. Jobs fetched elsewhere travel over the bus first.
# Counts what was fetched; it must not know connections or clocks.


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
