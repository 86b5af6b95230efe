"""Journal records of jobs, encoded at the moment of change (SPEC J2).

The core calls one function per change; each appends one record to a buffer that the shell
takes once per turn and writes as one frame. Records are absolute: replaying one twice changes
nothing. core/records/read.py decodes them. Knows nothing of files, frames or checksums
(store/frames.py).

The layouts are in core/msgs/packed.py, those of rare records in core/msgs/records.py.
"""

# Checklist for a change of a layout: raise VERSION in store/frames.py, extend
# tests/store/test_packed_records.py.

from typing import Final, final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from tuque.core.model.job import ACKED, BODYLESS, LEVEL, Job
from tuque.core.model.work import Life, Outcome
from tuque.core.msgs.packed import (
    ACK_BYTES,
    ACKED_BYTES,
    ADD_BYTES,
    FIRST_BYTES,
    HISTORY_BYTES,
    HOLDERS_BYTES,
    REMOVE_BYTES,
    STATE_BYTES,
    TOMB_BYTES,
)
from tuque.core.msgs.records import TABLE, EndRow, GapRow, PauseRow, PeerRow, Row
from tuque.core.records.work import put_life, put_outcome

ADD: Final = 1
STATE: Final = 2
FIRST: Final = 3
ACK: Final = 4
REMOVE: Final = 5
PAUSE: Final = 6
END: Final = 7
GAP: Final = 8
CLOSE: Final = 9
PEER: Final = 10
HOLDERS: Final = 11
ACKED_AT: Final = 12
TOMB: Final = 13
LEASE_GROUP: Final = 14
LEASE_BATCH: Final = 15
LEASE_DROP: Final = 16
STAGED: Final = 17
STAGE_DROP: Final = 18
PUBLISHED: Final = 19
KEY: Final = 20
APP: Final = 21
TUBE: Final = 22
TUBE_DROP: Final = 23
TASK_ADD: Final = 24
TASK_STATE: Final = 25
SESSION: Final = 26
TUBE_CFG: Final = 27
GRANT: Final = 28
TUBE_HOME: Final = 29
TUBE_HOLDER: Final = 30
LIFE: Final = 31
OUTCOME: Final = 32
VOTERS: Final = 33
TUBE_STAND: Final = 34
VOTERS_NEXT: Final = 35
TOPIC: Final = 36
VOTE_MARKS: Final = 37
TUBE_IMPLICIT: Final = 38
SOLO: Final = 39
TUBE_FAMILY: Final = 40
TOPIC_KEYS: Final = 41
QUEUE_SETTINGS: Final = 42
STAGED_WORK: Final = 43

KIND_NAMES: Final = [
    "?",
    "add",
    "state",
    "first",
    "ack",
    "remove",
    "pause",
    "end",
    "gap",
    "close",
    "peer",
    "holders",
    "acked",
    "tomb",
    "lease-group",
    "lease-batch",
    "lease-drop",
    "staged",
    "stage-drop",
    "published",
    "key",
    "app",
    "tube",
    "tube-drop",
    "task-add",
    "task-state",
    "session",
    "tube-cfg",
    "grant",
    "tube-home",
    "tube-holder",
    "life",
    "outcome",
    "voters",
    "tube-stand",
    "voters-next",
    "topic",
    "vote-marks",
    "tube-implicit",
    "solo",
    "tube-family",
    "topic-keys",
    "queue-settings",
    "staged-work",
]

HAS_HISTORY: Final = 1  # bits of a shape
HAS_HOLDERS: Final = 2
HAS_LEVEL: Final = 4

LARGE_BYTES: Final = 65_536  # a larger body is not copied into the buffer
KEEP_BYTES: Final = 1 << 20  # a buffer larger than this is given back after use


