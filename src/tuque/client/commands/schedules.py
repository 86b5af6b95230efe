"""The method table, schedules: jobs that a tube makes at instants (SPEC T46)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, Unpack

import msgspec

from tuque.client.api import Arg, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import (
    Call,
    add_headers,
    check_keys,
    job_options,
    pairs,
    seconds,
    tube_options,
    work_options,
)

Missed = Literal["skip", "one", "all"]


class Schedule(msgspec.Struct, frozen=True):
    """A schedule of a tube; unix ms, 0: there is none.

    Either `cron`, in the time zone `tz`, or `every_s`. `fired` jobs were made at instants, the last
    one at `last_ms`; `late` counts how often instants were missed; `waits` is why an instant that
    has come makes no job yet. Only `schedule_show` knows `body`.
    """

    name: str
    queue: str
    cron: str
    tz: str
    every_s: float
    missed: str
    paused: bool
    next_ms: int
    last_ms: int
    fired: int
    late: int
    id: str
    waits: str = ""
    body: bytes | None = None


class ScheduleKeys(TypedDict, total=False):
    """The keys of the jobs of a schedule."""

    unique: Text | None
    unique_until: Literal["done", "start"] | float | None
    limit: tuple[Text, int] | None
    rate: tuple[Text, str] | tuple[Text, str, int] | None
    group: Text | tuple[Text, int] | None


def schedule_add(
    queue: Text,
    name: Text,
    body: Text,
    *,
    cron: Text | None = None,
    tz: Text | None = None,
    every_s: float | None = None,
    missed: Missed | None = None,
    retry: int | None = None,
    ttl: float | None = None,
    pri: int | None = None,
    attempts: int | None = None,
    backoff: tuple[float, float, float] | None = None,
    dead: Text | None = None,
    keep: float | None = None,
    keep_body: bool = False,
    time_limit: float | None = None,
    on_expiry: Literal["dead", "drop"] | None = None,
    headers: Mapping[str, Text] | None = None,
    timeout: float | None = None,
    **keys: Unpack[ScheduleKeys],
) -> Call[str]:
    """Adds a job to a tube of type tasks at each instant of `cron`, or each `every_s` seconds.

    Returns "added", "unchanged" if there is one of that name with the same words and body, or
    "replaced". `missed` says what becomes of instants that the leader comes to more than 10 s late.
    What follows `missed` is as in `addjob`.
    """
    check_keys("schedule_add", keys, ScheduleKeys.__annotations__)
    args: list[Arg] = ["SCHEDULE", "ADD", to_bytes(queue, "queue"), to_bytes(name, "name")]
    if cron is not None:
        args += ("CRON", to_bytes(cron, "cron"))
    if every_s is not None:
        args += ("EVERY", seconds("every_s", every_s))
    if tz is not None:
        args += ("TZ", to_bytes(tz, "tz"))
    if missed is not None:
        args += ("MISSED", missed)
    args += job_options(None, None, retry, ttl, None, None, None)
    args += tube_options(pri, None, **keys)
    args += work_options(attempts, backoff, dead, keep, time_limit, on_expiry, keep_body)
    add_headers(args, headers)
    args.append(to_bytes(body, "body"))
    return Call(args=tuple(args), parse=_lower, repeat=True, timeout_s=timeout)


def schedule_page(
    queue: Text, cursor: str, *, count: int | None = None, timeout: float | None = None
) -> Call[tuple[str, list[Schedule]]]:
    """One step of a list of schedules: the next cursor, "0" at the end, and schedules."""
    args: list[Arg] = ["SCHEDULE", "LIST", to_bytes(queue, "queue"), cursor]
    args += ("COUNT", 100 if count is None else count)
    return Call(args=tuple(args), parse=_schedules, repeat=True, timeout_s=timeout)


def schedule_show(queue: Text, name: Text, *, timeout: float | None = None) -> Call[Schedule]:
    """A schedule with the body of its jobs; raises `NoSchedule`."""
    args = ("SCHEDULE", "SHOW", to_bytes(queue, "queue"), to_bytes(name, "name"))
    return Call(args=args, parse=_schedule, repeat=True, timeout_s=timeout)


def schedule_pause(queue: Text, name: Text, *, timeout: float | None = None) -> Call[bool]:
    """Makes no more jobs until it goes on; False if it was paused already. `NoSchedule`."""
    args = ("SCHEDULE", "PAUSE", to_bytes(queue, "queue"), to_bytes(name, "name"))
    return Call(args=args, parse=bool, repeat=True, timeout_s=timeout)


def schedule_resume(queue: Text, name: Text, *, timeout: float | None = None) -> Call[bool]:
    """Goes on, without the instants of the pause; False if it was not paused. `NoSchedule`."""
    args = ("SCHEDULE", "RESUME", to_bytes(queue, "queue"), to_bytes(name, "name"))
    return Call(args=args, parse=bool, repeat=True, timeout_s=timeout)


def schedule_run(queue: Text, name: Text, *, timeout: float | None = None) -> Call[str | None]:
    """Adds a job of the schedule now and returns its id; None: a job has its unique key."""
    args = ("SCHEDULE", "RUN", to_bytes(queue, "queue"), to_bytes(name, "name"))
    return Call(args=args, parse=_id_or_none, timeout_s=timeout)


def schedule_drop(queue: Text, name: Text, *, timeout: float | None = None) -> Call[bool]:
    """Removes the schedule; jobs that it has made stay. False: there was none of that name."""
    args = ("SCHEDULE", "DROP", to_bytes(queue, "queue"), to_bytes(name, "name"))
    return Call(args=args, parse=bool, repeat=True, timeout_s=timeout)


def _lower(reply: Reply) -> str:
    return to_text(reply).lower()


def _id_or_none(reply: Reply) -> str | None:
    return None if reply is None else to_text(reply)


def _schedules(reply: Reply) -> tuple[str, list[Schedule]]:
    cursor, rows = reply
    return to_text(cursor), [_schedule(row) for row in rows]


def _schedule(reply: Reply) -> Schedule:
    fields = pairs(reply)
    return Schedule(
        name=to_text(fields["name"]),
        queue=to_text(fields["queue"]),
        cron=to_text(fields["cron"]),
        tz=to_text(fields["tz"]),
        every_s=fields["every-ms"] / 1000,
        missed=to_text(fields["missed"]),
        paused=bool(fields["paused"]),
        next_ms=fields["next-ms"],
        last_ms=fields["last-ms"],
        fired=fields["fired"],
        late=fields["late"],
        id=to_text(fields["id"]),
        waits=to_text(fields.get("waits", b"")),
        body=fields.get("body"),
    )
