"""The work of one job: its terms, runs, failures and outcome (SPEC W).

Kept beside the job, by its id (core/tables/work.py): a plain job has none of it.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.attempts import details_bytes, merged, moved, moved_row, without_details

# states of a run; of one token the greater one holds
NO_RUN: Final = 0
LIVE: Final = 1
RELEASED: Final = 2
FAILED: Final = 3

# outcomes
OPEN: Final = 0
DONE: Final = 1
CANCELLED: Final = 2
GONE: Final = 3  # it ended as a plain job does: expired or deleted
LETTERED: Final = 4  # DEADLETTER: its body goes on under another id
OUTCOME_NAMES: Final = [b"", b"done", b"cancelled", b"gone", b"dead"]

# causes of a failure or of a dead letter
FAILED_BY_WORKER: Final = b"failed"
CRASHED: Final = b"crashed"  # silent for RETRY
TIMED_OUT: Final = b"timeout"  # over its TIMELIMIT
EXPIRED: Final = b"expired"
UNSTARTED: Final = b"unstarted"
SET_ASIDE: Final = b"buried"  # of a task of a tube, by a client (T48.8)

NEVER_S: Final = 2_147_483_647  # TTL 0: the longest there is
ATTEMPTS_MAX: Final = 65_535
STARTS_MAX: Final = (1 << 24) - 1
HASH_MASK: Final = (1 << 23) - 1
WHO_MASK: Final = (1 << 20) - 1  # of these: who runs it; the bits above are the last of REPLAYs

TERMS_BYTES: Final = 200
LIFE_BYTES: Final = 340
FAILURE_BYTES: Final = 130
OUTCOME_BYTES: Final = 340
OF_TASK_BYTES: Final = 120  # its place in the table of its tube

# parts of run tokens
DECIMALS: Final = [b"%d" % number for number in range(256)]
HEX: Final = [b"%02x" % number for number in range(256)]

# what may be dropped when memory is short (M3.4)
THIN_MIN: Final = 256  # a smaller result or detail is not worth it
BRIEF: Final = 64  # bytes of a text about work that are kept at level 3 (M2.8)
TOO_LARGE: Final = b"its result of %d bytes was dropped: too large for results-max-bytes"
NO_ROOM: Final = b"its result of %d bytes was dropped: memory was short"
CUT_DETAIL: Final = b"(dropped: memory was short)"
OVER_QUOTA: Final = b"(dropped: its tenant has as many bytes as it may)"  # N11.10


@final
@mypyc_attr(acyclic=True)
class Terms:
    """What ADDJOB said of a job's work (W1); equal jobs share one."""

    def __init__(
        self,
        attempts: i64,
        first_ms: i64,
        max_ms: i64,
        jitter: i64,
        dead: bytes,
        keep_ms: i64,
        limit_ms: i64,
        drops: bool = False,
        keeps_body: bool = False,
    ) -> None:
        self.attempts = attempts  # 0: no limit
        self.first_ms = first_ms  # the first back-off; doubles with each failure
        self.max_ms = max_ms
        self.jitter = jitter  # 0..1000: the share of the wait that chance may take away
        self.dead = dead  # queue of its dead letter; empty: <queue>.dead
        self.keep_ms = keep_ms  # how long the outcome is kept
        self.limit_ms = limit_ms  # the longest run, 0: no limit
        self.drops = drops  # ONEXPIRY drop: no dead letter if it expires (W6.2)
        self.keeps_body = keeps_body  # KEEP BODY: the outcome has it, and attempts details (W18)

    def key(self) -> tuple[int, int, int, int, bytes, int, int, bool, bool]:
        """Equal for equal terms."""
        return (
            int(self.attempts),
            int(self.first_ms),
            int(self.max_ms),
            int(self.jitter),
            self.dead,
            int(self.keep_ms),
            int(self.limit_ms),
            self.drops,
            self.keeps_body,
        )

    def copy(self) -> "Terms":
        """The same terms, for one who changes some of them."""
        return Terms(
            self.attempts,
            self.first_ms,
            self.max_ms,
            self.jitter,
            self.dead,
            self.keep_ms,
            self.limit_ms,
            self.drops,
            self.keeps_body,
        )

    def with_attempts(self, attempts: i64) -> "Terms":
        """The same terms with another limit."""
        made = self.copy()
        made.attempts = attempts
        return made


