"""The handshake of a link: who is at the other end, before anything else is read (SPEC B1).

Both ends send HELLO: versions, identity, a nonce. Each then proves with a MAC over both HELLOs
that it knows the cluster secret. Bytes in, bytes out; the shell supplies random bytes and
keeps the time.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final, final
from zlib import crc32

import msgspec
from mypy_extensions import i64

from tuque.cluster.kept import is_node_id
from tuque.core.msgs.bus import AnyMessage
from tuque.wire.bus import BusError, FrameReader, frames_of, head_of, messages_of
from tuque.wire.msgs.cards import HELLOS, Card, Hello, is_sane_card

MAGIC: Final = b"tuque bus"
VERSION: Final = 1
BEFORE_BYTES: Final = 1024  # of a frame, before the other end has proved its identity
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
DIALER: Final = b"dialer"
ACCEPTOR: Final = b"acceptor"
NO_NODE: Final = "not a node of Tuque, or an incompatible one"


@final
class Conn:
    """One link: its handshake, then its frames. `peer` is set once it has proved its identity."""

    def __init__(
        self, is_dialer: bool, card: Card, secret: bytes, nonce: bytes, limit_bytes: i64 = 1 << 30
    ) -> None:
        assert len(nonce) == NONCE_BYTES
        self.is_dialer = is_dialer
        self.secret = secret
        self.limit_bytes = limit_bytes
        self.reader = FrameReader(BEFORE_BYTES)
        self.mine = msgspec.msgpack.encode(Hello(MAGIC, VERSION, VERSION, card, nonce))
        self.theirs = b""
        self.heard: Hello | None = None
        self.peer: Card | None = None
        self.salt: i64 = 0
        self.out = head_of(self.mine, 0) + self.mine

    def take_out(self) -> bytes:
        """The handshake bytes to send."""
        out, self.out = self.out, b""
        return out

    def encode(self, messages: list[AnyMessage]) -> bytes:
        """Encode messages; only once `peer` is set."""
        assert self.peer is not None
        return frames_of(messages, self.salt)

    def feed(self, data: bytes) -> list[AnyMessage]:
        """Decode received bytes to messages. Raises BusError: then close the link."""
        reader = self.reader
        reader.feed(data)
        found: list[AnyMessage] = []
        while True:
            try:
                payload = reader.next()
            except BusError as error:
                if self.heard is None:
                    raise BusError(f"{NO_NODE}: {error}") from None
                raise
            if payload is None:
                return found
            if self.peer is not None:
                found += messages_of(payload)
            elif self.heard is None:
                self.on_hello(payload)
            else:
                self.on_proof(payload)

    def on_hello(self, payload: bytes) -> None:
        """[B1.1] The other end has identified itself; reply with the proof of this one."""
        try:
            hello = HELLOS.decode(payload)
        except Exception:  # B2.5: decoders have many ways to fail
            raise BusError(NO_NODE) from None
        card = hello.card
        if hello.magic != MAGIC or not is_node_id(card.node_id) or len(hello.nonce) != NONCE_BYTES:
            raise BusError(NO_NODE)
        if not is_sane_card(card):
            raise BusError("a HELLO has fields out of range")
        if not hello.version_min <= VERSION <= hello.version_max:  # B1.2
            raise BusError(
                f"no common version of the bus: it knows {hello.version_min} to "
                f"{hello.version_max}, this node {VERSION}"
            )
        if payload == self.mine:
            raise BusError("it echoes what this node sends")
        self.heard = hello
        self.theirs = payload
        proof = self.proof_of(DIALER if self.is_dialer else ACCEPTOR)
        self.out += head_of(proof, 0) + proof

    def on_proof(self, payload: bytes) -> None:
        """[B1.1] Check the other end's proof that it knows the secret."""
        heard = self.heard
        assert heard is not None
        wanted = self.proof_of(ACCEPTOR if self.is_dialer else DIALER)
        if not hmac.compare_digest(payload, wanted):
            raise BusError("wrong secret: cluster-secret must be the same on both nodes")
        self.salt = crc32(self.proof_of(b"salt"))
        self.reader.salt = self.salt
        self.reader.limit_bytes = self.limit_bytes
        self.peer = heard.card

    def proof_of(self, role: bytes) -> bytes:
        """The MAC over both HELLOs, in the role of one end."""
        both = [self.mine, self.theirs] if self.is_dialer else [self.theirs, self.mine]
        text = b"%s:%d:%s%s" % (role, len(both[0]), both[0], both[1])
        return hmac.new(self.secret, text, sha256).digest()
