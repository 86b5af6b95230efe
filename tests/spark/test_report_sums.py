"""SPEC H6: each figure of the report over generated histories, against counts made by hand.

A history is a list of stories, one for each job: every way to go back to the queue, every ending,
dead letters that are read, end again or are replayed, second ends at another node, ends that a kill
took. The counts are made while the story is told, with no query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from spark_history import START_MS, deliver, make_job

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from tuque.core.model import stats
from tuque.core.model.job import Job
from tuque.core.records import events as ev
from tuque.core.records.events import Events
from tuque.spark.history import charts, pipeline, report
from tuque.spark.history.duck import DuckEngine
from written import Written

STORIES = ("open", "unread", "dead", "read", "settled", "replayed")
PLAIN = ("acked", "expired", "deleted", "cancelled")  # ends of a job that is no dead letter
JOBS = 120


@contextmanager
def quiet(_: str) -> Iterator[None]:
    yield


@dataclass
class Told:
    """What is to be found, by queue."""

    jobs: Counter[bytes] = field(default_factory=Counter)
    deliveries: Counter[bytes] = field(default_factory=Counter)
    again: Counter[bytes] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    ends: dict[str, Counter[bytes]] = field(
        default_factory=lambda: {name: Counter() for name in ("dead", "open", *PLAIN)}
    )


class Teller:
    """Tells the stories to two nodes, and counts."""

    def __init__(self, nodes: list[Events], chance: Random) -> None:
        self.nodes = nodes
        self.chance = chance
        self.told = Told()
        self.returned: Counter[bytes] = Counter()  # by FAIL or RELEASE, by job
        self.nacks: Counter[str] = Counter()  # by job
        self.now = 0

    def tell(self, number: int, story: str) -> None:
        chance, told = self.chance, self.told
        queue = b"q%d" % chance.randrange(3)
        node = chance.choice(self.nodes)
        job = make_job(f"j{number}", queue, self.later(), chance.choice([0, 0, 2]))
        node.added(START_MS + self.now, job)
        told.jobs[queue] += 1
        end = {"open": "open", "unread": "dead"}.get(story, story)
        told.ends[end if end in told.ends else "dead"][queue] += 1
        if story == "open" and chance.random() < 0.5:
            return
        self.work(node, job, chance.randrange(1, 4))
        if story in PLAIN:
            self.end(node, job, story)
            if chance.random() < 0.3:  # a copy ends at the other node, too: the first one counts
                other = self.nodes[1] if node is self.nodes[0] else self.nodes[0]
                returned = self.returned[job.id]
                other.deleted(START_MS + self.later(), job, stats.EVICTED, returned)
        elif story != "open":
            reason = b"ValueError: %d" % chance.randrange(9999)
            node.dead(START_MS + self.later(), job, reason, self.returned[job.id])
            job.queue = queue + b".dead"
            if story == "unread":
                return
            self.work(node, job, 1, first=False)
            if story == "settled":
                self.end(node, job, "acked")
            if story == "replayed":
                node.run(START_MS + self.later(), job, ev.REPLAYED, 0, b"failed")
                job.queue = queue
                self.work(node, job, 1, first=False)
                self.end(node, job, "acked")

    def work(self, node: Events, job: Job, times: int, *, first: bool = True) -> None:
        """So many deliveries, with a return before each but the very first."""
        cause = "no reason known" if first else self.last
        for i in range(times):
            if not (first and i == 0):
                self.told.again[job.queue] += 1
                self.told.causes[cause] += 1
            deliver(node, job, self.later())
            self.told.deliveries[job.queue] += 1
            if i + 1 < times:
                cause = self.chance.choice(["nack", "timeout"])
                if cause == "nack":
                    self.nacks[job.id.decode()] += 1
                    if self.chance.random() < 0.5:
                        job.nacks += 1
                    else:
                        self.returned[job.id] += 1  # FAIL, RELEASE
                    node.nacked(START_MS + self.later(), job, b"ValueError")
                else:
                    node.requeued(START_MS + self.later(), job, ev.REQUEUE_TIMEOUT)
        self.last = cause

    def end(self, node: Events, job: Job, how: str) -> None:
        at_ms, returned = START_MS + self.later(), self.returned[job.id]
        if how == "acked":
            node.acked(at_ms, job, returned)
        elif how == "expired":
            node.expired(at_ms, job, returned)
        elif how == "cancelled":
            node.cancelled(at_ms, job, b"no need", returned)
        else:
            node.deleted(at_ms, job, stats.ADMIN_DELETED, returned)

    def later(self) -> int:
        """Some time passes, ms after START_MS."""
        self.now += self.chance.randrange(1, 700)
        return self.now


def make(place: Path, seed: int) -> tuple[Told, pipeline.Figures]:
    chance = Random(seed)
    logs = [Written(place / "events", name) for name in ("n1", "n2")]
    nodes = [log.start(START_MS) for log in logs]
    teller = Teller(nodes, chance)
    kinds = [*STORIES, *PLAIN]
    stories = [*kinds, *(chance.choice(kinds) for _ in range(JOBS - len(kinds)))]
    for number, story in enumerate(stories):
        teller.tell(number, story)
    for log, said in zip(logs, nodes, strict=True):
        log.close(said, START_MS + teller.later())
    segments = pipeline.find_segments(place / "events", place / "scratch")
    with DuckEngine(threads=1) as duck:
        pipeline.build(duck, segments, place / "out", quiet)
        rows = duck.rows("SELECT job_id, nacks FROM jobs WHERE nacks > 0")
        assert {row["job_id"]: row["nacks"] for row in rows} == teller.nacks
        return teller.told, pipeline.figures(duck, segments, quiet)


@pytest.mark.parametrize("seed", range(4))
def test_each_figure_is_the_count_of_the_events(tmp_path: Path, seed: int) -> None:
    """H6.7 A job is one row and counts once, by its id: with the end of H2, in the queue of that
    end. A dead letter that keeps its id is that job, which has ended. Jobs added and ended, in
    totals, bars and rows of queues, are these. Deliveries and returns are events, in the queue
    where they happened: those of dead letters in the queue of dead letters.
    """
    told, found = make(tmp_path, seed)
    drawn = charts.data(found)["series"][""]
    rows = {row["queue"].encode(): row for row in found.queues}
    wanted = {
        "jobs": told.jobs,
        "deliveries": told.deliveries,
        "redelivered": told.again,
        **told.ends,
    }
    tiles = report.tile_values(found, charts.ALL)
    for name, counts in wanted.items():
        assert found.total[name] == counts.total(), name
        assert tiles[name] == f"{counts.total():,}", name
        assert {queue: row[name] for queue, row in rows.items() if row[name]} == +counts, name
    bars = {"added": "jobs", "delivered": "deliveries", "acked": "acked", "dead": "dead"}
    for bar, name in {**bars, "redelivered": "redelivered"}.items():
        assert sum(drawn[bar]) == wanted[name].total(), bar
    assert drawn["open"][-1] == told.ends["open"].total()
    assert sum(row["returns"] for row in found.returns) == told.again.total()
    assert sum(row["jobs"] for row in found.dead) == told.ends["dead"].total()
    causes: Counter[str] = Counter()
    for row in found.returns:
        causes[row["cause"]] += row["returns"]
    assert causes == told.causes
