"""duckdb as the engine: one machine, no JVM, the same SQL.

The dialect layer is the macros below, which give duckdb Spark's functions, and one list literal.
Instants are UTC: without a zone inside, as in a Spark session; with one in files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tuque.spark.engines import sort_by_kind
from tuque.spark.errors import IF_DAMAGED, SparkJobError, SparkSetupError

MACROS: Final = """
CREATE OR REPLACE MACRO unix_micros(t) AS epoch_us(t);
CREATE OR REPLACE MACRO unix_seconds(t) AS CAST(floor(epoch_us(t) / 1e6) AS BIGINT);
CREATE OR REPLACE MACRO timestamp_micros(us) AS make_timestamp(us);
CREATE OR REPLACE MACRO timestamp_seconds(s) AS make_timestamp(s * 1000000);
CREATE OR REPLACE MACRO to_date(t) AS CAST(t AS DATE);
CREATE OR REPLACE MACRO xxhash64(x) AS hash(x);
CREATE OR REPLACE MACRO element_at(list, i) AS list_extract(list, i);
CREATE OR REPLACE MACRO replace_all(x, p, r) AS regexp_replace(x, p, r, 'g');
CREATE OR REPLACE MACRO percentile(x, shares) AS quantile_cont(x, shares);
"""
KINDS: Final = {"STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMPTZ"}
_MEMORY: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?([kmgt])b?", re.ASCII)
_ERRNO: Final = re.compile(r'"errno":"(\d+)"')
_ARRAY: Final = re.compile(r"\barray\(([^()]*)\)")


class DuckEngine:
    """The engine for one machine. Close it, or use it in `with`."""

    def __init__(self, memory: str = "", threads: int = 0) -> None:
        """`memory` as '2g', or '' for most of the machine's; `threads` 0: all cores.

        Raises SparkSetupError without duckdb.
        """
        try:
            import duckdb
        except ModuleNotFoundError as e:
            raise SparkSetupError("duckdb is missing: pip install 'tuque[report]'") from e
        config: dict[str, Any] = {"preserve_insertion_order": "false"}
        if memory:
            config["memory_limit"] = limit_of(memory)
        if threads:
            config["threads"] = threads
        self.failure: type[Exception] = duckdb.Error
        self.base = duckdb.connect(config=config)
        self.base.execute(MACROS)

    def __enter__(self) -> DuckEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self.base.close()
        if isinstance(e, self.failure):
            said = cause(e)
            if ".parquet" in said and not said.endswith("."):
                said += "."
            advice = f" {IF_DAMAGED}" if ".parquet" in said else ""
            raise SparkJobError(f"duckdb failed: {said}{advice}") from e

    def read(self, view: str, files: Sequence[str], columns: str) -> None:
        """See Engine."""
        self.base.execute(f"CREATE OR REPLACE VIEW {view} AS {self._parquet(files, columns)}")

    def read_log(self, view: str, files: Sequence[str], columns: str) -> None:
        """See Engine."""
        parquet, lines = sort_by_kind(files)
        queries = [self._parquet(parquet, columns)] if parquet else []
        if lines:
            listed = ", ".join(map(text, lines))
            kinds = ", ".join(
                f"{name}: {text(KINDS.get(kind, kind))}" for name, kind in columns_of(columns)
            )
            queries.append(
                f"SELECT * FROM read_json([{listed}], format = 'newline_delimited', "
                f"columns = {{{kinds}}})"
            )
        self.base.execute(f"CREATE OR REPLACE VIEW {view} AS {' UNION ALL '.join(queries)}")

    def _parquet(self, files: Sequence[str], columns: str) -> str:
        """A query for these columns of the files."""
        listed = ", ".join(text(name) for name in files)
        have = {
            row[0]
            for row in self.base.execute(
                f"DESCRIBE SELECT * FROM read_parquet([{listed}], union_by_name = true)"
            ).fetchall()
        }
        cells = [
            self._cell(name, KINDS.get(kind, kind), name in have)
            for name, kind in columns_of(columns)
        ]
        return (
            f"SELECT {', '.join(cells)} "
            f"FROM read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        )

    @staticmethod
    def _cell(name: str, kind: str, is_there: bool) -> str:
        """One column, cast to its kind; instants lose their zone, which is UTC."""
        if not is_there:
            kind = "TIMESTAMP" if kind == "TIMESTAMPTZ" else kind
            return f"CAST(NULL AS {kind}) AS {name}"
        if kind == "TIMESTAMPTZ":
            return f"make_timestamp(epoch_us({name})) AS {name}"
        return f"CAST({name} AS {kind}) AS {name}"

    def view(self, name: str, query: str) -> None:
        """See Engine."""
        self.base.execute(f"CREATE OR REPLACE VIEW {name} AS {dialect(query)}")

    def keep(self, name: str, query: str) -> int:
        """See Engine."""
        self.base.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {dialect(query)}")
        row = self.base.execute(f"SELECT count(*) FROM {name}").fetchone()
        return int(row[0]) if row else 0

    def table(self, name: str, query: str, path: Path) -> None:
        """See Engine."""
        if path.exists():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.base.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {dialect(query)}")
        described = self.base.execute(f"DESCRIBE {name}").fetchall()
        zoned = [
            f"make_timestamptz(epoch_us({row[0]})) AS {row[0]}"
            for row in described
            if row[1] == "TIMESTAMP"
        ]
        try:
            self.base.execute(
                f"COPY (SELECT * REPLACE ({', '.join(zoned)}) FROM {name}) TO {text(str(path))} "
                "(FORMAT parquet, COMPRESSION zstd, PARTITION_BY (date))"
            )
        except self.failure as e:  # all rows are here: it is not the input
            raise SparkJobError(f"{path} could not be written: {cause(e)}") from e

    def rows(self, query: str) -> list[dict[str, Any]]:
        """See Engine."""
        found = self.base.execute(dialect(query))
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def limit_of(memory: str, is_whole: bool = False) -> str:
    """The option --memory as duckdb takes it; SparkSetupError if it is no size. A JVM takes whole
    numbers.
    """
    found = _MEMORY.fullmatch(memory.strip().lower())
    if found is None or float(found[1]) == 0 or (is_whole and "." in found[1]):
        raise SparkSetupError(
            f"--memory {memory}: no size of memory. Give a number and k, m, g or t, as 512m or 2g"
        )
    return f"{found[1]}{found[2].upper()}B"


def cause(e: BaseException) -> str:
    """The reason of the operating system if the error has its number, else its first line."""
    number = _ERRNO.search(str(e))
    if number is not None:
        return os.strerror(int(number[1]))
    return (str(e).splitlines() or [""])[0][:300]


def columns_of(ddl: str) -> list[tuple[str, str]]:
    """Names and kinds in a Spark DDL of plain columns."""
    pairs = [part.split() for part in ddl.replace("\n", " ").split(",")]
    return [(name, kind.upper()) for name, kind in pairs]


def dialect(query: str) -> str:
    """Translate Spark's SQL for duckdb; the macros do the rest."""
    return _ARRAY.sub(r"[\1]", query).replace("regexp_replace(", "replace_all(")


def text(value: str) -> str:
    """A literal."""
    return "'" + value.replace("'", "''") + "'"
