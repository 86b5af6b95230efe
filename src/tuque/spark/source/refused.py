"""A stream with wrong options, which reports them.

Spark's source process replaces an error of `streamReader` with one about a variable of its own
(`UnboundLocalError`); errors of a reader's methods are passed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error at Spark's first call."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def getDefaultReadLimit(self) -> NoReturn:
        """Raises, as all do."""
        raise self.error

    def initialOffset(self) -> NoReturn:
        """Raises."""
        raise self.error

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        """Raises."""
        raise self.error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:
        """Raises."""
        raise self.error

    def reportLatestOffset(self) -> NoReturn:
        """Raises."""
        raise self.error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises."""
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raises."""
        raise self.error

    def commit(self, end: dict[str, Any]) -> None:
        """Raises."""
        raise self.error
