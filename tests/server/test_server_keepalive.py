"""Connections on which nobody speaks: the probes of the system."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from tuque.client.transport import sockets
from tuque.server.bus.link import prepare
from tuque.server.config.config import config_get, config_set, load
from tuque.server.config.kinds import ConfigError
from tuque.server.log.log import say_all_again
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
    name_peer(load(None, {}, {"tcp-keepalive": word}), pair, ("127.0.0.1", 1), 0)
    assert probes(pair) == found
    assert load().tcp_keepalive == 60


def test_no_probes(pair: socket.socket) -> None:
    name_peer(load(None, {}, {"tcp-keepalive": "no"}), pair, ("127.0.0.1", 1), 0)
    assert probes(pair)[0] == 0


def test_the_largest_number(pair: socket.socket) -> None:
    """C1.8 n is at most 32,767 (Linux); `yes` is 60, `no` is 0: no probes. CONFIG GET shows the
    number.
    """
    cfg = load(None, {}, {"tcp-keepalive": "32767"})
    name_peer(cfg, pair, ("127.0.0.1", 1), 0)
    assert probes(pair) == (1, 32_767, 15, 3, 32_812_000)
    assert config_get(cfg, "tcp-keepalive") == [("tcp-keepalive", "32767")]
    with pytest.raises(ConfigError, match="0..32767 seconds"):
        config_set(cfg, "tcp-keepalive", "32768")
    for word, shown in (("yes", "60"), ("no", "0")):
        config_set(cfg, "tcp-keepalive", word)
        assert config_get(cfg, "tcp-keepalive") == [("tcp-keepalive", shown)]


def test_an_option_that_the_system_refuses(
    pair: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """C1.9 A connection is served also if the system refuses one of its options, such as a
    probe. The log has which, at most once a minute.
    """
    cfg = load()
    cfg.tcp_keepalive = 32_768  # no value of the option; Linux refuses it
    say_all_again()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert name_peer(cfg, pair, ("127.0.0.1", 1), 1_000) == "127.0.0.1:1"
    said = [one.getMessage() for one in caplog.records]
    assert said == ["connections are without TCP_KEEPIDLE 32768: [Errno 22] Invalid argument"]
    assert probes(pair)[2:4] == (15, 3), "the others are set"


@pytest.mark.parametrize(
    ("prepared", "found"),
    [
        (lambda sock: prepare(sock, 0), (1, 60, 15, 3, 105_000)),
        (sockets.prepare, (1, 30, 15, 3, 75_000)),
    ],
    ids=["link", "client"],
)
def test_links_and_the_client(
    pair: socket.socket, prepared: Callable[[socket.socket], None], found: tuple[int, ...]
) -> None:
    """C1.8 Links between nodes do the same with n = 60, the client of Tuque with n = 30."""
    prepared(pair)
    assert probes(pair) == found
