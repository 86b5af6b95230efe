"""The handshake of a link, and what a listener or a liar on the way can do (SPEC B1, B2.7)."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.core.msgs.bus import AnyMessage, GotJob, Pause
from tuque.wire.bus import seal
from tuque.wire.bus.bus import (
    FRAME_BYTES,
    BusError,
    SealError,
    head_of,
)
from tuque.wire.bus.card import Card, Greeting, Hello
from tuque.wire.bus.handshake import (
    BEFORE_BYTES,
    MAGIC,
    REFUSED,
    SEALED_VERSION,
    Conn,
)
from tuque.wire.bus.seal import CODE_BYTES

ID = b"D-0a0a0a0a-VTUo3R4lebIYJdAAEwe8bf2U-05a1"
OPEN: list[bytes] = []
SEALED = [b"the secret"]
HEAD = 8
BOTH = pytest.mark.parametrize("secrets", [OPEN, SEALED], ids=["open", "sealed"])


def card(letter: bytes, life: int = 1) -> Card:
    """A node's card."""
    return Card(letter * 40, life, letter * 8, True, 7711, 17711, "", False)


def dialer(secrets: list[bytes] = SEALED, nonce: bytes = b"n") -> Conn:
    """The end that dials."""
    return Conn(True, card(b"a"), secrets, nonce * 32)


def acceptor(secrets: list[bytes] = SEALED, nonce: bytes = b"m") -> Conn:
    """The end that is dialled."""
    return Conn(False, card(b"b"), secrets, nonce * 32)


def join(a: Conn, b: Conn) -> tuple[Conn, Conn]:
    """Let both ends talk; raises what either end objects to."""
    for _ in range(3):
        b.feed(a.take_out())
        a.feed(b.take_out())
    return a, b


def pair(one: list[bytes] = SEALED, other: list[bytes] = SEALED) -> tuple[Conn, Conn]:
    """Two ends under their secrets."""
    return join(dialer(one), acceptor(other))


def said(number: int) -> list[AnyMessage]:
    """A message that can be told from others."""
    return [Pause(b"q%d" % number, 1, number + 1)]


@BOTH
def test_both_ends_know_each_other(secrets: list[bytes]) -> None:
    """B1.1 Under a secret both sides send the versions of the bus that they speak and a
    challenge."""
    a, b = pair(secrets, secrets)
    assert (a.peer, b.peer) == (card(b"b"), card(b"a"))
    for number in range(3):
        assert b.feed(a.encode(said(number))) == said(number)
        assert a.feed(b.encode(said(number))) == said(number)


WRONG = {
    "another": ([b"s"], [b"t"], "wrong secret"),
    "the dialler has none": ([], [b"s"], "no cluster-secret|has a cluster-secret"),
    "the dialled one has none": ([b"s"], [], "no cluster-secret|has a cluster-secret"),
    "only the dialler's second": ([b"s", b"t"], [b"t"], "wrong secret"),
}


@pytest.mark.parametrize(("one", "other", "why"), WRONG.values(), ids=WRONG)
def test_strangers_never_link(one: list[bytes], other: list[bytes], why: str) -> None:
    """B1.2 No node with a secret links without it."""
    a, b = dialer(one), acceptor(other)
    for first, second in ((a, b), (b, a)):
        with pytest.raises(BusError, match=why):
            for _ in range(3):
                second.feed(first.take_out())
                first.feed(second.take_out())
        assert a.peer is None or b.peer is None
    assert b.peer is None


def test_the_dialler_hears_that_its_secret_is_wrong() -> None:
    """B1.1 A wrong code gets a refusal without a key; the dialling node shows and logs why it
    failed.
    """
    a, b = dialer([b"s"]), acceptor([b"t"])
    a.feed(b.take_out())
    with pytest.raises(BusError, match="wrong secret"):
        b.feed(a.take_out())
    refusal = b.take_out()
    assert refusal == head_of(REFUSED, 0) + REFUSED
    with pytest.raises(BusError, match="wrong secret"):
        a.feed(refusal)


def test_each_of_two_secrets_is_accepted() -> None:
    """B1.6 The dialled node replies under the secret that the other one used."""
    for one, other in (([b"o", b"n"], [b"n", b"o"]), ([b"n", b"o"], [b"o", b"n"])):
        a, b = pair(one, other)
        assert a.secret == b.secret == one[0]
        assert b.feed(a.encode(said(1))) == said(1)
    assert pair([b"n"], [b"o", b"n"])[1].secret == b"n"


# ---- who has no secret


def test_a_stranger_who_dials_gets_nothing_to_guess_with() -> None:
    """B1.1 Before, it sends nothing that depends on the secret, and nothing about itself."""
    heard = []
    for secret in (b"one", b"two"):
        b = acceptor([secret])
        heard.append(b.take_out())
        for wrong in (b"x" * 100, bytes(seal.PROOF_BYTES) + msgspec.msgpack.encode(card(b"a"))):
            b = acceptor([secret])
            out = b.take_out()
            b.feed(dialer().take_out())
            with pytest.raises(BusError):
                b.feed(head_of(wrong, 0) + wrong)
            heard.append(out + b.take_out())
    assert len(set(heard)) == 2  # with the refusal and without, the same for both secrets
    assert card(b"b").node_id not in heard[0]


