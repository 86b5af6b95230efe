"""Commands whose effect shows only with the loop running: ends, pauses, journal, restart."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable

from live import PATIENCE_S, Live, ask


def test_connections_end_as_told(make_live: Callable[..., Live]) -> None:
    live = make_live()
    a, b = live.connect(), live.connect()
    assert ask(a, "CLIENT ID").startswith(b":")
    address = "{}:{}".format(*b.getsockname()[:2])
    assert ask(a, f"CLIENT KILL {address}") == b"+OK\r\n"
    assert b.recv(1) == b""
    b = live.connect()
    number = ask(b, "CLIENT ID")[1:-2].decode()
    b.sendall(b"GETJOB FROM q\r\n")  # blocked clients can be closed too
    while b"blocked_clients:1" not in ask(a, "INFO clients"):
        pass
    assert ask(a, f"CLIENT KILL ID {number}") == b":1\r\n"
    assert b.recv(1) == b""
    assert b"blocked_clients:0" in ask(a, "INFO clients")
    a.sendall(b"PING\r\nQUIT\r\nPING\r\n")
    assert read_all(a) == b"+PONG\r\n+OK\r\n"
    c = live.connect()
    own = "{}:{}".format(*c.getsockname()[:2])
    c.sendall(f"CLIENT KILL {own}\r\nPING\r\n".encode())
    assert read_all(c) == b"+OK\r\n"


def read_all(sock: socket.socket) -> bytes:
    """Everything until the end of the connection."""
    parts = []
    while True:
        part = sock.recv(4096)
        if not part:
            return b"".join(parts)
        parts.append(part)


def test_pause_puts_commands_off(make_live: Callable[..., Live]) -> None:
    live = make_live()
    a, b = live.connect(), live.connect()
    started = time.monotonic()
    assert ask(a, "CLIENT PAUSE 200") == b"+OK\r\n"
    assert ask(b, "PING") == b"+PONG\r\n"
    assert time.monotonic() - started >= 0.199  # the clock of the node counts whole ms
    a.close()
    b.close()


def test_monitor_sees_others(make_live: Callable[..., Live]) -> None:
    live = make_live()
    eye, other = live.connect(), live.connect()
    assert ask(eye, "MONITOR") == b"+OK\r\n"
    assert ask(other, "PING hello") == b"$5\r\nhello\r\n"
    line = eye.recv(4096).decode()
    assert line.endswith('] "PING" "hello"\r\n')
    assert "[{}:{}]".format(*other.getsockname()[:2]) in line
    eye.close()
    assert ask(other, "PING") == b"+PONG\r\n"
    other.close()


def test_shutdown_ends_without_a_reply(make_live: Callable[..., Live]) -> None:
    live = make_live()
    a = live.connect()
    assert ask(a, "SHUTDOWN") == b""
    assert live.wait(PATIENCE_S) == 0


def test_a_second_server_on_the_directory_is_refused(make_live: Callable[..., Live]) -> None:
    live = make_live()
    command = [sys.executable, "-m", "tuque", "server", "--port", "0", "--dir", str(live.directory)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert second.returncode == 1
    assert "is in use by another server; stop it, or give this one another dir" in second.stderr


def test_the_journal_is_switched_while_clients_work(make_live: Callable[..., Live]) -> None:
    live = make_live("--set", "appendfsync=always")
    a = live.connect()
    first = ask(a, "ADDJOB q first 0")[1:-2]
    assert ask(a, "CONFIG SET appendonly yes") == b"+OK\r\n"
    second = ask(a, "ADDJOB q second 0")[1:-2]
    assert ask(a, "DEBUG LOADAOF") == b"+OK\r\n"
    third = ask(a, "ADDJOB q third 0")[1:-2]  # its reply waits for the journal loaded again
    a.sendall(b"CONFIG SET appendonly no\r\nCONFIG SET appendonly yes\r\n")
    while len(got := a.recv(100, socket.MSG_PEEK)) < 10:
        assert got == b"+OK\r\n"
    assert a.recv(100) == b"+OK\r\n+OK\r\n"
    assert ask(a, f"ACKJOB {first.decode()}") == b":1\r\n"
    live.kill()
    live.flags = ["--set", "appendonly=yes"]
    live.start()
    b = live.connect()
    while (shown := ask(b, "JSCAN")).startswith(b"-LOADING"):
        pass
    assert first not in shown and second in shown and third in shown
    a.close()
    b.close()


def test_restart_keeps_the_node(make_live: Callable[..., Live]) -> None:
    live = make_live()
    a = live.connect()
    node_id = ask(a, "CLUSTER MYID")
    ask(a, "CLUSTER LEAVING yes")
    run_id = ask(a, "INFO server").split(b"run_id:")[1][:40]
    assert ask(a, "DEBUG RESTART") == b""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            b = live.connect()
            if ask(b, "INFO server").split(b"run_id:")[1][:40] != run_id:
                break
        except (OSError, IndexError):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert ask(b, "CLUSTER MYID") == node_id
    assert ask(b, "CLUSTER LEAVING") == b"+yes\r\n"
    assert live.is_ready()  # the same process
    b.close()
