"""One job: its fields, its four states and the arrows between them; what ADDJOB asks (SPEC G, R1).

A Job names its queue, its holders and its client by value or number and never
refers to a Node, Queue or client object: native instances are acyclic, so that
the cyclic garbage collector can stay off in the server.
"""

from typing import Final, final

from mypy_extensions import i16, i32, i64, mypyc_attr, u8

from tuque.core.model.errors import DELAY_BEYOND_TTL, DELAY_FOR_EVER, FEW_ATTEMPTS, Refusal
from tuque.core.model.work import NEVER_S, Terms

WAIT_REPL: Final = 0
ACTIVE: Final = 1
QUEUED: Final = 2
ACKED: Final = 3

STATE_NAMES: Final = [b"wait-repl", b"active", b"queued", b"acked"]

#                     to: WAIT ACTV QUEU ACKD
LEGAL: Final = bytes([0, 1, 0, 1,    # from wait-repl: R3.4 enough copies; A1.2 acked early
                      0, 0, 1, 1,    # from active:    G3.3 its time came, NACK; A1.2 ack
                      0, 1, 0, 1,    # from queued:    V4.1 delivered, G4.2 dequeue; A1.2 ack
                      0, 0, 0, 0])  # acked is final  # fmt: skip

# flags: facts about this copy of the job
ANNOUNCE_QUEUED: Final = 1  # announce the next enqueue to the other holders
ANNOUNCE_WILL: Final = 2  # announce it shortly before to the other holders
DELIVERED: Final = 4  # delivered at least once: at-most-once jobs stop here (V4.3)
ONCE_QUEUED: Final = 8  # was in the queue before: the next enqueue is an additional delivery (G3.5)
IN_TRANSIT: Final = 16  # at most once, in transit to another node: not to be delivered (F2.3)
EXTERNAL: Final = 32  # copies are made elsewhere; this record only waits for them (R6)
BODYLESS: Final = 64  # only the ack is known here, not the job (A3.4)
LEASED: Final = 128  # active in a batch whose lease lives (Y2); its due time is 0

# how a job left its batch: `Job.why`, and in the journal as the mark -1 less that (Y3.8)
NACKED: Final = 1
EXPIRED_OUT: Final = 2
DEAD: Final = 3
ENDED: Final = 4
CANCELLED_OUT: Final = 5
WHY_MAX: Final = 5
WHY_BITS: Final = 7  # of `Job.why`

# what the job counts as, in the other bits of `Job.why`; see core/model/stats.py
AS_DELAYED: Final = 8
AS_AT_WORK: Final = 16
AS_BITS: Final = 24
AS_TASK: Final = 32  # its tube counts it

# marks: what this process knows of an open job; not recorded in the journal
HELD: Final = 1  # active, and waits for replies of its other holders (Q11)
WAS_QUEUED: Final = 2  # held, and was queued before the restart
STALE: Final = 4  # its due time is from the journal: ask the other holders first (Q11)
OUT_HERE: Final = 8  # a worker of this node, or with WORKING here, has it until its due time
OUT_THERE: Final = 16  # a worker of another node has it until its due time
QUEUED_THERE: Final = 32  # another node has it queued until its due time (E1.6)
ASKED_ALL: Final = 64  # held, and nodes that are no holders are asked as well (Q11.9)
LET_GO: Final = 128  # dequeued for another node that said it has the job queued (F4.2)

UNTOLD: Final = 128  # of an acked job: another holder has to write the event (E1.13)
RUN_UNTOLD: Final = 64  # and that of the run in the outcome, which DONE named
TRIES: Final = 63  # of an acked job: bits of the number of collection attempts (A6)

# ranks: how close a node is to delivering the job; the greater one serves it (Q12)
STAND_DUE: Final = 1  # held, and due
STAND_NEXT: Final = 2  # held, and was queued, or its delay ends here
STAND_QUEUED: Final = 3

# levels: PRI of a job in a queue; a lower one goes first (G3.2)
LEVEL: Final = 5  # of a job that came without
LEVEL_MAX: Final = 9

COPIES_MAX: Final = 0x7FFF  # far above what a cluster can have

