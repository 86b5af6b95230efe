"""LEASE FETCH: rows of a batch, one by one or as columns (SPEC Y3).

Reading only counts reads of a part and renews the lease. A column is built with one join or
one buffer: readers use it as it is.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from tuque.core.leases.expiry import reclaim, renew
from tuque.core.leases.leases import no_batch
from tuque.core.model.errors import NOPART, Refusal
from tuque.core.model.job import WHY_MAX, Job
from tuque.core.model.stats import why_of
from tuque.core.node.node import Node
from tuque.core.tables.leases import POSITIONS_OF_UNIT, Batch, Group, is_leased

# by `Job.why`
WHYS: Final = [b"elsewhere", b"nacked", b"expired", b"dead", b"ended", b"cancelled"]
BODIES_MAX: Final = (1 << 31) - 1  # an offset is an i32


@final
class Rows:
    """The result of one FETCH."""

    def __init__(self) -> None:
        self.attempts: i64 = 0
        self.total: i64 = 0  # positions of the part
        self.next: i64 = 0  # next position to read
        self.gone: i64 = 0
        self.jobs: list[Job] = []
        self.error: Refusal | None = None


def on_fetch(
    n: Node,
    client: i64,
    g: Group,
    seq: i64,
    part: i64,
    start: i64,
    count: i64,
    body_bytes: i64,
    is_columns: bool,
) -> Rows:
    """[Y3] ON COMMAND LEASE FETCH: up to `count` jobs of the part from position `start`.

    With `is_columns` jobs that left are skipped and counted, else they are rows.
    """
    rows = Rows()
    b = g.batches.get(seq)
    if b is None:
        rows.error = no_batch(g, seq)  # Y3.2
        return rows
    if part >= b.parts:
        rows.error = Refusal(NOPART, (seq, g.name, b.parts - 1, part))
        return rows
    if b.is_expired:
        reclaim(n, client, g, b)  # Y7.6
    renew(n, g)
    if start == 0:
        b.reads[part] += 1  # Y3.3
    rows.attempts = b.attempts()
    first: i64 = part * b.count // b.parts  # Y3.1
    end: i64 = (part + 1) * b.count // b.parts
    rows.total = end - first
    find_rows(b, first + min(start, rows.total), end, count, body_bytes, is_columns, rows)
    n.work += rows.gone // POSITIONS_OF_UNIT
    rows.next -= first
    return rows


def find_rows(
    b: Batch, at: i64, end: i64, count: i64, body_bytes: i64, is_columns: bool, rows: Rows
) -> None:
    """Jobs from position `at` on, within the limits, but at least one (Y3.4)."""
    jobs = b.jobs
    found = rows.jobs
    size: i64 = 0
    taken: i64 = 0
    most: i64 = min(body_bytes, BODIES_MAX)
    while at < end and taken < count:
        job = jobs[at]
        if is_leased(job):
            size += len(job.body)
            if taken > 0 and size > most:
                break
        elif is_columns:
            rows.gone += 1  # Y3.6
            at += 1
            continue
        found.append(job)
        taken += 1
        at += 1
    rows.next = at


def on_gone(
    n: Node, client: i64, g: Group, seq: i64, part: i64
) -> tuple[list[int], Refusal | None]:
    """[Y3] ON COMMAND LEASE GONE: how many jobs left the part, by WHYS (Y3.8)."""
    counts = [0] * (WHY_MAX + 1)
    b = g.batches.get(seq)
    if b is None:
        return counts, no_batch(g, seq)
    if part >= b.parts:
        return counts, Refusal(NOPART, (seq, g.name, b.parts - 1, part))
    if b.is_expired:
        reclaim(n, client, g, b)
    renew(n, g)
    at: i64 = part * b.count // b.parts
    end: i64 = (part + 1) * b.count // b.parts
    n.work += (end - at) // POSITIONS_OF_UNIT
    while at < end:
        job = b.jobs[at]
        if not is_leased(job):
            counts[why_of(job)] += 1
        at += 1
    return counts, None


def plain_rows(jobs: list[Job]) -> list[object]:
    """[Y3] Row by row: a job that left is its id and a null (Y3.5)."""
    rows: list[object] = []
    for job in jobs:
        if not is_leased(job):
            rows.append([job.id, None])
            continue
        rows.append(
            [
                job.id,
                job.queue,
                job.body,
                int(enqueued_ms(job)),
                int(job.expire_ms),
                int(job.delivered_count),
                int(job.nacks),
                int(job.level),
            ]
        )
    return rows


def enqueued_ms(job: Job) -> i64:
    """When the job was first due in its queue, in ms."""
    return job.ctime_ns // 1_000_000 + i64(job.delay_s) * 1000


def columns(jobs: list[Job]) -> list[object]:
    """[Y3] ids, queues, queue index, body ends, bodies, enqueued, expires, deliveries, nacks,
    priority: little-endian numbers without gaps (Y3.6)."""
    ids: list[bytes] = []
    bodies: list[bytes] = []
    queues: list[object] = []
    numbers: dict[bytes, i64] = {}
    index = BytesWriter()
    ends = BytesWriter()
    enqueued = BytesWriter()
    expires = BytesWriter()
    deliveries = BytesWriter()
    nacks = BytesWriter()
    priority = BytesWriter()
    end: i64 = 0
    name = b""
    number: i64 = -1
    for job in jobs:
        ids.append(job.id)
        bodies.append(job.body)
        end += len(job.body)
        write_i32_le(ends, i32(end))
        if number < 0 or job.queue is not name:
            name = job.queue
            number = numbers.get(name, -1)
            if number < 0:
                number = len(queues)
                numbers[name] = number
                queues.append(name)
        write_i32_le(index, i32(number))
        write_i64_le(enqueued, enqueued_ms(job))
        write_i64_le(expires, job.expire_ms)
        write_i32_le(deliveries, job.delivered_count)
        write_i32_le(nacks, job.nacks)
        write_i32_le(priority, i32(job.level))
    return [
        b"".join(ids),
        queues,
        index.getvalue(),
        ends.getvalue(),
        b"".join(bodies),
        enqueued.getvalue(),
        expires.getvalue(),
        deliveries.getvalue(),
        nacks.getvalue(),
        priority.getvalue(),
    ]
