"""The method table, tubes: the wire form of calls about tubes, their leaders and rights.

Builders whose first argument is `tube` become methods of a `Tube` object, the others of the client.
Times are seconds, whole or not. No I/O and no clock here.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from tuque.client.api import Arg, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import Call, number, pairs
from tuque.errors import TUBE_HOME, TubeHome

TubeType: TypeAlias = Literal["fifo", "fifottl", "limfifottl", "utube", "utubettl", "tasks"] | str
TaskState: TypeAlias = Literal["READY", "TAKEN", "DELAYED", "BURIED"]


class TubeTask(msgspec.Struct, frozen=True):
    """A task as of the node's reply.

    `number` is its id in the tube, `status` READY, TAKEN, DELAYED, BURIED or DONE, `token` the
    number of the current take (0: none), `job_id` its id as a job, `form` the type of `data`:
    bytes, text, or msgpack, `session` the client's session on the node that replied.
    """

    tube: str
    number: int
    status: str
    data: bytes
    token: int
    job_id: str
    form: str = "bytes"
    session: str = ""

    @property
    def value(self) -> Any:
        """The value that was put: bytes, text, or decoded MessagePack.

        UnicodeDecodeError or msgspec's DecodeError if Python has no such value; `data` has it.
        """
        if self.form == "text":
            return to_text(self.data)
        return msgspec.msgpack.decode(self.data) if self.form == "msgpack" else self.data


TaskRef: TypeAlias = int | TubeTask


class TubeChange(msgspec.Struct, frozen=True):
    """One change of a task: number `seq` of its tube, at `at_ms` (since 1970)."""

    seq: int
    event: str
    number: int
    status: str
    at_ms: int


class TubeStatistics(TypedDict):
    """Tasks by status, and calls since the node started."""

    tasks: dict[str, int]
    calls: dict[str, int]


class TubeInfo(msgspec.Struct, frozen=True):
    """Options and figures of a tube at the node asked; `ttl` and `ttr` are None for for ever.

    `ready` to `buried` count at the leader, whose id is `home`: at another node they are 0, and
    `copies` is how many tasks its replica has.
    `stopped` is why the node asked delivers none of its tasks: the type is missing, or its driver
    failed; else empty.
    """

    name: str
    type: str
    temporary: bool
    ttl: float | None
    ttr: float | None
    pri: int
    capacity: int
    ready: int
    taken: int
    delayed: int
    buried: int
    next_number: int
    waiting_takes: int
    waiting_puts: int
    changes: int
    home: str = ""
    epoch: int = 0
    state: str = "RUNNING"
    sync: int = 1
    conflict: str = ""
    stopped: str = ""
    failover: bool = False
    copies: int = 0


class TubeSettings(msgspec.Struct, frozen=True):
    """Settings of all tubes of a node.

    `ttr` is how long a session outlives its connections; None: for ever.
    """

    ttr: float | None
    in_replicaset: bool


# Of one tube


def create(
    tube: Text,
    type: TubeType,
    *,
    if_not_exists: bool = False,
    temporary: bool = False,
    ttl: float | None = None,
    ttr: float | None = None,
    pri: int | None = None,
    capacity: int | None = None,
    storage_mode: str | None = None,
    engine: str | None = None,
    on_change: Text | None = None,
    sync: int | Literal["majority"] | None = None,
    failover: bool | None = None,
    alone: bool = False,
    implicit: bool = False,
    timeout: float | None = None,
) -> Call[None]:
    """Creates the tube. ReplyError if it exists; with `if_not_exists` only if of another type.

    `ttl`, `ttr` (seconds) and `pri` are defaults for its tasks, `capacity` is for limfifottl. The
    reply to a change comes once `sync` nodes have it, or "majority", the default where nodes vote.
    There votes choose a new leader. In a cluster whose nodes cannot vote it is refused, unless it
    may wait for a lost leader: `alone` or `implicit`. An `implicit` tube is dropped after an hour
    without use. `failover` is obsolete: True has no effect, False is refused.
    """
    args: list[Arg] = ["TUBE", "CREATE", to_bytes(tube, "tube"), type]
    args += ["IFNOTEXISTS"] * if_not_exists + ["TEMPORARY"] * temporary
    args += ["ALONE"] * alone + ["IMPLICIT"] * implicit
    options = {
        "TTL": _seconds("ttl", ttl),
        "TTR": _seconds("ttr", ttr),
        "PRI": pri,
        "CAPACITY": capacity,
    }
    options["SYNC"] = sync
    options["FAILOVER"] = None if failover is None else "yes" if failover else "no"
    names = {"STORAGEMODE": storage_mode, "ENGINE": engine, "ONCHANGE": on_change}
    args += _given({**options, **names})
    return Call(args=tuple(args), parse=_nothing, repeat=if_not_exists, timeout_s=timeout)


def _packed(data: object) -> bytes:
    """The value as MessagePack. TypeError or OverflowError, which name the argument."""
    try:
        return msgspec.msgpack.encode(data)
    except (TypeError, OverflowError) as err:
        raise type(err)(f"data is no MessagePack value: {err}") from None


def put(
    tube: Text,
    data: object,
    *,
    pri: int | None = None,
    ttl: float | None = None,
    ttr: float | None = None,
    delay: float | None = None,
    utube: Text | None = None,
    wait: float | None = None,
    timeout: float | None = None,
) -> Call[TubeTask | None]:
    """Puts bytes, text, or any MessagePack value; returns the task. Never sent twice.

    A full limfifottl tube returns None, at once or after `wait` seconds. A smaller `pri` is
    taken first. `ttl`, `ttr`, `delay` are seconds.
    """
    form = "bytes" if isinstance(data, bytes) else "text" if isinstance(data, str) else "msgpack"
    body = to_bytes(data) if isinstance(data, str | bytes) else _packed(data)
    args: list[Arg] = ["TUBE", "PUT", to_bytes(tube, "tube"), body]
    if form != "bytes":
        args += ("FORM", form)
    times = {
        "TTL": _seconds("ttl", ttl),
        "TTR": _seconds("ttr", ttr),
        "DELAY": _seconds("delay", delay),
    }
    args += _given({"PRI": pri, "UTUBE": utube, **times, "TIMEOUT": _seconds("wait", wait)})
    return Call(args=tuple(args), parse=_task_of(tube), wait_s=wait or 0.0, timeout_s=timeout)


def take(
    tube: Text, wait: float | None = None, *, timeout: float | None = None
) -> Call[TubeTask | None]:
    """Takes the next task for this client's session; None if none came within `wait` seconds.

    Without `wait` it waits until there is one; 0 does not wait.
    """
    if wait is not None and number("wait", wait) < 0:
        raise ValueError(f"wait must be 0 or more, or None to wait for ever: {wait}")
    is_blocking = wait is None or wait > 0
    return Call(
        args=("TUBE", "TAKE", to_bytes(tube, "tube"), "TIMEOUT", _seconds("wait", wait) or "0"),
        parse=_task_of(tube),
        repeat=True,
        wait_s=wait,
        wait_arg=4 if is_blocking else 0,
        waits_in_s=True,
        in_session=True,
        timeout_s=timeout,
    )


def ack(tube: Text, task: TaskRef, *, timeout: float | None = None) -> Call[TubeTask]:
    """Acknowledges the task, which removes it. NotTaken if this client's session does not hold it.

    Given a task, it refers to that take only; given a number, to the current one.
    """
    return _about("ACK", tube, task, timeout, in_session=True)


def release(
    tube: Text, task: TaskRef, *, delay: float | None = None, timeout: float | None = None
) -> Call[TubeTask]:
    """Releases the task, to its old place, or after `delay` seconds. NotTaken."""
    option = _given({"DELAY": _seconds("delay", delay)})
    return _about("RELEASE", tube, task, timeout, option, in_session=True)


def touch(
    tube: Text, task: TaskRef, increment: float, *, timeout: float | None = None
) -> Call[TubeTask | None]:
    """Adds `increment` seconds to the task's time. NotTaken, WrongTube.

    Extends its ttl and ttr for good. None if the increment is 0.
    """
    args: list[Arg] = [
        "TUBE",
        "TOUCH",
        to_bytes(tube, "tube"),
        _number(task),
        _seconds("increment", increment) or "0",
    ]
    args += _token(task)
    return Call(
        args=tuple(args),
        parse=_task_of(tube),
        in_session=True,
        session=_session(task),
        timeout_s=timeout,
    )


def bury(tube: Text, task: TaskRef, *, timeout: float | None = None) -> Call[TubeTask]:
    """Sets the task aside until `kick`, whoever holds it. NoTask.

    Given a task as taken, it refers to that take only: NotTaken.
    """
    return _about("BURY", tube, task, timeout)


def kick(tube: Text, count: int = 1, *, timeout: float | None = None) -> Call[int]:
    """Makes up to `count` buried tasks READY; returns how many."""
    return Call(args=("TUBE", "KICK", to_bytes(tube, "tube"), count), parse=int, timeout_s=timeout)


def peek(tube: Text, task: TaskRef, *, timeout: float | None = None) -> Call[TubeTask]:
    """The task as it is; changes nothing. NoTask."""
    args = ("TUBE", "PEEK", to_bytes(tube, "tube"), _number(task))
    return Call(args=args, parse=_known_task_of(tube), repeat=True, timeout_s=timeout)


def delete(tube: Text, task: TaskRef, *, timeout: float | None = None) -> Call[TubeTask]:
    """Removes the task, whoever holds it. NoTask."""
    args = ("TUBE", "DELETE", to_bytes(tube, "tube"), _number(task))
    return Call(args=args, parse=_known_task_of(tube), timeout_s=timeout)


def tasks_by_state(
    tube: Text, state: TaskState, *, count: int | None = None, timeout: float | None = None
) -> Call[list[TubeTask]]:
    """Up to `count` (100) tasks in that state, smaller `pri` first, then older ones."""
    args: list[Arg] = ["TUBE", "TASKS", to_bytes(tube, "tube"), state, *_given({"COUNT": count})]
    read = _known_task_of(tube)
    return Call(
        args=tuple(args), parse=lambda r: list(map(read, r)), repeat=True, timeout_s=timeout
    )


def truncate(tube: Text, *, timeout: float | None = None) -> Call[int]:
    """Removes all tasks, whoever holds them; returns how many."""
    return Call(
        args=("TUBE", "TRUNCATE", to_bytes(tube, "tube")), parse=int, repeat=True, timeout_s=timeout
    )


def release_all(tube: Text, *, timeout: float | None = None) -> Call[int]:
    """Releases all taken tasks, whoever holds them; returns how many."""
    args = ("TUBE", "RELEASEALL", to_bytes(tube, "tube"))
    return Call(args=args, parse=int, repeat=True, timeout_s=timeout)


def drop(tube: Text, *, timeout: float | None = None) -> Call[None]:
    """Removes the tube and its tasks; ReplyError while a client waits for a task or holds one."""
    return Call(args=("TUBE", "DROP", to_bytes(tube, "tube")), parse=_nothing, timeout_s=timeout)


def info(tube: Text, *, timeout: float | None = None) -> Call[TubeInfo]:
    """Options and figures of the tube at the node asked: only its leader counts tasks. NoTube."""
    return Call(
        args=("TUBE", "INFO", to_bytes(tube, "tube")), parse=_info, repeat=True, timeout_s=timeout
    )


def statistics(tube: Text, *, timeout: float | None = None) -> Call[TubeStatistics]:
    """Counters of the tube: `tasks` by status, `calls` since the node started."""
    args = ("TUBE", "STATISTICS", to_bytes(tube, "tube"))
    return Call(args=args, parse=_statistics, repeat=True, timeout_s=timeout)


def changes(
    tube: Text, after: int = -1, *, count: int | None = None, timeout: float | None = None
) -> Call[list[TubeChange]]:
    """Changes after number `after`, oldest first, up to `count` (100) of the 1000 kept."""
    args: list[Arg] = [
        "TUBE",
        "CHANGES",
        to_bytes(tube, "tube"),
        "AFTER",
        after,
        *_given({"COUNT": count}),
    ]
    return Call(args=tuple(args), parse=_changes, repeat=True, timeout_s=timeout)


# Of all tubes of the node


def tube_list(*, timeout: float | None = None) -> Call[list[str]]:
    """The names of all tubes of this node."""
    return Call(args=("TUBE", "LIST"), parse=_names, repeat=True, timeout_s=timeout)


def tube_state(*, timeout: float | None = None) -> Call[str]:
    """The state of the node: RUNNING when it may lead tubes."""
    return Call(args=("TUBE", "STATE"), parse=to_text, repeat=True, timeout_s=timeout)


def tube_statistics(*, timeout: float | None = None) -> Call[dict[str, TubeStatistics]]:
    """The counters of all tubes by name."""
    return Call(args=("TUBE", "STATISTICS"), parse=_all_of, repeat=True, timeout_s=timeout)


def tube_cfg(
    *, ttr: float | None = None, in_replicaset: bool | None = None, timeout: float | None = None
) -> Call[TubeSettings]:
    """Changes the given settings and returns both.

    `ttr` (seconds): how long a session's tasks stay taken after its last connection is gone.
    """
    flag = None if in_replicaset is None else "yes" if in_replicaset else "no"
    args = ("TUBE", "CFG", *_given({"TTR": _seconds("ttr", ttr), "INREPLICASET": flag}))
    return Call(args=args, parse=_settings, repeat=True, timeout_s=timeout)


def identify(uuid: Text | None = None, *, timeout: float | None = None) -> Call[str]:
    """The uuid of the connection's session; with `uuid`, joins that session."""
    words: tuple[Arg, ...] = () if uuid is None else (to_bytes(uuid, "uuid"),)
    args = ("TUBE", "IDENTIFY", *words)
    return Call(args=args, parse=to_text, repeat=True, in_session=uuid is None, timeout_s=timeout)


