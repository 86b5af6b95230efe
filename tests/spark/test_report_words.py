"""SPEC H6: one meaning for each word of the report, over a history with copies and kills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from spark_history import START_MS, deliver, make_job, nack, requeue

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from tuque.core.model.job import Job
from tuque.core.records.events import Events
from tuque.spark.history import charts, pipeline, report
from tuque.spark.history.duck import DuckEngine
from written import Written

TILES = ("jobs", "open", "redelivered")


@contextmanager
def quiet(_: str) -> Iterator[None]:
    yield


def copy_of(job: Job) -> Job:
    """The copy of another node, which counts its own deliveries."""
    made = make_job("x", job.queue, 0)
    made.id, made.ctime_ns = job.id, job.ctime_ns
    return made


def tell(one: Events, two: Events) -> None:
    """Node one dies; node two queues its copies of ten jobs, four of which are handed out again.

    Of these one was given back first, two had a timeout at the dead node; one goes again later.
    Fifty jobs of other queues go through at once; six are dead for two reasons.
    """
    jobs = [make_job(f"a{i}", b"q", i) for i in range(10)]
    for i, job in enumerate(jobs):
        one.added(START_MS + i, job)
        deliver(one, job, 100 + i)
    nack(one, jobs[0], 200)
    requeue(one, jobs[1], 300)
    requeue(one, jobs[2], 300)
    copies = [copy_of(job) for job in jobs]
    for i, job in enumerate(copies):
        requeue(two, job, 4000 + i)
    for job in copies[:4]:
        deliver(two, job, 5000)
    requeue(two, copies[3], 6000)
    deliver(two, copies[3], 6100)
    for job in copies:
        two.acked(START_MS + 7000, job)
    for i in range(50):
        job = make_job(f"b{i}", b"many-%d" % (i % 20), 2000)
        two.added(START_MS + 2000, job)
        deliver(two, job, 2000 + i)
        two.acked(START_MS + 2500 + i, job)
    for i in range(6):
        job = make_job(f"c{i}", b"files", 3000)
        two.added(START_MS + 3000, job)
        deliver(two, job, 3100)
        path = f"/srv/data/{i}/in.txt" if i < 5 else "none"
        two.dead(START_MS + 3200, job, f"FileNotFoundError: {path} is missing".encode())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> pipeline.Figures:
    place = tmp_path_factory.mktemp("words")
    logs = [Written(place / "events", node, address=f"{node}:7711") for node in ("n1", "n2")]
    events = [log.start(START_MS) for log in logs]
    tell(*events)
    for log, said in zip(logs, events, strict=True):
        log.close(said, START_MS + 8000)
    segments = pipeline.find_segments(place / "events", place / "scratch")
    with DuckEngine(threads=2) as duck:
        pipeline.build(duck, segments, place / "out", quiet)
        return pipeline.figures(duck, segments, quiet)


def test_redelivered_is_one_number(found: pipeline.Figures) -> None:
    """H6.1 A redelivery is an event delivered that is not the first one of its job, on any node, in
    the order of ts, node, seq. Its cause is the last nacked or requeued of the job before it. The
    totals, the bars, the causes and the rows of queues and jobs count these. A copy that went back
    into a queue and was not delivered again does not count.
    """
    told = charts.data(found)
    assert found.total["redelivered"] == 5
    assert sum(told["series"][""]["redelivered"]) == 5
    assert sum(row["returns"] for row in found.returns) == 5
    assert sum(row["redelivered"] for row in found.queues) == 5
    assert sum(row["redelivered"] for row in found.failing) == 5
    assert Counter({row["cause"]: row["returns"] for row in found.returns}) == {"timeout": 5}


def test_each_choice_of_a_queue_adds_up(found: pipeline.Figures) -> None:
    """What is shown for the queues, the others among them, is together what is shown for all."""
    told = charts.data(found)
    assert len(told["queues"]) == pipeline.QUEUES_MAX + 1
    for name in (*charts.COUNTS, "open"):
        sums = [sum(told["series"][key][name]) for key in told["queues"]]
        assert sum(sums) == sum(told["series"][""][name]), name
    values = [report.tile_values(found, key) for key in told["queues"]]
    total = report.tile_values(found, charts.ALL)
    for name in TILES:
        assert sum(int(v[name].replace(",", "")) for v in values) == int(total[name])


def test_open_jobs_end_at_the_open_ones(found: pipeline.Figures) -> None:
    """H6.2 Open jobs at an instant are those added less those ended by then. The last value is the
    number of open jobs in the totals, for each queue and for all.
    """
    told = charts.data(found)
    assert told["series"][""]["open"][-1] == found.total["open"] == 0
    for row in found.queues:
        if row["queue"] in found.shown:
            key = str(found.shown.index(row["queue"]))
            assert told["series"][key]["open"][-1] == row["open"]


def test_process_times_of_table_and_chart_are_the_same(found: pipeline.Figures) -> None:
    """H6.3 Wait and process times in charts and tables are those of H1.3, of the same jobs."""
    told = charts.data(found)
    for what in charts.LATENCIES:
        most = found.total[f"{what}_ms"][3]
        points = [v for v in told["series"][""][f"{what}2"] if v is not None]
        assert max(points) <= most * 1.001
        assert max(points) > most * 0.5


def test_reasons_are_grouped(found: pipeline.Figures) -> None:
    """H6.4 Reasons of dead letters count as equal if they differ only in a path, an address, a job
    id, or a number of four or more digits.
    """
    rows = [(row["reason"], row["jobs"]) for row in found.dead]
    assert rows == [
        ("FileNotFoundError: <path> is missing", 5),
        ("FileNotFoundError: none is missing", 1),
    ]


def test_nodes_have_their_addresses(found: pipeline.Figures) -> None:
    """H6.5 A node is named by the address in `.name-NODE`."""
    assert found.names == {"n1": "n1:7711", "n2": "n2:7711"}
    assert "n1:7711" in report.html_page(found)
