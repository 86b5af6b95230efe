"""A connection of either protocol: its output, and the gate of the journal (C8).

It knows neither what the bytes mean nor which peer is at the other end.
"""

import os
import socket
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

LARGE_BYTES: Final = 262_144  # a larger piece of a reply is not copied
SMALL_BYTES: Final = 65_536  # smaller waiting replies are joined into one write
MANY_PIECES: Final = 1_024  # count the replies of a turn when they have so many pieces
SHORT_READ: Final = 479  # 512 with the head of a bytes object, which Python allocates quickly
READ_BYTES: Final = 65_536
SHORT_READS: Final = 8  # in a row, before a connection that sent much is read in short pieces again
TURN_BYTES: Final = 1 << 20  # with more replies in a turn, its other requests wait

# A plain socket is read and written as a file: the methods of sockets take their arguments slower.
_READ: Final[Callable[[int, int], bytes]] = os.read
_WRITE: Final[Callable[[int, bytes], int]] = os.write


def join_small(wire: list[bytes]) -> None:
    """Join the small pieces at the head."""
    count: i64 = 0
    while count < 64 and count < len(wire) and len(wire[count]) < SMALL_BYTES:
        count += 1
    if count > 1:
        wire[:count] = [b"".join(wire[:count])]


class Connection:
    """One socket. Numbers always rise, so that a late event never hits a newer connection."""

    def __init__(self, number: i64, sock: socket.socket, address: str, now_ms: i64) -> None:
        self.number = number
        self.sock = sock
        self.fd: i64 = sock.fileno()
        self.is_plain = type(sock) is socket.socket
        self.address = address  # ip:port, or unix:path
        self.out: list[bytes] = []  # produced in this turn
        self.has_large = False  # one of its pieces is large
        self.gated: list[tuple[int, bytes]] = []  # with the journal number each waits for
        self.wire: list[bytes] = []  # may be sent, but the socket had no room
        self.wire_at: i64 = 0  # bytes of the first piece already sent
        self.wire_bytes: i64 = 0
        self.held_bytes: i64 = 0  # of `gated`
        self.is_dirty = False  # is in server.dirty
        self.wants_write = False  # waits for room in the socket
        self.soft_since_ms: i64 = 0  # since when it is above the soft output limit
        self.half_since_ms: i64 = 0  # since when half a request is buffered
        self.ctime_ms = now_ms
        self.stranger_ms: i64 = 0  # since when it must log in and has not; 0: it need not
        self.last_ms = now_ms
        self.is_full = False  # not read from: too much input waits
        self.is_closing = False  # close once everything is written
        self.is_closed = False
        self.lingers = False  # close only when the other end had time to read why (C2.10)
        self.ask: i64 = SHORT_READ  # bytes to read at once
        self.short_reads: i64 = 0  # in a row
        self.has_ended = False  # has stopped sending, but is still owed replies

    def is_tenant(self) -> bool:
        """[N10] Whether the user is of a tenant."""
        return False

    def is_waiting(self) -> bool:
        """Whether a reply waits for others."""
        return False

    def is_busy(self) -> bool:
        """Whether one of its commands runs in slices."""
        return False

    def chore_bytes(self) -> i64:
        """Memory of a reply in the making."""
        return 0

    def unread_bytes(self) -> i64:
        """Memory of input not run yet, roughly."""
        return 0

    def receive(self, most: i64) -> bytes:
        """Read up to `most` bytes or 64 KB; empty at the end of the stream. Raises OSError."""
        if most < self.ask:
            return self.take(most)
        data = self.take(self.ask)
        if self.ask == SHORT_READ:
            return data if len(data) < SHORT_READ else self.read_on(data, most)
        self.short_reads = self.short_reads + 1 if len(data) < SHORT_READ else 0
        if self.short_reads == SHORT_READS:
            self.ask = SHORT_READ
        return data

    def take(self, most: i64) -> bytes:
        """Read once. Raises OSError."""
        if self.is_plain and not self.is_closed:  # a closed one's number may be another's
            return _READ(self.fd, most)
        return self.sock.recv(most)

    def give(self, data: bytes) -> i64:
        """Write once; returns the bytes that the socket took. Raises OSError."""
        if self.is_plain and not self.is_closed:
            return _WRITE(self.fd, data)
        return self.sock.send(data)

    def read_on(self, data: bytes, most: i64) -> bytes:
        """Read the rest of a long input."""
        self.ask = READ_BYTES
        self.short_reads = 0
        try:
            return data + self.take(most)
        except OSError:  # nothing more, or the error comes again next time
            return data

    def push(self, most: i64) -> i64:
        """Write up to `most` bytes of what waits, as the socket takes them. Raises OSError."""
        wire = self.wire
        done: i64 = 0
        while len(wire) > 0 and done < most:
            if self.wire_at == 0 and len(wire) > 1 and len(wire[0]) < SMALL_BYTES:
                join_small(wire)
            end: i64 = self.wire_at + most - done
            try:
                sent: i64 = self.sock.send(memoryview(wire[0])[self.wire_at : end])
            except BlockingIOError:
                break
            done += sent
            self.wire_at += sent
            if self.wire_at == len(wire[0]):
                self.wire_at = 0
                del wire[0]
        self.wire_bytes -= done
        return done

    def has_much(self) -> bool:
        """Whether this turn produced so much that further requests had better wait."""
        if len(self.out) < MANY_PIECES:
            return False
        if self.has_large:
            return True
        self.out = [b"".join(self.out)]
        return len(self.out[0]) > TURN_BYTES

    def hold(self, seq: i64) -> None:
        """Hold the output until the journal's record `seq` is durable."""
        for held in self.take_out():
            self.gated.append((max(seq, 0), held))
            self.held_bytes += len(held)

    def take_out(self) -> list[bytes]:
        """The turn's output in one piece; large pieces are not copied."""
        out = self.out
        self.out = []
        if not self.has_large:
            return [b"".join(out)]
        self.has_large = False
        pieces: list[bytes] = []
        small: list[bytes] = []
        for part in out:
            if len(part) < LARGE_BYTES:
                small.append(part)
                continue
            pieces.append(b"".join(small))
            pieces.append(part)
            small = []
        pieces.append(b"".join(small))
        return pieces

    def release(self, durable_seq: i64) -> bool:
        """Release what waits for no later record; False when there is nothing."""
        gated = self.gated
        i: i64 = 0
        while i < len(gated) and gated[i][0] <= durable_seq:
            held = gated[i][1]
            self.wire.append(held)
            self.wire_bytes += len(held)
            self.held_bytes -= len(held)
            i += 1
        del gated[:i]
        return i > 0

    def forget(self) -> None:
        """Free the buffers of a closed connection."""
        self.wire = []
        self.gated = []
        self.out = []
