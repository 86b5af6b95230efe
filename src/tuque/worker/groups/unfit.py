"""Results that nobody could take who waits for them: such a job fails for good (SPEC U2, U11).

Knows no broker. What can be seen before, `chain` refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tuque.errors import ReplyError
from tuque.worker.groups.headers import AFTER_HEADER, CHILD_HEADER, Entry
from tuque.worker.tasks.adding import Call
from tuque.worker.tasks.arguments import BadArguments
from tuque.worker.tasks.codec import Codec, Envelope, pack_result
from tuque.worker.tasks.task import Reject, Task

WHY: Final = (
    "the step has run, but the next one cannot take its result (correct a task, then replay this "
    "dead letter: the step runs again)"
)


CHILD_BYTES: Final = 65_536  # of a result; RESULT_MAX of tubes.keys.members is the same (T50.3)
UNWRITTEN: Final = (
    "the task has run, but its result, for which others wait, is not kept (correct the task, then "
    "replay this dead letter: it runs again): of type %s"
)


class Unfit(Reject):
    """The job fails for good: to run it again would not help (U2.8, U11.2)."""


def next_call(task: Task[..., Any], result: Any) -> Call[Any]:
    """The call of the next step with the result of the one before; Unfit."""
    try:
        return task.made_call(task.defaults, (result,), {})
    except TypeError as err:
        raise Unfit(f"{WHY}: {err}") from None


def next_call_of_data(task: Task[..., Any], data: Any) -> Call[Any]:
    """As `next_call`, of a result that is plain data so far."""
    try:
        args = task.bind(Envelope(task=task.name, args=[data], kwargs={})).args
    except BadArguments as err:
        raise Unfit(f"{WHY}: task {task.name}: {err}") from None
    try:
        return task.made_call(task.defaults, args, {})
    except TypeError as err:
        raise Unfit(f"{WHY}: {err}") from None


def refused(following: Entry, err: ReplyError) -> ReplyError | Unfit:
    """What the step fails with if the broker refuses the next one with that error."""
    name = following if isinstance(following, str) else ", ".join(following.g)
    return Unfit(f"{WHY}: {name}: {err}") if is_too_big(err) else err


def is_too_big(err: object) -> bool:
    """Whether the broker takes nothing that is so long."""
    return isinstance(err, ReplyError) and "invalid bulk length" in str(err)


def is_awaited(headers: Mapping[str, str]) -> bool:
    """Whether somebody waits for the result: of a child of a group, of a step of a chain."""
    return CHILD_HEADER in headers or AFTER_HEADER in headers


def packed(value: Any, codec: Codec, headers: Mapping[str, str], spare_bytes: int) -> bytes:
    """[U2] The result of a job for which somebody waits; Unfit (U2.8). `spare_bytes`: of a seal."""
    try:
        data = pack_result(value, codec)
    except (TypeError, ValueError, OverflowError, RecursionError) as err:
        raise Unfit(f"{UNWRITTEN % type(value).__name__}: {err}") from None
    size = len(data) + spare_bytes
    if CHILD_HEADER in headers and size > CHILD_BYTES:
        raise Unfit(
            f"{UNWRITTEN % type(value).__name__}: it has {size} bytes, that of a child of a group "
            f"at most {CHILD_BYTES}"
        )
    return data
