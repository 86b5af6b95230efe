"""What nodes said to each other and what became of their jobs, in the form of tests/golden.

Nodes are A, B, C, ..., jobs J1, J2, ... in the order in which they appear. A message is shown when
it arrives, with the time since the start. Changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from tuque.core.model.job import STATE_NAMES
from tuque.core.msgs.bus import (
    HAS_QUEUED,
    REPAIR,
    AnyMessage,
    Delivered,
    Enqueue,
    GotAck,
    Heartbeat,
    NeedJobs,
    Queued,
    QueuesTold,
    ReplJob,
    Slots,
    TopicsTold,
    TubePulse,
    TubesTold,
    Working,
    YourJobs,
)
from tuque.core.node.node import Node

if TYPE_CHECKING:
    from world import World

QUIET: Final = Heartbeat | Slots | TopicsTold | TubePulse | TubesTold  # said whatever happens


def index(node: str) -> int:
    """A is 0."""
    return ord(node) - ord("A")


def letter(i: int) -> str:
    """0 is A."""
    return chr(ord("A") + i)


def seconds(span_ms: int) -> str:
    """A span for people."""
    return f"{span_ms / 1000:.1f}s"


def ids_of(m: AnyMessage) -> list[bytes]:
    """The jobs that a message is about."""
    if isinstance(m, YourJobs):
        return [job.id for job in m.jobs]
    return list(getattr(m, "ids", [])) or ([m.id] if hasattr(m, "id") else [])


class Trace:
    """The names of jobs, and what was shown of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.began_ms = world.now_ms  # instants are shown since then
        self.names: dict[bytes, str] = {}
        self.ids: dict[str, bytes] = {}
        self.states: dict[bytes, str] = {}

    def name(self, id: bytes) -> str:
        """J1, J2, ... in the order of appearance."""
        if id not in self.names:
            self.names[id] = f"J{len(self.names) + 1}"
            self.ids[self.names[id]] = id
        return self.names[id]

    def lines(self, heard: list[tuple[int, int, int, AnyMessage]]) -> list[str]:
        """The messages that arrived, then the jobs whose states changed."""
        return self.messages(heard) + self.changes()

    def shows(self, m: AnyMessage) -> bool:
        """Whether a message is worth a line."""
        return not isinstance(m, QUIET)

    def messages(self, heard: list[tuple[int, int, int, AnyMessage]]) -> list[str]:
        """The messages that arrived."""
        found = []
        for at_ms, a, b, m in heard:
            if self.shows(m):
                kind = type(m).__name__.upper()
                at = f"  +{self.world.start_ms + at_ms - self.began_ms}ms"
                found.append(f"{at} {letter(a)} > {letter(b)} {kind} {self.said(a, m)}")
        return found

    def said(self, a: int, m: AnyMessage) -> str:
        """The fields of a message that matter."""
        words = [self.name(id) for id in ids_of(m)]
        if isinstance(m, NeedJobs):
            words += [m.queue.decode(), f"count {m.count}"]
        if isinstance(m, Enqueue):
            words.append(f"in {seconds(m.delay_ms)}")
        if isinstance(m, Delivered | Working):
            words.append(f"back in {seconds(m.left_ms)}")
        if isinstance(m, ReplJob) and m.mode & REPAIR:
            words.append("again")
        if isinstance(m, Queued) and m.how & HAS_QUEUED:
            words.append("in my queue")
        if isinstance(m, QueuesTold):
            for one in m.all:
                state = ("used", "ending", "gone")[one.state]
                words.append(f"{one.queue.decode()} {state} of {self.owner(one.node)}")
        if isinstance(m, GotAck):
            words.append("known" if m.known else "unknown")
        holders = m.jobs[0].holders if isinstance(m, YourJobs) else getattr(m, "holders", 0)
        if holders:
            words.append("holders " + "".join(map(letter, self.world.numbers_in(a, holders))))
        return " ".join(words)

    def owner(self, node_id: bytes) -> str:
        """The letter of the node with that id."""
        ids = [node.core.node_id for node in self.world.nodes if node.is_up]
        return letter(ids.index(node_id)) if node_id in ids else "?"

    def changes(self) -> list[str]:
        """The states of each job that are not as they were."""
        world = self.world
        for i in world.numbers():
            for id in world.node(i).jobs_now():
                self.name(id)
        lines = []
        for id, name in self.names.items():
            now = ", ".join(self.state(i, id) for i in world.numbers())
            if self.states.get(id) != now:
                self.states[id] = now
                lines.append(f"  {name}: {now}")
        return lines

    def state(self, i: int, id: bytes) -> str:
        """What a job is on node i."""
        node = self.world.node(i)
        if not node.is_up:
            return f"{letter(i)} down"
        n = node.core
        if id not in n.jobs:
            return f"{letter(i)} {'tombstone' if n.tombs.has(id) else '-'}"
        return f"{letter(i)} {STATE_NAMES[n.jobs[id].state].decode()}"


def digest(n: Node) -> str:
    """A fingerprint of every job, queue and count of the node."""
    seen = hashlib.sha256()
    for job_id in sorted(n.jobs):
        job = n.jobs[job_id]
        fields = (
            job.id, job.queue, job.body, int(job.state), int(job.flags), int(job.repl),
            int(job.retry_s), int(job.delay_s), int(job.ctime_ns), int(job.expire_ms),
            int(job.qtime_ms), int(job.nacks), int(job.deliveries), int(job.holders),
        )  # fmt: skip
        seen.update(repr(fields).encode())
    for name in sorted(n.queues):
        q = n.queues[name]
        order = [job.id for job in q.peek(int(q.length))]
        seen.update(repr((name, int(q.length), int(q.pause), order, len(q.waiters))).encode())
    seen.update(repr(list(n.ledger.counts())).encode())
    return seen.hexdigest()
