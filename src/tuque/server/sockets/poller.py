"""Waiting for sockets: epoll if available, else poll. Times in ms."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final

IN: Final = 1  # the same values for epoll and poll
OUT: Final = 4
MOST: Final = 1_024  # descriptors of one wait


class Poller:
    """The interface of both, as the pump needs it."""

    def __init__(self, epoll: select.epoll | None) -> None:
        self.has_epoll = epoll is not None
        if epoll is not None:
            self.epoll = epoll
            self.poll: Callable[[float, int], list[tuple[int, int]]] = epoll.poll
        else:
            self.poller = select.poll()

    def add(self, fd: int) -> None:
        """Watch the descriptor for reading."""
        if self.has_epoll:
            self.epoll.register(fd, IN)
        else:
            self.poller.register(fd, IN)

    def watch(self, fd: int, mask: int) -> None:
        """Change what a watched descriptor is watched for."""
        if self.has_epoll:
            self.epoll.modify(fd, mask)
        else:
            self.poller.modify(fd, mask)

    def drop(self, fd: int) -> None:
        """Stop watching the descriptor."""
        if self.has_epoll:
            self.epoll.unregister(fd)
        else:
            self.poller.unregister(fd)

    def wait(self, most_ms: int) -> list[tuple[int, int]]:
        """Descriptors that are ready and how; waits up to `most_ms`, -1 for ever."""
        if self.has_epoll:
            if most_ms <= 0:
                return self.poll(most_ms, MOST)
            return self.poll(most_ms / 1000, MOST)
        return self.poller.poll(most_ms if most_ms >= 0 else None)

    def close(self) -> None:
        """Give the descriptor back."""
        if self.has_epoll:
            self.epoll.close()
