"""Flaws in leases and exactly-once writes, enabled by switches.py.

No published design had these; they show that each judge in leasing.py can fail.
"""

from __future__ import annotations

from typing import Any, Final

from sim.engine.plan import Op, Plan
from sim.flaws.switches import Flaw, Patch, everywhere
from tuque.core.copies import requeue_messages
from tuque.core.copies.replicate import begin
from tuque.core.leases import expiry, fetch, leases
from tuque.core.model import stats
from tuque.core.model.errors import OVER, Refusal
from tuque.core.model.job import Job
from tuque.core.node.node import Node
from tuque.core.queues import dedupe
from tuque.core.queues.procedures import remove
from tuque.core.records.staged import NO_ID
from tuque.core.staged import publish, stage
from tuque.core.tables.dedupe_keys import Kept, Keys
from tuque.core.tables.leases import Batch, Group
from tuque.core.tables.staged import (
    App,
    Publish,
    PublishSpec,
    Staged,
)


def ends_early() -> list[Patch]:
    """A lease ends long before its TTL, silently."""
    sound = expiry.renew

    def renew(n: Node, g: Group) -> None:
        sound(n, g)
        if g.ttl_ms > 0:
            g.until_ms = n.now_ms + 100
            g.armed_ms = 0
            expiry.arm(n, g)

    return everywhere(sound, renew)


def reading_shifts() -> list[Patch]:
    """Reading a batch changes the positions of its jobs."""
    sound = fetch.on_fetch

    def on_fetch(n: Node, client: int, g: Group, seq: int, *rest: Any) -> Any:
        rows = sound(n, client, g, seq, *rest)
        b = g.batches.get(seq)
        if b is not None and len(b.jobs) > 1:
            b.jobs.append(b.jobs.pop(0))
        return rows

    return everywhere(sound, on_fetch)


def second_commit_fails() -> list[Patch]:
    """A repeated COMMIT is an error."""
    sound = leases.check

    def check(n: Node, name: bytes, epoch: int, seq: int) -> Refusal | None:
        error = sound(n, name, epoch, seq)
        if error is None and seq <= n.leases.groups[name].acked_seq:
            return Refusal(OVER, (seq, name))
        return error

    return everywhere(sound, check)


def commit_forgets() -> list[Patch]:
    """COMMIT acks all jobs of a batch but one, which nobody has afterwards."""
    sound = leases.ack_some

    def ack_some(n: Node, g: Group, seq: int, room: int) -> int:
        for number, b in g.batches.items():
            if number <= seq and b.jobs and b.freed == 0:
                expiry.give_back_all(n, [b.jobs.pop()])
        return sound(n, g, seq, room)

    return everywhere(sound, ack_some)


def fence_is_open() -> list[Patch]:
    """An owner with an old epoch commits what the next owner has."""
    sound_check, sound = leases.check, leases.commit

    def check(n: Node, name: bytes, epoch: int, seq: int) -> Refusal | None:
        g = n.leases.groups.get(name)
        if g is not None and epoch < g.epoch:
            return None
        return sound_check(n, name, epoch, seq)

    def commit(n: Node, name: bytes, epoch: int, seq: int, before: int = 0) -> int:
        return sound(n, name, n.leases.groups[name].epoch, seq, before)

    return everywhere(sound_check, check) + everywhere(sound, commit)


def epochs_are_told_early() -> list[Patch]:
    """An epoch is sent before it is on the disk."""
    sound = leases.on_open

    def on_open(n: Node, name: bytes, owner: bytes, queues: list[bytes]) -> Any:
        told = sound(n, name, owner, queues)
        if n.records is not None:
            n.records.has_custody = False
        return told

    return everywhere(sound, on_open)


def expiry_loses() -> list[Patch]:
    """The jobs of an expired lease are lost."""
    sound = expiry.expire

    def expire(n: Node, g: Group, b: Batch) -> None:
        for job in b.jobs[1:]:
            remove(n, job, stats.EXPIRED)
        sound(n, g, b)

    return everywhere(sound, expire)


def holders_are_not_told() -> list[Patch]:
    """The other holders of a leased job do not learn that it is out, even if they ask."""

    def begin_beats(n: Node, jobs: Any) -> None:
        return

    def is_leased(job: Job) -> bool:
        return False

    return [
        *everywhere(expiry.begin_beats, begin_beats),
        (requeue_messages, "is_leased", is_leased),
    ]


