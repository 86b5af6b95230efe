"""A Spark session that needs no set-up, and stays quiet.

Chooses the Java, runs workers under this Python, keeps every port of a local session on the
loopback and sends the JVM's output to a log file. In a program started by spark-submit, its
settings win.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tuque.spark.errors import SparkJobError, SparkSetupError
from tuque.spark.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TASKS = "TUQUE_SPARK_TASKS"  # concurrent tasks: the source's processes cannot ask Spark
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for its program


def session(
    app: str = "tuque",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: str | Path | None = None,
) -> SparkSession:
    """The session of this process, started if there is none; active in the calling thread.

    `master` defaults to spark-submit's, then to the variable MASTER, as in Spark's own programs,
    then to all cores of this machine; `conf` overrides our settings, `log` receives the JVM's
    output (default: a file in the temporary directory). Stop it with `.stop()`. Raises
    SparkSetupError without PySpark or Java, or if Spark fails.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as e:
        if (e.name or "").split(".")[0] not in ("pyspark", "py4j"):
            raise
        raise SparkSetupError(
            "PySpark is missing: in a clone `make setup-spark` brings it, "
            "elsewhere pip install 'tuque[spark]'"
        ) from e
    running = SparkSession.getActiveSession() or _made_elsewhere()
    if running is not None:
        return running
    java = find_java()
    scratch = Path(tempfile.gettempdir())
    if master is None and SUBMITTED not in os.environ:
        master = os.environ.get("MASTER") or "local[*]"
    os.environ |= environment(java, master)
    builder = SparkSession.Builder().appName(app)
    settings = {**defaults(scratch, master), **(conf or {})}
    if master is not None:
        builder = builder.master(master)
    elif SUBMITTED in os.environ:
        settings = {k: v for k, v in settings.items() if k in (conf or {}) or not _is_given(k)}
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


def _made_elsewhere() -> SparkSession | None:
    """The session that another thread made. Also makes it active in this thread."""
    from pyspark.sql import SparkSession

    found = SparkSession._instantiatedSession
    if found is None or found._sc._jsc is None:  # None: it was stopped
        return None
    activate(found)
    return found


def activate(spark: SparkSession) -> None:
    """Makes the session active in this thread: `df.write` looks up a Python source there only.

    The JVM keeps it for each connection of Python: each thread has its own, and another one after
    an interrupt.
    """
    spark.createDataFrame([], "id INT")  # sets it on the way; nothing runs


@contextmanager
def told(log: Path) -> Iterator[None]:
    """Turn errors of Spark into one SparkJobError, whose line names the log."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as e:
        raise SparkJobError(f"Spark failed: {reason(str(e))} (more in {log})") from e


def reason(text: str) -> str:
    """The most useful line of Spark's error, often a page long: a file, or a cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    for mark in ("file:", "Caused by: "):
        for line in lines:
            if mark in line:
                return line.removeprefix("Caused by: ").strip(": ")[:300]
    return lines[0][:300]


def is_local(master: str | None) -> bool:
    """Whether driver and executors of that master share a process; None is unknown."""
    return master is not None and master.split("[")[0] in ("local", "local-cluster")


def tasks_at_once(master: str | None) -> int:
    """Concurrent tasks of a local master; 0 if unknown, as for a cluster."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master or "")
    if found is None:
        return 0
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def environment(java: Java, master: str | None) -> dict[str, str]:
    """Variables for Spark's processes, without those that the user has set."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if tasks := tasks_at_once(master):
        wanted[TASKS] = str(tasks)
    if is_local(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    kept = {name: value for name, value in wanted.items() if name not in os.environ}
    return {**kept, "JAVA_HOME": str(java.home)}


def defaults(scratch: Path, master: str | None = "local[*]") -> dict[str, str]:
    """Our settings: for every session, and for a session on one machine."""
    settings = {
        "spark.sql.execution.arrow.pyspark.enabled": "false",  # results are small
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionOverwriteMode": "static",
        # For checkpoints on a file system: a batch's logs take 30 ms instead of 100 to 350.
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_MANAGER,
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local(master):
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
            "spark.sql.warehouse.dir": str(scratch / "tuque-warehouse"),
            "spark.ui.enabled": "false",
        }
    return settings


def _is_given(key: str) -> bool:
    """Whether spark-submit got that setting."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # a SparkConf reads the properties of the JVM
    return bool(SparkConf().contains(key))


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of processes started inside to that file, for good."""
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
