"""A node of a real cluster whose directory is put back from a backup (docs/operations.md)."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab import RealCluster, RealServer
from raw_resp import NULL
from until import until

FLAGS = ("--appendonly", "yes", "--appendfsync", "always", "--cluster-node-timeout", "1000")
COPIES = ("REPLICATE", 2, "RETRY", 600)


def test_jobs_can_be_chosen_before_the_node_joins(tmp_path: Path) -> None:
    """docs/operations.md: start alone, delete what was done since, then join."""
    backup = tmp_path / "backup"
    with RealCluster(tmp_path, 2, *FLAGS) as cluster:
        old, new = cluster.nodes
        wire = old.wire()
        ids = {q: wire("ADDJOB", q, q, 5_000, *COPIES) for q in ("acked", "waiting")}
        ids["once"] = wire("ADDJOB", "once", "x", 5_000, "RETRY", 0, "REPLICATE", 1)
        old.end()
        shutil.copytree(old.directory, backup)
        old.start()
        cluster.wait_formed()
        wire = old.wire()
        for name in ("acked", "once"):
            assert wire("GETJOB", "TIMEOUT", 5_000, "FROM", name)[0][1] == ids[name]
        assert wire("ACKJOB", ids["acked"]) == 1
        until(lambda: not new.wire().show(ids["acked"].decode()))
        old.kill()
        shutil.rmtree(old.directory)
        shutil.copytree(backup, old.directory)
        with RealServer(old.directory, *FLAGS, "--cluster-enabled", "no") as alone:
            queued = alone.wire()("JSCAN", 0, "COUNT", 1_000, "STATE", "queued")[1]
            assert set(queued) == set(ids.values())
            assert alone.wire()("DELJOB", ids["acked"], ids["once"]) == 2
        old.start()
        cluster.wait_formed()
        wires = [node.wire() for node in cluster.nodes]

        def in_queues(name: str) -> int:
            """How many nodes have the job in a queue."""
            states = [wire.show(ids[name].decode()).get("state") for wire in wires]
            return states.count(b"queued")

        until(lambda: in_queues("waiting") == 1, "queue the job that waits")
        assert in_queues("acked") == in_queues("once") == 0
        for wire in wires:
            assert wire("GETJOB", "NOHANG", "FROM", "acked", "once") is NULL
