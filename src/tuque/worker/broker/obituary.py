"""The body of a dead letter: that of the job, and why it died."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tuque.client.api import Job
from tuque.worker.tasks.codec import JSON_OPENS, BadBody, Codec, Death, decode, from_data, to_data
from tuque.worker.tasks.policy import encodable


def obituary(job: Job, reason: str) -> bytes | None:
    """The body with a field `died`, all else as it was. None: it stays as it is.

    A body that is no task call stays, and one that cannot be written again.
    """
    try:
        decode(job.body)
    except BadBody:
        return None
    reason, queue = encodable(reason), encodable(job.queue)
    codec: Codec = "json" if job.body[:1] == JSON_OPENS else "msgpack"
    attempts = (job.nacks or 0) + (job.additional_deliveries or 0) + 1
    died = Death(reason, job.id, queue, attempts, time.time())
    fields: dict[str, Any] = from_data(job.body, codec)
    fields["died"] = msgspec.to_builtins(died)
    try:
        return to_data(fields, codec)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None  # it can be read, but not written: nested too deep
