"""Jobs on their way to the broker: one, or many in one round trip.

Decides what is sent of a job to a queue and to a tube, and what the error about many has. The
functions of a task (task.py) send.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from msgspec.structs import replace

from tuque.client.api import PRI_MAX
from tuque.client.commands import calls
from tuque.errors import (
    ConnectionError,
    EnqueueFailed,
    Error,
    IsTube,
    NoNode,
    NoTube,
    ReplyError,
    Timeout,
)
from tuque.worker.app.codec import Envelope, encode
from tuque.worker.app.decisions import SECONDS_MAX
from tuque.worker.app.encryption import Keys
from tuque.worker.app.handle import Handle
from tuque.worker.app.hooks import NOT_FOLLOWED, TASK_HEADER, Follower, Outgoing
from tuque.worker.app.options import (
    RETRY_S,
    Asked,
    Options,
    asked_of_tube,
    changed,
    check_number,
    whole_seconds,
)

if TYPE_CHECKING:
    from tuque import aio
    from tuque.client.sync import Client
    from tuque.worker.app.task import Task

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

SCHEDULE_HEADER: Final = "tuque-schedule"
KEY_HEADER: Final = "tuque-key"
QUEUES_HEADER: Final = "tuque-queues"  # those of the steps that follow; the broker checks (N2.9)
CHAIN_HEADER: Final = "tuque-chain"  # the steps that follow, as JSON
UNKNOWN_KEEP_S: Final = 86_400.0
SHOWN: Final = 5  # places named by an error
AT_ONCE: Final = 500  # jobs of a pipeline
PROBE_S: Final = 1.0  # between two calls that ask a broker that was away, and for each of them
BIG_BYTES: Final = 16 << 20  # of a body, which may be why no answer came
BIG: Final = "the job has a body of"
BIG_MORE: Final = (
    "bytes, and a broker takes max-body-bytes, 67108864 by default; bytes grow by a third in JSON, "
    "and not with codec='msgpack'"
)
NOT_STAGED: Final = ("key", "utube", "expires")  # what an outbox cannot have
NOT_SENT: Final = "not sent: the broker was away"
# between two jobs of a schedule, as the broker has it
EVERY_MIN_S: Final = 1
EVERY_MAX_S: Final = 366 * 86_400.0
MISSED: Final = ("skip", "one", "all")  # what becomes of instants that were missed (U9.1)
# a schedule cannot be added as it is; the others can
REFUSED: Final = (ReplyError, TypeError, ValueError)


@dataclass(frozen=True)
class Call(Generic[R_co]):
    """A call of a task that was not enqueued yet; `task.call(...)` makes it."""

    task: Task[..., R_co]
    options: Options
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Planned:
    """A call that the broker makes at instants; `App.schedule` declares it (U9)."""

    name: str
    call: Call[Any]
    cron: str | None
    every_s: float | None
    tz: str | None
    missed: Literal["skip", "one", "all"]

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every_s is None):
            raise TypeError(f"schedule {self.name}: give either cron or every_s")
        if self.every_s is not None:
            check_number(f"schedule {self.name}: every_s", self.every_s)
        if self.every_s is not None and not EVERY_MIN_S <= self.every_s <= EVERY_MAX_S:
            raise ValueError(
                f"schedule {self.name}: every_s is from {EVERY_MIN_S} to {EVERY_MAX_S:.0f} "
                f"seconds, not {self.every_s}"
            )
        if self.cron is not None and len(str(self.cron).split()) not in (5, 6):
            raise ValueError(
                f"schedule {self.name}: cron has five fields, or six with the seconds first, not "
                f"{self.cron!r}"
            )
        if self.missed not in MISSED:
            words = ", ".join(MISSED)
            raise ValueError(f"schedule {self.name}: missed is one of {words}, not {self.missed!r}")
        if self.tz is not None and self.cron is None:
            raise TypeError(f"schedule {self.name}: tz needs cron")
        options = self.call.options
        if options.unique is not None and options.unique.on != "keep":
            raise TypeError(f"schedule {self.name}: its jobs cannot have Unique(on=)")
        if options.retry_s == 0:
            raise ValueError(f"schedule {self.name}: retry_s is 1 or more: its jobs come back")
        for word in ("delay_s", "key", "utube", "maxlen", "replicate", "expires"):
            if getattr(options, word) is not None:
                raise TypeError(f"schedule {self.name}: its jobs cannot have {word}")

    @property
    def tube_ttr_s(self) -> int:
        """The time to work of the tasks of a new tube."""
        return self.call.options.retry_s or RETRY_S

    def words(self) -> tuple[str, str, bytes, dict[str, Any]]:
        """[U9] Queue, name, body and options for schedule_add; the same each time (U9.2)."""
        call, options = self.call, self.call.options
        body = envelope_of(
            call.task, options, call.args, call.kwargs, dict(options.headers), is_timed=False
        )
        keys = call.task.app.keys
        asked: dict[str, Any] = {
            "cron": self.cron,
            "every_s": self.every_s,
            "tz": self.tz,
            "missed": self.missed,
            "retry": options.retry_s,
            "ttl": options.waits_s or None,
            "pri": options.pri,
            **work_asked(call.task, options, {**options.headers, SCHEDULE_HEADER: self.name}),
        }
        if options.policies is not None:
            values = call.task.values(call.args, call.kwargs)
            asked |= options.policies.keyed(call.task.name, values, options.headers)
        return options.queue, self.name, body if keys is None else keys.seal(body), asked


class Adding(Generic[R]):
    """One job before it is added. Its hooks have run."""

    def __init__(self, call: Call[R]) -> None:
        """[U3] Raises what a function of `on_enqueue` raises, or TypeError for the arguments."""
        self.task = call.task
        self.options = call.options.at(call.task.app.now) if call.options.expires else call.options
        self._call = call
        under = under_seal(call.task.app.keys, call.options.headers)
        self._body = call.task.body(call.options, call.args, call.kwargs, under)  # U1.1
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
        return self.options.queue in self.task.app.tubes or self.options.policies is not None

    @property
    def needs_tube(self) -> bool:
        """[U1] Whether a tube of type tasks must be there first (U1.8)."""
        return self.options.policies is not None and self.options.queue not in self.task.app.keyed

    def on_tube(self) -> None:
        """The broker replied that the queue is a tube."""
        self.task.app.tubes.add(self.options.queue)

    def on_keyed(self) -> None:
        """There is a tube of type tasks now."""
        self.task.app.keyed.add(self.options.queue)

    def on_no_tube(self) -> bool:
        """[U1] There is none any more; False: none was made before (U1.8)."""
        is_lost = self.options.queue in self.task.app.keyed
        self.task.app.keyed.discard(self.options.queue)
        return is_lost and self.options.policies is not None

    @property
    def tube_ttr_s(self) -> int:
        """The time to work of the tasks of a new tube."""
        return self.options.retry_s or RETRY_S

    def words(self) -> tuple[str, bytes, Asked]:
        """Queue, body and options for ADDJOB."""
        if not self.goes_to_tube:
            return self.options.queue, self._sealed(self._body), self._asked()
        policies = self.options.policies
        if policies is not None:
            asked = asked_of_tube(self.options)
            asked.update(self._work())
            values = self.task.values(self._call.args, self._call.kwargs)
            asked = {**asked, **policies.keyed(self.task.name, values, self.headers)}
            return self.options.queue, self._sealed(self._body), asked
        body = self._body
        if self.headers:  # other tubes have no place for them but the body
            call = self._call
            body = self.task.body(self.options, call.args, call.kwargs, self.headers)
        asked = asked_of_tube(self.options)
        if self.options.queue in self.task.app.keyed:  # such a tube counts attempts, keeps results
            asked.update(self._work())
        return self.options.queue, self._sealed(body), asked

    def for_topic(self) -> tuple[bytes, Asked]:
        """Body and options for TOPIC ADD: those of a queue."""
        return self._sealed(self._body), self._asked()

    def for_stage(self) -> tuple[bytes, Asked]:
        """Body and options for STAGE; TypeError for an option that only ADDJOB has."""
        options, name = self.options, self.task.name
        given = [word for word in NOT_STAGED if getattr(options, word) is not None]
        if options.policies is not None or self.options.queue in self.task.app.tubes:
            given.append("a tube, as limit, rate, group and unique need it,")
        if options.retry_s == 0:
            given.append("retry_s=0")
        if options.pri is not None and options.pri > PRI_MAX:
            given.append(f"pri={options.pri}")
        if given:
            raise TypeError(f"task {name}: {', '.join(given)} is not for an outbox")
        asked = self._asked()
        asked["ttl"] = asked["ttl"] or SECONDS_MAX  # STAGE has no 0
        asked["delay"] = whole_seconds(options.delay_s)
        found: Any = {word: value for word, value in asked.items() if value is not None}
        return self._sealed(self._body), found

    def _sealed(self, body: bytes) -> bytes:
        """[U8] The body under the app's keys, if it has some (U8.1)."""
        keys = self.task.app.keys
        return body if keys is None else keys.seal(body)

    @property
    def has_key(self) -> bool:
        """Whether the job may meet an older one."""
        return self.options.key is not None or self.options.unique is not None

    def handle(self, id: str, is_new: bool = True) -> Handle[R]:
        """The handle of the job, which was added, now or before."""
        keeps = self.task.keep_s(self.options) > 0
        app, name = self.task.app, self.task.name
        return Handle(id, app, self.task.returns, task=name, keeps=keeps, is_new=is_new)

    def _asked(self) -> Asked:
        """The arguments of addjob for a queue."""
        return asked_of_queue(self.task, self.options, self.headers)

    def _work(self) -> Asked:
        """[W1] The options about the job's work."""
        return work_asked(self.task, self.options, self.headers)


