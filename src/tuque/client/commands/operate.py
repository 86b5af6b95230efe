"""The method table: the wire form of calls for operators (SPEC O): queues, workers, the past.

As in calls.py, a builder makes a `Call`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tuque.client.api import Arg, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import Call, pairs, seconds, whole

Order: TypeAlias = Literal["none", "quiet", "stop"]
WorkerState: TypeAlias = Literal["alive", "quiet", "lost"]
RunState: TypeAlias = Literal["running", "waiting", "back-off", "queued"]


QueueOrder: TypeAlias = Literal[
    "name", "ready", "delayed", "at-work", "dead", "oldest", "in", "out", "blocked"
]


KeyKind: TypeAlias = Literal["limit", "rate", "group"]


class KeyRow(msgspec.Struct, frozen=True):
    """A key of a tube of type tasks for which tasks wait, or a group that has some; unix ms.

    `waiting` counts the ready tasks that have the key. Somebody has waited since `since_ms` (0 of
    a group); the task that goes next was added at `next_ms` (0: no task of the group may go). A
    limit has `places` and `used`; a rate one token each `token_us`, `burst`, `tokens` and, when the
    next one comes, `token_ms`; a group has the share `weight` / `weights` of the takes.
    """

    kind: KeyKind
    key: str
    waiting: int
    since_ms: int
    next_ms: int
    places: int = 0
    used: int = 0
    token_us: int = 0
    burst: int = 0
    tokens: int = 0
    token_ms: int = 0
    weight: int = 0
    weights: int = 0


class QueueRow(msgspec.Struct, frozen=True):
    """A queue and its jobs on one node.

    `type` is `queue`, `dead` or that of a tube. `dead` counts the jobs in `<name>.dead`,
    `oldest_ms` is the time since the oldest ready job was due, 0 without one. `in_s` and `out_s`
    are jobs added and acked in a second, lately; `blocked` counts clients that wait.
    """

    name: str
    type: str
    ready: int
    delayed: int
    at_work: int
    dead: int
    oldest_ms: int
    in_s: float
    out_s: float
    blocked: int
    pause: str


class QueuePage(msgspec.Struct, frozen=True):
    """Rows of a list of queues, and how many queues there are in all."""

    total: int
    rows: tuple[QueueRow, ...]


class WorkerRun(msgspec.Struct, frozen=True):
    """A job that a worker has begun.

    `for_ms` is how long ago. `running`; of a lost worker `waiting`, `back-off` or `queued`:
    `due_ms` is the time until the job is due again, None if it is queued, or never.
    """

    id: str
    queue: str
    task: str
    attempt: int
    for_ms: int
    state: RunState
    due_ms: int | None


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker as it announced itself, and its runs, 100 at most.

    `since_ms` is the instant in unix ms at which it did, `heard_ms` the ms since its last word.
    `done` counts jobs and `failed` attempts since it began. `order` is what it was asked to do.
    """

    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    slots: int
    busy: int
    done: int
    failed: int
    since_ms: int
    heard_ms: int
    state: WorkerState
    order: Order
    runs: tuple[WorkerRun, ...]
    app: str = ""


class Deploy(msgspec.Struct, frozen=True):
    """The first of some queues' workers began with this version of their app; unix ms."""

    at_ms: int
    app: str
    queues: tuple[str, ...]


def qlist(
    *,
    match: Text | None = None,
    type: Text | None = None,
    sort: QueueOrder = "name",
    desc: bool = False,
    offset: int = 0,
    count: int = 100,
    names: Iterable[Text] = (),
    timeout: float | None = None,
) -> Call[QueuePage]:
    """The queues of this node in an order: `count` (at most 1000) after the first `offset`.

    `match` is a glob of names; `names`: only these queues. `offset + count` is at most 10,000.
    """
    args: list[Arg] = ["QLIST", "SORT", sort, "OFFSET", offset, "COUNT", count]
    if desc:
        args.append("DESC")
    if match is not None:
        args += ("MATCH", to_bytes(match, "match"))
    if type is not None:
        args += ("TYPE", to_bytes(type, "type"))
    wanted = [to_bytes(name, "name") for name in names]
    if wanted:
        args += ("NAMES", *wanted)
    return Call(args=tuple(args), parse=_queues, repeat=True, timeout_s=timeout)


