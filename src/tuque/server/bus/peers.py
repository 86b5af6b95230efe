"""The bus as the pump sees it: links to other nodes, dialled and accepted (SPEC B, K3, K4, L1).

Decides when bytes move: frames leave after the journal and before replies, a slow link holds
producers back, a link that breaks a rule is closed. cluster/members.py decides which nodes belong
to the cluster, which to dial and which of two links stays; wire/ decodes.
"""

import errno
import socket
from collections.abc import Callable
from typing import Final, final

import msgspec
from mypy_extensions import i64

from tuque.cluster.duplicate_ids import Refused
from tuque.cluster.members import Members
from tuque.core.dispatch.messages import on_message
from tuque.core.msgs.bus import AnyMessage, Belongings, Heartbeat, Refusal
from tuque.core.node.node import Node
from tuque.core.queues.procedures import check
from tuque.logtext import facts
from tuque.server.bus import reasons
from tuque.server.bus.handshaking import Handshaking
from tuque.server.bus.link import Link, dial, prepare
from tuque.server.bus.reasons import Lookups
from tuque.server.bus.sending import Sending
from tuque.server.log.log import Bugs, log
from tuque.server.net.resolver import is_literal
from tuque.server.net.system import OUT, Poller, System
from tuque.tubes.election.voters import belongings, clash
from tuque.tubes.policy import tubes_of
from tuque.wire.bus.bus import BusError, SealError
from tuque.wire.bus.card import NONCE_BYTES, WANTED_MAX, Card
from tuque.wire.bus.handshake import Conn

YOUNG_MAX: Final = 128  # at a time
YOUNG_TLS_MAX: Final = 512  # with TLS, whose handshakes take longer
MET_MAX: Final = 1_000
COME_MAX: Final = 50  # connections of a stranger's address in COME_MS
COME_MS: Final = 100

HEAR_READS: Final = 256  # per link at a time: 64 MiB
BATCH: Final = 64  # connections accepted per socket and turn
HANDSHAKE_MS: Final = 2_000
FRAME_MAX: Final = (512 << 20) + (2 << 20)  # the largest body and what goes with it
REASON_MAX: Final = 200  # characters of the other end's refusal


# ---- Connections in their handshake, and which of them makes room (SPEC L1)
#
# A stranger who opens many makes room himself: the address that has the most of them loses its
# oldest one. Addresses of members come last, so a flood from elsewhere keeps no node out.


@final
class Unauthenticated:
    """The links that nobody has proved yet, in the order of their creation."""

    def __init__(self) -> None:
        self.links: dict[int, Link] = {}  # by descriptor
        self.accepted: dict[str, int] = {}  # of an address, those that it dialled
        self.met: dict[str, None] = {}  # addresses that this node has dialled
        self.came: dict[str, int] = {}  # connections of an address, until `came_ms`
        self.came_ms: i64 = 0

    def __len__(self) -> int:
        return len(self.links)

    def add(self, link: Link) -> None:
        """Its handshake begins."""
        self.links[link.fd] = link
        if link.dialed[1] == 0:
            self.accepted[link.host] = self.accepted.get(link.host, 0) + 1

    def drop(self, link: Link) -> None:
        """It is over, or the link is closed."""
        if self.links.pop(link.fd, None) is None or link.dialed[1] != 0:
            return
        left = self.accepted[link.host] - 1
        if left > 0:
            self.accepted[link.host] = left
        else:
            del self.accepted[link.host]

    def late_ms(self) -> i64:
        """When the time of the first one is over; -1: there is none."""
        for link in self.links.values():
            return link.deadline_ms  # all have as long, so the oldest is the first
        return -1

    def late(self, now_ms: i64) -> list[Link]:
        """Those whose time is over."""
        found: list[Link] = []
        for link in self.links.values():
            if link.deadline_ms > now_ms:
                break
            found.append(link)
        return found

    def meet(self, address: str) -> None:
        """This node dials that address: whoever comes from there may be a member."""
        self.met.pop(address, None)
        self.met[address] = None
        if len(self.met) > MET_MAX:
            del self.met[next(iter(self.met))]

    def is_near(self, address: str) -> bool:
        """Whether a member is at that address, as far as this node knows."""
        return address in self.met

    def may_come(self, address: str, now_ms: i64) -> bool:
        """[B1] Whether another connection from that address may go on (B1.9)."""
        if self.is_near(address):
            return True
        if now_ms >= self.came_ms:
            self.came_ms = now_ms + COME_MS
            self.came = {}
        count = self.came.get(address, 0)
        if count >= COME_MAX:
            return False
        self.came[address] = count + 1
        return True

    def is_full(self, is_tls: bool) -> bool:
        """Whether one must go before another one may come."""
        most: i64 = YOUNG_TLS_MAX if is_tls else YOUNG_MAX
        return len(self.links) >= most

    def crowded(self) -> str:
        """The address that has the most of them, of members only if there is no other one."""
        found = ""
        most: i64 = 0
        for address, count in self.accepted.items():
            size: i64 = count - (1 << 32 if self.is_near(address) else 0)
            if found == "" or size > most:
                found = address
                most = size
        return found

    def oldest(self) -> Link | None:
        """[L1] The accepted connection that makes room; None: there is none."""
        host = self.crowded()
        for link in self.links.values():
            if link.dialed[1] == 0 and link.host == host:
                return link
        return None


