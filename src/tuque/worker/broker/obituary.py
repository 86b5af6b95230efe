"""The body of a dead letter: the job's, and why it died."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tuque.client.api import Job
from tuque.worker.tasks.codec import JSON_OPENS, BadBody, Codec, Death, decode, from_data, to_data
from tuque.worker.tasks.policy import encodable


def obituary(job: Job, reason: str) -> bytes | None:
    """The body with a field `died` added. None: it stays unchanged.

    That is so for a body that is no task call, or cannot be encoded again.
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
        return None  # nested too deep to encode
