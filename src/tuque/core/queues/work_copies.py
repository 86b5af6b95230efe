"""The work of a job goes to the other holders and comes from them; dead letters (SPEC W6, W14).

In messages, packed: the sender's clock, i64 ms, then a journal record (core/msgs/packed.py).
An outcome without the instant of its end is a claim: a worker sent DONE where nobody has the job.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.attempts import moved_row
from tuque.core.model.job import ACKED, ACTIVE, DELIVERED, ONCE_QUEUED, QUEUED, Job
from tuque.core.model.job_id import ID_BYTES
from tuque.core.model.task import Task
from tuque.core.model.work import (
    DONE,
    EXPIRED,
    GONE,
    LIVE,
    RELEASED,
    Failure,
    Life,
    Outcome,
)
from tuque.core.msgs.bus import EditAt, LifeAt, SetAck
from tuque.core.msgs.packed import SPAN_MAX_MS
from tuque.core.node.node import Node
from tuque.core.node.peers import PATIENT_S, say, say_holders, slots_of
from tuque.core.node.tables import put_body, record_job, rehouse
from tuque.core.queues.ends import conclude_as, life_of, look_again, wake_waiters
from tuque.core.queues.procedures import (
    REQUEUE_DELAY,
    get_queue,
    memory_level,
    policy_of,
    remove,
    requeue,
)
from tuque.core.records.jobs import LIFE, OUTCOME
from tuque.core.records.work import (
    LifeRecord,
    decode_life,
    decode_outcome,
    may_grow,
    put_life,
    put_outcome,
)
from tuque.core.tables.work import DROPS
from tuque.core.work import merge, rules

HEAD: Final = 8 + 5 + ID_BYTES  # clock, length, kind, id
START_MS: Final = 50  # a shorter run is not announced (W14.3)
SKEW_MS: Final = 3_000  # longer than a message takes: no instant is moved by less

DEAD_SUFFIX: Final = b".dead"
AGAIN_MS: Final = 200

# of two outcomes of one job: they are the same, the one that was here stands, or it fell
SAME: Final = 0
STANDS: Final = 1
FELL: Final = 2


def packed_life(n: Node, id: bytes) -> bytes:
    """The life of the job for a message; empty if it has none."""
    life = life_of(n, id)
    if life is None:
        return b""
    w = BytesWriter()
    write_i64_le(w, n.now_ms)
    put_life(w, LIFE, id, life)
    return w.getvalue()


def packed_outcome(n: Node, id: bytes, has_body: bool = True) -> bytes:
    """The kept outcome of the job for a message; empty if there is none.

    `has_body`: with its body, which who has the job needs not (W18.4).
    """
    work = n.life
    outcome = work.kept.get(id)
    if outcome is None:
        return b""
    in_hand = work.in_hand
    if in_hand is not None and in_hand.id == id:
        outcome = in_hand  # W7.5
    body = outcome.body if outcome.added_ms > 0 else None
    if body is not None and not has_body:
        outcome = outcome.copy()
        outcome.body = body = None
    w = BytesWriter()
    write_i64_le(w, n.now_ms)
    put_outcome(w, OUTCOME, outcome)
    if body is not None:
        w.write(body)
    if outcome.result is not None:
        w.write(outcome.result)
    return w.getvalue()


def ack_of(n: Node, job: Job, is_untold: bool = False, is_run_untold: bool = False) -> SetAck:
    """[W14] SETACK of an ended job, with its outcome (W14.4)."""
    left_ms = max(1, job.expire_ms - n.now_ms)
    outcome = packed_outcome(n, job.id, n.is_leaving)
    return SetAck(job.id, job.holders, left_ms, outcome, is_untold, is_run_untold)


def unpack_life(n: Node, data: bytes) -> Life | None:
    """The life in a message, its instants on this node's clock; None if it is malformed."""
    r = LifeRecord()
    if not has_clock(data) or not decode_life(data, HEAD, len(data), r):
        return None
    life = r.life
    if life is None or not may_grow(life):
        return None
    by_ms = moved_by(n, data)
    life.since_ms = moved(life.since_ms, by_ms)
    life.dead_ms = moved(life.dead_ms, by_ms)
    life.expire_ms = moved(life.expire_ms, by_ms)
    life.attempts = moved_row(life.attempts, by_ms)
    move_failure(life.first, by_ms)
    if life.last is not life.first:
        move_failure(life.last, by_ms)
    return life


def is_running(n: Node, data: bytes) -> bool:
    """Whether a worker is at work on the job that came with this."""
    theirs = unpack_life(n, data) if len(data) > 0 else None
    return theirs is not None and theirs.run_state == LIVE


