"""The socket of a link to another node: frames in order, and traffic counters (SPEC B2, S8).

wire/bus/handshake.py and wire/bus/bus.py define the bytes, server/bus/peers.py decides which node
they are for. Frames keep their order; each may wait for a journal record.
"""

import errno
import os
import socket
from collections.abc import Callable
from typing import Final, cast, final

from mypy_extensions import i64

from tuque.core.msgs.bus import LARGE_BODY, AnyMessage
from tuque.server.bus.handshaking import Handshaking, PendingLink
from tuque.server.bus.reasons import why_unreached
from tuque.server.config.kinds import KEEP_ALIVE_S
from tuque.server.net.listen import tune
from tuque.server.net.system import Poller, System
from tuque.tlsstream import TlsStream
from tuque.wire.bus.bus import FRAME_BYTES
from tuque.wire.bus.handshake import Conn
from tuque.wire.bus.seal import Head

READ_BYTES: Final = 262_144
PUSH_BYTES: Final = 1 << 20  # most bytes written per turn
SMALL_BYTES: Final = 65_536  # smaller waiting frames are joined
NEAR: Final = 4  # the large piece of the first frame is among the first 4

# As a client's: a plain socket is read and written as a file, which takes its arguments faster.
_READ: Final[Callable[[int, int], bytes]] = os.read
_WRITE: Final[Callable[[int, bytes], int]] = os.write


def prepare(sock: socket.socket, now_ms: int) -> None:
    """Set what each connection between nodes has."""
    sock.setblocking(False)
    tune(sock, KEEP_ALIVE_S, now_ms)


def dial(system: System, address: str, port: i64) -> socket.socket:
    """A socket that connects to the address, without waiting for it. Raises OSError."""
    sock = system.open_socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    sock.setblocking(False)
    reason = sock.connect_ex((address, port))
    if reason not in (0, errno.EINPROGRESS):
        sock.close()
        raise OSError(reason, why_unreached(reason))
    return sock


def first_bytes(pieces: list[bytes]) -> i64:
    """The size of the first frame: of the first piece, or up to the large one near it (B2.8)."""
    size: i64 = 0
    for i in range(min(NEAR, len(pieces))):
        size += len(pieces[i])
        if len(pieces[i]) >= LARGE_BODY:
            return size
        if len(pieces[i]) > SMALL_BYTES:
            break
    return len(pieces[0])


