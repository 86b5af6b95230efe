"""Tubes against plain queues of the same node, and sub-queues against a tube without."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import hiredis
import load
import servers
from cluster import middle

if TYPE_CHECKING:
    from run import Run

BODY = b"x" * 100
WORK = "RETRY 30 ATTEMPTS 5 BACKOFF 1 300 0.5"  # as the tasks of a worker are added
QUEUES = 8  # of the load generator, q0 to q7
TYPES = ("fifo", "fifottl")
SHAPES = ((1, 64), (16, 16))  # connections, and how many jobs each has in flight
SLICE_S = 0.5  # the longest
DRAINS = 6  # in a round
WATCH_S = 5.0


def bench_tubes(run: Run) -> None:
    """Run all measurements."""
    cycles(run)
    work_cycles(run)
    waiting(run)
    sub_queues(run)
    delayed(run)


def cycles(run: Run) -> None:
    """Add, take and acknowledge: a plain queue, and each type of tube instead.

    A node's speed varies by a tenth with the layout of its memory, and a machine's from second
    to second: every round has new nodes, and alternates in short slices.
    """
    for conns, depth in SHAPES:
        found = cycles_of(run, ("queue", *TYPES), conns, depth)
        for kind in TYPES:
            ratio = run.ratio(found[kind], found["queue"])
            detail = f"{middle(found[kind])} : {middle(found['queue'])}"
            run.note(f"cycle {conns} x {depth}, {kind} / queue", ratio, "x", 0.8, True, detail)


def work_cycles(run: Run) -> None:
    """The cycle of a worker, with the options that it sends: a plain queue, and a tube of tasks."""
    for proto, name in (("disque-begin", "GETJOB START"), ("disque-work", "START")):
        found = cycles_of(run, ("queue", "tasks"), 16, 16, proto, WORK)
        ratio = run.ratio(found["tasks"], found["queue"])
        detail = f"{middle(found['tasks'])} : {middle(found['queue'])}"
        run.note(f"{name}, DONE 16 x 16, tasks / queue", ratio, "x", 0.65, True, detail)


def waiting(run: Run) -> None:
    """The memory of a task that waits, with a worker's options."""
    for kind, most in (("queue", 850), ("tasks", 1100)):
        with node_of(kind) as node:
            line = load.Line(node.port)
            words = ("ADDJOB", "q0", BODY, 0, *WORK.split())
            packed = hiredis.pack_command(words) * 1000
            before = 0
            for batch in range(20 + run.jobs // 1000):
                if batch == 20:
                    before = node.rss()
                line.sock.sendall(packed)
                for _ in line.replies(1000):
                    pass
            size = (node.rss() - before) / (run.jobs // 1000 * 1000)
            line.close()
        run.note(f"bytes a waiting job, {kind}", size, "B", most, False, f"options {WORK}")


def cycles_of(
    run: Run,
    kinds: tuple[str, ...],
    conns: int,
    depth: int,
    proto: str = "disque-fast",
    options: str = "",
) -> dict[str, list[float]]:
    """Cycles per second with queues of each of these kinds."""
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    slice_s = min(SLICE_S, run.seconds)
    for _ in range(run.rounds):
        with ExitStack() as stack:
            ports = {kind: stack.enter_context(node_of(kind)).port for kind in found}
            for _ in range(round(run.seconds / slice_s)):
                for kind, port in ports.items():
                    rate = load.cycle(run.program, proto, port, conns, depth, slice_s, options)
                    found[kind].append(rate)
    return found


def node_of(kind: str) -> servers.Broker:
    """A new node on which the load generator's queues are of that kind."""
    node = servers.tuque()
    if kind != "queue":
        line = load.Line(node.port)
        for i in range(QUEUES):
            line.call("TUBE", "CREATE", f"q{i}", kind)
        line.close()
    return node


def sub_queues(run: Run) -> None:
    """Take and acknowledge with all keys busy, against fifo with as many jobs in flight."""
    with servers.tuque() as ours:
        for keys, tasks, flight in ((10, 4_000, 10), (10_000, 20_000, 64)):
            found: dict[str, list[float]] = {"utube": [], "fifo": []}
            for _ in range(DRAINS * run.rounds):  # a tenth of a second each
                for kind, rates in found.items():
                    rates.append(drained(ours.port, kind, keys, tasks, flight))
            ratio = run.ratio(found["utube"], found["fifo"])
            detail = f"{middle(found['utube'])} : {middle(found['fifo'])}"
            name = f"take and ack, {keys} keys x {tasks // keys} / fifo"
            run.note(name, ratio, "x", 0.8, True, detail)


def drained(port: int, kind: str, keys: int, tasks: int, flight: int) -> float:
    """Tasks per second while a full tube is drained, so many taken at a time."""
    line = load.Line(port)
    tube = f"bench-{kind}"
    line.call("TUBE", "CREATE", tube, kind)
    for start in range(0, tasks, 1000):
        batch = range(start, min(tasks, start + 1000))
        puts = [("TUBE", "PUT", tube, BODY, "UTUBE", i % keys) for i in batch]
        line.sock.sendall(b"".join(map(hiredis.pack_command, puts)))
        for _ in line.replies(len(puts)):
            pass
    take = hiredis.pack_command(("TUBE", "TAKE", tube, "TIMEOUT", 0)) * flight
    began = time.perf_counter()
    left = tasks
    while left:
        line.sock.sendall(take)
        taken = [reply for reply in line.replies(flight) if isinstance(reply, list) and reply]
        acks = [hiredis.pack_command(("TUBE", "ACK", tube, task[0])) for task in taken]
        line.sock.sendall(b"".join(acks))
        for _ in line.replies(len(acks)):
            pass
        left -= len(acks)
    rate = tasks / (time.perf_counter() - began)
    line.call("TUBE", "DROP", tube)
    line.close()
    return rate


def delayed(run: Run) -> None:
    """The cost of tasks that wait for an hour."""
    with servers.tuque() as ours:
        line = load.Line(ours.port)
        line.call("TUBE", "CREATE", "later", "fifottl")
        packed = hiredis.pack_command(("TUBE", "PUT", "later", BODY, "DELAY", 3600)) * 1000
        for _ in range(run.jobs // 1000):
            line.sock.sendall(packed)
            for _ in line.replies(1000):
                pass
        time.sleep(1)  # lets the work left by the puts finish
        before = ours.cpu_s()
        time.sleep(WATCH_S)
        spent = (ours.cpu_s() - before) / WATCH_S
        line.close()
    run.note(
        f"{run.jobs} delayed tasks, share of a core", spent, "", 0.02, False, "while they wait"
    )
