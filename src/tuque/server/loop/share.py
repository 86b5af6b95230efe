"""How much input all connections together may have read and run in a turn (SPEC L2.8)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.server.sockets.connection import READ_BYTES
from tuque.server.state.state import Server

TURN_READ: Final = 512 << 10  # bytes
LEAST_READ: Final = 256  # bytes that each connection may have read per turn
STRANGER_READ: Final = 512  # of a client that has not logged in, per turn
COMMAND_COST: Final = 50  # a command counts as so many bytes
NOTED_READ: Final = 4_096  # bytes after which it is looked anew what a byte costs
DEAR: Final = 16  # a byte counts as so many at most


@final
class Share:
    """The share of a turn that is left; descriptors that missed it are first in the next turn."""

    def __init__(self, s: Server) -> None:
        self.s = s
        self.late: dict[int, None] = {}
        self.greedy: dict[int, None] = {}  # had more input than was read of them
        self.end: i64 = 0  # value of `cost` at which the share is used
        self.each: i64 = READ_BYTES  # bytes to read per connection
        self.joined: i64 = 0  # bytes of large bodies that were assembled
        self.dear: i64 = 16  # what a byte has cost lately, in sixteenths
        self.noted_cost: i64 = 0
        self.noted_bytes: i64 = 0

    def cost(self) -> i64:
        """Bytes read and commands run, since the start."""
        figures = self.s.figures
        commands = figures.commands + figures.turned_down
        return figures.in_bytes + COMMAND_COST * commands + self.joined

    def begin(self) -> None:
        """Start a turn with a full share."""
        self.end = self.cost() + TURN_READ

    def note_read(self, fd: i64, is_full: bool) -> None:
        """A client was read; `is_full`: there may be more."""
        if is_full:
            self.greedy[int(fd)] = None
        elif len(self.greedy) > 0:
            self.greedy.pop(int(fd), None)

    def note_price(self) -> None:
        """See what a byte of input costs: many short commands cost more than their bytes."""
        cost, read = self.cost(), self.s.figures.in_bytes
        came = read - self.noted_bytes
        if 0 <= came < NOTED_READ:
            return
        if came > 0:
            self.dear = min(16 * DEAR, max(16, 16 * (cost - self.noted_cost) // came))
        self.noted_cost, self.noted_bytes = cost, read

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

        Then come those that send little: who sends much costs them one turn at most.
        Many connections are read in smaller pieces, so that each has its turn soon.
        """
        self.note_price()
        count: i64 = len(ready)
        self.each = READ_BYTES
        if count * READ_BYTES * self.dear > 16 * TURN_READ:
            self.each = max(LEAST_READ, 16 * TURN_READ // (2 * count * self.dear))
        late = self.late
        greedy = self.greedy
        if len(greedy) > 0 and count > 1:
            much = [one for one in ready if one[0] in greedy]
            if 0 < len(much) < count:
                ready = [one for one in ready if one[0] not in greedy]
                ready += much
        if len(late) == 0:
            return ready
        self.late = {}
        masks = dict(ready)
        first = [(fd, masks[fd]) for fd in late if fd in masks]
        first.extend([one for one in ready if one[0] not in late])
        return first
