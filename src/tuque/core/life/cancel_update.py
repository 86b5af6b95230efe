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
from tuque.core.msgs.bus import Hold, HoldTold, JobAsk, JobTold
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
HOLD_IT: Final = 1
LET_GO: Final = 2  # EDIT is 3; core/msgs has the bound
FLAG_IT: Final = 3  # by JobAsk: LOOK and CANCEL of lookup.py are 1 and 2

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

# what became of a CANCEL; of two answers the lower one counts
UNKNOWN: Final = 0
ENDED: Final = 1
FLAGGED: Final = 2
OVER: Final = 3
# what a holder says to a CANCEL of another one; the last one, by core/msgs
CLEAR: Final = 4  # it is flagged, and no worker has it
TAKEN: Final = 5  # it is flagged, and a worker has it


# ---- The holder's side: the job is held until the change is made (SPEC W16)


def hold(n: Node, job: Job, slot: i64) -> i64:
    """[W16] Hold the job for the node, 0: this one; returns AGREED or why not (W16.2)."""
    life = life_of(n, job.id)
    if job.state == ACKED:
        return IS_OVER
    if life is not None and life.is_dead:
        return IS_DEAD
    if job.flags & LEASED:
        return IS_LEASED
    if is_out_at(n, job):
        return IS_OUT
    if life is not None and life.is_cancelled:
        return IS_OVER  # W16.8
    if job.id in n.life.held:
        return IS_BUSY
    holding = Holding(slot, n.now_ms + HOLD_MS)
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
    """[W16] The node holds the job no longer: it goes on as before (W16.5)."""
    holding = n.life.held.get(id)
    if holding is None or holding.asker != slot:
        return
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
        said = hold(n, job, slot)
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
            is_free = not mine.is_dead and not mine.is_cancelled
            if m.due_ms >= 0 and is_free and not is_out_at(n, job):
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
            let_go(n, id, holding.asker)


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
    change = begin(n, job, update)
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
    change = n.life.cancels.get(id)
    if change is not None:
        return FLAGGED, None, change
    life = life_of(n, id)
    is_dead = life is not None and life.is_dead
    if not is_dead and place_of(n, job).out_ms(n, job) >= 0:
        flag(n, job, reason)
        return FLAGGED, None, None
    if is_dead or job.holders == 1 or job.state == WAIT_REPL or job.retry_s == 0:
        end(n, job, reason)
        return ENDED, None, None
    change = begin_cancel(n, job, reason)
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


# ---- CANCEL among holders: the flag is the lock (SPEC W16.8)


def begin_cancel(n: Node, job: Job, reason: bytes) -> Change:
    """[W16] Flag the job here, and ask the other holders in reach to do so (W16.8)."""
    change = enter(n, n.life.cancels, Change(job.id, None, reason))
    if has_worker_away(n, job):
        finish_cancel(n, change, FLAGGED)  # W16.4
        return change
    set_aside(n, job, reason)
    ask_more(n, job, change)
    conclude_cancel(n, change)
    return change


def set_aside(n: Node, job: Job, reason: bytes) -> None:
    """[W16] No run of the job begins here any more: flagged, it is in no queue, and ends after
    RETRY at the latest (W16.8, W8.3). A leased one stays with its group.
    """
    work = make_life(n, job)
    rules.flag(work, fitting_reason(n, work, reason))
    work.is_resting = False
    n.life.weigh(work)
    n.life.held.pop(job.id, None)
    if job.state != WAIT_REPL and job.flags & LEASED == 0:
        marks = i64(job.marks & OUT_THERE)
        if job.state == QUEUED:
            dequeue(n, job)
        set_due(n, job, n.now_ms + i64(job.retry_s) * 1000, marks)
        if n.records is not None:
            n.records.state(job)
    if n.records is not None and job.state != WAIT_REPL:
        n.records.life(job.id, work)


def flag_asked(n: Node, slot: i64, m: JobAsk) -> JobTold:
    """[W16] Another node cancels the job: flag it here, and answer what becomes of it (W16.8)."""
    job, tables = n.jobs.get(m.id), n.life
    answer = JobTold(m.id, True, OVER, False)
    if job is None or isinstance(job, Task):
        if tables.known(m.id) is None and not n.tombs.has(m.id):
            answer.became = UNKNOWN
    elif job.state != ACKED:
        work = tables.by_id.get(m.id)
        is_dead = work is not None and work.is_dead
        answer.became = CLEAR
        if not is_dead and is_out_at(n, job):
            flag(n, job, m.reason)
            answer.became = TAKEN
        elif not is_dead:
            set_aside(n, job, m.reason)
        introduce(n, slot, job.holders | 1)
        answer.holders = job.holders | 1
    return answer


def on_flagged(n: Node, slot: i64, m: JobTold) -> None:
    """[W16] A holder has answered to a CANCEL of this node."""
    change = n.life.cancels.get(m.id)
    if change is None or change.waiting >> slot & 1 == 0:
        return
    note_answer(n, slot, change, m.holders)
    if m.became == CLEAR:
        conclude_cancel(n, change)
    else:
        finish_cancel(n, change, OVER if m.became == OVER else FLAGGED)


