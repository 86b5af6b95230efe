"""`tuque cluster status` about nodes that vote about leaders of tubes (SPEC T23)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from console_node import Run

from lab import RealCluster
from raw_resp import Wire, wait_for
from tuque.clusterview.health import (
    Row,
    homeless,
    new_leaders,
    voting,
)

QUICK_MS = 1_000
FLAGS = ("--cluster-node-timeout", QUICK_MS, "--appendonly", "yes")
PATIENT_MS = 15_000  # no node seems lost, or is late to stand up, because others use the processors
LONG_S = 60


def all_voting(cluster: RealCluster) -> list[Wire]:
    """Connections to the nodes, once all vote; they are patient from then on."""
    wires = [cluster.wire(i) for i in range(3)]
    for wire, node in zip(wires, cluster.nodes, strict=True):
        wait_for(lambda wire=wire: len(voters_at(wire)["voters"]) == 3, node.log, LONG_S)
    wait_after(wires, PATIENT_MS)
    return wires


def wait_after(wires: list[Wire], ms: int) -> None:
    """From now on a node that is silent for so long seems lost."""
    for wire in wires:
        assert wire("CONFIG", "SET", "cluster-node-timeout", ms) == b"OK"


def voters_at(wire: Wire) -> dict[str, Any]:
    """CLUSTER VOTERS."""
    flat = wire("CLUSTER", "VOTERS")
    return dict(zip([name.decode() for name in flat[::2]], flat[1::2], strict=True))


def test_who_can_vote() -> None:
    """A line of `tuque cluster status`, if there is a list of voters."""
    rows = [Row(str(i), "h", i, "up") for i in range(3)]
    assert voting(rows) == []
    for row in rows:
        row.voters, row.votes = 3, True
    assert voting(rows) == ["3 of 3 voters can vote"]
    rows[1].votes = False
    assert voting(rows) == ["2 of 3 voters can vote: see CLUSTER VOTERS"]
    rows[2].voters, rows[2].votes = 0, False
    rows[0].homeless = ["t"]
    (line,) = homeless(rows, {})
    assert "unreachable; if it does not fail over automatically and that is lost" in line
    (said,) = homeless(rows, {"t": False})
    assert "unreachable; if that is lost for good: tuque tubes home t NODE --force" in said
    (said,) = homeless(rows, {"t": True})
    assert said.endswith("; a majority of the voters chooses another one: see CLUSTER VOTERS")
    rows[0].homeless_count = rows[2].homeless_count = 1
    assert homeless(rows, {}) == [line], "it is named"
    rows[2].homeless_count = 129
    assert homeless(rows, {}) == [line, "and 128 more: see `tuque tubes`"]
    rows[0].homeless = []  # names are not for this user
    assert homeless(rows, {}) == ["129 tubes whose leader is unreachable: see `tuque tubes`"]
    wanted = "1 of 3 voters can vote: tubes have no leader until a majority of them is back"
    assert voting(rows) == [wanted]
    for row in rows:
        row.voters, row.votes = 2, True
    assert voting(rows) == [
        "the nodes go by different lists of voters: see origin in CLUSTER VOTERS"
    ]


def test_why_leaders_changed() -> None:
    """T11.5 `tuque cluster status` sums them up over the nodes, by reason"""
    rows = [Row(str(i), "h", i, "up") for i in range(3)]
    assert new_leaders(rows) == []
    rows[0].led = {"silent": 1}
    head = "tubes got another leader"
    once = f"{head} once since the nodes began: 1 the leader was silent"
    assert new_leaders(rows) == [once]
    rows[1].led = {"silent": 2, "command": 1, "given": 0}
    assert new_leaders(rows) == [
        f"{head} 4 times since the nodes began: 3 the leader was silent, 1 by command, without the "
        "leader"
    ]


def test_new_leaders_at_real_nodes(tmp_path: Path, tuque: Run) -> None:
    """T11.5 So elections that were won and these two are all changes of leaders (E1.8)"""
    with RealCluster(tmp_path, 3, *FLAGS) as cluster:
        wires = all_voting(cluster)
        log = cluster.nodes[1].log
        assert wires[0]("TUBE", "CREATE", "t", "fifo") == b"OK"
        assert wires[0]("TUBE", "CREATE", "own", "fifo", "FAILOVER", "no") == b"OK"
        second = wires[1]("CLUSTER", "MYID")
        for name in ("t", "own"):
            assert wires[0]("TUBE", "HOME", name, second) == b"OK"
            wait_for(lambda name=name: wires[1]("TUBE", "STATE", name) == b"RUNNING", log, LONG_S)
        for line in (b"tubes_elections_given:1\r", b"tubes_homes_given:1\r"):
            assert line in wires[1]("INFO", "tubes")
        assert b"tubes_homes_moved:2\r" in wires[0]("INFO", "tubes")
        wait_after(wires, QUICK_MS)
        port = cluster.nodes[0].port
        said = tuque("cluster", "status", "-p", port).stdout
        assert b"2 times since the nodes began: 2 the leader gave it away" in said
        cluster.nodes[1].kill()
        wait_for(
            lambda: any(b"tubes_elections_silent:1\r" in w("INFO", "tubes") for w in wires[::2]),
            log,
            LONG_S,
        )
        third = wires[2]("CLUSTER", "MYID")
        forced = wires[2]("TUBE", "HOME", "own", third, "FORCE")
        assert forced is not None
        wait_for(lambda: b"tubes_homes_by_command:1\r" in wires[2]("INFO", "tubes"), log, LONG_S)
        said = tuque("cluster", "status", "-p", port).stdout
        assert b"2 times since the nodes began" in said, "the node that is gone tells nothing"
        assert b": 1 the leader was silent, 1 by command, without the leader" in said
        told = json.loads(tuque("cluster", "status", "-p", port, "--json").stdout)
        led = {row["id"]: row["leader_changes"] for row in told}
        assert led[third.decode()]["command"] == 1 and led[second.decode()] is None


def test_a_lost_majority_at_real_nodes(tmp_path: Path, tuque: Run) -> None:
    """T27.10 Of a list with one voter that one is the majority"""
    with RealCluster(tmp_path, 3, *FLAGS) as cluster:
        wires = all_voting(cluster)
        log = cluster.nodes[2].log
        assert wires[0]("TUBE", "CREATE", "t", "fifo") == b"OK"
        assert wires[0]("TUBE", "CREATE", "other", "fifo", "FAILOVER", "no") == b"OK"
        wires[0]("TUBE", "PUT", "t", "x")
        port = cluster.nodes[2].port
        ids = [wire("CLUSTER", "MYID") for wire in wires]
        status = tuque("cluster", "status", "-p", port)
        assert (status.returncode, b"3 of 3 voters can vote" in status.stdout) == (0, True)
        wait_after(wires, QUICK_MS)
        for node in cluster.nodes[:2]:
            node.kill()
        wait_for(lambda: b"tubes_homeless:2" in wires[2]("INFO", "tubes"), log, LONG_S)
        status = tuque("cluster", "status", "-p", port)
        assert status.returncode == 1
        wanted = b"tube t: its leader is unreachable; a majority of the voters chooses another"
        assert wanted in status.stdout
        assert b"tuque tubes home other NODE --force" in status.stdout
        assert b"1 of 3 voters can vote: " in status.stdout
        assert wires[2]("CLUSTER", "VOTERS", "FORCE", ids[2]) == b"OK"
        for node_id in ids[:2]:
            assert wires[2]("CLUSTER", "FORGET", node_id) == b"OK"
        wait_for(lambda: wires[2]("TUBE", "STATE", "t") == b"RUNNING", log, LONG_S)
        cluster.nodes[2].kill()
        cluster.nodes[2].start()
        wire = cluster.wire(2)
        wait_for(lambda: wire("TUBE", "STATE", "t") == b"RUNNING", log, LONG_S)
        assert wire("TUBE", "TAKE", "t", "0") is not None


def test_a_voter_without_its_right_is_told(tmp_path: Path, tuque: Run) -> None:
    """Exit status 1 unless all is well: all nodes are up, but a voter cannot vote."""
    with RealCluster(tmp_path, 3, *FLAGS) as cluster:
        wires = all_voting(cluster)
        log = cluster.nodes[2].log
        assert wires[0]("CONFIG", "SET", "tube-failover", "no") == b"OK"
        first = wires[0]("CLUSTER", "MYID")
        assert wires[2]("CLUSTER", "VOTERS", "REMOVE", first) == b"OK"
        for wire in wires:
            wait_for(lambda wire=wire: len(voters_at(wire)["voters"]) == 2, log, LONG_S)
        status = tuque("cluster", "status", "-p", cluster.nodes[2].port)
        assert (status.returncode, b"2 of 2 voters can vote\n" in status.stdout) == (0, True)
        assert wires[1]("DEBUG", "FLUSHALL") == b"OK"
        wait_for(
            lambda: (
                sorted(row[3] for row in voters_at(wires[2])["voters"]) == [b"lost-right", b"votes"]
            ),
            log,
            LONG_S,
        )
        status = tuque("cluster", "status", "-p", cluster.nodes[2].port)
        assert (status.returncode, status.stdout.count(b" up ")) == (1, 3)
        assert b"1 of 2 voters can vote: " in status.stdout
