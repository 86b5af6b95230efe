"""The history of one node's jobs, as bounded columns (SPEC E).

Each event appends a few raw values to the open `Chunk`. Full chunks wait in `full` for the
shell, which writes them unchanged (server/events/events.py). If the shell falls behind and
every chunk is in use, events are dropped and counted; their numbers stay unused, so that a
reader of the segments sees the gap.

Knows nothing of files, threads or clocks. Values that only some events have are in shorter
columns of their own: the n-th value belongs to the n-th event of those kinds.
"""

from typing import Final, final

from librt.strings import (
    BytesWriter,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i32, i64, u8

from tuque.core.model.job import Job

# kinds of event: the index into KIND_NAMES is what the `kinds` column holds
ADDED: Final = 0
DELIVERED: Final = 1
ACKED: Final = 2
NACKED: Final = 3
REQUEUED: Final = 4
EXPIRED: Final = 5
DEAD: Final = 6
DELETED: Final = 7
STARTED: Final = 8
STOPPED: Final = 9
RUN_STARTED: Final = 10  # of runs (SPEC W), beside those above
RUN_RELEASED: Final = 11
RUN_FAILED: Final = 12
RUN_CRASHED: Final = 13
RUN_TIMED_OUT: Final = 14
RUN_DONE: Final = 15
CANCELLED: Final = 16  # an end, as ACKED
REPLAYED: Final = 17
HOME_CHANGED: Final = 18  # of a tube, not of a job
GROUP_CREATED: Final = 19  # of groups of jobs, which are no jobs; in the order of their states
GROUP_DONE: Final = 20
GROUP_FAILED: Final = 21
GROUP_CANCELLED: Final = 22
GROUP_CALLED: Final = 23
SCHEDULE_FIRED: Final = 24  # of a schedule, which is no job
SCHEDULE_LATE: Final = 25
WITHOUT_JOB: Final = [
    STARTED,
    STOPPED,
    HOME_CHANGED,
    GROUP_CREATED,
    GROUP_DONE,
    GROUP_FAILED,
    GROUP_CANCELLED,
    GROUP_CALLED,
    SCHEDULE_FIRED,
    SCHEDULE_LATE,
]

KIND_NAMES: Final = [
    "added",
    "delivered",
    "acked",
    "nacked",
    "requeued",
    "expired",
    "dead",
    "deleted",
    "started",
    "stopped",
    "run-started",
    "run-released",
    "run-failed",
    "run-crashed",
    "run-timed-out",
    "run-done",
    "cancelled",
    "replayed",
    "home-changed",
    "group-created",
    "group-done",
    "group-failed",
    "group-cancelled",
    "group-called",
    "schedule-fired",
    "schedule-late",
]

# why a job was requeued without a NACK; index into REQUEUE_CAUSES
REQUEUE_TIMEOUT: Final = 0  # its retry time passed
REQUEUE_COMMAND: Final = 1  # ENQUEUE
REQUEUE_OF_LEASE: Final = 2  # its lease expired, was released or fenced off

REQUEUE_CAUSES: Final = [b"timeout", b"command", b"lease"]

# why a job was deleted: the causes of core/model/stats.py, in its order
DELETE_CAUSES: Final = [
    b"created",
    b"imported",
    b"replicated",
    b"loaded",
    b"gc_acked",
    b"expired",
    b"moved",
    b"admin_deleted",
    b"evicted",
    b"add_failed",
]

# The columns of a chunk in write order.
COLUMN_NAMES: Final = (
    "ts",
    "kinds",
    "queue_lens",
    "queues",
    "delivery",
    "ids",
    "consumer",
    "size",
    "delay",
    "ttl",
    "retry",
    "reason_lens",
    "reasons",
    "enqueued",
    "first",
    "last",
    "deliveries",
    "nacks",
    "timeouts",
)

ID_BYTES: Final = 40
ALL: Final = (1 << 62) - 1  # as a journal record: everything durable
UNSETTLED: Final = -1  # filled in this turn, whose last record is not known yet
CHUNK_ROWS: Final = 4096
REASON_BYTES: Final = 512  # longer reasons are cut
EPOCH_MOST: Final = (1 << 31) - 1  # a column of i32 has it


@final
class Chunk:
    """Up to `CHUNK_ROWS` events in order, numbered from `first_seq` without gaps.

    Columns are raw little-endian bytes, so that an event costs no Python object. Names and
    reasons have two columns each, lengths and bytes. `wait_seq` is the journal record that must be
    durable before anybody may read these events (E3.1).
    """

    def __init__(self, first_seq: i64) -> None:
        self.first_seq: i64 = first_seq
        self.rows: i64 = 0
        self.wait_seq: i64 = 0
        # one value per event
        self.ts_raw = BytesWriter()  # i64
        self.kinds_raw = BytesWriter()  # u8
        self.queue_lens = BytesWriter()  # i32: length of the name
        self.queues_raw = BytesWriter()
        self.delivery_raw = BytesWriter()  # i32
        # 40 bytes per event about a job
        self.ids_raw = BytesWriter()
        # one value per `delivered`
        self.consumer_raw = BytesWriter()  # i64
        # one value per `added`, `acked`, `expired`, `dead`, `deleted`, `cancelled`
        self.size_raw = BytesWriter()  # i32
        self.delay_raw = BytesWriter()  # i64
        # ttl and retry, both i64, per `added`
        self.ttl_raw = BytesWriter()
        self.retry_raw = BytesWriter()
        # one value per `nacked`, `requeued`, `dead`, `deleted`, and event of a run, tube or group
        self.reason_lens = BytesWriter()  # i32: length
        self.reason_raw = BytesWriter()
        # one value per end: `acked`, `expired`, `dead`, `deleted`, `cancelled`; instants i64 ms,
        # 0 = never
        self.enqueued_raw = BytesWriter()
        self.first_raw = BytesWriter()
        self.last_raw = BytesWriter()
        self.deliveries_raw = BytesWriter()  # i32, as the next two
        self.nacks_raw = BytesWriter()
        self.timeouts_raw = BytesWriter()

    def columns(self) -> list[bytes]:
        """The columns in the order of COLUMN_NAMES."""
        return [
            self.ts_raw.getvalue(),
            self.kinds_raw.getvalue(),
            self.queue_lens.getvalue(),
            self.queues_raw.getvalue(),
            self.delivery_raw.getvalue(),
            self.ids_raw.getvalue(),
            self.consumer_raw.getvalue(),
            self.size_raw.getvalue(),
            self.delay_raw.getvalue(),
            self.ttl_raw.getvalue(),
            self.retry_raw.getvalue(),
            self.reason_lens.getvalue(),
            self.reason_raw.getvalue(),
            self.enqueued_raw.getvalue(),
            self.first_raw.getvalue(),
            self.last_raw.getvalue(),
            self.deliveries_raw.getvalue(),
            self.nacks_raw.getvalue(),
            self.timeouts_raw.getvalue(),
        ]


@final
class Events:
    """The history of one node between the core and the shell.

    `seq` is the number of the next event; dropped events count too. Holds at most `buffer_rows`
    events, including the chunks in `full` and the `lent_chunks` that the shell has taken and not
    yet written.
    """

    def __init__(self, buffer_rows: i64, first_seq: i64, chunk_rows: i64 = CHUNK_ROWS) -> None:
        assert buffer_rows >= 2
        assert chunk_rows > 0
        half = buffer_rows // 2  # one chunk fills while another is written
        self.chunk_rows: i64 = chunk_rows if chunk_rows < half else half
        self.chunks_max: i64 = buffer_rows // self.chunk_rows
        self.seq: i64 = first_seq
        self.dropped: i64 = 0
        self.lent_chunks: i64 = 0
        self.full: list[Chunk] = []
        self.open: Chunk = Chunk(first_seq)

    # what the core calls, at the moment of change

    def added(self, now_ms: i64, job: Job) -> None:
        """The job entered this node from a client."""
        c = self._row(ADDED, now_ms, job)
        if c is None:
            return
        write_i32_le(c.size_raw, i32(len(job.body)))
        write_i64_le(c.delay_raw, i64(job.delay_s) * 1000)
        write_i64_le(c.ttl_raw, job.expire_ms - job.ctime_ns // 1_000_000)
        write_i64_le(c.retry_raw, i64(job.retry_s) * 1000)

    def delivered(self, now_ms: i64, job: Job, consumer: i64) -> None:
        """The job was delivered to a client; its counters include this delivery."""
        c = self._row(DELIVERED, now_ms, job)
        if c is not None:
            write_i64_le(c.consumer_raw, consumer)

    # `returned`: how often FAIL, RELEASE or silence of a run put the job back (E1.11)

    def acked(self, now_ms: i64, job: Job, returned: i64 = 0) -> None:
        """The job is done."""
        c = self._row(ACKED, now_ms, job)
        if c is not None:
            _stamps(c, job, returned)

    def nacked(self, now_ms: i64, job: Job, reason: bytes = b"") -> None:
        """A client returned the job; no `requeued` follows for it."""
        c = self._row(NACKED, now_ms, job)
        if c is not None:
            _put_reason(c, reason)

    def requeued(self, now_ms: i64, job: Job, cause: i64) -> None:
        """The job went back into its queue; `cause` is one of REQUEUE_*."""
        c = self._row(REQUEUED, now_ms, job)
        if c is not None:
            _put_reason(c, REQUEUE_CAUSES[cause])

    def expired(self, now_ms: i64, job: Job, returned: i64 = 0) -> None:
        """The job's time to live ended before it was acknowledged."""
        c = self._row(EXPIRED, now_ms, job)
        if c is not None:
            _stamps(c, job, returned)

    def dead(self, now_ms: i64, job: Job, reason: bytes, returned: i64 = 0) -> None:
        """The job was given up: its body continues in a dead-letter queue under a new id."""
        c = self._row(DEAD, now_ms, job)
        if c is not None:
            _put_reason(c, reason)
            _stamps(c, job, returned)

    def deleted(self, now_ms: i64, job: Job, cause: i64, returned: i64 = 0) -> None:
        """The job was removed unfinished; `cause` as in core/model/stats.py."""
        c = self._row(DELETED, now_ms, job)
        if c is not None:
            _put_reason(c, DELETE_CAUSES[cause])
            _stamps(c, job, returned)

    def cancelled(self, now_ms: i64, job: Job, reason: bytes, returned: i64 = 0) -> None:
        """The job ended because it was cancelled."""
        c = self._row(CANCELLED, now_ms, job)
        if c is not None:
            _put_reason(c, reason)
            _stamps(c, job, returned)

    def run(self, now_ms: i64, job: Job, kind: i64, attempt: i64, text: bytes) -> None:
        """A run of the job began or ended; `kind` is RUN_STARTED or a later one (E1.7)."""
        c = self._row(kind, now_ms, job, attempt)
        if c is not None:
            _put_reason(c, text)

    def home_changed(self, now_ms: i64, tube: bytes, epoch: i64, reason: bytes) -> None:
        """This node became the leader of the tube under that epoch (E1.8)."""
        c = self._mark(HOME_CHANGED, now_ms, tube, epoch if epoch < EPOCH_MOST else EPOCH_MOST)
        if c is not None:
            _put_reason(c, reason)

    def of_group(self, now_ms: i64, kind: i64, tube: bytes, children: i64, text: bytes) -> None:
        """A group of jobs began or ended; `kind` is GROUP_CREATED or a later one (E1.9)."""
        c = self._mark(kind, now_ms, tube, children)
        if c is not None:
            _put_reason(c, text)

    def of_schedule(self, now_ms: i64, kind: i64, tube: bytes, count: i64, name: bytes) -> None:
        """A schedule makes a job, or instants were missed: for the `count`-th time (E1.10)."""
        c = self._mark(kind, now_ms, tube, count if count < EPOCH_MOST else EPOCH_MOST)
        if c is not None:
            _put_reason(c, name)

    # what the shell calls

    def started(self, now_ms: i64) -> None:
        """The node began to write events."""
        self._mark(STARTED, now_ms)

    def stopped(self, now_ms: i64) -> None:
        """The node stops writing events; if this is missing, the stop was unclean."""
        self._mark(STOPPED, now_ms)

    def cut(self) -> None:
        """Close the open chunk so that the shell gets its events now."""
        if self.open.rows > 0 and self._has_room():
            self.full.append(self.open)
            self.open = Chunk(self.seq)

    def hold(self, seq: i64) -> None:
        """[E3.1] Hold the turn's events until that journal record is durable."""
        self.open.wait_seq = seq
        i: i64 = len(self.full) - 1
        while i >= 0 and self.full[i].wait_seq == UNSETTLED:
            self.full[i].wait_seq = seq
            i -= 1

    def is_ready(self, durable_seq: i64) -> bool:
        """Whether `take` returns anything."""
        return len(self.full) > 0 and self.full[0].wait_seq <= durable_seq

    def take(self, durable_seq: i64 = ALL) -> list[Chunk]:
        """The full chunks, oldest first; the shell returns each with `wrote`."""
        count: i64 = 0
        while count < len(self.full) and self.full[count].wait_seq <= durable_seq:
            count += 1
        chunks = self.full[:count]
        self.full = self.full[count:]
        self.lent_chunks += count
        return chunks

    def wrote(self, chunks: i64) -> None:
        """That many taken chunks are written or given up: free their room."""
        self.lent_chunks -= chunks
        assert self.lent_chunks >= 0

    def pending_rows(self) -> i64:
        """Events in memory that the shell has not taken."""
        rows: i64 = self.open.rows
        for chunk in self.full:
            rows += chunk.rows
        return rows

    # inside

    def _has_room(self) -> bool:
        """Whether one more chunk can be used besides the open one."""
        return self.lent_chunks + len(self.full) + 1 < self.chunks_max

    def _writable(self) -> Chunk | None:
        """The chunk for the next event; None: all are in use, the event is lost."""
        chunk = self.open
        if chunk.rows < self.chunk_rows and chunk.first_seq + chunk.rows == self.seq:
            return chunk
        if chunk.rows > 0:
            if not self._has_room():
                return None
            chunk.wait_seq = UNSETTLED
            self.full.append(chunk)
        self.open = Chunk(self.seq)
        return self.open

    def _row(self, kind: i64, now_ms: i64, job: Job, delivery: i64 = -1) -> Chunk | None:
        """Number the event and fill the columns that all kinds share.

        `delivery` -1: the number of deliveries so far.
        """
        c = self._writable()
        self.seq += 1
        if c is None:
            self.dropped += 1
            return None
        c.rows += 1
        write_i64_le(c.ts_raw, now_ms)
        c.kinds_raw.append(u8(kind))
        write_i32_le(c.queue_lens, i32(len(job.queue)))
        c.queues_raw.write(job.queue)
        c.ids_raw.write(job.id)
        write_i32_le(c.delivery_raw, job.delivered_count if delivery < 0 else i32(delivery))
        return c

    def _mark(self, kind: i64, now_ms: i64, queue: bytes = b"", delivery: i64 = 0) -> Chunk | None:
        """An event about the node itself or a tube, without a job."""
        c = self._writable()
        self.seq += 1
        if c is None:
            self.dropped += 1
            return None
        c.rows += 1
        write_i64_le(c.ts_raw, now_ms)
        c.kinds_raw.append(u8(kind))
        write_i32_le(c.queue_lens, i32(len(queue)))
        c.queues_raw.write(queue)
        write_i32_le(c.delivery_raw, i32(delivery))
        return c


def _stamps(c: Chunk, job: Job, returned: i64) -> None:
    """The history of an ending job, so that one event has all of it."""
    delay_ms: i64 = i64(job.delay_s) * 1000
    write_i32_le(c.size_raw, i32(len(job.body)))
    write_i64_le(c.delay_raw, delay_ms)
    write_i64_le(c.enqueued_raw, job.ctime_ns // 1_000_000 + delay_ms)
    write_i64_le(c.first_raw, job.first_ms)
    write_i64_le(c.last_raw, job.last_ms)
    write_i32_le(c.deliveries_raw, job.delivered_count)
    write_i32_le(c.nacks_raw, job.nacks + i32(returned))
    write_i32_le(c.timeouts_raw, job.deliveries)


def _put_reason(c: Chunk, reason: bytes) -> None:
    """The reason, cut to REASON_BYTES."""
    if len(reason) > REASON_BYTES:
        reason = reason[:REASON_BYTES]
    write_i32_le(c.reason_lens, i32(len(reason)))
    c.reason_raw.write(reason)