def staged_is_seen() -> list[Patch]:
    """A staged row becomes a job before its publication."""
    sound = stage.on_stage

    def on_stage(n: Node, txn: bytes, name: bytes, ttl_ms: int, job: Staged) -> int:
        x = Publish(PublishSpec(b"", 0, txn, [name]), -1, 0)
        x.first_ns, x.now_ms, x.default_repl = n.next_ctime_ns(), n.now_ms, 1
        begin(n, publish.made(n, x, job, n.ids.make(int(job.ttl_s), int(job.retry_s)), job.queue))
        return sound(n, txn, name, ttl_ms, job)

    return everywhere(sound, on_stage)


def versions_are_forgotten() -> list[Patch]:
    """A published version is published again."""
    sound = publish.finish

    def finish(n: Node, spec: Any, app: App | None, count: int, named: int) -> None:
        sound(n, spec, app, count, named)
        n.staging.apps[spec.app].version = -1

    return everywhere(sound, finish)


def rows_are_left_out() -> list[Patch]:
    """PUBLISH leaves out the last of many rows."""
    sound = publish.decide

    def decide(n: Node, x: Publish) -> Refusal | None:
        if len(x.chosen) > 1 and x.chosen[-1] is not None:
            x.chosen[-1], x.ids[-1] = None, NO_ID
            x.count -= 1
        return sound(n, x)

    return everywhere(sound, decide)


def keys_are_forgotten() -> list[Patch]:
    """A key is unknown the second time."""

    def find(self: Keys, full: bytes, now_ms: int) -> Kept | None:
        return None

    return [(Keys, "find", find)]


def keys_are_recorded_late() -> list[Patch]:
    """A job that waits for copies, and its key, are recorded only when it has them."""
    sound = dedupe.keep_key

    def keep_key(
        n: Node, queue: bytes, key: bytes, ttl_ms: int, job: Job, is_waiting: bool
    ) -> None:
        records = n.records
        if is_waiting:
            n.records = None
        sound(n, queue, key, ttl_ms, job, is_waiting)
        n.records = records

    return everywhere(sound, keep_key) + everywhere(dedupe.is_recorded, lambda n, job: False)


def lessees(seed: int) -> Plan:
    """Two owners of a group that fence each other, on one node or two."""
    plan = Plan(seed=f"lessees {seed}", nodes=1 + seed % 2, chaos_ms=15_000)
    for i in range(45):
        plan.ops.append(Op(200 + i + i // 15 * 4_000, "add", {
            "client": "p", "node": 0, "queue": "l", "repl": 1, "retry": 20, "ttl": 120,
        }))  # fmt: skip
    for i, at_ms in enumerate((0, 2_500)):
        plan.ops.append(Op(at_ms, "lessee", {
            "client": f"l{i}", "node": 0, "queues": ["l"], "for_ms": 14_000 - at_ms, "group": "g",
            "ttl_ms": 3_000, "count": 3, "parts": 1, "rows": 10, "work_ms": 1_500, "idle_ms": 50,
            "p_again": 0.7, "p_twice": 0.7, "p_crash": 0.05, "p_late": 0.05 * (seed % 2),
            "gives_way": True,
        }))  # fmt: skip
    plan.ops.append(Op(100, "worker", {
        "client": "w", "node": 0, "queues": ["l"], "for_ms": 14_000, "work_ms": 500,
        "timeout": 500, "idle_ms": 600,
    }))  # fmt: skip
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def owners_and_power(seed: int) -> Plan:
    """Two owners of a group without jobs fence each other; their node loses power."""
    plan = lessees(2 * seed)
    plan.seed, plan.policy, plan.sync_us = f"owners and power {seed}", "everysec", 5_000
    plan.faults, plan.is_faultless = ["power"], False
    for op in plan.ops:
        if op.kind == "lessee":
            op.args |= {"queues": ["none"], "p_crash": 0.2, "idle_ms": 200}
    for i in range(12):
        plan.ops.append(Op(1_000 + 1_100 * i, "crash", {
            "node": 0, "how": "power", "back": "disk", "fuse": 0, "down_ms": 50,
        }))  # fmt: skip
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def held_by_two(seed: int) -> Plan:
    """Jobs with two copies; one node leases them for long, the other has a hungry worker."""
    plan = Plan(seed=f"held by two {seed}", nodes=2, chaos_ms=15_000)
    for i in range(20):
        plan.ops.append(Op(100 + i, "add", {
            "client": "p", "node": 0, "queue": "l", "repl": 2, "retry": 1 + i % 3 * 2, "ttl": 120,
        }))  # fmt: skip
    plan.ops.append(Op(200, "lessee", {
        "client": "l", "node": 0, "queues": ["l"], "for_ms": 14_000, "group": "g",
        "ttl_ms": 9_000, "count": 10, "parts": 1, "rows": 10, "work_ms": 8_000, "idle_ms": 50,
    }))  # fmt: skip
    plan.ops.append(Op(1_000, "worker", {
        "client": "w", "node": 1, "queues": ["l"], "for_ms": 13_000, "work_ms": 50,
    }))  # fmt: skip
    return plan


