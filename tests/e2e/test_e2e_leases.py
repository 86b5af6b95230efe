"""Leases on a real server that is killed: who kept three numbers misses and repeats nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lab import RealServer
from raw_resp import Wire, encode

MakeServer = Callable[..., RealServer]
JOBS = 600
STEPS = ["NEXT", "FETCH", "COMMIT"]


class Reader:
    """Reads batches as a stream would: repeats a step until it is answered, then goes on."""

    def __init__(self, server: RealServer) -> None:
        self.server = server
        self.wire = server.wire()
        self.epoch = self.wire("LEASE", "OPEN", "g", "me", "q")
        self.seq = 1
        self.read: dict[int, list[bytes]] = {}
        self.committed: list[bytes] = []

    def step(self, kill_at: str) -> bool:
        """One batch; the server is killed when that step was sent. False when none is left."""
        taken = self.ask("NEXT", self.seq, "COUNT", 70, "PARTS", 1, "TTL", 60_000, kill_at=kill_at)
        if taken == 0:
            return False
        reply = self.ask("FETCH", self.seq, 0, kill_at=kill_at)
        ids = [row[0] for row in reply[2]]
        assert len(ids) == reply[1] == taken
        assert all(len(row) == 8 and len(row[2]) == 100 for row in reply[2])
        assert self.read.setdefault(self.seq, ids) == ids
        acked = self.ask("COMMIT", self.seq, kill_at=kill_at)
        assert isinstance(acked, int)
        assert acked == 0 or acked >= taken  # more: an answered COMMIT that no sync had seen
        self.committed += ids
        self.seq += 1
        return True

    def ask(self, word: str, *words: str | int, kill_at: str) -> object:
        """Ask; when this is the step to kill at, kill in the middle, start again and repeat."""
        args = ["LEASE", word, "g", self.epoch, *words]
        if word == kill_at:
            self.wire.raw(encode(*args))
            time.sleep(0.002 * (self.seq % 4))  # sometimes it was done, sometimes not
            self.server.kill()
            self.wire.close()
            self.server.start()
            self.wire = self.server.wire()
        return self.wire(*args)


@pytest.mark.parametrize("policy", [pytest.param("always", marks=pytest.mark.slow), "everysec"])
def test_killed_in_every_step(make_server: MakeServer, policy: str) -> None:
    server = make_server("--appendonly", "yes", "--appendfsync", policy)
    with server.wire() as wire:
        wire.raw(encode("ADDJOB", "q", "b" * 100, 0, "RETRY", 1) * JOBS)
        added = [wire.read() for _ in range(JOBS)]
    reader = Reader(server)
    i = 0
    while reader.step(STEPS[i % 3] if i < 6 else ""):
        i += 1
    assert i == -(-JOBS // 70)
    assert sorted(reader.committed) == sorted(added)
    with server.wire() as wire:
        assert wire("QLEN", "q") == 0
        assert wire("DEBUG", "CHECK") == b"OK"
        assert b"registered_jobs:0\r\n" in wire("INFO", "jobs")


@pytest.mark.slow
def test_a_large_batch(node: RealServer) -> None:
    """A batch of 100,000 jobs is taken, read as columns and committed."""
    wire: Wire = node.wire()
    count = 100_000
    for _ in range(count // 5000):
        wire.raw(encode("ADDJOB", "large", "x" * 20, 0) * 5000)
        for _ in range(5000):
            wire.read()
    epoch = wire("LEASE", "OPEN", "large", "me", "large")
    options = ("COUNT", count, "PARTS", 4, "TTL", 60_000)
    assert wire("LEASE", "NEXT", "large", epoch, 1, *options) == count
    found: set[bytes] = set()
    for part in range(4):
        at, total = 0, 1
        while at < total:
            words = ("FROM", at, "COUNT", 20_000, "COLUMNS")
            reply = wire("LEASE", "FETCH", "large", epoch, 1, part, *words)
            found |= {reply[4][i : i + 40] for i in range(0, len(reply[4]), 40)}
            assert reply[8] == b"x" * 20 * reply[2]
            at, total = reply[-1], reply[1]
    assert len(found) == count
    assert wire("LEASE", "COMMIT", "large", epoch, 1) == count
