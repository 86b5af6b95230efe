"""One blocking connection for people, who want to see each reply as it is.

`tuque.Client` makes Python values of replies, and looks for another node after a loss. Here a
status is not a string, an error inside an array is not an exception, and no node but the named
node is asked. It must not know how replies are shown (cli/replies.py).
"""

from __future__ import annotations

import os
from errno import ECONNREFUSED
from typing import Any, Final, TypeAlias

from tuque.client.transport.conn import (
    NOTHING,
    ErrorReply,
    Kinds,
    NoReply,
    TypedReply,
    login,
    pack,
    values,
)
from tuque.client.transport.sockets import Wire, dial
from tuque.client.url import Address
from tuque.errors import ProtocolError

CONNECT_TIMEOUT_S: Final = 5.0
LOGIN_S: Final = 15.0  # a node may let log-ins wait
TOGETHER: Final = 200  # commands sent at once: their replies must find room while they are sent
TARANTOOL: Final = b"Tarantool"  # first bytes on an IPROTO port

Reply: TypeAlias = TypedReply


class LinkError(Exception):
    """The node is unreachable or has gone; `sent`: a command may have been executed."""

    def __init__(self, text: str, *, sent: bool = False) -> None:
        super().__init__(text)
        self.sent = sent


class Target:
    """The address and the login."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 7711,
        unixsocket: str = "",
        password: str = "",
        user: str = "",
    ) -> None:
        self.host, self.port, self.unixsocket = host, port, unixsocket
        self.password, self.user = password, user

    @property
    def has_login(self) -> bool:
        """Whether a connection begins with AUTH; a user may have no password."""
        return bool(self.user or self.password)

    @property
    def address(self) -> Address:
        """Where the node listens."""
        return Address(self.unixsocket, 0) if self.unixsocket else Address(self.host, self.port)

    def __str__(self) -> str:
        if self.unixsocket:
            return self.unixsocket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Link:
    """A connection that opens at first use and logs in by itself.

    `answer_s` is how long a reply may take; None: no limit.
    """

    def __init__(self, target: Target, answer_s: float | None = None) -> None:
        self.target = target
        self.answer_s = answer_s
        self.wire: Wire | None = None
        self._kinds = Kinds()

    def open(self) -> None:
        """Connect and log in; LinkError if either fails."""
        self.close()
        try:
            if self.target.port == 0 and not self.target.unixsocket:  # none for clients
                raise ConnectionRefusedError(ECONNREFUSED, os.strerror(ECONNREFUSED))
            self.wire = Wire(dial(self.target.address, None, CONNECT_TIMEOUT_S))
        except OSError as err:
            reason = err.strerror or str(err)
            raise LinkError(
                f"Could not connect to Tuque at {self.target}: {reason}. "
                "Is the node running? `tuque server` starts one; -h and -p choose another."
            ) from None
        if self.target.has_login:
            reply = self._log_in(self.wire, pack(login(self.target.user, self.target.password)))
            if isinstance(reply, ErrorReply):
                self.close()
                raise LinkError(f"{self.target} refused the password: {reply}")

    def _log_in(self, wire: Wire, command: bytes) -> Reply:
        """[N6] Wait longer for the log-in alone, once the node has answered at all (N6.7)."""
        if self.answer_s is None:
            return self._exchange(wire, command, None)
        first = self._exchange(wire, pack([b"HELLO"]), self.answer_s)
        try:
            return self._exchange(wire, command, max(self.answer_s, LOGIN_S))
        except LinkError:
            if isinstance(first, ErrorReply) and not first.startswith("NOAUTH"):
                return first  # why the node has closed the connection
            raise

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
        self.wire, self._kinds = None, Kinds()

    def call(self, words: list[bytes]) -> Reply:
        """Send one command and wait for its reply."""
        return self._exchange(self._ready(), pack(words), self.answer_s)

    def _exchange(self, wire: Wire, command: bytes, limit_s: float | None) -> Reply:
        try:
            wire.send(command, limit_s)
            return self.read()
        except OSError as err:
            raise self._lost(err) from None

    def calls(self, commands: list[list[bytes]]) -> list[Reply]:
        """Send many commands, some hundred at once, and return their replies.

        A simple string comes as bytes.
        """
        replies: list[Reply] = []
        as_reply: Any = ErrorReply  # hiredis takes what it makes for an exception
        reader = values(as_reply)
        for start in range(0, len(commands), TOGETHER):
            some = commands[start : start + TOGETHER]
            wire = self._ready()
            try:
                wire.send(b"".join(map(pack, some)), self.answer_s)
                while len(replies) < start + len(some):
                    reader.feed(self._received(wire))
                    while (reply := reader.gets()) is not NOTHING:
                        replies.append(reply)
            except ProtocolError as err:
                raise self._stranger(str(err).encode()) from None
            except OSError as err:
                raise self._lost(err) from None
        return replies

    def read(self) -> Reply:
        """Read one reply."""
        assert self.wire is not None
        try:
            while (reply := self._kinds.gets()) is NOTHING:
                self._kinds.feed(self._received(self.wire))
        except NoReply as err:
            raise self._stranger(err.start) from None
        found: Reply = reply
        return found

    def _received(self, wire: Wire) -> bytes:
        """Some bytes of replies."""
        data = wire.receive()
        if not data:
            self.close()
            raise LinkError(f"{self.target} closed the connection", sent=True)
        return data

    def _ready(self) -> Wire:
        """The connection, opened if there is none, or the node has closed it."""
        if self.wire is not None and _is_gone(self.wire):
            self.close()
        if self.wire is None:
            self.open()
        assert self.wire is not None
        return self.wire

    def _lost(self, err: OSError) -> LinkError:
        """The error for a connection that failed, which is closed."""
        self.close()
        return LinkError(f"lost {self.target}: {err.strerror or err}", sent=True)

    def _stranger(self, start: bytes) -> LinkError:
        """The error for a port of another service."""
        self.close()
        text = f"{self.target} does not speak RESP: it sent {start[:40]!r}"
        if start.startswith(TARANTOOL):
            text += "; clients of Tarantool use this port, `tuque` and Redis clients another (-p)"
        return LinkError(text)


def _is_gone(wire: Wire) -> bool:
    """Whether the node closed the idle connection, or says why it does."""
    try:
        return wire.peek() in (b"", b"-")
    except OSError:
        return True
