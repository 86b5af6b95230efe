"""Which option names are ours, Spark's, or unknown; and lists of queue names.

Spark passes every given option to a source or sink, including its own. Names are in lower case, as
Spark passes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

# Options of Spark itself, or of its own writers. Seen in the options of a sink: the first
# two, from .option(), .queryName(), toTable() and create_sink() of a declarative pipeline.
SPARK_NAMES: Final = (
    "checkpointLocation",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
    "mergeSchema",
    "overwriteSchema",
    "partitionOverwriteMode",
)
INTERNAL: Final = "__"  # such as __globPaths__
PATHS: Final = ("path", "paths")  # errors of their own, if not empty
_PARTS: Final = re.compile(r"(?:\\[,*\\]|[^,])+")
_ESCAPED: Final = re.compile(r"\\([,*\\])")


def unknown(given: Iterable[str], names: Sequence[str], doing: str) -> str:
    """The error for the first unknown option; empty if there is none."""
    spelt = {name.lower(): name for name in (*names, *SPARK_NAMES)}
    for key in given:
        if key in spelt or key in PATHS or key.startswith(INTERNAL):
            continue
        near = get_close_matches(key, spelt, n=1)
        meant = f"; did you mean {spelt[near[0]]}?" if near else "."
        return f"unknown option {key!r} for {doing}{meant} There are: {', '.join(names)}"
    return ""


def split_names(text: str) -> tuple[str, ...]:
    r"""The names of a list with commas; `\,` is a comma in a name, `\\` a backslash, `\*` the queue
    that is named so.
    """
    return tuple(_ESCAPED.sub(r"\1", part) for part in _parts(text))


def names_all(text: str) -> bool:
    """Whether one of the names is `*`, which stands for all queues."""
    return "*" in _parts(text)


def _parts(text: str) -> list[str]:
    return [part for found in _PARTS.findall(text) if (part := found.strip())]
