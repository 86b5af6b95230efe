"""Large frames of the bus: made, checked and read in steps (SPEC B2.8)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuque.core.msgs.bus import (
    LARGE_BODY,
    AnyMessage,
    GotJob,
    Pause,
    ReplJob,
    TubeCopy,
)
from tuque.wire.bus.bus import (
    BusError,
    SealError,
    encoded,
    is_large,
    parts_of,
)
from tuque.wire.bus.card import Card
from tuque.wire.bus.handshake import Conn
from tuque.wire.bus.seal import STEP_BYTES

ID = b"D-0a0a0a0a-VTUo3R4lebIYJdAAEwe8bf2U-05a1"
BODY = bytes(range(251)) * 6_000
SEALED = pytest.mark.parametrize("secrets", [[], [b"the secret"]], ids=["open", "sealed"])


def copy(body: bytes = BODY, queue: bytes = b"q", life: bytes = b"") -> ReplJob:
    """A copy of a job."""
    return ReplJob(ID, queue, body, 1, 500_000, 70_000, 1, 0, 3, 0, 1, 5, 2, life)


def pair(secrets: list[bytes]) -> tuple[Conn, Conn]:
    """Both ends of a link; two calls give the same keys."""
    ends = []
    for letter, is_dialer in ((b"a", True), (b"b", False)):
        card = Card(letter * 40, 1, letter * 8, True, 7711, 17711, "", False)
        ends.append(Conn(is_dialer, card, secrets, letter * 32))
    for _ in range(3):
        ends[1].feed(ends[0].take_out())
        ends[0].feed(ends[1].take_out())
    return ends[0], ends[1]


def framed(conn: Conn, message: ReplJob) -> tuple[bytes, int]:
    """The frame of a large copy, and in how many steps its head was made."""
    head = conn.head(parts_of(message))
    steps = 1
    while not (first := head.step()):
        steps += 1
    return first + b"".join(head.parts), steps


@given(st.integers(0, 70_000), st.integers(0, 300), st.sampled_from([LARGE_BODY, 1 << 21]))
@settings(max_examples=30)
def test_a_body_is_not_copied(queue: int, life: int, size: int) -> None:
    """B2.8 it has a frame of its own, and its body is not copied on its way out."""
    message = copy(bytes(size), b"q" * queue, b"l" * life)
    parts = parts_of(message)
    assert b"".join(parts) == encoded([message])
    assert any(part is message.body for part in parts)


@given(st.integers(0, 300), st.integers(0, 1 << 50), st.lists(st.integers(0, 1 << 40), max_size=20))
@settings(max_examples=30)
def test_records_of_a_tube_are_not_copied(name: int, number: int, gone: list[int]) -> None:
    """B2.8 TUBE-COPY with records of 1 MiB or more has a frame of its own as well: they are copied
    once when they are gathered, and not on their way out.
    """
    records = bytes(LARGE_BODY)
    held = [(number, b"u" * 16, b"user")]
    message = TubeCopy(
        b"t" * name, ID, number, number >> 30, number, number + 1, 9, number, 3, records, gone, held
    )
    parts = parts_of(message)
    assert is_large(message) and b"".join(parts) == encoded([message])
    assert any(part is records for part in parts)


@SEALED
def test_frames_made_in_steps_are_the_same(secrets: list[bytes]) -> None:
    """B2.8 The code of a frame of 1 MiB or more is made in steps of 512 KiB"""
    a, _ = pair(secrets)
    b, _ = pair(secrets)
    for size in (LARGE_BODY, LARGE_BODY + 1, 3 * LARGE_BODY):
        message = copy(b"x" * size)
        frame, steps = framed(a, message)
        assert frame == b.encode([message])
        assert steps == 1 + len(encoded([message])) // STEP_BYTES


@SEALED
@given(places=st.lists(st.integers(0, 1 << 30), max_size=6))
@settings(max_examples=30)
def test_every_split_of_large_frames(secrets: list[bytes], places: list[int]) -> None:
    """B2.8 read as it comes"""
    a, b = pair(secrets)
    said: list[AnyMessage] = [Pause(b"q", 1, 2), copy(), GotJob([ID]), copy(b"y" * LARGE_BODY)]
    data = b"".join(
        framed(a, one)[0] if isinstance(one, ReplJob) else a.encode([one]) for one in said
    )
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    heard: list[AnyMessage] = []
    for start, end in pairwise(at):
        heard += b.feed(data[start:end])
    heard += b.feed(a.encode([Pause(b"last", 1, 3)]))
    assert heard == [*said, Pause(b"last", 1, 3)]


@SEALED
@pytest.mark.parametrize("place", [30, 700_000, -1])
def test_a_flipped_bit_of_a_large_frame(secrets: list[bytes], place: int) -> None:
    """B2.8 The receiver checks it as it comes, before it decodes"""
    a, b = pair(secrets)
    frame = bytearray(framed(a, copy())[0])
    frame[place] ^= 1
    with pytest.raises(SealError if secrets else BusError, match="wrong"):
        for at in range(0, len(frame), 100_000):
            assert b.feed(bytes(frame[at : at + 100_000])) == []


def test_large_frames_have_their_places() -> None:
    """B2.7 A frame that was repeated, left out or moved has a wrong code"""
    a, _ = pair([b"the secret"])
    first, second = framed(a, copy())[0], framed(a, copy(b"y" * LARGE_BODY))[0]
    for attack in ([second], [first, first], [first[:-2] + second]):
        _, b = pair([b"the secret"])
        with pytest.raises(SealError):
            for frame in attack:
                for at in range(0, len(frame), 300_000):
                    b.feed(frame[at : at + 300_000])
            b.feed(b"x")  # the end of what was cut
