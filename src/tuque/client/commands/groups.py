"""The method table, groups of jobs: children and a callback (SPEC T51)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tuque.client.api import Arg, JobId, Reply, Text, id_bytes, to_bytes, to_text
from tuque.client.commands.calls import (
    Call,
    add_headers,
    job_options,
    pairs,
    seconds,
    tube_options,
    work_options,
)
from tuque.client.commands.staged import OnFail

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
    args: list[Arg] = ["GROUP", "CREATE", to_bytes(queue, "queue"), children]
    if on_fail is not None:
        args += ("ONFAIL", on_fail)
    if keep is not None:
        args += ("KEEP", seconds("keep", keep))
    args += job_options(None, None, retry, None, None, None, None)
    args += tube_options(pri, None, limit=limit, rate=rate, group=group)
    args += work_options(attempts, backoff, dead, None, time_limit)
    add_headers(args, headers)
    if body is not None:
        args += ("THEN", to_bytes(body, "body"))
    return Call(args=tuple(args), parse=to_text, timeout_s=timeout)


def group_add(
    queue: Text,
    id: JobId,
    children: Mapping[int, JobId],
    *,
    no_cancel: bool = False,
    timeout: float | None = None,
) -> Call[int]:
    """Adds children by their indexes, 500 at most; how many were new. `NoJobGroup`.

    With `no_cancel` the group waits for these, and does not cancel them: another one added them.
    """
    if not isinstance(children, Mapping):
        raise TypeError(f"children maps indexes to ids of jobs, and is not {children!r}")
    args: list[Arg] = ["GROUP", "ADD", to_bytes(queue, "queue"), id_bytes(id)]
    if no_cancel:
        args.append("NOCANCEL")
    for index, child in children.items():
        args += (index, id_bytes(child))
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout)


def group_show(queue: Text, id: JobId, *, timeout: float | None = None) -> Call[JobGroup]:
    """How far a group is; raises `NoJobGroup`."""
    args = ("GROUP", "SHOW", to_bytes(queue, "queue"), id_bytes(id))
    return Call(args=args, parse=_group, repeat=True, timeout_s=timeout)


def group_cancel(queue: Text, id: JobId, *, timeout: float | None = None) -> Call[bool]:
    """Cancels a group and its open children; False if it was not open. `NoJobGroup`."""
    args = ("GROUP", "CANCEL", to_bytes(queue, "queue"), id_bytes(id))
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
    args: list[Arg] = ["GROUP", "LIST", to_bytes(queue, "queue"), cursor]
    args += ("COUNT", 100 if count is None else count)
    if state is not None:
        args += ("STATE", state)
    return Call(args=tuple(args), parse=_groups, repeat=True, timeout_s=timeout)


def ends_page(
    queue: Text, id: JobId, cursor: str, *, count: int | None = None, timeout: float | None = None
) -> Call[tuple[str, list[ChildEnd]]]:
    """One step through the children of a group: the next index, "0" at the end, and children."""
    args: list[Arg] = ["GROUP", "RESULTS", to_bytes(queue, "queue"), id_bytes(id), cursor]
    args += ("COUNT", 1_000 if count is None else count)
    return Call(args=tuple(args), parse=_ends, repeat=True, timeout_s=timeout)


def children_page(
    queue: Text,
    id: JobId,
    cursor: str,
    *,
    count: int | None = None,
    state: Literal["open", "done", "failed", "dead"] | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[GroupChild]]]:
    """Like `ends_page`, without results, and of one state if that is given."""
    args: list[Arg] = ["GROUP", "CHILDREN", to_bytes(queue, "queue"), id_bytes(id), cursor]
    args += ("COUNT", 1_000 if count is None else count)
    if state is not None:
        args += ("STATE", state)
    return Call(args=tuple(args), parse=_children, repeat=True, timeout_s=timeout)


def _groups(reply: Reply) -> tuple[str, list[JobGroup]]:
    cursor, rows = reply
    return to_text(cursor), [_group(row) for row in rows]


def _group(reply: Reply) -> JobGroup:
    fields = pairs(reply)
    state: Any = to_text(fields["state"])
    return JobGroup(
        id=to_text(fields["id"]),
        queue=to_text(fields["queue"]),
        state=state,
        children=fields["children"],
        added=fields["added"],
        done=fields["done"],
        failed=fields["failed"],
        on_fail=to_text(fields["onfail"]),
        has_callback=bool(fields["callback"]),
        created_ms=fields["created-ms"],
        over_ms=fields["over-ms"],
        dead=fields.get("dead", 0),
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
