"""What happened to the jobs of one node, as bounded columns (SPEC E).

One call per event appends a few values to the open `Chunk`. Full chunks wait in
`full` for the shell, which turns them into segments (server/eventlog.py). When the
shell falls behind and every chunk is in use, events are dropped and counted; their
numbers stay unused, so that a reader of the segments sees the gap.

Knows nothing of files, threads or clocks. Values that only some events have live in
their own, shorter columns: the n-th value belongs to the n-th event of those kinds.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.job import Job

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
]

# why a job went back into its queue without a NACK; the index into REQUEUE_CAUSES
REQUEUE_TIMEOUT: Final = 0  # its retry time passed
REQUEUE_COMMAND: Final = 1  # ENQUEUE
REQUEUE_OF_LEASE: Final = 2  # its lease expired, was released or fenced off

REQUEUE_CAUSES: Final = [b"timeout", b"command", b"lease"]

# why a job was deleted: the causes of core/ledger.py, in its order
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

CHUNK_ROWS: Final = 4096
REASON_BYTES: Final = 512  # a longer reason is cut


@final
class Chunk:
    """Up to `CHUNK_ROWS` events in order, numbered from `first_seq` without a gap."""

    def __init__(self, first_seq: i64) -> None:
        self.first_seq: i64 = first_seq
        self.rows: i64 = 0
        # one value per event
        self.ts_ms: list[int] = []
        self.kinds: list[int] = []
        self.queues: list[bytes] = []
        self.job_ids: list[bytes] = []
        self.delivery: list[int] = []
        # one value per `delivered`
        self.consumer: list[int] = []
        # one value per `added`, `acked`, `expired`, `dead`, `deleted`
        self.size: list[int] = []
        self.delay_ms: list[int] = []
        # one value per `added`
        self.ttl_ms: list[int] = []
        self.retry_ms: list[int] = []
        # one value per `nacked`, `requeued`, `dead`, `deleted`
        self.reason: list[bytes] = []
        # one value per `acked`, `expired`, `dead`, `deleted`; instants in ms, 0 = never
        self.enqueued_ms: list[int] = []
        self.first_ms: list[int] = []
        self.last_ms: list[int] = []
        self.deliveries: list[int] = []
        self.nacks: list[int] = []
        self.timeouts: list[int] = []

    def extend(self, after: "Chunk") -> None:
        """Append the events of the chunk that follows this one."""
        assert after.first_seq == self.first_seq + self.rows
        self.rows += after.rows
        self.ts_ms.extend(after.ts_ms)
        self.kinds.extend(after.kinds)
        self.queues.extend(after.queues)
        self.job_ids.extend(after.job_ids)
        self.delivery.extend(after.delivery)
        self.consumer.extend(after.consumer)
        self.size.extend(after.size)
        self.delay_ms.extend(after.delay_ms)
        self.ttl_ms.extend(after.ttl_ms)
        self.retry_ms.extend(after.retry_ms)
        self.reason.extend(after.reason)
        self.enqueued_ms.extend(after.enqueued_ms)
        self.first_ms.extend(after.first_ms)
        self.last_ms.extend(after.last_ms)
        self.deliveries.extend(after.deliveries)
        self.nacks.extend(after.nacks)
        self.timeouts.extend(after.timeouts)


@final
class Events:
    """The history of one node between the core and the shell.

    `seq` is the number the next event gets; it counts every event offered, also the
    dropped ones. Holds at most `buffer_rows` events, counting the chunks in `full`
    and the `lent_chunks` the shell has taken and not yet written.
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
        c.size.append(len(job.body))
        c.delay_ms.append(int(job.delay_s) * 1000)
        c.ttl_ms.append(job.expire_ms - job.ctime_ns // 1_000_000)
        c.retry_ms.append(int(job.retry_s) * 1000)

    def delivered(self, now_ms: i64, job: Job, consumer: i64) -> None:
        """The job was handed to a client; its counters already include this delivery."""
        c = self._row(DELIVERED, now_ms, job)
        if c is not None:
            c.consumer.append(consumer)

    def acked(self, now_ms: i64, job: Job) -> None:
        """The job is done."""
        c = self._row(ACKED, now_ms, job)
        if c is not None:
            _stamps(c, job)

    def nacked(self, now_ms: i64, job: Job, reason: bytes = b"") -> None:
        """A client gave the job back; no `requeued` follows for the same return."""
        c = self._row(NACKED, now_ms, job)
        if c is not None:
            c.reason.append(reason if len(reason) <= REASON_BYTES else reason[:REASON_BYTES])

    def requeued(self, now_ms: i64, job: Job, cause: i64) -> None:
        """The job went back into its queue; `cause` is one of REQUEUE_*."""
        c = self._row(REQUEUED, now_ms, job)
        if c is not None:
            c.reason.append(REQUEUE_CAUSES[cause])

    def expired(self, now_ms: i64, job: Job) -> None:
        """The job's time to live ended before it was acknowledged."""
        c = self._row(EXPIRED, now_ms, job)
        if c is not None:
            _stamps(c, job)

    def dead(self, now_ms: i64, job: Job, reason: bytes) -> None:
        """The job was given up: its body lives on in a dead-letter queue under a new id."""
        c = self._row(DEAD, now_ms, job)
        if c is not None:
            c.reason.append(reason if len(reason) <= REASON_BYTES else reason[:REASON_BYTES])
            _stamps(c, job)

    def deleted(self, now_ms: i64, job: Job, cause: i64) -> None:
        """The job left unfinished; `cause` is one of core/ledger.py's."""
        c = self._row(DELETED, now_ms, job)
        if c is not None:
            c.reason.append(DELETE_CAUSES[cause])
            _stamps(c, job)

    # what the shell calls

    def started(self, now_ms: i64) -> None:
        """The node began to write events."""
        self._mark(STARTED, now_ms)

    def stopped(self, now_ms: i64) -> None:
        """The node stops writing events; its absence tells an unclean stop."""
        self._mark(STOPPED, now_ms)

    def cut(self) -> None:
        """Close the open chunk so that the shell gets its events now."""
        if self.open.rows > 0 and self._has_room():
            self.full.append(self.open)
            self.open = Chunk(self.seq)

    def take(self) -> list[Chunk]:
        """The full chunks, oldest first; the shell gives each back with `wrote`."""
        chunks = self.full
        self.full = []
        self.lent_chunks += len(chunks)
        return chunks

    def wrote(self, chunks: i64) -> None:
        """That many taken chunks are written (or given up) and free their room."""
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
        """Whether one more chunk may be in use beside the open one."""
        return self.lent_chunks + len(self.full) + 1 < self.chunks_max

    def _writable(self) -> Chunk | None:
        """The chunk the next event goes into; None: all are in use, the event is lost."""
        chunk = self.open
        if chunk.rows < self.chunk_rows and chunk.first_seq + chunk.rows == self.seq:
            return chunk
        if chunk.rows > 0:
            if not self._has_room():
                return None
            self.full.append(chunk)
        self.open = Chunk(self.seq)
        return self.open

    def _row(self, kind: i64, now_ms: i64, job: Job) -> Chunk | None:
        """Number the event and fill the columns all kinds share."""
        c = self._writable()
        self.seq += 1
        if c is None:
            self.dropped += 1
            return None
        c.rows += 1
        c.ts_ms.append(now_ms)
        c.kinds.append(kind)
        c.queues.append(job.queue)
        c.job_ids.append(job.id)
        c.delivery.append(job.delivered_count)
        return c

    def _mark(self, kind: i64, now_ms: i64) -> None:
        """An event about the node itself: it has no job."""
        c = self._writable()
        self.seq += 1
        if c is None:
            self.dropped += 1
            return
        c.rows += 1
        c.ts_ms.append(now_ms)
        c.kinds.append(kind)
        c.queues.append(b"")
        c.job_ids.append(b"")
        c.delivery.append(0)


def _stamps(c: Chunk, job: Job) -> None:
    """The life of a job that ends, so that one event tells it all."""
    c.size.append(len(job.body))
    c.delay_ms.append(int(job.delay_s) * 1000)
    c.enqueued_ms.append(job.ctime_ns // 1_000_000 + int(job.delay_s) * 1000)
    c.first_ms.append(job.first_ms)
    c.last_ms.append(job.last_ms)
    c.deliveries.append(job.delivered_count)
    c.nacks.append(job.nacks)
    c.timeouts.append(job.deliveries)
