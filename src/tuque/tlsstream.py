"""TLS on a connected socket that never blocks, with the contract of that socket (SPEC X).

Used by the node's ports and by the listener of metrics. The bytes pass through memory, so that one
read of the socket serves all records in it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any, Final

READ_BYTES: Final = 65_536
SHORT_BYTES: Final = 2_048  # read at once while the other end sends little
CHUNK_BYTES: Final = 65_536  # encrypted at once
CALL_BYTES: Final = 262_144  # written by one `send` at most
NAME: Final = "commonName"


class TlsStream:
    """One end, mostly the server's; `recv` and `send` raise what those of a socket raise.

    `recv` may return more than was asked for; it keeps back nothing that is decrypted.
    """

    __slots__ = ("_ended", "_in", "_left", "_long", "_out", "_stuck", "_tls", "family", "sock")

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, is_dialer: bool = False
    ) -> None:
        self.sock = sock
        self.family = sock.family
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=not is_dialer)
        self._left = memoryview(b"")  # encrypted, but the socket had no room
        self._stuck = 0  # bytes of the caller's that `_left` ends with
        self._ended = False  # the other end has said that it sends no more
        self._long = False  # it sends much: read in large pieces

    def fileno(self) -> int:
        """The descriptor of the socket; -1 after `close`."""
        return self.sock.fileno()

    def setblocking(self, flag: bool) -> None:
        """As for a socket; it is never blocking."""

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """As for a socket."""
        self.sock.setsockopt(level, name, value)

    def getsockname(self) -> object:
        """As for a socket."""
        return self.sock.getsockname()

    @property
    def wants_write(self) -> bool:
        """Whether encrypted bytes wait for room in the socket."""
        return len(self._left) > 0

    # ---- the handshake

    def handshake(self) -> bool:
        """Go on with the handshake as far as the bytes there allow; whether it is over.

        Raises OSError: the connection is of no use.
        """
        if self._left:
            self._flush()
            return False
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            data = b""
        else:
            if not data:
                raise ConnectionResetError("closed in the handshake")
        self._in.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._flush()  # the alert says why
            raise
        self._flush()
        return True

    @property
    def has_early(self) -> bool:
        """Whether input came with the end of the handshake: no event will announce it."""
        return self._in.pending > 0

    def user(self) -> str:
        """The common name in the certificate of the other end; empty: it has shown none."""
        shown: Any = self._tls.getpeercert()
        for part in (shown or {}).get("subject", ()):
            for name, value in part:
                if name == NAME:
                    return str(value)
        return ""

    def version(self) -> str:
        """The version of the protocol, such as `TLSv1.3`."""
        return self._tls.version() or ""

    # ---- as a socket

    def recv(self, most: int, flags: int = 0) -> bytes:
        """What has come; empty at the end of the stream.

        With MSG_PEEK the encrypted bytes: they tell only that there are some.
        """
        if flags & socket.MSG_PEEK:
            return self.sock.recv(most, flags)
        asked = READ_BYTES if self._long or most > READ_BYTES else SHORT_BYTES
        try:
            data = self.sock.recv(asked)
        except BlockingIOError:
            if not self._in.pending:
                raise
            data = b""
        else:
            self._long = len(data) == asked or (self._long and len(data) > SHORT_BYTES)
            if not data:
                return b""
        self._in.write(data)
        found = self._decrypted()
        if self._out.pending:
            self._flush()
        if not found and not self._ended:
            raise BlockingIOError
        return found

    def _decrypted(self) -> bytes:
        """All whole records that have come."""
        tls = self._tls
        parts: list[bytes] = []
        while not self._ended and (self._in.pending or tls.pending()):
            try:
                part = tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                part = b""
            if not part:
                self._ended = True
                with contextlib.suppress(OSError):
                    self.sock.shutdown(socket.SHUT_RD)  # a poller sees the end of the stream now
                break
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, data: bytes | memoryview) -> int:
        """Write from the start of `data`; returns how many of its bytes are sent.

        After a BlockingIOError or a short count the next call must begin with the same bytes.
        """
        done = 0
        if self._left:
            self._flush()
            if self._left:
                raise BlockingIOError
            done = self._stuck
            self._stuck = 0
        most = min(len(data), CALL_BYTES)
        while done < most:
            chunk = data
            if done or most > CHUNK_BYTES:
                chunk = memoryview(data)[done : done + CHUNK_BYTES]
            size = self._tls.write(chunk)
            self._flush()
            if self._left:
                self._stuck = size
                if not done:
                    raise BlockingIOError
                return done
            done += size
        return done

    def _flush(self) -> None:
        """Send what is encrypted, as far as the socket takes it."""
        wire = self._left
        if not wire:
            wire = memoryview(self._out.read())
        elif self._out.pending:
            wire = memoryview(bytes(wire) + self._out.read())
        if wire:
            try:
                wire = wire[self.sock.send(wire) :]
            except BlockingIOError:
                pass
        self._left = wire

    def shutdown(self, how: int) -> None:
        """Say that no more is sent, and shut the socket down."""
        self._say_goodbye()
        self.sock.shutdown(how)

    def close(self) -> None:
        """Say goodbye if there is room for it, and close."""
        with contextlib.suppress(OSError):
            self._say_goodbye()
        self.sock.close()

    def _say_goodbye(self) -> None:
        if self._left or self._tls.version() is None:
            return
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
