"""The bus as the pump sees it: links to other nodes, dialled and accepted (SPEC B, K3, K4).

Decides when bytes move: frames leave after the journal and before replies, a slow link holds
producers back, a link that breaks a rule is closed. cluster/members.py decides who belongs to
the cluster, whom to dial and which of two links stays; wire/ decodes.
"""

import errno
import socket
from collections.abc import Callable
from typing import Final, final

import msgspec
from mypy_extensions import i64

from tuque.cluster.members import Members, Refused
from tuque.core.dispatch.messages import on_message
from tuque.core.jobs.transitions import check
from tuque.core.msgs.bus import AnyMessage, Heartbeat, Refusal
from tuque.core.node.node import Node
from tuque.logtext import facts
from tuque.server.bus import reasons
from tuque.server.bus.figures import BusFigures
from tuque.server.bus.link import READ_BYTES, Link, prepare
from tuque.server.bus.lookups import Lookups
from tuque.server.log.notes import Bugs, log
from tuque.server.sockets.poller import IN, OUT, Poller
from tuque.server.sockets.resolver import is_literal
from tuque.server.sockets.system import System
from tuque.wire.bus import BusError, SealError
from tuque.wire.handshake import NONCE_BYTES, Conn
from tuque.wire.msgs.cards import Card

HEAR_READS: Final = 256  # per link at a time: 64 MiB
BATCH: Final = 64  # connections accepted per socket and turn
YOUNG_MAX: Final = 128  # concurrent handshakes; more connections are closed at once
HANDSHAKE_MS: Final = 2_000
FRAME_MAX: Final = (512 << 20) + (2 << 20)  # the largest body and what goes with it
REASON_MAX: Final = 200  # characters of the other end's refusal


