"""UPDATEJOB and CANCEL of a job with copies: its holders agree (SPEC W8, W10, W16).

A CANCEL flags the job at each holder; of an UPDATEJOB one of them decides. This module has both
sides: the node of the client, and the holders that it asks.
"""

from typing import Final

from mypy_extensions import i32, i64

from tuque.core.copies.holders import hear_holders
from tuque.core.copies.requeue_messages import is_awaited
from tuque.core.life.holders import is_out_at, make_life, new_life, place_of
from tuque.core.life.start import end_cancelled, open_job, without_runs
from tuque.core.model.errors import (
    ACKED_ALREADY,
    ATWORK,
    DEAD_LETTER,
    DELIVERED_OUT,
    LEASED_WORK,
    NOJOB,
    NOT_ASKED,
    PRI_OF_QUEUE,
    TASK_APART,
    TASK_UPDATE,
    UNDECIDED,
    Refusal,
)
from tuque.core.model.job import (
    ACKED,
    BODYLESS,
    LEASED,
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
    are_headers,
    hash_of,
)
from tuque.core.msgs.bus import EditAt, JobAsk, JobTold, LifeAt, UpdateAt
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    introduce,
    jitter_behind_ms,
    rank,
    say,
    set_due,
    slots_of,
    translate,
)
from tuque.core.node.queue import CHANGE, FLAG, SAME_FLAG
from tuque.core.node.tables import fitting_reason, record_job
from tuque.core.queues.ends import life_of, wake_waiters
from tuque.core.queues.procedures import dequeue, policy_of
from tuque.core.queues.work_copies import (
    edit_message,
    set_body,
    take_edit,
    unpack_life,
)
from tuque.core.tables.work import Change
from tuque.core.work import rules

# what a node asks for by JobAsk; LOOK and CANCEL of lookup.py are 1 and 2
FLAG_IT: Final = 3
SEEK: Final = 4  # where is the job, which an UPDATEJOB is to change?
DECIDE: Final = 5  # make that UPDATEJOB; the last one, by core/msgs

# what a holder says about an UPDATEJOB
RESTS: Final = 0  # no worker has the job, and it is in no queue here
IS_QUEUED: Final = 1
IS_OUT: Final = 2
IS_OVER: Final = 3
IS_DEAD: Final = 4
IS_LEASED: Final = 5
IS_UNKNOWN: Final = 6  # or waits for its copies
IS_REFUSED: Final = 7  # for a reason that any holder can name
IS_MADE: Final = 8  # by the node that decides: all in reach have it
HAS_EDIT: Final = 9  # the change has come; the last one, by core/msgs

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


# ---- UPDATEJOB: what it changes, and of which jobs (SPEC W10)


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


def why_not(n: Node, job: Job, work: Life | None, update: Update) -> Refusal | None:
    """Why the job cannot be changed (W10.2); None: it can."""
    if job.flags & LEASED:
        return Refusal(LEASED_WORK)
    place = place_of(n, job)
    out_ms = place.out_ms(n, job)
    at: i64 = rules.DELIVERED if out_ms >= 0 else rules.WAITING
    refused = rules.may_change(work, at, job.queue, out_ms, n.now_ms)
    if refused is not None:
        return refused
    code = place.may_change(n, job, update)
    if code != 0:
        return Refusal(code)
    failed: i64 = 0 if work is None else work.failed
    return update.refusal(failed, place.ends_ms(n, job) - n.now_ms)


# ---- The client's node: UPDATEJOB and CANCEL begin (SPEC W8, W10)


def on_update(n: Node, id: bytes, update: Update) -> tuple[Refusal | None, Change | None]:
    """[W10] ON COMMAND UPDATEJOB: why not; or the change to wait for, None: it is made (W10.1)."""
    job, refused = job_to_change(n, id, update)
    if job is None:
        return refused, None
    refused = why_not(n, job, life_of(n, id), update)
    if refused is not None:
        return refused, None
    if job.holders == 1:
        update_job(n, job, update)
        return None, None
    change = begin_update(n, job, update)
    return change.refused, None if change.is_over else change


def job_to_change(n: Node, id: bytes, update: Update) -> tuple[Job | None, Refusal | None]:
    """The open job that UPDATEJOB is to change, or why not; neither: its pri has changed, which
    alone changes in any state, and of tasks without runs (T1.10).
    """
    task = n.jobs.get(id)
    if not isinstance(task, Task):
        job, refused = open_job(n, id)
        if job is not None and update.pri >= 0:
            return None, Refusal(PRI_OF_QUEUE, (job.queue,))  # W10.2
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
    work = make_life(n, job)
    is_news = rules.flag(work, fitting_reason(n, work, reason))
    if is_news:
        n.life.stop_runner(job.id, work)
    n.life.weigh(work)
    place_of(n, job).save(n, job, work, FLAG if is_news else SAME_FLAG)


