"""How a file is made durable where fsync leaves it in the cache of the drive (macOS)."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from tuque.store.disk import Disk

FULL = 51  # F_FULLFSYNC


@pytest.mark.parametrize("fails", [0, errno.ENOTSUP, errno.EIO])
def test_the_cache_of_the_drive_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """F_FULLFSYNC where there is one; fsync if the file system has none; an error is an error."""
    calls: list[str] = []

    def order(_fd: int, command: int) -> int:
        assert command == FULL
        calls.append("full")
        if fails:
            raise OSError(fails, "no")
        return 0

    def fsync(fd: int, sound: Any = os.fsync) -> None:
        calls.append("fsync")
        sound(fd)

    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", order)
    monkeypatch.setattr(os, "fsync", fsync)
    disk = Disk()
    handle = disk.open_append(str(tmp_path / "file"))
    disk.write(handle, b"x")
    if fails == errno.EIO:
        with pytest.raises(OSError, match="no"):
            disk.fdatasync(handle)
    else:
        disk.fdatasync(handle)
    disk.close(handle)
    assert calls == (["full", "fsync"] if fails == errno.ENOTSUP else ["full"])
