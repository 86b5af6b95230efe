"""SPEC L: everything that grows has a limit, and reaching it gives the documented answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from world import World

PING = b"*1\r\n$4\r\nPING\r\n"


def closed_with(world: World, data: bytes, error: bytes) -> bool:
    """Whether those bytes get that error and a close, and another client is still served."""
    reply = world.wire().answer(data)
    assert world.wire().answer(PING) == b"+PONG\r\n"
    return reply == b"-ERR Protocol error: " + error + b"\r\n<closed>"


def test_body(make_world: Callable[..., World]) -> None:
    """L1.1 Reaching a limit has the effect in the last column and no other."""
    world = make_world(events=True, max_body_bytes="1000")
    head = b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n"
    fits = head + b"$1000\r\n" + b"x" * 1000 + b"\r\n$1\r\n0\r\n"
    assert world.wire().answer(fits).startswith(b"+D-")
    error = (
        b"invalid bulk length: 1001 is over max-body-bytes (1000); "
        b"send less, or raise it with CONFIG SET (at most 512mb)"
    )
    assert closed_with(world, head + b"$1001\r\n", error)
    whole = head + b"$1001\r\n" + b"x" * 1001 + b"\r\n$1\r\n0\r\n"
    assert closed_with(world, whole, error)
    assert len(world.n.jobs) == 1


def test_lines_and_arguments(world: World) -> None:
    """L1.1 Reaching a limit has the effect in the last column and no other."""
    assert closed_with(world, b"*1048577\r\n", b"invalid multibulk length")
    assert closed_with(world, b"a" * 70_000, b"too big inline request")


def test_samples(make_world: Callable[..., World]) -> None:
    """L1.1 Reaching a limit has the effect in the last column and no other."""
    world = make_world(events=True, slowlog_max_len="5", slowlog_log_slower_than="0")
    line = world.wire()
    line.answer(PING * 50)
    assert line.answer(b"SLOWLOG LEN\r\n") == b":5\r\n"


def bulks(*words: bytes) -> bytes:
    """The words as a request of RESP."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


LONG = b"n" * 65_537


@pytest.mark.parametrize(
    ("words", "at"),
    [
        ((b"ADDJOB", LONG, b"body", b"0"), 2),
        ((b"GETJOB", b"FROM", LONG), 3),
        ((b"PAUSE", LONG, b"in"), 2),
        ((b"STAGE", b"t", b"a", b"60000", LONG, b"body"), 5),
        ((b"LEASE", b"OPEN", b"g", b"o", LONG), 5),
        ((b"TUBE", b"CREATE", LONG, b"fifo"), 3),
        ((b"DEADLETTER", b"id", b"REASON", LONG), 4),
        ((b"CLIENT", b"SETNAME", LONG), 3),
        ((b"CONFIG", b"SET", LONG, b"1"), 3),
    ],
)
def test_long_words(make_world: Callable[..., World], words: tuple[bytes, ...], at: int) -> None:
    """L2.9 A word of a command has at most 65,536 bytes, unless it is a body"""
    world = make_world(events=True)
    line = world.wire()
    used = world.n.used_bytes()
    name = words[0].lower()
    says = b"-ERR word %d of '%s' has 65537 bytes: at most 65536, only a body may have more\r\n"
    assert line.answer(bulks(*words)) == says % (at, name)
    assert (world.n.queues, world.n.used_bytes()) == ({}, used)
    fits = tuple(word[:-1] if word is LONG else word for word in words)
    assert b"ERR word" not in line.answer(bulks(*fits))


def test_long_bodies(world: World) -> None:
    """L2.9 unless it is a body (of ADDJOB, STAGE, TUBE PUT, DEADLETTER BODY and LOADJOB, and
    what PING and ECHO return).
    """
    line = world.wire()
    assert line.answer(bulks(b"ECHO", LONG)) == b"$65537\r\n" + LONG + b"\r\n"
    assert line.answer(bulks(b"PING", LONG)) == b"$65537\r\n" + LONG + b"\r\n"
    added = line.answer(bulks(b"ADDJOB", b"q", LONG, b"0"))
    assert added.startswith(b"+D-")
    assert line.answer(bulks(b"STAGE", b"t", b"a", b"60000", b"q", LONG)) == b":1\r\n"
    assert line.answer(bulks(b"TUBE", b"CREATE", b"tube", b"fifo")) == b"+OK\r\n"
    assert not line.answer(bulks(b"TUBE", b"PUT", b"tube", LONG)).startswith(b"-")
    dead = bulks(b"DEADLETTER", added[1:41], b"dead", b"BODY", LONG)
    assert not line.answer(dead).startswith(b"-")


def test_names_and_errors(world: World) -> None:
    """L2.9 The name of a client and of its library has at most 1,024 bytes. An error has at most
    4,096 bytes.
    """
    line = world.wire()
    name = b"n" * 1024
    assert line.answer(bulks(b"CLIENT", b"SETNAME", name)) == b"+OK\r\n"
    for words in (
        (b"CLIENT", b"SETNAME", name + b"n"),
        (b"CLIENT", b"SETINFO", b"LIB-NAME", name + b"n"),
        (b"HELLO", b"2", b"SETNAME", name + b"n"),
    ):
        says = b"-ERR the name has 1025 bytes: at most 1024\r\n"
        assert line.answer(bulks(*words)) == says
    assert line.answer(bulks(b"CLIENT", b"GETNAME")) == b"$1024\r\n" + name + b"\r\n"
    long_error = line.answer(bulks(b"TUBE", b"CREATE", b"t", b"y" * 60_000))
    assert long_error.startswith(b"-ERR Unknown tube type yyy")
    assert len(long_error) == len(b"-...\r\n") + 4096
    unknown = line.answer(bulks(b"CONFIG", b"SET", b"x" * 60_000, b"1"))
    assert unknown == b"-ERR Unsupported CONFIG parameter: " + b"x" * 128 + b"...\r\n"
