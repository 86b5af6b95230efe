"""The method table: the wire form of calls about jobs and queues, and the options of a new job.

A builder turns arguments into a `Call`: the words to send, how the reply becomes a typed result,
and what is allowed when no reply comes. Both faces and the pipeline are generated from these
builders, so a call has one signature everywhere. `timeout` (seconds) bounds a call in addition to
the time it asks the node to wait; None is the client's default. No I/O and no clock here.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

import msgspec

from tuque.client.api import (
    PRI,
    Arg,
    Job,
    JobId,
    JobInfo,
    JobState,
    PauseOption,
    QueueStat,
    Reply,
    Text,
    id_bytes,
    id_text,
    name_text,
    texts,
    to_bytes,
    to_text,
    work_of,
)
from tuque.client.retry import own
from tuque.errors import ProtocolError

# ---- The options of a new job as words of its command


def job_options(
    replicate: int | None,
    delay: float | None,
    retry: int | None,
    ttl: float | None,
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
        "TTL": None if ttl is None else seconds("ttl", ttl),
        "MAXLEN": None if maxlen is None else whole("maxlen", maxlen),
        "DEDUPE": None if dedupe is None else to_bytes(dedupe, "dedupe"),
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
    on_expiry: str | None = None,
    keep_body: bool = False,
) -> list[Arg]:
    """The words of the given options about the work on a new job."""
    args: list[Arg] = []
    if attempts is not None:
        args += ("ATTEMPTS", whole("attempts", attempts))
    if backoff is not None:
        times = parts("backoff", backoff, "the first wait, the longest and a random share", 3, 3)
        args += ("BACKOFF", *(seconds("backoff", value) for value in times))
    if dead is not None:
        args += ("DEAD", to_bytes(dead, "dead"))
    if keep is not None:
        args += ("KEEP", seconds("keep", keep), *(["BODY"] if keep_body else []))
    elif keep_body:
        raise ValueError("keep_body needs keep, the seconds for which the outcome is kept")
    if time_limit is not None:
        args += ("TIMELIMIT", seconds("time_limit", time_limit))
    if on_expiry is not None:
        args += ("ONEXPIRY", on_expiry)
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
    """The words of `pri`, and of what only tubes understand."""
    args: list[Arg] = []
    if pri is not None:
        args += ("PRI", whole("pri", pri))
    if utube is not None:
        args += ("UTUBE", to_bytes(utube, "utube"))
    if unique is not None:
        args += ("UNIQUE", to_bytes(unique, "unique"))
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
        args += ("GROUP", to_bytes(group, "group"))
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
        args += (name, to_bytes(value, "value"))


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
    """The argument `name` as a whole number of 64 bits; else TypeError or ValueError."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"{name} must be a whole number of 64 bits, not {value!r}")
    return found


# ---- calls


T = TypeVar("T")

SHORTEST_WAIT_MS = 1  # 0 would mean for ever
LONGEST_S = 1e9  # a timeout above it is none: sockets and threads take no longer ones


# commands, and subcommands, that change nothing
READS = frozenset(
    """
    RESULT WAITJOB SHOW JSCAN QLEN QSTAT QPEEK QSCAN QLIST HISTORY LIMITS HELLO PING ECHO INFO TIME
    COMMAND
    """.split()
)
SUB_READS: dict[str, frozenset[str]] = {
    "DEAD": frozenset("LIST SHOW STAT".split()),
    "LEASE": frozenset("INFO LIST".split()),
    "TUBE": frozenset("PEEK TASKS INFO LIST STATISTICS STATE CHANGES GRANTS DRIVERS".split()),
    "SCHEDULE": frozenset("LIST SHOW".split()),
    "GROUP": frozenset("SHOW RESULTS CHILDREN LIST".split()),
    "QUEUE": frozenset(["SHOW"]),
    "VALUE": frozenset("GET WAIT PARTS SCAN".split()),
    "TOPIC": frozenset(["LIST"]),
    "WORKER": frozenset("LIST DEPLOYS".split()),
    "CLIENT": frozenset(["LIST"]),
    "CLUSTER": frozenset("NODES INFO MYID".split()),
    "CONFIG": frozenset(["GET"]),
}