def writers(seed: int) -> Plan:
    """Drivers that repeat a PUBLISH, producers that use keys."""
    plan = Plan(seed=f"writers {seed}", nodes=1, chaos_ms=10_000)
    everywhere = {
        "node": 0, "for_ms": 9_000, "out": "o", "repl": 1, "retry": 20, "idle_ms": 400,
        "p_crash": 0.05,
    }  # fmt: skip
    plan.ops.append(Op(0, "publisher", {
        "client": "d", "rows": 5, "p_replay": 0.4, "p_double": 0.2, "p_retry": 0.1, "p_one": 0.5,
        **everywhere,
    }))  # fmt: skip
    plan.ops.append(Op(0, "repeater", {"client": "r", "p_repeat": 0.5, **everywhere}))
    plan.ops.append(Op(100, "worker", {
        "client": "w", "node": 0, "queues": ["o"], "for_ms": 9_000, "work_ms": 50,
    }))  # fmt: skip
    return plan


def keyed_adds(seed: int) -> Plan:
    """Producers with keys at a node that is killed while their jobs are copied."""
    plan = Plan(seed=f"keyed {seed}", nodes=3, policy="always", chaos_ms=12_000, delay_us=3_000)
    plan.is_faultless = False
    plan.faults = ["kill"]
    for i in range(6):
        plan.ops.append(Op(10 * i, "repeater", {
            "client": f"r{i}", "node": 0, "for_ms": 10_000, "out": "o", "repl": 3, "retry": 5,
            "idle_ms": 20, "p_crash": 0.0, "p_repeat": 0.1,
        }))  # fmt: skip
    down = {"how": "kill", "back": "disk", "fuse": 0, "node": 0, "down_ms": 400}
    for at_ms in range(1_000, 10_000, 1_500):
        plan.ops.append(Op(at_ms + seed % 7, "crash", down))
    return plan


ONCE_FLAWS: Final = [
    Flaw("l1", "a lease ends early", ends_early, 10, lessees),
    Flaw("l2", "reading moves the jobs of a batch", reading_shifts, 10, lessees),
    Flaw("l3", "COMMIT cannot be repeated", second_commit_fails, 10, lessees),
    Flaw("l4", "COMMIT forgets a job", commit_forgets, 10, lessees),
    Flaw("l5", "a fenced epoch commits", fence_is_open, 10, lessees),
    Flaw("l6", "a lease that ends loses jobs", expiry_loses, 10, lessees),
    Flaw("l7", "other holders deliver a leased job", holders_are_not_told, 10, held_by_two),
    Flaw("l8", "epochs are sent early", epochs_are_told_early, 20, owners_and_power),
    Flaw("z1", "staged rows are seen", staged_is_seen, 5, writers),
    Flaw("z2", "a version is published twice", versions_are_forgotten, 5, writers),
    Flaw("z3", "a version is published in part", rows_are_left_out, 5, writers),
    Flaw("z4", "keys are forgotten", keys_are_forgotten, 5, writers),
    Flaw("z5", "keys are recorded late", keys_are_recorded_late, 5, keyed_adds),
]
RULES: Final = {
    "l1": "leased", "l2": "fetch", "l3": "commit", "l4": "commit", "l5": "fence", "l6": "lost",
    "l7": "leased", "l8": "fence",
    "z1": "staged-seen", "z2": "once", "z3": "publish-part", "z4": "once",
    "z5": "once",
}  # fmt: skip