def unpack_outcome(n: Node, id: bytes, data: bytes) -> Outcome | None:
    """The outcome in a message; None if it is malformed."""
    r = LifeRecord()
    if not has_clock(data) or not decode_outcome(id, data, HEAD, len(data), r):
        return None
    outcome = r.outcome
    if outcome is not None:
        outcome.is_claim = outcome.ended_ms == 0
        outcome.is_brief = False  # each holder decides that
        by_ms = moved_by(n, data)
        outcome.until_ms = moved(outcome.until_ms, by_ms)
        outcome.ended_ms = moved(outcome.ended_ms, by_ms)
        outcome.move(by_ms)
    return outcome


def has_clock(data: bytes) -> bool:
    """Whether it is long enough, and its clock is one: sums of it stay within 64 bits."""
    return len(data) >= HEAD and 0 <= read_i64_le(data, 0) < SPAN_MAX_MS


def moved_by(n: Node, data: bytes) -> i64:
    """How far this node's clock is ahead of the sender's."""
    by_ms = n.now_ms - read_i64_le(data, 0)
    return 0 if -SKEW_MS < by_ms < SKEW_MS else by_ms


def moved(at_ms: i64, by_ms: i64) -> i64:
    """An instant on this node's clock; 0 stays."""
    return 0 if at_ms == 0 else max(1, min(at_ms, SPAN_MAX_MS) + by_ms)


def move_failure(failure: Failure | None, by_ms: i64) -> None:
    """Move the instant of a failure."""
    if failure is not None:
        failure.at_ms = moved(failure.at_ms, by_ms)


def send_work(n: Node, job: Job) -> None:
    """[W14] The other holders get the life as it is now (W14.1)."""
    if job.holders == 1 or job.retry_s == 0:
        return
    n.life.untold.pop(job.id, None)
    say_holders(n, job, life_message(n, job))


def send_work_to(n: Node, job: Job, nodes: i64) -> None:
    """[W14] These nodes may have a copy and know nothing of what happened since it was made.

    Nothing is sent of a life in which nothing happened (W14.10, W14.12).
    """
    life = n.life.by_id.get(job.id)
    if life is not None and job.retry_s > 0 and merge.has_news(life):
        for slot in slots_of(nodes):
            say(n, slot, life_message(n, job))


def life_message(n: Node, job: Job) -> LifeAt:
    """The life as this node knows it."""
    left_ms = max(1, job.expire_ms - n.now_ms)
    due_ms = max(0, job.qtime_ms - n.now_ms)
    return LifeAt(job.id, job.queue, left_ms, due_ms, packed_life(n, job.id))


def tell_soon(n: Node, job: Job, life: Life) -> None:
    """[W14] A run began: the others hear of it within 50 ms, if it still lasts then (W14.3)."""
    work = n.life
    if job.holders == 1 or job.retry_s == 0:
        return
    if job.retry_s <= PATIENT_S or merge.is_urgent(life):
        send_work(n, job)
        return
    if len(work.untold) == 0:
        work.beat_ms = n.now_ms + START_MS
    work.untold[job.id] = None


def tell_untold(n: Node) -> None:
    """[W14] Announce the runs that began and still last (W14.3)."""
    work = n.life
    if len(work.untold) == 0 or work.beat_ms > n.now_ms:
        return
    untold = work.untold
    work.untold = {}
    for id in untold:
        job = n.jobs.get(id)
        life = work.by_id.get(id)
        if job is not None and life is not None and job.state == ACTIVE:
            send_work(n, job)


def adopt_outcome(n: Node, job: Job, data: bytes) -> i64:
    """[W14] Another node sent how the job ended: it ends here in the same way (W14.4).

    A claim only ends what is open: it may come late (W14.6). Returns SAME, STANDS or FELL.
    """
    outcome = unpack_outcome(n, job.id, data) if len(data) > 0 else None
    if outcome is None:
        return SAME
    n.has_lives = True
    kept = n.life.known(job.id)
    if kept is not None:
        return SAME if outcome.is_claim else settle(n, kept, outcome)
    if job.state != ACKED or job.id in n.life.kept:
        conclude_as(n, job, outcome)
    return SAME


def settle(n: Node, kept: Outcome, outcome: Outcome) -> i64:
    """[W14] Two outcomes of one job met (W14.15): whether the one that was kept stands (W14.4)."""
    stands = kept
    if merge.is_better(kept, outcome):
        stand_for(n, kept, outcome)
        stands = outcome
    elif not merge.is_better(outcome, kept):
        return SAME
    is_counted = kept.kind == DONE or kept.kind != outcome.kind  # not two CANCELs
    if is_counted and not kept.is_disputed and kept.kind != GONE and outcome.kind != GONE:
        n.life.conflicts += 1
        n.life.conflict_id = kept.id
    stands.is_disputed = kept.is_disputed or is_counted
    return STANDS if stands is kept else FELL


