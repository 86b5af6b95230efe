"""SPEC H5: what is broken is found, what is allowed is not, on both engines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from click.testing import CliRunner
from spark_history import START_MS, deliver, make_job, nack

from tuque.core.model.job import Job
from tuque.core.records.events import Events
from tuque.spark.engines import Engine, SparkEngine
from tuque.spark.history.duck import DuckEngine
from verify import CHECKS, COLUMNS, Recorder, Verdict, verify
from verify_command import verify as verify_command
from written import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_US = START_MS * 1000
JOBS = 4


SLOWLY = pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])


def engine_of(request: pytest.FixtureRequest, kept: Path) -> Iterator[Engine]:
    if request.param == "spark":
        spark: SparkSession = request.getfixturevalue("spark")
        yield SparkEngine(spark, kept)
    else:
        with DuckEngine(threads=2) as duck:
            yield duck


@pytest.fixture(params=[SLOWLY, "duckdb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    yield from engine_of(request, tmp_path / "kept")


class World:
    """A run of some clients and one node; instants are ms after START_MS."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.lines: list[dict[str, object]] = []
        self.log = Written(place / "events", "n1")
        self.events: Events = self.log.start(START_MS)
        self.jobs: list[Job] = []

    def said(self, at_ms: float, action: str, **cells: object) -> None:
        """A line of a client."""
        self.lines.append(
            {"at_us": START_US + round(at_ms * 1000), "client": "c", "action": action, **cells}
        )

    def add(self, name: str, at_ms: int, retry_s: int = 1, *, is_answered: bool = True) -> Job:
        """ADDJOB on both sides."""
        job = make_job(name, b"q", at_ms)
        job.retry_s = retry_s
        self.events.added(START_MS + at_ms, job)
        mark = {"mark": f"mark-{name}"}
        self.said(at_ms - 1, "adding", **mark)
        if is_answered:
            self.said(at_ms + 1, "added", job_id=job.id.decode(), retry_s=retry_s, **mark)
        return job

    def get(self, job: Job, at_ms: int, name: str = "") -> None:
        """GETJOB on both sides: asked a ms before, read a ms after."""
        deliver(self.events, job, at_ms)
        asked_us = START_US + (at_ms - 1) * 1000
        mark = {"mark": f"mark-{name}"} if name else {}
        self.said(at_ms + 1, "got", job_id=job.id.decode(), asked_us=asked_us, **mark)

    def ack(self, job: Job, at_ms: int) -> None:
        """ACKJOB on both sides."""
        self.said(at_ms - 1, "acking", job_id=job.id.decode())
        self.events.acked(START_MS + at_ms, job)
        self.said(at_ms + 1, "acked", job_id=job.id.decode())

    def judge(self, engine: Engine, *, grace_us: int = 0, open_is_fine: bool = False) -> Verdict:
        """End the run and verify it."""
        self.log.close(self.events, START_MS + 60_000)
        path = self.place / "clients.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        segments = [str(p) for p in self.place.rglob("events-*.parquet")]
        return verify(engine, [str(path)], segments, grace_us=grace_us, open_is_fine=open_is_fine)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Four jobs that are added, done and acked; one of them came twice, as it may."""
    made = World(tmp_path)
    for i in range(JOBS):
        job = made.add(f"{i}", i * 100)
        made.get(job, i * 100 + 10, f"{i}")
        if i == 2:
            nack(made.events, job, 220)
            made.get(job, 230, "2")
        made.ack(job, i * 100 + 40)
        made.jobs.append(job)
    return made


def worries(verdict: Verdict) -> dict[str, int]:
    return {name: worry.count for name, worry in verdict.worries.items() if worry.count}


def test_a_sound_history(world: World, engine: Engine) -> None:
    """H5.1: nothing is broken, and coming twice is allowed."""
    verdict = world.judge(engine)
    assert worries(verdict) == {}
    assert not verdict.is_broken
    assert (verdict.jobs, verdict.known, verdict.done, verdict.redelivered) == (JOBS, JOBS, JOBS, 1)
    assert list(verdict.worries) == list(CHECKS)


def lose(world: World) -> None:
    world.add("lost", 1000)


def lose_after_delivery(world: World) -> None:
    world.get(world.add("lost", 1000), 1010, "lost")


def invent(world: World) -> None:
    world.said(1000, "got", job_id="D-unheard-of", mark="nobody's")


def double(world: World) -> None:
    job = world.add("once", 1000, retry_s=0)
    world.get(job, 1010)
    world.get(job, 1020)


def come_after_ack(world: World) -> None:
    world.get(world.jobs[0], 2000)


def come_after_ack_to_a_silent_client(world: World) -> None:
    deliver(world.events, world.jobs[0], 2000)


def add_again(world: World) -> None:
    job = world.add("again", 1000)
    other = make_job("other", b"q", 1001)
    world.said(1005, "added", job_id=other.id.decode(), mark="mark-again")
    for one in (job, other):
        world.get(one, 1010)
        world.ack(one, 1020)


def give_one_id_to_two(world: World) -> None:
    world.said(1000, "added", job_id=world.jobs[0].id.decode(), mark="another")


def drop_events(world: World) -> None:
    world.log.flush(world.events)  # written, so that the gap is in the middle
    world.events.seq += 3


BREAKS = [
    (lose, {"lost": 1}),
    (lose_after_delivery, {"lost": 1}),
    (invent, {"unexpected": 1}),
    (double, {"duplicated": 1}),
    (come_after_ack, {"after ack": 1}),
    (come_after_ack_to_a_silent_client, {"after ack": 1}),
    (add_again, {"added twice": 1}),
    (give_one_id_to_two, {"added twice": 1}),
    (drop_events, {"seq gaps": 3}),
]


@pytest.mark.parametrize(("break_it", "found"), BREAKS, ids=[b[0].__name__ for b in BREAKS])
def test_each_fault_is_found_alone(
    world: World, engine: Engine, break_it: Callable[[World], None], found: dict[str, int]
) -> None:
    """H5.2."""
    break_it(world)
    verdict = world.judge(engine)
    assert worries(verdict) == found
    assert verdict.is_broken
    assert all(w.examples for w in verdict.worries.values() if w.count)


def test_all_faults_are_found_together(world: World, engine: Engine) -> None:
    """H5.2; but for two that have the job of another one."""
    want: Counter[str] = Counter()
    for break_it, found in BREAKS:
        if break_it not in (lose_after_delivery, come_after_ack_to_a_silent_client):
            break_it(world)
            want.update(found)
    verdict = world.judge(engine)
    assert worries(verdict) == want
    assert all(w.examples for w in verdict.worries.values() if w.count)


def test_what_stands_twice(world: World, engine: Engine, tmp_path: Path) -> None:
    """H5.2: a segment that was copied."""
    world.log.close(world.events, START_MS + 60_000)
    (segment,) = tmp_path.rglob("events-*.parquet")
    copy = segment.with_name("events-copy.parquet")
    copy.write_bytes(segment.read_bytes())
    log = tmp_path / "empty.jsonl"
    log.write_text("")
    found = worries(verify(engine, [str(log)], [str(segment), str(copy)]))
    assert found["seq doubled"] == 2 + JOBS * 3 + 2
    assert "seq gaps" not in found


def test_what_is_no_fault(world: World, engine: Engine) -> None:
    """H5.3: the answer of ADDJOB lost; an ack without an answer; a job left; one that died."""
    unanswered = world.add("unanswered", 1000, is_answered=False)
    world.get(unanswered, 1010, "unanswered")
    world.ack(unanswered, 1020)
    asked = world.add("asked", 1100)
    world.said(1110, "acking", job_id=asked.id.decode())
    world.said(1300, "left", job_id=world.add("left", 1200).id.decode())
    world.events.dead(START_MS + 1400, world.add("dead", 1300), b"no")
    world.add("once", 1500, retry_s=0)  # may be lost: that is what RETRY 0 asks for
    assert worries(world.judge(engine)) == {}


def test_an_unanswered_add_is_known_by_its_mark(tmp_path: Path, engine: Engine) -> None:
    """H5.3: also where the broker's event is gone."""
    with Recorder(tmp_path / "c.jsonl", "c") as log:
        log.adding("m")
        log.got("D-1", mark="m")
        log.acking("D-1")
        log.acked("D-1")
        log.got("D-2", mark="other")
    verdict = verify(engine, [str(tmp_path / "c.jsonl")], [])
    assert worries(verdict) == {"unexpected": 1}
    assert verdict.worries["unexpected"].examples == ["D-2"]


