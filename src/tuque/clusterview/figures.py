"""Figures of single nodes, and what they are over the cluster: sums, the greatest age, one worker.

Plain data: asks nobody. A sum has the figures of the nodes that answer: others may have queued the
jobs of a silent one, and would count them again. If no node answers it has the last ones of all.
Jobs are counted at the node that has them queued, once; `copies` counts each copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tuque.client.api import ClusterNode
from tuque.client.commands.operate import QueueOrder, QueueRow, WorkerInfo, WorkerRun

DEAD: Final = ".dead"  # how the names of queues of dead letters end
PLAIN: Final = "queue"  # types of rows; others are those of tubes
DEAD_TYPE: Final = "dead"
MIXED: Final = "mixed"  # the nodes differ in a pause
ORDERS: Final = ("none", "quiet", "stop")  # a later one takes the place of one before


# ---- Nodes and queues


class NodeFacts(msgspec.Struct, frozen=True):
    """What one node said at an instant (unix s by the clock of the console)."""

    id: str
    place: str
    at_s: float
    clock_s: float  # by its own clock
    info: dict[str, str | int]
    members: list[ClusterNode]
    queues: Mapping[str, QueueRow]
    queue_count: int  # queues that the node knows; `queues` may have fewer

    def number(self, name: str) -> int:
        """A figure of INFO; 0 if the node does not say it."""
        found = self.info.get(name, 0)
        return found if isinstance(found, int) else 0

    def word(self, name: str) -> str:
        """A word of INFO."""
        return str(self.info.get(name, ""))


class NodeRow(msgspec.Struct, frozen=True):
    """A node; `error` is why it did not answer, else its figures are there."""

    address: str
    id: str = ""
    error: str = ""
    jobs: int = 0
    queued: int = 0
    clients: int = 0
    blocked: int = 0
    memory: int = 0
    memory_max: int = 0
    leaving: bool = False
    schedules: int = 0  # of the tubes that it leads, as all that follows but topics
    late: int = 0  # how often instants of these had been missed
    groups: int = 0
    groups_failed: int = 0  # or cancelled, since it began
    keys_waited: int = 0
    keys_wait_ms: int = 0
    topics: int = 0
    unheard: int = 0  # ADDs that no queue got
    journal_fails: bool = False  # its journal cannot be written


def node_row(address: str, id: str, info: dict[str, Any]) -> NodeRow:
    """A node as its INFO says."""
    return NodeRow(
        address,
        id,
        "",
        int(info.get("registered_jobs", 0)),
        int(info.get("queued_jobs", 0)),
        int(info.get("connected_clients", 0)),
        int(info.get("blocked_clients", 0)),
        int(info.get("used_memory", 0)),
        int(info.get("maxmemory", 0)),
        info.get("cluster_leaving") == "yes",
        int(info.get("tubes_schedules", 0)),
        int(info.get("tubes_schedules_late", 0)),
        int(info.get("tubes_groups", 0)),
        int(info.get("tubes_groups_failed", 0)),
        int(info.get("tubes_keys_waited", 0)),
        int(info.get("tubes_keys_wait_ms", 0)),
        int(info.get("topics", 0)),
        int(info.get("topic_adds_unheard", 0)),
        info.get("aof_last_write_status", "ok") != "ok",
    )


class Queue(msgspec.Struct):
    """A queue over the cluster: its row at each node that knows it."""

    name: str
    here: dict[str, QueueRow] = {}

    @property
    def ready(self) -> int:
        """Jobs queued."""
        return sum(one.ready for one in self.here.values())

    @property
    def oldest_s(self) -> float:
        """The greatest age of a queued job, by each node's own clock."""
        return max((one.oldest_ms for one in self.here.values()), default=0) / 1000

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
        return sum(one.at_work for one in self.here.values())

    @property
    def dead(self) -> int:
        """Jobs in its queue of dead letters, at the nodes that know it: others may have some."""
        return sum(one.dead for one in self.here.values())

    @property
    def came_rate(self) -> float:
        """Jobs added each second."""
        return sum(one.in_s for one in self.here.values())

    @property
    def done_rate(self) -> float:
        """Jobs acked each second."""
        return sum(one.out_s for one in self.here.values())

    @property
    def type(self) -> str:
        """The type of a tube, else empty."""
        kinds = (one.type for one in self.here.values())
        return next((kind for kind in kinds if kind not in (PLAIN, DEAD_TYPE)), "")

    @property
    def pause(self) -> str:
        """none, in, out or all; `mixed` if the nodes differ."""
        found = {one.pause for one in self.here.values()}
        return found.pop() if len(found) == 1 else MIXED if found else "none"

    @property
    def is_dead(self) -> bool:
        """Whether it keeps dead letters."""
        return any(one.type == DEAD_TYPE for one in self.here.values())

    def row(self) -> QueueRow:
        """Its figures as one row."""
        return QueueRow(
            self.name,
            self.type or (DEAD_TYPE if self.is_dead else PLAIN),
            self.ready,
            self.delayed,
            self.work,
            self.dead,
            max((one.oldest_ms for one in self.here.values()), default=0),
            self.came_rate,
            self.done_rate,
            self.blocked,
            self.pause,
        )


