"""Bad luck and administration: what a plan's operations do to machines and lines."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tuque.sim.plan import Op

if TYPE_CHECKING:
    from tuque.sim.cluster import Cluster
    from tuque.sim.machine import Machine

Args = dict[str, Any]


def apply(cluster: Cluster, op: Op) -> None:
    """Let the operation happen now."""
    FAULTS[op.kind](cluster, op.args)


def machine_of(cluster: Cluster, args: Args) -> Machine:
    """The machine that the operation is about."""
    return cluster.machines[args["node"] % len(cluster.machines)]


def crash(cluster: Cluster, args: Args) -> None:
    """A process ends: now, or before the k-th thing it does from now on."""
    m = machine_of(cluster, args)
    if m.shell is None:
        return
    how = {"how": args["how"], "back": args["back"], "down_ms": args["down_ms"]}
    cluster.watcher.on_fault("crash")
    if args.get("fuse"):
        m.fuse = args["fuse"]
        m.fuse_args = how
    else:
        m.die(**how)


def pause(cluster: Cluster, args: Args) -> None:
    """A process stands still."""
    cluster.watcher.on_fault("pause")
    machine_of(cluster, args).pause(args["for_ms"])


def cut(cluster: Cluster, args: Args) -> None:
    """Lines between groups of nodes are cut, both ways or one way, and healed later."""
    pairs: list[tuple[str, str]] = []
    for a in args["a"]:
        for b in args["b"]:
            pairs.append((f"n{a}", f"n{b}"))
            if not args.get("one_way"):
                pairs.append((f"n{b}", f"n{a}"))
    cluster.watcher.on_fault("one-way cut" if args.get("one_way") else "cut")
    for a, b in pairs:
        cluster.net.set_cut(a, b, True)
    cluster.world.after(args["for_ms"] * 1000, partial(uncut, cluster, pairs))


def uncut(cluster: Cluster, pairs: list[tuple[str, str]]) -> None:
    """The lines work again."""
    for a, b in pairs:
        cluster.net.set_cut(a, b, False)


def slow(cluster: Cluster, args: Args) -> None:
    """A line is slow for a while."""
    line = cluster.net.line(f"n{args['a']}", f"n{args['b']}")
    line.extra_us = args["extra_ms"] * 1000
    cluster.watcher.on_fault("slow")
    cluster.world.after(args["for_ms"] * 1000, partial(setattr, line, "extra_us", 0))


def break_conns(cluster: Cluster, args: Args) -> None:
    """Connections of a node break; some of what was on its way is lost."""
    m = machine_of(cluster, args)
    for a, b in list(cluster.net.conns):
        if (a.is_open or b.is_open) and m.name in a.label.split("-"):
            if cluster.net.chance.random() < 0.5:
                cluster.watcher.on_fault("break")
                cluster.net.break_conn(a, b)


FAULTS = {
    "crash": crash,
    "pause": pause,
    "cut": cut,
    "slow": slow,
    "break": break_conns,
}
