"""What a look at the metrics costs the loop of a node with many jobs and queues.

`python bench/scrape.py [jobs] [queues]` prints, in ms: the walk over the queues that is made each
5 s, in slices; the snapshot that a scrape takes in the loop; the text, which another thread makes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tuque.core.copies.add import on_addjob, settle
from tuque.core.model.job import AddSpec
from tuque.core.node.node import Node
from tuque.metrics.text import render
from tuque.server.config.config import load
from tuque.server.metrics.metrics import families, take_snapshot
from tuque.server.state.server import Server, apply_settings

START_MS = 1_800_000_000_000


def filled(jobs: int, queues: int) -> Server:
    """A server whose queues have that many jobs."""
    node = Node(b"c0ffee00" * 5, b"seed of a bench", START_MS)
    server = Server(load(None, {}, {}), node)
    apply_settings(server)
    spec = settle(node, AddSpec())
    for i in range(jobs):
        on_addjob(node, b"queue-%d" % (i % queues), b"x" * 50, spec)
    return server


def spent_ms(work: Callable[[], object]) -> float:
    """How long it takes once."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1_000


def walk(server: Server) -> list[float]:
    """The slices of one walk, in ms."""
    node, watch = server.n, server.watch
    node.now_ms = watch.due_ms
    slices = [spent_ms(lambda: watch.look(node))]
    while watch.at > 0:
        node.now_ms = watch.next_ms
        slices.append(spent_ms(lambda: watch.look(node)))
    return slices


def main() -> None:
    """Fill a server, look, print."""
    jobs, queues = (int(word) for word in (*sys.argv[1:], "1000000", "10000")[:2])
    server = filled(jobs, queues)
    walk(server)
    slices = walk(server)
    shots = [spent_ms(lambda: take_snapshot(server)) for _ in range(20)]
    shot = take_snapshot(server)
    text = spent_ms(lambda: render(families(shot), True))
    print(
        f"{jobs:,} jobs in {queues:,} queues, {len(shot.queues)} of them with figures of their own"
    )
    print(f"walk each 5 s: {sum(slices):.2f} ms in {len(slices)} slices, longest {max(slices):.2f}")
    print(f"snapshot of a scrape: {min(shots):.2f} ms at best, {max(shots):.2f} at worst")
    print(f"text, in a thread of its own: {text:.2f} ms")


if __name__ == "__main__":
    main()
