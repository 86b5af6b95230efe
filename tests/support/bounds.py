"""Values at the bounds of a declared field, and just beyond them."""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from typing import Any

from msgspec import Struct, inspect, structs

from tuque.core.msgs.layout import BadRow
from tuque.core.records.read import BadRecord


def span(kind: inspect.IntType) -> tuple[int, int]:
    """The least and the greatest number."""
    assert kind.ge is not None, "no lower bound"
    if kind.le is not None:
        return kind.ge, kind.le
    assert kind.lt is not None, "no upper bound"
    return kind.ge, kind.lt - 1


def least(kind: Any) -> Any:
    """A value that can be, near the lower bounds."""
    if isinstance(kind, inspect.Metadata):
        return least(kind.type)
    if isinstance(kind, inspect.IntType):
        return span(kind)[0]
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


def ends(kind: Any, *strange: Any) -> tuple[list[Any], list[Any]]:
    """Values that just can be, and values that just cannot; `strange` ones, too, if of no use."""
    if isinstance(kind, inspect.Metadata):
        return ends(kind.type, *strange)
    can: list[Any] = []
    cannot: list[Any] = []
    if isinstance(kind, inspect.IntType):
        low, high = span(kind)
        can += [low, high]
        cannot += [low - 1, high + 1, *[one for one in strange if type(one) is not int]]
    elif isinstance(kind, inspect.BytesType | inspect.StrType):
        is_text = isinstance(kind, inspect.StrType)
        fill: Any = "0" if is_text else b"0"
        sized(can, cannot, kind, fill)
        cannot += [one for one in strange if type(one) is not type(fill)]
        if isinstance(kind, inspect.StrType) and kind.pattern is not None:
            cannot += ["a b", "a\n", "\N{SNOWMAN}"]
    elif isinstance(kind, inspect.BoolType):
        can += [False, True]
        cannot += [one for one in strange if type(one) is not bool]
    elif isinstance(kind, inspect.ListType):
        sized(can, cannot, kind, [least(kind.item_type)])
        at = max(kind.min_length or 0, 1)
        good, bad = ends(kind.item_type, *strange)
        can += [[value] * at for value in good]
        cannot += [[value] * at for value in bad]
        cannot += [one for one in strange if type(one) is not list]
    elif isinstance(kind, inspect.TupleType):
        rows(can, cannot, [], list(kind.item_types), strange)
        can, cannot = [tuple(row) for row in can], [tuple(row) for row in cannot]
    elif isinstance(kind, inspect.StructType):
        tag = [] if kind.tag is None else [kind.tag]
        rows(can, cannot, tag, [field.type for field in kind.fields], strange)
    return can, cannot


def sized(can: list[Any], cannot: list[Any], kind: Any, one: Any) -> None:
    """Of the least and the greatest length, and beyond."""
    low, high = kind.min_length or 0, kind.max_length
    can.append(one * low)
    if low > 0:
        cannot.append(one * (low - 1))
    if high is not None:
        can.append(one * high)
        cannot.append(one * (high + 1))


def rows(
    can: list[Any], cannot: list[Any], tag: list[Any], types: list[Any], strange: tuple[Any, ...]
) -> None:
    """Rows of these fields, of which one is at a bound or beyond it."""
    whole = [least(kind) for kind in types]
    for i, kind in enumerate(types):
        good, bad = ends(kind, *strange)
        can += [tag + whole[:i] + [value] + whole[i + 1 :] for value in good]
        cannot += [tag + whole[:i] + [value] + whole[i + 1 :] for value in bad]


# ---- Bounds that a test states itself


def stated(text: str) -> dict[str, dict[str, tuple[int, int | None]]]:
    """Of each kind, one a line: its fields, with least and greatest number, length or count.

    A line that is indented goes on; `-`: no greatest one. `a.0.1` is a part of an item of `a`.
    """
    found: dict[str, dict[str, tuple[int, int | None]]] = {}
    for line in text.replace("\n ", " ").split("\n"):
        kind, _, rest = line.partition(" ")
        if kind:
            rows = [row.split() for row in rest.split(",")]
            found[kind] = {
                name: (int(low), None if high == "-" else int(high)) for name, low, high in rows
            }
    return found


def keep_bounds(
    row: Struct, bounds: dict[str, tuple[int, int | None]], pass_on: Callable[[Any], Any]
) -> None:
    """Assert that the row comes back with each field at its bounds, and not beyond them."""
    info: Any = inspect.type_info(type(row))
    numbers = [one.name for one in info.fields if not isinstance(one.type, inspect.BoolType)]
    assert [path for path in bounds if "." not in path] == numbers
    for path, (low, high) in bounds.items():
        name, *parts = path.split(".")
        ends = [(low, True), (low - 1, False)]
        ends += [] if high is None else [(high, True), (high + 1, False)]
        for size, is_good in ends:
            value = sized_as(getattr(row, name), parts, size)
            if value is None:
                continue
            changed = structs.replace(row, **{name: value})
            try:
                assert (pass_on(changed) == changed) == is_good, (path, size)
            except (BadRecord, BadRow, StructError) as error:
                assert not is_good or "do not fit together" in str(error), (path, size)


def sized_as(old: Any, parts: list[str], size: int) -> Any:
    """Such a value, or a part of it, of that number, length or count; None: there is none."""
    if parts:
        items = list(old)
        items[int(parts[0])] = sized_as(items[int(parts[0])], parts[1:], size)
        return None if items[int(parts[0])] is None else type(old)(items)
    if isinstance(old, int):
        return size
    if size < 0:
        return None
    return b"0" * size if isinstance(old, bytes) else [old[0]] * size
