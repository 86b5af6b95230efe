"""Jobs by leases against jobs by GETJOB, and how long one large command delays other clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import load
import servers

if TYPE_CHECKING:
    from run import Run

JOBS = 200_000
LARGEST = 100_000  # jobs of a batch (SPEC Y2.5)
BATCH = 50_000
ROWS = 10_000
BODY = b"x" * 100


def number(reply: object) -> int:
    """A reply that is a number."""
    assert isinstance(reply, int), reply
    return reply


def plain_rate(port: int, queue: str) -> float:
    """Jobs per second: GETJOB COUNT 1000, then FASTACK of their ids."""
    line = load.Line(port)
    line.add(queue, JOBS, BODY)
    start = time.perf_counter()
    got = 0
    while got < JOBS:
        jobs = line.call("GETJOB", "COUNT", 1000, "FROM", queue)
        assert isinstance(jobs, list)
        line.call("FASTACK", *[job[1] for job in jobs])
        got += len(jobs)
    rate = JOBS / (time.perf_counter() - start)
    line.close()
    return rate


def lease_rate(port: int, queue: str) -> float:
    """Jobs per second: batches of 50,000, read as columns, committed."""
    line = load.Line(port)
    line.add(queue, JOBS, BODY)
    epoch = number(line.call("LEASE", "OPEN", queue, "bench", queue))
    start = time.perf_counter()
    seq = number(dict(pairs(line.call("LEASE", "INFO", queue)))[b"last-seq"])
    got = 0
    while got < JOBS:
        seq += 1
        line.call("LEASE", "NEXT", queue, epoch, seq, "COUNT", BATCH, "TTL", 60_000)
        at, total = 0, 1
        while at < total:
            words = ("FROM", at, "COUNT", ROWS, "COLUMNS")
            reply = line.call("LEASE", "FETCH", queue, epoch, seq, 0, *words)
            assert isinstance(reply, list)
            at, total = reply[-1], reply[1]
            got += reply[2]
        line.call("LEASE", "COMMIT", queue, epoch, seq)
    rate = JOBS / (time.perf_counter() - start)
    line.close()
    return rate


def pairs(reply: object) -> list[tuple[bytes, object]]:
    """Names and values of a flat array."""
    assert isinstance(reply, list)
    return list(zip(reply[::2], reply[1::2], strict=True))


def longest_ms(port: int, queue: str) -> dict[str, float]:
    """The duration of each command on the largest batch, in ms."""
    line = load.Line(port)
    line.add(queue, LARGEST, BODY)
    epoch = number(line.call("LEASE", "OPEN", queue, "bench", queue))
    seq = number(dict(pairs(line.call("LEASE", "INFO", queue)))[b"last-seq"])
    spent: dict[str, float] = {}
    for name, words in (
        ("NEXT", (seq + 1, "COUNT", LARGEST, "TTL", 60_000)),
        ("RELEASE", ()),
        ("NEXT", (seq + 2, "COUNT", LARGEST, "TTL", 60_000)),
        ("COMMIT", (seq + 2,)),
    ):
        start = time.perf_counter()
        number(line.call("LEASE", name, queue, epoch, *words))
        spent[name] = max(spent.get(name, 0), (time.perf_counter() - start) * 1000)
    line.close()
    return spent


def bench_leases(run: Run) -> None:
    """[Y] Leases: their rate, and the longest command."""
    with servers.tuque() as ours:
        found = run.rounds_of(
            {
                "leases": lambda: lease_rate(ours.port, "leased"),
                "plain": lambda: plain_rate(ours.port, "plain"),
            }
        )
        slow = [longest_ms(ours.port, "large") for _ in range(run.rounds)]
    ratio = run.ratio(found["leases"], found["plain"])
    rates = [f"{sorted(found[name])[len(found[name]) // 2] / 1000:.0f}k/s" for name in found]
    detail = " : ".join(rates)
    run.note("jobs by leases / by GETJOB and FASTACK", ratio, "x", 1.5, True, detail)
    for name in slow[0]:
        middle_ms = sorted(one[name] for one in slow)[len(slow) // 2]
        detail = f"a batch of {LARGEST}"
        run.note(f"LEASE {name}", middle_ms, "ms", 100, False, detail)
