"""Why there is no link, in the words of the log and of CLUSTER NODES (SPEC K3.3)."""

import errno
import os
from typing import Final

from mypy_extensions import i64

from tuque.logtext import facts
from tuque.server.log.notes import say_once

SILENT: Final = "it closed the connection without a reply: not a bus of Tuque, or too busy"
NO_BUS: Final = "nothing listens there; `cluster_bus_port` in its CLUSTER INFO is the port to meet"
NO_SECRET: Final = (
    "without a cluster-secret only nodes of this machine can be met; "
    "`tuque cluster secret` makes one, the same for all nodes"
)
SHUT: Final = (
    "this node has a password and no cluster-secret, so it has no links to other nodes; "
    "`tuque cluster secret` makes a secret, the same for all nodes"
)
UNSEALED: Final = (
    "this node is linked with others without a cluster-secret; give all nodes one first, "
    "`tuque cluster secret` makes it"
)
GONE_SECRET: Final = "its secret is no longer accepted"
OLDEST: Final = "too many connections in their handshake"


def why_unreached(number: i64) -> str:
    """Why a connect failed, and what may help (K3.3)."""
    return os.strerror(number) + (f": {NO_BUS}" if number == errno.ECONNREFUSED else "")


def why_not(has_secret: bool, address: str) -> str:
    """[B1.1] Why a node does not link with that address; empty if it does."""
    is_here = address == "::1" or address.startswith("127.")
    return "" if has_secret or is_here else NO_SECRET


def say_not_accepted(now_ms: i64, error: OSError) -> None:
    """Log, once a minute, that no connection can be accepted."""
    say_once(
        now_ms,
        "bus: accept: %(reason)s",
        facts("bus_accept_failed", reason=error.strerror),
    )


def say_not_linked(now_ms: i64, address: str, reason: str) -> None:
    """Log, once a minute, why a handshake failed."""
    say_once(
        now_ms,
        "bus: no link with %(address)s: %(reason)s",
        facts("bus_not_linked", address=address, reason=reason),
    )


def say_ended(now_ms: i64, address: str, reason: str) -> None:
    """Log, once a minute, why a link ended."""
    say_once(
        now_ms,
        "bus: the link with %(address)s ended: %(reason)s",
        facts("bus_link_ended", address=address, reason=reason),
    )
