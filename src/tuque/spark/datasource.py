"""`format("tuque")`: passes Spark's calls to the modules that carry them out.

Runs in the driver. Spark creates it by its name after `register(spark)`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from tuque.spark.errors import SourceError
from tuque.spark.options import source as source_options
from tuque.spark.session import TASKS, activate
from tuque.spark.sink import writer as sink
from tuque.spark.source import columns
from tuque.spark.source import reader as source
from tuque.spark.source.refused import RefusedReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "tuque"
OF_TABLES = "option."  # Spark's prefix for options in a CREATE TABLE
NO_TABLES = (
    "CREATE TABLE ... USING tuque would make a table that cannot be read: Spark keeps its options "
    "and gives none to the source. CREATE TEMPORARY VIEW ... USING tuque OPTIONS (...) works"
)
PARALLELISM = 2  # parts of a batch if neither numPartitions nor a session decides


class TuqueDataSource(DataSource):
    """Queues of a broker as a data source."""

    parallelism = 0  # of the session that it was registered with

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        if any(name.startswith(OF_TABLES) for name in self.options):
            raise SourceError(NO_TABLES)
        text = self.options.get("decode", "none").strip().lower() != "none"
        return source_options.TEXT_COLUMNS if text else source_options.COLUMNS

    def reader(self, schema: StructType) -> source.PeekReader:
        found = self._source(streams=False)
        columns.check_schema(schema, found.is_text)
        return source.PeekReader(found, schema)

    def streamReader(self, schema: StructType) -> source.StreamReader | RefusedReader:
        try:
            found = self._source(streams=True)
            columns.check_schema(schema, found.is_text)
        except SourceError as error:
            return RefusedReader(error)  # Spark would hide an exception raised here
        if found.mode == "ids":
            return source.IdsReader(found, schema)
        return source.LeaseReader(found, schema)

    def _source(self, streams: bool) -> source_options.SourceOptions:
        parallelism = self.parallelism or int(os.environ.get(TASKS, PARALLELISM))
        return source_options.parse(dict(self.options), streams, parallelism)

    def writer(self, schema: StructType, overwrite: bool) -> sink.BatchWriter:
        return sink.writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.StreamWriter:
        return sink.stream_writer(dict(self.options), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Registers `format("tuque")` with a session, whose parallelism becomes numPartitions, and
    makes it active in the calling thread.
    """
    try:
        parallelism = spark.sparkContext.defaultParallelism
    except AttributeError:  # Spark Connect: its clients have none
        parallelism = 0
    else:
        activate(spark)
    # A class outside any module is sent to Spark's processes as it is, with its number.
    own = type("SessionDataSource", (TuqueDataSource,), {"parallelism": parallelism})
    spark.dataSource.register(own)
