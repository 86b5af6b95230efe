"""The whole pipeline over a history, by one engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuque.spark.engines import Engine
from tuque.spark.history import pipeline

TABLES = ("jobs", "seconds", "silver", "gold")


@dataclass
class Built:
    """An engine after it, its figures, and where its tables are."""

    engine: Engine
    figures: pipeline.Figures
    out: Path


@contextmanager
def quiet(_: str) -> Iterator[None]:
    yield


def build_all(engine: Engine, events: Path, place: Path) -> Built:
    """Every table under `place`, and the figures of the report."""
    segments = pipeline.find_segments(events, place / "scratch")
    pipeline.build(engine, segments, place, quiet)
    pipeline.build_silver(engine, segments.sealed, place)
    pipeline.build_gold(engine, segments.sealed, place)
    return Built(engine, pipeline.figures(engine, segments, quiet), place)