def _is_nothing(reply: Reply) -> bool:
    return reply is None


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One call, ready to be packed.

    `repeat`: it may be sent again even if it was executed; `pinned`: but only to the same node.
    `wait_s`: how long it asks the node to wait, None for ever. `wait_arg`: the index of that time
    in `args`, in ms, if the wait can be cut into slices, else 0; `waits_in_s`: it is in seconds.
    `of_nothing`: the reply if the call names no job; then no node is asked, except in a pipeline.
    `goes_on` says of a reply that the wait is not over, by default if it is none.
    `after_loss`: what a reply means if the call may have been executed before it was sent again.
    `fetches`: the reply delivers jobs. `in_session`: it needs a connection of this client's
    tube session, of the one named `session` if that is its own. `ends_connection`: the node
    replies by closing.
    """

    args: tuple[Arg, ...]
    parse: Callable[[Reply], T]
    repeat: bool = False
    pinned: bool = False
    of_nothing: Reply = None
    wait_s: float | None = 0.0
    wait_arg: int = 0
    waits_in_s: bool = False
    goes_on: Callable[[Reply], bool] = _is_nothing
    after_loss: Callable[[Reply], Reply] | None = None
    timeout_s: float | None = None
    job_id: str | None = None
    fetches: bool = False
    in_session: bool = False
    session: str = ""
    ends_connection: bool = False

    def __post_init__(self) -> None:
        if self.timeout_s is None:
            return
        if number("timeout", self.timeout_s) < 0:
            raise ValueError(f"timeout must be 0 seconds or more, not {self.timeout_s!r}")
        if self.timeout_s > LONGEST_S:
            msgspec.structs.force_setattr(self, "timeout_s", math.inf)

    @property
    def name(self) -> str:
        return str(self.args[0])

    @property
    def reads(self) -> bool:
        """True if the call, done twice or not at all, leaves all as it is."""
        words = self.args
        if words[0] in READS:
            return True
        return len(words) > 1 and words[0] in SUB_READS and words[1] in SUB_READS[words[0]]

    @property
    def may_block(self) -> bool:
        """True if the call occupies a connection until something happens."""
        return self.wait_arg > 0

    def for_rows(self, count: int, wait_ms: int | None, at: int) -> Call[T]:
        """The same call, which waits until its reply has so many rows; `at`: where its ms stand."""
        return msgspec.structs.replace(
            self,
            wait_s=None if wait_ms is None else wait_ms / 1000,
            wait_arg=at,
            goes_on=lambda reply: len(reply) < count,
        )

    def waiting(self, wait_s: float) -> Call[T]:
        """The same call, with a wait of `wait_s` at most."""
        wait_ms = max(SHORTEST_WAIT_MS, round(wait_s * 1000))
        word: Arg = f"{wait_ms / 1000:.3f}" if self.waits_in_s else wait_ms
        args = (*self.args[: self.wait_arg], word, *self.args[self.wait_arg + 1 :])
        return msgspec.structs.replace(self, args=args, wait_s=wait_ms / 1000)

    def read(self, reply: Reply) -> T:
        """The typed result of a reply other than an error; ProtocolError if it is malformed."""
        try:
            return self.parse(reply)
        except own(TypeError, ValueError, LookupError, AttributeError) as e:
            shown = repr(reply)[:200]
            raise ProtocolError(f"unexpected answer to {self.name}: {shown}") from e


# Jobs


def addjob(
    queue: Text,
    body: Text,
    *,
    timeout_ms: int = 5000,
    replicate: int | None = None,
    delay: float | None = None,
    retry: int | None = None,
    ttl: float | None = None,
    maxlen: int | None = None,
    asynchronous: bool = False,
    dedupe: Text | None = None,
    dedupe_ttl: int | None = None,
    pri: int | None = None,
    utube: Text | None = None,
    attempts: int | None = None,
    backoff: tuple[float, float, float] | None = None,
    dead: Text | None = None,
    keep: float | None = None,
    keep_body: bool = False,
    time_limit: float | None = None,
    on_expiry: Literal["dead", "drop"] | None = None,
    headers: Mapping[str, Text] | None = None,
    timeout: float | None = None,
    **keys: Unpack[KeyWords],
) -> Call[str]:
    """Adds a job and returns its id; times are seconds. `retry=0`: at most once, `ttl=0`: no end.

    `timeout_ms` bounds the time to make the copies, 0: no bound. A second job for this node with
    the same queue and key `dedupe` is not added: returns the first one's id. Only with a key a lost
    call is sent again, to the same node. `dedupe_ttl` is how long the node keeps the key (a day).
    A lower `pri` goes first: 0 to 9 in a queue, 5 without. `utube` is for tubes, the rest for
    queues: after `attempts` failed runs the job is a dead letter in `dead`; `backoff` is first
    wait, longest, random share; `keep`, `keep_body`: outcome; `on_expiry="drop"`: no letter. Of
    tubes: `unique="x"` (`unique_until=60`, s), `limit=("k", 2)`, `rate=("k", "10/s")`, `group="g"`.
    """
    check_keys("addjob", keys, KeyWords.__annotations__)
    args: list[Arg] = ["ADDJOB", *texts(queue=queue, body=body), whole("timeout_ms", timeout_ms)]
    args += job_options(replicate, delay, retry, ttl, maxlen, dedupe, dedupe_ttl)
    args += [*(["ASYNC"] if asynchronous else []), *tube_options(pri, utube, **keys)]
    args += work_options(attempts, backoff, dead, keep, time_limit, on_expiry, keep_body)
    add_headers(args, headers)
    return Call(
        args=tuple(args),
        parse=to_text,
        repeat=dedupe is not None,  # U14.2
        pinned=dedupe is not None,
        wait_s=timeout_ms / 1000 if timeout_ms > 0 else None,
        timeout_s=timeout,
    )


def getjob(
    *queues: Text,
    timeout_ms: int | None = None,
    count: int = 1,
    nohang: bool = False,
    withcounters: bool = False,
    with_meta: bool = False,
    start: bool = False,
    worker: Text | None = None,
    timeout: float | None = None,
) -> Call[list[Job]]:
    """Fetches up to `count` jobs, in order of the queues; an empty list if none came in time.

    Waits `timeout_ms`, by default until there is a job; `nohang` does not wait. `with_meta` asks
    for the jobs' limits, ages and headers. `start` begins a run of each job as the call of that
    name does, for `worker` or the connection: a job whose reply is lost has used up an attempt.
    """
    if not queues:
        raise ValueError("getjob needs at least one queue")
    if timeout_ms is not None and whole("timeout_ms", timeout_ms) < 1:
        raise ValueError(f"timeout_ms must be at least 1, or None to wait for ever: {timeout_ms}")
    if worker is not None and not start:
        raise ValueError("a worker is of start=True")
    args: list[Arg] = ["GETJOB"]
    wait_arg = 0
    if nohang:
        args.append("NOHANG")
    else:
        args += ("TIMEOUT", timeout_ms or 0)
        wait_arg = 2
    if count != 1:
        args += ("COUNT", count)
    args += ["WITHCOUNTERS"] if withcounters else []
    args += ["WITHMETA"] if with_meta else []
    if start:
        args.append("START")
        args += () if worker is None else ("WORKER", to_bytes(worker, "worker"))
    args.append("FROM")
    args += map(to_bytes, queues)
    wait_s = 0.0 if nohang else None if timeout_ms is None else timeout_ms / 1000
    # A lost reply is a lost delivery, which the broker repairs: a repeat does no harm.
    return Call(
        args=tuple(args),
        parse=_jobs,
        repeat=True,
        wait_s=wait_s,
        wait_arg=wait_arg,
        fetches=True,
        timeout_s=timeout,
    )


def ackjob(*ids: JobId, timeout: float | None = None) -> Call[int]:
    """Acknowledges jobs; returns how many of them this node had unacknowledged."""
    return _on_ids("ACKJOB", ids, timeout, repeat=True)


def fastack(*ids: JobId, timeout: float | None = None) -> Call[int]:
    """Acknowledges without ensuring that all copies learn of it; returns how many were here."""
    return _on_ids("FASTACK", ids, timeout, repeat=True)


def deljob(*ids: JobId, timeout: float | None = None) -> Call[int]:
    """Removes jobs from this node only; returns how many."""
    return _on_ids("DELJOB", ids, timeout, repeat=True)


def nack(*ids: JobId, delay: float | None = None, timeout: float | None = None) -> Call[int]:
    """Requeues jobs as failed, after `delay` seconds; returns how many."""
    option: tuple[Arg, ...] = () if delay is None else ("DELAY", seconds("delay", delay))
    return _on_ids("NACK", ids, timeout, option=option)


def enqueue(*ids: JobId, timeout: float | None = None) -> Call[int]:
    """Queues jobs that are delivered; returns how many."""
    return _on_ids("ENQUEUE", ids, timeout)


def dequeue(*ids: JobId, timeout: float | None = None) -> Call[int]:
    """Takes jobs out of their queue until their retry time; returns how many."""
    return _on_ids("DEQUEUE", ids, timeout)


def deadletter(
    id: JobId,
    queue: Text,
    reason: Text | None = None,
    *,
    body: Text | None = None,
    timeout: float | None = None,
) -> Call[str]:
    """Adds the job's body to another queue, acknowledges the job, and returns the new id.

    `body` replaces the old one.
    """
    args: list[Arg] = ["DEADLETTER", id_bytes(id), to_bytes(queue, "queue")]
    if reason is not None:
        args += ("REASON", to_bytes(reason, "reason"))
    if body is not None:
        args += ("BODY", to_bytes(body, "body"))
    return Call(args=tuple(args), parse=to_text, timeout_s=timeout, job_id=id_text(id))


def show(id: JobId, *, timeout: float | None = None) -> Call[JobInfo | None]:
    """What this node knows about a job, None if nothing."""
    return Call(
        args=("SHOW", id_bytes(id)),
        parse=_job_info,
        repeat=True,
        timeout_s=timeout,
        job_id=id_text(id),
    )


# Queues


def qlen(queue: Text, *, timeout: float | None = None) -> Call[int]:
    """The number of jobs queued on this node."""
    return Call(args=("QLEN", to_bytes(queue, "queue")), parse=int, repeat=True, timeout_s=timeout)


def qstat(queue: Text, *, timeout: float | None = None) -> Call[QueueStat | None]:
    """Counters of a queue on this node; None if it does not exist."""
    return Call(
        args=("QSTAT", to_bytes(queue, "queue")), parse=_queue_stat, repeat=True, timeout_s=timeout
    )


def qpeek(queue: Text, count: int = 1, *, timeout: float | None = None) -> Call[list[Job]]:
    """The next jobs, without fetching them; the newest first if `count` is negative."""
    args = ("QPEEK", to_bytes(queue, "queue"), count)
    return Call(args=args, parse=_jobs, repeat=True, timeout_s=timeout)


def pause(queue: Text, *options: PauseOption, timeout: float | None = None) -> Call[str]:
    """Pauses a queue and returns the result: none, in, out or all."""
    args: tuple[Arg, ...] = ("PAUSE", to_bytes(queue, "queue"), *(options or ("state",)))
    return Call(args=args, parse=to_text, repeat=True, timeout_s=timeout)


def qscan_page(
    cursor: str,
    *,
    count: int | None = None,
    minlen: int | None = None,
    maxlen: int | None = None,
    importrate: int | None = None,
    type: Text | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[str]]]:
    """One step of a scan over the queues: the next cursor, "0" at the end, and names."""
    args: list[Arg] = ["QSCAN", cursor]
    options = {"COUNT": count, "MINLEN": minlen, "MAXLEN": maxlen, "IMPORTRATE": importrate}
    for word, value in options.items():
        if value is not None:
            args += (word, value)
    if type is not None:
        args += ("TYPE", to_bytes(type, "type"))
    return Call(args=tuple(args), parse=_text_page, repeat=True, timeout_s=timeout)


def jscan_page(
    cursor: str,
    *,
    queue: Text | None = None,
    states: Iterable[JobState] = (),
    count: int | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[str]]]:
    """One step of a scan over the jobs: the next cursor, "0" at the end, and ids."""
    args = _jscan_args(cursor, queue, states, count, "id")
    return Call(args=args, parse=_text_page, repeat=True, timeout_s=timeout)


def jscan_full_page(
    cursor: str,
    *,
    queue: Text | None = None,
    states: Iterable[JobState] = (),
    count: int | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[JobInfo]]]:
    """Like `jscan_page`, with all fields of each job."""
    args = _jscan_args(cursor, queue, states, count, "all")
    return Call(args=args, parse=_info_page, repeat=True, timeout_s=timeout)


# From replies to values


def header_map(words: Reply) -> dict[str, str]:
    """Names and values in turn as a dict."""
    if not isinstance(words, list):
        return {name: to_text(value) for name, value in pairs(words).items()}
    found = {}
    for at in range(0, len(words), 2):
        found[name_text(words[at])] = to_text(words[at + 1])
    return found


def _on_ids(
    word: str,
    ids: tuple[JobId, ...],
    timeout: float | None,
    *,
    option: tuple[Arg, ...] = (),
    repeat: bool = False,
) -> Call[int]:
    return Call(
        args=(word, *option, *map(id_bytes, ids)),
        parse=int,
        repeat=repeat,
        of_nothing=None if ids else 0,
        timeout_s=timeout,
        job_id=id_text(ids[0]) if len(ids) == 1 else None,
    )


def _jscan_args(
    cursor: str,
    queue: Text | None,
    states: Iterable[JobState],
    count: int | None,
    reply: Literal["id", "all"],
) -> tuple[Arg, ...]:
    args: list[Arg] = ["JSCAN", cursor]
    if count is not None:
        args += ("COUNT", count)
    if queue is not None:
        args += ("QUEUE", to_bytes(queue, "queue"))
    for state in states:
        args += ("STATE", state)
    return (*args, "REPLY", reply)


def pairs(reply: Reply) -> dict[str, Reply]:
    """A flat array of names and values, or a RESP3 map, as a dict."""
    if isinstance(reply, dict):
        return {to_text(key): value for key, value in reply.items()}
    names = iter(reply)
    return {to_text(name): value for name, value in zip(names, names, strict=True)}


def _jobs(reply: Reply) -> list[Job]:
    return [] if reply is None else [_job(item) for item in reply]


def _job(item: Reply) -> Job:
    queue, job_id, body = item[:3]
    if len(item) == 3:
        return Job(to_text(queue), to_text(job_id), body)
    names = iter(item[3:])
    more = dict(zip(names, names, strict=True))
    run = more.get(b"run")
    limit_ms = more.get(b"time-limit-ms")
    has_meta = b"attempt" in more
    return Job(
        name_text(queue),
        to_text(job_id),
        body,
        more.get(b"nacks"),
        more.get(b"additional-deliveries"),
        attempt=more.get(b"attempt"),
        of=more.get(b"of"),
        crashes=more.get(b"crashes", 0),
        retry_s=more[b"retry-ms"] / 1000 if has_meta else None,
        time_limit_s=limit_ms / 1000 if limit_ms else None,
        added_at=dt.datetime.fromtimestamp(more[b"added-ms"] / 1000, dt.UTC) if has_meta else None,
        headers=header_map(more[b"headers"]) if has_meta else None,
        run=None if run is None else to_text(run),
    )


def _job_info(reply: Reply) -> JobInfo | None:
    return None if reply is None else _known_job_info(reply)


def _known_job_info(reply: Reply) -> JobInfo:
    fields = pairs(reply)
    queue = fields["queue"]
    return JobInfo(
        id=to_text(fields["id"]),
        queue=None if queue is None else to_text(queue),
        state=to_text(fields["state"]),
        repl=fields["repl"] or 0,
        ttl_s=fields["ttl"],
        ctime_ns=fields["ctime"] or 0,
        delay_s=fields["delay"] or 0,
        retry_s=fields["retry"] or 0,
        nacks=fields["nacks"],
        additional_deliveries=fields["additional-deliveries"],
        nodes_delivered=tuple(map(to_text, fields["nodes-delivered"])),
        nodes_confirmed=tuple(map(to_text, fields["nodes-confirmed"])),
        next_requeue_within_ms=fields["next-requeue-within"],
        next_awake_within_ms=fields["next-awake-within"],
        body=fields["body"],
        pri=fields.get("pri", PRI),
        number=fields.get("task"),
        deliveries=fields.get("deliveries", 0),
        first_delivery_ms=fields.get("first-delivery"),
        last_delivery_ms=fields.get("last-delivery"),
        work=work_of(fields, header_map(fields["headers"])) if "headers" in fields else None,
        schedule=to_text(fields.get("schedule", b"")),
        children=fields.get("children", 0),
        child=to_text(fields.get("child", b"")),
        key_of=to_text(fields.get("key-of", b"")),
    )


def _queue_stat(reply: Reply) -> QueueStat | None:
    if reply is None:
        return None
    fields = pairs(reply)
    return {
        "name": to_text(fields["name"]),
        "len": fields["len"],
        "age": fields["age"],
        "idle": fields["idle"],
        "blocked": fields["blocked"],
        "import-from": list(map(to_text, fields["import-from"])),
        "import-rate": fields["import-rate"],
        "jobs-in": fields["jobs-in"],
        "jobs-out": fields["jobs-out"],
        "pause": to_text(fields["pause"]),
        "oldest": fields.get("oldest", 0),
        "type": to_text(fields.get("type", b"")),
    }


def _text_page(reply: Reply) -> tuple[str, list[str]]:
    cursor, items = reply
    return to_text(cursor), list(map(to_text, items))


def _info_page(reply: Reply) -> tuple[str, list[JobInfo]]:
    cursor, items = reply
    return to_text(cursor), list(map(_known_job_info, items))
