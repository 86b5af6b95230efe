"""Ports for the nodes of the tests: no other test has them, and no connection takes them.

The system gives a socket that asks for any port one from 32768 on. Such a port may be somebody
else's before a node begins to listen, or while it is down; that of its bus, 10000 above, too.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle

FIRST = 10_240
SHARE = 250  # ports of a process, taken in turn
SHARES = 40
BUS_OFFSET = 10_000


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now; the port of its bus is free as well."""
    for port in own_ports():
        if is_free(host, port) and is_free(host, port + BUS_OFFSET):
            return port
    raise AssertionError("no port is free")


def is_free(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_server((host, port)):
        return True
    return False


@cache
def own_ports() -> Iterator[int]:
    """The ports of this process, in turn."""
    first = FIRST + SHARE * own_share()
    return cycle(range(first, first + SHARE))


held: list[socket.socket] = []


def own_share() -> int:
    """A number that no other running process of tests has: a name that the system gives once."""
    for share in range(SHARES):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0tuque-tests-ports-{share}")
        except OSError:
            name.close()
            continue
        held.append(name)
        return share
    raise AssertionError(f"more than {SHARES} processes of tests")
