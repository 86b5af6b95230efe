"""Spark on the event stream: a session that needs no set-up, and the report.

    from tuque.spark import session
    spark = session("my analysis")
    spark.read.parquet("events").groupBy("queue", "event").count().show()

Needs the extra `spark` (PySpark, PyArrow, Plotly) and Java 17 or later: the system's,
or the one the extra `spark-jre` brings.

Must not know: the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuque.spark.errors import SparkSetupError
from tuque.spark.leases.nacks import nack
from tuque.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkSetupError", "nack", "register", "session"]


def register(spark: SparkSession) -> None:
    """Registers `format("tuque")` with a session that does not find it by itself."""
    from tuque.spark import datasource  # needs PySpark, which the commands do not

    datasource.register(spark)
