"""The method table, leaders of tubes: which node leads a tube, and how to change that.

Builders as in tubes.py; no I/O and no clock here.
"""

from __future__ import annotations

import msgspec

from tuque.client.api import Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import Call, pairs

MOVE_S = 120.0  # the reply comes when the switchover is over; the node limits it


class TubeCopy(msgspec.Struct, frozen=True):
    """The replica of a tube on another node: `lag` is how many changes it has not confirmed."""

    node: str
    address: str
    lag: int
    complete: bool


class HomeInfo(msgspec.Struct, frozen=True):
    """The leader of a tube, as the node that was asked knows it.

    `home` is the leader's node id, `epoch` counts changes of leader, `state` is that of the tube
    on the node asked, `conflict` the id of another node that claims the leadership, or "". Only
    the leader knows `copies`.
    """

    tube: str
    home: str
    address: str
    epoch: int
    state: str
    sync: int
    changes: int
    conflict: str
    copies: tuple[TubeCopy, ...]


class TubeLoss(msgspec.Struct, frozen=True):
    """What a forced failover may have lost: changes that only the former leader had.

    `missing` of them are known to be lost. The former leader was last heard from `last_heard_ms`
    ago; its later changes are unknown. `next_number` is that of the next task. `stopped` says why
    the new leader delivers no task (its type is missing or failed); empty if it does.
    """

    home: str
    epoch: int
    complete: bool
    missing: int
    last_heard_ms: int
    next_number: int
    stopped: str = ""


def state(tube: Text, *, timeout: float | None = None) -> Call[str]:
    """The state of the tube on its leader: RUNNING, or in transition."""
    args = ("TUBE", "STATE", to_bytes(tube))
    return Call(args=args, parse=to_text, repeat=True, timeout_s=timeout)


def home(tube: Text, *, timeout: float | None = None) -> Call[HomeInfo]:
    """The leader of the tube, and the lag of its replicas. NoTube."""
    args = ("TUBE", "HOME", to_bytes(tube))
    return Call(args=args, parse=_home, repeat=True, timeout_s=timeout)


def move(tube: Text, node: Text, *, timeout: float | None = MOVE_S) -> Call[None]:
    """Makes another node the leader: a node id, its first characters, or "host:port".

    Returns once it leads. ReplyError says why it does not; then the leader stays.
    """
    args = ("TUBE", "HOME", to_bytes(tube), to_bytes(node))
    return Call(args=args, parse=_nothing, repeat=True, timeout_s=timeout)


def take_over(tube: Text, node: Text, *, timeout: float | None = MOVE_S) -> Call[TubeLoss]:
    """Makes the node of this client the leader of a tube whose leader is lost.

    `node` is that node's own id or address. Changes that only the lost leader had are lost.
    """
    args = ("TUBE", "HOME", to_bytes(tube), to_bytes(node), "FORCE")
    return Call(args=args, parse=_loss, timeout_s=timeout)


def _nothing(reply: Reply) -> None:
    if reply != b"OK":
        raise ValueError(reply)


def _home(reply: Reply) -> HomeInfo:
    told = pairs(reply)
    copies = tuple(
        TubeCopy(to_text(node), to_text(address), lag, complete == 1)
        for node, address, lag, complete in told["copies"]
    )
    return HomeInfo(
        tube=to_text(told["tube"]),
        home=to_text(told["home"]),
        address=to_text(told["address"]),
        epoch=told["epoch"],
        state=to_text(told["state"]),
        sync=told["sync"],
        changes=told["changes"],
        conflict=to_text(told["conflict"]),
        copies=copies,
    )


def _loss(reply: Reply) -> TubeLoss:
    told = pairs(reply)
    return TubeLoss(
        home=to_text(told["home"]),
        epoch=int(told["epoch"]),
        complete=told["copy"] == b"complete",
        missing=int(told["changes-missing"]),
        last_heard_ms=int(told["last-heard-ms"]),
        next_number=int(told["next-id"]),
        stopped=to_text(told.get("stopped", b"")),
    )
