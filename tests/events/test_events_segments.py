"""eventlog.py and segments.py: rows on disk, rolling, sealing, recovery, trouble (SPEC E)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from events_jobs import NOW_MS, a_job

from tuque.core.records import events as ev
from tuque.core.records.events import Events
from tuque.server.events.events import EventLog, EventLogError
from until import until

pq = pytest.importorskip("pyarrow.parquet")
from tuque.server.events import segments  # noqa: E402 - needs pyarrow

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def sealed(directory: Path) -> list[Path]:
    return sorted(directory.glob("date=*/*.parquet"), key=lambda path: path.name)


def rows(directory: Path) -> list[dict[str, object]]:
    return [row for path in sealed(directory) for row in pq.ParquetFile(path).read().to_pylist()]


def write_now(log: EventLog, events: Events) -> None:
    """Have the thread write what there is."""

    def is_written() -> bool:
        log.flush(events)
        return events.lent_chunks == 0

    events.cut()
    until(is_written, "show the thread")


def add_many(events: Events, log: EventLog, count: int, at_ms: int = NOW_MS) -> None:
    for i in range(count):
        events.added(at_ms, a_job(i))
        log.flush(events)


def test_rows_are_the_calls(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "n1")
    events = log.start(NOW_MS)
    job = a_job(5, "café".encode())
    events.added(NOW_MS + 1, job)
    job.delivered_count, job.first_ms, job.last_ms = 1, NOW_MS + 2, NOW_MS + 2
    events.delivered(NOW_MS + 2, job, 42)
    events.acked(NOW_MS + 3, job)
    events.dead(NOW_MS + 4, a_job(6, b"\xff\x00"), b"ValueError: \xfe")
    log.close(events, NOW_MS + 5)
    found = rows(tmp_path)
    assert [r["event"] for r in found] == [
        "started", "added", "delivered", "acked", "dead", "stopped"
    ]  # fmt: skip
    assert [r["seq"] for r in found] == list(range(6))
    assert [r["ts"] for r in found] == [T0 + timedelta(milliseconds=i) for i in range(6)]
    assert {r["node"] for r in found} == {"n1"}
    _, added, delivered, acked, dead, _ = found
    assert (added["queue"], added["job_id"]) == ("café", job.id.decode())
    assert (added["size"], added["delay_ms"]) == (100, 0)
    assert (added["ttl_ms"], added["retry_ms"]) == (86_400_000, 300_000)
    assert (added["enqueued_at"], added["consumer"], added["reason"]) == (None, None, None)
    assert (delivered["delivery"], delivered["consumer"], delivered["size"]) == (1, "42", None)
    assert acked["enqueued_at"] == T0
    assert (
        acked["first_delivered_at"] == acked["last_delivered_at"] == T0 + timedelta(milliseconds=2)
    )
    assert (acked["deliveries"], acked["nacks"], acked["timeouts"]) == (1, 0, 0)
    assert (dead["queue"], dead["reason"]) == ("\\xff\x00", "ValueError: \\xfe")
    assert dead["first_delivered_at"] is None
    assert pq.ParquetFile(sealed(tmp_path)[0]).schema_arrow.equals(segments.SCHEMA)


def test_rows_of_runs(tmp_path: Path) -> None:
    """Attempt and text are in columns that there were; other rows keep theirs."""
    log = EventLog(tmp_path, "n1")
    events = log.start(NOW_MS)
    job = a_job(5)
    job.delivered_count = 7
    events.delivered(NOW_MS, job, 42)
    events.run(NOW_MS + 1, job, ev.RUN_STARTED, 2, b"web-3")
    events.nacked(NOW_MS + 2, job, b"put back")
    events.run(NOW_MS + 3, job, ev.RUN_CRASHED, 2, b"silent for 30 s")
    events.run(NOW_MS + 4, job, ev.REPLAYED, 70_000, b"")
    events.home_changed(NOW_MS + 4, b"mail", 1 << 40, b"its leader was silent")
    events.of_group(NOW_MS + 4, ev.GROUP_DONE, b"sums", 3, b"D-1 3 done, 0 failed")
    events.of_schedule(NOW_MS + 4, ev.SCHEDULE_LATE, b"sums", 2, b"night")
    log.close(events, NOW_MS + 5)
    found = [(r["event"], r["delivery"], r["reason"], r["consumer"]) for r in rows(tmp_path)[1:-1]]
    assert found == [
        ("delivered", 7, None, "42"),
        ("run-started", 2, "web-3", None),
        ("nacked", 7, "put back", None),
        ("run-crashed", 2, "silent for 30 s", None),
        ("replayed", 70_000, "", None),
        ("home-changed", (1 << 31) - 1, "its leader was silent", None),
        ("group-done", 3, "D-1 3 done, 0 failed", None),
        ("schedule-late", 2, "night", None),
    ]
    assert [r["job_id"] for r in rows(tmp_path)] == ["", *5 * [job.id.decode()], *4 * [""]]
    assert [r["queue"] for r in rows(tmp_path)][-4:] == ["mail", "sums", "sums", ""]


def test_rolls_by_rows_and_by_time(tmp_path: Path) -> None:
    """E4.1 A segment is sealed after `events-roll-rows` or `events-roll-seconds`."""
    log = EventLog(tmp_path, "n1", roll_rows=100, roll_seconds=3600)
    events = log.start(NOW_MS)
    for i in range(500):
        events.added(NOW_MS, a_job(i))
        if i % 10 == 0:
            write_now(log, events)
    log.close(events, NOW_MS)
    counts = [pq.ParquetFile(path).metadata.num_rows for path in sealed(tmp_path)]
    assert sum(counts) == 502
    assert len(counts) >= 4
    assert max(counts) < 200
    assert [r["seq"] for r in rows(tmp_path)] == list(range(502))

    timed = tmp_path / "timed"
    log = EventLog(timed, "n1", roll_rows=10**6, roll_seconds=0.05)
    events = log.start(NOW_MS)
    events.cut()
    log.flush(events)
    until(lambda: len(sealed(timed)) == 1, "show a segment sealed by its age, without new events")
    until(lambda: log.sealed == 1, "its count")
    log.close(events, NOW_MS)


def test_midnight_parts_a_chunk(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "n1")
    events = log.start(NOW_MS - 2)
    add_many(events, log, 3, NOW_MS - 1)
    add_many(events, log, 2, NOW_MS)
    log.close(events, NOW_MS + 86_400_000)
    found = {path.parent.name: pq.ParquetFile(path).metadata.num_rows for path in sealed(tmp_path)}
    assert found == {"date=2025-12-31": 4, "date=2026-01-01": 2, "date=2026-01-02": 1}


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    for expected in (0, 12):
        log = EventLog(tmp_path, "n1")
        events = log.start(NOW_MS)
        assert events.seq == expected + 1
        add_many(events, log, 10)
        log.close(events, NOW_MS)
    other = EventLog(tmp_path, "n2")
    events = other.start(NOW_MS)
    assert events.seq == 1, "each node counts for itself"
    other.close(events, NOW_MS)
    assert [r["seq"] for r in rows(tmp_path) if r["node"] == "n1"] == list(range(24))


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from events_jobs import NOW_MS, a_job
from tuque.server.events.events import EventLog
log = EventLog(sys.argv[1], "n1")
events = log.start(NOW_MS)
for part in range(3):
    for i in range(50):
        events.added(NOW_MS, a_job(i))
    events.cut()
    log.flush(events)
    while log.written < 51 + 50 * part:
        log._thread.join(0.001)
os.kill(log.writer_pid, 9)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a node leaves that is killed with its writer after 151 events in 3 batches."""
    directory = tmp_path_factory.mktemp("killed")
    run = subprocess.run([sys.executable, "-c", KILLED, str(directory), str(Path(__file__).parent)])
    assert run.returncode == -9
    for raw in directory.glob(".raw-*"):
        raw.unlink()
    return directory