class QueueSettings(msgspec.Struct, frozen=True):
    """Settings of a queue; `expires_s`, `ttl_s` and `maxlen` 0: none. `idle_s`: how long the node
    asked saw no use.
    """

    queue: str
    expires_s: float
    autodelete: bool
    owner: str
    idle_s: float
    ttl_s: float = 0.0
    maxlen: int = 0


def queue_set(
    queue: Text,
    *,
    expires: float | None = None,
    autodelete: bool = False,
    ttl: float | None = None,
    maxlen: int | None = None,
    timeout: float | None = None,
) -> Call[bool]:
    """Has a queue go, with its subscriptions, when nobody has used it for `expires` seconds, or 5 s
    after its last consumer; its jobs live for `ttl` seconds at most, and `maxlen` may be queued at
    a node. What is not given is off. False: nothing has changed.
    """
    args: list[Arg] = ["QUEUE", "SET", to_bytes(queue, "queue")]
    if expires is not None:
        args += ("EXPIRES", seconds("expires", expires))
    args += ("AUTODELETE", "yes" if autodelete else "no")
    if ttl is not None:
        args += ("TTL", seconds("ttl", ttl))
    if maxlen is not None:
        args += ("MAXLEN", whole("maxlen", maxlen))
    return Call(args=tuple(args), parse=bool, repeat=True, timeout_s=timeout)


def queue_show(queue: Text, *, timeout: float | None = None) -> Call[QueueSettings | None]:
    """The settings of a queue; None: it has none."""
    args = ("QUEUE", "SHOW", to_bytes(queue, "queue"))
    return Call(args=args, parse=_queue_settings, repeat=True, timeout_s=timeout)


def queue_purge(
    queue: Text,
    *,
    state: Literal["waiting", "scheduled", "all"] = "waiting",
    here: bool = False,
    timeout: float | None = None,
) -> Call[int]:
    """Removes the jobs of a queue that no worker has; returns how many. Of all nodes, or with
    `here` of the node asked; raises `NotInReach` if one of them was not reachable.
    """
    args: list[Arg] = ["QUEUE", "PURGE", to_bytes(queue, "queue"), "STATE", state]
    args += ["HERE"] * here
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout)


def queue_delete(
    queue: Text,
    *,
    if_unused: bool = False,
    if_empty: bool = False,
    timeout: float | None = None,
) -> Call[bool]:
    """Deletes a queue with its settings, its subscriptions and the jobs that wait.

    False: there is none, or the condition does not hold at the node asked.
    """
    args: list[Arg] = ["QUEUE", "DELETE", to_bytes(queue, "queue")]
    args += ["IFUNUSED"] * if_unused + ["IFEMPTY"] * if_empty
    return Call(args=tuple(args), parse=bool, repeat=True, timeout_s=timeout)


def _queue_settings(reply: Reply) -> QueueSettings | None:
    if reply is None:
        return None
    found = pairs(reply)
    return QueueSettings(
        queue=to_text(found["queue"]),
        expires_s=found["expires-ms"] / 1000,
        autodelete=bool(found["autodelete"]),
        owner=to_text(found["owner"]),
        idle_s=found["idle-ms"] / 1000,
        ttl_s=found.get("ttl-ms", 0) / 1000,
        maxlen=found.get("maxlen", 0),
    )


