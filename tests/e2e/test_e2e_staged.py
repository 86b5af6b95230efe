"""Staged writes on a real server that is killed: each input gives one output, none is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lab import RealServer
from raw_resp import Wire, encode

MakeServer = Callable[..., RealServer]
JOBS = 400
BATCH = 60


class Mill:
    """Reads batches of `in`, stages one job in `out` for each, and publishes with the ack.

    It repeats what was not answered, as a stream that restarts from its checkpoint does.
    """

    def __init__(self, server: RealServer) -> None:
        self.server = server
        self.wire = server.wire()
        self.epoch = self.wire("LEASE", "OPEN", "g", "me", "in")
        self.seq = 1
        self.attempt = 0
        self.repeated = 0

    def step(self, kill_at: str) -> bool:
        """One batch; the server is killed while that step is under way. False: none is left."""
        words = ("LEASE", "NEXT", "g", self.epoch, self.seq, "COUNT", BATCH, "TTL", 60_000)
        if self.wire(*words) == 0:
            return False
        rows = self.wire("LEASE", "FETCH", "g", self.epoch, self.seq, 0)[2]
        txn = f"t{self.seq}"
        name = self.stage_all(txn, [row[2] for row in rows], kill_at == "STAGE")
        ack = ("ACK", "g", self.epoch, self.seq)
        publish = ("PUBLISH", "mill", self.seq, *ack, txn, name)
        if kill_at == "PUBLISH":
            self.wire.raw(encode(*publish))
            self.kill()
        done = self.wire(*publish)
        assert done in (len(rows), -1), done
        self.repeated += done == -1
        self.seq += 1
        return True

    def stage_all(self, txn: str, bodies: list[bytes], is_killed: bool) -> str:
        """Stage the results in an attempt that is whole; the name of it."""
        while True:
            self.attempt += 1
            name = f"a{self.attempt}"
            lot = [encode("STAGE", txn, name, 60_000, "out", b"of " + body) for body in bodies]
            self.wire.raw(b"".join(lot))
            if not is_killed:
                assert [self.wire.read() for _ in lot] == list(range(1, len(lot) + 1))
                return name
            self.kill()
            is_killed = False

    def kill(self) -> None:
        """Kill the server a little later, and start it again."""
        time.sleep(0.002 * (self.seq % 4))  # sometimes it was done, sometimes not
        self.server.kill()
        self.wire.close()
        self.server.start()
        self.wire = self.server.wire()


@pytest.mark.parametrize("policy", [pytest.param("always", marks=pytest.mark.slow), "everysec"])
def test_killed_in_every_step(make_server: MakeServer, policy: str) -> None:
    server = make_server("--appendonly", "yes", "--appendfsync", policy)
    with server.wire() as wire:
        bodies = [b"body %d" % i for i in range(JOBS)]
        wire.raw(b"".join(encode("ADDJOB", "in", body, 0) for body in bodies))
        for _ in bodies:
            wire.read()
    mill = Mill(server)
    i = 0
    while mill.step(["PUBLISH", "STAGE", "PUBLISH", ""][i % 4]):
        i += 1
    assert i == -(-JOBS // BATCH)
    with server.wire() as wire:
        jobs = wire("GETJOB", "COUNT", 2 * JOBS, "FROM", "out")
        assert sorted(job[2] for job in jobs) == sorted(b"of " + body for body in bodies)
        assert wire("QLEN", "in") == 0
        assert wire("DEBUG", "CHECK") == b"OK"
        assert b"staged_jobs:0\r\n" in wire("INFO", "staging")


def added(wire: Wire, body: str) -> object:
    """An ADDJOB whose key is its body."""
    return wire("ADDJOB", "q", body, 0, "DEDUPE", body)


def test_keys_after_a_kill(make_server: MakeServer) -> None:
    """A write whose answer was lost is said again, and done once."""
    server = make_server("--appendonly", "yes", "--appendfsync", "always")
    wire = server.wire()
    known = {}
    for i in range(40):
        if i % 10 == 9:
            wire.raw(encode("ADDJOB", "q", f"b{i}", 0, "DEDUPE", f"b{i}"))
            time.sleep(0.001 * (i // 10))
            server.kill()
            wire.close()
            server.start()
            wire = server.wire()
        known[i] = added(wire, f"b{i}")
    assert [added(wire, f"b{i}") for i in range(40)] == list(known.values())
    assert len(set(known.values())) == wire("QLEN", "q") == 40
    wire.close()
