"""One task of a tube: a job with a number, a place in its tube and a session that has it (SPEC T).

A Task is in the job table under its job id, in the timer wheel, the ledger and the memory
account like any job; its tube's policy decides what may be done with it
(core/node/queue.py). It names tube and session by value: native instances are acyclic.
"""

from typing import Final, final

from mypy_extensions import i32, i64, mypyc_attr, u8

from tuque.core.model.job import ACKED, ACTIVE, AS_TASK, LEVEL, QUEUED, Job, moved_ns

# statuses: the byte that clients see
READY: Final = 114  # r
TAKEN: Final = 116  # t
DELAYED: Final = 126  # ~
BURIED: Final = 33  # !
DONE: Final = 45  # - only in replies

STATUS_NAMES: Final = {
    READY: b"READY",
    TAKEN: b"TAKEN",
    DELAYED: b"DELAYED",
    BURIED: b"BURIED",
    DONE: b"DONE",
}

# Every transition between statuses and its cause (T4); 0: not in the tube. The docs show it.
TRANSITIONS: Final = [
    (0, b"put", READY),
    (0, b"put with delay", DELAYED),
    (READY, b"take", TAKEN),
    (READY, b"UPDATEJOB DELAY", DELAYED),
    (READY, b"bury", BURIED),
    (READY, b"delete, ttl", DONE),
    (TAKEN, b"ack, delete", DONE),
    (TAKEN, b"release, ttr, session end", READY),
    (TAKEN, b"release with delay", DELAYED),
    (TAKEN, b"bury", BURIED),
    (DELAYED, b"delay over, UPDATEJOB DELAY 0", READY),
    (DELAYED, b"bury", BURIED),
    (DELAYED, b"delete", DONE),
    (BURIED, b"kick", READY),
    (BURIED, b"delete, ttl", DONE),
]

# kind of body, for replies
BYTES: Final = 0
TEXT: Final = 1
MSGPACK: Final = 2  # one MessagePack value

MAX_MS: Final = 3_153_600_000_000  # 100 years: longer means forever
TTL_MAX_MS: Final = 2 * MAX_MS  # the longest ttl of a task that was replayed
FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed

# What a task costs beyond its job, its fields and its places in the tables of its tube (M1),
# measured as in core/model/job.py.
TASK_BYTES: Final = 165


@mypyc_attr(acyclic=True)
class Entry:
    """What a task of type `tasks` carries; tubes/entries/ has a class for each kind.

    Journal, snapshot and messages have its bytes. They are packed when one of these asks.
    """

    def __init__(self) -> None:
        self.image = b""  # its bytes, while somebody will ask for them again; empty: to be packed

    def packed(self, taken_ms: i64) -> bytes:
        """Its bytes; `taken_ms`: when its task was taken."""
        return self.image

    def keep_image(self, taken_ms: i64) -> bytes:
        """The same, kept until `drop_image`: both journal and messages will ask."""
        self.image = self.packed(taken_ms)
        return self.image

    def drop_image(self) -> None:
        """Nobody will ask soon, or it has changed."""
        self.image = b""


@final
@mypyc_attr(acyclic=True)
class Task(Job):
    """A job of a tube. Instants and times are ms on the node's clock."""

    number: i64  # its id in the tube
    status: u8
    form: u8
    pri: i64  # smaller goes first
    subqueue: bytes  # of a utube. While the journal is read, the bytes of an entry, too
    entry: Entry | None  # of a tube of type `tasks`; None: a job without keys and work
    ttl_ms: i64
    ttr_ms: i64
    created_ms: i64
    dead_ms: i64  # expiry; FAR: none
    token: i64  # of the current or last take
    owner: i64  # session holding it; 0: none, taken with GETJOB
    taken_ms: i64

    def __init__(
        self, id: bytes, queue: bytes, body: bytes, ctime_ns: i64, number: i64, pri: i64, form: i64
    ) -> None:
        # sets Job's fields itself: calling its __init__ makes a task cost a tenth more
        self.id = id
        self.queue = queue
        self.body = body
        self.state = ACTIVE
        self.flags = 0
        self.repl = 1
        self.level = LEVEL
        self.retry_s = 1
        self.delay_s = 0
        self.nacks = 0
        self.deliveries = 0
        self.delivered_count = 0
        self.why = AS_TASK
        self.marks = 0
        self.slot_pos = 0
        self.slot = -1
        self.place = -1
        self.ctime_ns = ctime_ns
        self.expire_ms = 0
        self.qtime_ms = 0
        self.first_ms = 0
        self.last_ms = 0
        self.holders = 1
        self.confirmed = 1
        self.number = number
        self.status = 0
        self.form = u8(form)
        self.pri = pri
        self.subqueue = b""
        self.entry = None
        self.ttl_ms = MAX_MS
        self.ttr_ms = MAX_MS
        self.created_ms = 0
        self.dead_ms = FAR
        self.token = 0
        self.owner = 0
        self.taken_ms = 0


