"""Three nodes, jobs and leases by chance, cuts and restarts: books balance and no job is lost."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tuque.core.copies.ack import on_ackjob, on_deljob, on_fastack
from tuque.core.leases.bisect import on_begin, on_defer, on_split
from tuque.core.leases.fetch import columns, on_fetch
from tuque.core.leases.leases import (
    check,
    commit,
    on_lease_nack,
    on_next,
    on_open,
    on_release,
    on_touch,
)
from tuque.core.model.job import ACKED
from tuque.core.node.node import Node
from tuque.core.queues.deliver import set_pause
from tuque.core.queues.requeue import (
    on_dequeue,
    on_enqueue,
    on_nack,
    on_working,
)
from tuque.core.tables.leases import (
    SPLITS_MAX,
    Batch,
    Group,
    is_leased,
)
from world import World

Make = Callable[..., World]

QUEUES = [b"q", b"r"]
STEPS = 120
SPANS_MS = [100, 1500, 7000]


class Story:
    """One run; what happens is drawn from the seed."""

    def __init__(self, seed: int, world: World) -> None:
        self.rng = random.Random(seed)
        self.world = world
        self.ids: list[bytes] = []

    def step(self) -> None:
        """One thing that happens, and all that follows from it at once."""
        rng, world = self.rng, self.world
        i = rng.randrange(3)
        n = world.node(i).core
        choice = rng.randrange(24)
        if choice < 6:
            self.add(i)
        elif choice < 8:
            world.at(i).get(rng.choice(QUEUES))
        elif choice < 12 and self.ids:
            self.settle_one(n, rng.choice(self.ids))
        elif choice < 18:
            self.lease(n)
        elif choice < 20:
            world.pass_ms(rng.choice(SPANS_MS))
        else:
            self.trouble(i, choice)
        world.settle()

    def add(self, i: int) -> None:
        """A job on one to three nodes, if it is taken."""
        rng, jobs = self.rng, self.world.node(i).core.jobs
        before = set(jobs)
        self.world.wire(i).send_add(
            rng.choice(QUEUES),
            "body",
            replicate=rng.choice([1, 2, 3]),
            retry=rng.choice([0, 1, 2, 6, 60]),
            ttl=rng.choice([5, 3600]),
            timeout_ms=5000,
        )
        self.ids += sorted(set(jobs) - before)

    def settle_one(self, n: Node, id: bytes) -> None:
        """A command of somebody else about a job, leased or not."""
        commands = [on_ackjob, on_fastack, on_deljob, on_enqueue, on_dequeue, on_working]
        if self.rng.randrange(4) == 0:
            on_nack(n, id, self.rng.choice([0, 500]))
        else:
            self.rng.choice(commands)(n, id)

    def lease(self, n: Node) -> None:
        """A command of the node's group."""
        rng = self.rng
        g = n.leases.groups.get(b"g")
        choice = rng.randrange(16)
        if g is None or choice == 0:
            on_open(n, b"g", rng.choice([b"a", b"b"]), QUEUES)
        elif choice < 5:
            ttl_ms = rng.choice([1000, 4000, 60_000])
            parts = rng.randrange(1, 4)
            on_next(n, 1, g, g.last_seq + 1, rng.randrange(1, 6), 1 << 20, parts, ttl_ms)
        elif choice == 5:
            on_release(n, g)
        elif g.batches:
            self.batch(n, g, g.batches[rng.choice(list(g.batches))], choice)

    def batch(self, n: Node, g: Group, b: Batch, choice: int) -> None:
        """A command about a batch."""
        if choice < 8:
            assert check(n, b"g", g.epoch, b.seq) is None
            commit(n, b"g", g.epoch, b.seq)
        elif choice == 8:
            on_lease_nack(n, g, b.seq, [job.id for job in b.jobs][:2])
        elif choice < 11:
            part = self.rng.randrange(b.parts)
            rows = on_fetch(n, 1, g, b.seq, part, 0, 10, 1 << 20, True)
            assert rows.error is None
            ids = columns(rows.jobs)[0]
            assert isinstance(ids, bytes) and len(ids) == 40 * len(rows.jobs)
        elif choice == 11:
            on_touch(n, g, self.rng.choice([0, 1500]))
        else:
            self.half(n, g, b, choice)

    def half(self, n: Node, g: Group, b: Batch, choice: int) -> None:
        """What a client does whose batch failed."""
        if choice == 12:
            begun = on_begin(n, 1, g, b.seq)
            assert begun.error is None and begun.half <= b.count
        elif choice < 15:
            kept, error = on_split(n, 1, g, b.seq, self.rng.randrange(1, 4), 1)
            assert error is None or len(g.batches) >= SPLITS_MAX
            assert kept == (g.batches[b.seq].count if error is None else 0)
        else:
            on_defer(n, 1, g, b.seq, self.rng.choice([0, 2]), 1 << 20)

    def trouble(self, i: int, choice: int) -> None:
        """A cut, a restart, a pause."""
        world = self.world
        if choice == 20:
            world.isolate(i)
        elif choice == 21:
            world.link()
        elif choice == 22:
            world.restart(i)
            world.pass_ms(self.rng.choice([10, 3000]))
            for b in world.numbers():
                if b != i:
                    world.link(i, b)
        else:
            set_pause(world.node(i).core, b"q", self.rng.choice([0, 0, 1, 2]))

    def end(self) -> None:
        """Everything is well again and no group holds anything."""
        self.world.link()
        for n in self.world.cores:
            set_pause(n, b"q", 0)
            if b"g" in n.leases.groups:
                on_open(n, b"g", b"end", [b"none"])
            assert not any(is_leased(job) for job in n.jobs.values())
        self.world.settle()


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 100))]
)
def test_nothing_is_lost(make_world: Make, seed: int) -> None:
    world = make_world(3, journal="always")
    story = Story(seed, world)
    for _ in range(STEPS):
        story.step()
    story.end()
    open_ids = {
        job.id
        for n in world.cores
        for job in n.jobs.values()
        if job.retry_s > 0 and job.state != ACKED and job.expire_ms > world.now_ms + 400_000
    }
    for turn in range(70):
        taker = world.at(turn % 3, 9)
        taker.send("GETJOB", "TIMEOUT", 2000, "COUNT", 100, "FROM", *QUEUES)
        world.pass_ms(2000)
        found = set(taker.served()) & open_ids
        if found:
            taker("ACKJOB", *found)
            open_ids -= found
    for n in world.cores:
        assert not [id for id in open_ids if id in n.jobs and n.jobs[id].state != ACKED]
        n.leases.check()