def worker_here(
    name: Text,
    *,
    host: Text = "",
    pid: int = 0,
    version: Text = "",
    app: Text = "",
    slots: int = 0,
    busy: int = 0,
    done: int = 0,
    failed: int = 0,
    age_ms: int = 0,
    quiet: bool = False,
    queues: Iterable[Text] = (),
    timeout: float | None = None,
) -> Call[Order]:
    """Announces a worker, or says that it lives; returns what it is asked to do.

    Workers say it every 3 s. At most 100 queues. `version` is that of the worker, `app` that of
    its tasks. `age_ms` is how long ago its process began, in ms; 0: unknown.
    """
    args: list[Arg] = ["WORKER", "HERE", to_bytes(name, "name")]
    if host:
        args += ("HOST", to_bytes(host, "host"))
    if version:
        args += ("VERSION", to_bytes(version, "version"))
    if app:
        args += ("APP", to_bytes(app, "app"))
    args += ("PID", pid, "SLOTS", slots, "BUSY", busy, "DONE", done, "FAILED", failed)
    if age_ms:
        args += ("AGE", age_ms)
    if quiet:
        args.append("QUIET")
    names = [to_bytes(queue, "queue") for queue in queues]
    if names:
        args += ("QUEUES", *names)
    return Call(args=tuple(args), parse=_order, repeat=True, timeout_s=timeout)


def worker_bye(name: Text, *, timeout: float | None = None) -> Call[str]:
    """Says that a worker has ended well."""
    args = ("WORKER", "BYE", to_bytes(name, "name"))
    return Call(args=args, parse=to_text, repeat=True, timeout_s=timeout)


def worker_quiet(name: Text, *, timeout: float | None = None) -> Call[str]:
    """Asks a worker to take no more jobs, and to finish those that it has.

    Raises `NoWorker` unless it is alive and announced itself to this node.
    """
    args = ("WORKER", "QUIET", to_bytes(name, "name"))
    return Call(args=args, parse=to_text, repeat=True, timeout_s=timeout)


def worker_stop(name: Text, *, timeout: float | None = None) -> Call[str]:
    """Asks a worker to end, as SIGTERM does; raises as `worker_quiet` does."""
    args = ("WORKER", "STOP", to_bytes(name, "name"))
    return Call(args=args, parse=to_text, repeat=True, timeout_s=timeout)


def worker_deploys(*, timeout: float | None = None) -> Call[list[Deploy]]:
    """The changes of apps' versions that this node heard of from workers, oldest first."""
    args = ("WORKER", "DEPLOYS")
    return Call(args=args, parse=_deploys, repeat=True, timeout_s=timeout)


def worker_list_page(
    cursor: str,
    *,
    match: Text | None = None,
    count: int | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[WorkerInfo]]]:
    """One page of the workers: the next cursor, "0" at the end, and workers."""
    args: list[Arg] = ["WORKER", "LIST", cursor]
    if count is not None:
        args += ("COUNT", count)
    if match is not None:
        args += ("MATCH", to_bytes(match, "match"))
    return Call(args=tuple(args), parse=_workers, repeat=True, timeout_s=timeout)


# From replies to values


def _queues(reply: Reply) -> QueuePage:
    total, rows = reply
    return QueuePage(total, tuple(map(_queue, rows)))


def _queue(row: Reply) -> QueueRow:
    name, kind, ready, delayed, at_work, dead, oldest_ms, in_s, out_s, blocked, pause = row
    return QueueRow(
        to_text(name),
        to_text(kind),
        ready,
        delayed,
        at_work,
        dead,
        oldest_ms,
        float(in_s),
        float(out_s),
        blocked,
        to_text(pause),
    )


def _order(reply: Reply) -> Order:
    orders: dict[bytes, Order] = {b"none": "none", b"quiet": "quiet", b"stop": "stop"}
    return orders[reply]


def _workers(reply: Reply) -> tuple[str, list[WorkerInfo]]:
    cursor, rows = reply
    return to_text(cursor), [_worker(row) for row in rows]


def _deploys(reply: Reply) -> list[Deploy]:
    return [Deploy(at_ms, to_text(app), tuple(map(to_text, names))) for at_ms, app, names in reply]


def _worker(row: Reply) -> WorkerInfo:
    fields = {name.replace("-", "_"): value for name, value in pairs(row).items()}
    fields.setdefault("app", b"")  # of an older node
    for name in ("name", "host", "version", "app", "state", "order"):
        fields[name] = to_text(fields[name])
    fields["queues"] = tuple(map(to_text, fields["queues"]))
    fields["runs"] = [_run(run) for run in fields["runs"]]
    return msgspec.convert(fields, WorkerInfo)


