"""The method table, leases: batches of jobs that can be read repeatedly until committed.

A group is a name; its latest opener owns it, under an epoch. (group, epoch, seq) names a batch.
Every call may be repeated: the reply is the same.
"""

from __future__ import annotations

import msgspec

from tuque.client.api import Arg, JobId, Reply, Text, id_bytes, to_bytes, to_text
from tuque.client.commands.calls import Call, pairs


class LeaseRow(msgspec.Struct, frozen=True):
    """One place of a batch; if the job has left it, all but `id` is None or 0."""

    id: str
    queue: str | None = None
    body: bytes | None = None
    enqueued_ms: int = 0
    expires_ms: int = 0
    deliveries: int = 0
    nacks: int = 0
    priority: int = 0

    @property
    def is_gone(self) -> bool:
        """True if the job expired, was acknowledged, deleted or delivered elsewhere."""
        return self.body is None


class LeaseRows(msgspec.Struct, frozen=True):
    """Rows of one part of a batch. `next` is the position to continue at, `total` at the end."""

    attempts: int
    total: int
    rows: list[LeaseRow]
    next: int


class LeaseColumns(msgspec.Struct, frozen=True):
    """Rows as columns, without the `gone` ones: little-endian numbers back to back.

    `ids` has 40 bytes a row, instants 8 (ms), all others 4. The body of row r lies in `bodies`
    between `body_ends[r - 1]` and `body_ends[r]`; its queue is `queues[queue_index[r]]`.
    """

    attempts: int
    total: int
    count: int
    gone: int
    ids: bytes
    queues: list[str]
    queue_index: bytes
    body_ends: bytes
    bodies: bytes
    enqueued_ms: bytes
    expires_ms: bytes
    deliveries: bytes
    nacks: bytes
    priority: bytes
    next: int


class LeaseGone(msgspec.Struct, frozen=True):
    """Numbers of jobs that left a batch before its commit."""

    elsewhere: int  # delivered to others after the lease ended, or unknown
    nacked: int
    expired: int
    dead: int  # DEADLETTER
    ended: int  # acknowledged or deleted by their ids
    cancelled: int = 0  # by CANCEL; an older node counts them as ended

    @property
    def lost(self) -> int:
        """Jobs delivered to others, which readers of the batch miss."""
        return self.elsewhere + self.ended


class LeaseBegun(msgspec.Struct, frozen=True):
    """A batch on which work begins."""

    times: int  # how often it has begun, this time included
    jobs: int
    half: int  # positions with the first half of the jobs; 0: fewer than two jobs
    proof: int  # 1: another batch was committed since the first time, 2: and before the time before
    before: int  # jobs in the batch when work on it began before; 0: never


class LeaseBatch(msgspec.Struct, frozen=True):
    """A batch not committed yet."""

    seq: int
    jobs: int
    body_bytes: int
    attempts: int
    is_expired: bool


class LeaseInfo(msgspec.Struct, frozen=True):
    """The node's data on a group."""

    group: str
    owner: str
    epoch: int
    queues: list[str]
    last_seq: int
    acked_seq: int
    ttl_ms: int
    left_ms: int
    batches: list[LeaseBatch]
    queued: int
    oldest_ms: int
    tubes: list[str]  # queues that have become tubes: nothing is leased then


def lease_open(group: Text, owner: Text, *queues: Text, timeout: float | None = None) -> Call[int]:
    """Opens a group on queues and returns its epoch; another owner's batches are requeued.

    The same owner and queues get the same epoch again and keep their batches.
    """
    if not queues:
        raise ValueError("lease_open needs at least one queue")
    args: list[Arg] = ["LEASE", "OPEN", to_bytes(group, "group"), to_bytes(owner, "owner")]
    args += map(to_bytes, queues)
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout)


