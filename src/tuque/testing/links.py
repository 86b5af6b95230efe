"""Clients of the broker in this process: the real ones, whose connections end here.

Decides what a call does that would have to wait. Knows nothing of jobs and runs: the `Desk` does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from tuque.client.aio import Client as AioClient
from tuque.client.api import Arg, Reply
from tuque.client.commands.calls import Call
from tuque.client.retry import Retry
from tuque.client.sync import Client
from tuque.client.transport import sockets, streams
from tuque.client.transport.conn import Conn
from tuque.client.url import Address
from tuque.core.node.node import Node
from tuque.errors import Error, ReplyError, Timeout

URL: Final = "tuque://in-process:7711"
WAIT_MAX_MS: Final = 600_000  # of a call that has no end of its own
AT_ONCE: Final = Retry(base_s=0.0, cap_s=0.0)

T = TypeVar("T")
Words = tuple[Arg, ...]


class Channel(Protocol):
    """One connection to a broker in this process, as its client's end sees it."""

    on_data: Callable[[], None] | None  # bytes wait in `heard`
    heard: bytearray
    is_closed: bool

    def say(self, data: bytes) -> object:
        """Bytes for the broker."""

    def hang_up(self) -> None:
        """The client's end is closed."""


class Near(Protocol):
    """A broker in this process: the `Broker` of an app's tests, or one node of several."""

    lock: threading.RLock
    node: Node
    is_alone: bool  # it has no other node to give copies to

    @property
    def now_ms(self) -> int:
        """What its clock shows, in unix ms."""

    def connect(self) -> Channel:
        """A new connection, accepted."""

    def rest(self) -> None:
        """Runs what is to be done now."""

    def next_ms(self) -> int:
        """When it has something to do next, in unix ms."""

    def advance(self, until_ms: int) -> None:
        """Lets time pass until then, and runs what becomes due, in order."""

    def close(self) -> None:
        """Ends all connections."""


class Desk(Protocol):
    """Who looks at what clients say and hear."""

    @property
    def broker(self) -> Near:
        """Where their connections end."""

    def loses(self, commands: list[Words]) -> bool:
        """Whether the answer to these commands is lost."""

    def seen(self, command: Words, reply: Reply) -> None:
        """A command was answered."""

    def waits(self, command: Words) -> Error | None:
        """What to raise for a command that waits for what only the test can do."""

    def pass_time(self, until_ms: int) -> None:
        """Lets time pass until then."""


class Pipe:
    """The way of one connection to the broker and back."""

    def __init__(self, desk: Desk, conn: Conn) -> None:
        self._desk = desk
        self._conn = conn
        self._pack = partial(map, alone) if desk.broker.is_alone else iter
        self._is_talking = False
        with desk.broker.lock:
            self._wire = desk.broker.connect()
            self._wire.on_data = self._on_data

    def talk(self, commands: list[Words], replies: list[Reply]) -> None:
        """Says the commands and appends their replies."""
        broker, conn, wire = self._desk.broker, self._conn, self._wire
        due = len(replies) + len(commands)
        first = len(replies)
        with broker.lock:
            self._is_talking = True
            try:
                wire.say(conn.pack(self._pack(commands)))
                broker.rest()
                if self._desk.loses(commands):
                    self.close()
                    raise conn.closed("the answer was lost, as the test asked")
                until_ms = broker.now_ms + WAIT_MAX_MS
                self._hear(replies)
                while len(replies) < due:
                    self._wait(commands[len(replies) - first], until_ms)
                    self._hear(replies)
            finally:
                self._is_talking = False
        for command, reply in zip(commands, replies[first:], strict=True):
            if not isinstance(reply, ReplyError):
                self._desk.seen(command, reply)

    def _wait(self, command: Words, until_ms: int) -> None:
        """Lets time pass up to the next event, since nobody but the clock can end the wait."""
        if self._wire.is_closed:
            raise self._conn.closed("it closed the connection")
        error = self._desk.waits(command)
        if error is not None:
            raise error
        broker = self._desk.broker
        if broker.now_ms >= until_ms:
            text = f"{command[0]!s} waits for ever: nothing runs by itself in a test"
            raise Timeout(text, node=self._conn.node)
        self._desk.pass_time(min(until_ms, max(broker.now_ms + 1, broker.next_ms())))

    def _hear(self, replies: list[Reply]) -> None:
        came = bytes(self._wire.heard)
        self._wire.heard.clear()
        if came:
            replies += self._conn.feed(came)

    def _on_data(self) -> None:
        """A message may have been pushed, while nobody reads."""
        if not self._is_talking and self._conn.hears:
            self._hear([])

    @property
    def is_closed(self) -> bool:
        """Whether the broker has closed it."""
        return self._wire.is_closed

    def close(self) -> None:
        """Hangs up."""
        with self._desk.broker.lock:
            if not self._wire.is_closed:
                self._wire.on_data = None
                self._wire.hang_up()
                self._desk.broker.rest()