def test_open_jobs_may_be_fine(world: World, engine: Engine) -> None:
    lose(world)
    assert worries(world.judge(engine, open_is_fine=True)) == {}


@pytest.mark.parametrize(("at_ms", "is_fine"), [(1500, True), (2500, False)])
def test_after_ack_counts_from_quiet(
    world: World, engine: Engine, at_ms: int, is_fine: bool
) -> None:
    """H5.4."""
    world.said(2000, "quiet")
    world.get(world.jobs[0], at_ms)
    assert worries(world.judge(engine)) == ({} if is_fine else {"after ack": 1})


def test_grace_for_clocks(world: World, engine: Engine) -> None:
    """H5.4."""
    world.get(world.jobs[0], 45)
    assert worries(world.judge(engine, grace_us=10_000)) == {}


def test_parquet_and_lines_together(world: World, engine: Engine, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    half = world.lines[: len(world.lines) // 2]
    names = [part.split()[0] for part in COLUMNS.split(",")]
    columns = {name: [line.get(name) for line in half] for name in names}
    pq.write_table(pa.table(columns), tmp_path / "half.parquet")
    rest = tmp_path / "rest.jsonl"
    rest.write_text("".join(json.dumps(line) + "\n" for line in world.lines[len(half) :]))
    world.log.close(world.events, START_MS + 60_000)
    segments = [str(p) for p in tmp_path.rglob("events-*.parquet")]
    verdict = verify(engine, [str(tmp_path / "half.parquet"), str(rest)], segments)
    assert (verdict.done, worries(verdict)) == (JOBS, {})


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_command(world: World, tmp_path: Path, is_broken: bool) -> None:
    """H5.5: exit status 1 and a table."""
    if is_broken:
        lose(world)
    with DuckEngine() as duck:
        world.judge(duck)
    where = ["--clients", str(tmp_path / "clients.jsonl"), "--events", str(tmp_path / "events")]
    result = CliRunner().invoke(verify_command, where)
    assert result.exit_code == int(is_broken), result.output
    assert ("BROKEN" if is_broken else "all is well") in result.output
    assert all(name in result.output for name in CHECKS)


def test_no_log_is_a_clear_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(verify_command, ["--clients", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "no such file" in result.output
