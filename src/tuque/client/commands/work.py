"""The method table: the wire form of calls about the life of jobs (SPEC W): runs, results, cancel.

A run is one START that the broker accepted; its token is an opaque text that the calls of the run
carry. As in calls.py, a builder makes a `Call`; times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from tuque.client.api import Arg, JobId, Reply, Text, id_bytes, id_text, to_bytes, to_text
from tuque.client.commands.calls import Call, add_headers, header_map, pairs, seconds, whole
from tuque.errors import ReplyError

UNBEGUN: Final = "-"  # in place of a run: the delivery of a job that was not begun

State: TypeAlias = Literal[
    "scheduled", "waiting", "delivered", "running", "back-off", "dead", "done", "cancelled"
]
Cancelling: TypeAlias = Literal["ended", "flagged", "over"]
STILL: Final = "CANCEL may still take effect"
SETTLED: Final = frozenset((b"done", b"cancelled", b"dead"))


class Run(msgspec.Struct, frozen=True):
    """A run that began: `attempt` counts from 1, `of` is ATTEMPTS, 0 without a limit.

    `starts` counts all runs of the job; `time_limit_s` is None without a limit.
    """

    run: str
    attempt: int
    of: int
    starts: int
    retry_s: float
    time_limit_s: float | None


FailCause: TypeAlias = Literal["failed", "crashed", "timeout"]


class Failed(msgspec.Struct, frozen=True):
    """What became of a job after FAIL.

    `retry`: the next attempt comes after `wait_s`. `dead`: the job is in `queue`. `cancelled`: it
    has ended. `expired`: so it has, its time was over.
    """

    became: Literal["retry", "dead", "cancelled", "expired"]
    wait_s: float = 0.0
    queue: str = ""


AttemptState: TypeAlias = Literal[
    "failed", "timeout", "crashed", "cancelled", "done", "dead", "running"
]


class Attempt(msgspec.Struct, frozen=True):
    """One run of a job, in unix ms of the node: `began_ms` 0: not known, `ended_ms` 0: it lasts.

    `reason` and `detail` are of a failure; without `keep_body` the detail is empty.
    """

    attempt: int
    run: str
    worker: str
    began_ms: int
    ended_ms: int
    state: AttemptState
    reason: str = ""
    detail: bytes = b""


class Result(msgspec.Struct, frozen=True):
    """Where a job stands, and its result.

    `attempt` is that of the latest run, 0 before the first; `of` is ATTEMPTS, 0 without a limit.
    `cause`, `reason` and `detail` are of the latest failure, or `reason` of the cancel. `ended_ms`
    is the node's clock in unix ms, 0 while the job is open. Only if asked for: `queue`, `added_ms`,
    `headers` and `body`, which an ended job has if it was added with `keep_body`; and `attempts`,
    the last 16, oldest first.
    """

    state: State
    attempt: int
    of: int
    worker: str
    progress: bytes
    result: bytes | None
    cause: str
    reason: str
    detail: bytes
    ended_ms: int
    queue: str = ""
    added_ms: int = 0
    headers: dict[str, str] = {}
    body: bytes | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, or is a dead letter."""
        return self.state in ("done", "cancelled", "dead")


# Runs


def start(
    *ids: JobId, worker: Text | None = None, timeout: float | None = None
) -> Call[list[Run | ReplyError]]:
    """Begins to work on jobs: for each id its run, or the error that refuses it.

    The same `worker` may repeat it and gets the same run; without a name the connection is the
    worker.
    """
    args: list[Arg] = ["START"]
    if worker is not None and ids:
        args += ("WORKER", to_bytes(worker, "worker"))
    return Call(
        args=(*args, *map(id_bytes, ids)),
        parse=_runs,
        repeat=worker is not None,
        of_nothing=None if ids else [],
        timeout_s=timeout,
        job_id=_only(ids),
    )


def working(id: JobId, run: Text | None = None, *, timeout: float | None = None) -> Call[int]:
    """Says that somebody is at work on a job; returns its retry time in seconds.

    The next delivery is due that long from now. With `run` only that one is extended: raises
    `Stale` if it is over, `Cancelled` if the job was cancelled.
    """
    words: tuple[Arg, ...] = () if run is None else (to_bytes(run, "run"),)
    return Call(
        args=("WORKING", id_bytes(id), *words),
        parse=int,
        repeat=True,
        timeout_s=timeout,
        job_id=id_text(id),
    )


def progress(id: JobId, run: Text, value: Text, *, timeout: float | None = None) -> Call[str]:
    """Says how far a run is, in at most 4096 bytes; extends it as `working` does."""
    return Call(
        args=("PROGRESS", id_bytes(id), to_bytes(run, "run"), to_bytes(value, "value")),
        parse=to_text,
        repeat=True,
        timeout_s=timeout,
        job_id=id_text(id),
    )


