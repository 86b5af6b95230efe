"""What the models of tubes are made of: tasks, sessions, those who wait. Times are ms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

READY, TAKEN, DELAYED, BURIED, DONE = "r", "t", "~", "!", "-"
FOR_EVER = 3_153_600_000_000
GETJOB_TTR = 300_000  # of a task without ttr that nobody's session holds


class Refused(Exception):
    """What a call is refused with; nothing was done."""


@dataclass
class Task:
    """One task."""

    number: int
    data: bytes
    created: int
    pri: int = 0
    ttl: int = FOR_EVER
    ttr: int = FOR_EVER
    subqueue: bytes = b""
    status: str = READY
    until: int | None = None  # of TAKEN and DELAYED: when that ends by itself
    owner: int = 0  # number of a session; 0: nobody's
    token: int = 0


@dataclass
class Session:
    """Who holds tasks."""

    number: int
    clients: set[int] = field(default_factory=set)
    until: int | None = None


@dataclass
class Waiting:
    """A take that waits."""

    number: int
    client: int
    until: int | None


@dataclass
class WaitingPut:
    """A put that waits for room."""

    client: int
    serial: int
    until: int
    args: dict[str, Any]
