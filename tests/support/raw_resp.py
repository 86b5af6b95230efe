"""A connection that sends and reads raw bytes, for tests of the wire."""

from __future__ import annotations

import socket
from typing import Any

import hiredis

DEADLINE_S = 60.0


class Err(str):
    """The text of an error reply."""


class Null:
    """A null of either kind."""

    def __repr__(self) -> str:
        return "NULL"


NULL = Null()


def encode(*words: str | bytes | int) -> bytes:
    """One command as an array of bulks."""
    args = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    parts = [b"*%d\r\n" % len(args)]
    parts += [b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in args]
    return b"".join(parts)


def plain(value: Any) -> Any:
    """A value of hiredis with NULL for None and Err for errors."""
    if value is None:
        return NULL
    if isinstance(value, Exception):
        return Err(str(value))
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


class Wire:
    """One socket. `self(...)` sends a command and returns its reply."""

    def __init__(self, port: int, path: str = "", timeout_s: float = DEADLINE_S) -> None:
        if path:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(timeout_s)
            self.sock.connect(path)
        else:
            self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = hiredis.Reader()

    def __call__(self, *words: str | bytes | int) -> Any:
        self.send(*words)
        return self.read()

    def send(self, *words: str | bytes | int) -> None:
        """Send a command without waiting for its reply."""
        self.sock.sendall(encode(*words))

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def read(self) -> Any:
        """The next reply."""
        while True:
            value = self.reader.gets()
            if value is not False:
                return plain(value)
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError("the server closed the connection")
            self.reader.feed(data)

    def read_to_end(self) -> bytes:
        """Everything until the server closes."""
        parts = []
        while True:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                return b"".join(parts)
            parts.append(data)

    def is_quiet(self, for_s: float) -> bool:
        """Whether nothing comes for that long."""
        self.sock.settimeout(for_s)
        try:
            data = self.sock.recv(1)
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(DEADLINE_S)
        self.reader.feed(data)
        return False

    def add(self, queue: str = "q", body: str | bytes = "body", *options: str | int) -> str:
        """ADDJOB; the id."""
        reply = self("ADDJOB", queue, body, 5000, *options)
        assert isinstance(reply, bytes), reply
        return reply.decode()

    def get(self, *queues: str, count: int = 1) -> list[str]:
        """GETJOB NOHANG; the ids."""
        reply = self("GETJOB", "NOHANG", "COUNT", count, "FROM", *(queues or ("q",)))
        assert reply is NULL or isinstance(reply, list), reply
        return [] if reply is NULL else [job[1].decode() for job in reply]

    def show(self, job_id: str) -> dict[str, Any]:
        """SHOW as a dict, empty for an unknown job."""
        flat = self("SHOW", job_id)
        if flat is NULL:
            return {}
        assert isinstance(flat, list), flat
        return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}

    def info(self, section: str = "all") -> dict[str, str]:
        """INFO as a dict."""
        lines = self("INFO", section).decode().split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
