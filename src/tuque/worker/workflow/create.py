"""Steps and groups made by a run: headers, calls, results that do not fit, children (SPEC U2, U11).

A run that ends in between leaves a group behind: the step's outcome names another one then, and of
the children that it left none begins (chain_steps.py).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tuque.errors import Error, ReplyError, Unavailable
from tuque.worker.app.arguments import BadArguments
from tuque.worker.app.codec import BadBody, Codec, Envelope, pack_result
from tuque.worker.app.enqueue import (
    CHAIN_HEADER,
    KEY_HEADER,
    QUEUES_HEADER,
    Call,
    envelope_of,
    under_seal,
)
from tuque.worker.app.hooks import TASK_HEADER
from tuque.worker.app.options import RETRY_S, Options
from tuque.worker.app.task import (
    KEYED,
    SPREAD,
    Reject,
    Task,
    spread_in,
)
from tuque.worker.workflow.results import GROUP_HEADER
from tuque.worker.workflow.retry_refused import RetryRefused

if TYPE_CHECKING:
    from tuque.worker.app.app import App
    from tuque.worker.app.handle import Handle
    from tuque.worker.pools.execute import Job


AFTER_HEADER: Final = "tuque-after"  # the job of the step before
CHILD_HEADER: Final = "tuque-child"  # of a child in a chain: its group, which that step names
NAMES_BYTES: Final = 1_024  # as a header
KEEP_S: Final = 86_400.0  # of an outcome, at least: somebody must see it

OnFail = Literal["stop", "wait", "continue"]

WHY: Final = (
    "the step has run, but the next one cannot take its result (correct a task, then replay this "
    "dead letter: the step runs again)"
)

CHILD_BYTES: Final = 65_536  # of a result; RESULT_MAX of tubes.keys.members is the same (T50.3)
UNWRITTEN: Final = (
    "the task has run, but its result, for which others wait, is not kept (correct the task, then "
    "replay this dead letter: it runs again): of type %s"
)

QUEUE: Final = "groups"  # the tube of groups without a callback
CHILD: Final = "tuque-child"  # begins the key of a child
KEY_TTL_S: Final = 600  # longer than a client goes on sending a command
ADDED_MAX: Final = 500  # children of one GROUP ADD


# ---- What the jobs of a chain carry: the steps that follow, and what is before them (SPEC U11)
#
# A step that follows is the name of a task, or a group: the names of its tasks. Knows no broker and
# no app.


class GroupEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group among the steps that follow: the tasks of its children."""

    g: list[str]
    f: OnFail = "stop"  # what a failure of a child does
    k: float | None = None  # how long a group that is over stays


Entry = str | GroupEntry
_entries: Final = msgspec.json.Decoder(list[Entry])


def header_of(entries: Sequence[Entry]) -> str:
    """The steps that follow, for a header."""
    return json.dumps(msgspec.to_builtins(entries), separators=(",", ":"))


def entries_of(header: str) -> list[Entry]:
    """The steps that follow; ValueError if the header does not say them."""
    try:
        found = _entries.decode(header)
    except msgspec.MsgspecError as err:
        raise ValueError(f"the header {CHAIN_HEADER} is none of a chain: {err}") from None
    if not found:
        raise ValueError(f"the header {CHAIN_HEADER} is none of a chain: it names no step")
    return found


def kept(call: Call[Any]) -> Options:
    """The options of a child or a step: its outcome is kept until it has been seen."""
    keep_s = max(KEEP_S, call.task.keep_s(call.options))
    return replace(call.options, keep_s=keep_s)


# ---- Results that the next step could not take: such a job fails for good (SPEC U2, U11)
#
# Knows no broker. What can be seen before, `chain` refuses.


class Unserializable(Reject):
    """The job fails for good: to run it again would not help (U2.8, U11.2)."""


def next_call(task: Task[..., Any], result: Any) -> Call[Any]:
    """The call of the next step with the result of the one before; Unserializable."""
    try:
        return task.made_call(task.defaults, (result,), {})
    except TypeError as err:
        raise Unserializable(f"{WHY}: {err}") from None


def next_call_of_data(task: Task[..., Any], data: Any) -> Call[Any]:
    """As `next_call`, of a result that is plain data so far."""
    try:
        args = task.bind(Envelope(task=task.name, args=[data], kwargs={}), is_result=True)[0]
    except BadArguments as err:
        raise Unserializable(f"{WHY}: task {task.name}: {err}") from None
    try:
        return task.made_call(task.defaults, args, {})
    except TypeError as err:
        raise Unserializable(f"{WHY}: {err}") from None


def refused(following: Entry, err: ReplyError) -> ReplyError | Unserializable:
    """What the step fails with if the broker refuses the next one with that error."""
    name = following if isinstance(following, str) else ", ".join(following.g)
    if is_too_big(err):
        return Unserializable(f"{WHY}: {name}: {err}")
    err.args = (f"the next step, {name}, is refused: {err.message}",)
    return err


def is_too_big(err: object) -> bool:
    """Whether the broker takes nothing that is so long."""
    return isinstance(err, ReplyError) and "invalid bulk length" in str(err)


