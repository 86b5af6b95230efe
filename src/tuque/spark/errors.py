"""What may go wrong before a pipeline runs; every text says what to do."""

from pathlib import Path
from typing import Final

IF_DAMAGED: Final = (
    "If the file is cut or damaged, copy it again, or move it out of the directory: its events "
    "are missing then, and `tuque verify` counts them as seq gaps"
)


def no_directory(path: Path) -> str:
    """Why that is not a directory of events."""
    return "a file, not the directory of the events" if path.exists() else "no such directory"


class SparkSetupError(Exception):
    """PySpark or Java is missing, or Spark did not start."""


class NoEventsError(Exception):
    """The directory of events is missing or holds none."""


class SparkJobError(Exception):
    """Spark could not finish: a damaged segment, a full disk, too little memory."""


class StreamError(Exception):
    """A table belongs to something else, or a checkpoint does not fit."""


class SinkError(Exception):
    """Rows cannot become jobs: a wrong option or column, or what the broker refused."""


class SourceError(Exception):
    """Jobs cannot become rows: a wrong option or column, a lease that others have now."""
