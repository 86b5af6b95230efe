"""The method table, tubes: which IPROTO users may call them, and the types that a node knows.

As in `tubes`, builders whose first argument is `tube` become methods of a `Tube` object.
"""

from __future__ import annotations

import msgspec

from tuque.client.api import Arg, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import Call


class TubeGrant(msgspec.Struct, frozen=True):
    """The rights of a user or role on a tube over IPROTO, in functions named `prefix`."""

    tube: str
    name: str
    is_role: bool
    call: bool
    truncate: bool
    prefix: str


def grant(
    tube: Text,
    user: Text,
    *,
    role: bool = False,
    call: bool = False,
    truncate: bool = False,
    prefix: Text | None = None,
    timeout: float | None = None,
) -> Call[None]:
    """Lets an IPROTO user, or everyone with a `role`, call functions of the tube."""
    args = _words("GRANT", tube, user, role, call, truncate, prefix)
    return Call(args=args, parse=_nothing, repeat=True, timeout_s=timeout)


def revoke(
    tube: Text,
    user: Text,
    *,
    role: bool = False,
    call: bool = False,
    truncate: bool = False,
    prefix: Text | None = None,
    timeout: float | None = None,
) -> Call[int]:
    """Revokes rights, all if none is named, under any prefix; returns how many grants changed."""
    args = _words("REVOKE", tube, user, role, call, truncate, prefix)
    return Call(args=args, parse=int, repeat=True, timeout_s=timeout)


def grants(tube: Text, *, timeout: float | None = None) -> Call[list[TubeGrant]]:
    """The users and roles that may call the tube over IPROTO."""
    args = ("TUBE", "GRANTS", to_bytes(tube))
    return Call(args=args, parse=_grants, repeat=True, timeout_s=timeout)


def tube_grants(*, timeout: float | None = None) -> Call[list[TubeGrant]]:
    """The users and roles that may call tubes of this node over IPROTO, by tube."""
    return Call(args=("TUBE", "GRANTS"), parse=_grants, repeat=True, timeout_s=timeout)


def _words(
    word: str,
    tube: Text,
    user: Text,
    role: bool,
    call: bool,
    truncate: bool,
    prefix: Text | None,
) -> tuple[Arg, ...]:
    args: list[Arg] = ["TUBE", word, to_bytes(tube), to_bytes(user), *["ROLE"] * role]
    args += ["CALL"] * call + ["TRUNCATE"] * truncate
    return tuple(args) if prefix is None else (*args, "PREFIX", to_bytes(prefix))


def _nothing(reply: Reply) -> None:
    if reply != b"OK":
        raise ValueError(reply)


def _grant(row: Reply) -> TubeGrant:
    tube, kind, name, words, prefix = row
    return TubeGrant(
        to_text(tube),
        to_text(name),
        kind == b"role",
        b"call" in words,
        b"truncate" in words,
        to_text(prefix),
    )


def _grants(reply: Reply) -> list[TubeGrant]:
    return list(map(_grant, reply))


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
