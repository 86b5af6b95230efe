"""UPDATEJOB and CANCEL: the holders of a job agree first (SPEC W8, W10, W16)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.jobs.endings import life_of, tell_watchers
from tuque.core.jobs.life_copies import edit_message, tell_life
from tuque.core.jobs.transitions import policy_of
from tuque.core.life.base import make_life, open_job, without_runs
from tuque.core.life.holds import (
    AGREED,
    HOLD_CANCEL,
    HOLD_UPDATE,
    IS_BUSY,
    IS_DEAD,
    IS_LEASED,
    IS_OUT,
    IS_OVER,
    LET_GO,
    hold,
    is_out_at,
    let_go,
)
from tuque.core.life.runs import end_cancelled
from tuque.core.life.update import update_job, why_not
from tuque.core.model.add_spec import Update
from tuque.core.model.job import ACKED, BODYLESS, OUT_THERE, WAIT_REPL, Job
from tuque.core.model.life import CANCELLED, LIVE
from tuque.core.model.refusal import (
    ACKED_ALREADY,
    ATWORK,
    CHANGING,
    DEAD_LETTER,
    DELIVERED_OUT,
    LEASED_WORK,
    NO_TUBE,
    NOJOB,
    NOT_HELD,
    TASK_APART,
    TASK_UPDATE,
    Refusal,
)
from tuque.core.model.task import Task
from tuque.core.msgs.bus import Hold, HoldTold, JobTold
from tuque.core.node.node import Node
from tuque.core.node.slots import say, slots_of, translate
from tuque.core.replication.holders import hear_holders
from tuque.core.state.lives import Change

ANSWER_MS: Final = 800  # the holders answer within it (W16.4)
PARK_MS: Final = 50  # a CANCEL that met a change tries again

# what became of a CANCEL; of two answers the lower one counts
UNKNOWN: Final = 0
ENDED: Final = 1
FLAGGED: Final = 2
OVER: Final = 3


def on_update(n: Node, id: bytes, update: Update) -> tuple[Refusal | None, Change | None]:
    """[W10] ON COMMAND UPDATEJOB: why not; or the change to wait for, None: it is made (W10.1)."""
    task = n.jobs.get(id)
    if isinstance(task, Task):
        return update_task(n, task, update), None
    job, refused = open_job(n, id)
    if job is None:
        return refused, None
    if update.pri >= 0:
        return Refusal(NO_TUBE, (job.queue,)), None  # T1.2
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


def update_task(n: Node, task: Task, update: Update) -> Refusal | None:
    """[T1] UPDATEJOB of a task of a tube: its pri (T1.10)."""
    what = policy_of(n).what_is(task)
    if len(what) > 0:
        return Refusal(TASK_APART, (task.id, what))  # T1.11
    if not update.is_only_pri():
        return Refusal(TASK_UPDATE, (task.queue,))
    policy = n.policy
    is_here = policy is not None and policy.set_pri(n, task, update.pri)
    return None if is_here else Refusal(NOJOB)


def uncancelled(n: Node, task: Task) -> Refusal | None:
    """[W8, T48] Why a task is not cancelled (W8.6, T48.10); None: it may be."""
    return None if policy_of(n).has_runs(task) else without_runs(n, task)


def cancel_task(n: Node, task: Task, reason: bytes, is_asked: bool) -> tuple[i64, Refusal | None]:
    """[T48] CANCEL of a task; `is_asked` outside of a command (T48.10)."""
    refused = uncancelled(n, task)
    if refused is not None:
        return UNKNOWN, refused
    policy = policy_of(n)
    if is_asked:
        return policy.cancel_asked(n, task, reason), None
    return (ENDED if policy.cancel(n, task, reason) else FLAGGED), None


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
        became, refused = cancel_task(n, job, reason, is_asked)
        return became, refused, None
    if job.state == ACKED:
        return (UNKNOWN if job.flags & BODYLESS else OVER), None, None
    change = n.life.changes.get(id)
    if change is not None and change.update is None:
        return FLAGGED, None, change
    life = life_of(n, id)
    is_dead = life is not None and life.is_dead
    if not is_dead and is_out_at(n, job):
        flag(n, job, reason)
        return FLAGGED, None, None
    if is_dead or job.holders == 1 or job.state == WAIT_REPL or job.retry_s == 0:
        end(n, job, reason)
        return ENDED, None, None
    change = begin(n, job, None, reason)
    return change.became, None, None if change.is_over else change


def flag(n: Node, job: Job, reason: bytes) -> None:
    """[W8] A worker has the job: it hears that the job is cancelled (W8.2)."""
    life = make_life(n, job.id)
    if not life.is_cancelled:
        life.cancel_reason = reason  # the first one stays
        life.is_cancelled = True
        if life.run_state == LIVE and life.client >= 0:
            n.life.calls.append((int(life.client), job.id, int(life.run)))  # W8.2
    n.life.weigh(life)
    if n.records is not None:
        n.records.life(job.id, life)
    tell_life(n, job)


def end(n: Node, job: Job, reason: bytes) -> None:
    """[W8] Nobody has the job: it ends as cancelled (W8.1)."""
    life = make_life(n, job.id)
    if not life.is_cancelled:
        life.cancel_reason = reason
    end_cancelled(n, job, life)


# ---- asking the holders


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
    """The change is made, or given up: reply to those who wait."""
    change.is_over = True
    n.life.change_bytes -= change.size()
    if n.life.changes.get(change.id) is change:
        del n.life.changes[change.id]
    for slot in change.slots:
        say(n, slot, JobTold(change.id, True, int(change.became), False))
    if change.id in n.life.watchers:
        tell_watchers(n, change.id)


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
