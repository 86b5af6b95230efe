"""Bodies: what a producer writes a worker reads; what is no task call is refused with a reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.worker.app.codec import (
    CODECS,
    BadBody,
    Codec,
    Envelope,
    decode,
    encode,
)

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(plain, max_size=4), st.dictionaries(st.text(), plain, max_size=4))
@pytest.mark.parametrize("codec", CODECS)
def test_plain_data_survives_both_codecs(
    codec: Codec, args: list[Any], kwargs: dict[str, Any]
) -> None:
    sent = Envelope(task="m.f", args=args, kwargs=kwargs, enqueued_at=12.5, max_deliveries=3)
    assert decode(encode(sent, codec)) == sent


@given(st.binary(max_size=200))
def test_no_body_does_more_than_raise_bad_body(body: bytes) -> None:
    try:
        envelope = decode(body)
    except BadBody:
        return
    assert isinstance(envelope, Envelope)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"hello", "not a task call"),
        (b"{", "not a task call"),
        (b"[1,2]", "read as msgpack, because it does not begin with {"),
        (b' {"task":"f"}', "read as msgpack, because it does not begin with {"),
        (b'{"task":"f"', "read as JSON"),
        (b"{}", "task"),
        (b'{"task":1}', "task"),
        (b'{"task":"f","args":{}}', "args"),
        (b'{"task":"f","v":2}', "version 2"),
        (b'{"task":"\xff"}', "not a task call"),
        (b'{"task":"f","args":' + b"[" * 100_000, "not a task call"),
        (b"\x80\x04\x95\x0b\x00", "not a task call"),  # the head of a pickle
        (msgspec.msgpack.encode({"args": []}), "task"),
    ],
)
def test_what_is_no_task_call_is_refused_with_a_reason(body: bytes, reason: str) -> None:
    with pytest.raises(BadBody, match=reason):
        decode(body)


def test_arguments_that_are_no_plain_data_are_refused_when_enqueued() -> None:
    with pytest.raises(TypeError, match="task m.f: the arguments cannot be written as json"):
        encode(Envelope(task="m.f", args=[object()]), "json")
