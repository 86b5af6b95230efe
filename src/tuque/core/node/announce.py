"""What a node sends to the other holders of its jobs (SPEC G3.8, Q1, V4.6).

Nothing is sent for a job without other holders, nor for an at-most-once job: its only other
holder is the node that it came from or goes to (core/federation/transfer.py).
"""

from typing import Final

from mypy_extensions import i64, u8

from tuque.core.model.job import ACTIVE, ANNOUNCE_WILL, WILL_MS, Job
from tuque.core.msgs.bus import AnyMessage, Delivered, Holders, Queued, WillQueue, Working
from tuque.core.node.node import Node
from tuque.core.node.slots import introduce, say, slots_of

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed
BEAT_MS: Final = 500  # deliveries of patient jobs are announced together (V4.6)
PATIENT_S: Final = 5  # RETRY above this can wait for a beat
TOMB_MS: Final = 60_000  # for a node that lost the job; the others know its expiry
DENIED_MS: Final = 60_000  # longer than a message can be in flight
IDS_MAX: Final = 1_000  # in one WILLQUEUE
FIRST_MS: Final = 100  # bound of J at the node that delivered a job


def jitter_ms(n: Node) -> i64:
    """J: 0..499 ms, so that holders do not act at the same time; 0 on a single node."""
    return n.chance.below(500) if len(n.peers) > 1 else 0


def jitter_first_ms(n: Node) -> i64:
    """J at the node that delivered the job: 0..99 ms, so that it acts first."""
    return n.chance.below(FIRST_MS) if len(n.peers) > 1 else 0


def jitter_behind_ms(n: Node) -> i64:
    """J at a holder that learned of a delivery: 150..499 ms, after the node that made it."""
    return 150 + n.chance.below(350)


def set_due(n: Node, job: Job, due_ms: i64, marks: i64 = 0) -> None:
    """Set the due time of an active job; its other holders are asked shortly before (Q1).

    Replaces what was known of the old due time: the job is no longer held (Q11.3).
    """
    job.qtime_ms = due_ms
    job.marks = u8(marks)
    if job.holders != 1 and job.retry_s > 0:
        job.flags |= ANNOUNCE_WILL
    n.wheel.arm(job, n.now_ms)


def say_holders(n: Node, job: Job, message: AnyMessage) -> None:
    """Send it to all other holders."""
    if job.retry_s > 0:
        for slot in slots_of(job.holders):
            say(n, slot, message)


def tell_queued(n: Node, job: Job, how: i64) -> None:
    """[G3.8, Q4] Announce to the other holders that the job was queued, or postponed (how 0)."""
    say_holders(n, job, Queued(job.id, how))  # G3.8


def tell_delivered(n: Node, job: Job) -> None:
    """[V4.6] Send DELIVERED to the other holders, now or within 500 ms if a worker still has it."""
    if job.retry_s <= PATIENT_S:
        say_holders(n, job, Delivered(job.id, job.qtime_ms - n.now_ms))
        return
    if len(n.untold) == 0:
        n.beat_ms = n.now_ms + BEAT_MS
    n.untold[job.id] = None


def tell_working(n: Node, job: Job, left_ms: i64) -> None:
    """[Q8.6, Q6.2] Ask the other holders not to act on the job for `left_ms`."""
    say_holders(n, job, Working(job.id, left_ms))


def on_will_timer(n: Node, job: Job) -> None:
    """[Q1] TIMER 500 ms before the due time: ask the other holders, once (Q1.1).

    A node that overslept the due time gives them 500 ms more (Q1.2).
    """
    job.flags &= 0xFF ^ ANNOUNCE_WILL
    was_said = False
    for slot in slots_of(job.holders):
        if say_will(n, slot, job.id):
            was_said = True
    if was_said and job.qtime_ms <= n.now_ms:
        job.qtime_ms = n.now_ms + WILL_MS


def say_will(n: Node, slot: i64, id: bytes) -> bool:
    """Send WILLQUEUE, all of a turn in one message."""
    outbox = n.peers[slot].outbox
    if len(outbox) > 0:
        last = outbox[len(outbox) - 1]
        if isinstance(last, WillQueue) and len(last.ids) < IDS_MAX:
            last.ids.append(id)
            return True
    return say(n, slot, WillQueue([id]))


def deny(n: Node, id: bytes) -> None:
    """Note that this node denied having a copy: one may be in flight (R2.7)."""
    n.denied.note(id, 0, n.now_ms + DENIED_MS, n.now_ms)


def take_back(n: Node, job: Job) -> None:
    """[R2] A copy arrived after this node denied having one: send HOLDERS (R2.7)."""
    if n.denied.pop(job.id, n.now_ms) and job.retry_s > 0:
        for slot in slots_of(job.holders):
            introduce(n, slot, job.holders | 1)
            say(n, slot, Holders(job.id, job.holders | 1))


def announce_tick(n: Node) -> None:
    """[V4.6] After 500 ms, announce the jobs that workers still have."""
    if len(n.untold) == 0 or n.beat_ms > n.now_ms:
        return
    untold = n.untold
    n.untold = {}
    for id in untold:
        job = n.jobs.get(id)
        if job is not None and job.state == ACTIVE and job.qtime_ms > n.now_ms:
            say_holders(n, job, Delivered(id, job.qtime_ms - n.now_ms))


def announce_next_ms(n: Node) -> i64:
    """The instant at which `announce_tick` next has work."""
    return n.beat_ms if len(n.untold) > 0 else FAR
