"""A life that another holder sent (SPEC W14)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.jobs.endings import look_again, reach_changed, record_job
from tuque.core.jobs.life_copies import (
    edit_message,
    is_behind,
    life_message,
    merge,
    tell_life_to,
    unpack_life,
)
from tuque.core.jobs.transitions import dequeue, get_queue, retry_due_ms
from tuque.core.life.base import outlive
from tuque.core.model.job import ACTIVE, DELIVERED, ONCE_QUEUED, QUEUED, QUEUED_THERE, Job
from tuque.core.model.life import EXPIRED, LIVE, UNSTARTED, Failure, Life
from tuque.core.msgs.bus import LifeAt
from tuque.core.node.announce import set_due
from tuque.core.node.node import Node
from tuque.core.node.slots import say
from tuque.core.node.table import rehouse
from tuque.core.replication.requeue_messages import hear_of_worker, known_job

RETELL_MAX: Final = 2_000  # in one turn


def on_life(n: Node, slot: i64, m: LifeAt) -> None:
    """[W14] ON RECV LIFE: merge it (W14.2), and do what follows for this copy."""
    job = known_job(n, slot, m.id)
    theirs = unpack_life(n, m.life) if job is not None else None
    if job is None or theirs is None:
        return
    n.has_lives = True
    n.untold.pop(m.id, None)  # its delivery here is no news any more
    mine = n.life.by_id.get(m.id)
    is_dead = theirs.is_dead
    theirs.is_dead = False
    old_run: i64 = 0
    old_client: i64 = -1
    replays, edit = theirs.replays, theirs.edit
    was_cancelled, is_news = False, True
    if mine is None:
        mine = theirs
        mine.edit = 0  # its body is not here
        mine.client = -1
        mine.terms = n.life.share(mine.terms)
        n.life.enter(m.id, mine)
    else:
        replays = mine.replays
        old_state, newest = mine.run_state, mine.run
        failed = mine.failed
        was_cancelled = mine.is_cancelled
        if mine.run_state == LIVE:
            old_run, old_client = mine.run, mine.client
        merge(n, mine, theirs)
        hear_of_rest(job, mine, theirs)
        if mine.run != newest or mine.run_state != old_state or mine.replays != replays:
            mine.ended_ms = n.now_ms  # W14.9
        n.life.weigh(mine)
        is_news = mine.ended_ms == n.now_ms or mine.failed != failed
        is_news = is_news or mine.is_cancelled != was_cancelled
    was = job
    if theirs.replays == mine.replays:
        job = hear_of_death(n, job, mine, theirs, m, is_dead, replays)
    if mine.run_state == LIVE and mine.run == theirs.run and not mine.is_dead:
        hear_of_run(n, job, mine, m.due_ms)
    is_over = mine.run != old_run or mine.run_state != LIVE
    if old_client >= 0 and (is_over or (mine.is_cancelled and not was_cancelled)):
        n.life.calls.append((int(old_client), m.id, int(old_run)))  # W8.2
    if job is not was:
        record_job(n, job)
    elif is_news and n.records is not None:
        n.records.life(m.id, mine)  # a beat of a run is no news: it writes nothing (W13.1)
    answer(n, slot, job, mine, edit, mine is not theirs and is_behind(theirs, mine, is_dead))


def hear_of_rest(job: Job, mine: Life, theirs: Life) -> None:
    """The job is in a back-off at another holder, until that says QUEUED (W2.3)."""
    is_same = mine.run == theirs.run and mine.run_state == theirs.run_state
    if theirs.is_resting and is_same and job.state == ACTIVE and not job.marks & QUEUED_THERE:
        mine.is_resting = True


def answer(n: Node, slot: i64, job: Job, mine: Life, edit: i64, is_behind: bool) -> None:
    """The sender has that edit of the job: send it what it lacks, if anything (W14.7)."""
    if edit < mine.edit:
        say(n, slot, edit_message(n, job, mine, 0, -1))  # W16.6
    elif edit > mine.edit or is_behind:
        say(n, slot, life_message(n, job))


def life_link_up(n: Node, slot: i64) -> None:
    """[W14] A link came up: the node hears of the lives that it may have missed (W14.10)."""
    if len(n.life.watchers) > 0:
        reach_changed(n)  # W15.5
    if len(n.life.unanswered) > 0:
        left = [(id, nodes & ~(1 << int(slot))) for id, nodes in n.life.unanswered.items()]
        n.life.unanswered = {id: nodes for id, nodes in left if nodes != 0}  # W15.8
    if n.has_lives and len(n.life.by_id) > 0:
        n.life.retelling[int(slot)] = list(n.life.by_id)
        retell(n, slot)


def retell(n: Node, slot: i64) -> None:
    """Some of the lives that the node may have missed; those in which nothing happened are left."""
    ids = n.life.retelling[int(slot)]
    peer = n.peers[slot]
    if not peer.is_linked:
        ids.clear()
    if peer.has_room:
        for id in ids[-RETELL_MAX:]:
            job = n.jobs.get(id)
            if job is not None and job.holders >> slot & 1:
                tell_life_to(n, job, 1 << slot)
        del ids[-RETELL_MAX:]
    if len(ids) == 0:
        del n.life.retelling[int(slot)]


def retell_tick(n: Node) -> None:
    """[W14] TIMER: more of them (W14.10)."""
    for slot in list(n.life.retelling):
        retell(n, slot)


def hear_of_run(n: Node, job: Job, life: Life, due_ms: i64) -> None:
    """A worker of another node runs the job."""
    if job.state == QUEUED and job.retry_s > 0:
        dequeue(n, job)
    outlive(job, life, n.now_ms + due_ms + 1_000)
    hear_of_worker(n, job, due_ms)


def hear_of_death(
    n: Node, job: Job, mine: Life, theirs: Life, m: LifeAt, is_dead: bool, replays: i64
) -> Job:
    """The job died there (`is_dead`), or lives again: there were `replays` here before."""
    if mine.is_dead:
        cause = cause_of(mine.last, mine.dead_cause, theirs.dead_cause)
        n.life.letters[job.queue].recount(mine, cause)
        if not is_dead and theirs.replays > replays:
            return live_again(n, job, mine, m)
    elif is_dead:
        return die_here(n, job, mine, theirs, m)
    return job


def die_here(n: Node, job: Job, mine: Life, theirs: Life, m: LifeAt) -> Job:
    """The job is a dead letter, which another node has queued."""
    mine.dead_cause = cause_of(mine.last, b"", theirs.dead_cause)
    mine.dead_ms = theirs.dead_ms
    mine.origin = theirs.origin
    mine.is_resting = False
    mine.expire_ms = 0
    job = move_copy(n, job, m)
    n.life.weigh(mine)
    n.life.bury(job.queue, job.id, mine, len(job.body), n.limits.dead_bytes)
    look_again(n, job)  # W9.2
    return job


def cause_of(last: Failure | None, mine: bytes, theirs: bytes) -> bytes:
    """The cause of a death in two views: that of the last failure, if it died of one (W14.2)."""
    if last is not None:
        for cause in (mine, theirs):
            if len(cause) > 0 and cause != EXPIRED and cause != UNSTARTED:
                return last.cause
    if len(mine) == 0 or len(theirs) == 0:
        return mine if len(theirs) == 0 else theirs
    return min(mine, theirs)


def live_again(n: Node, job: Job, mine: Life, m: LifeAt) -> Job:
    """The dead letter was replayed at another node."""
    n.life.dig(job.queue, job.id, mine, len(job.body))
    mine.dead_cause = b""
    mine.dead_ms = 0
    mine.origin = b""
    job = move_copy(n, job, m)
    job.flags = job.flags & (0xFF ^ DELIVERED) | ONCE_QUEUED
    job.marks |= QUEUED_THERE
    n.book.arm(job)
    return job


def move_copy(n: Node, job: Job, m: LifeAt) -> Job:
    """The copy belongs to another queue now; another node has it queued there."""
    if job.state == QUEUED:
        job.state = ACTIVE
        n.queues[job.queue].left()
    job.expire_ms = n.now_ms + m.left_ms
    moved = rehouse(n, job, get_queue(n, m.queue).name)
    set_due(n, moved, retry_due_ms(n, moved))
    return moved
