"""Runs one job: its task with its arguments, and every end of that as an `Outcome`.

The same code runs in a thread, on the pool's event loop and in a child process. No exception of a
task leaves this module, not even one that would end the process.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from tuque.worker.tasks.arguments import BadArguments
from tuque.worker.tasks.codec import Envelope, decode, encode
from tuque.worker.tasks.policy import DONE, Outcome, encodable, one_line
from tuque.worker.tasks.task import Reject, RetryLater, Task


class Attempt(msgspec.Struct, frozen=True):
    """The running job, as `current_job()` shows it to its task.

    `number` counts deliveries from 1 and is what `max_deliveries` limits. `enqueued_at` is the
    producer's wall clock in unix seconds.
    """

    job_id: str
    queue: str
    task: str
    number: int
    max_deliveries: int
    nacks: int
    additional_deliveries: int
    enqueued_at: float


class Call(msgspec.Struct):
    """Everything a pool needs to run a job."""

    envelope: Envelope
    attempt: Attempt
    time_limit_s: float | None = None


class Piped(msgspec.Struct):
    """A call in the form for a child process."""

    body: bytes
    attempt: Attempt
    time_limit_s: float | None


TRACE_CHARS: Final = 20_000  # of a traceback, for the log
_piped_decoder: Final = msgspec.msgpack.Decoder(Piped)


def to_pipe(call: Call) -> bytes:
    """Encode a call for a child process, its arguments with a codec that can carry them."""
    try:
        body = encode(call.envelope, "msgpack")
    except TypeError:
        body = encode(call.envelope, "json")  # integers of more than 64 bits
    return msgspec.msgpack.encode(Piped(body, call.attempt, call.time_limit_s))


def of_pipe(payload: bytes) -> Call:
    """Decode a call that `to_pipe` encoded."""
    piped = _piped_decoder.decode(payload)
    return Call(decode(piped.body), piped.attempt, piped.time_limit_s)


_current: ContextVar[Attempt] = ContextVar("tuque_current_job")


def current_job() -> Attempt:
    """The job that the calling task runs for; LookupError outside of a worker."""
    return _current.get()


def run_call(task: Task[..., Any], call: Call) -> Outcome:
    """Runs a job in this thread; a coroutine task gets an event loop of its own."""
    token = _current.set(call.attempt)
    try:
        bound = task.bind(call.envelope)
        result = task.function(*bound.args, **bound.kwargs)
        if task.is_async:
            asyncio.run(_on_own_loop(task, result, call.time_limit_s))
        return DONE
    except BaseException as err:
        return outcome_of(err)
    finally:
        _current.reset(token)


async def await_call(task: Task[..., Any], call: Call) -> Outcome:
    """Runs a job of a coroutine task on the running event loop; cancels it at its time limit."""
    token = _current.set(call.attempt)
    try:
        bound = task.bind(call.envelope)
        await _with_limit(task.function(*bound.args, **bound.kwargs), call.time_limit_s)
        return DONE
    except asyncio.CancelledError:
        raise  # the pool cancelled it and knows why
    except BaseException as err:
        return outcome_of(err)
    finally:
        _current.reset(token)


class TimeLimit(Exception):
    """A job ran longer than its task allows."""


async def _on_own_loop(
    task: Task[..., Any], running: Awaitable[Any], limit_s: float | None
) -> None:
    try:
        await _with_limit(running, limit_s)
    finally:
        await task.app.aclose()  # a client of this loop is useless on the next one


async def _with_limit(running: Awaitable[Any], limit_s: float | None) -> None:
    try:
        async with asyncio.timeout(limit_s) as scope:
            await running
    except TimeoutError:
        if scope.expired():
            raise TimeLimit(over_limit_text(limit_s)) from None
        raise


def over_limit_text(limit_s: float | None) -> str:
    return f"ran longer than its time limit of {limit_s} s"


def outcome_of(err: BaseException) -> Outcome:
    """The outcome for an exception; it can be encoded whatever the exception's text."""
    if isinstance(err, RetryLater):
        return Outcome("retry", one_line(guarded(str, err)), delay_s=err.delay_s)
    if isinstance(err, Reject):
        return Outcome("rejected", one_line(guarded(str, err)))
    if isinstance(err, BadArguments):
        return Outcome("rejected", one_line(f"bad arguments: {guarded(str, err)}"))
    if isinstance(err, TimeLimit):
        return Outcome("timeout", str(err))
    return Outcome("failed", describe(err), encodable(guarded(trace_of, err)))


def trace_of(err: BaseException) -> str:
    """The traceback of an exception; a very long one is cut in the middle."""
    text = "".join(traceback.format_exception(err))
    if len(text) <= TRACE_CHARS:
        return text
    half = TRACE_CHARS // 2
    return f"{text[:half]}\n  [{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def describe(err: BaseException) -> str:
    """An exception on one line, even if its own text fails."""
    return one_line(f"{type(err).__name__}: {guarded(str, err)}")


def guarded(make_text: Callable[[Any], str], value: Any) -> str:
    try:
        return make_text(value)
    except BaseException as err:  # a user's class may do anything
        return f"<no text: {type(err).__name__}>"
