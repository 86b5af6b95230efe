"""Connections of clients, RESP and IPROTO: waiting commands and output (SPEC C8, I, L2)."""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.model.job import Job
from tuque.core.node.node import Node
from tuque.core.tables.topics import Purge
from tuque.core.tables.work import Asking, Change
from tuque.server.users.users import Account
from tuque.tubes.model.grants import role_key, user_key
from tuque.wire.commands.commands import Unit
from tuque.wire.proto.iproto import FrameReader
from tuque.wire.proto.resp import RequestReader, error_reply, put_value

LARGE_BYTES: Final = 262_144  # a larger piece of a reply is not copied
SMALL_BYTES: Final = 65_536  # smaller waiting replies are joined into one write
SHORT_READ: Final = 479  # 512 with the head of a bytes object, which Python allocates quickly
READ_BYTES: Final = 65_536
SHORT_READS: Final = 8  # in a row, before a connection that sent much is read in short pieces again
FEW_BYTES: Final = 1_024  # of replies that do not count towards the turn (L2.8)
TURN_BYTES: Final = 1 << 20  # with more replies in a turn, its other requests wait

# A plain socket is read and written as a file: the methods of sockets take their arguments slower.
_READ: Final[Callable[[int, int], bytes]] = os.read
_WRITE: Final[Callable[[int, bytes], int]] = os.write

GUEST: Final = b"guest"
PUBLIC: Final = b"public"  # the role of every user
STRANGER_BYTES: Final = 16_384  # the largest frame from a user without any right (I2.3)

REPLY_ON: Final = 0
REPLY_OFF: Final = 1
REPLY_SKIP: Final = 2  # drop the next command's reply
REPLY_SKIPPING: Final = 3  # drop this command's
ERROR_BYTES: Final = 4_096  # of an error, which may repeat the client's input
HANDED_MAX: Final = 32  # jobs of its last GETJOB that a client's connection remembers
HANDED_BYTES: Final = 4_096  # of their bodies: they may outlive their job
NONE_HANDED: Final[list[Job]] = []
PIECE_BYTES: Final = 60  # of a waiting piece of output, without its bytes
HOLE_BYTES: Final = 100  # of a reply that waits for others
LIGHT: Final = 4_096  # a connection that holds less is weighed by the survey only
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


ORDINARY: Final = 0
SPARE: Final = 1
ADMINISTERS: Final = 2  # has shown that it may

THRIFTY: Final = 0  # its last reads cost little; above: so many cheap ones are wanted first
NEW: Final = -1  # nothing of it was read yet

# ---- A connection of either protocol: its output, and the gate of the journal (SPEC C8)
#
# It knows neither what the bytes mean nor which peer is at the other end.


def join_small(wire: list[bytes]) -> None:
    """Join the small pieces at the head."""
    count: i64 = 0
    while count < 64 and count < len(wire) and len(wire[count]) < SMALL_BYTES:
        count += 1
    if count > 1:
        wire[:count] = [b"".join(wire[:count])]


