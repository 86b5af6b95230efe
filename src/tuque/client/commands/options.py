"""The options of a new job as words of its command."""

from __future__ import annotations

from collections.abc import Mapping

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
