"""What a test sees of jobs: which were enqueued, with which arguments, and where they stand.

Reads the broker's answers and its tables; changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from tuque.client.api import Arg, Reply, to_text
from tuque.client.commands.work import Result
from tuque.worker.app.arguments import BadArguments
from tuque.worker.app.codec import BadBody, Envelope, decode
from tuque.worker.app.task import Task

SHOWN_MAX: Final = 20  # jobs in the text of an assertion
VALUE_CHARS: Final = 80
WAITS: Final = ("scheduled", "back-off")


class TestJob(msgspec.Struct, frozen=True):
    """A job of the test, as it stood when it was asked for.

    `task` is the name of its task, "" for a body that is no task call. `args` and `kwargs` are in
    their declared types if the task is known. `state` is as in `Handle.status()`, or `gone` for a
    job that ended otherwise. `attempt` is that of its latest run, 0 before the first. `due_s` is
    how long it still waits for its time, None if it does not. `origin` is the queue that a dead
    letter came from.
    """

    __test__ = False

    id: str
    task: str
    queue: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    state: str
    attempt: int
    of: int
    due_s: float | None = None
    cause: str = ""
    reason: str = ""
    detail: str = ""
    origin: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""

    def __str__(self) -> str:
        of = f" of {self.of}" if self.of else ""
        tried = f", attempt {self.attempt}{of}" if self.attempt else ""
        due = f", due in {self.due_s:g} s" if self.due_s is not None else ""
        why = "".join(f": {part}" for part in (self.cause, self.reason) if part)
        return f"{self.called()}  [{self.queue}: {self.state}{tried}{due}{why}]"

    def called(self) -> str:
        """The call as it would be written."""
        if not self.task:
            return f"{shown(self.body)} (no task call)"
        words = [shown(arg) for arg in self.args]
        words += [f"{name}={shown(value)}" for name, value in self.kwargs.items()]
        return f"{self.task}({', '.join(words)})"


class Noted:
    """What is known of a job that was added, even when the broker has forgotten it."""

    def __init__(self, id: str, queue: str, body: bytes) -> None:
        self.id = id
        self.queue = queue
        self.body = body
        self.attempt = 0
        self.of = 0
        self.ended = "gone"  # how, once the broker does not know it any more
        self.headers: dict[str, str] = {}
        self.reason = ""


class Notes:
    """All jobs that were added in a test, in that order."""

    def __init__(self) -> None:
        self.by_id: dict[str, Noted] = {}

    def seen(self, command: tuple[Arg, ...], reply: Reply) -> None:
        """A command was answered without an error."""
        name = command[0]
        if name == "ADDJOB" and isinstance(reply, bytes | list):
            id = to_text(reply if isinstance(reply, bytes) else reply[0])
            if id not in self.by_id:
                noted = Noted(id, to_text(as_bytes(command[1])), as_bytes(command[2]))
                noted.headers = headers_of(command)
                self.by_id[id] = noted
        elif name == "CANCEL":
            ids = [to_text(as_bytes(word)) for word in command[-len(reply) :]]
            for id, became in zip(ids, reply, strict=True):
                if became == b"ended" and id in self.by_id:
                    self.by_id[id].ended = "cancelled"

    def view(
        self,
        noted: Noted,
        task: Task[..., Any] | None,
        found: Result | None,
        due_s: float | None,
    ) -> TestJob:
        """The job as a test sees it; `found` is what the broker knows."""
        envelope = envelope_of(noted.body)
        args, kwargs = arguments(task, envelope)
        about: dict[str, Any] = {
            "id": noted.id,
            "task": "" if envelope is None else envelope.task,
            "queue": noted.queue,
            "args": args,
            "kwargs": kwargs,
            "headers": noted.headers,
            "body": noted.body,
        }
        if found is None:
            return TestJob(
                **about,
                state=noted.ended,
                attempt=noted.attempt,
                of=noted.of,
                reason=noted.reason,
            )
        return TestJob(
            **about,
            state=found.state,
            attempt=max(found.attempt, noted.attempt),
            of=found.of,
            due_s=due_s if found.state in WAITS else None,
            cause=found.cause,
            reason=found.reason,
            detail=found.detail.decode(errors="replace"),
        )


def as_bytes(word: Arg) -> bytes:
    """A word of a command as it is sent."""
    return word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")


def headers_of(command: tuple[Arg, ...]) -> dict[str, str]:
    """The headers in an ADDJOB, without Tuque's own."""
    words = list(command[4:])
    if "HEADERS" not in words:
        return {}
    at = words.index("HEADERS") + 1
    flat = [to_text(as_bytes(word)) for word in words[at + 1 : at + 1 + 2 * int(words[at])]]
    return own(dict(zip(flat[::2], flat[1::2], strict=True)))


def own(headers: dict[str, str]) -> dict[str, str]:
    """The headers of the program, without Tuque's."""
    return {name: value for name, value in headers.items() if not name.startswith("tuque-")}


def envelope_of(body: bytes) -> Envelope | None:
    """The task call in a body, if it is one."""
    try:
        return decode(body)
    except BadBody:
        return None


def arguments(
    task: Task[..., Any] | None, envelope: Envelope | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as they were given, in their declared types if these are known."""
    if envelope is None:
        return (), {}
    if task is not None:
        try:
            bound = task.by_name(envelope)
        except BadArguments:
            pass
        else:
            return as_given(bound, len(envelope.args))
    return tuple(envelope.args), envelope.kwargs


def as_given(
    bound: inspect.BoundArguments, positional: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments given by position stay so."""
    by_name: dict[str, Any] = {}
    flat: list[Any] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            flat += value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            by_name |= value
        elif len(flat) < positional and kind is not inspect.Parameter.KEYWORD_ONLY:
            flat.append(value)
        else:
            by_name[name] = value
    return tuple(flat), by_name


def is_call(
    job: TestJob, task: Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Whether it is a job of the task with these arguments; without any, all are."""
    if job.task != task.name:
        return False
    if not args and not kwargs:
        return True
    signature = inspect.signature(task.function)
    wanted = signature.bind(*args, **kwargs)
    try:
        given = signature.bind(*job.args, **job.kwargs)
    except TypeError:
        return False
    wanted.apply_defaults()
    given.apply_defaults()
    # what is wanted stands first: its ANY decides
    return wanted.arguments.keys() == given.arguments.keys() and all(
        value == given.arguments[name] for name, value in wanted.arguments.items()
    )


def listed(jobs: Iterable[TestJob], none: str = "  nothing") -> str:
    """Jobs, one on a line."""
    lines = [f"  {job}" for job in jobs]
    if len(lines) > SHOWN_MAX:
        lines[SHOWN_MAX:] = [f"  and {len(lines) - SHOWN_MAX} more"]
    return "\n".join(lines) or none


def shown(value: object) -> str:
    """A value, not too long."""
    text = repr(value)
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 3] + "..."
