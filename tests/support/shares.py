"""Which process runs which test: one runs a file, since a module shares its nodes.

xdist's own groups are not used: `--dist loadgroup` hands the name of a group over in a field that
pytest 9.2 does not read, and each process starts the nodes, and the Spark, of every file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling


class Shares(LoadScopeScheduling):
    """Hands out whole files, in the order in which they were collected."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self.root: Path = config.rootpath

    def _split_scope(self, nodeid: str) -> str:
        return share_of(self.root / nodeid.partition("::")[0])


@cache
def share_of(path: Path) -> str:
    """The file; those that use the Spark session of tests/spark/conftest.py are one share."""
    return "spark" if "spark: SparkSession" in path.read_text() else str(path)
