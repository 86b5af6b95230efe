"""Homes of tubes in a cluster of real nodes: switchovers under load, lost homes (SPEC T17-T21)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tube_load import Load

from lab import RealCluster, RealServer
from raw_resp import Wire
from tuque import Client
from tuque.client.commands.tubes import HomeInfo
from tuque.errors import Error
from until import until

TIMEOUT_MS = 1500
JOURNAL = ("--appendonly", "yes", "--tube-failover", "no")  # leaders change by command
MakeCluster = Callable[..., RealCluster]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Clusters with a short `cluster-node-timeout`, ended with the test."""
    made: list[RealCluster] = []

    def make(*flags: str | int, count: int = 3) -> RealCluster:
        directory = tmp_path / f"cluster{len(made)}"
        made.append(RealCluster(directory, count, "--cluster-node-timeout", TIMEOUT_MS, *flags))
        return made[-1].start()

    yield make
    for cluster in made:
        cluster.end()


def url_of(*nodes: RealServer) -> str:
    return "tuque://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


def id_of(node: RealServer) -> str:
    with Wire(node.port) as wire:
        found: bytes = wire("CLUSTER", "MYID")
    return found.decode()


def at(node: RealServer, tube: str) -> HomeInfo:
    """What that node itself says of the tube."""
    with Client(url_of(node), discover=False) as client:
        return client.tube(tube).home()


def state(node: RealServer, tube: str) -> str:
    with Wire(node.port) as wire:
        found = wire("TUBE", "STATE", tube)
    return found.decode() if isinstance(found, bytes) else str(found)


def share_sessions(cluster: RealCluster, ttr_s: int, word: str = "yes") -> None:
    """Sessions go on at other nodes; tasks of a lost one come back after `ttr_s`."""
    for node in cluster.nodes:
        with Wire(node.port) as wire:
            assert isinstance(wire("TUBE", "CFG", "TTR", ttr_s, "INREPLICASET", word), list)


def empty(node: RealServer, tube: str) -> bool:
    """Whether the tube, which has its leader there, has no tasks."""
    with Client(url_of(node), discover=False) as client:
        told = client.tube(tube).info()
    assert told.state == "RUNNING"
    return told.ready + told.taken + told.delayed + told.buried == 0


def copied(node: RealServer, tube: str) -> bool:
    """Whether all copies of a tube with its home there are complete and have all."""
    return all(copy.complete and copy.lag == 0 for copy in at(node, tube).copies)


def known(cluster: RealCluster, tube: str) -> None:
    """Wait until every node knows the tube."""
    for node in cluster.nodes:
        until(lambda node=node: state(node, tube) in ("INIT", "WAITING", "RUNNING"), node.log)


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        ("fifo", 3),
        *(pytest.param(kind, 10, marks=pytest.mark.slow) for kind in ("fifo", "utubettl")),
    ],
)
def test_switchovers_under_load(cluster: RealCluster, kind: str, moves: int) -> None:
    """T20.2-T20.5: moves among three nodes, nothing lost and nothing done twice."""
    tube = f"moved {kind} {moves}"
    share_sessions(cluster, 30)
    ids = [id_of(node) for node in cluster.nodes]
    with Client(url_of(cluster.nodes[0])) as client:
        client.tube(tube).create(kind, alone=True)
        known(cluster, tube)
        until(lambda: copied(cluster.nodes[0], tube))
        with Load(url_of(*cluster.nodes), tube) as load:
            for turn in range(moves):
                before = sum(load.counts())
                until(lambda before=before: sum(load.counts()) > before + 50, "do work")
                new = (turn + 1) % 3
                client.tube(tube).move(
                    ids[new] if turn % 2 else f"127.0.0.1:{cluster.nodes[new].port}"
                )
                where = at(cluster.nodes[new], tube)
                assert (where.home, where.epoch, where.state) == (ids[new], turn + 2, "RUNNING")
            load.end_puts()
            until(lambda: empty(cluster.nodes[new], tube), most_s=120)
            load.stop()
    load.judge_done()
    assert not load.errors, f"planned moves are seen by nobody: {load.errors}"
    assert load.not_taken == 0
    states = sorted(state(node, tube) for node in cluster.nodes)
    assert states == ["RUNNING", "WAITING", "WAITING"]
    share_sessions(cluster, 0, "no")  # as it was


@pytest.mark.slow
def test_a_home_is_lost_and_another_node_goes_on(make_cluster: MakeCluster) -> None:
    """T21, T18.5: with SYNC 2 nothing that was answered is lost, though a node is killed."""
    cluster = make_cluster(*JOURNAL)
    share_sessions(cluster, 1)  # of a take that the killed node did not answer
    first = cluster.nodes[0]
    with Client(url_of(first)) as client:
        client.tube("t").create("fifo", sync=2, alone=True)
    known(cluster, "t")
    until(lambda: copied(first, "t"))
    with Load(url_of(*cluster.nodes), "t") as load:
        until(lambda: min(load.counts()) > 100, "do work")
        first.kill()
        answered = load.counts()[0]
        second = forced(cluster.nodes[1:], "t")
        until(lambda: load.counts()[0] > answered + 50, "do work at the new home")
        first.start()
        until(lambda: at(first, "t").epoch == 2, first.log)
        assert state(first, "t") in ("INIT", "WAITING")
        until(lambda: copied(second, "t"), second.log, most_s=40)
        load.end_puts()
        until(lambda: empty(second, "t"), most_s=120)
        load.stop()
    load.judge_done()
    where = at(second, "t")
    assert where.epoch == 2
    assert at(first, "t").home == where.home
    cluster.check()


def forced(nodes: list[RealServer], tube: str) -> RealServer:
    """Make one of the nodes the home of a tube whose home is lost: the one with the latest copy."""
    refusals: dict[int, str] = {}

    def attempt() -> RealServer | None:
        for node in nodes:
            with Client(url_of(node), discover=False, timeout=30.0) as client:
                try:
                    loss = client.tube(tube).take_over(id_of(node))
                except Error as error:
                    refusals[node.port] = str(error)
                    continue
            assert loss.complete, loss
            assert loss.next_number > 1_000_000
            return node
        return None

    found = until(attempt, lambda: str(refusals), most_s=40)
    assert isinstance(found, RealServer)
    return found


@pytest.mark.slow
def test_rolling_over_every_node(make_cluster: MakeCluster) -> None:
    """T18.5, T21.4: each node is killed as home in its turn, and comes back with a copy."""
    cluster = make_cluster(*JOURNAL)
    share_sessions(cluster, 3)
    home = cluster.nodes[0]
    with Client(url_of(home)) as client:
        client.tube("t").create("fifottl", sync=2, ttr=60, alone=True)
    known(cluster, "t")
    until(lambda: copied(home, "t"))
    with Load(url_of(*cluster.nodes), "t") as load:
        for epoch in range(2, 5):
            before = load.counts()
            until(lambda before=before: load.counts()[0] > before[0] + 50, "do work")
            home.kill()
            others = [node for node in cluster.nodes if node is not home]
            new = forced(others, "t")
            home.start()
            until(lambda: copied(new, "t"), new.log, most_s=40)  # noqa: B023 - used at once
            assert at(new, "t").epoch == epoch
            home = new
        load.end_puts()
        until(lambda: empty(home, "t"), most_s=120)
        load.stop()
    load.judge_done()
    cluster.check()
