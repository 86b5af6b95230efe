"""Channels of kombu: what is published, declared, consumed and acknowledged, as calls of a client.

A message is a job whose body is kombu's envelope in JSON; its delivery tag is the job's id.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Callable
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

import kombu.exceptions
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.json import dumps, loads

from tuque.celery.broker import patiently
from tuque.celery.options import CHORD_HEADER, warn_once
from tuque.client.api import Job
from tuque.client.commands.operate import QueueRow
from tuque.client.sync.client import Client, Pipeline
from tuque.errors import Error, ReplyError

if TYPE_CHECKING:
    from tuque.celery.broker import Broker
    from tuque.celery.transport import Transport

TRANSIENT: Final = 1  # the delivery mode of what may be lost
TRANSIENT_TTL_S: Final = 300  # of events and of what goes to all workers
NO_KEY: Final = "(empty)"  # keys of topics have at least one character
HIGHEST: Final = 9
NAMED: Final = 10  # messages in the text of an error
CHORD_KEY_S: Final = 3600
FORM: Final = {"tuque-form": "celery2"}
# arguments of queues that this transport knows; others are named once in the log
KNOWN_ARGUMENTS: Final = ("x-message-ttl", "x-max-priority", "x-expires")


class Batch:
    """Messages that are sent together; a flush returns when the broker has them all."""

    def __init__(self, channel: Channel, max_size: int) -> None:
        self.channel = channel
        self._max_size = max_size
        self.discard()

    def publish(self, message: dict[str, Any], **kwargs: Any) -> None:
        """With the others, at the latest when the batch is full."""
        exchange, key = kwargs.get("exchange", ""), kwargs.get("routing_key", "")
        self.channel.publish_by(self._pipe, message, exchange, key)
        tag = message["properties"]["delivery_tag"]
        self._names.append(str((message.get("headers") or {}).get("id", tag)))
        if len(self._names) >= self._max_size:
            self.flush()

    def flush(self) -> None:
        """BatchPublishError names the messages that were not added, or are not known to be."""
        pipe, names = self._pipe, self._names
        self.discard()
        results = pipe.execute(raise_on_error=False)
        errors = [one for one in results if isinstance(one, Exception)]
        if not errors:
            return
        lost = [name for name, one in zip(names, results, strict=True) if one in errors]
        named = ", ".join(lost[:NAMED]) + f" and {len(lost) - NAMED} more" * (len(lost) > NAMED)
        raise kombu.exceptions.BatchPublishError(
            f"{len(lost)} of {len(names)} messages were not added: {named}; the first: {errors[0]}"
        ) from errors[0]

    def discard(self) -> None:
        """Leaves out what was not sent."""
        self._pipe: Pipeline = self.channel.broker.client.pipeline()
        self._names: list[str] = []

    def close(self) -> None:
        """Nothing is left to do."""


class QoS(virtual.QoS):
    """The unacknowledged messages of a channel; acks and rejects go to the broker."""

    def can_consume_max_estimate(self) -> int | None:
        """How many messages may come; None: any number."""
        room: int | None = super().can_consume_max_estimate()
        if room is not None and self.channel.options.prefetch == "none":
            room = max(0, min(room, int(self.prefetch_count) - tasks_here()))
        return room

    def can_consume(self) -> bool:
        """Whether one more may come."""
        return self.can_consume_max_estimate() != 0

    def ack(self, delivery_tag: str) -> None:
        super().ack(delivery_tag)
        self.channel.acknowledge(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self._quick_ack(delivery_tag)
        if requeue:
            self.channel.broker.requeue(delivery_tag)
        elif self.channel.options.dead_letters:
            self.channel.broker.bury(delivery_tag, "rejected by its consumer")
        else:
            self.channel.acknowledge(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Gives back what is held; what cannot be comes back by itself after its retry time."""
        self._flush()
        ids = list(self._delivered)
        self._delivered.clear()
        try:
            self.channel.broker.give_back(ids)
        except Error as err:
            warn_once(f"messages that were held come back after their retry time: {err}")
        return []


