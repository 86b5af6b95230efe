"""A job ends: its outcome is kept, waiting clients are woken (SPEC W7, W9)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.attempts import merged
from tuque.core.model.job import ACKED, BODYLESS, CANCELLED_OUT, LEASED, Job
from tuque.core.model.stats import set_why, tenant_of, why_of
from tuque.core.model.task import Task
from tuque.core.model.work import (
    CANCELLED,
    DONE,
    GONE,
    LIVE,
    Life,
    Outcome,
)
from tuque.core.node.node import JOB_ENDED, Node, Wake
from tuque.core.node.tables import fitting_reason

ELSEWHERE_MS: Final = 60_000  # what DONE said of a job that is not here is kept
ANY_REASON: Final = b"cancelled"  # of a CANCEL that gave none


def life_of(n: Node, id: bytes) -> Life | None:
    """The life of the job; None: nobody used a word of chapter W about it."""
    return n.life.by_id.get(id) if n.has_lives else None


def has_ended(n: Node, id: bytes) -> bool:
    """[A8, W14] Whether an id without a job here is that of an ended one (A8.2, W14.11)."""
    if n.tombs.has(id):
        return True
    outcome = n.life.known(id) if n.has_lives else None
    return outcome is not None and outcome.kind != GONE


def conclude(
    n: Node, job: Job, kind: i64, run: i64 = 0, result: bytes | None = None, reason: bytes = b""
) -> None:
    """[W7] The job ends with that outcome: keep it for KEEP, and wake those who wait (W7.2, W9.2).

    The caller ends the job itself.
    """
    conclude_life(n, job, leave_life(n, job), kind, run, result, reason)


def conclude_life(
    n: Node, job: Job, life: Life | None, kind: i64, run: i64, result: bytes | None, reason: bytes
) -> None:
    """The same of a job whose life has left the tables."""
    work = n.life
    if kind == CANCELLED:
        work.cancelled += 1
        leave_as_cancelled(job)
    keep_ms: i64 = 0 if life is None or kind == GONE else life.terms.keep_ms
    is_watched = len(work.watchers) > 0 and job.id in work.watchers
    is_shared = life is not None and job.holders != 1  # the others need it (W14.4)
    if keep_ms > 0 or is_watched or is_shared:  # W7.3
        outcome = Outcome(job.id, kind, n.now_ms + max(keep_ms, 1), n.now_ms)
        keep_until_agreed(job, outcome, keep_ms)
        outcome.run = run
        outcome.result = result
        outcome.reason = reason
        outcome.tenant = tenant_of(job.queue)
        outcome.queue = job.queue
        outcome.is_shared = job.holders != 1
        if isinstance(job, Task):
            outcome.number = job.number  # T48.6
            outcome.is_shared = n.others != 0
        if life is not None:
            outcome.reason = fitting_reason(n, life, reason)
            if life.is_cancelled and kind == DONE and result is not None:
                outcome.reason = life.cancel_reason or ANY_REASON  # W8.3
            outcome.of = life.terms.attempts
            outcome.worker = life.worker if run == life.run else b""
            outcome.progress = life.progress
            if keep_ms > 0:
                keep_job(outcome, job, life)
        if is_shared:
            keep_here(n, outcome)
        else:
            work.keep(outcome, n.limits.results_bytes)
        if keep_ms > 0 and result is not None and outcome.result is None:
            note_large(n, job.id)
        work.forget_old(n.now_ms, n.limits.results_bytes)  # W7.4
        record_outcome(n, outcome, keep_ms)
    if is_watched:
        wake_waiters(n, job.id)


def keep_job(outcome: Outcome, job: Job, work: Life) -> None:
    """[W18] The outcome keeps attempts and times; with KEEP BODY headers and body, too (W18.4)."""
    outcome.added_ms = max(1, job.ctime_ns // 1_000_000)
    outcome.attempts = merged(outcome.attempts, work.attempts)
    if work.run != 0 and outcome.run == work.run and outcome.kind != CANCELLED:
        outcome.began_ms = work.since_ms
    if work.terms.keeps_body and job.flags & BODYLESS == 0:
        outcome.headers, outcome.body = work.headers, job.body


def note_large(n: Node, id: bytes) -> None:
    """[W7] A result that is to be kept is too large for this node: DONE replies an error (W7.4)."""
    n.life.results_large += 1
    n.life.large_id = id


def leave_as_cancelled(job: Job) -> None:
    """[Y3] A leased job leaves its batch for that cause (Y3.8)."""
    if job.flags & LEASED and why_of(job) == 0:
        set_why(job, CANCELLED_OUT)


def keep_here(n: Node, outcome: Outcome) -> None:
    """[W7] Keep the outcome of a job that other nodes have as well. A result that is larger than
    the bound here goes to them with the ack of this turn: theirs may be higher (W7.5).
    """
    if outcome.result is not None and outcome.size() > n.limits.results_bytes:
        n.life.in_hand = outcome.copy()
    n.life.keep(outcome, n.limits.results_bytes)


def keep_until_agreed(job: Job, outcome: Outcome, keep_ms: i64) -> None:
    """[W7] An end that is not DONE is known while holders must still confirm it (W7.3).

    Without it the record of the ended job would look as if the job was done.
    """
    if keep_ms == 0 and outcome.kind != DONE and job.holders != 1:
        outcome.is_brief = True
        outcome.until_ms = max(outcome.until_ms, job.expire_ms)


def record_outcome(n: Node, outcome: Outcome, keep_ms: i64) -> None:
    """[W13] Record the outcome, unless a restart may forget it (W13.1, W13.8)."""
    is_kept = keep_ms > 0 or (outcome.is_brief and outcome.kind != GONE)
    if is_kept and n.records is not None:
        n.records.outcome(outcome)


def conclude_as(n: Node, job: Job, outcome: Outcome) -> None:
    """[W14] The job ends as another node says (W14.4)."""
    work = n.life
    life = leave_life(n, job)
    keep_ms: i64 = 0 if life is None or outcome.kind == GONE else life.terms.keep_ms
    outcome.until_ms = n.now_ms + max(keep_ms, 1)
    keep_until_agreed(job, outcome, keep_ms)
    outcome.tenant = tenant_of(job.queue)
    outcome.queue = job.queue
    if life is not None and keep_ms > 0:
        keep_job(outcome, job, life)
    if outcome.kind == CANCELLED:
        leave_as_cancelled(job)
    if outcome.is_claim:
        outcome.is_claim = False
        outcome.ended_ms = n.now_ms
    work.keep(outcome, n.limits.results_bytes)
    record_outcome(n, outcome, keep_ms)
    if job.id in work.watchers:
        wake_waiters(n, job.id)


def keep_claim(n: Node, job: Job) -> None:
    """[W14] This node asks for the holders of a job that is not here: what DONE said of it stays
    until they have it (W14.6).
    """
    work = n.life
    outcome = work.kept.get(job.id)
    if outcome is not None and outcome.is_claim:
        work.put_off(outcome, job.expire_ms)
        if n.records is not None:
            n.records.outcome(outcome)  # W13.9


def outlive_holder(n: Node, id: bytes) -> None:
    """[W14] A node was forgotten that may have been the only one with the job (W14.6)."""
    outcome = n.life.kept.get(id)
    if outcome is not None and outcome.is_claim:
        outcome.outlives = True


def keep_orphan(n: Node, job: Job) -> None:
    """[W14] No other node has the job: what DONE said of it here stands, if it outlives it (W14.6).

    KEEP is not known: it stays as long as it would have waited for the node.
    """
    work = n.life
    outcome = work.kept.get(job.id)
    if outcome is None or not outcome.is_claim or not outcome.outlives:
        return
    work.forget(job.id)
    outcome.is_claim = False
    outcome.is_shared = False
    outcome.ended_ms = n.now_ms
    outcome.until_ms = job.expire_ms
    work.keep(outcome, n.limits.results_bytes)
    if n.records is not None:
        n.records.outcome(outcome)


def drop_claim(n: Node, id: bytes) -> None:
    """[W14] A holder has it, or nobody knows the job: it is known for a while still (W14.6)."""
    work = n.life
    outcome = work.kept.get(id)
    if outcome is not None and outcome.is_claim:
        work.put_off(outcome, n.now_ms + ELSEWHERE_MS)
        if n.records is not None:
            n.records.outcome(Outcome(id, outcome.kind, 0, 0))


def end_life(n: Node, job: Job, cause: i64) -> None:
    """[G2] The job leaves the node: what was not concluded before ends as the cause says."""
    work = n.life
    if len(work.kept) > 0 and job.id in work.kept:
        leave_life(n, job)  # W14.8
        if job.id in work.watchers:
            wake_waiters(n, job.id)  # W14.4: now all have confirmed it
    elif job.id in work.by_id or (len(work.watchers) > 0 and job.id in work.watchers):
        if cause == stats.MOVED:
            leave_life(n, job, False)  # K7.2
            if job.id in work.watchers:
                wake_waiters(n, job.id)  # W15.1: another node has it now
        else:
            kind = DONE if cause == stats.GC_ACKED else GONE
            conclude(n, job, kind, work.done_run or running(n, job), work.result)


def flush_outcomes(n: Node) -> None:
    """[S7] Drop all kept outcomes, in the journal as well (S7.1, W13.7)."""
    for outcome in n.life.forget_all():
        if n.records is not None and not outcome.is_claim:
            n.records.outcome(Outcome(outcome.id, outcome.kind, 0, 0))


def running(n: Node, job: Job) -> i64:
    """The run at work on the job, 0: none."""
    work = n.life.by_id.get(job.id)
    return work.run if work is not None and work.run_state == LIVE else 0


def leave_life(n: Node, job: Job, is_over: bool = True) -> Life | None:
    """Take the life out of the tables; None if the job has none.

    `is_over`: so is its run. Else the job goes on elsewhere, and no worker is told (W8.2).
    """
    work = n.life.by_id.get(job.id)
    if work is not None:
        if not is_over:
            work.client = -1
        drop_life(n, job, work)
    return work


def drop_life(n: Node, job: Job, life: Life) -> None:
    """Take this life out of the tables; the worker of a live run hears of it."""
    if life.is_dead:
        n.life.remove_dead_letter(job.queue, job.id, life, len(job.body))
    if life.client >= 0 and life.run_state == LIVE:
        n.life.stop_runner(job.id, life)
    n.life.leave(job.id, life)


def wake_waiters(n: Node, id: bytes) -> None:
    """[W9] Wake the clients that wait for the job; each looks again whether its wait is over."""
    for client in n.life.waiting_for(id, False):
        n.wakes.append(Wake(client, JOB_ENDED, [], 0))


def look_again(n: Node, id: bytes) -> None:
    """[W9, W14] Who waits for the job, if anybody does, looks again: it has another outcome
    (W9.2), or a holder has confirmed its end (W14.14).
    """
    wake_waiters(n, id)


def reach_changed(n: Node) -> None:
    """[W14] Nodes came or went: for some jobs all holders in reach may agree now (W14.14)."""
    for id in list(n.life.watchers):
        job = n.jobs.get(id)
        if job is None or job.state == ACKED:  # of an unknown one, who has it may be back (W15.5)
            wake_waiters(n, id)


def check_lives(n: Node) -> None:
    """Assert that the tables of lives agree (for tests and `DEBUG CHECK`)."""
    lives = n.life
    size: i64 = 0
    of_tenants: i64 = 0
    dead: i64 = 0
    letters: i64 = 0
    for id, life in lives.by_id.items():
        job = n.jobs.get(id)
        assert job is not None, "life without its job"
        assert life.bytes == life.size(), "bytes of a life"
        size += life.bytes
        assert life.tenant == tenant_of(job.queue), "tenant of a life"
        if len(life.tenant) > 0:
            of_tenants += life.bytes
        if life.is_dead:
            letters += 1
            dead += life.bytes + len(job.body)
    assert size == lives.bytes, "bytes of lives"
    paid: i64 = 0
    for share in n.life.shares.by_name.values():
        paid += share.life_bytes
    assert paid == of_tenants, "bytes of lives that tenants pay for"
    assert letters == lives.letter_count(), "dead letters"
    assert dead == lives.dead_bytes, "bytes of dead letters"
    kept: i64 = 0
    bodies: i64 = 0
    for outcome in lives.kept.values():
        kept += outcome.size()
        bodies += outcome.body_size()
    assert kept == lives.kept_bytes, "bytes of outcomes"
    assert bodies == n.life.body_bytes, "bytes of kept bodies"
    fat: i64 = 0
    for outcome in lives.kept.values():
        fat += outcome.fat_bytes
    for life in lives.by_id.values():
        fat += life.fat_bytes
    assert fat == lives.fat_bytes, "bytes that may go"
