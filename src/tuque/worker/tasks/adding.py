"""Jobs on their way to the broker: one, or many in one round trip.

Decides what is sent of a job to a queue and to a tube, and what the error about many has. The faces
(task.py) send.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tuque.errors import EnqueueFailed, Error, IsTube
from tuque.worker.tasks.codec import Envelope, encode
from tuque.worker.tasks.handle import Handle
from tuque.worker.tasks.hooks import NOT_FOLLOWED, Follower, Outgoing
from tuque.worker.tasks.options import RETRY_S, Asked, Options, asked_of_tube, changed

if TYPE_CHECKING:
    from tuque.worker.tasks.task import Task

R = TypeVar("R")

TASK_HEADER: Final = "tuque-task"
UNKNOWN_KEEP_S: Final = 86_400.0
SHOWN: Final = 5  # places named by an error


@dataclass(frozen=True)
class Call(Generic[R]):
    """A call of a task that was not enqueued yet; `task.call(...)` makes it."""

    task: Task[..., R]
    options: Options
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Adding(Generic[R]):
    """One job before it is added. Its hooks have run."""

    def __init__(self, call: Call[R]) -> None:
        """[U3] Raises what a function of `on_enqueue` raises, or TypeError for the arguments."""
        self.task, self.options = call.task, call.options
        self._call = call
        self._body = call.task.body(call.options, call.args, call.kwargs)  # U1.1
        out = Outgoing(
            call.task.name, call.options.queue, call.args, call.kwargs, dict(call.options.headers)
        )
        for function in call.task.app.on_enqueue.functions:
            function(out)  # U3.1
        self.out = out
        self.headers = out.headers

    def followed(self) -> Follower:
        """[U7] What follows the job while it is sent; nothing if the app has no telemetry."""
        telemetry = self.task.app.telemetry
        return NOT_FOLLOWED if telemetry is None else telemetry.follow([self.out], False)

    @property
    def goes_to_tube(self) -> bool:
        """Whether the queue is known to be a tube."""
        return self.options.queue in self.task.app.tubes

    def on_tube(self) -> None:
        """The broker replied that the queue is a tube."""
        self.task.app.tubes.add(self.options.queue)

    def words(self) -> tuple[str, bytes, Asked]:
        """Queue, body and options for ADDJOB."""
        if not self.goes_to_tube:
            return self.options.queue, self._body, self._asked()
        body = self._body
        if self.headers:  # a tube has no place for them but the body
            call = self._call
            body = self.task.body(self.options, call.args, call.kwargs, self.headers)
        return self.options.queue, body, asked_of_tube(self.options)

    @property
    def has_key(self) -> bool:
        """Whether the job may meet an older one."""
        return self.options.key is not None

    def handle(self, id: str, is_new: bool = True) -> Handle[R]:
        """The handle of the job, which was added, now or before."""
        keeps = self.task.keep_s(self.options) > 0
        app, name = self.task.app, self.task.name
        return Handle(id, app, self.task.returns, task=name, keeps=keeps, is_new=is_new)

    def _asked(self) -> Asked:
        """The arguments of addjob for a queue; of a job at most once, no attempts are counted."""
        options = self.options
        asked = asked_of_tube(options)
        asked["keep"] = self.task.keep_s(options) or None
        asked["headers"] = {**self.headers, TASK_HEADER: self.task.name}
        if options.retry_s == 0:
            return asked
        asked["delay"] = options.delay_s
        asked["retry"] = RETRY_S if options.retry_s is None else options.retry_s
        asked["ttl"] = options.ttl_s or 0
        asked["attempts"] = options.attempts
        asked["backoff"] = options.backoff.figures
        asked["dead"] = options.dead
        asked["time_limit"] = options.time_limit_s
        return asked


class Batch(Generic[R]):
    """Many jobs of one task, and what became of each."""

    def __init__(self, task: Task[..., R], calls: Iterable[Call[R]]) -> None:
        """[U1] Nothing is sent yet: raises if one of them cannot be."""
        self._task = task
        self._addings: list[Adding[R]] = []
        self._tried_as_tube: set[int] = set()
        for at, call in enumerate(calls):
            if not isinstance(call, Call):
                raise TypeError(f"enqueue_many takes calls: call {at} is {call!r}")
            if call.task is not task:
                raise ValueError(f"call {at} is of {call.task.name}, not of {task.name}")
            try:
                self._addings.append(Adding(call))
            except Exception as err:
                err.add_note(f"call {at} of enqueue_many: nothing was added")  # U1.2
                raise
        self._left = list(range(len(self._addings)))
        self._answers: list[Any] = [None] * len(self._addings)

    def __bool__(self) -> bool:
        """Whether something is left to send."""
        return bool(self._left)

    def followed(self) -> Follower:
        """[U7] What follows the jobs while they are sent; nothing if the app has no telemetry."""
        telemetry = self._task.app.telemetry
        if telemetry is None or not self._addings:
            return NOT_FOLLOWED
        return telemetry.follow([adding.out for adding in self._addings], True)

    def fill(self, pipeline: Any) -> None:
        """Adds what is left to the pipeline."""
        for at in self._left:
            adding = self._addings[at]
            queue, body, asked = adding.words()
            add = pipeline.addjob_new if adding.has_key else pipeline.addjob
            add(queue, body, **asked)

    def take(self, answers: list[Any] | Error) -> None:
        """Takes the answers, or why there are none; those for tubes are left once more."""
        if isinstance(answers, Error):
            answers = [answers] * len(self._left)
        again: list[int] = []
        for at, answer in zip(self._left, answers, strict=True):
            adding = self._addings[at]
            self._answers[at] = answer
            if isinstance(answer, IsTube) and at not in self._tried_as_tube:
                again.append(at)
            elif isinstance(answer, str):
                self._answers[at] = adding.handle(answer)
            elif isinstance(answer, tuple):
                self._answers[at] = adding.handle(*answer)
        for at in again:
            self._addings[at].on_tube()
        self._tried_as_tube.update(again)
        self._left = again

    def handles(self, follower: Follower) -> list[Handle[R]]:
        """[U1] The handles in the order of the calls; EnqueueFailed unless all were added."""
        if follower is not NOT_FOLLOWED:
            for at, one in enumerate(self._answers):
                if isinstance(one, Error):
                    follower.refused(at, one)
                else:
                    follower.added(at, one)
        failed = {at: one for at, one in enumerate(self._answers) if isinstance(one, Error)}
        if not failed:
            return self._answers
        added = {at: one for at, one in enumerate(self._answers) if at not in failed}
        raise failure(added, failed)  # U1.3


def failure(added: dict[int, Any], failed: dict[int, Error]) -> EnqueueFailed:
    """The error of many jobs of which some were not added."""
    places = ", ".join(map(str, list(failed)[:SHOWN])) + (", ..." if len(failed) > SHOWN else "")
    first = next(iter(failed.values()))
    total = len(added) + len(failed)
    unsure = sum(one.may_be_done for one in failed.values())
    if unsure == 0:
        fate = "were not added"
    elif unsure == len(failed):
        fate = "may or may not have been added"
    else:
        fate = f"were not added, or of {unsure} it is not known"
    made = EnqueueFailed(
        f"{len(failed)} of {total} jobs {fate} (calls {places}): {first.message}",
        node=first.node,
        retryable=all(one.retryable for one in failed.values()),
    )
    made.may_be_done = any(one.may_be_done for one in failed.values())
    made.added, made.failed = added, failed
    made.__cause__ = first
    return made


def envelope_of(
    task: Task[..., Any],
    options: Options,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    headers: dict[str, str] | None,
) -> bytes:
    """The body of a job; of the options only those that differ from the task's own."""
    own = task.defaults
    keep_s = options.unknown_keep_s
    envelope = Envelope(
        task=task.name,
        args=list(args),
        kwargs=kwargs,
        enqueued_at=time.time(),
        max_deliveries=changed(options.attempts, own.attempts),
        time_limit_s=changed(options.time_limit_s or 0.0, own.time_limit_s or 0.0),
        dead_letter=changed(options.dead or "", own.dead or ""),
        backoff=changed(options.backoff.figures, own.backoff.figures),
        keep_s=changed(task.keep_s(options), task.keep_s(own)),
        unknown_keep_s=keep_s if keep_s != UNKNOWN_KEEP_S else None,
        headers=headers or None,
    )
    return encode(envelope, options.codec)
