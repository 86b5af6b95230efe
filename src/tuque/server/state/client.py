"""A connection of a RESP client: what was read and not run yet, its modes."""

import socket
from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import i64

from tuque.server.sockets.connection import Connection
from tuque.server.state.chore import Chore
from tuque.wire.resp import RequestReader, error_reply, put_value

REPLY_ON: Final = 0
REPLY_OFF: Final = 1
REPLY_SKIP: Final = 2  # the next command's reply is dropped
REPLY_SKIPPING: Final = 3  # this command's
ERROR_BYTES: Final = 4_096  # of an error, which may repeat what the client said
LOOK: Final = 500  # clients looked at in one round of housekeeping

# why the next command of a client does not run yet
NOT_HELD: Final = 0
HELD_ORDER: Final = 1  # no ADDJOB: it waits until all before it are answered
HELD_MANY: Final = 2  # an ADDJOB, and too many wait for their copies
HELD_ROOM: Final = 3  # an ADDJOB, and the links to other nodes are full (B2.4)

# who waits for copies of what was changed in a tube
HOLE: Final = 0  # a command, behind others
PUT: Final = 1  # a put that waited for room before
WIRED: Final = 2  # a call of IPROTO


@final
class Client(Connection):
    """A connection that sends commands."""

    def __init__(
        self, number: i64, sock: socket.socket, address: str, max_bulk: i64, now_ms: i64
    ) -> None:
        super().__init__(number, sock, address, now_ms)
        self.is_unix = address.startswith("unix:")
        self.reader = RequestReader(max_bulk)
        self.todo: list[list[list[bytes]]] = []  # read, and not run: blocked or paused
        self.todo_ms: list[int] = []  # when each piece of them came
        self.todo_bytes: i64 = 0  # memory they take, about
        self.came_ms = now_ms  # when the commands that run now came
        self.is_blocked = False
        self.chore: Chore | None = None  # blocked: the rest of a long command is to be done
        self.holes: list[bytes | None] = []  # replies of ADDJOBs in order; None: waits for copies
        self.holes_head: i64 = 0  # so many of them are answered
        self.first_serial: i64 = 0  # of the first of them
        self.muted: dict[int, None] = {}  # serials of those that get no reply (CLIENT REPLY)
        self.held: i64 = NOT_HELD  # why the first of `todo` does not run
        self.stalled_ms: i64 = 0  # it lacks room on the links since then
        self.is_monitor = False
        self.is_taking = False  # blocked in a take of a tube
        self.is_putting = False  # blocked in a put to a full tube
        self.is_put_muted = False  # which gets no reply (CLIENT REPLY)
        self.put_serial: i64 = 0  # of its latest put that waited, or command about a home
        self.is_homing = False  # blocked in a command about the home of a tube
        self.watched: dict[bytes, None] = {}  # tubes that it subscribes to
        self.is_authed = False
        self.reply_mode: i64 = REPLY_ON
        self.resp3 = False
        self.name = b""
        self.lib_name = b""
        self.lib_version = b""
        self.command = ""  # the last one, lower case
        self.commands: i64 = 0

    def unread_bytes(self) -> i64:
        """Memory of what was read and not run yet, about."""
        if self.reader.strict is not None:
            return self.todo_bytes + self.reader.held_bytes()
        return self.todo_bytes

    def chore_bytes(self) -> i64:
        """Memory of a reply that is being made."""
        return 0 if self.chore is None else self.chore.bytes_used

    def put_off(self, commands: list[list[bytes]], is_next: bool) -> None:
        """Keep commands for later, behind those that wait or before them."""
        if len(commands) == 0:
            return
        if is_next:
            self.todo.insert(0, commands)
            self.todo_ms.insert(0, self.came_ms)
        else:
            self.todo.append(commands)
            self.todo_ms.append(self.last_ms)
        self.todo_bytes += memory_of(commands)

    def take_up(self) -> list[list[bytes]]:
        """What is next of the commands that wait: as many as came with one read."""
        if len(self.todo) == 0:
            return []
        commands = self.todo.pop(0)
        self.came_ms = self.todo_ms.pop(0)
        self.todo_bytes -= memory_of(commands)
        return commands

    def forget(self) -> None:
        """Free what a closed connection still holds."""
        super().forget()
        self.todo = []
        self.todo_ms = []

    def is_waiting(self) -> bool:
        """Whether the client waits for jobs, or for copies of its own."""
        return (self.is_blocked and self.chore is None) or len(self.holes) > 0

    def is_stuck(self) -> bool:
        """Whether what it sends now has to wait for an answer that is due."""
        return self.is_blocked or len(self.holes) > 0

    def is_busy(self) -> bool:
        """Whether a command of the client is being done, in slices."""
        return self.chore is not None

    def may_run(self) -> bool:
        """Whether something waits to be run, and nothing of the client's own is in its way."""
        return (
            len(self.todo) > 0
            and not self.is_blocked
            and not self.is_closing
            and self.held == NOT_HELD
        )

    def reply(self, value: object) -> None:
        """Answer with any value (see `put_value`)."""
        put_value(self.out, value, self.resp3)

    def error(self, text: bytes) -> None:
        """Answer with an error; the text starts with its code and has no `-`."""
        if len(text) > ERROR_BYTES:
            text = text[:ERROR_BYTES] + b"..."  # L2.9
        self.out.append(error_reply(text))

    def ok(self) -> None:
        """Answer +OK."""
        self.out.append(b"+OK\r\n")


@final
class Pending:
    """One answer that waits for copies."""

    def __init__(self, kind: i64, client: i64, serial: i64, until_ms: i64) -> None:
        self.kind = kind
        self.client = client
        self.serial = serial  # of the hole, of the put, or the sync of the call
        self.seq: i64 = 0  # of the change that must be there
        self.until_ms = until_ms
        self.reply = b""
        self.rest: list[tuple[bytes, int]] = []  # other tubes, and what must be there of them


@final
class Survey:
    """Looks at all clients in turn, so many at a time, and sums up what they hold."""

    def __init__(self) -> None:
        self.left: list[Connection] = []  # not looked at in this round yet
        self.sum: i64 = 0  # of those looked at
        self.bytes: i64 = 0  # what all held when the last round ended

    def next(self, clients: Mapping[int, Connection], heard_ms: i64) -> list[Connection]:
        """Look at some; those that may be overdue, like all not heard of since `heard_ms`."""
        if len(self.left) == 0:
            self.left = list(clients.values())
        seen = self.left[-LOOK:]
        del self.left[-LOOK:]
        late: list[Connection] = []
        sum: i64 = self.sum
        for c in seen:
            if c.is_closed:
                continue
            sum += c.wire_bytes + c.held_bytes + c.unread_bytes() + c.chore_bytes()
            if c.half_since_ms > 0 or c.soft_since_ms > 0 or c.last_ms < heard_ms:
                late.append(c)
        self.sum = sum
        if len(self.left) == 0:
            self.bytes = sum
            self.sum = 0
        return late


def memory_of(commands: list[list[bytes]]) -> i64:
    """About how many bytes commands take in memory: many times what short ones take on the wire."""
    size: i64 = 0
    for command in commands:
        size += 72
        for word in command:
            size += 48 + len(word)
    return size
