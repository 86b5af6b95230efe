"""The other end of a link to a node of the world, which does what no node should.

A `Stranger` dials the bus of a node; a `Host` is an address that nodes dial. Knows the handshake
and the frames; what is said is the test's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from sim.engine.network import End
from sim.machines.kernel import BUS, host_of
from tuque.core.msgs.bus import AnyMessage, Refusal
from tuque.wire.bus.card import Card
from tuque.wire.bus.handshake import Conn
from world_wires import RawWire

if TYPE_CHECKING:
    from world import World

SECRET: Final = "kY3vR8wQz1LmN5tXb7cD2fGh4jPs6aEu0oHi9ZyVxWq"  # of the nodes, in many tests
ANOTHER: Final = "Zp0aX9sLw8dKe7fJr6gHt5yGu4iFo3pDq2zSx1cVb_M"
OTHER: Final = b"0123456789" * 4  # the id of a stranger
LIMIT_BYTES: Final = 1 << 30  # of what it says
NONCE: Final = bytes(32)
CARD: Final = Card(OTHER, 1, b"8 bytes.", True, 7711, 17711, "", False)


class Peer(RawWire):
    """A link, whoever began it."""

    conn: Conn
    refusal = ""
    twin = ""  # what the refusal says of another node

    def hear(self) -> list[AnyMessage]:
        """What the node has said since the last look. Raises BusError."""
        found = self.conn.feed(self.bytes_now())
        for message in found:
            if isinstance(message, Refusal):
                self.refusal, self.twin = message.text, message.twin
        return found

    def join(self) -> bool:
        """The handshake; False if the node closed the connection. Raises BusError."""
        self.give(self.conn.take_out())
        while self.unread:
            self.hear()
            self.give(self.conn.take_out())
        return self.conn.peer is not None and self.is_open()

    def says(self, *messages: AnyMessage) -> None:
        """Say something in a frame."""
        self.give(self.conn.encode(list(messages)))


class Stranger(Peer):
    """One that dialled node i, from an address of its own; by default it knows the secret."""

    def __init__(
        self, world: World, i: int, secret: str | None, came: str, fields: dict[str, Any]
    ) -> None:
        super().__init__(world, i, BUS, f"{came}:{world.next_port()}")
        server = world.node(i).server
        known = server.cfg.cluster_secret if secret is None else secret
        filler = server.bus.filler if server.bus is not None else b""
        secrets = [known.encode()] if known else []
        self.conn = Conn(True, replace(CARD, **fields), secrets, NONCE, LIMIT_BYTES, filler)


class Dialled(Peer):
    """One that node i dialled."""

    def __init__(self, world: World, i: int, end: End, secret: str) -> None:
        super().__init__(world, i, BUS, end=end)
        secrets = [secret.encode()] if secret else []
        self.conn = Conn(False, CARD, secrets, NONCE, LIMIT_BYTES)


class Host:
    """A machine of the network where no node is; it accepts what is dialled."""

    def __init__(self, world: World, number: int, secret: str) -> None:
        self.world = world
        self.address = host_of(f"n{number}")
        self.secret = secret
        self.came: list[Dialled] = []
        world.lab.net.listeners[f"n{number}"] = self

    def accept(self, end: End, port: str) -> bool:
        """A node dials."""
        self.came.append(Dialled(self.world, int(end.label[1]), end, self.secret))
        return True
