"""Counts of TLS handshakes (SPEC X4); the porch's thread counts, INFO and the metrics read."""

from __future__ import annotations

from collections.abc import Callable
from typing import final


@final
class Handshakes:
    """All since the start, but `open`."""

    def __init__(self, told: Callable[[], dict[str, object]]) -> None:
        self.told = told  # what INFO says of the certificate
        self.open = 0  # begun and not over
        self.done = 0
        self.failed = 0  # refused by either end, or closed
        self.late = 0  # not over in time
        self.crowded = 0  # closed to make room, or too many of one address
