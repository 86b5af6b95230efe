"""Spark on the event stream: a session that needs no set-up, and the report.

    from tuque.spark import session
    spark = session("my analysis")
    spark.read.parquet("events").groupBy("queue", "event").count().show()

Needs the extra `spark` (PySpark, PyArrow, Plotly) and Java 17 or later: the system's,
or the one the extra `spark-jre` brings.
"""

from tuque.spark.errors import SparkSetupError
from tuque.spark.session import session

__all__ = ["SparkSetupError", "session"]
