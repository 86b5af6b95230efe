"""How the journal's thread wakes the pump: a descriptor that becomes readable."""

from __future__ import annotations

import os


class Bell:
    """An eventfd, or a pipe where the system has none."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self.fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self.fd, self._write_fd = os.pipe()
            os.set_blocking(self.fd, False)
            os.set_blocking(self._write_fd, False)

    def ring(self) -> None:
        """Make the descriptor readable."""
        try:
            os.write(self._write_fd, b"\1\0\0\0\0\0\0\0")
        except BlockingIOError:
            return  # it is readable already

    def quiet(self) -> None:
        """Make it unreadable again."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self.fd)
        if self._write_fd != self.fd:
            os.close(self._write_fd)
