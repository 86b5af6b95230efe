"""The identity of a node, in the first frame of a link, and the bounds of its fields (SPEC B1).

Classes that msgspec makes: this module stays uncompiled.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tuque.core.msgs.bus import HOST_WORD, NodeId, Port, Times

NONCE_BYTES: Final = 32
HOST_MAX: Final = 255
WANTED_MAX: Final = 8

Nonce = Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]


class Card(msgspec.Struct, array_like=True, frozen=True):
    """The identity of a node, in this incarnation."""

    node_id: NodeId
    life: Times  # its incarnation, counted from 1
    mark: Annotated[bytes, Meta(min_length=8, max_length=8)]  # 8 random bytes of this incarnation
    is_empty: bool  # this incarnation began without a journal
    port: Port  # for clients
    bus_port: Port
    # where it can be reached; empty: the address that the peer sees
    host: Annotated[str, Meta(max_length=HOST_MAX, pattern=HOST_WORD)]
    is_meeting: bool  # it dials because of a CLUSTER MEET
    # ids of the nodes that it knows at the address dialled; none: of any
    wanted: Annotated[list[bytes], Meta(max_length=WANTED_MAX)] = []


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of each end of a link without a secret."""

    magic: bytes
    version_min: int
    version_max: int
    card: Card
    nonce: Nonce


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of each end of a link under a secret: nothing about the node."""

    magic: bytes
    version_min: int
    version_max: int
    nonce: Nonce


HELLOS: Final = msgspec.msgpack.Decoder(Hello)
GREETINGS: Final = msgspec.msgpack.Decoder(Greeting)
CARDS: Final = msgspec.msgpack.Decoder(Card)
