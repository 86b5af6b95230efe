"""A Spark session in this process, small and quick to start."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tuque.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tables have some rows here: to compile classes for each query, and to change its plan on the way,
# would cost more than it brings.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}


# Each process of Spark would import PySpark from a zip, and compile it anew: half a second of CPU.
PYTHON = """#!/bin/sh
PYTHONPATH={path} exec {python} "$@"
"""


def local_session(place: Path) -> Iterator[SparkSession]:
    """A session of two tasks at once, stopped at the end; its log is in `place`."""
    python = place / "python"
    path = os.pathsep.join(filter(None, sys.path))
    python.write_text(PYTHON.format(path=shlex.quote(path), python=shlex.quote(sys.executable)))
    python.chmod(0o700)
    with pytest.MonkeyPatch.context() as changed:  # for the JVM that starts now, no other
        changed.setenv("PYSPARK_PYTHON", str(python))
        changed.setenv("PYSPARK_DRIVER_PYTHON", str(python))
        running = session("tests", master="local[2]", conf=SETTINGS, log=place / "spark.log")
    yield running
    running.stop()