def release(
    *runs: tuple[JobId, Text], delay: float | None = None, timeout: float | None = None
) -> Call[int]:
    """Gives jobs back, after `delay` seconds; no attempt is counted. Returns how many it were.

    Each is an id and its run, or `-` for a job that was delivered and not begun.
    """
    args: list[Arg] = ["RELEASE"]
    if delay is not None and runs:
        args += ("DELAY", seconds("delay", delay))
    return _on_runs(args, runs, timeout)


def fail(
    id: JobId,
    run: Text,
    *,
    delay: float | None = None,
    reason: Text | None = None,
    detail: Text | None = None,
    cause: FailCause | None = None,
    final: bool = False,
    timeout: float | None = None,
) -> Call[Failed]:
    """Ends a run that failed; the job waits for its next attempt, or becomes a dead letter.

    `delay` replaces the job's back-off; with `final` there is no next attempt. `reason` has at
    most 2048 bytes; `detail` is cut after 65536. Raises `TooLate` if the broker has ended the run
    at its time limit.
    """
    args: list[Arg] = ["FAIL", id_bytes(id), to_bytes(run, "run")]
    if delay is not None:
        args += ("DELAY", seconds("delay", delay))
    if reason is not None:
        args += ("REASON", to_bytes(reason, "reason"))
    if detail is not None:
        args += ("DETAIL", to_bytes(detail, "detail"))
    if cause is not None:
        args += ("CAUSE", cause)
    if final:
        args.append("FINAL")
    return Call(args=tuple(args), parse=_failed, repeat=True, timeout_s=timeout, job_id=id_text(id))


def done(
    id: JobId, run: Text, *, result: Text | None = None, timeout: float | None = None
) -> Call[int]:
    """Ends a job as done, with a result for those who ask.

    0 if it had ended before, or if the node does not know it: that node then tells the others. Of
    a task of a tube the leader replies, and 0 means that it had ended.
    """
    args: list[Arg] = ["DONE", id_bytes(id), to_bytes(run, "run")]
    if result is not None:
        args += ("RESULT", to_bytes(result, "result"))
    return Call(args=tuple(args), parse=int, repeat=True, timeout_s=timeout, job_id=id_text(id))


def done_many(*runs: tuple[JobId, Text], timeout: float | None = None) -> Call[int]:
    """Ends jobs as done, without results; returns how many ended now."""
    return _on_runs(["DONE"], runs, timeout)


# Those who wait for jobs


def cancel(
    *ids: JobId, reason: Text | None = None, timeout: float | None = None
) -> Call[list[Cancelling | ReplyError | None]]:
    """Cancels jobs: for each id what became of it, None if no such job is known.

    `ended`: it never begins. `flagged`: its worker gets notice, and may finish. `over`: it had
    ended before. `NotInReach`: no node that answered knows it, and another one may have it; if its
    `may_be_done` is True, that one may still cancel it.
    """
    args: list[Arg] = ["CANCEL"]
    if reason is not None and ids:
        args += ("REASON", to_bytes(reason, "reason"))
    return Call(
        args=(*args, *map(id_bytes, ids)),
        parse=_cancellings,
        repeat=True,
        of_nothing=None if ids else [],
        timeout_s=timeout,
        job_id=_only(ids),
    )


def result(
    id: JobId,
    *,
    wait_ms: int | None = None,
    with_body: bool = False,
    with_attempts: bool = False,
    timeout: float | None = None,
) -> Call[Result]:
    """Where a job stands; waits up to `wait_ms` for its end.

    Raises `NoJob` if it is not known, or ended and was not to be kept; `NotInReach` if no node that
    answered knows it, or has its result, and another one may. Other nodes have a second to answer,
    also with a shorter wait.
    """
    _check_wait(wait_ms)
    words: list[Arg] = [] if wait_ms is None else ["WAIT", wait_ms]
    if with_body:
        words.append("WITHBODY")
    if with_attempts:
        words.append("WITHATTEMPTS")
    return Call(
        args=("RESULT", id_bytes(id), *words),
        parse=_result,
        repeat=True,
        wait_s=0.0 if wait_ms is None else wait_ms / 1000,
        wait_arg=0 if wait_ms is None else 3,
        goes_on=_is_open,
        timeout_s=timeout,
        job_id=id_text(id),
    )


def waitjob(
    *ids: JobId, wait_ms: int | None = None, count: int | None = None, timeout: float | None = None
) -> Call[dict[str, str]]:
    """Waits until `count` of the jobs, by default all, have ended; the outcomes by id.

    Waits `wait_ms`, by default as long as it takes. An outcome is done, cancelled, dead, or gone
    if nobody knows the job any more.
    """
    if not ids:
        raise ValueError("waitjob needs at least one id")
    _check_wait(wait_ms)
    words: tuple[Arg, ...] = () if count is None else ("COUNT", whole("count", count))
    args = ("WAITJOB", wait_ms or 0, *map(id_bytes, ids), *words)
    call = Call(args=args, parse=_outcomes, repeat=True, timeout_s=timeout)
    return call.for_rows(len(ids) if count is None else count, wait_ms, 1)