def conclude_cancel(n: Node, change: Change) -> None:
    """[W16] All holders in reach have flagged the job: it ends (W16.8)."""
    if change.waiting != 0:
        return
    job = n.jobs.get(change.id)
    if job is None or job.state == ACKED:
        finish_cancel(n, change, OVER)
    elif is_out_at(n, job) or has_worker_away(n, job):
        finish_cancel(n, change, FLAGGED)
    else:
        end(n, job, change.reason)
        finish_cancel(n, change, ENDED)


def finish_cancel(n: Node, change: Change, became: i64) -> None:
    """What became of the job: reply to those who wait. What is flagged ends by itself (W8.3)."""
    job = n.jobs.get(change.id)
    if became != ENDED and (job is None or job.state == ACKED or became == OVER):
        known = n.life.known(change.id)
        is_cancelled = known is not None and known.kind == CANCELLED
        became = ENDED if is_cancelled else OVER
    elif became == FLAGGED and job is not None:
        flag(n, job, change.reason)  # LIFE takes it to copies that were not asked
    change.became = became
    leave(n, n.life.cancels, change)
    for slot in change.slots:
        say(n, slot, JobTold(change.id, True, int(became), False))


def has_worker_away(n: Node, job: Job) -> bool:
    """Whether a holder is unreachable, and a worker has the job as this node heard (W16.4)."""
    return job.holders & ~1 & ~n.linked != 0 and job.marks & OUT_THERE != 0


# ---- The client's node: the holders are asked, and the change is made (SPEC W16)


def enter(n: Node, table: dict[bytes, Change], change: Change) -> Change:
    """The change is under way: its holders answer in time, or it is given up."""
    change.until_ms = n.now_ms + ANSWER_MS
    n.has_lives = True
    n.life.change_bytes += change.size()
    table[change.id] = change
    return change


def begin(n: Node, job: Job, update: Update) -> Change:
    """[W16] Begin a change; the holders in reach are asked to hold the job (W16.1)."""
    change = enter(n, n.life.changes, Change(job.id, update, b""))
    n.life.changes_made += 1
    change.serial = n.life.changes_made  # an answer to an earlier question does not count
    said = hold(n, job, 0)
    if said == AGREED and has_worker_away(n, job):
        said = IS_OUT  # W16.4
    if said != AGREED:
        give_up(n, change, said, b"", 0)
        return change
    ask_more(n, job, change)
    go_on(n, change)
    return change


def ask_more(n: Node, job: Job, change: Change) -> None:
    """[W16] Ask the holders in reach that were not asked yet (W16.7)."""
    update = change.update
    for slot in slots_of(job.holders & n.linked & ~change.asked):
        question: Hold | JobAsk
        if update is None:
            question = JobAsk(job.id, FLAG_IT, change.reason)
        elif change.is_made:
            work = n.life.by_id[job.id]
            question = edit_message(n, job, work, change.serial, update.delay_ms)
        else:
            question = Hold(job.id, HOLD_IT, int(change.serial))
        if say(n, slot, question):
            change.asked |= 1 << slot
            change.waiting |= 1 << slot


def note_answer(n: Node, slot: i64, change: Change, holders: i64) -> None:
    """[W16] A holder has answered; those that it knows are asked as well (W16.7)."""
    change.waiting &= ~(1 << slot)
    job = n.jobs.get(change.id)
    if job is not None and job.state != ACKED and holders != 0:
        hear_holders(n, slot, job, translate(n, slot, holders), holders)
        ask_more(n, job, change)


def on_hold_told(n: Node, slot: i64, m: HoldTold) -> None:
    """[W16] ON RECV HOLD-TOLD: a holder's answer (W16.2)."""
    change = n.life.changes.get(m.id)
    if change is None or change.serial != m.serial or change.waiting >> slot & 1 == 0:
        return
    note_answer(n, slot, change, m.holders)
    if not change.is_made and change.until_ms <= n.now_ms:
        give_up(n, change, -1, b"", 0)
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
    elif update is not None:
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
    """[W16] A holder refused; nothing is changed (W16.3). -1: no answer."""
    change.refused = refusal_of(n, change, said, worker, since_s)
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
    """The change is made, or given up."""
    leave(n, n.life.changes, change)


def leave(n: Node, table: dict[bytes, Change], change: Change) -> None:
    """The change is over: who waits for it looks again."""
    change.is_over = True
    n.life.change_bytes -= change.size()
    del table[change.id]
    if change.id in n.life.watchers:
        wake_waiters(n, change.id)


def changes_tick(n: Node) -> None:
    """[W16] TIMER: holders that do not answer, and links that broke (W16.4)."""
    for change in list(n.life.cancels.values()):
        change.waiting &= n.linked
        if change.waiting == 0:
            conclude_cancel(n, change)
        elif change.until_ms <= n.now_ms:
            finish_cancel(n, change, FLAGGED)
    for change in list(n.life.changes.values()):
        change.waiting &= n.linked
        if change.waiting == 0:
            go_on(n, change)
        elif change.until_ms <= n.now_ms:
            if change.is_made:
                finish(n, change)  # they get it with the next LIFE (W16.6)
            else:
                give_up(n, change, -1, b"", 0)
