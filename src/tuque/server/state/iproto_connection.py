"""A connection that speaks IPROTO: who is logged in, which of its takes wait (SPEC I).

Requests are answered one by one, in any order: nothing here holds one up because another waits.
"""

import socket
from typing import Final, final

from mypy_extensions import i64

from tuque.server.sockets.connection import Connection
from tuque.tubes.model.grants import role_key, user_key
from tuque.wire.iproto import FrameReader

GUEST: Final = b"guest"
PUBLIC: Final = b"public"  # the role that everybody has
STRANGER_BYTES: Final = 16_384  # the largest frame of one who may not call anything (I2.3)


@final
class User:
    """A user of IPROTO."""

    def __init__(
        self, name: bytes, secret: bytes, is_admin: bool, roles: list[bytes] | None = None
    ) -> None:
        self.name = name
        self.secret = secret  # SHA-1 of SHA-1 of the password; empty: needs none
        self.is_admin = is_admin  # may call everything
        self.roles = [PUBLIC, *(roles or [])]
        self.holders = [user_key(name)] + [role_key(role) for role in self.roles]


@final
class Users:
    """All users by name. `guest`, whom a connection is before it logs in, is always there."""

    def __init__(self) -> None:
        self.guest = User(GUEST, b"", False)
        self.by_name: dict[bytes, User] = {GUEST: self.guest}
        self.roles: dict[bytes, None] = {PUBLIC: None}
        self.is_from_file = False  # and not only the guest

    def add(self, user: User) -> None:
        """One more user, or another guest."""
        if user.name == GUEST:
            self.guest = user
        self.by_name[user.name] = user
        for role in user.roles:
            self.roles[role] = None


@final
class Wired(Connection):
    """The connection; its number is also that of its session's member."""

    def __init__(
        self, number: i64, sock: socket.socket, address: str, salt: bytes, user: User, now_ms: i64
    ) -> None:
        super().__init__(number, sock, address, now_ms)
        self.salt = salt
        self.reader = FrameReader(STRANGER_BYTES)
        self.user = user
        self.takes: dict[int, None] = {}  # numbers under which takes wait
        self.puts: dict[int, Put] = {}  # that wait for room, by serial
        self.claims: dict[int, Put] = {}  # that wait to make a tube, by serial
        self.uncopied: i64 = 0  # calls that wait for copies of what they changed
        self.chores: i64 = 0  # long calls that go on (L2.7)
        self.next_serial: i64 = 1
        self.is_stalled = False  # more was read than one turn runs, or clients are paused
        self.requests: i64 = 0
        self.command = b"NULL"  # what was asked for last

    def is_waiting(self) -> bool:
        """Whether a take, a put, a create_tube or a change in a tube with SYNC waits."""
        if len(self.claims) > 0 or self.uncopied > 0:
            return True
        return len(self.takes) > 0 or len(self.puts) > 0

    def unread_bytes(self) -> i64:
        """Memory of what was read and not run yet."""
        return self.reader.held_bytes


@final
class Take:
    """A waiting take, under its own number."""

    def __init__(self, conn: Wired, sync: int, is_16: bool, tube: bytes) -> None:
        self.conn = conn
        self.tube = tube
        self.sync = sync
        self.is_16 = is_16


@final
class Put:
    """A put that waits for room in its tube, or a create_tube for other nodes."""

    def __init__(self, sync: int, is_16: bool) -> None:
        self.sync = sync
        self.is_16 = is_16