# From values to words and back


def _given(options: dict[str, Any]) -> list[Arg]:
    args: list[Arg] = []
    for word, value in options.items():
        if value is not None:
            args += (word, to_bytes(value, "value") if isinstance(value, str) else value)
    return args


def _seconds(name: str, value: float | None) -> str | None:
    """Seconds as a word, rounded up to whole ms."""
    if value is None:
        return None
    if not 0 <= number(name, value) < 1e18:
        raise ValueError(f"{name} must be a number of seconds from 0 up, not {value!r}")
    text = f"{value:.6f}" if value == 0 or value >= 1e-6 else "0.000001"
    return text.rstrip("0").rstrip(".")


def _number(task: TaskRef) -> int:
    return task.number if isinstance(task, TubeTask) else task


def _token(task: TaskRef) -> list[Arg]:
    return ["TOKEN", task.token] if isinstance(task, TubeTask) and task.token else []


def _session(task: TaskRef) -> str:
    return task.session if isinstance(task, TubeTask) else ""


def _about(
    word: str,
    tube: Text,
    task: TaskRef,
    timeout: float | None,
    option: list[Arg] | None = None,
    *,
    in_session: bool = False,
) -> Call[TubeTask]:
    args: list[Arg] = ["TUBE", word, to_bytes(tube, "tube"), _number(task), *(option or [])]
    args += _token(task)
    return Call(
        args=tuple(args),
        parse=_known_task_of(tube),
        in_session=in_session,
        session=_session(task),
        timeout_s=timeout,
    )


