"""`format("tuque")`: what Spark asks for, handed to the modules that do it.

Lives in the driver. Spark makes it by its name once `register(spark)` was called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from tuque.spark import sink, source, source_columns, source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "tuque"
PARALLELISM = 2  # parts of a batch when neither numPartitions nor a session says


class TuqueDataSource(DataSource):
    """Queues of a broker as a data source."""

    parallelism = PARALLELISM

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return source_options.COLUMNS

    def reader(self, schema: StructType) -> source.PeekReader:
        source_columns.check_schema(schema)
        return source.PeekReader(self._source(streams=False), schema)

    def streamReader(self, schema: StructType) -> source.LeaseReader | source.IdsReader:
        source_columns.check_schema(schema)
        found = self._source(streams=True)
        if found.mode == "ids":
            return source.IdsReader(found, schema)
        return source.LeaseReader(found, schema)

    def _source(self, streams: bool) -> source_options.SourceOptions:
        return source_options.parse(dict(self.options), streams, self.parallelism)

    def writer(self, schema: StructType, overwrite: bool) -> sink.BatchWriter:
        return sink.writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.StreamWriter:
        return sink.stream_writer(dict(self.options), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Makes `format("tuque")` known to a session."""
    spark.dataSource.register(TuqueDataSource)
