"""Spark reads the audit of a node without code of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tuque.server.log.audit import Audit


def test_spark_reads_the_audit(spark: SparkSession, tmp_path: Path) -> None:
    """N9.6 Spark reads the directory with `spark.read.json`."""
    audit = Audit(str(tmp_path), "ab" * 20, 1 << 20)
    for act in ("pause", "tube|drop"):
        audit.note(1_700_000_000_000, {"user": "root", "act": act, "words": ["A", "b"]})
    audit.close()
    found = spark.read.json(str(tmp_path)).where("act = 'tube|drop'").collect()
    assert [(row.seq, row.user, list(row.words)) for row in found] == [(2, "root", ["A", "b"])]
