"""Drive the real core with a seeded mix of everything clients may do, and digest what it did.

Run as a program it prints the digest of one seed: the same for every PYTHONHASHSEED,
interpreted and compiled.
"""

from __future__ import annotations

import hashlib
import random
import sys

from tuque.core.copies.ack import on_ackjob, on_deadletter, on_deljob
from tuque.core.copies.add import on_addjob, refusal, settle
from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.model.job import AddSpec
from tuque.core.node.node import Node
from tuque.core.queues import procedures
from tuque.core.queues.deliver import (
    on_getjob,
    serve_ready,
    set_pause,
    wait,
)
from tuque.core.queues.procedures import check, stop_waiting
from tuque.core.queues.requeue import (
    on_dequeue,
    on_enqueue,
    on_nack,
    on_working,
)
from tuque.core.records.events import Events
from tuque.core.records.jobs import Records
from tuque.core.repair.drain import make_room

START_MS = 1_800_000_000_000
QUEUES = [b"a", b"b", b"c"]


class Drive:
    """One node, its pretended clients and the log of all that came out of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.n = Node(b"%040x" % seed, b"seed %d" % seed, START_MS)
        self.n.records = Records()
        self.n.events = Events(1 << 16, 1)
        self.n.limits.memory_bytes = self.rng.choice([0, 0, 40_000])
        self.ids: list[bytes] = []
        self.log = hashlib.blake2b()
        self.added = 0
        self.delivered: dict[bytes, list[int]] = {}
        self.once: set[bytes] = set()
        self.acked: set[bytes] = set()

    def say(self, *facts: object) -> None:
        """Add to the digest."""
        self.log.update(repr(facts).encode())

    def add(self) -> None:
        """ADDJOB with some options."""
        rng = self.rng
        spec = AddSpec()
        spec.retry_s = rng.choice([-1, 0, 0, 1, 2, 5])
        spec.ttl_s = rng.choice([-1, 3, 20, 600])
        spec.delay_s = rng.choice([0, 0, 0, 1, 2])
        spec.maxlen = rng.choice([0, 0, 5])
        full = settle(self.n, spec)
        queue = rng.choice(QUEUES)
        refused = refusal(self.n, queue, full)
        if refused is not None:
            self.say("refused", refused.code, refused.about)
            return
        job = on_addjob(self.n, queue, b"body %d" % self.added, full)
        self.added += 1
        self.ids.append(job.id)
        if full.retry_s == 0:
            self.once.add(job.id)
        self.say("add", job.id)

    def hand_out(self, id: bytes) -> None:
        """Note a delivery and hold it against the promises."""
        assert id not in self.acked, "delivered after its ack"
        times = self.delivered.setdefault(id, [])
        times.append(self.n.now_ms)
        assert id not in self.once or len(times) == 1, "at most once came twice"
        self.say("got", id)

    def get(self) -> None:
        """GETJOB, waiting when there is nothing."""
        names = self.rng.sample(QUEUES, self.rng.randint(1, 3))
        count = self.rng.randint(1, 4)
        jobs = on_getjob(self.n, 1, names, count)
        for job in jobs:
            self.hand_out(job.id)
        client = self.rng.randint(2, 5)
        if not jobs and client not in self.n.waiters:
            wait(self.n, client, names, count, False, self.rng.choice([0, self.n.now_ms + 700]))

    def some_id(self) -> bytes:
        """An id of a job that was added, now or before."""
        return self.rng.choice(self.ids) if self.ids else b"D-" + b"0" * 38

    def act(self) -> None:
        """One command on one job."""
        id = self.some_id()
        verb = self.rng.randrange(8)
        if verb <= 2:
            if on_ackjob(self.n, id):
                self.acked.add(id)
        elif verb == 3:
            self.say("nack", on_nack(self.n, id, self.rng.choice([0, 0, 400])))
        elif verb == 4:
            self.say("enqueue", on_enqueue(self.n, id))
        elif verb == 5:
            self.say("dequeue", on_dequeue(self.n, id))
        elif verb == 6:
            refused = on_working(self.n, id)
            self.say("working", 0 if refused is None else refused.code)
        elif self.rng.random() < 0.5:
            self.say("del", on_deljob(self.n, id))
        elif id in self.n.jobs:
            self.acked.add(id)
            dead = on_deadletter(self.n, self.n.jobs[id], b"dead", b"reason")
            self.say("dead", dead.id)

    def rest(self) -> None:
        """Let time pass, timer by timer."""
        until = self.n.now_ms + self.rng.choice([1, 50, 900, 4000])
        while next_timer_ms(self.n) <= until:
            self.n.now_ms = max(self.n.now_ms, next_timer_ms(self.n))
            tick(self.n)
            self.serve()
        self.n.now_ms = until

    def serve(self) -> None:
        """What the dispatcher does after each command."""
        serve_ready(self.n)
        for wake in self.n.wakes:
            self.say("wake", wake.client, wake.why)
            for job in wake.jobs:
                self.hand_out(job.id)
        self.n.wakes.clear()

    def run(self, steps: int) -> str:
        """That many steps, the tables checked along the way; the digest."""
        for step in range(steps):
            kind = self.rng.random()
            if kind < 0.35:
                self.add()
            elif kind < 0.6:
                self.get()
            elif kind < 0.85:
                self.act()
            elif kind < 0.9:
                set_pause(self.n, self.rng.choice(QUEUES), self.rng.choice([0, 0, 1, 2, 3]))
            elif kind < 0.93:
                stop_waiting(self.n, self.rng.randint(2, 5))
            elif kind < 0.95:
                self.say("room", make_room(self.n, 5))
            else:
                self.rest()
            self.serve()
            if step % 20 == 0:
                check(self.n)
                assert self.n.records is not None
                self.say(hashlib.blake2b(self.n.records.take()).hexdigest())
        check(self.n)
        self.say(sorted(self.n.jobs), self.n.ledger.counts())
        return self.log.hexdigest()


if __name__ == "__main__":
    compiled = not (procedures.__file__ or "").endswith(".py")
    print(Drive(int(sys.argv[1])).run(int(sys.argv[2])), "compiled" if compiled else "interpreted")
