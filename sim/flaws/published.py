"""The flaws of the published design, for switches.py."""

from __future__ import annotations

from typing import Any, Final

from sim.engine import clock
from sim.engine.plan import Op, Plan
from sim.flaws.homes import HOME_FLAWS
from sim.flaws.keys import KEY_FLAWS
from sim.flaws.leases import ONCE_FLAWS
from sim.flaws.lives import LIFE_FLAWS
from sim.flaws.restarts import RESTART_FLAWS
from sim.flaws.rules import RULE_FLAWS, slow_answers
from sim.flaws.sealed import SEALED_FLAWS
from sim.flaws.switches import Flaw, Patch, bent, everywhere
from sim.flaws.tubes import TUBE_FLAWS
from sim.flaws.turns import TURN_FLAWS
from sim.flaws.voters import VOTER_FLAWS
from sim.flaws.work import WORK_FLAWS
from tuque.core.copies import ack_gc, federation, requeue_messages
from tuque.core.dispatch import restore
from tuque.core.model import job_id, stats
from tuque.core.model.errors import Refusal
from tuque.core.model.job import Job
from tuque.core.model.tombstones import Tombs
from tuque.core.msgs.bus import (
    DelJob,
    GotAck,
    ReplJob,
    SetAck,
)
from tuque.core.node import peers
from tuque.core.node.node import Node
from tuque.core.node.queue import Queue
from tuque.core.queues import deliver, requeue
from tuque.core.queues.procedures import unregister
from tuque.core.repair import node_loss
from tuque.store import writer
from tuque.wire.commands import arguments


def retry_from_enqueue() -> list[Patch]:
    """Flaw 2: the retry time runs from the enqueue, not from the delivery."""
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
    """Flaw 13: the node follows the wall clock through its jumps."""

    def now_ms(self: clock.NodeClock) -> int:
        return self.machine.wall_ms()

    return [(clock.NodeClock, "now_ms", now_ms)]


def jumping_clocks(seed: int) -> Plan:
    """The wall clock of a node is set forward while its jobs are delayed.

    By so little at a time that it does not look like a standstill (G8.4).
    """
    plan = Plan(seed=f"jump {seed}", nodes=2, chaos_ms=20_000, is_faultless=False)
    plan.faults = ["clock"]
    for i in range(10):
        plan.ops.append(Op(20 * i, "add", {
            "client": "p", "node": 0, "queue": "q", "repl": 1, "retry": 3, "ttl": 120, "delay": 9,
        }))  # fmt: skip
    plan.ops.append(Op(500, "worker", {
        "client": "w", "node": 0, "queues": ["q"], "for_ms": 18_000, "work_ms": 5, "count": 10,
    }))  # fmt: skip
    for i in range(4):
        at_ms = 2_000 + 500 * i + seed % 7 * 50
        plan.ops.append(Op(at_ms, "clock", {"node": 0, "jump_ms": 1_200}))
    return plan


def narrow_numbers() -> list[Patch]:
    """Flaw 14: the times of an ADDJOB are cut to 32 bits of ms."""

    def in_range(option: bytes, word: bytes, least: int, most: int, kind: bytes = b"") -> int:
        return (int(word) * 1000 & 0xFFFFFFFF) // 1000

    return everywhere(arguments.in_range, in_range)


def long_lives(seed: int) -> Plan:
    """Jobs whose TTL has more than 32 bits of ms: without them it is 3 s."""
    plan = bent(seed, [])
    for i in range(5):
        plan.ops.append(Op(100 + i, "add", {
            "client": "p0", "node": 0, "queue": "long", "retry": 3, "ttl": (1 << 32) // 1000 + 4,
            "delay": 0,
        }))  # fmt: skip
    return plan


def working_on_delayed() -> list[Patch]:
    """Flaw 15: WORKING on a delayed job moves its due time forward."""
    sound = requeue.on_working

    def on_working(n: Node, id: bytes, client: int = -1) -> Refusal | None:
        job = n.jobs.get(id)
        if job is not None and job.delivered_count == 0 and job.retry_s > 0:
            job.qtime_ms = n.now_ms + int(job.retry_s) * 1000
            n.wheel.arm(job, n.now_ms)
            return None
        return sound(n, id, client)

    return everywhere(sound, on_working)


