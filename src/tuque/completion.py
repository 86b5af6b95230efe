"""Names of queues for the completion of a shell, if a node has them within 200 ms.

Takes a connection, not a client: that would need longer to be imported.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from tuque.client.api import Arg, Reply
    from tuque.client.url import Address

PATIENCE_S: Final = 0.2
SCAN: Final = ("QSCAN", 0, "COUNT", 1000, "BUSYLOOP")


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names that begin so, in order; none if no node answers in time."""
    from tuque.errors import Error
    from tuque.nodeoptions import NodeOptions

    told: dict[str, Any] = ctx.params
    try:
        settings = NodeOptions(
            told.get("host") or "127.0.0.1",
            told.get("port") or 7711,
            told.get("url") or "",
            told.get("password") or "",
            told.get("user") or "",
        ).settings()
        names = asked(settings.seeds[0], settings.user, settings.password)
    except (Error, click.ClickException):
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def asked(seed: Address, user: str, password: str) -> list[str]:
    """The names of up to 1,000 queues of a node, or of the socket that port 0 stands for."""
    from tuque.client.transport.conn import login
    from tuque.client.transport.sockets import Link

    until_s = time.monotonic() + PATIENCE_S
    commands: list[tuple[Arg, ...]] = [login(user, password)] if password else []
    replies: list[Reply] = []
    link = Link.open(seed, None, until_s)
    try:
        link.exchange([*commands, SCAN], replies, until_s)
    finally:
        link.close()
    found = replies[-1]
    if not isinstance(found, list):  # an error: a wrong password, say
        return []
    return [name.decode("utf-8", "replace") for name in found[1]]
