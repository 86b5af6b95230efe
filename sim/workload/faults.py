"""Faults: what the operations of a plan do to machines, disks, clocks and lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sim.engine.meddler import PATIENCE_US, Meddler
from sim.engine.plan import Op
from sim.machines.shell import Shell

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.runs.cluster import Cluster

Args = dict[str, Any]


def apply(cluster: Cluster, op: Op) -> None:
    """Run the operation now."""
    FAULTS[op.kind](cluster, op.args)


def machine_of(cluster: Cluster, args: Args) -> Machine:
    """The machine of the operation."""
    at: int = args["node"]
    return cluster.machines[at % len(cluster.machines)]


def crash(cluster: Cluster, args: Args) -> None:
    """A process ends: now, or before its k-th effect from now on."""
    m = machine_of(cluster, args)
    if m.shell is None:
        return
    how = {"how": args["how"], "back": args["back"], "down_ms": args["down_ms"]}
    kind = BACKS.get(args["back"], f"crash by {args['how']}")
    cluster.watcher.on_fault(kind, [m])
    if args.get("fuse"):
        m.fuse = args["fuse"]
        m.fuse_args = how
    else:
        m.die(**how)


def pause(cluster: Cluster, args: Args) -> None:
    """A process stands still."""
    m = machine_of(cluster, args)
    cluster.watcher.on_fault("pause", [m])
    m.pause(args["for_ms"])


def cut(cluster: Cluster, args: Args) -> None:
    """Cut lines between groups of nodes, in both directions or one, and heal them later."""
    pairs: list[tuple[str, str]] = []
    count = len(cluster.machines)
    for a in args["a"]:
        for b in args["b"]:
            pairs.append((f"n{a % count}", f"n{b % count}"))
            if not args.get("one_way"):
                pairs.append((f"n{b % count}", f"n{a % count}"))
    kind = "cut in one direction" if args.get("one_way") else "cut"
    cluster.watcher.on_fault(kind, [cluster.machines[i % count] for i in args["a"]])
    for a, b in pairs:
        cluster.net.set_cut(a, b, True)
    cluster.world.after(args["for_ms"] * 1000, partial(uncut, cluster, pairs))


def uncut(cluster: Cluster, pairs: list[tuple[str, str]]) -> None:
    """Heal the lines."""
    for a, b in pairs:
        cluster.net.set_cut(a, b, False)


def slow(cluster: Cluster, args: Args) -> None:
    """A line is slow for a while."""
    count = len(cluster.machines)
    line = cluster.net.line(f"n{args['a'] % count}", f"n{args['b'] % count}")
    line.extra_us = args["extra_ms"] * 1000
    cluster.watcher.on_fault("slow line", [cluster.machines[args["a"] % count]])
    cluster.world.after(args["for_ms"] * 1000, partial(setattr, line, "extra_us", 0))


def break_conns(cluster: Cluster, args: Args) -> None:
    """Break a node's connections; some bytes in flight are lost."""
    m = machine_of(cluster, args)
    cluster.watcher.on_fault("broken connections", [m])
    for a, b in list(cluster.net.conns):
        if (a.is_open or b.is_open) and m.name in a.label.split("-"):
            if cluster.net.chance.random() < 0.5:
                cluster.net.break_conn(a, b)


def clock(cluster: Cluster, args: Args) -> None:
    """The wall clock of a machine jumps."""
    m = machine_of(cluster, args)
    cluster.watcher.on_fault("clock jump", [m])
    m.set_clock(args["jump_ms"])


def disk(cluster: Cluster, args: Args) -> None:
    """The disk of a machine is full, fails, or is slow for a while."""
    m = machine_of(cluster, args)
    what = args["what"]
    cluster.watcher.on_fault(f"disk {what}", [m])
    m.had_disk_fault = True
    if what == "full":
        m.disk.capacity = m.disk.used() + 200
    elif what == "write":
        m.disk.write_errors = 2
    elif what == "fsync":
        m.disk.fsync_errors = 1
    elif m.shell is not None and m.shell.thread is not None:
        m.shell.thread.sync_us = 400_000
    cluster.world.after(args["for_ms"] * 1000, partial(mend_disk, cluster, m))


def mend_disk(cluster: Cluster, m: Machine) -> None:
    """Repair the disk."""
    m.disk.capacity = 1 << 60
    m.disk.write_errors = m.disk.fsync_errors = 0
    if m.shell is not None and m.shell.thread is not None:
        m.shell.thread.sync_us = cluster.plan.sync_us


def backup(cluster: Cluster, args: Args) -> None:
    """Save a copy of the disk."""
    m = machine_of(cluster, args)
    m.old_disk = m.disk.copy()
    m.old_conf = m.conf


def rewrite(cluster: Cluster, args: Args) -> None:
    """The journal of a node is rewritten."""
    m = machine_of(cluster, args)
    if m.shell is not None and m.shell.s.committer is not None:
        m.shell.s.committer.ask_rewrite()
        m.shell.wake()


def memory(cluster: Cluster, args: Args) -> None:
    """A node's memory limit changes."""
    m = machine_of(cluster, args)
    cluster.watcher.on_fault("memory limit", [m])
    m.settings.memory_bytes = args["bytes"]
    if m.shell is not None:
        m.shell.n.limits.memory_bytes = args["bytes"]


def meddle(cluster: Cluster, args: Args) -> None:
    """Somebody changes what a node says to another; that must end the link (B2.7)."""
    m = machine_of(cluster, args)
    pipes = [end.out for pair in cluster.net.conns for end in pair if end.is_open]
    found = [pipe for pipe in pipes if pipe is not None and pipe.meddler is not None]
    mine = [pipe for pipe in found if pipe.to.label.endswith(m.name) and not pipe.is_broken]
    if not mine:
        return
    cluster.watcher.on_fault("a meddler", [m])
    pipe = cluster.net.chance.choice(mine)
    meddler = pipe.meddler
    assert meddler is not None
    if not meddler.wish and not meddler.is_due:
        meddler.wish = args["what"]
        cluster.world.after(PATIENCE_US, partial(judge_meddler, cluster, meddler))


def judge_meddler(cluster: Cluster, meddler: Meddler) -> None:
    """The node that has the wrong frame must have closed the link, and not have heard it."""
    to = meddler.pipe.to
    owner = to.owner
    if not to.is_open or owner is None:
        if meddler.is_due:
            cluster.world.sometimes("a link ends with a wrong frame")
        return
    assert isinstance(owner.process, Shell)
    if owner.process.is_dead:
        return
    is_still = owner.process.is_paused
    if meddler.is_overdue() and not is_still:
        if meddler.overdue_us == 0:
            meddler.overdue_us = cluster.world.now_us
        elif cluster.world.now_us - meddler.overdue_us >= PATIENCE_US:
            cluster.history.find(
                "sealed", f"{to.label} goes on after a frame that is not in its place"
            )
            return
    cluster.world.after(PATIENCE_US, partial(judge_meddler, cluster, meddler))


BACKS: Final = {"empty": "crash with the disk lost", "old": "crash and an old disk"}
FAULTS: Final[dict[str, Callable[[Cluster, Args], None]]] = {
    "crash": crash,
    "pause": pause,
    "cut": cut,
    "slow": slow,
    "break": break_conns,
    "clock": clock,
    "disk": disk,
    "rewrite": rewrite,
    "memory": memory,
    "backup": backup,
    "meddle": meddle,
}