def end(n: Node, job: Job, reason: bytes) -> None:
    """[W8] Nobody has the job: it ends as cancelled (W8.1)."""
    life = make_life(n, job)
    if not life.is_cancelled:
        life.cancel_reason = reason
    end_cancelled(n, job, life)


# ---- CANCEL among holders: the flag is the lock (SPEC W16.8)


def begin_cancel(n: Node, job: Job, reason: bytes) -> Change:
    """[W16] Flag the job here, and ask the other holders in reach to do so (W16.8)."""
    change = Change(job.id, None, reason)
    n.life.cancels[job.id] = change
    enter(n, change, ANSWER_MS)
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
    if is_asking(n, change):
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
    del n.life.cancels[change.id]
    leave(n, change)
    for slot in change.slots:
        say(n, slot, JobTold(change.id, True, int(became), False))


def has_worker_away(n: Node, job: Job) -> bool:
    """Whether a holder is unreachable, and a worker has the job as this node heard (W16.4)."""
    return job.holders & ~1 & ~n.linked != 0 and job.marks & OUT_THERE != 0


# ---- UPDATEJOB among holders: one of them decides (SPEC W16.1 to W16.7)


def begin_update(n: Node, job: Job, update: Update) -> Change:
    """[W16] This node decides if the job is queued here; else it looks for the one that does
    (W16.1).
    """
    change = Change(job.id, update, b"")
    n.life.updates_made += 1
    change.serial = n.life.updates_made
    n.life.updates[change.serial] = change
    enter(n, change, ANSWER_MS)
    if job.state == QUEUED or has_worker_away(n, job):
        decide(n, job, change, update)
    else:
        ask_more(n, job, change)
        choose(n, change)
    return change


def whereabouts(n: Node, slot: i64, m: JobAsk) -> JobTold:
    """[W16] The answer to SEEK: where the job is, as this node knows (W16.2)."""
    job = n.jobs.get(m.id)
    answer = JobTold(m.id, True, 0, False, serial=m.serial)
    if job is None or isinstance(job, Task) or job.state == ACKED:
        known = n.life.known(m.id) if n.has_lives else None
        is_over = job is not None or known is not None or n.tombs.has(m.id)
        answer.said = IS_OVER if is_over else IS_UNKNOWN
        return answer
    work = life_of(n, m.id)
    introduce(n, slot, job.holders | 1)
    answer.holders = job.holders | 1
    if work is not None and work.is_dead:
        answer.said = IS_DEAD
    elif job.flags & LEASED:
        answer.said = IS_LEASED
    elif job.state == WAIT_REPL:
        answer.said = IS_UNKNOWN
    elif is_out_at(n, job):
        answer.said = IS_OUT
        is_live = work is not None and work.run_state == LIVE
        answer.worker = work.worker if work is not None and is_live else b""
        since_ms = work.since_ms if work is not None and is_live else job.last_ms
        answer.since_ms = int(max(0, n.now_ms - since_ms))
    elif job.state == QUEUED:
        answer.said = IS_QUEUED
    return answer


def on_update_asked(n: Node, slot: i64, m: JobAsk) -> None:
    """[W16] Another node looks for the one that decides, or has found this one (W16.1, W16.2)."""
    answer = whereabouts(n, slot, m)
    job, wanted = n.jobs.get(m.id), m.update
    if wanted is not None and wanted.headers is not None and not are_headers(wanted.headers):
        answer.said = IS_REFUSED
    if m.what == SEEK or wanted is None or job is None or answer.said > IS_QUEUED:
        say(n, slot, answer)
        return
    update = Update()
    update.body, update.headers = wanted.body, wanted.headers
    update.delay_ms = wanted.delay_ms
    update.ttl_ms = wanted.ttl_ms
    update.attempts = wanted.attempts
    change = Change(m.id, update, b"")
    n.life.updates_made += 1
    change.serial = n.life.updates_made
    change.asker = slot
    change.asker_serial = m.serial
    n.life.updates[change.serial] = change
    enter(n, change, ANSWER_MS)
    decide(n, job, change, update)