@final
class Bus:
    """All links of a node; the pump's poller watches their sockets."""

    def __init__(
        self, n: Node, members: Members, poller: Poller, secrets: list[bytes], system: System
    ) -> None:
        self.n = n
        self.system = system
        self.members = members
        self.poller = poller
        self.secrets = secrets  # the first one proves this node, each is accepted (B1.6)
        self.filler = b""  # in the place of a secret; the simulator has one
        self.shut = ""  # why there are no links at all (B1.7)
        self.card: Card | None = None  # this node's identity, once the bus is open
        self.port: i64 = 0
        self.limit_bytes: i64 = 64 << 20  # bus-buffer-limit
        self.sockets: list[socket.socket] = []  # listening
        self.listeners: dict[int, socket.socket] = {}  # by descriptor, once the bus is open
        self.links: dict[int, Link] = {}  # by descriptor
        self.begun: i64 = 0  # number of links, dialled or accepted
        self.young: dict[int, Link] = {}  # in their handshake
        self.by_slot: dict[int, Link] = {}
        self.gate: list[Link] = []  # have frames waiting for the journal
        self.crowded: i64 = 0  # number of links without room for more copies
        self.resolver = system.open_resolver()
        self.lookups = Lookups(self.resolver)
        self.figures = BusFigures()
        self.bugs = Bugs()
        self.heard: i64 = 0  # messages except heartbeats since the pump last slept (C8.4)
        self.ear: Callable[[AnyMessage], None] | None = (
            None  # called with each message before the core
        )

    # ---- the pump's side

    def open(self) -> None:
        """Start to accept nodes and to dial known ones."""
        self.poller.add(self.resolver.wake_fd)
        for sock in self.sockets:
            self.listeners[sock.fileno()] = sock
            self.poller.add(sock.fileno())

    def on_ready(self, fd: i64, mask: i64) -> bool:
        """Handle a ready descriptor; False if it is not the bus's."""
        link = self.links.get(fd)
        if link is None:
            if fd in self.listeners:
                self.accept(fd)
            elif fd == self.resolver.wake_fd:
                self.on_names()
            else:
                return False
            return True
        if link.is_connecting:
            self.on_connected(link)
        elif mask & OUT:
            self.push(link)
        if mask & ~OUT and not link.is_closed:
            try:
                self.read(link)
            except Exception as error:
                self.on_bug(link, error)
        return True

    def next_ms(self) -> i64:
        """The instant at which `tick` next has work."""
        at_ms = self.members.next_ms()
        for link in self.young.values():
            if link.deadline_ms < at_ms:
                at_ms = link.deadline_ms
        return at_ms

    def tick(self) -> None:
        """Timers: slow handshakes, heartbeats, dialling."""
        if self.card is None:
            return
        now_ms = self.n.now_ms
        for link in list(self.young.values()):
            if link.deadline_ms <= now_ms:
                what = "no connection" if link.is_connecting else "no handshake"
                self.drop(link, f"{what} within 2 s")
        for host, port in self.members.tick(now_ms):
            self.dial(host, port)
        for line in self.members.meetings.take_failed():
            log.warning("CLUSTER MEET %(text)s", facts("meet_failed", text=line))
        self.close_stale()

    def close_stale(self) -> None:
        """Close links to nodes that are forgotten or silent for long."""
        stale = self.members.stale
        self.members.stale = []
        for slot in stale:
            link = self.by_slot.get(slot)
            if link is not None:
                self.drop(link, "silent for too long, or forgotten")

    def close_links(self, reason: str) -> None:
        """Close all links; known nodes are dialled again."""
        for link in list(self.links.values()):
            self.drop(link, reason)

    def take_secrets(self, secrets: list[bytes], shut: str) -> None:
        """[B1] Links under other secrets end (B1.6); `shut`: why there are none at all (B1.7)."""
        self.secrets = secrets
        self.shut = shut
        for link in list(self.links.values()):
            is_known = link.conn.secret in secrets if link.conn.is_sealed else len(secrets) == 0
            if shut or not is_known:
                self.drop(link, shut or reasons.GONE_SECRET)

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
        said: list[list[AnyMessage]] = []
        for peer in dirty:
            peer.is_dirty = False
            said.append(peer.outbox)
            peer.outbox = []
        # messages that the core adds because a link ends here go out in the next turn
        for i, peer in enumerate(dirty):
            messages = said[i]
            link = self.by_slot.get(peer.slot)
            if link is not None and len(messages) > 0:
                self.figures.said(messages)
                self.put(link, link.conn.encode(messages), seq)

    def put(self, link: Link, data: bytes, seq: i64) -> None:
        """Send in order; bytes that the socket does not take wait, within limits (C8.3)."""
        if seq >= 0 and len(link.gated) == 0:
            self.gate.append(link)
        link.put(data, seq)
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

    # ---- sockets

    def accept(self, fd: i64) -> None:
        """Accept waiting connections; each has 2 s for its handshake (B1.1)."""
        for _ in range(BATCH):
            try:
                sock, address = self.listeners[fd].accept()
            except BlockingIOError:
                return
            except OSError as error:
                reasons.say_not_accepted(self.n.now_ms, error)
                return
            if self.shut or (len(self.young) >= YOUNG_MAX and not self.make_room()):
                sock.close()
                self.figures.refused += 1
                continue
            self.figures.accepted += 1
            self.add(sock, f"{address[0]}:{address[1]}", address[0], ("", 0))

    def make_room(self) -> bool:
        """[L1] Close the oldest accepted connection in its handshake; False if there is none."""
        for link in self.young.values():
            if link.dialed[1] == 0:
                self.drop(link, reasons.OLDEST)
                return True
        return False

    def dial(self, host: str, port: i64) -> None:
        """Connect without blocking; a name is resolved first, in a thread."""
        if is_literal(host):
            self.connect(host, host, port)
        else:
            self.lookups.ask(host, port)

    def on_names(self) -> None:
        """Names are resolved: connect."""
        for host, port, address, error in self.lookups.take():
            if address:
                self.connect(address, host, port)
            else:
                self.members.meetings.fail(host, port, error)

    def connect(self, address: str, host: str, port: i64) -> None:
        """Dial an address; the handshake starts once it is connected."""
        if self.members.is_reached(address, port):
            self.members.meetings.end(host, port)
            return
        why = self.shut or reasons.why_not(len(self.secrets) > 0 or len(self.filler) > 0, address)
        if why:
            self.members.meetings.fail(host, port, why)
            return
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            sock = self.system.open_socket(family)
        except OSError as error:
            self.members.meetings.fail(host, port, error.strerror or str(error))
            return
        sock.setblocking(False)
        self.figures.dialed += 1
        reason = sock.connect_ex((address, port))
        if reason not in (0, errno.EINPROGRESS):
            sock.close()
            self.members.meetings.fail(host, port, reasons.why_unreached(reason))
            return
        link = self.add(sock, f"{address}:{port}", address, (host, port))
        link.is_connecting = True
        self.watch(link)

    def add(self, sock: socket.socket, address: str, host: str, dialed: tuple[str, int]) -> Link:
        """Start the handshake of a connection (B1.1)."""
        prepare(sock)
        card = self.card
        assert card is not None
        is_dialer = dialed[1] != 0
        if is_dialer and self.members.meetings.has(dialed[0], dialed[1]):
            card = msgspec.structs.replace(card, is_meeting=True)
        nonce = self.system.random(NONCE_BYTES)
        conn = Conn(is_dialer, card, self.secrets, nonce, FRAME_MAX, self.filler)
        link = Link(sock, conn, address, host, dialed, self.n.now_ms + HANDSHAKE_MS)
        self.begun += 1
        link.number = self.begun
        self.links[link.fd] = link
        self.young[link.fd] = link
        self.poller.add(link.fd)
        link.put(conn.take_out(), -1)
        if not is_dialer:
            self.push(link)
        return link

    def watch(self, link: Link) -> None:
        """Set the events that the poller watches."""
        self.poller.watch(link.fd, IN | OUT if link.wants_write or link.is_connecting else IN)

    def on_connected(self, link: Link) -> None:
        """The connect has succeeded or failed."""
        reason = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if reason != 0:
            self.drop(link, reasons.why_unreached(reason))
            return
        link.is_connecting = False
        self.watch(link)
        self.push(link)

    def hear_all(self) -> None:
        """[G8] Read all that links hold before anything else (G8.4)."""
        for link in list(self.links.values()):
            left = HEAR_READS
            while left > 0 and link.has_bytes():
                self.read(link)
                left -= 1

    def read(self, link: Link) -> None:
        """[B2] Read; handle each whole frame at once."""
        try:
            data = link.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            is_silent = error.errno == errno.ECONNRESET and not link.conn.theirs
            self.drop(link, reasons.SILENT if is_silent else error.strerror or str(error))
            return
        if len(data) == 0:
            self.drop(link, "closed by the other end" if link.conn.theirs else reasons.SILENT)
            return
        self.figures.in_bytes += len(data)
        try:
            messages = link.conn.feed(data)
        except BusError as broken:
            self.on_broken(link, broken)
            return
        except Exception as fault:  # B2.5: only the link has seen these bytes
            self.bugs.tell(self.n.now_ms, f"in the bytes of {link.address}", fault)
            self.on_broken(link, BusError("internal error"))
            return
        if link.slot < 0:
            out = link.conn.take_out()
            if len(out) > 0:
                self.put(link, out, -1)
            card = link.conn.peer
            if card is not None and not link.is_closed:
                if link.dialed[1] == 0:
                    self.join(link, card)
                elif len(messages) > 0:
                    self.on_first(link, card, messages[0])
        if len(messages) > 0 and not link.is_closed:
            self.hear(link, messages)

    def on_first(self, link: Link, card: Card, message: AnyMessage) -> None:
        """Handle the dialled node's first message: it accepts or refuses the link."""
        if isinstance(message, Refusal):
            self.figures.refused += 1
            self.drop(link, "".join([c for c in message.text[:REASON_MAX] if c.isprintable()]))
        else:
            self.join(link, card)

    def on_broken(self, link: Link, broken: BusError) -> None:
        """[B2] Malformed bytes end the link and are counted (B2.2, B2.7)."""
        if link.conn.is_sealed:
            self.put(link, link.conn.take_out(), -1)  # it may be told that its secret is wrong
        if isinstance(broken, SealError):
            self.figures.frames_refused += 1
        if link.slot < 0:
            self.figures.refused += 1
        else:
            self.figures.malformed += 1
        self.drop(link, str(broken))

    def join(self, link: Link, card: Card) -> None:
        """[K1] The other end has proved its identity: accept the link or refuse it (K1.2).

        The dialled node sends a heartbeat at once, or the refusal; the dialling one waits for it
        (B1.3).
        """
        host = card.host if card.host else link.host
        try:
            self.check_order(link, card.node_id)
            slot = self.members.on_joined(
                card.node_id,
                card.life,
                card.mark,
                card.is_empty,
                host,
                card.port,
                card.bus_port,
                link.dialed[1] != 0,
                link.dialed,
                card.is_meeting,
            )
        except Refused as error:
            self.figures.refused += 1
            if link.dialed[1] == 0:
                self.put(link, link.conn.encode([Refusal(str(error))]), -1)
            self.drop(link, str(error))
            return
        old = self.by_slot.get(slot)
        if old is not None:
            self.drop(old, "replaced by another link")
        del self.young[link.fd]
        link.slot = slot
        self.by_slot[slot] = link
        self.figures.joined += 1
        log.info(
            "bus: linked with %(peer)s at %(address)s",
            facts("bus_linked", peer=card.node_id[:8].decode(), address=link.address),
        )
        self.members.on_linked(slot)

    def check_order(self, link: Link, node_id: bytes) -> None:
        """[K1.2] Raise Refused if the same end dialled the current link later than this one."""
        one = self.members.by_id.get(node_id)
        if one is None:
            return
        old = self.by_slot.get(one.slot)
        if old is not None and old.conn.is_dialer == link.conn.is_dialer:
            if old.number > link.number:
                raise Refused("there is a later link already")

    def hear(self, link: Link, messages: list[AnyMessage]) -> None:
        """Handle the peer's messages in order."""
        self.figures.heard(messages)
        n = self.n
        slot = link.slot
        for message in messages:
            if type(message) is Heartbeat:  # isinstance would ask its metaclass
                self.members.on_heartbeat(slot, message)
            else:
                self.heard += 1
                if self.ear is not None:
                    self.ear(message)
                on_message(n, slot, message)

    def on_bug(self, link: Link, error: Exception) -> None:
        """[C3.12] The core failed on a peer's message: check the tables, then close the link."""
        self.bugs.tell(self.n.now_ms, f"in what {link.address} said", error)
        check(self.n)
        self.drop(link, "internal error")

    def push(self, link: Link) -> None:
        """Write what can be sent."""
        if link.is_connecting:
            return
        try:
            self.figures.out_bytes += link.push()
        except OSError as error:
            self.drop(link, error.strerror or str(error))
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
        if link.excess_bytes() > self.limit_bytes:
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

    def drop(self, link: Link, reason: str) -> None:
        """Close the link; the other end sees the end of the stream."""
        if link.is_closed:
            return
        del self.links[link.fd]
        self.poller.drop(link.fd)
        link.close()
        if link.slot < 0:
            self.young.pop(link.fd, None)
            where = link.address if link.dialed[1] != 0 else link.host
            reasons.say_not_linked(self.n.now_ms, where, reason)
            if link.dialed[1] != 0:
                self.members.meetings.fail(link.dialed[0], link.dialed[1], reason)
            return
        reasons.say_ended(self.n.now_ms, link.address, reason)
        peer = self.n.peers[link.slot]
        if not peer.has_room:
            peer.has_room = True
            self.crowded -= 1
        del self.by_slot[link.slot]
        self.members.on_unlinked(link.slot)

    def close(self) -> None:
        """Close all sockets; the kernel still sends what it has taken."""
        for link in list(self.links.values()):
            self.poller.drop(link.fd)
            link.close()
        self.links = {}
        self.by_slot = {}
        for sock in self.sockets:
            sock.close()
        self.resolver.close()