class Channel(virtual.Channel):
    """One channel: a connection waits for the jobs of its queues."""

    QoS = QoS
    supports_fanout = True
    connection: Transport

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.broker: Broker = connection.broker
        self.options = connection.options
        self._prefix = connection.prefix
        self._no_ack: set[str] = set()
        self._ttl_s: dict[str, float] = {}

    # ---- Publishing

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Text stays text, so that people can read it."""
        if encoding == "base64":
            try:
                return (body if isinstance(body, str) else body.decode()), "utf-8"
            except UnicodeDecodeError:
                pass
        found: tuple[Any, str | None] = super().encode_body(body, encoding)
        return found

    def decode_body(self, body: Any, encoding: str | None = None) -> Any:
        """Always bytes."""
        found = super().decode_body(body, encoding)
        return found.encode() if isinstance(found, str) else found

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any
    ) -> None:
        """[T62] To a queue, or to all queues that are bound: the broker finds these."""
        patiently(lambda: self.publish_by(self.broker.client, message, exchange, routing_key))

    def create_publish_batch(self, max_size: int) -> Batch:
        """For `Producer.batch()`: so many messages are sent together."""
        return Batch(self, max_size)

    def publish_by(
        self, by: Client | Pipeline, message: dict[str, Any], exchange: str, key: str
    ) -> None:
        """Publishes a message, or adds that to a pipeline."""
        self._inplace_augment_message(message, exchange, key)
        if not exchange:
            self._add_by(by, key, message)
            return
        kind = self.state.exchanges.get(exchange, {}).get("type", "direct")
        options = self._options_of(message)
        if kind == "fanout":
            options.update(replicate=1, retry=0)
        elif message["properties"].get("delivery_mode") == TRANSIENT:
            options["replicate"] = 1
        if options.get("replicate") == 1:
            options["ttl"] = options["ttl"] or TRANSIENT_TTL_S
        options["key"] = None if kind == "fanout" else key or NO_KEY
        by.topic_add(self._named(exchange), dumps(message), **options)

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        self._add_by(self.broker.client, queue, message)

    def _add_by(self, by: Client | Pipeline, queue: str, message: dict[str, Any]) -> None:
        options = self._options_of(message)
        own_s = self._ttl_s.get(queue, 0)
        if own_s:
            options["ttl"] = min(options["ttl"] or math.inf, own_s)
        by.addjob(self._named(queue), dumps(message), **options)

    def _options_of(self, message: dict[str, Any]) -> dict[str, Any]:
        """Options of ADDJOB: how long it lives, when it is due and what it goes before."""
        options: dict[str, Any] = {"retry": self.options.retry, "ttl": 0}
        options["pri"] = self._pri(message)
        if self.options.replicate is not None:
            options["replicate"] = self.options.replicate
        expiration = message["properties"].get("expiration")
        if expiration is not None:
            options["ttl"] = max(0.001, float(expiration) / 1000)
        given = message.get("headers") or {}
        delay_s = seconds_until(given.get("eta"))
        if delay_s > 0 and (not options["ttl"] or delay_s < options["ttl"]):
            options["delay"] = delay_s
        headers = dict(FORM)
        for name, header in (("task", "tuque-task"), ("id", "celery-id")):
            if isinstance(given.get(name), str):
                headers[header] = given[name]
        options["headers"] = headers
        if given.get(CHORD_HEADER):
            words = "chord", given[CHORD_HEADER], given.get("id"), given.get("retries")
            options.update(dedupe=":".join(map(str, words)), dedupe_ttl=CHORD_KEY_S)
        return options

    def _pri(self, message: dict[str, Any]) -> int:
        """[R1.13] The PRI of a message, of which a smaller one goes first."""
        level: int = self._get_message_priority(message)
        return level if self.options.priority_order == "desc" else HIGHEST - level

    # ---- Declaring

    def prepare_queue_arguments(self, arguments: Any, **kwargs: Any) -> Any:
        """The names that RabbitMQ has for what a queue of kombu says."""
        return to_rabbitmq_queue_arguments(arguments, **kwargs)

    def _named(self, name: str) -> str:
        return self._prefix + name

    def exchange_declare(
        self, exchange: str | None = None, type: str = "direct", *args: Any, **kwargs: Any
    ) -> None:
        """Exchanges are topics, which exist by their bindings; ChannelError for other types."""
        if (type or "direct") not in self.exchange_types:
            raise ChannelError(
                f"there are no exchanges of type {type!r} here: use direct, topic or fanout"
            )
        super().exchange_declare(exchange, type, *args, **kwargs)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        """[T61] A subscription, which all processes see."""
        self.state.exchanges.setdefault(
            exchange or "amq.direct", {"type": "direct", "arguments": {}, "table": []}
        )
        super().queue_bind(queue, exchange, routing_key, arguments, **kwargs)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        self.broker.client.topic_subscribe(
            self._named(exchange), self._named(queue), key=self._key_of(exchange, routing_key)
        )

    def _key_of(self, exchange: str, routing_key: str) -> str | None:
        is_fanout = self.state.exchanges[exchange]["type"] == "fanout"
        return None if is_fanout else routing_key or NO_KEY

    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str = "", *args: Any, **kwargs: Any
    ) -> None:
        """Ends a subscription, or one of its patterns."""
        if exchange in self.state.exchanges:
            self.broker.client.topic_unsubscribe(
                self._named(exchange), self._named(queue), key=self._key_of(exchange, routing_key)
            )
        super().queue_unbind(queue, exchange, routing_key, *args, **kwargs)

    def _new_queue(
        self,
        queue: str,
        auto_delete: bool = False,
        exclusive: bool = False,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A queue exists by its jobs, and any has priorities."""
        given = arguments or {}
        is_owned = auto_delete or exclusive
        if is_owned or given.get("x-expires"):
            expires_s = given["x-expires"] / 1000 if given.get("x-expires") else None
            self.broker.client.queue_set(self._named(queue), expires=expires_s, autodelete=is_owned)
        if given.get("x-message-ttl") is not None:
            self._ttl_s[queue] = given["x-message-ttl"] / 1000
        for name in given:
            if name not in KNOWN_ARGUMENTS:
                warn_once(f"the argument {name!r} of the queue {queue!r} has no effect here")

    def _rows(self, queue: str) -> list[QueueRow]:
        """What the nodes that know the queue say of it."""
        name = self._named(queue)
        pages = self.broker.over_nodes(lambda node: node.qlist(names=[name]))
        return [row for page in pages for row in page.rows]

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return bool(self.state.queue_index.get(queue) or self._rows(queue))

    def _size(self, queue: str) -> int:
        return ready_of(self._rows(queue))

    def _purge(self, queue: str) -> int:
        return self.broker.client.queue_purge(self._named(queue))

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        """[T75.6] The queue goes at all nodes, with its bindings and its jobs."""
        rows, name = self._rows(queue), self._named(queue)
        if (if_empty and ready_of(rows)) or (if_unused and any(row.blocked for row in rows)):
            return
        self.broker.over_nodes(lambda node: node.queue_delete(name))
        super().queue_delete(queue)

    def _delete(self, queue: str, *words: Any, **kwargs: Any) -> None:
        """Nothing is left to do."""

    def get_table(self, exchange: str) -> list[tuple[str, str, str]]:
        """Bindings as all processes made them."""
        found: list[tuple[str, str, str]] = []
        for one in self.broker.client.topics(topic=self._named(exchange)):
            queue = one.queue.removeprefix(self._prefix)
            keys = ["" if key == NO_KEY else key for key in one.keys or ("",)]
            found += [(key, key, queue) for key in keys]
        return found

    # ---- Consuming

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[..., Any],
        consumer_tag: str,
        **kwargs: Any,
    ) -> None:
        """From now on jobs of the queue are fetched."""
        (self._no_ack.add if no_ack else self._no_ack.discard)(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self.connection.begin_consuming(queue, self)

    def basic_cancel(self, consumer_tag: str) -> None:
        """No job of the queue is fetched any more."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self.connection.end_consuming(queue)

    @property
    def has_consumers(self) -> bool:
        """Whether it waits for messages, now or when it has room again."""
        return bool(self._active_queues) and not self.closed

    @property
    def consumed(self) -> list[str]:
        """The names of the queues of its consumers."""
        return [self._named(queue) for queue in dict.fromkeys(self._active_queues)]

    def room(self) -> int:
        """How many messages it takes now."""
        room = self.qos.can_consume_max_estimate()
        return sys.maxsize if room is None else room

    def is_half_free(self) -> bool:
        """Whether it takes half of what it can hold."""
        limit = self.qos.prefetch_count
        return not limit or 2 * self.room() >= limit

    def message_in(self, queue: str, job: Job) -> dict[str, Any] | None:
        """The message in a job; None for one that cannot be, which is a dead letter."""
        again = (job.nacks or 0) + (job.additional_deliveries or 0)
        limit = self.options.max_redeliveries
        if limit and again > limit:
            self._bury(job, f"delivered {again} times again: max_redeliveries is {limit}")
            return None
        try:
            message: dict[str, Any] = loads(job.body)
            properties = message["properties"]
            properties["delivery_tag"] = job.id
            properties.setdefault("delivery_info", {})["redelivered"] = again > 0
        except (ValueError, KeyError, TypeError, AttributeError):
            self._bury(job, "no message of kombu: its body is no envelope in JSON")
            return None
        if queue in self._no_ack:
            self.acknowledge(job.id)
        return message

    def _bury(self, job: Job, reason: str) -> None:
        try:
            self.broker.bury(job.id, reason)
        except ReplyError as err:
            warn_once(f"a message of {job.queue} is no dead letter: {err}")

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """One message; Empty without one."""
        for job in self.broker.client.getjob(self._named(queue), nohang=True, withcounters=True):
            self.broker.hold([job.id])
            message = self.message_in(queue, job)
            if message is not None:
                return message
        raise Empty

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """One message, or None."""
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.acknowledge(message.delivery_tag)
        return message

    def acknowledge(self, id: str) -> None:
        """[Q3] At once, or at the end of the loop's turn."""
        self.broker.note_ack(id)
        if self.connection is None or not self.connection.flushes_later():
            self.broker.flush()

    def close(self) -> None:
        """What was fetched and is not acknowledged goes back."""
        if self.closed:
            return
        try:
            super().close()
        except Error as err:
            warn_once(f"closing a channel: {err}")
            super().close()


def tasks_here() -> int:
    """The tasks that the worker of this process has, until they have ended."""
    state = sys.modules.get("celery.worker.state")
    return 0 if state is None else len(state.reserved_requests)


def ready_of(rows: list[QueueRow]) -> int:
    """How many messages wait: each node has its own."""
    return sum(row.ready for row in rows)


def seconds_until(eta: object) -> float:
    """The time until an instant in ISO 8601, in seconds; 0 for none, and for one that is over."""
    if not isinstance(eta, str):
        return 0.0
    try:
        when = dt.datetime.fromisoformat(eta)
    except ValueError:
        return 0.0
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.UTC)
    return max(0.0, (when - dt.datetime.now(dt.UTC)).total_seconds())
