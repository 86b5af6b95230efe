"""How a task call becomes the body of a job, and back.

A body is one envelope, as JSON or as msgpack; the first byte tells which. Both carry plain data
only: whatever Python type a task declares for an argument is made from that data by the worker
(task.py). Nothing here runs code that comes from a body, so there is no pickle and there is no
switch to turn it on.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Codec = Literal["json", "msgpack"]

VERSION: Final = 1
CODECS: Final[tuple[Codec, ...]] = ("json", "msgpack")
JSON_OPENS: Final = b"{"


class Envelope(msgspec.Struct, omit_defaults=True):
    """One call of a task, with what the producer decided for this one job.

    `enqueued_at` is the producer's wall clock in unix seconds. The three limits are None when the
    task's own apply. The count of attempts is not here: a body never changes, the broker counts.
    """

    task: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    enqueued_at: float = 0.0
    v: int = VERSION
    max_deliveries: int | None = None
    time_limit_s: float | None = None
    dead_letter: str | None = None


class BadBody(Exception):
    """A body that is no envelope; the text says what is wrong with it."""


_json_encoder: Final = msgspec.json.Encoder()
_msgpack_encoder: Final = msgspec.msgpack.Encoder()
_json_decoder: Final = msgspec.json.Decoder(Envelope)
_msgpack_decoder: Final = msgspec.msgpack.Decoder(Envelope)


def encode(envelope: Envelope, codec: Codec) -> bytes:
    """The body for an envelope; TypeError when an argument is not plain data."""
    encoder = _msgpack_encoder if codec == "msgpack" else _json_encoder
    try:
        return encoder.encode(envelope)
    except (TypeError, ValueError, OverflowError, RecursionError) as err:
        raise TypeError(
            f"task {envelope.task}: the arguments cannot be written as {codec}: {err}"
        ) from err


def decode(body: bytes) -> Envelope:
    """The envelope in a body; BadBody for everything else that a queue may hold."""
    if not body:
        raise BadBody("the body is empty")
    try:
        if body[:1] == JSON_OPENS:
            envelope = _json_decoder.decode(body)
        else:
            envelope = _msgpack_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as err:
        raise BadBody(f"the body is not a task call: {err}") from err
    if envelope.v != VERSION:
        raise BadBody(f"the body has version {envelope.v}, this worker reads {VERSION}")
    return envelope
