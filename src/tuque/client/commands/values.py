"""The method table, values: what a tube keeps under names, counters, parts (SPEC T70)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from tuque.client.api import Arg, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import Call, seconds, whole

ValueKind = Literal["value", "ended", "fixed", "parts"]


class ValueRow(msgspec.Struct, frozen=True):
    """A value, or a set of parts, of which `size` is how many it has; else it is in bytes.

    `end_ms` is in unix ms; 0: it has no end.
    """

    name: str
    kind: str
    size: int
    end_ms: int


class Tally(msgspec.Struct, frozen=True):
    """A set of parts: how many there are, and the size that completes it, 0 if nobody said it.

    `completes`: this index completed the set, now or before. No other index gets that.
    """

    parts: int
    size: int
    completes: bool


def value_set(
    queue: Text,
    name: Text,
    value: Text,
    *,
    ttl: float | None = None,
    end: bool = False,
    fixed: bool = False,
    new: bool = False,
    timeout: float | None = None,
) -> Call[bool]:
    """Sets a value of a tube of type tasks; it ends after `ttl` seconds, a day by default, 0 never.

    `end` ends the waits for it. A `fixed` value is not set again, with `new` only if there is none
    of that name. False: nothing has changed.
    """
    args: list[Arg] = ["VALUE", "SET", to_bytes(queue, "queue"), to_bytes(name, "name")]
    args.append(to_bytes(value, "value"))
    args += _ttl(ttl)
    args += ["END"] * end + ["FIXED"] * fixed + ["NEW"] * new
    return Call(args=tuple(args), parse=bool, repeat=True, timeout_s=timeout)


def value_get(
    queue: Text, *names: Text, timeout: float | None = None
) -> Call[dict[str, bytes | None]]:
    """The values by name, None where there is none.

    Names are missing whose values would make the reply longer than 4 MiB: ask for them again.
    """
    words = _names("value_get", names)
    texts = [to_text(name) for name in words]
    return Call(
        args=("VALUE", "GET", to_bytes(queue, "queue"), *words),
        parse=_by_name(texts),
        repeat=True,
        timeout_s=timeout,
    )


def value_wait(
    queue: Text,
    *names: Text,
    wait_ms: int | None = None,
    count: int | None = None,
    timeout: float | None = None,
) -> Call[dict[str, bytes | None]]:
    """Waits until `count` of the names, by default all, were set with `end`, or are gone (None).

    Waits `wait_ms`, by default as long as it takes. A name that does not exist yet is waited for.
    """
    words = _names("value_wait", names)
    if wait_ms is not None and wait_ms < 1:
        raise ValueError("wait_ms must be at least 1: None waits as long as it takes")
    needed = len(words) if count is None else whole("count", count)
    args: list[Arg] = ["VALUE", "WAIT", to_bytes(queue, "queue"), wait_ms or 0, *words]
    if count is not None:
        args += ("COUNT", needed)
    call = Call(args=tuple(args), parse=_rows, repeat=True, timeout_s=timeout)
    return call.for_rows(needed, wait_ms, 3)


def value_drop(queue: Text, *names: Text, timeout: float | None = None) -> Call[int]:
    """Removes values and sets of parts; returns how many there were."""
    args: list[Arg] = ["VALUE", "DROP", to_bytes(queue, "queue"), *_names("value_drop", names)]
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout)


def value_add(
    queue: Text, name: Text, n: int = 1, *, ttl: float | None = None, timeout: float | None = None
) -> Call[int]:
    """Adds to a value that is a number, or to 0; returns the sum.

    The value ends `ttl` seconds from now, a day by default, whatever an earlier call said; 0 never.
    """
    args: list[Arg] = ["VALUE", "ADD", to_bytes(queue, "queue"), to_bytes(name, "name")]
    args.append(whole("n", n))
    args += _ttl(ttl)
    return Call(args=tuple(args), parse=int, timeout_s=timeout)


def value_tally(
    queue: Text,
    name: Text,
    index: int | None,
    value: Text = b"",
    *,
    size: int = 0,
    ttl: float | None = None,
    timeout: float | None = None,
) -> Call[Tally]:
    """Adds a part to a set: each index counts once. `index` None says the size alone.

    Repeat the call if it fails: `completes` is true again for the index that got it.
    """
    args: list[Arg] = ["VALUE", "TALLY", to_bytes(queue, "queue"), to_bytes(name, "name")]
    args += ["-" if index is None else whole("index", index), to_bytes(value, "value")]
    args += ["SIZE", whole("size", size), *_ttl(ttl)]
    return Call(args=tuple(args), parse=_tally, repeat=True, timeout_s=timeout)


def value_parts_page(
    queue: Text,
    name: Text,
    cursor: str,
    *,
    count: int | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[tuple[int, bytes]]]]:
    """One step through the parts of a set: the next index, "0" at the end, and parts."""
    args: list[Arg] = ["VALUE", "PARTS", to_bytes(queue, "queue"), to_bytes(name, "name"), cursor]
    args += ("COUNT", 1_000 if count is None else count)
    return Call(args=tuple(args), parse=_parts, repeat=True, timeout_s=timeout)


def value_scan_page(
    queue: Text,
    cursor: str,
    *,
    match: Text | None = None,
    count: int | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[ValueRow]]]:
    """One step of a list of values: the next cursor, "0" at the end, and values."""
    args: list[Arg] = ["VALUE", "SCAN", to_bytes(queue, "queue"), cursor]
    if match is not None:
        args += ("MATCH", to_bytes(match, "match"))
    args += ("COUNT", 100 if count is None else count)
    return Call(args=tuple(args), parse=_listed, repeat=True, timeout_s=timeout)


def _ttl(ttl: float | None) -> tuple[Arg, ...]:
    return () if ttl is None else ("TTL", seconds("ttl", ttl))


def _names(call: str, names: tuple[Text, ...]) -> list[bytes]:
    if not names:
        raise ValueError(f"{call} needs at least one name")
    return [to_bytes(name, "name") for name in names]


def _by_name(names: list[str]) -> Callable[[Reply], dict[str, bytes | None]]:
    return lambda reply: dict(zip(names, reply, strict=False))


def _rows(reply: Reply) -> dict[str, bytes | None]:
    return {to_text(name): value for name, value in reply}


def _tally(reply: Reply) -> Tally:
    parts, size, completes = reply
    return Tally(parts, size, bool(completes))


def _parts(reply: Reply) -> tuple[str, list[tuple[int, bytes]]]:
    cursor, rows = reply
    return str(cursor), [(index, value) for index, value in rows]


def _listed(reply: Reply) -> tuple[str, list[ValueRow]]:
    cursor, rows = reply
    return to_text(cursor), [ValueRow(to_text(r[0]), to_text(r[1]), r[2], r[3]) for r in rows]