@final
class Records:
    """The records of one turn, encoded back to back; `take` empties it.

    `node_ids` and `lives` give, by slot, a node and its incarnation as a unique number (0:
    unknown). Both may grow; for a change see `rename`.
    """

    def __init__(
        self, node_ids: list[bytes] | None = None, lives: dict[int, int] | None = None
    ) -> None:
        self.writer = BytesWriter()
        self.pieces: list[bytes] = []  # written before it, for large bodies
        self.piece_bytes: i64 = 0
        self.node_ids: list[bytes] = [] if node_ids is None else node_ids
        self.lives: dict[int, int] = {} if lives is None else lives
        self.told: i64 = 1  # set of slots that have a PEER record
        self.count: i64 = 0
        # Records so far whose loss a client could notice. Not a first delivery of an
        # at-least-once job: without it the job is only delivered once more.
        self.binding_count: i64 = 0
        # An at-most-once job or a batch was delivered in this turn: the reply waits for the disk.
        self.has_custody = False
        # The core waits for its records so far to be on the disk: the shell sets `granted` to the
        # value that `wish` had when it took those records (T20.3).
        self.wish: i64 = 0
        self.granted: i64 = 0
        # The same for what the core wants to know, and nobody waits for: no sync is made for it.
        self.query: i64 = 0
        self.safe: i64 = 0
        self.is_failing = False  # the disk takes no records now: the shell says so (J6)

    def add(self, job: Job) -> None:
        """All of a new job (or, in a snapshot, of any job).

        Of an acked one without other holders, only the ack.
        """
        if job.state == ACKED and job.flags & BODYLESS:
            self.ack_unknown(job)
            return
        if job.state == ACKED and job.holders == 1:
            self.ack(job.id, job.expire_ms)
            return
        w = self.writer
        size: i64 = ADD_BYTES + len(job.queue) + len(job.body)
        shape: i64 = 0
        if job.delivered_count != 0 or job.nacks != 0 or job.deliveries != 0:
            shape = HAS_HISTORY
            size += HISTORY_BYTES
        if job.holders != 1:
            self.introduce(job.holders)
            shape |= HAS_HOLDERS
            size += 8
        if job.level != LEVEL:
            shape |= HAS_LEVEL
            size += 1
        write_i32_le(w, i32(size))
        w.append(ADD)
        w.write(job.id)
        w.append(job.state)
        w.append(job.flags)
        w.append(shape)
        write_i32_le(w, i32(job.repl))
        write_i32_le(w, job.retry_s)
        write_i32_le(w, job.delay_s)
        write_i64_le(w, job.ctime_ns)
        write_i64_le(w, job.expire_ms)
        write_i64_le(w, job.qtime_ms)
        if shape & HAS_HISTORY:
            self.history(job)
        if shape & HAS_HOLDERS:
            write_i64_le(w, job.holders)
        if shape & HAS_LEVEL:
            w.append(job.level)
        write_i32_le(w, i32(len(job.queue)))
        w.write(job.queue)
        self.body(job.body)
        self.count += 1
        self.binding_count += 1

    def introduce(self, nodes: i64) -> None:
        """Record which nodes the slots of the set are, once (J2.3)."""
        new = nodes & ~self.told
        if new == 0:
            return
        self.told |= new
        slot: i64 = 0
        while new > 0:
            if new & 1:
                self.append(PeerRow(slot, self.node_ids[slot], self.lives.get(slot, 0)))
                self.count += 1
            new >>= 1
            slot += 1

    def rename(self, slot: i64) -> None:
        """The slot now means another incarnation."""
        self.told &= ~(1 << slot)

    def state(self, job: Job) -> None:
        """All that can change in a job: delivered, queued again, NACKed, postponed."""
        w = self.writer
        is_first = (
            job.delivered_count == 1
            and job.nacks == 0
            and job.deliveries == 0
            and job.first_ms == job.last_ms
        )
        if is_first:
            write_i32_le(w, i32(FIRST_BYTES))
            w.append(FIRST)
            w.write(job.id)
            w.append(job.state)
            w.append(job.flags)
            write_i64_le(w, job.qtime_ms)
            write_i64_le(w, job.last_ms)
        else:
            write_i32_le(w, i32(STATE_BYTES + HISTORY_BYTES))
            w.append(STATE)
            w.write(job.id)
            w.append(job.state)
            w.append(job.flags)
            w.append(1)
            write_i64_le(w, job.qtime_ms)
            self.history(job)
        self.count += 1
        if job.retry_s == 0:
            self.has_custody = True
            self.binding_count += 1
        elif not is_first:
            self.binding_count += 1

    def history(self, job: Job) -> None:
        """The counters and instants of a job's deliveries."""
        w = self.writer
        write_i32_le(w, job.nacks)
        write_i32_le(w, job.deliveries)
        write_i32_le(w, job.delivered_count)
        write_i64_le(w, job.first_ms)
        write_i64_le(w, job.last_ms)

    def holders(self, job: Job) -> None:
        """The job's set of holders changed. Binds no reply."""
        self.introduce(job.holders)
        w = self.writer
        write_i32_le(w, i32(HOLDERS_BYTES))
        w.append(HOLDERS)
        w.write(job.id)
        write_i64_le(w, job.holders)
        self.count += 1

    def ack(self, job_id: bytes, expire_ms: i64) -> None:
        """The job is done; its id is refused until `expire_ms`."""
        w = self.writer
        write_i32_le(w, i32(ACK_BYTES))
        w.append(ACK)
        w.write(job_id)
        write_i64_le(w, expire_ms)
        self.count += 1
        self.binding_count += 1

    def ack_job(self, job: Job) -> None:
        """The job is done; other holders must still confirm."""
        self.introduce(job.holders)
        self.acked_at(job, job.holders)

    def ack_unknown(self, job: Job) -> None:
        """An unknown job was acked here: all nodes must confirm (A3.4)."""
        self.acked_at(job, 0)

    def acked_at(self, job: Job, holders: i64) -> None:
        """The ack, and the nodes that must still confirm; empty: all."""
        w = self.writer
        write_i32_le(w, i32(ACKED_BYTES))
        w.append(ACKED_AT)
        w.write(job.id)
        write_i64_le(w, job.expire_ms)
        write_i64_le(w, holders)
        self.count += 1
        self.binding_count += 1

    def put(self, row: Row, binds: bool = True) -> None:
        """A record of core/msgs/records.py. `binds`: replies wait for it."""
        self.append(row)
        self.count += 1
        if binds:
            self.binding_count += 1

    def append(self, row: Row) -> None:
        """The bytes of such a record."""
        kind, data = TABLE.pack(row)
        w = self.writer
        write_i32_le(w, i32(1 + len(data)))
        w.append(u8(kind))
        w.write(data)

    def life(self, id: bytes, life: Life) -> None:
        """All of a job's life (W13.1)."""
        put_life(self.writer, LIFE, id, life)
        self.count += 1
        self.binding_count += 1

    def outcome(self, outcome: Outcome) -> None:
        """How a job ended, kept for KEEP (W13.1)."""
        put_outcome(self.writer, OUTCOME, outcome)
        result, body = outcome.result, outcome.body
        if body is not None and outcome.added_ms > 0:
            self.body(body)
        if result is not None:
            self.body(result)
        self.count += 1
        self.binding_count += 1

    def tomb(self, job_id: bytes, expire_ms: i64, kind: i64) -> None:
        """Refuse the id until `expire_ms`."""
        w = self.writer
        write_i32_le(w, i32(TOMB_BYTES))
        w.append(TOMB)
        w.write(job_id)
        write_i64_le(w, expire_ms)
        w.append(kind)
        self.count += 1
        self.binding_count += 1

    def remove(self, job_id: bytes, cause: i64) -> None:
        """The job left for another cause of core/model/stats.py."""
        w = self.writer
        write_i32_le(w, i32(REMOVE_BYTES))
        w.append(REMOVE)
        w.write(job_id)
        w.append(cause)
        self.count += 1
        self.binding_count += 1

    def pause(self, queue: bytes, bits: i64, stamp_ns: i64) -> None:
        """The queue's pause is `bits` (0: not paused) since `stamp_ns` (0: unknown)."""
        self.put(PauseRow(bits, stamp_ns, queue))

    def end(self, job_count: i64, record_count: i64) -> None:
        """Ends a snapshot of that many jobs and records; it is not counted."""
        self.append(EndRow(job_count, record_count))

    def gap(self, record_count: i64, byte_count: i64) -> None:
        """Marks a place where `journal repair` removed damaged records; it is not counted."""
        self.append(GapRow(record_count, byte_count))

    def close(self) -> None:
        """The server stopped cleanly."""
        write_i32_le(self.writer, 1)
        self.writer.append(CLOSE)
        self.count += 1
        self.binding_count += 1

    def body(self, data: bytes) -> None:
        """The last part of a record; a large one is not copied."""
        if len(data) <= LARGE_BYTES:
            self.writer.write(data)
            return
        self.pieces.append(self.writer.getvalue())
        self.pieces.append(data)
        self.piece_bytes += len(self.writer) + len(data)
        self.writer.truncate(0)

    def size(self) -> i64:
        """Bytes of all records since the last `take`."""
        return self.piece_bytes + len(self.writer)

    def take(self) -> bytes:
        """All records since the last call, back to back."""
        pieces = self.take_pieces()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def take_pieces(self) -> list[bytes]:
        """The same as pieces: large bodies are not copied."""
        w = self.writer
        pieces = self.pieces
        pieces.append(w.getvalue())
        self.pieces = []
        self.piece_bytes = 0
        if len(w) > KEEP_BYTES:
            self.writer = BytesWriter()
        else:
            w.truncate(0)
        self.count = 0
        self.has_custody = False
        return pieces
