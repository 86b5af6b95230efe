"""The method table, exactly-once writes: jobs added once by a key, or staged and published.

A transaction consists of attempts, one per writer; `publish` names those that count, and a version
of the application, which is published once however often it is requested. No I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from tuque.client.api import Arg, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import (
    Call,
    KeyWords,
    add_headers,
    addjob,
    check_keys,
    job_options,
    tube_options,
    work_options,
)

COPIES_S = 30.0  # for the copies of what was published


OnFail = Literal["stop", "wait", "continue"]


class JobOptions(TypedDict, total=False):
    """The options that `addjob` and `stage` share."""

    replicate: int | None
    retry: int | None
    ttl: float | None
    maxlen: int | None
    dedupe: Text | None
    dedupe_ttl: int | None
    pri: int | None
    attempts: int | None
    backoff: tuple[float, float, float] | None
    dead: Text | None
    keep: float | None
    keep_body: bool
    time_limit: float | None
    on_expiry: Literal["dead", "drop"] | None
    headers: Mapping[str, Text] | None
    timeout: float | None


class AddOptions(KeyWords, JobOptions, total=False):
    """The options of `addjob`."""

    timeout_ms: int
    delay: float | None
    asynchronous: bool
    utube: Text | None


class StageOptions(JobOptions, total=False):
    """The options of `stage`."""

    delay: int | None


def addjob_new(queue: Text, body: Text, **options: Unpack[AddOptions]) -> Call[tuple[str, bool]]:
    """Like `addjob`; returns the id, and False if it is of a job that another call had added.

    False is certain. If the reply was lost and the call was repeated, the job that it met may be
    its own: that is True.
    """
    check_keys("addjob_new", options, AddOptions.__annotations__)
    call = addjob(queue, body, **options)
    found: Any = msgspec.structs.replace(
        call, args=(*call.args, "WITHNEW"), parse=_id_and_new, after_loss=_maybe_new
    )
    return found  # type: ignore[no-any-return]  # `replace` keeps the type of the old result


def stage(
    txn: Text,
    attempt: Text,
    queue: Text,
    body: Text,
    *,
    ttl_ms: int,
    replicate: int | None = None,
    delay: int | None = None,
    retry: int | None = None,
    ttl: float | None = None,
    maxlen: int | None = None,
    dedupe: Text | None = None,
    dedupe_ttl: int | None = None,
    pri: int | None = None,
    attempts: int | None = None,
    backoff: tuple[float, float, float] | None = None,
    dead: Text | None = None,
    keep: float | None = None,
    keep_body: bool = False,
    time_limit: float | None = None,
    on_expiry: Literal["dead", "drop"] | None = None,
    headers: Mapping[str, Text] | None = None,
    timeout: float | None = None,
) -> Call[int]:
    """Stages a job, invisible until `publish`; returns the attempt's count. Not sent twice.

    The attempt is dropped when nothing is staged in it for `ttl_ms`. If a reply is lost, start
    another attempt. The options are those of `addjob`.
    """
    args: list[Arg] = ["STAGE", to_bytes(txn, "txn"), to_bytes(attempt, "attempt"), ttl_ms]
    args += (to_bytes(queue, "queue"), to_bytes(body, "body"))
    args += job_options(replicate, delay, retry, ttl, maxlen, dedupe, dedupe_ttl)
    args += tube_options(pri, None)
    args += work_options(attempts, backoff, dead, keep, time_limit, on_expiry, keep_body)
    add_headers(args, headers)
    return Call(args=tuple(args), parse=int, timeout_s=timeout)


def stage_id(
    txn: Text,
    attempt: Text,
    queue: Text,
    body: Text,
    *,
    ttl_ms: int,
    **options: Unpack[StageOptions],
) -> Call[str]:
    """Like `stage`; returns the id that the job will have. One with a known key is not made."""
    check_keys("stage_id", options, StageOptions.__annotations__)
    call = stage(txn, attempt, queue, body, ttl_ms=ttl_ms, **options)
    found: Any = msgspec.structs.replace(call, args=(*call.args, "WITHID"), parse=to_text)
    return found  # type: ignore[no-any-return]  # `replace` keeps the type of the old result


def publish(
    app: Text,
    version: int,
    txn: Text,
    attempts: Iterable[Text] = (),
    *,
    ack: tuple[Text, int, int] | None = None,
    timeout: float | None = None,
) -> Call[int]:
    """Adds all jobs of the attempts at once and returns how many; -1: this version was published.

    `ack` (group, epoch, seq) commits a batch of a lease in the same step. All of it, or nothing.
    """
    args: list[Arg] = ["PUBLISH", to_bytes(app, "app"), version]
    if ack is not None:
        args += ("ACK", to_bytes(ack[0]), ack[1], ack[2])
    args.append(to_bytes(txn, "txn"))
    args += map(to_bytes, attempts)
    return Call(args=tuple(args), parse=int, repeat=True, wait_s=COPIES_S, timeout_s=timeout)


def _id_and_new(reply: Reply) -> tuple[str, bool]:
    id, is_new = reply
    return to_text(id), bool(is_new)


def _maybe_new(reply: Reply) -> Reply:
    """The job may have been added by this very call, whose reply was lost."""
    return [reply[0], 1] if isinstance(reply, list) else reply
