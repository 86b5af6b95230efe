"""A node of a real cluster whose directory is put back from a backup (docs/operations.md)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lab import RealCluster, RealServer, cluster_info, info
from raw_resp import NULL
from until import until

FLAGS = ("--appendonly", "yes", "--appendfsync", "always", "--cluster-node-timeout", "3000")
COPIES = ("REPLICATE", 2, "RETRY", 600)
NAMES = ("acked", "kept", "taken", "waiting")


def state(node: RealServer, id: bytes) -> bytes:
    """The state of a job at a node, empty for an unknown one."""
    return bytes(node.wire().show(id.decode()).get("state", b""))


def take(node: RealServer, queue: str) -> Any:
    """GETJOB, within three seconds."""
    return node.wire()("GETJOB", "TIMEOUT", 3_000, "FROM", queue)


class Replaced:
    """Node 0 and its backup; node 1, which had copies, was replaced by node 2 since.

    Of the jobs in the backup one was acked since, one has a result that is kept, a worker has one,
    one waits, and one was delivered at most once. One was added since.
    """

    def __init__(self, directory: Path) -> None:
        self.cluster = RealCluster(directory, 3, *FLAGS)
        self.old, self.gone, self.new = self.cluster.nodes
        self.backup = directory / "backup"

    def join(self, node: RealServer) -> None:
        """Start a node and let node 0 meet it."""
        node.start()
        assert self.old.wire()("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port) == b"OK"
        self.cluster.wait_formed()

    def run(self) -> None:
        """Until node 0 is killed."""
        self.old.start()
        self.join(self.gone)
        add = self.old.wire()
        keep = {"kept": ("KEEP", 600)}
        self.ids = {q: add("ADDJOB", q, q, 5_000, *COPIES, *keep.get(q, ())) for q in NAMES}
        self.ids["once"] = add("ADDJOB", "once", "x", 5_000, "RETRY", 0, "REPLICATE", 1)
        self.old.end()
        shutil.copytree(self.old.directory, self.backup)
        self.old.start()
        self.join(self.new)
        self.replace()
        self.work()
        self.old.kill()

    def replace(self) -> None:
        """Drain node 1, stop it and forget it: its copies go to node 2."""
        gone = self.gone.wire()
        id = gone("CLUSTER", "MYID")
        assert gone("CLUSTER", "LEAVING", "yes") == b"OK"
        until(lambda: cluster_info(gone)["cluster_safe_to_stop"] == "yes")
        self.gone.end()
        assert self.old.wire()("CLUSTER", "FORGET", id) == b"OK"
        until(lambda: id not in self.new.wire()("CLUSTER", "NODES"))
        until(lambda: all(state(self.new, self.ids[name]) for name in NAMES))

    def work(self) -> None:
        """What happens to the jobs after the backup."""
        new = self.new.wire()
        for name in ("acked", "kept", "taken"):
            assert take(self.new, name)[0][1] == self.ids[name]
        assert take(self.old, "once")[0][1] == self.ids["once"]
        assert new("ACKJOB", self.ids["acked"]) == 1
        [[run, *_]] = new("START", "WORKER", "w", self.ids["kept"])
        assert new("DONE", self.ids["kept"], run, "RESULT", "42") == 1
        self.ids["added"] = new("ADDJOB", "added", "x", 5_000, *COPIES)
        for name in ("acked", "kept"):
            until(lambda name=name: not state(self.old, self.ids[name]))
        until(lambda: info(new, "cluster")["cluster_tombstones"] == "0")

    def put_back(self) -> None:
        """The directory of node 0 is that of the backup."""
        shutil.rmtree(self.old.directory)
        shutil.copytree(self.backup, self.old.directory)

    def queued(self) -> dict[str, int]:
        """In how many queues of both nodes each job is."""
        nodes = (self.old, self.new)
        return {q: sum(state(n, id) == b"queued" for n in nodes) for q, id in self.ids.items()}


def test_what_comes_back_with_an_old_journal(tmp_path: Path) -> None:
    """Q11.9 All reachable nodes are asked before the hold ends: the journal may be an old one, from
    a backup, and other nodes may have the job now, or its outcome (W14.8).
    """
    replaced = Replaced(tmp_path)
    try:
        replaced.run()
        replaced.put_back()
        replaced.old.start()
        replaced.cluster.wait_formed()
        want = {"acked": 1, "kept": 0, "taken": 0, "waiting": 1, "once": 1, "added": 1}
        until(lambda: replaced.queued() == want, lambda: str(replaced.queued()))
        until(lambda: state(replaced.old, replaced.ids["added"]))
        new = replaced.new.wire()
        assert not state(replaced.old, replaced.ids["kept"])
        result = new("RESULT", replaced.ids["kept"])
        assert result[result.index(b"state") + 1] == b"done"
        assert new("ACKJOB", replaced.ids["taken"]) == 1
        until(lambda: not state(replaced.old, replaced.ids["taken"]))
    finally:
        replaced.cluster.end()


def test_jobs_can_be_chosen_before_the_node_joins(tmp_path: Path) -> None:
    """docs/operations.md: start alone, delete what was done since, then join."""
    replaced = Replaced(tmp_path)
    try:
        replaced.run()
        replaced.put_back()
        old = replaced.old
        alone = RealServer(old.directory, *FLAGS, "--cluster-enabled", "no")
        with alone:
            ids = alone.wire()("JSCAN", 0, "COUNT", 1_000, "STATE", "queued")[1]
            assert set(ids) == {replaced.ids[name] for name in (*NAMES, "once")}
            done = [replaced.ids["acked"], replaced.ids["once"]]
            assert alone.wire()("DELJOB", *done) == len(done)
        old.start()
        replaced.cluster.wait_formed()
        want = {"acked": 0, "kept": 0, "taken": 0, "waiting": 1, "once": 0, "added": 1}
        until(lambda: replaced.queued() == want, lambda: str(replaced.queued()))
        assert take(old, "once") is NULL
    finally:
        replaced.cluster.end()
