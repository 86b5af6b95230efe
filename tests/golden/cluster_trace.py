"""A golden trace of several nodes: what they say to each other and tell their clients.

Nodes are A, B, C, ..., jobs J1, J2, ... A message is shown when it arrives, with the time since
the start; then what became of each job whose states changed. The reply to a command stands before
the messages that follow from it, the reply to a client that waited stands after them. The id of a
job for which nobody waited is not shown.
"""

from __future__ import annotations

from typing import Any

from raw_resp import NULL, Err, encode
from tuque.core.repair.drain import drain_left
from tuque.core.repair.node_loss import repair_left
from world import World
from world_trace import Trace, index, letter
from world_wires import Wire

SEED = 3  # with which nodes choose as the prose of the traces says


class Story(Trace):
    """A trace in which a node that is down has nothing."""

    def state(self, i: int, id: bytes) -> str:
        return super().state(i, id) if self.world.node(i).is_up else f"{letter(i)} -"


class ClusterTrace:
    """One run of a trace: some nodes, and names for them and their jobs."""

    def __init__(self, count: int) -> None:
        self.world = World(count, journal="off", seed=SEED)
        self.trace = Story(self.world)
        self.waiting: list[tuple[int, Wire]] = []  # clients, and at which node

    def close(self) -> None:
        """End of the trace: the nodes agree with themselves."""
        self.world.check()

    def run(self, line: str) -> list[str]:
        """Carry out one command line; what came of it."""
        lines: list[str] = []
        words = line.split()
        world = self.world
        match words:
            case ["client", "at", node, *command]:
                ids = self.trace.ids
                lines = self.client(index(node[0]), [ids.get(w, w.encode()) for w in command])
            case ["pass", span]:
                world.pass_ms(int(span.removesuffix("ms")))
            case ["cut", a, b]:
                world.cut(index(a), index(b))
            case ["link", a, b]:
                world.link(index(a), index(b))
            case ["stop", node]:
                world.kill(index(node))
            case ["start", node]:
                world.start(index(node))
                world.link()
            case ["heartbeat"]:
                world.beat()
            case ["repair?"]:
                for i, node_at in enumerate(world.nodes):
                    lines.append(f"  {letter(i)}: {int(repair_left(node_at.core)) or 'done'}")
            case ["drain?"]:
                for i, node_at in enumerate(world.nodes):
                    if node_at.core.is_leaving:
                        left = int(drain_left(node_at.core)) or "safe to stop"
                        lines.append(f"  {letter(i)}: {left}")
            case _:
                raise AssertionError(line)
        return lines + self.messages() + self.replies() + self.trace.changes()

    def client(self, i: int, words: list[bytes]) -> list[str]:
        """A command of a client of node i; its reply, unless it waits."""
        world = self.world
        wire = world.wire(i)
        self.waiting.append((i, wire))
        if words[0] == b"ADDJOB":
            words[2:2] = [b"body", b"5000"]
        wire.put(encode(*words))
        while not wire.unread and not self.has_heard(i) and world.step():
            pass
        if self.has_heard(i) or not wire.unread:
            return []
        return [line for line in self.replies() if " < +" not in line]

    def has_heard(self, i: int) -> bool:
        """Whether node i heard of another one what is to be shown."""
        return any(to == i and self.trace.shows(m) for _, _, to, m in self.world.lab.heard)

    # ---- what is shown

    def messages(self) -> list[str]:
        """What nodes heard of each other."""
        self.world.settle()
        heard = list(self.world.lab.heard)
        self.world.lab.heard.clear()
        return self.trace.messages(heard)

    def replies(self) -> list[str]:
        """What clients were told since the last look."""
        lines = []
        for i, wire in self.waiting:
            said = map(self.text, wire.values())
            lines += [f"  client at {letter(i)} < {text}" for text in said if text]
        return lines

    def text(self, value: Any) -> str:
        """A reply with names for ids; empty for a plain OK, and where nothing was found."""
        if value is NULL or value == b"OK":
            return ""
        if isinstance(value, Err):
            return f"-{value}"
        if isinstance(value, bytes):
            return f"+{self.trace.name(value)}"
        if isinstance(value, list):
            return f"[{' '.join(self.trace.name(job[1]) for job in value)}]"
        return str(value)