def workers_on_delayed(seed: int) -> Plan:
    """Delays, and clients that send WORKING for delayed jobs."""
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
    """Flaw 16: written data counts as durable."""

    def sync(self: writer.Journal) -> bool:
        self.synced_seq = self.seq
        return True

    return [(writer.Journal, "sync", sync)]


def importer_is_no_holder() -> list[Patch]:
    """Flaw 1: a node that imports a job believes that it has the only copy."""
    sound = federation.take_new

    def take_new(n: Node, slot: int, m: ReplJob, queue: bytes) -> None:
        sound(n, slot, m, queue)
        job = n.jobs.get(m.id)
        if job is not None and job.retry_s > 0:
            job.holders = 1

    return everywhere(sound, take_new)


def no_repair() -> list[Patch]:
    """Flaw 3: a node that lost its memory still counts as a holder."""

    def on_incarnation(n: Node, slot: int, is_empty: bool, life: int = 0) -> None:
        peers.renew(n, slot, life)

    def nothing(n: Node) -> None:
        return

    return (
        everywhere(node_loss.on_incarnation, on_incarnation)
        + everywhere(node_loss.repair_tick, nothing)
        + everywhere(node_loss.repair_next_ms, lambda n: 1 << 62)
    )


def ack_is_oblivion() -> list[Patch]:
    """Flaw 4: acks in the journal are forgotten by a restart."""
    sound = restore.after_load

    def after_load(n: Node) -> None:
        sound(n)
        for id in list(n.acked):
            del n.acked[id]
            unregister(n, n.jobs[id], stats.GC_ACKED)
        n.tombs = Tombs()

    return everywhere(sound, after_load)


def no_tombstones() -> list[Patch]:
    """Flaw 5: "I do not know it" counts as "I will never have it"."""

    def put(self: Tombs, id: bytes, kind: int, round: int, waits: int, expire_ms: int) -> None:
        return

    return [(Tombs, "put", put)]


def sets_are_not_joined() -> list[Patch]:
    """Flaw 6: each node uses its own list of holders, and DELJOB ends what others knew."""
    sound = ack_gc.on_setack
    sound_collect = ack_gc.collect

    def on_setack(n: Node, slot: int, m: SetAck) -> None:
        ack_gc.collect = lambda n, job: None
        sound(n, slot, m)
        ack_gc.collect = sound_collect

    def join(n: Node, job: Job, holders: int) -> int:
        return 0

    def end_here(n: Node, id: bytes, expire_ms: int, slot: int, named: int, is_blind: bool) -> None:
        job = n.jobs.get(id)
        if job is not None:
            unregister(n, job, stats.GC_ACKED)

    return (
        everywhere(sound, on_setack)
        + everywhere(ack_gc.join, join)
        + everywhere(ack_gc.end_here, end_here)
    )


def moves_are_not_told() -> list[Patch]:
    """Flaw 7: the retry clocks of other holders do not restart when a job is served elsewhere."""

    def unheard(n: Node, slot: int, m: object) -> None:
        return

    return everywhere(federation.on_moved, unheard) + everywhere(
        requeue_messages.on_delivered, unheard
    )


def custody_is_given_away() -> list[Patch]:
    """Flaw 8: an at-most-once job is forgotten when sent, not when it arrived."""
    sound = federation.send_jobs

    def send_jobs(n: Node, slot: int, name: bytes, jobs: list[Job]) -> None:
        sound(n, slot, name, jobs)
        for job in jobs:
            if job.retry_s == 0:
                unregister(n, job, stats.MOVED)

    return everywhere(sound, send_jobs)


def leavers_drop_acks() -> list[Patch]:
    """Flaw 9: ACKJOB of an unknown job does nothing on a leaving node."""
    sound = ack_gc.on_unknown_ack

    def on_unknown_ack(n: Node, client: int, id: bytes) -> None:
        if not n.is_leaving:
            sound(n, client, id)

    return everywhere(sound, on_unknown_ack)


def ids_are_believed() -> list[Patch]:
    """Flaw 10: nodes remember ids that a client has made up."""
    return everywhere(job_id.mark_under, lambda key, id: 0)


def forgotten_are_waited_for() -> list[Patch]:
    """Flaw 11: FORGET leaves the node in holder sets."""

    def on_forget(n: Node, slot: int) -> None:
        return

    return everywhere(node_loss.on_forget, on_forget)


