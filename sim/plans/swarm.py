"""From a seed number to a plan: the faults, the number of nodes, the clients.

Each seed has its own mix, as a test in which everything happens at once hides what a few
things together can do: one seed in ten has no fault, one in five a single kind.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from sim.engine.meddler import KINDS as MEDDLES
from sim.engine.plan import Op, Plan
from sim.plans.leased import draw_once
from sim.plans.life_swarm import draw_edits, draw_lives, draw_words
from sim.plans.tube_swarm import draw_pris, draw_tubes

KINDS: Final = [
    "kill", "power", "reformat", "pause", "cut", "one_way", "slow", "break", "clock",
    "disk", "memory", "hostile", "leaving", "rolling", "queue_pause", "poke", "rewrite",
    "forget", "old_disk",
]  # fmt: skip
SIZES: Final = [1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 6, 7]
HARMLESS: Final = {"queue_pause", "rewrite"}  # kinds that a seed without faults may have


class Drawing:
    """A plan being drawn."""

    def __init__(self, seed: int) -> None:
        self.c = Random(f"swarm {seed}")
        self.plan = Plan(seed=str(seed), nodes=self.c.choice(SIZES))
        self.w_max = min(5, self.plan.nodes)
        self.queues = ["q", "mail", "a:b"][: self.c.choice([1, 1, 2, 3])]
        self.retries = self.c.choice([[1], [1, 2, 5], [0, 1, 3], [2, 4, 8], [0], [5, 10]])

    def at(self) -> int:
        """A random instant of the chaos phase."""
        return self.c.randrange(self.plan.chaos_ms)

    def op(self, at_ms: int, kind: str, **args: Any) -> None:
        """Add an operation."""
        self.plan.ops.append(Op(at_ms, kind, args))

    def node(self) -> int:
        """A random node."""
        return self.c.randrange(self.plan.nodes)

    def log_ms(self, low: float, high: float) -> int:
        """A random span in ms, each order of magnitude equally likely."""
        return int(low * (high / low) ** self.c.random())


def draw(
    seed: int,
    with_leases: bool = True,
    with_tubes: bool = True,
    with_lives: bool = False,
    with_edits: bool = False,
    with_words: bool = False,
    with_seals: bool = False,
) -> Plan:
    """The plan of a seed; with or without clients of leases, of writes, of tubes and of work.

    Later kinds of clients are drawn apart, so that a seed found before them stays what it was.
    `with_seals`: in some plans the nodes have a secret, and somebody meddles with their frames.
    """
    d = Drawing(seed)
    c, plan = d.c, d.plan
    draw_faults(d)
    plan.sync_us = d.log_ms(200, 20_000)
    plan.delay_us = d.log_ms(50, 5_000 if plan.is_faultless else 50_000)
    plan.cpu_us = d.log_ms(10, 500)
    plan.split_rate = c.choice([0.0, 0.1, 0.5])
    plan.holes = c.random() < 0.3
    plan.node_timeout_ms = c.choice([1_000, 2_000, 5_000])
    plan.load_us = c.choice([5_000, 5_000, 100_000])
    plan.bus_limit_bytes = c.choice([1 << 20, 1 << 20, 4_000])
    plan.chaos_ms = c.choice([10_000, 20_000, 30_000])
    plan.check_every = c.choice([5, 40, 200])
    if "clock" in plan.faults:
        plan.rates_ppm = [c.randint(-500, 500) for _ in range(plan.nodes)]
    if "memory" in plan.faults:
        plan.memory_bytes = c.choice([6_000, 10_000, 20_000])
    draw_work(d)
    for kind in plan.faults:
        FAULTS[kind](d)
    if with_leases:
        draw_once(plan, d.queues, Random(f"swarm once {seed}"))
    if with_tubes:
        draw_tubes(plan, Random(f"swarm tubes {seed}"))
    if with_lives:
        draw_lives(plan, Random(f"swarm lives {seed}"))
    if with_edits:
        draw_edits(plan, Random(f"swarm edits {seed}"))
    if with_words:
        draw_words(plan, Random(f"swarm words {seed}"))
        draw_pris(plan, Random(f"swarm pris {seed}"))
    if with_seals:
        draw_seals(plan, Random(f"swarm seals {seed}"))
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def draw_faults(d: Drawing) -> None:
    """The kinds of faults, and how the nodes write their journals."""
    c, plan = d.c, d.plan
    lot = c.random()
    if lot < 0.1:
        plan.faults = [k for k in sorted(HARMLESS) if c.random() < 0.2]
    elif lot < 0.3:
        plan.faults = [c.choice(KINDS)]
    else:
        share = c.choice([0.15, 0.3, 0.5])
        plan.faults = [k for k in KINDS if c.random() < share]
    plan.is_faultless = set(plan.faults) <= HARMLESS
    plan.policy = c.choice(["off", "off", "off", "always", "always", "everysec", "no"])
    if {"disk", "power", "rewrite"} & set(plan.faults) and plan.policy == "off":
        plan.policy = c.choice(["always", "everysec", "off"])


def draw_seals(plan: Plan, c: Random) -> None:
    """A secret in one plan of three; there, where there are faults, somebody on the way."""
    plan.sealed = c.random() < 1 / 3
    if not plan.sealed or plan.is_faultless or c.random() < 0.3:
        return
    plan.faults.append("meddle")
    for _ in range(c.randint(1, 6)):
        args = {"node": c.randrange(plan.nodes), "what": c.choice(MEDDLES)}
        plan.ops.append(Op(c.randrange(plan.chaos_ms), "meddle", args))


# ---- clients


def draw_work(d: Drawing) -> None:
    """Producers and consumers."""
    c = d.c
    lives = c.choice([[120], [120], [120], [15, 60, 120], [10, 90]])
    delays = c.choice([[0], [0], [0, 0, 1, 3], [0, 2, 8]])
    sizes = c.choice([[20], [10, 100], [20, 3000]])
    options = {"async": c.random() < 0.2, "maxlen": c.random() < 0.2, "hang_up": c.random() < 0.2}
    burst = c.random() < 0.3
    start = d.at()
    one_node = c.random() < 0.2
    for _ in range(c.choice([15, 30, 45])):
        at_ms = start + c.randrange(50) if burst and c.random() < 0.7 else d.at()
        args: dict[str, Any] = {
            "client": f"p{c.randrange(4)}", "node": 0 if one_node else d.node(),
            "queue": c.choice(d.queues), "retry": c.choice(d.retries), "ttl": c.choice(lives),
            "delay": c.choice(delays), "size": c.choice(sizes), "repl": c.randint(1, d.w_max),
            "timeout": c.choice([0, 100, 1000, 2000]),
        }  # fmt: skip
        if args["retry"] == 0:
            args["repl"] = 1
        for name, share in (("async", 0.2), ("maxlen", 0.2), ("hang_up", 0.1)):
            if options[name] and c.random() < share:
                args[name] = c.choice([1, 5, 60])
        d.op(at_ms, "add", **args)
    draw_workers(d)


def draw_workers(d: Drawing) -> None:
    """Consumers: hungry or slow, always or only late, acking here or elsewhere."""
    c, plan = d.c, d.plan
    late = c.random() < 0.3  # a first phase without consumers
    slow = d.log_ms(5, 4000)
    habits = {
        "p_nack": c.choice([0.0, 0.0, 0.2]), "p_drop": c.choice([0.0, 0.1, 0.3]),
        "p_fast": c.choice([0.0, 0.0, 0.0, 0.2]), "p_working": c.choice([0.0, 0.2]),
        "p_else": c.choice([0.0, 0.3, 1.0]), "p_twice": c.choice([0.0, 0.3]),
        "timeout": c.choice([200, 1000, 5000]), "count": c.choice([1, 1, 3, 10]),
        "nohang": c.random() < 0.2, "idle_ms": c.choice([5, 50, 300]),
    }  # fmt: skip
    for i in range(c.randint(1, max(2, plan.nodes))):
        begin = c.randrange(plan.chaos_ms // 2, plan.chaos_ms) if late else d.at() // 2
        queues = d.queues if c.random() < 0.6 else [c.choice(d.queues)]
        d.op(
            begin, "worker", client=f"w{i}", node=d.node(), queues=queues, work_ms=slow + 1,
            for_ms=c.choice([3_000, plan.chaos_ms]), **habits,
        )  # fmt: skip


# ---- faults


def draw_crash(d: Drawing, how: str, back: str) -> None:
    """Processes end, now or between two of their effects."""
    c = d.c
    for _ in range(c.randint(1, 3)):
        fuse = c.choice([0, 1, 2, 3, c.randint(1, 60)])
        d.op(
            d.at(), "crash", node=d.node(), how=how, back=back, fuse=fuse,
            down_ms=d.log_ms(50, 9_000),
        )  # fmt: skip


def draw_kill(d: Drawing) -> None:
    """kill -9."""
    draw_crash(d, "kill", "disk")


def draw_power(d: Drawing) -> None:
    """A machine loses power, sometimes all at once."""
    if d.c.random() < 0.3:
        at_ms = d.at()
        for node in range(d.plan.nodes):
            d.op(
                at_ms + d.c.randrange(3), "crash", node=node, how="power", back="disk",
                down_ms=d.log_ms(50, 4_000), fuse=d.c.choice([0, 1, 5]),
            )  # fmt: skip
        return
    draw_crash(d, "power", "disk")


def draw_reformat(d: Drawing) -> None:
    """A node restarts without its disk."""
    draw_crash(d, "power", "empty")


def draw_pause(d: Drawing) -> None:
    """SIGSTOP."""
    for _ in range(d.c.randint(1, 3)):
        d.op(d.at(), "pause", node=d.node(), for_ms=d.log_ms(20, 12_000))


def draw_cut(d: Drawing) -> None:
    """Partitions: halves, one alone, two pairs that both reach a third."""
    for _ in range(d.c.randint(1, 3)):
        nodes = list(range(d.plan.nodes))
        d.c.shuffle(nodes)
        if len(nodes) < 2:
            return
        k = d.c.choice([1, len(nodes) // 2 or 1])
        b = nodes[k:] if d.c.random() < 0.7 else nodes[k : k + 1]
        d.op(d.at(), "cut", a=nodes[:k], b=b, for_ms=d.log_ms(100, 15_000))


def draw_one_way(d: Drawing) -> None:
    """Lines that work in one direction only."""
    for _ in range(d.c.randint(1, 3)):
        a, b = d.node(), d.node()
        if a != b:
            d.op(d.at(), "cut", a=[a], b=[b], one_way=True, for_ms=d.log_ms(100, 12_000))


def draw_slow(d: Drawing) -> None:
    """Slow lines."""
    for _ in range(d.c.randint(1, 5)):
        a, b = d.node(), d.node()
        if a != b:
            d.op(
                d.at(), "slow", a=a, b=b, extra_ms=d.log_ms(20, 3_000),
                for_ms=d.log_ms(500, 15_000),
            )  # fmt: skip


def draw_break(d: Drawing) -> None:
    """Connections break."""
    for _ in range(d.c.randint(1, 5)):
        d.op(d.at(), "break", node=d.node())


def draw_clock(d: Drawing) -> None:
    """Wall clocks jump; a process notices at its next start."""
    for _ in range(d.c.randint(1, 4)):
        jump_ms = d.c.choice([-86_400_000, -5_000, 3_000, 3_600_000, 1 << 40])
        d.op(d.at(), "clock", node=d.node(), jump_ms=jump_ms)


def draw_disk(d: Drawing) -> None:
    """Disks that are full, slow, or fail an fsync."""
    for _ in range(d.c.randint(1, 3)):
        what = d.c.choice(["full", "write", "fsync", "slow"])
        d.op(d.at(), "disk", node=d.node(), what=what, for_ms=d.log_ms(200, 8_000))


def draw_memory(d: Drawing) -> None:
    """A node's memory limit changes; the others keep the plan's."""
    if d.c.random() < 0.5:
        d.op(d.at(), "memory", node=d.node(), bytes=d.c.choice([3_000, 0]))


def draw_hostile(d: Drawing) -> None:
    """Clients that send nonsense, forged ids, or half a command."""
    for _ in range(d.c.randint(2, 8)):
        what = d.c.choice(["forged", "garbage", "half", "many", "unknown"])
        d.op(d.at(), "hostile", client="bad", node=d.node(), what=what)


def draw_leaving(d: Drawing) -> None:
    """Nodes leave: they return, or are stopped and wiped once that is safe."""
    for _ in range(d.c.randint(1, 2)):
        what = d.c.choice(["away_and_back", "drain"])
        d.op(d.at() // 2, what, node=d.node(), for_ms=d.log_ms(1_000, 10_000))


def draw_rolling(d: Drawing) -> None:
    """A rolling restart, each node after the repair that the last one made necessary."""
    d.op(d.at() // 3, "rolling", back=d.c.choice(["disk", "empty"]), order=d.c.random() < 0.5)


def draw_forget(d: Drawing) -> None:
    """A dead node is forgotten, and met again once it is back."""
    d.op(d.at() // 2, "forget", node=d.node(), for_ms=d.log_ms(1_000, 6_000))


def draw_old_disk(d: Drawing) -> None:
    """An operator restores an old data directory."""
    node, at_ms = d.node(), d.at() // 2
    d.op(at_ms, "backup", node=node)
    d.op(
        at_ms + d.log_ms(500, 8_000), "crash", node=node, how="kill", back="old", fuse=0,
        down_ms=300,
    )  # fmt: skip


def draw_queue_pause(d: Drawing) -> None:
    """PAUSE."""
    for _ in range(d.c.randint(1, 3)):
        at_ms, queue, node = d.at(), d.c.choice(d.queues), d.node()
        words = d.c.choice([["in"], ["out"], ["all"]])
        bcast = ["bcast"] if d.c.random() < 0.5 else []
        d.op(at_ms, "queue_pause", client="boss", node=node, queue=queue, words=words + bcast)
        span_ms = d.log_ms(200, 6_000)
        d.op(
            at_ms + span_ms, "queue_pause", client="boss", node=node, queue=queue,
            words=["none", *bcast],
        )  # fmt: skip


def draw_poke(d: Drawing) -> None:
    """Commands about jobs, from any client on any node."""
    verbs = ["NACK", "ENQUEUE", "DEQUEUE", "WORKING", "ACKJOB", "FASTACK", "DELJOB", "SHOW"]
    some = d.c.sample(verbs, d.c.randint(1, 4))
    for _ in range(d.c.randint(3, 20)):
        d.op(d.at(), "poke", client="meddler", node=d.node(), verb=d.c.choice(some))


def draw_rewrite(d: Drawing) -> None:
    """The journal is rewritten."""
    for _ in range(d.c.randint(1, 4)):
        d.op(d.at(), "rewrite", node=d.node())


FAULTS: Final = {
    "kill": draw_kill,
    "power": draw_power,
    "reformat": draw_reformat,
    "pause": draw_pause,
    "cut": draw_cut,
    "one_way": draw_one_way,
    "slow": draw_slow,
    "break": draw_break,
    "clock": draw_clock,
    "disk": draw_disk,
    "memory": draw_memory,
    "hostile": draw_hostile,
    "leaving": draw_leaving,
    "rolling": draw_rolling,
    "queue_pause": draw_queue_pause,
    "poke": draw_poke,
    "rewrite": draw_rewrite,
    "forget": draw_forget,
    "old_disk": draw_old_disk,
}