def stand_for(n: Node, kept: Outcome, outcome: Outcome) -> None:
    """The other outcome of the job stands, not the one that is kept."""
    work = n.life
    outcome.until_ms = kept.until_ms
    outcome.is_brief = kept.is_brief
    outcome.learn(kept)  # W18.3
    work.forget(kept.id)
    work.keep(outcome, n.limits.results_bytes)
    if n.records is not None:
        n.records.outcome(outcome)


def adopt_late(n: Node, id: bytes, data: bytes) -> i64:
    """[W14] Another node sent an outcome of a job whose outcome alone is here (W14.4).

    Returns SAME, STANDS or FELL; of a task, whose voters agree (T48.6), never FELL.
    """
    kept = n.life.known(id) if n.has_lives and len(data) > 0 else None
    outcome = unpack_outcome(n, id, data) if kept is not None else None
    if kept is None or outcome is None:
        return SAME
    if outcome.is_claim:
        return STANDS if merge.is_better(outcome, kept) else SAME
    met = settle(n, kept, outcome)
    return SAME if met == FELL and kept.is_of_task() else met


def keep_passed(n: Node, id: bytes, data: bytes) -> bool:
    """[K7] A node that leaves passes on how a job ended, of which nothing is here: it is kept for
    the rest of its time, if there is room (K7.10). Whether all that it says is here now.
    """
    outcome = unpack_outcome(n, id, data) if len(data) > 0 else None
    if outcome is None or outcome.is_claim or outcome.is_of_task():
        return False
    work = n.life
    kept = work.known(id)
    if kept is not None:
        return outcome.result is None or not kept.is_stripped()
    has_room = work.kept_bytes + outcome.size() <= n.limits.results_bytes
    if n.is_leaving or not has_room or memory_level(n) >= 2 or outcome.until_ms <= n.now_ms:
        return False
    n.has_lives = True
    work.forget(id)  # a claim
    work.keep(outcome, n.limits.results_bytes)
    if n.records is not None:
        n.records.outcome(outcome)
    return True


def adopt_life(
    n: Node, slot: i64, job: Job, data: bytes, body: bytes = b"", left_ms: i64 = 0
) -> None:
    """[W14] A copy has come: the life it brings becomes the job's, or is merged (W14.1).

    `left_ms` is 0 for a copy that was not here before.
    """
    if len(data) == 0:
        return
    theirs = unpack_life(n, data)
    if theirs is None:
        return
    n.has_lives = True
    mine = n.life.by_id.get(job.id)
    if mine is None:
        enter_copy(n, job, theirs)
    elif theirs.replays != mine.replays or theirs.is_dead != mine.is_dead:
        say(n, slot, life_message(n, job))  # one copy has to change its queue: W14.7
        return
    else:
        if merge.merge(mine, theirs):
            mine.terms = n.life.share(mine.terms)
        n.life.weigh(mine)
        if theirs.edit > mine.edit and left_ms > 0:
            take_edit(n, job, mine, theirs, body, left_ms)
            record_job(n, job)
        theirs = mine
    if n.records is not None:
        n.records.life(job.id, theirs)


def enter_copy(n: Node, job: Job, life: Life) -> None:
    """A life that another node had of the job."""
    is_dead = life.is_dead
    life.is_dead = False
    life.client = -1
    life.terms = n.life.share(life.terms)
    n.life.enter(job.id, life, job.queue)
    if is_dead:
        n.life.bury(job.queue, job.id, life, len(job.body), n.limits.dead_bytes)
        look_again(n, job.id)  # W9.2


def set_body(n: Node, job: Job, body: bytes) -> None:
    """Give the job another body."""
    put_body(n, job, body)


def take_edit(n: Node, job: Job, mine: Life, theirs: Life, body: bytes, left_ms: i64) -> None:
    """[W16] A later UPDATEJOB, made at another node (W16.6). The caller records the job."""
    merge.take_edit(mine, theirs)
    mine.terms = n.life.share(mine.terms)
    if mine.is_dead:
        n.life.dead_bytes += len(body) - len(job.body)
    elif mine.expire_ms != 0:
        mine.expire_ms = n.now_ms + left_ms  # a run lasts beyond it
    else:
        job.expire_ms = n.now_ms + left_ms
        n.wheel.arm(job, n.now_ms)
    set_body(n, job, body)
    n.life.weigh(mine)


def edit_message(n: Node, job: Job, serial: i64, delay_ms: i64) -> LifeAt:
    """LIFE with the job as UPDATEJOB has made it. Serial 0: no answer is awaited."""
    message = life_message(n, job)
    life = n.life.by_id[job.id]
    if life.expire_ms != 0:
        message.left_ms = int(max(1, life.expire_ms - n.now_ms))
    message.edit = EditAt(int(serial), int(delay_ms), job.body)
    return message


# ---- A dead letter stays, under the id of its job, in another queue (SPEC W6)


