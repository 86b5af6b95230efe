"""N4, N6 and N7: slow log-ins, guesses, and what was denied."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import hiredis
import pytest

from pump_box import PumpBox
from raw_resp import Err, Wire, encode, plain
from tuque.server.access.change import on_bell
from tuque.server.access.login import host_of
from tuque.server.state.client import Connection
from tuque.server.users.passwords import FORGET_MS, Guesses, Hasher
from tuque.server.users.tenants import AUTH, COMMAND, Denials

A, B = b"10.0.0.1", b"10.0.0.2"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[PumpBox]:
    made = PumpBox(tmp_path, login_connections="3")
    now_ms = made.server.system.boot_ns() // 1_000_000
    made.server.clock_offset_ms = int(made.n.now_ms) - now_ms  # time passes here
    yield made
    made.close()


def ask(box: PumpBox, wire: Wire, *words: str | bytes | int) -> object:
    """One command and its reply, which may take some turns."""
    reader = hiredis.Reader()
    wire.sock.setblocking(False)
    wire.sock.sendall(encode(*words))
    until = time.monotonic() + 60
    while time.monotonic() < until:
        box.pump.turn(5)
        try:
            reader.feed(wire.sock.recv(1 << 20))
        except BlockingIOError:
            continue
        reply = reader.gets()
        if reply is not False:
            return plain(reply)
    raise AssertionError("no reply")


def delays(guesses: Guesses, host: bytes, user: bytes, count: int, now_ms: int) -> list[int]:
    """How long each of so many log-ins waits, all of which fail at their turns."""
    found = []
    for _ in range(count):
        turn_ms = guesses.turn_ms(host, user, now_ms)
        found.append(int(turn_ms - now_ms))
        now_ms = int(turn_ms)
        guesses.failed(host, user, now_ms)
    return found


def test_turns() -> None:
    """N6.1 After three failed log-ins the next ones take turns, 100 ms apart; the time doubles with
    each failure up to 5 s, and ends a minute after the last one. A password is proved when its
    turn has come, not before.
    """
    guesses = Guesses()
    waits = delays(guesses, A, b"bob", 12, 1_000)
    assert waits == [0, 0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]
    now_ms = 1_000 + sum(waits)
    first = guesses.turn_ms(A, b"bob", now_ms)
    assert guesses.turn_ms(A, b"bob", now_ms) == first + 5_000, "one after the other"
    later = now_ms + FORGET_MS + 1
    assert guesses.turn_ms(A, b"bob", later) == later


def test_turns_of_address_and_user() -> None:
    """N6.2 Turns are taken for the address (of IPv6 its first 64 bits). A user that has logged in
    from an address before takes turns only for failures of that user from there. Failures at other
    addresses delay nobody
    """
    guesses = Guesses()
    guesses.proved(A, b"eve")
    guesses.proved(B, b"bob")
    now_ms = 1_000 + sum(delays(guesses, A, b"bob", 10, 1_000))
    assert guesses.turn_ms(A, b"new", now_ms) > now_ms, "the address"
    assert guesses.turn_ms(b"10.0.0.3", b"bob", now_ms) == now_ms, "no other address"
    assert guesses.turn_ms(A, b"eve", now_ms) == now_ms
    assert guesses.turn_ms(B, b"bob", now_ms) == now_ms
    assert guesses.turn_ms(B, b"new", now_ms) == now_ms
    later = now_ms + sum(delays(guesses, A, b"eve", 5, now_ms))
    assert guesses.turn_ms(A, b"eve", later) > later


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


def test_a_guess_is_proved_in_its_turn(box: PumpBox) -> None:
    """N6.1, N6.3: also the right password waits, and other commands do not."""
    root = box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", ">right")
    wire, other = box.connect(), box.connect()
    for _ in range(4):
        assert str(ask(box, wire, "AUTH", "bob", "wrong")).startswith("WRONGPASS")
    began = time.monotonic()  # the next turn is 400 ms after the fifth failure, not after AUTH
    assert str(ask(box, wire, "AUTH", "bob", "wrong")).startswith("WRONGPASS")
    other.sock.sendall(encode("AUTH", "bob", "right"))
    assert ask(box, root, "PING") == b"PONG"
    assert ask(box, other, "PING") == b"OK"
    assert time.monotonic() - began > 0.39
    info = str(ask(box, root, "INFO", "users"))
    assert "failed_logins:5" in info
    assert "late_logins:0" not in info
    rows = ask(box, root, "ACL", "LOG")
    assert isinstance(rows, list)
    entry = dict(zip(rows[0][::2], rows[0][1::2], strict=True))
    assert (entry[b"reason"], entry[b"count"], entry[b"username"]) == (b"auth", 5, b"bob")


def test_log_ins_while_the_node_loads(box: PumpBox) -> None:
    """N4.6 Log-ins also go on while the node reads its journal."""
    root, wire = box.connect(), box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", ">right", "+info", "+qlen", "~*")
    hasher = box.server.acl.hasher = Hasher()
    box.pump.watch_bell(hasher.bell.fd, lambda: on_bell(box.server))
    box.server.is_loading = True
    wire.sock.setblocking(False)
    wire.sock.sendall(encode("AUTH", "bob", "right") + encode("QLEN", "q") + encode("INFO"))
    heard, until = b"", time.monotonic() + 60
    while b"users_digest" not in heard and time.monotonic() < until:
        box.pump.turn(5)
        try:
            heard += wire.sock.recv(1 << 20)
        except BlockingIOError:
            continue
    assert heard.startswith(b"+OK\r\n-LOADING ")
    assert b"users_digest" in heard
    box.server.is_loading = False
    hasher.close()


def test_a_stranger_has_some_seconds(box: PumpBox) -> None:
    """N6.4 A connection that must log in and has not is closed after `login-timeout` (10 s), and by
    C2.9.
    """
    root = box.connect()
    ask(box, root, "CONFIG", "SET", "login-timeout", 1)
    ask(box, root, "CONFIG", "SET", "requirepass", "secret")
    ask(box, root, "AUTH", "secret")
    stranger = box.connect()
    known = box.connect()
    assert ask(box, known, "AUTH", "secret") == b"OK"
    until = time.monotonic() + 60
    while box.is_open(stranger) and time.monotonic() < until:
        box.pump.turn(20)
    assert not box.is_open(stranger)
    assert ask(box, known, "PING") == b"PONG"
    assert box.server.figures.strangers_closed == 1


@pytest.mark.parametrize("command", [("PING",), ("HELLO", 3), ("NONSENSE",), ("QLEN",), ("RESET",)])
def test_a_stranger_has_few_commands(box: PumpBox, command: tuple[str | int, ...]) -> None:
    """N6.6 Before its log-in a connection may send 20 commands, or IPROTO requests: the next one
    closes it, after `-NOAUTH too many commands before the log-in`. It counts in
    `closed_before_login`.
    """
    root = box.connect()
    ask(box, root, "CONFIG", "SET", "requirepass", "secret")
    assert ask(box, root, "AUTH", "secret") == b"OK"
    stranger, known = box.connect(), box.connect()
    for _ in range(19):
        ask(box, known, *command)
    assert ask(box, known, "AUTH", "secret") == b"OK"
    for _ in range(100):
        assert ask(box, known, "PING") == b"PONG"
    before = box.server.figures.commands + box.server.figures.turned_down
    heard = box.say(stranger, encode(*command) * 1_000)
    assert heard.count(b"\r\n") == 21
    assert heard.endswith(b"-NOAUTH too many commands before the log-in\r\n")
    assert not box.is_open(stranger)
    assert box.server.figures.commands + box.server.figures.turned_down - before <= 20
    assert box.server.figures.strangers_closed == 1


def test_little_is_read_of_a_stranger(box: PumpBox) -> None:
    """N6.6 A read of a connection before its log-in takes at most 512 bytes, without TLS."""
    root = box.connect()
    ask(box, root, "CONFIG", "SET", "requirepass", "secret")
    wire, flood, figures = box.connect(), box.connect(), box.server.figures
    before = figures.in_bytes
    flood.sock.sendall(b"PING\r\n" * 10_000)
    while box.is_open(flood) and box.hear(flood) == b"":
        pass
    assert 0 < figures.in_bytes - before <= 2_048
    long = "secret" + "x" * 10_000
    assert ask(box, wire, "AUTH", long) == Err("ERR invalid password")
    assert ask(box, wire, "AUTH", "secret") == b"OK"


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


def test_the_log_of_denials(box: PumpBox) -> None:
    """N7.2 ACL LOG RESET forgets them. ACL DRYRUN is not counted."""
    root, wire = box.connect(), box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", "nopass", "+qlen", "~a")
    assert ask(box, wire, "AUTH", "bob", "") == b"OK"
    refused = ask(box, wire, "QLEN", "b")
    assert isinstance(refused, Err)
    assert ask(box, root, "ACL", "DRYRUN", "bob", "QLEN", "b") == str(refused).encode()
    assert ask(box, root, "ACL", "DRYRUN", "bob", "QLEN", "a") == b"OK"
    assert "+ping" not in str(ask(box, root, "ACL", "DRYRUN", "bob", "PING"))
    ask(box, wire, "INFO")
    rows = ask(box, root, "ACL", "LOG")
    assert isinstance(rows, list)
    assert [row[row.index(b"object") + 1] for row in rows] == [b"info", b"b"]
    info = str(ask(box, root, "INFO", "users"))
    assert "denied_commands:1" in info
    assert "denied_queues:1" in info
    assert ask(box, root, "ACL", "LOG", "RESET") == b"OK"
    assert ask(box, root, "ACL", "LOG") == []


def test_the_digest(box: PumpBox) -> None:
    """N7.4 The digest is over names, rights and whether users are on, not over passwords: `tuque
    cluster status` warns if it differs between nodes.
    """
    root = box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", ">one", "~q")
    before = box.server.acl.digest()
    ask(box, root, "ACL", "SETUSER", "bob", ">two")
    assert box.server.acl.digest() == before
    for word in ("+qlen", "~r", "off"):
        ask(box, root, "ACL", "SETUSER", "bob", word)
        assert box.server.acl.digest() != before
        before = box.server.acl.digest()