class _Reader(msgspec.Struct, frozen=True):
    """Builds tasks of one tube from replies."""

    tube: str

    def known(self, reply: Reply) -> TubeTask:
        number, status, data, token, job_id, form, *session = reply
        text = to_text(status), to_text(job_id), to_text(form), *session
        return TubeTask(self.tube, number, text[0], data, token, *text[1:])

    def task(self, reply: Reply) -> TubeTask | None:
        return None if reply is None else self.known(reply)


def _task_of(tube: Text) -> Any:
    return _Reader(tube if isinstance(tube, str) else to_text(tube)).task


def _known_task_of(tube: Text) -> Any:
    return _Reader(tube if isinstance(tube, str) else to_text(tube)).known


def _nothing(reply: Reply) -> None:
    if reply != b"OK":
        raise ValueError(reply)


def _names(reply: Reply) -> list[str]:
    return list(map(to_text, reply))


def _some_seconds(value: Reply) -> float | None:
    return None if value == b"forever" else float(value)


def _info(reply: Reply) -> TubeInfo:
    fields = pairs(reply)
    return TubeInfo(
        name=to_text(fields["name"]),
        type=to_text(fields["type"]),
        temporary=fields["temporary"] == 1,
        ttl=_some_seconds(fields["ttl"]),
        ttr=_some_seconds(fields["ttr"]),
        pri=fields["pri"],
        capacity=fields["capacity"],
        ready=fields["ready"],
        taken=fields["taken"],
        delayed=fields["delayed"],
        buried=fields["buried"],
        next_number=fields["next-id"],
        waiting_takes=fields["waiting-takes"],
        waiting_puts=fields["waiting-puts"],
        changes=fields["changes"],
        home=to_text(fields.get("home", b"")),
        epoch=fields.get("epoch", 0),
        state=to_text(fields.get("state", b"RUNNING")),
        sync=fields.get("sync", 1),
        conflict=to_text(fields.get("conflict", b"")),
        stopped=to_text(fields.get("stopped", b"")),
        failover=bool(fields.get("failover", 0)),
        copies=fields.get("copies", 0),
    )


