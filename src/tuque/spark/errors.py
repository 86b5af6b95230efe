"""Errors before and during a pipeline; every text says what to do."""

from pathlib import Path
from typing import Final

IF_DAMAGED: Final = (
    "If the file is cut or damaged, copy it again, or move it out of the directory: its events "
    "are missing then, and the report counts their numbers as missing"
)


def no_directory(path: Path) -> str:
    """Why the path is not a directory of events."""
    return "a file, not the directory of the events" if path.exists() else "no such directory"


class SparkSetupError(Exception):
    """PySpark or Java is missing, or Spark did not start."""


class NoEventsError(Exception):
    """The directory of events is missing or holds none."""


class SparkJobError(Exception):
    """Spark failed: a damaged segment, a full disk, too little memory."""


class StreamError(Exception):
    """A table belongs to another stream or run, or a checkpoint does not fit."""


class SinkError(Exception):
    """Rows cannot become jobs: a wrong option or column, or a refusal of the broker."""


class SourceError(Exception):
    """Jobs cannot become rows: a wrong option or column, or a lease lost to others."""
