"""The share of a turn: who is read and written in it, and in which order (SPEC L2.8)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.server.log.log import warn_once
from tuque.server.net.system import OUT
from tuque.server.state.client import (
    GUEST,
    LIGHT,
    NEW,
    READ_BYTES,
    THRIFTY,
    Client,
    Connection,
    Wired,
    weigh,
)
from tuque.server.state.server import Server
from tuque.tubes.policy import tubes_of

TURN_READ: Final = 512 << 10  # bytes
TURN_WRITE: Final = 4 << 20  # bytes of replies that sockets had refused
UNRUN_MAX: Final = 1 << 20  # bytes of pending commands of a client that has not logged in (C2.9)
LEAST_READ: Final = 256  # bytes that each connection may have read per turn
STRANGER_READ: Final = 512  # of a client that has not logged in, per turn
COMMAND_COST: Final = 50  # a command counts as so many bytes
NOTED_READ: Final = 4_096  # bytes after which it is looked anew what a byte costs
DEAR: Final = 16  # a byte counts as so many at most
MUCH: Final = 128 << 10  # a read that costs more makes its connection one that uses much
MUCH_READS: Final = 4  # cheap reads in a row, after which it is thrifty again
UNEVEN_TURNS: Final = 64  # so long connections are put in order after one has used much


@final
class Share:
    """The share of a turn that is left; descriptors that missed it are first in the next turn."""

    def __init__(self, s: Server) -> None:
        self.s = s
        self.late: dict[int, None] = {}
        self.uneven: i64 = 0  # turns in which some connection may use much
        self.end: i64 = 0  # value of `cost` at which the share is used
        self.before: i64 = 0  # value of `cost` when the last connection was read
        self.each: i64 = READ_BYTES  # bytes to read per connection
        self.joined: i64 = 0  # bytes of large bodies that were assembled
        self.dear: i64 = 16  # what a byte has cost lately, in sixteenths
        self.noted_cost: i64 = 0
        self.noted_bytes: i64 = 0
        self.has_more = False  # the last connection may have more input than was read
        self.has_read_new = False  # in this turn
        self.has_read_much = False
        self.unwritten_turn: i64 = -2  # the last one in which a ready socket had to wait
        self.written: i64 = 0  # value of `out_bytes` at which nothing old is written any more

    def cost(self) -> i64:
        """Bytes read, commands run and bytes of replies, since the start."""
        return self.price() + self.s.figures.much_bytes

    def price(self) -> i64:
        """The same without replies: those of consumers do not make the bytes of others dear."""
        figures = self.s.figures
        commands = figures.commands + figures.turned_down
        return figures.in_bytes + COMMAND_COST * commands + self.joined

    def begin(self) -> None:
        """Start a turn with a full share."""
        self.end = self.cost() + TURN_READ
        self.has_read_new = self.has_read_much = False
        self.written = self.s.figures.out_bytes + TURN_WRITE

    def may_read(self, c: Connection) -> bool:
        """Whether its turn has come: the share is left, or nobody of its kind was read yet.

        The thrifty have no such right: they come first. Who uses much waits until replies that
        sockets take have been written: otherwise these would grow.
        """
        self.before = self.cost()
        self.has_more = False
        if c.uses_much == THRIFTY:
            may = self.before < self.end
        elif c.uses_much == NEW:
            may = self.before < self.end or not self.has_read_new
            self.has_read_new = True
        else:
            may = self.before < self.end or not self.has_read_much
            may = may and not self.waits_for_room(c)
            self.has_read_much = True
        if not may:
            self.late[int(c.fd)] = None
        return may

    def waits_for_room(self, c: Connection) -> bool:
        """Whether it uses much, and replies that sockets would take have not been written yet."""
        return c.uses_much > THRIFTY and self.unwritten_turn >= self.s.figures.turns - 1

    def may_write(self, c: Connection) -> bool:
        """Whether what its socket refused may be written in this turn."""
        if self.s.figures.out_bytes < self.written:
            return True
        self.late[int(c.fd)] = None
        self.unwritten_turn = self.s.figures.turns
        return False

    def note_read(self, c: Connection) -> None:
        """A connection was read and its commands ran."""
        if self.has_more or self.cost() - self.before > MUCH:
            c.uses_much = MUCH_READS
            self.uneven = UNEVEN_TURNS
        elif c.uses_much > THRIFTY:
            c.uses_much -= 1
        elif c.uses_much == NEW:
            c.uses_much = THRIFTY

    def note_price(self) -> None:
        """See what a byte of input costs: many short commands cost more than their bytes."""
        cost, read = self.price(), self.s.figures.in_bytes
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
        """The ready descriptors: who has used little lately, who is new, who uses much.

        Among each, those that missed the last turn come first, the longest wait in front.
        Many connections are read in smaller pieces, so that each has its turn soon.
        """
        self.note_price()
        count: i64 = len(ready)
        self.each = READ_BYTES
        if count * READ_BYTES * self.dear > 16 * TURN_READ:
            self.each = max(LEAST_READ, 16 * TURN_READ // (2 * count * self.dear))
        if len(self.late) > 0:
            late = self.late
            self.late = {}
            masks = dict(ready)
            first = [(fd, masks[fd]) for fd in late if fd in masks]
            first.extend([one for one in ready if one[0] not in late])
            ready = first
        elif self.uneven == 0:
            return ready
        if self.uneven > 0:
            self.uneven -= 1
        if count < 2:
            return ready
        return self.by_kind(ready)

    def by_kind(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The thrifty and what is no client's, the new, those to write to, those that use much."""
        clients, wired = self.s.clients, self.s.wired
        thrifty: list[tuple[int, int]] = []
        new: list[tuple[int, int]] = []
        unsent: list[tuple[int, int]] = []
        much: list[tuple[int, int]] = []
        for one in ready:
            c: Connection | None = clients.get(one[0])
            if c is None:
                c = wired.get(one[0])
            if c is None or c.uses_much == THRIFTY:
                thrifty.append(one)
            elif one[1] & OUT:
                unsent.append(one)
            elif c.uses_much == NEW:
                new.append(one)
            else:
                much.append(one)
        return thrifty + new + unsent + much


# ---- What a client has sent and no turn has run yet (SPEC C2.9)


def leaves_unrun(s: Server, c: Client) -> bool:
    """[C2.9] Weigh what was read; whether it is more than the client may have, which is noted."""
    most = unread_limit(s, c)
    held = c.todo_bytes + c.reader.held_bytes()
    if held + c.weight > LIGHT:
        weigh(s.n, c)
    if held <= most:
        return False
    note_unrun(s, c, most)
    c.reader.error = f"the command is over client-query-buffer-limit ({most})"
    return True


def unread_limit(s: Server, c: Client) -> int:
    """Bytes of pending commands that a client may have (C2.9)."""
    if s.is_nobody(c):
        return UNRUN_MAX
    return s.query_limit


def is_stranger(s: Server, c: Connection) -> bool:
    """Whether the client must log in first, or as a guest may call nothing (C2.9)."""
    if isinstance(c, Client):
        return s.is_nobody(c)
    if not isinstance(c, Wired) or c.user.name != GUEST:
        return False
    if c.user.is_admin or c.user.account is not None:
        return False
    return s.n.policy is None or not tubes_of(s.n).rights.has_any(c.user.holders)


def note_unrun(s: Server, c: Connection, most: int) -> None:
    """[C2.9] Log that the client is closed: its pending commands exceed `most` bytes."""
    warn_once(s.n.now_ms, c.address, f"more than {most} bytes unread")
    if is_stranger(s, c):
        s.figures.strangers_closed += 1
