"""The handshake of a link: which node is at the other end, before anything else is read (SPEC B1).

Under a secret both ends send a greeting: versions and a nonce. The dialler then proves with a code
over both that it knows the secret, and sends its identity; only then does the other end do the
same. Without a secret both send their identity at once. Bytes in, bytes out; the shell supplies
random bytes and keeps the time.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final, final
from zlib import crc32

import msgspec
from mypy_extensions import i64

from tuque.cluster.nodes_conf import is_node_id
from tuque.core.msgs.bus import AnyMessage
from tuque.wire.bus import seal
from tuque.wire.bus.bus import (
    BusError,
    FrameReader,
    frames_of,
    frames_with,
    head_of,
    messages_of,
)
from tuque.wire.bus.card import (
    CARDS,
    GREETINGS,
    HELLOS,
    NONCE_BYTES,
    Card,
    Greeting,
    Hello,
)
from tuque.wire.bus.seal import Coder, Head, Seal

MAGIC: Final = b"tuque bus"
VERSION: Final = 11  # of a link without a secret
SEALED_VERSION: Final = 12  # of a link under one
BEFORE_BYTES: Final = 1024  # of a frame, before the other end has proved its identity
DIALER: Final = b"dialer"
ACCEPTOR: Final = b"acceptor"
REFUSED: Final = b"no"  # in the place of a proof; it has no key, and tells no more than an end
NO_NODE: Final = "not a node of Tuque, or an incompatible one"
WRONG_SECRET: Final = "wrong secret: cluster-secret must be the same on both nodes"
IS_OPEN: Final = "it has no cluster-secret, or an older version of Tuque; this node has a secret"
IS_SEALED: Final = "it has a cluster-secret, and this node has none"


IS_TLS: Final = "it speaks TLS on its bus, this node does not; tls-cluster must be the same"
TLS_BEGINS: Final = (b"\x15\x03", b"\x16\x03")  # no frame of a handshake has such a length


@final
class Conn:
    """One link: its handshake, then its frames. `peer` is set once it has proved its identity.

    `secrets`: the first one is used to prove this end, each is accepted; none: a link without a
    secret, where `filler` is in its place.
    """

    def __init__(
        self,
        is_dialer: bool,
        card: Card,
        secrets: list[bytes],
        nonce: bytes,
        limit_bytes: i64 = 1 << 30,
        filler: bytes = b"",
    ) -> None:
        assert len(nonce) == NONCE_BYTES
        self.is_dialer = is_dialer
        self.card = card
        self.secrets = secrets
        self.is_sealed = len(secrets) > 0
        self.secret = secrets[0] if len(secrets) > 0 else filler  # once proved: of this link
        self.limit_bytes = limit_bytes
        self.reader = FrameReader(BEFORE_BYTES)
        self.has_begun = False  # the other end has sent something
        self.mine = self.first(nonce)
        self.theirs = b""
        self.heard_card: Card | None = None  # without a secret, before the proof
        self.peer: Card | None = None
        self.proof = b""  # of the dialler
        self.salt: i64 = 0
        self.seal: Seal | None = None
        self.out = head_of(self.mine, 0) + self.mine

    def first(self, nonce: bytes) -> bytes:
        """What this end says first."""
        if self.is_sealed:
            greeting = Greeting(MAGIC, SEALED_VERSION, SEALED_VERSION, nonce)
            return msgspec.msgpack.encode(greeting)
        return msgspec.msgpack.encode(Hello(MAGIC, VERSION, VERSION, self.card, nonce))

    def take_out(self) -> bytes:
        """The handshake bytes to send, also after a BusError."""
        out, self.out = self.out, b""
        return out

    def encode(self, messages: list[AnyMessage]) -> bytes:
        """Encode messages, to be sent in this order; only once `peer` is set."""
        assert self.peer is not None
        return frames_of(messages, self.salt, self.seal)

    def frame(self, payload: bytes, total: i64) -> bytes:
        """The next frame, of messages that are encoded already; `total`: of `frames_with`."""
        assert self.peer is not None
        return frames_with([], payload, self.salt, self.seal, total)

    def head(self, parts: list[bytes]) -> Head:
        """The head of the next frame, to be made in steps; these are the parts of its payload."""
        assert self.peer is not None
        return Head(parts, Coder(self.seal, self.salt))

    def feed(self, data: bytes) -> list[AnyMessage]:
        """Decode received bytes to messages. Raises BusError: then close the link."""
        reader = self.reader
        if not self.has_begun:
            self.has_begun = True
            if data[:2] in TLS_BEGINS:
                raise BusError(IS_TLS)
        reader.feed(data)
        found: list[AnyMessage] = []
        while True:
            try:
                payload = reader.next()
            except BusError as error:
                if not self.theirs:
                    raise BusError(f"{NO_NODE}: {error}") from None
                raise
            if payload is None:
                return found
            if self.peer is not None:
                found += messages_of(payload)
            elif not self.theirs:
                self.on_first(payload)
            elif not self.is_sealed:
                self.on_open_proof(payload)
            elif self.is_dialer:
                self.on_answer(payload)
            else:
                self.on_proof(payload)

    def on_first(self, payload: bytes) -> None:
        """[B1.1] The other end has begun."""
        if payload == self.mine:
            raise BusError("it echoes what this node sends")
        if self.is_sealed:
            self.on_greeting(payload)
        else:
            self.on_hello(payload)

    # ---- under a secret

    def on_greeting(self, payload: bytes) -> None:
        """[B1.1] Both nonces are known: the dialler proves itself, the other end waits for that."""
        try:
            greeting = GREETINGS.decode(payload)
        except Exception:  # B2.5: decoders have many ways to fail
            raise BusError(IS_OPEN if is_hello(payload) else NO_NODE) from None
        if greeting.magic != MAGIC:
            raise BusError(NO_NODE)
        check_versions(greeting.version_min, greeting.version_max, SEALED_VERSION)
        self.theirs = payload
        if self.is_dialer:
            card = msgspec.msgpack.encode(self.card)
            root = seal.root_of(self.secret, self.mine, self.theirs)
            self.proof = seal.proof_of(root, seal.DIALER, card)
            self.say(self.proof + card)

    def on_proof(self, payload: bytes) -> None:
        """[B1.1] Check the dialler's proof; nothing with a key was said before."""
        code, card = payload[: seal.PROOF_BYTES], payload[seal.PROOF_BYTES :]
        for secret in self.secrets:
            root = seal.root_of(secret, self.theirs, self.mine)
            if hmac.compare_digest(code, seal.proof_of(root, seal.DIALER, card)):
                self.secret = secret
                self.believe(card)
                mine = msgspec.msgpack.encode(self.card)
                self.say(seal.proof_of(root, seal.ACCEPTOR, code + mine) + mine)
                self.begin(root)
                return
        self.say(REFUSED)
        raise BusError(WRONG_SECRET)

    def on_answer(self, payload: bytes) -> None:
        """[B1.1] Check the proof of the dialled end."""
        if payload == REFUSED:
            raise BusError(WRONG_SECRET)
        code, card = payload[: seal.PROOF_BYTES], payload[seal.PROOF_BYTES :]
        root = seal.root_of(self.secret, self.mine, self.theirs)
        if not hmac.compare_digest(code, seal.proof_of(root, seal.ACCEPTOR, self.proof + card)):
            raise BusError(WRONG_SECRET)
        self.believe(card)
        self.begin(root)

    def believe(self, text: bytes) -> None:
        """Take what the other end says of itself; its proof was right."""
        try:
            card = CARDS.decode(text)
        except Exception:  # B2.5: decoders have many ways to fail
            raise BusError(NO_NODE) from None
        if not is_node_id(card.node_id):
            raise BusError(NO_NODE)
        self.peer = card

    def begin(self, root: bytes) -> None:
        """[B2.7] The frames of both directions have codes from now on."""
        mine, theirs = seal.FROM_DIALER, seal.FROM_ACCEPTOR
        if not self.is_dialer:
            mine, theirs = theirs, mine
        self.seal = Seal(seal.frame_key(root, mine))
        self.reader.unseal(Seal(seal.frame_key(root, theirs)))
        self.reader.limit_bytes = self.limit_bytes

    def say(self, payload: bytes) -> None:
        """Send a frame of the handshake."""
        self.out += head_of(payload, 0) + payload

    # ---- without a secret

    def on_hello(self, payload: bytes) -> None:
        """[B1.1] The other end has identified itself; reply with the code of this one."""
        try:
            hello = HELLOS.decode(payload)
        except Exception:  # B2.5: decoders have many ways to fail
            raise BusError(IS_SEALED if is_greeting(payload) else NO_NODE) from None
        if hello.magic != MAGIC or not is_node_id(hello.card.node_id):
            raise BusError(NO_NODE)
        check_versions(hello.version_min, hello.version_max, VERSION)
        self.heard_card = hello.card
        self.theirs = payload
        self.say(self.code_of(DIALER if self.is_dialer else ACCEPTOR))

    def on_open_proof(self, payload: bytes) -> None:
        """[B1.1] Check that both ends heard the same."""
        if not hmac.compare_digest(payload, self.code_of(ACCEPTOR if self.is_dialer else DIALER)):
            raise BusError(WRONG_SECRET)
        self.salt = crc32(self.code_of(b"salt"))
        self.reader.salt = self.salt
        self.reader.limit_bytes = self.limit_bytes
        self.peer = self.heard_card

    def code_of(self, role: bytes) -> bytes:
        """The code over both HELLOs, in the role of one end."""
        both = [self.mine, self.theirs] if self.is_dialer else [self.theirs, self.mine]
        text = b"%s:%d:%s%s" % (role, len(both[0]), both[0], both[1])
        return hmac.new(self.secret, text, sha256).digest()


def check_versions(least: int, most: int, mine: int) -> None:
    """[B1.2] Raise BusError without a common version."""
    if not least <= mine <= most:
        raise BusError(
            f"no common version of the bus: it knows {least} to {most}, this node {mine}; "
            "run one version of Tuque on both"
        )


def is_hello(payload: bytes) -> bool:
    """Whether a node without a secret, or of version 1, begins so."""
    try:
        return HELLOS.decode(payload).magic == MAGIC
    except Exception:  # B2.5: decoders have many ways to fail
        return False


def is_greeting(payload: bytes) -> bool:
    """Whether a node with a secret begins so."""
    try:
        return GREETINGS.decode(payload).magic == MAGIC
    except Exception:  # B2.5: decoders have many ways to fail
        return False