def new_tube(one: Adding[Any] | Planned) -> dict[str, Any]:
    """The options of a tube that is made for a job, unless it is there."""
    return {"ttr": one.tube_ttr_s, "if_not_exists": True, "implicit": True}


def asked_of_queue(task: Task[..., Any], options: Options, headers: Mapping[str, str]) -> Asked:
    """The arguments of addjob for a queue; of a job at most once, no attempts are counted."""
    asked = asked_of_tube(options)
    asked.update(work_asked(task, options, headers))
    if options.retry_s == 0:
        asked["replicate"] = 1  # U1.13
        return asked
    asked["delay"] = options.delay_s
    asked["retry"] = RETRY_S if options.retry_s is None else options.retry_s
    asked["ttl"] = options.waits_s or 0
    return asked


class Usual(Generic[R]):
    """What all jobs of a task with these options have in common, made once: the quick way.

    A job goes this way if nothing but its arguments makes it differ from the others.
    """

    def __init__(self, task: Task[..., R], options: Options) -> None:
        self._task = task
        self._options = options
        self._is_fit = options.policies is None and options.key is None and options.expires is None
        self._call: calls.Call[str] | None = None
        self._envelope: dict[str, Any] = {}
        self._keeps = False

    def serves(self) -> bool:
        """Whether a job goes this way now: to a queue of a broker that is there, as it is."""
        app = self._task.app
        return (
            self._is_fit
            and not app.on_enqueue.functions
            and app.telemetry is None
            and app.keys is None
            and not app.reach.is_lost
            and self._options.queue not in app.tubes
        )

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> calls.Call[str]:
        """The call that adds a job; TypeError if the function does not accept these arguments."""
        options = self._options
        self._task.check(args, kwargs, options.codec)
        if self._call is None:
            self._envelope = differing(self._task, options)
            self._keeps = self._task.keep_s(options) > 0
            asked = asked_of_queue(self._task, options, options.headers)
            ms = self._task.app.reach.copies_ms
            self._call = calls.addjob(options.queue, b"", timeout_ms=ms, **asked)
        envelope = Envelope(
            self._task.name, list(args), kwargs, enqueued_at=time.time(), **self._envelope
        )
        verb, queue, _, *words = self._call.args
        body = encode(envelope, options.codec)
        return replace(self._call, args=(verb, queue, body, *words))

    def handle(self, id: str) -> Handle[R]:
        """The handle of the job that was added."""
        task = self._task
        return Handle(id, task.app, task.returns, task=task.name, keeps=self._keeps, is_new=True)

    def on_tube(self) -> None:
        """The broker replied that the queue is a tube."""
        self._task.app.tubes.add(self._options.queue)


