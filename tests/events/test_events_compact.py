"""`tuque compact`: big files for small ones, each event once at every instant (SPEC E5)."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

import tuque
from both_ways import NO_BYTECODE

pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")
from tuque.server.events.segments import SCHEMA, next_seq, prune_days  # noqa: E402 - needs pyarrow
from tuque.spark.history.compact import CompactError, compact  # noqa: E402 - needs pyarrow
from tuque.spark.history.followers import announce  # noqa: E402 - needs pyarrow
from tuque.spark.history.pipeline import whole  # noqa: E402 - needs pyarrow

DAY = "2026-01-01"
SRC = str(Path(tuque.__file__).parents[1])  # the programs run what the tests run


def segment(directory: Path, node: str, first: int, last: int, day: str = DAY) -> Path:
    """A sealed segment with those numbers."""
    folder = directory / f"date={day}"
    folder.mkdir(exist_ok=True)
    count = last - first + 1
    columns = {name: pa.nulls(count, SCHEMA.field(name).type) for name in SCHEMA.names}
    columns["seq"] = pa.array(range(first, last + 1), pa.int64())
    columns["node"] = pa.array([node] * count)
    path = folder / f"events-{node}-{first:020d}-{last:020d}.parquet"
    pq.write_table(pa.table(columns, schema=SCHEMA), str(path))
    return path


def numbers(directory: Path) -> list[tuple[str, int]]:
    """What a reader finds."""
    paths = whole(sorted(directory.glob("date=*/*.parquet")))
    rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted((row["node"], row["seq"]) for row in rows)


def filled(directory: Path) -> list[tuple[str, int]]:
    """Ten segments of one node with a gap, two of another, one of another day."""
    for first in (0, 10, 20, 30, 50, 60, 70):
        segment(directory, "n-1", first, first + 9)
    segment(directory, "n2", 0, 99)
    segment(directory, "n2", 100, 199)
    segment(directory, "n2", 200, 209, "2026-01-02")
    return numbers(directory)


def test_each_event_once_before_during_and_after(tmp_path: Path) -> None:
    """E5.1 `tuque compact` merges a node's segments of a day, if there is no gap between them, into
    `compact-NODE-FIRST-LAST.parquet`, by one rename.
    """
    before = filled(tmp_path)
    done = compact(tmp_path, "2026-01-02", 0.0, grace_s=0)
    assert (done.days, done.merged, done.made, done.removed) == (1, 9, 3, 0)
    assert numbers(tmp_path) == before, "both are there"
    again = compact(tmp_path, "2026-01-02", 1e12, grace_s=0)
    assert (again.merged, again.made, again.removed) == (0, 0, 9)
    assert numbers(tmp_path) == before
    assert len(list(tmp_path.glob(f"date={DAY}/*"))) == 3
    assert next_seq(tmp_path, "n-1") == 80, "the server counts on"
    table = pq.read_table(next(tmp_path.glob(f"date={DAY}/compact-n2-*")))
    assert table.schema.equals(SCHEMA)


@pytest.mark.parametrize("at", [0, 10])
def test_segments_with_other_columns_are_named(tmp_path: Path, at: int) -> None:
    """Nothing is made of them: a column that one file lacks would get lost, or be made up."""
    before = filled(tmp_path)
    segment(tmp_path, "n", 10 - at, 19 - at)
    cut = segment(tmp_path, "n", at, at + 9)
    pq.write_table(pq.ParquetFile(cut).read().drop_columns(["size"]), str(cut))
    second = tmp_path / f"date={DAY}" / f"events-n-{10:020d}-{19:020d}.parquet"
    with pytest.raises(CompactError, match=f"{second}: its columns are not those of "):
        compact(tmp_path, "2026-01-02", 0.0)
    assert [place for place in numbers(tmp_path) if place[0] != "n"] == before


@pytest.mark.parametrize("size", [0, 500])
def test_a_damaged_segment_is_named(tmp_path: Path, size: int) -> None:
    before = filled(tmp_path)
    damaged = segment(tmp_path, "n3", 0, 9)
    segment(tmp_path, "n3", 10, 19)
    os.truncate(damaged, size)
    with pytest.raises(CompactError, match=f"{damaged}: .*move it out of the directory"):
        compact(tmp_path, "2026-01-02", 0.0)
    damaged.unlink()
    compact(tmp_path, "2026-01-02", 0.0)
    assert numbers(tmp_path) == [*before, *(("n3", seq) for seq in range(10, 20))]


def test_a_merged_segment_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    before = filled(tmp_path)
    command = f"ulimit -f 4; exec {sys.executable} -m tuque compact --events {tmp_path} 2>&1"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": SRC} | NO_BYTECODE,
    )  # fmt: skip
    made = f"{tmp_path}/date={DAY}/compact-n-1-{0:020d}-{39:020d}.parquet"
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"Error: {made} could not be written: File too large"
    assert numbers(tmp_path) == before and not list(tmp_path.glob("date=*/.tmp-*"))


def test_files_of_a_given_size(tmp_path: Path) -> None:
    for first in range(0, 1000, 10):
        segment(tmp_path, "n", first, first + 9)
    assert compact(tmp_path, "2026-02-01", 0.0, rows=250).made == 4
    assert numbers(tmp_path) == [("n", i) for i in range(1000)]


@pytest.mark.parametrize("call", ["rename", "fsync", "unlink"])
def test_killed_it_goes_on(tmp_path: Path, call: str) -> None:
    """E5.2 A run that is killed leaves every event there once (E5.1); the next run continues."""
    before = filled(tmp_path)
    code = (
        "import os, sys; from pathlib import Path\n"
        "from tuque.spark.history.compact import compact\n"
        f"real, left = os.{call}, [2]\n"
        "def cut(*a, **k):\n"
        "    left[0] -= 1\n"
        "    if left[0] == 0: os.kill(os.getpid(), 9)\n"
        "    return real(*a, **k)\n"
        f"os.{call} = cut\n"
        "compact(Path(sys.argv[1]), '2026-01-02', 1e12, grace_s=0)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=os.environ | {"PYTHONPATH": SRC}
    )
    assert run.returncode == -9
    assert numbers(tmp_path) == before
    compact(tmp_path, "2026-01-02", 1e12, grace_s=0)
    assert numbers(tmp_path) == before
    assert not list(tmp_path.glob("date=*/.tmp-*"))
    assert len(list(tmp_path.glob(f"date={DAY}/*"))) == 3


def test_streams_that_cannot_be_seen_are_waited_for(tmp_path: Path) -> None:
    """E5.3 A stream without its checkpoint is forgotten; one that cannot be seen from where
    compaction runs counts as having read nothing.
    """
    before = filled(tmp_path)
    compact(tmp_path, "2026-01-02", 0.0)
    here, gone = tmp_path / "checkpoint", tmp_path / "gone"
    here.mkdir()
    announce(tmp_path, here)
    announce(tmp_path, gone)
    announce(tmp_path, here)
    assert len(list(tmp_path.glob(".stream-*.json"))) == 2
    done = compact(tmp_path, "2026-01-02", 1e12, grace_s=0)
    assert (done.removed, list(done.waiting.values())) == (0, [9])
    assert numbers(tmp_path) == before
    (note,) = tmp_path.glob(".stream-*.json")
    here.rmdir()
    note.write_text('{"host": "another", "checkpoint": "/nowhere"}')
    done = compact(tmp_path, "2026-01-02", 1e12, grace_s=0)
    assert (done.removed, done.waiting) == (0, {"another:/nowhere": 9})
    note.write_text("{")
    assert compact(tmp_path, "2026-01-02", 1e12, grace_s=0).removed == 0
    note.unlink()
    assert compact(tmp_path, "2026-01-02", 1e12, grace_s=0).removed == 9


def test_one_at_a_time(tmp_path: Path) -> None:
    filled(tmp_path)

    def second(_: str) -> None:
        compact(tmp_path, "2026-02-01", 0.0)

    with pytest.raises(CompactError, match="another compaction"):
        compact(tmp_path, "2026-02-01", 0.0, on_day=second)
    with pytest.raises(CompactError, match="no such directory"):
        compact(tmp_path / "no", "2026-02-01", 0.0)


def test_the_command_needs_no_spark(tmp_path: Path) -> None:
    before = filled(tmp_path)
    code = (
        "import sys; sys.modules['pyspark'] = None; from tuque.main import main\n"
        "sys.argv[0] = 'tuque'; main()"
    )
    words = ["compact", str(tmp_path), "--grace", "0"]
    run = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=os.environ | {"PYTHONPATH": SRC},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "2 days: 9 segments merged into 3" in run.stdout
    assert numbers(tmp_path) == before


def test_old_days_go(tmp_path: Path) -> None:
    """E4.2 Sealing removes the oldest segments beyond `events-keep-bytes`, never the newest, and
    those of days that ended more than `events-keep-days` ago.
    """
    filled(tmp_path)
    noon_s = (date(2026, 1, 3) - date(1970, 1, 1)).days * 86_400 + 43_200
    assert prune_days(tmp_path, 2, noon_s) == 0
    assert prune_days(tmp_path, 1, noon_s) == 9
    assert [path.name for path in tmp_path.glob("date=*")] == ["date=2026-01-02"]
