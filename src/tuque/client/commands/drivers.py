"""The method table, tubes: the types that a node knows."""

from __future__ import annotations

import msgspec

from tuque.client.api import Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import Call


class TubeDriver(msgspec.Struct, frozen=True):
    """A type of tube: `state` is built-in, loaded, installed (not registered), failed or missing.

    `origin` names its class and package, `tubes` counts its tubes. `stopped` lists the tubes that
    deliver nothing since their driver failed, each with its error; `error` is why a failed type
    cannot be loaded.
    """

    name: str
    state: str
    origin: str
    tubes: int
    stopped: dict[str, str] = {}
    error: str = ""


def tube_drivers(*, timeout: float | None = None) -> Call[list[TubeDriver]]:
    """The types of tubes that this node has, could load, or lacks."""
    return Call(args=("TUBE", "DRIVERS"), parse=_drivers, repeat=True, timeout_s=timeout)


def register_tube_driver(name: Text, *, timeout: float | None = None) -> Call[None]:
    """Registers a type that was installed on the node after its start. ReplyError."""
    args = ("TUBE", "REGISTERDRIVER", to_bytes(name))
    return Call(args=args, parse=_nothing, timeout_s=timeout)


def _nothing(reply: Reply) -> None:
    if reply != b"OK":
        raise ValueError(reply)


def _drivers(reply: Reply) -> list[TubeDriver]:
    return [
        TubeDriver(
            to_text(name),
            to_text(state),
            to_text(origin),
            tubes,
            {to_text(tube): to_text(why) for tube, why in stopped},
            to_text(error),
        )
        for name, state, origin, tubes, stopped, error in reply
    ]
