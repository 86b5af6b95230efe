"""Two views of one job's work become one, in any order the same (SPEC W14).

Each holder of a job has a view. Tables, records and messages are up to the caller.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model.attempts import merged
from tuque.core.model.work import (
    DONE,
    EXPIRED,
    LIVE,
    UNSTARTED,
    Failure,
    Life,
    Outcome,
    is_of_life,
    starts_of,
)

STANDING: Final = (4, 0, 1, 3, 2)  # by kind: `done`, `cancelled`, `dead`, `gone`


def merge(mine: Life, theirs: Life) -> bool:
    """[W14] Their view becomes part of this one, but for death (W14.2).

    True if the job was replayed there: that life won whole, and its terms are to be shared.
    """
    mine.starts = max(mine.starts, theirs.starts)
    mine.returned = max(mine.returned, theirs.returned)
    mine.attempts = merged(mine.attempts, theirs.attempts)  # W18.3
    if theirs.replays < mine.replays:
        return False
    if theirs.replays > mine.replays:
        take_all(mine, theirs)
        return True
    if theirs.run > mine.run:
        take_run(mine, theirs)
    elif theirs.run == mine.run and theirs.run_state > mine.run_state:
        mine.run_state = theirs.run_state
    if theirs.run == mine.run and len(theirs.progress) > 0:
        mine.progress = theirs.progress
    mine.failed = max(mine.failed, theirs.failed)
    mine.crashes = max(mine.crashes, theirs.crashes)
    first, last = theirs.first, theirs.last
    if first is not None and (mine.first is None or is_before(first, mine.first)):
        mine.first = first
    if last is not None and (mine.last is None or is_before(mine.last, last)):
        mine.last = last
    if theirs.is_cancelled and not mine.is_cancelled:
        mine.is_cancelled = True
        mine.cancel_reason = theirs.cancel_reason
    mine.unstarted = max(mine.unstarted, theirs.unstarted)
    return False


def take_run(mine: Life, theirs: Life) -> None:
    """Another node has begun a later run."""
    mine.run = theirs.run
    mine.run_state = theirs.run_state
    mine.since_ms = theirs.since_ms
    mine.worker = theirs.worker
    mine.progress = theirs.progress
    mine.client = -1
    mine.is_resting = False


def take_all(mine: Life, theirs: Life) -> None:
    """The job was replayed elsewhere: that life wins whole."""
    take_run(mine, theirs)
    mine.terms = theirs.terms
    mine.headers = theirs.headers
    mine.replays = theirs.replays
    mine.failed = theirs.failed
    mine.crashes = theirs.crashes
    mine.unstarted = theirs.unstarted
    mine.is_resting = theirs.is_resting
    mine.is_cancelled = theirs.is_cancelled
    mine.cancel_reason = theirs.cancel_reason
    mine.first = theirs.first
    mine.last = theirs.last
    mine.ttl_ms = theirs.ttl_ms
    mine.expire_ms = 0


def is_before(a: Failure, b: Failure) -> bool:
    """Whether `a` is of an earlier attempt than `b`, or came first."""
    return a.attempt < b.attempt or (a.attempt == b.attempt and a.at_ms < b.at_ms)


def is_behind(theirs: Life, mine: Life, is_dead: bool) -> bool:
    """Whether the sender lacks something of what this node knows (W14.7). `is_dead`: there."""
    if theirs.replays != mine.replays:
        return theirs.replays < mine.replays
    if theirs.run < mine.run or theirs.failed < mine.failed or theirs.crashes < mine.crashes:
        return True
    return (mine.is_cancelled and not theirs.is_cancelled) or (mine.is_dead and not is_dead)


def has_news(work: Life) -> bool:
    """[W14] Whether something happened that a holder may not know (W14.10, W14.12)."""
    if work.is_dead or work.is_cancelled:
        return True
    return work.starts > 0 or work.replays > 0 or work.edit > 0


def is_urgent(work: Life) -> bool:
    """[W14] Whether the other holders are to know of a new run at once (W14.3)."""
    return work.failed + 1 == work.terms.attempts or work.crashes > 0


def believe(work: Life, run: i64, now_ms: i64) -> bool:
    """[W14] A worker names a later run than this node knows: it lasts (W14.5). False: it is none.

    The node where it began has sent nothing about it, and may have died.
    """
    if starts_of(run) <= work.starts or work.is_dead or not is_of_life(run, work):
        return False
    work.run = run
    work.run_state = LIVE
    work.starts = starts_of(run)
    work.since_ms = now_ms
    work.is_resting = False
    return True


def take_edit(mine: Life, theirs: Life) -> None:
    """[W16] A later UPDATEJOB was made there (W16.6); the terms are to be shared."""
    mine.edit = theirs.edit
    mine.terms = theirs.terms
    mine.headers = theirs.headers
    mine.ttl_ms = theirs.ttl_ms


# ---- Of two deaths and two outcomes one stands (SPEC W14.2, W14.4)


def cause_of(last: Failure | None, mine: bytes, theirs: bytes) -> bytes:
    """The cause of a death in two views: that of the last failure, if it died of one (W14.2)."""
    if last is not None:
        for cause in (mine, theirs):
            if len(cause) > 0 and cause != EXPIRED and cause != UNSTARTED:
                return last.cause
    if len(mine) == 0 or len(theirs) == 0:
        return mine if len(theirs) == 0 else theirs
    return min(mine, theirs)


def take_death(mine: Life, theirs: Life) -> None:
    """The job died there; the tables of letters mark it so."""
    mine.dead_cause = cause_of(mine.last, b"", theirs.dead_cause)
    mine.dead_ms = theirs.dead_ms
    mine.origin = theirs.origin
    mine.is_resting = False
    mine.expire_ms = 0


def end_death(mine: Life) -> None:
    """The dead letter was replayed there."""
    mine.dead_cause = b""
    mine.dead_ms = 0
    mine.origin = b""


def is_better(mine: Outcome, theirs: Outcome) -> bool:
    """[W14] Whether their outcome stands, and not the one here (W14.4)."""
    if mine.kind != theirs.kind:
        return STANDING[theirs.kind] < STANDING[mine.kind]
    if mine.kind != DONE:
        return theirs.reason < mine.reason
    if theirs.run != mine.run:
        return theirs.run < mine.run
    if mine.is_stripped() or theirs.is_stripped():
        return False  # one of them has dropped its result
    ours, other = mine.result, theirs.result
    if ours is None or other is None:
        return ours is None and other is not None
    return other < ours
