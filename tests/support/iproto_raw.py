"""A client of IPROTO by hand."""

from __future__ import annotations

import socket
import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from raw_resp import DEADLINE_S
from tuque.wire.proto.iproto import scramble

if TYPE_CHECKING:
    from world import World
    from world_wires import IprotoWire

encode = msgspec.msgpack.encode
RAW = msgspec.msgpack.Decoder()


class Said(NamedTuple):
    """One reply."""

    sync: int
    code: int  # 0: it is no error
    data: Any  # the values, or the text of the error; None when there is no body


def request(type: int, sync: int, body: dict[int, Any] | None = None) -> bytes:
    """One frame."""
    inner = encode({0: type, 1: sync}) + (b"" if body is None else encode(body))
    return b"\xce" + len(inner).to_bytes(4, "big") + inner


def replies(data: bytes) -> tuple[list[Said], bytes]:
    """The whole replies in these bytes, and what is left."""
    found = []
    while len(data) >= 5:
        assert data[:1] == b"\xce", data[:20]
        size = int.from_bytes(data[1:5], "big")
        if len(data) < 5 + size:
            break
        head = RAW.decode(data[5:28])
        assert head[5] == 1, "the version of the schema never changes"
        body = decode(data[28 : 5 + size]) if size > 23 else {}
        value = body.get(0x31, body.get(0x30))
        found.append(Said(head[1], head[0] & 0x7FFF, value))
        assert (head[0] != 0) == (0x31 in body)
        data = data[5 + size :]
    return found, data


def decode(data: bytes) -> Any:
    """MessagePack whose strings may be any bytes: those that are no text stay bytes."""
    try:
        return RAW.decode(data)
    except (UnicodeDecodeError, msgspec.DecodeError):
        if data[:2] == b"\x81\x31":  # an error that names what was asked for
            return {0x31: data[3:].decode("utf-8", "backslashreplace")}
        assert data[:3] == b"\x81\x30\xdd" and data[7:8] == b"\xb0", "only a uuid is no text"
        return {0x30: [data[8:24]]}


class Talk:
    """What a client says and hears, whatever carries the bytes."""

    def __init__(self) -> None:
        self.rest = b""
        self.heard: list[Said] = []
        self.sync = 0
        greeting = b""
        while len(greeting) < 128:
            data = self.receive()
            if not data:
                raise ConnectionError("closed before the greeting")
            greeting += data
        self.greeting = greeting[:128]
        self.salt = b64decode(greeting[64:127].rstrip())

    def receive(self) -> bytes:
        """Some bytes; empty at the end of the stream."""
        raise NotImplementedError

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        raise NotImplementedError

    def ask(self, type: int, body: dict[int, Any] | None = None) -> int:
        """Send a request; its sync."""
        self.sync += 1
        self.send(request(type, self.sync, body))
        return self.sync

    def ask_call(self, name: str, *args: Any) -> int:
        """Send a CALL; its sync."""
        return self.ask(10, {0x22: name, 0x21: args})

    def hear(self, sync: int = -1) -> Said:
        """The next reply, or the one with this sync, whenever it comes."""
        while True:
            for at, one in enumerate(self.heard):
                if sync in (-1, one.sync):
                    return self.heard.pop(at)
            data = self.receive()
            assert data, "the server closed the connection"
            found, self.rest = replies(self.rest + data)
            self.heard += found

    def call(self, name: str, *args: Any) -> Any:
        """CALL and its values; an error is a `Said`."""
        return self.values(self.hear(self.ask_call(name, *args)))

    @staticmethod
    def values(said: Said) -> Any:
        """The values of a reply, or the reply when it is an error."""
        return said.data if said.code == 0 else said

    def log_in(self, user: str, password: str) -> Said:
        """AUTH."""
        proof = scramble(password.encode(), self.salt)
        return self.hear(self.ask(7, {0x23: user, 0x21: ["chap-sha1", proof]}))


class Conn(Talk):
    """A connection to a real node."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        super().__init__()

    def receive(self) -> bytes:
        """Some bytes; empty at the end of the stream. Fails at the deadline."""
        until = time.monotonic() + DEADLINE_S
        self.sock.setblocking(False)
        while True:
            try:
                return self.sock.recv(1 << 20)
            except BlockingIOError:
                pass
            except ConnectionError:
                return b""
            assert time.monotonic() < until, f"no answer after {DEADLINE_S} s"
            time.sleep(0.001)

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.setblocking(False)
        until = time.monotonic() + DEADLINE_S
        while data:
            try:
                data = data[self.sock.send(data[: 1 << 16]) :]
            except BlockingIOError:
                assert time.monotonic() < until, "the server reads no more"

    def close(self) -> None:
        """Close it."""
        self.sock.close()


def login(world: World, name: str) -> IprotoWire:
    """A connection of that user, whose password is the first letter."""
    conn = world.iproto()
    assert conn.log_in(name, name[0]).code == 0
    return conn


def tube(world: World, type: str = "fifottl", name: str = "t", **options: Any) -> IprotoWire:
    """A connection that has made a tube."""
    conn = world.iproto()
    assert conn.call("queue.create_tube", name, type, options) == []
    return conn


def refused(said: Any) -> tuple[int, str]:
    """Code and text of an error."""
    assert isinstance(said, Said), said
    return said.code, said.data
