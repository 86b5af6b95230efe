"""The steps of a chain, as a worker sees them: when one begins, and what follows it (SPEC U11).

A job carries the names of the steps that follow. The worker that has run a step adds the next one,
and its DONE names that job. The outcome of a job is one and the same for all, so only one job is
the next step: one that is not named does not begin, however often a step ran, and whatever nodes
were lost.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tuque.client.commands.work import Result
from tuque.errors import Error, NoJob, ReplyError, Unavailable
from tuque.worker.app.codec import unpack
from tuque.worker.app.decisions import Outcome, one_line
from tuque.worker.app.encryption import (
    RESULT,
    BadSeal,
    Keys,
    is_sealed,
)
from tuque.worker.app.enqueue import CHAIN_HEADER, Call
from tuque.worker.app.handle import NEXT, next_of
from tuque.worker.workflow.create import (
    AFTER_HEADER,
    CHILD_HEADER,
    Entry,
    GroupEntry,
    entries_of,
    kept,
    known,
    make,
    make_async,
    next_call,
    refused,
    steps_headers,
)
from tuque.worker.workflow.retry_refused import RetryRefused, delay_of

if TYPE_CHECKING:
    from tuque.worker.app.app import App
    from tuque.worker.pools.execute import Job

WAIT_MS: Final = 2_000  # for the end of the step before: its worker tells it at this moment
DEAD_STARTS: Final = 10  # it is held back so often, for two minutes, before it ends for that


# ---- The step that follows


def step_after(
    app: App, job: Job, entries: list[Entry], result: Any, withdrawn: int = 0
) -> Call[Any]:
    """[U11] The next step, with a key by which this run adds it once (U11.2).

    `withdrawn`: how many tries of the run may have left a copy of a job that is deleted.
    """
    assert isinstance(entries[0], str)
    call = next_call(known(app, entries[0]), result)
    options = kept(call)
    headers = {**options.headers, **steps_headers(entries[1:], job.headers)}
    if options.retry_s != 0:  # else it cannot come again
        headers[AFTER_HEADER] = job.id
    key = f"{NEXT} {job.id} {job.starts}"
    options = replace(options, headers=headers, key=f"{key} {withdrawn}" if withdrawn else key)
    return replace(call, options=options)


def goes_on(app: App, job: Job, result: Any) -> dict[str, str]:
    """Adds the next step, or makes the next group; what is the result of this one then."""
    entries = entries_of(job.headers[CHAIN_HEADER])
    try:
        if isinstance(entries[0], GroupEntry):
            return {NEXT: make(app, job, entries, result)}
        return {NEXT: _add(app, job, entries, result)}
    except ReplyError as err:
        raise refused(entries[0], err) from None


def _add(app: App, job: Job, entries: list[Entry], result: Any) -> str:
    again = RetryRefused(job)
    while True:
        call = step_after(app, job, entries, result, again.withdrawn)
        try:
            return call.task.add_now(call.options, call.args, call.kwargs).id
        except Unavailable as err:
            time.sleep(again.pause_s(err))
            job.check()


async def goes_on_async(app: App, job: Job, result: Any) -> dict[str, str]:
    """Like `goes_on`, on the running loop."""
    entries = entries_of(job.headers[CHAIN_HEADER])
    try:
        if isinstance(entries[0], GroupEntry):
            return {NEXT: await make_async(app, job, entries, result)}
        return {NEXT: await _add_async(app, job, entries, result)}
    except ReplyError as err:
        raise refused(entries[0], err) from None


async def _add_async(app: App, job: Job, entries: list[Entry], result: Any) -> str:
    again = RetryRefused(job)
    while True:
        call = step_after(app, job, entries, result, again.withdrawn)
        try:
            return (await call.task.add_async(call.options, call.args, call.kwargs)).id
        except Unavailable as err:
            await asyncio.sleep(again.pause_s(err))
            job.check()


# ---- The step before


def held_back(app: App, job: Job) -> Outcome | None:
    """[U11] What a step comes to that does not begin now; None: it begins (U11.3)."""
    try:
        found = app.client.result(job.headers[AFTER_HEADER], wait_ms=WAIT_MS)
        outcome = judged(job, found, app.keys)
        if outcome is not None and outcome.kind == "cancelled":
            app.client.cancel(job.id, reason=outcome.text)
    except NoJob:
        return None
    except Error as err:
        return later(job, str(err))
    return outcome


async def held_back_async(app: App, job: Job) -> Outcome | None:
    """Like `held_back`, on the running loop."""
    try:
        found = await app.aio_client.result(job.headers[AFTER_HEADER], wait_ms=WAIT_MS)
        outcome = judged(job, found, app.keys)
        if outcome is not None and outcome.kind == "cancelled":
            await app.aio_client.cancel(job.id, reason=outcome.text)
    except NoJob:
        return None
    except Error as err:
        return later(job, str(err))
    return outcome


def judged(job: Job, before: Result, keys: Keys | None) -> Outcome | None:
    """[U11] The same, by what the step before came to (U11.3, U11.5)."""
    if not before.is_over:
        return later(job, f"it is {before.state}")
    if before.state == "dead" and job.starts < DEAD_STARTS:
        return later(job, "it is dead")  # a DONE may come late
    if before.state != "done":
        return Outcome("cancelled", f"the step before is {before.state}")
    if before.result is None:
        return None
    if before.reason:
        return Outcome("cancelled", one_line(f"the step before was cancelled: {before.reason}"))
    try:
        following = next_of(unpack(opened(before.result, job.headers[AFTER_HEADER], keys)))
    except (BadSeal, msgspec.MsgspecError, ValueError) as err:
        return Outcome("rejected", one_line(f"the result of the step before is refused: {err}"))
    if following == job.headers.get(CHILD_HEADER, job.id):
        return None
    return Outcome("cancelled", f"the step before ran again, and {following} follows it")


def opened(data: bytes, id: str, keys: Keys | None) -> bytes:
    """The result of the job as it was before it was sealed; BadSeal."""
    if keys is not None:
        return keys.open(data, RESULT, id)
    if is_sealed(data):
        raise BadSeal("it is under a key, and this App has no keys")
    return data


def later(job: Job, why: str) -> Outcome:
    """The step comes again."""
    text = one_line(f"waits for the step before: {why}")
    return Outcome("retry", text, delay_s=delay_of(job))
