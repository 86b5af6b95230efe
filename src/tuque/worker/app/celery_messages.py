"""Messages of Celery, protocol 2, as kombu's transport of Tuque puts them into jobs (SPEC U16).

A worker reads them as calls of its own tasks, and `celery_task` writes them for tasks that Celery's
workers have. Bodies are JSON or msgpack; nothing here reads a pickle. Imports neither Celery nor
kombu.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import socket
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tuque.worker.app.codec import BadBody, Envelope, plain
from tuque.worker.app.options import check_delay

if TYPE_CHECKING:
    from tuque.worker.app.app import App

FORM_HEADER: Final = "tuque-form"
FORM: Final = "celery2"
FOLLOWS_HEADER: Final = "celery-follows"  # in this process: what follows the run of such a job
RETRY_S: Final = 90  # as the transport's
KEY_S: Final = 3600
CODECS: Final[dict[str, Callable[[bytes], Any]]] = {
    "application/json": msgspec.json.decode,
    "application/x-msgpack": msgspec.msgpack.decode,
}


class Signature(msgspec.Struct, omit_defaults=True):
    """A call of a task that a message names, to be made later."""

    task: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    options: dict[str, Any] = {}
    subtask_type: str | None = None
    immutable: bool = False


class Embedded(msgspec.Struct):
    """What follows a task. The first step of a chain is its last element."""

    callbacks: list[Signature] | None = None
    errbacks: list[Signature] | None = None
    chain: list[Signature] | None = None
    chord: Signature | None = None


class Headers(msgspec.Struct):
    """The headers of a message that are of use here."""

    task: str
    id: str
    root_id: str | None = None
    group: str | None = None
    group_index: int | None = None
    expires: str | None = None
    timelimit: tuple[float | None, float | None] = (None, None)
    ignore_result: bool = False
    compression: str | None = None


class Follows(msgspec.Struct):
    """What a worker does when such a job has ended; `prefix` is that of the broker's URL."""

    id: str
    root: str
    prefix: str
    keeps_result: bool
    group: str | None
    group_index: int | None
    embedded: Embedded
    expired: str  # why it does not run, "" if it does


class Properties(msgspec.Struct):
    """How the body is written, and which queue the message was for."""

    body_encoding: str | None = None
    delivery_info: dict[str, Any] = {}


class Message(msgspec.Struct, rename={"content_type": "content-type"}):
    """A message of kombu in a job."""

    body: str
    content_type: str
    headers: Headers
    properties: Properties


_message: Final = msgspec.json.Decoder(Message)
_follows: Final = msgspec.json.Decoder(Follows)


def read_message(body: bytes, queue: str, now: dt.datetime) -> tuple[Envelope, str]:
    """[U16] The call in a message, and a header with what follows it; BadBody says why not (U16.2).

    A call that has expired is read as well (U16.3).
    """
    try:
        message = _message.decode(body)
        head = message.headers
        args, kwargs, embedded = _call_of(message)
        is_over = head.expires and dt.datetime.fromisoformat(head.expires).astimezone(dt.UTC) <= now
    except (msgspec.MsgspecError, ValueError, RecursionError) as err:
        raise BadBody(f"the body is not a message of Celery, protocol 2: {err}") from err
    key = str(message.properties.delivery_info.get("routing_key") or "")
    prefix = queue.removesuffix(key) if key else ""
    follows = Follows(
        head.id,
        head.root_id or head.id,
        prefix if prefix != queue else "",
        not head.ignore_result,
        head.group,
        head.group_index,
        embedded,
        f"the task expired at {head.expires}" if is_over else "",
    )
    limit_s = head.timelimit[0]
    envelope = Envelope(head.task, args, kwargs, time_limit_s=limit_s)
    return envelope, msgspec.json.encode(follows).decode()


def _call_of(message: Message) -> tuple[list[Any], dict[str, Any], Embedded]:
    decode = CODECS.get(message.content_type)
    if decode is None:
        raise BadBody(f"its body is {message.content_type}: workers read JSON and msgpack")
    if message.headers.compression:
        raise BadBody(f"its body is compressed ({message.headers.compression})")
    data = message.body.encode()
    if message.properties.body_encoding == "base64":
        data = base64.b64decode(data)
    found = msgspec.convert(_unmarked(decode(data)), tuple[list[Any], dict[str, Any], Embedded])
    return found[0], found[1], found[2]


