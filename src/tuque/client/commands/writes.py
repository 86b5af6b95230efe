"""The method table, exactly-once writes: jobs staged in a transaction, then published.

A transaction consists of attempts, one per writer; `publish` names those that count, and a version
of the application, which is published once however often it is requested. No I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuque.client.api import Arg, Text, to_bytes
from tuque.client.commands.calls import Call
from tuque.client.commands.options import job_options

COPIES_S = 30.0  # for the copies of what was published


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
    ttl: int | None = None,
    maxlen: int | None = None,
    dedupe: Text | None = None,
    dedupe_ttl: int | None = None,
    timeout: float | None = None,
) -> Call[int]:
    """Stages a job, invisible until `publish`; returns the attempt's count. Not sent twice.

    The attempt is dropped when nothing is staged in it for `ttl_ms`. If a reply is lost, start
    another attempt. The options are those of `addjob`.
    """
    args: list[Arg] = ["STAGE", to_bytes(txn), to_bytes(attempt), ttl_ms]
    args += (to_bytes(queue), to_bytes(body))
    args += job_options(replicate, delay, retry, ttl, maxlen, dedupe, dedupe_ttl)
    return Call(args=tuple(args), parse=int, timeout_s=timeout)


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
    args: list[Arg] = ["PUBLISH", to_bytes(app), version]
    if ack is not None:
        args += ("ACK", to_bytes(ack[0]), ack[1], ack[2])
    args.append(to_bytes(txn))
    args += map(to_bytes, attempts)
    return Call(args=tuple(args), parse=int, repeat=True, wait_s=COPIES_S, timeout_s=timeout)
