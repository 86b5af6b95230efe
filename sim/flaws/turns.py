"""Flaws of the turn of the server (SPEC C8, J4), for switches.py: in the pump that ships."""

from __future__ import annotations

from typing import Final

from sim.engine.plan import Op, Plan
from sim.flaws.switches import Flaw, Patch
from tuque.server.loop.gate import Gate
from tuque.server.loop.pump import Pump
from tuque.server.state.client import Connection


def replies_do_not_wait() -> list[Patch]:
    """Replies leave at the end of their turn, durable or not; frames to other nodes wait."""
    sound = Gate.release

    def release(self: Gate, c: Connection, seq: int) -> None:
        sound(self, c, -1)

    return [(Gate, "release", release)]


def frames_do_not_wait() -> list[Patch]:
    """Frames to other nodes leave at the end of their turn; replies wait."""

    def for_peers(self: Gate, seq: int) -> int:
        return -1

    return [(Gate, "for_peers", for_peers)]


def replies_leave_first() -> list[Patch]:
    """Replies of a turn leave before its records go to the journal."""
    sound = Pump.settle

    def settle(self: Pump) -> None:
        s = self.s
        dirty, s.dirty = s.dirty, []
        for c in dirty:
            c.is_dirty = False
            self.output.send(c)
        sound(self)

    return [(Pump, "settle", settle)]


def slow_disk(seed: int) -> Plan:
    """A node with slow fsyncs loses power while jobs are added."""
    plan = Plan(seed=f"slow disk {seed}", nodes=1, policy="always", sync_us=100_000)
    plan.is_faultless, plan.faults = False, ["power"]
    for i in range(120):
        plan.ops.append(Op(500 + 130 * i, "add", {
            "client": f"p{i % 3}", "node": 0, "queue": "q", "repl": 1, "retry": 5, "ttl": 120,
        }))  # fmt: skip
    for k in range(4):
        plan.ops.append(Op(2_000 + 4_000 * k + seed % 50, "crash", {
            "node": 0, "how": "power", "back": "disk", "fuse": 0, "down_ms": 300,
        }))  # fmt: skip
    return plan


def moving_away(seed: int) -> Plan:
    """At-most-once jobs move to a node with workers; then the sender loses power."""
    plan = Plan(seed=f"moving away {seed}", nodes=2, policy="always", sync_us=100_000)
    plan.is_faultless, plan.faults = False, ["power"]
    for i in range(60):
        plan.ops.append(Op(500 + 260 * i, "add", {
            "client": f"p{i % 3}", "node": 0, "queue": "q", "repl": 1, "retry": 0, "ttl": 120,
        }))  # fmt: skip
    plan.ops.append(Op(400, "worker", {
        "client": "w", "node": 1, "queues": ["q"], "for_ms": 18_000, "work_ms": 2, "count": 1,
        "timeout": 2_000,
    }))  # fmt: skip
    for k in range(4):
        plan.ops.append(Op(2_000 + 4_000 * k + seed * 37 % 260, "crash", {
            "node": 0, "how": "power", "back": "disk", "fuse": 0, "down_ms": 300,
        }))  # fmt: skip
    return plan


def cut_short(seed: int) -> Plan:
    """A process ends between the first and the second effect of a job."""
    plan = slow_disk(seed)
    plan.seed, plan.faults = f"cut short {seed}", ["kill"]
    for op in plan.ops:
        if op.kind == "crash":
            op.args.update(how="kill", fuse=2)
    return plan


TURN_FLAWS: Final = [
    Flaw("p1", "replies do not wait for the disk", replies_do_not_wait, 5, slow_disk),
    Flaw("p2", "frames do not wait for the disk", frames_do_not_wait, 20, moving_away),
    Flaw("p3", "replies leave before the records", replies_leave_first, 10, cut_short),
]
