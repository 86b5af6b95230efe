"""How a command gets its engine, and the errors when the pipeline cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuque.spark.cli.progress import Progress
from tuque.spark.errors import NoEventsError, SparkJobError, SparkSetupError, StreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tuque.spark.engines import SparkEngine
    from tuque.spark.history.duck import DuckEngine

# Below this size the JVM's optimizing compiler costs more than it saves: a third of the time of
# a report of 1 M events (13 MB) on two cores.
SMALL_BYTES = 64 << 20

MEMORY = click.option("--memory", default="2g", show_default=True, help="Memory of Spark's JVM.")


@contextmanager
def told(out: Path) -> Iterator[None]:
    """Turn errors inside into one line on standard error and an exit status."""
    try:
        yield
    except NoEventsError as e:
        raise click.UsageError(str(e)) from e
    except (SparkJobError, SparkSetupError, StreamError) as e:
        raise click.ClickException(str(e)) from e
    except OSError as e:
        raise click.ClickException(f"{e.filename or out}: {e.strerror or e}") from e


@contextmanager
def on_spark(
    app: str, size_bytes: int, memory: str, log: Path, progress: Progress, scratch: Path
) -> Iterator[SparkEngine]:
    """A Spark session, stopped at the end unless it existed before; `log` gets its output."""
    try:
        from pyspark.sql import SparkSession

        from tuque.spark.engines import SparkEngine
        from tuque.spark.session import session
        from tuque.spark.session import told as spark_told
    except ModuleNotFoundError as e:
        raise SparkSetupError(f"{e.name} is missing: pip install 'tuque[spark]'") from e

    from tuque.spark.history.duck import limit_of

    conf = {"spark.driver.memory": limit_of(memory, is_whole=True).removesuffix("B").lower()}
    if size_bytes < SMALL_BYTES:
        conf["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1"
    is_ours = SparkSession.getActiveSession() is None
    with progress.step("starting Spark"):
        spark = session(app, conf=conf, log=log)
    try:
        progress.done_of = lambda: tasks(spark)
        with spark_told(log):
            yield SparkEngine(spark, scratch)
    finally:
        progress.done_of = lambda: (0, 0)
        if is_ours:
            spark.stop()


def need_packages(engine: str) -> None:
    """Raise SparkSetupError, which names the extra, if the engine's packages are missing."""
    try:
        for package in ("duckdb" if engine == "duckdb" else "pyspark", "pyarrow"):
            import_module(package)
    except ModuleNotFoundError as e:
        extra = "report" if engine == "duckdb" else "spark"
        raise SparkSetupError(f"{e.name} is missing: pip install 'tuque[{extra}]'") from e


@contextmanager
def on_duckdb(memory: str, progress: Progress) -> Iterator[DuckEngine]:
    """A duckdb engine for the block."""
    from tuque.spark.history.duck import DuckEngine

    with progress.step("starting duckdb"):
        engine = DuckEngine(memory)
    with engine:
        yield engine


def tasks(spark: SparkSession) -> tuple[int, int]:
    """Finished tasks, and all tasks, of the stages that run now."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    infos = [info for info in stages if info is not None]
    return sum(i.numCompletedTasks for i in infos), sum(i.numTasks for i in infos)