class Connection:
    """One socket. Numbers always rise, so that a late event never hits a newer connection."""

    def __init__(self, number: i64, sock: socket.socket, address: str, now_ms: i64) -> None:
        self.number = number
        self.sock = sock
        self.fd: i64 = sock.fileno()
        self.is_plain = type(sock) is socket.socket
        self.address = address  # ip:port, or unix:path
        self.out: list[bytes] = []  # produced in this turn
        self.has_large = False  # one of its pieces is large
        self.out_seen: i64 = 0  # pieces of it whose bytes are counted
        self.out_bytes: i64 = 0  # of these
        self.out_counted: i64 = 0  # of these, counted towards the turn
        self.gated: list[tuple[int, bytes]] = []  # with the journal number each waits for
        self.wire: list[bytes] = []  # may be sent, but the socket had no room
        self.wire_at: i64 = 0  # bytes of the first piece already sent
        self.wire_bytes: i64 = 0
        self.held_bytes: i64 = 0  # of `gated`
        self.longest: i64 = 0  # bytes of the longest piece since all was written
        self.owed_bytes: i64 = 0  # of replies that wait for others
        self.weight: i64 = 0  # bytes that count for it in n.client_bytes
        self.is_dirty = False  # is in server.dirty
        self.wants_write = False  # waits for room in the socket
        self.soft_since_ms: i64 = 0  # since when it is above the soft output limit
        self.half_since_ms: i64 = 0  # since when half a request is buffered
        self.ctime_ms = now_ms
        self.stranger_ms: i64 = 0  # since when it must log in and has not; 0: it need not
        self.line_ms: i64 = 0  # since when its log-in waits for its turn; 0: none does
        self.last_ms = now_ms
        self.is_full = False  # not read from: too much input waits
        self.is_closing = False  # close once everything is written
        self.place: i64 = ORDINARY  # beyond maxclients: SPARE, ADMINISTERS (C1.12)
        self.is_closed = False
        self.lingers = False  # close only when the other end had time to read why (C2.10)
        self.ask: i64 = SHORT_READ  # bytes to read at once
        self.short_reads: i64 = 0  # in a row
        self.has_ended = False  # has stopped sending, but is still owed replies
        self.uses_much: i64 = NEW  # of the turns (L2.8)
        self.spent_turn: i64 = -1  # in which it used up its share of the work (L2.10)

    def is_tenant(self) -> bool:
        """[N10] Whether the user is of a tenant."""
        return False

    def is_waiting(self) -> bool:
        """Whether a reply waits for others."""
        return False

    def is_busy(self) -> bool:
        """Whether one of its commands runs in slices."""
        return False

    def is_at_rest(self) -> bool:
        """Whether nothing of it is in flight: no command, no reply."""
        if self.is_waiting() or self.is_busy() or self.unread_bytes() > 0:
            return False
        return len(self.out) == 0 and len(self.gated) == 0 and len(self.wire) == 0

    def long_command_bytes(self) -> i64:
        """Memory of a long command, and of its reply in the making."""
        return 0

    def unread_bytes(self) -> i64:
        """Memory of input not run yet, roughly."""
        return 0

    def words_bytes(self) -> i64:
        """Memory of what it has said once, and what is kept of it."""
        return 0

    def memory(self) -> i64:
        """[M5] Bytes of its buffers (M5.1)."""
        pieces: i64 = len(self.wire) + len(self.gated)
        held = self.wire_bytes + self.held_bytes + PIECE_BYTES * pieces
        held += self.owed_bytes + self.wire_at  # the first piece stays until its end is sent
        return held + self.unread_bytes() + self.long_command_bytes() + self.words_bytes()

    def receive(self, most: i64) -> bytes:
        """Read up to `most` bytes or 64 KB; empty at the end of the stream. Raises OSError."""
        if most < self.ask:
            return self.take(most)
        data = self.take(self.ask)
        if self.ask == SHORT_READ:
            return data if len(data) < SHORT_READ else self.read_on(data, most)
        self.short_reads = self.short_reads + 1 if len(data) < SHORT_READ else 0
        if self.short_reads == SHORT_READS:
            self.ask = SHORT_READ
        return data

    def take(self, most: i64) -> bytes:
        """Read once. Raises OSError."""
        if self.is_plain and not self.is_closed:  # a closed one's number may be another's
            return _READ(self.fd, most)
        return self.sock.recv(most)

    def give(self, data: bytes) -> i64:
        """Write once; returns the bytes that the socket took. Raises OSError."""
        if self.is_plain and not self.is_closed:
            return _WRITE(self.fd, data)
        return self.sock.send(data)

    def read_on(self, data: bytes, most: i64) -> bytes:
        """Read the rest of a long input."""
        self.ask = READ_BYTES
        self.short_reads = 0
        try:
            return data + self.take(most)
        except OSError:  # nothing more, or the error comes again next time
            return data

    def push(self, most: i64) -> i64:
        """Write up to `most` bytes of what waits, as the socket takes them. Raises OSError."""
        wire = self.wire
        done: i64 = 0
        while len(wire) > 0 and done < most:
            if self.wire_at == 0 and len(wire) > 1 and len(wire[0]) < SMALL_BYTES:
                join_small(wire)
            end: i64 = self.wire_at + most - done
            try:
                sent: i64 = self.sock.send(memoryview(wire[0])[self.wire_at : end])
            except BlockingIOError:
                break
            done += sent
            self.wire_at += sent
            if self.wire_at == len(wire[0]):
                self.wire_at = 0
                del wire[0]
        self.wire_bytes -= done
        return done

    def has_much(self) -> bool:
        """[L2.8] Whether its replies of this turn are so long that its other requests wait."""
        self.measure_out()
        return self.out_bytes > TURN_BYTES

    def take_much(self) -> i64:
        """[L2.8] Bytes of its replies of this turn that do not count towards it yet; few do not."""
        self.measure_out()
        fresh = self.out_bytes - self.out_counted
        if fresh < FEW_BYTES:
            return 0
        self.out_counted = self.out_bytes
        return fresh

    def measure_out(self) -> None:
        """Count the bytes of the pieces that came since the last call."""
        out = self.out
        count: i64 = len(out)
        if count < self.out_seen:
            self.out_seen = self.out_bytes = self.out_counted = 0
        seen = self.out_seen
        size = self.out_bytes
        while seen < count:  # once compiled, a third of what `sum(map(len, ...))` costs
            size += len(out[seen])
            seen += 1
        self.out_seen = count
        self.out_bytes = size
        if size > LARGE_BYTES:
            self.has_large = True  # or many small ones

    def hold(self, seq: i64) -> None:
        """Hold the output until the journal's record `seq` is durable."""
        for held in self.take_out():
            self.gated.append((max(seq, 0), held))
            self.held_bytes += len(held)
            self.longest = max(self.longest, len(held))

    def queue(self, part: bytes) -> None:
        """Queue for the socket what may be sent."""
        self.wire.append(part)
        self.wire_bytes += len(part)
        self.longest = max(self.longest, len(part))

    def take_out(self) -> list[bytes]:
        """The turn's output in one piece; large pieces are not copied."""
        out = self.out
        self.out = []
        self.out_seen = self.out_bytes = self.out_counted = 0
        if not self.has_large:
            return [b"".join(out)]
        self.has_large = False
        pieces: list[bytes] = []
        small: list[bytes] = []
        for part in out:
            if len(part) < LARGE_BYTES:
                small.append(part)
                continue
            pieces.append(b"".join(small))
            pieces.append(part)
            small = []
        pieces.append(b"".join(small))
        return pieces

    def release(self, durable_seq: i64) -> bool:
        """Release what waits for no later record; False when there is nothing."""
        gated = self.gated
        i: i64 = 0
        while i < len(gated) and gated[i][0] <= durable_seq:
            held = gated[i][1]
            self.queue(held)
            self.held_bytes -= len(held)
            i += 1
        del gated[:i]
        return i > 0

    def forget(self) -> None:
        """Free the buffers of a closed connection."""
        self.wire = []
        self.gated = []
        self.out = []


