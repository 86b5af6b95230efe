"""Dramatiq: `dramatiq.set_broker(TuqueBroker("tuque://..."))`; actors and workers stay as they are.

A message is a job: a delay is the broker's, on the same queue, and a message that a worker has is
its for as long as it says so. Results are values (SPEC T70). Needs dramatiq.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from tuque.client.sync import Client
from tuque.errors import ConfigError, ConnectionError, Error, NoTube
from tuque.logtext import facts

try:
    from dramatiq import Broker, Consumer, Message, MessageProxy
    from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound
    from dramatiq.results import ResultBackend, ResultMissing, ResultTimeout
    from dramatiq.results.backend import DEFAULT_TIMEOUT, Missing
except ImportError:
    raise ConfigError("tuque.dramatiq needs Dramatiq: pip install 'tuque[dramatiq]'") from None

log: Final = logging.getLogger("tuque.dramatiq")

TASK_HEADER: Final = "tuque-task"
RETRY_S: Final = 30  # a worker that is silent for so long has lost its messages
POLL_S: Final = 0.05  # of join
PAGE: Final = 1_000
RESULTS: Final = "dramatiq.results"


class TuqueBroker(Broker):
    """A broker whose queues are those of Tuque, with `prefix` before their names.

    `url` names the broker, by default TUQUE_URL as for all clients. A message whose worker says
    nothing for `retry_s` goes to another one.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str = "",
        retry_s: int = RETRY_S,
        middleware: list[Any] | None = None,
    ) -> None:
        super().__init__(middleware=middleware)
        self.prefix = prefix
        self.retry_s = retry_s
        self.client = Client() if url is None else Client(url)
        self._held: dict[str, str] = {}  # ids of messages at work here, and their queues
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._beats: threading.Thread | None = None

    def close(self) -> None:
        """Closes the client; messages that were not acknowledged come back after `retry_s`."""
        self._closed.set()
        if self._beats is not None:
            self._beats.join()
        self.client.close()

    def name_of(self, queue: str) -> str:
        """The queue of Tuque."""
        return f"{self.prefix}{queue}"

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5_000) -> Consumer:
        """An iterator over messages; QueueNotFound for a queue that was not declared."""
        self._check(queue_name)
        return TuqueConsumer(self, queue_name, prefetch, timeout)

    def declare_queue(self, queue_name: str) -> None:
        """The queue may be used from now on; the broker makes it with its first message."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        """Adds a message; a worker gets it after `delay` ms."""
        queue = message.queue_name
        self._check(queue)
        self.emit_before("enqueue", message, delay)
        try:
            self.client.addjob(
                self.name_of(queue),
                message.encode(),
                delay=(delay or 0) / 1000,
                retry=self.retry_s,
                ttl=0,
                headers={TASK_HEADER: message.actor_name},
            )
        except ConnectionError as err:
            raise ConnectionClosed(err) from None
        self.emit_after("enqueue", message, delay)
        return message

    def _check(self, queue: str) -> None:
        if queue not in self.queues:
            raise QueueNotFound(queue)

    # ---- For tests

    def flush(self, queue_name: str) -> None:
        """Drops the messages that wait in a queue, also those with a delay."""
        self._check(queue_name)
        found = self.client.jscan(queue=self.name_of(queue_name))
        ids = [id for id in found if id not in self._held]
        for at in range(0, len(ids), PAGE):
            self.client.deljob(*ids[at : at + PAGE])

    def flush_all(self) -> None:
        """Drops them in all declared queues."""
        for name in self.queues:
            self.flush(name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Waits until the node has no message of the queue; QueueJoinTimeout after `timeout` ms."""
        self._check(queue_name)
        ends_s = None if timeout is None else time.monotonic() + timeout / 1000
        while True:
            name = self.name_of(queue_name)
            rows = self.client.qlist(names=[name]).rows
            is_left = any(row.ready + row.delayed + row.at_work for row in rows)
            if not is_left and name not in self._held.values():
                return
            if ends_s is not None and time.monotonic() >= ends_s:
                raise QueueJoinTimeout(queue_name)
            time.sleep(POLL_S)

    # ---- What is at work here

    def hold(self, ids: Iterable[str], queue: str) -> None:
        """The broker learns that somebody is at work on these, until `unhold`."""
        with self._lock:
            self._held.update(dict.fromkeys(ids, queue))
            if self._beats is None:
                self._beats = threading.Thread(target=self._beat, name="heartbeats", daemon=True)
                self._beats.start()

    def unhold(self, ids: Iterable[str]) -> None:
        """They have ended, or went back."""
        with self._lock:
            for id in ids:
                self._held.pop(id, None)

    def _beat(self) -> None:
        """Says WORKING for all, three times within `retry_s`; a thread, since actors block."""
        while not self._closed.wait(self.retry_s / 3):
            with self._lock:
                ids = list(self._held)
            if not ids:
                continue
            try:
                pipeline = self.client.pipeline()
                for id in ids:
                    pipeline.working(id)
                pipeline.execute(raise_on_error=False)
            except Error as err:
                log.warning(
                    "no heartbeat for %(jobs)d messages: %(reason)s",
                    facts("heartbeat_failed", jobs=len(ids), reason=str(err)),
                )


