"""Tubes of type `tasks` against fifottl: without keys, with limits, with groups that take turns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import hiredis
import load
import servers
from cluster import middle

from tubes import cycles_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from run import Run

BODY = b"x" * 100
TASKS = 20_000
AT_ONCE = 1_000  # of ADDJOB
FLIGHT = 64  # of GETJOB
KINDS: dict[str, tuple[str, Callable[[int], tuple[object, ...]]]] = {
    "fifottl": ("fifottl", lambda i: ()),
    # two tasks of a key come one after the other, and the second one has to wait
    "limits": ("tasks", lambda i: ("LIMIT", f"shop-{i // 2}", 1)),
    # all tasks of a group come at once, and the groups take turns
    "groups": ("tasks", lambda i: ("GROUP", f"tenant-{i // 20}")),
}


def bench_keys(run: Run) -> None:
    """Run all measurements."""
    found = cycles_of(run, ("fifottl", "tasks"), 16, 16)
    ratio = run.ratio(found["tasks"], found["fifottl"])
    detail = f"{middle(found['tasks'])} : {middle(found['fifottl'])}"
    run.note("cycle 16 x 16, tasks without keys / fifottl", ratio, "x", 0.8, True, detail)
    with servers.tuque() as ours:
        rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(3 * run.rounds):  # half a second each
            for kind in KINDS:
                rates[kind].append(cycled(ours.port, kind))
    for kind, name in (("limits", "limits on 10,000 keys"), ("groups", "fair share, 1,000 groups")):
        ratio = run.ratio(rates[kind], rates["fifottl"])
        detail = f"{middle(rates[kind])} : {middle(rates['fifottl'])}"
        run.note(f"add, take and ack, {name} / fifottl", ratio, "x", 0.6, True, detail)


def cycled(port: int, kind: str) -> float:
    """Tasks per second that are added, taken and acknowledged, one after the other."""
    type, keys = KINDS[kind]
    line = load.Line(port)
    tube = f"bench-{kind}"
    line.call("TUBE", "CREATE", tube, type)
    adds = [
        b"".join(
            hiredis.pack_command(("ADDJOB", tube, BODY, 0, *keys(i)))
            for i in range(start, start + AT_ONCE)
        )
        for start in range(0, TASKS, AT_ONCE)
    ]
    take = hiredis.pack_command(("GETJOB", "NOHANG", "COUNT", FLIGHT, "FROM", tube))
    began = time.perf_counter()
    for packed in adds:
        line.sock.sendall(packed)
        for _ in line.replies(AT_ONCE):
            pass
    left = TASKS
    while left:
        line.sock.sendall(take)
        (jobs,) = line.replies(1)
        ids = [job[1] for job in jobs]
        line.sock.sendall(hiredis.pack_command(("ACKJOB", *ids)))
        for _ in line.replies(1):
            pass
        left -= len(ids)
    rate = TASKS / (time.perf_counter() - began)
    line.call("TUBE", "DROP", tube)
    line.close()
    return rate
