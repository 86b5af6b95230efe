"""The demo's own books: what the producer added, what came out, and the fate of each job.

Three sources: the producer's ids, the workers' output (rows of the table of results, and dead
letters), and the surviving nodes, which are asked for each id. A job is done when a worker reported
its outcome and no node would deliver it again; any other job is lost. The event files have the
history, less the last 20 ms of the killed node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from demo.tasks import FILES, RESULTS, Measures


@dataclass
class History:
    """The history in the event files of all nodes."""

    acked: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    delivered: Counter[str] = field(default_factory=Counter)
    nacked: int = 0
    results: int = 0  # of workers, including repeats

    @property
    def redelivered(self) -> int:
        """Deliveries of a job after its first one."""
        return self.delivered.total() - len(self.delivered)

    @property
    def came_back(self) -> int:
        """Those of them that nobody gave back: the consumer had died."""
        return max(0, self.redelivered - self.nacked)


def read_history(events: Path) -> History:
    """Reads the sealed segments under a directory; the nodes must have stopped."""
    import pyarrow.parquet as pq

    history = History()
    for segment in sorted(events.rglob("events-*.parquet")):
        table = pq.read_table(segment, columns=["event", "queue", "job_id"])
        for event, queue, job_id in zip(*(c.to_pylist() for c in table.columns), strict=True):
            if queue == RESULTS and event == "added":
                history.results += 1
            if queue != FILES:
                continue
            if event == "delivered":
                history.delivered[job_id] += 1
            elif event == "acked":
                history.acked.add(job_id)
            elif event == "dead":
                history.dead.add(job_id)
            elif event == "nacked":
                history.nacked += 1
    return history


class Books:
    """One line per job: its path, and what is known about it."""

    def __init__(self) -> None:
        self.path_of: dict[str, str] = {}
        self.must_fail: set[str] = set()
        self.results: dict[str, Measures] = {}
        self.buried: dict[str, str] = {}
        self.repeated = 0
        self._id_of: dict[str, str] = {}

    def on_added(self, job_id: str, path: str, *, must_fail: bool) -> None:
        self.path_of[job_id] = path
        self._id_of[path] = job_id
        if must_fail:
            self.must_fail.add(job_id)

    def on_result(self, found: Measures) -> None:
        """Records a row of the table; a second one of a job would be a duplicate."""
        if found.job_id in self.results:
            self.repeated += 1
        self.results[found.job_id] = found

    def on_dead_letter(self, path: str) -> None:
        """Records a dead letter, which has an id of its own: its path identifies the job."""
        self.buried[self._id_of[path]] = path

    @property
    def ended(self) -> int:
        """The number of jobs with a result or a dead letter."""
        return len(self.results.keys() | self.buried.keys())

    @property
    def open(self) -> int:
        return len(self.path_of) - self.ended

    def lost(self, unsettled: set[str]) -> list[str]:
        """The jobs without an outcome, or that a node would still deliver."""
        ended = self.results.keys() | self.buried.keys()
        return sorted((self.path_of.keys() - ended) | unsettled)

    def survived(self) -> list[str]:
        """The jobs that had to fail and did not."""
        return sorted(self.must_fail - self.buried.keys())

    def totals(self) -> Counter[str]:
        """Sums over all files, each counted once."""
        sums: Counter[str] = Counter(files=len(self.results))
        for found in self.results.values():
            for name in ("lines", "functions", "classes", "imports", "calls"):
                sums[name] += getattr(found, name)
        return sums