# ---- A connection that speaks IPROTO: its user, its waiting calls (SPEC I)
#
# Requests are answered one by one, in any order: none waits for another.


@final
class User:
    """A user of IPROTO."""

    def __init__(
        self, name: bytes, secret: bytes, is_admin: bool, roles: list[bytes] | None = None
    ) -> None:
        self.name = name
        self.secret = secret  # SHA-1 of SHA-1 of the password; empty: no password needed
        self.is_admin = is_admin  # may call everything
        self.roles = [PUBLIC, *(roles or [])]
        self.account: Account | None = None  # of the table of users: its rights (N8)
        self.holders = [user_key(name)] + [role_key(role) for role in self.roles]

    def may_all(self) -> bool:
        """Whether the user may call everything."""
        return self.is_admin or (self.account is not None and self.account.is_full)

    def sees(self, tube: bytes) -> bool:
        """Whether the table of users shows the user that tube; grants show others."""
        return self.is_admin or (self.account is not None and self.account.may_see(tube))


@final
class Users:
    """All users by name. `guest`, the user before a login, always exists."""

    def __init__(self) -> None:
        self.guest = User(GUEST, b"", False)
        self.by_name: dict[bytes, User] = {GUEST: self.guest}
        self.roles: dict[bytes, None] = {PUBLIC: None}
        self.is_from_file = False  # not just the guest

    def add(self, user: User) -> None:
        """Add a user, or replace the guest."""
        if user.name == GUEST:
            self.guest = user
        self.by_name[user.name] = user
        for role in user.roles:
            self.roles[role] = None


