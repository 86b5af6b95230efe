"""Files into queues, from the command line and in parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from sink_lab import bodies

from lab import RealServer

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from tuque.spark.backfill import kind_of, told
from tuque.spark.cli.group import spark as commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def running(spark: SparkSession) -> None:
    """The session that the command takes."""


def run(broker: RealServer, *words: str) -> tuple[int, str]:
    url = f"tuque://127.0.0.1:{broker.port}"
    done = CliRunner().invoke(commands, ["backfill", *words, "--url", url])
    return done.exit_code, done.output


def test_rows_of_a_csv_file(broker: RealServer, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("id,name\n1,one\n2,two\n3,three\n")
    code, output = run(broker, str(file), "--queue", "q", "--where", "id < 3")
    assert code == 0, output
    assert "2 rows in" in output
    found = [json.loads(body) for body in bodies(broker)]
    assert sorted(row["name"] for row in found) == ["one", "two"]


def test_columns_are_made_with_sql_and_keys_keep_rows_single(
    broker: RealServer, tmp_path: Path
) -> None:
    rows = pa.table({"id": list(range(20))})
    (tmp_path / "rows").mkdir()
    pq.write_table(rows, tmp_path / "rows" / "part.parquet")
    for _ in range(2):
        code, output = run(
            broker,
            str(tmp_path / "rows"),
            "--column",
            "body=concat('job ', id)",
            "--column",
            "dedupe_key=id",
            "--column",
            "queue=if(id % 2 = 0, 'even', 'odd')",
            "--mode",
            "dedupe",
        )
        assert code == 0, output
    assert bodies(broker, "even")[b"job 4"] == 1
    assert sum(bodies(broker, "odd").values()) == 10


def test_a_dry_run_writes_nothing(broker: RealServer, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"body": "x"}\n{"body": "y"}\n')
    code, output = run(broker, str(file), "--queue", "q", "--dry-run")
    assert code == 0, output
    assert "2 rows would be written: struct<body:string>" in output
    assert not bodies(broker)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["no-such.csv", "--queue", "q"], "Path does not exist"),
        (["in.csv"], "no queue"),
        (["in.csv", "--queue", "q", "--column", "color=1"], "'color' is no column of a job"),
        (["in.csv", "--queue", "q", "--column", "color"], "is not NAME=VALUE"),
        (["in.csv", "--queue", "q", "--option", "color=1"], "unknown option 'color'"),
        (["in.csv", "--queue", "q", "--where", "color = 1"], "color"),
        (["in.csv", "--queue", "q", "--option", "replicate=9"], "NOREPL"),
    ],
)
def test_a_mistake_is_one_line(
    broker: RealServer, tmp_path: Path, words: list[str], text: str
) -> None:
    (tmp_path / "in.csv").write_text("id\n1\n")
    code, output = run(
        broker, str(tmp_path / words[0]), *words[1:], "--option", "retryTimeout=200ms"
    )
    assert code != 0
    assert text in output
    assert "Traceback" not in output
    assert sum("Error" in line for line in output.splitlines()) == 1, output


def test_the_bar() -> None:
    assert told(0, 1000, 9.6) == "Spark starts its tasks: 10 s, no rows yet"
    assert told(10, 0, 2.0) == "10 rows, 5/s"
    assert told(500, 1000, 2.0) == (
        "[############------------] 50% 500 of 1,000 rows, 250/s, 0:02 left"
    )
    assert told(3000, 1000, 2.0).startswith("[########################] 100%")


def test_what_a_file_is() -> None:
    names = {"a.csv": "csv", "a.json.gz": "json", "a.ndjson": "json", "dir/": "parquet"}
    assert {name: kind_of(name) for name in names} == names
