"""The holders of a plain job keep its work: the placement of it (SPEC W14, T48).

Nobody leads them. Each one changes its copy, records it, and sends it to the others, which merge it
(core/work/merge.py).
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.copies.ack_gc import retire
from tuque.core.copies.replicate import begin as begin_job
from tuque.core.model import stats
from tuque.core.model.errors import (
    ATTEMPTS_OF_ONCE,
    HAS_COPIES,
    LEASED_WORK,
    Refusal,
)
from tuque.core.model.job import (
    ACTIVE,
    DELIVERED,
    HELD,
    LEASED,
    ONCE_QUEUED,
    OUT_HERE,
    QUEUED,
    STALE,
    Job,
    Update,
)
from tuque.core.model.stats import BY_RELEASE
from tuque.core.model.task import Task
from tuque.core.model.work import GONE, LIVE, NO_TERMS, Life, hash_of, run_of
from tuque.core.node.node import Node
from tuque.core.node.peers import send_resting, set_due, slots_of
from tuque.core.node.queue import CHANGE, COUNT, Placement
from tuque.core.node.tables import record_job
from tuque.core.queues.ends import conclude, life_of
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
from tuque.core.queues.work_copies import (
    go_dead,
    leave_line,
    line_up,
    send_work,
    tell_soon,
    to_queue,
)
from tuque.core.work import rules
from tuque.core.work.merge import believe

OUTLIVE_MS: Final = 60_000  # timers may be late: a silent run fails before its job expires (W6.3)
FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed


@final
class Holders(Placement):
    """What they do at each hook (core/node/queue.py)."""

    def where(self, n: Node, job: Job, client: i64) -> i64:
        """By the state of this copy; not of one that a group leases."""
        if job.flags & LEASED:
            return -LEASED_WORK
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

    def out_ms(self, n: Node, job: Job) -> i64:
        """By its own deliveries and LIFE."""
        return job.last_ms if is_out_at(n, job) else -1

    def over_ms(self, n: Node, job: Job, work: Life | None) -> i64:
        """A run is silent RETRY after START, a standstill, or a link to a holder (W6.1)."""
        if work is None or work.run_state != LIVE or work.is_cancelled or job.retry_s == 0:
            return 0
        heard_ms = max(work.heard_ms, hears_since_ms(n, job))
        return rules.due_by(work, heard_ms + i64(job.retry_s) * 1000)

    def put_off(self, n: Node, job: Job, work: Life | None, due_ms: i64) -> None:
        """Nor does the job expire before that (W6.3)."""
        assert work is not None, "a delivery without a run is not put off"
        work.heard_ms = 0
        outlive(job, work, due_ms)
        set_due(n, job, due_ms, OUT_HERE)

    def ends_ms(self, n: Node, job: Job) -> i64:
        """Its own expiry, which a run had put off (W6.3)."""
        return job.expire_ms

    def may_release(self, n: Node, job: Job, run: i64, client: i64) -> bool:
        """Whoever knows the run may give it back, at any holder."""
        if job.state != ACTIVE or job.flags & LEASED or job.flags & DELIVERED == 0:
            return False
        if job.retry_s == 0:
            return False
        return rules.may_release(life_of(n, job.id), run)

    def give_back(self, n: Node, job: Job, work: Life | None, delay_ms: i64, cause: i64) -> None:
        """It is queued at this node; each holder knows of its back-off (W2.3)."""
        if work is None and delay_ms > 0:
            work = new_life(n, job, b"")
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

    def may_change(self, n: Node, job: Job, update: Update) -> i64:
        """An AMO job with copies is not changed (W10.3)."""
        if job.holders != 1 and job.retry_s == 0:
            return HAS_COPIES
        return ATTEMPTS_OF_ONCE if update.attempts > 0 and job.retry_s == 0 else 0

    def change(self, n: Node, job: Job, update: Update) -> Job:
        """Its record stays; the other holders get the change after that (W16.3)."""
        if update.ttl_ms >= 0:
            work = life_of(n, job.id)
            job.expire_ms = n.now_ms + update.ttl_ms
            if work is not None:
                work.ttl_ms = update.ttl_ms
            n.wheel.arm(job, n.now_ms)
        if update.delay_ms >= 0:
            put_off(n, job, update)
        return job

    def save(self, n: Node, job: Job, work: Life | None, what: i64) -> None:
        """A flag goes to the other holders, again and again; of a delivery QUEUED tells them."""
        if what == CHANGE:
            record_job(n, job)
            return
        if n.records is not None and work is not None:
            n.records.life(job.id, work)
        if what != COUNT:
            send_work(n, job)

    def frees(self, n: Node, job: Job, is_back: bool) -> bool:
        """A group that leases the letter has it (W12.4)."""
        return job.flags & LEASED == 0

    def send_on(self, n: Node, job: Job, work: Life, queue: bytes) -> bool:
        """The job moves, under its id."""
        return False

    def revive(self, n: Node, job: Job, work: Life, queue: bytes) -> None:
        """It is queued at this node (W12.4)."""
        leave_line(n, job)
        job.expire_ms = n.now_ms + work.ttl_ms
        job.flags &= 0xFF ^ DELIVERED
        line_up(n, to_queue(n, job, queue))

    def purge(self, n: Node, job: Job) -> None:
        """Its outcome is `gone` (W12.5)."""
        conclude(n, job, GONE)
        retire(n, job)


HOLDERS: Final = Holders()


def place_of(n: Node, job: Job) -> Placement:
    """Where the work of the job is kept."""
    return policy_of(n) if isinstance(job, Task) else HOLDERS


# ---- What the hooks share with timers, messages and the restore


def make_life(n: Node, job: Job) -> Life:
    """The life of an open job, made if it has none."""
    life = life_of(n, job.id)
    return new_life(n, job, b"") if life is None else life


def new_life(n: Node, job: Job, worker: bytes) -> Life:
    """The life of an open job that had none."""
    life = Life(NO_TERMS, b"")
    life.worker = worker
    n.has_lives = True
    n.life.enter_new(job.id, life, job.queue)
    return life


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


def is_out_at(n: Node, job: Job) -> bool:
    """Whether a worker has the job, as far as this node knows by its own deliveries and LIFE."""
    life = life_of(n, job.id)
    if job.state != ACTIVE or job.flags & LEASED:
        return False
    if life is not None and life.run_state == LIVE:
        return True
    if life is not None and (life.is_resting or life.is_dead):
        return False
    if job.flags & DELIVERED == 0 or job.flags & ONCE_QUEUED == 0:
        return False  # never handed out, or put off by NACK DELAY
    if job.holders == 1 or job.marks & (STALE | HELD):
        return True
    if life is not None and life.run_state > LIVE and job.last_ms < life.ended_ms:
        return False  # its worker gave the job up, maybe at another node
    return job.marks & OUT_HERE != 0


def put_off(n: Node, job: Job, update: Update) -> None:
    """[W10] The job waits from now on for the delay; 0: it is queued now."""
    delay_ms = update.delay_ms
    if job.state == QUEUED:
        if delay_ms == 0:
            return
        job.state = ACTIVE
        n.queues[job.queue].left(job)
    job.flags &= 0xFF ^ ONCE_QUEUED
    delay_s = job.delay_s if job.flags & DELIVERED else update.first_delay_s(job.ctime_ns, n.now_ms)
    work = life_of(n, job.id)
    if job.flags & DELIVERED or (work is not None and work.starts > 0):
        make_life(n, job).is_resting = delay_ms > 0  # W2.3: else it is the first delay
    if delay_ms > 0:
        job.delay_s = delay_s
        set_due(n, job, n.now_ms + delay_ms)
    else:
        job.qtime_ms = 0
        job.delay_s = 0
        begin_job(n, job)
        job.delay_s = delay_s


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
        life.unstarted = 0
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