def work_asked(task: Task[..., Any], options: Options, headers: Mapping[str, str]) -> Asked:
    """[W1] The options about the work of a job of the task."""
    asked: Asked = {
        "keep": task.keep_s(options) or None,
        "headers": {**headers, TASK_HEADER: task.name},
        "dead": options.dead,
    }
    if options.keep_body and asked["keep"]:
        asked["keep_body"] = True
    if task.app.keys is not None:
        asked["headers"][KEY_HEADER] = task.app.keys.id
    if options.retry_s != 0:
        asked["attempts"] = options.attempts
        asked["backoff"] = options.backoff.figures
        asked["time_limit"] = options.time_limit_s
        if options.is_dropped:  # a node that does not know the word sees it only then
            asked["on_expiry"] = "drop"
    return asked


def published(call: Call[Any]) -> tuple[bytes, dict[str, Any]]:
    """[U12] Body and options for TOPIC ADD (U12.1). Raises TypeError for a task with a policy."""
    if not isinstance(call, Call):
        raise TypeError(f"publish takes a call of a task, as task.call(...), not {call!r}")
    if call.options.policies is not None or call.options.utube is not None:
        raise TypeError(
            f"task {call.task.name}: jobs of a topic have no unique, limit, rate, group or utube"
        )
    body, asked = Adding(call).for_topic()
    return body, {name: value for name, value in asked.items() if name != "utube"}


