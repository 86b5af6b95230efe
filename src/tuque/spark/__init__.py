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

    from tuque.spark.gauges import Gauges

__all__ = ["SparkSetupError", "nack", "register", "serve_metrics", "session"]


def register(spark: SparkSession) -> None:
    """Registers `format("tuque")` with a session that does not find it by itself.

    Also makes the session active in the calling thread, which `df.write` needs.
    """
    from tuque.spark import datasource  # needs PySpark, which the commands do not

    datasource.register(spark)


def serve_metrics(spark: SparkSession, port: int = 0, bind: str = "127.0.0.1") -> Gauges:
    """[O5] Serves the figures of this session's queries at http://bind:port/metrics, until `close`.

    Port 0 takes a free one, which `port` of the result says. Raises OSError if the port is taken.
    """
    from tuque.spark.gauges import Gauges  # needs PySpark

    return Gauges(spark, port, bind)