@final
class Wired(Connection):
    """The connection; its number also identifies it in its session."""

    def __init__(
        self, number: i64, sock: socket.socket, address: str, salt: bytes, user: User, now_ms: i64
    ) -> None:
        super().__init__(number, sock, address, now_ms)
        self.salt = salt
        self.reader = FrameReader(STRANGER_BYTES)
        self.user = user
        self.takes: dict[int, None] = {}  # numbers of waiting takes
        self.puts: dict[int, Put] = {}  # waiting for room, by serial
        self.claims: dict[int, Put] = {}  # waiting to create a tube, by serial
        self.uncopied: i64 = 0  # calls that wait for copies of their changes
        self.long_commands: i64 = 0  # long calls in progress (L2.7)
        self.next_serial: i64 = 1
        self.is_stalled = False  # has more input than one turn runs, or clients are paused
        self.requests: i64 = 0
        self.act: Unit | None = None  # what the call is, for the audit
        self.command = b"NULL"  # the last request

    def is_tenant(self) -> bool:
        """[N10] Whether the user is of a tenant."""
        return self.user.account is not None and len(self.user.account.prefix) > 0

    def worded(self, text: bytes) -> bytes:
        """[N10] The text of an error without the prefix of the user's tenant (N10.2)."""
        account = self.user.account
        if account is None or len(account.prefix) == 0:
            return text
        return text.replace(account.prefix, b"")

    def named(self, name: bytes) -> bytes:
        """[N10] The name of a tube as the user knows it (N10.2)."""
        account = self.user.account
        return name if account is None else account.bare(name)

    def own(self, name: bytes) -> bytes:
        """[N10] The full name of the tube that the user calls so."""
        account = self.user.account
        return name if account is None else account.prefix + name

    def is_waiting(self) -> bool:
        """Whether a take, a put, a create_tube or a change in a tube with SYNC waits."""
        if len(self.claims) > 0 or self.uncopied > 0:
            return True
        return len(self.takes) > 0 or len(self.puts) > 0

    def unread_bytes(self) -> i64:
        """Memory of input not run yet."""
        return self.reader.memory()


@final
class Take:
    """A waiting take, with a number of its own."""

    def __init__(self, conn: Wired, sync: int, is_16: bool, tube: bytes) -> None:
        self.conn = conn
        self.tube = tube
        self.sync = sync
        self.is_16 = is_16


@final
class Put:
    """A put waiting for room in its tube, or a create_tube waiting for other nodes."""

    def __init__(self, sync: int, is_16: bool) -> None:
        self.sync = sync
        self.is_16 = is_16


# ---- A command whose work takes several turns (SPEC L2)


@mypyc_attr(allow_interpreted_subclasses=True)
class LongCommand:
    """The rest of one command. A RESP connection has one at most."""

    def __init__(self, c: Connection) -> None:
        self.c = c
        self.name = ""  # the command's
        self.bytes_used: i64 = 0  # of the reply so far
        self.words_bytes: i64 = 0  # memory of the command itself
        self.is_muted = False  # nobody reads the reply (CLIENT REPLY)
        self.goes_on = False  # runs to its end even if the client has gone
        self.is_over = False
        self.sync = 0  # of an IPROTO call
        self.wake_ms: i64 = 0  # it rests until then
        self.is_paced = False  # ends when the client stops sending, as a waiting command does

    def held_bytes(self) -> i64:
        """[M5] Memory of the command and its reply so far (M5.1)."""
        return self.bytes_used + self.words_bytes

    def step(self, room: i64) -> bool:
        """Work for about `room` units, counted in n.work; True: done.

        Must not be called again after True. `tell` replies.
        """
        return True

    def drop(self) -> None:
        """Stop early: the client has gone, or the command was refused or failed."""

    def tell(self) -> None:
        """Send the reply after the last step."""