LAST_NS: Final = (1 << 63) - 2  # the last instant in ns that a message can have (B2.2)

WILL_MS: Final = 500  # the other holders are asked this long before the due time (Q1)

# What a job of the given body costs the process, in bytes (M1). Measured with one
# million queued jobs (bench/memory.py): the object, its id, its share of the job
# table, the ready list and a timer slot.
JOB_BYTES: Final = 290
BODY_OVERHEAD: Final = 33


@mypyc_attr(acyclic=True)
class Job:
    """A unit of work. Instants are ms on the node's clock; level and `ctime_ns` order the queue.

    A task of a tube is one, too (core/model/task.py).

    Small fields stand together: compiled, the object then fits into 144 bytes.
    """

    id: bytes  # 40 bytes, see core/model/job_id.py
    queue: bytes
    body: bytes
    state: u8
    flags: u8
    marks: u8  # see above; of an acked job: UNTOLD, RUN_UNTOLD and TRIES
    why: u8  # why it left its leased batch (Y3.8); what it counts as: see above
    repl: i16  # copies asked for
    level: u8  # see above
    retry_s: i32  # 0: at most once
    delay_s: i32
    nacks: i32
    deliveries: i32  # additional deliveries, as Disque counts them
    delivered_count: i32  # times delivered to a client by this node
    slot_pos: i32  # place in its timer slot, see core/model/timers.py
    slot: i32  # timer slot, -1 when no timer is set
    place: i32  # in the node's table, see core/node/tables.py
    ctime_ns: i64
    expire_ms: i64
    qtime_ms: i64  # when it is queued next; 0: never
    first_ms: i64  # first delivery, 0: none yet
    last_ms: i64  # latest delivery
    holders: i64  # bit set of node slots that may have a copy; bit 0 is this node
    confirmed: i64  # nodes that confirmed; of a held job: those that have replied (Q11)

    def __init__(
        self,
        id: bytes,
        queue: bytes,
        body: bytes,
        ctime_ns: i64,
        expire_ms: i64,
        retry_s: i32,
        delay_s: i32,
        repl: i32,
    ) -> None:
        self.id = id
        self.queue = queue
        self.body = body
        self.state = ACTIVE
        self.flags = 0
        self.repl = i16(repl if repl < COPIES_MAX else COPIES_MAX)
        self.level = LEVEL
        self.retry_s = retry_s
        self.delay_s = delay_s
        self.nacks = 0
        self.deliveries = 0
        self.delivered_count = 0
        self.why = 0
        self.marks = 0
        self.slot_pos = 0
        self.slot = -1
        self.place = -1
        self.ctime_ns = ctime_ns
        self.expire_ms = expire_ms
        self.qtime_ms = 0
        self.first_ms = 0
        self.last_ms = 0
        self.holders = 1
        self.confirmed = 1


def set_state(job: Job, to: i64) -> None:
    """Change the job's state; an illegal transition is a bug of the caller."""
    assert LEGAL[i64(job.state) * 4 + to], "illegal state change"
    job.state = u8(to)


def step_of(level: i64) -> i64:
    """The level counted from LEVEL on: 0 for most jobs, up to LEVEL_MAX."""
    return (level - LEVEL) % (LEVEL_MAX + 1)


def level_of_step(step: i64) -> i64:
    """The level that is so many steps from LEVEL."""
    return (step + LEVEL) % (LEVEL_MAX + 1)


def moved_ns(at_ns: i64, jump_ms: i64) -> i64:
    """An instant in ns after a clock jump, kept within 64 bits."""
    moved: int = int(at_ns) + int(jump_ms) * 1_000_000
    return min(max(moved, 0), LAST_NS)


def stand_of(job: Job) -> i64:
    """[Q12] How close this node is to delivering the job; 0: it will not."""
    if job.state == QUEUED:
        return STAND_QUEUED
    if job.state != ACTIVE or job.marks & HELD == 0:
        return 0
    if job.marks & WAS_QUEUED or job.flags & ONCE_QUEUED == 0:
        return STAND_NEXT  # the other holders are due a retry time after this node
    return STAND_DUE


