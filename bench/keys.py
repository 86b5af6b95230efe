"""Tubes of type `tasks` against fifottl: without keys, with limits, with groups that take turns.

And with 100,000 keys: what a take costs, and what they cost while all their tasks wait.
"""

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
MANY = 100_000  # keys
WATCH_S = 5.0
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
    many_keys(run)
    all_wait(run)


def many_keys(run: Run) -> None:
    """Take and acknowledge with 100 keys, and with 100,000 in the tube."""
    rates: dict[int, list[float]] = {100: [], MANY: []}
    with servers.tuque() as ours:
        line = load.Line(ours.port)
        for _ in range(run.rounds):
            for count, found in rates.items():
                line.call("TUBE", "CREATE", "many", "tasks")
                adds = [("LIMIT", f"k{i % count}", 1) for i in range(MANY)]
                add(line, "many", adds)
                began = time.perf_counter()
                taken(line, "many", TASKS)
                found.append(TASKS / (time.perf_counter() - began))
                line.call("TUBE", "DROP", "many")
        line.close()
    ratio = run.ratio(rates[MANY], rates[100])
    detail = f"{middle(rates[MANY])} : {middle(rates[100])}"
    run.note(f"take and ack, {MANY} keys / 100", ratio, "x", 0.5, True, detail)


def all_wait(run: Run) -> None:
    """What the node spends while 100,000 keys have no place, or no token, and a client waits."""
    for kind, words in (("places", ("LIMIT", "1")), ("tokens", ("RATE", "1/h"))):
        with servers.tuque() as ours:
            line = load.Line(ours.port)
            line.call("TUBE", "CREATE", "many", "tasks")
            add(line, "many", [(words[0], f"k{i % MANY}", words[1]) for i in range(2 * MANY)])
            taken(line, "many", MANY, is_acked=False)
            line.sock.sendall(hiredis.pack_command(("GETJOB", "FROM", "many")))  # it waits
            time.sleep(1)  # lets the work left by the takes finish
            before = ours.cpu_s()
            time.sleep(WATCH_S)
            spent = (ours.cpu_s() - before) / WATCH_S
            line.close()
        name = f"{MANY} keys without {kind}, share of a core"
        run.note(name, spent, "", 0.02, False, "while they wait")


def add(line: load.Line, tube: str, keys: list[tuple[object, ...]]) -> None:
    """Add a task with each of these keys."""
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        packed = [hiredis.pack_command(("ADDJOB", tube, BODY, 0, *one)) for one in some]
        line.sock.sendall(b"".join(packed))
        for _ in line.replies(len(some)):
            pass


def taken(line: load.Line, tube: str, count: int, is_acked: bool = True) -> None:
    """Take that many tasks, which are there, and acknowledge them."""
    take = hiredis.pack_command(("GETJOB", "NOHANG", "COUNT", FLIGHT, "FROM", tube))
    while count > 0:
        line.sock.sendall(take)
        (jobs,) = line.replies(1)
        assert isinstance(jobs, list)
        count -= len(jobs)
        if is_acked:
            line.call("ACKJOB", *(job[1] for job in jobs))


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
    began = time.perf_counter()
    for packed in adds:
        line.sock.sendall(packed)
        for _ in line.replies(AT_ONCE):
            pass
    taken(line, tube, TASKS)
    rate = TASKS / (time.perf_counter() - began)
    line.call("TUBE", "DROP", tube)
    line.close()
    return rate
