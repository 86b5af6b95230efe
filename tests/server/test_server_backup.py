"""A node of a cluster whose disk is put back from a backup (docs/operations.md)."""

from __future__ import annotations

from collections.abc import Callable

from world import World

COPIES = ("REPLICATE", 2, "RETRY", 600)
NAMES = ("acked", "kept", "taken", "waiting")
OLD, GONE, NEW = range(3)


class Replaced:
    """Node 0 and its backup; node 1, which had copies, was replaced by node 2 since.

    Of the jobs in the backup one was acked since, one has a result that is kept, a worker has one,
    one waits, and one was delivered at most once. One was added since.
    """

    def __init__(self, make_world: Callable[..., World]) -> None:
        self.world = make_world(3, journal="always", cluster_node_timeout=1_000, start=False)
        self.ids: dict[str, bytes] = {}

    def run(self) -> None:
        """Until node 0 is killed."""
        world = self.world
        world.start(OLD)
        world.start(GONE)
        world.until(world.is_whole)
        add = world.wire(OLD)
        for q in NAMES:
            keep = ("KEEP", 600) if q == "kept" else ()
            self.ids[q] = add.ask("ADDJOB", q, q, 5_000, *COPIES, *keep)
        self.ids["once"] = add.ask("ADDJOB", "once", "x", 5_000, "RETRY", 0, "REPLICATE", 1)
        world.stop(OLD)
        world.disk(OLD).snapshot()
        world.start(OLD)
        world.start(NEW)
        world.until(world.is_whole)
        self.replace()
        self.work()
        world.pass_ms(5_000)  # nobody remembers what was acked
        world.kill(OLD)

    def replace(self) -> None:
        """Drain node 1, stop it and forget it: its copies go to node 2."""
        world, gone = self.world, self.world.wire(GONE)
        id = gone("CLUSTER", "MYID")
        assert gone.ask("CLUSTER", "LEAVING", "yes") == b"OK"
        world.until(lambda: b"cluster_safe_to_stop:yes" in gone("CLUSTER", "INFO"))
        world.stop(GONE)
        assert world.wire(OLD).ask("CLUSTER", "FORGET", id) == b"OK"
        world.until(lambda: id not in world.wire(NEW)("CLUSTER", "NODES"))
        world.until(lambda: all(NEW in world.holders(self.ids[name]) for name in NAMES))

    def work(self) -> None:
        """What happens to the jobs after the backup."""
        world, new = self.world, self.world.wire(NEW)
        for name in ("acked", "kept", "taken"):
            assert self.take(NEW, name) == self.ids[name]
        assert self.take(OLD, "once") == self.ids["once"]
        assert new.ask("ACKJOB", self.ids["acked"]) == 1
        [[run, *_]] = new.ask("START", "WORKER", "w", self.ids["kept"])
        assert new.ask("DONE", self.ids["kept"], run, "RESULT", "42") == 1
        self.ids["added"] = new.ask("ADDJOB", "added", "x", 5_000, *COPIES)
        for name in ("acked", "kept"):
            world.until(lambda name=name: OLD not in world.holders(self.ids[name]))
        world.until(lambda: new.info("cluster")["cluster_tombstones"] == "0")

    def take(self, i: int, queue: str) -> bytes:
        """The only job that GETJOB gets."""
        [[_, id, _]] = self.world.wire(i).ask("GETJOB", "TIMEOUT", 3_000, "FROM", queue)
        return bytes(id)

    def queued(self) -> dict[str, int]:
        """In how many queues of both nodes each job is."""
        wires = [self.world.wire(i) for i in (OLD, NEW)]
        return {q: sum(w.state(id) == "queued" for w in wires) for q, id in self.ids.items()}


def test_what_comes_back_with_an_old_journal(make_world: Callable[..., World]) -> None:
    """Q11.9 All reachable nodes are asked before the hold ends: the journal may be an old one, from
    a backup, and other nodes may have the job now, or its outcome (W14.8).
    """
    replaced = Replaced(make_world)
    replaced.run()
    world, ids = replaced.world, replaced.ids
    world.start(OLD, disk="old")
    want = {"acked": 1, "kept": 0, "taken": 0, "waiting": 1, "once": 1, "added": 1}
    world.until(lambda: replaced.queued() == want)
    world.until(lambda: OLD in world.holders(ids["added"]))
    new = world.wire(NEW)
    assert OLD not in world.holders(ids["kept"])
    result = new.ask("RESULT", ids["kept"])
    assert result[result.index(b"state") + 1] == b"done"
    assert new.ask("ACKJOB", ids["taken"]) == 1
    world.until(lambda: OLD not in world.holders(ids["taken"]))
    assert replaced.queued() == want
