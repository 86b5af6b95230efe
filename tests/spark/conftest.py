"""One Spark session for all tests of this directory, and a small history to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_history import write_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from spark_here import local_session

    yield from local_session(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of events that tests/spark/spark_history.py tells."""
    pytest.importorskip("pyarrow")
    directory = tmp_path_factory.mktemp("events")
    write_history(directory)
    return directory
