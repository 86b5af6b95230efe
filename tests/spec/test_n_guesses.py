"""N4, N6 and N7: slow log-ins, guesses, and what was denied."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

import pytest

from raw_resp import Err, encode
from tuque.server.access.change import on_bell
from tuque.server.access.login import host_of
from tuque.server.state.client import Connection
from tuque.server.users.passwords import FORGET_MS, Guesses, Hasher
from tuque.server.users.tenants import AUTH, COMMAND, Denials
from world import World

A, B = b"10.0.0.1", b"10.0.0.2"


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world(login_connections="3")


def comes_ms(guesses: Guesses, host: bytes, user: bytes, now_ms: int) -> int:
    """When a log-in has its turn, if nobody is before it; it takes it."""
    turn = guesses.join_line(host, user, now_ms)
    if turn is None:
        return now_ms
    at_ms = int(turn.comes_ms(now_ms))
    assert turn.comes_ms(at_ms) == at_ms
    return at_ms


def delays(guesses: Guesses, host: bytes, user: bytes, count: int, now_ms: int) -> list[int]:
    """How long each of so many log-ins waits, all of which fail at their turns."""
    found = []
    for _ in range(count):
        turn_ms = comes_ms(guesses, host, user, now_ms)
        found.append(turn_ms - now_ms)
        now_ms = turn_ms
        guesses.failed(host, user, now_ms)
    return found


def test_turns() -> None:
    """N6.1 After three failed log-ins the next ones take turns in the order of their coming, 100
    ms apart; the time doubles with each failure up to 1 s, and ends a minute after the last one.
    A password is proved when its turn has come, not before.
    """
    guesses = Guesses()
    waits = delays(guesses, A, b"bob", 12, 1_000)
    assert waits == [0, 0, 0, 100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000]
    now_ms = 1_000 + sum(waits)
    first, gone, last = [guesses.join_line(A, b"bob", now_ms) for _ in range(3)]
    assert first is not None and gone is not None and last is not None
    now_ms += 1_000
    assert last.comes_ms(now_ms) == now_ms + 10, "not before the first"
    assert first.comes_ms(now_ms) == now_ms
    assert gone.comes_ms(now_ms) == last.comes_ms(now_ms) == now_ms + 1_000
    gone.leave()
    now_ms += 1_000
    assert last.comes_ms(now_ms) == now_ms, "its place is free"
    later = now_ms + FORGET_MS + 1
    assert comes_ms(guesses, A, b"bob", later) == later


def test_a_user_that_was_off_logs_in_at_once(world: World) -> None:
    """N6.8 The right password of a user that is off fails, and delays nobody: its programs log in
    at once when the user is on again.
    """
    assert world.run("ACL", "SETUSER", "bob", "on", ">secret", "+@all", "~*") == b"OK"
    wire = world.wire()
    assert wire("AUTH", "bob", "secret") == b"OK"
    assert world.run("ACL", "SETUSER", "bob", "off") == b"OK"
    for _ in range(12):
        assert str(world.wire()("AUTH", "bob", "secret")).startswith("WRONGPASS")
    assert world.run("ACL", "SETUSER", "bob", "on") == b"OK"
    assert world.wire()("AUTH", "bob", "secret") == b"OK"
    for _ in range(3):
        assert str(world.wire()("AUTH", "bob", "wrong")).startswith("WRONGPASS")
    assert world.wire()("AUTH", "bob", "secret") is None, "it waits for its turn"


def test_turns_of_address_and_user() -> None:
    """N6.2 Turns are taken for the address (of IPv6 its first 64 bits). A user that has logged in
    from an address before takes turns only for failures of that user from there. Failures at other
    addresses delay nobody
    """
    guesses = Guesses()
    guesses.proved(A, b"eve")
    guesses.proved(B, b"bob")
    now_ms = 1_000 + sum(delays(guesses, A, b"bob", 10, 1_000))
    assert comes_ms(guesses, A, b"new", now_ms) > now_ms, "the address"
    assert comes_ms(guesses, b"10.0.0.3", b"bob", now_ms) == now_ms, "no other address"
    assert comes_ms(guesses, A, b"eve", now_ms) == now_ms
    assert comes_ms(guesses, B, b"bob", now_ms) == now_ms
    assert comes_ms(guesses, B, b"new", now_ms) == now_ms
    later = now_ms + sum(delays(guesses, A, b"eve", 5, now_ms))
    assert comes_ms(guesses, A, b"eve", later) > later


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1:5000", b"10.0.0.1"),
        ("unix:/run/t", b"unix"),
        ("::ffff:10.0.0.1:5000", b"10.0.0.1"),
        ("2001:db8:0:1:2:3:4:5:5000", b"2001:0db8:0000:0001"),
        ("2001:db8:0:1::9:5000", b"2001:0db8:0000:0001"),
        ("fe80::1%eth0:5000", b"fe80:0000:0000:0000"),
    ],
)
def test_the_address_that_counts(address: str, host: bytes) -> None:
    """[N6] Who has a network of IPv6 has 2^64 addresses."""
    here, there = socket.socketpair()
    assert host_of(Connection(1, here, address, 0)) == host
    here.close()
    there.close()


def test_a_guess_is_proved_in_its_turn(world: World) -> None:
    """N6.1, N6.3: also the right password waits, and other commands do not."""
    root = world.wire()
    root("ACL", "SETUSER", "bob", "on", ">right")
    wire, other = world.wire(), world.wire()
    for _ in range(4):
        assert str(wire.ask("AUTH", "bob", "wrong")).startswith("WRONGPASS")
    began_ms = world.now_ms  # the next turn is 400 ms after the fifth failure, not after AUTH
    assert str(wire.ask("AUTH", "bob", "wrong")).startswith("WRONGPASS")
    other.send("AUTH", "bob", "right")
    assert root("PING") == b"PONG"
    assert other.read() == b"OK"
    assert world.now_ms - began_ms > 390
    info = str(root("INFO", "users"))
    assert "failed_logins:5" in info
    assert "late_logins:0" not in info
    rows = root("ACL", "LOG")
    assert isinstance(rows, list)
    entry = dict(zip(rows[0][::2], rows[0][1::2], strict=True))
    assert (entry[b"reason"], entry[b"count"], entry[b"username"]) == (b"auth", 5, b"bob")


def test_old_passwords_lock_nobody_out(world: World) -> None:
    """N6.4 The time does not run while its log-in waits for a turn

    N6.1 A place whose connection has gone is free: a log-in waits a second at most for each that
    was in line before it.
    """
    root = world.wire()
    root("CONFIG", "SET", "login-timeout", 1)
    root("CONFIG", "SET", "login-connections", 100)
    root("CONFIG", "SET", "requirepass", "secret")
    root("AUTH", "secret")
    root("ACL", "SETUSER", "bob", "on", ">right")
    for _ in range(8):
        assert str(world.wire().ask("AUTH", "bob", "wrong")).startswith("WRONGPASS")
    old = [world.wire() for _ in range(20)]
    for wire in old:
        wire.send("AUTH", "bob", "wrong")
    new = world.wire()
    began_ms = world.now_ms
    new.send("AUTH", "bob", "right")
    for wire in old[5:]:
        wire.close()
    assert new.read() == b"OK"
    assert 5_000 <= world.now_ms - began_ms <= 7_000
    assert all(str(wire.read()).startswith("WRONGPASS") for wire in old[:5])
    assert world.server.acl.waiting == 0
    assert old[4].is_open()
    world.until(lambda: old[4].is_closed, 3_000)  # the time runs again


def test_log_ins_while_the_node_loads(world: World) -> None:
    """N4.6 Log-ins also work while the node reads its journal."""
    root, wire = world.wire(), world.wire()
    root("ACL", "SETUSER", "bob", "on", ">right", "+info", "+qlen", "~*")
    hasher = world.server.acl.hasher = Hasher()
    world.server.is_loading = True
    heard = wire.say(encode("AUTH", "bob", "right") + encode("QLEN", "q") + encode("INFO"))
    until = time.monotonic() + 60
    while b"users_digest" not in heard and time.monotonic() < until:
        select.select([hasher.bell.fd], [], [], 0.1)  # its thread is a real one
        on_bell(world.server)
        world.settle()
        heard += wire.hear()
    assert heard.startswith(b"+OK\r\n-LOADING ")
    assert b"users_digest" in heard
    world.server.is_loading = False
    hasher.close()


def test_a_stranger_has_some_seconds(world: World) -> None:
    """N6.4 A connection that must log in and has not is closed after `login-timeout` (10 s), and by
    C2.9.
    """
    root = world.wire()
    root("CONFIG", "SET", "login-timeout", 1)
    root("CONFIG", "SET", "requirepass", "secret")
    root("AUTH", "secret")
    stranger = world.wire()
    known = world.wire()
    assert known("AUTH", "secret") == b"OK"
    world.pass_ms(999)
    assert stranger.is_open()
    world.until(lambda: stranger.is_closed, 2_000)
    assert known("PING") == b"PONG"
    assert world.server.figures.strangers_closed == 1


@pytest.mark.parametrize("command", [("PING",), ("HELLO", 3), ("NONSENSE",), ("QLEN",), ("RESET",)])
def test_a_stranger_has_few_commands(world: World, command: tuple[str | int, ...]) -> None:
    """N6.6 Before its log-in a connection may send 20 commands, or IPROTO requests: the next one
    closes it, after `-NOAUTH too many commands before the log-in`. It counts in
    `closed_before_login`.
    """
    root = world.wire()
    root("CONFIG", "SET", "requirepass", "secret")
    assert root("AUTH", "secret") == b"OK"
    stranger, known = world.wire(), world.wire()
    for _ in range(19):
        known(*command)
    assert known("AUTH", "secret") == b"OK"
    for _ in range(100):
        assert known("PING") == b"PONG"
    before = world.server.figures.commands + world.server.figures.turned_down
    heard = stranger.say(encode(*command) * 1_000)
    assert heard.count(b"\r\n") == 21
    assert heard.endswith(b"-NOAUTH too many commands before the log-in\r\n")
    assert not stranger.is_open()
    assert world.server.figures.commands + world.server.figures.turned_down - before <= 20
    assert world.server.figures.strangers_closed == 1


def test_little_is_read_of_a_stranger(world: World) -> None:
    """N6.6 Without TLS a read takes at most 512 bytes before the log-in."""
    root = world.wire()
    root("CONFIG", "SET", "requirepass", "secret")
    wire, flood, figures = world.wire(), world.wire(), world.server.figures
    before = figures.in_bytes
    flood.put(b"PING\r\n" * 10_000)
    assert not flood.is_open()
    assert 0 < figures.in_bytes - before <= 2_048
    long = "secret" + "x" * 10_000
    assert wire("AUTH", long) == Err("ERR invalid password")
    assert wire("AUTH", "secret") == b"OK"


def test_denials() -> None:
    """N7.1 ACL LOG shows the latest `acllog-max-len` (128) denials, newest first: reason `command`,
    `key` or `auth`, what was denied, the user, the client, how often. The same within a minute
    counts in one entry.
    """
    denials = Denials()
    for at_ms in (0, 1_000, 59_000, 130_000):
        denials.note(AUTH, b"AUTH", b"bob", b"a:%d" % at_ms, at_ms, 3)
    denials.note(COMMAND, b"addjob", b"bob", b"a:1", 130_000, 3)
    seen = [(one.reason, int(one.count), one.client) for one in denials.entries]
    assert seen == [("command", 1, b"a:1"), ("auth", 1, b"a:130000"), ("auth", 3, b"a:59000")]
    for i in range(10):
        denials.note(COMMAND, b"%d" % i, b"bob", b"", 130_000, 3)
    assert [one.what for one in denials.entries] == [b"9", b"8", b"7"]
    assert (denials.logins, denials.commands) == (4, 11)


def test_the_log_of_denials(world: World) -> None:
    """N7.2 ACL LOG RESET forgets them. ACL DRYRUN is not counted."""
    root, wire = world.wire(), world.wire()
    root("ACL", "SETUSER", "bob", "on", "nopass", "+qlen", "~a")
    assert wire("AUTH", "bob", "") == b"OK"
    refused = wire("QLEN", "b")
    assert isinstance(refused, Err)
    assert root("ACL", "DRYRUN", "bob", "QLEN", "b") == str(refused).encode()
    assert root("ACL", "DRYRUN", "bob", "QLEN", "a") == b"OK"
    assert "+ping" not in str(root("ACL", "DRYRUN", "bob", "PING"))
    wire("INFO")
    rows = root("ACL", "LOG")
    assert isinstance(rows, list)
    assert [row[row.index(b"object") + 1] for row in rows] == [b"info", b"b"]
    info = str(root("INFO", "users"))
    assert "denied_commands:1" in info
    assert "denied_queues:1" in info
    assert root("ACL", "LOG", "RESET") == b"OK"
    assert root("ACL", "LOG") == []


def test_the_digest(world: World) -> None:
    """N7.4 The digest is over names, rights and whether users are on, not over passwords: `tuque
    cluster status` warns if it differs between nodes.
    """
    root = world.wire()
    root("ACL", "SETUSER", "bob", "on", ">one", "~q")
    before = world.server.acl.digest()
    root("ACL", "SETUSER", "bob", ">two")
    assert world.server.acl.digest() == before
    for word in ("+qlen", "~r", "off"):
        root("ACL", "SETUSER", "bob", word)
        assert world.server.acl.digest() != before
        before = world.server.acl.digest()