def vouching_while_loading() -> list[Patch]:
    """Flaw 17: a loading node replies about jobs that it has not read yet."""
    sound = ack_gc.on_setack
    sound_deljob = ack_gc.on_deljob_message

    def on_setack(n: Node, slot: int, m: SetAck) -> None:
        if n.is_loading:
            peers.say(n, slot, GotAck(m.id, False, 0))
        else:
            sound(n, slot, m)

    def on_deljob_message(n: Node, slot: int, m: DelJob) -> None:
        if not n.is_loading:
            sound_deljob(n, slot, m)

    return everywhere(sound, on_setack) + everywhere(sound_deljob, on_deljob_message)


def amo_only(seed: int) -> Plan:
    """At-most-once jobs that move over breaking links."""
    plan = bent(seed, ["break"], at_least=2)
    plan.faults = ["break"]
    for op in plan.ops:
        if op.kind == "add":
            op.args.update(retry=0, repl=1, delay=0)
    for i in range(40):
        plan.ops.append(Op(300 + i * plan.chaos_ms // 45, "break", {"node": i}))
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def ack_at_leaver(seed: int) -> Plan:
    """A worker that acks everything on a leaving node."""
    plan = bent(seed, [], at_least=3)
    plan.faults = ["leaving"]
    plan.ops = [op for op in plan.ops if op.kind == "add"]
    for op in plan.ops:
        op.args.update(retry=3, repl=1, node=1, delay=0, ttl=120)
        op.at_ms = 2_000 + op.at_ms // 4
    plan.ops.append(Op(100, "away_and_back", {"node": 2, "for_ms": 9_000}))
    plan.ops.append(Op(500, "worker", {
        "client": "w", "node": 1, "queues": ["q", "mail", "a:b"], "for_ms": 8_000, "work_ms": 50,
        "ack_at": 2,
    }))  # fmt: skip
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def away_at_the_ack(seed: int, restarts: list[int], load_us: int) -> Plan:
    """Three nodes with journals; one is down while jobs are acked, `restarts` come before it."""
    plan = Plan(seed=f"away {seed}", nodes=3, policy="always", chaos_ms=20_000, load_us=load_us)
    plan.is_faultless = False
    plan.faults = ["kill"]
    for i in range(20):
        plan.ops.append(Op(10 * i, "add", {
            "client": "p", "node": 0, "queue": "q", "repl": 3, "retry": 4, "ttl": 120,
        }))  # fmt: skip
    down = {"how": "kill", "back": "disk", "fuse": 0}
    plan.ops.append(Op(3_000, "crash", {"node": 2, "down_ms": 9_000, **down}))
    plan.ops.append(Op(4_000, "worker", {
        "client": "w", "node": 0, "queues": ["q"], "for_ms": 2_500, "work_ms": 5, "count": 10,
    }))  # fmt: skip
    for node in restarts:
        plan.ops.append(Op(7_500 + seed % 100, "crash", {"node": node, "down_ms": 300, **down}))
    return plan


def long_load(seed: int) -> Plan:
    """A node that loads its journal for long hears others meanwhile, as no server does."""
    plan = away_at_the_ack(seed, [], 300_000)
    plan.opens_early = True
    return plan


def last_words(seed: int) -> Plan:
    """A node is killed while its workers have the jobs that were added there."""
    plan = Plan(seed=f"last words {seed}", nodes=4, chaos_ms=20_000, is_faultless=False)
    plan.faults, plan.delay_us = ["kill"], 200 + seed % 7 * 300
    for i in range(20):
        plan.ops.append(Op(i * 5, "add", {
            "client": "p", "node": 1, "queue": "q", "repl": 2, "retry": 4, "ttl": 120,
        }))  # fmt: skip
    plan.ops.append(Op(2_000, "worker", {
        "client": "w1", "node": 1, "queues": ["q"], "for_ms": 18_000, "work_ms": 1, "count": 20,
        "p_drop": 1.0,
    }))  # fmt: skip
    plan.ops.append(Op(3_300 + seed * 37 % 500, "crash", {
        "node": 1, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 9_000,
    }))  # fmt: skip
    for node in (0, 2, 3):
        plan.ops.append(Op(3_900 + node, "worker", {
            "client": f"w{node}", "node": node, "queues": ["q"], "for_ms": 18_000,
            "work_ms": 100, "count": 5, "idle_ms": 100,
        }))  # fmt: skip
    return plan


def late_copies(seed: int) -> Plan:
    """Copies that are in flight for long on breaking links, while the job is acked elsewhere."""
    plan = Plan(seed=f"late {seed}", nodes=3, chaos_ms=20_000, node_timeout_ms=5_000)
    plan.is_faultless = False
    plan.faults = ["slow", "break"]
    plan.ops.append(Op(0, "slow", {"a": 0, "b": 2, "extra_ms": 2_000, "for_ms": 19_000}))
    plan.ops.append(Op(400, "worker", {
        "client": "w", "node": 1, "queues": ["q"], "for_ms": 18_000, "work_ms": 2, "count": 10,
    }))  # fmt: skip
    for i in range(40):
        at_ms = 500 + 400 * i
        plan.ops.append(Op(at_ms, "add", {
            "client": "p", "node": 0, "queue": "q", "repl": 2, "retry": 5, "ttl": 120,
        }))  # fmt: skip
        if i % 4 == 0:
            plan.ops.append(Op(at_ms + 70 + (seed * 37 + i * 11) % 300, "break", {"node": 2}))
    return plan


def only_forget(seed: int) -> Plan:
    """Jobs are acked while a node is down; then the node is forgotten."""
    plan = Plan(seed=f"forget {seed}", nodes=3 + seed % 3, chaos_ms=20_000, is_faultless=False)
    plan.faults = ["forget"]
    for i in range(20):
        plan.ops.append(Op(10 * i, "add", {
            "client": "p", "node": 0, "queue": "q", "repl": 3, "retry": 4, "ttl": 120,
        }))  # fmt: skip
    plan.ops.append(Op(3_000, "forget", {"node": 2, "for_ms": 3_000}))
    plan.ops.append(Op(3_500, "worker", {
        "client": "w", "node": 0, "queues": ["q"], "for_ms": 2_500, "work_ms": 5, "count": 10,
    }))  # fmt: skip
    return plan


FLAWS: Final = [
    Flaw("f1", "an importer is no holder", importer_is_no_holder, 20),
    Flaw("f2", "the retry time runs from the enqueue", retry_from_enqueue, 40),
    Flaw(
        "f3", "a restarted node still counts as a holder", no_repair, 40,
        lambda s: bent(s, ["rolling"], policy="off", at_least=3),
    ),
    Flaw(
        "f4", "an ack is forgotten by a restart", ack_is_oblivion, 10,
        lambda s: away_at_the_ack(s, [0, 1], 5_000),
    ),
    Flaw(
        "f5", "no tombstones", no_tombstones, 60, late_copies,
    ),
    Flaw("f6", "holder sets are not joined", sets_are_not_joined, 5, slow_answers),
    Flaw("f7", "deliveries elsewhere are not heard of", moves_are_not_told, 10, last_words),
    Flaw("f8", "custody is given away with the message", custody_is_given_away, 60, amo_only),
    Flaw("f9", "ACKJOB at a leaving node is lost", leavers_drop_acks, 40, ack_at_leaver),
    Flaw(
        "f10", "forged ids are remembered", ids_are_believed, 40,
        lambda s: bent(s, ["hostile"], at_least=2),
    ),
    Flaw(
        "f11", "a forgotten node is waited for", forgotten_are_waited_for, 10, only_forget,
    ),
    Flaw("f13", "the node goes by the wall clock", wall_clock, 5, jumping_clocks),
    Flaw("f14", "times are cut to 32 bits of ms", narrow_numbers, 5, long_lives),
    Flaw("f15", "WORKING cuts a delay short", working_on_delayed, 10, workers_on_delayed),
    Flaw(
        "f16", "written counts as durable", sync_ignored, 40,
        lambda s: bent(s, ["power"], policy="always"),
    ),
    Flaw(
        "f17", "a loading node vouches", vouching_while_loading, 20, long_load,
    ),
]  # fmt: skip
ALL_FLAWS: Final = [
    *FLAWS, *RULE_FLAWS, *ONCE_FLAWS, *TUBE_FLAWS, *HOME_FLAWS, *VOTER_FLAWS, *RESTART_FLAWS,
    *TURN_FLAWS, *LIFE_FLAWS, *WORK_FLAWS, *SEALED_FLAWS, *KEY_FLAWS,
]  # fmt: skip
MUTATIONS: Final = {flaw.name: flaw for flaw in ALL_FLAWS}