def updatejob(
    id: JobId,
    *,
    body: Text | None = None,
    delay: float | None = None,
    ttl: float | None = None,
    attempts: int | None = None,
    headers: Mapping[str, Text] | None = None,
    pri: int | None = None,
    timeout: float | None = None,
) -> Call[str]:
    """Changes a job that nobody works on; raises `AtWork` if it was handed out.

    `pri` is for tasks of tubes, and alone changes one that was handed out, too. The rest is for
    jobs of queues and tasks of the type `tasks`.
    """
    args: list[Arg] = ["UPDATEJOB", id_bytes(id)]
    if body is not None:
        args += ("BODY", to_bytes(body, "body"))
    if delay is not None:
        args += ("DELAY", seconds("delay", delay))
    if ttl is not None:
        args += ("TTL", seconds("ttl", ttl))
    if attempts is not None:
        args += ("ATTEMPTS", attempts)
    if pri is not None:
        args += ("PRI", pri)
    add_headers(args, headers)
    if len(args) == 2:
        raise ValueError("updatejob needs something to change")
    return Call(args=tuple(args), parse=to_text, repeat=True, timeout_s=timeout, job_id=id_text(id))


# From replies to values


def _check_wait(wait_ms: int | None) -> None:
    if wait_ms is not None and whole("wait_ms", wait_ms) < 1:
        raise ValueError(f"wait_ms must be at least 1, or None: {wait_ms}")


def _only(ids: tuple[JobId, ...]) -> str | None:
    return id_text(ids[0]) if len(ids) == 1 else None


def _on_runs(
    words: list[Arg], runs: tuple[tuple[JobId, Text], ...], timeout: float | None
) -> Call[int]:
    """A call about ids and their runs in turn, which replies with a count."""
    for id, run in runs:
        words += (id_bytes(id), to_bytes(run, "run"))
    nothing = None if runs else 0
    return Call(args=tuple(words), parse=int, repeat=True, of_nothing=nothing, timeout_s=timeout)


def _runs(reply: Reply) -> list[Run | ReplyError]:
    return [item if isinstance(item, ReplyError) else _run(item) for item in reply]


def _run(item: Reply) -> Run:
    run, attempt, of, starts, retry_ms, limit_ms = item
    return Run(
        to_text(run),
        attempt,
        of,
        starts,
        retry_ms / 1000,
        limit_ms / 1000 if limit_ms else None,
    )


def _failed(reply: Reply) -> Failed:
    became, more = reply
    if became == b"retry":
        return Failed("retry", wait_s=more / 1000)
    if became == b"dead":
        return Failed("dead", queue=to_text(more))
    if became == b"cancelled":
        return Failed("cancelled")
    if became == b"expired":
        return Failed("expired")
    raise ValueError(became)


def _cancellings(reply: Reply) -> list[Cancelling | ReplyError | None]:
    words: dict[bytes, Cancelling] = {b"ended": "ended", b"flagged": "flagged", b"over": "over"}
    found: list[Cancelling | ReplyError | None] = []
    for item in reply:
        if isinstance(item, ReplyError):
            item.may_be_done = STILL in item.message
            found.append(item)
        else:
            found.append(None if item is None else words[item])
    return found


def _result(reply: Reply) -> Result:
    fields = pairs(reply)
    kept = fields["result"]
    return msgspec.convert(
        {
            "state": to_text(fields["state"]),
            "attempt": fields["attempt"],
            "of": fields["of"],
            "worker": to_text(fields["worker"]),
            "progress": fields["progress"],
            "result": kept,
            "cause": to_text(fields["cause"]),
            "reason": to_text(fields["reason"]),
            "detail": fields["detail"],
            "ended_ms": fields["ended-ms"],
            "queue": to_text(fields.get("queue") or b""),
            "added_ms": fields.get("added-ms", 0),
            "headers": header_map(fields.get("headers", [])),
            "body": fields.get("body"),
            "attempts": [_attempt(row) for row in fields.get("attempts", [])],
        },
        Result,
    )


def _attempt(row: Reply) -> dict[str, object]:
    attempt, run, worker, began_ms, ended_ms, state, reason, detail = row
    return {
        "attempt": attempt,
        "run": to_text(run),
        "worker": to_text(worker),
        "began_ms": began_ms,
        "ended_ms": ended_ms,
        "state": to_text(state),
        "reason": to_text(reason),
        "detail": detail,
    }


def _is_open(reply: Reply) -> bool:
    return pairs(reply).get("state") not in SETTLED


def _outcomes(reply: Reply) -> dict[str, str]:
    return {to_text(id): to_text(outcome) for id, outcome in reply}
