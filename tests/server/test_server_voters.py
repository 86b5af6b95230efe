"""CLUSTER VOTERS at real nodes (SPEC T28)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import RealCluster, info
from raw_resp import Err, Wire
from tuque.tubes.model.voter_state import Voters
from tuque.tubes.policy import tubes_of
from until import until
from world import World
from world_machines import name_of

FLAGS = ("--cluster-node-timeout", 1000, "--appendonly", "yes", "--tube-voters", 4)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    """Four nodes, all of which may vote."""
    made = RealCluster(tmp_path, 4, *FLAGS)
    yield made.start()
    made.end()


def voters_at(wire: Wire) -> dict[str, Any]:
    """CLUSTER VOTERS."""
    flat = wire("CLUSTER", "VOTERS")
    return dict(zip([name.decode() for name in flat[::2]], flat[1::2], strict=True))


def test_voters_go_and_come(cluster: RealCluster) -> None:
    """T28.1 The reply is `+OK` when the list is in force at the node asked."""
    wires = [cluster.wire(i) for i in range(4)]
    until(lambda: len(voters_at(wires[0])["voters"]) == 4, cluster.nodes[0].log, most_s=20)
    assert wires[0]("TUBE", "CREATE", "t", "fifo") == b"OK"
    info = wires[0]("TUBE", "INFO", "t")
    told = dict(zip(info[::2], info[1::2], strict=True))
    assert (told[b"sync"], told[b"failover"]) == (3, 1)
    last = wires[3]("CLUSTER", "MYID")
    assert wires[3]("CONFIG", "SET", "tube-failover", "no") == b"OK"  # else it joins again
    assert wires[1]("CLUSTER", "VOTERS", "REMOVE", last[:9]) == b"OK"
    told = voters_at(wires[1])
    assert last not in [row[0] for row in told["voters"]]
    assert {row[3] for row in told["voters"]} == {b"votes"}
    first = wires[2]("CLUSTER", "MYID")
    wanted = f"ERR node {first.decode()} votes: CLUSTER VOTERS REMOVE {first.decode()} first"
    assert str(wires[0]("CLUSTER", "FORGET", first)) == wanted


def test_a_node_joins_by_command_of_nobody(cluster: RealCluster) -> None:
    """T28.4 it gets replicas, and is added when it has all of every such tube."""
    wires = [cluster.wire(i) for i in range(4)]
    until(lambda: len(voters_at(wires[0])["voters"]) == 4, cluster.nodes[0].log, most_s=20)
    assert wires[0]("TUBE", "CREATE", "t", "fifo") == b"OK"
    wires[0]("TUBE", "PUT", "t", "x")
    assert wires[3]("CLUSTER", "LEAVING", "yes") == b"OK"
    until(lambda: len(voters_at(wires[3])["voters"]) == 3, cluster.nodes[3].log, most_s=20)
    until(lambda: b"cluster_safe_to_stop:yes" in wires[3]("CLUSTER", "INFO"))
    assert wires[3]("CLUSTER", "LEAVING", "no") == b"OK"
    until(lambda: len(voters_at(wires[3])["voters"]) == 4, cluster.nodes[3].log, most_s=20)
    assert voters_at(wires[3])["right"] == voters_at(wires[3])["list"]


def test_words(make_world: Callable[..., World]) -> None:
    """T28.7 list (its number; 0 without one)

    T28.7 others (nodes that use a list of another origin, each with that origin)"""
    world = make_world(tube_failover=False)
    assert world.value("CLUSTER VOTERS") == [
        b"list",
        0,
        b"origin",
        b"",
        b"right",
        0,
        b"voters",
        [],
        b"unsettled",
        [],
        b"lease-timeouts",
        [0, 0],
        b"others",
        [],
    ]
    assert world("CLUSTER VOTERS ADD").startswith(b"-ERR syntax error")
    assert world("CLUSTER VOTERS KEEP x").startswith(b"-ERR syntax error")
    assert world("CLUSTER VOTERS FORCE").startswith(b"-ERR syntax error")
    assert world("CLUSTER VOTERS FORCE", name_of(0)).startswith(b"-ERR there is no list of voters")
    assert world("CLUSTER VOTERS ADD x").startswith(b"-ERR no node 'x'")
    assert world("CLUSTER VOTERS REMOVE", name_of(0)).startswith(b"-ERR there is no list of voters")
    b = tubes_of(world.n).voter_state
    b.voters = Voters(3, b"o" * 16, {name_of(0): 2, b"f" * 40: 3})
    told = world.value("CLUSTER VOTERS")
    assert told[:6] == [b"list", 3, b"origin", b"6f" * 16, b"right", 0]
    assert [row[3] for row in told[7]] == [b"lost-right", b"unreachable"]
    b.strangers = {b"e" * 40: b"x" * 16}
    assert world.value("CLUSTER VOTERS")[-2:] == [b"others", [[b"e" * 40, b"78" * 16]]]
    b.right = 2
    b.is_asking = True
    assert world.value("CLUSTER VOTERS")[7][0][3] == b"asking"
    b.is_asking = False
    assert world.value("CLUSTER VOTERS")[7][0][3] == b"votes"
    world.server.members.restore(b"f" * 40, "10.0.0.2", 7712, 17712, 0)
    assert b" votes: CLUSTER VOTERS REMOVE " in world("CLUSTER FORGET", b"f" * 40)
    assert not isinstance(world.value("CLUSTER VOTERS"), Err)
    assert world("CLUSTER VOTERS FORCE", name_of(0)) == b"+OK\r\n"
    assert b.right == world.value("CLUSTER VOTERS")[1] == 3 + (1 << 32)
    world("DEBUG FLUSHALL")
    assert b.right == 0


def test_words_of_a_journal_that_fails(make_world: Callable[..., World]) -> None:
    """T28.7 journal-fails (J6, K4.5: at all nodes and as long as that holds).

    J6.8 CLUSTER NODES has the flag `journal-fails` of such a node (K4.5).
    """
    world = make_world()
    b = tubes_of(world.n).voter_state
    b.voters = Voters(3, b"o" * 16, {name_of(0): 2, b"f" * 40: 3})
    b.right = 2
    world.disk().full()
    world.wire().put(b"ADDJOB q b 0\r\n")  # its answer waits for the disk (J4.2)
    world.pass_ms(2_000)
    assert world.value("CLUSTER VOTERS")[7][0][3] == b"journal-fails"
    error = b"-ERR the journal of this node cannot be written, so that other nodes may not get "
    for words in ("ADD", "REMOVE", "FORCE"):
        assert world(f"CLUSTER VOTERS {words}", name_of(0)).startswith(error)
    b.right = 0
    assert world.value("CLUSTER VOTERS")[7][0][3] == b"journal-fails"
    b.right = 2
    world.disk().well()
    world.pass_ms(2_000)
    world.server.members.restore(b"f" * 40, "10.0.0.2", 7712, 17712, 0)
    world.n.peers[1].failing_ms = world.n.now_ms  # and it is silent
    assert [row[3] for row in world.value("CLUSTER VOTERS")[7]] == [b"votes", b"journal-fails"]
    nodes = world("CLUSTER NODES")
    assert b" journal-fails " in nodes and b" myself " in nodes
    world.n.peers[1].failing_ms = 0
    assert b"journal-fails" not in world("CLUSTER NODES")
    assert [row[3] for row in world.value("CLUSTER VOTERS")[7]] == [b"votes", b"unreachable"]


def test_whom_to_ask_after_a_start(world: World) -> None:
    """T29.3 with `failover-disks trust` (the default) a majority of the voters"""
    b = tubes_of(world.n).voter_state
    assert world.value("CONFIG GET failover-disks") == [b"failover-disks", b"trust"]
    assert world("CONFIG SET failover-disks ask") == b"+OK\r\n" and b.asks_all
    assert world("CONFIG SET failover-disks all").startswith(b"-ERR")
    assert b.asks_all
    assert world("CONFIG SET failover-disks trust") == b"+OK\r\n" and not b.asks_all


def test_a_node_without_a_journal(tmp_path: Path) -> None:
    """T28.1 ADD is refused for a node whose journal is off, as its votes would not last

    T11.5 one whose journal cannot be written cannot vote now."""
    made = RealCluster(tmp_path, 4, *FLAGS)
    made.nodes[3].flags += ["--appendonly", "no"]
    with made as cluster:
        wires = [cluster.wire(i) for i in range(4)]
        last = wires[3]("CLUSTER", "MYID")
        logs = cluster.nodes[0].log
        until(lambda: len(voters_at(wires[0])["voters"]) == 3, logs, most_s=20)
        until(lambda: voters_at(wires[3])["list"] > 0, logs, most_s=20)
        wanted = f"ERR node {last.decode()} has no journal, so its votes would not last"
        said = wires[0]("CLUSTER", "VOTERS", "ADD", last)
        assert until(lambda: "no journal" in str(wires[0]("CLUSTER", "VOTERS", "ADD", last)))
        assert str(wires[0]("CLUSTER", "VOTERS", "ADD", last)).startswith(wanted), said
        assert len(voters_at(wires[0])["voters"]) == 3
        told = info(wires[2], "tubes")
        assert (told["tubes_votes"], told["tubes_vote_state"]) == ("1", "votes")
        assert info(wires[3], "tubes")["tubes_vote_state"] == ""
        assert wires[2]("CONFIG", "SET", "appendonly", "no") == b"OK"
        told = info(wires[2], "tubes")
        assert (told["tubes_votes"], told["tubes_vote_state"]) == ("0", "journal-off")
        there = wires[2]("CLUSTER", "MYID")

        def state() -> bytes:
            rows = voters_at(wires[0])["voters"]
            return next(bytes(row[3]) for row in rows if row[0] == there)

        until(lambda: state() == b"journal-off", logs, most_s=20)
        assert wires[3]("CONFIG", "SET", "appendonly", "yes") == b"OK"
        until(lambda: len(voters_at(wires[0])["voters"]) == 4, logs, most_s=20)
