"""Figures of single nodes, and their sums over the cluster. Plain data; asks nobody.

A sum has the figures of the nodes that answer, and the last ones of those that are silent; it says
so. Jobs are counted at the node that has them queued, once; `copies` counts each copy.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tuque.client.api import ClusterNode

DEAD: Final = ".dead"  # how the names of queues of dead letters end


class QueueHere(msgspec.Struct, frozen=True):
    """A queue at one node: jobs, seconds, and totals since the queue was made there."""

    ready: int
    oldest_s: float
    came: int
    went: int
    blocked: int
    pause: str
    type: str
    idle_s: int
    imports: tuple[str, ...]
    import_rate: int


class NodeFacts(msgspec.Struct, frozen=True):
    """What one node said at an instant (unix s by the clock of the console)."""

    id: str
    place: str
    at_s: float
    clock_s: float  # by its own clock
    info: dict[str, str | int]
    members: list[ClusterNode]
    queues: dict[str, QueueHere]
    queues_left_out: int  # queues that were not asked for, for their number

    def number(self, name: str) -> int:
        """A figure of INFO; 0 if the node does not say it."""
        found = self.info.get(name, 0)
        return found if isinstance(found, int) else 0

    def word(self, name: str) -> str:
        """A word of INFO."""
        return str(self.info.get(name, ""))


class Queue(msgspec.Struct):
    """A queue over the cluster."""

    name: str
    here: dict[str, QueueHere] = {}

    @property
    def ready(self) -> int:
        """Jobs queued."""
        return sum(one.ready for one in self.here.values())

    @property
    def oldest_s(self) -> float:
        """The greatest age of a queued job, by each node's own clock."""
        return max((one.oldest_s for one in self.here.values()), default=0.0)

    @property
    def blocked(self) -> int:
        """Clients that wait for its jobs."""
        return sum(one.blocked for one in self.here.values())

    @property
    def came(self) -> int:
        return sum(one.came for one in self.here.values())

    @property
    def went(self) -> int:
        return sum(one.went for one in self.here.values())

    @property
    def type(self) -> str:
        """The type of a tube, else empty."""
        return next((one.type for one in self.here.values() if one.type), "")

    @property
    def pause(self) -> str:
        """none, in, out or all; `mixed` if the nodes differ."""
        found = {one.pause for one in self.here.values()}
        return found.pop() if len(found) == 1 else "mixed" if found else "none"

    @property
    def is_dead(self) -> bool:
        """Whether it keeps dead letters."""
        return self.name.endswith(DEAD)


class View(msgspec.Struct):
    """The cluster at an instant; `old` are the ids of nodes whose figures are not fresh."""

    at_s: float
    facts: list[NodeFacts]
    queues: dict[str, Queue]
    old: frozenset[str]

    def sum(self, name: str) -> int:
        """A figure of INFO over all nodes."""
        return sum(one.number(name) for one in self.facts)

    @property
    def work(self) -> list[Queue]:
        """The queues but those of dead letters."""
        return [one for one in self.queues.values() if not one.is_dead]

    @property
    def graves(self) -> list[Queue]:
        """The queues of dead letters."""
        return [one for one in self.queues.values() if one.is_dead]

    @property
    def ready(self) -> int:
        return sum(one.ready for one in self.work)

    @property
    def dead(self) -> int:
        return sum(one.ready for one in self.graves)

    def dead_of(self, name: str) -> int:
        """The dead letters in the queue's own queue of them."""
        found = self.queues.get(name + DEAD)
        return found.ready if found else 0

    @property
    def left_out(self) -> int:
        """Queues that are not in `queues`."""
        return sum(one.queues_left_out for one in self.facts)

    @property
    def clock_s(self) -> float:
        """The clock of the nodes (the latest)."""
        return max((one.clock_s for one in self.facts), default=self.at_s)


def merged(at_s: float, facts: list[NodeFacts], old: frozenset[str]) -> View:
    """The view of what the nodes said."""
    queues: dict[str, Queue] = {}
    for one in facts:
        for name, here in one.queues.items():
            queues.setdefault(name, Queue(name, {})).here[one.id] = here
    return View(at_s, facts, queues, old)


def queue_here(stat: Any) -> QueueHere:
    """A node's reply to QSTAT."""
    return QueueHere(
        ready=stat["len"],
        oldest_s=float(stat["oldest"]),
        came=stat["jobs-in"],
        went=stat["jobs-out"],
        blocked=stat["blocked"],
        pause=stat["pause"],
        type=stat["type"],
        idle_s=stat["idle"],
        imports=tuple(stat["import-from"]),
        import_rate=stat["import-rate"],
    )
