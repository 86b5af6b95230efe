"""How a group is made: its words for the broker, its children, and the run that makes it (U11).

A run that ends in between leaves a group behind: the step's outcome names another one then, and of
the children that it left none begins (steps.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tuque.errors import Error
from tuque.worker.groups.again import NOT_THE_JOB, Again
from tuque.worker.groups.headers import (
    AFTER_HEADER,
    CHAIN_HEADER,
    CHILD_HEADER,
    Entry,
    GroupEntry,
    entries_of,
    header_of,
    kept,
)
from tuque.worker.groups.results import GROUP_HEADER
from tuque.worker.groups.unfit import next_call, next_call_of_data
from tuque.worker.tasks.adding import KEY_HEADER, TASK_HEADER, Call, envelope_of
from tuque.worker.tasks.options import RETRY_S
from tuque.worker.tasks.task import KEYED, SPREAD, Task, spread_in

if TYPE_CHECKING:
    from tuque.worker.pools.execute import Job
    from tuque.worker.tasks.app import App
    from tuque.worker.tasks.handle import Handle

QUEUE: Final = "groups"  # the tube of groups without a callback
CHILD: Final = "tuque-child"  # begins the key of a child
KEY_TTL_S: Final = 600  # longer than a client goes on sending a command
ADDED_MAX: Final = 500  # children of one GROUP ADD


def callback_words(callback: Task[..., Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of group_create about the callback; it has these headers."""
    options = callback.defaults
    call: Call[Any] = Call(callback, options, ([],), {})
    if headers:  # a step of a chain: the next step reads its outcome
        options = kept(call)
    keys = callback.app.keys
    body = envelope_of(callback, options, ([],), {}, {GROUP_HEADER: "1"})
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


def unknown_after(tasks: Container[str], header: str | None) -> str | None:
    """[U11] A task that who runs a step needs for what follows, and does not know (U11.2).

    `header` names the steps that follow; None: none. ValueError if it does not say them.
    """
    if header is None:
        return None
    first, *rest = entries_of(header)
    names = [first] if isinstance(first, str) else list(first.g)
    if isinstance(first, GroupEntry) and rest:
        names.append(next((one for one in rest if isinstance(one, str)), ""))
    return next((name for name in names if name not in tasks), None)


class Making:
    """[U11] The group that follows a step, while a run of the step makes it (U11.7)."""

    def __init__(self, app: App, job: Job, entries: list[Entry], result: Any) -> None:
        """Raises what says that it cannot be made: nothing has been sent then."""
        first = entries[0]
        assert isinstance(first, GroupEntry)
        self.app = app
        self.again = Again(job)
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
            headers = {CHAIN_HEADER: header_of(rest)} if rest else {}
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
            except NOT_THE_JOB as err:
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
            except NOT_THE_JOB as err:
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
        client.tube(made.queue).create(KEYED, ttr=made.tube_ttr_s, if_not_exists=True)
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
        await tube.create(KEYED, ttr=made.tube_ttr_s, if_not_exists=True)
        made.id = await client.group_create(made.queue, made.count, **made.words)
    for at, call in made.left():
        handle = await call.task.add_async(call.options, call.args, call.kwargs)
        made.ids[at] = handle.id
    for part in parts(made.ids):
        await client.group_add(made.queue, made.id, part)
