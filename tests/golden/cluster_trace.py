"""A golden trace of several nodes: what they say to each other and tell their clients.

Nodes are A, B, C, ..., jobs J1, J2, ... A message is shown when it arrives, with the time since
the start; then what became of each job whose states changed.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster_lab import START_MS, Lab
from refusals import words_of
from tuque.core.copies.ack import on_ackjob
from tuque.core.model.job import STATE_NAMES
from tuque.core.msgs import (
    HAS_QUEUED,
    REPAIR,
    AnyMessage,
    Delivered,
    Enqueue,
    GotAck,
    NeedJobs,
    Queued,
    ReplJob,
    Slots,
    TopicsTold,
    Working,
    YourJobs,
)
from tuque.core.queues.deliver import on_getjob
from tuque.core.repair.drain import drain_left
from tuque.core.repair.node_loss import repair_left

OPTIONS = {"REPLICATE": "replicate", "RETRY": "retry_s", "TTL": "ttl_s", "DELAY": "delay_s"}
ID_BYTES = 40


class WatchedLab(Lab):
    """A lab that tells what arrived, as it arrives."""

    def __init__(self, count: int, watch: Callable[[int, int, AnyMessage], None]) -> None:
        self.watch = watch
        super().__init__(count)

    def carry(self) -> bool:
        moved = super().carry()
        for a, b, message in self.log:
            self.watch(a, b, message)
        self.log.clear()
        return moved


class ClusterTrace:
    """One run of a trace: some nodes, and names for them and their jobs."""

    def __init__(self, count: int) -> None:
        self.lines: list[str] = []
        self.names: dict[bytes, str] = {}
        self.ids: dict[str, bytes] = {}
        self.states: dict[bytes, str] = {}
        self.answered = [0] * count
        self.served: list[dict[int, int]] = [{} for _ in range(count)]
        self.lab = WatchedLab(count, self.on_message)
        self.lines = []

    def close(self) -> None:
        """Nothing to end: the nodes are objects."""

    def run(self, line: str) -> list[str]:
        """Carry out one command line; what came of it."""
        self.lines = []
        words = line.split()
        lab = self.lab
        match words:
            case ["client", "at", node, *command]:
                self.client(index(node[0]), [self.ids.get(w, w.encode()) for w in command])
            case ["pass", span]:
                lab.pass_ms(int(span.removesuffix("ms")))
            case ["cut", a, b]:
                lab.cut(index(a), index(b))
            case ["link", a, b]:
                lab.link(index(a), index(b))
            case ["stop", node]:
                lab.die(index(node))
            case ["start", node]:
                lab.revive(index(node))
            case ["heartbeat"]:
                lab.beat()
            case ["repair?"]:
                self.lines += [
                    f"  {letter(i)}: {int(repair_left(n)) or 'done'}"
                    for i, n in enumerate(lab.nodes)
                ]
            case ["drain?"]:
                self.lines += [
                    f"  {letter(i)}: {int(drain_left(n)) or 'safe to stop'}"
                    for i, n in enumerate(lab.nodes)
                    if n.is_leaving
                ]
            case _:
                raise AssertionError(line)
        lab.run()
        return self.lines + self.replies() + self.changes()

    def client(self, i: int, words: list[bytes]) -> None:
        """A command of a client of node i."""
        lab = self.lab
        n = lab.nodes[i]
        n.now_ms = lab.now_ms
        match words:
            case [b"ADDJOB", queue, *options]:
                given = {
                    OPTIONS[options[k].decode()]: int(options[k + 1])
                    for k in range(0, len(options), 2)
                }
                _, refused = lab.try_add(i, queue, **given)
                if refused:
                    self.lines.append(f"  client at {letter(i)} < -{refused.decode()}")
            case [b"GETJOB", b"NOHANG", b"FROM", queue]:
                self.fetch(i, queue)
            case [b"GETJOB", b"FROM", queue]:
                if not self.fetch(i, queue):
                    lab.wait(i, queue)
            case [b"ACKJOB", id]:
                count = int(on_ackjob(n, id))
                self.lines.append(f"  client at {letter(i)} < {count}")
            case [b"CLUSTER", b"LEAVING", flag]:
                lab.leave(i, flag == b"yes")
            case _:
                raise AssertionError(words)

    def fetch(self, i: int, queue: bytes) -> bool:
        """Take a job that is there; False when there is none."""
        found = on_getjob(self.lab.nodes[i], 1, [queue], 1)
        self.lines += [f"  client at {letter(i)} < [{self.name(job.id)}]" for job in found]
        return len(found) > 0

    # ---- what is shown

    def on_message(self, a: int, b: int, m: AnyMessage) -> None:
        """Show a message that arrived."""
        if not isinstance(m, Slots | TopicsTold):
            at_ms = self.lab.now_ms - START_MS
            kind = type(m).__name__.upper()
            self.lines.append(f"  +{at_ms}ms {letter(a)} > {letter(b)} {kind} {self.said(a, m)}")

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
        if isinstance(m, GotAck):
            words.append("known" if m.known else "unknown")
        holders = m.jobs[0].holders if isinstance(m, YourJobs) else getattr(m, "holders", 0)
        if holders:
            words.append("holders " + "".join(self.nodes_of(a, holders)))
        return " ".join(words)

    def nodes_of(self, a: int, holders: int) -> list[str]:
        """The letters of the nodes in a set of node a."""
        n = self.lab.nodes[a]
        known = [other.node_id for other in self.lab.nodes]
        found = [known.index(n.peers[k].node_id) for k in range(len(n.peers)) if holders >> k & 1]
        return [letter(i) for i in sorted(found)]

    def name(self, id: bytes) -> str:
        """J1, J2, ... in the order of appearance."""
        if id not in self.names:
            self.names[id] = f"J{len(self.names) + 1}"
            self.ids[self.names[id]] = id
        return self.names[id]

    def replies(self) -> list[str]:
        """What clients that waited were told."""
        lines = []
        for i in range(len(self.lab.nodes)):
            at = f"  client at {letter(i)} <"
            for added in self.lab.told[i][self.answered[i] :]:
                error = words_of(added.error).decode()
                lines.append(f"{at} -{error}" if error else f"{at} +{self.name(added.id)}")
            self.answered[i] = len(self.lab.told[i])
            for client, jobs in self.lab.served[i].items():
                for job in jobs[self.served[i].get(client, 0) :]:
                    lines.append(f"{at} [{self.name(job.id)}]")
                self.served[i][client] = len(jobs)
        return lines

    def changes(self) -> list[str]:
        """The states of each job that are not as they were."""
        for n in self.lab.nodes:
            for id in n.jobs:
                self.name(id)
        lines = []
        for id, name in self.names.items():
            now = ", ".join(self.state(i, id) for i in range(len(self.lab.nodes)))
            if self.states.get(id) != now:
                self.states[id] = now
                lines.append(f"  {name}: {now}")
        return lines

    def state(self, i: int, id: bytes) -> str:
        """What a job is on node i."""
        n = self.lab.nodes[i]
        if id not in n.jobs:
            return f"{letter(i)} {'tombstone' if n.tombs.has(id) else '-'}"
        return f"{letter(i)} {STATE_NAMES[n.jobs[id].state].decode()}"


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
