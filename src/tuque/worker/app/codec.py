"""Task calls as bodies of jobs, and back; pydantic models among their values (SPEC U1, U2).

A body is one envelope, as JSON or as msgpack; its first byte shows which. Both carry plain data
only: the worker converts it to the types that a task declares (task.py). Nothing here runs code
from a body, so there is no pickle, and no option for it.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final, Literal

import msgspec

from tuque.worker.app.encryption import BadSeal, Keys, is_sealed

BOUNDS_OF: Final = ("pydantic", "annotated_types")
BY_NAME_SINCE: Final = (2, 11)  # the version that reads fields by name also where they have aliases

VERSION: Final = 1

JSON_OPENS: Final = b"{"
MSGPACK_OPENS: Final = b"\xc1"
LOST: Final = "tuque-lost"  # in the place of a result: why there is none
LOST_CHARS: Final = 300


# ---- Pydantic models, if the program has imported pydantic (SPEC U1.4)
#
# Decides how they become plain data and come back. Never imports pydantic itself: a program whose
# tasks name its models has done so.


class Adapted:
    """A type that only pydantic can restore, such as a union with a model.

    If `is_plain`, msgspec restores it, and pydantic only looks whether it is within its bounds.
    """

    def __init__(self, hint: Any, is_plain: bool = False) -> None:
        self.hint = hint
        self.is_plain = is_plain
        self.adapter: Any = sys.modules["pydantic"].TypeAdapter(hint)

    def __repr__(self) -> str:
        return repr(self.hint)


def is_model(hint: Any) -> bool:
    """Whether a type is a model of pydantic."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return base is not None and isinstance(hint, type) and issubclass(hint, base)


def plain(value: Any) -> Any:
    """A model as plain data, for an encoder; TypeError for other values."""
    if is_model(type(value)):
        try:
            with _type_errors():
                return value.model_dump(mode="json", round_trip=True)
        except ValueError as err:
            if "utf-8" not in str(err):
                raise
            raise TypeError(f"{err}: declare these bytes as pydantic.Base64Bytes") from None
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


def restored(hint: Any, data: Any) -> Any:
    """Plain data as a model, for msgspec; other types are left to it."""
    if not is_model(hint):
        return data
    with _type_errors():
        return hint.model_validate(data, **_by_name())


def converted_by(adapted: Adapted, data: Any) -> Any:
    """Plain data in a type that only pydantic can restore; ValueError if it does not fit."""
    if adapted.is_plain:
        data = msgspec.convert(data, adapted.hint, strict=True, str_keys=True, dec_hook=restored)
    with _type_errors():
        return adapted.adapter.validate_python(data, **_by_name())


def same_models(sent: Any, got: Any, is_same: Callable[[Any, Any], bool]) -> bool:
    """Whether two models that are not equal have the same in all fields, such as nan."""
    if not is_model(type(got)) or type(sent) is not type(got):
        return False
    if sent.__pydantic_private__ != got.__pydantic_private__:
        return False
    return is_same(
        {**sent.__dict__, **(sent.model_extra or {})}, {**got.__dict__, **(got.model_extra or {})}
    )


@contextmanager
def _type_errors() -> Iterator[None]:
    """A model that pydantic cannot use, such as one with a name that is not defined yet."""
    try:
        yield
    except sys.modules["pydantic"].PydanticUserError as err:
        raise TypeError(str(err).partition("\n")[0]) from None


def resolved(hint: Any) -> Any:
    """The type, as `converted` takes it; TypeError if nothing can restore it."""
    try:
        msgspec.json.Decoder(hint, dec_hook=restored)
    except TypeError:
        if not _has_model(hint):
            raise
        return _adapted(hint)
    if "pydantic" in sys.modules and _has_bounds(hint):
        with suppress(TypeError):  # nothing that pydantic can look at: it has no bounds there
            return _adapted(hint, is_plain=True)
    return hint


def _adapted(hint: Any, is_plain: bool = False) -> Adapted:
    try:
        return Adapted(hint, is_plain)
    except Exception as err:  # pydantic has errors of its own for types
        raise TypeError(str(err)) from None


@cache
def _by_name() -> dict[str, bool]:
    version = sys.modules["pydantic"].VERSION.split(".")
    return {"by_name": True} if tuple(map(int, version[:2])) >= BY_NAME_SINCE else {}


def _has_bounds(hint: Any, depth: int = 8) -> bool:
    """[U1] Whether a hint has bounds for pydantic, such as `Field(gt=0)` (U1.7)."""
    for word in getattr(hint, "__metadata__", ()):
        if type(word).__module__.partition(".")[0] in BOUNDS_OF:
            return True
    return depth > 0 and any(_has_bounds(part, depth - 1) for part in typing.get_args(hint))


def _has_model(hint: Any, depth: int = 8) -> bool:
    """Whether a model is among the types of a hint."""
    if is_model(hint):
        return True
    if not depth:
        return False
    parts = list(typing.get_args(hint))
    if dataclasses.is_dataclass(hint):
        parts += [field.type for field in dataclasses.fields(hint)]
    return any(_has_model(part, depth - 1) for part in parts)


# ---- Envelopes, results and progress


Codec = Literal["json", "msgpack"]

