"""Each field of each message of the bus, at its bounds and beyond them (SPEC B2.1)."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from bounds import ends, least
from tuque.core.msgs.bus import AnyMessage
from tuque.wire.bus.bus import BusError, messages_of

KINDS: list[Any] = list(get_args(AnyMessage))


STRANGE = ({}, 1.5, [[]], -1, b"", "x", None, True)


def packed(row: Any) -> bytes:
    """A frame with this one message."""
    return msgspec.msgpack.encode([row])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_field_is_refused_beyond_its_bounds(kind: Any) -> None:
    """B2.1 every field against its range before a rule sees it."""
    can, cannot = ends(inspect.type_info(kind), *STRANGE)
    for row in can:
        try:
            assert len(messages_of(packed(row))) == 1
        except BusError as error:
            assert str(error) == f"a {kind.__name__} has fields out of range", row  # its `check`
    for row in cannot:
        with pytest.raises(BusError):
            messages_of(packed(row))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_message_that_is_cut_is_refused(kind: Any) -> None:
    """B2.2 A frame that does not decode closes the link."""
    whole = packed(least(inspect.type_info(kind)))
    assert len(messages_of(whole)) == 1
    for end in range(len(whole)):
        with pytest.raises(BusError):
            messages_of(whole[:end])