def _statistics(reply: Reply) -> TubeStatistics:
    fields = pairs(reply)
    return {"tasks": pairs(fields["tasks"]), "calls": pairs(fields["calls"])}


def _all_of(reply: Reply) -> dict[str, TubeStatistics]:
    return {name: _statistics(one) for name, one in pairs(reply).items()}


def _change(row: Reply) -> TubeChange:
    seq, event, number, status, at_ms = row
    return TubeChange(seq, to_text(event), number, to_text(status), at_ms)


def _changes(reply: Reply) -> list[TubeChange]:
    return list(map(_change, reply))


def pushed_change(message: list[Reply]) -> TubeChange:
    """A change pushed by the node; TubeHome if another node leads the tube now."""
    if message[0] == b"tube-home":
        name, at = to_text(message[1]), to_text(message[2])
        raise TubeHome(TUBE_HOME % (at, name))
    _, _, seq, event, number, status, at_ms = message
    return TubeChange(seq, to_text(event), number, to_text(status), at_ms)


def _settings(reply: Reply) -> TubeSettings:
    fields = pairs(reply)
    return TubeSettings(_some_seconds(fields["ttr"]), fields["in-replicaset"] == b"yes")


# ---- The method table, tubes: which IPROTO users may call them, and the types that a node knows.
#
# As in `tubes`, builders whose first argument is `tube` become methods of a `Tube` object.