class Reach:
    """[U1] Whether the broker was there for the last enqueue; if not, few ask it (U1.19)."""

    def __init__(self, limit_s: float) -> None:
        """`limit_s`: how long an enqueue may wait for the reply of a node."""
        self.limit_s = limit_s
        self.copies_ms = max(1, round(limit_s * 500))  # for the copies: the reply comes in time
        self.is_lost = False
        self._why = ""
        self._failed_s = self._asked_s = 0.0

    def prove(self, client: Client) -> None:
        """Asks whether the broker is back; NoNode at once if that was done lately."""
        self._ask_now()
        client.ping(timeout=PROBE_S)
        self.is_lost = False

    async def prove_async(self, client: aio.Client) -> None:
        """Like `prove`, for asyncio programs."""
        self._ask_now()
        await client.ping(timeout=PROBE_S)
        self.is_lost = False

    def _ask_now(self) -> None:
        now_s = time.monotonic()
        if now_s < self._asked_s + PROBE_S:
            ago_s = now_s - self._failed_s
            raise NoNode(f"{NOT_SENT} {ago_s:.1f} s ago, and is asked once a second: {self._why}")
        self._asked_s = now_s

    def failed(self, err: Error, body: object = b"") -> None:
        """An enqueue has failed, perhaps since the broker was not there.

        That the client was busy, which is a Timeout without a node, says nothing of the broker; nor
        does one with a large body.
        """
        if isinstance(body, bytes) and note_size(err, len(body)):
            return
        is_busy = isinstance(err, Timeout) and not err.node
        if not isinstance(err, NoNode | Timeout) or is_busy or err.message.startswith(NOT_SENT):
            return
        if isinstance(err, Timeout):
            err.args = (f"{err.message}; enqueue_timeout_s is {self.limit_s:g} s",)
        self._why = err.message
        self._failed_s = self._asked_s = time.monotonic()
        self.is_lost = True


def note_size(err: Error, size: int) -> bool:
    """Whether a job of so many bytes is large, which its error says: that may be why it failed."""
    if size < BIG_BYTES or isinstance(err, NoNode):
        return False
    if BIG not in err.message:  # one error may be that of many jobs
        err.args = (f"{err.message}; {BIG} {size} {BIG_MORE}",)
    return True


