"""Detects files that are named like event segments but are none (SPEC E4.3)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tuque.spark.errors import SparkJobError

# the columns that identify a segment, with their kinds
COLUMNS: Final = {
    "seq": "number",
    "ts": "instant",
    "node": "text",
    "event": "text",
    "queue": "text",
    "job_id": "text",
}


def check_segments(paths: Iterable[Path]) -> None:
    """Raise SparkJobError for the first file that is no segment.

    Damaged files, and files removed meanwhile, are left to the reader.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in paths:
        try:
            columns = pq.read_schema(str(path))
        except (pa.ArrowInvalid, OSError):
            continue
        said = why_foreign(columns)
        if said:
            raise SparkJobError(f"{path}: {said}")


def why_foreign(columns: Any) -> str:
    """Why a file with these columns, a pyarrow schema, is no segment; empty if it is one."""
    for name, kind in COLUMNS.items():
        at = columns.get_field_index(name)
        found = columns.field(at).type if at >= 0 else None
        if found is not None and kind_of(found) == kind:
            continue
        what = f"its column {name} is {found}" if found is not None else f"it has no column {name}"
        return (
            f"it is named like an event segment and is none: {what}. Move it out of the "
            "directory of the events, or give it another name"
        )
    return ""


def kind_of(found: Any) -> str:
    """The kind of a pyarrow type; of a dictionary, that of its values."""
    from pyarrow import types

    if types.is_dictionary(found):
        found = found.value_type
    if types.is_integer(found):
        return "number"
    if types.is_timestamp(found):
        return "instant"
    return "text" if types.is_string(found) or types.is_large_string(found) else ""