def awake_ms(job: Job) -> i64:
    """When the job's timer fires next: its expiry, its due time (G7.1) or A6."""
    at_ms = job.qtime_ms
    if at_ms == 0 or job.state == QUEUED or job.state == WAIT_REPL:
        return job.expire_ms
    if job.state == ACTIVE:
        if job.marks & HELD:
            return job.expire_ms
        if job.flags & ANNOUNCE_WILL:
            at_ms -= WILL_MS
    return at_ms if at_ms < job.expire_ms else job.expire_ms


def job_bytes(job: Job) -> i64:
    """Bytes that the process spends on this job, within 15 % (M1)."""
    body: i64 = len(job.body) + BODY_OVERHEAD
    rounded: i64 = (body + 15) >> 4 << 4
    return JOB_BYTES + rounded


# ---- What an ADDJOB asks for, before and after its defaults (SPEC R1), and an UPDATEJOB (W10)


class AddSpec:
    """What an ADDJOB asks for; -1 where the client left the default."""

    def __init__(self) -> None:
        self.replicate: i64 = -1
        self.delay_s: i64 = 0
        self.retry_s: i64 = -1
        self.ttl_s: i64 = -1
        self.ttl_ms: i64 = 0  # exactly; ttl_s is rounded up
        self.maxlen: i64 = 0
        self.is_async = False
        self.key = b""  # DEDUPE; empty: none
        self.with_id = False  # the reply is its id (Z1.6)
        self.with_new = False  # the reply says whether the job is new (Z4.7)
        self.delay_ms: i64 = 0
        self.terms: Terms | None = None  # of its work (W1)
        self.headers = b""
        self.pri: i64 = 0
        self.has_pri = False
        # of tubes only
        self.utube = b""
        self.has_utube = False
        self.keys = b""  # packed, of a tube of type tasks (T40)
        self.rejects_same = False  # UNIQUE ... ON reject (T44.5)
        self.replaces_same = False  # UNIQUE ... ON replace (T44.7)
        self.has_met = False  # the reply is the task that has the unique key (T44.4)
        # as the client said, before defaults
        self.asked_replicate: i64 = -1
        self.asked_retry_s: i64 = -1
        self.asked_ttl_s: i64 = -1
        self.key_ttl_ms: i64 = 86_400_000


PLAIN: Final = AddSpec()  # no options given
DELAY_MAX_S: Final = 0x7FFFFFFF


@final
class Update:
    """What an UPDATEJOB asks for; -1 and None leave a field as it is."""

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.delay_ms: i64 = -1
        self.ttl_ms: i64 = -1
        self.attempts: i64 = -1
        self.headers: bytes | None = None
        self.pri: i64 = -1  # of a task

    def is_only_pri(self) -> bool:
        """Whether it is what any task of a tube can be asked for (T1.10)."""
        if self.body is not None or self.headers is not None or self.pri < 0:
            return False
        return self.delay_ms < 0 and self.ttl_ms < 0 and self.attempts < 0

    def refusal(self, failed: i64, left_ms: i64) -> Refusal | None:
        """Why these numbers cannot be (W10.2), of one that has failed so often and expires then."""
        if 0 <= self.attempts <= failed:
            return Refusal(FEW_ATTEMPTS, (int(failed),))
        if self.delay_ms > 0:
            if self.ttl_ms >= 0:
                left_ms = self.ttl_ms
            if self.delay_ms >= left_ms:
                is_longest = self.ttl_ms == NEVER_S * 1000
                return Refusal(DELAY_FOR_EVER if is_longest else DELAY_BEYOND_TTL)  # R1.4
        return None

    def first_delay_s(self, ctime_ns: i64, now_ms: i64) -> i32:
        """The first delay in seconds of what was made then, if it ends so long from now (W10.4).

        Rounded up as ADDJOB does it; rounded down if it is over.
        """
        passed_ms = max(now_ms - ctime_ns // 1_000_000, 0)
        rounding: i64 = 999 if self.delay_ms > 0 else 0
        return i32(min((passed_ms + self.delay_ms + rounding) // 1000, DELAY_MAX_S))
