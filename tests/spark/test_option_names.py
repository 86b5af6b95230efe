"""Options that are Spark's own, mistyped ones, names of queues with commas, bodies as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType
from source_lab import stream

from lab import RealServer
from tuque import Client
from tuque.spark.cli.compact import compact
from tuque.spark.datasource import TuqueDataSource, register
from tuque.spark.errors import SinkError, SourceError
from tuque.spark.options import sink, source
from tuque.spark.options.names import SPARK_NAMES, split_names
from tuque.spark.source import columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", SPARK_NAMES)
def test_options_of_spark_are_passed_over(name: str) -> None:
    """As .queryName() and create_sink() put them beside ours, in lower case."""
    given = {"queue": "q", name.lower(): "x", "__internal__": "x"}
    assert sink.parse(given).queue == "q"
    assert source.parse({**given, "group": "g"}, True, 2).queues == ("q",)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("quene", "queue"), ("checkpointlocaton", "checkpointLocation"), ("dedupttl", "dedupeTtl")],
)
def test_a_misspelt_option_is_named(wrong: str, meant: str) -> None:
    with pytest.raises(SinkError, match=f"unknown option '{wrong}'.*did you mean {meant}"):
        sink.parse({"queue": "q", wrong: "x"})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ("a", "b")),
        (" a , b,", ("a", "b")),
        (r"a\,b,c", ("a,b", "c")),
        (r"a\\,b", ("a\\", "b")),
        (r"a\b", (r"a\b",)),
    ],
)
def test_a_comma_in_the_name_of_a_queue(text: str, names: tuple[str, ...]) -> None:
    assert split_names(text) == names


def test_a_queue_is_named_once() -> None:
    with pytest.raises(SourceError, match="twice"):
        source.parse({"queue": "q,q", "group": "g"}, True, 2)


def test_a_table_that_could_not_be_read_is_not_made() -> None:
    """Spark 4.3 hands the options of CREATE TABLE to `schema`, and none when it is read."""
    given = {"queue": "q", "option.queue": "q", "provider": "tuque", "owner": "me"}
    with pytest.raises(SourceError, match="CREATE TEMPORARY VIEW"):
        TuqueDataSource(given).schema()
    with pytest.raises(SourceError, match="CREATE TEMPORARY VIEW"):
        source.parse({}, False, 2)


def test_bodies_as_text_have_a_column_of_text() -> None:
    assert "body string" in TuqueDataSource({"decode": "utf-8"}).schema()
    assert "body binary" in TuqueDataSource({}).schema()
    columns.check_schema(StructType([StructField("body", StringType())]), True)
    with pytest.raises(SourceError, match="decode"):
        source.parse({"queue": "q", "decode": "latin1"}, False, 2)


def test_compact_takes_its_directory_in_both_ways(tmp_path: Path) -> None:
    for words in ([str(tmp_path)], ["--events", str(tmp_path)]):
        assert CliRunner().invoke(compact, words).exit_code == 0
    for words in ([], [str(tmp_path), "--events", str(tmp_path)]):
        found = CliRunner().invoke(compact, words)
        assert (found.exit_code, "once" in found.output) == (2, True)


@pytest.mark.slow
@pytest.mark.spark
def test_a_named_query_and_views(
    spark: SparkSession, broker: RealServer, client: Client, tmp_path: Path
) -> None:
    register(spark)
    url = f"tuque://127.0.0.1:{broker.port}"
    for body in (b"caf\xc3\xa9", b"\xff!"):
        client.addjob("q", body)
    rows = stream(spark, url, decode="utf-8").select("body")
    query = (
        rows.writeStream.format("tuque")
        .queryName("copy")
        .option("url", url)
        .option("queue", "copies,of q")
        .option("checkpointLocation", str(tmp_path / "copy"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW copies USING tuque "
        f"OPTIONS (url '{url}', queue 'copies\\\\,of q', decode 'utf-8')"
    )
    found = {row.body for row in spark.sql("SELECT body FROM copies").collect()}
    assert found == {"café", "\ufffd!"}
    with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE kept USING tuque OPTIONS (url '{url}', queue 'q')")


def test_where_progress_goes_is_checked() -> None:
    body = StructType([StructField("body", StringType())])
    with pytest.raises(SinkError, match="progressTo is host:port, and not 'x'"):
        TuqueDataSource({"queue": "q", "progressTo": "x"}).writer(body, False)


def test_a_table_is_written_without_its_options() -> None:
    """Spark keeps those of a table, and gives none to its writer: the error says so."""
    body = StructType([StructField("body", StringType())])
    with pytest.raises(SinkError, match="no queue: .* no options at all, as it does when a table"):
        TuqueDataSource({}).writer(body, False)
    with pytest.raises(SinkError, match="a column 'queue'$"):
        TuqueDataSource({"port": "1"}).writer(body, False)


def test_a_group_has_255_bytes() -> None:
    """Y1.3 Group and owner are any 1 to 255 bytes;"""
    given = {"queue": "q", "group": "g" * 253 + "ü"}
    assert source.parse(given, True, 2).group == given["group"]
    with pytest.raises(SourceError, match="option group has more than 255 bytes"):
        source.parse({**given, "group": "g" * 254 + "ü"}, True, 2)


def test_a_queue_that_is_named_as_all_of_them() -> None:
    names = r"\*", "*", r"a\*b", r"\\*"
    found = [source.parse({"queue": name}, False, 2) for name in names]
    assert [one.queues for one in found] == [("*",), ("*",), ("a*b",), ("\\*",)]
    assert [one.is_of_all for one in found] == [False, True, False, False]
