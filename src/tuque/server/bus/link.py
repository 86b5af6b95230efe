"""The socket of a link to another node: frames to be sent, in order, and their size.

wire/handshake.py and wire/bus.py define the bytes, server/bus/peers.py decides whom they are
for. Frames keep their order; each may wait for a journal record.
"""

import socket
from typing import Final, final

from mypy_extensions import i64

from tuque.wire.handshake import Conn

READ_BYTES: Final = 262_144
PUSH_BYTES: Final = 1 << 20  # most bytes written per turn
SMALL_BYTES: Final = 65_536  # smaller waiting frames are joined


def prepare(sock: socket.socket) -> None:
    """Set what each connection between nodes has."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


@final
class Link:
    """A connection to another node, or one being set up."""

    def __init__(
        self,
        sock: socket.socket,
        conn: Conn,
        address: str,
        host: str,
        dialed: tuple[str, int],
        deadline_ms: i64,
    ) -> None:
        self.sock = sock
        self.conn = conn
        self.fd: i64 = sock.fileno()
        self.address = address  # host:port of the other end, for the log
        self.host = host  # where other nodes can reach it
        self.dialed = dialed  # requested address; ("", 0): the link was accepted
        self.deadline_ms = deadline_ms  # of the handshake
        self.is_connecting = False  # dialled, not connected yet
        self.is_closed = False
        self.slot: i64 = -1  # of the peer, once known
        self.number: i64 = 0  # order of creation
        self.gated: list[tuple[int, bytes]] = []  # wait for a journal sequence number
        self.wire: list[bytes] = []  # can be sent, not taken by the socket yet
        self.wire_at: i64 = 0  # bytes taken of the first of them
        self.waiting_bytes: i64 = 0  # of both
        self.wants_write = False

    def has_bytes(self) -> bool:
        """Whether a read would return now, even with the end of the stream."""
        if self.is_closed or self.is_connecting:
            return False
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the read reports the error
        return True

    def put(self, data: bytes, seq: i64) -> None:
        """Send in order, and not before journal record `seq` is durable."""
        self.waiting_bytes += len(data)
        if seq >= 0 or len(self.gated) > 0:
            self.gated.append((max(seq, 0), data))
        else:
            self.wire.append(data)

    def release(self, durable_seq: i64) -> bool:
        """Move frames whose record is durable to the wire; False if there are none."""
        gated = self.gated
        i: i64 = 0
        while i < len(gated) and gated[i][0] <= durable_seq:
            self.wire.append(gated[i][1])
            i += 1
        del gated[:i]
        return i > 0

    def push(self) -> i64:
        """Write as much as the socket takes; returns the bytes written. Raises OSError."""
        wire = self.wire
        done: i64 = 0
        while len(wire) > 0 and done < PUSH_BYTES:
            if self.wire_at == 0 and len(wire) > 1 and len(wire[0]) < SMALL_BYTES:
                self.join_small()
            try:
                sent: i64 = self.sock.send(memoryview(wire[0])[self.wire_at :])
            except BlockingIOError:
                break
            done += sent
            self.wire_at += sent
            if self.wire_at < len(wire[0]):
                break  # the socket is full
            self.wire_at = 0
            del wire[0]
        self.waiting_bytes -= done
        return done

    def join_small(self) -> None:
        """Join the next small frames into one."""
        wire = self.wire
        size: i64 = len(wire[0])
        count: i64 = 1
        while count < len(wire) and size + len(wire[count]) <= SMALL_BYTES:
            size += len(wire[count])
            count += 1
        if count > 1:
            wire[:count] = [b"".join(wire[:count])]

    def excess_bytes(self) -> i64:
        """Bytes waiting behind the first frame: that one may have any size."""
        if len(self.wire) > 0:
            return self.waiting_bytes - len(self.wire[0]) + self.wire_at
        if len(self.gated) > 0:
            return self.waiting_bytes - len(self.gated[0][1])
        return 0

    def close(self) -> None:
        """Close the socket and drop waiting frames."""
        self.is_closed = True
        self.sock.close()
        self.wire = []
        self.gated = []
        self.waiting_bytes = 0