@final
class HeldFrame:
    """The payload of a frame that waits for a record: it gets its code when it leaves."""

    def __init__(self, seq: i64, parts: list[bytes], total: i64) -> None:
        self.seq = seq
        self.parts = parts
        self.total = total  # its CRC-32; -1: not known
        self.size: i64 = 0
        for part in parts:
            self.size += len(part)


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
        self.is_plain = type(sock) is socket.socket
        self.conn = conn
        self.fd: i64 = sock.fileno()
        self.address = address  # host:port of the other end, for the log
        self.host = host  # where other nodes can reach it
        self.dialed = dialed  # requested address; ("", 0): the link was accepted
        self.deadline_ms = deadline_ms  # of the handshake
        self.is_connecting = False  # not connected yet, or in the TLS handshake
        # the TLS handshake, while its thread has the socket
        self.pending_link: PendingLink | None = None
        self.tls: TlsStream | None = None  # then it is `sock`, too
        self.is_tls = False
        self.is_closed = False
        self.slot: i64 = -1  # of the peer, once known
        self.has_met = False  # what must not clash is said (K3.4)
        self.number: i64 = 0  # order of creation
        self.gated: list[HeldFrame] = []  # in their order
        self.wire: list[bytes] = []  # can be sent, not taken by the socket yet
        self.wire_at: i64 = 0  # bytes taken of the first of them
        self.heads: list[Head] = []  # of large frames; an empty piece is in the place of each
        self.waiting_bytes: i64 = 0  # of both
        self.wants_write = False

    def take_over(self, pending_link: PendingLink) -> None:
        """[B1] Its TLS handshake is over (B1.8)."""
        self.tls = pending_link.stream
        # it has all that a link asks of its socket
        self.sock = cast(socket.socket, pending_link.stream)
        self.is_plain = False
        self.is_tls = True

    def has_early(self) -> bool:
        """Whether bytes came with the end of the TLS handshake: no event will announce them."""
        return self.tls is not None and self.tls.has_early

    def words_of_tls(self) -> str:
        """How it is protected, for the log."""
        return "" if self.tls is None else f" over {self.tls.version()}"

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

    def put(self, data: bytes) -> None:
        """The next piece of the wire."""
        if len(data) > 0:
            self.waiting_bytes += len(data)
            self.wire.append(data)

    def say(self, parts: list[bytes], total: i64, seq: i64) -> None:
        """Send a payload in order, and not before journal record `seq` is durable."""
        if seq < 0 and len(self.gated) == 0:
            self.frame(parts, total)
            return
        held = HeldFrame(max(seq, 0), parts, total)
        self.waiting_bytes += held.size
        self.gated.append(held)

    def frame(self, parts: list[bytes], total: i64) -> None:
        """The next frame; the head of a large one is made when its turn comes (B2.8)."""
        if len(parts) == 1 and len(parts[0]) <= FRAME_BYTES:
            self.put(self.conn.frame(parts[0], total))
            return
        self.heads.append(self.conn.head(parts))
        self.wire.append(b"")
        for part in parts:
            self.put(part)

    def release(self, durable_seq: i64) -> bool:
        """Move frames whose record is durable to the wire; False if there are none."""
        gated = self.gated
        i: i64 = 0
        while i < len(gated) and gated[i].seq <= durable_seq:
            held = gated[i]
            self.waiting_bytes -= held.size
            self.frame(held.parts, held.total)
            i += 1
        del gated[:i]
        return i > 0

    def push(self) -> i64:
        """Write as much as the socket takes; returns the bytes written. Raises OSError."""
        wire = self.wire
        done: i64 = 0
        while len(wire) > 0 and done < PUSH_BYTES:
            if len(wire[0]) == 0 and not self.make_head():
                break
            if self.wire_at == 0 and len(wire) > 1 and len(wire[0]) < SMALL_BYTES:
                self.join_small()
            try:
                sent = self.give(wire[0])
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

    def receive(self) -> bytes:
        """Read once, up to READ_BYTES; empty at the end of the stream. Raises OSError."""
        if self.is_plain and not self.is_closed:  # a closed one's number may be another's
            return _READ(self.fd, READ_BYTES)
        return self.sock.recv(READ_BYTES)

    def give(self, frame: bytes) -> i64:
        """Write the rest of a frame; returns the bytes that the socket took. Raises OSError."""
        if self.wire_at == 0 and self.is_plain and not self.is_closed:
            return _WRITE(self.fd, frame)
        return self.sock.send(memoryview(frame)[self.wire_at :])

    def make_head(self) -> bool:
        """[B2] The next step of the head in front; whether it can be sent (B2.8)."""
        head = self.heads[0].step()
        if len(head) == 0:
            return False
        del self.heads[0]
        self.wire[0] = head
        self.waiting_bytes += len(head)
        return True

    def join_small(self) -> None:
        """Join the next small frames into one."""
        wire = self.wire
        size: i64 = len(wire[0])
        count: i64 = 1
        while count < len(wire) and 0 < len(wire[count]) <= SMALL_BYTES - size:
            size += len(wire[count])
            count += 1
        if count > 1:
            wire[:count] = [b"".join(wire[:count])]

    def excess_bytes(self) -> i64:
        """Bytes waiting behind the first frame: that one may have any size."""
        if len(self.wire) > 0:
            return self.waiting_bytes - first_bytes(self.wire) + self.wire_at
        if len(self.gated) > 0:
            pieces: list[bytes] = []
            for held in self.gated[:NEAR]:
                pieces += held.parts
            return self.waiting_bytes - first_bytes(pieces)
        return 0

    def is_under(self, secrets: list[bytes]) -> bool:
        """[B1] Whether it may stay when these are the secrets (B1.6)."""
        return self.conn.secret in secrets if self.conn.is_sealed else len(secrets) == 0

    def close(self, shaking: Handshaking | None, poller: Poller) -> None:
        """Close the socket and drop waiting frames."""
        self.is_closed = True
        if self.pending_link is not None and shaking is not None:
            shaking.end(self.pending_link)
        else:
            poller.drop(int(self.fd))
            self.sock.close()
        self.wire = []
        self.heads = []
        self.gated = []
        self.waiting_bytes = 0


# ---- Traffic counters, for INFO (SPEC S8)


@final
class BusFigures:
    """Counters since the start; RESETSTAT clears them."""

    def __init__(self) -> None:
        self.in_bytes: i64 = 0
        self.out_bytes: i64 = 0
        self.in_frames: i64 = 0
        self.out_frames: i64 = 0
        self.in_messages: dict[type[AnyMessage], int] = {}
        self.out_messages: dict[type[AnyMessage], int] = {}
        self.accepted: i64 = 0
        self.dialed: i64 = 0
        self.joined: i64 = 0  # handshakes completed
        self.refused: i64 = 0  # handshakes that failed: secret, version, time, identity
        self.malformed: i64 = 0  # links closed for malformed input
        self.frames_refused: i64 = 0  # frames with a wrong code: forged, repeated, moved
        self.overfull: i64 = 0  # links closed for a full send buffer

    def heard(self, messages: list[AnyMessage]) -> None:
        """Count received messages."""
        self.in_frames += 1
        count(self.in_messages, messages)

    def said(self, messages: list[AnyMessage]) -> None:
        """Count the messages of a frame given to a link."""
        self.out_frames += 1
        count(self.out_messages, messages)


def count(counts: dict[type[AnyMessage], int], messages: list[AnyMessage]) -> None:
    """Add the messages to the counts of their kinds."""
    last: type[AnyMessage] | None = None
    many: i64 = 0
    for message in messages:
        kind = type(message)
        if kind is not last:
            if last is not None:
                counts[last] = counts.get(last, 0) + int(many)
            last = kind
            many = 0
        many += 1
    if last is not None:
        counts[last] = counts.get(last, 0) + int(many)
