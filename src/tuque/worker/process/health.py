"""Whether a worker is alive: a file that its loop writes, and the check that reads it.

Alive means that the loop turns. An outage of the broker is shown and is no illness: to start the
worker anew would not help.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

import msgspec

EVERY_S: Final = 5.0
STALE_S: Final = 30.0  # a process that ended is replaced by then


class Health(msgspec.Struct):
    """The file: the process, its jobs that run, seconds without broker, and wall clock."""

    pid: int
    running: int
    at: float
    lost_s: float | None = None


def write(path: str, running: int, lost_s: float | None) -> None:
    """Replaces the file; raises OSError."""
    told = Health(os.getpid(), running, time.time(), lost_s)
    new = Path(f"{path}.new")
    new.write_bytes(msgspec.json.encode(told))
    new.replace(path)


def drop(path: str) -> None:
    """Removes the file of a worker that ends."""
    with contextlib.suppress(OSError):
        Path(path).unlink()


def check(path: str) -> tuple[bool, str]:
    """[U4] Whether the worker that writes the file is alive, and one line about it (U4.4)."""
    try:
        told = msgspec.json.decode(Path(path).read_bytes(), type=Health)
    except FileNotFoundError:
        return False, f"{path} is not there: no worker runs with --health-file {path}"
    except (OSError, msgspec.MsgspecError) as err:
        return False, f"{path} cannot be read: {err}"
    age_s = time.time() - told.at
    if age_s > STALE_S:
        return False, f"worker {told.pid} has said nothing for {age_s:.0f} s"
    lost = "" if told.lost_s is None else f", without its broker for {told.lost_s:.0f} s"
    return True, f"worker {told.pid} is alive: {told.running} jobs run{lost}"
