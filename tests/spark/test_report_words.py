"""SPEC H6: one meaning for each word of the report, over a history with copies and kills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hist_cluster import write_cluster_history
from spark_history import START_MS, deliver, job_id, make_job, nack, requeue

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from tuque.core.model.job import Job
from tuque.core.records.events import Events
from tuque.spark import gold
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


def test_silver_and_report_say_the_same_of_each_job(tmp_path: Path) -> None:
    """H1.6 A node knows only its own deliveries of a job. So a batch run takes the instants and
    counts of a job that several nodes know from the events of all of them, as the report does; node
    and seq stay those of the end."""
    logs = [Written(tmp_path / "events", node) for node in ("n1", "n2")]
    one, two = (log.start(START_MS) for log in logs)
    given = make_job("given", b"q", 0)
    again = make_job("again", b"q", 0)
    for job in (given, again):
        one.added(START_MS, job)
        deliver(one, job, 100)
    nack(one, again, 200)
    two.acked(START_MS + 700, copy_of(given))
    late = copy_of(again)
    deliver(two, late, 900)
    two.acked(START_MS + 1000, late)
    tell(one, two)
    for log, said in zip(logs, (one, two), strict=True):
        log.close(said, START_MS + 8000)
    write_cluster_history(tmp_path / "more")
    for events in (tmp_path / "events", tmp_path / "more"):
        segments = pipeline.find_segments(events, tmp_path / "scratch")
        with DuckEngine(threads=2) as duck:
            pipeline.build(duck, segments, tmp_path, quiet)
            names = "job_id, queue, ended_at, outcome, added_at, first_delivered_at, "
            names += "last_delivered_at, deliveries, nacks, timeouts, wait_ms, process_ms, total_ms"
            of = "SELECT {} FROM {} ORDER BY job_id"
            want = duck.rows(of.format(names, "jobs WHERE outcome <> 'open'"))
            minutes = "SELECT count(*) AS waits, max(wait_ms) AS most, sum(wait_ms) AS ms FROM {}"
            wait = duck.rows(minutes.format("jobs WHERE outcome <> 'open' AND wait_ms IS NOT NULL"))
            pipeline.build_silver(duck, segments.sealed, tmp_path)
            assert duck.rows(of.format(names, "silver")) == want
            assert duck.rows(minutes.format("silver WHERE wait_ms IS NOT NULL")) == wait
            pipeline.build_gold(duck, segments.sealed, tmp_path)
            timed = f"({gold.PARTS}) p WHERE wait_ms IS NOT NULL"
            assert duck.rows(minutes.format(timed)) == wait


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


def test_reasons_without_a_row_are_counted(tmp_path: Path) -> None:
    """H6.4 The table and `summary.json` have the 20 most frequent, and for each queue that can
    be chosen one row for its other ones, with how many they are (`reasons`), so that the rows of
    each choice add up to its dead letters.
    """
    log = Written(tmp_path / "events", "n1")
    events = log.start(START_MS)
    dead: Counter[str] = Counter()
    for q in range(15):
        for i in range(40 - q):
            job = make_job(f"{q}-{i}", b"q%02d" % q, 0)
            events.added(START_MS, job)
            events.dead(START_MS + 100, job, b"reason %s" % (b"0" if i < 3 else b"%d" % i))
            dead[f"q{q:02}"] += 1
    log.close(events, START_MS + 8000)
    segments = pipeline.find_segments(tmp_path / "events", tmp_path / "scratch")
    with DuckEngine(threads=2) as duck:
        pipeline.build(duck, segments, tmp_path / "out", quiet)
        found = pipeline.figures(duck, segments, quiet)
    rows = found.summary()["dead"]
    assert [row["reasons"] for row in rows[:20]] == [1] * 20
    assert [row["latest_job"] for row in rows[:15]] == [job_id(f"{q}-2") for q in range(15)]
    rest = {row["queue"]: row for row in rows[20:]}
    assert list(rest) == [*found.shown, None], "None: those of all other queues"
    assert rest["q01"]["reason"] == f"{rest['q01']['reasons']} other reasons"
    sums: Counter[str | None] = Counter()
    for row in rows:
        sums[row["queue"] if row["queue"] in found.shown else None] += row["jobs"]
    others = sum(dead[name] for name in dead if name not in found.shown)
    assert sums == {name: dead[name] for name in found.shown} | {None: others}
    page = report.html_page(found)
    assert page.count(" other reasons</td>") == 13
    assert '<tr data-queue="3 other queues"><td class="text">3 other queues</td>' in page


def test_long_and_empty_names_of_queues(tmp_path: Path) -> None:
    log = Written(tmp_path / "events", "n1")
    events = log.start(START_MS)
    long = "n" * 1990 + " the end <b>"
    for name in (long, ""):
        job = make_job(name[-3:], name.encode(), 0)
        events.added(START_MS, job)
        events.dead(START_MS + 100, job, b"no")
    log.close(events, START_MS + 8000)
    segments = pipeline.find_segments(tmp_path / "events", tmp_path / "scratch")
    with DuckEngine(threads=2) as duck:
        pipeline.build(duck, segments, tmp_path / "out", quiet)
        page = report.html_page(pipeline.figures(duck, segments, quiet))
    shown = "n" * 39 + "…nnnnnnnn the end &lt;b&gt;"
    assert f'<span title="{"n" * 1990} the end &lt;b&gt;">{shown}</span></td>' in page
    assert f">{shown}</option>" in page
    assert page.count('<td class="text"><span title="">&quot;&quot;</span></td>') == 3, (
        "of 3 tables"
    )
    assert ">&quot;&quot;</option>" in page
