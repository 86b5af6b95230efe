"""What leaves on the links: in order, after the journal, within limits (SPEC B2, C8).

Must not know: which nodes belong to the cluster, how links begin.
"""

from typing import final
from zlib import crc32

from mypy_extensions import i64

from tuque.cluster.member import FAILING
from tuque.core.msgs.bus import AnyMessage, Heartbeat
from tuque.core.node.node import Node
from tuque.core.node.peers import journal_fails
from tuque.server.bus import reasons
from tuque.server.bus.link import BusFigures, Link
from tuque.server.net.system import IN, OUT, Poller
from tuque.wire.bus.bus import (
    FRAME_BYTES,
    encoded,
    is_large,
    parts_of,
)


@final
class Packer:
    """Encodes a list of messages once, if several peers in a row get it."""

    def __init__(self) -> None:
        self.messages: list[AnyMessage] = []
        self.payload = b""
        self.total: i64 = -1  # its CRC-32, once a link asks for it

    def pack(self, messages: list[AnyMessage]) -> bytes:
        """The messages, encoded."""
        if not self.has_packed(messages):
            self.payload = encoded(messages)
            self.messages = messages
            self.total = -1
        return self.payload

    def checksum(self) -> i64:
        """The CRC-32 of what was packed last; each link adds its salt (B2.7)."""
        if self.total < 0:
            self.total = crc32(self.payload)
        return self.total

    def has_packed(self, messages: list[AnyMessage]) -> bool:
        """Whether these are the objects of the last time."""
        size: i64 = len(messages)
        if size != len(self.messages):
            return False
        for i in range(size):  # noqa: SIM110  mypyc compiles a loop well, and a generator not
            if messages[i] is not self.messages[i]:
                return False
        return True


class Sending:
    """The links and what waits in them; peers.py has the rest of the bus."""

    def __init__(self, n: Node, poller: Poller) -> None:
        self.n = n
        self.poller = poller
        self.limit_bytes: i64 = 64 << 20  # bus-buffer-limit
        self.links: dict[int, Link] = {}  # by descriptor
        self.by_slot: dict[int, Link] = {}
        self.gate: list[Link] = []  # have frames waiting for the journal
        self.crowded: i64 = 0  # number of links without room for more copies
        self.figures = BusFigures()
        self.round: i64 = 0  # of the last heartbeat that went past what waits

    def drop(self, link: Link, reason: str) -> None:
        """Close the link: the class above does it."""

    def watch(self, link: Link) -> None:
        """Set the events that the poller watches."""
        self.poller.watch(link.fd, IN | OUT if link.wants_write or link.is_connecting else IN)

    def waiting_bytes(self) -> i64:
        """Bytes waiting in all links."""
        total: i64 = 0
        for link in self.links.values():
            total += link.waiting_bytes
        return total

    def settle(self, seq: i64) -> None:
        """[C8] Send each node its messages of the turn, once `seq` is durable (C8.2)."""
        n = self.n
        dirty = n.dirty_peers
        if len(dirty) == 0:
            return
        n.dirty_peers = []
        has_large = n.has_large
        n.has_large = False
        said: list[list[AnyMessage]] = []
        for peer in dirty:
            peer.is_dirty = False
            said.append(peer.outbox)
            peer.outbox = []
        # messages that the core adds because a link ends here go out in the next turn
        packer = Packer()  # copies of a job are the same for all
        for i, peer in enumerate(dirty):
            messages = said[i]
            link = self.by_slot.get(peer.slot)
            if link is not None and len(messages) > 0:
                self.figures.said(messages)
                if has_large:
                    self.put_apart(link, messages, seq)
                else:
                    payload = packer.pack(messages)
                    needs_sum = not link.conn.is_sealed and len(payload) <= FRAME_BYTES
                    total = packer.checksum() if needs_sum else -1
                    self.put_all(link, messages, payload, seq, total)
        if journal_fails(n, 0) and self.round != n.round:
            self.round = n.round
            self.say_failing()

    def say_failing(self) -> None:
        """[K4] Tell those for whom messages wait that the journal fails (K4.5)."""
        payload = encoded([Heartbeat(0, 0, FAILING, 0, [])])
        for link in list(self.by_slot.values()):
            if len(link.gated) > 0:
                link.frame([payload], -1)
                self.go(link)

    def put_apart(self, link: Link, messages: list[AnyMessage], seq: i64) -> None:
        """[B2] Send them in order, each large copy in a frame of its own (B2.8)."""
        run: list[AnyMessage] = []
        for message in messages:
            if not is_large(message):
                run.append(message)
                continue
            if len(run) > 0:
                self.put_all(link, run, encoded(run), seq)
                run = []
            self.say(link, parts_of(message), -1, seq)
        if len(run) > 0:
            self.put_all(link, run, encoded(run), seq)

    def put_all(
        self, link: Link, messages: list[AnyMessage], payload: bytes, seq: i64, total: i64 = -1
    ) -> None:
        """[B2] Send messages, encoded already: as one frame unless they are large (B2.1, B2.8).

        `total`: the CRC-32 of the payload, -1: not known.
        """
        if len(payload) <= FRAME_BYTES or len(messages) == 1:
            self.say(link, [payload], total, seq)
        else:
            half = len(messages) // 2
            for some in (messages[:half], messages[half:]):
                self.put_all(link, some, encoded(some), seq)

    def say(self, link: Link, parts: list[bytes], total: i64, seq: i64) -> None:
        """Send in order; bytes that the socket does not take wait, within limits (C8.3)."""
        if seq >= 0 and len(link.gated) == 0:
            self.gate.append(link)
        link.say(parts, total, seq)
        self.go(link)

    def put(self, link: Link, data: bytes) -> None:
        """Send bytes of the handshake."""
        link.put(data)
        self.go(link)

    def go(self, link: Link) -> None:
        """Write if that is to be done now."""
        if link.is_closed:
            return
        if len(link.wire) > 0 and not link.wants_write:
            self.push(link)
        else:
            self.weigh(link)

    def release(self, durable_seq: i64) -> None:
        """Release frames whose records are durable."""
        gate = self.gate
        self.gate = []
        for link in gate:
            if link.release(durable_seq) and not link.wants_write:
                self.push(link)
            if len(link.gated) > 0:
                self.gate.append(link)

    def push(self, link: Link) -> None:
        """Write what can be sent."""
        if link.is_connecting:
            return
        try:
            self.figures.out_bytes += link.push()
        except OSError as error:
            self.drop(link, reasons.why_broken(error))
            return
        wants_write = len(link.wire) > 0
        if wants_write != link.wants_write:
            link.wants_write = wants_write
            self.watch(link)
        self.weigh(link)

    def weigh(self, link: Link) -> None:
        """[B2] Too many waiting bytes: no new copies for the peer, or close the link (B2.4)."""
        if link.is_closed:
            return
        if link.waiting_bytes > self.limit_bytes and link.excess_bytes() > self.limit_bytes:
            self.figures.overfull += 1
            self.drop(link, f"{link.waiting_bytes} bytes wait to be sent")
            return
        if link.slot < 0:
            return
        peer = self.n.peers[link.slot]
        has_room = link.waiting_bytes * 4 <= self.limit_bytes
        if has_room != peer.has_room:
            peer.has_room = has_room
            self.crowded += -1 if has_room else 1
