"""The socket of a link to another node: what waits to be sent, in order, and how much.

What the bytes mean is for wire/handshake.py and wire/bus.py, whose they are for
server/bus/peers.py. Frames keep their order; each may wait for a record of the journal.
"""

import socket
from typing import Final, final

from mypy_extensions import i64

from tuque.wire.handshake import Conn

READ_BYTES: Final = 262_144
PUSH_BYTES: Final = 1 << 20  # written at the most in one turn
SMALL_BYTES: Final = 65_536  # waiting frames below it are sent together


@final
class Link:
    """One connection to another node, or one that may become such."""

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
        self.host = host  # where other nodes may find it
        self.dialed = dialed  # what was asked for; ("", 0): it came by itself
        self.deadline_ms = deadline_ms  # the handshake must be done by then
        self.is_connecting = False  # dialled, and not answered yet
        self.is_closed = False
        self.slot: i64 = -1  # of the peer, once it is known
        self.number: i64 = 0  # in the order in which links were begun
        self.gated: list[tuple[int, bytes]] = []  # wait for a journal sequence number
        self.wire: list[bytes] = []  # may be sent, the socket did not take it yet
        self.wire_at: i64 = 0  # bytes of the first of them that it took
        self.waiting_bytes: i64 = 0  # of both
        self.wants_write = False

    def has_bytes(self) -> bool:
        """Whether a read would give something now, be it the end."""
        if self.is_closed or self.is_connecting:
            return False
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the read will say what is wrong
        return True

    def put(self, data: bytes, seq: i64) -> None:
        """Send after all before it, and not before the journal's record `seq` is durable."""
        self.waiting_bytes += len(data)
        if seq >= 0 or len(self.gated) > 0:
            self.gated.append((max(seq, 0), data))
        else:
            self.wire.append(data)

    def release(self, durable_seq: i64) -> bool:
        """Let what waits for no later record be sent; False when there is nothing."""
        gated = self.gated
        i: i64 = 0
        while i < len(gated) and gated[i][0] <= durable_seq:
            self.wire.append(gated[i][1])
            i += 1
        del gated[:i]
        return i > 0

    def push(self) -> i64:
        """Write of what may be sent as much as the socket takes; how much. Raises OSError."""
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
        """Make one of the small frames that are next."""
        wire = self.wire
        size: i64 = len(wire[0])
        count: i64 = 1
        while count < len(wire) and size + len(wire[count]) <= SMALL_BYTES:
            size += len(wire[count])
            count += 1
        if count > 1:
            wire[:count] = [b"".join(wire[:count])]

    def excess_bytes(self) -> i64:
        """What waits behind the first frame: that one alone may be as large as it is."""
        if len(self.wire) > 0:
            return self.waiting_bytes - len(self.wire[0]) + self.wire_at
        if len(self.gated) > 0:
            return self.waiting_bytes - len(self.gated[0][1])
        return 0

    def close(self) -> None:
        """Close the socket; what waits is dropped."""
        self.is_closed = True
        self.sock.close()
        self.wire = []
        self.gated = []
        self.waiting_bytes = 0
