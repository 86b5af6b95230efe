"""Journal records of work and of kept outcomes, encoded and decoded (SPEC W13, J2).

Layouts and bounds are in core/msgs/packed.py. A `word` is its length i32; the bytes of all words of
a row follow that row.

Knows bytes only; core/records/jobs.py has the kinds and counts the records.
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from tuque.core.model.attempts import are_attempts
from tuque.core.model.job_id import ID_BYTES
from tuque.core.model.stats import tenant_of
from tuque.core.model.work import (
    ATTEMPTS_MAX,
    DONE,
    FAILED,
    LETTERED,
    STARTS_MAX,
    Failure,
    Life,
    Outcome,
    Terms,
    are_headers,
    attempt_of,
    starts_of,
)
from tuque.core.msgs.packed import (
    COUNT_MAX,
    FAILURE_FIXED,
    FAILURE_WORDS,
    JITTER_MAX,
    KEEP_FIXED,
    KEEP_TIMES,
    KEEP_WORDS,
    LIFE_FIXED,
    LIFE_WORDS,
    NUMBER_LAST,
    OUTCOME_BITS,
    OUTCOME_FIXED,
    OUTCOME_WORDS,
    PLACE_FIXED,
    SERIAL_AT,
    SPAN_MAX_MS,
)

# bits of a LIFE
RESTING: Final = 1
CANCELLED_BIT: Final = 2
DEAD_BIT: Final = 4
HAS_FIRST: Final = 8
HAS_LAST: Final = 16
HAS_RETURNED: Final = 32
DROPS: Final = 64
HAS_CRASHES: Final = 128

# beside the state of the run
KEEPS_BODY: Final = 4
HAS_ATTEMPTS: Final = 8

# bits of an OUTCOME
HAS_RESULT: Final = 1
BRIEF: Final = 2
OF_TASK: Final = 4
OF_KEEP: Final = 8
HAS_BODY: Final = 16

COUNT_BYTES: Final = 4  # of one that a bit announces


def put_life(w: BytesWriter, kind: i64, id: bytes, work: Life) -> None:
    """All of a life except the connection that its run last spoke on."""
    terms = work.terms
    first, last = work.first, work.last
    words = [
        terms.dead,
        work.headers,
        work.worker,
        work.cancel_reason,
        work.progress,
        work.dead_cause,
        work.origin,
    ]
    counts = [int(count) for count in (work.returned, work.crashes) if count > 0]
    bits = bits_of(work)
    size: i64 = 1 + LIFE_FIXED + words_size(words) + COUNT_BYTES * len(counts)
    if first is not None:
        size += failure_size(first)
    if last is not None:
        size += failure_size(last)
    if len(work.attempts) > 0:
        size += 4 + len(work.attempts)
    write_i32_le(w, i32(size))
    w.append(kind)
    w.write(id)
    w.append(bits)
    w.append(u8(state_bits(work)))
    for small in (terms.attempts, terms.jitter, work.failed, work.starts, work.unstarted):
        write_i32_le(w, i32(small))
    for large in (terms.first_ms, terms.max_ms, terms.keep_ms, terms.limit_ms, work.replays):
        write_i64_le(w, large)
    for instant in (work.run, work.since_ms, work.expire_ms, work.ttl_ms, work.dead_ms):
        write_i64_le(w, instant)
    write_i64_le(w, work.serial)
    write_i64_le(w, work.edit)
    put_words(w, words)
    if first is not None:
        put_failure(w, first)
    if last is not None:
        put_failure(w, last)
    for count in counts:
        write_i32_le(w, i32(count))
    if len(work.attempts) > 0:
        put_words(w, [work.attempts])


def state_bits(work: Life) -> i64:
    """The state of the run, and the bits beside it."""
    bits = work.run_state
    if work.terms.keeps_body:
        bits |= KEEPS_BODY
    return bits | HAS_ATTEMPTS if len(work.attempts) > 0 else bits


def bits_of(work: Life) -> i64:
    """The bits of a LIFE."""
    bits: i64 = 0
    if work.first is not None:
        bits |= HAS_FIRST
    if work.last is not None:
        bits |= HAS_LAST
    if work.is_resting:
        bits |= RESTING
    if work.is_cancelled:
        bits |= CANCELLED_BIT
    if work.is_dead:
        bits |= DEAD_BIT
    if work.terms.drops:
        bits |= DROPS
    if work.returned > 0:
        bits |= HAS_RETURNED
    if work.crashes > 0:
        bits |= HAS_CRASHES
    return bits


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
    """All of an outcome but its body and its result, which the caller writes after it."""
    words = [outcome.worker, outcome.progress, outcome.reason]
    result, body = outcome.result, outcome.body
    bits: i64 = (0 if result is None else HAS_RESULT) | (BRIEF if outcome.is_brief else 0)
    if outcome.is_of_task():
        bits |= OF_TASK
        words.append(put_place(outcome.number, outcome.queue))
    size: i64 = 1 + OUTCOME_FIXED + words_size(words)
    if outcome.added_ms > 0:
        bits |= OF_KEEP
        size += KEEP_FIXED + len(outcome.queue) + len(outcome.attempts) + len(outcome.headers)
        if body is not None:
            bits |= HAS_BODY
            size += len(body)
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
    if bits & OF_KEEP:
        write_i64_le(w, outcome.added_ms)
        write_i64_le(w, outcome.began_ms)
        for word in (outcome.queue, outcome.attempts, outcome.headers, body or b""):
            write_i32_le(w, i32(len(word)))
        w.write(outcome.queue)
        w.write(outcome.attempts)
        w.write(outcome.headers)


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
    return 0 <= outcome.number <= NUMBER_LAST


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


# ---- Decoding: what is out of range is refused. No length in the bytes is trusted


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
    state: i64 = data[at + 1]
    run_state = state & FAILED
    if state > FAILED | KEEPS_BODY | HAS_ATTEMPTS:
        return False
    if not r.read_words(data, at + LIFE_FIXED - ID_BYTES, end, LIFE_WORDS):
        return False
    words = r.words
    terms = decode_terms(data, at, bits & DROPS != 0, state & KEEPS_BODY != 0, words[0])
    if terms is None or not are_headers(words[1]):
        return False
    work = Life(terms, words[1])
    work.run_state = run_state
    work.is_resting = bits & RESTING != 0
    work.is_cancelled = bits & CANCELLED_BIT != 0
    work.is_dead = bits & DEAD_BIT != 0
    if not read_numbers(data, at, work):
        return False
    work.worker, work.cancel_reason, work.progress = words[2], words[3], words[4]
    work.dead_cause, work.origin = words[5], words[6]
    if bits & HAS_FIRST:
        work.first = decode_failure(data, end, r)
        if work.first is None:
            return False
    if bits & HAS_LAST:
        work.last = decode_failure(data, end, r)
        if work.last is None:
            return False
    r.life = work
    if bits & HAS_RETURNED:
        work.returned = read_count(data, end, r)
        if work.returned <= 0:
            return False
    if bits & HAS_CRASHES:
        work.crashes = read_count(data, end, r)
        if work.crashes <= 0:
            return False
    if state & HAS_ATTEMPTS:
        if not r.read_words(data, r.at, end, 1) or not are_attempts(r.words[0]):
            return False
        work.attempts = r.words[0]
    return r.at == end


def read_count(data: bytes, end: i64, r: LifeRecord) -> i64:
    """Read a count that a bit announced. 0 if there is none."""
    if end - r.at < COUNT_BYTES:
        return 0
    r.at += COUNT_BYTES
    return i64(read_i32_le(data, r.at - COUNT_BYTES))


def decode_terms(data: bytes, at: i64, drops: bool, keeps_body: bool, dead: bytes) -> Terms | None:
    """Decode the terms of a LIFE, whose bits are at `at`. None if one is out of range."""
    attempts: i64 = i64(read_i32_le(data, at + 2))
    jitter: i64 = i64(read_i32_le(data, at + 6))
    if not 0 <= attempts <= ATTEMPTS_MAX or not 0 <= jitter <= JITTER_MAX:
        return None
    spans_ms: list[i64] = [read_i64_le(data, at + 22 + 8 * i) for i in range(4)]
    for span_ms in spans_ms:
        if not 0 <= span_ms <= SPAN_MAX_MS:
            return None
    first_ms, max_ms, keep_ms, limit_ms = spans_ms
    return Terms(attempts, first_ms, max_ms, jitter, dead, keep_ms, limit_ms, drops, keeps_body)


def read_numbers(data: bytes, at: i64, work: Life) -> bool:
    """Read the other numbers of a LIFE, whose bits are at `at`. False if one is out of range."""
    work.failed = i64(read_i32_le(data, at + 10))
    work.starts = i64(read_i32_le(data, at + 14))
    work.unstarted = i64(read_i32_le(data, at + 18))
    work.replays = read_i64_le(data, at + 54)
    work.run = read_i64_le(data, at + 62)
    work.since_ms = read_i64_le(data, at + 70)
    work.expire_ms = read_i64_le(data, at + 78)
    work.ttl_ms = read_i64_le(data, at + 86)
    work.dead_ms = read_i64_le(data, at + 94)
    work.serial = read_i64_le(data, at + SERIAL_AT)
    work.edit = read_i64_le(data, at + 110)
    instants = work.since_ms | work.expire_ms | work.dead_ms
    if not 0 <= instants | work.ttl_ms | work.replays | work.serial <= NUMBER_LAST:
        return False  # the bits of all: NUMBER_LAST has only ones
    if work.unstarted < 0 or work.edit < 0:
        return False
    if not 0 <= work.failed <= ATTEMPTS_MAX or not 0 <= work.starts <= STARTS_MAX:
        return False
    return is_run(work.run)


def may_grow(work: Life) -> bool:
    """Whether the counters of a LIFE from another node may still grow here (B2.1).

    A journal has wider bounds than a message: it takes what a count has become since it came.
    """
    if work.unstarted | work.returned | work.crashes >= COUNT_MAX:
        return False
    return work.replays | work.serial | work.edit <= NUMBER_LAST >> 1


def is_run(run: i64) -> bool:
    """Whether this can be the token of a run; 0: none."""
    if run == 0:
        return True
    return 1 <= starts_of(run) <= STARTS_MAX and attempt_of(run) >= 1


def decode_failure(data: bytes, end: i64, r: LifeRecord) -> Failure | None:
    """Decode the failure that follows the last words. None if it is malformed."""
    at = r.at
    if end - at < FAILURE_FIXED:
        return None
    at_ms = read_i64_le(data, at)
    attempt: i64 = i64(read_i32_le(data, at + 8))
    if not 0 <= at_ms <= NUMBER_LAST or not 0 <= attempt <= ATTEMPTS_MAX:
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
    if bits & OF_KEEP and not decode_kept(outcome, bits & HAS_BODY != 0, data, end, r):
        return False
    if bits & HAS_RESULT:
        outcome.result = data[r.at : end]
    elif r.at != end:
        return False
    if not 0 <= outcome.until_ms | outcome.ended_ms <= NUMBER_LAST:
        return False
    if not 0 <= outcome.of <= ATTEMPTS_MAX:
        return False
    r.outcome = outcome
    return is_run(outcome.run)


def decode_kept(outcome: Outcome, has_body: bool, data: bytes, end: i64, r: LifeRecord) -> bool:
    """Decode what an OUTCOME has of its job, after its words. False if it is malformed."""
    at = r.at
    if end - at < KEEP_FIXED or not r.read_words(data, at + KEEP_TIMES, end, KEEP_WORDS):
        return False
    outcome.added_ms = read_i64_le(data, at)
    outcome.began_ms = read_i64_le(data, at + 8)
    outcome.queue, outcome.attempts, outcome.headers, body = r.words
    outcome.tenant = tenant_of(outcome.queue)
    if has_body:
        outcome.body = body
    elif len(body) > 0:
        return False
    if outcome.added_ms <= 0 or not 0 <= outcome.added_ms | outcome.began_ms <= NUMBER_LAST:
        return False
    return are_attempts(outcome.attempts) and are_headers(outcome.headers)