def dead_queue(job: Job, life: Life) -> bytes:
    """The queue of the job's dead letter; a task's in its tube has that name, too (T48.15)."""
    dead = life.terms.dead
    return dead if len(dead) > 0 else job.queue + DEAD_SUFFIX


def letters_of(n: Node, id: bytes) -> bytes:
    """The queue of the dead letter of an open job; of an unknown one none. A task without runs
    stays in its tube (T1.14).
    """
    job = n.jobs.get(id)
    if job is None:
        return b""
    if isinstance(job, Task) and not policy_of(n).has_runs(job):
        return job.queue
    life = life_of(n, id)
    return job.queue + DEAD_SUFFIX if life is None else dead_queue(job, life)


def go_dead(n: Node, job: Job, life: Life, cause: bytes) -> None:
    """[W6] PROCEDURE the job is given up: it moves to the queue of dead letters (W6.5)."""
    leave_line(n, job)
    report_death(n, job, life, cause, life.returned)
    rules.die(life, cause, job.queue, n.now_ms)
    job.expire_ms = n.now_ms + n.limits.dead_keep_ms
    if job.retry_s == 0:
        job.flags &= 0xFF ^ DELIVERED  # it is handed out once more, as a dead letter
        n.delivered_amo.pop(job.id, None)
    job = to_queue(n, job, dead_queue(job, life))
    n.life.weigh(life)
    n.life.bury(job.queue, job.id, life, len(job.body), n.limits.dead_bytes)
    line_up(n, job)
    if job.id in n.life.watchers:
        wake_waiters(n, job.id)  # W9.1
    drop_letters(n)


def report_death(n: Node, job: Job, work: Life, cause: bytes, returned: i64) -> None:
    """[W6] Count the death, and write its event: `returned` times the job came back before."""
    n.life.dead += 1
    n.book.die(job, cause)
    if n.events is not None:
        n.events.dead(n.now_ms, job, rules.death_reason(work, cause), returned)


def drop_letters(n: Node) -> None:
    """[W6] Delete the oldest dead letters above the bound, some at once (W6.6)."""
    work = n.life
    left = DROPS
    while left > 0 and has_surplus(n):
        left -= 1
        oldest = work.shares.letters_first(n.limits.dead_bytes)  # N11.7
        if len(oldest) == 0:
            oldest = work.oldest_letter()
        if len(work.giants) > 1:
            oldest = next(iter(work.giants))
        job = n.jobs[oldest]
        if isinstance(job, Task):
            if not policy_of(n).frees(n, job, False):
                work.drop_ms = n.now_ms + AGAIN_MS  # its tube does not run here now
                return
            policy_of(n).expire(n, job)
        else:
            remove(n, job, stats.EXPIRED)
        work.dead_dropped += 1


def has_surplus(n: Node) -> bool:
    """[W6] Whether a dead letter must go (W6.6): one beside the giant, or a second giant."""
    lives = n.life
    counted = lives.dead_bytes
    if len(lives.giants) > 0:
        for id in list(lives.giants):
            size = letter_bytes(n, id)
            if size > n.limits.dead_bytes:
                counted -= size
            else:
                del lives.giants[id]
        if len(lives.giants) > 1:
            return True
    return counted > n.limits.dead_bytes and lives.letter_count() > 1


def letter_bytes(n: Node, id: bytes) -> i64:
    """Bytes of that dead letter, 0 if it is none any more."""
    job = n.jobs.get(id)
    life = n.life.by_id.get(id)
    return (
        life.bytes + len(job.body) if job is not None and life is not None and life.is_dead else 0
    )


def leave_line(n: Node, job: Job) -> None:
    """Take the job out of its queue, if it is there; its state becomes active."""
    if job.state == QUEUED:
        job.state = ACTIVE
        n.queues[job.queue].left(job)


def to_queue(n: Node, job: Job, name: bytes) -> Job:
    """Give an active job to another queue; `line_up` follows. Returns its new record."""
    moved = rehouse(n, job, get_queue(n, name).name)
    moved.flags &= 0xFF ^ ONCE_QUEUED
    return moved


def line_up(n: Node, job: Job) -> None:
    """Queue the job in its new queue; no counter grows.

    The other holders hear first that its run is over: they do not keep its worker (W14.9).
    """
    send_work(n, job)
    requeue(n, job, REQUEUE_DELAY)
    record_job(n, job)


def expire(n: Node, job: Job) -> None:
    """[G7.2] The open job's time to live is over: it ends, or goes to the dead letters (W6.2)."""
    life = life_of(n, job.id)
    is_open = job.state == ACTIVE or job.state == QUEUED
    if life is None or life.is_dead or not rules.dies_expired(life) or not is_open:
        remove(n, job, stats.EXPIRED)
        return
    if life.run_state == LIVE:
        life.run_state = RELEASED
    go_dead(n, job, life, EXPIRED)
