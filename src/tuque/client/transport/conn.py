"""RESP, and one connection without its socket: commands in, bytes out; bytes in, replies out.

All of the users' side writes and reads RESP here. `pack` writes commands. `Conn` makes values of
replies, in order: error replies come out as exceptions of `tuque.errors`, also inside arrays.
Pushed messages are no replies: that a job was cancelled goes to `on_cancel`, others are kept if
somebody wants them. `Kinds` keeps the kind of each reply, for people; `Lines` only counts replies.
No I/O and no clock here.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # else the first look-up of a name imports it
import itertools
import math
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import hiredis

from tuque.client.api import Arg, Reply, to_bytes, to_text
from tuque.client.retry import own
from tuque.errors import (
    Closed,
    ConnectionError,
    Error,
    NoAuth,
    ProtocolError,
    ReplyError,
    Timeout,
    reply_error,
)
from tuque.platforms import at_forks

if TYPE_CHECKING:
    from tuque.client.url import Address

INFINITE = math.inf
SHORTEST_CONNECT_S = 0.05
CANCEL_PUSH = b"job-cancel"
ORDER_PUSH = b"worker-order"
DEPTH_MAX: Final = 64  # of arrays in arrays
MARKS: Final = b"+-:$=!*~>%_#,"  # first bytes of a RESP reply
NUMBERS: Final = (int, float)  # a tuple: half the time of a union
NOTHING: Final = object()  # no whole reply has come yet
ROOM: Final = 64  # connections noted before the first sweep for collected ones

# ---- Forks: what a client has opened is of its own process


class Held(Protocol):
    """A connection."""

    def leave(self) -> None:
        """Closes the copy that a forked process has, and nothing else."""


class Lineage:
    """[U14] How many forks made this process, which tells it from those that it came from (U14.3).

    A pid does not: the first process of a container has that of its parent, which has it outside.
    """

    forks = 0
    links: Final[dict[int, weakref.ref[Held]]] = {}  # that are open, and some that were collected
    numbers: Final = itertools.count()
    room = ROOM

    @classmethod
    def hold(cls, link: Held) -> None:
        """Notes a connection. Collecting one runs no code: a signal handler could raise there."""
        if len(cls.links) >= cls.room:
            for number, one in list(cls.links.items()):
                if one() is None:
                    cls.links.pop(number, None)
            cls.room = 2 * len(cls.links) + ROOM
        cls.links[next(cls.numbers)] = weakref.ref(link)


def _begin_fork() -> None:
    """Else the node would not see the end of the parent's connections, and hold its tasks."""
    Lineage.forks += 1
    for one in list(Lineage.links.values()):
        link = one()
        if link is not None:
            link.leave()
    Lineage.links.clear()


at_forks(_begin_fork)


# ---- Commands


def pack(command: tuple[Arg, ...] | list[bytes]) -> bytes:
    """The bytes of a command. hiredis crashes if a signal handler raises while it writes a number:
    it gets none."""
    words = tuple([str(word) if isinstance(word, NUMBERS) else word for word in command])
    try:
        packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # stub: 1-tuple
    except own(TypeError):
        raise TypeError(_unsent(command)) from None
    return packed


def _unsent(command: tuple[Arg, ...] | list[bytes]) -> str:
    """Which value of a command cannot be written, and which option it belongs to."""
    at = next(
        i for i, value in enumerate(command) if not isinstance(value, str | bytes | int | float)
    )
    words = itertools.takewhile(lambda word: isinstance(word, str) and word.isupper(), command)
    before = command[at - 1]
    what = (
        f"the value of {before}" if isinstance(before, str) and before.isupper() else "an argument"
    )
    name = " ".join(list(map(str, words))[: 2 if at > 2 else 1])
    return f"{name}: {what} must be text, bytes or a number, not {command[at]!r}"


def login(user: str, password: str) -> tuple[Arg, ...]:
    """The command that logs in."""
    return ("AUTH", user, password) if user else ("AUTH", password)


# ---- Replies as values


def values(error: Callable[[str], Any]) -> hiredis.Reader:
    """A reader of replies, which calls `error` with the text of an error reply.

    Its `gets` returns NOTHING until a whole reply has come, and raises ProtocolError for other
    bytes. Simple strings and bulk strings are bytes alike.
    """
    return hiredis.Reader(protocolError=ProtocolError, replyError=error, notEnoughData=NOTHING)


