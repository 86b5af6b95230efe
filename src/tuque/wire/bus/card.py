"""The identity of a node, in the first frame of a link (SPEC B1).

Classes that msgspec makes: this module stays uncompiled.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tuque.wire.bus.bus import TIMES_MAX, is_host
from tuque.wire.bus.sanity import is_port

MARK_BYTES: Final = 8
HOST_MAX: Final = 255
WANTED_MAX: Final = 8


class Card(msgspec.Struct, array_like=True, frozen=True):
    """The identity of a node, in this incarnation."""

    node_id: bytes
    life: int  # its incarnation, counted from 1
    mark: bytes  # 8 random bytes of this incarnation
    is_empty: bool  # this incarnation began without a journal
    port: int  # for clients
    bus_port: int
    host: str  # where it can be reached; empty: the address that the peer sees
    is_meeting: bool  # it dials because of a CLUSTER MEET
    wanted: list[bytes] = []  # ids of the nodes that it knows at the address dialled; none: of any


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of each end of a link without a secret."""

    magic: bytes
    version_min: int
    version_max: int
    card: Card
    nonce: bytes


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of each end of a link under a secret: nothing about the node."""

    magic: bytes
    version_min: int
    version_max: int
    nonce: bytes


HELLOS: Final = msgspec.msgpack.Decoder(Hello)
GREETINGS: Final = msgspec.msgpack.Decoder(Greeting)
CARDS: Final = msgspec.msgpack.Decoder(Card)


def is_sane_card(card: Card) -> bool:
    """Whether the fields are in range; the id is checked earlier."""
    return (
        0 <= card.life < TIMES_MAX
        and len(card.mark) == MARK_BYTES
        and is_port(card.port)
        and is_port(card.bus_port)
        and len(card.host) <= HOST_MAX
        and is_host(card.host)
        and len(card.wanted) <= WANTED_MAX
    )
