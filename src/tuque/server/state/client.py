"""A connection of a RESP client: its pending commands, its modes."""

import socket
from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.job import Job
from tuque.core.tables.work import Asking, Change
from tuque.server.sockets.connection import Connection
from tuque.server.state.chore import Chore
from tuque.server.users.account import Account
from tuque.wire.proto.resp import RequestReader, error_reply, put_value

REPLY_ON: Final = 0
REPLY_OFF: Final = 1
REPLY_SKIP: Final = 2  # drop the next command's reply
REPLY_SKIPPING: Final = 3  # drop this command's
ERROR_BYTES: Final = 4_096  # of an error, which may repeat the client's input
HANDED_MAX: Final = 32  # jobs of its last GETJOB that a client's connection remembers
HANDED_BYTES: Final = 4_096  # of their bodies: they may outlive their job
NONE_HANDED: Final[list[Job]] = []
LOOK: Final = 500  # clients checked in one round of housekeeping

# why a client's next command does not run yet
NOT_HELD: Final = 0
HELD_ORDER: Final = 1  # not an ADDJOB: waits until all before it are answered
HELD_MANY: Final = 2  # an ADDJOB, and too many wait for their copies
HELD_ROOM: Final = 3  # an ADDJOB, and the links to other nodes are full (B2.4)

# what a Pending waits for
HOLE: Final = 0  # a command's reply, in order
PUT: Final = 1  # a put that also waited for room
WIRED: Final = 2  # an IPROTO call


@final
class Client(Connection):
    """A connection that sends commands."""

    def __init__(
        self, number: i64, sock: socket.socket, address: str, max_bulk: i64, now_ms: i64
    ) -> None:
        super().__init__(number, sock, address, now_ms)
        self.is_unix = address.startswith("unix:")
        self.handed: list[Job] = NONE_HANDED  # of its last GETJOB, if few and short
        self.reader = RequestReader(max_bulk)
        self.todo: list[list[list[bytes]]] = []  # read but not run: blocked or paused
        self.todo_ms: list[int] = []  # when each piece arrived
        self.todo_bytes: i64 = 0  # their memory, roughly
        self.came_ms = now_ms  # when the commands running now arrived
        self.is_blocked = False
        self.chore: Chore | None = None  # blocked: the rest of a long command
        self.holes: list[bytes | None] = []  # replies of ADDJOBs in order; None: pending
        self.holes_head: i64 = 0  # how many of them are sent
        self.first_serial: i64 = 0  # of the first of them
        self.muted: dict[int, None] = {}  # serials whose replies are dropped (CLIENT REPLY)
        self.told_new: dict[int, bool] = {}  # serials of ADDJOB WITHNEW, and what to say (Z4.7)
        self.held: i64 = NOT_HELD  # why the first of `todo` does not run
        self.stalled_ms: i64 = 0  # since when it lacks room on the links
        self.is_monitor = False
        self.wanted: Wanted | None = None  # blocked in RESULT or WAITJOB
        self.said: dict[bytes, bytes] | None = None  # of WAITJOB: ids as they came (N10.3)
        self.is_taking = False  # blocked in a take of a tube
        self.is_putting = False  # blocked in a put to a full tube
        self.is_put_muted = False  # whose reply is dropped (CLIENT REPLY)
        self.put_serial: i64 = 0  # of its latest waiting put or claim, move or failover of a tube
        self.is_homing = False  # blocked in a claim, move or failover of a tube
        self.watched: dict[bytes, None] = {}  # tubes it subscribes to
        self.user: Account | None = None  # none: it must log in
        self.strange: i64 = 0  # commands that ran before the log-in
        self.reply_mode: i64 = REPLY_ON
        self.resp3 = False
        self.name = b""
        self.worker = b""  # what START calls it if it says no name (W2.4)
        self.begins_as = b""  # the worker of its latest GETJOB with START (W17)
        self.lib_name = b""
        self.lib_version = b""
        self.command = ""  # the last one, lower case
        self.commands: i64 = 0

    def hand(self, jobs: list[Job]) -> None:
        """Remember the jobs of a GETJOB: the next words of the client often name them in order."""
        self.handed = NONE_HANDED
        if len(jobs) > HANDED_MAX:
            return
        size: i64 = 0
        for job in jobs:
            size += len(job.body)
        if size <= HANDED_BYTES:
            self.handed = jobs

    def sees(self, queue: bytes) -> bool:
        """[N2] Whether the client's user may see the queue (N2.5)."""
        return self.user is None or self.user.may_see(queue)

    def sees_all(self) -> bool:
        """Whether it may see every queue."""
        return self.user is None or self.user.sees_all

    def named(self, name: bytes) -> bytes:
        """[N10] The name of a queue, group or worker as the client's user knows it (N10.2)."""
        return name if self.user is None else self.user.bare(name)

    def own(self, name: bytes) -> bytes:
        """[N10] The full name of what the client's user calls so."""
        return name if self.user is None else self.user.prefix + name

    def is_own(self, name: bytes) -> bool:
        """[N10] Whether the client's user may know of the group or worker of that full name."""
        return self.user is None or self.user.is_own(name)

    def is_tenant(self) -> bool:
        """[N10] Whether the client's user is of a tenant."""
        return self.user is not None and len(self.user.prefix) > 0

    def unread_bytes(self) -> i64:
        """Memory of input not run yet, roughly."""
        if self.reader.strict is not None:
            return self.todo_bytes + self.reader.held_bytes()
        return self.todo_bytes

    def chore_bytes(self) -> i64:
        """Memory of a reply in the making."""
        return 0 if self.chore is None else self.chore.bytes_used

    def put_off(self, commands: list[list[bytes]], is_next: bool) -> None:
        """Queue commands for later, behind the waiting ones or before them."""
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
        """The next waiting commands: as many as arrived with one read."""
        if len(self.todo) == 0:
            return []
        commands = self.todo.pop(0)
        self.came_ms = self.todo_ms.pop(0)
        self.todo_bytes -= memory_of(commands)
        return commands

    def forget(self) -> None:
        """Free the buffers of a closed connection."""
        super().forget()
        self.todo = []
        self.todo_ms = []

    def is_waiting(self) -> bool:
        """Whether the client waits for jobs, for copies of its own, or for the next letter."""
        if self.chore is not None and self.chore.is_paced:
            return True
        return (self.is_blocked and self.chore is None) or len(self.holes) > 0

    def is_stuck(self) -> bool:
        """Whether further commands must wait for a pending reply."""
        return self.is_blocked or len(self.holes) > 0

    def is_busy(self) -> bool:
        """Whether one of the client's commands runs in slices."""
        return self.chore is not None

    def may_run(self) -> bool:
        """Whether commands wait and nothing of the client's own blocks them."""
        return (
            len(self.todo) > 0
            and not self.is_blocked
            and not self.is_closing
            and self.held == NOT_HELD
        )

    def reply(self, value: object) -> None:
        """Reply with any value (see `put_value`)."""
        put_value(self.out, value, self.resp3)

    def error(self, text: bytes) -> None:
        """Reply with an error; the text starts with its code and has no `-`."""
        if len(text) > ERROR_BYTES:
            text = text[:ERROR_BYTES] + b"..."  # L2.9
        self.out.append(self.error_bytes(text))

    def error_bytes(self, text: bytes) -> bytes:
        """The reply that is this error, without the prefix of the user's tenant (N10.2)."""
        if self.user is not None and len(self.user.prefix) > 0:
            text = text.replace(self.user.prefix, b"")
        return error_reply(text)

    def ok(self) -> None:
        """Reply +OK."""
        self.out.append(b"+OK\r\n")


