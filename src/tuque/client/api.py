"""The values that the client returns and accepts: plain data, independent of connections."""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, TypedDict

import msgspec

Text: TypeAlias = str | bytes
Arg: TypeAlias = str | bytes | int | float
Reply: TypeAlias = Any
"""What hiredis makes of an answer: None, int, float, bool, bytes, list, dict or an exception."""

ID_CHARS = 40
PRI: Final = 5  # of a job in a queue without one
PRI_MAX: Final = 9  # of one in a queue

JobState: TypeAlias = Literal["wait-repl", "active", "queued", "acked"]
PauseOption: TypeAlias = Literal["in", "out", "all", "none", "state", "bcast"]


class Job(msgspec.Struct, frozen=True):
    """A job as fetched; what follows the body is None unless requested.

    `attempt` is the number of its next run, from 1, 0 if it has none, as in some types of tubes;
    `of` is how many there may be, 0 without a limit;
    `time_limit_s` None is no limit. `added_at` is the clock of the node that created it. `run` is
    the token of the run that began with the delivery, None if none did. `crashes`: its runs whose
    worker was lost.
    """

    queue: str
    id: str
    body: bytes
    nacks: int | None = None
    additional_deliveries: int | None = None
    attempt: int | None = None
    of: int | None = None
    retry_s: float | None = None
    time_limit_s: float | None = None
    added_at: dt.datetime | None = None
    headers: dict[str, str] | None = None
    run: str | None = None
    crashes: int = 0

    @property
    def url_id(self) -> str:
        """The id in a form that needs no escapes in URLs and file names; accepted as an id."""
        return url_id(self.id)


JobId: TypeAlias = str | bytes | Job


class JobRun(msgspec.Struct, frozen=True):
    """The newest run of a job: `running`, `released` or `failed`; it began at `since_ms` (unix)."""

    state: str
    attempt: int
    worker: str
    since_ms: int


class JobFailure(msgspec.Struct, frozen=True):
    """A failed attempt; unix ms."""

    at_ms: int
    attempt: int
    worker: str
    cause: str
    reason: str


class JobWork(msgspec.Struct, frozen=True):
    """What a node knows of the work on a job: its terms, headers, newest run and failures.

    `attempts` 0: no limit. Seconds; `keep_s` and `time_limit_s` 0: none. `backoff`: the first and
    the longest wait, and the share of it that chance may take away.
    """

    headers: dict[str, str]
    attempts: int
    backoff: tuple[float, float, float]
    dead: str
    keep_s: float
    time_limit_s: float
    failed: int
    starts: int
    run: JobRun | None
    first_failure: JobFailure | None
    last_failure: JobFailure | None
    on_expiry: str = "dead"
    crashes: int = 0
    keep_body: bool = False


class JobInfo(msgspec.Struct, frozen=True):
    """What one node knows about a job (SHOW); None for fields lost with the acknowledgement.

    `deliveries` are this node's, the first and the last in unix ms. A lower `pri` goes first.
    `number` is that of a task in its tube. `work` is None for a job without options about its work,
    as long as nobody began it. Tasks of tubes that are no jobs: `schedule` is the name of the one
    that it is, `children` are those of the group that it is (it has one at least), `child` is the
    job whose record in a group it is, `key_of` the job that has ended and whose UNIQUE key it keeps
    for a time.
    """

    id: str
    queue: str | None
    state: str
    repl: int
    ttl_s: int
    ctime_ns: int
    delay_s: int
    retry_s: int
    nacks: int
    additional_deliveries: int
    nodes_delivered: tuple[str, ...]
    nodes_confirmed: tuple[str, ...]
    next_requeue_within_ms: int | None
    next_awake_within_ms: int | None
    body: bytes | None
    deliveries: int = 0
    first_delivery_ms: int | None = None
    last_delivery_ms: int | None = None
    work: JobWork | None = None
    schedule: str = ""
    children: int = 0
    child: str = ""
    key_of: str = ""
    pri: int = PRI
    number: int | None = None

    @property
    def is_job(self) -> bool:
        """Whether somebody may work on it: no schedule, no part of a group, no kept key."""
        return not (self.schedule or self.children or self.child or self.key_of)

    @property
    def url_id(self) -> str:
        """The id in a form that needs no escapes in URLs and file names; accepted as an id."""
        return url_id(self.id)


class NodeInfo(msgspec.Struct, frozen=True):
    """A node as another one sees it (HELLO); lower priority numbers are better, 100 is unusable."""

    id: str
    host: str
    port: int
    priority: int


