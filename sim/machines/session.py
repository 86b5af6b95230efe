"""A client's connection: RESP commands out, replies back in order.

A reply is judged when the node hands it to the transport; the client gets it when its last byte
has arrived, or never.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from sim.engine.network import End, Network
from sim.machines.kernel import CLIENTS

Told = Callable[[object], None]  # a reply; None stands for nil, LOST for no reply


class Lost:
    """No reply came."""


LOST = Lost()


class Session:
    """One client at one node; connects when it has something to send."""

    def __init__(self, net: Network, name: str, node: str) -> None:
        self.net = net
        self.process: object = self
        self.name = name
        self.node = node
        self.end: End | None = None
        self.is_connecting = False
        self.unsent: list[tuple[bytes, Told, Told | None]] = []
        self.due: deque[tuple[Told, Told | None]] = deque()
        self.coming: deque[tuple[int, object, Told]] = deque()
        self.got = 0

    def ask(self, words: list[bytes], told: Told, on_sent: Told | None = None) -> None:
        """Send a command. `on_sent` gets the reply when the node sends it."""
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.say(b"".join(parts), told, on_sent)

    def say(self, data: bytes, told: Told, on_sent: Told | None = None) -> None:
        """Send bytes that get one reply."""
        if self.end is not None:
            self.due.append((told, on_sent))
            self.end.send(data)
            return
        self.unsent.append((data, told, on_sent))
        if not self.is_connecting:
            self.is_connecting = True
            self.net.connect(self, self.name, self.node, CLIENTS, self.on_connected)

    def on_connected(self, end: End | None) -> None:
        """The connect succeeded or failed."""
        self.is_connecting = False
        unsent = self.unsent
        self.unsent = []
        if end is None:
            for _, told, _ in unsent:
                told(LOST)
            return
        self.end = end
        self.got = 0
        for data, told, on_sent in unsent:
            self.due.append((told, on_sent))
            end.send(data)

    def on_given(self, end: End, offset: int, replies: list[object]) -> None:
        """The node handed replies to the transport, up to that byte of the stream.

        It may not know yet that the client has closed that connection and opened another.
        """
        if end is not self.end:
            return
        for reply in replies:
            if not self.due:
                continue
            told, on_sent = self.due.popleft()
            if on_sent is not None:
                on_sent(reply)
            self.coming.append((offset, reply, told))

    def on_data(self, end: End, data: bytes) -> None:
        """Bytes of replies arrived."""
        if end is not self.end:
            return
        self.got += len(data)
        while self.end is end and self.coming and self.coming[0][0] <= self.got:
            _, reply, told = self.coming.popleft()
            told(reply)

    def on_lost(self, end: End) -> None:
        """The connection ended: pending requests get no reply."""
        if end is self.end:
            self.drop()

    def drop(self) -> None:
        """Drop the connection."""
        end = self.end
        self.end = None
        tellers = [told for _, _, told in self.coming] + [told for told, _ in self.due]
        self.coming.clear()
        self.due.clear()
        if end is not None:
            end.close()
        for told in tellers:
            told(LOST)

    def close(self) -> None:
        """Close without waiting for replies."""
        self.drop()
