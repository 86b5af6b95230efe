"""Journal records of the lives of jobs and of kept outcomes (SPEC W13, J2).

They follow the rules of core/outbox/records.py: absolute, each complete in itself. A `word` is
its length i32; the bytes of all words of a row follow that row. Layout, after length and kind:

    LIFE     id 40, bits u8, state of the run u8, attempts i32, jitter i32, failed i32, starts i32,
             unstarted i32, first_ms i64, max_ms i64, keep_ms i64, limit_ms i64, replays i64,
             run i64, since_ms i64, expire_ms i64, ttl_ms i64, dead_ms i64, serial i64, edit i64,
             words: dead queue, headers, worker, cancel reason, progress, cause of death, origin;
             the first and the last failure, each if its bit is set: at_ms i64, attempt i32,
             words: worker, cause, reason, detail
    OUTCOME  id 40, kind u8, bits u8, attempts i32, until_ms i64, ended_ms i64, run i64,
             words: worker, progress, reason, and if its bit is set the place of a task: number i64,
             tube (T48.6); then the result, if its bit is set. With until_ms 0 it drops the outcome;
             with ended_ms 0 it is what DONE said of a job that is not here

Writes bytes only; core/outbox/records.py has the kinds and counts the records.
"""

from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from tuque.core.model.life import Failure, Life, Outcome

# bits of a LIFE
RESTING: Final = 1
CANCELLED_BIT: Final = 2
DEAD_BIT: Final = 4
HAS_FIRST: Final = 8
HAS_LAST: Final = 16
ALL_BITS: Final = 31

# bits of an OUTCOME
HAS_RESULT: Final = 1
BRIEF: Final = 2
OF_TASK: Final = 4
OUTCOME_BITS: Final = 7

LIFE_FIXED: Final = 158  # id to the first word
LIFE_WORDS: Final = 7
FAILURE_FIXED: Final = 12
FAILURE_WORDS: Final = 4
OUTCOME_FIXED: Final = 70
OUTCOME_WORDS: Final = 3
PLACE_FIXED: Final = 8


def put_life(w: BytesWriter, kind: i64, id: bytes, life: Life) -> None:
    """All of a life except the connection that its run last spoke on."""
    terms = life.terms
    first, last = life.first, life.last
    words = [
        terms.dead,
        life.headers,
        life.worker,
        life.cancel_reason,
        life.progress,
        life.dead_cause,
        life.origin,
    ]
    bits: i64 = 0
    size: i64 = 1 + LIFE_FIXED + words_size(words)
    if first is not None:
        bits |= HAS_FIRST
        size += failure_size(first)
    if last is not None:
        bits |= HAS_LAST
        size += failure_size(last)
    if life.is_resting:
        bits |= RESTING
    if life.is_cancelled:
        bits |= CANCELLED_BIT
    if life.is_dead:
        bits |= DEAD_BIT
    write_i32_le(w, i32(size))
    w.append(kind)
    w.write(id)
    w.append(bits)
    w.append(life.run_state)
    for small in (terms.attempts, terms.jitter, life.failed, life.starts, life.unstarted):
        write_i32_le(w, i32(small))
    for large in (terms.first_ms, terms.max_ms, terms.keep_ms, terms.limit_ms, life.replays):
        write_i64_le(w, large)
    for instant in (life.run, life.since_ms, life.expire_ms, life.ttl_ms, life.dead_ms):
        write_i64_le(w, instant)
    write_i64_le(w, life.serial)
    write_i64_le(w, life.edit)
    put_words(w, words)
    if first is not None:
        put_failure(w, first)
    if last is not None:
        put_failure(w, last)


def put_failure(w: BytesWriter, failure: Failure) -> None:
    """One failed attempt."""
    write_i64_le(w, failure.at_ms)
    write_i32_le(w, i32(failure.attempt))
    put_words(w, failure_words(failure))


def failure_words(failure: Failure) -> list[bytes]:
    """The words of a failure, in their order."""
    return [failure.worker, failure.cause, failure.reason, failure.detail]


def failure_size(failure: Failure) -> i64:
    """Bytes of a failure."""
    return FAILURE_FIXED + words_size(failure_words(failure))


def put_outcome(w: BytesWriter, kind: i64, outcome: Outcome) -> None:
    """All of an outcome but its result, which the caller writes after it."""
    words = [outcome.worker, outcome.progress, outcome.reason]
    result = outcome.result
    bits: i64 = (0 if result is None else HAS_RESULT) | (BRIEF if outcome.is_brief else 0)
    if outcome.is_of_task():
        bits |= OF_TASK
        words.append(put_place(outcome.number, outcome.queue))
    size: i64 = 1 + OUTCOME_FIXED + words_size(words)
    if result is not None:
        size += len(result)
    write_i32_le(w, i32(size))
    w.append(kind)
    w.write(outcome.id)
    w.append(outcome.kind)
    w.append(u8(bits))
    write_i32_le(w, i32(outcome.of))
    write_i64_le(w, outcome.until_ms)
    write_i64_le(w, outcome.ended_ms)
    write_i64_le(w, outcome.run)
    put_words(w, words)


def put_place(number: i64, tube: bytes) -> bytes:
    """The place of a task that ended, in bytes."""
    w = BytesWriter()
    write_i64_le(w, number)
    w.write(tube)
    return w.getvalue()


def read_place(outcome: Outcome, place: bytes) -> bool:
    """Read the place of a task into its outcome. False if it is none."""
    if len(place) <= PLACE_FIXED:
        return False
    outcome.number = read_i64_le(place, 0)
    outcome.queue = place[PLACE_FIXED:]
    return outcome.number >= 0


def words_size(words: list[bytes]) -> i64:
    """Bytes of a row of words."""
    size: i64 = 0
    for word in words:
        size += 4 + len(word)
    return size


def put_words(w: BytesWriter, words: list[bytes]) -> None:
    """The lengths, then the words."""
    for word in words:
        write_i32_le(w, i32(len(word)))
    for word in words:
        w.write(word)
