"""What each event does to the work of a job, wherever the job is kept (SPEC W2 to W12).

The holders of a plain job keep it, or the leader of a tube: each placement (core/node/queue.py)
asks these rules, moves the job, and saves its work. A rule changes the work alone; it gets the
instant, chance and all limits as arguments.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.attempts import BRIEF_REASON_MAX, Attempt, with_attempt
from tuque.core.model.errors import (
    ATWORK,
    CANCELLED_JOB,
    DEAD_LETTER,
    DELIVERED_OUT,
    FAILED_RUN,
    MANY_STARTS,
    NAMELESS,
    NO_RUN_YET,
    NOTDELIVERED,
    OVER_RUN,
    OVER_TIME,
    RESTING,
    STALE_RUN,
    Refusal,
)
from tuque.core.model.work import (
    FAILED,
    LIVE,
    NO_RUN,
    RELEASED,
    STARTS_MAX,
    TIMED_OUT,
    Failure,
    Life,
    attempt_of,
    run_text,
)

# ---- The states of an open job, and what commands do in each (SPEC W, States and events)

SCHEDULED: Final = 0  # its first delay lasts
WAITING: Final = 1
DELIVERED: Final = 2
RUNNING: Final = 3
BACK_OFF: Final = 4
DEAD: Final = 5
STATE_NAMES: Final = [b"scheduled", b"waiting", b"delivered", b"running", b"back-off", b"dead"]

# what START and UPDATEJOB are refused with in each state; 0: they are not
# fmt: off
STARTED: Final = [NOTDELIVERED, 0, 0,             ATWORK, RESTING, DEAD_LETTER]
CHANGED: Final = [0,            0, DELIVERED_OUT, ATWORK, 0,       DEAD_LETTER]
# fmt: on

# what became of a job whose run failed
BACK: Final = 0  # it waits, or is queued
DIED: Final = 1  # it is a dead letter
ENDED: Final = 2  # as cancelled
GONE: Final = 3  # it expired


def state_of(work: Life | None, place: i64) -> i64:
    """The state; `place` is where its placement has the job: SCHEDULED, WAITING, DELIVERED, or
    BACK_OFF of a job without a run.
    """
    if work is None:
        return place
    if work.is_dead:
        return DEAD
    if work.run_state == LIVE:
        return RUNNING
    return BACK_OFF if work.is_resting else place


def refusal(code: i64, work: Life | None, queue: bytes, out_ms: i64, now_ms: i64) -> Refusal | None:
    """The refusal of that code; 0: none. `queue` has the job, which was delivered at `out_ms`."""
    if code == ATWORK and work is not None:
        return Refusal(code, (work.worker, int((now_ms - work.since_ms) // 1000)))
    if code == DELIVERED_OUT:
        return Refusal(code, (int((now_ms - out_ms) // 1000),))
    if code == DEAD_LETTER:
        return Refusal(code, (queue,))
    return Refusal(code) if code > 0 else None


# ---- A run begins, lasts and is over (SPEC W2 to W4)


def may_begin(
    work: Life | None, place: i64, queue: bytes, worker: bytes, now_ms: i64
) -> Refusal | None:
    """[W2] START: why no run begins; None also for the run that this worker has (W2.2 to W2.4).

    A job that is cancelled ends then: that is up to the placement (W8.3).
    """
    if work is not None and not work.is_dead:
        is_mine = work.worker == worker
        is_live = work.run_state == LIVE
        if work.is_cancelled and (is_mine or not is_live):
            return Refusal(CANCELLED_JOB, (work.cancel_reason,))
        if is_mine and is_live:
            return None
    state = place
    if work is not None:
        is_resting = work.is_resting and place != WAITING  # else it was queued since
        if is_resting or work.is_dead or work.run_state == LIVE:
            state = state_of(work, place)
    code: i64 = STARTED[state]
    if code != 0:
        return refusal(code, work, queue, 0, now_ms)
    return Refusal(MANY_STARTS) if work is not None and work.starts >= STARTS_MAX else None


def begin(work: Life, run: i64, worker: bytes, client: i64, now_ms: i64) -> bool:
    """[W2] That run lasts from now on (W2.5). Whether the work is to be weighed again."""
    work.starts = run >> 39
    work.run = run
    work.run_state = LIVE
    work.since_ms = now_ms
    work.client = client
    work.unstarted = 0
    work.is_resting = False
    if worker == work.worker and len(work.progress) == 0:
        return False
    work.worker = worker
    work.progress = b""
    return True


def check_run(work: Life | None, run: i64, queue: bytes) -> Refusal | None:
    """[W3] Whether the run is the one at work; a `-STALE` if not (W3.1)."""
    if work is not None and run == work.run and has_timed_out(work):
        return Refusal(OVER_TIME, (seconds_text(work.terms.limit_ms),))  # W3.3
    if work is not None and work.is_dead:
        return Refusal(DEAD_LETTER, (queue,))
    if work is None or work.run == 0:
        return Refusal(NO_RUN_YET)
    if run == 0:
        return Refusal(NAMELESS if work.run_state == LIVE else NO_RUN_YET)
    if run == work.run and work.run_state == LIVE:
        return None
    if run == work.run:
        return Refusal(FAILED_RUN if work.run_state == FAILED else OVER_RUN, (run_text(run),))
    return Refusal(STALE_RUN, (run_text(run), run_text(work.run)))


def may_last(work: Life, client: i64, now_ms: i64) -> Refusal | None:
    """[W3] WORKING of the run at work: why it is to stop (W8.2, W3.3)."""
    if work.is_cancelled:
        work.client = client
        return Refusal(CANCELLED_JOB, (work.cancel_reason,))
    if is_over_time(work, now_ms):
        return Refusal(OVER_TIME, (seconds_text(work.terms.limit_ms),))
    work.client = client
    return None


def has_timed_out(work: Life) -> bool:
    """Whether the latest run failed because its TIMELIMIT was over."""
    last = work.last
    if last is None or work.run_state != FAILED or work.terms.limit_ms == 0:
        return False
    return last.cause == TIMED_OUT and last.attempt == attempt_of(work.run)


def is_over_time(work: Life, now_ms: i64) -> bool:
    """Whether the live run has lasted longer than its TIMELIMIT (W3.3)."""
    limit_ms = work.terms.limit_ms
    return limit_ms > 0 and work.since_ms + limit_ms <= now_ms


def due_by(work: Life, due_ms: i64) -> i64:
    """The instant at which a run is over: `due_ms`, or its TIMELIMIT before that (W3.3)."""
    limit_ms = work.terms.limit_ms
    if limit_ms > 0 and work.since_ms + limit_ms < due_ms:
        return work.since_ms + limit_ms
    return due_ms


def may_release(work: Life | None, run: i64) -> bool:
    """[W4] RELEASE of a job that is delivered: the run at work, or 0 of a delivery that nobody
    began (W4.1).
    """
    if work is not None and work.run_state == LIVE:
        return run == work.run
    return run == 0 and (work is None or not (work.is_dead or work.is_resting))


def end_run(work: Life, how: i64, now_ms: i64) -> bool:
    """[W4] The run at work is over: RELEASED or FAILED. False: none was at work."""
    if work.run_state != LIVE:
        return False
    work.run_state = how
    work.ended_ms = now_ms
    return True


# ---- What counts: failures, crashes, deliveries that nobody began (SPEC W5, W6)


def count_failure(work: Life, attempt: i64, is_silent: bool, crashes_max: i64) -> bool:
    """[W5] Count a run that failed; whether the job has no other one (W5.2, W5.3, W6.7)."""
    terms = work.terms
    if is_silent:
        work.crashes += 1
        return terms.attempts > 0 and 0 < crashes_max <= work.crashes
    work.failed = max(work.failed, attempt)
    return 0 < terms.attempts <= work.failed


def keep_failure(work: Life, failure: Failure) -> None:
    """[W5] It is the last failure; the first one has no detail (W5.2)."""
    if work.first is None:
        work.first = failure.without_detail()
    work.last = failure
    keep_attempt(work, failure.cause, failure.at_ms, failure.reason, failure.detail)


def keep_attempt(work: Life, state: bytes, now_ms: i64, reason: bytes, detail: bytes) -> None:
    """[W18] The newest run is over, as the state says (W18.1); without KEEP BODY in brief."""
    made = Attempt(work.run, work.since_ms, now_ms, state, work.worker, reason, detail)
    if not work.terms.keeps_body:
        made.reason, made.detail = reason[:BRIEF_REASON_MAX], b""  # W18.2
    work.attempts = with_attempt(work.attempts, made)


def crash_reason(work: Life, retry_s: i64, crashes_max: i64) -> bytes:
    """Why the run fails that now ends in silence; the last crash names the limit (W6.7)."""
    text = b"silent for %d s" % int(retry_s)
    count = int(work.crashes + 1)
    if work.terms.attempts > 0 and 0 < crashes_max <= count:
        text += b": its worker was lost %d times (crashes-max %d)" % (count, int(crashes_max))
    return text


def limit_reason(work: Life) -> bytes:
    """The reason of a run over its TIMELIMIT: the words of the worker, too (W3.3)."""
    return b"ran longer than its time limit of %s s" % seconds_text(work.terms.limit_ms)


def seconds_text(ms: i64) -> bytes:
    """Seconds with as many decimals as it takes."""
    text = b"%d.%03d" % (int(ms // 1000), int(ms % 1000))
    return text.rstrip(b"0").rstrip(b".")


def back_off_ms(work: Life, draw: i64) -> i64:
    """[W5] The wait before the next run: doubled with each failure and crash (W5.4).

    `draw`: 0 to 1000 by chance, the share of the jitter that is taken away.
    """
    terms = work.terms
    wait_ms = terms.first_ms
    step: i64 = 1
    while step < work.failed + work.crashes and wait_ms < terms.max_ms:
        wait_ms *= 2
        step += 1
    if wait_ms > terms.max_ms:
        wait_ms = terms.max_ms
    return wait_ms - wait_ms * terms.jitter // 1000 * draw // 1000


def count_unstarted(work: Life, most: i64) -> bool:
    """[W6] A delivery that nobody began is over: whether that was one too many (W6.4)."""
    work.unstarted += 1
    return 0 < most <= work.unstarted


# ---- Cancelled, dead, replayed, changed (SPEC W6, W8, W10, W12)


def flag(work: Life, reason: bytes) -> bool:
    """[W8] The job is cancelled (W8.2). False: it was already, and the first reason stays."""
    if work.is_cancelled:
        return False
    work.cancel_reason = reason
    work.is_cancelled = True
    return True


def dies_expired(work: Life) -> bool:
    """[W6] Whether the job becomes a dead letter if it expires (W6.2, T48.14)."""
    terms = work.terms
    return terms.attempts > 0 and (not terms.drops or work.failed > 0)


def die(work: Life, cause: bytes, origin: bytes, now_ms: i64) -> None:
    """[W6] The job of that queue is a dead letter (W6.5); the tables of letters mark it so."""
    work.origin = origin
    work.dead_cause = cause
    work.dead_ms = now_ms
    work.is_resting = False
    work.expire_ms = 0
    work.unstarted = 0


def death_reason(work: Life, cause: bytes) -> bytes:
    """Why it died, for events: the reason of its last failure, or the cause."""
    return cause if work.last is None or len(work.last.reason) == 0 else work.last.reason


def revive(work: Life, now_ms: i64) -> None:
    """[W12] The dead job is as new: nothing has failed; its count of STARTs stays (W12.4)."""
    work.replays += 1
    work.failed = 0
    work.crashes = 0
    work.run_state = NO_RUN if work.run == 0 else RELEASED
    work.unstarted = 0
    work.is_resting = False
    work.is_cancelled = False
    work.cancel_reason = b""
    work.dead_cause = b""
    work.dead_ms = 0
    work.origin = b""
    work.first = None
    work.last = None
    work.progress = b""
    work.packed_bytes = 0
    work.ended_ms = now_ms


def change(work: Life, headers: bytes | None, attempts: i64) -> bool:
    """[W10] UPDATEJOB: other headers, and attempts if not -1 (W10.1). Whether the terms are other
    ones, which are to be shared.
    """
    if headers is not None:
        work.headers = headers
    if attempts < 0:
        return False
    work.terms = work.terms.with_attempts(attempts)
    return True


def may_change(
    work: Life | None, place: i64, queue: bytes, out_ms: i64, now_ms: i64
) -> Refusal | None:
    """[W10] UPDATEJOB: why the job is not changed (W10.2)."""
    state = state_of(work, place)
    if work is not None and work.is_cancelled and state != DEAD and state != RUNNING:
        return Refusal(CANCELLED_JOB, (work.cancel_reason,))
    return refusal(CHANGED[state], work, queue, out_ms, now_ms)
