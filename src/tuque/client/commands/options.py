"""The options of a new job as words of its command."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from tuque.client.api import Arg, Text, to_bytes


def job_options(
    replicate: int | None,
    delay: float | None,
    retry: int | None,
    ttl: int | None,
    maxlen: int | None,
    dedupe: Text | None,
    dedupe_ttl: int | None,
) -> list[Arg]:
    """The words of the given options of a new job."""
    args: list[Arg] = []
    options = {
        "REPLICATE": None if replicate is None else whole("replicate", replicate),
        "DELAY": None if delay is None else seconds("delay", delay),
        "RETRY": None if retry is None else whole("retry", retry),
        "TTL": None if ttl is None else whole("ttl", ttl),
        "MAXLEN": None if maxlen is None else whole("maxlen", maxlen),
        "DEDUPE": None if dedupe is None else to_bytes(dedupe),
        "DEDUPETTL": None if dedupe_ttl is None else whole("dedupe_ttl", dedupe_ttl) * 1000,
    }
    for word, value in options.items():
        if value is not None:
            args += (word, value)
    return args


def work_options(
    attempts: int | None,
    backoff: tuple[float, float, float] | None,
    dead: Text | None,
    keep: float | None,
    time_limit: float | None,
) -> list[Arg]:
    """The words of the given options about the work on a new job."""
    args: list[Arg] = []
    if attempts is not None:
        args += ("ATTEMPTS", whole("attempts", attempts))
    if backoff is not None:
        times = parts("backoff", backoff, "the first wait, the longest and a random share", 3, 3)
        args += ("BACKOFF", *(seconds("backoff", value) for value in times))
    if dead is not None:
        args += ("DEAD", to_bytes(dead))
    if keep is not None:
        args += ("KEEP", seconds("keep", keep))
    if time_limit is not None:
        args += ("TIMELIMIT", seconds("time_limit", time_limit))
    return args


class KeyWords(TypedDict, total=False):
    """The keys of a new job in a tube of type tasks."""

    unique: Text | None
    unique_until: Literal["done", "start"] | float | None
    unique_on: Literal["keep", "reject", "replace"] | None
    limit: tuple[Text, int] | None
    rate: tuple[Text, str] | tuple[Text, str, int] | None
    group: Text | tuple[Text, int] | None


def tube_options(
    pri: int | None,
    utube: Text | None,
    unique: Text | None = None,
    unique_until: str | float | None = None,
    unique_on: str | None = None,
    limit: tuple[Text, int] | None = None,
    rate: tuple[Text, str] | tuple[Text, str, int] | None = None,
    group: Text | tuple[Text, int] | None = None,
) -> list[Arg]:
    """The words of what only tubes understand."""
    args: list[Arg] = []
    if pri is not None:
        args += ("PRI", whole("pri", pri))
    if utube is not None:
        args += ("UTUBE", to_bytes(utube))
    if unique is not None:
        args += ("UNIQUE", to_bytes(unique))
    if isinstance(unique_until, str):
        args += ("UNTIL", unique_until)
    elif unique_until is not None:
        args += ("UNTIL", seconds("unique_until", unique_until))
    if unique_on is not None:
        args += ("ON", unique_on)
    if limit is not None:
        key, places = parts("limit", limit, "a key and a number of tasks", 2, 2)
        args += ("LIMIT", to_bytes(key), whole("limit", places))
    if rate is not None:
        key, *rest = parts("rate", rate, "a key, a rate as '10/s' and perhaps a burst", 2, 3)
        args += ("RATE", to_bytes(key), *rest)
    if isinstance(group, tuple):
        key, weight = parts("group", group, "a key and a weight", 2, 2)
        args += ("GROUP", to_bytes(key), "WEIGHT", whole("group", weight))
    elif group is not None:
        args += ("GROUP", to_bytes(group))
    return args


def add_headers(args: list[Arg], headers: Mapping[str, Text] | None) -> None:
    """Appends the words of the headers of a job. TypeError for what is no text."""
    if headers is None:
        return
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a mapping of names to text, not {headers!r}")
    args += ("HEADERS", len(headers))
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str | bytes):
            raise TypeError(f"a header and its value are text, not {name!r}: {value!r}")
        args += (name, to_bytes(value))


def check_keys(call: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """TypeError if the call has no such keyword."""
    for name in keys:
        if name not in known:
            like = f"unique_{name}"
            hint = f"; did you mean {like!r}?" if like in known else ""
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{hint}")


def parts(name: str, value: Any, what: str, least: int, most: int) -> tuple[Any, ...]:
    """The parts of the argument `name`; TypeError if they are no tuple of so many."""
    if not isinstance(value, tuple | list) or not least <= len(value) <= most:
        raise TypeError(f"{name} must be a tuple of {what}, not {value!r}")
    return tuple(value)


def number(name: str, value: Any) -> float:
    """The argument `name` as a number; TypeError for anything else, ValueError for nan."""
    if isinstance(value, bool | str | bytes):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    try:
        found = value if isinstance(value, int) else float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number of seconds, not {value!r}") from None
    if found != found:
        raise ValueError(f"{name} must be a number of seconds, not {value!r}")
    return found


def seconds(name: str, value: float) -> Arg:
    """A time for the wire: seconds, with three decimals if it is no whole number of them."""
    found = number(name, value)
    if found in (math.inf, -math.inf):
        raise ValueError(f"{name} must be a number of seconds, not {value!r}")
    return int(found) if found == int(found) else f"{found:.3f}"


def whole(name: str, value: int) -> int:
    """The argument `name` as a whole number; TypeError for anything else."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
