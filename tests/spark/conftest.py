"""One Spark session and one node for all tests of this directory, and a small history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sink_lab import empty, journaled
from spark_history import write_history

from lab import RealServer, is_running
from tuque import Client

if TYPE_CHECKING:
    from hist_built import Built
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from spark_here import local_session

    yield from local_session(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A node for all tests of this directory, with a journal that is synced before an answer."""
    running = journaled(tmp_path_factory.mktemp("node"))
    yield running
    running.end()


@pytest.fixture
def broker(node: RealServer) -> Iterator[RealServer]:
    """That node, empty. A test may kill it and leave it dead."""
    if not is_running(node):
        node.start()
    empty(node)
    yield node
    node.hang_up()


@pytest.fixture
def client(broker: RealServer) -> Iterator[Client]:
    with Client(f"tuque://127.0.0.1:{broker.port}", timeout=60) as made:
        yield made


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of events that tests/spark/spark_history.py tells."""
    pytest.importorskip("pyarrow")
    directory = tmp_path_factory.mktemp("events")
    write_history(directory)
    return directory


@pytest.fixture(scope="session")
def of_spark(spark: SparkSession, history: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What Spark makes of that history."""
    from hist_built import build_all

    from tuque.spark.engines import SparkEngine

    place = tmp_path_factory.mktemp("of_spark")
    return build_all(SparkEngine(spark, place / "kept"), history, place)