def lease_next(
    group: Text,
    epoch: int,
    seq: int,
    count: int,
    *,
    ttl_ms: int,
    max_bytes: int | None = None,
    parts: int | None = None,
    timeout: float | None = None,
) -> Call[int]:
    """Takes up to `count` jobs as batch `seq`, for `ttl_ms`; returns how many; 0: no batch.

    An existing batch stays unchanged. `parts` is the number of parts to cut it into.
    """
    args: list[Arg] = ["LEASE", "NEXT", to_bytes(group, "group"), epoch, seq, "COUNT", count]
    if max_bytes is not None:
        args += ("BYTES", max_bytes)
    if parts is not None:
        args += ("PARTS", parts)
    args += ("TTL", ttl_ms)
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout)


def lease_fetch(
    group: Text,
    epoch: int,
    seq: int,
    part: int = 0,
    *,
    start: int = 0,
    count: int | None = None,
    max_bytes: int | None = None,
    timeout: float | None = None,
) -> Call[LeaseRows]:
    """Reads rows of a part from position `start` on; changes nothing."""
    args = _fetch_args(group, epoch, seq, part, start, count, max_bytes)
    return Call(args=args, parse=_rows, repeat=True, timeout_s=timeout)


def lease_columns(
    group: Text,
    epoch: int,
    seq: int,
    part: int = 0,
    *,
    start: int = 0,
    count: int | None = None,
    max_bytes: int | None = None,
    timeout: float | None = None,
) -> Call[LeaseColumns]:
    """Like `lease_fetch`, in columns: for many rows at once."""
    args = (*_fetch_args(group, epoch, seq, part, start, count, max_bytes), "COLUMNS")
    return Call(args=args, parse=_columns, repeat=True, timeout_s=timeout)


def lease_gone(
    group: Text, epoch: int, seq: int, part: int = 0, *, timeout: float | None = None
) -> Call[LeaseGone]:
    """Numbers of jobs that left a part of a batch before its commit, by reason."""
    args = ("LEASE", "GONE", to_bytes(group, "group"), epoch, seq, part)
    return Call(args=args, parse=_gone, repeat=True, timeout_s=timeout)


def lease_begin(
    group: Text, epoch: int, seq: int, *, timeout: float | None = None
) -> Call[LeaseBegun]:
    """Records that work on a batch begins, and returns how often it has begun."""
    args = ("LEASE", "BEGIN", to_bytes(group, "group"), epoch, seq)
    return Call(args=args, parse=_begun, repeat=True, timeout_s=timeout)


def lease_split(
    group: Text,
    epoch: int,
    seq: int,
    keep: int,
    *,
    begun: int = 0,
    timeout: float | None = None,
) -> Call[int]:
    """Keeps the first `keep` positions of a batch, 0 for none; the rest becomes the newest batch,
    with `begun` as its count of starts. Returns the number of positions left in the batch.
    """
    args = ("LEASE", "SPLIT", to_bytes(group, "group"), epoch, seq, keep, "BEGUN", begun)
    return Call(args=args, parse=int, repeat=True, timeout_s=timeout)


def lease_defer(
    group: Text,
    epoch: int,
    seq: int,
    *,
    count: int = 0,
    max_bytes: int | None = None,
    timeout: float | None = None,
) -> Call[int]:
    """Puts other jobs in front of a batch: up to `count` new ones, else those of later batches.

    Returns the number of positions that the batch then has.
    """
    args: list[Arg] = ["LEASE", "DEFER", to_bytes(group, "group"), epoch, seq, "COUNT", count]
    if max_bytes is not None:
        args += ("BYTES", max_bytes)
    # Repeated, it puts others before these, too: that does no harm.
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout)


def lease_commit(group: Text, epoch: int, seq: int, *, timeout: float | None = None) -> Call[int]:
    """Acknowledges all batches up to `seq`; returns how many jobs, 0 if done before."""
    args = ("LEASE", "COMMIT", to_bytes(group, "group"), epoch, seq)
    return Call(args=args, parse=int, repeat=True, timeout_s=timeout)


def lease_touch(
    group: Text, epoch: int, *, ttl_ms: int | None = None, timeout: float | None = None
) -> Call[int]:
    """Restarts the time of the lease; returns the number of uncommitted batches."""
    args: list[Arg] = ["LEASE", "TOUCH", to_bytes(group, "group"), epoch]
    if ttl_ms is not None:
        args += ("TTL", ttl_ms)
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout)


