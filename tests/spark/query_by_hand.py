"""What Spark does with a leasing source, without Spark: plan an offset, read up to it, log it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable

from tuque import Client
from tuque.spark.leases import parts as leases_parts
from tuque.spark.leases.leases import Leases, Offset

POLLS_MOST = 60  # ten a second, and heartbeats of tests before; without a pause it is hundreds


def polls_of(is_idle: Callable[[], bool], client: Client) -> int:
    """Commands of a second in which Spark asks, again and again, a stream that has no jobs."""
    before = int(client.info()["total_commands_processed"])
    until_s = time.monotonic() + 1
    while time.monotonic() < until_s:
        assert is_idle()
    return int(client.info()["total_commands_processed"]) - before


class Query:
    """What Spark does: logs an offset, reads up to it, logs that it is done, and so on."""

    def __init__(self, leases: Leases, most: int) -> None:
        self.leases = leases
        self.most = most
        self.done: Offset = {}
        self.seen: Counter[int] = Counter()
        self.parts = 0

    def plan(self) -> Offset:
        """The next offset, as it is when it was in the log."""
        found: Offset = json.loads(json.dumps(self.leases.latest(self.done, self.most)))
        assert list(found) == sorted(found)
        return found

    def run(self, end: Offset) -> int:
        """Reads a batch and notes that it is done: rows."""
        rows = 0
        parts = leases_parts.parts_of(self.leases, self.done, end)
        for part in parts:
            for page in leases_parts.read(self.leases.options, part):
                rows += page.count
                at = 0
                for until in memoryview(page.body_ends).cast("i"):
                    self.seen[int(page.bodies[at:until])] += 1
                    at = until
        self.done, self.parts = end, len(parts)
        return rows

    def step(self) -> int:
        """A whole batch: rows."""
        return self.run(self.plan())

    def until(self, count: int, deadline_s: float = 20.0) -> None:
        """Goes on until so many jobs were seen."""
        until_s = time.monotonic() + deadline_s
        while len(self.seen) < count:
            assert time.monotonic() < until_s, f"{len(self.seen)} of {count}"
            self.step()

    def assert_once(self, count: int) -> None:
        lost = [n for n in range(count) if n not in self.seen]
        twice = sum(self.seen.values()) - len(self.seen)
        print(f"{len(lost)} lost, {twice} duplicates of {count}")
        assert (lost, twice, len(self.seen)) == ([], 0, count)
