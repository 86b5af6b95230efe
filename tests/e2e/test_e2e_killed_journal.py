"""What was answered survives kill -9, under every policy (SPEC J4.2, promises 1 and 3).

Run it as a program for more rounds: `python tests/e2e/test_e2e_killed_journal.py 40`.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import hiredis
import pytest

from lab import RealServer
from raw_resp import Wire, encode

BODY = b"x" * 100
BATCH = 200


class Producer(threading.Thread):
    """Adds jobs in pipelines and acks every tenth, until its connection breaks."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(daemon=True)
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.name = name
        self.answered: list[bytes] = []
        self.acked: set[bytes] = set()

    def run(self) -> None:
        add = encode("ADDJOB", self.name, BODY, 0, "RETRY", 300)
        reader = hiredis.Reader()
        to_ack: list[bytes] = []
        try:
            while True:
                acks = b"".join(encode("ACKJOB", id) for id in to_ack)
                self.sock.sendall(acks + add * BATCH)
                for id in to_ack:
                    if self.reply(reader) == 1:
                        self.acked.add(id)
                came = [self.reply(reader) for _ in range(BATCH)]
                ids = [id for id in came if isinstance(id, bytes)]
                self.answered += ids
                to_ack = ids[::10]
        except OSError:
            return

    def reply(self, reader: hiredis.Reader) -> object:
        """The next reply; OSError at the end of the connection."""
        while True:
            found = reader.gets()
            if found is not False:
                return found
            data = self.sock.recv(1 << 16)
            if not data:
                raise OSError("closed")
            reader.feed(data)


def known(wire: Wire, ids: list[bytes]) -> set[bytes]:
    """Which of these jobs the node has, not acknowledged."""
    found: set[bytes] = set()
    for at in range(0, len(ids), 500):
        for id in ids[at : at + 500]:
            wire.send("SHOW", id)
        for id in ids[at : at + 500]:
            job = wire.read()
            if isinstance(job, list) and dict(zip(job[::2], job[1::2], strict=True))[b"state"] in (
                b"queued",
                b"active",
                b"delivered",
            ):
                found.add(id)
    return found


def kill_in_rewrite(place: Path, policy: str, jobs: int) -> tuple[int, int, int]:
    """One round; returns how many were answered, lost, and how many acks were undone."""
    server = RealServer(place, "--appendonly", "yes", "--appendfsync", policy).start()
    producers = [Producer(server.port, f"q{i}") for i in range(3)]
    try:
        for one in producers:
            one.start()
        deadline = time.monotonic() + 60
        while sum(len(one.answered) for one in producers) < jobs and time.monotonic() < deadline:
            time.sleep(0.01)
        with Wire(server.port) as admin:
            assert isinstance(admin("BGREWRITEAOF"), bytes)
        time.sleep(random.random() * 0.8)  # at any moment of the rewrite
        os.kill(server.pid, signal.SIGKILL)
        for one in producers:
            one.join(30)
        server.end()
        server.start()
        answered = [id for one in producers for id in one.answered]
        acked = {id for one in producers for id in one.acked}
        asked = {id for one in producers for id in one.answered[::10]}
        with Wire(server.port) as wire:
            here = known(wire, answered)
        lost = [id for id in answered if id not in here and id not in asked]
        return len(answered), len(lost), len(acked & here)
    finally:
        server.end()


def kill_after_adds(place: Path, policy: str) -> int:
    """Three adds, one after another, by an idle node; returns how many were lost."""
    server = RealServer(place, "--appendonly", "yes", "--appendfsync", policy).start()
    try:
        if policy == "everysec":
            time.sleep(1.2)  # the last sync is long ago: that of the first add begins at once
        with Wire(server.port) as wire:
            ids = [wire("ADDJOB", "q", BODY, 0) for _ in range(3)]
            os.kill(server.pid, signal.SIGKILL)
        server.end()
        server.start()
        with Wire(server.port) as wire:
            return 3 - len(known(wire, ids))
    finally:
        server.end()


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_three_adds_outlive_a_kill(tmp_path: Path, policy: str) -> None:
    """With a journal a job survives a kill of the process, under every policy (promise 1)."""
    assert kill_after_adds(tmp_path, policy) == 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_what_was_answered_in_a_rewrite_outlives_a_kill(tmp_path: Path, policy: str) -> None:
    """J4.2 Under every policy a reply that reveals a change leaves when its record is in the file:
    what a killed process answered is kept.
    """
    for number in range(5):
        place = tmp_path / str(number)
        place.mkdir()
        answered, lost, undone = kill_in_rewrite(place, policy, 60_000)
        assert answered > 60_000
        assert (lost, undone) == (0, 0), f"of {answered}"


def main() -> None:
    """Rounds of both kinds; prints what was lost."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for kind in ("adds", "rewrite"):
        lossy = lost = undone = answered = 0
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as place:
                if kind == "adds":
                    a, b, c = 3, kill_after_adds(Path(place), "everysec"), 0
                else:
                    a, b, c = kill_in_rewrite(Path(place), "everysec", 200_000)
            answered, lost, undone, lossy = answered + a, lost + b, undone + c, lossy + (b + c > 0)
        print(
            f"{kind}: {rounds} rounds, {answered} answered, {lost} lost and {undone} acks undone "
            f"in {lossy} rounds",
            flush=True,
        )


if __name__ == "__main__":
    main()
