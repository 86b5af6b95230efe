"""Somebody on the network without the secret: what it may hear, and that it joins nothing."""

from __future__ import annotations

from random import Random

from fuzz_box import FuzzBox
from fuzz_bus import Peer
from fuzz_values import damage, some_bytes

from tuque.wire.bus.bus import BusError, head_of
from tuque.wire.bus.card import Card
from tuque.wire.bus.handshake import Conn

STRANGER = b"ab" * 20
GUESS = b"another secret, which nobody has drawn for this cluster"
GREETING_BYTES = 128  # of the node that is dialled, and its refusal
PROOF_BYTES = 1_024  # of the node that dials: its greeting and its proof
TAPES_MAX = 20


class Tape:
    """What the nodes of one talk have sent on their links, for somebody who listens."""

    def __init__(self) -> None:
        self.links: list[list[bytes]] = []

    def begin(self) -> None:
        """A new link."""
        self.links = [*self.links[-TAPES_MAX:], []]

    def add(self, data: bytes) -> None:
        """It has sent something."""
        if self.links:
            self.links[-1].append(data)


class Heard(Peer):
    """A node that knows the secret; somebody listens."""

    def __init__(self, box: FuzzBox, rng: Random, number: int, tape: Tape) -> None:
        super().__init__(box, rng, number)
        self.tape = tape

    def connect(self) -> None:
        self.tape.begin()
        super().connect()

    def send(self, data: bytes) -> None:
        self.tape.add(data)
        super().send(data)


class Stranger(Peer):
    """It says anything, also what it heard from others; the node must not take it for a node."""

    def __init__(self, box: FuzzBox, rng: Random, tape: Tape) -> None:
        super().__init__(box, rng, 0)
        self.tape = tape
        self.me = STRANGER
        self.got = 0  # bytes that the node has sent on this connection
        self.most = GREETING_BYTES

    def act(self) -> int:
        """A connection or a piece of one; how much was said."""
        how = self.rng.randrange(5)
        self.box.now = f"a stranger, {how}"
        if self.sock is None:
            self.connect()
        elif how == 0:
            self.send(some_bytes(self.rng, 2_000))
        elif how == 1 and self.tape.links:
            link = self.rng.choice(self.tape.links)
            for data in link if self.rng.random() < 0.7 else link[1:]:
                self.send(data if self.rng.random() < 0.9 else damage(self.rng, data))
        elif how == 2:
            size = self.rng.choice((0, 1, 1_024, 1_025, 1 << 20, (1 << 32) - 1))
            self.send(size.to_bytes(4, "big") + self.rng.randbytes(4) + some_bytes(self.rng, 1_100))
        elif how == 3:
            payload = self.payload([self.message() for _ in range(3)])
            self.send(head_of(payload, 0) + payload)
        else:
            self.shake()
        self.box.turns(2)
        self.hear()
        self.judge()
        return 1

    def connect(self) -> None:
        """Dial the node, or be dialled."""
        self.got = 0
        self.most = GREETING_BYTES
        super().connect()

    def conn_of(self, is_dialer: bool, card: Card) -> Conn:
        """Its end of the handshake, with a guess for a secret, or with none."""
        self.most = GREETING_BYTES if is_dialer else PROOF_BYTES
        secrets = [GUESS] if self.rng.random() < 0.7 else []
        return Conn(is_dialer, card, secrets, self.rng.randbytes(32), 1 << 24)

    def hear(self) -> None:
        """Read what the node says, and count it."""
        try:
            while self.sock is not None:
                data = self.sock.recv(1 << 20)
                self.got += len(data)
                if not data:
                    self.leave()
                elif self.conn is not None:
                    self.conn.feed(data)
        except BlockingIOError:
            pass
        except (OSError, BusError):
            self.leave()

    def judge(self) -> None:
        """What must never happen."""
        assert self.got <= self.most, f"a stranger heard {self.got} bytes"
        assert STRANGER not in self.box.n.node_ids, "a stranger has a slot"
        s = self.box.server
        assert STRANGER.decode() not in s.members.kept_text(s.identity.line())
