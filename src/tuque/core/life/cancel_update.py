"""UPDATEJOB and CANCEL of a job with copies: its holders agree first (SPEC W8, W10, W16).

The node of the client asks the reachable holders to hold the job, and makes the change once all
have agreed. This module has both sides.
"""

from typing import Final

from mypy_extensions import i32, i64

from tuque.core.copies.holders import hear_holders
from tuque.core.life.holders import is_out_at, make_life, new_life, place_of
from tuque.core.life.start import end_cancelled, open_job, without_runs
from tuque.core.model.errors import (
    ACKED_ALREADY,
    ATWORK,
    CHANGING,
    DEAD_LETTER,
    DELIVERED_OUT,
    LEASED_WORK,
    NOJOB,
    NOT_HELD,
    PRI_OF_QUEUE,
    TASK_APART,
    TASK_UPDATE,
    Refusal,
)
from tuque.core.model.job import (
    ACKED,
    ACTIVE,
    BODYLESS,
    LEASED,
    OUT_HERE,
    OUT_THERE,
    QUEUED,
    QUEUED_THERE,
    WAIT_REPL,
    Job,
    Update,
)
from tuque.core.model.task import Task
from tuque.core.model.work import (
    CANCELLED,
    LIVE,
    Life,
    hash_of,
)
from tuque.core.msgs.bus import Hold, HoldTold, JobTold
from tuque.core.node.node import Node
from tuque.core.node.peers import introduce, jitter_behind_ms, say, set_due, slots_of, translate
from tuque.core.node.queue import CHANGE, FLAG, SAME_FLAG
from tuque.core.node.tables import fitting_reason
from tuque.core.queues.ends import life_of, record_job, wake_waiters
from tuque.core.queues.procedures import dequeue, enqueue, policy_of
from tuque.core.queues.work_copies import (
    EDIT,
    edit_message,
    set_body,
    take_edit,
    unpack_life,
)
from tuque.core.tables.work import Change, Holding
from tuque.core.work import rules

# what a node asks for
HOLD_UPDATE: Final = 1
HOLD_CANCEL: Final = 2
LET_GO: Final = 3  # EDIT is 4; core/msgs has the bound

# what a holder answers
AGREED: Final = 0
IS_OUT: Final = 1
IS_OVER: Final = 2
IS_DEAD: Final = 3
IS_BUSY: Final = 4
IS_LEASED: Final = 5
IS_UNKNOWN: Final = 6  # the last one, by core/msgs

HOLD_MS: Final = 2_000  # longer than any asker waits
AFTER_MS: Final = 1_000  # a held job is not due before that

EDIT_BITS: Final = 31

ANSWER_MS: Final = 800  # the holders answer within it (W16.4)
PARK_MS: Final = 50  # a CANCEL that met a change tries again

# what became of a CANCEL; of two answers the lower one counts
UNKNOWN: Final = 0
ENDED: Final = 1
FLAGGED: Final = 2
OVER: Final = 3


# ---- The holder's side: the job is held until the change is made (SPEC W16)


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
    holding.marks = job.marks & OUT_THERE
    if holding.was_queued:
        dequeue(n, job)
    after_ms = holding.until_ms + AFTER_MS
    if job.state == ACTIVE and (holding.was_queued or job.qtime_ms < after_ms):
        set_due(n, job, max(job.qtime_ms, after_ms), i64(holding.marks))
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
    news = job.marks & (OUT_THERE | OUT_HERE | QUEUED_THERE) & (0xFF ^ holding.marks)
    if news or job.qtime_ms > holding.parked_ms:
        return
    if holding.was_queued:
        enqueue(n, job)
        n.queues[job.queue].jobs_in -= 1  # it never left
        if n.records is not None:
            n.records.state(job)
    elif holding.due_ms != job.qtime_ms:
        set_due(n, job, max(holding.due_ms, n.now_ms + 1), i64(holding.marks))


def put_off_copy(n: Node, job: Job, due_ms: i64) -> None:
    """An UPDATEJOB with DELAY: another node queues the job in `due_ms`."""
    holding = n.life.held.get(job.id)
    if holding is not None:
        holding.was_queued = False
        holding.due_ms = 0
        holding.parked_ms = 0
    if job.state == QUEUED:
        dequeue(n, job)
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
        mine = make_life(n, job)
        if theirs.edit > mine.edit:
            take_edit(n, job, mine, theirs, m.body, m.left_ms)
            if m.due_ms >= 0 and not is_out_at(n, job) and not mine.is_dead:
                put_off_copy(n, job, m.due_ms)
                mine.is_resting = theirs.is_resting and m.due_ms > 0  # W2.3
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


