"""A connection reads in short pieces until much comes, and loses nothing when it changes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from tuque.server.state.client import (
    READ_BYTES,
    SHORT_READ,
    SHORT_READS,
    Connection,
)

Pair = tuple[Connection, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    mine, other = socket.socketpair()
    mine.setblocking(False)
    yield Connection(1, mine, "unix:", 0), other
    mine.close()
    other.close()


@pytest.mark.parametrize("size", [1, SHORT_READ - 1, SHORT_READ, SHORT_READ + 1, 20_000])
def test_one_read_takes_all_that_came(pair: Pair, size: int) -> None:
    c, other = pair
    data = bytes(i % 251 for i in range(size))
    for _ in range(3):
        other.sendall(data)
        assert c.receive(READ_BYTES) == data
    with pytest.raises(BlockingIOError):
        c.receive(READ_BYTES)


def test_it_goes_back_to_short_pieces_when_little_comes(pair: Pair) -> None:
    c, other = pair
    other.sendall(b"x" * SHORT_READ)
    assert c.receive(READ_BYTES) == b"x" * SHORT_READ
    for i in range(SHORT_READS):
        assert c.ask == READ_BYTES, i
        other.sendall(b"short")
        assert c.receive(READ_BYTES) == b"short"
    assert c.ask == SHORT_READ
    other.sendall(b"y" * 1000)
    assert c.receive(READ_BYTES) == b"y" * 1000


def test_the_end_is_told_after_what_came_before_it(pair: Pair) -> None:
    c, other = pair
    other.sendall(b"x" * SHORT_READ)
    other.close()
    assert c.receive(READ_BYTES) == b"x" * SHORT_READ
    assert c.receive(READ_BYTES) == b""


def test_a_closed_connection_leaves_its_number_to_others(pair: Pair) -> None:
    c, _other = pair
    later, peer = socket.socketpair()
    c.is_closed = True
    c.sock.close()
    with later, peer:
        os.dup2(later.fileno(), c.fd)
        try:
            peer.sendall(b"for another")
            with pytest.raises(OSError, match="Bad file descriptor"):
                c.receive(READ_BYTES)
            with pytest.raises(OSError, match="Bad file descriptor"):
                c.give(b"late")
        finally:
            os.close(c.fd)
