"""Several memberships in one process: links in memory, one hand-set clock."""

from __future__ import annotations

from tuque.cluster.member import Member
from tuque.cluster.members import Members
from tuque.cluster.twins import Refused
from tuque.core.dispatch.messages import on_message
from tuque.core.msgs import Heartbeat
from tuque.core.node.node import Node

START_MS = 1_700_000_000_000
TIMEOUT_MS = 1000


class Guest:
    """One node: its membership, its links by bus port."""

    def __init__(self, number: int, now_ms: int, life: int = 1, node_id: bytes = b"") -> None:
        self.number = number
        self.bus_port = 17_000 + number
        self.n = Node(node_id or (b"%02x" % (number + 10)) * 20, b"seed%d" % number, now_ms)
        self.members = Members(self.n, life, b"mark%02d%02d" % (number, life), TIMEOUT_MS)
        self.members.port = 7000 + number
        self.is_empty = True
        self.is_up = True
        self.linked: dict[Guest, int] = {}  # other end -> slot here
        self.refusals: list[str] = []


class Party:
    """Guests 0, 1, 2, ..."""

    def __init__(self, count: int) -> None:
        self.now_ms = START_MS
        self.guests = [Guest(i, self.now_ms) for i in range(count)]
        self.cut: set[frozenset[int]] = set()
        self.deaf: set[tuple[int, int]] = set()  # (from, to): heartbeats do not arrive
        self.dials: list[tuple[int, int]] = []  # (at, from)
        self.closed = 0  # links that a node closed

    def meet(self, a: int, b: int) -> None:
        """CLUSTER MEET at a."""
        guest = self.guests[b]
        self.guests[a].members.meet("127.0.0.1", guest.members.port, guest.bus_port)

    def pass_ms(self, span_ms: int) -> None:
        """Let time pass in small steps."""
        for _ in range(span_ms // 50):
            self.now_ms += 50
            for guest in self.guests:
                if guest.is_up:
                    self.turn(guest)

    def turn(self, guest: Guest) -> None:
        """One turn of a node: dial, close, deliver."""
        guest.n.now_ms = self.now_ms
        for host, bus_port in guest.members.tick(self.now_ms):
            self.dials.append((self.now_ms, guest.number))
            self.dial(guest, host, bus_port)
        for slot in guest.members.stale:
            for other, mine in list(guest.linked.items()):
                if mine == slot:
                    self.closed += 1
                    self.unlink(guest, other)
        guest.members.stale = []
        for peer in guest.n.dirty_peers:
            said, peer.outbox, peer.is_dirty = peer.outbox, [], False
            for other, slot in list(guest.linked.items()):
                if slot == peer.slot and (guest.number, other.number) not in self.deaf:
                    other.n.now_ms = self.now_ms
                    for message in said:
                        if isinstance(message, Heartbeat):
                            other.members.on_heartbeat(other.linked[guest], message)
                        else:
                            on_message(other.n, other.linked[guest], message)
        guest.n.dirty_peers = []

    def dial(self, guest: Guest, host: str, bus_port: int) -> None:
        """Connect two nodes if both agree."""
        found = [g for g in self.guests if g.bus_port == bus_port and g.is_up]
        if not found or frozenset((guest.number, found[0].number)) in self.cut:
            guest.members.meetings.fail(host, bus_port, "Connection refused")
            return
        other = found[0]
        other.n.now_ms = self.now_ms
        is_meeting = guest.members.meetings.has(host, bus_port)
        try:
            theirs = self.join(other, guest, False, ("", 0), is_meeting)
            mine = self.join(guest, other, True, (host, bus_port), False)
        except Refused as error:
            guest.refusals.append(str(error))
            if error.twin:
                guest.members.on_twin(error.twin, TIMEOUT_MS)
            guest.members.meetings.fail(host, bus_port, str(error))
            return
        for at, slot in ((guest, mine), (other, theirs)):
            for end in [end for end, its in at.linked.items() if its == slot]:
                self.unlink(at, end)  # replaced by this link
        guest.linked[other] = mine
        other.linked[guest] = theirs
        guest.members.on_linked(mine)
        other.members.on_linked(theirs)

    def join(
        self, at: Guest, who: Guest, is_dialer: bool, dialed: tuple[str, int], is_meeting: bool
    ) -> int:
        """The handshake as one end sees it."""
        w = who.members
        return int(
            at.members.on_joined(
                who.n.node_id, w.life, w.mark, who.is_empty, "127.0.0.1", w.port, who.bus_port,
                is_dialer, dialed, is_meeting,
            )
        )  # fmt: skip

    def unlink(self, a: Guest, b: Guest) -> None:
        """Both ends lose the link."""
        for x, y in ((a, b), (b, a)):
            slot = x.linked.pop(y, None)
            if slot is not None and x.is_up:
                x.n.now_ms = self.now_ms
                x.members.on_unlinked(slot)

    def break_up(self, a: int, b: int) -> None:
        """The link between two nodes is cut and stays so."""
        self.cut.add(frozenset((a, b)))
        self.unlink(self.guests[a], self.guests[b])

    def die(self, number: int) -> None:
        """A node ends."""
        guest = self.guests[number]
        guest.is_up = False
        for other in list(guest.linked):
            self.unlink(other, guest)

    def restart(self, number: int, *, is_empty: bool = True) -> None:
        """Restart it with what nodes.conf kept."""
        old = self.guests[number]
        new = Guest(number, self.now_ms, int(old.members.life) + 1)
        new.is_empty = is_empty
        for one in old.members.by_id.values():
            new.members.restore(one.node_id, one.host, one.port, one.bus_port, one.number)
        new.members.number = old.members.number
        self.guests[number] = new

    def reach(self) -> list[int]:
        """The number of others that each node reaches."""
        return [int(g.n.reachable_count) if g.is_up else -1 for g in self.guests]

    def member(self, at: int, of: int) -> Member:
        """A node as another one knows it."""
        return self.guests[at].members.by_id[self.guests[of].n.node_id]
