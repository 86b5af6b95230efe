"""A job is held at its holders before it is changed or cancelled: the holder's side (SPEC W16)."""

from typing import Final

from mypy_extensions import i32, i64

from tuque.core.jobs.endings import life_of, record_job
from tuque.core.jobs.life_copies import EDIT, take_edit, unpack_life
from tuque.core.jobs.transitions import dequeue, enqueue
from tuque.core.life.base import make_life
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    DELIVERED,
    HELD,
    LEASED,
    ONCE_QUEUED,
    OUT_HERE,
    OUT_THERE,
    QUEUED,
    QUEUED_THERE,
    STALE,
    Job,
)
from tuque.core.model.life import LIVE
from tuque.core.model.task import Task
from tuque.core.msgs.bus import Hold, HoldTold
from tuque.core.node.announce import jitter_behind_ms, set_due
from tuque.core.node.node import Node
from tuque.core.node.slots import introduce, say
from tuque.core.state.lives import Holding

# what a node asks for
HOLD_UPDATE: Final = 1
HOLD_CANCEL: Final = 2
LET_GO: Final = 3  # EDIT is 4
WHAT_MAX: Final = EDIT

# what a holder answers
AGREED: Final = 0
IS_OUT: Final = 1
IS_OVER: Final = 2
IS_DEAD: Final = 3
IS_BUSY: Final = 4
IS_LEASED: Final = 5
IS_UNKNOWN: Final = 6
SAID_MAX: Final = 6

HOLD_MS: Final = 2_000  # longer than any asker waits
AFTER_MS: Final = 1_000  # a held job is not due before that


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


def hold(n: Node, job: Job, slot: i64, is_update: bool) -> i64:
    """[W16] Hold the job for the node, 0: this one; returns AGREED or why not (W16.2)."""
    life = life_of(n, job.id)
    if job.state == ACKED:
        return IS_OVER
    if life is not None and life.is_dead:
        return IS_DEAD
    if job.flags & LEASED:
        return IS_LEASED if is_update else AGREED
    if is_out_at(n, job):
        return IS_OUT
    holding = n.life.held.get(job.id)
    if holding is not None:
        if holding.is_update or is_update:
            return IS_BUSY
        holding.askers |= 1 << slot
        holding.until_ms = n.now_ms + HOLD_MS
        return AGREED
    holding = Holding(1 << slot, is_update, n.now_ms + HOLD_MS)
    holding.due_ms = job.qtime_ms
    holding.was_queued = job.state == QUEUED
    if holding.was_queued:
        dequeue(n, job)
    after_ms = holding.until_ms + AFTER_MS
    if job.state == ACTIVE and (holding.was_queued or job.qtime_ms < after_ms):
        set_due(n, job, max(job.qtime_ms, after_ms))
    holding.parked_ms = job.qtime_ms
    n.has_lives = True
    n.life.held[job.id] = holding
    return AGREED


def let_go(n: Node, id: bytes, slot: i64) -> None:
    """[W16] The node holds the job no longer; if none does, it goes on as before (W16.5)."""
    holding = n.life.held.get(id)
    if holding is None:
        return
    holding.askers &= ~(1 << slot)
    if holding.askers == 0:
        del n.life.held[id]
        job = n.jobs.get(id)
        if job is not None and job.state == ACTIVE:
            restore(n, job, holding)


def restore(n: Node, job: Job, holding: Holding) -> None:
    """The job goes on as before it was held; what came meanwhile stands."""
    if job.marks & (OUT_THERE | OUT_HERE | QUEUED_THERE) or job.qtime_ms > holding.parked_ms:
        return
    if holding.was_queued:
        enqueue(n, job)
        n.queues[job.queue].jobs_in -= 1  # it never left
        if n.records is not None:
            n.records.state(job)
    elif holding.due_ms != job.qtime_ms:
        set_due(n, job, max(holding.due_ms, n.now_ms + 1))


def put_off_copy(n: Node, job: Job, due_ms: i64) -> None:
    """An UPDATEJOB with DELAY: another node queues the job in `due_ms`."""
    holding = n.life.held.get(job.id)
    if holding is not None:
        holding.was_queued = False
        holding.due_ms = 0
        holding.parked_ms = 0
    if job.state == QUEUED:
        dequeue(n, job)
    life = life_of(n, job.id)
    if life is not None:
        life.is_resting = False
    job.delay_s = i32((due_ms + 999) // 1000)
    set_due(n, job, n.now_ms + due_ms + i64(job.retry_s) * 1000 + jitter_behind_ms(n))
    if due_ms == 0:
        job.marks |= QUEUED_THERE
        n.book.arm(job)


def on_hold(n: Node, slot: i64, m: Hold) -> None:
    """[W16] ON RECV HOLD: hold the job, let it go, or change it."""
    if m.what == LET_GO:
        let_go(n, m.id, slot)
        return
    if n.is_loading:
        return
    job = n.jobs.get(m.id)
    if job is None or isinstance(job, Task):
        known = n.life.known(m.id) if n.has_lives else None
        is_over = job is not None or known is not None or n.tombs.has(m.id)
        said: i64 = IS_OVER if is_over else IS_UNKNOWN
        say(n, slot, HoldTold(m.id, m.serial, int(said)))
    elif m.what == EDIT:
        edit(n, slot, job, m)
    else:
        said = hold(n, job, slot, m.what == HOLD_UPDATE)
        introduce(n, slot, job.holders | 1)
        told = HoldTold(m.id, m.serial, int(said), holders=job.holders | 1)
        life = life_of(n, m.id)
        if said == IS_OUT and life is not None and life.run_state == LIVE:
            told.worker = life.worker
            told.since_ms = int(max(0, n.now_ms - life.since_ms))
        elif said == IS_OUT:
            told.since_ms = int(max(0, n.now_ms - job.last_ms))
        say(n, slot, told)


def edit(n: Node, slot: i64, job: Job, m: Hold) -> None:
    """[W16] An UPDATEJOB made at another node, now or while this one was away (W16.3, W16.6)."""
    theirs = unpack_life(n, m.life)
    if theirs is None or job.state == ACKED:
        said: i64 = IS_OVER
    else:
        said = AGREED
        mine = make_life(n, job.id)
        if theirs.edit > mine.edit:
            take_edit(n, job, mine, theirs, m.body, m.left_ms)
            if m.due_ms >= 0 and not is_out_at(n, job) and not mine.is_dead:
                put_off_copy(n, job, m.due_ms)
            record_job(n, job)
    if m.serial != 0:
        let_go(n, m.id, slot)  # serial 0: of an earlier change, which holds nothing now (W16.6)
    introduce(n, slot, job.holders | 1)
    say(n, slot, HoldTold(m.id, m.serial, int(said), holders=job.holders | 1))


def holds_tick(n: Node) -> None:
    """[W16] TIMER: nobody came back for a job that is held (W16.2)."""
    for id in list(n.life.held):
        holding = n.life.held[id]
        if holding.until_ms <= n.now_ms:
            holding.askers = 1
            let_go(n, id, 0)