def _unmarked(value: Any) -> Any:
    """Plain data in the place of kombu's marks for dates, decimals, ids and bytes."""
    if isinstance(value, list):
        return [_unmarked(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"__type__", "__value__"}:
        inner = value["__value__"]
        return inner.get("hex", inner) if isinstance(inner, dict) else inner
    return {name: _unmarked(one) for name, one in value.items()}


def follows_of(headers: Mapping[str, str]) -> Follows:
    """What follows the run of a job with this header."""
    return _follows.decode(headers[FOLLOWS_HEADER])


def unsuited(follows: Follows) -> str | None:
    """[U16] Why only Celery can run the job: a step after it has parts (U16.5); None if not."""
    parts = follows.embedded
    steps = [*(parts.callbacks or ()), *(parts.errbacks or ()), *(parts.chain or ())[-1:]]
    steps += [parts.chord] if parts.chord is not None else []
    for step in steps:
        if step.subtask_type is not None:
            return f"after it comes a {step.subtask_type} of Celery"
    return None


# ---- What is written


class Written(msgspec.Struct):
    """A message as a job: its id at Celery, its queue, its body and the options of ADDJOB."""

    id: str
    queue: str
    body: bytes
    options: dict[str, Any]


def write_message(
    step: Signature,
    queue: str,
    *,
    id: str = "",
    root: str = "",
    parent: str | None = None,
    chain: list[Signature] | None = None,
    prefix: str = "",
) -> Written:
    """[U16] A call as a message in a job of the queue (U16.6); TypeError if it is no plain data."""
    given = step.options
    id = str(given.get("task_id") or id or uuid.uuid4())
    embedded = Embedded(
        given.get("link") or None,
        given.get("link_error") or None,
        chain or given.get("chain") or None,
        given.get("chord"),
    )
    headers = _headers_of(step, id, root or id, parent)
    call = msgspec.json.encode((step.args, step.kwargs, embedded), enc_hook=plain)
    message = {
        "body": call.decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers,
        "properties": _properties_of(step, id, queue),
    }
    asked: dict[str, Any] = {"retry": RETRY_S, "ttl": 0}
    if isinstance(given.get("expires"), int | float):
        asked["ttl"] = math.ceil(given["expires"])
    if given.get("countdown"):
        asked["delay"] = given["countdown"]
    asked["headers"] = {FORM_HEADER: FORM, "tuque-task": step.task, "celery-id": id}
    return Written(id, prefix + queue, msgspec.json.encode(message), asked)


def _headers_of(step: Signature, id: str, root: str, parent: str | None) -> dict[str, Any]:
    """The headers of a message: what Celery's worker looks at before it reads the body."""
    given = step.options
    return {
        "lang": "py",
        "task": step.task,
        "id": id,
        "root_id": root,
        "parent_id": parent,
        "group": given.get("group_id"),
        "group_index": given.get("group_index"),
        "retries": 0,
        "timelimit": [given.get("time_limit"), given.get("soft_time_limit")],
        "eta": _in(given.get("countdown") or given.get("eta")),
        "expires": _in(given.get("expires")),
        "argsrepr": repr(tuple(step.args)),
        "kwargsrepr": repr(step.kwargs),
        "origin": f"tuque@{socket.gethostname()}",
        "ignore_result": bool(given.get("ignore_result", False)),
    }


def _in(delay_s: float | str | None) -> str | None:
    """The instant after so many seconds, in ISO 8601; an instant stays."""
    if not delay_s:
        return None
    if isinstance(delay_s, str):
        return delay_s
    return (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=delay_s)).isoformat()


def _properties_of(step: Signature, id: str, queue: str) -> dict[str, Any]:
    return {
        "correlation_id": id,
        "reply_to": "",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": int(step.options.get("priority") or 0),
        "body_encoding": "utf-8",
        "delivery_tag": str(uuid.uuid4()),
    }


class CeleryTask:
    """A task that workers of Celery have, called by a program of Tuque."""

    def __init__(self, app: App, name: str, queue: str, prefix: str) -> None:
        self._app = app
        self.name = name
        self.queue = queue
        self._prefix = prefix

    def __repr__(self) -> str:
        return f"<celery_task {self.name} in {self.queue}>"

    def enqueue(self, *args: Any, **kwargs: Any) -> str:
        """Adds the call; returns its id at Celery, for `AsyncResult`."""
        return self._add({}, args, kwargs)

    def enqueue_in(self, delay_s: float, /, *args: Any, **kwargs: Any) -> str:
        """Like `enqueue`, to run in so many seconds."""
        check_delay(delay_s)
        return self._add({"countdown": delay_s}, args, kwargs)

    def _add(self, options: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        step = Signature(self.name, list(args), kwargs, options)
        try:
            made = write_message(step, self.queue, prefix=self._prefix)
        except (TypeError, ValueError, OverflowError, RecursionError) as err:
            raise TypeError(
                f"task {self.name}: the arguments cannot be written as json: {err}"
            ) from err
        self._app.client.addjob(made.queue, made.body, **made.options)
        return made.id


def celery_task(app: App, name: str, *, queue: str = "celery", prefix: str = "") -> CeleryTask:
    """A task of Celery by its name. `prefix` is the path of Celery's URL: "shop" of `/shop`."""
    for what, value in (("name", name), ("queue", queue), ("prefix", prefix)):
        if not isinstance(value, str) or not (value or what == "prefix"):
            raise TypeError(f"celery_task: {what} is text, not {value!r}")
    return CeleryTask(app, name, queue, f"{prefix}." if prefix else "")