# ---- UPDATEJOB: what it changes, and of which jobs (SPEC W10)


def why_not_updated(n: Node, id: bytes, update: Update) -> Refusal | None:
    """Why the job cannot be changed (W10.2); None: it can."""
    job, refused = open_job(n, id)
    return refused if job is None else why_not(n, job, life_of(n, id), update)


def update_job(n: Node, job: Job, update: Update) -> None:
    """[W10] Change a job that nobody works on (W10.1)."""
    place = place_of(n, job)
    job = place.change(n, job, update)
    if update.body is not None:
        set_body(n, job, update.body)
    work = life_of(n, job.id)
    headers = update.headers
    is_of_work = update.attempts >= 0 or (headers is not None and len(headers) > 0)
    if work is None and (is_of_work or job.holders != 1):
        work = new_life(n, job, b"")
    if work is not None:
        if rules.change(work, headers, update.attempts):
            work.terms = n.life.share(work.terms)
        if job.holders != 1:
            work.edit = next_edit(n, work.edit)  # W10.3
        n.life.weigh(work)
    place.save(n, job, work, CHANGE)


def next_edit(n: Node, edit: i64) -> i64:
    """The number of a change: a count, then a hash of the node, so that no two are the same."""
    return (edit >> EDIT_BITS) + 1 << EDIT_BITS | hash_of(n.node_id) & (1 << EDIT_BITS) - 1


def why_not(n: Node, job: Job, life: Life | None, update: Update) -> Refusal | None:
    """Why the job cannot be changed (W10.2); None: it can."""
    if job.flags & LEASED:
        return Refusal(LEASED_WORK)
    place = place_of(n, job)
    out_ms = place.out_ms(n, job)
    at: i64 = rules.DELIVERED if out_ms >= 0 else rules.WAITING
    refused = rules.may_change(life, at, job.queue, out_ms, n.now_ms)
    if refused is not None:
        return refused
    code = place.may_change(n, job, update)
    if code != 0:
        return Refusal(code)
    failed: i64 = 0 if life is None else life.failed
    return update.refusal(failed, place.ends_ms(n, job) - n.now_ms)


# ---- The client's node: UPDATEJOB and CANCEL begin (SPEC W8, W10)


def on_update(n: Node, id: bytes, update: Update) -> tuple[Refusal | None, Change | None]:
    """[W10] ON COMMAND UPDATEJOB: why not; or the change to wait for, None: it is made (W10.1)."""
    job, refused = job_to_change(n, id, update)
    if job is None:
        return refused, None
    refused = why_not(n, job, life_of(n, id), update)
    if refused is None and id in n.life.changes:
        refused = Refusal(CHANGING)
    if refused is not None:
        return refused, None
    if job.holders == 1:
        update_job(n, job, update)
        return None, None
    change = begin(n, job, update, b"")
    return change.refused, None if change.is_over else change


def job_to_change(n: Node, id: bytes, update: Update) -> tuple[Job | None, Refusal | None]:
    """The open job that UPDATEJOB is to change, or why not; neither: its pri has changed, which
    alone changes in any state, and of tasks without runs (T1.10).
    """
    task = n.jobs.get(id)
    if not isinstance(task, Task):
        job, refused = open_job(n, id)
        if job is not None and update.pri >= 0:
            return None, Refusal(PRI_OF_QUEUE, (job.queue,))  # T1.2
        return job, refused
    policy = policy_of(n)
    what = policy.what_is(task)
    if len(what) > 0:
        return None, Refusal(TASK_APART, (task.id, what))  # T1.11
    if update.is_only_pri():
        return None, None if policy.set_pri(n, task, update.pri) else Refusal(NOJOB)
    if not policy.has_runs(task):
        return None, Refusal(TASK_UPDATE, (task.queue,))
    found = policy.present(n, task)
    return found, Refusal(NOJOB) if found is None else None


def uncancelled(n: Node, task: Task) -> Refusal | None:
    """[W8, T48] Why a task is not cancelled (W8.6, T48.10); None: it may be."""
    return None if policy_of(n).has_runs(task) else without_runs(n, task)


