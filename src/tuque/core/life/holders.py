"""The holders of a plain job keep its work: the placement of it (SPEC W14, T48).

Nobody leads them. Each one changes its copy, records it, and sends it to the others, which merge it
(core/work/merge.py).
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.copies.ack_gc import retire
from tuque.core.model import stats
from tuque.core.model.errors import CHANGING, LEASED_WORK, RESTING, Refusal
from tuque.core.model.job import (
    ACTIVE,
    DELIVERED,
    LEASED,
    ONCE_QUEUED,
    OUT_HERE,
    QUEUED,
    Job,
)
from tuque.core.model.stats import BY_RELEASE
from tuque.core.model.task import Task
from tuque.core.model.work import Life, hash_of, run_of
from tuque.core.node.node import Node
from tuque.core.node.peers import send_resting, set_due, slots_of
from tuque.core.node.queue import Placement
from tuque.core.queues.procedures import (
    REQUEUE_DELAY,
    REQUEUE_RELEASE,
    dequeue,
    policy_of,
    remove,
    requeue,
    retry_due_ms,
)
from tuque.core.queues.requeue import is_delayed
from tuque.core.queues.work_copies import go_dead, leave_line, send_work, tell_soon
from tuque.core.work import rules
from tuque.core.work.merge import believe

OUTLIVE_MS: Final = 60_000  # timers may be late: a silent run fails before its job expires (W6.3)
FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed


@final
class Holders(Placement):
    """What they do at each hook (core/node/queue.py)."""

    def where(self, n: Node, job: Job, client: i64) -> i64:
        """By the state of this copy; not of one that a group leases, or that is held (W16.1)."""
        if job.flags & LEASED:
            return -LEASED_WORK
        if len(n.life.held) > 0 and is_held(n, job.id):
            return -RESTING
        if job.state == QUEUED:
            return rules.WAITING
        if job.flags & DELIVERED == 0 and is_delayed(n, job):
            return rules.SCHEDULED
        return rules.DELIVERED

    def begin(self, n: Node, job: Job, work: Life, worker: bytes, client: i64) -> None:
        """Anybody who knows the id may begin, at any holder: its worker and node are in the token
        (W1.2). The job leaves its queue; the other holders get the work soon (W14.3).
        """
        is_out = job.state == ACTIVE and job.flags & DELIVERED != 0
        if job.state == QUEUED:
            dequeue(n, job)
        if worker != n.life.last_worker:
            n.life.last_worker = worker
            n.life.last_hash = hash_here(n, worker)
        run = run_of(work.failed + 1, work.starts + 1, n.life.last_hash, work.replays)
        if rules.begin(work, run, worker, client, n.now_ms):
            n.life.weigh(work)
        n.life.runs += 1
        job.flags |= DELIVERED
        is_timed = job.holders == 1 and work.terms.limit_ms == 0 and job.qtime_ms > n.now_ms
        if is_timed and is_out and job.expire_ms > n.now_ms + i64(job.retry_s) * 1000:
            work.heard_ms = n.now_ms  # its timer looks at this: a short run moves none
            job.marks = OUT_HERE
            n.book.arm(job)
        else:
            extend(n, job, work)
            if n.records is not None:
                n.records.state(job)
        if n.records is not None:
            n.records.life(job.id, work)
        if job.holders != 1:
            tell_soon(n, job, work)

    def known_run(
        self, n: Node, job: Job, run: i64, client: i64
    ) -> tuple[Life | None, Refusal | None]:
        """A worker that names a later run than this node knows is believed (W14.5)."""
        if is_held(n, job.id):
            return None, Refusal(CHANGING)  # W16.1
        work = n.life.by_id.get(job.id)
        if work is not None and job.holders != 1 and believe(work, run, n.now_ms):
            if job.state == QUEUED:
                dequeue(n, job)
        refused = rules.check_run(work, run, job.queue)
        return (work, None) if refused is None else (None, refused)

    def extend(self, n: Node, job: Job, work: Life) -> None:
        """The other holders hear of it (W14.7)."""
        extend(n, job, work)
        if n.records is not None:
            n.records.state(job)
        send_work(n, job)

    def is_over(self, n: Node, job: Job) -> bool:
        """By its own expiry, which a run had put off (W6.3)."""
        return job.expire_ms <= n.now_ms

    def give_back(self, n: Node, job: Job, work: Life, delay_ms: i64, cause: i64) -> None:
        """It is queued at this node."""
        give_back(n, job, work, delay_ms, cause)

    def bury(self, n: Node, job: Job, work: Life, cause: bytes) -> None:
        """It moves to its queue of dead letters (W6.5)."""
        go_dead(n, job, work, cause)

    def expire(self, n: Node, job: Job) -> None:
        """It ends as any job that expires (W6.2)."""
        remove(n, job, stats.EXPIRED)

    def end(self, n: Node, job: Job) -> None:
        """It ends as one that is acknowledged."""
        retire(n, job)

    def save(self, n: Node, job: Job, work: Life, is_news: bool) -> None:
        """The other holders get it, again if it is no news."""
        if n.records is not None:
            n.records.life(job.id, work)
        send_work(n, job)


HOLDERS: Final = Holders()


def place_of(n: Node, job: Job) -> Placement:
    """Where the work of the job is kept."""
    return policy_of(n) if isinstance(job, Task) else HOLDERS


# ---- What the hooks share with timers, messages and the restore


def is_held(n: Node, id: bytes) -> bool:
    """Whether the job is held for a change (W16.1)."""
    return len(n.life.held) > 0 and id in n.life.held


def hash_here(n: Node, worker: bytes) -> i64:
    """The hash of the worker at this node, for its tokens (W1.2)."""
    known = n.life.hashes.get(worker)
    if known is not None:
        return known
    # The seed is another one at each start of the node (W13.4).
    hash = hash_of(n.ids.seed, hash_of(n.node_id, hash_of(worker)))
    n.life.remember(worker, hash)
    return hash


def hears_since_ms(n: Node, job: Job) -> i64:
    """[W6] Since when this node could hear of the job's runs (W6.1)."""
    at_ms = n.deaf_until_ms()
    if job.holders != 1:
        for slot in slots_of(job.holders):
            at_ms = max(at_ms, n.peers[slot].linked_ms)
    return at_ms