def test_a_listener_can_try_secrets_and_so_they_have_128_bits() -> None:
    """B1.5: why a secret is judged. Who is dialled gets a proof, and can try secrets against it."""
    a = dialer([b"tuque"])
    greeting = a.take_out()[HEAD:]
    fake = msgspec.msgpack.encode(Greeting(MAGIC, SEALED_VERSION, SEALED_VERSION, b"f" * 32))
    a.feed(head_of(fake, 0) + fake)
    proof = a.take_out()[HEAD:]
    code, told = proof[: seal.PROOF_BYTES], proof[seal.PROOF_BYTES :]
    found = [
        word
        for word in (b"password", b"tuque", b"12345")
        if seal.proof_of(seal.root_of(word, greeting, fake), seal.DIALER, told) == code
    ]
    assert found == [b"tuque"]


def test_what_was_heard_before_proves_nothing() -> None:
    """B1.1: what one end says proves nothing when it is sent back, or sent again later."""
    a = dialer()
    hello = a.take_out()
    with pytest.raises(BusError, match="echoes"):
        a.feed(hello)
    first, second = dialer(), acceptor()
    said_first = first.take_out()
    second.feed(said_first)
    first.feed(second.take_out())
    said_first += first.take_out()
    again = acceptor(nonce=b"k")
    with pytest.raises(BusError, match="wrong secret"):
        again.feed(said_first)
    mirror, thief = dialer(), acceptor([b"other"])
    mirror.feed(thief.take_out())
    mirror.take_out()
    proof = mirror.proof + msgspec.msgpack.encode(mirror.card)
    with pytest.raises(BusError, match="wrong secret"):
        mirror.feed(head_of(proof, 0) + proof)  # its own proof comes back
    assert mirror.peer is None


def test_a_card_on_the_way_cannot_be_changed() -> None:
    """B1.1: node id and incarnation with a keyed code over them and both challenges"""
    a, b = dialer(), acceptor()
    b.feed(a.take_out())
    a.feed(b.take_out())
    proof = bytearray(a.take_out()[HEAD:])
    proof[-1] ^= 1
    with pytest.raises(BusError, match="wrong secret"):
        b.feed(head_of(bytes(proof), 0) + bytes(proof))
    assert b.peer is None


# ---- who is on the way


def frames(a: Conn, count: int = 4) -> list[bytes]:
    """Some frames of one end, each with a message of its own."""
    return [a.encode(said(number)) for number in range(count)]


def forged(frame: bytes) -> bytes:
    """A frame of somebody who has read all frames but has no key."""
    payload = msgspec.msgpack.encode([Pause(b"evil", 1, 7)])
    return len(payload).to_bytes(4, "big") + frame[4 : 4 + CODE_BYTES] + payload


