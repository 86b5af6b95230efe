"""Connections on which nobody speaks: the probes of the system."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from tuque.client.transport import raw_link
from tuque.server.bus.link import prepare
from tuque.server.config.config import load
from tuque.server.net.listen import name_peer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names of Linux")


@pytest.fixture
def pair() -> Iterator[socket.socket]:
    """A TCP connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        socket.create_connection(door.getsockname()) as made,
    ):
        yield made


def probes(sock: socket.socket) -> tuple[int, ...]:
    """Whether the connection is probed; idle time, interval, count, limit in ms."""
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
    found = [sock.getsockopt(socket.IPPROTO_TCP, name) for name in names]
    return (sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), *found)


@pytest.mark.parametrize(
    ("word", "found"), [("yes", (1, 60, 15, 3, 105_000)), ("7", (1, 7, 15, 3, 52_000))]
)
def test_a_client_of_a_node(pair: socket.socket, word: str, found: tuple[int, ...]) -> None:
    """C1.8 With `tcp-keepalive n`, 60 by default, a connection of a client that is silent for n s
    is probed, three times, 15 s apart; without a reply it ends after n + 45 s, as does one whose
    peer confirms nothing of what was sent.
    """
    name_peer(load(None, {}, {"tcp-keepalive": word}), pair, ("127.0.0.1", 1))
    assert probes(pair) == found
    assert load().tcp_keepalive == 60


def test_no_probes(pair: socket.socket) -> None:
    name_peer(load(None, {}, {"tcp-keepalive": "no"}), pair, ("127.0.0.1", 1))
    assert probes(pair)[0] == 0


@pytest.mark.parametrize("prepared", [prepare, raw_link.keep_alive])
def test_links_and_the_client(
    pair: socket.socket, prepared: Callable[[socket.socket], None]
) -> None:
    """C1.8 Links between nodes do the same with n = 60, as does the client of Tuque."""
    prepared(pair)
    assert probes(pair) == (1, 60, 15, 3, 105_000)