def outlive(job: Job, life: Life, due_ms: i64) -> None:
    """The job does not expire before the run is over (W6.3)."""
    if job.expire_ms <= due_ms:
        if life.expire_ms == 0:
            life.expire_ms = job.expire_ms
        job.expire_ms = due_ms + OUTLIVE_MS


def extend(n: Node, job: Job, life: Life) -> None:
    """The run was heard of: it is silent RETRY from now, or over at its TIMELIMIT (W3.2, W3.3)."""
    due_ms: i64 = 0
    life.heard_ms = 0
    if job.retry_s > 0:
        due_ms = max(job.qtime_ms, retry_due_ms(n, job))
    if life.terms.limit_ms > 0:
        due_ms = rules.due_by(life, FAR if due_ms == 0 else due_ms)
    if due_ms == 0:
        return
    outlive(job, life, due_ms)
    set_due(n, job, due_ms, OUT_HERE)


def give_back(n: Node, job: Job, life: Life | None, delay_ms: i64, cause: i64) -> None:
    """Queue the job again, now or after the delay; no counter of deliveries grows (W4.2)."""
    if life is not None:
        life.returned += 1
    leave_line(n, job)
    n.book.requeue(job, cause)
    job.flags &= 0xFF ^ ONCE_QUEUED
    if delay_ms <= 0:
        if life is not None:
            send_work(n, job)  # W14.9
        requeue(n, job, REQUEUE_RELEASE if cause == BY_RELEASE else REQUEUE_DELAY)
    else:
        if life is not None:
            life.is_resting = True
        set_due(n, job, n.now_ms + delay_ms)
        if n.records is not None:
            n.records.state(job)
    if life is not None:
        n.life.weigh(life)
        if n.records is not None:
            n.records.life(job.id, life)
        if delay_ms > 0:
            send_work(n, job)
    if delay_ms > 0 and job.holders != 1:
        send_resting(n, job, delay_ms)
