"""Producers and consumers while the server is killed again and again: the promises hold."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from lab import RealServer
from raw_resp import Err, Wire
from until import until

MakeServer = Callable[..., RealServer]
ROUNDS = 3


class History:
    """What the clients were answered, and the clients themselves."""

    def __init__(self, server: RealServer) -> None:
        self.server = server
        self.is_over = False
        self.added: list[str] = []
        self.delivered: Counter[str] = Counter()
        self.acked: dict[str, float] = {}  # when the answer came
        self.after_ack: list[str] = []  # asked for after that, and delivered
        self.threads = [
            threading.Thread(target=self.live, args=(self.add_jobs,)),
            threading.Thread(target=self.live, args=(self.take_jobs,)),
            threading.Thread(target=self.live, args=(self.take_jobs,)),
        ]
        for thread in self.threads:
            thread.start()

    def live(self, work: Callable[[Wire], None]) -> None:
        """Work on a connection; when the server goes away connect to the next one."""
        while not self.is_over:
            try:
                with Wire(self.server.port, timeout_s=5) as wire:
                    while not self.is_over:
                        work(wire)
            except (EOFError, OSError):
                time.sleep(0.01)  # until it listens again

    def add_jobs(self, wire: Wire) -> None:
        """One job that comes back until it is acked, and one that never comes twice."""
        for options in (["RETRY", 1], ["RETRY", 0, "REPLICATE", 1]):
            reply = wire("ADDJOB", "alo" if options[1] else "amo", "b", 0, *options)
            if isinstance(reply, bytes):
                self.added.append(reply.decode())
            else:
                assert isinstance(reply, Err)
                assert reply.startswith("LOADING")

    def take_jobs(self, wire: Wire) -> None:
        """Take some jobs; ack what must be acked."""
        asked = time.monotonic()
        jobs = wire("GETJOB", "TIMEOUT", 200, "COUNT", 5, "FROM", "alo", "amo")
        if not isinstance(jobs, list):
            return
        for queue, job_id, _ in jobs:
            name = job_id.decode()
            self.delivered[name] += 1
            if self.acked.get(name, asked) < asked:
                self.after_ack.append(name)
            if queue == b"alo" and wire("ACKJOB", name) in (0, 1):
                self.acked[name] = time.monotonic()

    def end(self) -> None:
        """Stop the clients."""
        self.is_over = True
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()


@pytest.mark.parametrize("policy", ["always", pytest.param("everysec", marks=pytest.mark.slow)])
def test_promises_under_kills(make_server: MakeServer, policy: str) -> None:
    """No added job is lost, none comes after its ack, no at-most-once job comes twice.

    The process is killed and not the machine, so that under everysec only what the journal's
    thread did not write yet can be lost: an at-most-once job comes at most once all the same.
    """
    server = make_server("--appendonly", "yes", "--appendfsync", policy)
    history = History(server)
    try:
        for round in range(ROUNDS):
            least = len(history.added) + 60
            until(lambda least=least: len(history.added) >= least)
            if round == ROUNDS // 2:
                with Wire(server.port) as wire:
                    wire("BGREWRITEAOF")
            server.kill()
            server.start()
        until(lambda: len(history.added) >= least + 60)
        with Wire(server.port) as wire:
            until(lambda: wire("QLEN", "alo") == 0 and wire("QLEN", "amo") == 0)
    finally:
        history.end()
    amo = [name for name in history.added if name.endswith("0")]
    assert max(history.delivered[name] for name in amo) == 1
    if policy == "always":
        assert history.after_ack == []
        with Wire(server.port) as wire:
            alo = set(history.added) - set(amo) - set(history.acked)
            lost = [name for name in alo if not wire.show(name) and not history.delivered[name]]
            assert lost == []
            assert wire("DEBUG", "CHECK") == b"OK"