NO_TERMS: Final = Terms(0, 1_000, 300_000, 500, b"", 0, 0)


@final
@mypyc_attr(acyclic=True)
class Failure:
    """One failed attempt."""

    def __init__(
        self, at_ms: i64, attempt: i64, worker: bytes, cause: bytes, reason: bytes, detail: bytes
    ) -> None:
        self.at_ms = at_ms
        self.attempt = attempt
        self.worker = worker
        self.cause = cause
        self.reason = reason
        self.detail = detail

    def without_detail(self) -> "Failure":
        """The same without its detail, which may be long."""
        return Failure(self.at_ms, self.attempt, self.worker, self.cause, self.reason, b"")

    def size(self) -> i64:
        """Bytes of memory."""
        return FAILURE_BYTES + len(self.reason) + len(self.detail)


@final
@mypyc_attr(acyclic=True)
class Life:
    """The work on one open job."""

    def __init__(self, terms: Terms, headers: bytes) -> None:
        self.terms = terms
        self.headers = headers  # pairs: u8 length, name, u16 length, value
        self.replays: i64 = 0  # a later one wins whole
        self.failed: i64 = 0  # the highest attempt that failed
        self.crashes: i64 = 0  # runs that ended in silence: no attempts (W6.7)
        self.starts: i64 = 0
        self.run: i64 = 0  # token of the newest run, 0: none yet
        self.heard_ms: i64 = 0  # when it was heard of last, if its timer was not moved (W3.2)
        self.run_state: i64 = NO_RUN
        self.since_ms: i64 = 0  # begin of that run
        self.worker = b""  # who runs it
        self.client: i64 = -1  # the connection here that it last spoke on
        self.unstarted: i64 = 0  # deliveries in a row without START (W6.4)
        self.returned: i64 = 0  # times that FAIL, RELEASE or silence put it back (E1.11)
        self.is_resting = False  # in a back-off: nobody may begin (W2.3)
        self.is_cancelled = False
        self.cancel_reason = b""
        self.progress = b""
        self.ttl_ms: i64 = 86_400_000  # of each life (W12.4)
        self.expire_ms: i64 = 0  # the job's expiry, while a run lasts beyond it (W6.3); 0: as set
        self.first: Failure | None = None
        self.last: Failure | None = None
        self.attempts = b""  # those that are over: a row of core/model/attempts.py
        self.is_dead = False
        self.dead_ms: i64 = 0
        self.dead_cause = b""
        self.buried_as = (b"", b"")  # cause and reason, as counted
        self.origin = b""  # the queue that a dead letter came from
        self.ended_ms: i64 = 0  # when this node heard of the end of the newest run
        self.told_ms: i64 = 0  # when progress was told last
        self.serial: i64 = 0  # of the dead letter
        self.came: i64 = 0  # its number among all dead letters of the node, as they came
        self.packed_bytes: i64 = 0  # of one that is a task: what it carries (T48.2)
        self.edit: i64 = 0  # number of the last UPDATEJOB: a count, then its node's hash (W16.6)
        self.bytes: i64 = 0  # as counted
        self.tenant = b""  # that pays for them; empty: none (N11.2)
        self.fat_bytes: i64 = 0  # of these, details of a dead letter that may go (M3.4)

    def last_failure(self) -> Failure:
        """The last failure, or an empty one."""
        last = self.last
        return Failure(0, 0, b"", b"", b"", b"") if last is None else last

    def detail_bytes(self) -> i64:
        """Bytes of the details of its failures that are worth dropping."""
        size: i64 = 0
        first, last = self.first, self.last
        if first is not None and len(first.detail) > THIN_MIN:
            size += len(first.detail)
        if last is not None and len(last.detail) > THIN_MIN:
            size += len(last.detail)
        if len(self.attempts) > THIN_MIN:
            size += details_bytes(self.attempts)
        return size

    def cut_details(self) -> None:
        """Drop the details of its failures."""
        first, last = self.first, self.last
        if first is not None and len(first.detail) > THIN_MIN:
            first.detail = CUT_DETAIL
        if last is not None and len(last.detail) > THIN_MIN:
            last.detail = CUT_DETAIL
        if len(self.attempts) > THIN_MIN:
            self.attempts = without_details(self.attempts)

    def size(self) -> i64:
        """Bytes of memory, without the terms, which jobs share."""
        size: i64 = LIFE_BYTES + len(self.headers) + len(self.progress) + len(self.worker)
        size += len(self.cancel_reason) + len(self.attempts) + self.packed_bytes
        if self.first is not None:
            size += self.first.size()
        if self.last is not None and self.last is not self.first:
            size += self.last.size()
        return size