class Batch(Generic[R]):
    """Many jobs of one task, and what became of each."""

    def __init__(self, task: Task[..., R], first: int = 0) -> None:
        """`first`: how many calls were added before, by batches of the same iterator."""
        self._task = task
        self.first = first
        self._addings: list[Adding[R]] = []
        self._tried_as_tube: set[int] = set()
        self._left: list[int] = []
        self._sent: list[int] = []
        self._sizes: list[int] = []  # of the bodies that were sent
        self._answers: list[Any] = []
        self.largest = b""  # of those bodies

    def add(self, calls: Iterable[Call[R]]) -> Iterator[None]:
        """[U1] In steps. Nothing is sent yet: raises if one of them cannot be."""
        for at, call in enumerate(check_calls(calls), self.first):
            try:
                if not isinstance(call, Call):
                    raise TypeError(f"enqueue_many takes calls: call {at} is {call!r}")
                if call.task is not self._task:
                    raise ValueError(f"call {at} is of {call.task.name}, not of {self._task.name}")
                self._addings.append(Adding(call))
            except Exception as err:
                note_added(err, at, self.first)
                raise
            yield
        self._left = list(range(len(self._addings)))
        self._answers = [None] * len(self._addings)

    def __bool__(self) -> bool:
        """Whether something is left to send."""
        return bool(self._left)

    def followed(self) -> Follower:
        """[U7] What follows the jobs while they are sent; nothing if the app has no telemetry."""
        telemetry = self._task.app.telemetry
        if telemetry is None or not self._addings:
            return NOT_FOLLOWED
        return telemetry.follow([adding.out for adding in self._addings], True)

    def tubes(self) -> dict[str, Adding[R]]:
        """The tubes that the next jobs need, by name, each with a job that goes there."""
        some = (self._addings[at] for at in self._left[:AT_ONCE])
        return {one.options.queue: one for one in some if one.needs_tube}

    def fill(self, pipeline: Any) -> Iterator[None]:
        """Adds the next of what is left to the pipeline, in steps."""
        copies_ms = self._task.app.reach.copies_ms
        self._sent = self._left[:AT_ONCE]
        self._sizes, self.largest = [], b""
        for at in self._sent:
            adding = self._addings[at]
            queue, body, asked = adding.words()
            self._sizes.append(len(body))
            self.largest = max(self.largest, body, key=len)
            add = pipeline.addjob_new if adding.has_key else pipeline.addjob
            add(queue, body, timeout_ms=copies_ms, **asked)
            yield

    def take(self, answers: list[Any] | Error) -> Iterator[None]:
        """Takes the answers, or why there are none, in steps; those for tubes are left again."""
        if isinstance(answers, Error):
            answers = [answers] * len(self._sent)
        again: list[int] = []
        for at, answer, size in zip(self._sent, answers, self._sizes, strict=True):
            adding = self._addings[at]
            self._answers[at] = answer
            is_new = at not in self._tried_as_tube
            if isinstance(answer, NoTube) and is_new and adding.options.policies is not None:
                adding.on_no_tube()
                again.append(at)
            elif isinstance(answer, IsTube) and is_new:
                adding.on_tube()
                again.append(at)
            elif isinstance(answer, str):
                self._answers[at] = adding.handle(answer)
            elif isinstance(answer, tuple):
                self._answers[at] = adding.handle(*answer)
            elif isinstance(answer, Error):
                note_size(answer, size)
            yield
        self._tried_as_tube.update(again)
        self._left = again + self._left[len(self._sent) :]
        if isinstance(answers[-1], ConnectionError):
            self._give_up(answers[-1])

    def _give_up(self, err: ConnectionError) -> None:
        """[U1] The broker is away: nothing more is sent (U1.3)."""
        for at in self._left:
            self._answers[at] = type(err)(f"not sent: {err.message}", node=err.node, retryable=True)
        self._left = []

    def handles(self, follower: Follower) -> list[Handle[R]]:
        """[U1] The handles in the order of the calls; EnqueueFailed unless all were added."""
        if follower is not NOT_FOLLOWED:
            for at, one in enumerate(self._answers):
                if isinstance(one, Error):
                    follower.refused(at, one)
                else:
                    follower.added(at, one)
        answers = enumerate(self._answers, self.first)
        failed = {at: one for at, one in answers if isinstance(one, Error)}
        if not failed:
            return self._answers
        answers = enumerate(self._answers, self.first)
        added = {at: one for at, one in answers if at not in failed}
        raise failure(added, failed)  # U1.3


def note_added(err: Exception, at: int, first: int) -> None:
    """[U1] Has the error of a call say which calls were added before (U1.2, U1.20)."""
    before = f"calls before {first} were" if first else "nothing was"
    err.add_note(f"call {at} of enqueue_many: {before} added")


def check_calls(calls: Iterable[Call[R]]) -> Iterable[Call[R]]:
    """The same; TypeError for what is no iterable."""
    if not isinstance(calls, Iterable):
        raise TypeError(f"enqueue_many takes calls, such as [task.call(1)], not {calls!r}")
    return calls


def in_batches(task: Task[..., R], calls: Iterable[Call[R]]) -> Iterator[tuple[Batch[R], Any]]:
    """Batches, each with its calls, which are not added to it yet."""
    rest = iter(calls)
    for first in count(0, AT_ONCE):
        some: list[Call[R]] = []
        try:
            for call in islice(rest, AT_ONCE):
                some.append(call)
        except Exception as err:
            note_added(err, first + len(some), first)
            raise
        if not some:
            return
        yield Batch(task, first), some