ATTACKS = {
    "forged": lambda f: [forged(f[0]), *f],
    "forged in place": lambda f: [f[0], forged(f[1]), *f[2:]],
    "with a checksum": lambda f: [head_of(b"\x90", 0) + b"\x90", *f],
    "repeated": lambda f: [f[0], f[0], *f[1:]],
    "repeated later": lambda f: [*f, f[0]],
    "reordered": lambda f: [f[0], f[2], f[1], f[3]],
    "left out": lambda f: [f[0], f[2], f[3]],
    "cut": lambda f: [f[0], f[1][:-1], *f[2:]],
    "cut with its length": lambda f: [
        f[0], (len(f[1]) - 20 - 1).to_bytes(4, "big") + f[1][4:-1], *f[2:],
    ],
    "an empty one between": lambda f: [f[0], bytes(4 + CODE_BYTES), *f[1:]],
    "longer than any": lambda f: [f[0], b"\xff\xff\xff\xff" + f[1][4:], *f[2:]],
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_frame_that_is_not_in_its_place_ends_the_link(attack: object) -> None:
    """B2.7 A frame that was forged, changed, repeated, left out or moved has a wrong code: it ends
    the link before it is decoded, and changes nothing."""
    a, b = pair()
    sound = frames(a)
    heard: list[AnyMessage] = []
    with pytest.raises(SealError):
        for piece in attack(sound):  # type: ignore[operator]  # a function of the table
            heard += b.feed(piece)
    assert heard == [one for number in range(len(heard)) for one in said(number)]


@given(st.integers(0, 1 << 30))
def test_any_flipped_bit_ends_the_link(place: int) -> None:
    """B2.7: changed; wherever, if it is not the length that grows"""
    a, b = pair()
    data = bytearray(b"".join(frames(a)))
    place %= len(data) * 8
    data[place // 8] ^= 1 << place % 8
    heard: list[AnyMessage] = []
    try:
        heard = b.feed(bytes(data))  # a length that grew waits for bytes that never come
    except SealError:
        pass
    assert heard == [one for number in range(len(heard)) for one in said(number)]
    assert len(heard) < 4


def test_no_frame_fits_into_another_link_or_direction() -> None:
    """B2.7 Each direction of each link has a key of its own, derived from the secret and both
    challenges."""
    a, b = pair()
    c, d = join(dialer(nonce=b"x"), acceptor(nonce=b"m"))
    e, f = join(dialer(nonce=b"n"), acceptor(nonce=b"y"))
    ends = [a, b, c, d, e, f]
    codes = [one.encode(said(0))[4 : 4 + CODE_BYTES] for one in ends]
    assert all(one != other for one, other in combinations(codes, 2))
    with pytest.raises(SealError):
        d.feed(a.encode(said(1)))
    with pytest.raises(SealError):
        a.feed(a.encode(said(2)))


def test_large_turns_are_sealed_in_order() -> None:
    """B2.1: a turn of more than 1 MiB takes several frames"""
    a, b = pair()
    many: list[AnyMessage] = [GotJob([ID] * 10_000) for _ in range(5)]
    data = a.encode(many)
    assert len(data) > FRAME_BYTES
    assert b.feed(data) == many
    assert b.feed(a.encode(said(1))) == said(1)


# ---- nonsense


@BOTH
def test_little_is_read_before_the_proof(secrets: list[bytes]) -> None:
    """B1.1 a frame has at most 1 KiB and the connection lives 2 s."""
    conn = acceptor(secrets)
    with pytest.raises(BusError):
        conn.feed((BEFORE_BYTES + 1).to_bytes(4, "big") + bytes(4))
    for junk in (b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"*1\r\n$4\r\nPING\r\n"):
        conn = acceptor(secrets)
        with pytest.raises(BusError):
            conn.feed(junk)
        assert conn.peer is None


@given(st.binary(max_size=200), st.sampled_from([OPEN, SEALED]), st.booleans(), st.booleans())
def test_junk_is_refused_without_an_exception_of_ours(
    junk: bytes, secrets: list[bytes], is_dialer: bool, is_greeted: bool
) -> None:
    """B2.2: whatever comes before the proof ends in a refusal or waits for more."""
    conn = dialer(secrets) if is_dialer else acceptor(secrets)
    if is_greeted:
        other = acceptor(secrets) if is_dialer else dialer(secrets)
        conn.feed(other.take_out())
    try:
        assert conn.feed(head_of(junk, 0) + junk) == []
    except BusError:
        pass
    assert conn.peer is None


BAD_CARDS: list[dict[str, object]] = [
    {"node_id": b"\xff" * 40},
    {"life": 1 << 63},
    {"life": -1},
    {"mark": b"short"},
    {"port": 70_000},
    {"bus_port": -1},
    {"host": "a b"},
    {"host": "a\nb"},
    {"host": "h" * 256},
]


@pytest.mark.parametrize("bad", BAD_CARDS)
@BOTH
def test_a_card_that_cannot_be_is_refused(secrets: list[bytes], bad: dict[str, object]) -> None:
    """B1.1: what a node says of itself gets into lines and files, and is looked at first."""
    liar = Conn(True, msgspec.structs.replace(card(b"a"), **bad), secrets, b"n" * 32)
    conn = acceptor(secrets)
    with pytest.raises(BusError, match="out of range|not a node"):
        join(liar, conn)
    assert conn.peer is None
    assert conn.seal is None


@pytest.mark.parametrize("nonce", [b"", b"n" * 31, b"n" * 33])
def test_a_challenge_that_is_too_short_is_refused(nonce: bytes) -> None:
    """B1.1: a challenge of 32 bytes"""
    greeting = msgspec.msgpack.encode(Greeting(MAGIC, SEALED_VERSION, SEALED_VERSION, nonce))
    conn = dialer()
    conn.take_out()
    with pytest.raises(BusError):
        conn.feed(head_of(greeting, 0) + greeting)
    assert conn.take_out() == b""


@BOTH
def test_no_common_version(secrets: list[bytes]) -> None:
    """B1.2 Each side names the versions of the bus that it speaks: 12 under a secret, 11 without
    one. Without a common version the link is closed with a logged reason."""
    mine = 12 if secrets else 11
    for least, most in ((0, 0), (0, mine), (mine, 13), (mine + 1, 13), (0, 1 << 63)):
        conn = acceptor(secrets)
        hello: object = Hello(MAGIC, least, most, card(b"a"), b"n" * 32)
        if secrets:
            hello = Greeting(MAGIC, least, most, b"n" * 32)
        first = msgspec.msgpack.encode(hello)
        if least <= mine <= most:
            conn.feed(head_of(first, 0) + first)
            assert conn.theirs
            continue
        with pytest.raises(BusError, match=f"no common .*knows {least} to {most}, this node"):
            conn.feed(head_of(first, 0) + first)
