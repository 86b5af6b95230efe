"""The transport of kombu for `tuque://`: connections, and turns of a loop that feed consumers."""

from __future__ import annotations

import select
import threading
import time
from typing import Any, Final

from kombu.transport import virtual

import tuque
from tuque import errors
from tuque.celery import channel as channels
from tuque.celery.broker import broker_of
from tuque.celery.options import masked, read_options, read_url

SLICE_S: Final = 1.0


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
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.options = read_options(client.transport_options)
        place = read_url(client.hostname or "tuque://", client.ssl)
        self.prefix = self.options.global_keyprefix + place.prefix
        self.broker = broker_of(place.url, self.options.retry)
        self._loop: Any = None
        self._loop_thread = 0
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
        try:
            self.broker.flush()
        except errors.ConnectionError:
            return  # they are sent with the next ones

    def verify_connection(self, connection: Any) -> bool:
        return True

    # ---- In a loop that blocks

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Waits until a message was delivered; socket.timeout if none came in time."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_fetched():
            fds = [one.fd for one in list(self.channels) if one.ask()]
            left_s = SLICE_S if until_s is None else min(SLICE_S, until_s - time.monotonic())
            if left_s <= 0 and until_s is not None:
                raise TimeoutError
            if fds:
                select.select(fds, [], [], left_s)
            else:
                time.sleep(min(left_s, 0.05))

    def _deliver_fetched(self) -> bool:
        """Delivers what came; whether something did."""
        found = False
        for channel in list(self.channels):
            found = self._deliver_of(channel) or found
        return found

    def _deliver_of(self, channel: channels.Channel) -> bool:
        messages = channel.fetched()
        for queue, message in messages:
            self._deliver(message, queue)
        return bool(messages)

    # ---- In the loop of Celery's workers

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Each turn of the loop ends with what is to be sent: acknowledgements, questions."""
        self._loop, self._loop_thread = loop, threading.get_ident()
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
        self.broker.flush()
        asking = {one.fd: one for one in list(self.channels) if one.ask()}
        for fd in set(self._watched) - set(asking):
            self._loop.remove_reader(fd)
        for fd, channel in asking.items():
            if self._watched.get(fd) is not channel.link:  # a new socket may have an old number
                self._loop.add_reader(fd, self._readable, channel)
        self._watched = {fd: channel.link for fd, channel in asking.items()}

    def _readable(self, channel: channels.Channel) -> None:
        self._deliver_of(channel)

    def flushes_later(self) -> bool:
        """Whether a turn of the loop will end soon; wakes it for another thread."""
        if self._loop is None:
            return False
        if threading.get_ident() != self._loop_thread:
            self._loop.call_soon(_nothing)
        return True


def _nothing() -> None:
    """For a turn of the loop."""
