"""A connection of either protocol: output bytes, and the gate of the journal (C8).

It knows neither what the bytes mean nor which peer is at the other end.
"""

import socket
from typing import Final

from mypy_extensions import i64

LARGE_BYTES: Final = 262_144  # a larger part of a reply is not copied
SMALL_BYTES: Final = 65_536  # waiting replies below it are sent together
MANY_PIECES: Final = 1_024  # replies of one turn in so many pieces are worth a count
SHORT_READ: Final = 479  # with the head of a bytes object 512, which Python allocates quickly
READ_BYTES: Final = 65_536
SHORT_READS: Final = 8  # in a row, before a connection that sent much is read in short pieces
TURN_BYTES: Final = 1 << 20  # replies of one turn beyond it: the rest of the requests waits


def join_small(wire: list[bytes]) -> None:
    """Put small pieces at the head together."""
    count: i64 = 0
    while count < 64 and count < len(wire) and len(wire[count]) < SMALL_BYTES:
        count += 1
    if count > 1:
        wire[:count] = [b"".join(wire[:count])]


class Connection:
    """One socket. Numbers rise for ever, so that a late event never hits a newer connection."""

    def __init__(self, number: i64, sock: socket.socket, address: str, now_ms: i64) -> None:
        self.number = number
        self.sock = sock
        self.fd: i64 = sock.fileno()
        self.address = address  # ip:port, or unix:path
        self.out: list[bytes] = []  # produced in this turn
        self.has_large = False  # a part of it is large
        self.gated: list[tuple[int, bytes]] = []  # wait for a journal sequence number
        self.wire: list[bytes] = []  # may be sent, the socket did not take it yet
        self.wire_at: i64 = 0  # bytes of the first of them that it took
        self.wire_bytes: i64 = 0
        self.held_bytes: i64 = 0  # of `gated`
        self.is_dirty = False  # stands in server.dirty
        self.wants_write = False  # waits for the socket to take more
        self.soft_since_ms: i64 = 0  # above the soft output limit since then
        self.half_since_ms: i64 = 0  # half a request lies here since then
        self.ctime_ms = now_ms
        self.last_ms = now_ms
        self.is_full = False  # not read from: too much waits already
        self.is_closing = False  # close once everything is written
        self.is_closed = False
        self.lingers = False  # closed only when the other end had the time to read why (C2.10)
        self.ask: i64 = SHORT_READ  # bytes to read at once
        self.short_reads: i64 = 0  # in a row
        self.has_ended = False  # sends no more, and is still owed replies

    def is_waiting(self) -> bool:
        """Whether an answer waits for something that others do."""
        return False

    def is_busy(self) -> bool:
        """Whether a command of it is being done, in slices."""
        return False

    def chore_bytes(self) -> i64:
        """Memory of a reply that is being made."""
        return 0

    def unread_bytes(self) -> i64:
        """Memory of what was read and not run yet, about."""
        return 0

    def receive(self, most: i64) -> bytes:
        """Read what came, up to `most` bytes or 64 KB; empty at the end. Raises OSError."""
        if most < self.ask:
            return self.sock.recv(most)
        data = self.sock.recv(self.ask)
        if self.ask == SHORT_READ:
            return data if len(data) < SHORT_READ else self.read_on(data, most)
        self.short_reads = self.short_reads + 1 if len(data) < SHORT_READ else 0
        if self.short_reads == SHORT_READS:
            self.ask = SHORT_READ
        return data

    def read_on(self, data: bytes, most: i64) -> bytes:
        """Much comes: read the rest of it too."""
        self.ask = READ_BYTES
        self.short_reads = 0
        try:
            return data + self.sock.recv(most)
        except OSError:  # nothing more came, or it says so again next time
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
        """Whether this turn produced so much that the rest of the requests had better wait."""
        if len(self.out) < MANY_PIECES:
            return False
        if self.has_large:
            return True
        self.out = [b"".join(self.out)]
        return len(self.out[0]) > TURN_BYTES

    def hold(self, seq: i64) -> None:
        """Keep what was produced until the journal's record `seq` is durable."""
        for held in self.take_out():
            self.gated.append((max(seq, 0), held))
            self.held_bytes += len(held)

    def take_out(self) -> list[bytes]:
        """What the turn produced, in one piece; large parts of it are not copied."""
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
        """Let what waits for no later record be written; False when there is nothing."""
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
        """Free what a closed connection still holds."""
        self.wire = []
        self.gated = []
        self.out = []
