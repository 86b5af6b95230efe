"""Nodes find out about work elsewhere: of jobs unknown here, and of copies (SPEC W14, W15).

RESULT, WAITJOB and CANCEL of a job that is unknown here ask all other nodes. The holders of a job
send each other its work state; what came is merged here, and its effects follow.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.copies.requeue_messages import known_job, learn_of_worker
from tuque.core.life.cancel_update import (
    CLEAR,
    FLAG_IT,
    SEEK,
    UNKNOWN,
    flag_asked,
    on_cancel,
    on_flagged,
    on_update_asked,
    on_update_told,
    set_aside,
    take_change,
)
from tuque.core.life.holders import outlive
from tuque.core.life.outcomes import (
    RESULT,
    is_agreed,
    is_elsewhere,
    is_settled,
    lacking,
    lacks_result,
    names_of,
    silent,
    unknown,
)
from tuque.core.life.shown import own_fields, own_more
from tuque.core.model.errors import NOREACH_YET, Refusal
from tuque.core.model.job import ACTIVE, DELIVERED, ONCE_QUEUED, QUEUED, QUEUED_THERE, Job
from tuque.core.model.work import (
    LIVE,
    Life,
    are_headers,
)
from tuque.core.msgs.bus import JobAsk, JobTold, LifeAt
from tuque.core.node.node import Node
from tuque.core.node.peers import say, set_due
from tuque.core.node.tables import record_job, rehouse
from tuque.core.queues.ends import look_again, reach_changed, wake_waiters
from tuque.core.queues.procedures import dequeue, get_queue, retry_due_ms
from tuque.core.queues.work_copies import (
    edit_message,
    life_message,
    send_work_to,
    unpack_life,
)
from tuque.core.tables.work import Asking
from tuque.core.work.merge import cause_of, end_death, is_behind, merge, take_death

LOOK: Final = 1
CANCEL: Final = 2

SHARED: Final = 1  # answer to LOOK: the result was dropped, and another holder may have it
AGAIN_MS: Final = 1_000  # between two questions about one job
ASKED_MAX: Final = 1_000  # questions of one second without an answer
FIELDS: Final = 10  # of RESULT
UNANSWERED_MAX: Final = 1_000  # CANCELs that are remembered (W15.8)
REASON: Final = 7

RETELL_MAX: Final = 2_000  # in one turn


def may_ask(n: Node, id: bytes) -> bool:
    """Whether another node may know the job, which this one does not (W15.1)."""
    if len(n.peers) == 1 or not is_elsewhere(n, id):
        return False
    return n.linked != 0 and n.ids.knows(id)


def is_copy(n: Node, id: bytes) -> bool:
    """Whether this node has a copy of a task, and another one may know how it ended (W15.11)."""
    policy = n.policy
    return policy is not None and policy.has_copy(id) and is_elsewhere(n, id)


def has_turn(n: Node) -> bool:
    """Whether one more question may be sent now; counts it, until the second is over (W15.1)."""
    lives = n.life
    if lives.asked_ms + AGAIN_MS <= n.now_ms:
        lives.asked_ms = n.now_ms
        lives.asked = 0
    if lives.asked >= ASKED_MAX:
        return False
    lives.asked += 1
    return True


def answered(n: Node, asking: Asking) -> None:
    """Clients may look now; another question has its turn."""
    if not asking.is_told:
        asking.is_told = True
        n.life.asked = max(0, n.life.asked - 1)


def may_fetch(n: Node, id: bytes) -> bool:
    """Whether another holder may have the result that this one has dropped (W15.10)."""
    if n.linked & ~1 == 0 or not lacks_result(n, id):
        return False
    return is_agreed(n, id)


def ask(n: Node, id: bytes, what: i64, reason: bytes = b"", wanted: i64 = 0) -> Asking:
    """[W15] Ask all other nodes about the job; a client waits for it (W15.1).

    `wanted`: what else RESULT shows of it (W18.6).
    """
    table = n.life.cancelling if what == CANCEL else n.life.asking  # W15.9
    asking = table.get(id)
    if asking is None or wanted & ~asking.wanted != 0:
        if asking is not None:
            wanted |= asking.wanted
        asking = Asking(what, reason)
        asking.wanted = wanted
        asking.since_ms = n.now_ms
        table[id] = asking
        if has_turn(n):
            send(n, id, asking)
        else:
            asking.next_ms = n.life.asked_ms + AGAIN_MS
    return asking


def send(n: Node, id: bytes, asking: Asking) -> None:
    """One round of questions."""
    asking.next_ms = n.now_ms + AGAIN_MS
    asking.earlier = asking.denied
    asking.denied = 0
    message = JobAsk(id, int(asking.what), asking.reason, more=int(asking.wanted))
    for peer in n.peers:
        if peer.slot != 0 and peer.is_linked and peer.has_room:
            say(n, peer.slot, message)
            asking.asked |= 1 << peer.slot


def on_job_ask(n: Node, slot: i64, m: JobAsk) -> None:
    """[W15] ON RECV ASK about one job: reply what this node knows (W15.2), once it has loaded."""
    if n.is_loading or is_copy(n, m.id):  # W15.7
        return
    if m.what >= SEEK:
        on_update_asked(n, slot, m)
        return
    is_known = not is_elsewhere(n, m.id)
    answer = JobTold(m.id, is_known, 0, False)
    if m.what == FLAG_IT:
        answer = flag_asked(n, slot, m)
    if is_known and m.what == CANCEL:
        became, _, change = on_cancel(n, m.id, m.reason, True)
        if change is not None:
            change.slots.append(int(slot))  # gets the reply when it is over
            return
        answer.became = int(became)
    elif is_known and m.what != FLAG_IT:
        fields = own_fields(n, m.id)
        if fields is None:
            answer.is_known = False
        else:
            answer.is_settled = is_settled(n, m.id)
            answer.fields = field_values(fields)
            answer.more = own_more(n, m.id, m.more) if m.more != 0 else None
            kept = n.life.known(m.id)
            if kept is not None and kept.is_stripped() and kept.is_shared:
                answer.became = int(SHARED)
    say(n, slot, answer)


def field_values(fields: dict[str, object]) -> list[bytes | int | None]:
    """The values of RESULT, in their order."""
    values: list[bytes | int | None] = []
    for value in fields.values():
        if value is None or isinstance(value, (bytes, int)):
            values.append(value)
    return values


def on_job_told(n: Node, slot: i64, m: JobTold) -> None:
    """[W15] ON RECV TOLD: an answer about a job that clients here ask for (W15.3)."""
    if m.serial != 0:
        on_update_told(n, slot, m)
        return
    on_flagged(n, slot, m)
    if m.became >= CLEAR or (m.more is not None and not are_headers(m.more.headers)):
        return
    looking = n.life.asking.get(m.id)
    cancelling = n.life.cancelling.get(m.id)
    is_told = False
    if looking is not None and (not m.is_known or len(m.fields) == FIELDS):
        is_told = told_look(n, slot, m, looking)
    if cancelling is not None and len(m.fields) == 0:
        is_told = told_cancel(n, slot, m, cancelling) or is_told
    if is_told and m.id in n.life.watchers:
        wake_waiters(n, m.id)


def told_look(n: Node, slot: i64, m: JobTold, asking: Asking) -> bool:
    """What a node has of the job; whether clients may look now."""
    if not m.is_known:
        deny(n, slot, m.id, asking)
    elif is_dropped(m.fields):  # another node may have the result (W15.10)
        if not lacks_result(n, m.id):
            asking.is_shared = asking.is_shared or m.became == SHARED
            if not asking.is_settled:
                asking.fields = list(m.fields)
                asking.more = m.more
                asking.is_settled = m.is_settled
        deny(n, slot, m.id, asking)
    elif m.fields[RESULT] is None and lacks_result(n, m.id):
        if m.is_settled:  # another end; while the end is not confirmed there, it is no answer
            deny(n, slot, m.id, asking)
    else:
        if not asking.is_settled or m.is_settled:
            asking.fields = list(m.fields)
            asking.more = m.more
            asking.is_settled = m.is_settled
        answered(n, asking)
    return asking.is_told


def is_dropped(fields: list[bytes | int | None]) -> bool:
    """Whether the node says that the job is done, and that it has dropped the result."""
    reason = fields[REASON]
    is_done = fields[0] == b"done" and fields[RESULT] is None
    return is_done and isinstance(reason, bytes) and len(reason) > 0


def told_cancel(n: Node, slot: i64, m: JobTold, asking: Asking) -> bool:
    """What became of the job at a node; whether clients may look now."""
    if not m.is_known or m.became == UNKNOWN:
        deny(n, slot, m.id, asking)
    else:
        answered(n, asking)
        if asking.became == UNKNOWN or i64(m.became) < asking.became:
            asking.became = m.became
    return asking.is_told


def not_cancelled(n: Node, id: bytes, asking: Asking | None) -> Refusal:
    """[W15] Why a job that nobody in reach knows is not cancelled; remembers the nodes that got the
    CANCEL and did not answer (W15.8).
    """
    nodes = silent(n, id, asking)
    sent: i64 = n.life.unanswered.get(id, 0)
    if asking is not None:
        sent |= asking.asked
    if sent & nodes == 0:
        return unknown(n, id, asking)
    if id not in n.life.unanswered and len(n.life.unanswered) >= UNANSWERED_MAX:
        del n.life.unanswered[next(iter(n.life.unanswered))]
    n.life.unanswered[id] = int(sent & nodes)
    return Refusal(NOREACH_YET, (names_of(n, nodes),))


def deny(n: Node, slot: i64, id: bytes, asking: Asking) -> None:
    """The node does not know the job, or has dropped its result."""
    asking.denied |= 1 << slot
    if n.linked & ~asking.denied & ~1 == 0 and not asking.is_told:
        give_up(n, id, asking)


def give_up(n: Node, id: bytes, asking: Asking) -> None:
    """Nobody in reach knows the job. It is over, unless another node may have it (W15.5)."""
    answered(n, asking)
    if not asking.is_settled:  # what a node said of an end stands
        asking.fields = []
        asking.more = None
        asking.is_settled = silent(n, id, asking) == 0 and not is_copy(n, id)


def in_turn(table: dict[bytes, Asking]) -> list[bytes]:
    """The ids of a table in the order in which they are asked about: new ones first."""
    new = [id for id, asking in table.items() if asking.asked == 0]
    return list(table) if len(new) == 0 else new + [id for id in table if table[id].asked != 0]


def has_heard_all(n: Node, id: bytes, asking: Asking) -> bool:
    """Whether no further question can tell more: the job has ended, and no node that did not answer
    may have its result.
    """
    is_over = asking.is_settled or lacks_result(n, id)
    return is_over and lacking(n, id, asking) == 0


def asking_tick(n: Node) -> None:
    """[W15] TIMER: ask again while a client waits (W15.4)."""
    for table in (n.life.cancelling, n.life.asking):
        for id in in_turn(table):
            asking = table[id]
            if id not in n.life.watchers:
                del table[id]
            elif asking.next_ms > n.now_ms:
                continue
            elif has_heard_all(n, id, asking):
                asking.next_ms = n.now_ms + AGAIN_MS
                answered(n, asking)  # one round is enough
                wake_waiters(n, id)
            elif has_turn(n):
                del table[id]
                table[id] = asking  # after those that have no turn now
                asking.is_told = False
                send(n, id, asking)
                if n.linked & ~1 == 0:
                    give_up(n, id, asking)
                    wake_waiters(n, id)
            else:
                asking.next_ms = n.life.asked_ms + AGAIN_MS


def asking_next_ms(n: Node, at_ms: i64) -> i64:
    """The instant of the next question, if it is before `at_ms`."""
    for table in (n.life.asking, n.life.cancelling):
        for asking in table.values():
            if asking.next_ms < at_ms:
                at_ms = asking.next_ms
    return at_ms


# ---- The work state that another holder sent (SPEC W14)


def on_life(n: Node, slot: i64, m: LifeAt) -> None:
    """[W14] ON RECV LIFE: merge it (W14.2), and do what follows for this copy."""
    if m.edit is not None:
        take_change(n, slot, m, m.edit)
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
        n.life.enter(m.id, mine, job.queue)
    else:
        replays = mine.replays
        old_state, newest = mine.run_state, mine.run
        failed, crashes = mine.failed, mine.crashes
        was_cancelled = mine.is_cancelled
        if mine.run_state == LIVE:
            old_run, old_client = mine.run, mine.client
        if merge(mine, theirs):
            mine.terms = n.life.share(mine.terms)
        learn_of_rest(job, mine, theirs)
        if mine.run != newest or mine.run_state != old_state or mine.replays != replays:
            mine.ended_ms = n.now_ms  # W14.9
        n.life.weigh(mine)
        is_news = mine.ended_ms == n.now_ms or mine.failed != failed
        is_news = is_news or mine.crashes != crashes or mine.is_cancelled != was_cancelled
    was = job
    if theirs.replays == mine.replays:
        job = learn_of_death(n, job, mine, theirs, m, is_dead, replays)
    learn_of_state(n, job, mine, theirs, m.due_ms)
    is_over = mine.run != old_run or mine.run_state != LIVE
    if old_client >= 0 and (is_over or (mine.is_cancelled and not was_cancelled)):
        n.life.calls.append((int(old_client), m.id, int(old_run)))  # W8.2
    if job is not was:
        record_job(n, job)
    elif is_news and n.records is not None:
        n.records.life(m.id, mine)  # a beat of a run is no news: it writes nothing (W13.1)
    answer(n, slot, job, mine, edit, mine is not theirs and is_behind(theirs, mine, is_dead))


def learn_of_state(n: Node, job: Job, mine: Life, theirs: Life, due_ms: i64) -> None:
    """The job is at work at another holder, or cancelled: then it is in no queue (W16.8)."""
    if mine.is_dead:
        return
    if mine.run_state == LIVE and mine.run == theirs.run:
        learn_of_run(n, job, mine, due_ms)
    elif mine.is_cancelled and job.state == QUEUED:
        set_aside(n, job, mine.cancel_reason)


def learn_of_rest(job: Job, mine: Life, theirs: Life) -> None:
    """The job is in a back-off at another holder, until that says QUEUED (W2.3)."""
    is_same = mine.run == theirs.run and mine.run_state == theirs.run_state
    if theirs.is_resting and is_same and job.state == ACTIVE and not job.marks & QUEUED_THERE:
        mine.is_resting = True


def answer(n: Node, slot: i64, job: Job, mine: Life, edit: i64, is_behind: bool) -> None:
    """The sender has that edit of the job: send it what it lacks, if anything (W14.7)."""
    if edit < mine.edit:
        say(n, slot, edit_message(n, job, 0, -1))  # W16.6
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
                send_work_to(n, job, 1 << slot)
        del ids[-RETELL_MAX:]
    if len(ids) == 0:
        del n.life.retelling[int(slot)]


def retell_tick(n: Node) -> None:
    """[W14] TIMER: more of them (W14.10)."""
    for slot in list(n.life.retelling):
        retell(n, slot)


def learn_of_run(n: Node, job: Job, life: Life, due_ms: i64) -> None:
    """A worker of another node runs the job."""
    if job.state == QUEUED and job.retry_s > 0:
        dequeue(n, job)
    outlive(job, life, n.now_ms + due_ms + 1_000)
    learn_of_worker(n, job, due_ms)


def learn_of_death(
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
    take_death(mine, theirs)
    job = move_copy(n, job, m)
    n.life.weigh(mine)
    n.life.bury(job.queue, job.id, mine, len(job.body), n.limits.dead_bytes)
    look_again(n, job.id)  # W9.2
    return job


def live_again(n: Node, job: Job, mine: Life, m: LifeAt) -> Job:
    """The dead letter was replayed at another node."""
    n.life.remove_dead_letter(job.queue, job.id, mine, len(job.body))
    end_death(mine)
    job = move_copy(n, job, m)
    job.flags = job.flags & (0xFF ^ DELIVERED) | ONCE_QUEUED
    job.marks |= QUEUED_THERE
    n.book.arm(job)
    return job


def move_copy(n: Node, job: Job, m: LifeAt) -> Job:
    """The copy belongs to another queue now; another node has it queued there."""
    if job.state == QUEUED:
        job.state = ACTIVE
        n.queues[job.queue].left(job)
    job.expire_ms = n.now_ms + m.left_ms
    moved = rehouse(n, job, get_queue(n, m.queue).name)
    set_due(n, moved, retry_due_ms(n, moved))
    return moved