class Hello(msgspec.Struct, frozen=True):
    """The reply to HELLO: the node's identity, and the nodes it knows, including itself."""

    version: int
    id: str
    nodes: tuple[NodeInfo, ...]


class ClusterNode(msgspec.Struct, frozen=True):
    """One line of CLUSTER NODES; times are unix milliseconds, 0 for none."""

    id: str
    host: str
    port: int
    flags: tuple[str, ...]
    ping_sent_ms: int
    pong_received_ms: int
    connected: bool
    reason: str = ""  # why a meeting has not succeeded yet


# The keys are the server's own, hyphens included.
QueueStat = TypedDict(
    "QueueStat",
    {
        "name": str,
        "len": int,
        "age": int,
        "idle": int,
        "blocked": int,
        "import-from": list[str],
        "import-rate": int,
        "jobs-in": int,
        "jobs-out": int,
        "pause": str,
        "oldest": int,  # age in seconds of the next job, 0 if there is none
        "type": str,  # of a tube, else empty
    },
)


def to_bytes(value: Text, what: str = "") -> bytes:
    """UTF-8; undecodable bytes from `to_text` are restored. TypeError for what is no text,
    ValueError for a lone surrogate.

    The error names the argument, `what`.
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{what}{': ' * bool(what)}text or bytes are needed, not {value!r}")
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        of = f"{what}: " if what else ""
        raise ValueError(f"{of}the text cannot be written as UTF-8: {value!a}") from None


def texts(**values: Text) -> list[bytes]:
    """`to_bytes` of each argument, which an error names."""
    return [to_bytes(value, name) for name, value in values.items()]


def to_text(value: bytes) -> str:
    """UTF-8; bytes that are not UTF-8 survive a round trip through `to_bytes`."""
    return value.decode("utf-8", "surrogateescape")


# of queues and headers: few, and in each delivery
name_text = lru_cache(maxsize=256)(to_text)


def url_id(id: str) -> str:
    """A job id in a form that needs no escapes in URLs and file names; that of most is itself.

    An id of a former version has `_` for the three fixed `-`, and base64url between them.
    """
    if "+" not in id and "/" not in id:
        return id
    middle = id[11:35].replace("+", "-").replace("/", "_")
    return f"D_{id[2:10]}_{middle}_{id[36:]}"


def plain_id(id: str) -> str:
    """The job id for its form in URLs; any other text unchanged."""
    if len(id) != ID_CHARS or not id.startswith("D_") or id[10] != "_" or id[35] != "_":
        return id
    middle = id[11:35].replace("-", "+").replace("_", "/")
    return f"D-{id[2:10]}-{middle}-{id[36:]}"


def id_bytes(job: JobId) -> bytes:
    """A job id for the wire."""
    if isinstance(job, str) and job[1:2] == "-" and job.isascii():  # as the broker gave it
        return job.encode()
    return to_bytes(id_text(job))


def id_text(job: JobId) -> str:
    if isinstance(job, Job):
        return job.id
    if isinstance(job, str):
        return plain_id(job)
    if not isinstance(job, bytes):
        raise TypeError(f"a job or its id is needed, not {job!r}")
    return plain_id(to_text(job))


def work_of(fields: dict[str, Reply], headers: dict[str, str]) -> JobWork:
    """The work on a job out of the fields of SHOW (SPEC S1.4)."""
    run = fields["run"]
    first_ms, max_ms, jitter = fields["backoff"]
    return JobWork(
        headers=headers,
        attempts=fields["attempts"],
        backoff=(first_ms / 1000, max_ms / 1000, jitter / 1000),
        dead=to_text(fields["dead"]),
        keep_s=fields["keep"] / 1000,
        time_limit_s=fields["time-limit"] / 1000,
        failed=fields["failed"],
        starts=fields["starts"],
        run=JobRun(to_text(run[0]), run[1], to_text(run[2]), run[3]) if run else None,
        first_failure=_failure(fields["first-failure"]),
        last_failure=_failure(fields["last-failure"]),
        on_expiry=to_text(fields.get("on-expiry", b"dead")),
        crashes=fields.get("crashes", 0),
        keep_body=fields.get("keep-body") == 1,
    )


def _failure(row: Reply) -> JobFailure | None:
    if row is None:
        return None
    at_ms, attempt, worker, cause, reason = row
    return JobFailure(at_ms, attempt, to_text(worker), to_text(cause), to_text(reason))
