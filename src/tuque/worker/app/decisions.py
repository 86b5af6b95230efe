"""The decisions of a worker as plain functions: how many jobs to fetch, what follows each run.

No clock, no sockets; randomness is an argument. run/job_runner.py carries out the decisions.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from tuque.client.commands.work import UNBEGUN, FailCause

MAX_FETCH: Final = 1000  # jobs per GETJOB
SECONDS_MAX: Final = 2_147_483_647  # of a delay, for the broker
REASON_CHARS: Final = 400  # of an error in a dead letter; the log has all of it
REFUSED: Final = "the broker refused the reason of this failure"
ONLY_TRY: Final = "the only try (retry_s=0)"
AHEAD_BEGIN_S: Final = 0.1
AHEAD_RUNS: Final = 32  # that tell how long jobs take
CANCEL_GRACE_S: Final = 5.0  # from the end of a run to that of its process (U2.21)
MAX_DOUBLINGS: Final = 40
FIRST_BEAT_S: Final = 0.4  # the shortest retry is 1 s
BEAT_FRACTION: Final = 0.4
PUT_OFF_FIRST_S: Final = 0.1
PUT_OFF_S: Final = 1.0
PUT_OFF_RATE: Final = 500  # jobs a second that one worker gets again
PUT_OFF_MAX_S: Final = 60.0

OutcomeKind = Literal[
    "done", "failed", "retry", "rejected", "timeout", "crashed", "cancelled", "unfit", "progress"
]

FAILED_KINDS: Final = ("failed", "rejected", "timeout", "crashed")


class Outcome(msgspec.Struct):
    """The result of one run of a task; child processes send it unchanged.

    `text` is one line for people, `trace` the traceback, `delay_s` what RetryLater or `retry_if`
    asked for.
    `result` is what the task returned, encoded, if it is to be kept. "unfit": the task's signature
    does not take the arguments, so it did not run. A "progress" is no end: a child process sends it
    while the task runs, with the value in `result`. `is_told`: `on_failure` was called.
    """

    kind: OutcomeKind
    text: str = ""
    trace: str = ""
    delay_s: float | None = None
    result: bytes | None = None
    is_told: bool = False


DONE: Final = Outcome("done")


@dataclass(frozen=True)
class Backoff:
    """Delays that double from `first_s` up to `max_s`; `jitter` is the random share."""

    first_s: float = 1.0
    max_s: float = 300.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        for name in ("first_s", "max_s", "jitter"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"backoff: {name} is a number, not {value!r}")
        if not 0 <= self.first_s <= self.max_s:
            raise ValueError(f"backoff: 0 <= first_s <= max_s, not {self.first_s} and {self.max_s}")
        if self.max_s > SECONDS_MAX:
            raise ValueError(f"backoff: max_s is at most {SECONDS_MAX}, not {self.max_s}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff: jitter is between 0 and 1, not {self.jitter}")

    @property
    def figures(self) -> tuple[float, float, float]:
        """Its form in an envelope."""
        return self.first_s, self.max_s, self.jitter

    def delay_s(self, attempt: int, rng: random.Random) -> float:
        """The delay after the attempt of that number, counted from 1."""
        doublings = min(max(attempt - 1, 0), MAX_DOUBLINGS)
        whole = min(self.max_s, self.first_s * 2.0**doublings)
        return whole * (1.0 - self.jitter * rng.random())


def backoff_of(figures: tuple[float, float, float] | None) -> Backoff | None:
    """The back-off in an envelope; None if there is none, or an invalid one."""
    try:
        return None if figures is None else Backoff(*figures)
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True)
class Limits:
    """The limits of one job, from its task and its envelope."""

    max_deliveries: int
    backoff: Backoff
    time_limit_s: float | None = None
    soft_limit_s: float | None = None
    cancel_grace_s: float = CANCEL_GRACE_S


class Done(msgspec.Struct, frozen=True):
    """The run ended the job."""

    job_id: str
    run: str
    result: bytes | None = None


class Fail(msgspec.Struct, frozen=True):
    """The run failed; the broker counts it, and says when the next attempt is if `delay_s` is None.

    `is_final`: there is no next attempt.
    """

    job_id: str
    run: str
    reason: str
    detail: str = ""
    is_final: bool = False
    cause: FailCause = "failed"
    delay_s: float | None = None


class Release(msgspec.Struct, frozen=True):
    """The job is given back, and nothing is counted."""

    job_id: str
    run: str
    delay_s: float | None = None


Report = Done | Fail | Release


def conclude(
    job_id: str,
    run: str,
    outcome: Outcome,
    limits: Limits,
    rng: random.Random,
    attempt: int | None = None,
) -> Report:
    """[U2] What to send the broker after a run (U2.2, U2.5, U2.6).

    `attempt`: its number, of a job whose attempts the worker counts. Else attempts and back-off
    are the broker's.
    """
    if outcome.kind == "done":
        return Done(job_id, run, None if run == UNBEGUN else outcome.result)
    if outcome.kind == "rejected":
        return Fail(job_id, run, one_line(f"rejected: {outcome.text}"), outcome.trace, True)
    if is_at_most_once(job_id):
        text = one_line(f"{ONLY_TRY}: {outcome.text}")
        return Fail(job_id, run, text, outcome.trace, True, _cause(outcome))
    if outcome.kind == "cancelled":
        return Release(job_id, run)
    if outcome.kind == "retry":
        delay_s = limits.backoff.delay_s(1, rng) if outcome.delay_s is None else outcome.delay_s
        return Release(job_id, run, max(0.0, delay_s))
    fail = Fail(job_id, run, one_line(outcome.text), outcome.trace, cause=_cause(outcome))
    if attempt is not None and attempt >= limits.max_deliveries:
        return replace(fail, is_final=True)
    if outcome.delay_s is not None or attempt is None:
        return replace(fail, delay_s=outcome.delay_s)
    return replace(fail, delay_s=limits.backoff.delay_s(attempt, rng))


def instead(ended: Report, why: str) -> Report | None:
    """[U2] What to send in place of an outcome that the broker refused; None: all was (U2.17).

    A result goes first, then what only the task said: so a run gets an outcome in any case.
    """
    job_id, run = ended.job_id, ended.run
    if isinstance(ended, Done) and ended.result is not None:
        return Done(job_id, run)
    if isinstance(ended, Release) and ended.delay_s is None:
        return None
    if run == UNBEGUN or (isinstance(ended, Fail) and ended.reason == REFUSED):
        return Release(job_id, run)
    if isinstance(ended, Fail):
        return Fail(job_id, run, REFUSED, is_final=ended.is_final, delay_s=ended.delay_s)
    word = "DONE" if isinstance(ended, Done) else "RELEASE"
    return Fail(job_id, run, one_line(f"the broker refused {word}: {why}"))


def _cause(outcome: Outcome) -> FailCause:
    """[U2] The cause of a failure, for FAIL and the dead letter (U2.11, U2.13)."""
    return outcome.kind if outcome.kind == "timeout" or outcome.kind == "crashed" else "failed"


def put_off_s(times: int, jobs: int) -> float:
    """[U2] Seconds until a job is tried again that this version of the app cannot run (U2.4).

    `times`: how often it was before; `jobs`: how many of them the worker has met lately.
    """
    wait_s = min(PUT_OFF_S, PUT_OFF_FIRST_S * 2.0 ** min(times, MAX_DOUBLINGS))
    return min(PUT_OFF_MAX_S, max(wait_s, jobs / PUT_OFF_RATE))


def spent(attempt: int, limits: Limits) -> str | None:
    """The reason not to run a job at all: its attempts are used up, which the worker counts."""
    if attempt <= limits.max_deliveries:
        return None
    return f"delivered {attempt - 1} times without success, the limit is {limits.max_deliveries}"


def room(concurrency: int, prefetch: int, running: int, waiting: int) -> int:
    """The number of jobs to ask for now, 0 for none.

    A free place is filled at once. Otherwise the buffer is refilled when half empty, so that a
    steady stream of short jobs needs one GETJOB for many.
    """
    if running + waiting >= concurrency and waiting > prefetch // 2:
        return 0
    return max(0, min(MAX_FETCH, concurrency + prefetch - running - waiting))


def ahead(took_s: Collection[float], places: int, most: int) -> int:
    """[U2] How many jobs begin within `AHEAD_BEGIN_S`, by the median of the last runs (U2.20)."""
    if not took_s:
        return 0
    median_s = sorted(took_s)[len(took_s) // 2]
    return most if median_s <= 0 else min(most, int(places * AHEAD_BEGIN_S / median_s))


class Want(NamedTuple):
    """How many jobs a worker wants, and how many it may ever be given (`--max-jobs`)."""

    jobs: int
    most: int


def beat_after_s(retry_s: int | None) -> float | None:
    """Seconds until the next WORKING of a job; None if it needs none.

    `retry_s` is the reply to the last one: None before the first, which is sent early because a
    delivery does not contain the retry time; 0 for a job without.
    """
    if retry_s is None:
        return FIRST_BEAT_S
    if retry_s <= 0:
        return None
    return retry_s * BEAT_FRACTION


def is_at_most_once(job_id: str) -> bool:
    """Whether the id is of a job with RETRY 0: the lowest bit of its last field is clear."""
    return job_id[-1:] in "02468ace"


def encodable(text: str) -> str:
    """A text that UTF-8 can encode: lone surrogates are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def one_line(text: str) -> str:
    """A text without line breaks, of bounded length, that UTF-8 can encode."""
    flat = encodable(" ".join(text.split()))
    return flat if len(flat) <= REASON_CHARS else flat[: REASON_CHARS - 3] + "..."
