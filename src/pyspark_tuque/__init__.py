"""Makes `format("tuque")` known: PySpark looks for sources in modules named `pyspark_...`."""

from tuque.spark.datasource import TuqueDataSource as DefaultSource

__all__ = ["DefaultSource"]
