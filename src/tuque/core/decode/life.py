"""Decodes journal records of lives and outcomes; what is out of range is refused (SPEC W13, J2).

The layout is core/outbox/life_records.py's. No length in the bytes is trusted.
"""

from typing import Final, final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from tuque.core.model.job_id import ID_BYTES
from tuque.core.model.life import (
    ATTEMPTS_MAX,
    DONE,
    FAILED,
    LETTERED,
    STARTS_MAX,
    Failure,
    Life,
    Outcome,
    Terms,
    attempt_of,
    starts_of,
)
from tuque.core.outbox.life_records import (
    ALL_BITS,
    BRIEF,
    CANCELLED_BIT,
    DEAD_BIT,
    FAILURE_FIXED,
    FAILURE_WORDS,
    HAS_FIRST,
    HAS_LAST,
    HAS_RESULT,
    LIFE_FIXED,
    LIFE_WORDS,
    OF_TASK,
    OUTCOME_BITS,
    OUTCOME_FIXED,
    OUTCOME_WORDS,
    RESTING,
    read_place,
)

SPAN_MAX_MS: Final = 1 << 53  # a sum of a few stays within 64 bits
JITTER_MAX: Final = 1_000


@final
class LifeRecord:
    """One decoded record. Only the field of its kind is valid; each record gets a new object."""

    def __init__(self) -> None:
        self.life: Life | None = None
        self.outcome: Outcome | None = None
        self.at: i64 = 0  # what follows the words that were read last
        self.words: list[bytes] = []

    def read_words(self, data: bytes, at: i64, end: i64, count: i64) -> bool:
        """Read a row of `count` words at `at`; False if one ends behind `end`."""
        self.words = []
        if at < 0 or end - at < 4 * count:
            return False
        start = at + 4 * count
        for _ in range(count):
            size: i64 = i64(read_i32_le(data, at))
            if size < 0 or size > end - start:
                return False
            self.words.append(data[start : start + size])
            start += size
            at += 4
        self.at = start
        return True


def decode_life(data: bytes, at: i64, end: i64, r: LifeRecord) -> bool:
    """Decode the rest of a LIFE after its id. False if it is malformed."""
    if end - at < LIFE_FIXED - ID_BYTES:
        return False
    bits: i64 = data[at]
    run_state: i64 = data[at + 1]
    if bits > ALL_BITS or run_state > FAILED:
        return False
    small: list[i64] = [i64(read_i32_le(data, at + 2 + 4 * i)) for i in range(5)]
    large: list[i64] = [read_i64_le(data, at + 22 + 8 * i) for i in range(12)]
    if not r.read_words(data, at + LIFE_FIXED - ID_BYTES, end, LIFE_WORDS):
        return False
    words = r.words
    if not are_sane(small, large) or not are_headers(words[1]):
        return False
    terms = Terms(small[0], large[0], large[1], small[1], words[0], large[2], large[3])
    life = Life(terms, words[1])
    life.run_state = run_state
    life.is_resting = bits & RESTING != 0
    life.is_cancelled = bits & CANCELLED_BIT != 0
    life.is_dead = bits & DEAD_BIT != 0
    life.failed, life.starts, life.unstarted = small[2], small[3], small[4]
    life.replays, life.run, life.since_ms = large[4], large[5], large[6]
    life.expire_ms, life.ttl_ms, life.dead_ms = large[7], large[8], large[9]
    life.serial, life.edit = large[10], large[11]
    life.worker, life.cancel_reason, life.progress = words[2], words[3], words[4]
    life.dead_cause, life.origin = words[5], words[6]
    if bits & HAS_FIRST:
        life.first = decode_failure(data, end, r)
        if life.first is None:
            return False
    if bits & HAS_LAST:
        life.last = decode_failure(data, end, r)
        if life.last is None:
            return False
    r.life = life
    return r.at == end


def are_sane(small: list[i64], large: list[i64]) -> bool:
    """Whether the numbers of a LIFE are in their ranges."""
    for number in small:
        if number < 0:
            return False
    for number in large:
        if number < 0:
            return False
    for span_ms in large[:4]:
        if span_ms > SPAN_MAX_MS:
            return False
    if small[0] > ATTEMPTS_MAX or small[1] > JITTER_MAX:
        return False
    return small[2] <= ATTEMPTS_MAX and small[3] <= STARTS_MAX and is_run(large[5])


def is_run(run: i64) -> bool:
    """Whether this can be the token of a run; 0: none."""
    if run == 0:
        return True
    return 1 <= starts_of(run) <= STARTS_MAX and attempt_of(run) >= 1


def are_headers(blob: bytes) -> bool:
    """Whether the blob is a row of pairs, whole to its end (W1.3)."""
    at: i64 = 0
    end: i64 = len(blob)
    while at < end:
        at += 1 + i64(blob[at])
        if end - at < 2:
            return False
        low: i64 = blob[at]
        high: i64 = blob[at + 1]
        at += 2 + (low | high << 8)
    return at == end


def decode_failure(data: bytes, end: i64, r: LifeRecord) -> Failure | None:
    """Decode the failure that follows the last words. None if it is malformed."""
    at = r.at
    if end - at < FAILURE_FIXED:
        return None
    at_ms = read_i64_le(data, at)
    attempt: i64 = i64(read_i32_le(data, at + 8))
    if at_ms < 0 or not 0 <= attempt <= ATTEMPTS_MAX:
        return None
    if not r.read_words(data, at + FAILURE_FIXED, end, FAILURE_WORDS):
        return None
    words = r.words
    return Failure(at_ms, attempt, words[0], words[1], words[2], words[3])


def decode_outcome(id: bytes, data: bytes, at: i64, end: i64, r: LifeRecord) -> bool:
    """Decode the rest of an OUTCOME after its id. False if it is malformed."""
    if end - at < OUTCOME_FIXED - ID_BYTES:
        return False
    kind: i64 = data[at]
    bits: i64 = data[at + 1]
    if not DONE <= kind <= LETTERED or bits > OUTCOME_BITS:
        return False
    outcome = Outcome(id, kind, read_i64_le(data, at + 6), read_i64_le(data, at + 14))
    outcome.of = i64(read_i32_le(data, at + 2))
    outcome.run = read_i64_le(data, at + 22)
    count: i64 = OUTCOME_WORDS + 1 if bits & OF_TASK else OUTCOME_WORDS
    if not r.read_words(data, at + OUTCOME_FIXED - ID_BYTES, end, count):
        return False
    words = r.words
    if bits & OF_TASK and not read_place(outcome, words[OUTCOME_WORDS]):
        return False
    outcome.worker, outcome.progress, outcome.reason = words[0], words[1], words[2]
    outcome.is_brief = bits & BRIEF != 0
    if bits & HAS_RESULT:
        outcome.result = data[r.at : end]
    elif r.at != end:
        return False
    if outcome.until_ms < 0 or outcome.ended_ms < 0 or not 0 <= outcome.of <= ATTEMPTS_MAX:
        return False
    r.outcome = outcome
    return is_run(outcome.run)
