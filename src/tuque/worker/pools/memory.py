"""How much memory a process has, as the system shows it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from tuque.errors import ConfigError
from tuque.logtext import facts

log: Final = logging.getLogger("tuque.worker")

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
MB: Final = 1 << 20


def rss_bytes(pid: int | str = "self") -> int:
    """The resident memory of a process; 0 if it has ended, or the system does not show it."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def is_over(limit_mb: int | None, pid: int | str = "self") -> bool:
    """Whether a process has more memory than that."""
    return limit_mb is not None and rss_bytes(pid) > limit_mb * MB


def has_room(limit_mb: int | None, is_first: bool, pid: int | str = "self") -> bool:
    """[U4] Whether a process that has had no job is below the limit (U4.6).

    ConfigError if the first one is not; of a later one the log says that it is not replaced.
    """
    if not is_over(limit_mb, pid):
        return True
    has_mb = rss_bytes(pid) // MB
    if is_first:
        raise ConfigError(
            f"--max-memory {limit_mb}: the process has {has_mb} MB before its first job, set more"
        )
    log.warning(
        "process %(child)s has %(has_mb)d MB before its first job, --max-memory is %(max_mb)d: "
        "it is not replaced",
        facts("idle_too_big", child=pid, has_mb=has_mb, max_mb=limit_mb),
    )
    return False
