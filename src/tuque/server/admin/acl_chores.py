"""SETUSER, LOAD and SAVE of ACL, which wait for a thread (SPEC N3, N5)."""

from __future__ import annotations

from typing import Final

from tuque.server.rights.change import (
    OPEN_DOOR,
    Reading,
    Writing,
    end_sessions,
    opens_door,
    take_users,
)
from tuque.server.rights.login import Slow
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.server.users.account import DEFAULT, Account
from tuque.server.users.file import USERS_MAX
from tuque.server.users.hasher import Work
from tuque.server.users.words import WordError, apply_words, is_slow
from tuque.wire.commands.arguments import ArgError

MANY_USERS: Final = b"ERR there are %d users, the most a node keeps" % USERS_MAX
CHANGED: Final = b"ERR the user was changed meanwhile: try again"


class Changing(Work):
    """A copy of a user, changed by words."""

    def __init__(self, account: Account, words: list[bytes]) -> None:
        super().__init__()
        self.account = account
        self.words = words
        self.error = ""

    def run(self) -> None:
        """Slow if passwords are among the words."""
        try:
            apply_words(self.account, self.words)
        except WordError as error:
            self.error = str(error)


class SetUser(Slow):
    """ACL SETUSER."""

    def __init__(self, s: Server, c: Client, name: bytes, words: list[bytes]) -> None:
        super().__init__(s, c)
        self.user = name
        self.known = s.acl.by_name.get(name)
        self.before = None if self.known is None else self.known.rules
        copy = Account(name) if self.known is None else self.known.copy()
        self.changing = Changing(copy, words)
        if not is_slow(words):
            self.changing.run()
            self.changing.is_done = True
            self.work = self.changing
        self.goes_on = True

    def step(self, room: int) -> bool:
        """Wait for the copy; then it takes the place of the user."""
        if not self.is_worked(self.changing):
            return False
        acl = self.s.acl
        if self.changing.error:
            text = f"ERR Error in ACL SETUSER modifier {self.changing.error}"
            raise ArgError(text.encode())
        known = acl.by_name.get(self.user)
        if known is not self.known or (known is not None and known.rules is not self.before):
            raise ArgError(CHANGED)
        if known is None and len(acl.by_name) >= USERS_MAX:
            raise ArgError(MANY_USERS)
        account = self.changing.account
        if account.name == DEFAULT and opens_door(self.s, account):
            raise ArgError(b"ERR " + OPEN_DOOR.encode())
        is_less = acl.put(account)
        self.s.settle_guest()
        if is_less:
            less = [acl.by_name[self.user]]
            if known is not None:
                less.append(known)  # of another tenant than before (N10.6)
            end_sessions(self.s, less, self.client)
        return True

    def tell(self) -> None:
        """OK."""
        self.client.ok()


class LoadUsers(Slow):
    """ACL LOAD."""

    def __init__(self, s: Server, c: Client) -> None:
        super().__init__(s, c)
        self.reading = Reading(s.acl.path)
        self.goes_on = True

    def step(self, room: int) -> bool:
        """Wait for the file; then take its users."""
        if not self.is_worked(self.reading):
            return False
        take_users(self.s, self.reading, self.client)
        if self.reading.error:
            raise ArgError(b"ERR " + self.reading.error.encode())
        return True

    def tell(self) -> None:
        """OK."""
        self.client.ok()


class SaveUsers(Slow):
    """ACL SAVE."""

    def __init__(self, s: Server, c: Client) -> None:
        super().__init__(s, c)
        self.writing = Writing(s.acl.path, list(s.acl.by_name.values()))
        self.goes_on = True

    def step(self, room: int) -> bool:
        """Wait for the disk."""
        if not self.is_worked(self.writing):
            return False
        if self.writing.error:
            raise ArgError(b"ERR " + self.writing.error.encode())
        self.s.acl.stamp = self.writing.stamp
        return True

    def tell(self) -> None:
        """OK."""
        self.client.ok()
