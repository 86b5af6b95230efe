"""A real server: CLIENT, MONITOR, AUTH and the limits of a session."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lab import RealServer
from raw_resp import NULL, Err, Wire, encode
from until import until

NOAUTH = "NOAUTH Authentication required."


def test_pause_stops_all_clients_and_no_timer(wire: Wire, other: Wire) -> None:
    job_id = other.add("paused", "b", "TTL", 1)
    begin = time.monotonic()
    assert wire("CLIENT", "PAUSE", 1300) == b"OK"
    other.raw(encode("PING") + encode("SHOW", job_id))
    assert other.is_quiet(0.2)
    assert other.read() == b"PONG"
    assert time.monotonic() - begin >= 1.25
    assert other.read() is NULL  # it expired meanwhile


def test_a_half_closed_client_is_answered_after_a_pause(node: RealServer, wire: Wire) -> None:
    ended = node.wire()
    assert ended("PING") == b"PONG"
    wire("CLIENT", "PAUSE", 200)
    ended.raw(encode("PING", "late"))
    ended.sock.shutdown(1)
    assert ended.read_to_end() == b"$4\r\nlate\r\n"


def test_kill(node: RealServer, wire: Wire) -> None:
    victim = node.wire()
    number = victim("CLIENT", "ID")
    victim.send("GETJOB", "FROM", "killed")
    until(lambda: b" flags=b " in wire("CLIENT", "LIST"))
    assert wire("CLIENT", "KILL", "ID", number) == 1
    assert victim.read_to_end() == b""
    assert wire("CLIENT", "KILL", "ID", number) == 0
    wire.add("killed")
    assert wire("QLEN", "killed") == 1


def test_kill_by_address_and_of_oneself(node: RealServer, wire: Wire) -> None:
    victim = node.wire()
    address = "{}:{}".format(*victim.sock.getsockname())
    assert victim("PING") == b"PONG"
    assert wire("CLIENT", "KILL", address) == b"OK"
    assert victim.read_to_end() == b""
    assert wire("CLIENT", "KILL", address) == "ERR No such client"
    own = "{}:{}".format(*wire.sock.getsockname())
    wire.raw(encode("CLIENT", "KILL", own) + encode("ADDJOB", "suicide", "b", 0))
    assert wire.read_to_end() == b"+OK\r\n"
    assert node.wire()("QLEN", "suicide") == 0


def test_reply_off_and_skip(wire: Wire, other: Wire) -> None:
    """C7.3 Commands run without replies; GETJOB then takes nothing."""
    job_id = other.add("mute")
    wire.raw(encode("CLIENT", "REPLY", "SKIP") + encode("PING", 1) + encode("PING", 2))
    assert wire.read() == b"2"
    wire.raw(
        encode("CLIENT", "REPLY", "OFF")
        + encode("PING", 3)
        + encode("GETJOB", "FROM", "mute")
        + encode("ADDJOB", "mute-added", "b", 0)
        + encode("CLIENT", "REPLY", "ON")
    )
    assert wire.read() == b"OK"
    assert other("QLEN", "mute-added") == 1
    assert other.show(job_id)["state"] == b"queued"


def test_monitor_sees_every_command(node: RealServer, wire: Wire) -> None:
    watcher = node.wire()
    assert watcher("MONITOR") == b"OK"
    wire.raw(encode("PING", b'a\r\n"\x00\xff'))
    assert wire.read() == b'a\r\n"\x00\xff'
    line = watcher.read().decode()
    port = wire.sock.getsockname()[1]
    assert line.endswith(f' [127.0.0.1:{port}] "PING" "a\\r\\n\\"\\x00\\xff"')
    wire("AUTH", "a-secret")
    assert "a-secret" not in watcher.read().decode()
    watcher.close()
    assert wire("PING") == b"PONG"


def test_password_at_start(make_server: Callable[..., RealServer]) -> None:
    server = make_server("--requirepass", "secret", "--bind", "127.0.0.1")
    wire = server.wire()
    for words in (["PING"], ["INFO"], ["ADDJOB", "q", "b", 0], ["HELLO"], ["SHUTDOWN"]):
        assert wire(*words) == NOAUTH
    assert wire("NOSUCH").startswith("ERR unknown command")
    assert wire("ADDJOB").startswith("ERR wrong number of arguments")
    assert wire("AUTH", "wrong") == "ERR invalid password"
    assert wire("AUTH", "secret") == b"OK"
    assert wire("PING") == b"PONG"
    assert wire("AUTH", "wrong") == "ERR invalid password"
    assert wire("PING") == NOAUTH
    assert isinstance(server.wire()("HELLO", 3, "AUTH", "default", "secret"), dict)
    assert "secret" not in server.log()


def test_password_at_run_time(make_server: Callable[..., RealServer]) -> None:
    """C5.4 Setting requirepass makes every session unauthenticated, the caller's too."""
    server = make_server()
    wire, other = server.wire(), server.wire()
    assert wire("AUTH", "x") == "ERR Client sent AUTH, but no password is set"
    assert wire("CONFIG", "SET", "requirepass", "new") == b"OK"
    assert wire("PING") == other("PING") == NOAUTH
    assert wire("AUTH", "new") == b"OK"
    assert wire("CONFIG", "SET", "requirepass", "newer") == b"OK"
    assert wire("PING") == NOAUTH
    assert wire("AUTH", "newer") == b"OK"
    assert wire("CONFIG", "SET", "requirepass", "") == b"OK"
    assert other("PING") == b"PONG"


def test_reset_and_quit(wire: Wire) -> None:
    wire("CLIENT", "SETNAME", "me")
    wire("HELLO", 3)
    assert wire("RESET") == b"RESET"
    assert wire("CLIENT", "GETNAME") is NULL
    wire.raw(encode("QUIT") + encode("ADDJOB", "after-quit", "b", 0))
    assert wire.read_to_end() == b"+OK\r\n"


@pytest.mark.parametrize(
    "words",
    [
        ["NOSUCH" * 20_000],
        [b"\xff\x00\r\n"],
        ["CLIENT", "x" * 70_000],
        ["CONFIG", "SET", "x\r\ny", "1"],
        ["CONFIG", "SET", "maxmemory", b"\xff"],
        ["INFO", b"\xff"],
        ["SHOW", b"\x00" * 40],
        ["DEBUG", b"\xff\r\n"],
        ["DEBUG", "ERROR", "a\r\nb"],
        ["LATENCY", b"\xff"],
        ["SLOWLOG", "GET", "99999999999999999999"],
        ["NACK", "DELAY", "1e9", "D-12345678-123456789012345678901234-0001"],
        ["ADDJOB", "q", "b", ""],
        ["ADDJOB", "q", "b", 0, "TTL", "99999999999999999999"],
        ["QPEEK", "q", "-9223372036854775808"],
        ["HELLO", "\xb2"],
        ["SELECT", "1"],
        ["COMMAND", "INFO", b"\xff"],
        ["CLUSTER", "MEET", b"\xff", "1"],
        ["CLUSTER", "FORGET", b"\xff" * 40],
        ["PAUSE", "q", b"\xff"],
    ],
    ids=lambda words: str(words)[:40],
)
def test_hostile_words_get_one_reply(wire: Wire, words: list[str]) -> None:
    """C4.5 Whatever stands in the words: one reply of one line at the most for an error."""
    reply = wire(*words)
    assert isinstance(reply, Err | bytes | list)
    if isinstance(reply, Err):
        assert len(reply) < 100_000
        assert "\n" not in reply
    assert wire("PING") == b"PONG"
