"""The time of a restart with one and ten million jobs in the journal, beside Redis.

Redis loads as many list entries of the same size from its append-only file. Both are stopped
cleanly first, so that nothing is missing. A start ends when the length of a queue is replied.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import hiredis
import load
import servers

if TYPE_CHECKING:
    from run import Run

BODY = b"x" * 100
POLL_S = 0.005


def bench_restart(run: Run) -> None:
    """Seconds from the start of the process to the first reply, and its memory then."""
    for jobs in (run.jobs, 10 * run.jobs):
        with servers.tuque("--appendonly", "yes") as ours:
            fill(ours, jobs, "ADDJOB", "q", BODY, 0)
            ours.restart()
            took_s = until_loaded(ours, "QLEN", jobs)
            rss = ours.rss()
        other_s, other_rss = redis_restart(jobs)
        detail = f"{took_s * 1e6 / jobs:.2f} s a million, {rss >> 20} MB"
        if other_s > 0:
            detail += f"; Redis list {other_s:.2f} s, {other_rss >> 20} MB"
        run.note(f"restart with {jobs} jobs", took_s, "s", 2.5 * jobs / 1e6, False, detail)


def redis_restart(jobs: int) -> tuple[float, int]:
    """Seconds and resident bytes of a Redis with that many list entries; 0, 0 without Redis."""
    redis = servers.redis("--appendonly", "yes")
    if redis is None:
        return 0.0, 0
    with redis:
        fill(redis, jobs, "LPUSH", "q", BODY)
        redis.restart()
        return until_loaded(redis, "LLEN", jobs), redis.rss()


def fill(broker: servers.Broker, count: int, *command: bytes | str | int) -> None:
    """Send the command that many times."""
    line = load.Line(broker.port)
    line.repeat(count, *command)
    line.close()


def until_loaded(broker: servers.Broker, command: str, count: int) -> float:
    """Seconds from the start of the process until everything is loaded."""
    packed = hiredis.pack_command((command, "q"))
    while True:
        line = load.Line(broker.port)
        line.sock.sendall(packed)
        reader = hiredis.Reader()
        reader.feed(line.sock.recv(1 << 16))
        reply = reader.gets()
        took_s = time.monotonic() - broker.started_s
        line.close()
        if reply == count:
            return took_s
        if not str(reply).startswith("LOADING"):
            raise SystemExit(f"{broker.name} has {reply!r} after a restart, not {count}")
        time.sleep(POLL_S)
