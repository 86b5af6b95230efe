"""Runs one job: its task with its arguments, every end as an `Outcome`, and hooks (SPEC U2).

The same code runs in a thread, on the pool's event loop and in a child process. No exception of a
task leaves this module, not even one that would end the process.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final

import msgspec

from tuque.client.api import url_id
from tuque.errors import Cancelled
from tuque.logtext import facts
from tuque.worker.app.arguments import BadArguments, Bound
from tuque.worker.app.celery_messages import FOLLOWS_HEADER
from tuque.worker.app.codec import (
    Codec,
    Envelope,
    decode,
    encode,
    lost_result,
    pack_result,
)
from tuque.worker.app.decisions import (
    CANCEL_GRACE_S,
    DONE,
    FAILED_KINDS,
    Outcome,
    OutcomeKind,
    encodable,
    one_line,
)
from tuque.worker.app.encryption import OVERHEAD_BYTES
from tuque.worker.app.enqueue import CHAIN_HEADER
from tuque.worker.app.hooks import Failure, Hooks
from tuque.worker.app.options import Options, RetryIf, check_delay, check_number
from tuque.worker.app.task import Reject, RetryLater, Task, TimeLimit
from tuque.worker.pools.middleware import (
    await_inside,
    is_halted,
    run_inside,
    tell,
    tell_async,
)
from tuque.worker.pools.processes import SameProcess, code_of, end_if_forked
from tuque.worker.workflow.celery_links import after_success
from tuque.worker.workflow.chain_steps import (
    goes_on,
    goes_on_async,
    held_back,
    held_back_async,
)
from tuque.worker.workflow.create import AFTER_HEADER, CHILD_HEADER, packed
from tuque.worker.workflow.results import GROUP_HEADER, filled, filled_async

log: Final = logging.getLogger("tuque.worker")

PROGRESS_BYTES: Final = 4096  # encoded

TRACE_CHARS: Final = 20_000  # of a traceback, for the log

NO_JOB: Final = "no job here: current_job() works inside a task, tuque.testing.job() in tests"


class Control:
    """The way between a running job and those who may cancel it or want to hear of it."""

    def __init__(self, send_progress: Callable[[bytes], None] | None = None) -> None:
        """`send_progress` takes the progress; it may be called in any thread."""
        self.is_cancelled = False
        self.is_late = False  # because its time limit is over
        self.why = "CANCELLED the job was cancelled"
        self.clock: Callable[[], float] = time.monotonic
        self.ends_at: float | None = None  # by that clock
        self.soft_ends_at: float | None = None
        self.soft_limit_s: float | None = None
        self.soft_why = ""  # once its soft limit is over
        self.send_progress = send_progress
        self.spare_bytes = 0  # of its progress, for a seal
        self.is_in_task = False  # its function runs
        self.on_overdue: Callable[[], object] | None = None
        self.is_overdue = False  # reported at its limit, and runs on
        self.verdict: tuple[BaseException, bool | float] | None = None  # what retry_if returned
        self._has_ended = False
        self._stop: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def cancel(self, why: str, is_late: bool = False) -> bool:
        """Cancels the run, in any thread; False if it was cancelled before.

        `is_late`: because its time limit is over.
        """
        with self._lock:
            if self.is_cancelled or (is_late and self._has_ended):
                return False
            self.is_cancelled, self.is_late, self.why = True, is_late, why
            stop = self._stop
        if stop is not None:
            stop()
        return True

    def returned(self, limit_s: float | None) -> None:
        """[U2] The task has returned; raises Cancelled if its time limit was over (U2.10)."""
        if self.ends_at is not None and self.clock() >= self.ends_at:
            self.cancel(over_limit_text(limit_s), True)
        with self._lock:
            if self.is_late:
                raise self.halted()
            self._has_ended = True

    def failed(self) -> bool:
        """The task has failed; False if the run was reported before, as one over its limit."""
        with self._lock:
            self._has_ended = True
            return not self.is_overdue

    def report_overdue(self) -> bool:
        """[U2] Reports a run that nobody can end, if it is over its limit (U2.10)."""
        with self._lock:
            if not self.is_late or self._has_ended or self.is_overdue:
                return False
            self.is_overdue = True
        if self.on_overdue is not None:
            self.on_overdue()
        return True

    def forget(self) -> None:
        """The run has ended: nobody ends it, or wants to hear of it, any more."""
        self._stop = self.on_overdue = self.send_progress = None

    def judge(self, outcome: Outcome) -> Outcome:
        """[U2] What a run that was cancelled came to, if it did not end well (U2.11)."""
        if not self.is_cancelled or outcome.kind not in ("failed", "cancelled"):
            return outcome
        if self.is_late:
            return Outcome("timeout", self.why, outcome.trace, is_told=outcome.is_told)
        return Outcome("cancelled", outcome.text)

    def on_cancel(self, stop: Callable[[], object] | None) -> None:
        """Sets what ends the run; called at once if that is cancelled already."""
        with self._lock:
            self._stop = stop
            is_late = self.is_cancelled
        if is_late and stop is not None:
            stop()

    def check(self) -> None:
        """Raises Cancelled if the run was cancelled, TimeLimit if it is over a limit."""
        if self.is_cancelled:
            raise self.halted()
        ends_at = None if self.soft_why else self.soft_ends_at  # once
        if ends_at is not None and self.clock() >= ends_at:
            raise self.warned()

    def halted(self) -> Cancelled:
        """[U2] What ends a run that was cancelled (U2.21)."""
        return TimeLimit(self.why) if self.is_late else Cancelled(self.why)

    def warned(self) -> TimeLimit:
        """[U2] What a task gets at its soft limit (U2.27)."""
        self.soft_why = f"ran longer than its soft limit of {in_seconds(self.soft_limit_s)} s"
        return TimeLimit(self.soft_why)


class Job(msgspec.Struct, dict=True):
    """The running job, as `current_job()` shows it to its task.

    `number` is the attempt, from 1. `max_deliveries` is how many there may be, `starts` how often
    the job began. `enqueued_at` is the producer's wall clock, in UTC.
    """

    job_id: str
    queue: str
    task: str
    number: int
    max_deliveries: int
    nacks: int
    additional_deliveries: int
    enqueued_at: dt.datetime
    starts: int = 1
    headers: dict[str, str] = {}
    codec: Codec = "json"

    @property
    def id(self) -> str:
        return self.job_id

    @property
    def url_id(self) -> str:
        """The id in a form that needs no escapes in URLs and file names; accepted as an id."""
        return url_id(self.job_id)

    @property
    def state(self) -> Any:
        """What the lifespan of the app has yielded in this process; None without one."""
        return self.__dict__.get("state")

    @property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """What came with the job, by place and by name: plain data; empty where it does not run."""
        came: tuple[list[Any], dict[str, Any]] = self.__dict__.get("arguments", ([], {}))
        return came

    @property
    def attempt(self) -> int:
        return self.number

    @property
    def of(self) -> int:
        return self.max_deliveries

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled, or its run is over for another reason."""
        return self._control().is_cancelled

    @property
    def time_left(self) -> float | None:
        """Seconds until the time limit, None without one."""
        control = self._control()
        return None if control.ends_at is None else max(0.0, control.ends_at - control.clock())

    def check(self) -> None:
        """Raises `tuque.errors.Cancelled` if the job was cancelled, TimeLimit over a limit."""
        self._control().check()

    def progress(self, value: Any) -> None:
        """Reports how far the job is: plain data, of at most 4096 bytes encoded (U2.9)."""
        data = pack_result(value, self.codec)
        most = PROGRESS_BYTES - self._control().spare_bytes
        if len(data) > most:
            raise ValueError(f"progress has {len(data)} bytes: at most {most}")
        send = self._control().send_progress
        if send is not None:
            send(data)

    def _control(self) -> Control:
        control: Control | None = self.__dict__.get("control")
        if control is None:
            control = self.__dict__["control"] = Control()
        return control