CODECS: Final[tuple[Codec, ...]] = ("json", "msgpack")


class Envelope(msgspec.Struct, omit_defaults=True):
    """One call of a task, with the producer's options for this one job.

    `enqueued_at` is the producer's wall clock in unix seconds. What follows `v` is None if the
    task's own applies; `time_limit_s` 0 is no limit, `backoff` first_s, max_s and jitter. It names
    no other queue: a body may say only what concerns its own job (U2.6). The broker counts
    attempts. `headers` are of jobs in tubes; of others the broker has them.
    """

    task: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    enqueued_at: float = 0.0
    v: int = VERSION
    max_deliveries: int | None = None
    time_limit_s: float | None = None
    backoff: tuple[float, float, float] | None = None
    keep_s: float | None = None
    unknown_keep_s: float | None = None
    headers: dict[str, str] | None = None


class BadBody(Exception):
    """A body that is not an envelope; the text has the reason."""


_json_encoder: Final = msgspec.json.Encoder(enc_hook=plain)
_msgpack_encoder: Final = msgspec.msgpack.Encoder(enc_hook=plain)
_json_decoder: Final = msgspec.json.Decoder(Envelope)
_msgpack_decoder: Final = msgspec.msgpack.Decoder(Envelope)


def encode(envelope: Envelope, codec: Codec) -> bytes:
    """The body for an envelope; TypeError if an argument is not plain data."""
    encoder = _msgpack_encoder if codec == "msgpack" else _json_encoder
    try:
        return encoder.encode(envelope)
    except (TypeError, ValueError, OverflowError, RecursionError) as err:
        raise TypeError(
            f"task {envelope.task}: the arguments cannot be written as {codec}: {err}"
        ) from err


def to_data(value: Any, codec: Codec) -> bytes:
    """A value as a codec writes it."""
    return (_msgpack_encoder if codec == "msgpack" else _json_encoder).encode(value)


def from_data(data: bytes, codec: Codec) -> Any:
    """The plain data that a codec reads."""
    return msgspec.msgpack.decode(data) if codec == "msgpack" else msgspec.json.decode(data)


def codec_of(body: bytes) -> Codec:
    """The codec of a body."""
    return "json" if body[:1] == JSON_OPENS else "msgpack"


def pack(value: Any, codec: Codec) -> bytes:
    """A result or a progress; TypeError if it is not plain data.

    msgpack is marked by a first byte that begins neither JSON nor msgpack.
    """
    data = to_data(value, codec)
    return MSGPACK_OPENS + data if codec == "msgpack" else data


def pack_result(value: Any, codec: Codec) -> bytes:
    """[U2] A result; TypeError if it is not plain data, ValueError for nan in JSON (U2.8)."""
    data = pack(value, codec)
    if codec == "json" and b"null" in data:  # as nan and the infinities are written
        lost = lost_in_json(value)
        if lost is not None:
            raise ValueError(f'JSON has no {lost}; codec="msgpack" has')
    return data


def lost_result(why: str) -> bytes:
    """[U2] What the broker keeps in the place of a result that is lost (U2.7)."""
    return pack({LOST: why if len(why) <= LOST_CHARS else f"{why[: LOST_CHARS - 3]}..."}, "json")


def why_lost(value: Any) -> str | None:
    """Why a result is lost; None if it is not."""
    why = value.get(LOST) if isinstance(value, dict) and len(value) == 1 else None
    return why if isinstance(why, str) else None


def lost_in_json(value: Any) -> float | None:
    """A nan or an infinity in a value that can be written; JSON has none."""
    return _not_finite(msgspec.to_builtins(value, enc_hook=plain))


def _not_finite(value: Any) -> float | None:
    """The first nan or infinity in plain data."""
    if isinstance(value, float):
        return None if math.isfinite(value) else value
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        parts = list(value)
    for part in parts:
        if (lost := _not_finite(part)) is not None:
            return lost
    return None


def unpack(data: bytes) -> Any:
    """The plain data of a result or a progress."""
    if data[:1] == MSGPACK_OPENS:
        return msgspec.msgpack.decode(data[1:])
    return msgspec.json.decode(data)


def opened(body: bytes, keys: Keys | None) -> bytes:
    """[U8] The body as it was before it was sealed; BadBody if it is not under the keys (U8.2)."""
    if keys is None:
        return body
    try:
        return keys.open(body)
    except BadSeal as err:
        raise BadBody(f"the body is refused: {err}") from None


def decode(body: bytes) -> Envelope:
    """The envelope in a body; BadBody for anything else."""
    if not body:
        raise BadBody("the body is empty")
    if body[:1] != JSON_OPENS and is_sealed(body):
        raise BadBody("the body is under a key, and here are no keys")
    try:
        if body[:1] == JSON_OPENS:
            envelope = _json_decoder.decode(body)
        else:
            envelope = _msgpack_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as err:
        form = "JSON" if body[:1] == JSON_OPENS else "msgpack, because it does not begin with {"
        raise BadBody(f"the body is not a task call (read as {form}): {err}") from err
    if envelope.v != VERSION:
        raise BadBody(f"the body has version {envelope.v}, this worker reads {VERSION}")
    return envelope
