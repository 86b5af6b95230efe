"""Adds rows of files or of a table to queues, with a progress bar.

Tasks report the number of rows written in datagrams; the total comes from the files or from Spark.
Both are only for the bar: the sink's result counts.
"""

from __future__ import annotations

import logging
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

import click

from tuque.spark.errors import SinkError
from tuque.spark.sink.columns import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "csv", "json", "orc", "text")
BAR: Final = 24
LIVE_S: Final = 0.2
PLAIN_S: Final = 5.0  # between lines when the output is not a terminal


def read(spark: SparkSession, place: str, kind: str) -> DataFrame:
    """The rows of files or a directory, or of a table when `kind` is table."""
    if kind == "table":
        return spark.table(place)
    reader = spark.read
    if kind == "csv":
        reader = reader.option("header", True).option("inferSchema", True)
    return reader.format(kind).load(place)


def kind_of(place: str) -> str:
    """The format by a file's suffix; parquet for unknown ones."""
    ending = place.rstrip("/").removesuffix(".gz").rpartition(".")[2].lower()
    return {"jsonl": "json", "ndjson": "json", "txt": "text"}.get(
        ending, ending if ending in FORMATS else "parquet"
    )


def shape(frame: DataFrame, columns: Mapping[str, str], where: str) -> DataFrame:
    """The columns of jobs, each an SQL expression over the rows.

    The default body is the column body, or else the whole row as JSON.
    """
    for name in columns:
        if name not in COLUMNS or name == "lease":
            known = ", ".join(column for column in COLUMNS if column != "lease")
            raise SinkError(f"{name!r} is no column of a job; there are: {known}")
    if where:
        frame = frame.where(where)
    given = dict(columns)
    if "body" not in given:
        given["body"] = "body" if "body" in frame.columns else "to_json(struct(*))"
    for name, wanted in COLUMNS.items():
        if name in given and isinstance(wanted, tuple) and "long" in wanted:
            given[name] = f"CAST({given[name]} AS BIGINT)"
        elif name in given and name != "body":
            given[name] = f"CAST({given[name]} AS STRING)"
    return frame.selectExpr(*(f"{text} AS `{name}`" for name, text in given.items()))


def fill(frame: DataFrame, options: Mapping[str, str], rows: int) -> tuple[int, float]:
    """Write the rows; returns how many, and the seconds it took. `rows`: expected."""
    from tuque.spark.datasource import FORMAT, register

    register(frame.sparkSession)
    with Counter(rows) as counter:
        write = frame.write.format(FORMAT).mode("append").options(**options)
        write.option("progressTo", counter.place).save()
        return counter.finished(), monotonic() - counter.start_s


class Counter:
    """Adds up the sink's datagrams and shows the sum. Use it in `with`."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.rows = 0
        self.total = -1  # according to the commit
        self.start_s = monotonic()
        self.first_s = 0.0  # of the first rows: Spark takes time to start its tasks
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(LIVE_S)
        self.place = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._live = sys.stderr.isatty()

    def __enter__(self) -> Counter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()
        if self._live:
            click.echo("\r\033[K", nl=False, err=True)

    def finished(self) -> int:
        """The rows written; waits for the commit's datagram, which may be lost."""
        until_s = monotonic() + 1.0
        while self.total < 0 and monotonic() < until_s:
            self._over.wait(0.01)
        return self.rows if self.total < 0 else self.total

    def _listen(self) -> None:
        every_s = LIVE_S if self._live else PLAIN_S
        shown_s = monotonic()
        while not self._over.is_set():
            try:
                what, _, rows = self._socket.recv(100).partition(b" ")
                if what == b"rows":
                    self.first_s = self.first_s or monotonic()
                    self.rows += int(rows)
                elif what == b"total":
                    self.total = int(rows)
            except (TimeoutError, ValueError):
                pass
            if monotonic() - shown_s >= every_s:
                shown_s = monotonic()
                self._show()

    def _show(self) -> None:
        since_s = self.first_s or self.start_s
        line = told(self.rows, self.expected, monotonic() - since_s)
        click.echo(f"\r\033[K{line}" if self._live else line, nl=not self._live, err=True)


def told(rows: int, expected: int, elapsed_s: float) -> str:
    """The progress: a bar, rows, rate and the time left; `elapsed_s` since the first row.

    Before the first row, which takes some seconds: the time that Spark's start takes.
    """
    if not rows:
        return f"Spark starts its tasks: {elapsed_s:.0f} s, no rows yet"
    rate = rows / elapsed_s if elapsed_s > 0 else 0.0
    parts = [f"{rows:,} rows", f"{rate:,.0f}/s"]
    if expected > 0:
        part = min(1.0, rows / expected)
        full = int(BAR * part)
        parts[0] = f"[{'#' * full}{'-' * (BAR - full)}] {part:.0%} {rows:,} of {expected:,} rows"
        if rate > 0:
            left_s = round(max(0, expected - rows) / rate)
            parts.append(f"{left_s // 60}:{left_s % 60:02d} left")
    return ", ".join(parts)


@contextmanager
def named(place: str) -> Iterator[None]:
    """Turn an error of Spark into one line with the place, or into the sink's own error."""
    from pyspark.errors import PySparkException

    from tuque.spark.session import reason

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it logs what it raises
    try:
        yield
    except PySparkException as e:
        ours = re.search(r"SinkError: (.+)", str(e))
        raise SinkError(ours[1] if ours else f"{place}: {reason(str(e))}") from e
