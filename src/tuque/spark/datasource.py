"""`format("tuque")`: what Spark asks for, handed to the modules that do it.

Lives in the driver. Spark makes it by its name once `register(spark)` was called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from tuque.spark import sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "tuque"


class TuqueDataSource(DataSource):
    """Queues of a broker as a data source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> sink.BatchWriter:
        return sink.writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> sink.StreamWriter:
        return sink.stream_writer(dict(self.options), schema, overwrite)


def register(spark: SparkSession) -> None:
    """Makes `format("tuque")` known to a session."""
    spark.dataSource.register(TuqueDataSource)
