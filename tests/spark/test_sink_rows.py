"""Options, columns and the bytes of commands, without Spark running and without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hiredis
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from tuque.spark.errors import SinkError
from tuque.spark.options.sink import parse
from tuque.spark.sink.columns import Run, Tails, count_of, latest, lease_of
from tuque.spark.sink.writer import stream_writer, writer

TYPES = {"string": StringType(), "int": IntegerType(), "double": DoubleType()}


def schema(text: str) -> StructType:
    pairs = [column.split() for column in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def words(chunk: list[Run]) -> list[list[bytes]]:
    """The commands of a chunk, read as a broker reads them, without their heads."""
    reader = hiredis.Reader()
    for count, tails in chunk:
        for tail in tails:
            reader.feed(b"*%d\r\n" % count + tail)
    found = []
    while (answer := reader.gets()) is not False:
        found.append(answer)
    return found


def built(options: dict[str, str], most: int = 1000, **columns: Any) -> list[list[bytes]]:
    batch = pa.RecordBatch.from_pydict(columns)
    return [row for chunk in Tails(parse(options)).chunks(batch, most) for row in words(chunk)]


def test_a_row_of_a_body() -> None:
    assert built({"queue": "q"}, body=["a\r\n", "é", ""]) == [
        [b"q", b"a\r\n", b"5000"],
        [b"q", "é".encode(), b"5000"],
        [b"q", b"", b"5000"],
    ]


def test_options_are_defaults_of_the_columns() -> None:
    options = {"queue": "q", "delay": "2s", "ttl": "1h", "retry": "0", "replicate": "1"}
    options |= {"timeout": "100ms", "async": "true"}
    rows = built(options, body=[b"x", b"y"], queue=["r", None], ttl_ms=[1, None])
    fixed = [b"100", b"REPLICATE", b"1", b"ASYNC", b"DELAY", b"2"]
    assert rows == [
        [b"r", b"x", *fixed, b"TTL", b"1", b"RETRY", b"0"],
        [b"q", b"y", *fixed, b"TTL", b"3600", b"RETRY", b"0"],
    ]


def test_rows_of_several_lengths() -> None:
    rows = built({"queue": "q"}, 2, body=[b"1", b"2", b"3"], delay_ms=[None, 1500, None])
    assert rows == [
        [b"q", b"1", b"5000"],
        [b"q", b"2", b"5000", b"DELAY", b"2"],
        [b"q", b"3", b"5000"],
    ]


def test_dedupe_and_staged() -> None:
    rows = built({"mode": "dedupe", "queue": "q"}, body=[b"x"], dedupe_key=["k"])
    assert rows == [[b"q", b"x", b"5000", b"DEDUPE", b"k", b"DEDUPETTL", b"86400000"]]
    assert built({"mode": "staged", "queue": "q"}, body=[b"x"]) == [[b"q", b"x"]]


def test_chunks_are_bounded_by_rows_and_bytes() -> None:
    tails = Tails(parse({"queue": "q"}))
    batch = pa.RecordBatch.from_pydict({"body": [b"x"] * 2500})
    assert [count_of(c) for c in tails.chunks(batch, 1000)] == [1000, 1000, 500]
    batch = pa.RecordBatch.from_pydict({"body": [b"x" * 400_000] * 5})
    counts = [count_of(c) for c in tails.chunks(batch, 1000)]
    assert sum(counts) == 5
    assert max(counts) <= 2


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"body": [b"x", None]}, "row 2 of this task: column 'body' is null"),
        ({"body": [b"x"], "priority": [10]}, "column 'priority' must be 0 to 9 or null, not 10"),
        ({"body": [b"x"], "priority": [-1]}, "column 'priority' must be 0 to 9 or null, not -1"),
        ({"body": [b"x"], "delay_ms": [-1]}, "column 'delay_ms' must be at least 0, not -1"),
        ({"body": [b"x"], "ttl_ms": [0]}, "column 'ttl_ms' must be at least 1, not 0"),
        ({"body": [b"x"], "queue": [""]}, "column 'queue' is empty"),
    ],
)
def test_a_bad_row_is_named(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(SinkError, match=text):
        built({"queue": "q"}, **columns)


def test_a_bad_row_says_what_is_in_already() -> None:
    """Only a staged write is all or none."""
    for mode, is_in in (("append", True), ("staged", False)):
        with pytest.raises(SinkError) as refused:
            built({"queue": "q", "mode": mode}, body=[b"x", None])
        assert ("mode=staged writes all or none" in str(refused.value)) is is_in


@pytest.mark.parametrize("mode", ["append", "staged"])
def test_a_row_has_its_priority(mode: str) -> None:
    options = {"queue": "q", "mode": mode}
    rows = built(
        options, 2, body=[b"x", b"y", b"z"], priority=[0, None, 9], ttl_ms=[None, None, 7000]
    )
    ends = [row[2 if mode == "staged" else 3 :] for row in rows]
    assert ends == [[b"PRI", b"0"], [], [b"TTL", b"7", b"PRI", b"9"]]


@pytest.mark.parametrize(
    ("options", "columns", "text"),
    [
        ({"queue": "q"}, "id string", "column 'id' is none of a job"),
        ({"queue": "q"}, "queue string", "column 'body' is missing"),
        ({"queue": "q"}, "body int", "column 'body' must be string or binary, not integer"),
        ({"queue": "q"}, "body string, ttl_ms double", "'ttl_ms' must be a whole number"),
        ({}, "body string", "no queue"),
        ({"queue": "q", "mode": "dedupe"}, "body string", "needs a column 'dedupe_key'"),
        ({"queue": "q"}, "body string, dedupe_key string", "goes with mode=dedupe"),
        ({"queue": "q", "mode": "exact"}, "body string", "option mode must be one of"),
        ({"queue": "q", "ttl": "soon"}, "body string", "option ttl must be a time"),
        ({"queue": "q", "colour": "red"}, "body string", "unknown option 'colour'"),
        ({"queue": "q", "path": "x"}, "body string", "has no path"),
        ({"queue": "q", "port": "70000"}, "body string", "option host/port"),
        ({"queue": "q", "pipeline": "0"}, "body string", "whole number from 1 on"),
        ({"queue": "q", "ackGroup": "g"}, "body string", "ackGroup goes with mode=staged"),
        ({"queue": "q", "mode": "staged", "ackGroup": "g"}, "body string", "'lease' of the source"),
        ({"queue": "q"}, "body string, lease string", "goes with option ackGroup"),
        ({"queue": "q", "mode": "staged", "txnAppId": "a"}, "body string", "needs txnVersion"),
        ({"queue": "q", "mode": "staged", "txnVersion": "1"}, "body string", "needs txnAppId"),
        (
            {"queue": "q", "mode": "staged", "url": "tuque://a,b"},
            "body string",
            "mode staged needs one node",
        ),
        ({"queue": "q", "passwordEnv": "NO_SUCH"}, "body string", "NO_SUCH, which is not set"),
        ({"queue": "q", "passwordFile": "/no/such"}, "body string", "option passwordFile"),
    ],
)
def test_a_mistake_is_found_in_the_driver(options: dict[str, str], columns: str, text: str) -> None:
    with pytest.raises(SinkError, match=text):
        writer(options, schema(columns), False)


def test_overwriting_is_refused() -> None:
    for make in (writer, stream_writer):
        with pytest.raises(SinkError, match=r"overwritten.*outputMode\('append'\), the only"):
            make({"queue": "q"}, schema("body string"), True)


def test_a_stream_has_its_own_versions() -> None:
    options = {"queue": "q", "mode": "staged", "txnAppId": "a", "txnVersion": "1"}
    with pytest.raises(SinkError, match="for batch writes"):
        stream_writer(options, schema("body string"), False)


def test_a_password_comes_from_a_file_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hunter2\n")
    found = parse({"queue": "q", "passwordFile": str(file)})
    assert found.broker.password == "hunter2"
    assert "hunter2" not in repr(found)


def test_the_lease_of_rows() -> None:
    batch = pa.RecordBatch.from_pydict({"lease": ["a/g/5/1", None, "a/g/5/2"]})
    assert lease_of(batch, "a/g") == (b"a/g", 5, 2)
    with pytest.raises(SinkError, match="option ackGroup is 'h'"):
        lease_of(batch, "h")
    with pytest.raises(SinkError, match="not group/epoch/seq"):
        lease_of(pa.RecordBatch.from_pydict({"lease": ["g"]}), "g")
    with pytest.raises(SinkError, match="several leases"):
        latest((b"g", 5, 1), (b"g", 6, 1))