# ---- A connection that speaks RESP: its pending commands, its modes


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
        self.long_command: LongCommand | None = None  # blocked: the rest of a long command
        self.holes: list[bytes | None] = []  # replies of ADDJOBs in order; None: pending
        self.holes_head: i64 = 0  # how many of them are sent
        self.first_serial: i64 = 0  # of the first of them
        self.muted: dict[int, None] = {}  # serials whose replies are dropped (CLIENT REPLY)
        self.told_new: dict[int, bool] = {}  # serials of ADDJOB WITHNEW, and what to say (Z4.7)
        self.held: i64 = NOT_HELD  # why the first of `todo` does not run
        self.stalled_ms: i64 = 0  # since when it lacks room on the links
        self.is_monitor = False
        self.wanted: Wanted | None = None  # blocked in RESULT, WAITJOB or VALUE WAIT
        self.said: dict[bytes, bytes] | None = None  # of WAITJOB: ids as they came (N10.3)
        self.is_taking = False  # blocked in a take of a tube
        self.is_putting = False  # blocked in a put to a full tube
        self.is_put_muted = False  # whose reply is dropped (CLIENT REPLY)
        self.put_serial: i64 = 0  # of its latest waiting put or claim, move or failover of a tube
        self.is_homing = False  # blocked in a claim, move or failover of a tube
        self.watched: dict[bytes, None] = {}  # tubes it subscribes to
        self.watched_bytes: i64 = 0  # their memory
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

    def long_command_bytes(self) -> i64:
        """Memory of a long command, and of its reply in the making."""
        return 0 if self.long_command is None else self.long_command.held_bytes()

    def words_bytes(self) -> i64:
        """Memory of its names, the tubes that it watches, and replies that wait in order."""
        size: i64 = len(self.name) + len(self.lib_name) + len(self.lib_version)
        size += len(self.worker) + len(self.begins_as) + self.watched_bytes
        return size + HOLE_BYTES * len(self.holes)

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
        if self.long_command is not None and self.long_command.is_paced:
            return True
        return (self.is_blocked and self.long_command is None) or len(self.holes) > 0

    def is_stuck(self) -> bool:
        """Whether further commands must wait for a pending reply."""
        return self.is_blocked or len(self.holes) > 0

    def is_busy(self) -> bool:
        """Whether one of the client's commands runs in slices."""
        return self.long_command is not None

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
class ClientCheck:
    """Checks clients in rounds, some per call, and weighs them."""

    def __init__(self, n: Node) -> None:
        self.n = n
        self.left: list[Connection] = []  # not checked in this round yet

    def next(self, clients: Mapping[int, Connection], heard_ms: i64) -> list[Connection]:
        """Check some; returns those that may be overdue, or not heard of since `heard_ms`."""
        if len(self.left) == 0:
            self.left = list(clients.values())
        seen = self.left[-LOOK:]
        del self.left[-LOOK:]
        late: list[Connection] = []
        for c in seen:
            if c.is_closed:
                continue
            weigh(self.n, c)
            if (
                c.half_since_ms > 0
                or c.soft_since_ms > 0
                or c.stranger_ms > 0
                or c.last_ms < heard_ms
            ):
                late.append(c)
        return late


@final
class Wanted:
    """What a client waits for in RESULT, WAITJOB (W9) or VALUE WAIT (T72)."""

    def __init__(self, ids: list[bytes], needed: i64, is_now: bool = False) -> None:
        self.ids = ids
        self.needed = needed  # 0: the fields of one job
        self.more: i64 = 0  # what else of it: bits of core/life/shown.py
        self.is_now = is_now  # what other nodes know now, whatever it is (W15)
        self.asks_until_ms: i64 = 0  # how long it waits for their answers after its own time
        self.is_late = False  # its own time is over (W15.4)
        self.said: dict[bytes, bytes] | None = None  # ids as they came, by those that stand here
        self.rows: list[object] | None = None  # of a CANCEL; None in it: other nodes were asked
        self.changes: dict[bytes, Change] = {}  # by id: UPDATEJOB and CANCEL with copies (W16)
        self.asked: dict[bytes, Asking] = {}  # by id: CANCEL of jobs that are not here (W15)
        self.purge: Purge | None = None  # of QUEUE PURGE (T74.7)
        # of VALUE WAIT (T72), whose ids are those of `wait_key`
        self.tube = b""
        self.names: list[bytes] = []
        self.met: dict[bytes, None] = {}  # names that there were since it began
        self.done: dict[bytes, None] = {}  # names that count


def weigh(n: Node, c: Connection) -> None:
    """[M5] Count anew what the connection holds.

    Called where it may have grown by much; the survey does the rest within two seconds.
    """
    size: i64 = 0 if c.is_closed else c.memory()
    n.client_bytes += size - c.weight
    c.weight = size


def memory_of(commands: list[list[bytes]]) -> i64:
    """The memory of commands, roughly: for short ones many times their size on the wire."""
    size: i64 = 0
    for command in commands:
        size += 72
        for word in command:
            size += 48 + len(word)
    return size