class TuqueMessage(MessageProxy):
    """A message with the id of its job."""

    def __init__(self, message: Any, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class TuqueConsumer(Consumer):
    """The messages of one queue; at most `prefetch` of them are here."""

    message_class: type[TuqueMessage] = TuqueMessage

    def __init__(self, broker: TuqueBroker, queue: str, prefetch: int, timeout: int) -> None:
        self._broker = broker
        self._queue = broker.name_of(queue)
        self._prefetch = max(1, prefetch)
        self._timeout_ms = max(1, timeout)
        self._ready: deque[TuqueMessage] = deque()
        self._out: dict[str, None] = {}
        self._room = threading.Condition()

    def __next__(self) -> TuqueMessage | None:
        """The next message; None if none came in the time."""
        if not self._ready:
            self._fetch()
        return self._ready.popleft() if self._ready else None

    def _fetch(self) -> None:
        with self._room:
            if len(self._out) >= self._prefetch:
                self._room.wait(self._timeout_ms / 1000)
            count = self._prefetch - len(self._out)
        if count < 1:
            return
        client = self._broker.client
        try:
            jobs = client.getjob(self._queue, count=count, timeout_ms=self._timeout_ms)
        except ConnectionError as err:
            raise ConnectionClosed(err) from None
        with self._room:
            self._out.update(dict.fromkeys(job.id for job in jobs))
        self._broker.hold((job.id for job in jobs), self._queue)
        for job in jobs:
            self._ready.append(self.message_class(Message.decode(job.body), job.id))

    def ack(self, message: Any) -> None:
        """The message is done; ConnectionClosed if the broker is away: Dramatiq repeats it."""
        self._ended([message.job_id], lambda: self._broker.client.ackjob(message.job_id))

    def nack(self, message: Any) -> None:
        """The message becomes a dead letter, with the exception as its reason."""
        client, id = self._broker.client, message.job_id

        def bury() -> None:
            (run,) = client.start(id)
            if isinstance(run, Exception):
                client.ackjob(id)  # it has ended, or is another one's
                return
            err = message._exception
            reason = "rejected" if err is None else f"{type(err).__name__}: {err}"
            client.fail(id, run.run, reason=reason[:400], final=True)

        self._ended([id], bury)

    def requeue(self, messages: Iterable[Any]) -> None:
        """The messages go back into their queues."""
        ids = [message.job_id for message in messages]
        if ids:
            self._ended(ids, lambda: self._broker.client.enqueue(*ids))

    def _ended(self, ids: list[str], report: Any) -> None:
        try:
            report()
        except ConnectionError as err:
            raise ConnectionClosed(err) from None
        self._broker.unhold(ids)
        with self._room:
            for id in ids:
                self._out.pop(id, None)
            self._room.notify()

    def close(self) -> None:
        """What was fetched and not handed out goes back."""
        rest = list(self._ready)
        self._ready.clear()
        try:
            self.requeue(rest)
        except ConnectionClosed:
            self._broker.unhold([message.job_id for message in rest])


class TuqueResults(ResultBackend):
    """Results of actors, as values of a tube: `Results(backend=TuqueResults(broker.client))`."""

    def __init__(self, client: Client, *, tube: str = RESULTS, **options: Any) -> None:
        super().__init__(**options)
        self._client = client
        self._tube = tube

    def _get(self, message_key: str) -> Any:
        try:
            found = self._client.value_get(self._tube, message_key)[message_key]
        except NoTube:
            found = None
        return Missing if found is None else self.encoder.decode(found)

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        data = self.encoder.encode(result)
        try:
            self._client.value_set(self._tube, message_key, data, ttl=ttl / 1000, end=True)
        except NoTube:
            self._make()
            self._client.value_set(self._tube, message_key, data, ttl=ttl / 1000, end=True)

    def _make(self) -> None:
        self._client.tube(self._tube).create("tasks", if_not_exists=True, ttr=RETRY_S)

    def get_result(self, message: Any, *, block: bool = False, timeout: int | None = None) -> Any:
        """The result; with `block` it is waited for. ResultMissing or ResultTimeout without one."""
        key = self.build_message_key(message)
        found = self._get(key)
        if found is Missing and block:
            found = self._waited(key, DEFAULT_TIMEOUT if timeout is None else timeout)
            if found is Missing:
                raise ResultTimeout(message)
        if found is Missing:
            raise ResultMissing(message)
        return self.unwrap_result(found)

    def _waited(self, key: str, timeout_ms: int) -> Any:
        if timeout_ms < 1:
            return Missing
        try:
            found = self._client.value_wait(self._tube, key, wait_ms=timeout_ms)
        except NoTube:
            self._make()
            found = self._client.value_wait(self._tube, key, wait_ms=timeout_ms)
        data = found.get(key)
        return Missing if data is None else self.encoder.decode(data)
