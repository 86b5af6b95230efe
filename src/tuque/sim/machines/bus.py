"""Links between nodes: the twin of server/bus/peers.py.

Handshake, frames and membership are the real ones of wire/ and cluster/. Simulated is only what
the server's sockets do: dial what membership returns, feed bytes, hold frames back for the
journal, close links that break a rule.
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from tuque.cluster.kept import parse_kept
from tuque.cluster.members import Members, Refused
from tuque.core.dispatch import messages as bus
from tuque.core.jobs.transitions import FAR
from tuque.core.msgs.bus import AnyMessage, Heartbeat
from tuque.core.node.node import Node
from tuque.sim.engine.network import End
from tuque.sim.judges.rare import look_at_message
from tuque.wire.bus import BusError
from tuque.wire.handshake import Conn
from tuque.wire.msgs.cards import Card

if TYPE_CHECKING:
    from tuque.sim.machines.machine import Machine
    from tuque.sim.machines.shell import Shell

PORT: Final = "bus"
BUS_PORT: Final = 17_711
CLIENT_PORT: Final = 7_711
HANDSHAKE_US: Final = 2_000_000
LINKS_MAX: Final = 512
SECRET: Final = b"of this seed"


class Link:
    """A connection to another node, or one being set up."""

    def __init__(self, conn: Conn, end: End | None, dialed: tuple[str, int], until_us: int) -> None:
        self.conn = conn
        self.end = end  # None while dialling
        self.dialed = dialed
        self.until_us = until_us  # deadline of the handshake; 0: it is done
        self.slot = -1
        self.number = 0  # order of creation
        self.held: list[tuple[int, bytes]] = []  # waiting for a journal record
        self.held_bytes = 0
        self.is_closed = False

    def waiting_bytes(self) -> int:
        """Bytes sent that have not arrived."""
        end = self.end
        flying = end.out.flying if end is not None and end.out is not None else 0
        return self.held_bytes + flying


class Links:
    """All links of one process."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        node: Node = shell.n
        self.n = node
        self.links: list[Link] = []
        self.by_end: dict[End, Link] = {}
        self.by_slot: dict[int, Link] = {}
        self.begun = 0  # links
        self.crowded = 0
        self.said = 0  # messages except heartbeats
        machine: Machine = shell.machine
        self.limit_bytes = machine.settings.bus_limit_bytes
        life = 1
        if machine.conf:
            kept = parse_kept(machine.conf)
            life = int(kept.life) + 1
            self.n.is_leaving = kept.is_leaving
        self.mark = machine.chance.getrandbits(64).to_bytes(8, "big")
        self.life = life
        self.members = Members(self.n, life, self.mark, machine.settings.node_timeout_ms)
        self.members.port = CLIENT_PORT
        self.n.ids.key = blake2b(SECRET, digest_size=32).digest()
        if machine.conf:
            self.members.number = kept.number
            for one in kept.nodes:
                self.members.restore(one.node_id, one.host, one.port, one.bus_port, one.number)

    # ---- the shell's side

    def start(self) -> None:
        """Save the incremented start count before any other node learns of it."""
        self.save()

    def save(self) -> None:
        """Write nodes.conf."""
        flags = "myself,leaving" if self.n.is_leaving else "myself"
        own = f"{self.n.node_id.decode()} :{CLIENT_PORT} {flags} 0 0 connected\n"
        self.shell.machine.conf = self.members.kept_text(own).encode()
        self.members.is_changed = False

    def linked(self) -> int:
        """The number of linked nodes."""
        return len(self.by_slot)

    def next_ms(self) -> int:
        """The instant at which `step` next has work."""
        at_ms = int(self.members.next_ms())
        shell = self.shell
        for link in self.links:
            if link.until_us:
                left_us = max(0, link.until_us - shell.world.now_us)
                at_ms = min(at_ms, int(self.n.now_ms) + left_us // 1000 + 1)
        return at_ms

    def step(self) -> None:
        """Timers: slow handshakes, heartbeats, dialling."""
        now_us = self.shell.world.now_us
        for link in list(self.links):
            if 0 < link.until_us <= now_us:
                self.drop(link, "no handshake within 2 s")
        for host, port in self.members.tick(self.n.now_ms):
            self.dial(host, port)
        self.close_stale()
        if self.members.is_changed:
            self.save()
        self.shell.s.is_crowded = self.crowded > 0

    def close_stale(self) -> None:
        """Close the links that membership gave up."""
        stale = self.members.stale
        self.members.stale = []
        for slot in stale:
            link = self.by_slot.get(int(slot))
            if link is not None:
                self.drop(link, "silent")

    def settle(self, seq: int) -> None:
        """Send each node its messages of the turn once the record is durable."""
        dirty = self.n.dirty_peers
        self.n.dirty_peers = []
        for peer in dirty:
            messages = peer.outbox
            peer.outbox = []
            peer.is_dirty = False
            link = self.by_slot.get(int(peer.slot))
            if link is None or not messages:
                continue
            self.said += sum(1 for m in messages if not isinstance(m, Heartbeat))
            self.put(link, link.conn.encode(messages), seq)

    def put(self, link: Link, data: bytes, seq: int) -> None:
        """Send in order, and not before the record is durable."""
        if seq >= 0 or link.held:
            link.held.append((max(seq, 0), data))
            link.held_bytes += len(data)
            self.shell.world.sometimes("frames are held back")
        else:
            self.send(link, data)
        self.weigh(link)

    def send(self, link: Link, data: bytes) -> None:
        """Give bytes to the transport."""
        if link.end is not None and data:
            self.shell.effect("frame", data)
            link.end.send(data)

    def weigh(self, link: Link) -> None:
        """[B2.4] Too many waiting bytes: no new copies for the peer, or close the link."""
        waiting = link.waiting_bytes()
        if waiting > self.limit_bytes + (1 << 16):
            self.shell.world.sometimes("a link is closed for what waits")
            self.drop(link, "too much waits for it")
            return
        if link.slot < 0:
            return
        peer = self.n.peers[link.slot]
        has_room = waiting * 4 <= self.limit_bytes
        if has_room != peer.has_room:
            peer.has_room = has_room
            self.crowded += -1 if has_room else 1
            self.shell.world.sometimes("a link has no room")

    def on_durable(self) -> None:
        """Release frames whose records are durable."""
        durable = self.shell.durable()
        for link in list(self.links):
            while link.held and link.held[0][0] <= durable and not link.is_closed:
                _, data = link.held.pop(0)
                link.held_bytes -= len(data)
                self.send(link, data)

    # ---- connections

    def new_link(self, end: End | None, dialed: tuple[str, int]) -> Link:
        """Start the handshake of a connection."""
        shell = self.shell
        card = Card(
            self.n.node_id, self.life, self.mark, shell.began_empty, CLIENT_PORT, BUS_PORT,
            shell.machine.name, self.members.meetings.has(dialed[0], dialed[1]),
        )  # fmt: skip
        nonce = shell.machine.chance.getrandbits(256).to_bytes(32, "big")
        conn = Conn(end is None, card, SECRET, nonce)
        link = Link(conn, end, dialed, shell.world.now_us + HANDSHAKE_US)
        self.begun += 1
        link.number = self.begun
        self.links.append(link)
        return link

    def dial(self, host: str, port: int) -> None:
        """Connect; the handshake starts once connected."""
        link = self.new_link(None, (host, port))
        shell = self.shell
        shell.machine.cluster.net.connect(
            shell, shell.machine.name, host, PORT, partial(self.on_connected, link)
        )

    def on_connected(self, link: Link, end: End | None) -> None:
        """The connect succeeded or failed."""
        if end is not None and (self.shell.is_dead or link.is_closed):
            end.close()
            return
        if self.shell.is_dead or link.is_closed:
            return
        if end is None:
            self.drop(link, "refused")
            return
        link.end = end
        self.by_end[end] = link
        self.shell.machine.guard(partial(self.send, link, link.conn.take_out()))
        self.shell.wake()

    def accept(self, end: End) -> None:
        """Accept a connection."""
        if len(self.links) >= LINKS_MAX:
            end.close()
            return
        link = self.new_link(end, ("", 0))
        self.by_end[end] = link
        self.shell.on_data(end, b"")  # the next turn sends what the handshake wants

    def read(self, end: End, data: bytes) -> None:
        """Bytes, or the end of the stream, arrived on a link."""
        link = self.by_end.get(end)
        if link is None:
            return
        if not data:
            if end.is_open:
                self.send(link, link.conn.take_out())
            else:
                self.drop(link, "closed by the other end")
            return
        try:
            messages = link.conn.feed(data)
        except BusError as error:
            self.shell.machine.cluster.history.find("damage", f"on the bus: {error}")
            self.drop(link, str(error))
            return
        self.send(link, link.conn.take_out())
        if link.slot < 0 and link.conn.peer is not None:
            self.join(link, link.conn.peer)
        if not link.is_closed:
            self.hear(link, messages)

    def join(self, link: Link, card: Card) -> None:
        """[K1.2] The other end has proved its identity: accept the link or refuse it."""
        try:
            self.check_order(link, card.node_id)
            slot = int(
                self.members.on_joined(
                    card.node_id, card.life, card.mark, card.is_empty, card.host, card.port,
                    card.bus_port, link.conn.is_dialer, link.dialed, card.is_meeting,
                )
            )  # fmt: skip
        except Refused as error:
            self.drop(link, str(error))
            return
        old = self.by_slot.get(slot)
        if old is not None:
            self.shell.world.sometimes("a link is replaced by a newer one")
            self.drop(old, "replaced by a newer link")
        link.until_us = 0
        link.slot = slot
        self.by_slot[slot] = link
        self.members.on_linked(slot)
        self.shell.world.note(f"{self.shell.machine.name} is linked to {card.host}")

    def check_order(self, link: Link, node_id: bytes) -> None:
        """[K1.2] A link that was begun before the current one holds older messages."""
        one = self.members.by_id.get(node_id)
        old = self.by_slot.get(int(one.slot)) if one is not None else None
        if old is not None and old.conn.is_dialer == link.conn.is_dialer:
            if old.number > link.number:
                self.shell.world.sometimes("a link is overtaken by a later one")
                raise Refused("there is a later link already")

    def hear(self, link: Link, messages: list[AnyMessage]) -> None:
        """Handle the peer's messages in order."""
        for message in messages:
            if isinstance(message, Heartbeat):
                self.members.on_heartbeat(link.slot, message)
            else:
                look_at_message(self.shell, message)
                bus.on_message(self.n, link.slot, message)

    def drop(self, link: Link, reason: str) -> None:
        """Close the link."""
        if link.is_closed:
            return
        link.is_closed = True
        self.links.remove(link)
        name = self.shell.machine.name
        self.shell.world.note(f"{name} closes a link ({link.dialed[0]}): {reason}")
        if link.end is not None:
            self.by_end.pop(link.end, None)
            link.end.close()
        if link.slot >= 0:
            peer = self.n.peers[link.slot]
            if not peer.has_room:
                peer.has_room = True
                self.crowded -= 1
            del self.by_slot[link.slot]
            self.members.on_unlinked(link.slot)
        elif link.dialed[0]:
            self.members.meetings.fail(link.dialed[0], link.dialed[1], reason)

    def look(self) -> None:
        """Check whether links have room again."""
        for link in list(self.by_slot.values()):
            self.weigh(link)

    def is_idle(self) -> bool:
        """Whether no frame waits for the journal."""
        return all(not link.held for link in self.links) and self.next_ms() < FAR
