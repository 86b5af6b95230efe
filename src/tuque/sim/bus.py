"""Links between nodes (interim)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tuque.core import bus
from tuque.core.msgs import AnyMessage, Heartbeat
from tuque.core.peers import set_reachable, slot_for
from tuque.core.repair import on_incarnation
from tuque.sim.network import End

if TYPE_CHECKING:
    from tuque.sim.shell import Shell

ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(list[AnyMessage])


class Link:
    def __init__(self, end: End) -> None:
        self.end = end
        self.buffer = b""
        self.slot = -1
        self.heard_us = 0
        self.echo = 0
        self.held: list[tuple[int, Any]] = []
        self.dialed = ""


class Links:
    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.links: dict[End, Link] = {}
        self.by_slot: dict[int, Link] = {}
        self.lives: dict[int, int] = {}
        self.beat_us = 0
        self.said = 0
        self.dialing: dict[str, bool] = {}

    def linked(self) -> int:
        return len(self.by_slot)

    def start(self) -> None:
        self.beat_us = self.shell.world.now_us
        for m in self.shell.machine.others():
            slot_for(self.shell.n, m.node_id)

    def next_ms(self) -> int:
        shell = self.shell
        return shell.n.now_ms + max(0, self.beat_us - shell.world.now_us) // 1000 + 1

    def step(self) -> None:
        shell, n = self.shell, self.shell.n
        now_us = shell.world.now_us
        if now_us < self.beat_us:
            return
        self.beat_us = now_us + 500_000
        n.round += 1
        for link in list(self.links.values()):
            if link.slot < 0 and link.heard_us == 0:
                link.heard_us = now_us
            if now_us - link.heard_us > 3_000_000:
                self.down(link)
                continue
            if link.slot < 0 or self.by_slot.get(link.slot) is not link:
                continue
            self.put(link, [Heartbeat(n.round, link.echo, int(n.is_leaving), 0, [])])
        for m in shell.machine.others():
            known = shell.n.slot_of.get(m.node_id)
            if known is not None and known in self.by_slot:
                continue
            if m.index > shell.machine.index and not self.dialing.get(m.name):
                self.dialing[m.name] = True
                shell.machine.cluster.net.connect(
                    shell, shell.machine.name, m.name, "bus", partial(self.dialed, m.name)
                )

    def dialed(self, name: str, end: End | None) -> None:
        if end is None or self.shell.is_dead:
            self.dialing[name] = False
            if end:
                end.close()
            return
        link = self.accept(end)
        link.dialed = name
        self.hello(link)

    def accept(self, end: End) -> Link:
        link = Link(end)
        self.links[end] = link
        return link

    def hello(self, link: Link) -> None:
        shell = self.shell
        empty = shell.began_empty
        data = msgspec.msgpack.encode([shell.n.node_id, shell.number, empty])
        link.end.send(len(data).to_bytes(4, "big") + data)

    def read(self, end: End, data: bytes) -> None:
        link = self.links.get(end)
        if link is None:
            return
        if not data:
            self.down(link)
            return
        link.heard_us = self.shell.world.now_us
        link.buffer += data
        while len(link.buffer) >= 4:
            size = int.from_bytes(link.buffer[:4], "big")
            if len(link.buffer) < 4 + size:
                return
            frame = link.buffer[4 : 4 + size]
            link.buffer = link.buffer[4 + size :]
            self.frame(link, frame)

    def frame(self, link: Link, frame: bytes) -> None:
        n = self.shell.n
        if link.slot < 0:
            node_id, life, empty = msgspec.msgpack.decode(frame)
            slot = int(slot_for(n, node_id))
            old = self.by_slot.get(slot)
            if old is not None:
                self.down(old)
            link.slot = slot
            self.dialing[link.dialed] = False
            self.by_slot[slot] = link
            before = self.lives.get(slot)
            self.lives[slot] = life
            if link.end.label.startswith(self.shell.machine.name + "-") is False:
                self.hello(link)
            if before != life:
                on_incarnation(n, slot, empty, life)
            bus.on_link_up(n, slot, True)
            return
        for m in DECODER.decode(frame):
            if isinstance(m, Heartbeat):
                link.echo = m.round
                n.peers[link.slot].echoed_round = m.echo
                n.peers[link.slot].is_leaving = bool(m.flags)
                set_reachable(n, link.slot, not m.flags)
            else:
                bus.on_message(n, link.slot, m)

    def down(self, link: Link) -> None:
        self.dialing[link.dialed] = False
        link.end.close()
        self.links.pop(link.end, None)
        if link.slot >= 0 and self.by_slot.get(link.slot) is link:
            del self.by_slot[link.slot]
            bus.on_link_down(self.shell.n, link.slot)

    def put(self, link: Link, messages: list[Any]) -> None:
        data = ENCODER.encode(messages)
        self.shell.effect("frame", data)
        link.end.send(len(data).to_bytes(4, "big") + data)

    def settle(self, seq: int) -> None:
        n = self.shell.n
        dirty = n.dirty_peers
        n.dirty_peers = []
        for peer in dirty:
            messages = peer.outbox
            peer.outbox = []
            peer.is_dirty = False
            link = self.by_slot.get(int(peer.slot))
            if link is None or not messages:
                continue
            self.said += len(messages)
            if seq >= 0 or link.held:
                link.held.append((seq, messages))
            else:
                self.put(link, messages)

    def on_durable(self) -> None:
        durable = self.shell.durable()
        for link in list(self.by_slot.values()):
            while link.held and link.held[0][0] <= durable:
                self.put(link, link.held.pop(0)[1])
