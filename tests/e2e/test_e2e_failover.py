"""The leader of a tube is killed: clients of every door go on at the next one (SPEC T23 to T27)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from leader_losses import measure

from iproto_raw import Conn, Said
from lab import RealCluster
from raw_resp import Err, Wire
from tuque import Client, aio
from tuque.errors import Error
from until import until

HOME = re.compile(r"127\.0\.0\.1:(\d+)")
Put = Callable[[str], bool | None]


class Putter:
    """Puts through one door, one after the other, and when they were answered."""

    def __init__(self, nodes: RealCluster, name: str) -> None:
        self.nodes = nodes
        self.name = name
        self.answered: dict[str, float] = {}
        self.failed: BaseException | None = None
        self.last = ""  # what was said last
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        """Put until the test is over."""
        try:
            if self.name == "aio":
                asyncio.run(self.put_async())
            else:
                with contextlib.ExitStack() as stack:
                    self.put_all(getattr(self, self.name)(stack))
        except BaseException as error:
            self.failed = error

    def put_all(self, put: Put) -> None:
        """Each body until its answer comes; None: it may have been done, so never again."""
        for number in range(1_000_000):
            if self.is_over.is_set():
                return
            body = f"{self.name} {number}"
            while (answer := put(body)) is False and not self.is_over.is_set():
                time.sleep(0.02)  # as a program would that has no client of ours
            if answer:
                self.answered[body] = time.monotonic()
            time.sleep(0.005)

    async def put_async(self) -> None:
        """The same on one event loop."""
        async with aio.Client(self.nodes.url, timeout=30.0) as client:
            for number in range(1_000_000):
                if self.is_over.is_set():
                    return
                try:
                    await client.addjob("t", f"aio {number}", ttl=0)
                except Error as error:
                    assert error.may_be_done, error
                else:
                    self.answered[f"aio {number}"] = time.monotonic()
                await asyncio.sleep(0.005)

    def sync(self, stack: contextlib.ExitStack) -> Put:
        """The client for threads."""
        client = stack.enter_context(Client(self.nodes.url, timeout=30.0))

        def put(body: str) -> bool | None:
            try:
                client.addjob("t", body, ttl=0)
            except Error as error:
                assert error.may_be_done, error
                return None
            return True

        return put

    def raw(self, stack: contextlib.ExitStack) -> Put:
        """Commands by hand, as with redis-cli: it goes where a refusal points to."""
        ports = [node.port for node in self.nodes.nodes]
        at = [ports[0]]
        wires: dict[int, Wire] = {}
        stack.callback(lambda: [wire.close() for wire in wires.values()])

        def put(body: str) -> bool | None:
            port, is_sent = at[0], False
            try:
                wire = wires.get(port) or wires.setdefault(port, Wire(port))
                is_sent = True
                said = wire("ADDJOB", "t", body, 5000, "TTL", 0)
            except (OSError, EOFError):
                wires.pop(port, None)
                at[0] = ports[(ports.index(port) + 1) % 3]
                return None if is_sent else False
            return self.read(said, isinstance(said, Err), ports, at)

        return put

    def iproto(self, stack: contextlib.ExitStack) -> Put:
        """A client of Tarantool by hand: error 7 names the leader."""
        ports = self.nodes.iproto_ports
        at = [ports[0]]
        conns: dict[int, Conn] = {}
        stack.callback(lambda: [conn.close() for conn in conns.values()])

        def put(body: str) -> bool | None:
            port, is_sent = at[0], False
            try:
                if port not in conns:
                    conns[port] = Conn(socket.create_connection(("127.0.0.1", port), 5))
                    assert conns[port].log_in("admin", "sesame").code == 0
                is_sent = True
                said = conns[port].call("queue.tube.t:put", body)
            except (OSError, AssertionError):
                conns.pop(port, None)
                at[0] = ports[(ports.index(port) + 1) % 3]
                return None if is_sent else False
            text = said.data if isinstance(said, Said) else ""
            return self.read(text, isinstance(said, Said), ports, at)

        return put

    def read(self, said: object, is_error: bool, ports: list[int], at: list[int]) -> bool | None:
        """What a reply means; the node that it names is asked next."""
        self.last = f"{at[0]} of {ports}: {said}"
        if not is_error:
            return True
        named = HOME.search(str(said))
        if named is not None and int(named[1]) in ports:
            at[0] = int(named[1])
            return False
        assert any(word in str(said) for word in ("NOREPL", "NOQUORUM", "read-only mode")), said
        return None if "done here" in str(said) else False

    def count(self, since: float) -> int:
        """So many answers came since."""
        assert self.failed is None, self.failed
        return sum(at > since for at in list(self.answered.values()))

    def told(self) -> str:
        """What was said last, for a failure."""
        return f"{self.name}: {self.last}\n{self.nodes.logs()}"

    def gap_s(self, since: float) -> float:
        """The longest time without an answer from then on."""
        at = [since, *(one for one in self.answered.values() if one > since)]
        return max(b - a for a, b in pairwise(at))


DOORS = ("sync", "aio", "raw", "iproto")


@contextlib.contextmanager
def at_all_doors(nodes: RealCluster) -> Iterator[list[Putter]]:
    """Clients that put meanwhile."""
    putters = [Putter(nodes, name) for name in DOORS]
    for one in putters:
        one.thread.start()
    try:
        yield putters
    finally:
        for one in putters:
            one.is_over.set()
        for one in putters:
            one.thread.join(60)
    for one in putters:
        assert not one.thread.is_alive(), f"{one.name} hangs"
        assert one.failed is None, one.failed


def take_all(nodes: RealCluster) -> list[str]:
    """The bodies of all tasks."""
    found: list[str] = []
    with Client(nodes.url, timeout=30.0) as client:
        while jobs := client.getjob("t", count=100, nohang=True):
            for job in jobs:
                found.append(job.body.decode("utf-8", "replace").lstrip("\ufffd"))  # MessagePack
                client.ackjob(job)
    return found


@pytest.mark.parametrize(
    ("timeout_ms", "kills"), [(1_000, 1), pytest.param(4_000, 3, marks=pytest.mark.slow)]
)
def test_every_door_leads_to_the_next_leader(
    make_voters: Callable[..., RealCluster], timeout_ms: int, kills: int
) -> None:
    """T27.7 with a majority no failover loses what was answered."""
    nodes = make_voters(timeout_ms)
    gaps: list[float] = []
    with at_all_doors(nodes) as putters:
        until(lambda: all(len(one.answered) > 20 for one in putters))
        for _ in range(kills):
            began = time.monotonic()
            dead = nodes.kill_leader("t")
            for one in putters:
                until(lambda one=one, at=began: one.count(at) > 20, one.told)
            gaps += [one.gap_s(began) for one in putters]
            dead.start()
            until(lambda: len(nodes.leading("t")) == 1)
    found = take_all(nodes)
    nodes.check()
    lost = [body for one in putters for body in one.answered if body not in set(found)]
    assert not lost, lost[:5]
    assert len(found) == len(set(found)), "one task was taken twice, or put twice"
    if timeout_ms >= 4_000:  # a slow machine takes seconds for what a second allows
        assert max(gaps) < 2 * timeout_ms / 1000, gaps


@pytest.mark.slow
def test_producers_wait_for_three_seconds_at_most(
    make_voters: Callable[..., RealCluster], tmp_path: Path
) -> None:
    """C11.3 and T27.1, with the default of `tube-lease-timeout`: the worst of some losses."""
    found = measure(make_voters(15_000), tmp_path, kills=5, stops=5)
    assert max(found["kill"]) <= 3.0, found
    assert max(found["stop"]) <= 0.5, found
