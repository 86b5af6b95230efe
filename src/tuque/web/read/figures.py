"""Figures of single nodes, and their sums over the cluster. Plain data; asks nobody.

A sum has the figures of the nodes that answer: others may have queued the jobs of a silent one, and
would count them again. If no node answers it has the last ones of all. Jobs are counted at the node
that has them queued, once; `copies` counts each copy.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tuque.client.api import ClusterNode
from tuque.client.commands.operate import QueueRow

DEAD: Final = ".dead"  # how the names of queues of dead letters end


class QueueHere(msgspec.Struct, frozen=True):
    """A queue at one node (SPEC O10.2): jobs, seconds, jobs per second of the last 30 to 60 s."""

    ready: int
    oldest_s: float
    delayed: int
    work: int
    dead: int
    came_rate: float
    done_rate: float
    blocked: int
    pause: str
    type: str  # of a tube, else empty
    is_dead: bool


class NodeFacts(msgspec.Struct, frozen=True):
    """What one node said at an instant (unix s by the clock of the console)."""

    id: str
    place: str
    at_s: float
    clock_s: float  # by its own clock
    info: dict[str, str | int]
    members: list[ClusterNode]
    queues: dict[str, QueueHere]
    queue_count: int  # queues that the node knows; `queues` may have fewer

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
    def delayed(self) -> int:
        """Jobs that wait for their time."""
        return sum(one.delayed for one in self.here.values())

    @property
    def work(self) -> int:
        """Jobs delivered or leased."""
        return sum(one.work for one in self.here.values())

    @property
    def dead(self) -> int:
        """Jobs in its queue of dead letters, at the nodes that know it: others may have some."""
        return sum(one.dead for one in self.here.values())

    @property
    def came_rate(self) -> float:
        """Jobs added each second."""
        return sum(one.came_rate for one in self.here.values())

    @property
    def done_rate(self) -> float:
        """Jobs acked each second."""
        return sum(one.done_rate for one in self.here.values())

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
        return any(one.is_dead for one in self.here.values())


class View(msgspec.Struct):
    """The cluster at an instant; `old` are the ids of nodes whose figures are not fresh."""

    at_s: float
    facts: list[NodeFacts]
    queues: dict[str, Queue]
    old: frozenset[str]

    @property
    def heard(self) -> list[NodeFacts]:
        """The facts that count."""
        return heard_of(self.facts, self.old)

    def sum(self, name: str) -> int:
        """A figure of INFO over the nodes that count."""
        return sum(one.number(name) for one in self.heard)

    @property
    def work(self) -> list[Queue]:
        """The queues but those of dead letters."""
        return [one for one in self.queues.values() if not one.is_dead]

    @property
    def graves(self) -> list[Queue]:
        """The queues of dead letters."""
        return [one for one in self.queues.values() if one.is_dead]

    @property
    def tubes_with_letters(self) -> list[Queue]:
        """The tubes that keep their own dead letters."""
        return [one for one in self.queues.values() if one.type and one.dead > 0]

    def letters(self, queue: Queue) -> int:
        """[O14] Jobs in the queue of dead letters of a queue (O14.17)."""
        if queue.type:
            return queue.dead
        grave = self.queues.get(queue.name + DEAD)
        return grave.ready if grave is not None and grave.is_dead else queue.dead

    @property
    def ready(self) -> int:
        """Jobs queued, without dead letters."""
        if self.is_whole:
            return sum(one.ready for one in self.work)
        return max(0, self.sum("queued_jobs") - self.buried)

    @property
    def dead(self) -> int:
        """Dead letters: those queued, and those of tubes."""
        return self.buried + sum(one.dead for one in self.tubes_with_letters)

    @property
    def buried(self) -> int:
        """Jobs queued in queues of dead letters."""
        return sum(one.ready for one in self.graves)

    @property
    def is_whole(self) -> bool:
        """Whether `queues` has all queues; else those that are most behind, and the graves."""
        return all(one.queue_count <= len(one.queues) for one in self.heard)

    @property
    def count(self) -> int:
        """How many queues there are, at least."""
        return max([len(self.queues), *(one.queue_count for one in self.heard)])

    @property
    def clock_s(self) -> float:
        """The clock of the nodes (the latest)."""
        return max((one.clock_s for one in self.heard), default=self.at_s)


def heard_of(facts: list[NodeFacts], old: frozenset[str]) -> list[NodeFacts]:
    """The facts that are fresh, or all if none is."""
    return [one for one in facts if one.id not in old] or facts


def merged(at_s: float, facts: list[NodeFacts], old: frozenset[str]) -> View:
    """The view of what the nodes said."""
    queues: dict[str, Queue] = {}
    for one in heard_of(facts, old):
        for name, here in one.queues.items():
            queues.setdefault(name, Queue(name, {})).here[one.id] = here
    return View(at_s, facts, queues, old)


def queue_here(row: QueueRow) -> QueueHere:
    """A node's row of QLIST."""
    return QueueHere(
        ready=row.ready,
        oldest_s=row.oldest_ms / 1000,
        delayed=row.delayed,
        work=row.at_work,
        dead=row.dead,
        came_rate=row.in_s,
        done_rate=row.out_s,
        blocked=row.blocked,
        pause=row.pause,
        type="" if row.type in ("queue", "dead") else row.type,
        is_dead=row.type == "dead",
    )
