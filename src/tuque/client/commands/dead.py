"""The method table: the wire form of calls about dead letters (SPEC W12).

A dead letter is a job that does not run again. It keeps its id, and is in the queue of dead
letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tuque.client.api import Arg, JobId, Reply, Text, id_bytes, id_text, to_bytes, to_text
from tuque.client.commands.calls import Call, header_map, pairs, whole

IDS_AT_ONCE = 1000  # of a replay or purge by ids
REASONS_MAX = 1000  # rows of a count (W12.3)


class DeadLetter(msgspec.Struct, frozen=True):
    """A row of the list: `origin` is the queue that the job came from; unix ms."""

    id: str
    origin: str
    task: str
    attempts: int
    cause: str
    reason: str
    first_failure_ms: int
    last_failure_ms: int


class DeadJob(msgspec.Struct, frozen=True):
    """All of one dead letter; unix ms, `ends_ms` is when the node forgets it."""

    id: str
    queue: str
    origin: str
    task: str
    attempts: int
    of: int
    starts: int
    replays: int
    cause: str
    reason: str
    detail: bytes
    worker: str
    added_ms: int
    first_failure_ms: int
    first_reason: str
    last_failure_ms: int
    dead_ms: int
    ends_ms: int
    headers: dict[str, str]
    body: bytes
    crashes: int = 0


class DeadCount(msgspec.Struct, frozen=True):
    """How many dead letters have a cause and a reason."""

    cause: str
    reason: str
    count: int


class DeadPage(msgspec.Struct, frozen=True):
    """One step of a replay or purge: the next cursor, "0" at the end; of `seen` letters `done`."""

    cursor: str
    done: int
    seen: int


class DeadFilters(msgspec.Struct, frozen=True):
    """Which dead letters are meant; globs for `reason` and `task`, `since_ms` in unix ms."""

    reason: Text | None = None
    cause: Text | None = None
    task: Text | None = None
    since_ms: int | None = None

    def words(self) -> list[Arg]:
        args: list[Arg] = []
        for word, text in (("REASON", self.reason), ("CAUSE", self.cause), ("TASK", self.task)):
            if text is not None:
                args += (word, to_bytes(text))
        if self.since_ms is not None:
            args += ("SINCE", self.since_ms)
        return args


def dead_page(
    queue: Text,
    cursor: str,
    filters: DeadFilters,
    *,
    count: int | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[DeadLetter]]]:
    """One step of a list of dead letters: the next cursor, "0" at the end, and rows."""
    args: list[Arg] = ["DEAD", "LIST", to_bytes(queue, "queue"), cursor]
    if count is not None:
        args += ("COUNT", count)
    args += filters.words()
    return Call(args=tuple(args), parse=_page, repeat=True, timeout_s=timeout)


def dead_show(id: JobId, *, timeout: float | None = None) -> Call[DeadJob]:
    """All of one dead letter; raises `NoJob` if it is none here."""
    return Call(
        args=("DEAD", "SHOW", id_bytes(id)),
        parse=_shown,
        repeat=True,
        timeout_s=timeout,
        job_id=id_text(id),
    )


def dead_stat(queue: Text, *, timeout: float | None = None) -> Call[list[DeadCount]]:
    """The dead letters of a queue, counted by cause and reason, the greatest count first."""
    args = ("DEAD", "STAT", to_bytes(queue, "queue"))
    return Call(args=args, parse=_counts, repeat=True, timeout_s=timeout)


def dead_replay_page(
    queue: Text,
    cursor: str,
    filters: DeadFilters,
    *,
    ids: Iterable[JobId] = (),
    to: Text | None = None,
    rate: int | None = None,
    timeout: float | None = None,
) -> Call[DeadPage]:
    """One step of a replay: dead letters go to their queues again, as new.

    It is about those with `ids`, or all that the filters mean. With `rate`, at most so many a
    second; the step is as many letters as a second allows, and ends when the next one may begin.
    """
    return _change("REPLAY", queue, cursor, filters, ids, to, timeout, rate)


def dead_purge_page(
    queue: Text,
    cursor: str,
    filters: DeadFilters,
    *,
    ids: Iterable[JobId] = (),
    timeout: float | None = None,
) -> Call[DeadPage]:
    """One step of a purge: removes dead letters for good."""
    return _change("PURGE", queue, cursor, filters, ids, None, timeout)


def _change(
    word: str,
    queue: Text,
    cursor: str,
    filters: DeadFilters,
    ids: Iterable[JobId],
    to: Text | None,
    timeout: float | None,
    rate: int | None = None,
) -> Call[DeadPage]:
    args: list[Arg] = ["DEAD", word, to_bytes(queue, "queue")]
    if to is not None:
        args += ("QUEUE", to_bytes(to, "to"))
    named = [id_bytes(id) for id in ids]
    wait_s = 0.0
    if rate is not None:
        args += ("RATE", whole("rate", rate))
        args += () if named else ("COUNT", at_once(rate))
        wait_s = (len(named) or at_once(rate)) / max(1, rate) + 1.0
    if named:
        args += ("IDS", *named)
    else:
        args += ("CURSOR", cursor, *(filters.words() or ["ALL"]))
    return Call(args=tuple(args), parse=_changed, wait_s=wait_s, timeout_s=timeout)


def at_once(rate: int | None) -> int:
    """The letters of one step."""
    return IDS_AT_ONCE if rate is None else max(1, min(whole("rate", rate), IDS_AT_ONCE))


def _page(reply: Reply) -> tuple[str, list[DeadLetter]]:
    cursor, rows = reply
    return to_text(cursor), [_row(row) for row in rows]


def _row(row: Reply) -> DeadLetter:
    id, origin, task, attempts, cause, reason, first_ms, last_ms = row
    return DeadLetter(
        to_text(id),
        to_text(origin),
        to_text(task),
        attempts,
        to_text(cause),
        to_text(reason),
        first_ms,
        last_ms,
    )


def _shown(reply: Reply) -> DeadJob:
    fields = pairs(reply)
    found: dict[str, Any] = {}
    for name in DeadJob.__struct_fields__:
        value = fields[name.replace("_", "-")]
        is_text = type(value) is bytes and name not in ("detail", "body")
        found[name] = to_text(value) if is_text else value
    found["headers"] = header_map(found["headers"])
    return msgspec.convert(found, DeadJob)


def _counts(reply: Reply) -> list[DeadCount]:
    return [DeadCount(to_text(cause), to_text(reason), count) for cause, reason, count in reply]


def _changed(reply: Reply) -> DeadPage:
    cursor, done, seen = reply
    return DeadPage(to_text(cursor), done, seen)
