"""What a server tells systemd: READY, STOPPING, WATCHDOG (SPEC O2.3)."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import RealServer, free_port
from tuque.server.start.doors import Notifier, watchdog_s

PATIENCE_S = 60.0


class Ear:
    """A notification socket, and what came so far."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind("\0" + path[1:] if path.startswith("@") else path)
        self.sock.settimeout(PATIENCE_S)

    def hear(self, word: str) -> list[str]:
        """Wait for a notification with that line."""
        while True:
            lines = self.sock.recv(4_096).decode().split("\n")
            if word in lines:
                return lines


@pytest.fixture(params=["path", "abstract"])
def ear(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ear]:
    path = str(tmp_path / "notify")
    if request.param == "abstract":
        path = f"@tuque-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    made = Ear(path)
    yield made
    made.sock.close()


def test_a_server_tells_that_it_serves_lives_and_stops(
    ear: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC O2.3: With `NOTIFY_SOCKET` (systemd's `Type=notify`) the server sends `READY=1` when it
    serves, `STOPPING=1` when it stops, and `WATCHDOG=1` at least each 5 s and three times in
    `WATCHDOG_USEC`, unless its loop has not turned for 15 s (O2.1).
    """
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    server = RealServer(tmp_path, port=free_port())
    try:
        server.start()
        assert f"STATUS=serves on port {server.port}" in ear.hear("READY=1")
        ear.hear("WATCHDOG=1")  # one may have been on its way
        assert "EXTEND_TIMEOUT_USEC=60000000" not in ear.hear("WATCHDOG=1")
        server.signal(signal.SIGTERM)
        ear.hear("STOPPING=1")
        assert server.wait() == 0
    finally:
        server.end()


def test_a_loop_that_stands_still_is_not_called_well(ear: Ear) -> None:
    """SPEC O2.4: While it reads its journal it asks for more time to start, each time for 60 s."""
    age_s = 16.0
    notifier = Notifier(lambda: age_s)
    os.environ["WATCHDOG_USEC"] = "30000"
    try:
        notifier.start()
        ear.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            ear.hear("WATCHDOG=1")
        ear.sock.settimeout(PATIENCE_S)
        age_s = 14.0
        assert "EXTEND_TIMEOUT_USEC=60000000" in ear.hear("WATCHDOG=1")
        notifier.stopping()
        age_s = 16.0
        ear.hear("STOPPING=1")
        ear.hear("WATCHDOG=1")
    finally:
        notifier.close()
        del os.environ["WATCHDOG_USEC"]


def test_nothing_is_sent_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    assert watchdog_s() == 3.0
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_s() == 0.0
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    notifier = Notifier(lambda: 0.0)
    notifier.ready("a receiver that is gone")
    monkeypatch.delenv("NOTIFY_SOCKET")
    silent = Notifier(lambda: 0.0)
    silent.start()
    silent.ready("nobody asked")
    silent.close()