async def in_batches_async(
    task: Task[..., R], calls: Iterable[Call[R]] | AsyncIterable[Call[R]]
) -> AsyncIterator[tuple[Batch[R], list[Call[R]]]]:
    """Like `in_batches`, also of an asynchronous iterable."""
    if not isinstance(calls, AsyncIterable):
        for found in in_batches(task, check_calls(calls)):
            yield found
        return
    batch, some = Batch(task), list[Call[R]]()
    rest = aiter(calls)
    while True:
        try:
            some.append(await anext(rest))
        except StopAsyncIteration:
            break
        except Exception as err:
            note_added(err, batch.first + len(some), batch.first)
            raise
        if len(some) == AT_ONCE:
            yield batch, some
            batch, some = Batch(task, batch.first + AT_ONCE), []
    if some:
        yield batch, some


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
        f"{len(failed)} of {total} jobs {fate} (calls {places}): {first}",
        node=first.node,
        retryable=all(one.retryable for one in failed.values()),
    )
    made.may_be_done = any(one.may_be_done for one in failed.values())
    made.added, made.failed = added, failed
    made.__cause__ = first
    return made


def under_seal(keys: Keys | None, headers: Mapping[str, str]) -> dict[str, str]:
    """[U8] Of the headers of a job what is in its sealed body, too: what follows it (U8.7)."""
    if keys is None or CHAIN_HEADER not in headers:
        return {}
    return {CHAIN_HEADER: headers[CHAIN_HEADER]}


def envelope_of(
    task: Task[..., Any],
    options: Options,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    headers: dict[str, str] | None,
    is_timed: bool = True,
) -> bytes:
    """The body of a job; of the options only those that differ from the task's own.

    `is_timed`: it says when it was made.
    """
    envelope = Envelope(
        task=task.name,
        args=list(args),
        kwargs=kwargs,
        enqueued_at=time.time() if is_timed else 0.0,
        headers=headers or None,
        **differing(task, options),
    )
    return encode(envelope, options.codec)


def differing(task: Task[..., Any], options: Options) -> dict[str, Any]:
    """The fields of an envelope for the options that differ from those of the task."""
    own = task.defaults
    keep_s = options.unknown_keep_s
    return {
        "max_deliveries": changed(options.attempts, own.attempts),
        "time_limit_s": changed(options.time_limit_s or 0.0, own.time_limit_s or 0.0),
        "backoff": changed(options.backoff.figures, own.backoff.figures),
        "keep_s": changed(task.keep_s(options), task.keep_s(own)),
        "unknown_keep_s": keep_s if keep_s != UNKNOWN_KEEP_S else None,
    }


def send_plan(client: Client, one: Planned) -> str:
    """[U9] Tells the broker a schedule, and makes its tube if need be (U9.1)."""
    queue, name, body, asked = one.words()
    try:
        return client.schedule_add(queue, name, body, **asked)
    except NoTube:  # a user who may not make tubes needs it only then
        client.tube(queue).create("tasks", **new_tube(one))
        return client.schedule_add(queue, name, body, **asked)


async def send_plan_async(client: aio.Client, one: Planned) -> str:
    """[U9] As `send_plan`."""
    queue, name, body, asked = one.words()
    try:
        return await client.schedule_add(queue, name, body, **asked)
    except NoTube:
        await client.tube(queue).create(
            "tasks", ttr=one.tube_ttr_s, if_not_exists=True, implicit=True
        )
        return await client.schedule_add(queue, name, body, **asked)


def is_final(err: Exception) -> bool:
    """Whether a schedule is refused for good."""
    return isinstance(err, REFUSED) and not getattr(err, "retryable", False)


def raise_first(refused: dict[str, Exception]) -> None:
    """Raise the first of the errors, with the name of its schedule, and those of the others.

    Its notes say why the others were refused.
    """
    if not refused:
        return
    (name, first), *others = refused.items()
    too = "".join(f", {other!r}" for other, _ in others)
    told = f"schedule {name!r}{too} not in force: {first}"
    for other, err in others:
        first.add_note(f"schedule {other!r} is not in force: {err}")
    first.args = (told, *first.args[1:])
    raise first