class TubeGrant(msgspec.Struct, frozen=True):
    """The rights of a user or role on a tube over IPROTO, in functions named `prefix`."""

    tube: str
    name: str
    is_role: bool
    call: bool
    truncate: bool
    prefix: str


def grant(
    tube: Text,
    user: Text,
    *,
    role: bool = False,
    call: bool = False,
    truncate: bool = False,
    prefix: Text | None = None,
    timeout: float | None = None,
) -> Call[None]:
    """Lets an IPROTO user, or everyone with a `role`, call functions of the tube."""
    args = _words("GRANT", tube, user, role, call, truncate, prefix)
    return Call(args=args, parse=_nothing, repeat=True, timeout_s=timeout)


def revoke(
    tube: Text,
    user: Text,
    *,
    role: bool = False,
    call: bool = False,
    truncate: bool = False,
    prefix: Text | None = None,
    timeout: float | None = None,
) -> Call[int]:
    """Revokes rights, all if none is named, under any prefix; returns how many grants changed."""
    args = _words("REVOKE", tube, user, role, call, truncate, prefix)
    return Call(args=args, parse=int, repeat=True, timeout_s=timeout)


def grants(tube: Text, *, timeout: float | None = None) -> Call[list[TubeGrant]]:
    """The users and roles that may call the tube over IPROTO."""
    args = ("TUBE", "GRANTS", to_bytes(tube, "tube"))
    return Call(args=args, parse=_grants, repeat=True, timeout_s=timeout)