def alone(command: Words) -> Words:
    """The command for a node without others: one copy, where the program asks for several."""
    if command[0] != "ADDJOB" or "REPLICATE" not in command:
        return command
    at = command.index("REPLICATE") + 1
    return (*command[:at], 1, *command[at + 1 :])


class Here(Conn):
    """A connection over a pipe; it never waits."""

    def __init__(self, address: Address, desk: Desk) -> None:
        Conn.__init__(self, address)
        self._pipe = Pipe(desk, self)

    def _pushed_now(self) -> list[Reply]:
        """The next pushed reply; Timeout if there is none now."""
        self._pipe.talk([("PING",)], [])
        if not self.pushed:
            raise Timeout(f"nothing from {self.node} in time", node=self.node)
        return self.pushed.popleft()

    def is_stale(self) -> bool:
        return self._pipe.is_closed

    def close(self) -> None:
        self._pipe.close()


class HereLink(Here, sockets.Link):
    """A connection of the client for threads."""

    def exchange(self, commands: list[Words], replies: list[Reply], deadline_s: float) -> None:
        self._pipe.talk(commands, replies)

    def next_pushed(self, deadline_s: float) -> list[Reply]:
        return self._pushed_now()


class HereAioLink(Here, streams.Link):
    """A connection of the client for asyncio; it never waits."""

    async def exchange(
        self, commands: list[Words], replies: list[Reply], deadline_s: float
    ) -> None:
        self._pipe.talk(commands, replies)

    async def next_pushed(self, deadline_s: float) -> list[Reply]:
        return self._pushed_now()


class HereClient(Client):
    """The client for threads, without sockets."""

    def __init__(
        self, desk: Desk, url: str = URL, *, retry: Retry = AT_ONCE, discover: bool = False
    ) -> None:
        self._desk = desk
        super().__init__(url, retry=retry, follow=False, discover=discover)

    def run(self, call: Call[T]) -> T:
        """Asks once: a wait is one of the test's clock, which need not be cut into slices."""
        return self._read(call, self._ask_one(call), time.monotonic())

    def _dial(self, address: Address, deadline_s: float) -> sockets.Link:
        return HereLink(address, self._desk)


class HereAioClient(AioClient):
    """The client for asyncio, without sockets: for any event loop, or for `by_hand`."""

    def __init__(
        self,
        desk: Desk,
        retry: Retry = AT_ONCE,
        on_cancel: Callable[[str, str], object] | None = None,
    ) -> None:
        self._desk = desk
        super().__init__(URL, retry=retry, follow=False, discover=False, on_cancel=on_cancel)

    async def run(self, call: Call[T]) -> T:
        """Asks once, as `HereClient` does."""
        return self._read(call, await self._ask_one(call), time.monotonic())

    async def _dial(self, address: Address, deadline_s: float) -> streams.Link:
        return HereAioLink(address, self._desk)

    def _is_mine(self) -> bool:
        return True


def by_hand(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never waits; its result."""
    try:
        while coroutine.send(None) is None:
            pass  # a bare yield, as of sleep(0), is no wait
    except StopIteration as end:
        found: T = end.value
        return found
    coroutine.close()
    raise RuntimeError("this needs an event loop")
