"""How much input all connections together may have read and run in a turn (SPEC L2.8)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.server.sockets.connection import READ_BYTES
from tuque.server.state.state import Server

TURN_READ: Final = 512 << 10  # bytes
LEAST_READ: Final = 1_024  # that each connection may have read per turn
STRANGER_READ: Final = 512  # of a client that has not logged in, per turn
COMMAND_COST: Final = 50  # a command counts as so many bytes


@final
class Share:
    """The share of a turn that is left; descriptors that missed it are first in the next turn."""

    def __init__(self, s: Server) -> None:
        self.s = s
        self.late: dict[int, None] = {}
        self.end: i64 = 0  # value of `cost` at which the share is used
        self.each: i64 = READ_BYTES  # bytes to read per connection
        self.joined: i64 = 0  # bytes of large bodies that were assembled

    def cost(self) -> i64:
        """Bytes read and commands run, since the start."""
        figures = self.s.figures
        commands = figures.commands + figures.turned_down
        return figures.in_bytes + COMMAND_COST * commands + self.joined

    def begin(self) -> None:
        """Start a turn with a full share."""
        self.end = self.cost() + TURN_READ

    def is_used(self) -> bool:
        """Whether the share is used up."""
        return self.cost() >= self.end

    def most(self, is_nobody: bool) -> i64:
        """How much to read of a client; `is_nobody`: it has not logged in."""
        return min(self.each, STRANGER_READ) if is_nobody else self.each

    def note_body(self, size: i64) -> None:
        """The first part of a body, of this size, was buffered until the rest came."""
        if size > TURN_READ:
            self.joined += size

    def in_order(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The ready descriptors, those that missed the last turn first, the longest wait in front.

        Many connections are read in smaller pieces, so that each has its turn soon.
        """
        count: i64 = len(ready)
        self.each = READ_BYTES
        if count * READ_BYTES > TURN_READ:
            self.each = max(LEAST_READ, TURN_READ // (2 * count))
        late = self.late
        if len(late) == 0:
            return ready
        self.late = {}
        masks = dict(ready)
        first = [(fd, masks[fd]) for fd in late if fd in masks]
        first.extend([one for one in ready if one[0] not in late])
        return first