class Conn:
    """The protocol state of a connection: the commands without a reply so far."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.node = str(address)
        self.session = ""  # of tubes, as last requested
        self.unanswered = 0
        self.used_s = 0.0  # when it was returned to its pool
        self.login_s = 0.0  # what its log-in took, until a call has added that to its time
        self.pushed: deque[list[Reply]] = deque()
        self.on_cancel: Callable[[str, str], object] | None = None  # of a job's id and run
        self.on_order: Callable[[str, str], object] | None = (
            None  # of a worker's name and the order
        )
        self._keeps_pushed = False
        # No method of this object: a cycle would leave it to the collector, with its socket.
        self._reader = values(partial(reply_error, node=self.node))

    def pack(self, commands: Iterable[tuple[Arg, ...]]) -> bytes:
        """The bytes of the commands, whose replies are due from now on."""
        packed: list[bytes] = [*map(pack, commands)]
        self.unanswered += len(packed)
        return packed[0] if len(packed) == 1 else b"".join(packed)

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that `data` completes; ProtocolError if it holds anything else."""
        self._reader.feed(data)
        replies: list[Reply] = []
        while self._reader.has_data() and (reply := self._next()) is not NOTHING:
            if isinstance(reply, hiredis.PushNotification):
                self._take_pushed(list(reply))
                continue
            if self.unanswered == 0:
                if isinstance(reply, ReplyError):
                    raise self.closed(str(reply))  # why the node closes the connection
                raise ProtocolError(f"{self.node} sent what nobody asked for", node=self.node)
            self.unanswered -= 1
            replies.append(reply)
        return replies

    def _take_pushed(self, message: list[Reply]) -> None:
        if message[:1] == [CANCEL_PUSH]:
            if self.on_cancel is not None and len(message) == 3:
                self.on_cancel(to_text(message[1]), to_text(message[2]))
        elif message[:1] == [ORDER_PUSH]:
            if self.on_order is not None and len(message) == 3:
                self.on_order(to_text(message[1]), to_text(message[2]))
        elif self._keeps_pushed:
            self.pushed.append(message)

    @property
    def hears(self) -> bool:
        """Whether the node may push something at any time."""
        return self.on_cancel is not None or self.on_order is not None

    def keep_pushed(self) -> None:
        """Keeps pushed messages from now on."""
        self._keeps_pushed = True

    def closed(self, reason: str) -> Closed:
        """The error for a lost connection."""
        return Closed(f"{self.node}: {reason}", node=self.node)

    def failed(self, error: OSError, due: str) -> Error:
        """An operating system error as ours; `due` is the missing reply, for a timeout."""
        if isinstance(error, TimeoutError):
            return Timeout(f"{due} from {self.node} in time", node=self.node)
        return self.closed(error.strerror or str(error))

    def _next(self) -> Reply:
        try:
            return self._reader.gets()
        except own(ProtocolError) as e:
            raise ProtocolError(f"{self.node} does not speak RESP: {e}", node=self.node) from None


# ---- Replies of which only the errors matter


