"""What the callback of a group gets: the results of the children, in order (SPEC U10).

The callback's job has the id of its group. Its body has no results: the worker that runs it reads
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tuque.client.commands.groups import ChildEnd
from tuque.errors import NoJobGroup, Unavailable
from tuque.worker.app.codec import Envelope, unpack
from tuque.worker.app.encryption import RESULT, Keys
from tuque.worker.app.task import Reject
from tuque.worker.workflow.retry_refused import given_back

if TYPE_CHECKING:
    from tuque.worker.app.app import App
    from tuque.worker.pools.execute import Job

GROUP_HEADER: Final = "tuque-group"  # in the body of a callback
UNREAD: Final = "the results of the group could not be read"


class Failed(msgspec.Struct, frozen=True):
    """In the place of the result of a child that failed: how it ended, and why."""

    how: str
    reason: str


def filled(app: App, envelope: Envelope, job: Job) -> Envelope:
    """The call with the results as its first argument (U10.2).

    Raises Reject if they are gone, RetryLater if they cannot be read now.
    """
    try:
        ends = list(app.client.group_results(job.queue, job.id))
    except NoJobGroup as err:
        raise Reject(f"the results of the group are gone: {err}") from None
    except Unavailable as err:
        raise given_back(job, UNREAD, err) from err
    return with_results(envelope, ends, app.keys)


async def filled_async(app: App, envelope: Envelope, job: Job) -> Envelope:
    """Like `filled`, on the running loop."""
    try:
        ends = [one async for one in app.aio_client.group_results(job.queue, job.id)]
    except NoJobGroup as err:
        raise Reject(f"the results of the group are gone: {err}") from None
    except Unavailable as err:
        raise given_back(job, UNREAD, err) from err
    return with_results(envelope, ends, app.keys)


def with_results(envelope: Envelope, ends: Iterable[ChildEnd], keys: Keys | None) -> Envelope:
    """The call with these results."""
    results = [plain_result(one, keys) for one in in_order(ends)]
    return msgspec.structs.replace(envelope, args=[results, *envelope.args[1:]])


def in_order(ends: Iterable[ChildEnd]) -> list[ChildEnd]:
    """The children by their indexes; a scan that began again may have some twice."""
    by_index = {one.index: one for one in ends}
    return [by_index[index] for index in sorted(by_index)]


def plain_result(end: ChildEnd, keys: Keys | None) -> Any:
    """The result of a child as plain data; None if it returned nothing. Raises BadSeal."""
    if end.state != "done":
        return {"how": end.how, "reason": end.reason}
    if end.result is None:
        return None
    return unpack(end.result if keys is None else keys.open(end.result, RESULT, end.id))