@pytest.fixture
def hot(left_behind: Path, tmp_path: Path) -> Path:
    """The hot segment of that node, in the directory of the test."""
    shutil.copytree(left_behind, tmp_path, dirs_exist_ok=True)
    (found,) = tmp_path.glob(".hot-*")
    return found


def test_a_kill_loses_no_written_batch(tmp_path: Path, hot: Path) -> None:
    assert hot.exists() and sealed(tmp_path) == []
    log = EventLog(tmp_path, "n1")
    assert log.recovered == 1
    assert [r["seq"] for r in rows(tmp_path)] == list(range(151))
    events = log.start(NOW_MS)
    assert events.seq == 152
    log.close(events, NOW_MS)
    assert [r["event"] for r in rows(tmp_path)].count("started") == 2
    assert list(tmp_path.glob(".hot-*")) == []


def test_a_torn_hot_segment_gives_its_whole_batches(tmp_path: Path, hot: Path) -> None:
    whole = hot.read_bytes()
    kept = set()
    for size in [*range(0, len(whole), 331), len(whole) - 1, len(whole)]:
        directory = tmp_path / str(size)
        directory.mkdir()
        (directory / ".hot-n1-0").write_bytes(whole[:size])
        segments.recover(directory, "n1")
        numbers = [r["seq"] for r in rows(directory)]
        assert numbers == list(range(len(numbers)))
        kept.add(len(numbers))
        assert list(directory.glob("**/.*")) == [], "nothing half-made stays"
    assert kept == {0, 51, 101, 151}