def lease_nack(
    group: Text, epoch: int, seq: int, *ids: JobId, timeout: float | None = None
) -> Call[int]:
    """Requeues jobs of a batch as failed; returns how many."""
    if not ids:
        raise ValueError("lease_nack needs at least one id")
    args: list[Arg] = ["LEASE", "NACK", to_bytes(group, "group"), epoch, seq]
    args += map(id_bytes, ids)
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout)


def lease_release(group: Text, epoch: int, *, timeout: float | None = None) -> Call[int]:
    """Releases all batches; returns how many jobs are queued again."""
    args = ("LEASE", "RELEASE", to_bytes(group, "group"), epoch)
    return Call(args=args, parse=int, repeat=True, timeout_s=timeout)


def lease_info(group: Text, *, timeout: float | None = None) -> Call[LeaseInfo]:
    """The node's data on a group."""
    return Call(
        args=("LEASE", "INFO", to_bytes(group, "group")),
        parse=_info,
        repeat=True,
        timeout_s=timeout,
    )


def lease_list(*, timeout: float | None = None) -> Call[list[str]]:
    """The names of the groups of this node."""
    return Call(args=("LEASE", "LIST"), parse=_names, repeat=True, timeout_s=timeout)


def _fetch_args(
    group: Text,
    epoch: int,
    seq: int,
    part: int,
    start: int,
    count: int | None,
    max_bytes: int | None,
) -> tuple[Arg, ...]:
    args: list[Arg] = ["LEASE", "FETCH", to_bytes(group, "group"), epoch, seq, part]
    if start:
        args += ("FROM", start)
    if count is not None:
        args += ("COUNT", count)
    if max_bytes is not None:
        args += ("BYTES", max_bytes)
    return tuple(args)


def _names(reply: Reply) -> list[str]:
    return list(map(to_text, reply))


def _row(item: Reply) -> LeaseRow:
    if item[1] is None:
        return LeaseRow(to_text(item[0]))
    job_id, queue, body, enqueued_ms, expires_ms, deliveries, nacks, priority = item
    return LeaseRow(
        to_text(job_id), to_text(queue), body, enqueued_ms, expires_ms, deliveries, nacks, priority
    )


def _rows(reply: Reply) -> LeaseRows:
    attempts, total, rows, following = reply
    return LeaseRows(attempts, total, list(map(_row, rows)), following)


def _columns(reply: Reply) -> LeaseColumns:
    attempts, total, count, gone, ids, queues, queue_index, body_ends, bodies, *numbers = reply
    enqueued_ms, expires_ms, deliveries, nacks, priority, following = numbers
    return LeaseColumns(
        attempts=attempts,
        total=total,
        count=count,
        gone=gone,
        ids=ids,
        queues=_names(queues),
        queue_index=queue_index,
        body_ends=body_ends,
        bodies=bodies,
        enqueued_ms=enqueued_ms,
        expires_ms=expires_ms,
        deliveries=deliveries,
        nacks=nacks,
        priority=priority,
        next=following,
    )


def _gone(reply: Reply) -> LeaseGone:
    return LeaseGone(**pairs(reply))


def _begun(reply: Reply) -> LeaseBegun:
    return LeaseBegun(*reply)


def _batch(item: Reply) -> LeaseBatch:
    seq, jobs, body_bytes, attempts, is_expired = item
    return LeaseBatch(seq, jobs, body_bytes, attempts, is_expired == 1)


def _info(reply: Reply) -> LeaseInfo:
    fields = pairs(reply)
    return LeaseInfo(
        group=to_text(fields["group"]),
        owner=to_text(fields["owner"]),
        epoch=fields["epoch"],
        queues=_names(fields["queues"]),
        last_seq=fields["last-seq"],
        acked_seq=fields["acked-seq"],
        ttl_ms=fields["ttl-ms"],
        left_ms=fields["left-ms"],
        batches=list(map(_batch, fields["batches"])),
        queued=fields["queued"],
        oldest_ms=fields["oldest-ms"],
        tubes=_names(fields.get("tubes", [])),
    )