def queues_of(rows: Mapping[str, Mapping[str, QueueRow]]) -> dict[str, Queue]:
    """The queues of the cluster out of those of its nodes, by their ids."""
    queues: dict[str, Queue] = {}
    for id, some in rows.items():
        for name, row in some.items():
            queues.setdefault(name, Queue(name, {})).here[id] = row
    return queues


class View(msgspec.Struct):
    """The cluster at an instant; `old` are the ids of nodes whose figures are not fresh."""

    at_s: float
    facts: list[NodeFacts]
    queues: dict[str, Queue]
    old: frozenset[str]

    @property
    def received(self) -> list[NodeFacts]:
        """The facts that count."""
        return received_of(self.facts, self.old)

    def sum(self, name: str) -> int:
        """A figure of INFO over the nodes that count."""
        return sum(one.number(name) for one in self.received)

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
        dead_letter = self.queues.get(queue.name + DEAD)
        return dead_letter.ready if dead_letter is not None and dead_letter.is_dead else queue.dead

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
        return all(one.queue_count <= len(one.queues) for one in self.received)

    @property
    def count(self) -> int:
        """How many queues there are, at least."""
        return max([len(self.queues), *(one.queue_count for one in self.received)])

    @property
    def clock_s(self) -> float:
        """The clock of the nodes (the latest)."""
        return max((one.clock_s for one in self.received), default=self.at_s)


def received_of(facts: list[NodeFacts], old: frozenset[str]) -> list[NodeFacts]:
    """The facts that are fresh, or all if none is."""
    return [one for one in facts if one.id not in old] or facts


def merged(at_s: float, facts: list[NodeFacts], old: frozenset[str]) -> View:
    """The view of what the nodes said."""
    rows = {one.id: one.queues for one in received_of(facts, old)}
    return View(at_s, facts, queues_of(rows), old)


def ordered(rows: list[QueueRow], sort: QueueOrder, desc: bool) -> list[QueueRow]:
    """In the order of QLIST (SPEC O10.1)."""
    by_name = sorted(rows, key=lambda row: row.name, reverse=desc and sort == "name")
    if sort == "name":
        return by_name
    if sort == "oldest":
        return sorted(
            by_name, key=lambda row: row.oldest_ms if row.type != "dead" else 0, reverse=desc
        )
    field = {"at-work": "at_work", "in": "in_s", "out": "out_s"}
    return sorted(by_name, key=lambda row: getattr(row, field.get(sort, sort)), reverse=desc)


# ---- Workers


def merged_worker(rows: list[WorkerInfo]) -> WorkerInfo:
    """One worker that several nodes know: as the one says that heard it last (SPEC O12.4).

    Its order is that of any node where it is alive: each passes on its own.
    """
    newest = min(rows, key=lambda one: one.heard_ms)
    if len(rows) == 1:
        return newest
    runs: dict[str, WorkerRun] = {}
    for one in sorted(rows, key=lambda one: -one.heard_ms):
        for run in one.runs:
            state = "running" if newest.state != "lost" and run.state == "waiting" else run.state
            if newest.state == "lost" or state == "running":
                runs[run.id] = msgspec.structs.replace(run, state=state)
    orders = [one.order for one in rows if one.state != "lost"]
    order = max(orders, key=ORDERS.index, default=newest.order)
    return msgspec.structs.replace(newest, runs=tuple(runs.values()), order=order)
