"""How much memory a process has, as the system shows it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

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
