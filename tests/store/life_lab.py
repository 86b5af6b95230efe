"""Jobs with a life on a node with a journal: commands by chance, and what a restart must keep."""

from __future__ import annotations

import random

from journal_lab import Lab, facts

from tuque.core.copies.ack import on_ackjob, on_deljob
from tuque.core.copies.add import on_addjob, settle
from tuque.core.dispatch.timers import next_timer_ms, tick
from tuque.core.life.cancel_update import on_cancel, on_update
from tuque.core.life.dead_letters import (
    Letter,
    Letters,
    purge,
    replay,
)
from tuque.core.life.outcomes import on_done, on_enqueue_of
from tuque.core.life.runs import on_fail, on_nack_of, on_release, on_work
from tuque.core.life.start import on_start
from tuque.core.model.job import ACTIVE, PLAIN, Job, Update
from tuque.core.model.work import (
    LIVE,
    Failure,
    Life,
    Terms,
)
from tuque.core.node.node import Node
from tuque.core.queues.deliver import on_getjob

QUEUES = (b"q", b"r")
PARTS = (b"", b"why", b"because of much " * 5)
HEADERS = b"\x04name\x05\x00value"


class LifeLab(Lab):
    """A lab whose jobs are worked on; the node gives up after two deliveries nobody began."""

    def act(self, rng: random.Random, step_ms: int = 2500) -> None:
        """One command about work, chosen by chance, and the timers; then the turn ends."""
        n = self.n
        n.limits.unstarted_max = 2
        job = rng.choice(list(n.jobs.values())) if n.jobs else None
        choice = rng.randrange(16)
        if choice < 3 or job is None:
            add(n, rng)
        elif choice < 6:
            for given in on_getjob(n, 1, [rng.choice(QUEUES)], 2):
                if rng.randrange(4):
                    on_start(n, given.id, rng.choice((b"w1", b"w2")), 7)
        elif choice < 11:
            life = n.life.by_id.get(job.id)
            say(n, job.id, 0 if life is None else life.run, rng)
        elif choice == 11:
            look_after_letters(n, rng)
        elif choice == 12:
            n.now_ms += rng.randrange(step_ms)
        else:
            handle(n, job, rng)
        while next_timer_ms(n) <= n.now_ms:
            tick(n)
        self.turn()

    def state(self) -> dict[bytes, tuple[object, ...]]:
        found = super().state()
        n = self.n
        for id, life in n.life.by_id.items():
            assert life.failed <= life.starts, "an attempt that nobody began"
            found[id] = life_facts(n.jobs[id], life)
            if n.jobs[id].expire_ms <= n.now_ms and life.terms.attempts == 0:
                del found[id]  # over: its timer fires within a ms
        for queue, letters in n.life.letters.items():
            order = letters.order.listed()
            found[b"letters of " + queue] = (order, int(letters.count))
        for id, kept in n.life.kept.items():
            found[b"outcome of " + id] = (
                kept.kind,
                kept.until_ms,
                kept.ended_ms,
                kept.run,
                kept.of,
                kept.worker,
                kept.result,
                kept.reason,
            )
        return found


def add(n: Node, rng: random.Random) -> Job:
    """A job with options of all kinds."""
    spec = settle(n, PLAIN)
    spec.retry_s = rng.choice((0, 1, 1, 60))
    spec.ttl_s = rng.choice((4, 86_400))
    spec.delay_ms = rng.choice((0, 0, 700))
    spec.delay_s = (spec.delay_ms + 999) // 1000
    spec.headers = rng.choice((b"", HEADERS))
    attempts = rng.choice((0, 1, 3)) if spec.retry_s else 0
    keep_ms, limit_ms = rng.choice((0, 3000)), rng.choice((0, 0, 1500))
    dead = rng.choice((b"", b"graves"))
    spec.terms = Terms(attempts, 300, 2000, rng.choice((0, 500)), dead, keep_ms, limit_ms)
    return on_addjob(n, rng.choice(QUEUES), rng.randbytes(9), spec)


def say(n: Node, id: bytes, run: int, rng: random.Random) -> None:
    """What a worker says of its run."""
    choice = rng.randrange(8)
    reason = rng.choice(PARTS)
    if choice < 3:
        on_fail(n, id, run, rng.choice((-1, -1, 400)), reason, reason, choice == 2)
    elif choice == 3:
        on_release(n, id, run, rng.choice((0, 900)))
    elif choice == 4:
        on_done(n, id, run, rng.choice((None, b"", b"result")))
    elif choice == 5:
        on_work(n, id, run, 7)
    elif choice == 6:
        on_cancel(n, id, reason)
    else:
        on_nack_of(n, id, rng.choice((0, 900)), 7)


def handle(n: Node, job: Job, rng: random.Random) -> None:
    """A command of somebody else."""
    choice = rng.randrange(5)
    if choice == 0:
        update = Update()
        update.body = rng.choice((None, rng.randbytes(5)))
        update.delay_ms = rng.choice((-1, 0, 800))
        update.ttl_ms = rng.choice((-1, 3_000, 90_000_000))
        update.attempts = rng.choice((-1, 2))
        update.headers = rng.choice((None, b"", HEADERS * 2))
        on_update(n, job.id, update)
    elif choice == 1:
        on_ackjob(n, job.id)
    elif choice == 2:
        on_deljob(n, job.id)
    elif choice == 3:
        on_enqueue_of(n, job.id)
    else:
        on_start(n, job.id, b"w3", 8)


def look_after_letters(n: Node, rng: random.Random) -> None:
    """Replay or purge a dead letter."""
    letters: list[Letter] = []
    for queue in list(n.life.letters):
        letters += Letters(queue, b"").after(n, 0, 100)
    if letters:
        letter = rng.choice(letters)
        if rng.randrange(3):
            replay(n, letter, rng.choice((b"", b"q")))
        else:
            purge(n, letter)


def life_facts(job: Job, life: Life) -> tuple[object, ...]:
    """Job and life. A live run is due anew after a restart, and its job expires after that."""
    own = list(facts(job))
    if life.run_state == LIVE:
        own[4] = 0
        own[5] = life.expire_ms or job.expire_ms
    return (
        *own,
        life.terms.key(),
        life.headers,
        life.replays,
        life.failed,
        life.starts,
        life.run,
        life.run_state,
        life.since_ms,
        life.worker,
        life.unstarted,
        life.is_cancelled,
        life.is_resting and job.state == ACTIVE,
        life.cancel_reason,
        life.ttl_ms,
        life.is_dead,
        life.dead_ms,
        life.dead_cause,
        life.origin,
        failure_facts(life.first),
        failure_facts(life.last),
    )


def failure_facts(failure: Failure | None) -> tuple[object, ...]:
    if failure is None:
        return ()
    head = (failure.at_ms, failure.attempt, failure.worker)
    return (*head, failure.cause, failure.reason, failure.detail)
