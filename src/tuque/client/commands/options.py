"""The options of a new job as words of its command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

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
        "REPLICATE": replicate,
        "DELAY": None if delay is None else seconds(delay),
        "RETRY": retry,
        "TTL": ttl,
        "MAXLEN": maxlen,
        "DEDUPE": None if dedupe is None else to_bytes(dedupe),
        "DEDUPETTL": None if dedupe_ttl is None else dedupe_ttl * 1000,
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
        args += ("ATTEMPTS", attempts)
    if backoff is not None:
        args += ("BACKOFF", *map(seconds, backoff))
    if dead is not None:
        args += ("DEAD", to_bytes(dead))
    if keep is not None:
        args += ("KEEP", seconds(keep))
    if time_limit is not None:
        args += ("TIMELIMIT", seconds(time_limit))
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
        args += ("PRI", pri)
    if utube is not None:
        args += ("UTUBE", to_bytes(utube))
    if unique is not None:
        args += ("UNIQUE", to_bytes(unique))
    if isinstance(unique_until, str):
        args += ("UNTIL", unique_until)
    elif unique_until is not None:
        args += ("UNTIL", seconds(unique_until))
    if unique_on is not None:
        args += ("ON", unique_on)
    if limit is not None:
        args += ("LIMIT", to_bytes(limit[0]), limit[1])
    if rate is not None:
        args += ("RATE", to_bytes(rate[0]), *rate[1:])
    if isinstance(group, tuple):
        args += ("GROUP", to_bytes(group[0]), "WEIGHT", group[1])
    elif group is not None:
        args += ("GROUP", to_bytes(group))
    return args


def add_headers(args: list[Arg], headers: Mapping[str, Text] | None) -> None:
    """Appends the words of the headers of a job. TypeError for what is no text."""
    if headers is None:
        return
    args += ("HEADERS", len(headers))
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str | bytes):
            raise TypeError(f"a header and its value are text, not {name!r}: {value!r}")
        args += (name, to_bytes(value))


def seconds(value: float) -> Arg:
    """A time for the wire: seconds, with three decimals if it is no whole number of them."""
    return int(value) if value == int(value) else f"{value:.3f}"
