"""Small files that an administrator names: secrets, keys, users, configuration (SPEC C1.10)."""

import errno
import os
import stat
from typing import Final

SMALL_BYTES: Final = 1 << 20


def read_small(path: str | os.PathLike[str], most: int = SMALL_BYTES) -> bytes:
    """What a regular file of at most so many bytes has, without ever waiting. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):  # a pipe in its place would be waited for
            raise OSError(errno.EINVAL, "not a regular file")
        parts: list[bytes] = []
        left = most + 1
        while left > 0:
            part = os.read(file, left)
            if len(part) == 0:
                return b"".join(parts)
            parts.append(part)
            left -= len(part)
    finally:
        os.close(file)
    raise OSError(errno.EFBIG, f"more than {most} bytes")
