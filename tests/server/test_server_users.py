"""Users of a real server: the thread for passwords, the users file, connections before a log-in."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

from live import Live, ask
from live import make_live as make_live

from lab import free_port
from until import until


def test_a_flood_of_log_ins_stops_nobody(make_live: Callable[..., Live]) -> None:
    """N4.2: proofs take some 40 ms each, and the loop goes on meanwhile."""
    live = make_live()
    root = live.connect()
    assert ask(root, "ACL SETUSER bob on >right") == b"+OK\r\n"
    flood = [live.connect() for _ in range(40)]
    for i, sock in enumerate(flood):
        sock.sendall(b"AUTH user%d wrong\r\n" % i)
    began, pings, worst_s = time.monotonic(), 0, 0.0
    while time.monotonic() - began < 1.0:
        before = time.monotonic()
        assert ask(root, "PING") == b"+PONG\r\n"
        worst_s = max(worst_s, time.monotonic() - before)
        pings += 1
    assert pings > 50
    told = ask(root, "INFO users")
    assert b"failed_logins:40" not in told, "they wait for their turns"
    for sock in flood:
        sock.close()


def test_the_file_at_the_start_and_later(make_live: Callable[..., Live], tmp_path: Path) -> None:
    """N5.1-N5.4, N6.3: what ACL SAVE wrote is there after a restart; changes are seen."""
    path = tmp_path / "users.acl"
    path.write_text("")
    live = make_live("--users-file", "users.acl")
    assert "leaves `default` open" not in live.log(), "it has no users yet"
    root = live.connect()
    assert ask(root, "ACL SETUSER bob on >sesame +@produce ~q*") == b"+OK\r\n"
    assert ask(root, "ACL SETUSER root on >sesam2 +@all ~*") == b"+OK\r\n"
    assert ask(root, "ACL SETUSER default off") in (b"+OK\r\n", b"")
    wire = live.connect()
    assert ask(wire, "AUTH root sesam2") == b"+OK\r\n"
    assert ask(wire, "ACL SAVE") == b"+OK\r\n"
    live.end()
    live.start()
    assert "leaves `default` open" not in live.log()
    wire = live.connect()
    assert ask(wire, "QLEN q").startswith(b"-NOAUTH")
    assert ask(wire, "AUTH bob wrong").startswith(b"-WRONGPASS")
    assert ask(wire, "AUTH bob sesame") == b"+OK\r\n"
    assert ask(wire, "ADDJOB q x 0").startswith(b"+D-")
    assert ask(wire, "QLEN q").startswith(b"-NOPERM")
    good = path.read_text()
    path.write_text(good + "user bob nonsense\n")
    until(lambda: "the users stay as they were" in live.log())
    assert ask(wire, "QLEN q").startswith(b"-NOPERM")
    path.write_text(good.replace("+@produce", "+@produce +qlen"))
    until(lambda: ask(wire, "QLEN q") == b":1\r\n")
    assert "sesam" not in live.log()
    assert "log-ins of user bob from 127.0.0.1 fail" in live.log()
    live.end()
    path.write_text("user bob off\n")
    live.start()
    assert "leaves `default` open" in live.log()


def test_few_strangers_of_an_address(make_live: Callable[..., Live]) -> None:
    """N6.5 At most `login-connections` (100) connections of one address may be in that state,
    IPROTO guests without any right among them; a further one gets `-ERR too many connections of
    your address have not logged in`.
    """
    live = make_live("--requirepass", "secret", "--login-connections", "3")
    socks: list[socket.socket] = [live.connect() for _ in range(3)]
    for sock in socks:
        assert ask(sock, "PING").startswith(b"-NOAUTH")
    refused = live.connect()
    told = b"-ERR too many connections of your address have not logged in\r\n"
    assert refused.recv(1_000) == told
    assert ask(socks[0], "AUTH secret") == b"+OK\r\n"
    late = live.connect()
    assert ask(late, "AUTH secret") == b"+OK\r\n"
    for sock in (*socks, refused, late):
        sock.close()


def test_few_iproto_strangers_of_an_address(make_live: Callable[..., Live]) -> None:
    """N6.5 IPROTO guests without any right among them; a further one gets `-ERR too many
    connections of your address have not logged in`, over IPROTO it is closed without an error.
    """
    port = str(free_port())
    flags = ("--requirepass", "secret", "--login-connections", "3", "--iproto-port", port)
    live = make_live(*flags)
    where = ("127.0.0.1", int(port))
    socks = [live.connect()]
    assert ask(socks[0], "PING").startswith(b"-NOAUTH")
    for _ in range(2):
        socks.append(socket.create_connection(where, timeout=60))
        assert socks[-1].recv(9) == b"Tarantool"
    refused = socket.create_connection(where, timeout=60)
    assert refused.recv(9) == b""
    socks[1].close()

    def is_let_in() -> bool:
        sock = socket.create_connection(where, timeout=60)
        socks.append(sock)
        return sock.recv(9) == b"Tarantool"

    until(is_let_in)
    for sock in [*socks, refused]:
        sock.close()