def tube_grants(*, timeout: float | None = None) -> Call[list[TubeGrant]]:
    """The users and roles that may call tubes of this node over IPROTO, by tube."""
    return Call(args=("TUBE", "GRANTS"), parse=_grants, repeat=True, timeout_s=timeout)


def _words(
    word: str,
    tube: Text,
    user: Text,
    role: bool,
    call: bool,
    truncate: bool,
    prefix: Text | None,
) -> tuple[Arg, ...]:
    args: list[Arg] = ["TUBE", word, to_bytes(tube, "tube"), to_bytes(user, "user")]
    args += [
        one for one, is_on in (("ROLE", role), ("CALL", call), ("TRUNCATE", truncate)) if is_on
    ]
    return tuple(args) if prefix is None else (*args, "PREFIX", to_bytes(prefix, "prefix"))


def _grant(row: Reply) -> TubeGrant:
    tube, kind, name, words, prefix = row
    return TubeGrant(
        to_text(tube),
        to_text(name),
        kind == b"role",
        b"call" in words,
        b"truncate" in words,
        to_text(prefix),
    )


def _grants(reply: Reply) -> list[TubeGrant]:
    return list(map(_grant, reply))


class TubeDriver(msgspec.Struct, frozen=True):
    """A type of tube: `state` is built-in, loaded, installed (not registered), failed or missing.

    `origin` names its class and package, `tubes` counts its tubes. `stopped` lists the tubes that
    deliver nothing since their driver failed, each with its error; `error` is why a failed type
    cannot be loaded.
    """

    name: str
    state: str
    origin: str
    tubes: int
    stopped: dict[str, str] = {}
    error: str = ""


def tube_drivers(*, timeout: float | None = None) -> Call[list[TubeDriver]]:
    """The types of tubes that this node has, could load, or lacks."""
    return Call(args=("TUBE", "DRIVERS"), parse=_drivers, repeat=True, timeout_s=timeout)


def register_tube_driver(name: Text, *, timeout: float | None = None) -> Call[None]:
    """Registers a type that was installed on the node after its start. ReplyError."""
    args = ("TUBE", "REGISTERDRIVER", to_bytes(name, "name"))
    return Call(args=args, parse=_nothing, timeout_s=timeout)


def _drivers(reply: Reply) -> list[TubeDriver]:
    return [
        TubeDriver(
            to_text(name),
            to_text(state),
            to_text(origin),
            tubes,
            {to_text(tube): to_text(why) for tube, why in stopped},
            to_text(error),
        )
        for name, state, origin, tubes, stopped, error in reply
    ]