def choose(n: Node, change: Change) -> None:
    """[W16] Once all have answered: who decides is where the job is queued, else the holder of the
    highest rank (W16.1).
    """
    job, update = n.jobs.get(change.id), change.update
    if update is None or is_asking(n, change):
        return
    if job is None or job.state == ACKED:
        refuse(n, change, refusal_of(n, change, IS_OVER, b"", 0))
        return
    some = change.queued & n.linked
    best: i64 = 0
    if job.state != QUEUED and not has_worker_away(n, job) and not is_out_at(n, job):
        highest = rank(job.id, n.node_id) if some == 0 else b""
        for slot in slots_of(some if some != 0 else change.resting & n.linked):
            its = rank(job.id, n.peers[slot].node_id)
            if its > highest:
                best = slot
                highest = its
    if best == 0:
        decide(n, job, change, update)
        return
    wanted = UpdateAt(
        int(update.delay_ms), int(update.ttl_ms), int(update.attempts), update.body, update.headers
    )
    say(n, best, JobAsk(job.id, DECIDE, b"", int(change.serial), wanted))
    change.decider = best
    change.waiting = 1 << best
    change.until_ms = n.now_ms + 2 * ANSWER_MS  # it waits for the others as long


def decide(n: Node, job: Job, change: Change, update: Update) -> None:
    """[W16] Change the job here, and send that to the other holders in reach; or refuse (W16.3)."""
    refused = why_not(n, job, life_of(n, job.id), update)
    if refused is None and has_worker_away(n, job):
        refused = Refusal(DELIVERED_OUT, (int((n.now_ms - job.last_ms) // 1000),))  # W16.4
    if refused is None and is_awaited(n, job):
        refused = Refusal(NOT_ASKED)  # W16.9
    if refused is not None:
        refuse(n, change, refused)
        return
    update_job(n, job, update)
    change.is_made = True
    change.asked = 0
    change.until_ms = n.now_ms + ANSWER_MS
    ask_more(n, job, change)
    if change.waiting == 0:
        finish(n, change)


def take_change(n: Node, slot: i64, m: LifeAt, edit: EditAt) -> None:
    """[W16] An UPDATEJOB that another node made, now or while this one was away (W16.3, W16.6)."""
    job = n.jobs.get(m.id)
    theirs = unpack_life(n, m.life)
    answer = JobTold(m.id, True, 0, False, serial=edit.serial, said=HAS_EDIT)
    if job is not None and job.state != ACKED and not isinstance(job, Task) and theirs is not None:
        mine = make_life(n, job)
        if theirs.edit > mine.edit:
            take_edit(n, job, mine, theirs, edit.body, m.left_ms)
            is_free = not mine.is_dead and not mine.is_cancelled
            if edit.delay_ms >= 0 and is_free and not is_out_at(n, job):
                put_off_copy(n, job, edit.delay_ms)
                mine.is_resting = theirs.is_resting and edit.delay_ms > 0  # W2.3
            record_job(n, job)
        introduce(n, slot, job.holders | 1)
        answer.holders = job.holders | 1
    if edit.serial != 0:
        say(n, slot, answer)


def put_off_copy(n: Node, job: Job, delay_ms: i64) -> None:
    """An UPDATEJOB with DELAY: another node queues the job after that."""
    if job.state == QUEUED:
        dequeue(n, job)
    job.delay_s = i32((delay_ms + 999) // 1000)
    set_due(n, job, n.now_ms + delay_ms + i64(job.retry_s) * 1000 + jitter_behind_ms(n))
    if delay_ms == 0:
        job.marks |= QUEUED_THERE
        n.book.arm(job)


def on_update_told(n: Node, slot: i64, m: JobTold) -> None:
    """[W16] A holder answers about an UPDATEJOB (W16.2), or has the change (W16.3)."""
    change = n.life.updates.get(m.serial)
    if change is None or change.id != m.id or change.waiting >> slot & 1 == 0:
        return
    note_answer(n, slot, change, m.holders)
    if change.is_made:
        if change.waiting == 0:
            finish(n, change)
    elif m.said == IS_MADE:
        finish(n, change)
    elif m.said > IS_QUEUED or change.decider != 0:
        refuse(n, change, refusal_of(n, change, m.said, m.worker, m.since_ms // 1000))
    else:
        change.resting |= 1 << slot
        if m.said == IS_QUEUED:
            change.queued |= 1 << slot
        choose(n, change)


def refusal_of(n: Node, change: Change, said: i64, worker: bytes, since_s: i64) -> Refusal:
    """What the client of an UPDATEJOB hears that another holder refused (W16.2)."""
    job, update = n.jobs.get(change.id), change.update
    if said == IS_OVER:
        return Refusal(ACKED_ALREADY)
    if said == IS_DEAD:
        return Refusal(DEAD_LETTER, (b"" if job is None else job.queue,))
    if said == IS_LEASED:
        return Refusal(LEASED_WORK)
    if said == IS_OUT:
        if len(worker) > 0:
            return Refusal(ATWORK, (worker, int(since_s)))
        return Refusal(DELIVERED_OUT, (int(since_s),))
    refused: Refusal | None = None
    if said == IS_REFUSED and job is not None and update is not None:
        refused = why_not(n, job, life_of(n, job.id), update)
    return Refusal(NOT_ASKED) if refused is None else refused


def refuse(n: Node, change: Change, refused: Refusal) -> None:
    """[W16] Nothing is changed, or this node does not know whether it is (W16.5)."""
    change.refused = refused
    finish(n, change)


def finish(n: Node, change: Change) -> None:
    """The change is made, or refused: so hears the node that asked for it."""
    del n.life.updates[change.serial]
    leave(n, change)
    if change.asker != 0:
        said = IS_MADE if change.refused is None else IS_REFUSED
        serial = int(change.asker_serial)
        say(n, change.asker, JobTold(change.id, True, 0, False, serial=serial, said=said))


# ---- What the two share: questions, answers, time (SPEC W16)


def enter(n: Node, change: Change, wait_ms: i64) -> None:
    """The change is under way: its holders answer in time, or it is given up."""
    change.until_ms = n.now_ms + wait_ms
    n.has_lives = True
    n.life.change_bytes += change.size()


def leave(n: Node, change: Change) -> None:
    """The change is over: who waits for it looks again."""
    change.is_over = True
    n.life.change_bytes -= change.size()
    if change.id in n.life.watchers:
        wake_waiters(n, change.id)


def ask_more(n: Node, job: Job, change: Change) -> None:
    """[W16] Ask the holders in reach that were not asked yet, or send them the change (W16.7)."""
    update = change.update
    for slot in slots_of(job.holders & n.linked & ~change.asked):
        question: LifeAt | JobAsk
        if update is None:
            question = JobAsk(job.id, FLAG_IT, change.reason)
        elif change.is_made:
            question = edit_message(n, job, change.serial, update.delay_ms)
        else:
            question = JobAsk(job.id, SEEK, b"", int(change.serial))
        if say(n, slot, question):
            change.asked |= 1 << slot
            change.waiting |= 1 << slot


def is_asking(n: Node, change: Change) -> bool:
    """Whether an answer is missing, or a holder is not linked yet since the start (W16.9)."""
    job = n.jobs.get(change.id)
    if change.waiting != 0 or job is None or job.state == ACKED:
        return change.waiting != 0
    return is_awaited(n, job)


def changes_link_up(n: Node) -> None:
    """[W16] A link came up: what is not decided yet is asked there, too (W16.9)."""
    tables = n.life
    for change in list(tables.cancels.values()) + list(tables.updates.values()):
        job = n.jobs.get(change.id)
        if job is not None and job.state != ACKED and change.decider == 0:
            ask_more(n, job, change)


def note_answer(n: Node, slot: i64, change: Change, holders: i64) -> None:
    """[W16] A holder has answered; those that it knows are asked as well (W16.7)."""
    change.waiting &= ~(1 << slot)
    job = n.jobs.get(change.id)
    if job is not None and job.state != ACKED and holders != 0:
        hear_holders(n, slot, job, translate(n, slot, holders), holders)
        if change.decider == 0:
            ask_more(n, job, change)


def changes_tick(n: Node) -> None:
    """[W16] TIMER: holders that do not answer, and links that broke (W16.4)."""
    tables = n.life
    for change in list(tables.cancels.values()):
        change.waiting &= n.linked
        if not is_asking(n, change):
            conclude_cancel(n, change)
        elif change.until_ms <= n.now_ms:
            finish_cancel(n, change, FLAGGED)
    for change in list(tables.updates.values()):
        change.waiting &= n.linked
        if n.linked >> change.asker & 1 == 0:
            change.asker = 0
        is_late = change.until_ms <= n.now_ms
        if change.is_made:
            if change.waiting == 0 or is_late:
                finish(n, change)  # the others get it with the next LIFE (W16.6)
        elif change.decider != 0:
            if change.waiting == 0 or is_late:
                refuse(n, change, Refusal(UNDECIDED))  # W16.5
        elif is_late and is_asking(n, change):
            refuse(n, change, Refusal(NOT_ASKED))
        else:
            choose(n, change)
