"""The flaws of the published design, as they stood, for mutations.py."""

from __future__ import annotations

from typing import Any, Final

from tuque.core import deliver, requeue
from tuque.core.job import Job
from tuque.core.node import Node
from tuque.core.queue import Queue
from tuque.sim import clock
from tuque.sim.mutations import Flaw, Patch, bent, everywhere
from tuque.sim.plan import Op, Plan
from tuque.store import writer
from tuque.wire import args


def retry_from_enqueue() -> list[Patch]:
    """Flaw 2: the retry clock runs from the enqueue, not from the delivery."""
    sound = deliver.take

    def take(n: Node, q: Queue, client: int) -> Job | None:
        due: dict[bytes, int] = {}
        if q.length > 0:
            first = q.first()
            if first is not None:
                due[first.id] = first.qtime_ms
        job = sound(n, q, client)
        if job is not None and job.retry_s > 0 and due.get(job.id, 0) > n.now_ms:
            job.qtime_ms = due[job.id]
            n.wheel.arm(job, n.now_ms)
        return job

    return everywhere(sound, take)


def wall_clock() -> list[Patch]:
    """Flaw 13: the node goes by the wall clock, wherever it jumps."""

    def now_ms(self: clock.NodeClock) -> int:
        return self.machine.wall_ms()

    return [(clock.NodeClock, "now_ms", now_ms)]


def narrow_numbers() -> list[Patch]:
    """Flaw 14: numbers of an ADDJOB are cut to 32 bits."""

    def ranged(word: bytes, least: int, most: int, error: bytes) -> int:
        return int(word) & 0xFFFFFFFF

    return everywhere(args.ranged, ranged)


def long_lives(seed: int) -> Plan:
    """Jobs whose TTL does not fit into 32 bits."""
    plan = bent(seed, [])
    for i in range(5):
        plan.ops.append(Op(100 + i, "add", {
            "client": "p0", "node": 0, "queue": "long", "retry": 3, "ttl": (1 << 32) + 60,
            "delay": 0,
        }))  # fmt: skip
    return plan


def working_on_delayed() -> list[Patch]:
    """Flaw 15: WORKING on a job in its delay moves its due time forward."""
    sound = requeue.on_working

    def on_working(n: Node, id: bytes) -> bytes:
        job = n.jobs.get(id)
        if job is not None and job.delivered_count == 0 and job.retry_s > 0:
            job.qtime_ms = n.now_ms + int(job.retry_s) * 1000
            n.wheel.arm(job, n.now_ms)
            return b""
        return sound(n, id)

    return everywhere(sound, on_working)


def workers_on_delayed(seed: int) -> Plan:
    """Delays, and people who say WORKING about them."""
    plan = bent(seed, [])
    for i in range(6):
        plan.ops.append(Op(500 + i, "add", {
            "client": "p0", "node": 0, "queue": "q", "retry": 1, "ttl": 120, "delay": 9,
        }))  # fmt: skip
    for i in range(20):
        args: dict[str, Any] = {"client": "meddler", "node": 0, "verb": "WORKING"}
        plan.ops.append(Op(600 + i * 100, "poke", args))
    return plan


def sync_ignored() -> list[Patch]:
    """Flaw 16: what was written counts as durable."""

    def sync(self: writer.Journal) -> bool:
        self.synced_seq = self.seq
        return True

    return [(writer.Journal, "sync", sync)]


FLAWS: Final = [
    Flaw("f2", "the retry time runs from the enqueue", retry_from_enqueue, 40),
    Flaw("f13", "the node goes by the wall clock", wall_clock, 40, lambda s: bent(s, ["clock"])),
    Flaw("f14", "numbers are cut to 32 bits", narrow_numbers, 5, long_lives),
    Flaw("f15", "WORKING cuts a delay short", working_on_delayed, 10, workers_on_delayed),
    Flaw(
        "f16", "written counts as durable", sync_ignored, 40,
        lambda s: bent(s, ["power"], policy="always"),
    ),
]  # fmt: skip
MUTATIONS: Final = {flaw.name: flaw for flaw in FLAWS}
