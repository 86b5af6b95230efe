"""What RESULT shows of a job: how it stands or ended, its body and its attempts (SPEC W9, W18).

What this node knows, or what another one has said of a job that is not here.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.life.outcomes import (
    has_result,
    is_agreed,
    is_elsewhere,
    lacking,
    lacks_result,
    names_of,
    shows_death,
    unknown,
)
from tuque.core.model.attempts import Attempt, attempts_of
from tuque.core.model.errors import NOREACH_OWN, NOREACH_RESULT, Refusal
from tuque.core.model.job import (
    ACKED,
    BODYLESS,
    DELIVERED,
    ONCE_QUEUED,
    QUEUED,
    QUEUED_THERE,
    WAIT_REPL,
    Job,
)
from tuque.core.model.task import TAKEN, Task
from tuque.core.model.work import (
    CANCELLED,
    LIVE,
    OUTCOME_NAMES,
    Failure,
    Life,
    Outcome,
    attempt_of,
)
from tuque.core.msgs.bus import AttemptAt, MoreAt
from tuque.core.node.node import Node
from tuque.core.node.peers import journal_fails
from tuque.core.queues.procedures import policy_of
from tuque.core.queues.requeue import is_delayed
from tuque.core.work import rules

FIELDS: Final = (
    "state",
    "attempt",
    "of",
    "worker",
    "progress",
    "result",
    "cause",
    "reason",
    "detail",
    "ended-ms",
)
# what else was asked for: bits
WITH_BODY: Final = 1
WITH_ATTEMPTS: Final = 2


# ---- The state of an open job (SPEC W1)


def phase_of(n: Node, job: Job, work: Life | None) -> bytes:
    """The phase of an open job (W1.1)."""
    if job.state == ACKED:
        return b"done"
    is_hidden = work is not None and work.is_dead and not shows_death(n, job)
    is_queued = job.state == QUEUED or job.marks & QUEUED_THERE != 0
    if is_hidden or (is_queued and (work is None or not work.is_dead)):
        return rules.STATE_NAMES[rules.WAITING]
    return rules.STATE_NAMES[rules.state_of(work, where(n, job))]


def where(n: Node, job: Job) -> i64:
    """What `rules.state_of` asks, of a job that is not in its queue."""
    if job.state == WAIT_REPL:
        return rules.SCHEDULED
    if isinstance(job, Task) and job.status == TAKEN:
        return rules.DELIVERED  # T48.3
    if job.flags & DELIVERED == 0:
        return rules.SCHEDULED if is_delayed(n, job) else rules.WAITING  # queued elsewhere
    return rules.DELIVERED if job.flags & ONCE_QUEUED else rules.BACK_OFF


# ---- The fields of RESULT (SPEC W9.1)


def result_fields(n: Node, id: bytes) -> tuple[dict[str, object] | None, Refusal | None]:
    """[W9] The fields of RESULT (W9.1), None and a refusal if the job is not known, or if its
    result may be at a node that did not answer (W15.10).
    """
    asking = n.life.asking.get(id)
    away = lacking(n, id, asking)
    if away != 0:
        if journal_fails(n, 0):
            return None, Refusal(NOREACH_OWN)
        return None, Refusal(NOREACH_RESULT, (names_of(n, away),))
    mine = own_fields(n, id)
    if asking is not None and len(asking.fields) > 0:
        if mine is None or (has_result(asking) and lacks_result(n, id)):
            return dict(zip(FIELDS, asking.fields, strict=True)), None  # W15.3, W15.10
    return (None, unknown(n, id, asking)) if mine is None else (mine, None)


def own_fields(n: Node, id: bytes) -> dict[str, object] | None:
    """The fields of RESULT by what this node has; None if it does not know the job."""
    kept = n.life.known(id)
    job = n.jobs.get(id)
    if kept is None or is_elsewhere(n, id):
        if job is None or job.flags & BODYLESS:
            return None
        return of_job(n, job, n.life.by_id.get(id))
    fields = of_outcome(kept)
    if not is_agreed(n, id):
        state = b"running" if kept.run != 0 else b"waiting"
        fields.update(state=state, result=None, reason=b"")  # W14.4
        fields["ended-ms"] = 0
    return fields


def of_outcome(kept: Outcome) -> dict[str, object]:
    """The fields of an ended job."""
    return {
        "state": OUTCOME_NAMES[kept.kind],
        "attempt": int(attempt_of(kept.run)),
        "of": int(kept.of),
        "worker": kept.worker,
        "progress": kept.progress,
        "result": kept.result,
        "cause": b"",
        "reason": kept.reason,
        "detail": b"",
        "ended-ms": int(kept.ended_ms),
    }


def of_job(n: Node, job: Job, work: Life | None) -> dict[str, object]:
    """The fields of an open job, or of a dead letter."""
    fields: dict[str, object] = {
        "state": phase_of(n, job, work),
        "attempt": 0,
        "of": 0,
        "worker": b"",
        "progress": b"",
        "result": None,
        "cause": b"",
        "reason": b"",
        "detail": b"",
        "ended-ms": 0,
    }
    if work is None:
        return fields
    fields["attempt"] = int(attempt_of(work.run))
    fields["of"] = int(work.terms.attempts)
    if work.run_state == LIVE:
        fields["worker"] = work.worker
    fields["progress"] = work.progress
    last = work.last
    if last is not None:
        fields["cause"] = last.cause
        fields["reason"] = last.reason
        fields["detail"] = detail_of(n, job, last)
    if work.run == 0:  # a task whose run is over, after a restart (T48.2)
        fields["attempt"] = int(max(work.failed, 0 if last is None else last.attempt))
    if work.is_dead and fields["state"] == b"dead":
        fields["cause"] = work.dead_cause
        fields["ended-ms"] = int(work.dead_ms)
    elif work.is_cancelled:
        fields["cause"] = fields["detail"] = b""  # of a failure before
        fields["reason"] = work.cancel_reason
    return fields


def detail_of(n: Node, job: Job, last: Failure) -> bytes:
    """The detail of the last failure; a task that is dead carries it itself (T48.2)."""
    return policy_of(n).detail_of(n, job) if isinstance(job, Task) else last.detail


# ---- The body of a job, and its attempts (SPEC W18)


def more_of(n: Node, id: bytes, asked: i64) -> MoreAt | None:
    """[W18] What else RESULT was asked for, of a job that this node knows or that another one has
    said it of (W18.6); None: nothing else, or nobody knows it.
    """
    if asked == 0:
        return None
    mine = own_more(n, id, asked)
    asking = n.life.asking.get(id)
    if mine is not None or asking is None:
        return mine
    more = asking.more
    return more if isinstance(more, MoreAt) else None


def own_more(n: Node, id: bytes, asked: i64) -> MoreAt | None:
    """The same by what this node has; None if it does not know the job."""
    kept = n.life.known(id)
    job = n.jobs.get(id)
    made: MoreAt
    if kept is None or is_elsewhere(n, id):
        if job is None or job.flags & BODYLESS:
            return None
        work = n.life.by_id.get(id)
        made = MoreAt(job.queue, int(job.ctime_ns // 1_000_000), b"", None, [])
        if work is not None:
            made.headers = work.headers
        if job.state != ACKED:
            made.body = job.body
        made.attempts = shown(attempts_in_work(work))
    else:
        made = MoreAt(kept.queue, int(kept.added_ms), kept.headers, kept.body, [])
        made.attempts = shown(attempts_in_outcome(kept, is_agreed(n, id)))
    if asked & WITH_BODY == 0:
        made.headers, made.body = b"", None
    if asked & WITH_ATTEMPTS == 0:
        made.attempts = []
    return made


def attempts_in_work(work: Life | None) -> list[Attempt]:
    """Those that are over, and the one that lasts."""
    if work is None:
        return []
    found = attempts_of(work.attempts)
    if work.run_state == LIVE:
        found.append(Attempt(work.run, work.since_ms, 0, b"running", work.worker))
    return found


def attempts_in_outcome(kept: Outcome, is_agreed: bool) -> list[Attempt]:
    """Those that failed, and the one that ended the job, if others know of the end (W14.4)."""
    if kept.kind == CANCELLED or kept.run == 0 or kept.added_ms == 0:
        return attempts_of(kept.attempts)
    last = Attempt(kept.run, kept.began_ms, 0, b"running", kept.worker)
    found: list[Attempt] = []
    for one in attempts_of(kept.attempts):
        if one.run != kept.run:
            found.append(one)
        elif last.began_ms == 0:  # it had failed before it was done after all
            last.began_ms, last.worker = one.began_ms, one.worker
    if is_agreed:
        last.state = OUTCOME_NAMES[kept.kind]
        last.ended_ms = kept.ended_ms
    found.append(last)
    return found


def shown(attempts: list[Attempt]) -> list[AttemptAt]:
    """The attempts as a message has them."""
    return [
        AttemptAt(
            int(one.run),
            int(one.began_ms),
            int(one.ended_ms),
            one.state,
            one.worker,
            one.reason,
            one.detail,
        )
        for one in attempts
    ]
