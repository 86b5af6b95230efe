"""Names of queues for the completion of a shell, if a node tells them within 200 ms.

Speaks two commands of RESP by itself: the client would need longer to be imported.
"""

from __future__ import annotations

import socket
import time
from typing import Any, Final

import click

PATIENCE_S: Final = 0.2
READ_BYTES: Final = 65_536
SCAN: Final = ("QSCAN", "0", "COUNT", "1000", "BUSYLOOP")


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names that begin so, in order; none if no node answers in time."""
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
    except (OSError, click.ClickException):
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def asked(seed: Any, user: str, password: str) -> list[str]:
    """The names of up to 1,000 queues of a node. Raises OSError."""
    import hiredis

    until = time.monotonic() + PATIENCE_S
    commands: list[Any] = [SCAN]
    if password:
        commands = [("AUTH", user, password) if user else ("AUTH", password), SCAN]
    reader = hiredis.Reader()
    with connected(seed) as sock:
        sock.sendall(b"".join(hiredis.pack_command(one) for one in commands))
        replies: list[Any] = []
        while len(replies) < len(commands):
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            sock.settimeout(left_s)
            data = sock.recv(READ_BYTES)
            if not data:
                raise ConnectionError
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                replies.append(reply)
    found = replies[-1]
    if not isinstance(found, list):  # an error: a wrong password, say
        return []
    return [name.decode("utf-8", "replace") for name in found[1]]


def connected(seed: Any) -> socket.socket:
    """A connection to the first node that is named; port 0 is the path of a unix socket."""
    if seed.port != 0:
        return socket.create_connection((seed.host, seed.port), PATIENCE_S)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE_S)
    sock.connect(seed.host)
    return sock
