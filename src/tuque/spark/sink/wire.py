"""A writer's connections: chunks of commands out, errors in, reconnecting until a deadline.

Every command of a writer gets a reply of one line: replies are counted, not parsed. A Spark
worker process outlives its tasks: connections are kept, one per broker and process. The mode
decides what is sent again after a lost connection: ADDJOB may then be done twice, STAGE is repeated
under another attempt's name.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from socket import socket
from typing import Final

from tuque.client.routing.leaders import address_of
from tuque.client.transport.conn import Lineage, Lines, login, pack
from tuque.client.transport.face import context_of
from tuque.client.transport.sockets import Wire, dial
from tuque.client.url import Address, Settings
from tuque.errors import (
    FewCopies,
    Leaving,
    Loading,
    MaxClients,
    NoQuorum,
    NoReplica,
    OutOfMemory,
    Paused,
    ReplyError,
    TubeHome,
)
from tuque.spark.errors import SinkError
from tuque.spark.sink.columns import Run, count_of

CONNECT_S: Final = 5.0
LOGIN_S: Final = 15.0  # a node may let log-ins wait (N6.7)
ANSWER_S: Final = 30.0  # in addition to a command's own time
PAUSE_S: Final = (0.02, 1.0)  # first and longest pause between attempts
# Refusals: nothing was done, and time may help.
LATER: Final = (
    Loading,
    Leaving,
    OutOfMemory,
    Paused,
    NoReplica,
    MaxClients,
    TubeHome,
    NoQuorum,
)

_kept: dict[tuple[str, int, bool, str, int], SinkWire] = {}


class SinkWire(Wire):
    """A connection that outlives a task."""

    def __init__(self, address: Address, sock: socket) -> None:
        super().__init__(sock)
        self.address = address

    def refusals(self, count: int) -> dict[int, ReplyError]:
        """The next `count` replies that are refusals; OSError if they do not come.

        What is done on too few nodes is no refusal.
        """
        lines = Lines(count)
        while not lines.is_complete:
            data = self.receive()
            if not data:
                raise ConnectionResetError(f"{self.address} closed the connection")
            lines.feed(data)
        errors = lines.errors()
        return {at: error for at, error in errors.items() if not isinstance(error, FewCopies)}


class Broker:
    """The node that a task or a driver writes to; another one if several are named, or if it says
    which node leads the tube.
    """

    def __init__(self, settings: Settings, retry_timeout_s: float, answer_s: float) -> None:
        self._settings = settings
        self._retry_timeout_s = retry_timeout_s
        self._answer_s = answer_s + ANSWER_S
        self._wire: SinkWire | None = None
        self._leader: Address | None = None  # of the tube that was refused last
        self._rng = random.Random()

    def ask(self, command: bytes) -> ReplyError | None:
        """Send a repeatable command; returns its refusal. SinkError if no reply comes."""
        until_s = time.monotonic() + self._retry_timeout_s
        tries = 0
        while True:
            try:
                self.send(command)
                refusal = self.refusals(1).get(0)
                if not isinstance(refusal, LATER):
                    return refusal
                self.follow([refusal])
                why = str(refusal)
            except OSError as e:
                why = self.lost(e)
            tries = self.pause(tries, until_s, why)

    def send(self, data: bytes) -> None:
        """Send over the kept connection, or a new one. Raises OSError."""
        if self._wire is None:
            self._wire = self._open()
        self._wire.send(data, self._answer_s)

    def refusals(self, count: int) -> dict[int, ReplyError]:
        """The refusals among the replies to the latest send, by their places. Raises OSError."""
        assert self._wire is not None
        return self._wire.refusals(count)

    def lost(self, error: OSError) -> str:
        """Drop the connection; returns the text of the loss."""
        self.close()
        self._leader = None  # another node may lead its tubes now
        return f"{self._settings.masked_url}: {error}"

    def follow(self, refusals: Iterable[ReplyError]) -> None:
        """Go on at the leader that the first of these names, if one does. All replies are read."""
        homes = [refusal.home for refusal in refusals if isinstance(refusal, TubeHome)]
        address = address_of(homes[0]) if homes else None
        if address is not None:
            self.close()
            self._leader = address

    def until_s(self) -> float:
        """The deadline for trouble that begins now."""
        return time.monotonic() + self._retry_timeout_s

    def pause(self, tries: int, until_s: float, why: str) -> int:
        """Pause before the next attempt; SinkError if time is up."""
        first_s, longest_s = PAUSE_S
        pause_s = self._rng.uniform(0.5, 1.0) * min(longest_s, first_s * 2.0 ** min(tries, 16))
        if time.monotonic() + pause_s >= until_s:
            raise SinkError(
                f"the broker did not take it within retryTimeout "
                f"({self._retry_timeout_s:g} s, {tries + 1} tries): {why}"
            )
        time.sleep(pause_s)
        return tries + 1

    def keep(self) -> None:
        """Leave the connection for this process's next task."""
        if self._wire is None:
            return
        old = _kept.pop(self._key(self._wire.address), None)
        if old is not None:
            old.close()
        _kept[self._key(self._wire.address)] = self._wire
        self._wire = None

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _key(self, address: Address) -> tuple[str, int, bool, str, int]:
        # By process, too: a forked worker must not share its parent's connection.
        forks = Lineage.forks
        return (address.host, address.port, self._settings.tls, self._settings.user, forks)

    def _open(self) -> SinkWire:
        """A connection to the leader, if one is known, or the first named node that responds."""
        error: OSError = ConnectionError("no node is named")
        leader, self._leader = self._leader, None
        for address in (*([leader] if leader else []), *self._settings.seeds):
            kept = _kept.pop(self._key(address), None)
            if kept is not None:
                if not kept.has_input():
                    return kept
                kept.close()
            try:
                return _connected(address, self._settings)
            except OSError as e:
                error = e
        raise error


