"""What a failed test leaves: its seeds, the last lines of its nodes' logs, its directories.

A plugin of pytest. Seeds and logs become sections of the report, so they are printed with the
failure; directories are copied to build/tests/failed, since pytest keeps those of three runs only.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

import slots

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = Path(os.environ.get("TUQUE_FAILED") or ROOT / "build" / "tests" / "failed")
SEEDS: Final = "seeds"
LOGS: Final = "nodes' logs"
LINES: Final = 50  # of each log
LOGS_MAX: Final = 8
BYTES_MAX: Final = 20_000_000  # of the directories of one test
SEGMENT: Final = re.compile(r"journal-\d+\.log")  # of a journal: no text
SAID: Final = re.compile(r"^.*\bseeds?\b.*\d.*$", re.MULTILINE | re.IGNORECASE)
BEGAN: Final = pytest.StashKey[float]()


def seeds_of(report: pytest.TestReport) -> str:
    """All that chance depends on, as far as it is known."""
    lines = [
        f"PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'not set')}",
        f"process {slots.number if slots.number >= 0 else 'of its own'}",
        "hypothesis: the same examples in each run (derandomize)",
    ]
    text = "\n".join((*(said for _, said in report.sections), report.longreprtext))
    lines += [f"printed: {line.strip()[:200]}" for line in SAID.findall(text)[:5]]
    return "\n".join(lines)


def logs_since(places: list[Path], began: float) -> list[Path]:
    """The logs that were written since, the latest first."""
    found: dict[Path, float] = {}
    for place in places:
        for path in place.rglob("*.log"):
            if SEGMENT.fullmatch(path.name):
                continue
            with suppress(OSError):  # it goes away meanwhile
                written = path.stat().st_mtime
                if path.is_file() and written >= began:
                    found[path] = written
    return sorted(found, key=lambda path: -found[path])


def last_lines(path: Path) -> str:
    """The end of a log."""
    with suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-LINES:])
    return ""


def size_bytes(place: Path) -> int:
    """Of all files of a directory."""
    total = 0
    for path in place.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def keep(nodeid: str, places: list[Path], base: Path) -> None:
    """Copy the directories, if they are not too big."""
    goal = KEPT / re.sub(r"[^\w.-]+", "_", nodeid)[-150:]
    shutil.rmtree(goal, ignore_errors=True)
    left = BYTES_MAX
    for place in places:
        left -= size_bytes(place)
        if left > 0:
            with suppress(OSError, shutil.Error):  # sockets, and what goes away meanwhile
                shutil.copytree(place, goal / place.relative_to(base), dirs_exist_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """Adds to the report of a failure what helps to explain it."""
    report: pytest.TestReport = yield
    if call.when == "setup":
        item.stash[BEGAN] = time.time() - call.duration - 1
    if report.failed:
        report.sections.append((SEEDS, seeds_of(report)))
        base = slots.base_of(item.config)
        own = getattr(item, "funcargs", {}).get("tmp_path")
        logs = logs_since([base], item.stash[BEGAN])[:LOGS_MAX]
        for path in logs:
            report.sections.append((f"{LOGS}: {path.relative_to(base)}", last_lines(path)))
        places = {path.parent for path in logs} | ({own} if own is not None else set())
        outer = [one for one in places if not any(up in places for up in one.parents)]
        keep(item.nodeid, sorted(outer), base)
    return report
