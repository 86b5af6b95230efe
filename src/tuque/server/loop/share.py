"""How much all connections together read and run in a turn (SPEC L2.8)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.server.sockets.connection import READ_BYTES
from tuque.server.state.state import Server

TURN_READ: Final = 512 << 10  # bytes
LEAST_READ: Final = 1_024  # bytes that each connection may send in a turn
COMMAND_COST: Final = 50  # a command counts as so many more


@final
class Share:
    """What is left of it; descriptors that came too late are first in the next turn."""

    def __init__(self, s: Server) -> None:
        self.s = s
        self.late: dict[int, None] = {}
        self.end: i64 = 0  # of `cost`
        self.each: i64 = READ_BYTES  # may be read of one connection
        self.joined: i64 = 0  # bytes of large bodies that were put together

    def cost(self) -> i64:
        """Bytes that were read and commands that were run, since the start."""
        figures = self.s.figures
        return figures.in_bytes + COMMAND_COST * figures.commands + self.joined

    def begin(self) -> None:
        """All of it is left."""
        self.end = self.cost() + TURN_READ

    def is_used(self) -> bool:
        """Whether nothing is left."""
        return self.cost() >= self.end

    def note_body(self, size: i64) -> None:
        """So many bytes of a body lay here before the rest of it came."""
        if size > TURN_READ:
            self.joined += size

    def in_order(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The same, those first that were late the last time, the one that waits longest first.

        Many connections are read in smaller pieces, so that all soon have their turn.
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
