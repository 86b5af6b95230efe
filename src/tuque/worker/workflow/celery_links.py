"""What follows a task whose call came from Celery: its result, callbacks, chain, chord (SPEC U16).

All is published before the run is reported, under keys of the message's id: a run that repeats
publishes nothing twice.
"""

from __future__ import annotations

import builtins
import datetime as dt
import uuid
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tuque.client.commands.values import value_parts_page
from tuque.errors import NoTube
from tuque.worker.app.celery_messages import (
    KEY_S,
    Follows,
    Signature,
    follows_of,
    write_message,
)
from tuque.worker.app.codec import plain
from tuque.worker.app.hooks import Failure

if TYPE_CHECKING:
    from tuque.client.sync import Client
    from tuque.worker.app.app import App
    from tuque.worker.pools.execute import Job

RESULTS: Final = "celery.results"
RESULT_S: Final = 86_400.0  # as Celery's result_expires
LATE_INDEX: Final = 500_000  # these and the form of parts are those of tuque.celery.backend
INDEXES: Final = 1_000
SUCCESS: Final = "SUCCESS"
FAILURE: Final = "FAILURE"
REVOKED: Final = "REVOKED"
CELERY: Final = "celery.exceptions"
T = TypeVar("T")


class Links:
    """What follows one such job."""

    def __init__(self, app: App, job: Job, follows: Follows) -> None:
        self._client: Client = app.client
        self._job = job
        self._follows = follows
        self._tube = follows.prefix + RESULTS

    def succeeded(self, result: Any) -> None:
        """[U16] Keeps the result, and publishes what gets it (U16.4)."""
        data = msgspec.to_builtins(result, enc_hook=plain)
        parts = self._follows.embedded
        self._keep(self._follows.id, SUCCESS, data)
        for at, step in enumerate(parts.callbacks or ()):
            self._publish(step, f"link {at}", data)
        if parts.chain:
            *rest, step = parts.chain
            self._publish(step, "chain", data, rest)
        self._count(SUCCESS, data)

    def failed(self, failure: Failure) -> None:
        """[U16] Keeps the failure, and publishes the calls for errors (U16.4)."""
        expired = self._follows.expired
        error = failed_with(failure.text)
        if expired:
            error = failed_with(f"TaskRevokedError: {expired}", CELERY)
        state = REVOKED if expired else FAILURE
        self._keep(self._follows.id, state, error, failure.trace or None)
        for at, step in enumerate(self._follows.embedded.errbacks or ()):
            self._publish(step, f"error {at}", self._follows.id)
        self._count(state, error)

    def _publish(
        self, step: Signature, what: str, value: Any, rest: list[Signature] | None = None
    ) -> None:
        """Adds the call of a step once; it gets the value first, unless it is immutable."""
        mine = self._follows
        args = step.args if step.immutable else [value, *step.args]
        key = f"celery:{mine.id}:{what}"
        made = write_message(
            msgspec.structs.replace(step, args=args),
            self._queue_of(step),
            id=str(uuid.uuid5(uuid.NAMESPACE_OID, key)),
            root=mine.root,
            parent=mine.id,
            chain=rest,
            prefix=mine.prefix,
        )
        self._client.addjob(made.queue, made.body, dedupe=key, dedupe_ttl=KEY_S, **made.options)

    def _queue_of(self, step: Signature) -> str:
        """Where its options say, else the queue of this job: Celery's routes are not known here."""
        options = step.options
        queue = options.get("queue") or options.get("routing_key")
        return str(queue or self._job.queue.removeprefix(self._follows.prefix))

    # ---- Results

    def _asked(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except NoTube:
            self._client.tube(self._tube).create("tasks", if_not_exists=True)
            return call()

    def _keep(self, id: str, state: str, result: Any, trace: str | None = None) -> None:
        if not self._follows.keeps_result:
            return
        meta = {
            "status": state,
            "result": result,
            "traceback": trace,
            "children": [],
            "date_done": dt.datetime.now(dt.UTC).isoformat(),
            "task_id": id,
        }
        value = msgspec.json.encode(meta)
        self._asked(
            lambda: self._client.value_set(
                self._tube,
                f"celery-task-meta-{id}",
                value,
                ttl=RESULT_S,
                end=True,
                fixed=state == SUCCESS,
            )
        )

    # ---- Chords

    def _count(self, state: str, result: Any) -> None:
        """[T70] Counts this part of a chord; who completes it publishes the body."""
        mine = self._follows
        body = mine.embedded.chord
        if body is None or mine.group is None:
            return
        name = f"celery-taskset-meta-{mine.group}"
        if self._count_at(f"{name}.j", state, result).completes:
            self._complete(body, name)

    def _count_at(self, name: str, state: str, result: Any) -> Any:
        """Adds the part at its index, or at a late one, by its id, if another task has that: as
        tuque.celery.backend does."""
        mine = self._follows
        late = LATE_INDEX + zlib.crc32(mine.id.encode()) % INDEXES
        index = late if mine.group_index is None else mine.group_index
        while True:
            part = msgspec.json.encode([index, mine.id, state, result])
            add = partial(self._client.value_tally, self._tube, name, index, part, ttl=RESULT_S)
            counted = self._asked(add)
            page = value_parts_page(self._tube, name, str(index), count=1)
            _, rows = self._client.run(page)
            if not rows or msgspec.json.decode(rows[0][1])[1] == mine.id:
                return counted
            index = max(index + 1, late)

    def _complete(self, body: Signature, name: str) -> None:
        group = self._follows.group
        found = sorted(map(msgspec.json.decode, self._parts(f"{name}.j")), key=itemgetter(0))
        lost = next((one for one in found if one[2] != SUCCESS), None)
        if lost is None:
            self._publish(body, f"chord {group}", [one[3] for one in found])
        else:
            why = f"ChordError: Dependency {lost[1]} raised {lost[3]!r}"
            id = str(body.options.get("task_id") or "")
            self._keep(id, FAILURE, failed_with(why, CELERY))
            for at, step in enumerate(body.options.get("link_error") or ()):
                self._publish(msgspec.convert(step, Signature), f"chord error {at}", id)
        ends = [f"{name}{end}" for end in (".j", ".s", ".t")]
        self._asked(lambda: self._client.value_drop(self._tube, *ends))

    def _parts(self, name: str) -> Iterator[bytes]:
        """The parts, late ones last."""
        cursor = "0"
        while True:
            cursor, rows = self._client.run(value_parts_page(self._tube, name, cursor))
            for _, part in rows:
                yield part
            if cursor == "0":
                return
            if not rows and int(cursor) < LATE_INDEX:
                cursor = str(LATE_INDEX)


def failed_with(text: str, module: str | None = None) -> dict[str, Any]:
    """An exception as Celery keeps it, of a line `Type: text`; `module`: where that type is."""
    kind, colon, words = text.partition(": ")
    if not colon or not kind.isidentifier():
        kind, words = "Exception", text
    if module is None and hasattr(builtins, kind):
        module = "builtins"
    return {"exc_type": kind, "exc_message": [words], "exc_module": module}


def after_success(app: App, job: Job, result: Any) -> None:
    """What follows a run that went well; raises if it cannot be published."""
    Links(app, job, follows_of(job.headers)).succeeded(result)


def after_death(app: App, job: Job, failure: Failure) -> None:
    """What follows when a job of Celery is a dead letter."""
    Links(app, job, follows_of(job.headers)).failed(failure)