@final
class Outcome:
    """How a job ended, kept for KEEP (W7)."""

    def __init__(self, id: bytes, kind: i64, until_ms: i64, ended_ms: i64) -> None:
        self.id = id
        self.kind = kind
        self.until_ms = until_ms
        self.ended_ms = ended_ms
        self.run: i64 = 0  # the run that ended it, 0: none
        self.of: i64 = 0
        self.worker = b""
        self.progress = b""
        self.result: bytes | None = None
        self.reason = b""
        self.added_ms: i64 = 0  # when the job was added; 0: it is kept for no KEEP
        self.began_ms: i64 = 0  # when the run that ended it began, 0: not known
        self.attempts = b""  # the others: a row of core/model/attempts.py
        self.headers = b""  # with KEEP BODY
        self.body: bytes | None = None  # with KEEP BODY, until memory is short
        # of a DONE of a job that is not here: others know better (W14.6). It has no `ended_ms`
        self.is_claim = False
        self.outlives = False  # a claim: a node was forgotten that may have had the job (W14.6)
        self.is_brief = False  # it is dropped when all holders have confirmed it (W7.3)
        self.fat_bytes: i64 = 0  # of its result, body and details, as counted (M3.4)
        self.is_shared = True  # another node may have the result, too: had, if it was dropped here
        self.is_disputed = False  # another outcome of the job met it here (W14.15)
        self.is_passed = False  # of a node that leaves: it need not go to another one (K7.10)
        self.is_alone = False  # for no other node takes it
        self.tenant = b""  # whose the job was, as far as this node knows (N11.7)
        self.queue = b""  # of the job, as far as this node knows (N2.4)
        self.number: i64 = -1  # of the task in its tube, if it was one (T48.6)
        self.change: i64 = 0  # of the tube: it ended with that one; 0: before this node led

    def is_of_task(self) -> bool:
        """Whether it is of a task of a tube (T48.6)."""
        return self.number >= 0

    def strip(self, why: bytes) -> None:
        """Drop the result; the outcome stays, with the reason `why`."""
        result = self.result
        if result is not None:
            self.reason = why % len(result)
            self.result = None

    def shed(self) -> None:
        """Drop the body, and details of attempts."""
        self.body = None
        if len(self.attempts) > THIN_MIN:
            self.attempts = without_details(self.attempts)

    def body_size(self) -> i64:
        """Bytes of the body; 0: none is kept."""
        body = self.body
        return 0 if body is None else len(body)

    def fat(self) -> i64:
        """Bytes of what is worth dropping when memory is short (M3.4)."""
        size: i64 = 0
        result = self.result
        if result is not None and len(result) > THIN_MIN:
            size += len(result)
        if self.body_size() > THIN_MIN:
            size += self.body_size()
        if len(self.attempts) > THIN_MIN:
            size += details_bytes(self.attempts)
        return size

    def thin(self, why: bytes) -> None:
        """Drop what is worth it: of a result the reason `why` tells."""
        result = self.result
        if self.body_size() > THIN_MIN:
            self.body = None
        if len(self.attempts) > THIN_MIN:
            self.attempts = without_details(self.attempts)
        if result is not None and len(result) > THIN_MIN:
            self.strip(why)

    def move(self, by_ms: i64) -> None:
        """Its instants but those of its end and of KEEP are on another clock from now on."""
        self.added_ms = moved(self.added_ms, by_ms)
        self.began_ms = moved(self.began_ms, by_ms)
        self.attempts = moved_row(self.attempts, by_ms)

    def learn(self, other: "Outcome") -> None:
        """Take from another view what this one lacks of the job (W18.3)."""
        self.attempts = merged(self.attempts, other.attempts)
        if self.added_ms == 0:
            self.added_ms = other.added_ms
        if self.began_ms == 0 and self.run == other.run:
            self.began_ms = other.began_ms
        if self.body is None:
            self.headers, self.body = other.headers, other.body

    def copy(self) -> "Outcome":
        """Another one that says the same."""
        made = Outcome(self.id, self.kind, self.until_ms, self.ended_ms)
        made.run, made.of = self.run, self.of
        made.worker, made.progress = self.worker, self.progress
        made.result, made.reason = self.result, self.reason
        made.is_claim, made.is_brief = self.is_claim, self.is_brief
        made.is_shared = self.is_shared
        made.added_ms, made.began_ms, made.attempts = self.added_ms, self.began_ms, self.attempts
        made.headers, made.body = self.headers, self.body
        made.tenant, made.queue = self.tenant, self.queue
        made.number, made.change = self.number, self.change
        return made

    def is_stripped(self) -> bool:
        """Whether it had a result that was dropped: only then has a job that is done a reason and
        no result.
        """
        return self.kind == DONE and self.result is None and len(self.reason) > 0

    def size(self) -> i64:
        """Bytes of memory."""
        result = self.result
        size: i64 = OUTCOME_BYTES + len(self.progress) + len(self.reason) + len(self.worker)
        size += len(self.attempts) + len(self.headers) + self.body_size()
        if self.number >= 0:
            size += OF_TASK_BYTES
        return size if result is None else size + len(result)