def _run(item: Reply) -> dict[str, object]:
    id, queue, task, attempt, for_ms, state, due_ms = item
    return {
        "id": to_text(id),
        "queue": to_text(queue),
        "task": to_text(task),
        "attempt": attempt,
        "for_ms": for_ms,
        "state": to_text(state),
        "due_ms": due_ms,
    }


class History(NamedTuple):
    """Points, oldest first: `fields` names their values, after the time in ms since 1970."""

    step_ms: int
    fields: tuple[str, ...]
    points: tuple[tuple[int, ...], ...]


# how values of several nodes meet at one time: these by the greatest, all others by their sum
GREATEST = frozenset({"oldest-ms", "loop-p99-us"})


def history(
    step: str = "5s",
    *fields: str,
    queue: Text | None = None,
    from_ms: int | None = None,
    count: int | None = None,
    timeout: float | None = None,
) -> Call[History | None]:
    """Points of this node's past, one each 5 s (`"5s"`) or minute (`"1m"`); fields: all.

    With `queue` those of one queue, or None if it has none; only those later than `from_ms`; the
    last `count`.
    """
    args: tuple[Arg, ...] = ("HISTORY", step)
    if queue is not None:
        args += ("QUEUE", to_bytes(queue, "queue"))
    if from_ms is not None:
        args += ("FROM", from_ms)
    if count is not None:
        args += ("COUNT", count)
    return Call(args=args + fields, parse=_history, repeat=True, timeout_s=timeout)


def history_queues(*, timeout: float | None = None) -> Call[list[str]]:
    """The queues that have points on this node, in the order of their names."""
    return Call(args=("HISTORY", "QUEUES"), parse=_names, repeat=True, timeout_s=timeout)


def merged(histories: list[History]) -> History:
    """Points of several nodes as one: at each time sums, or the greatest (`GREATEST`).

    All must have the same step and fields.
    """
    first = histories[0]
    at: dict[int, list[int]] = {}
    for each in histories:
        if each[:2] != first[:2]:
            raise ValueError("histories of other steps or fields do not merge")
        for time_ms, *values in each.points:
            sums = at.setdefault(time_ms, [0] * len(values))
            for i, value in enumerate(values):
                sums[i] = max(sums[i], value) if each.fields[i] in GREATEST else sums[i] + value
    return first._replace(points=tuple((time_ms, *at[time_ms]) for time_ms in sorted(at)))


def limits_page(
    queue: Text, cursor: str, *, count: int | None = None, timeout: float | None = None
) -> Call[tuple[str, list[KeyRow]]]:
    """One step of a list of keys that tasks wait for: the next cursor, "0" at the end, and keys."""
    args = (
        "LIMITS",
        to_bytes(queue, "queue"),
        "COUNT",
        100 if count is None else count,
        "CURSOR",
        cursor,
    )
    return Call(args=args, parse=_limits, repeat=True, timeout_s=timeout)


def _limits(reply: Reply) -> tuple[str, list[KeyRow]]:
    cursor, rows = reply
    return to_text(cursor), [_key_row(pairs(row)) for row in rows]


def _key_row(row: dict[str, Reply]) -> KeyRow:
    return KeyRow(
        kind=_kind(row["kind"]),
        key=to_text(row["key"]),
        waiting=row["waiting"],
        since_ms=row["since-ms"],
        next_ms=row["next-ms"],
        places=row.get("places", 0),
        used=row.get("used", 0),
        token_us=row.get("token-us", 0),
        burst=row.get("burst", 0),
        tokens=row.get("tokens", 0),
        token_ms=row.get("token-ms", 0),
        weight=row.get("weight", 0),
        weights=row.get("weights", 0),
    )


def _kind(reply: Reply) -> KeyKind:
    kind = to_text(reply)
    return "limit" if kind == "limit" else "rate" if kind == "rate" else "group"


def _history(reply: Reply) -> History | None:
    if reply is None:
        return None
    step_ms, fields, points = reply
    rows = tuple(tuple(int(value) for value in point) for point in points)
    return History(int(step_ms), tuple(map(to_text, fields)), rows)


def _names(reply: Reply) -> list[str]:
    return [to_text(name) for name in reply]
