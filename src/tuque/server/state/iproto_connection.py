"""A connection that speaks IPROTO: its user, its waiting calls (SPEC I).

Requests are answered one by one, in any order: none waits for another.
"""

import socket
from typing import Final, final

from mypy_extensions import i64

from tuque.server.sockets.connection import Connection
from tuque.server.users.account import Account
from tuque.tubes.model.grants import role_key, user_key
from tuque.wire.commands.rights import Unit
from tuque.wire.proto.iproto import FrameReader

GUEST: Final = b"guest"
PUBLIC: Final = b"public"  # the role of every user
STRANGER_BYTES: Final = 16_384  # the largest frame from a user without any right (I2.3)


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
        self.chores: i64 = 0  # long calls in progress (L2.7)
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
        return self.reader.held_bytes


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
