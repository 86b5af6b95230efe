"""One connection without its socket: calls in, bytes out; bytes in, replies out, in order.

Error replies come out as exceptions of `tuque.errors`, also inside arrays. Pushed messages are no
replies: that a job was cancelled goes to `on_cancel`, others are kept if somebody wants them. No
I/O and no clock here.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import hiredis

from tuque.client.api import Arg, Hello, Reply, to_bytes, to_text
from tuque.client.commands import admin
from tuque.client.commands.calls import Call
from tuque.client.url import Address, Settings
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

_NOTHING = object()
CANCEL_PUSH = b"job-cancel"
ORDER_PUSH = b"worker-order"


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
        self._reader = hiredis.Reader(
            protocolError=ProtocolError,
            replyError=self._reply_error,
            notEnoughData=_NOTHING,
        )

    def pack(self, commands: Iterable[tuple[Arg, ...]]) -> bytes:
        """The bytes of the commands, whose replies are due from now on."""
        packed: list[bytes] = [_pack(command) for command in commands]
        self.unanswered += len(packed)
        return packed[0] if len(packed) == 1 else b"".join(packed)

    def feed(self, data: bytes) -> list[Reply]:
        """The replies that `data` completes; ProtocolError if it holds anything else."""
        self._reader.feed(data)
        replies: list[Reply] = []
        while (reply := self._next()) is not _NOTHING:
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

    def _reply_error(self, text: str) -> ReplyError:
        return reply_error(text, node=self.node)

    def _next(self) -> Reply:
        try:
            return self._reader.gets()
        except ProtocolError as e:
            raise ProtocolError(f"{self.node} does not speak RESP: {e}", node=self.node) from None


def _pack(command: tuple[Arg, ...]) -> bytes:
    """The bytes of a command. hiredis crashes if a signal handler raises while it writes a number:
    it gets none."""
    words = tuple([str(word) if isinstance(word, int | float) else word for word in command])
    try:
        packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # stub: 1-tuple
    except TypeError:
        raise TypeError(_unsent(command)) from None
    return packed


def _unsent(command: tuple[Arg, ...]) -> str:
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


def greeting(settings: Settings, hears: bool = False) -> list[Call[Any]]:
    """The first commands of a new connection, in one write; HELLO is the last.

    `hears`: the node shall push messages, which it does over RESP3 only.
    """
    calls: list[Call[Any]] = []
    if settings.password:
        login = (settings.user, settings.password) if settings.user else (settings.password,)
        calls.append(admin.execute("AUTH", *login))
    if settings.name:
        calls.append(admin.execute("CLIENT", "SETNAME", settings.name))
    if hears:
        calls.append(admin.execute("HELLO", 3))
    calls.append(admin.hello())
    return calls


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


def read_greeting(calls: list[Call[Any]], replies: list[Reply]) -> Hello | None:
    """The node's HELLO, None from a server without it; raises if the connection is useless."""
    for call, reply in zip(calls, replies, strict=True):
        is_unknown = call.name == "HELLO" and type(reply) is ReplyError and reply.code == "ERR"
        if isinstance(reply, ReplyError) and not is_unknown:
            raise reply
    if isinstance(replies[-1], ReplyError):
        return None
    found: Hello = calls[-1].read(replies[-1])
    return found