def _connected(address: Address, settings: Settings) -> SinkWire:
    """A new connection, logged in; SinkError if the broker refuses the login."""
    tls = context_of(settings) if settings.tls else None
    wire = SinkWire(address, dial(address, tls, CONNECT_S))
    if settings.has_login:
        wire.send(pack(login(settings.user, settings.password)), LOGIN_S)
        for refusal in wire.refusals(1).values():
            wire.close()
            raise SinkError(f"{address}: {refusal}")
    return wire


class Sender:
    """Sends chunks one after the other, each while the next is being built.

    `head` returns the words that begin every command of a chunk, and their number; it is called
    again when a chunk is sent again. `on_done` gets the rows of each completed chunk.
    """

    def __init__(
        self,
        broker: Broker,
        head: Callable[[], tuple[int, bytes]],
        on_done: Callable[[int], None],
        whole: bool,
    ) -> None:
        self._broker = broker
        self._head = head
        self._on_done = on_done
        self._whole = whole  # after a partial refusal the whole chunk is sent again
        self._chunk: list[Run] = []
        self._error: OSError | None = None

    def put(self, chunk: list[Run]) -> None:
        """Send a chunk once the previous one is complete."""
        self.settle()
        self._chunk = chunk
        self._send()

    def settle(self) -> None:
        """Wait until the chunk sent last is complete; resends what is not."""
        if not self._chunk:
            return
        tries, until_s = 0, 0.0
        while True:
            why = self._outcome()
            if not why:
                return
            until_s = until_s or self._broker.until_s()
            tries = self._broker.pause(tries, until_s, why)
            self._send()

    def _send(self) -> None:
        count, head = self._head()
        parts: list[bytes] = []
        for words, tails in self._chunk:
            start = b"*%d\r\n%b" % (count + words, head)
            parts += (start, start.join(tails))
        self._error = None
        try:
            self._broker.send(b"".join(parts))
        except OSError as e:
            self._error = e

    def _outcome(self) -> str:
        """Empty if the chunk is complete; else why to send it again; `_chunk` keeps the rest."""
        count = count_of(self._chunk)
        try:
            if self._error is not None:
                raise self._error
            refused = self._broker.refusals(count)
        except OSError as e:
            return self._broker.lost(e)
        if not refused:
            self._chunk = []
            self._on_done(count)
            return ""
        for why in refused.values():
            is_elsewhere = self._whole and isinstance(why, TubeHome)  # stages stay at one node
            if is_elsewhere or not isinstance(why, LATER):
                self._broker.close()
                raise SinkError(f"the broker refused a row: {why}")
        self._broker.follow(refused.values())
        if not self._whole:
            self._on_done(count - len(refused))
            self._chunk = _only(self._chunk, set(refused))
        return str(next(iter(refused.values())))


def _only(chunk: list[Run], wanted: set[int]) -> list[Run]:
    """The rows of a chunk at these positions."""
    found: list[Run] = []
    at = 0
    for words, tails in chunk:
        kept = [tail for i, tail in enumerate(tails, at) if i in wanted]
        at += len(tails)
        if kept:
            found.append((words, kept))
    return found
