"""A local Spark session that works without any set-up, and stays quiet.

Chooses the Java, runs workers under this Python, keeps every port on the loopback and
sends the JVM's own output to a log file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tuque.spark.errors import SparkJobError, SparkSetupError
from tuque.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def session(
    app: str = "tuque",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: str | Path | None = None,
) -> SparkSession:
    """The session of this process, started if there is none.

    `master` defaults to all cores of this machine, `conf` wins over our settings, `log`
    receives what the JVM prints (default: a file in the temporary directory). Stop it
    with `.stop()`. Raises SparkSetupError without PySpark or Java, or if Spark fails.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as e:
        if (e.name or "").split(".")[0] not in ("pyspark", "py4j"):
            raise
        raise SparkSetupError(
            "PySpark is missing: in a clone `make setup` brings it, "
            "elsewhere pip install 'tuque[spark]'"
        ) from e
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    java = find_java()
    scratch = Path(tempfile.gettempdir())
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().appName(app).master(master or "local[*]")
    settings = {**defaults(scratch), **(conf or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    log_path = Path(log) if log is not None else scratch / f"tuque-spark-{os.getpid()}.log"
    try:
        with _stderr_to(log_path):
            spark = builder.getOrCreate()
    except Exception as e:  # py4j and PySpark raise many kinds; the log has the reason
        raise SparkSetupError(
            f"Spark did not start with Java {java.version} ({java.origin}: {java.home}): "
            f"{e}\n{_tail(log_path)}"
        ) from e
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def told(log: Path) -> Iterator[None]:
    """Failures of Spark inside become one SparkJobError of one line that names the log."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as e:
        raise SparkJobError(f"Spark failed: {reason(str(e))} (more in {log})") from e


def reason(text: str) -> str:
    """The line of Spark's error, often a page long, that tells most: a file, or a cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    for mark in ("file:", "Caused by: "):
        for line in lines:
            if mark in line:
                return line.removeprefix("Caused by: ").strip(": ")[:300]
    return lines[0][:300]


def defaults(scratch: Path) -> dict[str, str]:
    """The settings of a session on one machine."""
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.execution.arrow.pyspark.enabled": "false",  # results are small
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        "spark.sql.sources.partitionOverwriteMode": "static",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_MANAGER,
        "spark.sql.warehouse.dir": str(scratch / "tuque-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes started inside have their error output in that file, for all their life."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    except OSError as e:
        os.close(kept)
        raise SparkSetupError(f"cannot write Spark's log {path}: {e.strerror}") from e
    try:
        os.dup2(fd, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(fd)


def _tail(path: Path, lines: int = 15) -> str:
    """The end of the log, for an error message."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
