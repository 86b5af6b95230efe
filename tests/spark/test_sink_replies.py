"""Replies of the broker that a writer of rows takes for done, or for refused; no Spark."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lab import RealCluster
from tuque.client.transport.conn import pack
from tuque.client.url import Address, parse
from tuque.errors import NoReplica
from tuque.spark.errors import SinkError
from tuque.spark.sink.wire import Broker, Sender, SinkWire
from until import until

FEW = b"-FEWCOPIES done here, but not yet on 2 nodes: do not repeat it"
NOT_ENOUGH = b"-NOREPL Not enough reachable nodes for the requested replication level"


def test_what_is_done_on_too_few_nodes_is_not_sent_again() -> None:
    """T18.5 If it was done but is not confirmed within T, or at once if the epoch changes:
    `-FEWCOPIES done here, but not yet on <n> nodes: do not repeat it`.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        wire = SinkWire(Address("h", 1), ours)
        theirs.sendall(b"+D-1\r\n" + FEW + b"\r\n:1\r\n" + NOT_ENOUGH + b"\r\n")
        refused = wire.refusals(4)
        wire.close()
    assert {at: type(error) for at, error in refused.items()} == {3: NoReplica}


def rows(tube: str, *bodies: str) -> list[tuple[int, list[bytes]]]:
    """A chunk: of each row what follows the word ADDJOB."""
    tails = [pack((tube, body, 0)) for body in bodies]
    return [(3, [tail.partition(b"\r\n")[2] for tail in tails])]


def sender(url: str, retry_s: float, done: list[int], *, whole: bool = False) -> Sender:
    broker = Broker(parse(url), retry_s, 5)
    return Sender(broker, lambda: (1, b"$6\r\nADDJOB\r\n"), done.append, whole)


def test_rows_follow_the_leader_of_their_tube(tmp_path: Path) -> None:
    """T17.3: the node that is named leads no tube here, and the leaders change."""
    flags = ("--appendonly", "yes", "--cluster-node-timeout", "1500")
    with RealCluster(tmp_path, 3, *flags, voters=3) as cluster:
        for tube in ("one", "two"):
            cluster.create(tube, "tasks", "SYNC", 2)
        wire = cluster.wire(0)
        homes = {cluster.leader(tube).port for tube in ("one", "two")}
        away = next(node for node in cluster.nodes if node.port not in homes)
        until(lambda: b"TUBEHOME" in repr(away.wire()("TUBE", "KICK", "one", 1)).encode(), "away")
        done: list[int] = []
        with pytest.raises(SinkError, match="TUBEHOME"):
            whole = sender(away.url, 5, done, whole=True)
            whole.put(rows("one", "x"))
            whole.settle()
        sending = sender(away.url, 60, done)
        sending.put(rows("one", "a", "b") + rows("two", "c"))
        sending.settle()
        wire.close()
        killed = cluster.kill_leader("one")
        sending.put(rows("one", "d"))
        sending.settle()
        assert sum(done) == 4
        assert killed.port != cluster.leader("one").port
        found = cluster.leader("one").wire()("GETJOB", "NOHANG", "COUNT", 9, "FROM", "one")
        assert [job[2] for job in found] == [b"a", b"b", b"d"]
