"""One blocking connection that keeps the type of every reply.

`tuque.Client` turns replies into Python values; a person at a terminal wants to see the reply
itself: a status is not a string, an error inside an array is not an exception. So the command line
reads replies itself. It must not know how they are shown (cli/replies.py).
"""

from __future__ import annotations

import select
import socket
from typing import Any, Final, TypeAlias

import hiredis

CONNECT_TIMEOUT_S: Final = 5.0
KEEP_ALIVE_S: Final = 60  # load balancers forget a silent connection after some 4 minutes
PROBES: Final = 3
PROBE_S: Final = 15  # between two probes
LOGIN_S: Final = 15.0  # a node may let log-ins wait
DEPTH_MAX: Final = 64
CHUNK_BYTES: Final = 65536
TOGETHER: Final = 200  # commands sent at once: their replies must find room while they are sent
MARKS: Final = b"+-:$=!*~>%_#,"  # first bytes of a RESP reply
TARANTOOL: Final = b"Tarantool"  # first bytes on an IPROTO port


class Status(str):
    """A simple string such as OK."""


class ErrorReply(str):
    """An error line, without its `-`."""


Reply: TypeAlias = (
    "Status | ErrorReply | bytes | int | float | bool | list[Reply] | dict[bytes, Reply] | None"
)


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

    def __str__(self) -> str:
        if self.unixsocket:
            return self.unixsocket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def encode(words: list[bytes]) -> bytes:
    """Write one command as RESP."""
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        out.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(out)