def test_a_crash_while_sealing_changes_nothing(tmp_path: Path, hot: Path) -> None:
    content = hot.read_bytes()
    segments.recover(tmp_path, "n1")
    (once,) = sealed(tmp_path)
    hot.write_bytes(content)  # as if it had died between rename and unlink
    (once.parent / f".tmp-{once.name}").write_bytes(b"half")  # and once before rename
    segments.recover(tmp_path, "n1")
    assert sealed(tmp_path) == [once]
    assert [r["seq"] for r in rows(tmp_path)] == list(range(151))
    assert {path.name for path in tmp_path.glob("**/.*")} == {".lock-n1"}


def test_a_living_nodes_segment_is_left_alone(tmp_path: Path) -> None:
    first = EventLog(tmp_path, "n1")
    events = first.start(NOW_MS)
    events.cut()
    first.flush(events)
    until(lambda: len(list(tmp_path.glob(".hot-*"))) == 1, "show the hot segment")
    second = EventLog(tmp_path, "n2")
    assert second.recovered == 0
    first.close(events, NOW_MS)
    second.close(second.start(NOW_MS), NOW_MS)
    assert len(rows(tmp_path)) == 4


def test_a_directory_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EventLogError, match="events-dir .*file/events"):
        EventLog(tmp_path / "file" / "events", "n1")


def test_the_oldest_segments_go_first(tmp_path: Path) -> None:
    for _ in range(5):
        log = EventLog(tmp_path, "n1", keep_bytes=15_000)
        events = log.start(NOW_MS)
        add_many(events, log, 50)
        log.close(events, NOW_MS)
    kept = rows(tmp_path)
    assert sum(path.stat().st_size for path in sealed(tmp_path)) <= 15_000
    assert 0 < len(kept) < 5 * 52
    assert kept[-1]["seq"] == 5 * 52 - 1


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from tuque.server.events.events import EventLog, EventLogError\n"
        "try: EventLog(sys.argv[1], 'n1')\n"
        "except EventLogError as e: print(e)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert run.stdout == "events=yes needs pyarrow: pip install 'tuque[report]', or set events=no\n"


def test_every_event_comes_out_under_load(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "n1", roll_rows=20_000)
    events = log.start(NOW_MS)
    job = a_job()
    for i in range(60_000):
        events.requeued(NOW_MS + i // 100, job, ev.REQUEUE_TIMEOUT)
        if i % 16 == 0:
            log.flush(events)
    log.close(events, NOW_MS + 1000)
    assert log.info(events)["events_dropped"] == 0
    table = pq.ParquetFile(sealed(tmp_path)[0]).read()
    assert table["reason"].null_count == 1, "all but the start have a reason"
    total = sum(pq.ParquetFile(path).metadata.num_rows for path in sealed(tmp_path))
    assert total == log.written == 60_002
    assert len(sealed(tmp_path)) >= 2