def with_pri(task: Task, pri: i64) -> Task:
    """A new record of the task with another pri; orders take the pri of a record for unchangeable.

    It is in no table and no order.
    """
    fresh = Task(task.id, task.queue, task.body, task.ctime_ns, task.number, pri, i64(task.form))
    fresh.state = task.state
    fresh.flags = task.flags
    fresh.repl = task.repl
    fresh.retry_s = task.retry_s
    fresh.delay_s = task.delay_s
    fresh.nacks = task.nacks
    fresh.deliveries = task.deliveries
    fresh.delivered_count = task.delivered_count
    fresh.why = task.why
    fresh.marks = task.marks
    fresh.expire_ms = task.expire_ms
    fresh.qtime_ms = task.qtime_ms
    fresh.first_ms = task.first_ms
    fresh.last_ms = task.last_ms
    fresh.holders = task.holders
    fresh.confirmed = task.confirmed
    fresh.status = task.status
    fresh.subqueue = task.subqueue
    fresh.entry = task.entry
    fresh.ttl_ms = task.ttl_ms
    fresh.ttr_ms = task.ttr_ms
    fresh.created_ms = task.created_ms
    fresh.dead_ms = task.dead_ms
    fresh.token = task.token
    fresh.owner = task.owner
    fresh.taken_ms = task.taken_ms
    return fresh


def carried_by(task: Task) -> bytes:
    """What records and copies of the task have of it: its sub-queue, or the bytes of its entry."""
    entry = task.entry
    return task.subqueue if entry is None else entry.packed(task.taken_ms)


def state_of(status: i64) -> i64:
    """The job state for a task status."""
    if status == READY:
        return QUEUED
    if status == DONE:
        return ACKED
    return ACTIVE


def arrow_table() -> bytes:
    """Which transitions are legal, by old status * 128 + new."""
    table = bytearray(128 * 128)
    for old, _, new in TRANSITIONS:
        table[old * 128 + new] = 1
    return bytes(table)


ARROWS: Final = arrow_table()


def is_arrow(old: i64, new: i64) -> bool:
    """Whether the transition between the two statuses is legal (T4)."""
    return ARROWS[old * 128 + new] != 0


def whole_s(ms: i64) -> i32:
    """Seconds, rounded up and limited to the width of a job's fields."""
    if ms >= 0x7FFFFFFF * 1000:
        return 0x7FFFFFFF  # most tasks: for ever
    return i32((ms + 999) // 1000)


def retry_of(ttr_ms: i64, default_s: i64) -> i32:
    """[T1] The retry time in s of a task that no session holds; `default_s`: without ttr (T1.3)."""
    return whole_s(default_s * 1000 if ttr_ms >= MAX_MS else max(ttr_ms, 1))


def shift_task(task: Task, jump_ms: i64) -> None:
    """The clock jumped between two starts: move all instants (J5.8)."""
    task.ctime_ns = moved_ns(task.ctime_ns, jump_ms)
    task.created_ms += jump_ms
    if task.dead_ms != FAR:
        task.dead_ms += jump_ms
    if task.taken_ms != 0:
        task.taken_ms += jump_ms
    task.expire_ms += jump_ms
    if task.qtime_ms != 0:
        task.qtime_ms += jump_ms
    if task.first_ms != 0:
        task.first_ms += jump_ms
        task.last_ms += jump_ms