def packed(value: Any, codec: Codec, headers: Mapping[str, str], spare_bytes: int) -> bytes:
    """[U2] A result that somebody waits for; Unserializable (U2.8). `spare_bytes`: of a seal."""
    try:
        data = pack_result(value, codec)
    except (TypeError, ValueError, OverflowError, RecursionError) as err:
        raise Unserializable(f"{UNWRITTEN % type(value).__name__}: {err}") from None
    size = len(data) + spare_bytes
    if CHILD_HEADER in headers and size > CHILD_BYTES:
        raise Unserializable(
            f"{UNWRITTEN % type(value).__name__}: it has {size} bytes, that of a child of a group "
            f"at most {CHILD_BYTES}"
        )
    return data


# ---- A group is made (SPEC U11.7)


def callback_words(callback: Task[..., Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of group_create about the callback; it has these headers."""
    options = callback.defaults
    call: Call[Any] = Call(callback, options, ([],), {})
    if headers:  # a step of a chain: the next step reads its outcome
        options = kept(call)
    keys = callback.app.keys
    inside = {GROUP_HEADER: "1", **under_seal(keys, headers)}
    body = envelope_of(callback, options, ([],), {}, inside)
    own = {**options.headers, **headers, TASK_HEADER: callback.name}
    if keys is not None:
        own[KEY_HEADER] = keys.id
        body = keys.seal(body)
    asked: dict[str, Any] = {
        "body": body,
        "retry": options.retry_s,
        "pri": options.pri,
        "attempts": options.attempts,
        "backoff": options.backoff.figures,
        "dead": options.dead,
        "time_limit": options.time_limit_s,
        "headers": own,
    }
    if options.policies is not None:
        values = callback.values(([],), {})
        asked |= options.policies.keyed(callback.name, values, options.headers)
    return asked


def parts(children: Mapping[int, str]) -> list[dict[int, str]]:
    """The ids of children, as many at once as GROUP ADD takes."""
    items = list(children.items())
    return [dict(items[at : at + ADDED_MAX]) for at in range(0, len(items), ADDED_MAX)]


def adds(children: Mapping[int, Handle[Any]]) -> list[tuple[dict[int, str], bool]]:
    """[U10] The children of each GROUP ADD, and whether the group cancels none of these (U10.1).

    Those are the jobs that another one had added: their keys were taken. This is certain: a job
    that the call itself may have added, by a reply that was lost, counts as the group's own.
    """
    found: list[tuple[dict[int, str], bool]] = []
    for is_met in (False, True):
        some = {at: one.id for at, one in children.items() if (one.is_new is False) == is_met}
        found += [(part, is_met) for part in parts(some)]
    return found


def known(app: App, name: str) -> Task[..., Any]:
    """The task of that name; LookupError."""
    task = app.tasks.get(name)
    if task is None:
        raise LookupError(f"the next step of the chain is an unknown task: {name}")
    return task


def called_after(app: App, rest: list[Entry]) -> Task[..., Any] | None:
    """The callback of a group that these steps follow; None: it is the last step.

    Before another group it is `spread`, in the queue of the next task that is no child.
    """
    if not rest:
        return None
    task = known(app, next((one for one in rest if isinstance(one, str)), ""))
    return spread_in(app, task.defaults) if isinstance(rest[0], GroupEntry) else task


def steps_headers(rest: Sequence[Entry], before: Mapping[str, str]) -> dict[str, str]:
    """The headers of a step after which these follow; the step before it has those (U11.9)."""
    if not rest:
        return {}
    headers = {CHAIN_HEADER: header_of(rest)}
    if QUEUES_HEADER in before:
        headers[QUEUES_HEADER] = before[QUEUES_HEADER]
    return headers


def check_queues(
    tasks: Mapping[str, Task[..., Any]], queue: str, checked: Mapping[str, str], header: str | None
) -> None:
    """[U11] BadBody if who added the job had no right to add what its run adds (U11.9).

    `checked`: the headers that the broker has, none of a body.
    """
    if header is None:
        return
    allowed = {queue, *checked.get(QUEUES_HEADER, "").split(" ")}
    tenant, slash, _ = queue.partition("/")  # to a worker of no tenant (N10.2)
    for name in added_by(header):
        to = tasks[name].defaults.queue if name in tasks else queue
        if to not in allowed or (slash and not to.startswith(f"{tenant}/")):
            raise BadBody(
                f"the header {CHAIN_HEADER} is refused: {name} is of the queue '{to}', which the "
                f"header {QUEUES_HEADER} of this job does not allow"
            )


def added_by(header: str) -> list[str]:
    """The tasks of the jobs that a run adds, which these steps follow; ValueError."""
    first, *rest = entries_of(header)
    names = [first] if isinstance(first, str) else list(first.g)
    if isinstance(first, GroupEntry) and rest:
        names.append(next((one for one in rest if isinstance(one, str)), ""))
    return names


def check_chain(headers: Mapping[str, str], envelope: Envelope) -> None:
    """[U8] BadBody if the steps in the headers of a job are not those in its sealed body (U8.7)."""
    if headers.get(CHAIN_HEADER) != (envelope.headers or {}).get(CHAIN_HEADER):
        raise BadBody(f"the header {CHAIN_HEADER} is refused: it is not the one under the seal")


def unknown_after(tasks: Container[str], header: str | None) -> str | None:
    """[U11] A task that who runs a step needs for what follows, and does not know (U11.2).

    `header` names the steps that follow; None: none. ValueError if it does not say them.
    """
    if header is None:
        return None
    return next((name for name in added_by(header) if name not in tasks), None)


class Making:
    """[U11] The group that follows a step, while a run of the step makes it (U11.7)."""

    def __init__(self, app: App, job: Job, entries: list[Entry], result: Any) -> None:
        """Raises what says that it cannot be made: nothing has been sent then."""
        first = entries[0]
        assert isinstance(first, GroupEntry)
        self.app = app
        self.again = RetryRefused(job)
        self.id = ""
        self.ids: dict[int, str] = {}  # of the children that were added
        self._job = job
        self._calls = [self._call(known(app, name), result) for name in first.g]
        callback = called_after(app, entries[1:])
        self.queue = QUEUE if callback is None else callback.defaults.queue
        self.tube_ttr_s = (callback and callback.defaults.retry_s) or RETRY_S
        self.words: dict[str, Any] = {"on_fail": first.f, "keep": first.k}
        if callback is not None:
            rest = entries[1:] if callback.name == SPREAD else entries[2:]
            headers = steps_headers(rest, job.headers)
            if callback.defaults.retry_s != 0:  # else it cannot come again
                headers[AFTER_HEADER] = job.id
            self.words |= callback_words(callback, headers)

    @property
    def count(self) -> int:
        """How many children there are."""
        return len(self._calls)

    def left(self) -> Iterator[tuple[int, Call[Any]]]:
        """The children that were not added yet, by index, each with a key of its own."""
        withdrawn = self.again.withdrawn  # tries that may have left a copy
        for at, call in enumerate(self._calls):
            if at in self.ids:
                continue
            options = kept(call)
            headers = {**options.headers, CHILD_HEADER: self.id}
            if options.retry_s != 0:
                headers[AFTER_HEADER] = self._job.id
            key = f"{CHILD} {self.id} {at}" + (f" {withdrawn}" if withdrawn else "")
            options = replace(options, headers=headers, key=key, key_ttl_s=KEY_TTL_S)
            yield at, replace(call, options=options)

    def _call(self, task: Task[..., Any], result: Any) -> Call[Any]:
        """The call of a child with the result of the step."""
        is_data = self._job.task == SPREAD
        return next_call_of_data(task, result) if is_data else next_call(task, result)


def make(app: App, job: Job, entries: list[Entry], result: Any) -> str:
    """[U11] Makes the group that follows (U11.7); returns its id. Raises RetryLater (U11.2)."""
    made = Making(app, job, entries, result)
    try:
        while True:
            try:
                _make(made)
            except Unavailable as err:
                time.sleep(made.again.pause_s(err))
                job.check()
            else:
                return made.id
    except Exception:
        if made.id:
            with suppress(Error):  # then it is cancelled after an hour (T50.8)
                for part in parts(made.ids):
                    app.client.group_add(made.queue, made.id, part)
                app.client.group_cancel(made.queue, made.id)
        raise


async def make_async(app: App, job: Job, entries: list[Entry], result: Any) -> str:
    """Like `make`, on the running loop."""
    made = Making(app, job, entries, result)
    try:
        while True:
            try:
                await _make_async(made)
            except Unavailable as err:
                await asyncio.sleep(made.again.pause_s(err))
                job.check()
            else:
                return made.id
    except Exception:
        if made.id:
            with suppress(Error):
                for part in parts(made.ids):
                    await app.aio_client.group_add(made.queue, made.id, part)
                await app.aio_client.group_cancel(made.queue, made.id)
        raise


def _make(made: Making) -> None:
    """One try; it goes on where the one before was refused."""
    client = made.app.client
    if not made.id:
        client.tube(made.queue).create(
            KEYED, ttr=made.tube_ttr_s, if_not_exists=True, implicit=True
        )
        made.id = client.group_create(made.queue, made.count, **made.words)
    for at, call in made.left():
        made.ids[at] = call.task.add_now(call.options, call.args, call.kwargs).id
    for part in parts(made.ids):
        client.group_add(made.queue, made.id, part)


async def _make_async(made: Making) -> None:
    """Like `_make`, on the running loop."""
    client = made.app.aio_client
    if not made.id:
        tube = client.tube(made.queue)
        await tube.create(KEYED, ttr=made.tube_ttr_s, if_not_exists=True, implicit=True)
        made.id = await client.group_create(made.queue, made.count, **made.words)
    for at, call in made.left():
        handle = await call.task.add_async(call.options, call.args, call.kwargs)
        made.ids[at] = handle.id
    for part in parts(made.ids):
        await client.group_add(made.queue, made.id, part)
