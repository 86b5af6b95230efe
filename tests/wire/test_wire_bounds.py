"""Each field of each message of the bus, at its bounds and beyond them (SPEC B2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from tuque.core.msgs.bus import AnyMessage
from tuque.wire.bus.bus import BusError, messages_of

KINDS: list[Any] = list(get_args(AnyMessage))


def span(kind: inspect.IntType) -> tuple[int, int]:
    """The least and the greatest number."""
    assert kind.ge is not None
    if kind.le is not None:
        return kind.ge, kind.le
    assert kind.lt is not None
    return kind.ge, kind.lt - 1


def least(kind: Any) -> Any:
    """A value that can be, near the lower bounds."""
    if isinstance(kind, inspect.CustomType | inspect.AnyType):
        raise TypeError(kind)
    if isinstance(kind, inspect.IntType):
        return kind.ge if kind.ge is not None else 0
    if isinstance(kind, inspect.BytesType):
        return b"0" * (kind.min_length or 0)
    if isinstance(kind, inspect.StrType):
        return ""
    if isinstance(kind, inspect.BoolType):
        return False
    if isinstance(kind, inspect.TupleType):
        return tuple(least(item) for item in kind.item_types)
    if isinstance(kind, inspect.StructType):
        tag = [] if kind.tag is None else [kind.tag]
        return tag + [least(field.type) for field in kind.fields]
    if isinstance(kind, inspect.UnionType):
        return least(kind.types[0])
    return [least(kind.item_type)] * (kind.min_length or 0)


def ends(kind: Any) -> tuple[list[Any], list[Any]]:
    """Values that just can be, and values that just cannot."""
    can: list[Any] = []
    cannot: list[Any] = [{}, 1.5, [[]]]
    if isinstance(kind, inspect.IntType):
        low, high = span(kind)
        can += [low, high]
        cannot += [low - 1, high + 1, -(1 << 63), (1 << 64) - 1, None, b"", "", True]
    elif isinstance(kind, inspect.BytesType):
        low, most = kind.min_length or 0, kind.max_length
        can += [b"0" * low] + ([] if most is None else [b"0" * most])
        cannot += ([b"0" * (low - 1)] if low else []) + (
            [] if most is None else [b"0" * (most + 1)]
        )
        cannot += [1, "x" * 40, None]
    elif isinstance(kind, inspect.BoolType):
        can += [False, True]
        cannot += [0, 1, None]
    elif isinstance(kind, inspect.StrType):
        cannot += [1, b"", None, "\ud800".encode("utf-8", "surrogatepass")]
        cannot += [] if kind.pattern is None else ["a b", "a\n", "\N{SNOWMAN}"]
    elif isinstance(kind, inspect.ListType):
        low, most = kind.min_length or 0, kind.max_length
        one = least(kind.item_type)
        can += [[one] * low] + ([] if most is None else [[one] * most])
        cannot += [[one] * (low - 1)] if low else []
        cannot += [] if most is None else [[one] * (most + 1)]
        at = max(low, 1)
        for value in ends(kind.item_type)[0]:
            can.append([value] * at)
        for value in ends(kind.item_type)[1]:
            cannot.append([value] * at)
    elif isinstance(kind, inspect.TupleType):
        rows(can, cannot, [], list(kind.item_types))
    elif isinstance(kind, inspect.StructType):
        tag = [] if kind.tag is None else [kind.tag]
        rows(can, cannot, tag, [field.type for field in kind.fields])
    return can, cannot


def rows(can: list[Any], cannot: list[Any], tag: list[Any], types: list[Any]) -> None:
    """Rows of these fields, of which one is at a bound or beyond it."""
    whole = [least(kind) for kind in types]
    for i, kind in enumerate(types):
        good, bad = ends(kind)
        can += [tag + whole[:i] + [value] + whole[i + 1 :] for value in good]
        cannot += [tag + whole[:i] + [value] + whole[i + 1 :] for value in bad]


def packed(row: Any) -> bytes:
    """A frame with this one message."""
    return msgspec.msgpack.encode([row])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_field_is_refused_beyond_its_bounds(kind: Any) -> None:
    """B2.1 every field against its range before a rule sees it."""
    can, cannot = ends(inspect.type_info(kind))
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


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_number_and_word_has_bounds(kind: Any) -> None:
    """A field that is declared without bounds is a number, or a word that only memory bounds."""
    for where, one in leaves(inspect.type_info(kind), kind.__name__):
        if isinstance(one, inspect.IntType):
            assert one.ge is not None and (one.le is not None or one.lt is not None), where


def leaves(kind: Any, where: str) -> Iterator[tuple[str, Any]]:
    """All types inside a type, but for those of RESULT, which `check` looks at."""
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            if where != "JobTold" or field.name != "fields":
                yield from leaves(field.type, f"{where}.{field.name}")
    elif isinstance(kind, inspect.ListType):
        yield from leaves(kind.item_type, where)
    elif isinstance(kind, inspect.TupleType):
        for item in kind.item_types:
            yield from leaves(item, where)
    else:
        yield where, kind