ATTEMPT_BITS: Final = 0xFFFF << 23  # of a run token


def attempt_of(run: i64) -> i64:
    """The attempt of a run token."""
    return run >> 23 & 0xFFFF


def starts_of(run: i64) -> i64:
    """The count of STARTs of a run token."""
    return run >> 39


def hash_of(word: bytes, hash: i64 = 0x811C9DC5) -> i64:
    """A hash of the bytes, or of them after others with that hash."""
    for byte in word:
        hash = ((hash ^ byte) * 0x01000193) & 0xFFFFFFFF
    return hash


def run_of(attempt: i64, starts: i64, hash: i64, replays: i64 = 0) -> i64:
    """The token of a run (W1.2): ordered by STARTs, then attempt, then the hash of who runs it.

    The last bits of the count of REPLAYs are in it, too: they tell lives apart (W14.5).
    """
    who = (hash ^ hash >> 20) & WHO_MASK
    return starts << 39 | attempt << 23 | (replays & 7) << 20 | who


def is_of_life(run: i64, life: Life) -> bool:
    """Whether the run may be of this life of its job, not of one before or after a REPLAY."""
    return run >> 20 & 7 == life.replays & 7


def run_text(run: i64) -> bytes:
    """The token as clients see it; `-`: no run. Each take of a task has another one."""
    if run == 0:
        return b"-"
    return b"%s.%s.%s%s%s" % (
        decimal(attempt_of(run)),
        decimal(run >> 39),
        HEX[run >> 16 & 0x7F],
        HEX[run >> 8 & 0xFF],
        HEX[run & 0xFF],
    )


def decimal(number: i64) -> bytes:
    """The number in digits: most are small."""
    return DECIMALS[number] if number < len(DECIMALS) else b"%d" % int(number)


def run_from(word: bytes) -> i64:
    """The token in a word; 0 for `-`, -1 if it is no token."""
    if word == b"-":
        return 0
    attempt: i64 = 0
    starts: i64 = 0
    number: i64 = 0
    part: i64 = 0
    digits: i64 = 0
    for byte in word:
        value: i64 = byte
        if value == 46:  # a point
            if part == 2 or digits == 0:
                return -1
            attempt = starts
            starts = number
            number = 0
            part += 1
            digits = 0
            continue
        value = value - 48 if value < 58 else (value - 87 if value > 96 else -1)
        digits += 1
        if value < 0 or value > 15 or (part < 2 and value > 9) or digits > 8:
            return -1
        number = number * (16 if part == 2 else 10) + value
    hash = number
    if part != 2 or digits != 6 or not 1 <= attempt <= ATTEMPTS_MAX or hash > HASH_MASK:
        return -1
    return starts << 39 | attempt << 23 | hash if 1 <= starts <= STARTS_MAX else -1


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