class Lines:
    """Counts replies of one line each, and reads those that are errors."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._parts: list[bytes] = []

    @property
    def is_complete(self) -> bool:
        """Whether all have come."""
        return self._left <= 0

    def feed(self, data: bytes) -> None:
        """The next bytes that came."""
        self._parts.append(data)
        self._left -= data.count(b"\n")

    def errors(self) -> dict[int, ReplyError]:
        """The error replies, by their places."""
        data = b"".join(self._parts)
        if data[:1] != b"-" and b"\n-" not in data:
            return {}
        lines = data.split(b"\r\n")
        return {
            at: reply_error(line[1:].decode(errors="replace"))
            for at, line in enumerate(lines)
            if line[:1] == b"-"
        }


# ---- Replies with their kinds


class Status(str):
    """A simple string such as OK."""


class ErrorReply(str):
    """An error line, without its `-`."""


TypedReply: TypeAlias = (
    "Status | ErrorReply | bytes | int | float | bool | "
    "list[TypedReply] | dict[bytes, TypedReply] | None"
)


class NoReply(Exception):
    """What came is no RESP; `start` is its beginning."""

    def __init__(self, start: bytes) -> None:
        super().__init__(start)
        self.start = start


class Kinds:
    """Reads replies of RESP2 and RESP3, and keeps the kind of each.

    A status is no string then, and an error no exception, also inside arrays.
    """

    def __init__(self) -> None:
        self._buf = bytearray()
        self._seen = 0  # bytes that have no end of a line
        self._reading: Generator[None, None, TypedReply] | None = None

    def feed(self, data: bytes) -> None:
        """The next bytes that came."""
        self._buf += data

    def gets(self) -> Any:
        """The next reply, NOTHING if it has not come yet; NoReply if it is none."""
        reading = self._reading or self._reply(0)
        self._reading = reading
        try:
            next(reading)
        except StopIteration as end:
            self._reading = None
            return end.value
        return NOTHING

    def _reply(self, depth: int) -> Generator[None, None, TypedReply]:
        while (line := self._line()) is None:
            yield
        mark, rest = line[:1], line[1:]
        if mark == b"+":
            return Status(rest.decode("utf-8", "backslashreplace"))
        if mark == b"-":
            return ErrorReply(rest.decode("utf-8", "backslashreplace"))
        if mark == b":":
            return _number(line)
        if mark in (b"$", b"=", b"!"):
            return (yield from self._bulk(mark, _number(line)))
        if mark in (b"*", b"~", b">", b"%") and depth < DEPTH_MAX:
            return (yield from self._many(mark, _number(line), depth))
        return _simple(line)

    def _bulk(self, mark: bytes, size: int) -> Generator[None, None, TypedReply]:
        if size < 0:
            return None
        while len(self._buf) < size + 2:
            yield
        body = bytes(self._buf[:size])
        del self._buf[: size + 2]
        if mark == b"!":
            return ErrorReply(body.decode("utf-8", "backslashreplace"))
        return body[4:] if mark == b"=" else body

    def _many(self, mark: bytes, count: int, depth: int) -> Generator[None, None, TypedReply]:
        if count < 0:
            return None
        if mark == b"%":
            return (yield from self._pairs(count, depth))
        found: list[TypedReply] = []
        for _ in range(count):
            found.append((yield from self._reply(depth + 1)))
        return found

    def _pairs(self, count: int, depth: int) -> Generator[None, None, TypedReply]:
        pairs: dict[bytes, TypedReply] = {}
        for _ in range(count):
            key = yield from self._reply(depth + 1)
            name = key if isinstance(key, bytes) else str(key).encode()
            pairs[name] = yield from self._reply(depth + 1)
        return pairs

    def _line(self) -> bytes | None:
        """The next line, if its end has come."""
        end = self._buf.find(b"\r\n", self._seen)
        if end < 0:
            self._seen = max(0, len(self._buf) - 1)
            if self._buf and self._buf[:1] not in MARKS:
                raise NoReply(bytes(self._buf))  # which may never send a whole line
            return None
        line = bytes(self._buf[:end])
        del self._buf[: end + 2]
        self._seen = 0
        return line


def _number(line: bytes) -> int:
    try:
        return int(line[1:])
    except ValueError:
        raise NoReply(line) from None


def _simple(line: bytes) -> TypedReply:
    mark, rest = line[:1], line[1:]
    if mark == b"_":
        return None
    if mark == b"#":
        return rest == b"t"
    if mark == b",":
        return float(rest)
    raise NoReply(line)


# ---- What connections say and hear first


def joining(sessions: Iterable[str]) -> Iterator[tuple[Arg, ...]]:
    """The commands that join a session of tubes: the first known one, or a new one."""
    for session in sessions:
        yield "TUBE", "IDENTIFY", session
    yield "TUBE", "IDENTIFY"


def subscribing(tube: str) -> list[tuple[Arg, ...]]:
    """The commands that subscribe to changes of the tube."""
    return [("HELLO", 3), ("TUBE", "SUBSCRIBE", to_bytes(tube))]


def raise_errors(replies: list[Reply]) -> None:
    """Raises the first reply that is an error."""
    for reply in replies:
        if isinstance(reply, ReplyError):
            raise reply


def why_closed(first: list[Reply], error: ConnectionError) -> Error:
    """What a node said to the first command before it closed the connection, else `error`."""
    said = first[0] if first else None
    return said if isinstance(said, ReplyError) and not isinstance(said, NoAuth) else error


def connect_error(address: Address, error: OSError) -> ConnectionError:
    """An operating system error as ours, with the node's name."""
    reason = error.strerror or str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        reason = "timed out"
    return ConnectionError(
        f"cannot connect to {address}: {reason}", node=str(address), retryable=True
    )