def keep_alive(sock: socket.socket) -> None:
    """Notice a node that is silent and gone, and be remembered by what lies between.

    The same as that of the node, server/net/listen.py, which does not import the client.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    limit_ms = 1000 * (KEEP_ALIVE_S + PROBES * PROBE_S)
    for option, value in (
        ("TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE", KEEP_ALIVE_S),
        ("TCP_KEEPINTVL", PROBE_S),
        ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", limit_ms),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def connect(target: Target) -> socket.socket:
    """Open a socket to the target; LinkError says why it failed and what to do."""
    try:
        if target.unixsocket:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(CONNECT_TIMEOUT_S)
            sock.connect(target.unixsocket)
        else:
            sock = socket.create_connection((target.host, target.port), CONNECT_TIMEOUT_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock)
    except OSError as err:
        reason = err.strerror or str(err)
        raise LinkError(
            f"Could not connect to Tuque at {target}: {reason}. "
            "Is the node running? `tuque server` starts one; -h and -p choose another."
        ) from None
    sock.settimeout(None)
    return sock


class Link:
    """A connection that opens at first use and logs in by itself.

    `answer_s` is how long a reply may take; None: no limit.
    """

    def __init__(self, target: Target, answer_s: float | None = None) -> None:
        self.target = target
        self.answer_s = answer_s
        self.sock: socket.socket | None = None
        self.buf = bytearray()

    def open(self) -> None:
        """Connect and log in; LinkError if either fails."""
        self.close()
        self.sock = connect(self.target)
        self.sock.settimeout(self.answer_s)
        if self.target.password:
            user = [self.target.user.encode()] if self.target.user else []
            login = [b"AUTH", *user, self.target.password.encode()]
            if self.answer_s is None:
                said = self.call(login)
            else:
                said = self._log_in(login, self.answer_s)
            if isinstance(said, ErrorReply):
                self.close()
                raise LinkError(f"{self.target} refused the password: {said}")

    def _log_in(self, login: list[bytes], answer_s: float) -> Reply:
        """[N6] Wait longer for the log-in alone, once the node has answered at all (N6.7)."""
        sock = self._ready()
        first = self.call([b"HELLO"])
        sock.settimeout(max(answer_s, LOGIN_S))
        try:
            said = self.call(login)
        except LinkError:
            if isinstance(first, ErrorReply) and not first.startswith("NOAUTH"):
                return first  # why the node has closed the connection
            raise
        sock.settimeout(answer_s)
        return said

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
        self.sock, self.buf = None, bytearray()

    def call(self, words: list[bytes]) -> Reply:
        """Send one command and wait for its reply."""
        sock = self._ready()
        try:
            sock.sendall(encode(words))
            return self.read()
        except OSError as err:
            raise self._lost(err) from None

    def calls(self, commands: list[list[bytes]]) -> list[Reply]:
        """Send many commands, some hundred at once, and return their replies.

        A simple string comes as bytes.
        """
        replies: list[Reply] = []
        as_reply: Any = ErrorReply  # hiredis takes what it makes for an exception
        reader = hiredis.Reader(replyError=as_reply)
        for start in range(0, len(commands), TOGETHER):
            some = commands[start : start + TOGETHER]
            sock = self._ready()
            try:
                sock.sendall(b"".join(map(encode, some)))
                while len(replies) < start + len(some):
                    reader.feed(self._received(sock))
                    while (reply := reader.gets()) is not False:
                        replies.append(reply)
            except hiredis.ProtocolError as err:
                raise self._stranger(str(err).encode()) from None
            except OSError as err:
                raise self._lost(err) from None
        return replies

    def _lost(self, err: OSError) -> LinkError:
        """The error for a connection that failed, which is closed."""
        self.close()
        return LinkError(f"lost {self.target}: {err.strerror or err}", sent=True)

    def _ready(self) -> socket.socket:
        """The connection, opened if there is none, or the node has closed it."""
        if self.sock is not None and self._is_gone(self.sock):
            self.close()
        if self.sock is None:
            self.open()
        assert self.sock is not None
        return self.sock

    def _is_gone(self, sock: socket.socket) -> bool:
        """Whether the node closed the idle connection, or says why it does."""
        try:
            is_readable = bool(select.select([sock], [], [], 0)[0])
            return is_readable and sock.recv(1, socket.MSG_PEEK) in (b"", b"-")
        except OSError:
            return True

    def read(self, depth: int = 0) -> Reply:
        """Read one reply of RESP2 or RESP3."""
        line = self._line()
        mark, rest = line[:1], line[1:]
        if mark == b"+":
            return Status(rest.decode("utf-8", "backslashreplace"))
        if mark == b"-":
            return ErrorReply(rest.decode("utf-8", "backslashreplace"))
        if mark == b":":
            return int(rest)
        if mark in (b"$", b"=", b"!"):
            body = self._bulk(int(rest))
            if mark == b"!" and body is not None:
                return ErrorReply(body.decode("utf-8", "backslashreplace"))
            return body[4:] if mark == b"=" and body is not None else body
        if mark in (b"*", b"~", b">", b"%") and depth < DEPTH_MAX:
            return self._many(mark, int(rest), depth)
        return self._simple(mark, rest)

    def _simple(self, mark: bytes, rest: bytes) -> Reply:
        if mark == b"_":
            return None
        if mark == b"#":
            return rest == b"t"
        if mark == b",":
            return float(rest)
        raise self._stranger(mark + rest)

    def _stranger(self, said: bytes) -> LinkError:
        """The error for a port of another service, which may never send a whole line."""
        self.close()
        text = f"{self.target} does not speak RESP: it sent {said[:40]!r}"
        if said.startswith(TARANTOOL):
            text += "; clients of Tarantool use this port, `tuque` and Redis clients another (-p)"
        return LinkError(text)

    def _many(self, mark: bytes, count: int, depth: int) -> Reply:
        if count < 0:
            return None
        if mark != b"%":
            return [self.read(depth + 1) for _ in range(count)]
        pairs: dict[bytes, Reply] = {}
        for _ in range(count):
            key = self.read(depth + 1)
            pairs[key if isinstance(key, bytes) else str(key).encode()] = self.read(depth + 1)
        return pairs

    def _more(self) -> None:
        assert self.sock is not None
        self.buf += self._received(self.sock)

    def _received(self, sock: socket.socket) -> bytes:
        """Some bytes of replies."""
        data = sock.recv(CHUNK_BYTES)
        if not data:
            self.close()
            raise LinkError(f"{self.target} closed the connection", sent=True)
        return data

    def _line(self) -> bytes:
        start = 0
        while (end := self.buf.find(b"\r\n", start)) < 0:
            start = max(0, len(self.buf) - 1)
            if self.buf and self.buf[:1] not in MARKS:
                raise self._stranger(bytes(self.buf))
            self._more()
        line = bytes(self.buf[:end])
        del self.buf[: end + 2]
        return line

    def _bulk(self, size: int) -> bytes | None:
        if size < 0:
            return None
        while len(self.buf) < size + 2:
            self._more()
        body = bytes(self.buf[:size])
        del self.buf[: size + 2]
        return body