# ---- The method table, leaders of tubes: which node leads a tube, and how to change that.
#
# Builders as in tubes.py; no I/O and no clock here.


MOVE_S = 120.0  # the reply comes when the switchover is over; the node limits it


class TubeCopy(msgspec.Struct, frozen=True):
    """The replica of a tube on another node: `lag` is how many changes it has not confirmed."""

    node: str
    address: str
    lag: int
    complete: bool


class HomeInfo(msgspec.Struct, frozen=True):
    """The leader of a tube, as the node that was asked knows it.

    `home` is the leader's node id, `epoch` counts changes of leader, `state` is that of the tube
    on the node asked, `conflict` the id of another node that claims the leadership, or "". Only
    the leader knows `copies`.
    """

    tube: str
    home: str
    address: str
    epoch: int
    state: str
    sync: int
    changes: int
    conflict: str
    copies: tuple[TubeCopy, ...]


class TubeLoss(msgspec.Struct, frozen=True):
    """What a forced failover may have lost: changes that only the former leader had.

    `missing` of them are known to be lost. The former leader was last heard from `last_heard_ms`
    ago; its later changes are unknown. `next_number` is that of the next task. `stopped` says why
    the new leader delivers no task (its type is missing or failed); empty if it does.
    """

    home: str
    epoch: int
    complete: bool
    missing: int
    last_heard_ms: int
    next_number: int
    stopped: str = ""


def state(tube: Text, *, timeout: float | None = None) -> Call[str]:
    """The state of the tube on its leader: RUNNING, or in transition."""
    args = ("TUBE", "STATE", to_bytes(tube, "tube"))
    return Call(args=args, parse=to_text, repeat=True, timeout_s=timeout)


def home(tube: Text, *, timeout: float | None = None) -> Call[HomeInfo]:
    """The leader of the tube, and the lag of its replicas. NoTube."""
    args = ("TUBE", "HOME", to_bytes(tube, "tube"))
    return Call(args=args, parse=_home, repeat=True, timeout_s=timeout)


def move(tube: Text, node: Text, *, timeout: float | None = MOVE_S) -> Call[None]:
    """Makes another node the leader: a node id, its first characters, or "host:port".

    Returns once it leads. ReplyError says why it does not; then the leader stays.
    """
    args = ("TUBE", "HOME", to_bytes(tube, "tube"), to_bytes(node, "node"))
    return Call(args=args, parse=_nothing, repeat=True, timeout_s=timeout)


def take_over(tube: Text, node: Text, *, timeout: float | None = MOVE_S) -> Call[TubeLoss]:
    """Makes the node of this client the leader of a tube whose leader is lost.

    `node` is that node's own id or address. Changes that only the lost leader had are lost.
    """
    args = ("TUBE", "HOME", to_bytes(tube, "tube"), to_bytes(node, "node"), "FORCE")
    return Call(args=args, parse=_loss, timeout_s=timeout)


def _home(reply: Reply) -> HomeInfo:
    fields = pairs(reply)
    copies = tuple(
        TubeCopy(to_text(node), to_text(address), lag, complete == 1)
        for node, address, lag, complete in fields["copies"]
    )
    return HomeInfo(
        tube=to_text(fields["tube"]),
        home=to_text(fields["home"]),
        address=to_text(fields["address"]),
        epoch=fields["epoch"],
        state=to_text(fields["state"]),
        sync=fields["sync"],
        changes=fields["changes"],
        conflict=to_text(fields["conflict"]),
        copies=copies,
    )


def _loss(reply: Reply) -> TubeLoss:
    fields = pairs(reply)
    return TubeLoss(
        home=to_text(fields["home"]),
        epoch=int(fields["epoch"]),
        complete=fields["copy"] == b"complete",
        missing=int(fields["changes-missing"]),
        last_heard_ms=int(fields["last-heard-ms"]),
        next_number=int(fields["next-id"]),
        stopped=to_text(fields.get("stopped", b"")),
    )