@final
class Pending:
    """One reply that waits for copies."""

    def __init__(self, kind: i64, client: i64, serial: i64, until_ms: i64) -> None:
        self.kind = kind
        self.client = client
        self.serial = serial  # of the hole or the put; for a call its sync
        self.seq: i64 = 0  # the change that must be copied
        self.epoch: i64 = 0  # under which the leader made it
        self.until_ms = until_ms
        self.reply = b""
        # other tubes, with the epoch and the change that must be copied
        self.rest: list[tuple[bytes, int, int]] = []


@final
class Survey:
    """Checks clients in rounds, some per call, and sums up their memory."""

    def __init__(self) -> None:
        self.left: list[Connection] = []  # not checked in this round yet
        self.sum: i64 = 0  # of those checked
        self.bytes: i64 = 0  # of all clients, at the end of the last round

    def next(self, clients: Mapping[int, Connection], heard_ms: i64) -> list[Connection]:
        """Check some; returns those that may be overdue, or not heard of since `heard_ms`."""
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
            if (
                c.half_since_ms > 0
                or c.soft_since_ms > 0
                or c.stranger_ms > 0
                or c.last_ms < heard_ms
            ):
                late.append(c)
        self.sum = sum
        if len(self.left) == 0:
            self.bytes = sum
            self.sum = 0
        return late


@final
class Wanted:
    """What a client waits for in RESULT or WAITJOB (W9)."""

    def __init__(self, ids: list[bytes], needed: i64, is_now: bool = False) -> None:
        self.ids = ids
        self.needed = needed  # 0: the fields of one job
        self.is_now = is_now  # what other nodes know now, whatever it is (W15)
        self.asks_until_ms: i64 = 0  # how long it waits for their answers after its own time
        self.is_late = False  # its own time is over (W15.4)
        self.said: dict[bytes, bytes] | None = None  # ids as they came, by those that stand here
        self.rows: list[object] | None = None  # of a CANCEL; None in it: other nodes were asked
        self.changes: dict[bytes, Change] = {}  # by id: UPDATEJOB and CANCEL with copies (W16)
        self.asked: dict[bytes, Asking] = {}  # by id: CANCEL of jobs that are not here (W15)


def memory_of(commands: list[list[bytes]]) -> i64:
    """The memory of commands, roughly: for short ones many times their size on the wire."""
    size: i64 = 0
    for command in commands:
        size += 72
        for word in command:
            size += 48 + len(word)
    return size
