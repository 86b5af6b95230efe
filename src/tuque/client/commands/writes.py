"""The method table, exactly-once writes: jobs at instants, in groups, or staged and published.

A transaction consists of attempts, one per writer; `publish` names those that count, and a version
of the application, which is published once however often it is requested. No I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from tuque.client.api import Arg, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import Call, addjob, pairs
from tuque.client.commands.options import (
    KeyWords,
    add_headers,
    check_keys,
    job_options,
    seconds,
    tube_options,
    work_options,
)

COPIES_S = 30.0  # for the copies of what was published


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


OnFail = Literal["stop", "wait", "continue"]
GroupStatus = Literal["open", "called", "done", "failed", "cancelled"]


class JobGroup(msgspec.Struct, frozen=True):
    """A group of jobs; unix ms, 0: not yet.

    `state` is "called" when the group has become its callback, whose id is `id`. `added` of
    `children` were added; `done` and `failed` have ended. `dead` are open: with `on_fail` "wait"
    the group waits for their replay.
    """

    id: str
    queue: str
    state: GroupStatus
    children: int
    added: int
    done: int
    failed: int
    on_fail: str
    has_callback: bool
    created_ms: int
    over_ms: int
    dead: int = 0


class ChildEnd(msgspec.Struct, frozen=True):
    """A child of a group; `how` it ended is done, dead, cancelled or gone, or that it is open.

    One that is open and dead waits for a replay.
    """

    index: int
    id: str
    state: Literal["open", "done", "failed"]
    result: bytes | None
    how: str
    reason: str


class GroupChild(msgspec.Struct, frozen=True):
    """A child of a group without its result, of which `result_bytes` are kept; unix ms, 0: open.

    One that is open and dead (`how`) waits for a replay.
    """

    index: int
    id: str
    state: Literal["open", "done", "failed"]
    result_bytes: int
    how: str
    reason: str
    over_ms: int


class AddOptions(KeyWords, total=False):
    """The options of `addjob`."""

    timeout_ms: int
    replicate: int | None
    delay: float | None
    retry: int | None
    ttl: int | None
    maxlen: int | None
    asynchronous: bool
    dedupe: Text | None
    dedupe_ttl: int | None
    pri: int | None
    utube: Text | None
    attempts: int | None
    backoff: tuple[float, float, float] | None
    dead: Text | None
    keep: float | None
    time_limit: float | None
    headers: Mapping[str, Text] | None
    timeout: float | None


def addjob_new(queue: Text, body: Text, **options: Unpack[AddOptions]) -> Call[tuple[str, bool]]:
    """Like `addjob`; returns the id, and False if it is of a job that another call had added.

    False is certain. If the reply was lost and the call was repeated, the job that it met may be
    its own: that is True.
    """
    check_keys("addjob_new", options, AddOptions.__annotations__)
    call = addjob(queue, body, **options)
    found: Any = msgspec.structs.replace(
        call, args=(*call.args, "WITHNEW"), parse=_id_and_new, after_loss=_maybe_new
    )
    return found  # type: ignore[no-any-return]  # `replace` keeps the type of the old result


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
    ttl: int | None = None,
    pri: int | None = None,
    attempts: int | None = None,
    backoff: tuple[float, float, float] | None = None,
    dead: Text | None = None,
    keep: float | None = None,
    time_limit: float | None = None,
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
    args: list[Arg] = ["SCHEDULE", "ADD", to_bytes(queue), to_bytes(name)]
    if cron is not None:
        args += ("CRON", to_bytes(cron))
    if every_s is not None:
        args += ("EVERY", seconds("every_s", every_s))
    if tz is not None:
        args += ("TZ", to_bytes(tz))
    if missed is not None:
        args += ("MISSED", missed)
    args += job_options(None, None, retry, ttl, None, None, None)
    args += tube_options(pri, None, **keys)
    args += work_options(attempts, backoff, dead, keep, time_limit)
    add_headers(args, headers)
    args.append(to_bytes(body))
    return Call(args=tuple(args), parse=_lower, repeat=True, timeout_s=timeout)


def schedule_page(
    queue: Text, cursor: str, *, count: int | None = None, timeout: float | None = None
) -> Call[tuple[str, list[Schedule]]]:
    """One step of a list of schedules: the next cursor, "0" at the end, and schedules."""
    args: list[Arg] = ["SCHEDULE", "LIST", to_bytes(queue), cursor]
    args += ("COUNT", 100 if count is None else count)
    return Call(args=tuple(args), parse=_schedules, repeat=True, timeout_s=timeout)


def schedule_show(queue: Text, name: Text, *, timeout: float | None = None) -> Call[Schedule]:
    """A schedule with the body of its jobs; raises `NoSchedule`."""
    args = ("SCHEDULE", "SHOW", to_bytes(queue), to_bytes(name))
    return Call(args=args, parse=_schedule, repeat=True, timeout_s=timeout)


def schedule_pause(queue: Text, name: Text, *, timeout: float | None = None) -> Call[bool]:
    """Makes no more jobs until it goes on; False if it was paused already. `NoSchedule`."""
    args = ("SCHEDULE", "PAUSE", to_bytes(queue), to_bytes(name))
    return Call(args=args, parse=bool, repeat=True, timeout_s=timeout)


def schedule_resume(queue: Text, name: Text, *, timeout: float | None = None) -> Call[bool]:
    """Goes on, without the instants of the pause; False if it was not paused. `NoSchedule`."""
    args = ("SCHEDULE", "RESUME", to_bytes(queue), to_bytes(name))
    return Call(args=args, parse=bool, repeat=True, timeout_s=timeout)


def schedule_run(queue: Text, name: Text, *, timeout: float | None = None) -> Call[str | None]:
    """Adds a job of the schedule now and returns its id; None: a job has its unique key."""
    args = ("SCHEDULE", "RUN", to_bytes(queue), to_bytes(name))
    return Call(args=args, parse=_id_or_none, timeout_s=timeout)


def schedule_drop(queue: Text, name: Text, *, timeout: float | None = None) -> Call[bool]:
    """Removes the schedule; jobs that it has made stay. False: there was none of that name."""
    args = ("SCHEDULE", "DROP", to_bytes(queue), to_bytes(name))
    return Call(args=args, parse=bool, repeat=True, timeout_s=timeout)


def group_create(
    queue: Text,
    children: int,
    *,
    body: Text | None = None,
    on_fail: OnFail | None = None,
    keep: float | None = None,
    retry: int | None = None,
    pri: int | None = None,
    limit: tuple[Text, int] | None = None,
    rate: tuple[Text, str] | tuple[Text, str, int] | None = None,
    group: Text | tuple[Text, int] | None = None,
    attempts: int | None = None,
    backoff: tuple[float, float, float] | None = None,
    dead: Text | None = None,
    time_limit: float | None = None,
    headers: Mapping[str, Text] | None = None,
    timeout: float | None = None,
) -> Call[str]:
    """Makes a group of so many jobs in a tube of type tasks, and returns its id.

    With `body` a job with it is added when all children have ended, under that id; the options
    after `keep` are its. `group_add` names the children. Not sent twice.
    """
    args: list[Arg] = ["GROUP", "CREATE", to_bytes(queue), children]
    if on_fail is not None:
        args += ("ONFAIL", on_fail)
    if keep is not None:
        args += ("KEEP", seconds("keep", keep))
    args += job_options(None, None, retry, None, None, None, None)
    args += tube_options(pri, None, limit=limit, rate=rate, group=group)
    args += work_options(attempts, backoff, dead, None, time_limit)
    add_headers(args, headers)
    if body is not None:
        args += ("THEN", to_bytes(body))
    return Call(args=tuple(args), parse=to_text, timeout_s=timeout)


def group_add(
    queue: Text,
    id: Text,
    children: Mapping[int, Text],
    *,
    no_cancel: bool = False,
    timeout: float | None = None,
) -> Call[int]:
    """Adds children by their indexes, 500 at most; how many were new. `NoJobGroup`.

    With `no_cancel` the group waits for these, and does not cancel them: another one added them.
    """
    args: list[Arg] = ["GROUP", "ADD", to_bytes(queue), to_bytes(id)]
    if no_cancel:
        args.append("NOCANCEL")
    for index, child in children.items():
        args += (index, to_bytes(child))
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout)


def group_show(queue: Text, id: Text, *, timeout: float | None = None) -> Call[JobGroup]:
    """How far a group is; raises `NoJobGroup`."""
    args = ("GROUP", "SHOW", to_bytes(queue), to_bytes(id))
    return Call(args=args, parse=_group, repeat=True, timeout_s=timeout)


def group_cancel(queue: Text, id: Text, *, timeout: float | None = None) -> Call[bool]:
    """Cancels a group and its open children; False if it was not open. `NoJobGroup`."""
    args = ("GROUP", "CANCEL", to_bytes(queue), to_bytes(id))
    return Call(args=args, parse=bool, repeat=True, timeout_s=timeout)


def group_page(
    queue: Text,
    cursor: str,
    *,
    count: int | None = None,
    state: GroupStatus | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[JobGroup]]]:
    """One step of a list of groups: the next cursor, "0" at the end, and groups."""
    args: list[Arg] = ["GROUP", "LIST", to_bytes(queue), cursor]
    args += ("COUNT", 100 if count is None else count)
    if state is not None:
        args += ("STATE", state)
    return Call(args=tuple(args), parse=_groups, repeat=True, timeout_s=timeout)


def ends_page(
    queue: Text, id: Text, cursor: str, *, count: int | None = None, timeout: float | None = None
) -> Call[tuple[str, list[ChildEnd]]]:
    """One step through the children of a group: the next index, "0" at the end, and children."""
    args: list[Arg] = ["GROUP", "RESULTS", to_bytes(queue), to_bytes(id), cursor]
    args += ("COUNT", 1_000 if count is None else count)
    return Call(args=tuple(args), parse=_ends, repeat=True, timeout_s=timeout)


def children_page(
    queue: Text,
    id: Text,
    cursor: str,
    *,
    count: int | None = None,
    state: Literal["open", "done", "failed", "dead"] | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[GroupChild]]]:
    """Like `ends_page`, without results, and of one state if that is given."""
    args: list[Arg] = ["GROUP", "CHILDREN", to_bytes(queue), to_bytes(id), cursor]
    args += ("COUNT", 1_000 if count is None else count)
    if state is not None:
        args += ("STATE", state)
    return Call(args=tuple(args), parse=_children, repeat=True, timeout_s=timeout)


def stage(
    txn: Text,
    attempt: Text,
    queue: Text,
    body: Text,
    *,
    ttl_ms: int,
    replicate: int | None = None,
    delay: int | None = None,
    retry: int | None = None,
    ttl: int | None = None,
    maxlen: int | None = None,
    dedupe: Text | None = None,
    dedupe_ttl: int | None = None,
    timeout: float | None = None,
) -> Call[int]:
    """Stages a job, invisible until `publish`; returns the attempt's count. Not sent twice.

    The attempt is dropped when nothing is staged in it for `ttl_ms`. If a reply is lost, start
    another attempt. The options are those of `addjob`.
    """
    args: list[Arg] = ["STAGE", to_bytes(txn), to_bytes(attempt), ttl_ms]
    args += (to_bytes(queue), to_bytes(body))
    args += job_options(replicate, delay, retry, ttl, maxlen, dedupe, dedupe_ttl)
    return Call(args=tuple(args), parse=int, timeout_s=timeout)


def publish(
    app: Text,
    version: int,
    txn: Text,
    attempts: Iterable[Text] = (),
    *,
    ack: tuple[Text, int, int] | None = None,
    timeout: float | None = None,
) -> Call[int]:
    """Adds all jobs of the attempts at once and returns how many; -1: this version was published.

    `ack` (group, epoch, seq) commits a batch of a lease in the same step. All of it, or nothing.
    """
    args: list[Arg] = ["PUBLISH", to_bytes(app), version]
    if ack is not None:
        args += ("ACK", to_bytes(ack[0]), ack[1], ack[2])
    args.append(to_bytes(txn))
    args += map(to_bytes, attempts)
    return Call(args=tuple(args), parse=int, repeat=True, wait_s=COPIES_S, timeout_s=timeout)


def _lower(reply: Reply) -> str:
    return to_text(reply).lower()


def _id_or_none(reply: Reply) -> str | None:
    return None if reply is None else to_text(reply)


def _schedules(reply: Reply) -> tuple[str, list[Schedule]]:
    cursor, rows = reply
    return to_text(cursor), [_schedule(row) for row in rows]


def _schedule(reply: Reply) -> Schedule:
    told = pairs(reply)
    return Schedule(
        name=to_text(told["name"]),
        queue=to_text(told["queue"]),
        cron=to_text(told["cron"]),
        tz=to_text(told["tz"]),
        every_s=told["every-ms"] / 1000,
        missed=to_text(told["missed"]),
        paused=bool(told["paused"]),
        next_ms=told["next-ms"],
        last_ms=told["last-ms"],
        fired=told["fired"],
        late=told["late"],
        id=to_text(told["id"]),
        waits=to_text(told.get("waits", b"")),
        body=told.get("body"),
    )


def _groups(reply: Reply) -> tuple[str, list[JobGroup]]:
    cursor, rows = reply
    return to_text(cursor), [_group(row) for row in rows]


def _group(reply: Reply) -> JobGroup:
    told = pairs(reply)
    state: Any = to_text(told["state"])
    return JobGroup(
        id=to_text(told["id"]),
        queue=to_text(told["queue"]),
        state=state,
        children=told["children"],
        added=told["added"],
        done=told["done"],
        failed=told["failed"],
        on_fail=to_text(told["onfail"]),
        has_callback=bool(told["callback"]),
        created_ms=told["created-ms"],
        over_ms=told["over-ms"],
        dead=told.get("dead", 0),
    )


def _ends(reply: Reply) -> tuple[str, list[ChildEnd]]:
    after, rows = reply
    found: list[ChildEnd] = []
    for index, id, state, result, how, reason in rows:
        word: Any = to_text(state)
        found.append(ChildEnd(index, to_text(id), word, result, to_text(how), to_text(reason)))
    return str(after), found


def _children(reply: Reply) -> tuple[str, list[GroupChild]]:
    after, rows = reply
    found: list[GroupChild] = []
    for index, id, state, size, how, reason, over_ms in rows:
        word: Any = to_text(state)
        how, reason = to_text(how), to_text(reason)
        found.append(GroupChild(index, to_text(id), word, size, how, reason, over_ms))
    return str(after), found


def _id_and_new(reply: Reply) -> tuple[str, bool]:
    id, is_new = reply
    return to_text(id), bool(is_new)


def _maybe_new(reply: Reply) -> Reply:
    """The job may have been added by this very call, whose reply was lost."""
    return [reply[0], 1] if isinstance(reply, list) else reply
