"""The log of deeds: who changed what, when, and how many jobs it was."""

from __future__ import annotations

import json
import logging
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from tuque.logtext import visible

log: Final = logging.getLogger("tuque.web.deeds")
KEPT: Final = 1_000


class Deed(msgspec.Struct, frozen=True):
    """One line: at_s is unix seconds."""

    at_s: float
    who: str
    what: str
    about: str
    jobs: int | None
    came_of_it: str


class DeedLog:
    """The latest deeds, and a file of all if there is one. One JSON object a line."""

    def __init__(self, path: Path | None = None) -> None:
        self.latest: deque[Deed] = deque(maxlen=KEPT)
        self._path = path
        if path is not None:
            path.touch(mode=0o600)

    def add(self, deed: Deed) -> None:
        """Keeps a deed. OSError if the file does not take it."""
        self.latest.appendleft(deed)
        jobs = "" if deed.jobs is None else f", jobs {deed.jobs}"
        log.info(visible(f"{deed.who}: {deed.what} {deed.about}{jobs}: {deed.came_of_it}"))
        if self._path is not None:
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(json.dumps(msgspec.structs.asdict(deed)) + "\n")
