"""taskiq: `broker = TuqueBroker("tuque://...")`; tasks, workers and middleware stay as they are.

A message is a job of the queue that its label `queue` names; the label `delay` is the broker's.
Results and progress are values (SPEC T70). Needs taskiq.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from tuque import aio
from tuque.errors import ConfigError, Error, NoTube
from tuque.logtext import facts

try:
    from taskiq import (
        AckableMessage,
        AsyncBroker,
        AsyncResultBackend,
        BrokerMessage,
        TaskiqResult,
    )
    from taskiq.compat import parse_obj_as
    from taskiq.depends.progress_tracker import TaskProgress
    from taskiq.exceptions import ResultGetError
    from taskiq.serializers import JSONSerializer
except ImportError:
    raise ConfigError("tuque.taskiq needs taskiq: pip install 'tuque[taskiq]'") from None

log: Final = logging.getLogger("tuque.taskiq")

TASK_HEADER: Final = "tuque-task"
QUEUE: Final = "taskiq"
RETRY_S: Final = 30  # a worker that is silent for so long has lost its messages
FETCHED: Final = 10  # messages at a time
WAIT_MS: Final = 5_000
AGAIN_S: Final = 1.0  # after an error of the broker
KEEP_S: Final = 86_400.0
RESULTS: Final = "taskiq.results"
PROGRESS: Final = "progress:"  # before the id of a task


class TuqueBroker(AsyncBroker):
    """A broker whose messages are jobs.

    `url` names the broker, by default TUQUE_URL as for all clients. `queue` is that of tasks
    without the label; a worker listens to it and to `queues`. A message whose worker is silent for
    `retry_s` goes to another one. Of a worker `prefetch` messages are fetched at a time.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        queue: str = QUEUE,
        queues: tuple[str, ...] = (),
        retry_s: int = RETRY_S,
        prefetch: int = FETCHED,
        result_backend: AsyncResultBackend[Any] | None = None,
        task_id_generator: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(result_backend, task_id_generator)
        self._url = url
        self._queue = queue
        self._queues = tuple(dict.fromkeys((queue, *queues)))
        self._retry_s = retry_s
        self._prefetch = prefetch
        self._client: aio.Client | None = None
        self._held: dict[str, None] = {}  # ids of messages at work here
        self._beats: asyncio.Task[None] | None = None

    @property
    def client(self) -> aio.Client:
        """The client of the running loop; made when it is first used."""
        if self._client is None:
            self._client = aio.Client() if self._url is None else aio.Client(self._url)
        return self._client

    async def startup(self) -> None:
        """The broker is asked nothing: a program starts also while that is away."""
        _ = self.client
        await super().startup()

    async def shutdown(self) -> None:
        """Messages that were not acknowledged go back into their queues."""
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.gather(self._beats, return_exceptions=True)
            self._beats = None
        client, self._client = self._client, None
        if client is not None:
            with suppress(Error):  # then they come back after their retry time
                if self._held:
                    await client.enqueue(*self._held)
            await client.close()
        self._held.clear()
        await super().shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        """Adds a message; the labels `queue` and `delay` are those of its job."""
        await self.client.addjob(
            str(message.labels.get("queue", self._queue)),
            message.message,
            delay=float(message.labels.get("delay", 0)),
            retry=self._retry_s,
            ttl=0,
            headers={TASK_HEADER: message.task_name},
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Messages, as long as the worker asks for them; an outage is logged, and waited for."""
        if self._beats is None:
            self._beats = asyncio.create_task(self._beat())
        while True:
            try:
                jobs = await self.client.getjob(
                    *self._queues, count=self._prefetch, timeout_ms=WAIT_MS
                )
            except Error as err:
                log.warning(
                    "no messages are fetched: %(reason)s",
                    facts("fetch_failed", reason=str(err)),
                )
                await asyncio.sleep(AGAIN_S)
                continue
            self._held.update(dict.fromkeys(job.id for job in jobs))
            for job in jobs:
                yield AckableMessage(data=job.body, ack=partial(self._ack, job.id))

    async def _ack(self, id: str) -> None:
        await self.client.ackjob(id)
        self._held.pop(id, None)

    async def _beat(self) -> None:
        """Sends WORKING for all messages here, three times within `retry_s`."""
        while True:
            await asyncio.sleep(self._retry_s / 3)
            if not self._held:
                continue
            try:
                pipeline = self.client.pipeline()
                for id in list(self._held):
                    pipeline.working(id)
                await pipeline.execute(raise_on_error=False)
            except Error as err:
                log.warning(
                    "no heartbeat for %(jobs)d messages: %(reason)s",
                    facts("heartbeat_failed", jobs=len(self._held), reason=str(err)),
                )


class TuqueResults(AsyncResultBackend[Any]):
    """Results and progress of tasks, as values of a tube that are kept for `keep_s`."""

    def __init__(
        self, url: str | None = None, *, tube: str = RESULTS, keep_s: float = KEEP_S
    ) -> None:
        self._url = url
        self._tube = tube
        self._keep_s = keep_s
        self._client: aio.Client | None = None
        self._serializer = JSONSerializer()

    @property
    def client(self) -> aio.Client:
        """The client of the running loop; made when it is first used."""
        if self._client is None:
            self._client = aio.Client() if self._url is None else aio.Client(self._url)
        return self._client

    async def shutdown(self) -> None:
        """Closes the client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        await super().shutdown()

    async def set_result(self, task_id: str, result: TaskiqResult[Any]) -> None:
        """Keeps a result."""
        await self._set(task_id, self._serializer.dumpb(result.model_dump(mode="json")))

    async def is_result_ready(self, task_id: str) -> bool:
        """Whether there is one."""
        return await self._get(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[Any]:
        """The result; ResultGetError if there is none, or none any more."""
        data = await self._get(task_id)
        if data is None:
            raise ResultGetError
        result = parse_obj_as(TaskiqResult[Any], self._serializer.loadb(data))
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Keeps how far a task is."""
        data = self._serializer.dumpb(progress.model_dump(mode="json"))
        await self._set(f"{PROGRESS}{task_id}", data)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """How far it is; None if it did not say."""
        data = await self._get(f"{PROGRESS}{task_id}")
        if data is None:
            return None
        return parse_obj_as(TaskProgress[Any], self._serializer.loadb(data))

    async def _get(self, name: str) -> bytes | None:
        try:
            return (await self.client.value_get(self._tube, name))[name]
        except NoTube:
            return None

    async def _set(self, name: str, data: bytes) -> None:
        try:
            await self.client.value_set(self._tube, name, data, ttl=self._keep_s, end=True)
        except NoTube:
            await self.client.tube(self._tube).create("tasks", if_not_exists=True, ttr=RETRY_S)
            await self.client.value_set(self._tube, name, data, ttl=self._keep_s, end=True)