Attempt = Job


def instant(unix_s: float) -> dt.datetime:
    """A producer's time in UTC; the beginning of 1970 for one that no calendar has."""
    try:
        return dt.datetime.fromtimestamp(unix_s, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return dt.datetime.fromtimestamp(0, dt.UTC)


class Call(msgspec.Struct):
    """Everything a pool needs to run a job."""

    envelope: Envelope
    attempt: Job
    time_limit_s: float | None = None
    soft_limit_s: float | None = None
    cancel_grace_s: float = CANCEL_GRACE_S
    control: Any = msgspec.field(default_factory=Control)
    bound: Any = None  # the arguments in their types, once they are known to fit

    @property
    def is_callback(self) -> bool:
        """Whether the first argument is to be the results of a group."""
        headers = self.envelope.headers
        return headers is not None and GROUP_HEADER in headers

    def begins(self, app: Hooks) -> Job:
        """The run begins: its time counts from now on."""
        self.control.spare_bytes = 0 if app.keys is None else OVERHEAD_BYTES
        if self.time_limit_s is not None:
            self.control.ends_at = self.control.clock() + self.time_limit_s
        if self.soft_limit_s is not None:
            self.control.soft_limit_s = self.soft_limit_s
            self.control.soft_ends_at = self.control.clock() + self.soft_limit_s
        came = self.envelope.args, self.envelope.kwargs
        self.attempt.__dict__.update(control=self.control, state=app.state, arguments=came)
        return self.attempt


class Piped(msgspec.Struct):
    """A call in the form for a child process."""

    body: bytes
    attempt: Job
    time_limit_s: float | None
    soft_limit_s: float | None = None


_piped_decoder: Final = msgspec.msgpack.Decoder(Piped)


def to_pipe(call: Call) -> bytes:
    """Encode a call for a child process, its arguments with a codec that can carry them."""
    try:
        body = encode(call.envelope, "msgpack")
    except TypeError:
        body = encode(call.envelope, "json")  # integers of more than 64 bits
    piped = Piped(body, call.attempt, call.time_limit_s, call.soft_limit_s)
    return msgspec.msgpack.encode(piped)


def of_pipe(payload: bytes) -> Call:
    """Decode a call that `to_pipe` encoded."""
    piped = _piped_decoder.decode(payload)
    return Call(decode(piped.body), piped.attempt, piped.time_limit_s, piped.soft_limit_s)


def came_to(job: Job, err: BaseException, task: Task[..., Any]) -> Outcome:
    """What a run that raised came to; it may have been cancelled."""
    control = job._control()
    return control.judge(outcome_of(err, task, control, job))


_current: ContextVar[Job] = ContextVar("tuque_current_job")


def running_job() -> Job | None:
    """The job that the calling task runs for, if it is one."""
    return _current.get(None)


def current_job() -> Job:
    """The job that the calling task runs for; LookupError outside of a task."""
    job = _current.get(None)
    if job is None:
        raise LookupError(NO_JOB)
    return job


@contextmanager
def as_current(job: Job) -> Iterator[Job]:
    """Makes it the job that `current_job()` returns, without a broker."""
    token = _current.set(job)
    try:
        yield job
    finally:
        _current.reset(token)


def run_call(task: Task[..., Any], call: Call, runner: asyncio.Runner | None = None) -> Outcome:
    """Runs a job in this thread, never raises.

    A coroutine task runs on the loop of the runner, in a context of its own, or has its own loop.
    """
    pid = os.getpid()
    try:
        if task.is_async and runner is not None:
            outcome = _run_on(runner.get_loop(), task, call)
        else:
            outcome = _run_call(task, call)
    except BaseException as err:  # classes of the task may raise where its end is judged
        end_if_forked(pid, err)
        return unjudged(err)
    if os.getpid() != pid:
        end_if_forked(pid, None)
    return outcome


def _run_on(loop: asyncio.AbstractEventLoop, task: Task[..., Any], call: Call) -> Outcome:
    """Runs a coroutine task on the loop of this process, which ends with it (U13.6)."""
    running = loop.create_task(await_call(task, call), context=copy_context())
    running.add_done_callback(lambda _: loop.stop())
    while not running.done():
        ended: BaseException | None = None
        try:
            loop.run_forever()
        except BaseException as err:
            ended = err
        if not running.done() or ended is not None:
            if log_end_of_loop(ended) is call.attempt or not is_whole(ended):
                os._exit(code_of(ended))
    try:
        return running.result()
    except BaseException as err:
        return outcome_of(err, task, call.control)


def _run_call(task: Task[..., Any], call: Call) -> Outcome:
    if task.is_async:
        try:
            return asyncio.run(_on_own_loop(task, call))
        except BaseException as err:
            return outcome_of(err, task, call.control)
    app, control = task.app, call.control
    job = call.begins(app)
    token = _current.set(job)
    try:
        waits = held_back(app, job) if AFTER_HEADER in job.headers else None
        is_callback = call.envelope.headers is not None and call.is_callback
        if waits is None and not is_callback:
            waits = misfit(task, call)
        if waits is not None:
            return waits
        if app.on_start.functions:
            tell(app, app.on_start, job)  # U3.2
        try:
            if control.is_cancelled or control.soft_ends_at is not None:
                control.check()
            if is_callback:
                call.envelope = filled(app, call.envelope, job)
            if app.surrounds:
                result = run_inside(app, job, lambda: _body(task, call))
            else:
                result = _body(task, call)
            control.returned(call.time_limit_s)
            kept = result
            if CHAIN_HEADER in job.headers:
                control.check()
                kept = goes_on(app, job, result)
            if FOLLOWS_HEADER in job.headers:
                after_success(app, job, result)
            done = _done(task, call, kept)
        except BaseException as err:
            outcome = came_to(job, err, task)
            if control.failed() and is_failure(outcome, call):
                outcome.is_told = True
                tell(app, app.on_failure, job, failure_of(outcome, err))
            return outcome
        if app.on_success.functions:
            tell(app, app.on_success, job, result)
        return done
    finally:
        _current.reset(token)


async def await_call(task: Task[..., Any], call: Call) -> Outcome:
    """Runs a job of a coroutine task on the running event loop; cancels it at its time limit.

    It raises nothing but CancelledError.
    """
    try:
        with SameProcess():
            return await _await_call(task, call)
    except asyncio.CancelledError:
        raise
    except BaseException as err:
        return unjudged(err)


async def _await_call(task: Task[..., Any], call: Call) -> Outcome:
    job = call.begins(task.app)
    token = _current.set(job)
    try:
        waits = await held_back_async(task.app, job) if AFTER_HEADER in job.headers else None
        is_callback = call.is_callback
        if waits is None and not is_callback:
            waits = misfit(task, call)
        if waits is not None:
            return waits
        await tell_async(task.app.on_start, job)  # U3.2
        try:
            call.control.check()
            if is_callback:
                call.envelope = await filled_async(task.app, call.envelope, job)
            running = await_inside(task.app, job, lambda: _awaited_body(task, call))
            result = await _with_limit(running, call)
            call.control.returned(call.time_limit_s)
            kept = result
            if CHAIN_HEADER in job.headers:
                kept = await goes_on_async(task.app, job, result)
            if FOLLOWS_HEADER in job.headers:
                await asyncio.to_thread(after_success, task.app, job, result)
            done = _done(task, call, kept)
        except BaseException as err:
            if is_halted(err):
                raise  # the pool knows why
            outcome = came_to(job, err, task)
            if call.control.failed() and is_failure(outcome, call):
                outcome.is_told = True
                await tell_async(task.app.on_failure, job, failure_of(outcome, err))
            return outcome
        await tell_async(task.app.on_success, job, result)
        return done
    finally:
        _current.reset(token)


def misfit(task: Task[..., Any], call: Call) -> Outcome | None:
    """[U2] The outcome of a call that the task's signature does not take (U2.19); None if it does.

    Not for callbacks: their arguments are results, which are not read yet.
    """
    try:
        call.bound = task.bind(call.envelope, is_result=AFTER_HEADER in call.attempt.headers)
    except BadArguments as err:
        return outcome_of(err, task)
    return None


def _body(task: Task[..., Any], call: Call) -> Any:
    """Calls the task's function with the arguments of the job."""
    bound: Bound | None = call.bound
    if bound is None:
        bound = task.bind(call.envelope, is_result=call.is_callback)
    args, kwargs = bound
    control: Control = call.control
    control.is_in_task = True
    pid = os.getpid()
    try:
        if control.is_cancelled or control.soft_ends_at is not None:
            control.check()
        result = task.function(*args, **kwargs)
    except BaseException as err:
        end_if_forked(pid, err)
        raise
    finally:
        control.is_in_task = False
    if os.getpid() != pid:
        end_if_forked(pid, None)
    return result


async def _awaited_body(task: Task[..., Any], call: Call) -> Any:
    with SameProcess():  # U13.5
        return await _body(task, call)


def is_failure(outcome: Outcome, call: Call | None) -> bool:
    """Whether `on_failure` is called: not for a run that was cancelled or asked for later."""
    if call is not None and call.control.is_cancelled and not call.control.is_late:
        return False
    return outcome.kind in FAILED_KINDS


def failure_of(
    outcome: Outcome,
    error: BaseException | None = None,
    *,
    delay_s: float | None = None,
    queue: str = "",
) -> Failure:
    """What hooks get about the end of a run."""
    return Failure(outcome.kind, outcome.text, outcome.trace, error, delay_s, queue)


def _done(task: Task[..., Any], call: Call, result: Any) -> Outcome:
    """[U2] The outcome of a done job, with its result if kept, or Unserializable (U2.8)."""
    job = call.attempt
    if not task.keeps(call.envelope):
        return DONE
    if CHILD_HEADER in job.headers or AFTER_HEADER in job.headers:  # somebody waits for it
        spare_bytes = call.control.spare_bytes
        return Outcome("done", result=packed(result, job.codec, job.headers, spare_bytes))
    try:
        return Outcome("done", result=pack_result(result, job.codec))
    except (TypeError, ValueError, OverflowError, RecursionError) as err:
        log.warning(
            "the result of job %(job)s (%(task)s) is lost: %(reason)s",
            facts("result_lost", job=job.id, task=task.name, reason=err),
        )
        return Outcome("done", result=lost_result(one_line(f"it cannot be written: {err}")))


async def _on_own_loop(task: Task[..., Any], call: Call) -> Outcome:
    try:
        return await await_call(task, call)
    finally:
        await task.app.aclose()  # a client of this loop is useless on the next one


async def _with_limit(running: Coroutine[Any, Any, Any], call: Call) -> Any:
    """Awaits the task; the broker, or its time limit, cancels it, and both in the same way."""
    this = asyncio.current_task()
    assert this is not None
    loop, control, limit_s = asyncio.get_running_loop(), call.control, call.time_limit_s
    is_running = True

    def stop() -> None:
        if is_running:  # else its hooks are next, or another job's task
            this.cancel()

    def warn() -> None:
        control.warned()
        stop()

    control.on_cancel(lambda: loop.call_soon_threadsafe(stop))
    alarms: list[asyncio.TimerHandle] = []
    if limit_s is not None:
        alarms.append(loop.call_later(limit_s, control.cancel, over_limit_text(limit_s), True))
    if call.soft_limit_s is not None:
        alarms.append(loop.call_later(call.soft_limit_s, warn))
    try:
        return await running
    except asyncio.CancelledError:
        if control.is_cancelled:
            this.uncancel()
            raise control.halted() from None
        if control.soft_why:
            raise control.warned() from None
        raise
    finally:
        is_running = False
        if control.soft_why:
            this.uncancel()
        control.on_cancel(None)
        for alarm in alarms:
            alarm.cancel()


# ---- A task that ends the loop of coroutine tasks: `sys.exit` in a callback or in the background,
# `loop.stop` (SPEC U13.6)
#
# asyncio lets SystemExit and KeyboardInterrupt leave `run_forever`. The loop is whole after that.


def is_whole(err: BaseException | None) -> bool:
    """Whether a loop that ended so can run again. `err`: what left it, None if it was stopped."""
    return err is None or isinstance(err, SystemExit | KeyboardInterrupt)


def log_end_of_loop(err: BaseException | None) -> Job | None:
    """[U13] Logs what ended a loop; the job whose task did that, None if that is not known (U13.6).

    `err`: what left the loop, None if it was stopped.
    """
    job = None if err is None else _job_of_step(err)
    log.error(
        "the event loop of coroutine tasks was ended by %(by)s: %(reason)s",
        facts(
            "task_loop_ended",
            by="a task" if job is None else f"job {job.id} ({job.task})",
            reason="loop.stop()" if err is None else describe(err),
        ),
        exc_info=err,
    )
    return job


def _job_of_step(err: BaseException) -> Job | None:
    """The job in whose context a loop made the step that raised."""
    trace = err.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code is asyncio.Handle._run.__code__:
            job: Job | None = frame.f_locals["self"]._context.get(_current)
            return job
        trace = trace.tb_next
    return None  # a loop of another maker, or a signal


def over_limit_text(limit_s: float | None) -> str:
    """The reason of a run over its time limit, as the broker says it (W3.3)."""
    return f"ran longer than its time limit of {in_seconds(limit_s)} s"


def in_seconds(limit_s: float | None) -> str:
    """A limit for people."""
    return f"{limit_s or 0:.3f}".rstrip("0").rstrip(".")


def outcome_of(
    err: BaseException,
    task: Task[..., Any] | None = None,
    control: Control | None = None,
    job: Job | None = None,
) -> Outcome:
    """The outcome for an exception; it can be encoded whatever the exception's text.

    `Cancelled` is a failure as any other if the run was not cancelled: a task may hear it of
    another job (U2.2). `job`: for `retry_if` of the task.
    """
    if isinstance(err, Cancelled) and control is not None and control.is_cancelled:
        return Outcome("cancelled", one_line(guarded(str, err)))
    if isinstance(err, TimeLimit) and control is not None and control.soft_why:
        return Outcome("timeout", control.soft_why, encodable(guarded(trace_of, err)))
    if isinstance(err, RetryLater):
        try:
            check_delay(err.delay_s)  # a class of the task's own may set what it likes
        except Exception as wrong:
            return unjudged(wrong)
        if not getattr(err, "counted", False):
            return Outcome("retry", one_line(guarded(str, err)), delay_s=err.delay_s)
        counted = unjudged(err)
        counted.delay_s = err.delay_s
        return counted
    if isinstance(err, Reject):
        return Outcome("rejected", one_line(guarded(str, err)) or "Reject")
    if isinstance(err, BadArguments):
        return Outcome("unfit", one_line(f"bad arguments: {guarded(str, err)}"))
    verdict = True if task is None else runs_again(err, task.defaults, job)
    kind: OutcomeKind = "rejected" if verdict is False else "failed"
    delay_s = None if isinstance(verdict, bool) else verdict
    return Outcome(kind, describe(err), encodable(guarded(trace_of, err)), delay_s)


def runs_again(err: BaseException, options: Options, job: Job | None) -> bool | float:
    """[U2] Whether a job runs again after an exception, or in how many seconds (U2.26)."""
    if isinstance(err, options.give_up_on):
        return False
    if options.retry_on is not None and not isinstance(err, options.retry_on):
        return False
    if options.retry_if is None or job is None or not isinstance(err, Exception):
        return True
    control = job._control()
    if control.is_cancelled:
        return True  # judged by that
    if control.verdict is None or control.verdict[0] is not err:  # telemetry has it judged, too
        control.verdict = err, _answer(options.retry_if, err, job)
    return control.verdict[1]


def _answer(retry_if: RetryIf, err: Exception, job: Job) -> bool | float:
    """What a task's function says of an exception; True if it fails itself."""
    try:
        with SameProcess():  # U13.5
            verdict = retry_if(err, job)
        if not isinstance(verdict, bool):
            check_number("what retry_if returns", verdict)
            check_delay(verdict)
        return verdict
    except BaseException:
        log.exception(
            "retry_if of task %(task)s failed, of job %(job)s, which runs again",
            facts("retry_if_failed", task=job.task, job=job.id),
        )
        return True


def unjudged(err: BaseException) -> Outcome:
    """[U2] What a run came to if finding that out raised (U2.17)."""
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
