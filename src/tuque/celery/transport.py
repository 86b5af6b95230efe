"""The transport of kombu for `tuque://`: connections, and turns of a loop that feed consumers."""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kombu.transport import virtual

import tuque
from tuque import errors
from tuque.celery import channel as channels
from tuque.celery.broker import broker_of
from tuque.celery.fetch import Fetch
from tuque.celery.options import masked, read_options, read_urls, with_password, without_password
from tuque.client.api import Job

SLICE_S: Final = 1.0
PAUSE_S: Final = 0.002
FETCH_MOST: Final = 100


def info_of(client: Any) -> dict[str, Any]:
    """`Connection.info()`, with the password where kombu expects it and nowhere else."""
    found: dict[str, Any] = dict(client._info())
    urls = client.alt or [client.hostname or "tuque://"]
    password = urlsplit(
        read_urls([with_password(url, client.password) for url in urls]).url
    ).password
    found.update(
        hostname=without_password(urls[0]),
        alternates=[without_password(url) for url in client.alt],
        password=unquote(password) if password else None,
    )
    return found


class Transport(virtual.Transport):
    """One connection of kombu; those of a process to one URL share a client."""

    Channel = channels.Channel
    can_parse_url = True
    default_port = 7711
    driver_type = "tuque"
    driver_name = "tuque"
    polling_interval = None
    connection_errors = (errors.ConnectionError, OSError)
    channel_errors = (*virtual.Transport.channel_errors, errors.ReplyError)
    implements = virtual.Transport.implements.extend(
        asynchronous=True,
        batch_publish=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.options = read_options(client.transport_options)
        urls = [
            with_password(url, client.password)
            for url in client.alt or [client.hostname or "tuque://"]
        ]
        place = read_urls(urls, client.ssl)
        client.info = partial(info_of, client)  # Celery shows it, in the replies of `inspect stats`
        client.cycle = None  # kombu need not go on to another URL: the client does, and keeps all
        self.prefix = self.options.global_keyprefix + place.prefix
        self.broker = broker_of(place.url, self.options.retry)
        self._fetch = Fetch(self.broker.client)
        self._consumers: dict[str, channels.Channel] = {}  # by queues
        self._arrived: deque[Job] = deque()
        self._turns = 0
        self._loop: Any = None
        self._loop_thread = 0
        self._is_paused = self._has_timer = False
        self._watched: dict[int, object] = {}  # connections by the numbers of their sockets

    def driver_version(self) -> str:
        return tuque.__version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """The URL for people, without a password unless that is asked for."""
        return uri if include_password else masked(uri)

    def establish_connection(self) -> Transport:
        """ConnectionError if no node can be reached, NoAuth if it refuses the log-in."""
        self.broker.client.ping(timeout=float(self.client.connect_timeout or 5))
        super().establish_connection()
        return self

    def close_connection(self, connection: Any) -> None:
        """Ends the channels; what they hold goes back."""
        self._leave_loop()
        super().close_connection(connection)
        self._fetch.close()
        self.broker.bring_back(self._fetch.take_lost())
        try:
            self.broker.flush()
        except errors.ConnectionError:
            return  # they are sent with the next ones

    def verify_connection(self, connection: Any) -> bool:
        return True

    # ---- What is asked, and what comes

    def begin_consuming(self, queue: str, channel: channels.Channel) -> None:
        """Its jobs are for this channel, from the next question on."""
        self._consumers[queue] = channel

    def end_consuming(self, queue: str) -> None:
        """No job of the queue comes any more."""
        self._consumers.pop(queue, None)
        if self.prefix + queue in self._fetch.queues:
            self._arrived += self._fetch.stop()
            self._give_back([job for job in self._arrived if self._channel_of(job) is None])

    def _give_back(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        ids = [job.id for job in jobs]
        self._arrived = deque(job for job in self._arrived if job.id not in ids)
        self.broker.give_back(ids)

    def _channel_of(self, job: Job) -> channels.Channel | None:
        return self._consumers.get(job.queue.removeprefix(self.prefix))

    def _room(self) -> tuple[list[str], int]:
        """The queues of consumers that take messages now, and how many one question may bring."""
        queues: list[str] = []
        count = FETCH_MOST
        for channel in self.channels:
            room = channel.room() if channel.has_consumers else 0
            if room > 0:
                queues += channel.consumed
                count = min(count, room)
        if len(queues) > 1:
            self._turns += 1  # another one is first next time
            first = self._turns % len(queues)
            queues = queues[first:] + queues[:first]
        return queues, count

    def _ask(self) -> None:
        """Acknowledges and asks; ends a question of other queues than those that are meant now."""
        self.broker.bring_back(self._fetch.take_lost())
        queues, count = self._room()
        if queues and not self._fetch.is_waiting and self._fetch.may_ask:
            self._fetch.ask(queues, count, self.broker.take_acks())
            return
        acks = self.broker.take_acks()
        if acks:
            self._fetch.acknowledge(acks)
        if self._fetch.is_waiting and set(queues) != set(self._fetch.queues):
            self._fetch.end()

    def _deliver_arrived(self) -> bool:
        """Delivers what came; whether something did."""
        came = self._fetch.read()
        self.broker.hold([job.id for job in came])
        self._arrived += came
        found = False
        while self._arrived:
            job = self._arrived.popleft()
            channel = self._channel_of(job)
            if channel is None or not channel.qos.can_consume():
                self.broker.give_back([job.id])
                continue
            queue = job.queue.removeprefix(self.prefix)
            message = channel.message_in(queue, job)
            if message is not None:
                found = True
                self._deliver(message, queue)
        return found

    # ---- In a loop that blocks

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Waits until a message was delivered; socket.timeout if none came in time."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_arrived():
            self._ask()
            left_s = SLICE_S if until_s is None else min(SLICE_S, until_s - time.monotonic())
            if left_s <= 0 and until_s is not None:
                raise TimeoutError
            if self._fetch.is_waiting:
                select.select(self._fetch.links, [], [], left_s)
            else:
                time.sleep(min(left_s, 0.05))

    # ---- In the loop of Celery's workers

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Turns of the loop end with what is to be sent: acknowledgements, questions."""
        self._loop, self._loop_thread = loop, threading.get_ident()
        self._is_paused = self._has_timer = False
        loop.on_tick.add(self._tick)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        self._leave_loop()

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        loop.on_tick.discard(self._tick)
        for fd in self._watched:
            loop.remove_reader(fd)
        self._watched.clear()

    def _tick(self) -> None:
        if self._loop is None:
            return
        if self._arrived:
            self._deliver_arrived()
        if not self._is_paused or self._is_due():
            self._is_paused = False
            self._ask()
        self._watch()

    def _watch(self) -> None:
        """Has the loop read the connections that there are."""
        links = self._fetch.links
        if len(links) == len(self._watched) and all(
            self._watched.get(link.fileno()) is link for link in links
        ):
            return
        for fd in self._watched:
            self._loop.remove_reader(fd)
        self._watched = {link.fileno(): link for link in links}
        for fd in self._watched:
            self._loop.add_reader(fd, self._readable)

    def _readable(self) -> None:
        if self._deliver_arrived():
            self._pause()

    def _pause(self) -> None:
        """Lets some more tasks end: one question and one acknowledgement are for all of them."""
        self._is_paused = True
        if not self._has_timer:
            self._has_timer = True
            self._loop.call_later(PAUSE_S, self._end_pause)

    def _end_pause(self) -> None:
        self._is_paused = self._has_timer = False  # the tick of this turn sends

    def _is_due(self) -> bool:
        """Whether a question now brings so much that it does not wait for the end of the pause."""
        if self._fetch.is_waiting:
            return False
        return all(one.is_half_free() for one in self.channels if one.has_consumers)

    def flushes_later(self) -> bool:
        """Whether a turn of the loop will end soon; wakes it for another thread."""
        if self._loop is None:
            return False
        if threading.get_ident() == self._loop_thread:
            self._pause()
        else:
            self._loop.call_soon(self._end_pause)
        return True