def on_cancel(
    n: Node, id: bytes, reason: bytes, is_asked: bool = False
) -> tuple[i64, Refusal | None, Change | None]:
    """[W8] ON COMMAND CANCEL: what became of the job; or the change to wait for (W8.1, W8.5).

    `is_asked`: another node or a group asks, and not a client.
    """
    job = n.jobs.get(id)
    if job is None:
        known = n.has_lives and n.life.known(id) is not None
        return (OVER if known else UNKNOWN), None, None
    if isinstance(job, Task):
        refused = uncancelled(n, job)
        if refused is not None or not policy_of(n).may_cancel(n, job, is_asked):
            return UNKNOWN, refused, None
    if job.state == ACKED:
        return (UNKNOWN if job.flags & BODYLESS else OVER), None, None
    change = n.life.changes.get(id)
    if change is not None and change.update is None:
        return FLAGGED, None, change
    life = life_of(n, id)
    is_dead = life is not None and life.is_dead
    if not is_dead and place_of(n, job).out_ms(n, job) >= 0:
        flag(n, job, reason)
        return FLAGGED, None, None
    if is_dead or job.holders == 1 or job.state == WAIT_REPL or job.retry_s == 0:
        end(n, job, reason)
        return ENDED, None, None
    change = begin(n, job, None, reason)
    return change.became, None, None if change.is_over else change


def flag(n: Node, job: Job, reason: bytes) -> None:
    """[W8] A worker has the job: it hears that the job is cancelled (W8.2)."""
    life = make_life(n, job)
    is_news = rules.flag(life, fitting_reason(n, life, reason))
    if is_news:
        n.life.stop_runner(job.id, life)
    n.life.weigh(life)
    place_of(n, job).save(n, job, life, FLAG if is_news else SAME_FLAG)


def end(n: Node, job: Job, reason: bytes) -> None:
    """[W8] Nobody has the job: it ends as cancelled (W8.1)."""
    life = make_life(n, job)
    if not life.is_cancelled:
        life.cancel_reason = reason
    end_cancelled(n, job, life)


# ---- The client's node: the holders are asked, and the change is made (SPEC W16)


def begin(n: Node, job: Job, update: Update | None, reason: bytes) -> Change:
    """[W16] Begin a change; the holders in reach are asked (W16.1)."""
    change = Change(job.id, update, reason)
    change.until_ms = n.now_ms + ANSWER_MS
    n.has_lives = True
    n.life.change_bytes += change.size()
    ask_holders(n, job, change)
    return change


def ask_holders(n: Node, job: Job, change: Change) -> None:
    """[W16] Ask the other holders in reach to hold the job (W16.1)."""
    is_update = change.update is not None
    said = IS_BUSY if job.id in n.life.changes else hold(n, job, 0, is_update)
    if said == IS_BUSY and not is_update:
        park(n, change)
        return
    n.life.changes[job.id] = change
    n.life.changes_made += 1
    change.serial = n.life.changes_made  # an answer to an earlier question does not count
    others = job.holders & ~1
    if said == AGREED and others & ~n.linked and job.marks & OUT_THERE:
        said = IS_OUT  # W16.4
    if said != AGREED:
        give_up(n, change, said, b"", 0)
        return
    change.asked = 0
    ask_more(n, job, change)
    go_on(n, change)


def ask_more(n: Node, job: Job, change: Change) -> None:
    """[W16] Ask the holders in reach that were not asked yet (W16.7)."""
    update = change.update
    for slot in slots_of(job.holders & n.linked & ~change.asked):
        if update is not None and change.is_made:
            life = n.life.by_id[job.id]
            hold = edit_message(n, job, life, change.serial, update.delay_ms)
        else:
            what = HOLD_CANCEL if update is None else HOLD_UPDATE
            hold = Hold(job.id, what, int(change.serial))
        if say(n, slot, hold):
            change.asked |= 1 << slot
            change.waiting |= 1 << slot


def park(n: Node, change: Change) -> None:
    """[W16] Another client changes the job: the CANCEL waits until that is over (W16.2)."""
    if n.life.changes.get(change.id) is change:
        let_all_go(n, change)
        del n.life.changes[change.id]
    change.waiting = 0
    change.next_ms = n.now_ms + PARK_MS
    n.life.parked.append(change)


def unpark(n: Node) -> None:
    """CANCELs that waited try again, or flag the job at last."""
    parked = n.life.parked
    n.life.parked = []
    for change in parked:
        job = n.jobs.get(change.id)
        if job is None or job.state == ACKED:
            give_up(n, change, IS_OVER, b"", 0)
        elif change.until_ms <= n.now_ms:
            give_up(n, change, -1, b"", 0)
        elif change.next_ms > n.now_ms:
            n.life.parked.append(change)
        else:
            ask_holders(n, job, change)