# ---- All links


@final
class Bus(Sending):
    """All links of a node; the pump's poller watches their sockets."""

    def __init__(
        self, n: Node, members: Members, poller: Poller, secrets: list[bytes], system: System
    ) -> None:
        super().__init__(n, poller)
        self.system = system
        self.members = members
        self.secrets = secrets  # the first one proves this node, each is accepted (B1.6)
        self.filler = b""  # in the place of a secret; the simulator has one
        self.shut = ""  # why there are no links at all (B1.7)
        self.is_tls = False  # links speak TLS (B1.8)
        self.shaking: Handshaking | None = None  # does their handshakes
        self.card: Card | None = None  # this node's identity, once the bus is open
        self.port: i64 = 0
        self.sockets: list[socket.socket] = []  # listening
        self.listeners: dict[int, socket.socket] = {}  # by descriptor, once the bus is open
        self.begun: i64 = 0  # number of links, dialled or accepted
        self.unauthenticated = Unauthenticated()  # in their handshake
        self.resolver = system.open_resolver()
        self.lookups = Lookups(self.resolver)
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
        late_ms = self.unauthenticated.late_ms()
        return late_ms if 0 <= late_ms < at_ms else at_ms

    def tick(self) -> None:
        """Timers: slow handshakes, heartbeats, dialling."""
        if self.card is None:
            return
        now_ms = self.n.now_ms
        for link in self.unauthenticated.late(now_ms):
            what = "no connection" if link.is_connecting else "no handshake"
            what = what if link.pending_link is None else "no TLS handshake"
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
            if shut or not link.is_under(secrets):
                self.drop(link, shut or reasons.GONE_SECRET)

    def is_guarded(self) -> bool:
        """[B1] Whether it may link with nodes of other machines (B1.1, B1.8)."""
        return len(self.secrets) > 0 or len(self.filler) > 0 or self.is_tls

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
            if not self.unauthenticated.may_come(address[0], self.n.now_ms):
                sock.close()
                self.figures.refused += 1
                reasons.say_not_linked(self.n.now_ms, address[0], reasons.TOO_OFTEN)
                continue
            if self.shut or (self.unauthenticated.is_full(self.is_tls) and not self.make_room()):
                sock.close()
                self.figures.refused += 1
                continue
            self.figures.accepted += 1
            self.add(sock, f"{address[0]}:{address[1]}", address[0], ("", 0))

    def make_room(self) -> bool:
        """[L1] Close the accepted connection that makes room; False if there is none."""
        link = self.unauthenticated.oldest()
        if link is None:
            return False
        self.drop(link, reasons.OLDEST)
        return True

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
        why = self.shut or reasons.why_not(self.is_guarded(), address)
        if why:
            self.members.meetings.fail(host, port, why)
            return
        self.figures.dialed += 1
        self.unauthenticated.meet(address)
        try:
            sock = dial(self.system, address, port)
        except OSError as error:
            self.members.meetings.fail(host, port, error.strerror or str(error))
            return
        link = self.add(sock, f"{address}:{port}", address, (host, port))
        link.is_connecting = True
        self.watch(link)

    def add(self, sock: socket.socket, address: str, host: str, dialed: tuple[str, int]) -> Link:
        """Start the handshake of a connection (B1.1)."""
        prepare(sock, self.n.now_ms)
        card = self.card
        assert card is not None
        is_dialer = dialed[1] != 0
        if is_dialer and self.members.meetings.has(dialed[0], dialed[1]):
            card = msgspec.structs.replace(card, is_meeting=True)
        elif is_dialer:
            known = self.members.known_at(dialed[0], dialed[1])
            card = msgspec.structs.replace(card, wanted=known[:WANTED_MAX])
        nonce = self.system.random(NONCE_BYTES)
        conn = Conn(is_dialer, card, self.secrets, nonce, FRAME_MAX, self.filler)
        link = Link(sock, conn, address, host, dialed, self.n.now_ms + HANDSHAKE_MS)
        self.begun += 1
        link.number = self.begun
        self.links[link.fd] = link
        self.unauthenticated.add(link)
        link.put(conn.take_out())
        if is_dialer or not self.is_tls:
            self.poller.add(link.fd)
        if not is_dialer:
            self.greet(link)
        return link

    def greet(self, link: Link) -> None:
        """It is connected: begin TLS, or else the handshake of the bus."""
        if self.shaking is not None:
            link.is_connecting = True
            is_dialer = link.dialed[1] != 0
            is_near = is_dialer or self.unauthenticated.is_near(link.host)
            link.pending_link = self.shaking.begin(link.sock, is_dialer, is_near, link.host)
        elif self.is_tls:
            self.drop(link, "TLS is not ready")
        else:
            self.push(link)

    def on_shaken(self) -> None:
        """[B1] TLS handshakes are over (B1.8)."""
        shaking = self.shaking
        assert shaking is not None
        for pending_link in shaking.take():
            if pending_link.is_gone:
                pending_link.close()
                continue
            link = self.links[pending_link.fd]
            link.pending_link = None
            link.is_connecting = False
            self.poller.add(link.fd)
            if pending_link.error is not None:
                self.figures.refused += 1
                self.drop(link, reasons.why_broken(pending_link.error))
                continue
            link.take_over(pending_link)
            self.push(link)
            if link.has_early() and not link.is_closed:
                self.read(link)
        if shaking.has_new():
            self.close_links(reasons.NEW_CERTIFICATES)

    def on_connected(self, link: Link) -> None:
        """The connect has succeeded or failed."""
        reason = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if reason != 0:
            self.drop(link, reasons.why_unreached(reason))
            return
        link.is_connecting = False
        if self.is_tls:
            self.poller.drop(link.fd)
        else:
            self.watch(link)
        self.greet(link)

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
            data = link.receive()
        except BlockingIOError:
            return
        except OSError as error:
            is_silent = error.errno == errno.ECONNRESET and not link.conn.theirs
            self.drop(link, reasons.SILENT if is_silent else reasons.why_broken(error))
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
                self.put(link, out)
            card = link.conn.peer
            if card is not None and not link.is_closed:
                if len(messages) > 0 and isinstance(messages[0], Belongings):
                    self.on_belongings(link, card, messages[0])
                    messages = messages[1:]
                elif link.dialed[1] == 0:
                    self.greet_or_join(link, card)
                elif len(messages) > 0:
                    self.on_first(link, card, messages[0])
        if len(messages) > 0 and not link.is_closed:
            if link.slot < 0:
                self.drop(link, "it spoke before it was a member")
                return
            self.hear(link, messages)

    def greet_or_join(self, link: Link, card: Card) -> None:
        """[K3] A node dialled: a stranger that meets this one hears what must not clash (K3.4)."""
        if card.is_meeting and not self.members.is_member(card.node_id):
            if not link.has_met:
                link.has_met = True
                self.put(link, link.conn.encode([belongings(self.n, tubes_of(self.n))]))
            return
        self.join(link, card)

    def on_belongings(self, link: Link, card: Card, theirs: Belongings) -> None:
        """[K3] Of two nodes that meet each looks whether something clashes (K3.4)."""
        reason = clash(self.n, tubes_of(self.n), theirs)
        is_accepted = link.dialed[1] == 0
        if reason:
            self.figures.refused += 1
            self.put(link, link.conn.encode([Refusal(reason)]))
            self.drop(link, reason)
        elif is_accepted and link.has_met:
            self.join(link, card)
        elif not is_accepted and not link.has_met:
            link.has_met = True
            self.put(link, link.conn.encode([belongings(self.n, tubes_of(self.n))]))
        else:
            self.drop(link, "it said twice what it has")

    def on_first(self, link: Link, card: Card, message: AnyMessage) -> None:
        """Handle the dialled node's first message: it accepts or refuses the link."""
        if isinstance(message, Refusal):
            self.figures.refused += 1
            where = printable(message.twin)
            if where.startswith(":"):  # it is that node itself
                where = f"[{link.host}]{where}" if ":" in link.host else link.host + where
            if where:
                self.members.on_duplicate_id(where, self.members.timeout_ms)  # K1.3
            if message.removal > 0:
                self.members.on_own_number(message.removal)
            self.drop(link, printable(message.text))
        else:
            self.join(link, card)

    def on_broken(self, link: Link, broken: BusError) -> None:
        """[B2] Malformed bytes end the link and are counted (B2.2, B2.7)."""
        if link.conn.is_sealed:
            self.put(link, link.conn.take_out())  # it may be told that its secret is wrong
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
            self.members.check_wanted(card.wanted)
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
                refusal = Refusal(str(error), error.duplicate_id, error.removal)
                self.put(link, link.conn.encode([refusal]))
            self.drop(link, str(error))
            return
        old = self.by_slot.get(slot)
        if old is not None:
            self.drop(old, "replaced by another link")
        self.unauthenticated.drop(link)
        link.slot = slot
        self.by_slot[slot] = link
        self.figures.joined += 1
        log.info(
            "bus: linked with %(peer)s at %(address)s%(tls)s",
            facts(
                "bus_linked",
                peer=card.node_id[:8].decode(),
                address=link.address,
                tls=link.words_of_tls(),
            ),
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

    def drop(self, link: Link, reason: str) -> None:
        """Close the link; the other end sees the end of the stream."""
        if link.is_closed:
            return
        del self.links[link.fd]
        link.close(self.shaking, self.poller)
        if link.slot < 0:
            self.unauthenticated.drop(link)
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
            link.close(self.shaking, self.poller)
        if self.shaking is not None:
            self.shaking.close()
        self.links = {}
        self.by_slot = {}
        for sock in self.sockets:
            sock.close()
        self.resolver.close()


def printable(text: str) -> str:
    """What logs show of another node's words."""
    return "".join([c for c in text[:REASON_MAX] if c.isprintable()])
