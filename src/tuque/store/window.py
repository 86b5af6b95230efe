"""A file read through a window, so that neighbouring reads share one read of the disk."""

from typing import Final

from mypy_extensions import i64

from tuque.store.files.disk import Disk

WINDOW_BYTES: Final = 4 << 20


class Windowed:
    """Keeps the last window until bytes outside of it are read."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.window = b""
        self.window_start: i64 = 0

    def bytes_at(self, offset: i64, size: i64) -> bytes:
        """Bytes of the file; fewer only at its end."""
        start = offset - self.window_start
        if start < 0 or start + size > len(self.window):
            want = size if size > WINDOW_BYTES else WINDOW_BYTES
            self.window = self.disk.read(self.path, offset, want)
            self.window_start = offset
            start = 0
        return self.window[start : start + size]
