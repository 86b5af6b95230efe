"""Results that the next step cannot take: the step has run, and fails for good (SPEC U11).

Knows no broker. What can be seen before, `chain` refuses.
"""

from __future__ import annotations

from typing import Any, Final

from tuque.errors import ReplyError
from tuque.worker.groups.headers import Entry
from tuque.worker.tasks.adding import Call
from tuque.worker.tasks.arguments import BadArguments
from tuque.worker.tasks.codec import Envelope
from tuque.worker.tasks.task import Reject, Task

WHY: Final = (
    "the step has run, but the next one cannot take its result (correct a task, then replay this "
    "dead letter: the step runs again)"
)


class Unfit(Reject):
    """The step fails for good: to run it again would not help (U11.2)."""


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