def on_hold_told(n: Node, slot: i64, m: HoldTold) -> None:
    """[W16] ON RECV HOLD-TOLD: a holder's answer (W16.2)."""
    change = n.life.changes.get(m.id)
    if change is None or change.serial != m.serial or change.waiting >> slot & 1 == 0:
        return
    change.waiting &= ~(1 << slot)
    job = n.jobs.get(m.id)
    if job is not None and job.state != ACKED and m.holders != 0:
        hear_holders(n, slot, job, translate(n, slot, m.holders), m.holders)
        ask_more(n, job, change)
    if not change.is_made and change.until_ms <= n.now_ms:
        give_up(n, change, -1, b"", 0)
    elif m.said == IS_BUSY and change.update is None:
        park(n, change)
    elif not change.is_made and m.said != AGREED:
        give_up(n, change, m.said, m.worker, m.since_ms // 1000)
    else:
        go_on(n, change)


def go_on(n: Node, change: Change) -> None:
    """[W16] Make the change once all have answered (W16.3)."""
    if change.waiting != 0:
        return
    if change.is_made:
        finish(n, change)
        return
    job = n.jobs.get(change.id)
    if job is None or job.state == ACKED:
        give_up(n, change, IS_OVER, b"", 0)
        return
    update = change.update
    if is_out_at(n, job):
        give_up(n, change, IS_OUT, b"", 0)  # a worker of a node that is away has it
    elif update is None:
        n.life.held.pop(change.id, None)
        change.became = ENDED
        end(n, job, change.reason)
        finish(n, change)
    else:
        make_update(n, job, change, update)


def make_update(n: Node, job: Job, change: Change, update: Update) -> None:
    """[W16] Change the job here and at the others (W16.3)."""
    change.refused = why_not(n, job, life_of(n, job.id), update)
    if change.refused is not None:
        let_all_go(n, change)
        finish(n, change)
        return
    if update.delay_ms >= 0:
        n.life.held.pop(change.id, None)  # it is queued after the delay, not as before
    update_job(n, job, update)
    let_go(n, change.id, 0)
    change.is_made = True
    change.until_ms = n.now_ms + ANSWER_MS
    change.asked = 0
    ask_more(n, job, change)
    go_on(n, change)


def give_up(n: Node, change: Change, said: i64, worker: bytes, since_s: i64) -> None:
    """[W16] A holder refused; nothing is changed. A CANCEL flags the job (W16.3). -1: no answer."""
    job = n.jobs.get(change.id)
    is_open = job is not None and job.state != ACKED
    if change.update is not None:
        change.refused = refusal_of(n, change, said, worker, since_s)
    elif not is_open or said == IS_OVER:
        known = n.life.known(change.id)
        is_cancelled = known is not None and known.kind == CANCELLED
        change.became = ENDED if is_cancelled else OVER
    elif job is not None and said == IS_DEAD:
        n.life.held.pop(change.id, None)
        end(n, job, change.reason)
        change.became = ENDED
    elif job is not None:
        flag(n, job, change.reason)
        change.became = FLAGGED
    let_all_go(n, change)
    finish(n, change)


def let_all_go(n: Node, change: Change) -> None:
    """The holders need not hold the job any longer."""
    for slot in slots_of(change.asked & n.linked):
        say(n, slot, Hold(change.id, LET_GO, int(change.serial)))
    let_go(n, change.id, 0)


def refusal_of(n: Node, change: Change, said: i64, worker: bytes, since_s: i64) -> Refusal:
    """What the client of an UPDATEJOB hears."""
    if said == IS_OVER:
        return Refusal(ACKED_ALREADY)
    if said == IS_DEAD:
        job = n.jobs.get(change.id)
        return Refusal(DEAD_LETTER, (b"" if job is None else job.queue,))
    if said == IS_BUSY:
        return Refusal(CHANGING)
    if said == IS_LEASED:
        return Refusal(LEASED_WORK)
    if said == IS_OUT:
        if len(worker) > 0:
            return Refusal(ATWORK, (worker, int(since_s)))
        return Refusal(DELIVERED_OUT, (int(since_s),))
    return Refusal(NOT_HELD)


def finish(n: Node, change: Change) -> None:
    """The change is made, or given up: reply to those who wait (W16.8)."""
    change.is_over = True
    n.life.change_bytes -= change.size()
    if n.life.changes.get(change.id) is change:
        del n.life.changes[change.id]
    for slot in change.slots:
        say(n, slot, JobTold(change.id, True, int(change.became), False))
    if change.id in n.life.watchers:
        wake_waiters(n, change.id)


def changes_tick(n: Node) -> None:
    """[W16] TIMER: holders that do not answer, and links that broke (W16.4)."""
    if len(n.life.parked) > 0:
        unpark(n)
    for change in list(n.life.changes.values()):
        change.waiting &= n.linked
        if change.waiting == 0:
            go_on(n, change)
        elif change.until_ms <= n.now_ms:
            if change.is_made:
                finish(n, change)  # they get it with the next LIFE (W16.6)
            else:
                give_up(n, change, -1, b"", 0)
